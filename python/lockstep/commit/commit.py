"""COMMIT: from what a transaction staged to one new entry of the timeline, or to the reason why not.

    collect    read each written table's staged commits, collapse them           once
    look       are the files there that the commits add?                         once
    judge      refresh; check against every winner since the snapshot            ┐
    rebase     merge deletion vectors with the winners', renumber behind them;   │ until ratified, in conflict,
               stage what is too large to inline                                 │
    ratify     put the next entry if it is absent: THE commit                    ┘ or out of attempts
    publish    each table's `<version>.json`, in parallel

A lost race costs metadata only: no data file is read or written here, at most deletion vectors. The outcome is a value;
the public edge raises.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import msgspec
from msgspec import structs

from lockstep import __version__
from lockstep.commit.autocommit import Scan, judge_statement, table_reads
from lockstep.commit.outcomes import Committed, Contended, InDoubt, Outcome, Taken
from lockstep.commit.presence import Gone, added_files, check
from lockstep.commit.race import Race
from lockstep.commit.row_merge import RowMerge
from lockstep.conflict.serializable import Antidependency
from lockstep.conflict.writes import Changes, Conflict
from lockstep.delta.actions import Action, Footprint, assert_real, bodies, overwrites, real_paths, render, total
from lockstep.delta.combine.collapse import collapse, created_paths
from lockstep.delta.combine.rebase import rebase
from lockstep.delta.log import ratified_path, read_staged, staging_folder
from lockstep.delta.pruning.row_sets import EVERY_ROW, NO_ROW, rows_of
from lockstep.errors import DuplicateError, InvalidError, LockstepError, UnavailableError, UndefinedError
from lockstep.lake.lake import Lake
from lockstep.retry import RACE, Backoff
from lockstep.timeline.entry import (
    FORMAT,
    INLINE_BYTES,
    NEW,
    Commit,
    Counts,
    Database,
    Entry,
    Table,
    TableDdl,
    TableRead,
    TableWrite,
    TransactionInfo,
)
from lockstep.timeline.log import Lost, Ratified, Unknown
from lockstep.transactions.ddl import check_name, holder
from lockstep.transactions.transaction import State, Transaction
from lockstep.transactions.undo import Creation

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Draft:
    """One table's part of the commit before it is placed: its collapsed commits, what they touch, and add."""

    table: Table
    commits: list[list[Action]]
    footprint: Footprint
    counts: Counts
    files: set[str]


def commit(lake: Lake, tx: Transaction, *, backoff: Backoff = RACE) -> Outcome:
    """Commit a transaction. Its state tells what became of it: unchanged for `InDoubt`, ended otherwise.

    Args:
        backoff: how often, and how soon, it is tried again after a lost race.

    Raises:
        LockstepError: before anything was ratified; nothing was committed, and the transaction is still open.
    """
    try:
        return _commit(lake, tx, backoff)
    except LockstepError as error:
        if tx.in_doubt is None:
            raise
        return InDoubt(tx.in_doubt, error)  # this attempt wrote nothing, but one before it may have


def _commit(lake: Lake, tx: Transaction, backoff: Backoff) -> Outcome:
    if tx.in_doubt is not None and (landed := _landed(lake, tx)) is not None:
        return landed
    drafts = [] if tx.is_replay else _collect(lake, tx)
    if tx.is_replay or not (drafts or tx.is_recorded()):
        _discard(lake, tx)
        return _completed(tx, Committed(tx.base.version, None))
    merge = RowMerge(lake.storage, {d.table.id: d.table.location for d in drafts}, seed=tx.id, written=tx.vectors)
    race = Race(_changes(tx, drafts), tx.base.version, merge)
    files = set[str]().union(*(draft.files for draft in drafts))
    if (gone := check(lake.storage, files, f"transaction {tx.id}")) is not None:
        return _beaten(lake, tx, gone)
    lost = 0
    for attempt in backoff.tries(lake.contention):
        head = _caught_up(lake, drafts)
        if (ended := _judge(lake, tx, race, head)) is not None:
            return ended
        merge.new_attempt()
        writes = [_place(lake, tx, draft, head, race) for draft in drafts]
        match _append(lake, tx, _entry(tx, drafts, writes, race.precedes), race.judged):
            case Ratified(entry):
                _completed(tx, Committed(entry.version, entry))  # first of all: from here on nothing may undo it
                lake.delete([], merge.written - merge.landing)
                if lake.try_publish(entry, fresh=True):
                    lake.delete(_leftovers(tx), [])
                return Committed(entry.version, entry)
            case Unknown(entry, cause):
                return InDoubt(entry.version, cause)
            case Lost():
                lost = attempt
    return _beaten(lake, tx, Contended(lost))


