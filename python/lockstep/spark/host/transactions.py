"""The requests that begin and end transactions, and what becomes of those that nobody ends."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from math import ceil
from typing import TYPE_CHECKING

from lockstep.commit.outcomes import Committed
from lockstep.errors import (
    ActiveTransactionError,
    CommitUnknownError,
    FailedTransactionError,
    InvalidError,
    LockstepError,
    NoTransactionError,
    TransactionStateError,
    UnavailableError,
)
from lockstep.settings import (
    IDLE_TIMEOUT,
    OUTSIDE_WRITES,
    SESSION_ISOLATION,
    SESSION_RECORD_READS,
    SHARED_TRANSACTION_TIMEOUT,
    STATEMENT_TIMEOUT,
    TRANSACTION_TIMEOUT,
    Setting,
)
from lockstep.spark.host.lakehouses import Lakehouse, flag, isolation_of
from lockstep.spark.host.protocol import transactions as protocol
from lockstep.spark.host.protocol.base import Answer, RequestBase
from lockstep.spark.host.protocol.tables import Stage, Staged
from lockstep.spark.host.requests import Operation, operation
from lockstep.spark.host.same_root import LookFirst
from lockstep.spark.host.session_settings import PREFIX, check, goes_on, kept_seconds, timeout
from lockstep.spark.host.sessions import FindOut, LostTransaction, Session
from lockstep.spark.host.tables import other_version, scans_of
from lockstep.spark.host.times import time_of
from lockstep.spark.host.writes import stage
from lockstep.transactions.transaction import Transaction

if TYPE_CHECKING:
    from lockstep.spark.host.host import Host

KEPT_SECONDS = int(SHARED_TRANSACTION_TIMEOUT.default or 0)
"""How long a shared transaction waits for another client when the last one has gone, if nothing else is said."""

_MOST_MILLIS = 2**63 - 1

_LAPSES: Mapping[str, tuple[str, str | None]] = {
    "deserted": (
        f"all connections that shared it were closed, and none came within {SHARED_TRANSACTION_TIMEOUT.name}",
        None,
    ),
    "left": ("a connection that had taken part in it was closed, and others of its session go on", None),
    "idle": (f"no statement of it was executed for longer than {IDLE_TIMEOUT.name}", "25P03"),
}
"""Why a transaction lapses, and the SQLSTATE of what its statements are refused with then."""

_log = logging.getLogger(__name__)


class TransactionRequests:
    """Answers about sessions' transactions, for one host."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.operations: Mapping[type[RequestBase], Operation] = dict(
            (
                operation(protocol.CheckSetting, self._check_setting),
                operation(protocol.NextBatch, self._batch),
                operation(protocol.Begin, self._begin),
                operation(protocol.Begun, self._begun),
                operation(protocol.Commit, self._commit),
                operation(protocol.Rollback, self._rollback),
                operation(protocol.Savepoint, self._savepoint),
                operation(protocol.RollbackTo, self._rollback_to),
                operation(protocol.Release, self._release),
                operation(protocol.Ended, self._ended),
                operation(protocol.HostLost, self._lost),
                operation(protocol.Lapse, self._lapse),
                operation(protocol.Outside, self._outside),
            )
        )

    def _begin(self, session: Session, request: protocol.Begin) -> protocol.BeginAnswer:
        batch, session.next_batch = session.next_batch, None
        if session.transaction is not None:
            raise ActiveTransactionError(
                f"a transaction is open in this session ({session.transaction.id}); COMMIT or ROLLBACK it first"
            )
        catalogs = request.catalogs
        name = request.current or (next(iter(catalogs)) if len(catalogs) == 1 else None)
        if name is None:
            raise InvalidError(
                f"which catalog? This session has {', '.join(sorted(catalogs)) or 'no Lockstep catalog'}; "
                "say USE <catalog> before BEGIN"
            )
        try:
            house = self._host.lakehouses.get(name, catalogs[name])
        except LookFirst:
            session.next_batch = batch  # for the same BEGIN, which comes again
            raise
        check(request.settings)
        tx = house.catalog.begin(
            isolation=request.isolation or isolation_of(SESSION_ISOLATION, request.settings),
            read_only=request.read_only,
            record_reads=flag(SESSION_RECORD_READS, request.settings),
            comment=request.comment,
            batch=batch,
            author=request.user,
            case_sensitive=request.case_sensitive,
            as_of=_as_of(request),
        )
        answer = protocol.BeginAnswer(
            database_version=tx.base.version,
            transaction_id=tx.id,
            catalog=name,
            root=house.catalog.lake.storage.url,
            kept_seconds=kept_seconds(request.settings),
            idle_millis=_millis(_seconds(IDLE_TIMEOUT, request, house)),
            statement_millis=_millis(_seconds(STATEMENT_TIMEOUT, request, house)),
        )
        total = _seconds(TRANSACTION_TIMEOUT, request, house)
        # Once all is known that is answered: of a BEGIN that is refused the shim knows nothing.
        session.deadline = time.monotonic() + total if total else None
        session.catalog, session.goes_on, session.transaction = house, goes_on(request.settings), tx
        self._host.keeper.watch()
        return answer

    def _check_setting(self, _: Session, request: protocol.CheckSetting) -> Answer:
        check({request.name.removeprefix(PREFIX): request.value})
        return Answer()

    def _batch(self, session: Session, request: protocol.NextBatch) -> Answer:
        session.next_batch = request.batch
        return Answer()

    def _begun(self, session: Session, _: protocol.Begun) -> protocol.BegunAnswer:
        tx = self._open_transaction(session, "a micro-batch")[0]
        last_batch = None if tx.batch is None else tx.base.batches.get(tx.batch.application)
        return protocol.BegunAnswer(batch=tx.batch, last_batch=last_batch, is_replay=tx.is_replay)

    def _commit(self, session: Session, request: protocol.Commit) -> protocol.CommitAnswer:
        tx, house = self._open_transaction(session, "COMMIT")
        if request.failure and not tx.read_only and not session.goes_on:
            tx.failure = tx.failure or request.failure  # a script that overlooked it must not commit the rest
        for scan in scans_of(request.reads):
            tx.failure = tx.failure or other_version(tx, scan)  # the shim has refused it: see `_snapshot`
            if (table := tx.base.table_by_id(scan.table)) is not None:  # not one of its own
                tx.read(table, scan.where)
        tx.settle(request.settled, request.unused)
        start = house.catalog.lake.clock()
        commit = house.catalog.commit(tx)
        return _commit_answer(tx.id, house, commit, start, _end(session))

    def _rollback(self, session: Session, _: protocol.Rollback) -> protocol.RollbackAnswer:
        tx, house = self._open_transaction(session, "ROLLBACK")
        house.catalog.rollback(tx)
        return protocol.RollbackAnswer(database_version=tx.base.version, transaction_id=tx.id, ended=_end(session))

    def _savepoint(self, session: Session, request: protocol.Savepoint) -> protocol.Named:
        tx, _ = self._open_transaction(session, "SAVEPOINT")
        if request.failure and not tx.read_only and not session.goes_on:
            raise FailedTransactionError(
                "a write of this transaction failed, so no savepoint can be set: ROLLBACK, or ROLLBACK TO an older "
                f"one. The failure was: {request.failure}"
            )
        tx.savepoint(request.name)
        return _named_answer(tx)

    def _rollback_to(self, session: Session, request: protocol.RollbackTo) -> protocol.RollbackToAnswer:
        tx, house = self._open_transaction(session, "ROLLBACK TO")
        house.catalog.rollback_to(tx, request.name)
        uses = session.forget_used()
        return protocol.RollbackToAnswer(
            database_version=tx.base.version, transaction_id=tx.id, uris=uses.uris, tables=uses.tables
        )

    def _release(self, session: Session, request: protocol.Release) -> protocol.Named:
        tx, _ = self._open_transaction(session, "RELEASE")
        tx.release(request.name)
        return _named_answer(tx)

    def _open_transaction(self, session: Session, verb: str) -> tuple[Transaction, Lakehouse]:
        if session.transaction is None or session.catalog is None:
            raise NoTransactionError(f"{verb} without a transaction: none is open in this session; BEGIN starts one")
        return session.transaction, session.catalog

    def _ended(self, session: Session, _: protocol.Ended) -> protocol.EndedAnswer:
        return _end(session)

    def _lost(self, session: Session, request: protocol.HostLost) -> Answer:
        loss = LostTransaction(request.transaction, "Lockstep's host process, which kept it, ended in the middle")
        if request.sent is not None:
            loss = replace(loss, find_out=partial(self._find_out, loss.transaction, request.sent))
        session.lost_transaction = loss
        return Answer()

    def _find_out(self, transaction: str, sent: protocol.Sent) -> tuple[Lakehouse, Committed | None]:
        house = self._host.lakehouses.opened(sent.catalog, sent.options)
        return house, house.catalog.find_out(transaction, sent.snapshot)

    def _lapse(self, session: Session, request: protocol.Lapse) -> protocol.Used:
        tx, house = session.transaction, session.catalog
        is_idle = request.why == "idle"
        if is_idle and tx is not None and tx.in_doubt is not None:
            return protocol.Used(uris=[], tables=[])  # nobody may say that it is rolled back
        if tx is not None and house is not None:
            why, sqlstate = _LAPSES[request.why]
            loss = session.lost_transaction or LostTransaction(tx.id, why, sqlstate=sqlstate)
            session.lost_transaction = replace(loss, refusal=end_unasked(tx, house))
        uses = session.forget_used()
        session.transaction = session.catalog = None
        return uses

    def in_lost(self, session: Session, loss: LostTransaction, request: RequestBase) -> Answer:
        """Answer in a lost transaction: it can only be ended, for its statements must not go on without it."""
        ends = isinstance(request, protocol.Commit | protocol.Rollback)
        tx, house = session.transaction, session.catalog
        if tx is not None and house is not None and tx.is_open:  # it keeps its files until its session hears of its end
            if isinstance(request, Stage | Staged):
                _note_staged(tx, house, request)
            elif ends:
                loss = replace(loss, refusal=end_unasked(tx, house))
                session.lost_transaction = loss
        if loss.find_out is not None:
            answer = self._settle(session, loss, loss.find_out, request)
            if answer is not None:
                return answer
            assert session.lost_transaction is not None
            loss = session.lost_transaction
        if loss.refusal is not None:
            if ends:
                raise loss.refusal.again()
            raise FailedTransactionError(
                f"transaction {loss.transaction} has ended: {loss.why}. A COMMIT of it had had no answer: "
                f"{loss.refusal.message}. ROLLBACK, which says so once more, and begin again"
            )
        if isinstance(request, protocol.Rollback):
            return protocol.Named(transaction_id=loss.transaction)
        raise FailedTransactionError(
            f"transaction {loss.transaction} was rolled back: {loss.why}. "
            + ("Begin again" if ends else "ROLLBACK, and begin again"),
            sqlstate=loss.sqlstate,
        )

    def _settle(
        self, session: Session, loss: LostTransaction, find_out: FindOut, request: RequestBase
    ) -> protocol.CommitAnswer | None:
        """Find out what became of a COMMIT that a host died of; return the answer to another one, if it landed."""
        if not isinstance(request, protocol.Commit | protocol.Rollback):
            raise FailedTransactionError(
                f"transaction {loss.transaction} is in doubt: {loss.why} of its COMMIT. COMMIT again, which finds out "
                "whether it is committed"
            )
        try:
            house, commit = find_out()
        except UnavailableError as error:
            raise CommitUnknownError(
                f"the store does not say whether transaction {loss.transaction} is committed: {error.message}. COMMIT "
                "again, which finds out, or look for its id in the timeline"
            ) from error
        if commit is None:
            why = f"{loss.why} of its COMMIT, and nothing of it is committed"
            session.lost_transaction = LostTransaction(loss.transaction, why)
            return None
        refusal = TransactionStateError(
            f"too late to roll back: transaction {loss.transaction} is committed as database version {commit.version}. "
            "The answer to its COMMIT was lost, not the COMMIT",
            sqlstate="2D000",
        )
        session.lost_transaction = LostTransaction(loss.transaction, loss.why, refusal)
        if isinstance(request, protocol.Rollback):
            return None
        return _commit_answer(loss.transaction, house, commit, house.catalog.lake.clock())

    def _outside(self, session: Session, request: protocol.Outside) -> Answer:
        """Refuse what a ROLLBACK could not take back."""
        what = request.what
        if what == "VACUUM":
            raise ActiveTransactionError(
                "VACUUM deletes files, which no ROLLBACK brings back; run it outside a transaction"
            )
        if what == "GENERATE":
            raise ActiveTransactionError(
                "GENERATE writes a manifest for other readers, which would list files that nobody else may see; run "
                "it outside a transaction"
            )
        if what == "STREAM":
            raise ActiveTransactionError(
                "a stream cannot be read or started inside a transaction: its checkpoint would go on whatever becomes "
                "of the transaction; use it outside"
            )
        house = session.catalog
        if house is not None and not house.allows_outside_writes:
            if not request.known:
                raise ActiveTransactionError(
                    f"{what} is a command that Lockstep does not know, and so not whether a ROLLBACK could undo it. "
                    f"Run it outside the transaction, or set {OUTSIDE_WRITES.of(house.name)}=allow "
                    "to have such commands happen at once, whatever becomes of the transaction"
                )
            raise ActiveTransactionError(
                f"{what} is not in catalog {house.name}, so a ROLLBACK could not undo it. Run it outside the "
                f"transaction, or set {OUTSIDE_WRITES.of(house.name)}=allow to have such writes "
                "happen at once, whatever becomes of the transaction"
            )
        return Answer()


