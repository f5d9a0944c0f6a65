"""The host: answers the shim. A request and its answer are JSON objects; which session asks is always said.

    {"op": "resolve", "session": "…", "catalog": "lake", "options": {"root": "…"}, "namespace": ["sales"], …}
    {"ok": {"missing": false, "uri": "lockstep://head.file/…", "version": 7}}
    {"error": {"condition": "LOCKSTEP_CONFLICT", "message": "…", "sqlstate": "40001"}}

It keeps what belongs to a session, its open transaction, and leaves every decision about data to
`TransactionalCatalog`. Which version a statement reads, its requests say. No thread-locals: Py4J calls from threads of
its own choosing.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec

from lockstep.errors import (
    ActiveTransactionError,
    CommitUnknownError,
    FailedTransactionError,
    InvalidError,
    LockstepError,
    NoTransactionError,
    UnsupportedError,
)
from lockstep.model import Batch, Name
from lockstep.spark.lakehouses import Lakehouse, Lakehouses, flag, isolation_of
from lockstep.spark.requests import is_case_sensitive
from lockstep.spark.tables import TableRequests, other_version, scans_of
from lockstep.spark.views import ViewRequests
from lockstep.transactions import Transaction

Request: TypeAlias = dict[str, Any]
Answer: TypeAlias = dict[str, Any]

REMEMBERED_SESSIONS = 1000
"""Sessions without a transaction that are remembered, those that asked last: nobody says when a session ends."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Lost:
    """A transaction that ended without its session's doing.

    Attributes:
        transaction: its id.
        why: what had happened.
        refusal: what COMMIT and ROLLBACK answer, unless it was rolled back: it is committed, or nobody knows.
    """

    transaction: str
    why: str
    refusal: LockstepError | None = None


@dataclass
class Session:
    """What the host keeps for one SparkSession, or for all that share their transactions.

    Attributes:
        transaction, catalog: the open transaction and the catalog it is in; None outside one.
        used: the overlay URIs that the transaction was given, and their tables' names: its end drops caches of them.
        text: the last statement's text.
        next_batch: the micro-batch that the next BEGIN carries out.
        goes_on: whether the open transaction can be committed although a write of it failed.
        lost: the transaction that ended behind the session's back, until somebody ends it.
        requests: how many are under way or wait; counted under the host's lock.
    """

    lock: threading.RLock = field(default_factory=threading.RLock)
    transaction: Transaction | None = None
    catalog: Lakehouse | None = None
    used: set[tuple[str, Name]] = field(default_factory=set)
    text: str = ""
    next_batch: Batch | None = None
    goes_on: bool = False
    lost: Lost | None = None
    requests: int = 0

    @property
    def is_idle(self) -> bool:
        """Whether it has no request under way, no transaction, and none to hear of."""
        return not self.requests and self.transaction is None and self.lost is None

    def inside(self, lakehouse: Lakehouse) -> Transaction | None:
        """Return the open transaction, which must be one of this catalog.

        Raises:
            UnsupportedError: it is another catalog's.
        """
        if self.transaction is not None and self.catalog is not None and not self.catalog.is_same(lakehouse):
            raise UnsupportedError(
                f"the open transaction is in catalog {self.catalog.name}; a transaction has one timeline, so tables of "
                f"{lakehouse.name} can be used only outside it"
            )
        return self.transaction

    def forget_used(self) -> Answer:
        """Return, for the last time, what was `used`: the URIs, and the names of the tables in parts."""
        used, self.used = self.used, set()
        names = {(*name.namespace, name.table) for _, name in used}
        catalog = "" if self.catalog is None else self.catalog.name
        return {"uris": sorted({uri for uri, _ in used}), "tables": [[catalog, *name] for name in sorted(names)]}


