"""The state of a small table is kept in the driver, and is what Delta makes of the same log by itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.spark.test_reads import begins, commits, is_refused
from tests.support.cancelling import first_job_cancelled

pytestmark = pytest.mark.long

T = "lake.default.t"

MERGE = f"""
    MERGE INTO {T} USING (SELECT * FROM VALUES (1, 'old'), (1000, 'new') AS v (id, more)) s ON s.id = {T}.id
    WHEN MATCHED THEN UPDATE SET more = s.more WHEN NOT MATCHED THEN INSERT (id, more) VALUES (s.id, s.more)
"""
STATEMENTS = (
    f"INSERT INTO {T} SELECT id, id % 3, timestamp_seconds(id) FROM range(100)",
    f"UPDATE {T} SET v = 7 WHERE id < 5",
    f"DELETE FROM {T} WHERE id = 50",
    f"ALTER TABLE {T} ADD COLUMN more STRING",
    MERGE,
    f"OPTIMIZE {T}",
    f"INSERT INTO {T} (id) VALUES (2000)",
    f"ALTER TABLE {T} SET TBLPROPERTIES ('delta.checkpointInterval' = '7')",
    f"DELETE FROM {T} WHERE id < 10",
    f"UPDATE {T} SET more = id",
    f"INSERT OVERWRITE {T} SELECT id, 1, now(), 'x' FROM range(10)",
    f"INSERT INTO {T} (id) VALUES (3000)",
)
"""A history that has all kinds of actions, and checkpoints in it."""


@pytest.fixture
def table(spark: Any) -> None:
    """Make a table of those features that have state of their own: row tracking, clustering, deletion vectors."""
    spark.sql(
        f"CREATE TABLE {T} (id BIGINT, v BIGINT, at TIMESTAMP) CLUSTER BY (id) TBLPROPERTIES "
        "('delta.enableRowTracking' = 'true', 'delta.enableDeletionVectors' = 'true')"
    )


def folder(session: Any) -> str:
    """Return where the table is, as the session sees it now; files of mapped columns lie in folders of their own."""
    path: str = session.table(T).inputFiles()[0].rsplit("/", 1)[0]
    return path if "-" in path.rpartition("/")[2] else path.rpartition("/")[0]


def snapshot(session: Any, path: str) -> Any:
    log = session._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(session._jsparkSession, path)
    return log.unsafeVolatileSnapshot()


def kind(snapshot: Any) -> str:
    return str(snapshot.getClass().getSimpleName())


def state(snapshot: Any) -> dict[str, Any]:
    """Return all that Delta asks of a snapshot's state."""
    numbers = ("numOfFiles", "sizeInBytes", "numOfRemoves", "numOfSetTransactions", "numOfMetadata", "numOfProtocol")
    return {
        **{name: getattr(snapshot, name)() for name in numbers},
        "protocol and metadata": [json.loads(each.json()) for each in (snapshot.protocol(), snapshot.metadata())],
        "time": snapshot.timestamp(),
        "rows deleted by vectors": snapshot.numDeletedRecordsOpt().toString(),
        "vectors": snapshot.numDeletionVectorsOpt().toString(),
        "sizes of files": list(snapshot.fileSizeHistogram().get().fileCounts()),
        "bytes of files": list(snapshot.fileSizeHistogram().get().totalBytes()),
        "vectors by size": list(snapshot.deletedRecordCountsHistogramOpt().get().deletedRecordCounts()),
        "transactions": snapshot.transactions().toString(),
        "domains": sorted(snapshot.domainMetadata().mkString("\n").split("\n")),
        "actions": sorted(action(line) for line in snapshot.stateDF().toJSON().collectAsList()),
        "files": sorted(snapshot.withStats().toJSON().collectAsList()),
    }


def action(line: str) -> str:
    """Return an action without what Delta leaves out of a checkpoint, and keeps where it has read a commit instead."""
    found = json.loads(line)
    for name in ("stats", "tags"):
        found.get("remove", {}).pop(name, None)
    return json.dumps(found)


