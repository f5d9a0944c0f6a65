"""What Delta itself keeps of a table's log, true checksums, and so checkpoints; and `maintain` beside writers."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

import lockstep
from lockstep.delta.checkpoint_files import sidecars_of
from lockstep.lake.verify import verify
from lockstep.retention.ages import Retention
from lockstep.retention.upkeep import maintain
from tests.support.cancelling import first_job_cancelled

pytestmark = pytest.mark.long

T = "lake.default.t"


@pytest.mark.parametrize(
    "statements",
    [
        pytest.param(
            [f"ALTER TABLE {T} SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')"], id="row ids for old files"
        ),
        pytest.param([f"DELETE FROM {T} WHERE p = 'x'", f"RESTORE TABLE {T} TO VERSION AS OF 2"], id="restored files"),
    ],
)
def test_a_table_goes_on_getting_checkpoints(statements: list[str], spark: Any, root: Path) -> None:
    spark.sql(f"CREATE TABLE {T} PARTITIONED BY (p) AS SELECT 1 AS id, 'x' AS p")
    spark.sql(f"INSERT INTO {T} VALUES (2, 'y')")
    spark.sql(f"INSERT INTO {T} VALUES (3, 'y')")
    spark.sql("BEGIN")
    for statement in (*statements, f"OPTIMIZE {T} WHERE p = 'y'"):
        spark.sql(statement)
    spark.sql("COMMIT")
    for id in range(4, 12):
        spark.sql(f"INSERT INTO {T} VALUES ({id}, 'z')")
    (log,) = root.glob("**/t-*/_delta_log")
    assert [path.name[:20] for path in log.glob("*.checkpoint*.parquet")] == [f"{10:020d}"]
    assert (log / f"{3:020d}.crc").exists(), "the transaction's own"
    catalog = lockstep.TransactionalCatalog.open(str(root))
    assert verify(catalog.lake.storage, catalog.timeline).differences == ()


@pytest.mark.deep  # tests/unit/retention has it without Spark
def test_upkeep_removes_sidecars_of_checkpoints_that_are_gone_and_no_others(spark: Any, root: Path) -> None:
    v2 = "TBLPROPERTIES ('delta.checkpointPolicy' = 'v2', 'delta.checkpointInterval' = '2')"
    spark.sql(f"CREATE TABLE {T} (id INT) {v2}")
    for id in range(6):
        spark.sql(f"INSERT INTO {T} VALUES ({id})")
    (log,) = root.glob("**/t-*/_delta_log")
    lake = lockstep.TransactionalCatalog.open(str(root)).lake

    def named() -> set[str]:
        paths = [path.relative_to(root).as_posix() for path in log.glob("[!.]*.checkpoint.*")]
        return {name for path in paths for [name] in sidecars_of(lake.storage, path) or ()}

    before = named()
    then = time.time() - 40 * 24 * 3600
    for path in log.rglob("*"):
        os.utime(path, (then, then))
    for _ in range(4):
        maintain(lake, Retention(age=timedelta(), last=1, grace=timedelta(), orphan_age=timedelta(hours=1)))
    assert 0 < len(named()) < len(before)
    assert {path.name for path in log.glob("_sidecars/[!.]*")} == named()
    assert {path.name[1:-4] for path in log.glob("_sidecars/.*")} <= named()
    spark.sql(f"INSERT INTO {T} VALUES (6)")
    assert sorted(row[0] for row in spark.sql(f"SELECT id FROM {T}").collect()) == [*range(7)]
    assert sorted(lockstep.open(str(root)).at()["default.t"].to_arrow()["id"].to_pylist()) == [*range(7)]


@pytest.mark.slow
def test_a_compaction_beside_writers_loses_nothing_and_fails_nothing_but_what_rewrites_the_same_files(
    spark: Any, connect: Callable[..., Any]
) -> None:
    """An INSERT never collides with OPTIMIZE; an UPDATE of a row in a file that was compacted meanwhile may."""
    spark.sql("CREATE TABLE t (id INT, v INT)")
    for id_ in range(8):
        spark.sql(f"INSERT INTO t VALUES ({id_}, 0)")
    acknowledged = dict.fromkeys(range(8), 0)
    refused: list[tuple[str, str]] = []
    session, done = connect(), threading.Event()

    def write(statement: str, id_: int, value: int) -> None:
        try:
            session.sql(statement)
        except (PySparkException, Py4JJavaError) as error:  # PySpark knows Delta's exceptions once delta.tables is used
            refused.append((statement.split(maxsplit=1)[0], str(error)))
        else:
            acknowledged[id_] = value

    def work() -> None:
        for id_ in range(100, 1000):
            if done.is_set():
                return
            write(f"INSERT INTO t VALUES ({id_}, 0)", id_, 0)
            old = id_ % 8
            write(f"UPDATE t SET v = v + 1 WHERE id = {old}", old, acknowledged[old] + 1)

    writer = threading.Thread(target=work)
    writer.start()
    try:
        compacted = [spark.sql("CALL lake.system.maintain()").first().compacted_tables for _ in range(4)]
    finally:
        done.set()
        writer.join(60)
    assert sum(compacted) > 0, "each time a writer was first"
    others = [each for each in refused if each[0] != "UPDATE" or "[DELTA_CONCURRENT_" not in each[1]]
    assert not others, others[0]
    found = {row.id: row.v for row in spark.table("t").collect()}
    assert found == acknowledged
    assert len(found) > 8, "nothing was written meanwhile"


def test_whoever_cancels_a_compaction_cancels_the_call(spark: Any) -> None:
    """Ctrl-C ends the jobs that run: the next table's would come behind the back of whoever pressed it."""
    for table in ("a", "b"):
        spark.sql(f"CREATE TABLE {table} (id INT)")
        for id_ in range(3):
            spark.sql(f"INSERT INTO {table} VALUES ({id_})")
    before = spark.sql("SELECT count(*) FROM lake.system.history").first()[0]
    with pytest.raises(Exception, match="SPARK_JOB_CANCELLED"), first_job_cancelled(spark):
        spark.sql("CALL lake.system.maintain()")
    assert spark.sql("SELECT count(*) FROM lake.system.history").first()[0] == before
    assert spark.sql("CALL lake.system.maintain()").first().compacted_tables == 2