class Host:
    """Answers requests of one Spark driver; safe to call from many threads."""

    def __init__(self, application: str = "") -> None:
        self.lakehouses = Lakehouses(application)
        self._lock = threading.Lock()
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._operations: dict[str, Callable[[Session, Request], Answer]] = {
            "begin": self._begin,
            "commit": self._commit,
            "rollback": self._rollback,
            "savepoint": self._savepoint,
            "rollback_to": self._rollback_to,
            "release": self._release,
            "ended": self._ended,
            "outside": self._outside,
            "batch": self._batch,
            "begun": self._begun,
            "lost": self._lost,
            "lapse": self._lapse,
            **TableRequests(self).operations,
            **ViewRequests(self).operations,
        }

    def call(self, request: str | bytes) -> str:
        """Answer one request. Whatever goes wrong is an answer too: an exception's type would be lost on the way."""
        asked: Any = None
        try:
            asked = msgspec.json.decode(request)
            return msgspec.json.encode({"ok": self._answer(asked)}).decode()
        except LockstepError as error:
            return refusal(error)
        except Exception as error:  # noqa: BLE001 (logged, and told to whoever asked)
            _log.exception("%s failed", _described(asked))
            return refusal(LockstepError(f"internal error: {type(error).__name__}: {error}"))

    def _answer(self, asked: Request) -> Answer:
        with self._session(asked["session"]) as session:
            lost = session.lost is not None and asked["op"] not in ("lost", "lapse", "ended")
            operation = self._in_lost if lost else self._operations[asked["op"]]
            return operation(session, asked)

    def close(self) -> None:
        """Roll back whatever is open: the driver ends. What cannot be rolled back keeps nothing else from it."""
        with self._lock:
            sessions = list(self._sessions.values())
        for session in sessions:
            with session.lock:
                if session.transaction is not None and session.catalog is not None and session.transaction.is_open:
                    _end(session.transaction, session.catalog)
                session.transaction = None

    # --- what requests are about --------------------------------------------------------------------------------------

    @contextmanager
    def _session(self, id: str) -> Iterator[Session]:
        """Give the session, for one request at a time, and remember it as long as it has any."""
        with self._lock:
            session = self._sessions.setdefault(id, Session())
            session.requests += 1
            self._sessions.move_to_end(id)
            if len(self._sessions) > REMEMBERED_SESSIONS:
                self._forget_idle()
        try:
            with session.lock:
                yield session
        finally:
            with self._lock:
                session.requests -= 1

    def _forget_idle(self) -> None:
        """Forget the session that has been idle longest: what it is remembered for is long over."""
        for id, session in self._sessions.items():
            if session.is_idle:
                del self._sessions[id]
                return

    def transaction_of(self, id: str) -> tuple[Session, Lakehouse, Transaction]:
        """Return an open transaction by its id, and what it is in; a clone of its session may write it.

        Raises:
            NoTransactionError: it has ended.
        """
        with self._lock:
            sessions = list(self._sessions.values())
        for session in sessions:
            tx, house = session.transaction, session.catalog  # read once: the session may end it at any moment
            if tx is not None and house is not None and tx.id == id:
                return session, house, tx
        raise NoTransactionError(f"transaction {id} has ended; what was written under it is not in any table")

    # --- transactions -------------------------------------------------------------------------------------------------

    def _begin(self, session: Session, asked: Request) -> Answer:
        batch, session.next_batch = session.next_batch, None
        if session.transaction is not None:
            raise ActiveTransactionError(
                f"a transaction is open in this session ({session.transaction.id}); COMMIT or ROLLBACK it first"
            )
        catalogs: dict[str, dict[str, str]] = asked["catalogs"]
        name = asked.get("current") or (next(iter(catalogs)) if len(catalogs) == 1 else None)
        if name is None:
            raise InvalidError(
                f"which catalog? This session has {', '.join(sorted(catalogs)) or 'no Lockstep catalog'}; "
                "say USE <catalog> before BEGIN"
            )
        house = self.lakehouses.get(name, catalogs[name])
        goes_on = _goes_on(asked.get("on_statement_error"))
        kept = _seconds("lockstep.shared_transaction_timeout", asked.get("shared_transaction_timeout"), KEPT_SECONDS)
        tx = house.catalog.begin(
            isolation=isolation_of(asked.get("isolation")),
            read_only=bool(asked.get("read_only")),
            record_reads=flag("lockstep.record_reads", asked.get("record_reads")),
            comment=asked.get("comment", ""),
            batch=batch,
            case_sensitive=is_case_sensitive(asked),
        )
        session.catalog, session.goes_on, session.transaction = house, goes_on, tx
        return _named(tx) | {"kept_seconds": kept}

    def _batch(self, session: Session, asked: Request) -> Answer:
        """Remember which micro-batch the session's next BEGIN carries out; without an application, none.

        It is said beside BEGIN, and for one BEGIN only: a setting of the session that outlived its transaction would
        make replays, whose work is dropped, of all that follow.
        """
        named = "application" in asked
        session.next_batch = Batch(application=asked["application"], number=asked["number"]) if named else None
        return {}

    def _begun(self, session: Session, _: Request) -> Answer:
        """Tell what BEGIN found of its micro-batch's application."""
        tx = self._open_transaction(session, "a micro-batch")[0]
        recorded = None if tx.batch is None else tx.base.batches.get(tx.batch.application)
        return {"last_batch": recorded, "is_replay": tx.is_replay}

    def _commit(self, session: Session, asked: Request) -> Answer:
        tx, house = self._open_transaction(session, "COMMIT")
        if asked.get("failure") and not tx.read_only and not session.goes_on:
            tx.failure = tx.failure or asked["failure"]  # a script that overlooked it must not commit the rest
        tables = {table.id: table for table in tx.base.tables.values()}
        for scan in scans_of(asked):
            tx.failure = tx.failure or other_version(tx, scan)  # the shim has refused it: see `_snapshot`
            if scan.table in tables:  # not one of its own
                tx.read(tables[scan.table], scan.where)
        tx.settle(asked.get("settled") or [])
        started = house.catalog.lake.clock()
        done = house.catalog.commit(tx)
        writes = done.entry.writes if done.entry is not None else []
        rows = {key: [getattr(write.counts, key) for write in writes] for key in ("rows_added", "rows_removed")}
        return {
            "database_version": done.version,
            "transaction_id": tx.id,
            "tables_changed": len({w.id for w in writes} | {d.id for d in (done.entry.tables if done.entry else [])}),
            "files_added": sum(write.counts.files_added for write in writes),
            "files_removed": sum(write.counts.files_removed for write in writes),
            **{key: None if -1 in values else sum(values) for key, values in rows.items()},
            "milliseconds": round((house.catalog.lake.clock() - started).total_seconds() * 1000),
            "checkpoints": [house.uris.head(w.location) for w in writes if _is_due(w.from_version, w.to_version)],
        }

    def _rollback(self, session: Session, _: Request) -> Answer:
        tx, house = self._open_transaction(session, "ROLLBACK")
        house.catalog.rollback(tx)
        return _named(tx)

    def _savepoint(self, session: Session, asked: Request) -> Answer:
        tx, _ = self._open_transaction(session, "SAVEPOINT")
        if asked.get("failure") and not session.goes_on:
            raise FailedTransactionError(
                "a write of this transaction failed, so no savepoint can be set: ROLLBACK, or ROLLBACK TO an older "
                f"one. The failure was: {asked['failure']}"
            )
        tx.savepoint(asked["name"])
        return _named(tx)

    def _rollback_to(self, session: Session, asked: Request) -> Answer:
        """Go back, and tell which URIs nobody may use any more."""
        tx, house = self._open_transaction(session, "ROLLBACK TO")
        house.catalog.rollback_to(tx, asked["name"])
        return _named(tx) | session.forget_used()

    def _release(self, session: Session, asked: Request) -> Answer:
        tx, _ = self._open_transaction(session, "RELEASE")
        tx.release(asked["name"])
        return _named(tx)

    def _open_transaction(self, session: Session, verb: str) -> tuple[Transaction, Lakehouse]:
        if session.transaction is None or session.catalog is None:
            raise NoTransactionError(f"{verb} without a transaction: none is open in this session; BEGIN starts one")
        return session.transaction, session.catalog

    def _ended(self, session: Session, _: Request) -> Answer:
        """Tell whether the transaction is over, and if so which URIs nobody may use any more."""
        if session.transaction is not None and session.transaction.is_open:
            return {"open": True, "uris": [], "tables": []}
        used = session.forget_used()
        session.transaction, session.catalog, session.lost = None, None, None
        return {"open": False, **used}

    def _lost(self, session: Session, asked: Request) -> Answer:
        """Take over a session from a host that died: what it had open is gone, and its user must notice."""
        session.lost = Lost(asked["transaction"], "Lockstep's host process, which kept it, ended in the middle")
        return {}

    def _lapse(self, session: Session, _: Request) -> Answer:
        """Roll back a shared transaction whose clients are all gone; one that comes back must notice."""
        tx, house = session.transaction, session.catalog
        if tx is not None and house is not None:
            refusal = _end(tx, house)
            session.lost = Lost(
                tx.id,
                "all connections that shared it were closed, and none came within lockstep.shared_transaction_timeout",
                refusal,
            )
        used = session.forget_used()
        session.transaction = session.catalog = None
        return used

    def _in_lost(self, session: Session, asked: Request) -> Answer:
        """Answer in a lost transaction: it can only be ended, for its statements must not go on without it."""
        assert session.lost is not None
        lost, ends = session.lost, asked["op"] in ("commit", "rollback")
        if lost.refusal is not None:
            if ends:
                raise lost.refusal.again()
            raise FailedTransactionError(
                f"transaction {lost.transaction} has ended: {lost.why}. A COMMIT of it had had no answer: "
                f"{lost.refusal.message}. ROLLBACK, which says so once more, and begin again"
            )
        if asked["op"] == "rollback":
            return {"transaction_id": lost.transaction}
        raise FailedTransactionError(
            f"transaction {lost.transaction} was rolled back: {lost.why}. "
            + ("Begin again" if ends else "ROLLBACK, and begin again")
        )

    def _outside(self, session: Session, asked: Request) -> Answer:
        """Refuse what a ROLLBACK could not take back."""
        what = asked["what"]
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
            if not asked.get("known", True):
                raise ActiveTransactionError(
                    f"{what} is a command that Lockstep does not know, and so not whether a ROLLBACK could undo it. "
                    f"Run it outside the transaction, or set spark.sql.catalog.{house.name}.outside-writes=allow "
                    "to have such commands happen at once, whatever becomes of the transaction"
                )
            raise ActiveTransactionError(
                f"{what} is not in catalog {house.name}, so a ROLLBACK could not undo it. Run it outside the "
                f"transaction, or set spark.sql.catalog.{house.name}.outside-writes=allow to have such writes "
                "happen at once, whatever becomes of the transaction"
            )
        return {}