def compare(session: Any) -> None:
    """Compare what the driver has with what Delta makes of the log when it knows nothing."""
    path = folder(session)
    ours = snapshot(session, path)
    assert kind(ours) == "LocalSnapshot"
    known = state(ours)
    assert not ours.stateReconstructionTriggered()
    session._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    deltas = snapshot(session, path)
    assert (kind(deltas), deltas.version()) == ("Snapshot", ours.version())
    assert known == state(deltas)
    assert deltas.stateReconstructionTriggered()


@pytest.mark.parametrize(
    ("level", "every"),
    [
        ("transaction", 7),
        pytest.param("transaction", 1, marks=pytest.mark.deep),
        pytest.param("statement", 1, marks=pytest.mark.deep),
    ],
)
def test_the_drivers_state_is_what_delta_computes(spark: Any, table: None, level: str, every: int) -> None:
    if level == "transaction":
        spark.sql(STATEMENTS[0])
        begins(spark)
    for number, statement in enumerate(STATEMENTS, 1):
        spark.sql(statement)
        if number % every == 0:
            compare(spark)
    frame = spark.range(5).withColumnRenamed("id", "v")
    frame.write.option("txnAppId", "app").option("txnVersion", 5).mode("append").saveAsTable(T)
    compare(spark)
    if level == "transaction":
        assert commits(spark)
        compare(spark)


def test_a_state_is_known_to_whoever_asks_next(spark: Any, other: Any, table: None) -> None:
    """The head, a transaction's view, the head after COMMIT, another session: none of them has Spark compute it."""
    for statement in STATEMENTS:
        spark.sql(statement)
    jobs = spark.sparkContext._jsc.sc().dagScheduler

    def counted(session: Any) -> int:
        before = jobs().numTotalJobs()
        session.sql(f"SELECT more FROM {T} WHERE id = 3000").collect()
        return int(jobs().numTotalJobs() - before)

    assert counted(spark) == 1  # its own
    begins(spark)
    assert counted(spark) == 1
    spark.sql(f"INSERT INTO {T} (id) VALUES (4000)")
    assert counted(spark) == 1
    assert commits(spark)
    assert (counted(spark), counted(other)) == (1, 1)


def test_a_state_that_a_rollback_took_back_is_not_taken_for_what_came_in_its_place(
    spark: Any, other: Any, table: None
) -> None:
    spark.sql(STATEMENTS[0])
    for value in (1, 2):
        begins(spark)
        spark.sql(f"INSERT INTO {T} (id) VALUES ({value}00000)")
        assert ids(spark) == [value * 100000]
        spark.sql("SAVEPOINT s")
        spark.sql(f"UPDATE {T} SET id = id + 1 WHERE id > 99999")
        spark.sql("ROLLBACK TO s")
        spark.sql(f"UPDATE {T} SET id = id + 2 WHERE id > 99999")
        assert ids(spark) == [value * 100000 + 2]
        spark.sql("ROLLBACK")
        assert ids(spark) == []
    other.sql(f"INSERT INTO {T} (id) VALUES (300000)")
    assert ids(spark) == ids(other) == [300000]
    compare(spark)


def ids(session: Any) -> list[int]:
    return sorted(row.id for row in session.sql(f"SELECT id FROM {T} WHERE id > 99999").collect())


@pytest.mark.parametrize(("limit", "expected"), [("0", "Snapshot"), ("3", "Snapshot"), ("100", "LocalSnapshot")])
def test_a_larger_tables_state_is_left_to_spark(
    spark: Any, table: None, limit: str, expected: str, settings: None
) -> None:
    spark.sql(f"SET lockstep.driver_state_files = {limit}")
    for value in range(5):
        spark.sql(f"INSERT INTO {T} (id) VALUES ({value})")
    assert spark.sql(f"SELECT sum(id) FROM {T}").collect()[0][0] == 10
    assert kind(snapshot(spark, folder(spark))) == expected


def test_a_table_of_many_tombstones_is_a_large_one(spark: Any, table: None, settings: None) -> None:
    """Its checksum says how many files it has, and not how many it had."""
    spark.sql("SET lockstep.driver_state_files = 6")
    for value in range(6):
        spark.sql(f"INSERT OVERWRITE {T} VALUES ({value}, 0, now())")
        assert spark.sql(f"SELECT sum(id), count(*) FROM {T} WHERE v = 0").collect()[0] == (value, 1)
    ours = snapshot(spark, folder(spark))
    assert (kind(ours), ours.numOfFiles(), ours.numOfRemoves()) == ("LocalSnapshot", 1, 5)
    assert ours.stateReconstructionTriggered()


