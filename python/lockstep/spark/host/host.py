"""The host: answers the shim. What can be asked, and what is answered, is in `lockstep.spark.host.protocol`.

It keeps what belongs to a session, its open transaction, and leaves every decision about data to
`TransactionalCatalog`. Which version a statement reads, its requests say. No thread-locals: Py4J calls from threads of
its own choosing. Who answers what is in `lockstep.spark.host.transactions`, `tables`, `writes`, `row_changes`, `views`
and `system`. The secret that a request to an attached host must show is made and compared in `lockstep.spark.bridge`.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext

import msgspec

from lockstep.errors import LockstepError, NoTransactionError
from lockstep.spark.host.functions import FunctionRequests
from lockstep.spark.host.keeper import Keeper
from lockstep.spark.host.known_options import KnownOptions, SayFirst
from lockstep.spark.host.lakehouses import Lakehouse, Lakehouses
from lockstep.spark.host.namespaces import NamespaceRequests
from lockstep.spark.host.procedures import ProcedureRequests
from lockstep.spark.host.protocol import Request, decode, description_of
from lockstep.spark.host.protocol.base import Answer, RequestBase
from lockstep.spark.host.protocol.options import TellOptions
from lockstep.spark.host.protocol.roots import SawRoot, SparkStarted
from lockstep.spark.host.protocol.tables import Claim
from lockstep.spark.host.protocol.transactions import Begin, CheckSetting, Ended, HostLost, Lapse
from lockstep.spark.host.requests import Operation, operation
from lockstep.spark.host.retention import RetentionRequests
from lockstep.spark.host.row_changes import RowChangeRequests
from lockstep.spark.host.same_root import LookFirst
from lockstep.spark.host.session_names import SessionNameRequests
from lockstep.spark.host.sessions import Session
from lockstep.spark.host.system import SystemRequests
from lockstep.spark.host.tables import TableRequests
from lockstep.spark.host.transactions import TransactionRequests, end_unasked
from lockstep.spark.host.views import ViewRequests
from lockstep.spark.host.writes import WriteRequests
from lockstep.transactions.transaction import Transaction

REMEMBERED_SESSIONS = 1000
"""Sessions without a transaction that are remembered, those that asked last: nobody says when a session ends."""

_IN_ANY_STATE = (HostLost, Lapse, Ended, CheckSetting, SawRoot, SparkStarted, TellOptions)
"""Requests that are no statement of the session's transaction, whatever became of that."""

_log = logging.getLogger(__name__)


