"""Statements that run too long are cancelled, idle transactions are rolled back, on real Spark."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import PySparkException

import lockstep
from lockstep.errors import CancelledError, FailedTransactionError, InvalidError, LockstepError
from lockstep.spark.bridge import is_open
from lockstep.spark.raised import lockstep_errors
from tests.support.gate import PATIENCE_S, wait_until
from tests.support.interposed import host_of

pytestmark = pytest.mark.long

FEW_S = 5
"""How many seconds a statement may run here: more than a small one takes on a busy machine."""

ENDLESS = "SELECT count(*) FROM range(1000000000000) WHERE hash(id) = 1"


@pytest.fixture
def spark(connect: Callable[[], Any]) -> Any:
    session = connect()
    session.sql("CREATE TABLE t AS SELECT 1 AS id")
    session.sql("CREATE TABLE u AS SELECT 1 AS id")
    return session


def ids(spark: Any, table: str = "t") -> list[int]:
    return sorted(row.id for row in spark.sql(f"SELECT id FROM {table}").collect())


def refused(act: Callable[[], Any]) -> LockstepError:
    with pytest.raises(LockstepError) as caught, lockstep_errors():
        act()
    return caught.value


def test_a_query_that_runs_too_long_is_cancelled_and_its_transaction_goes_on(spark: Any) -> None:
    with lockstep.transaction(spark, statement_timeout=FEW_S):
        spark.sql("INSERT INTO t VALUES (2)")
        error = refused(lambda: spark.sql(ENDLESS).collect())
        assert isinstance(error, CancelledError)
        assert error.sqlstate == "57014"
        assert f"lockstep.statement_timeout ({1000 * FEW_S} ms)" in error.message
        spark.sql("INSERT INTO u VALUES (2)")
    assert (ids(spark), ids(spark, "u")) == ([1, 2], [1, 2])
    assert spark.conf.get("lockstep.statement_timeout", None) is None


def test_a_write_that_runs_too_long_is_a_failed_one_of_which_nothing_stays(spark: Any) -> None:
    spark.sql(f"SET lockstep.statement_timeout = {FEW_S}s")
    spark.sql("BEGIN")
    spark.sql("SET lockstep.statement_timeout = 0")  # what it is at BEGIN counts
    spark.sql("INSERT INTO u VALUES (2)")
    spark.sql("SAVEPOINT before")
    endless = f"INSERT INTO t {ENDLESS}"
    assert refused(lambda: spark.sql(endless)).sqlstate == "57014"
    assert refused(lambda: spark.sql("SAVEPOINT another")).sqlstate == "25P02"
    spark.sql("ROLLBACK TO before")
    spark.sql("COMMIT")
    assert (ids(spark), ids(spark, "u")) == ([1], [1, 2])

    def block() -> None:
        with lockstep.transaction(spark, statement_timeout=FEW_S):
            spark.sql("INSERT INTO u VALUES (3)")
            refused(lambda: spark.sql(endless))

    assert isinstance(refused(block), FailedTransactionError)
    assert ids(spark, "u") == [1, 2]


def test_a_job_of_an_rdd_is_cancelled_too(spark: Any) -> None:
    with lockstep.transaction(spark, statement_timeout=FEW_S):
        with pytest.raises(Exception, match=r"ran for longer than lockstep.statement_timeout"):
            spark.sparkContext.range(10**12).filter(lambda number: number < 0).count()
        spark.sql("INSERT INTO t VALUES (2)")
    assert ids(spark) == [1, 2]


def test_an_idle_transaction_is_rolled_back_and_its_statements_say_so(spark: Any, other: Any) -> None:
    other.sql("CREATE TAG before_it")
    spark.sql("SET lockstep.idle_in_transaction_timeout = 3s")
    spark.sql("BEGIN")
    spark.sql("INSERT INTO t VALUES (2)")
    wait_until(lambda: other.sql("SHOW TRANSACTIONS").count() == 0, "it stays open")
    assert refused(lambda: spark.sql("SELECT * FROM t").collect()).sqlstate == "25P03"
    assert refused(lambda: spark.sql("COMMIT")).sqlstate == "25P03"
    assert not is_open(spark)
    assert ids(spark) == [1]


def test_one_that_takes_long_to_roll_back_holds_up_nobody_else_s_timeout(
    spark: Any, other: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where its store does not answer for a while."""
    host = host_of(spark)
    answer = host.call
    is_asked, may_go_on = threading.Event(), threading.Event()
    waited: list[bool] = []

    def call(request: str) -> str:
        if json.loads(request)["op"] == "lapse":
            is_asked.set()
            waited.append(may_go_on.wait(PATIENCE_S))
        return answer(request)

    monkeypatch.setattr(host, "call", call)
    spark.sql("SET lockstep.idle_in_transaction_timeout = 100ms")
    spark.sql("BEGIN")
    assert is_asked.wait(PATIENCE_S)
    try:
        with lockstep.transaction(other, statement_timeout=FEW_S):
            assert refused(lambda: other.sql(ENDLESS).collect()).sqlstate == "57014"
        assert not waited, "the statement was cancelled once the other transaction had been rolled back"
    finally:
        may_go_on.set()
    assert refused(lambda: spark.sql("COMMIT")).sqlstate == "25P03"