@pytest.mark.parametrize("value", ["many", "-1", "1.5"])
def test_what_is_no_number_is_refused(spark: Any, table: None, value: str, settings: None) -> None:
    assert is_refused(spark, "22023", lambda: spark.sql(f"SET lockstep.driver_state_files = {value}"))
    spark.conf.set("lockstep.driver_state_files", value)
    assert is_refused(spark, "22023", lambda: spark.sql(f"INSERT INTO {T} (id) VALUES (1)"))


@pytest.fixture
def settings(spark: Any) -> Iterator[None]:
    yield
    spark.sql("RESET lockstep.driver_state_files")


def states(ours: Any) -> Any:
    """Return the driver's `TableStates`."""
    loader = ours.getClass().getClassLoader()
    return loader.loadClass("org.apache.spark.sql.delta.lockstep.TableStates$").getField("MODULE$").get(None)


def field(holder: Any, name: str) -> Any:
    """Return a field of Scala's, which may have its owner's name before its own."""
    [one] = [each for each in holder.getClass().getDeclaredFields() if each.getName().endswith(name)]
    one.setAccessible(True)
    return one


def forget(ours: Any) -> None:
    """Have the states gone that the driver holds, as when it needs the memory."""
    for holder, name in ((states(ours), "known"), (ours, "held")):
        field(holder, name).get(holder).clear()


def test_a_table_that_was_large_is_counted_again(spark: Any, table: None, settings: None) -> None:
    """Its tombstones expire; a table in use would be taken for large for ever."""
    spark.sql("SET lockstep.driver_state_files = 6")
    for value in range(8):
        spark.sql(f"INSERT OVERWRITE {T} VALUES ({value}, 0, now())")
    ours = snapshot(spark, folder(spark))
    assert (ours.numOfRemoves(), ours.stateReconstructionTriggered()) == (7, True), "it is a large one"
    spark.sql(f"ALTER TABLE {T} SET TBLPROPERTIES ('delta.deletedFileRetentionDuration' = 'interval 0 hours')")
    known = [entry.getValue() for entry in field(states(ours), "known").get(states(ours)).entrySet()]
    sizes = [field(each, "size").get(each) for each in known]
    large = [size for size in sizes if size.toString().startswith("Large")]
    assert large
    for size in large:
        field(size, "counted").setLong(size, -100)  # as if that was so many versions ago
    for value in range(2):
        spark.sql(f"INSERT OVERWRITE {T} VALUES ({value}, 0, now())")
    ours = snapshot(spark, folder(spark))
    assert (kind(ours), ours.numOfFiles(), ours.stateReconstructionTriggered()) == ("LocalSnapshot", 1, False)


def test_a_state_whose_memory_was_needed_is_computed_again(spark: Any, table: None) -> None:
    """Delta keeps its snapshots for an hour: these may not keep the states of all tables that were ever read."""
    for statement in STATEMENTS:
        spark.sql(statement)
    before = ids(spark)
    ours = snapshot(spark, folder(spark))
    forget(ours)
    assert ids(spark) == before
    spark.sql(f"INSERT INTO {T} (id) VALUES (400000)")
    assert ids(spark) == [*before, 400000]
    forget(snapshot(spark, folder(spark)))
    compare(spark)


def test_whoever_cancels_the_job_that_computes_a_state_cancels_the_statement(spark: Any, table: None) -> None:
    """Another job in its place would have the statement go on, and write, as if nobody had cancelled it."""
    spark.sql(f"ALTER TABLE {T} SET TBLPROPERTIES ('delta.checkpointInterval' = '1')")
    spark.sql(f"INSERT INTO {T} (id) VALUES (100000)")
    ours = snapshot(spark, folder(spark))
    assert ours.logSegment().checkpointProvider().version() == ours.version(), "Spark reads its state"
    forget(ours)
    with pytest.raises(Exception, match="SPARK_JOB_CANCELLED"), first_job_cancelled(spark):
        ids(spark)
    assert ids(spark) == [100000]
    assert kind(snapshot(spark, folder(spark))) == "LocalSnapshot"
