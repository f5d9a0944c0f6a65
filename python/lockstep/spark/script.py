"""Runs a script on a SparkSession: its statements in order, in one transaction if asked.

    script = read("load.sql", Path("load.sql").read_text())
    tx = run_script(spark, script, atomic=True)
    tx.version

Statements run on a thread of their own, and the caller's waits for it. So an interrupt (Ctrl-C, a notebook's stop)
finds the caller outside of Py4J, and can have the statement's jobs cancelled. On the statement's own thread it could
not: its connection waits for an answer, so PySpark's handler of SIGINT fails to ask for anything, and the statement
would go on in the JVM beside the ROLLBACK.
"""

from __future__ import annotations

import logging
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession
from pyspark.util import inheritable_thread_target

from lockstep.display import ROWS_AT_MOST
from lockstep.errors import (
    CancelledError,
    InvalidError,
    LockstepError,
    StatementError,
    TransactionStateError,
    UnsupportedError,
)
from lockstep.scripts.script import Script, Step, refuse_transactions
from lockstep.spark.bridge import attach, is_open, is_remote
from lockstep.spark.configuration import configure
from lockstep.spark.defaults import require_lockstep
from lockstep.spark.raised import lockstep_errors
from lockstep.spark.session import SessionTransaction, transaction
from lockstep.timeline.entry import Isolation

CANCEL_AGAIN_SECONDS = 0.5
"""A statement may have several jobs, and a cancellation reaches those alone that have begun."""


@dataclass(frozen=True, slots=True)
class Done:
    """What a statement returned.

    Attributes:
        step: the statement.
        columns: names; none for a statement that returns nothing.
        rows: the first 1,000 at most.
        is_cut: whether there are more.
        seconds: how long it took.
    """

    step: Step
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    is_cut: bool
    seconds: float


@contextmanager
def quiet_failures() -> Iterator[None]:
    """Keep PySpark from logging each failed statement, with the JVM's stack, beside what is said of it here.

    PySpark makes the logger, of a class of its own: made first by anybody else, it would refuse what PySpark writes.
    """
    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    logging.root.addFilter(_is_no_interrupt)
    try:
        yield
    finally:
        logging.root.removeFilter(_is_no_interrupt)
        logger.setLevel(level)


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    """Tell a record from the one that Py4J logs, with a trace, when an interrupt reaches it while it waits."""
    return not str(record.msg).startswith("KeyboardInterrupt while sending command")


def open_session(*, application: str, root: str | None, catalog: str, settings: Mapping[str, str]) -> SparkSession:
    """Return the process's session, made with these settings if there is none yet.

    Args:
        application: what Spark and the timeline call the program.
        root: the lake's path or URL; None if Spark's defaults configure Lockstep.
        catalog: what SQL calls the lake at `root`.
        settings: more of Spark's settings.

    Raises:
        InvalidError, UnsupportedError, UnavailableError: as `lockstep.configure` and `lockstep.attach`; the first of
            them, too, if Spark does not start, or if it would start without Lockstep (`lockstep.spark.defaults`).
    """
    if root is None:
        require_lockstep(settings)
    builder = SparkSession.builder.appName(application)
    # Spark's own bar would be drawn over what a terminal is shown.
    for key, value in {"spark.ui.showConsoleProgress": "false", **settings}.items():
        builder = builder.config(key, value)
    if root is not None:
        builder = configure(builder, root=root, catalog=catalog)
    try:
        spark = builder.getOrCreate()
    except (PySparkException, Py4JJavaError) as error:
        message = _short(_message_and_state(error)[0])
        raise InvalidError(f"Spark does not start: {message}") from error
    attach(spark)
    return spark


