"""COMMIT: from what a transaction staged to one new entry of the timeline, or to the reason why not.

    collect    read each written table's staged commits, collapse them           once
    look       are the files there that the commits add? (beside the first judge) once
               flush them, where the lake is on a local disk and that is set
    keep       what tells of the tables that a new tag names (and in each attempt what is new)
    judge      refresh; check against every winner since the snapshot            ┐
    rebase     merge deletion vectors with the winners', renumber behind them;   │ until ratified, in conflict,
               stage what is too large to inline                                 │
    ratify     put the next entry if it is absent: THE commit                    ┘ or out of attempts
    publish    each table's `<version>.json`, in parallel

A lost race costs metadata only: no data file is read or written here, at most deletion vectors. The outcome is a value;
the public edge raises.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cache, partial

import msgspec

from lockstep.commit.drafts import Draft, changes_of, collect
from lockstep.commit.elsewhere import surrounded, taken
from lockstep.commit.ended import note_conflict
from lockstep.commit.ending import discard, find_landed, finish, finish_found, lost_claim, settle_doubt, undo
from lockstep.commit.files import Gone, look_for
from lockstep.commit.going import adopted_files, check, old_files, wanted_by
from lockstep.commit.guests import keep_guests
from lockstep.commit.maintenance import begin_to_read
from lockstep.commit.outcomes import Committed, Contended, InDoubt, Outcome
from lockstep.commit.race import Race
from lockstep.commit.row_merge import RowMerge
from lockstep.commit.staging import store
from lockstep.commit.tagging import Keeping
from lockstep.conflict.writes import Conflict
from lockstep.delta.actions import operation_on
from lockstep.delta.combine.rebase import rebase
from lockstep.delta.log import commit_path
from lockstep.errors import InvalidError, LockstepError, UnavailableError
from lockstep.lake.changes import is_apart, is_light
from lockstep.lake.lake import Lake
from lockstep.lake.turns import Turn
from lockstep.retry import RACE, Backoff
from lockstep.timeline.append import Exhausted, Proposal, Settled, append_until
from lockstep.timeline.database import Database
from lockstep.timeline.entry import FORMAT, Entry, TableWrite
from lockstep.timeline.outcomes import Behind, Lost, MakeEntry, Ratified, Unknown
from lockstep.transactions.transaction import Transaction


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
    if tx.in_doubt is not None and (result := find_landed(lake, tx)) is not None:
        return result
    drafts = [] if tx.is_replay else collect(lake, tx)
    if tx.is_replay or not (drafts or tx.is_recorded()):
        discard(lake, tx)
        tx.complete(tx.base.version)
        return Committed(tx.base.version, None)
    merge = RowMerge(lake.storage, {d.table.id: d.table.location for d in drafts}, seed=tx.id, vector_files=tx.vectors)
    race = Race(changes_of(tx, drafts), tx.base.version, merge)
    properties = begin_to_read(lake, drafts)
    now = lake.clock()
    look_at = partial(old_files, root=lake.storage.url, now=now, began_at=tx.began_at)
    wanted = wanted_by(tx, (look_at(draft.commits, draft.table.location) for draft in drafts), now)
    more = cache(partial(adopted_files, lake, wanted))
    files = set[str]().union(*(draft.files for draft in drafts))
    probing = look_for(lake.storage, files - wanted.files, f"transaction {tx.id}")  # for those it looks each time
    _flush(lake, tx, files)
    keep_guests(lake, tx)
    around = surrounded(lake, tx.creations.elsewhere(tx.names))
    keeping = Keeping(lake, tx, [draft.table.id for draft in drafts])
    keeping.ahead()  # before our turn: what has changed by then is little

    turn = lake.turn(tx.id, ahead=partial(_read_ahead, lake, race))

    def propose() -> Proposal | Settled[Outcome]:
        head = _caught_up(lake, tx, drafts)
        if (failure := probing.result()) is not None:
            return Settled(_beaten(lake, tx, failure, turn))
        if (outcome := _judge(lake, tx, race, head, turn)) is not None:
            return Settled(outcome)
        if (overtaken := _overtaken(lake, tx, drafts)) is not None:
            return Settled(_beaten(lake, tx, overtaken, turn))
        keeping.up_to(head)
        # Behind the look for the newest version, for `lockstep.lake.deletions`.
        gone = check(lake, wanted.with_files(keeping.paths), head, f"transaction {tx.id}", more)
        going = gone or lost_claim(lake, tx) or around or taken(lake, tx.id, tx.creations.elsewhere(tx.names))
        if going is not None:
            return Settled(_beaten(lake, tx, going, turn))
        merge.new_attempt()
        writes = [_rebase(lake, tx, draft, head, race) for draft in drafts]
        make = partial(_entry, tx, drafts, writes)
        again = None if wanted or keeping or tx.claimed else partial(_judge_again, lake, race, make)
        return Proposal(make(race.precedes), race.judged_version, behind=again)

    with turn:
        outcome = append_until(
            partial(_ratify, lake, tx),
            propose,
            backoff=backoff,
            contention=lake.contention,
            alone=partial(lake.gate.held_by, tx.id),
            turn=turn,
        )
        match outcome:
            case Ratified(entry):
                known = None if race.changed_metadata else properties.result
                result = finish(lake, tx, entry, fresh=True, properties=known, published=turn.end)
                lake.delete([], merge.vector_files - merge.landing)
                return result
            case Settled(why):
                return why
            case Unknown(entry, cause):
                return InDoubt(entry.version, cause)
            case Exhausted(attempts):
                return _beaten(lake, tx, Contended(attempts), turn)


def _flush(lake: Lake, tx: Transaction, files: set[str]) -> None:
    """Put what the transaction wrote on the disk, if that is set.

    Raises:
        UnavailableError: it may be lost, and trying again would not tell: the next fsync of the same file succeeds, for
            the operating system drops what it could not write. So the transaction can only be rolled back.
    """
    try:
        lake.storage.flush(files)
    except UnavailableError as error:
        tx.failure = tx.failure or error.message
        raise


def _read_ahead(lake: Lake, race: Race) -> None:
    """Have in memory what others committed and what that changed; it is judged in our turn, once it is published.

    Raises:
        LockstepError: it cannot be read.
    """
    lake.timeline.refresh()
    for entry in lake.timeline.scan(race.judged_version):
        if entry.transaction.id != race.mine.transaction and not is_apart(entry, race.mine):
            lake.past.of(entry)


def _caught_up(lake: Lake, tx: Transaction, drafts: Sequence[Draft]) -> Database:
    """Return the newest database version, with what plain Delta writers did to the tables that are to be written.

    And to those that are to be dropped and of which rows were read: what came since would be gone unseen.
    """
    ids = [draft.table.id for draft in drafts]
    if dropped := {table.id for table in tx.names.gone() if not tx.names.is_released(table)}:
        ids += [read.id for read in tx.reads() if read.id in dropped and read.predicates != []]
    return lake.caught_up(lambda database: [t for t in map(database.table_by_id, ids) if t is not None], for_write=True)


def _overtaken(lake: Lake, tx: Transaction, drafts: Sequence[Draft]) -> Conflict | None:
    """Return the conflict with a plain Delta writer that wrote a table which this transaction brings back, or adopts.

    Nobody took that in: the table is in no database version until this one.
    """
    for table in (draft.table for draft in drafts if tx.names.is_returned(draft.table)):
        if lake.storage.exists(commit_path(table.location, table.version + 1)):
            does, alone = ("adopts", "adopt") if tx.names.is_adopted(table) else ("brings back", "UNDROP TABLE")
            return Conflict(
                "table-written",
                f"a plain Delta writer wrote version {table.version + 1} of table {table.name}, which this transaction "
                f"{does} and writes. Nothing of this transaction was committed; {alone} it in a transaction of its own "
                "first.",
                about=str(table.name),
            )
    return None


def _judge(lake: Lake, tx: Transaction, race: Race, head: Database, turn: Turn) -> Outcome | None:
    """Judge a transaction against the entries that nobody has judged it against; None if it may land behind them."""
    for entry in lake.timeline.scan(race.judged_version, head.version):  # of a long transaction there may be millions
        if entry.transaction.id == tx.id:  # an earlier attempt's write, which arrived since we looked for it
            return finish_found(lake, tx, entry)
        if is_apart(entry, race.mine):
            continue
        if (conflict := race.lose_to(lake.past.of(entry))) is not None:
            return _beaten(lake, tx, conflict, turn)
    race.judged_version = head.version
    return None


def _judge_again(
    lake: Lake, race: Race, draft: Callable[[int | None], MakeEntry], entries: Sequence[Entry], _: Database
) -> MakeEntry | None:
    """Judge a transaction against what this process appends meanwhile, as `Behind` says."""
    ahead = race.fork()
    for entry in entries:
        if entry.transaction.id == ahead.mine.transaction:
            return None  # an earlier attempt's write, which arrived since we looked for it: it does not follow itself
        if not is_light(entry) or ahead.mine.writes.keys() & {write.id for write in entry.writes}:
            return None
        if not is_apart(entry, ahead.mine) and ahead.lose_to(lake.past.of(entry)) is not None:
            return None  # it is told of that once the other is sure to have committed
    return draft(ahead.precedes)


def _beaten(lake: Lake, tx: Transaction, by: Conflict | Contended | Gone, turn: Turn) -> Outcome:
    """Roll back a transaction that lost, unless an earlier attempt of its COMMIT has landed: then it is committed.

    Raises:
        UnavailableError: the store does not say whether it has; the transaction stays as it is.
    """
    turn.end()  # to remove what it wrote may take long
    if tx.in_doubt is not None and (result := settle_doubt(lake, tx.in_doubt, tx)) is not None:
        return result
    undo(lake, tx)
    if isinstance(by, Conflict):
        note_conflict(lake, tx, by)
    return by


def _rebase(lake: Lake, tx: Transaction, draft: Draft, head: Database, race: Race) -> TableWrite:
    """Merge a table's commits with what is there now, renumber them behind it, and stage the large ones."""
    table = draft.table
    current = head.table_by_id(table.id)
    from_version = table.version if current is None else current.version
    winners = race.winners.get(table.id, [])
    commits = race.merge.merge_rows(table.id, draft.commits, draft.footprint, winners)
    new_commits = rebase(commits, pin=table.version, first_version=from_version + 1, winners=winners)
    return TableWrite(
        id=table.id,
        name=table.name,
        location=table.location,
        from_version=from_version,
        to_version=from_version + len(new_commits),
        commits=[
            store(lake, table.location, tx.id, v, actions) for v, actions in enumerate(new_commits, from_version + 1)
        ],
        counts=draft.counts,
    )