def _end(tx: Transaction, house: Lakehouse) -> LockstepError | None:
    """Roll a transaction back that nobody asks for; return what is known if that may not be so, and log it."""
    try:
        house.catalog.rollback(tx)
    except LockstepError as error:
        _log.warning("transaction %s was not rolled back: %s", tx.id, error)
        return error
    except Exception as error:  # noqa: BLE001 (logged; it may keep neither this session nor another from its end)
        _log.exception("transaction %s was not rolled back in good order", tx.id)
        if tx.in_doubt is None:
            return None  # what it leaves is litter: without a COMMIT nothing of it is in any table
        return CommitUnknownError(
            f"nobody looked whether transaction {tx.id} is committed as database version {tx.in_doubt} "
            f"({type(error).__name__}: {error}). The transaction has ended; look for its id in the timeline."
        )
    return None


def _described(asked: Any) -> str:
    """Return which request it is, for the log: the rest of one has keys of stores in it, and data."""
    if not isinstance(asked, dict):
        return "a request that is no JSON object"
    op, session, catalog = (asked.get(key) for key in ("op", "session", "catalog"))
    return f"the request {op!r:.100} of session {session!r:.100} about catalog {catalog!r:.100}"


def _named(tx: Transaction) -> Answer:
    return {"database_version": tx.base.version, "transaction_id": tx.id}


