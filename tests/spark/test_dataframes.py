"""DataFrame writers and `DeltaTable`: what they write belongs to their session's transaction, or is one of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from delta.tables import DeltaTable
from pyspark.errors import PySparkException

from lockstep.errors import ActiveTransactionError, ConflictError, LockstepError, UnsupportedError
from lockstep.spark.raised import lockstep_errors
from tests.support.sparks import since

T = "lake.default.t"


@pytest.fixture
def t(spark: Any) -> str:
    """Return the name of a table with the rows (1, a) and (2, b)."""
    spark.sql(f"CREATE TABLE {T} AS SELECT * FROM VALUES (1, 'a'), (2, 'b') r(id, v)")
    return T


def rows(session: Any, table: str = T) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in session.table(table).collect())


def frame(session: Any, *values: tuple[int, str]) -> Any:
    # SQL rather than createDataFrame, which starts a Python worker.
    return session.sql(f"SELECT * FROM VALUES {', '.join(map(str, values))} r(id, v)")


def merge(session: Any) -> None:
    target = DeltaTable.forName(session, T).alias("t")
    changes = target.merge(frame(session, (2, "merged"), (3, "merged")).alias("s"), "t.id = s.id")
    changes.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()


WRITES: dict[str, tuple[Callable[[Any], Any], list[tuple[Any, ...]]]] = {
    "saveAsTable append": (
        lambda s: frame(s, (3, "c")).write.mode("append").saveAsTable(T),
        [(1, "a"), (2, "b"), (3, "c")],
    ),
    "saveAsTable overwrite": (
        lambda s: frame(s, (3, "c")).write.format("delta").mode("overwrite").saveAsTable(T),
        [(3, "c")],
    ),
    "insertInto": (
        lambda s: frame(s, (3, "c")).write.insertInto(T),
        [(1, "a"), (2, "b"), (3, "c")],
    ),
    "insertInto overwrite": (
        lambda s: frame(s, (3, "c")).write.insertInto(T, overwrite=True),
        [(3, "c")],
    ),
    "writeTo append": (
        lambda s: frame(s, (3, "c")).writeTo(T).append(),
        [(1, "a"), (2, "b"), (3, "c")],
    ),
    "writeTo createOrReplace": (
        lambda s: frame(s, (3, "c")).writeTo(T).createOrReplace(),
        [(3, "c")],
    ),
    "writeTo overwritePartitions": (
        lambda s: frame(s, (3, "c")).writeTo(T).overwritePartitions(),
        [(3, "c")],
    ),
    "DeltaTable update": (
        lambda s: DeltaTable.forName(s, T).update("id = 1", {"v": "'changed'"}),
        [(1, "changed"), (2, "b")],
    ),
    "DeltaTable delete": (
        lambda s: DeltaTable.forName(s, T).delete("id = 1"),
        [(2, "b")],
    ),
    "DeltaTable merge": (merge, [(1, "a"), (2, "merged"), (3, "merged")]),
}
"""What each way to write makes of the table `t`."""


@pytest.mark.parametrize(("write", "after"), WRITES.values(), ids=WRITES)
def test_a_write_is_its_transactions_or_one_of_its_own(
    t: str, spark: Any, other: Any, write: Callable[[Any], Any], after: list[tuple[Any, ...]]
) -> None:
    before = rows(spark, t)
    spark.sql("BEGIN")
    write(spark)
    assert rows(spark) == after, "the transaction sees its own write"
    assert rows(other) == before, "and nobody else does"
    spark.sql("ROLLBACK")
    assert rows(spark) == before

    spark.sql("BEGIN")
    write(spark)
    spark.sql("COMMIT")
    assert rows(other) == after

    spark.sql(f"CREATE OR REPLACE TABLE {t} AS SELECT * FROM VALUES (1, 'a'), (2, 'b') r(id, v)")
    write(spark)
    assert rows(other) == after, "outside a transaction it is committed at once"


@pytest.mark.parametrize(
    "create",
    [
        lambda s: frame(s, (3, "c")).writeTo("lake.default.made").create(),
        lambda s: frame(s, (3, "c")).write.format("delta").saveAsTable("lake.default.made"),
        lambda s: frame(s, (3, "c")).write.format("delta").partitionBy("v").saveAsTable("lake.default.made"),
    ],
    ids=["writeTo", "saveAsTable", "partitionBy"],
)
def test_a_table_made_by_a_writer_is_its_transactions(spark: Any, other: Any, create: Callable[[Any], Any]) -> None:
    spark.sql("BEGIN")
    create(spark)
    assert rows(spark, "lake.default.made") == [(3, "c")]
    assert not other.catalog.tableExists("lake.default.made")
    spark.sql("ROLLBACK")
    assert not spark.catalog.tableExists("lake.default.made")
    create(spark)
    assert rows(other, "lake.default.made") == [(3, "c")]


def test_the_session_of_the_frame_decides_not_the_active_one(t: str, spark: Any, other: Any) -> None:
    spark.sql("BEGIN ISOLATION LEVEL SNAPSHOT")  # both append, and SERIALIZABLE would mind that it read
    other.sql("SELECT 1").collect()  # `other` is now the thread's active session
    frame(spark, (3, "ours")).write.mode("append").saveAsTable(t)
    spark.sql("SELECT 1").collect()
    frame(other, (4, "theirs")).write.mode("append").saveAsTable(t)
    assert rows(spark) == [(1, "a"), (2, "b"), (3, "ours")]
    assert rows(other) == [(1, "a"), (2, "b"), (4, "theirs")]
    spark.sql("COMMIT")
    assert rows(other) == [(1, "a"), (2, "b"), (3, "ours"), (4, "theirs")]


def test_a_frame_of_another_format_is_refused(spark: Any) -> None:
    """Spark's default format is what nobody asked for, see test_boundaries; any other was asked for."""
    with pytest.raises(UnsupportedError, match="orc"), lockstep_errors():
        frame(spark, (3, "c")).write.format("orc").saveAsTable("lake.default.made")


