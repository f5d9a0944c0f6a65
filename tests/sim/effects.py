"""What statements do to the database as it must be: each of these is one statement's part of a `Model`.

An assertion of one fails where the statement cannot have been possible.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime

from tests.sim.journal import Files, Model
from tests.sim.world import PLAIN

WHOLE: frozenset[int] = frozenset()
"""No row of a file was deleted."""


def changes_files(model: Model, *, id: str, removed: Collection[str], added: Mapping[str, frozenset[int]]) -> None:
    """Take files of a table away, and add others, or the same with other rows deleted."""
    files = model.files[id]
    missing = {path for path in removed if path not in files and not path.startswith(PLAIN)}
    assert not missing, f"{sorted(missing)} were removed from {id}, and are not in it"
    left = {path: rows for path, rows in files.items() if path not in removed}
    assert not added.keys() & left.keys(), f"{sorted(added.keys() & left.keys())} were added to {id}, and are in it"
    model.files[id] = left | dict(added)
    model.gone = model.gone - added.keys() | (set(removed) - added.keys())


def deletes_row(model: Model, *, id: str, path: str, row: int) -> None:
    """Take a row out of a file."""
    rows = model.files[id].get(path)
    assert rows is not None, f"row {row} of {path} was deleted, and {id} has no such file"
    assert row not in rows, f"row {row} of {path} of {id} was deleted twice"
    model.files[id] = {**model.files[id], path: rows | {row}}


def creates(model: Model, *, name: str, id: str, files: Files) -> None:
    assert name not in model.tables, f"table {name} was created, and there is one"
    model.tables[name] = id
    model.files[id] = dict(files)


def drops(model: Model, *, name: str, id: str) -> None:
    assert model.tables.get(name) == id, f"table {name} ({id}) was dropped; there is {model.tables.get(name)}"
    del model.tables[name]


def renames(model: Model, *, name: str, new: str, id: str) -> None:
    assert new not in model.tables, f"table {new} is there, and {name} was given that name"
    drops(model, name=name, id=id)
    model.tables[new] = id


def undrops(model: Model, *, name: str, id: str, location: str) -> None:
    assert name not in model.tables, f"table {name} was brought back, and there is one"
    model.tables[name] = id
    model.released.discard(location)


def releases(model: Model, *, name: str, id: str, location: str) -> None:
    drops(model, name=name, id=id)
    model.released.add(location)


def adopts(model: Model, *, name: str, id: str, location: str, files: Files) -> None:
    creates(model, name=name, id=id, files=files)
    model.released.discard(location)


def views(model: Model, *, name: str, text: str | None) -> None:
    if text is None:
        del model.views[name]
    else:
        model.views[name] = text


def tags(model: Model, *, name: str, version: int, until: datetime | None) -> None:
    assert name not in model.tags, f"tag {name} was made, and there is one"
    model.tags[name] = version, until


def untags(model: Model, *, name: str) -> None:
    assert name in model.tags, f"tag {name} was dropped, and there is none"
    del model.tags[name]


def settles(model: Model, *, name: str, old: str, new: str, keep: str, common: Files, theirs: Files) -> None:
    """Settle a table that a plain Delta writer's commit made diverge.

    Args:
        keep: which side stays: the timeline's (`ours`), the log's (`theirs`), or `both`.
        common: what the log had at the newest version that is the same on both sides.
        theirs: what it has in the end; plain writers only append.
    """
    ours = model.files[old] | {
        path: rows for path, rows in common.items() if path.startswith(PLAIN) and path not in model.gone
    }
    appended = {path: rows for path, rows in theirs.items() if path not in common}
    kept = {"ours": ours, "theirs": dict(theirs), "both": ours | appended}[keep]
    drops(model, name=name, id=old)
    model.tables[name] = new
    model.files[new] = kept
    model.gone = (model.gone | common.keys() | theirs.keys() | ours.keys()) - kept.keys()
