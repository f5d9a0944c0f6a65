"""What changed in the lists of tables and views: from what a transaction began with to what it sees now."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

import msgspec

from lockstep.errors import InvalidError
from lockstep.model import MAX_VIEW_BYTES, Name, Table, TableDdl, View, ViewDdl, ViewDefinition

TOO_LARGE = "54000"


def holder(name: Name, tables: Container[Name], views: Container[Name]) -> str | None:
    """Return what has this name, a "table" or a "view", which share their names; None if it is free."""
    if name in tables:
        return "table"
    return "view" if name in views else None


def check_size(name: Name, definition: ViewDefinition) -> None:
    """Raise InvalidError (54000) if the definition of a view is larger than `MAX_VIEW_BYTES`."""
    if (size := len(msgspec.json.encode(definition))) > MAX_VIEW_BYTES:
        raise InvalidError(
            f"the definition of view {name} has {size} bytes, at most {MAX_VIEW_BYTES} fit: make it of several views",
            sqlstate=TOO_LARGE,
        )


def net_ddl(before: Iterable[Table], after: Iterable[Table], unique: str) -> list[TableDdl]:
    """Return the changes between two lists of tables, in an order in which each finds its name free.

    A name that was held in between is nobody's business, and its namespace may be gone.

    Args:
        unique: a text that no name has in it, for detours.
    """
    old, new = {table.id: table for table in before}, {table.id: table for table in after}
    renames = [
        TableDdl(action="rename", id=id, name=table.name, new_name=new[id].name)
        for id, table in old.items()
        if id in new and table.name != new[id].name
    ]
    return [
        *(TableDdl(action="drop", id=id, name=table.name) for id, table in old.items() if id not in new),
        *_without_collisions(renames, unique),
        *(
            TableDdl(action="create", id=id, name=table.name, location=table.location)
            for id, table in new.items()
            if id not in old
        ),
    ]


def net_views(before: Mapping[Name, View], after: Mapping[Name, View]) -> list[ViewDdl]:
    """Return the changes between two mappings of views, drops first, each in the order of names.

    A view is its name and definition: one that was dropped and made again as it was has not changed.
    """
    drops = [ViewDdl(action="drop", name=name) for name in sorted(before.keys() - after.keys())]
    return drops + [
        ViewDdl(action="replace" if name in before else "create", name=name, definition=view.definition)
        for name, view in sorted(after.items())
        if name not in before or before[name].definition != view.definition
    ]


def _without_collisions(renames: Sequence[TableDdl], unique: str) -> list[TableDdl]:
    """Order renames so that each finds its new name free; in a circle (a swap) one table takes a detour."""
    waiting = {rename.name: rename for rename in renames}
    ordered = []
    while waiting:
        name, rename = next(
            ((name, rename) for name, rename in waiting.items() if rename.new_name not in waiting),
            next(iter(waiting.items())),
        )
        del waiting[name]
        if rename.new_name in waiting:
            detour = Name(namespace=rename.new_name.namespace, table=f"{rename.new_name.table}-{unique}")
            waiting[detour] = msgspec.structs.replace(rename, name=detour)
            rename = msgspec.structs.replace(rename, new_name=detour)
        ordered.append(rename)
    return ordered
