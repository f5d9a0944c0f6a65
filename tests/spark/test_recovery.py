"""Tags, RESTORE DATABASE, UNDROP, CALL where a file of sql/ cannot say it: ids, kinds of tables, scripts, failures."""

from __future__ import annotations

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.errors import PySparkException

import lockstep
from lockstep.catalog import TransactionalCatalog
from lockstep.errors import InvalidError
from lockstep.spark.bridge import is_open
from tests.support.cancelling import first_job_met
from tests.support.sparks import since


def rows(session: Any, query: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in session.sql(query).collect())


def state(error: pytest.ExceptionInfo[PySparkException]) -> str | None:
    return error.value.getSqlState()


def newest(root: Path) -> Any:
    timeline = TransactionalCatalog.open(str(root)).timeline
    [entry] = timeline.entries(timeline.head.version - 1)
    return entry


def test_a_dropped_table_comes_back_by_its_id(spark: Any) -> None:
    spark.sql("CREATE TABLE t AS SELECT 1 AS id")
    spark.sql("DROP TABLE t")
    spark.sql("CREATE TABLE t AS SELECT 2 AS id")
    spark.sql("DROP TABLE t")
    newer, older = spark.sql("SHOW TABLES DROPPED").collect()
    assert [row["table"] for row in (newer, older)] == ["t", "t"]
    assert newer.dropped_at > older.dropped_at
    spark.sql(f"UNDROP TABLE first_t WITH ID '{older.id}'")
    spark.sql("UNDROP TABLE t")
    assert rows(spark, "SELECT * FROM first_t JOIN t") == [(1, 2)]
    assert spark.sql("CALL lake.system.dropped_tables()").count() == 0


KINDS = {
    "deletion vectors": "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
    "no deletion vectors": "TBLPROPERTIES ('delta.enableDeletionVectors' = 'false')",
    "column mapping": "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
    "row tracking": "TBLPROPERTIES ('delta.enableRowTracking' = 'true')",
    "in-commit timestamps": "TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')",
    "a change feed": "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')",
    "v2 checkpoints": "TBLPROPERTIES ('delta.checkpointPolicy' = 'v2', 'delta.checkpointInterval' = '2')",
    "partitions": "PARTITIONED BY (p)",
    "clusters": "CLUSTER BY (id)",
}


@pytest.mark.deep
def test_every_kind_of_table_is_restored(spark: Any, root: Path) -> None:
    """One transaction restores all of them; a reader without Lockstep sees the same."""
    for number, clause in enumerate(KINDS.values()):
        spark.sql(f"CREATE TABLE t{number} (id INT, p INT) {clause}")
        spark.sql(f"INSERT INTO t{number} SELECT id, id % 2 FROM range(10)")
    spark.sql("CREATE TAG good")
    for number in range(len(KINDS)):
        spark.sql(f"UPDATE t{number} SET id = id + 100 WHERE p = 1")
        spark.sql(f"DELETE FROM t{number} WHERE id = 4")
        spark.sql(f"INSERT INTO t{number} VALUES (1000, 0)")
    before = newest(root).version
    spark.sql("RESTORE DATABASE lake TO TAG good")
    assert newest(root).version == before + 1
    head = TransactionalCatalog.open(str(root)).database()
    for number, kind in enumerate(KINDS):
        assert rows(spark, f"SELECT id FROM t{number}") == [(id_,) for id_ in range(10)], kind
        [table] = [table for name, table in head.tables.items() if name.table == f"t{number}"]
        plain = DeltaTable(str(root / table.location))
        if kind not in ("row tracking", "clusters"):  # writer features, which delta-rs reads all the same
            assert plain.version() == table.version, kind
        found = spark.read.format("delta").load(str(root / table.location))
        assert sorted(row.id for row in found.collect()) == list(range(10)), kind
    spark.sql("INSERT INTO t3 VALUES (5000, 0)")
    ids = rows(spark, "SELECT _metadata.row_id FROM t3")
    assert len(set(ids)) == len(ids) == 11


