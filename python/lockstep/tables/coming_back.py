"""Whether the files are there of what comes back in a transaction: by a restore, a revert, an undrop.

A driver of Spark asks here for a dry run: where something is written, Delta looks itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from msgspec import structs

from lockstep.delta.snapshot import Snapshot
from lockstep.errors import LockstepError
from lockstep.exports import returning
from lockstep.lake.kept_states import snapshot_of
from lockstep.lake.lake import Lake
from lockstep.recovery.restore import TableRestore
from lockstep.tables.state import States
from lockstep.timeline.entry import Table
from lockstep.transactions.transaction import Transaction


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a table is to be again.

    Attributes:
        table: as the transaction has it.
        snapshot: what it has then.
        adds: those of the files that it has not now.
    """

    table: Table
    snapshot: Snapshot
    adds: list[dict[str, Any]] = field(default_factory=list)


def snapshot_then(lake: Lake, restore: TableRestore, table: Table) -> Snapshot:
    """Return what a table had at the version of its log that it is to be taken back to.

    Raises:
        LockstepError: it cannot be read: the log does not tell of it any more.
    """
    try:
        return snapshot_of(lake.storage, structs.replace(table, version=restore.version))
    except LockstepError as error:
        raise error.again(f" (table {table.name} cannot be restored; nothing was changed)") from error


def check_restores(lake: Lake, tx: Transaction, restores: Iterable[TableRestore]) -> None:
    """Look for the files of what comes back in a transaction, some of it by logs that somebody else takes back.

    Raises:
        MissingFilesError: some are gone; it names them.
        LockstepError: a log cannot be read.
    """
    states = States(lake.storage)

    def wanted(restore: TableRestore) -> Wanted:
        table = tx.names.table(restore.name)
        then, now = snapshot_then(lake, restore, table), states.snapshot(tx, table)
        return Wanted(table, then, [file for key, file in then.files.items() if key not in now.files])

    check_files(lake, tx, states, lake.side_by_side(wanted, [*restores]))


def check_files(lake: Lake, tx: Transaction, states: States, coming: Collection[Wanted]) -> None:
    """Look for the files that come back: all of a table that was dropped, and of others what they have not now.

    Raises:
        MissingFilesError: some are gone; it names them.
    """
    needed = {each.table.id: (each.table, each.adds) for each in coming}
    wanted = {each.table.id: each.snapshot for each in coming}
    for table in tx.names.brought_back():
        snapshot = wanted[table.id] if table.id in wanted else states.snapshot(tx, table)
        needed[table.id] = table, list(snapshot.files.values())
    returning.check_files(lake, needed.values())