class Host:
    """Answers requests of one Spark driver; safe to call from many threads."""

    def __init__(self, application: str = "") -> None:
        self.lakehouses = Lakehouses(application)
        self._lock = threading.Lock()
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._options = KnownOptions()
        self.keeper = Keeper(self._all_sessions)
        transactions = TransactionRequests(self)
        self._in_lost = transactions.in_lost
        self._operations: Mapping[type[RequestBase], Operation] = {
            **transactions.operations,
            **TableRequests(self).operations,
            **NamespaceRequests(self).operations,
            **WriteRequests(self).operations,
            **RowChangeRequests(self).operations,
            **ViewRequests(self).operations,
            **FunctionRequests(self).operations,
            **SessionNameRequests(self).operations,
            **ProcedureRequests(self).operations,
            **RetentionRequests(self).operations,
            **SystemRequests(self).operations,
            **dict(
                (
                    operation(SawRoot, self._saw_root),
                    operation(SparkStarted, self._spark_started),
                    operation(TellOptions, self._tell_options),
                )
            ),
        }

    def call(self, request: str | bytes) -> str:
        """Answer one request. Whatever goes wrong is an answer too: an exception's type would be lost on the way."""
        try:
            parsed_request = decode(request)
        except LockstepError as error:
            _log.error("%s: %s", description_of(request), error.message)
            return refusal(error)
        try:
            return msgspec.json.encode({"ok": self._answer(self._options.in_full(parsed_request))}).decode()
        except LookFirst as answer:
            return msgspec.json.encode({"look": answer.look}).decode()
        except SayFirst as answer:
            return msgspec.json.encode({"unsaid": answer.ids}).decode()
        except LockstepError as error:
            return refusal(error)
        except BaseException as error:  # noqa: BLE001 (logged, and told to whoever asked, who would wait for ever)
            _log.exception("%s failed", description_of(request))
            if isinstance(parsed_request, Begin) and parsed_request.within is None:
                self._end_unknown(parsed_request.session)
            what = f"internal error: {type(error).__name__}: {error}"
            return refusal(LockstepError(f"{what}. Please report it; `lockstep log` shows what was committed"))

    def _answer(self, request: Request) -> Answer:
        # A claim may wait for another transaction, and its own may have to be rolled back meanwhile.
        with self._session(request.session, is_held=not isinstance(request, Claim)) as session:
            if not isinstance(request, _IN_ANY_STATE):
                if (loss := session.lost_transaction) is not None:
                    return self._in_lost(session, loss, request)
                is_part = isinstance(request, Claim) or request.within is None or session.has(request.within)
                if not is_part and request.within is not None:
                    raise _no_transaction(request.within)
            return self._operations[type(request)](session, request)

    def _saw_root(self, _: Session, request: SawRoot) -> Answer:
        self.lakehouses.same_roots.saw(request)
        return Answer()

    def _spark_started(self, _: Session, __: SparkStarted) -> Answer:
        self.lakehouses.same_roots.forget()
        return Answer()

    def _tell_options(self, _: Session, request: TellOptions) -> Answer:
        self._options.tell(request)
        return Answer()

    def begin_anew(self, application: str) -> None:
        """Roll back whatever is open, for its Spark was stopped; what the driver's next one begins is looked after.

        Args:
            application: what that one is called.
        """
        self.close()
        self.keeper = Keeper(self._all_sessions)
        self.lakehouses.begin_anew(application)

    def close(self) -> None:
        """Roll back whatever is open: the driver ends. What cannot be rolled back keeps nothing else from it."""
        self.keeper.close()
        for session in self._all_sessions():
            _end(session)

    def _end_unknown(self, id: str) -> None:
        """Roll back what a BEGIN that failed may have begun: the shim knows of none, so nobody would commit it."""
        with self._lock:
            session = self._sessions.get(id)
        if session is not None:
            _end(session)

    # --- what requests are about --------------------------------------------------------------------------------------

    @contextmanager
    def _session(self, id: str, *, is_held: bool) -> Iterator[Session]:
        """Give the session, for one request at a time if it is held, and remember it as long as it has any."""
        with self._lock:
            if id not in self._sessions:
                self._sessions[id] = Session()
                self.lakehouses.new_session()
            session = self._sessions[id]
            session.requests += 1
            self._sessions.move_to_end(id)
            if len(self._sessions) > REMEMBERED_SESSIONS:
                self._forget_idle()
        try:
            with session.lock if is_held else nullcontext():
                yield session
        finally:
            with self._lock:
                session.requests -= 1

    def _all_sessions(self) -> list[Session]:
        with self._lock:
            return list(self._sessions.values())

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
        for session in self._all_sessions():
            tx, house = session.transaction, session.catalog  # read once: the session may end it at any moment
            if tx is not None and house is not None and tx.id == id and session.lost_transaction is None:
                return session, house, tx
        raise _no_transaction(id)


def _end(session: Session) -> None:
    """Roll back what a session has open, which nobody asks for."""
    with session.lock:
        if session.transaction is not None and session.catalog is not None and session.transaction.is_open:
            end_unasked(session.transaction, session.catalog)
        session.transaction = None


def _no_transaction(transaction: str) -> NoTransactionError:
    return NoTransactionError(
        f"transaction {transaction} has ended; nothing of this statement is in any table. Run it again in a new "
        "transaction"
    )


def refusal(error: LockstepError) -> str:
    """Return the answer that raises an error in Spark; what is no text, half an emoji say, is shown as `?` in it."""
    message = error.message.encode(errors="replace").decode()
    fields = {"condition": condition_of(type(error)), "message": message, "sqlstate": error.sqlstate}
    return msgspec.json.encode({"error": fields}).decode()


def condition_of(kind: type[LockstepError]) -> str:
    """Return Spark's name of an error class: `ConflictError` is LOCKSTEP_CONFLICT."""
    if kind is LockstepError:
        return "LOCKSTEP_INTERNAL"
    words = "".join(f"_{c}" if c.isupper() else c.upper() for c in kind.__name__.removesuffix("Error"))
    return f"LOCKSTEP{words}"