def _seconds(setting: Setting, request: protocol.Begin, house: Lakehouse) -> float:
    """Return what a timeout is for a transaction, in seconds, 0 for ever: the session says it, or else the catalog."""
    said = timeout(setting, request.settings)
    return house.timeouts[setting] if said is None else said


def _millis(seconds: float) -> int:
    """Return a timeout in milliseconds, as the shim takes it: it has 64 bits for them."""
    return ceil(1000 * seconds) if 1000 * seconds < _MOST_MILLIS else _MOST_MILLIS


def _as_of(request: protocol.Begin) -> int | datetime | str | None:
    """Return which older version BEGIN asks for; None if it asks for none."""
    if request.as_of_micros is not None:
        return time_of(request.as_of_micros)
    return request.as_of_tag if request.as_of_version is None else request.as_of_version


def _note_staged(tx: Transaction, house: Lakehouse, request: Stage | Staged) -> None:
    """Note what a statement wrote that ran while its transaction was ended, so that its files go with the others."""
    location = house.uris.parse(request.uri).location
    try:
        if isinstance(request, Staged):
            house.catalog.stage(tx, location, request.version)
        else:
            stage(house, tx, location, request)
    except LockstepError as error:
        _log.warning("files that a statement of transaction %s wrote at its end stay: %s", tx.id, error)