def _judge(lake: Lake, tx: Transaction, race: Race, head: Database) -> Outcome | None:
    """Judge a transaction against the entries that nobody has judged it against; None if it may land behind them."""
    for entry in lake.timeline.entries(race.judged, head.version):
        if entry.transaction.id == tx.id:  # an earlier attempt's write, which arrived since we looked for it
            return _found(lake, tx, entry)
        if (conflict := race.lose_to(lake.changes(entry))) is not None:
            return _beaten(lake, tx, conflict)
    race.judged = head.version
    return None


def _beaten(lake: Lake, tx: Transaction, by: Conflict | Contended | Gone) -> Outcome:
    """Roll back a transaction that lost, unless an earlier attempt of its COMMIT has landed: then it is committed.

    Raises:
        UnavailableError: the store does not say whether it has; the transaction stays as it is.
    """
    if tx.in_doubt is not None and (landed := _settled(lake, tx.in_doubt, tx)) is not None:
        return landed
    _end(lake, tx)
    return by


def _append(lake: Lake, tx: Transaction, draft: Callable[..., Entry], judged: int) -> Ratified | Lost | Unknown:
    """Try to ratify. While that is under way, and until it is settled, the transaction is in doubt."""
    before, tx.in_doubt = tx.in_doubt, judged + 1
    try:
        outcome = lake.timeline.append(draft, after=judged)
    except (InvalidError, UnavailableError):  # nothing was written
        tx.in_doubt = before
        raise
    if isinstance(outcome, Lost):
        tx.in_doubt = None
    return outcome


def _landed(lake: Lake, tx: Transaction) -> Committed | None:
    """Return what an earlier COMMIT, whose answer was lost, did after all; None if it is not in the timeline."""
    lake.timeline.refresh()
    for entry in lake.timeline.entries(tx.base.version):
        if entry.transaction.id == tx.id:
            return _found(lake, tx, entry)
    return None


def _found(lake: Lake, tx: Transaction, entry: Entry) -> Committed:
    """Complete a transaction whose entry is in the timeline.

    Raises:
        UnavailableError: the store does not say whether the entry is durable; the transaction stays as it is.
    """
    lake.timeline.secure(entry)
    committed = _completed(tx, Committed(entry.version, entry))
    if lake.try_publish(entry, fresh=False):
        lake.delete(_leftovers(tx), [])
    return committed


def _settled(lake: Lake, version: int, tx: Transaction) -> Committed | None:
    """Return what an earlier COMMIT as this version did; None once it is sure that it did nothing and never will.

    Raises:
        UnavailableError: the store does not say; asking again is safe.
    """
    lake.occupy(version)
    return _landed(lake, tx)


def rollback(lake: Lake, tx: Transaction) -> Committed | InDoubt | None:
    """End a transaction without a trace: its staging folders, and the data files that only it named, are removed.

    Returns:
        None, unless a COMMIT's answer was lost. `Committed`: it had landed, and stays. `InDoubt`: the store still does
        not say; the transaction has ended, and all its files stay, for they may be part of a database version.
    """
    if tx.in_doubt is not None:
        try:
            if (landed := _settled(lake, tx.in_doubt, tx)) is not None:
                return landed
        except LockstepError as error:
            tx.state = State.ROLLED_BACK
            return InDoubt(tx.in_doubt, error)
    _end(lake, tx)
    return None


def _end(lake: Lake, tx: Transaction) -> None:
    tx.state = State.ROLLED_BACK
    _discard(lake, tx)


def _discard(lake: Lake, tx: Transaction) -> None:
    """Remove what only this transaction named, at best effort: what stays is litter, never data."""
    folders, files = [*tx.made()], [*tx.vectors]
    for table in (*tx.written(), *tx.dropped):
        if table.version == NEW:
            continue
        folders.append(staging_folder(table.location, tx.id))
        try:
            staged = [read_staged(lake.storage, table.location, tx.id, version) for version in tx.staged[table.id]]
        except LockstepError as error:
            _log.warning("files that transaction %s wrote into table %s stay: %s", tx.id, table.name, error)
            continue
        files += [f"{table.location}/{path}" for path in created_paths(staged)]
    lake.delete(folders, files)


def _collect(lake: Lake, tx: Transaction) -> list[_Draft]:
    drafts = []
    for table in tx.written():
        staged = [real_paths(read_staged(lake.storage, table.location, tx.id, v)) for v in tx.staged[table.id]]
        operations = [info.get("operation", "?") for actions in staged for info in bodies(actions, "commitInfo")]
        commits = collapse(
            staged,
            pin=table.version,
            transaction_id=tx.id,
            statements=operations,
            timestamp_ms=int(lake.clock().timestamp() * 1000),
            engine=f"Lockstep/{__version__}",
        )
        if commits:
            actions = [action for commit in commits for action in commit]
            assert_real(actions)
            rows = total(staged)  # a statement knows its rows, which the files of all together do not tell
            counts = structs.replace(total(commits), rows_added=rows.rows_added, rows_removed=rows.rows_removed)
            touched = lake.footprint(actions, table.location, before=table.version)
            touched = replace(touched, overwrites=any(map(overwrites, staged)))
            added = added_files(commits, table.location, lake.storage.url)
            drafts.append(_Draft(table, commits, touched, counts, added))
    return drafts


