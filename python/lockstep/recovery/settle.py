"""Settling a table that has diverged: the timeline says one thing, the log another, and a person says which it is.

It rolls forward, by one entry of the timeline. Where the log merely goes on, with commits that the table refuses, and
theirs are kept, or both, they are taken in. Else the table is taken out of the catalog, and its folder is taken in as
it is, under the same name and in the same transaction (`lockstep.adoption`). That transaction commits behind theirs: if
ours is kept, what makes the table what the timeline had (`lockstep.delta.combine.going_back`); if both are, what ours
did that the log has not (`lockstep.recovery.both`); and in any case the metadata anew. So the newest version is another
than either side had, and Delta refuses statements that began before, whichever of the two they have read, as it does
after any change of the metadata.

No file is moved, written over or deleted, of the log or of the data, but for checksums, which are advice. So a process
that dies in the middle has changed nothing, or all; who comes late with what was decided before meets another table in
the folder, and publishes nothing there (`lockstep.lake.publisher`); and a second call finds nothing to settle.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Literal, TypeAlias, get_args

from lockstep import __version__
from lockstep.adoption.adopt import Wanted, adopt, look
from lockstep.adoption.judging import refusal as why_not_adopted
from lockstep.delta.actions import Action, bodies, render
from lockstep.delta.combine.going_back import going_back
from lockstep.delta.log import checksum_path, log_files, read_published, staged_path
from lockstep.delta.snapshot import Snapshot, read_header
from lockstep.errors import InvalidError, ReadOnlyError, UnavailableError
from lockstep.lake.lake import Lake
from lockstep.lake.policy import SETTLED
from lockstep.recovery.both import both
from lockstep.recovery.choices import check_end, two_sides, wanted_and_there
from lockstep.recovery.condensed import check_condensed
from lockstep.recovery.divergence import Divergence
from lockstep.storage import Theirs
from lockstep.storage.urls import url_below
from lockstep.timeline.entry import Name
from lockstep.transactions.names import Names
from lockstep.transactions.transaction import Transaction

Side: TypeAlias = Literal["ours", "theirs", "both"]
Run: TypeAlias = Callable[[Callable[[Transaction], None]], int]
"""Runs a change in a transaction of its own, and returns its database version."""


def side_of(text: str) -> Side:
    """Return which side a text says.

    Raises:
        InvalidError: none.
    """
    for side in get_args(Side):
        if text.lower() == side:
            found: Side = side
            return found
    raise InvalidError(
        f"keep = {text!r}: expected ours, what the timeline has, theirs, what the log has, or both, where they do not "
        "conflict"
    )


def settle(lake: Lake, found: Divergence, keep: Side, run: Run) -> int:
    """Settle a table, and return the database version in which it is.

    Nothing is raised once it is settled.

    Raises:
        ReadOnlyError: this process may only read the lake.
        InvalidError: the side cannot be kept; the message says why.
        ConflictError: somebody has committed to the table, or settled it, meanwhile.
        UnsupportedError: the store lets more than one writer of an object win.
        LockstepError: the store failed, or its log has what cannot be adopted.
    """
    if lake.refusal:
        raise ReadOnlyError(lake.refusal)
    if keep != "ours" and found.is_ahead:
        return lake.accept(found.table, found.newest)
    check_condensed(lake, found)
    lake.timeline.prove_store()
    ids: list[str] = []
    made = run(lambda tx: ids.append(_decide(lake, tx, found, keep)))
    # What the other side's writer was slow to write; behind our own, which may have been told from that.
    lake.upkeep.add(partial(_remove_late_checksums, lake, found), keys=ids[-1:])
    return made


def _decide(lake: Lake, tx: Transaction, found: Divergence, keep: Side) -> str:
    """Do it in a transaction, which has not used the table, and return the table's new id."""
    table = found.table
    actions = {"ours": _back, "theirs": _as_it_is, "both": _both}[keep](lake, found)
    if tx.names.table(table.name) != table:
        raise InvalidError(f"table {table.name} has changed meanwhile: settle it again")

    def drop(names: Names) -> None:
        names.drop_table(table.name, right_through=found.common)

    tx.change_names(drop)
    where = url_below(lake.storage.url, table.location)
    [taken] = look(lake, tx.names, [Wanted(table.name, where)])
    if taken.reason is None and taken.version != found.newest:
        raise InvalidError(f"a plain Delta writer has just written {where}: stop it, and settle the table then")
    # A checksum may be of the other side, and `look` believes it.
    [taken] = [replace(taken, reason=taken.reason or why_not_adopted(_header(lake, found)))]
    [anew] = adopt(lake, tx, [taken])
    _stage(lake, tx, anew.location, anew.name, actions)
    # Of versions that differ a checksum may be of ours or of theirs. Delta does without. Nothing is deleted before
    # the store has taken a new file where none was.
    versions = range(found.common + 1, found.newest + 1)
    lake.storage.delete_all(checksum_path(table.location, version) for version in versions)
    return anew.id