def test_a_dry_run_of_maintain_names_what_the_run_compacts(spark: Any) -> None:
    """With partitions, and with rows that were deleted by vectors; of a clustered table only Delta knows how much."""
    spark.sql("CREATE TABLE parted (id INT, p INT) PARTITIONED BY (p)")
    for part in (1, 1, 1, 2, 2, 3):
        spark.sql(f"INSERT INTO parted VALUES (1, {part})")
    spark.sql("CREATE TABLE one AS SELECT /*+ COALESCE(1) */ id FROM range(100)")
    spark.sql("CREATE NAMESPACE shop")
    spark.sql(
        "CREATE TABLE shop.vectors TBLPROPERTIES ('delta.enableDeletionVectors' = 'true') AS SELECT id FROM range(9)"
    )
    spark.sql("DELETE FROM shop.vectors WHERE id < 2")
    spark.sql("CREATE TABLE clustered (id INT) CLUSTER BY (id)")
    before = spark.sql("SELECT count(*) FROM lake.system.history").first()[0]
    planned = spark.sql("CALL lake.system.maintain(dry_run => true)").first()
    assert spark.sql("SELECT count(*) FROM lake.system.history").first()[0] == before
    done = spark.sql("CALL lake.system.maintain()").first()
    assert planned.compacted == done.compacted
    assert planned.compacted_tables == done.compacted_tables == len(done.compacted.split("), "))
    assert "default.parted (5 files, " in done.compacted
    assert "default.one" not in done.compacted
    assert "clustered" not in done.compacted, "it has no files"
    spark.sql("INSERT INTO clustered VALUES (1)")
    planned, done = (spark.sql(f"CALL lake.system.maintain({said})").first() for said in ("dry_run => true", ""))
    assert planned.compacted == "default.clustered"
    assert done.compacted.startswith("default.clustered (1 files, ")
    assert spark.sql("CALL lake.system.maintain(dry_run => true)").first().compacted == ""
