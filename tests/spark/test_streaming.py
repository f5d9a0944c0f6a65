"""Streams into several tables: exactly once, whatever becomes of the checkpoint; and streams beside transactions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

import lockstep
from lockstep.catalog import TransactionalCatalog
from lockstep.errors import ActiveTransactionError
from lockstep.spark.bridge import is_open
from lockstep.spark.raised import from_spark
from lockstep.timeline.entry import Entry
from lockstep.timeline.files import entry_path
from tests.support.faulty import FaultyStorage
from tests.support.interposed import timeline_of

pytestmark = pytest.mark.long

SOURCE, COPY, TOTAL = (f"lake.default.{name}" for name in ("source", "copy", "total"))
Write = Callable[[Any, int], Any]


@pytest.fixture
def tables(spark: Any) -> None:
    """Make a source, and what a stream makes of it: a copy of its rows, and their number."""
    spark.sql(f"CREATE TABLE {SOURCE} (id BIGINT)")
    spark.sql(f"CREATE TABLE {COPY} (id BIGINT)")
    spark.sql(f"CREATE TABLE {TOTAL} AS SELECT 0L AS n")
    produce(spark, 1)


def produce(spark: Any, *ids: int) -> None:
    """Append the rows to the source, each as a file of its own, so that it can be a batch of its own."""
    for id in ids:
        spark.sql(f"INSERT INTO {SOURCE} VALUES ({id})")


def load(frame: Any, number: int) -> None:
    """Write both tables, in the batch's own session, by a DataFrame and by SQL."""
    frame.write.mode("append").saveAsTable(COPY)
    frame.createOrReplaceTempView("batch")
    frame.sparkSession.sql(f"UPDATE {TOTAL} SET n = n + (SELECT count(*) FROM batch)")


def loaded(spark: Any) -> tuple[list[int], int]:
    ids = [row.id for row in spark.sql(f"SELECT id FROM {COPY} ORDER BY id").collect()]
    ((n,),) = spark.sql(f"SELECT n FROM {TOTAL}").collect()
    return ids, n


class Stream:
    """A query that carries what is new from the source, and how often its function was called."""

    def __init__(self, spark: Any, checkpoint: Path, write: Write = load) -> None:
        self.spark, self.checkpoint, self.write = spark, checkpoint, write
        self.calls: list[int] = []

    def __call__(self, frame: Any, number: int) -> None:
        self.calls.append(number)
        self.write(frame, number)

    def run(self, function: Write | None = None) -> list[int]:
        """Run until nothing is left, and return the batches for which the function was called."""
        self.calls.clear()
        source = self.spark.readStream.option("maxFilesPerTrigger", 1).table(SOURCE)
        writer = source.writeStream.foreachBatch(function or lockstep.foreach_batch(self, application="copier"))
        writer = writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True)
        writer.start().awaitTermination()
        return list(self.calls)

    def forget(self, number: int) -> None:
        """Take the checkpoint back to where it was while this batch, the last one, ran: as a crash leaves it."""
        commits = self.checkpoint / "commits"
        (commits / str(number)).unlink()
        (commits / f".{number}.crc").unlink(missing_ok=True)


@pytest.fixture
def stream(spark: Any, tables: None, tmp_path: Path) -> Stream:
    return Stream(spark, tmp_path / "checkpoint")


def entries(spark: Any) -> tuple[Entry, ...]:
    catalog = lockstep.TransactionalCatalog.open(spark.conf.get("spark.sql.catalog.lake.root"))
    return tuple(catalog.timeline.entries(0))


def test_each_batch_is_one_database_version_of_both_tables(stream: Stream, spark: Any) -> None:
    produce(spark, 2, 3)
    assert stream.run() == [0, 1, 2]
    assert loaded(spark) == ([1, 2, 3], 3)
    recorded = [entry for entry in entries(spark) if entry.batch is not None]
    assert [str(entry.batch) for entry in recorded] == [f"batch {n} of application copier" for n in range(3)]
    assert [sorted(str(write.name) for write in entry.writes) for entry in recorded] == [
        ["default.copy", "default.total"]
    ] * 3
    assert recorded[1].transaction.message == "batch 1 of copier"


def test_a_batch_that_spark_forgot_is_not_run_again(stream: Stream, spark: Any) -> None:
    """The checkpoint is as a crash after COMMIT leaves it: Spark replays the batch, and nothing doubles."""
    produce(spark, 2)
    assert stream.run() == [0, 1]
    stream.forget(1)
    produce(spark, 3)
    assert stream.run() == [2]
    assert loaded(spark) == ([1, 2, 3], 3)


def test_without_its_number_it_would_be(stream: Stream, spark: Any) -> None:
    """The test above sees a replay: a transaction alone is atomic, and not exactly once."""

    def alone(frame: Any, number: int) -> None:
        with lockstep.transaction(frame.sparkSession):
            stream(frame, number)

    assert stream.run(alone) == [0]
    stream.forget(0)
    assert stream.run(alone) == [0]
    assert loaded(spark) == ([1, 1], 2)


def test_a_batch_whose_function_fails_leaves_nothing_and_is_run_again(stream: Stream, spark: Any) -> None:
    def half(frame: Any, number: int) -> None:
        frame.write.mode("append").saveAsTable(COPY)
        raise KeyError("mine")

    stream.write = half
    with pytest.raises(StreamingQueryException, match="mine"):
        stream.run()
    assert loaded(spark) == ([], 0)
    stream.write = load
    assert stream.run() == [0]
    assert loaded(spark) == ([1], 1)