def end_unasked(tx: Transaction, house: Lakehouse) -> LockstepError | None:
    """Roll a transaction back that nobody asks for; return what is known if that may not be so, and log it."""
    try:
        house.catalog.rollback(tx)
    except LockstepError as error:
        _log.warning("transaction %s was not rolled back: %s", tx.id, error)
        return error.again()  # what was raised holds all frames that it came through, and so the transaction
    except Exception as error:  # noqa: BLE001 (logged; it may keep neither this session nor another from its end)
        _log.exception("transaction %s was not rolled back in good order", tx.id)
        if tx.in_doubt is None:
            return None  # what it leaves is litter: without a COMMIT nothing of it is in any table
        return CommitUnknownError(
            f"nobody looked whether transaction {tx.id} is committed as database version {tx.in_doubt} "
            f"({type(error).__name__}: {error}). The transaction has ended; look for its id in the timeline."
        )
    return None


def _end(session: Session) -> protocol.EndedAnswer:
    """Forget a session's transaction if it is over, and return what is to be known of it then."""
    is_open = session.transaction is not None and session.transaction.is_open
    if is_open or (session.lost_transaction is not None and session.lost_transaction.find_out is not None):
        return protocol.EndedAnswer(open=True, uris=[], tables=[])
    uses = session.forget_used()
    session.transaction, session.catalog, session.lost_transaction = None, None, None
    return protocol.EndedAnswer(open=False, uris=uses.uris, tables=uses.tables)