def _goes_on(value: str | None) -> bool:
    """Tell what `lockstep.on_statement_error` says, as it stands at BEGIN."""
    if value is not None and value.lower() not in ("fail", "continue"):
        raise InvalidError(f"lockstep.on_statement_error is {value!r}: expected fail or continue")
    return value is not None and value.lower() == "continue"


KEPT_SECONDS = 60
"""How long a shared transaction waits for another client when the last one has gone, if nothing else is said."""


def _seconds(setting: str, value: str | None, default: int) -> int:
    if value is None:
        return default
    if not (value.isascii() and value.isdigit()):
        raise InvalidError(f"{setting} is {value!r}: expected a number of seconds")
    return int(value)


CHECKPOINT_INTERVAL = 10
"""Delta's default of `delta.checkpointInterval`, in table versions."""


def _is_due(before: int, after: int) -> bool:
    return after // CHECKPOINT_INTERVAL > max(before, 0) // CHECKPOINT_INTERVAL


def refusal(error: LockstepError) -> str:
    """Return the answer that raises an error in Spark; what is no text, half an emoji say, is shown as `?` in it."""
    message = error.message.encode(errors="replace").decode()
    described = {"condition": condition_of(type(error)), "message": message, "sqlstate": error.sqlstate}
    return msgspec.json.encode({"error": described}).decode()


def condition_of(kind: type[LockstepError]) -> str:
    """Return Spark's name of an error class: `ConflictError` is LOCKSTEP_CONFLICT."""
    if kind is LockstepError:
        return "LOCKSTEP_INTERNAL"
    words = "".join(f"_{c}" if c.isupper() else c.upper() for c in kind.__name__.removesuffix("Error"))
    return f"LOCKSTEP{words}"