def _header(lake: Lake, found: Divergence) -> Snapshot:
    """Return the protocol and metadata that the log's commits and checkpoints say."""
    log = log_files(lake.storage, found.table.location)
    return read_header(lake.storage, found.table.location, found.newest, replace(log, checksums=frozenset()))


def _remove_late_checksums(lake: Lake, found: Divergence) -> None:
    """Remove checksums of versions that differ which came behind those that were removed, and ours, made of them."""
    location, versions = found.table.location, range(found.common + 1, found.newest + 1)
    if late := log_files(lake.storage, location, found.common).checksums & {*versions}:
        lake.storage.delete_all(checksum_path(location, version) for version in {*late, found.newest + 1})


def _as_it_is(lake: Lake, found: Divergence) -> list[Action]:
    """Return the commit that changes nothing of what the log has but that it was settled.

    Raises:
        InvalidError: it would get a version that statements which have read ours take for the next one.
        LockstepError: the log cannot be read.
    """
    check_end(found)
    there = _header(lake, found)
    return _commit(lake, found, "theirs", [{"metaData": there.metadata}], there)


def _back(lake: Lake, found: Divergence) -> list[Action]:
    """Return the commit that makes the table what the timeline has."""
    wanted, there = wanted_and_there(lake, found)
    actions = going_back(wanted, there, int(lake.clock().timestamp() * 1000))
    if not bodies(actions, "metaData"):
        actions = [{"metaData": wanted.metadata}, *actions]
    return _commit(lake, found, "ours", actions, wanted)


def _both(lake: Lake, found: Divergence) -> list[Action]:
    """Return the commit that adds to what the log has what ours did.

    Raises:
        LockstepError: there is none, see `two_sides`.
    """
    sides = two_sides(lake, found)
    actions = both(sides, found.newest + 1, int(lake.clock().timestamp() * 1000))
    [metadata] = bodies(actions, "metaData")
    return _commit(lake, found, "both", actions, replace(sides.there, metadata=metadata))


def _commit(lake: Lake, found: Divergence, keep: Side, actions: list[Action], after: Snapshot) -> list[Action]:
    """Return the commit that settles the table; `after` says what properties it has then."""
    now_ms = int(lake.clock().timestamp() * 1000)
    removed = sum("remove" in action for action in actions)
    info = {
        "timestamp": now_ms,
        "operation": "RESTORE",
        "operationParameters": {SETTLED: keep},
        "readVersion": found.newest,
        "isBlindAppend": False,
        "operationMetrics": {"numRemovedFiles": str(removed)},
        "engineInfo": f"Lockstep/{__version__}",
    }
    if (after.metadata.get("configuration") or {}).get("delta.enableInCommitTimestamps", "").lower() == "true":
        last = bodies(read_published(lake.storage, found.table.location, found.newest), "commitInfo")
        info["inCommitTimestamp"] = max(now_ms, *(each.get("inCommitTimestamp", 0) + 1 for each in last), 0)
    return [{"commitInfo": info}, *actions]


def _stage(lake: Lake, tx: Transaction, location: str, name: Name, actions: list[Action]) -> None:
    version = tx.next_version(location)
    content = render(actions)
    path = staged_path(location, tx.id, version)
    if isinstance(lake.storage.put_if_absent(path, content), Theirs):
        raise UnavailableError(f"{path} is there already: settle table {name} again")
    tx.stage(location, version, content.decode())