def append_plainly(spark: Any, root: Path, name: str, value: int) -> None:
    """Add a row as a Delta writer does that knows nothing of Lockstep."""
    database = TransactionalCatalog.open(str(root)).database()
    [table] = [table for each, table in database.tables.items() if each.table == name]
    frame = spark.createDataFrame([(value,)], "id INT")
    frame.write.format("delta").mode("append").save(str(root / table.location))


def test_a_restore_takes_back_what_plain_writers_did_unseen(spark: Any, root: Path) -> None:
    spark.sql("CREATE TABLE a AS SELECT 1 AS id")
    spark.sql("CREATE TAG good")
    append_plainly(spark, root, "a", 2)
    spark.sql("RESTORE DATABASE lake TO TAG good")
    assert rows(spark, "SELECT * FROM a") == [(1,)]


def test_a_revert_that_would_take_a_plain_writers_rows_is_refused(spark: Any, root: Path) -> None:
    spark.sql("CREATE TABLE a AS SELECT 1 AS id")
    spark.sql("INSERT INTO a VALUES (2)")
    version = newest(root).version
    append_plainly(spark, root, "a", 3)
    with pytest.raises(PySparkException, match=r"changed table default\.a after it") as error:
        spark.sql(f"CALL lake.system.revert({version})")
    assert state(error) == "22023"
    assert rows(spark, "SELECT * FROM a") == [(1,), (2,), (3,)]


def test_undrop_knows_a_namespace_from_the_catalog_of_its_name(spark: Any) -> None:
    spark.sql("CREATE NAMESPACE lake.lake")
    spark.sql("CREATE TABLE lake.lake.a AS SELECT 1 AS id")
    spark.sql("CREATE TABLE lake.default.a AS SELECT 2 AS id")
    spark.sql("DROP TABLE lake.lake.a")
    spark.sql("DROP TABLE lake.default.a")
    spark.sql("UNDROP TABLE lake.lake.a")
    assert rows(spark, "SELECT * FROM lake.lake.a") == [(1,)]
    assert rows(spark, "SHOW TABLES IN lake.default") == []
    spark.sql("UNDROP TABLE lake.default.a")
    assert rows(spark, "SELECT * FROM lake.default.a") == [(2,)]


@pytest.mark.deep  # four restores, of five seconds each in Delta's own planning
def test_each_way_to_say_when_takes_the_lake_back_and_the_timeline_says_to_which_version(
    spark: Any, root: Path
) -> None:
    spark.sql("CREATE NAMESPACE n")
    spark.sql("CREATE TABLE n.t AS SELECT 1 AS id")
    spark.sql("CREATE TAG good")
    good = newest(root)
    then = f"TIMESTAMP '{good.committed_at.isoformat()}'"
    for way, says_the_version in (
        (f"RESTORE DATABASE lake TO VERSION {good.version}", True),
        (f"RESTORE DATABASE lake TO {then}", False),
        (f"CALL lake.system.restore(timestamp => {then} + INTERVAL 0 SECONDS)", False),
        ("CALL lake.system.restore(tag => 'good', namespaces => array('n'))", False),
    ):
        spark.sql("INSERT INTO n.t VALUES (2)")
        spark.sql(way)
        assert rows(spark, "SELECT * FROM n.t") == [(1,)], way
        said, *_ = newest(root).transaction.statements  # and what Delta was told of each table
        assert said == (way if says_the_version else f"{way} /* database version {good.version} */")
    spark.sql("INSERT INTO n.t VALUES (3)")
    for option in (("systemVersionAsOf", "good"), ("systemTimeAsOf", good.committed_at.isoformat())):
        assert [row.id for row in spark.read.option(*option).table("lake.n.t").collect()] == [1], option