def _commit_answer(
    id: str, house: Lakehouse, commit: Committed, start: datetime, ended: protocol.EndedAnswer | None = None
) -> protocol.CommitAnswer:
    """Return what COMMIT answers: what the transaction changed, by its entry in the timeline."""
    writes = commit.entry.writes if commit.entry is not None else []
    return protocol.CommitAnswer(
        database_version=commit.version,
        transaction_id=id,
        tables_changed=len({w.id for w in writes} | {d.id for d in (commit.entry.tables if commit.entry else [])}),
        files_added=sum(write.counts.files_added for write in writes),
        files_removed=sum(write.counts.files_removed for write in writes),
        rows_added=_sum_if_known(write.counts.rows_added for write in writes),
        rows_removed=_sum_if_known(write.counts.rows_removed for write in writes),
        milliseconds=round((house.catalog.lake.clock() - start).total_seconds() * 1000),
        checkpoints=[
            protocol.DueCheckpoint(uri=house.uris.head(due.location), version=due.version) for due in commit.checkpoints
        ],
        ended=ended,
    )


def _named_answer(tx: Transaction) -> protocol.Named:
    return protocol.Named(database_version=tx.base.version, transaction_id=tx.id)


def _sum_if_known(rows: Iterable[int]) -> int | None:
    """Return how many rows there are in all; None if of some it is not known."""
    counts = list(rows)
    return None if -1 in counts else sum(counts)