def test_a_batch_that_lost_to_another_transaction_is_run_again(stream: Stream, spark: Any, other: Any) -> None:
    def overtaken(frame: Any, number: int) -> None:
        load(frame, number)
        if len(stream.calls) == 1:
            other.sql(f"UPDATE {TOTAL} SET n = n + 100")

    stream.write = overtaken
    assert stream.run(lockstep.foreach_batch(stream, application="copier", sleep=lambda _: None)) == [0, 0]
    assert loaded(spark) == ([1], 101)


@pytest.mark.parametrize("landed", [True, False], ids=["landed", "not landed"])
def test_a_commit_without_an_answer_is_found_out(stream: Stream, spark: Any, landed: bool) -> None:
    """The store goes down in the batch's COMMIT, and comes back: run again, it is done already, or is done now."""
    timeline = timeline_of(spark)
    store = FaultyStorage(timeline.storage)
    next_entry = entry_path(timeline.head.version + 1)

    def heal(_: float) -> None:
        store.heal()

    timeline.storage = store
    store.go_down(next_entry, landed=landed)
    try:
        calls = stream.run(lockstep.foreach_batch(stream, application="copier", sleep=heal))
    finally:
        timeline.storage = store.inner
    assert store.count("put_if_absent", next_entry) > 0
    assert calls == ([0] if landed else [0, 0])
    assert loaded(spark) == ([1], 1)


def test_a_batch_of_ones_own_is_dropped_when_it_is_a_replay(tables: None, spark: Any, other: Any) -> None:
    def carry_out(session: Any) -> Any:
        with lockstep.transaction(session, batch=("by hand", 7)) as tx:
            session.sql(f"INSERT INTO {COPY} VALUES (1)")
            session.sql(f"UPDATE {TOTAL} SET n = n + 1")
        return tx.status, tx.result["tables_changed"], tx.is_replay, tx.last_batch

    assert carry_out(spark) == ("COMMITTED", 2, False, None)
    assert carry_out(other) == ("COMMITTED", 0, True, 7)
    assert loaded(spark) == loaded(other) == ([1], 1)


def test_the_transaction_after_a_batch_has_none(tables: None, spark: Any) -> None:
    with lockstep.transaction(spark, batch=("by hand", 7)):
        pass
    for _ in range(2):
        with lockstep.transaction(spark) as tx:
            spark.sql(f"INSERT INTO {COPY} VALUES (1)")
        assert not tx.is_replay
    assert loaded(spark)[0] == [1, 1]


def test_run_tells_its_function_of_a_replay(tables: None, spark: Any) -> None:
    assert [lockstep.run(spark, lambda tx: tx.is_replay, batch=("by hand", n)) for n in (0, 0, 1)] == [
        False,
        True,
        False,
    ]


def test_a_stream_that_was_made_before_begin_cannot_start_inside(tables: None, spark: Any, tmp_path: Path) -> None:
    source = spark.readStream.table(SOURCE)
    writer = source.writeStream.format("delta").option("checkpointLocation", str(tmp_path / "c"))
    spark.sql("BEGIN")
    with pytest.raises(PySparkException) as error:
        writer.trigger(availableNow=True).toTable(COPY)
    assert is_open(spark)
    spark.sql("ROLLBACK")
    assert type(from_spark(error.value)) is ActiveTransactionError
    assert loaded(spark)[0] == []


@pytest.mark.parametrize("way", ["toTable", "foreachBatch"])
def test_a_streams_batches_are_no_part_of_a_transaction_that_their_session_shares(
    tables: None, spark: Any, connect: Callable[[], Any], tmp_path: Path, way: str
) -> None:
    """The stream was there before: what it has written down as done must not be rolled back with the rest."""
    sharing, other = connect(), connect()
    for session in (spark, sharing):
        session.sql("SET lockstep.shared_transaction = load")
    source = spark.readStream.table(SOURCE)
    writer = source.writeStream.format("delta").option("checkpointLocation", str(tmp_path / "c"))
    query = writer.toTable(COPY) if way == "toTable" else writer.foreachBatch(load).start()
    try:
        query.processAllAvailable()
        sharing.sql("BEGIN")
        sharing.sql(f"INSERT INTO {COPY} VALUES (100)")
        produce(other, 2)
        query.processAllAvailable()
        sharing.sql("ROLLBACK")
    finally:
        query.stop()
    assert loaded(other)[0] == [1, 2]


def test_each_statement_of_a_batch_on_its_own_is_judged_by_what_it_reads(
    tables: None, spark: Any, tmp_path: Path
) -> None:
    """As it is outside of a stream: the batch is an execution around them, not a statement that they are parts of."""

    def write(frame: Any, number: int) -> None:
        session = frame.sparkSession
        session.sql(f"INSERT INTO {COPY} SELECT id FROM {SOURCE}")
        session.sql(f"INSERT INTO {SOURCE} VALUES (2)")
        session.sql(f"INSERT INTO {COPY} VALUES (3)")
        session.sql(f"DELETE FROM {COPY} WHERE id = 3")

    stream = spark.readStream.table(SOURCE).writeStream.foreachBatch(write)
    query = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(once=True).start()
    query.awaitTermination()
    assert loaded(spark)[0] == [1]


def test_a_batch_that_a_sink_writes_has_read_what_its_query_reads(
    tables: None, spark: Any, root: Path, tmp_path: Path
) -> None:
    joined = spark.readStream.table(SOURCE).crossJoin(spark.table(TOTAL)).select("id")
    writer = joined.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    writer.format("delta").toTable(COPY).awaitTermination()
    timeline = TransactionalCatalog.open(str(root)).timeline
    [entry] = timeline.entries(timeline.head.version - 1, timeline.head.version)
    assert "default.total" in [str(read.name) for read in entry.reads]