def test_a_revert_is_a_part_of_the_transaction_around_it(spark: Any, root: Path) -> None:
    for name in ("a", "b"):
        spark.sql(f"CREATE TABLE {name} AS SELECT 1 AS id")
    spark.sql("INSERT INTO a VALUES (2)")
    wrong = newest(root).version
    for end, left in (("ROLLBACK", [(1,), (2,)]), ("COMMIT", [(1,)])):
        spark.sql("BEGIN")
        spark.sql("INSERT INTO b VALUES (2)")
        spark.sql(f"CALL lake.system.revert({wrong})")
        assert rows(spark, "SELECT * FROM a") == [(1,)]
        spark.sql(end)
        assert rows(spark, "SELECT * FROM a") == left
    assert newest(root).version == wrong + 1
    assert rows(spark, "SELECT * FROM b") == [(1,), (2,)]


def test_a_restore_that_cannot_find_its_files_changes_nothing(spark: Any, root: Path) -> None:
    spark.sql("CREATE TABLE a AS SELECT 1 AS id")
    spark.sql("CREATE TABLE b AS SELECT 1 AS id")
    spark.sql("CREATE TAG good")
    spark.sql("INSERT OVERWRITE a VALUES (2)")
    spark.sql("INSERT OVERWRITE b VALUES (2)")
    spark.sql("CREATE NAMESPACE later")
    database = TransactionalCatalog.open(str(root)).database()
    [b] = [table for name, table in database.tables.items() if name.table == "b"]
    [old] = [
        row.path for row in spark.sql("SELECT DISTINCT _metadata.file_path AS path FROM b VERSION AS OF 0").collect()
    ]
    (root / b.location / Path(old).name).unlink()
    with pytest.raises(
        PySparkException, match=rf"default\.b cannot come back: files of it are gone.*{Path(old).name}"
    ) as e:
        spark.sql("RESTORE DATABASE lake TO TAG good")
    assert state(e) == "58P01"
    assert not is_open(spark)
    assert newest(root).version == database.version
    assert rows(spark, "SELECT a.id, b.id FROM a JOIN b") == [(2, 2)]
    assert rows(spark, "SHOW NAMESPACES") == [("default",), ("later",)]


def test_a_restore_that_fails_inside_a_transaction_leaves_the_rest_of_it(spark: Any, root: Path) -> None:
    """Where a failed statement is no end of its transaction, what it had done by then is."""
    for name in ("a", "b"):
        spark.sql(f"CREATE TABLE {name} AS SELECT 1 AS id")
    spark.sql("CREATE TAG good")
    for name in ("a", "b"):
        spark.sql(f"INSERT OVERWRITE {name} VALUES (2)")
    spark.sql("CREATE NAMESPACE later")
    spark.sql("ALTER TABLE a RENAME TO c")
    [b] = [table for name, table in TransactionalCatalog.open(str(root)).database().tables.items() if name.table == "b"]
    for path in (root / b.location).glob("*.parquet"):
        path.unlink()
    spark.sql("SET lockstep.on_statement_error = continue")
    spark.sql("BEGIN")
    spark.sql("INSERT INTO c VALUES (3)")
    with pytest.raises(PySparkException):
        spark.sql("RESTORE DATABASE lake TO TAG good")
    assert rows(spark, "SELECT * FROM c") == [(2,), (3,)]
    spark.sql("INSERT INTO c VALUES (4)")
    spark.sql("COMMIT")
    assert rows(spark, "SELECT * FROM c") == [(2,), (3,), (4,)]
    assert rows(spark, "SHOW NAMESPACES") == [("default",), ("later",)]