def _changes(tx: Transaction, drafts: list[_Draft]) -> Changes:
    reads = {read.id: rows_of(read.predicates) for read in tx.reads()}
    for draft in drafts:
        # It must have looked for what it removed, or have replaced whatever was there.
        if draft.footprint.overwrites or (draft.footprint.rows_removed and draft.table.id not in reads):
            tx.read(draft.table)
            reads[draft.table.id] = EVERY_ROW
    return Changes(
        transaction=tx.id,
        namespaces=tuple(tx.namespace_ddl()),
        tables=tuple(tx.table_ddl()),
        views=tuple(tx.view_ddl()),
        writes={draft.table.id: draft.footprint for draft in drafts},
        reads={draft.table.id: NO_ROW for draft in drafts} | reads,
        view_reads=frozenset(tx.view_reads()),
        names={table.id: table.name for table in tx.tables.values()},
        isolation=tx.isolation,
        base=tx.base.version,
        batch=tx.batch,
        case_sensitive=tx.case_sensitive,
    )


def _caught_up(lake: Lake, drafts: list[_Draft]) -> Database:
    """Return the newest database version, with what plain Delta writers did to the tables that are to be written."""
    ids = [draft.table.id for draft in drafts]
    return lake.caught_up(lambda database: [t for t in map(database.table_by_id, ids) if t is not None], for_write=True)


def _place(lake: Lake, tx: Transaction, draft: _Draft, head: Database, race: Race) -> TableWrite:
    """Merge a table's commits with what is there now, renumber them behind it, and stage the large ones."""
    table = draft.table
    current = head.table_by_id(table.id)
    before = table.version if current is None else current.version
    winners = race.winners.get(table.id, [])
    merged = race.merge.merge(table.id, draft.commits, draft.footprint, winners)
    placed = rebase(merged, pin=table.version, first_version=before + 1, winners=winners)
    return TableWrite(
        id=table.id,
        name=table.name,
        location=table.location,
        from_version=before,
        to_version=before + len(placed),
        commits=[store(lake, table.location, tx.id, v, actions) for v, actions in enumerate(placed, before + 1)],
        counts=draft.counts,
    )


def store(lake: Lake, location: str, transaction: str, version: int, actions: list[Action]) -> Commit:
    """Make a commit's actions part of an entry: inline, or in a staged file if they are many."""
    data = render(actions)
    if len(data) <= INLINE_BYTES:
        return Commit(inline=[msgspec.Raw(line) for line in data.split(b"\n")[:-1]])
    # Its content is part of its name: another attempt may come to another result, and an entry that names the first one
    # may still be on its way.
    staged = ratified_path(transaction, version, hashlib.sha256(data).hexdigest()[:16])
    lake.storage.put_once(f"{location}/{staged}", data)
    return Commit(staged=staged)


def _entry(
    tx: Transaction, drafts: list[_Draft], writes: list[TableWrite], precedes: int | None
) -> Callable[..., Entry]:
    operations = [
        f"{info.get('operation', '?')} {draft.table.name}"
        for draft in drafts
        for commit in draft.commits
        for info in bodies(commit, "commitInfo")
    ]

    def draft(version: int, committed_at: datetime) -> Entry:
        return Entry(
            format=FORMAT,
            version=version,
            committed_at=committed_at,
            kind="transaction",
            transaction=tx.info(operations),
            namespaces=tx.namespace_ddl(),
            tables=tx.table_ddl(),
            views=tx.view_ddl(),
            writes=writes,
            reads=tx.reads(),
            view_reads=tx.view_reads(),
            precedes=precedes,
            batch=tx.batch,
        )

    return draft


def _leftovers(tx: Transaction) -> list[str]:
    """Folders that a published transaction needs no longer: its staging, and tables that it made and dropped."""
    return [staging_folder(table.location, tx.id) for table in (*tx.written(), *tx.dropped)] + tx.abandoned()


def _completed(tx: Transaction, committed: Committed) -> Committed:
    tx.state = State.COMPLETED
    tx.version = committed.version
    return committed


# --- one statement on its own -----------------------------------------------------------------------------------------


