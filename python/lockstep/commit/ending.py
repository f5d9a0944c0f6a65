"""How a transaction ends: committed by an entry, found to be so when COMMIT's answer was lost, or rolled back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial

from lockstep.commit.drafts import staged_commit
from lockstep.commit.elsewhere import give_back, is_refreshed, remove_staged
from lockstep.commit.guests import forget_guests
from lockstep.commit.maintenance import Properties, due_checkpoints, of_entry
from lockstep.commit.outcomes import Committed, InDoubt
from lockstep.commit.remnants import remove_remnants
from lockstep.commit.tagging import keep_own
from lockstep.conflict.writes import Conflict
from lockstep.delta.actions import bodies
from lockstep.delta.combine.collapse import created_paths, is_inside
from lockstep.delta.log import read_staged, staging_folder
from lockstep.errors import CommitUnknownError, LockstepError, SnapshotTooOldError
from lockstep.lake.claims import confirm, give_up, remove_traces
from lockstep.lake.lake import Lake
from lockstep.timeline.entry import NEW, Entry, Table
from lockstep.transactions.folders import is_own
from lockstep.transactions.state import State
from lockstep.transactions.transaction import Transaction

_log = logging.getLogger(__name__)


# --- committed --------------------------------------------------------------------------------------------------------


def finish(
    lake: Lake,
    tx: Transaction,
    entry: Entry,
    *,
    fresh: bool,
    properties: Callable[[], Properties] | None = None,
    published: Callable[[], object] = lambda: None,
) -> Committed:
    """Complete a transaction whose entry is ratified, and publish it. It raises nothing: it is committed.

    Args:
        fresh: whether it was ratified just now, see `Publisher.try_publish`.
        properties: what the written tables say, if somebody has asked.
        published: is called once it has been tried to publish the entry.
    """
    tx.complete(entry.version)  # first of all: from here on nothing may undo it
    is_published = lake.publisher.try_publish(entry, fresh=fresh)
    published()
    if is_published:
        keep_own(lake, entry)
    try:
        _let_go(lake, tx)
        folders = _leftovers(lake, tx, entry)
    except Exception:  # noqa: BLE001 (logged; what stays is litter, or keeps only new tables from where it is)
        _log.exception("database version %d is committed; what its transaction left behind stays", entry.version)
        folders = []
    checkpoints = due_checkpoints(lake, entry, properties or partial(of_entry, lake, entry))
    lake.after_commit(entry, is_published=is_published, checksums=True, folders=folders)
    return Committed(entry.version, entry, checkpoints)


def staging_folders(lake: Lake, entry: Entry) -> list[str]:
    """Return what an entry's transaction staged and nobody needs: of a commit that is in no log it may be all there is.

    Nobody publishes that of a table that was dropped, or whose version a plain Delta writer took; a person may need it.
    It raises nothing, for the entry is committed.
    """
    try:
        published = [write for write in entry.writes if lake.publisher.is_published(entry, write)]
    except Exception:  # noqa: BLE001 (logged; what stays is litter)
        _log.exception("database version %d is committed; what was staged for it stays", entry.version)
        return []
    return [staging_folder(write.location, entry.transaction.id) for write in published]


def _leftovers(lake: Lake, tx: Transaction, entry: Entry) -> list[str]:
    """Return folders that a committed transaction needs no longer: its staging, tables that it made and dropped.

    A shallow clone that it made of such a table names the table's files: then those stay.
    """
    in_entry = {write.id for write in entry.writes}
    others = [table for table in (*tx.written_tables(), *tx.dropped_tables) if table.id not in in_entry]
    folders = staging_folders(lake, entry) + [staging_folder(table.location, tx.id) for table in others]
    abandoned = tx.creations.abandoned(tx.names)
    if abandoned and any(_names_others(lake, tx, table) for table in tx.written_tables()):
        return folders
    return folders + abandoned


def _let_go(lake: Lake, tx: Transaction) -> None:
    """Leave no trace in the logs of tables that are not the lake's any more, and take back claims of no use."""
    gone = _released(tx)
    if not (gone or tx.claimed) or not is_refreshed(lake):
        return
    for table in gone:
        if lake.timeline.head.table_at(table.location) is not None:
            continue  # another transaction has taken it in again
        if tx.names.is_released(table):
            remove_remnants(lake, table)
        try:
            remove_traces(lake.storage, table.location)
        except LockstepError as error:
            _log.warning("what Lockstep left in the log of %s stays, which does no harm: %s", table.location, error)
    _keep_claims(lake, tx)
    abandoned = [table for table in tx.dropped_tables if tx.creations.is_elsewhere(table)]
    if abandoned and any(_names_others(lake, tx, table) for table in tx.written_tables()):
        abandoned = []
    _give_up(lake, tx, {each.location: remove_staged(lake, tx.id, each, tx.staged[each.id]) for each in abandoned})