def test_a_restore_is_not_what_other_threads_of_its_session_do(spark: Any, root: Path) -> None:
    """What was answered to them stands, though the restore fails, and nothing of it is theirs to see."""
    spark.sql("CREATE TABLE a AS SELECT 1 AS id")
    spark.sql("CREATE TABLE b AS SELECT 1 AS id")
    spark.sql("CREATE TAG good")
    spark.sql("INSERT OVERWRITE b VALUES (2)")
    spark.sql("DROP TABLE a")
    [b] = TransactionalCatalog.open(str(root)).database().tables.values()
    old = DeltaTable(root / b.location, version=0).file_uris()
    seen = []

    def meanwhile() -> None:
        spark.sql("CREATE NAMESPACE lake.later")
        seen.append((is_open(spark), [row.tableName for row in spark.sql("SHOW TABLES IN lake.default").collect()]))
        for uri in old:
            Path(uri).unlink()

    with pytest.raises(PySparkException), first_job_met(spark, meanwhile):
        spark.sql("RESTORE DATABASE lake TO TAG good")
    assert seen == [(False, ["b"])]
    assert rows(spark, "SHOW NAMESPACES IN lake") == [("default",), ("later",)]
    assert rows(spark, "SELECT * FROM b") == [(2,)]


def test_restores_of_two_threads_leave_the_settings_of_their_session(spark: Any) -> None:
    setting = "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration"
    for name in ("a", "b"):
        spark.sql(f"CREATE TABLE {name} AS SELECT 1 AS id")
    spark.sql("CREATE TAG good")
    for name in ("a", "b"):
        spark.sql(f"INSERT OVERWRITE {name} VALUES (2)")
    both = threading.Barrier(2)

    def restore(name: str) -> None:
        both.wait()
        spark.sql(f"CALL lake.system.restore(tag => 'good', tables => array('lake.default.{name}'))")

    before = spark.conf.get(setting)
    with ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(restore, name) for name in ("a", "b")]:
            done.result()
    assert spark.conf.get(setting) == before == "true"
    assert rows(spark, "SELECT a.id, b.id FROM a JOIN b") == [(1, 1)]


@pytest.mark.parametrize("way", ["version", "time", "tag"])
def test_a_block_sees_the_database_as_it_was(spark: Any, root: Path, way: str) -> None:
    spark.sql("CREATE TABLE t AS SELECT 1 AS id")
    spark.sql("CREATE TAG `it's \\ then`")
    then = newest(root)
    when = {"version": then.version, "time": then.committed_at, "tag": "it's \\ then"}[way]
    spark.sql("INSERT INTO t VALUES (2)")
    spark.sql("ALTER TABLE t RENAME TO u")
    with lockstep.at(spark, when) as tx:
        assert tx.snapshot == then.version
        assert rows(spark, "SELECT * FROM t") == [(1,)]
        assert [row.id for row in spark.table("t").collect()] == [1]
        with pytest.raises(PySparkException) as error:
            spark.sql("INSERT INTO t VALUES (3)")
        assert state(error) == "25006"
    assert rows(spark, "SELECT * FROM u") == [(1,), (2,)]


@pytest.mark.parametrize("when", [-1, datetime(2026, 1, 1), True, None, 1.5])  # noqa: DTZ001 (no zone is what is tried)
def test_a_block_at_nothing_is_refused_before_it_begins(spark: Any, when: Any) -> None:
    with pytest.raises(InvalidError, match="at: "):
        lockstep.at(spark, when)


@pytest.mark.parametrize("when", [10**6, 2**63, datetime(1, 1, 1, tzinfo=UTC), "nothing", ""])
def test_a_block_at_what_never_was_leaves_nothing_open(spark: Any, when: Any) -> None:
    spark.sql("CREATE TABLE t (id INT)")
    with pytest.raises(InvalidError), lockstep.at(spark, when):
        pytest.fail("it has begun")
    assert not is_open(spark)


def test_one_that_fails_inside_a_transaction_dooms_it(spark: Any, root: Path) -> None:
    """What names it had changed already must not be committed without the rows."""
    spark.sql("CREATE TABLE a AS SELECT 1 AS id")
    spark.sql("CREATE TAG good")
    spark.sql("INSERT OVERWRITE a VALUES (2)")
    spark.sql("ALTER TABLE a RENAME TO c")
    database = TransactionalCatalog.open(str(root)).database()
    [table] = database.tables.values()
    for path in (root / table.location).glob("*.parquet"):
        path.unlink()
    spark.sql("BEGIN")
    with pytest.raises(PySparkException):
        spark.sql("RESTORE DATABASE lake TO TAG good")
    with pytest.raises(PySparkException) as error:
        spark.sql("COMMIT")
    assert state(error) == "25P02"
    assert newest(root).version == database.version