def _entry(tx: Transaction, drafts: Sequence[Draft], writes: list[TableWrite], precedes: int | None) -> MakeEntry:
    operations = [operation_on(draft.table.name, commit) for draft in drafts for commit in draft.commits]

    def draft(version: int, committed_at: datetime) -> Entry:
        entry = Entry(
            format=FORMAT,
            version=version,
            committed_at=committed_at,
            kind="transaction",
            transaction=tx.info(operations),
            namespaces=tx.names.namespace_ddl(),
            tables=tx.names.table_ddl(tx.id),
            views=tx.names.view_ddl(),
            writes=writes,
            reads=tx.reads(),
            view_reads=tx.view_reads(),
            precedes=precedes,
            batch=tx.batch,
            tags=tx.names.tag_ddl(),
        )
        return msgspec.structs.replace(entry, format=entry.needed_format)

    return draft


def _ratify(
    lake: Lake, tx: Transaction, draft: MakeEntry, after: int, behind: Behind | None
) -> Ratified | Lost | Unknown:
    """Try to ratify. While that is under way, and until it is settled, the transaction is in doubt."""
    before = tx.in_doubt

    def noted(make: MakeEntry, version: int, committed_at: datetime) -> Entry:
        tx.in_doubt = version
        return make(version, committed_at)

    def noted_behind(entries: Sequence[Entry], database: Database) -> MakeEntry | None:
        make = None if behind is None else behind(entries, database)
        return None if make is None else partial(noted, make)

    try:
        outcome = lake.append(tx.id, partial(noted, draft), after, noted_behind)
    except (InvalidError, UnavailableError):  # nothing was written
        tx.in_doubt = before
        raise
    if isinstance(outcome, Lost):
        tx.in_doubt = None
    return outcome