def _released(tx: Transaction) -> list[Table]:
    """Return the tables of its snapshot that are its lake's no more, and whose folders stay with somebody else."""
    gone = {table.id: table for table in tx.names.gone()}
    return [
        table
        for id, table in gone.items()
        if tx.base.table_by_id(id) is not None and (tx.names.is_released(table) or not is_own(table.location, id))
    ]


def lost_claim(lake: Lake, tx: Transaction) -> Conflict | None:
    """Return the conflict with another lake that has taken over what a transaction claimed, which took over a day.

    Raises:
        LockstepError: nobody can tell.
    """
    # What it adopted or brought back, and that has to be its lake's by a claim.
    taken_in = [table for table in tx.names.returned() if table.location in tx.claimed]
    claims = lake.side_by_side(lambda table: confirm(lake.storage, table.location, tx.id, clock=lake.clock), taken_in)
    for table, other in zip(taken_in, claims, strict=True):
        if other is not None:
            return Conflict(
                "location-taken",
                f"the lake {other.root} has claimed {table.location}, which this transaction takes in as table "
                f"{table.name}: its own claim had become too old. Nothing of this transaction was committed; run it "
                "again, and it says who has the table.",
                about=str(table.name),
            )
    return None


def _keep_claims(lake: Lake, tx: Transaction) -> None:
    """Make claims again that another transaction of the lake took back while this one committed."""
    try:
        if (lost := lost_claim(lake, tx)) is not None:
            _log.error("two lakes have one table, release it from one of them: %s", lost.message)
    except LockstepError as error:
        _log.warning("whether the tables that transaction %s took in are still claimed is not known: %s", tx.id, error)


def _give_up(lake: Lake, tx: Transaction, emptied: Mapping[str, set[str]]) -> None:
    """Take back what a transaction claimed for tables that are not its lake's; of these the lake has just looked.

    Args:
        emptied: by location, folders of tables that it made elsewhere, and of which nothing is left.
    """
    for location in tx.claimed:
        if lake.timeline.head.table_at(location) is not None:
            continue
        if location in emptied or tx.creations.begun_elsewhere(location, tx.names) is not None:
            give_back(lake, tx.id, location, emptied.get(location, ()))
        else:
            give_up(lake.storage, location, tx.id)


def _names_others(lake: Lake, tx: Transaction, table: Table) -> bool:
    """Tell whether what was staged of a table names another's files, by absolute paths; it may if nobody knows."""
    try:
        commits = [staged_commit(lake, tx, (table, version)) for version in tx.staged[table.id]]
    except LockstepError as error:
        _log.warning("tables that transaction %s made and dropped keep their folders: %s", tx.id, error)
        return True
    return any(not is_inside(add["path"]) for commit in commits for add in bodies(commit, "add"))


# --- in doubt ---------------------------------------------------------------------------------------------------------


def find_landed(lake: Lake, tx: Transaction) -> Committed | None:
    """Return what an earlier COMMIT, whose answer was lost, did after all; None if it is not in the timeline.

    Raises:
        UnavailableError: the store does not say, or not whether the entry is durable; the transaction stays as it is.
    """
    entry = _entry_of(lake, tx.id, tx.base.version)
    return None if entry is None else finish_found(lake, tx, entry)


def _entry_of(lake: Lake, transaction: str, after: int) -> Entry | None:
    try:
        lake.timeline.refresh()
        return next((entry for entry in lake.timeline.scan(after) if entry.transaction.id == transaction), None)
    except SnapshotTooOldError as error:
        raise CommitUnknownError(
            f"whether transaction {transaction} is committed cannot be told here any more: what was committed since it "
            f"began has expired. Look for the id in `lockstep log --id` before you run it again ({error.message})"
        ) from error


