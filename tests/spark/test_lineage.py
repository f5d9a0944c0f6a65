"""Rows that come by an RDD, of which Spark no longer says from which plan, are the transaction's or are refused."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame

from tests.spark.test_reads import begins, commits, is_refused

pytestmark = pytest.mark.long

T, OUT = "lake.default.t", "lake.default.out"


@pytest.fixture
def tables(spark: Any) -> None:
    """Make a table with the rows 1 and 2, and one that is only written."""
    for name in (T, OUT):
        spark.sql(f"CREATE TABLE {name} (id INT)")
    spark.sql(f"INSERT INTO {T} VALUES (1), (2)")


def ids(session: Any, table: str) -> list[int]:
    return sorted(row.id for row in session.sql(f"SELECT id FROM {table}").collect())


def add(session: Any, table: str) -> None:
    session.sql(f"INSERT INTO {table} VALUES (10)")


def of_jvm(session: Any) -> Any:
    """Return an RDD of a table's rows as Scala code has it: of Java's objects, and not of Spark's rows."""
    encoder = session._jvm.org.apache.spark.sql.Encoders.INT()
    return getattr(session.table(T)._jdf, "as")(encoder).rdd()


def from_jvm(session: Any, rdd: Any) -> DataFrame:
    dataset = session._jsparkSession.createDataset(rdd, session._jvm.org.apache.spark.sql.Encoders.INT())
    return DataFrame(dataset.toDF(), session)


# --- RDDs from before BEGIN -------------------------------------------------------------------------------------------


def test_an_rdd_of_scala_from_before_begin_is_not_written_inside(spark: Any, other: Any, tables: None) -> None:
    before = of_jvm(spark)
    begins(spark)
    add(other, T)
    assert is_refused(spark, "25001", lambda: from_jvm(spark, before).write.insertInto(OUT))
    assert is_refused(spark, "25001", from_jvm(spark, before).collect)
    inside = of_jvm(spark)
    assert len(from_jvm(spark, inside).collect()) == 2
    spark.sql("ROLLBACK")
    assert len(from_jvm(spark, before).collect()) == 2


@pytest.mark.parametrize("is_filled", [True, False], ids=["filled", "empty"])
def test_a_cache_of_an_rdd_from_before_begin_is_not_read_inside(
    spark: Any, other: Any, tables: None, is_filled: bool
) -> None:
    """Its rows were read before BEGIN, or shall be now, and by nothing that is judged."""
    cached = spark.createDataFrame(spark.table(T).rdd, "id INT").cache()
    assert not is_filled or cached.count() == 2
    begins(spark)
    add(other, T)
    assert is_refused(spark, "25001", lambda: cached.write.insertInto(OUT))
    assert is_refused(spark, "25001", cached.where("id > 1").collect)
    spark.sql("ROLLBACK")
    assert cached.count() == 2
    cached.unpersist()


def test_a_cache_of_an_rdd_that_was_made_inside_is_the_transactions(spark: Any, tables: None) -> None:
    begins(spark)
    cached = spark.createDataFrame(spark.table(T).rdd, "id INT").cache()
    assert cached.count() == 2
    cached.write.insertInto(OUT)
    assert commits(spark)
    assert ids(spark, OUT) == [1, 2]
    cached.unpersist()


def test_a_cache_of_a_checkpoint_from_before_begin_is_the_users_own(spark: Any, tables: None) -> None:
    kept = spark.table(T).localCheckpoint().cache()
    begins(spark)
    kept.write.insertInto(OUT)
    assert commits(spark)
    assert ids(spark, OUT) == [1, 2]
    kept.unpersist()


# --- jobs -------------------------------------------------------------------------------------------------------------


class Tasks:
    """A listener of Spark's that counts the tasks which start."""

    def __init__(self) -> None:
        self.started = 0

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("on"):
            raise AttributeError(name)
        return lambda _: None

    def onTaskStart(self, _: Any) -> None:  # noqa: N802, Spark's name
        self.started += 1

    class Java:
        implements = ("org.apache.spark.scheduler.SparkListenerInterface",)


def test_of_a_job_that_is_refused_no_task_starts(spark: Any, tables: None) -> None:
    """What a task does elsewhere cannot be taken back."""
    context, tasks = spark._jsparkSession.sparkContext(), Tasks()
    before = of_jvm(spark)
    assert before.count() == 2
    begins(spark)
    context.addSparkListener(tasks)
    try:
        for _ in range(3):
            assert is_refused(spark, "25001", before.count)
        context.listenerBus().waitUntilEmpty()
        assert tasks.started == 0
        assert of_jvm(spark).count() == 2
        context.listenerBus().waitUntilEmpty()
        assert tasks.started > 0
    finally:
        context.removeSparkListener(tasks)
    assert commits(spark)