def commit_statement(
    lake: Lake,
    info: TransactionInfo,
    location: str,
    version: int,
    actions: list[Action],
    *,
    creation: Creation | None = None,
    scans: Sequence[Scan] = (),
    backoff: Backoff = RACE,
) -> Committed | Conflict | Taken | Contended | Gone | InDoubt:
    """Commit what Delta wants to write as one version of one table: an autocommitted statement.

    Losing the timeline to transactions on other tables is retried here; losing the table version is Delta's to judge.
    What the statement read from other tables is judged here too, see `lockstep.commit.autocommit`.

    Args:
        info: the statement's transaction; its id must be new.
        location: the table's folder, relative to the root.
        version: the table version to be.
        actions: the commit.
        creation: given for the first version of a new table.
        scans: what the statement read.
        backoff: how often, and how soon, it is tried again after a lost race.

    Raises:
        UndefinedError: the table, or a new table's namespace, was dropped meanwhile.
        DuplicateError: a new table's name was taken meanwhile.
        UnavailableError, CorruptTimelineError, ForeignCommitError: nothing was committed.
    """
    litter = staging_folder(location, info.id) if creation is None else location
    try:
        outcome = _commit_statement(
            lake, info, backoff, location=location, version=version, actions=actions, creation=creation, scans=scans
        )
    except (InvalidError, UnavailableError):  # of all errors, those after which nothing is or will be committed
        lake.delete([litter], [])
        raise
    if isinstance(outcome, Conflict | Taken | Contended | Gone):
        lake.delete([litter], [])
    return outcome


def _commit_statement(
    lake: Lake,
    info: TransactionInfo,
    backoff: Backoff,
    *,
    location: str,
    version: int,
    actions: list[Action],
    creation: Creation | None,
    scans: Sequence[Scan],
) -> Committed | Conflict | Taken | Contended | Gone | InDoubt:
    actions = real_paths(actions)
    assert_real(actions)
    read_version = next((info.get("readVersion", NEW) for info in bodies(actions, "commitInfo")), NEW)
    lost = 0
    for attempt in backoff.tries(lake.contention):
        head = lake.caught_up(
            lambda database: [t for t in (database.table_at(location),) if t is not None], for_write=True
        )
        table = new_table(head, creation) if creation is not None else head.table_at(location)
        if table is None:
            raise UndefinedError(f"the table at {location} was dropped while the statement ran; nothing was written")
        if table.version >= version:
            lake.check_reaches(table, version)
            return Taken()
        if table.version != version - 1:
            raise InvalidError(f"table {table.name} is at version {table.version}: version {version} cannot follow")
        writes = {table.id: lake.footprint(actions, location, before=version - 1)}
        mine = Changes(info.id, writes=writes, isolation=info.isolation)
        found = judge_statement(lake, head, mine, scans, read_version)
        if isinstance(found, Conflict):
            return found
        if attempt == 1:
            added = added_files([actions], location, lake.storage.url)
            if (gone := check(lake.storage, added, f"the statement (transaction {info.id})")) is not None:
                return gone
        write = TableWrite(
            id=table.id,
            name=table.name,
            location=location,
            from_version=table.version,
            to_version=version,
            commits=[store(lake, location, info.id, version, actions)],
            counts=total([actions]),
        )
        draft = _statement_entry(info, creation, write, table_reads(scans, head, writes), found)
        match lake.timeline.append(draft, after=head.version):
            case Ratified(entry):
                if lake.try_publish(entry, fresh=True, checksums=False) and any(
                    commit.staged for commit in write.commits
                ):
                    lake.delete([staging_folder(location, info.id)], [])
                return Committed(entry.version, entry)
            case Unknown(entry, cause):
                return InDoubt(entry.version, cause)
            case Lost():
                lost = attempt
    return Contended(lost)


def new_table(head: Database, creation: Creation) -> Table:
    """Return the table that a creation makes of this database.

    Raises:
        UndefinedError (3F000), DuplicateError: its namespace is gone; its name is taken.
    """
    check_name(creation.name.table)
    if creation.name.namespace not in head.namespaces:
        raise UndefinedError(f"namespace {'.'.join(creation.name.namespace)} was dropped meanwhile", sqlstate="3F000")
    if kind := holder(creation.name, head, case_sensitive=creation.case_sensitive):
        raise DuplicateError(f"{kind} {creation.name} exists; nothing was written")
    return Table(id=creation.id, name=creation.name, location=creation.location, version=NEW, since=head.version)


def _statement_entry(
    info: TransactionInfo,
    creation: Creation | None,
    write: TableWrite,
    reads: list[TableRead],
    first: Antidependency | None,
) -> Callable[..., Entry]:
    precedes = None if first is None else first.winner.database_version

    def draft(version: int, committed_at: datetime) -> Entry:
        return Entry(
            format=FORMAT,
            version=version,
            committed_at=committed_at,
            kind="transaction",
            transaction=structs.replace(info, base_version=(precedes or version) - 1),
            tables=[TableDdl(action="create", id=creation.id, name=creation.name, location=creation.location)]
            if creation is not None
            else [],
            writes=[write],
            reads=reads,
            precedes=precedes,
        )

    return draft
