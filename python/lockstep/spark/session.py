"""The Python face: transactions in a session.

    with lockstep.transaction(spark, comment="nightly load") as tx:
        spark.sql("INSERT INTO lake.sales.orders SELECT * FROM staged_orders")
        spark.sql("MERGE INTO lake.sales.totals …")
    tx.version                                      # the database version that this made

    lockstep.run(spark, lambda tx: spark.sql("UPDATE …"), attempts=5)       # again, if another was first

A transaction belongs to a SparkSession: every statement of the session between its beginning and its end is part of it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType, TracebackType
from typing import Any, Literal, Self, TypeAlias, TypeVar

from msgspec import structs
from pyspark.sql import SparkSession

from lockstep.arguments import check_result, check_runs_when_called, takes
from lockstep.blocks import Block, batch_of, check_isolation, give_up, run_again
from lockstep.display import Section, html
from lockstep.errors import (
    CommitUnknownError,
    ConflictError,
    FailedTransactionError,
    LockstepError,
    MissingFilesError,
    NoTransactionError,
    TransactionStateError,
    UnavailableError,
    UnsupportedError,
)
from lockstep.retry import AGAIN
from lockstep.spark import bridge
from lockstep.spark.bridge import attach
from lockstep.spark.raised import lockstep_errors
from lockstep.spark.timeouts import during, timeouts
from lockstep.timeline.entry import Batch, Isolation

T = TypeVar("T")
Status: TypeAlias = Literal["NEW", "OPEN", "IN DOUBT", "COMMITTED", "ROLLED BACK"]

_TOO_LATE = "2D000"
_PROBE = "lockstep_which_transaction"
"""A savepoint that is set to learn which transaction a session has open, and released."""

_COMMITTED_AS = re.compile(r"is committed as database version (\d+)")


class SessionTransaction(Block):
    """A transaction of a SparkSession, for one `with` block.

    Attributes:
        id: the transaction's id, once begun.
        version: the database version that it made, once committed; the snapshot's if there was nothing to commit.
        status: NEW, OPEN, COMMITTED, ROLLED BACK, or IN DOUBT: it is not known here whether it is committed. While the
            session still has it open, `commit` or `rollback` finds out. Otherwise look for its `id` in the timeline.
        result: the row that COMMIT returned, as a dictionary.
        batch: the micro-batch that it carries out, if any.
        last_batch: the number of its application's last recorded batch, once begun; None if there is none.
        is_replay: whether `batch` was already done when this transaction began. There is nothing to do then: whatever
            the block does to tables is dropped at its end.
    """

    def __init__(
        self,
        spark: SparkSession,
        begin: str,
        batch: Batch | None = None,
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Begin by a statement, while the session says these settings."""
        self._spark = spark
        self._begin = begin
        self._settings = settings
        self.batch = batch
        self.last_batch: int | None = None
        self.is_replay = False
        self.id: str | None = None
        self.snapshot: int | None = None
        self.version: int | None = None
        self.status: Status = "NEW"
        self.result: dict[str, Any] = {}

    def __repr__(self) -> str:
        at = "" if self.version is None else f" as database version {self.version}"
        return f"<lockstep.transaction {self.id or '(not begun)'} {self.status}{at}>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: how it stands, and what COMMIT answered."""
        facts = {"transaction": self.id or "(not begun)", "status": self.status, "snapshot": self.snapshot}
        answer = {key: value for key, value in self.result.items() if key != "transaction_id"}
        rows = [[key.replace("_", " "), value] for key, value in {**facts, **answer}.items() if value is not None]
        return html([Section("", (), rows)])

    def __enter__(self) -> Self:
        if self.status != "NEW":
            raise TransactionStateError(
                f"{self!r} was used already; call lockstep.transaction() again", sqlstate="25000"
            )
        attach(self._spark)
        is_first = not bridge.is_remote(self._spark) and bridge.current(self._spark) is None
        try:
            with during(self._spark, self._settings):
                row = self._execute(self._begin) if self.batch is None else self._begin_batch(self.batch)
        except BaseException as error:
            if is_first and not isinstance(error, LockstepError):  # an interrupt: it may have been begun all the same
                give_up(lambda: self._execute("ROLLBACK"), error)
            raise
        self.id, self.snapshot, self.status = row["transaction_id"], row["database_version"], "OPEN"
        if self.batch is not None:
            try:
                answer = bridge.ask(self._spark, "begun")
                _check_carried_out(self.batch, answer["batch"])
            except BaseException as error:  # an interrupt too: Python calls no `__exit__` now
                give_up(self.rollback, error)
                raise
            self.last_batch, self.is_replay = answer["last_batch"], answer["is_replay"]
        return self

    def _begin_batch(self, batch: Batch) -> dict[str, Any]:
        if bridge.is_remote(self._spark):
            raise UnsupportedError(
                f"batch {batch.number} of {batch.application}: a client of Spark Connect cannot say which micro-batch "
                "a transaction carries out; run the stream in the driver"
            )
        bridge.ask(self._spark, "batch", batch=batch)
        try:
            return self._execute(self._begin)
        except BaseException as refused:  # one that it does not get to must not be that of the next BEGIN
            try:
                bridge.ask(self._spark, "batch")
            except Exception as failure:  # noqa: BLE001 (why there was no BEGIN is raised, with a note of this)
                refused.add_note(f"Lockstep did not take batch {batch.number} back: {failure}")
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        if self.status not in ("OPEN", "IN DOUBT"):
            return False  # the block ended it itself
        if error is not None:
            give_up(self.rollback, error)
            return False
        try:
            self._commit_and_find_out()
        except BaseException as refused:  # an interrupt too, be it before COMMIT was sent
            if self.status in ("OPEN", "IN DOUBT"):  # a refused COMMIT may leave it so, but the block has ended
                give_up(self.rollback, refused)
            if not (self._is_committed and isinstance(refused, LockstepError)):
                raise
        return False

    def commit(self) -> None:
        """Commit now instead of at the end of the block.

        Raises:
            CommitUnknownError: the store did not say; another `commit` finds out. The end of the block tries that once.
            TransactionStateError: SQL has ended this transaction, and begun another, which is left as it is.
            LockstepError: it was not committed, see `lockstep.errors`; after a ConflictError it is rolled back.
        """
        self._refuse_another()
        try:
            self.result = self._execute("COMMIT")
        except BaseException as refused:  # an interrupt too
            self._learn(refused)
            raise
        self.version, self.status = self.result["database_version"], "COMMITTED"

    def rollback(self) -> None:
        """Roll back now instead of by an exception.

        Raises:
            TransactionStateError (2D000): too late, a `commit` without an answer did commit it; `status` says so.
            TransactionStateError: SQL has ended this transaction, and begun another, which is left as it is.
            CommitUnknownError: nobody knows whether a `commit` without an answer did commit it.
        """
        self._refuse_another()
        try:
            self._execute("ROLLBACK")
        except BaseException as refused:
            self._learn(refused)
            raise
        self.status = "ROLLED BACK"

    def _refuse_another(self) -> None:
        """Refuse to end a transaction that the block began itself, in SQL, after it had ended this one there."""
        current = self._of_session()
        if current not in (None, self.id):
            self.status = "IN DOUBT"
            raise TransactionStateError(
                f"transaction {self.id} was ended by a statement of the block that it was given to, which then began "
                f"transaction {current}. That one is still open, and nothing of it is committed: COMMIT or ROLLBACK it "
                "in SQL. A block of lockstep.transaction or lockstep.run leaves BEGIN and COMMIT to Lockstep",
                sqlstate="25000",
            )

    def _of_session(self) -> str | None:
        """Return the id of the session's open transaction, if one is known to be."""
        if not bridge.is_remote(self._spark):
            return bridge.current(self._spark)
        try:
            set_now = self._execute(f"SAVEPOINT {_PROBE}")  # what a client of Spark Connect can ask
            self._execute(f"RELEASE SAVEPOINT {_PROBE}")
        except LockstepError:
            return None  # none is open, or one that cannot be committed: COMMIT says which
        return str(set_now["transaction_id"])

    @property
    def _is_committed(self) -> bool:
        return self.status == "COMMITTED"

    def _learn(self, error: BaseException) -> None:
        """Note how it stands after COMMIT or ROLLBACK was refused; never more than is known."""
        self.status = "IN DOUBT"  # and it stays so if nobody can be asked
        if isinstance(error, TransactionStateError) and error.sqlstate == _TOO_LATE:
            match = _COMMITTED_AS.search(error.message)
            self.version, self.status = int(match[1]) if match else None, "COMMITTED"
        elif isinstance(error, CommitUnknownError | NoTransactionError):  # or ended by SQL, behind this object's back
            self.status = "IN DOUBT"
        elif self._stays_open(error):
            self.status = "OPEN"
        else:
            self.status = "ROLLED BACK" if isinstance(error, LockstepError) else "IN DOUBT"

    def _stays_open(self, error: BaseException) -> bool:
        if bridge.is_remote(self._spark):  # nobody to ask: the refusal says so, and all but these leave it open
            ending_errors = (ConflictError, FailedTransactionError, MissingFilesError)
            return isinstance(error, LockstepError) and not isinstance(error, ending_errors)
        return bridge.is_open(self._spark)

    def _execute(self, statement: str) -> dict[str, Any]:
        with lockstep_errors():
            return self._spark.sql(statement).collect()[0].asDict()