def test_a_frame_made_before_begin_is_refused_once_the_transaction_sees_something_else(
    t: str, spark: Any, other: Any
) -> None:
    made_before = spark.table(t)
    other.sql(f"INSERT INTO {t} VALUES (3, 'c')")
    spark.sql("BEGIN")
    spark.sql(f"DELETE FROM {t} WHERE id = 1")
    with pytest.raises(ActiveTransactionError), lockstep_errors():
        made_before.where("id = 2").count()
    assert rows(spark) == [(2, "b"), (3, "c")]
    spark.sql("ROLLBACK")


def test_a_delta_table_made_before_begin_cannot_write_past_the_transaction(t: str, spark: Any) -> None:
    made_before = DeltaTable.forName(spark, t)
    spark.sql("BEGIN")
    with pytest.raises(ActiveTransactionError, match="made before BEGIN"), lockstep_errors():
        made_before.delete("id = 1")
    spark.sql("ROLLBACK")
    assert rows(spark) == [(1, "a"), (2, "b")]


def test_a_frame_that_is_written_on_its_own_is_serializable_too(t: str, spark: Any, other: Any) -> None:
    """Write skew: what the frame read of `b` is older than what a transaction that had read `t` made of it."""
    spark.sql("CREATE TABLE lake.default.b AS SELECT 1 AS id, 'x' AS v")
    seen = spark.sql("SELECT CAST(count(*) AS INT) AS id, 'counted' AS v FROM lake.default.b")
    other.sql("BEGIN")
    other.sql(f"INSERT INTO lake.default.b SELECT CAST(count(*) AS INT), 'counted' FROM {t}")
    other.sql("COMMIT")
    with pytest.raises(ConflictError, match="no order of these transactions"), lockstep_errors():
        seen.write.insertInto(t)
    assert rows(other) == [(1, "a"), (2, "b")]
    with lockstep_errors():
        spark.sql("SELECT CAST(count(*) AS INT), 'counted' FROM lake.default.b").write.insertInto(t)
    assert rows(other) == [(1, "a"), (2, "b"), (2, "counted")]


