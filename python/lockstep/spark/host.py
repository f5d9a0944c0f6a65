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

from lockstep.catalog import TransactionalCatalog
from lockstep.errors import (
    ActiveTransactionError,
    FailedTransactionError,
    InvalidError,
    LockstepError,
    NoTransactionError,
    UnsupportedError,
)
from lockstep.model import Batch, Name
from lockstep.resolution import Resolution
from lockstep.retry import race_backoff
from lockstep.spark.requests import is_case_sensitive
from lockstep.spark.tables import TableRequests, isolation_of, other_version, scans_of
from lockstep.spark.uris import Uris
from lockstep.spark.views import ViewRequests
from lockstep.transactions import Transaction
from lockstep.undo import Creation

Request: TypeAlias = dict[str, Any]
Answer: TypeAlias = dict[str, Any]
Settings: TypeAlias = frozenset[tuple[str, str]]

REMEMBERED_SESSIONS = 1000
"""Sessions without a transaction that are remembered, those that asked last: nobody says when a session ends."""

PENDING_CREATIONS = 10_000
"""New tables of one lake that were announced and not yet written."""

_log = logging.getLogger(__name__)


@dataclass
class Lakehouse:
    """A catalog as some sessions have it: the lake behind it, how Spark names its folders, and their settings for it.

    Sessions that set it up alike share one; all that have the same lake share that, its timeline and its `creations`.
    """

    name: str
    catalog: TransactionalCatalog
    uris: Uris
    creations: Creations
    allows_outside_writes: bool = False

    def is_same(self, other: Lakehouse) -> bool:
        """Whether it is the same catalog, whatever is set for it."""
        return self.name == other.name and self.catalog.lake is other.catalog.lake


@dataclass(frozen=True, slots=True)
class _SharedLake:
    """What all catalogs of one root share."""

    catalog: TransactionalCatalog
    creations: Creations


class Creations:
    """New tables that statements on their own are about to write, by location; a failed CREATE leaves its own behind.

    A statement that takes hours writes its first version at its end, so they do not go with idle sessions.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending: OrderedDict[str, Creation] = OrderedDict()

    def add(self, creation: Creation) -> None:
        """Remember one; the oldest of very many is forgotten, and its statement is refused when it writes."""
        with self._lock:
            self._pending[creation.location] = creation
            while len(self._pending) > PENDING_CREATIONS:
                self._pending.popitem(last=False)

    def take(self, location: str) -> Creation | None:
        """Return the one at a location, for the last time: a refused creation's files are removed."""
        with self._lock:
            return self._pending.pop(location, None)


@dataclass(frozen=True, slots=True)
class Lost:
    """A transaction that was rolled back without its session's doing, and what had happened."""

    transaction: str
    why: str