def _check_carried_out(batch: Batch, answered: object) -> None:
    """Raise UnavailableError unless the transaction that has begun carries out the micro-batch, as a host answers."""
    if answered != structs.asdict(batch):
        raise UnavailableError(
            f"batch {batch.number} of {batch.application}: Lockstep's host ended between the two requests that begin "
            "it, so the transaction was begun without it. It is rolled back, and nothing was done: run it again"
        )


@takes(
    comment=str,
    batch=tuple | list | None,
    timeout=int | float | None,
    idle_timeout=int | float | None,
    statement_timeout=int | float | None,
)
def transaction(
    spark: SparkSession,
    *,
    isolation: Isolation | None = None,
    read_only: bool = False,
    comment: str = "",
    batch: tuple[str, int] | None = None,
    timeout: float | None = None,
    idle_timeout: float | None = None,
    statement_timeout: float | None = None,
) -> SessionTransaction:
    """Return a transaction to use in a `with` statement: commits at its end, rolls back if the block raises.

    Args:
        isolation: SNAPSHOT or SERIALIZABLE; the catalog's level by default.
        read_only: refuse writes.
        comment: why, for the timeline.
        batch: the name of a streaming application and the number of its micro-batch, which the transaction carries
            out exactly once. Look at `is_replay` first, and do nothing if it is true. An application's numbers only
            grow (Delta's PROTOCOL.md, "Transaction Identifiers", has the same for one table).
        timeout: after how many seconds the transaction is rolled back (25P04); 0 for never. By default what is set for
            the session (`lockstep.transaction_timeout`), or else for the catalog.
        idle_timeout: after how many seconds without a running statement it is rolled back (25P03); default as above.
        statement_timeout: after how many seconds one of its statements is cancelled (57014); default as above.

    Raises:
        InvalidError: no such isolation level; an application's name of less than 1 or more than 256 characters; a
            number below 0 or above 2^63 - 1; a timeout below 0.
    """
    settings = timeouts(timeout=timeout, idle_timeout=idle_timeout, statement_timeout=statement_timeout)
    if isolation is not None:
        check_isolation(isolation)
    micro_batch = batch_of(batch)
    words = ["BEGIN TRANSACTION"]
    if isolation:
        words.append(f"ISOLATION LEVEL {isolation}")
    if read_only:
        words.append("READ ONLY")
    if comment:
        text = comment.replace("\\", "\\\\").replace("'", "\\'")
        words.append(f"COMMENT '{text}'")
    return SessionTransaction(spark, " ".join(words), micro_batch, settings)


@takes(fn=Callable, attempts=int, comment=str, batch=tuple | list | None)
def run(
    spark: SparkSession,
    fn: Callable[[SessionTransaction], T],
    *,
    attempts: int = AGAIN.attempts,
    isolation: Isolation | None = None,
    comment: str = "",
    batch: tuple[str, int] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """Run `fn` in a transaction, again from the start if another transaction was first, and return what it returns.

    It is run again only after errors that another run can resolve (`retryable`), with a growing, jittered pause. `fn`
    must not do anything outside of the transaction that cannot be done twice.

    Args:
        fn: gets the open transaction.
        attempts: how often at most, 1 or more.
        batch: as in `transaction`. With one, a COMMIT without an answer is retried too: if it landed, the next attempt
            `is_replay`.

    Raises:
        LockstepError: the last attempt's, or the first that is not retryable.
        InvalidError: fewer than one attempt; or `fn` does nothing when it is called (`async def`, a generator).
    """
    check_runs_when_called(fn)

    def attempt() -> T:
        with lockstep_errors(), transaction(spark, isolation=isolation, comment=comment, batch=batch) as tx:
            return check_result(fn(tx))

    return run_again(attempt, attempts=attempts, sleep=sleep, batch=batch)