def test_a_call_is_carried_out_once_and_where_it_stands(spark: Any, root: Path) -> None:
    """Whether or not anybody looks at what it gives, and however often."""
    spark.sql("CREATE TABLE t AS SELECT 1 AS id")
    made = spark.sql("CALL lake.system.create_tag('once')")
    assert newest(root).version == 2
    assert made.collect() == made.collect()
    assert made.count() == 1
    assert newest(root).version == 2
    assert newest(root).transaction.statements == ["CALL lake.system.create_tag('once')"]
    spark.sql("CREATE TAG twice -- a comment")
    assert newest(root).transaction.statements == ["CREATE TAG twice -- a comment"]
    spark.sql("EXPLAIN CALL lake.system.create_tag('never')").collect()
    assert newest(root).version == 3


def test_the_current_catalog_and_namespace_count(spark: Any) -> None:
    spark.sql("CREATE NAMESPACE ns")
    spark.sql("CREATE TABLE ns.t AS SELECT 1 AS id")
    spark.sql("DROP TABLE ns.t")
    spark.sql("USE NAMESPACE ns")
    spark.sql("UNDROP TABLE t")
    assert rows(spark, "SELECT * FROM lake.ns.t") == [(1,)]
    spark.sql("CALL system.create_tag('short')")
    spark.sql("USE spark_catalog")
    spark.sql("CREATE TAG outside")
    spark.sql("DROP TABLE lake.ns.t")
    spark.sql("UNDROP TABLE lake.ns.t")
    assert [row.tag for row in spark.sql("CALL lake.system.tags()").collect()] == ["outside", "short"]
    with pytest.raises(PySparkException):
        spark.sql("CALL system.create_tag('of nobody')")


@since("4.1", "parameters for parsers")
def test_parameters_are_taken(spark: Any) -> None:
    spark.sql("CREATE TABLE t AS SELECT 1 AS id")
    spark.sql("CREATE TAG IDENTIFIER(:tag) AS OF VERSION :n COMMENT :why", args={"tag": "a b", "n": 1, "why": "it's"})
    spark.sql("CALL lake.system.create_tag(tag => :tag, version => :n)", args={"tag": "c", "n": 0})
    spark.sql("CALL lake.system.create_tag(?, version => ?)", args=["d", 1])
    tags = [(row.tag, row.database_version, row.comment) for row in spark.sql("SHOW TAGS").collect()]
    assert tags == [("a b", 1, "it's"), ("c", 0, ""), ("d", 1, "")]
    spark.sql("BEGIN READ ONLY AS OF TAG :tag", args={"tag": "C"})
    assert rows(spark, "SHOW TABLES") == []
    spark.sql("COMMIT")
    query = "SELECT id FROM t FOR SYSTEM_VERSION AS OF :tag"
    assert [row.id for row in spark.sql(query, args={"tag": "a b"}).collect()] == [1]


@since("4.1", "scripts are on")
def test_scripts_may_call(spark: Any) -> None:
    spark.sql("CREATE TABLE t AS SELECT 1 AS id")
    spark.sql(
        """
        BEGIN ATOMIC
          DECLARE day STRING DEFAULT 'eod';
          INSERT INTO t VALUES (2);
          CALL lake.system.create_tag(concat(day, '-1'), comment => day);
          EXECUTE IMMEDIATE 'CREATE TAG two';
        END
        """
    )
    assert [(row.tag, row.database_version) for row in spark.sql("SHOW TAGS").collect()] == [("eod-1", 2), ("two", 2)]