def run_script(
    spark: SparkSession,
    script: Script,
    *,
    atomic: bool = False,
    isolation: Isolation | None = None,
    comment: str = "",
    on_begin: Callable[[Step], None] = lambda _: None,
    on_done: Callable[[Done], None] = lambda _: None,
    on_interrupt: Callable[[], None] = lambda: None,
) -> SessionTransaction | None:
    """Run the statements of a script in order, up to the first that fails.

    Args:
        atomic: in one transaction, committed at the end and rolled back if a statement fails.
        isolation, comment: of that transaction, as `lockstep.transaction` takes them.
        on_begin, on_done: called before and after each statement, on a thread of their own.
        on_interrupt: called after an interrupt, before the statement that runs is cancelled.

    Returns:
        the transaction, committed; None if not `atomic`.

    Raises:
        InvalidError: `atomic`, and the script says itself where a transaction begins or ends; nothing was run.
        StatementError: a statement failed. Whatever transaction was open is rolled back.
        TransactionStateError: the script left a transaction open at its end, which was rolled back, or, `atomic`, ended
            it by EXECUTE IMMEDIATE.
        CancelledError: interrupted. Whatever transaction was open is rolled back.
        LockstepError: COMMIT or BEGIN of an `atomic` script was refused.
        UnsupportedError: the session is a client of Spark Connect.
    """
    if atomic:
        refuse_transactions(script)
    if is_remote(spark):
        raise UnsupportedError(
            "a client of Spark Connect cannot run a script as a whole; run its statements one by one, inside of "
            "lockstep.transaction(spark)"
        )
    attach(spark)
    tx = transaction(spark, isolation=isolation, comment=comment) if atomic else None
    run = _Run(spark, script, tx, on_begin, on_done)
    with ThreadPoolExecutor(1, thread_name_prefix="lockstep-script") as pool:
        future = pool.submit(inheritable_thread_target(spark)(run.all))
        try:
            return future.result()
        except KeyboardInterrupt:
            on_interrupt()
            run.cancel()
            while wait([future], timeout=CANCEL_AGAIN_SECONDS).not_done:
                run.cancel()
            return future.result()


class _Run:
    """One run of a script, on one thread; `cancel` comes from another."""

    def __init__(
        self,
        spark: SparkSession,
        script: Script,
        tx: SessionTransaction | None,
        on_begin: Callable[[Step], None],
        on_done: Callable[[Done], None],
    ) -> None:
        self._spark = spark
        self._script = script
        self._tx = tx
        self._on_begin = on_begin
        self._on_done = on_done
        self._cancelled = threading.Event()
        self._tag = f"lockstep-{uuid.uuid4()}"

    def cancel(self) -> None:
        """Let the statement that runs fail, and no other begin."""
        self._cancelled.set()
        self._spark.sparkContext.cancelJobsWithTag(self._tag)

    def all(self) -> SessionTransaction | None:
        """Run all statements, in the transaction if there is one; whatever is open after a failure is rolled back."""
        if self._tx is not None:
            with self._tx:
                self._in_transaction()
        else:
            try:
                self._as_it_is()
            except BaseException as error:
                self._roll_back(error)
                raise
        return self._tx

    def _in_transaction(self) -> None:
        for step in self._script.steps:
            self._run(step)
            if not is_open(self._spark):
                raise TransactionStateError(
                    f"{self._place(step)}: the statement ended the transaction that the script runs in. What was done "
                    "before is committed or rolled back as it said, the rest was not run"
                )
        self._refuse_cancelled("before its COMMIT")

    def _as_it_is(self) -> None:
        for step in self._script.steps:
            self._run(step)
        if is_open(self._spark):
            raise TransactionStateError(
                f"{self._script.name} ended with a transaction open, which was rolled back: COMMIT is missing"
            )

    def _run(self, step: Step) -> None:
        self._refuse_cancelled(f"at line {step.source.line}")
        self._on_begin(step)
        began = time.monotonic()
        context = self._spark.sparkContext
        context.setJobDescription(self._place(step))
        context.setInterruptOnCancel(True)
        context.addJobTag(self._tag)
        try:
            with lockstep_errors():
                frame = self._spark.sql(step.text)
                rows = frame.take(ROWS_AT_MOST + 1)
        except (LockstepError, PySparkException, Py4JJavaError) as error:
            self._refuse_cancelled(f"at line {step.source.line}")
            raise self._failure(step, error) from error
        finally:
            context.removeJobTag(self._tag)
        is_cut = len(rows) > ROWS_AT_MOST
        self._on_done(Done(step, frame.columns, rows[:ROWS_AT_MOST], is_cut, time.monotonic() - began))

    def _refuse_cancelled(self, where: str) -> None:
        if self._cancelled.is_set():
            raise CancelledError(f"{self._script.name} was interrupted {where}. {self._consequence()}")

    def _consequence(self) -> str:
        """Return what a failure now means for what was done before; a block may have ended the transaction itself."""
        if self._tx is not None and is_open(self._spark):
            return "Nothing of the script was kept."
        if is_open(self._spark):
            return "What is committed stays; the transaction that was open is rolled back."
        return "What is committed stays; no transaction is open."

    def _failure(self, step: Step, error: LockstepError | PySparkException | Py4JJavaError) -> StatementError:
        message, sqlstate = _message_and_state(error)
        message, place = message_and_place(step, message)
        line, column = place or (step.source.line, step.source.column)
        return StatementError(
            f"{self._script.name}, line {line}, column {column}: statement {step.number} of {len(self._script.steps)} "
            f"failed: {message}\n{self._consequence()}",
            number=step.number,
            line=line,
            column=column,
            sqlstate=sqlstate,
        )

    def _place(self, step: Step) -> str:
        return f"{self._script.name}, line {step.source.line}"

    def _roll_back(self, because: BaseException) -> None:
        if not is_open(self._spark):
            return
        try:
            with lockstep_errors():
                self._spark.sql("ROLLBACK")
        except LockstepError as failure:
            because.add_note(f"Lockstep did not roll back: {failure}")