def lasting(rows: int) -> str:
    """A query that takes so many twentieths of a second, and some more, on a machine however fast."""
    sleep = "java_method('java.lang.Thread', 'sleep', 50L + id)"
    return f"SELECT count(*) FROM range(0, {rows}, 1, 1) WHERE {sleep} IS NULL"


def test_one_that_is_busy_is_not_idle(spark: Any) -> None:
    """However long a statement of it runs: this one, longer than it may be idle."""
    with lockstep.transaction(spark, idle_timeout=3):
        spark.sql(lasting(60)).collect()
        spark.sql("INSERT INTO t VALUES (2)")
    assert ids(spark) == [1, 2]


def test_a_block_is_not_idle_and_its_statements_are_timed(spark: Any) -> None:
    spark.sql("SET lockstep.idle_in_transaction_timeout = 300ms")
    spark.sql(f"SET lockstep.statement_timeout = {FEW_S}s")
    spark.sql("BEGIN ATOMIC INSERT INTO t VALUES (2); INSERT INTO t VALUES (3); INSERT INTO u VALUES (2); END")
    assert ids(spark) == [1, 2, 3]
    with pytest.raises(PySparkException) as caught:
        spark.sql(f"BEGIN ATOMIC INSERT INTO t VALUES (4); INSERT INTO t {ENDLESS}; END")
    assert caught.value.getSqlState() == "57014"
    assert ids(spark) == [1, 2, 3]


def test_a_commit_beside_the_idle_timeout_wins_or_is_told(spark: Any) -> None:
    """Whichever is first: what COMMIT answered is what is there."""
    committed: list[int] = []
    states: set[str | None] = set()
    spark.sql("INSERT INTO t VALUES (9)")  # the first one takes long
    spark.sql("SET lockstep.idle_in_transaction_timeout = 800ms")
    for number in range(10, 16):
        spark.sql("BEGIN")
        try:
            spark.sql(f"INSERT INTO t VALUES ({number})")
        except PySparkException as error:  # a machine may be too busy to come even to this in time
            states.add(error.getSqlState())
        threading.Event().wait(0.75 + (number - 10) * 0.02)  # the race itself, no wait for anything
        try:
            spark.sql("COMMIT")
            committed.append(number)
        except PySparkException as error:
            states.add(error.getSqlState())
    assert states <= {"25P03"}
    assert ids(spark) == [1, 9, *committed]


@pytest.mark.parametrize("argument", ["timeout", "idle_timeout", "statement_timeout"])
@pytest.mark.parametrize("value", [-1, float("nan"), float("inf")])
def test_a_timeout_that_is_none_is_refused(spark: Any, argument: str, value: float) -> None:
    given: dict[str, Any] = {argument: value}
    with pytest.raises(InvalidError, match=argument):
        lockstep.transaction(spark, **given)


def test_the_catalog_s_value_holds_without_the_session_s(spark_session: Any, spark: Any, root: Any) -> None:
    session = spark_session.newSession()
    for key, value in {
        "spark.sql.catalog.timed": "lockstep.spark.LockstepCatalog",
        "spark.sql.catalog.timed.root": str(root),
        "spark.sql.catalog.timed.statement-timeout": "500ms",
    }.items():
        session.conf.set(key, value)
    session.sql("USE timed")
    session.sql("BEGIN")
    assert refused(lambda: session.sql(ENDLESS).collect()).sqlstate == "57014"
    session.sql("ROLLBACK")
    with lockstep.transaction(session, statement_timeout=0):
        session.sql(lasting(20)).collect()