@since("4.1", "SHOW PROCEDURES")
def test_spark_is_told_of_procedures(spark: Any) -> None:
    shown = spark.sql("SHOW PROCEDURES IN lake.system").collect()
    assert {"create_tag", "restore", "undrop"} <= {row.procedure_name for row in shown}
    described = " ".join(row[0] for row in spark.sql("DESCRIBE PROCEDURE lake.system.restore").collect())
    assert "older version" in described


def test_what_a_transaction_is_based_on_may_be_older_and_stays(spark: Any, other: Any, root: Path) -> None:
    """A plain writer's commit does not move a snapshot that was asked for."""
    spark.sql("CREATE TABLE t AS SELECT 1 AS id")
    spark.sql("CREATE TABLE u AS SELECT 1 AS id")
    spark.sql("INSERT INTO t VALUES (2)")
    spark.sql("BEGIN READ ONLY AS OF VERSION 2")
    assert rows(spark, "SELECT * FROM t") == [(1,)]
    other.sql("INSERT INTO u VALUES (9)")
    assert rows(spark, "SELECT * FROM u") == [(1,)]
    assert rows(spark, "SELECT count(*) FROM t FOR SYSTEM_VERSION AS OF 1") == [(1,)]
    with pytest.raises(PySparkException, match="newer than this transaction's snapshot"):
        spark.sql("SELECT * FROM t FOR SYSTEM_VERSION AS OF 3")
    spark.sql("COMMIT")
    assert rows(spark, "SELECT * FROM t") == [(1,), (2,)]


def test_a_folder_that_is_gone_is_told(spark: Any, root: Path) -> None:
    spark.sql("CREATE TABLE t AS SELECT 1 AS id")
    [table] = TransactionalCatalog.open(str(root)).database().tables.values()
    spark.sql("DROP TABLE t")
    shutil.rmtree(root / table.location)
    with pytest.raises(PySparkException) as error:
        spark.sql("UNDROP TABLE t")
    assert state(error) == "58P01"
    assert rows(spark, "SHOW TABLES") == []


@pytest.mark.parametrize("way", ["UNDROP TABLE a", "RESTORE DATABASE lake TO TAG good", "CALL lake.system.revert({})"])
def test_a_table_whose_files_are_gone_does_not_come_back(spark: Any, root: Path, way: str) -> None:
    """It comes back as it was last, so Delta restores nothing of it and looks for nothing."""
    spark.sql(
        "CREATE TABLE a TBLPROPERTIES ('delta.enableDeletionVectors' = 'true') AS SELECT id FROM range(0, 9, 1, 1)"
    )
    spark.sql("DELETE FROM a WHERE id = 1")
    spark.sql("CREATE TAG good")
    [table] = TransactionalCatalog.open(str(root)).database().tables.values()
    files = [path for path in (root / table.location).iterdir() if path.suffix in (".parquet", ".bin")]
    spark.sql("DROP TABLE a")
    before = newest(root).version
    for file in files:
        moved = file.rename(root.parent / "moved")
        with pytest.raises(PySparkException, match=file.name) as error:
            spark.sql(way.format(before))
        assert state(error) == "58P01"
        assert newest(root).version == before, "nothing was written"
        moved.rename(file)
    spark.sql(way.format(before))
    assert rows(spark, "SELECT count(*) FROM a") == [(8,)]


def test_a_tag_in_a_transaction_is_of_its_catalog(spark: Any) -> None:
    """Where another catalog is the current one, as outside of a transaction."""
    spark.sql("CREATE TABLE tagged AS SELECT 1 AS id")
    spark.sql("USE spark_catalog.default")
    try:
        spark.sql("BEGIN")
        spark.sql("CREATE TAG inside")
        assert "inside" in [row.tag for row in spark.sql("SHOW TAGS").collect()]
        spark.sql("COMMIT")
        assert "inside" in [row.tag for row in spark.sql("SHOW TAGS").collect()]
    finally:
        spark.sql("USE lake.default")
