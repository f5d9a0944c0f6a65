"""Settling a table that has diverged: the timeline says one thing, the log another, and a person says which it is.

It rolls forward, by one entry of the timeline. Where the log merely goes on, with commits that the table refuses, and
theirs are kept, they are taken in. Else the table is taken out of the catalog, and its folder is taken in as it is,
under the same name and in the same transaction (`lockstep.adoption`). That transaction commits behind theirs: if ours
is kept, what makes the table what the timeline had (`lockstep.delta.combine.going_back`), and in any case the metadata
anew. So the newest version is another than either side had, and Delta refuses statements that began before, whichever
of the two they have read, as it does after any change of the metadata.

No file is moved, written over or deleted, of the log or of the data, but for checksums, which are advice. So a process
that dies in the middle has changed nothing, or all; who comes late with what was decided before meets another table in
the folder, and publishes nothing there (`lockstep.lake.publisher`); and a second call finds nothing to settle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

from lockstep import __version__
from lockstep.adoption.adopt import Wanted, adopt, look
from lockstep.delta.actions import Action, bodies, render
from lockstep.delta.combine.going_back import going_back
from lockstep.delta.log import checksum_path, log_files, read_published, staged_path
from lockstep.delta.snapshot import Snapshot, read_header
from lockstep.errors import InvalidError, UnavailableError
from lockstep.lake.lake import Lake
from lockstep.lake.policy import SETTLED
from lockstep.recovery.divergence import Divergence, check_checkpoint, wanted_and_there
from lockstep.storage import Theirs
from lockstep.storage.outside import url_below
from lockstep.timeline.entry import Name
from lockstep.transactions.names import Names
from lockstep.transactions.transaction import Transaction

Side: TypeAlias = Literal["ours", "theirs"]
Run: TypeAlias = Callable[[Callable[[Transaction], None]], int]
"""Runs a change in a transaction of its own, and returns its database version."""


def side_of(text: str) -> Side:
    """Return which side a text says.

    Raises:
        InvalidError: neither.
    """
    if (side := text.lower()) == "ours" or side == "theirs":
        return "ours" if side == "ours" else "theirs"
    raise InvalidError(f"keep = {text!r}: expected ours, what the timeline has, or theirs, what the log has")


def settle(lake: Lake, found: Divergence, keep: Side, run: Run) -> int:
    """Settle a table, and return the database version in which it is.

    Raises:
        InvalidError: ours cannot be kept; the message says why.
        ConflictError: somebody has committed to the table, or settled it, meanwhile.
        LockstepError: the store failed, or its log has what cannot be adopted.
    """
    if keep == "theirs" and found.is_ahead:
        return lake.accept(found.table)
    check_checkpoint(lake, found)
    # Of versions that differ a checksum may be of ours or of theirs. Delta does without.
    versions = range(found.common + 1, found.newest + 1)
    lake.storage.delete_all(checksum_path(found.table.location, version) for version in versions)
    return run(lambda tx: _decide(lake, tx, found, keep))


def _decide(lake: Lake, tx: Transaction, found: Divergence, keep: Side) -> None:
    """Do it in a transaction, which has not used the table."""
    table = found.table
    actions = _back(lake, found) if keep == "ours" else _as_it_is(lake, found)
    if tx.names.table(table.name) != table:
        raise InvalidError(f"table {table.name} has changed meanwhile: settle it again")

    def drop(names: Names) -> None:
        names.drop_table(table.name, right_through=found.common)

    tx.change_names(drop)
    where = url_below(lake.storage.url, table.location)
    [taken] = look(lake, tx.names, [Wanted(table.name, where)])
    if taken.reason is None and taken.version != found.newest:
        raise InvalidError(f"a plain Delta writer has just written {where}: stop it, and settle the table then")
    [anew] = adopt(lake, tx, [taken])
    _stage(lake, tx, anew.location, anew.name, actions)


def _as_it_is(lake: Lake, found: Divergence) -> list[Action]:
    """Return the commit that changes nothing of what the log has but that it was settled.

    Raises:
        InvalidError: it would get a version that statements which have read ours take for the next one.
        LockstepError: the log cannot be read.
    """
    location = found.table.location
    if found.newest < found.table.version:
        raise InvalidError(
            f"table {found.table.name} cannot be settled: its log ends at version {found.newest}, and statements that "
            f"have read version {found.table.version} would write behind what they have not read. Restore its log, or "
            "DROP TABLE and adopt the folder once no statement uses the table"
        )
    there = read_header(lake.storage, location, found.newest, log_files(lake.storage, location))
    return _commit(lake, found, "theirs", [{"metaData": there.metadata}], there)


def _back(lake: Lake, found: Divergence) -> list[Action]:
    """Return the commit that makes the table what the timeline has."""
    wanted, there = wanted_and_there(lake, found)
    actions = going_back(wanted, there, int(lake.clock().timestamp() * 1000))
    if not bodies(actions, "metaData"):
        actions = [{"metaData": wanted.metadata}, *actions]
    return _commit(lake, found, "ours", actions, wanted)


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