@dataclass
class Session:
    """What the host keeps for one SparkSession, or for all that share their transactions.

    Attributes:
        transaction, catalog: the open transaction and the catalog it is in; None outside one.
        used: the overlay URIs that the transaction was given, and their tables' names: its end drops caches of them.
        text: the last statement's text.
        next_batch: the micro-batch that the next BEGIN carries out.
        goes_on: whether the open transaction can be committed although a write of it failed.
        lost: the transaction that was rolled back behind the session's back, until somebody ends it.
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
        self._application = application
        self._lock = threading.Lock()
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._lakes: dict[tuple[str, Settings], _SharedLake] = {}
        self._lakehouses: dict[tuple[str, Settings], Lakehouse] = {}
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
        try:
            return msgspec.json.encode({"ok": self._answer(msgspec.json.decode(request))}).decode()
        except LockstepError as error:
            return refusal(error)
        except Exception as error:  # noqa: BLE001 (logged, and told to whoever asked)
            _log.exception("the request %.200r failed", request)
            return refusal(LockstepError(f"internal error: {type(error).__name__}: {error}"))

    def _answer(self, asked: Request) -> Answer:
        with self._session(asked["session"]) as session:
            lost = session.lost is not None and asked["op"] not in ("lost", "lapse", "ended")
            operation = self._in_lost if lost else self._operations[asked["op"]]
            return operation(session, asked)

    def close(self) -> None:
        """Roll back whatever is open: the driver ends."""
        with self._lock:
            sessions = list(self._sessions.values())
        for session in sessions:
            with session.lock:
                if session.transaction is not None and session.catalog is not None:
                    try:
                        session.catalog.catalog.rollback(session.transaction)
                    except LockstepError as error:  # one that cannot be must not keep the others from it
                        _log.warning("transaction %s was not rolled back: %s", session.transaction.id, error)
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

    def lakehouse(self, name: str, options: dict[str, str]) -> Lakehouse:
        """Return the catalog of this name, with these settings, whose lake is opened when first used."""
        root = options.get("root")
        if not root:
            raise InvalidError(f"catalog {name} has no root: set spark.sql.catalog.{name}.root to a path or URL")
        setup = (name, frozenset(options.items()))
        with self._lock:
            if setup not in self._lakehouses:
                self._lakehouses[setup] = self._open(name, root, options)
            return self._lakehouses[setup]

    def _open(self, name: str, root: str, options: dict[str, str]) -> Lakehouse:
        outside = options.get("outside-writes", "refuse")
        if outside not in ("refuse", "allow"):
            raise InvalidError(f"spark.sql.catalog.{name}.outside-writes is {outside!r}: expected refuse or allow")
        isolation = isolation_of(options.get("isolation")) or "SERIALIZABLE"
        record_reads = _flag(f"spark.sql.catalog.{name}.record-reads", options.get("record-reads")) or False
        shared = self._lake(root, options)
        catalog = TransactionalCatalog(
            shared.catalog.lake,
            author=shared.catalog.author,
            application=self._application,
            isolation=isolation,
            record_reads=record_reads,
            backoff=race_backoff(options),
            resolution=Resolution.of(options),
        )
        return Lakehouse(name, catalog, Uris(catalog.lake.storage.url), shared.creations, outside == "allow")

    def _lake(self, root: str, options: dict[str, str]) -> _SharedLake:
        """Return what all catalogs of one root and store have in common, opened when first used."""
        store = {key.removeprefix("store."): value for key, value in options.items() if key.startswith("store.")}
        key = (root, frozenset(store.items()))
        if key not in self._lakes:
            create = options.get("create", "false").lower() == "true"
            opened = TransactionalCatalog.open(root, create=create, options=store, application=self._application)
            self._lakes[key] = _SharedLake(opened, Creations())
        return self._lakes[key]

    def writer(self, uri: str, catalogs: dict[str, dict[str, str]]) -> Lakehouse:
        """Return the catalog, of those that a session has, which an overlay URI lies in: the one with the longest root.

        Of two with the same root it is the stricter: the URI does not say which of them the statement named.
        """
        houses = [self.lakehouse(name, options) for name, options in catalogs.items()]
        found = [house for house in houses if house.uris.holds(uri)]
        if not found:
            raise InvalidError(f"no Lockstep catalog of this session holds {uri}")
        return max(
            found, key=lambda h: (len(h.uris.real("")), h.catalog.isolation == "SERIALIZABLE", h.catalog.record_reads)
        )

    def owner(self, uri: str) -> Lakehouse:
        """Return the catalog that an overlay URI lies in: the one with the longest root."""
        with self._lock:
            found = [house for house in self._lakehouses.values() if house.uris.holds(uri)]
        if not found:
            raise InvalidError(f"no Lockstep catalog of this driver holds {uri}")
        return max(found, key=lambda house: len(house.uris.real("")))

    def transaction_of(self, id: str) -> tuple[Session, Transaction]:
        """Return an open transaction by its id; a statement may write it from a clone of its session.

        Raises:
            NoTransactionError: it has ended.
        """
        with self._lock:
            sessions = list(self._sessions.values())
        for session in sessions:
            if session.transaction is not None and session.transaction.id == id:
                return session, session.transaction
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
        house = self.lakehouse(name, catalogs[name])
        goes_on = _goes_on(asked.get("on_statement_error"))
        kept = _seconds("lockstep.shared_transaction_timeout", asked.get("shared_transaction_timeout"), KEPT_SECONDS)
        session.transaction = house.catalog.begin(
            isolation=isolation_of(asked.get("isolation")),
            read_only=bool(asked.get("read_only")),
            record_reads=_flag("lockstep.record_reads", asked.get("record_reads")),
            comment=asked.get("comment", ""),
            batch=batch,
            case_sensitive=is_case_sensitive(asked),
        )
        session.catalog, session.goes_on = house, goes_on
        return _named(session.transaction) | {"root": house.catalog.lake.storage.url, "kept_seconds": kept}

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
        if session.transaction is not None and session.catalog is not None:
            session.catalog.catalog.rollback(session.transaction)
            session.lost = Lost(
                session.transaction.id,
                "all connections that shared it were closed, and none came within lockstep.shared_transaction_timeout",
            )
        session.transaction = None
        return session.forget_used()

    def _in_lost(self, session: Session, asked: Request) -> Answer:
        """Answer in a lost transaction: it can only be ended, for its statements must not go on without it."""
        assert session.lost is not None
        if asked["op"] == "rollback":
            return {"transaction_id": session.lost.transaction}
        raise FailedTransactionError(
            f"transaction {session.lost.transaction} was rolled back: {session.lost.why}. "
            + ("Begin again" if asked["op"] == "commit" else "ROLLBACK, and begin again")
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


def _named(tx: Transaction) -> Answer:
    return {"database_version": tx.base.version, "transaction_id": tx.id}


def _flag(setting: str, value: str | None) -> bool | None:
    if value is not None and value.lower() not in ("true", "false"):
        raise InvalidError(f"{setting} is {value!r}: expected true or false")
    return None if value is None else value.lower() == "true"


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
