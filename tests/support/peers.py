"""Whether a transaction can commit behind a winner, by Lockstep's rules and by models of those of Delta and DuckLake.

Delta     v4.4.0, spark/src/main/scala/org/apache/spark/sql/delta/ConflictChecker.scala, `checkConflicts`
DuckLake  commit 2ed0a0b, src/storage/ducklake_transaction_state.cpp, `CheckForConflicts`

The models hold what the operations of `tests.support.operations` need, in the order of the original, and no more.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeAlias

from lockstep.commit.row_merge import RowMerge
from lockstep.conflict.serializable import judge
from lockstep.conflict.writes import Conflict, first_conflict
from lockstep.delta.actions import Action, bodies, changes_rows
from lockstep.storage import open_storage
from lockstep.timeline.entry import Isolation
from tests.support.operation import Operation, Tracked, described

Level: TypeAlias = Literal["Serializable", "WriteSerializable"]

ALLOWED = "both commit"


# --- Lockstep ---------------------------------------------------------------------------------------------------------


def lockstep(mine: Operation, winner: Operation, isolation: Isolation) -> str:
    """Return the name of the rule that refuses the second of two transactions at this level, or `ALLOWED`."""
    ours, theirs = mine.changes("m", isolation), winner.changes("w", isolation, version=2)
    found: object = first_conflict(ours, theirs, same_rows=_merge().find)
    if found is None and isolation == "SERIALIZABLE":
        found = judge(ours, [theirs])
    return found.rule if isinstance(found, Conflict) else ALLOWED


@cache
def _merge() -> RowMerge:
    # The vectors here are inline, so nothing is read from the folder, and nothing written.
    return RowMerge(open_storage(str(Path(__file__).parent)), {"A": "a", "B": "b"}, seed="m", vector_files=set())


# --- Delta ------------------------------------------------------------------------------------------------------------


def delta(mine: Operation, winner: Operation, level: Level = "Serializable") -> str | None:
    """Return the exception that plain Delta raises for the second, `ALLOWED`, or None where it has no say.

    It has none in DDL of a catalog. Two operations that write no table in common do not meet in any log.
    """
    if mine.delta is None or winner.delta is None:
        return None
    for table in mine.writes.keys() & winner.writes.keys():
        tracked = mine.delta if table == "A" else Tracked(reads=False)
        if (found := _delta_table(mine.writes[table], tracked, winner.writes[table], level)) is not None:
            return found
    return ALLOWED


def _delta_table(mine: tuple[Action, ...], read: Tracked, winner: tuple[Action, ...], level: Level) -> str | None:
    if bodies(winner, "protocol") and bodies(mine, "protocol"):
        return "ProtocolChanged"
    if _metadata_clash(mine, winner):
        return "MetadataChanged"
    domains = [{d["domain"] for d in bodies(side, "domainMetadata")} - {"delta.rowTracking"} for side in (mine, winner)]
    apps = [{txn["appId"] for txn in bodies(side, "txn")} for side in (mine, winner)]
    if domains[0] & domains[1] or apps[0] & apps[1]:
        return "ConcurrentTransaction"
    if any(_would_have_read(file, read) for file in _new_files(mine, winner, level)):
        return "ConcurrentAppend"
    removed = {file["path"] for file in bodies(winner, "remove")}
    if removed & read.files:
        return "ConcurrentDeleteRead"
    return "ConcurrentDeleteDelete" if removed & {file["path"] for file in bodies(mine, "remove")} else None


def _metadata_clash(mine: tuple[Action, ...], winner: tuple[Action, ...]) -> bool:
    """`attemptToResolveMetadataConflicts`, without its list of properties that a winner may set.

    The metadata that an append to an identity column writes is the table's, but for its high-water mark.
    """
    theirs = bodies(winner, "metaData")
    only_marks = all({"metaData": body} == described(mark=101) for body in theirs)
    return bool(theirs) and (bool(bodies(mine, "metaData")) or not only_marks)


def _new_files(mine: tuple[Action, ...], winner: tuple[Action, ...], level: Level) -> list[dict[str, Any]]:
    """The winner's files that ours should have read (`checkForAddedFilesThatShouldHaveBeenReadByCurrentTxn`)."""
    files = [*bodies(mine, "add"), *bodies(mine, "remove")]
    others = {"metaData", "protocol", "txn"} & {kind for action in mine for kind in action} or [
        d for d in bodies(mine, "domainMetadata") if d["domain"] != "delta.rowTracking"
    ]
    if not others and not any(map(changes_rows, files)):  # TransactionHelper.canDowngradeToSnapshotIsolation
        return []
    blind = bodies(winner, "commitInfo")[0]["isBlindAppend"]
    if level == "WriteSerializable" and blind and not bodies(mine, "metaData"):
        return []
    return bodies(winner, "add")


def _would_have_read(file: dict[str, Any], read: Tracked) -> bool:
    """By partition alone: Delta does not compare its read predicates with statistics."""
    return read.reads and read.partition in (None, file["partitionValues"]["p"])


# --- DuckLake ---------------------------------------------------------------------------------------------------------

_DUCK = {
    "insert": {"drop", "alter", "delete"},
    "delete": {"drop", "alter", "merge", "insert"},
    "file": {"file"},
    "merge": {"drop", "delete", "merge"},
    "alter": {"drop", "alter"},
    "drop": {"drop"},
    "create": {"create"},
}
"""By what ours did, what a winner must not have done to the same table, file or name."""


def ducklake(mine: Operation, winner: Operation) -> str | None:
    """Return what the winner did that DuckLake refuses ours for, `ALLOWED`, or None where it has no such thing."""
    if mine.duck is None or winner.duck is None:
        return None
    for did, what in sorted(mine.duck):
        for clash in sorted(_DUCK.get(did, ())):
            if (clash, what) in winner.duck:
                return clash
    ours, theirs = (_dropped_and_filled(side) for side in (mine.duck, winner.duck))
    clashes = ours[0] & (theirs[0] | theirs[1]) | ours[1] & theirs[0]
    return "drop namespace" if clashes else ALLOWED


def _dropped_and_filled(did: frozenset[tuple[str, str]]) -> tuple[set[str], set[str]]:
    dropped = {what for change, what in did if change == "drop namespace"}
    return dropped, {what.partition(".")[0] for change, what in did if change == "create"}