def test_who_loses_a_race_over_other_files_writes_none_again(spark: Any, other: Any, root: Path) -> None:
    spark.sql("CREATE TABLE lake.default.parts PARTITIONED BY (id) AS SELECT * FROM VALUES (1, 0), (2, 0) r(id, v)")
    for session, id in ((spark, 1), (other, 2)):
        session.sql("BEGIN")
        session.sql(f"UPDATE lake.default.parts SET v = {id} WHERE id = {id}")

    def data_files() -> dict[Path, tuple[int, int]]:
        files = {path: path.stat() for path in root.glob("default/**/*.parquet") if "_delta_log" not in path.parts}
        return {path: (stat.st_ino, stat.st_mtime_ns) for path, stat in files.items()}

    staged = data_files()
    assert len(staged) == 4
    other.sql("COMMIT")
    spark.sql("COMMIT")
    assert data_files() == staged
    assert rows(spark, "lake.default.parts") == [(1, 1), (2, 2)]


def test_parameters_reach_a_statement_inside_and_outside(t: str, spark: Any) -> None:
    for begin, end in (("SELECT 1", "SELECT 1"), ("BEGIN", "COMMIT")):
        spark.sql(begin)
        spark.sql(f"INSERT INTO {t} VALUES (:id, :v)", args={"id": 7, "v": "it's"})
        spark.sql(f"UPDATE {t} SET v = ? WHERE id = ?", args=["c", 7])
        assert spark.sql(f"SELECT v FROM {t} WHERE id = :id", args={"id": 7}).collect() == [("c",)]
        spark.sql(f"DELETE FROM {t} WHERE id = :id", args={"id": 7})
        spark.sql(end)
    assert rows(spark) == [(1, "a"), (2, "b")]


@since("4.1", "parameters for parsers")
def test_a_database_version_can_be_a_parameter(t: str, spark: Any) -> None:
    spark.sql(f"DELETE FROM {t} WHERE id = 1")
    text = f"SELECT id FROM {t} FOR SYSTEM_VERSION AS OF :version ORDER BY id"
    assert [row.id for row in spark.sql(text, args={"version": 1}).collect()] == [1, 2]
    assert [row.id for row in spark.sql(text, args={"version": 2}).collect()] == [2]


@pytest.mark.parametrize(
    "statement",
    [
        "COMMIT",
        "BEGIN ISOLATION LEVEL CHAOS",
        "CREATE TABLE lake.default.p (id INT) USING parquet",
        "CREATE TABLE lake.nowhere.t (id INT)",
        f"SELECT * FROM {T} FOR SYSTEM_VERSION AS OF 99",
    ],
)
def test_an_error_is_the_same_from_sql_and_from_python(t: str, spark: Any, statement: str) -> None:
    with pytest.raises(PySparkException) as from_sql:
        spark.sql(statement).collect()
    with pytest.raises(LockstepError) as from_python, lockstep_errors():
        spark.sql(statement).collect()
    assert from_python.value.sqlstate == from_sql.value.getSqlState()
    assert from_python.value.message in str(from_sql.value)
    assert from_python.value.__cause__ is not None


def test_a_session_that_uses_no_lake_notices_nothing(spark_session: Any, spark: Any, root: Path) -> None:
    """Plain Delta by path: the same rows, history and plan, whether or not a transaction is open elsewhere."""
    plain = spark_session.newSession()
    path = f"delta.`{root}-plain`"
    plain.sql(f"CREATE TABLE {path} USING delta AS SELECT 1 AS id")
    plan = plain.sql(f"SELECT * FROM {path} WHERE id = 1")._jdf.queryExecution().optimizedPlan().toString()
    assert "lockstep" not in plan.lower()
    spark.sql("BEGIN")
    plain.sql(f"INSERT INTO {path} VALUES (2)")
    plain.sql(f"UPDATE {path} SET id = 3 WHERE id = 2")
    plain.sql(f"VACUUM {path}")
    spark.sql("ROLLBACK")
    assert sorted(row.id for row in plain.sql(f"SELECT * FROM {path}").collect()) == [1, 3]
    operations = [row.operation for row in plain.sql(f"DESCRIBE HISTORY {path}").collect()]
    assert [name for name in reversed(operations) if not name.startswith("VACUUM")] == [
        "CREATE TABLE AS SELECT",
        "WRITE",
        "UPDATE",
    ]
    assert not list(Path(f"{root}-plain").rglob("_lockstep*")), "nothing of ours lies beside it"