# --- what Spark says of a failure -------------------------------------------------------------------------------------

CHARACTERS_AT_MOST = 4_000
"""Of a failure's message; a job's may have a stack of the JVM in it, which goes, and the plan of the query."""

_PLACES = (
    re.compile(r"; line (?P<line>\d+) pos (?P<pos>\d+)(?=;?(?:\n|$))"),
    re.compile(r" \(line (?P<line>\d+), pos (?P<pos>\d+)\)(?=\n\n== SQL ==\n(?P<first>.*))"),
    re.compile(r"\n== SQL \(line (?P<line>\d+), position (?P<column>\d+)\) =="),
)
"""How Spark's messages say where: errors of analysis, of the parser, and of execution; `pos` is from 0."""

_OF_LOCKSTEP = re.compile(r"\(line (?P<line>\d+), pos (?P<pos>\d+)\)(?!\n\n== SQL ==)")
"""Lockstep's own errors of syntax say so in the same words, but quote nothing behind it."""

_TAIL = re.compile(r"\n(?:\n?== SQL|\tat |\n?Driver stacktrace:|\n?JVM stacktrace:)")


def message_and_place(step: Step, message: str) -> tuple[str, tuple[int, int] | None]:
    """Return a message without its tail, and where in the script it points to: line and column, from 1.

    The tail repeats the statement, shows its plan, or has a stack. None for a message that points nowhere, or into the
    text of something else: of a view, of EXECUTE IMMEDIATE.
    """
    for pattern in _PLACES:
        if (match := pattern.search(message)) is None:
            continue
        groups = match.groupdict()
        # The parser quotes what it read, which Lockstep may have rewritten, and never to another length.
        first = groups.get("first")
        if first is not None and len(first) != len(step.text.partition("\n")[0]):
            continue
        column = int(groups["column"]) if "column" in groups else int(groups["pos"]) + 1
        return _short(message[: match.start()]), step.place(int(groups["line"]), column)
    if match := _OF_LOCKSTEP.search(message):
        line, column = step.place(int(match["line"]), int(match["pos"]) + 1)
        return _short(_OF_LOCKSTEP.sub(f"(line {line}, pos {column - 1})", message, count=1)), (line, column)
    return _short(message), None


def _short(message: str) -> str:
    tail = _TAIL.search(message)
    return (message[: tail.start()] if tail else message).strip()[:CHARACTERS_AT_MOST]


def _message_and_state(error: LockstepError | PySparkException | Py4JJavaError) -> tuple[str, str | None]:
    """Return an error's message and its SQLSTATE, if it has one."""
    if isinstance(error, LockstepError):
        return error.message, error.sqlstate
    if isinstance(error, PySparkException):
        state = error.getSqlState()
        message = str(error)
    else:
        # PySpark leaves some exceptions of the JVM to Py4J, whose text has the whole stack.
        state = state_of(error.java_exception)
        message = str(error.java_exception.getMessage())
    return message.strip().replace(f" SQLSTATE: {state}", "", 1), state


def state_of(thrown: Any) -> str | None:
    """Return the SQLSTATE of an exception of the JVM, if it has one."""
    try:
        return thrown.getSqlState()
    except Py4JError:  # an exception that is not Spark's has no such method
        return None