def finish_found(lake: Lake, tx: Transaction, entry: Entry) -> Committed:
    """Complete a transaction whose entry was read in the timeline.

    Raises:
        UnavailableError: the store does not say whether the entry is durable; the transaction stays as it is.
    """
    lake.timeline.secure(entry)
    return finish(lake, tx, entry, fresh=False)


def settle_doubt(lake: Lake, version: int, tx: Transaction) -> Committed | None:
    """Return what an earlier COMMIT as this version did; None once it is sure that it did nothing and never will.

    Raises:
        UnavailableError: the store does not say; asking again is safe.
    """
    lake.occupy(version)
    return find_landed(lake, tx)


def settle_orphan(lake: Lake, transaction: str, snapshot: int) -> Committed | None:
    """Return what the COMMIT of a process that is gone did; None once it is sure that it did nothing and never will.

    Its last write can only be of a database version up to the next: a process asks for one after the other.

    Args:
        transaction: its id.
        snapshot: the database version that it began at.

    Raises:
        UnavailableError: the store does not say; asking again is safe.
    """
    entry = _entry_of(lake, transaction, snapshot)
    if entry is None:
        lake.occupy(lake.timeline.head.version + 1)
        entry = _entry_of(lake, transaction, snapshot)
    if entry is None:
        return None
    lake.timeline.secure(entry)
    is_published = lake.publisher.try_publish(entry, fresh=False)
    checkpoints = due_checkpoints(lake, entry, partial(of_entry, lake, entry))
    lake.after_commit(entry, is_published=is_published, checksums=True, folders=staging_folders(lake, entry))
    return Committed(entry.version, entry, checkpoints)


# --- rolled back ------------------------------------------------------------------------------------------------------


def rollback(lake: Lake, tx: Transaction) -> Committed | InDoubt | None:
    """End a transaction without a trace: its staging folders, and the data files that only it named, are removed.

    Returns:
        None, unless a COMMIT's answer was lost. `Committed`: it had landed, and stays. `InDoubt`: the store still does
        not say; the transaction has ended, and all its files stay, for they may be part of a database version.
    """
    if tx.in_doubt is not None:
        try:
            if (result := settle_doubt(lake, tx.in_doubt, tx)) is not None:
                return result
        except LockstepError as error:
            tx.state = State.ROLLED_BACK
            return InDoubt(tx.in_doubt, error)
    undo(lake, tx)
    return None


def undo(lake: Lake, tx: Transaction) -> None:
    """Roll back a transaction of which it is certain that it is not committed."""
    tx.state, tx.in_doubt = State.ROLLED_BACK, None
    discard(lake, tx)


def discard(lake: Lake, tx: Transaction) -> None:
    """Remove what only this transaction named, at best effort: what stays is litter, never data."""
    try:
        _discard(lake, tx)
    except LockstepError as error:
        _log.warning("what transaction %s wrote stays: %s", tx.id, error)


def _discard(lake: Lake, tx: Transaction) -> None:
    forget_guests(lake, tx)
    folders, files = [*tx.creations.folders()], [*tx.vectors, *tx.written_vectors, *(tx.copied or ())]
    emptied: dict[str, set[str]] = {}
    for table in (*tx.written_tables(), *tx.dropped_tables):
        if tx.creations.is_elsewhere(table):
            emptied[table.location] = remove_staged(lake, tx.id, table, tx.staged[table.id])
        if table.version == NEW:
            continue
        folders.append(staging_folder(table.location, tx.id))
        if tx.copied is not None:
            continue  # its commits are those of any writers of the clone, who may name files that the lake has
        try:
            commits = [read_staged(lake.storage, table.location, tx.id, version) for version in tx.staged[table.id]]
        except LockstepError as error:
            _log.warning("files that transaction %s wrote into table %s stay: %s", tx.id, table.name, error)
            continue
        files += [f"{table.location}/{path}" for path in created_paths(commits)]
    lake.delete(folders, files)
    if tx.claimed and is_refreshed(lake):
        _give_up(lake, tx, emptied)