def test_an_rdd_of_a_shallow_clone_from_before_begin_is_not_computed_inside(
    spark: Any, other: Any, tables: None
) -> None:
    """A clone's files are those of its source, and are named by their real paths."""
    spark.sql(f"CREATE TABLE lake.default.clone SHALLOW CLONE {T}")
    before = spark.table("lake.default.clone").rdd
    begins(spark)
    add(other, "lake.default.clone")
    spark.sql("SELECT 1").collect()  # a job of an RDD is known by the last statement of its thread
    assert is_refused(spark, "25001", before.count)
    assert spark.table("lake.default.clone").rdd.count() == 2
    spark.sql("ROLLBACK")
    assert before.count() == 2


def test_an_rdd_of_more_others_than_are_looked_at_is_refused_and_says_so(spark: Any, tables: None) -> None:
    lineage = spark._jvm.lockstep.spark.transactions.Lineage
    begins(spark)
    tx = spark._jvm.lockstep.spark.transactions.Transactions.all().head()
    rdd = of_jvm(spark)
    refusal = lineage.refusal(rdd, tx, 1)
    assert "an RDD is computed from more than 1 others" in refusal.get().getMessage()
    assert lineage.refusal(rdd, tx).isEmpty()
    assert lineage.refusal(rdd, tx, 1).isEmpty(), "what is known is not looked at again"
    assert commits(spark)


def outside(frame: DataFrame, session: Any) -> DataFrame:
    """Return a DataFrame of one session whose rows are another's."""
    return session.range(1).select().crossJoin(frame)


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(lambda frame, session: session.table("global_temp.g"), id="global view"),
        pytest.param(outside, id="joined"),
        pytest.param(lambda frame, session: session.range(1).where(frame.where("id = 77").exists()), id="subquery"),
        pytest.param(lambda frame, session: session.createDataFrame(frame.rdd, frame.schema), id="rdd"),
        pytest.param(lambda frame, session: outside(frame.cache(), session), id="cached"),
        pytest.param(
            lambda frame, session: DataFrame(
                session._jsparkSession.internalCreateDataFrame(
                    frame._jdf.queryExecution().toRdd(), frame._jdf.schema(), False
                ),
                session,
            ),
            id="rows",
        ),
    ],
)
@pytest.mark.parametrize("is_open", [False, True], ids=["outside", "in a transaction of its own"])
def test_nobody_reads_through_another_sessions_open_transaction(
    spark: Any, other: Any, tables: None, read: Any, is_open: bool
) -> None:
    """Its rows may be rolled back, and what was made of them would stay."""
    begins(spark)
    spark.sql(f"INSERT INTO {T} VALUES (77)")
    frame = spark.table(T)
    frame.createOrReplaceGlobalTempView("g")
    if is_open:
        begins(other)
    assert is_refused(other, "25001", lambda: read(frame, other).collect())
    assert is_refused(other, "25001", lambda: read(frame, other).write.saveAsTable("lake.default.leak"))
    assert len(frame.collect()) == 3, "the transaction itself goes on reading it"
    spark.sql("ROLLBACK")
    if is_open:
        other.sql("ROLLBACK")
    spark.catalog.dropGlobalTempView("g")
    assert ids(other, T) == [1, 2]


@pytest.mark.parametrize("how", ["rdd", "persisted", "checkpoint"])
def test_a_dataframe_of_an_rdd_from_before_begin_of_which_no_file_was_left_is_not_read_inside(
    spark: Any, other: Any, tables: None, how: str
) -> None:
    """That it has no rows is what another's commit may have changed, though it reads no file of ours now."""
    none = spark.sql(f"SELECT id FROM {T} WHERE id = 10")
    before = none.rdd.persist() if how == "persisted" else none.rdd
    checkpoint = none.localCheckpoint(eager=False)
    begins(spark)
    add(other, T)
    frame = checkpoint if how == "checkpoint" else spark.createDataFrame(before, none.schema)
    assert is_refused(spark, "25001", frame.collect)
    inside = spark.sql(f"SELECT id FROM {T} WHERE id = 10")
    assert spark.createDataFrame(inside.rdd, none.schema).collect() == []
    spark.sql("ROLLBACK")
