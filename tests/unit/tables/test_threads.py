"""Threads that use one transaction: what each writes is there once, and nothing waits for itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pyarrow as pa
import pytest

from lockstep.tables.opened import OpenLake
from lockstep.tables.reading import Files

VECTORS = {"delta.enableDeletionVectors": "true"}
IDS = pa.schema([("id", pa.int64())])


@pytest.mark.parametrize("properties", [{}, VECTORS])
def test_no_row_is_doubled_if_threads_delete_at_a_time(
    lake: OpenLake, properties: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with lake.transaction() as tx:
        tx.create("t", IDS, properties=properties).append({"id": list(range(10))})
    both = threading.Barrier(2)
    read = Files.read

    def read_at_once(self: Files, *args: object, **kwargs: object) -> pa.Table:
        rows = read(self, *args, **kwargs)  # type: ignore[arg-type]
        with suppress(threading.BrokenBarrierError):
            both.wait(0.5)  # if another thread reads, too, neither has staged anything
        return rows

    monkeypatch.setattr(Files, "read", read_at_once)
    with lake.transaction() as tx, ThreadPoolExecutor(2) as threads:
        assert list(threads.map(tx["t"].delete, ["id = 1", "id = 2"])) == [1, 1]
    monkeypatch.undo()
    found = lake.at().sql("SELECT id FROM t ORDER BY id").column("id").to_pylist()
    assert found == [0, *range(3, 10)]


@pytest.mark.parametrize("end", [lambda tx: tx.commit(), lambda tx: tx.rollback(), lambda tx: tx.rollback_to("s")])
def test_what_ends_a_transaction_waits_for_a_write_of_another_thread(
    table: OpenLake, end: Callable[..., object]
) -> None:
    begun, done = threading.Event(), threading.Event()

    def rows() -> Iterator[pa.RecordBatch]:
        begun.set()
        assert not done.wait(0.2), "it did not wait"
        yield pa.record_batch({"id": [2]}, schema=IDS)

    with table.transaction() as tx, ThreadPoolExecutor(1) as threads:
        tx.savepoint("s")
        write = threads.submit(tx["t"].append, pa.RecordBatchReader.from_batches(IDS, rows()))
        assert begun.wait(10)
        end(tx)
        done.set()
        assert write.result() == 1


def test_rows_that_a_query_is_given_may_be_read_in_its_transaction(table: OpenLake) -> None:
    with table.transaction() as tx:

        def rows() -> Iterator[pa.RecordBatch]:
            for _ in range(2):
                yield from tx["t"].to_arrow(["id"]).to_batches()

        given = pa.RecordBatchReader.from_batches(IDS, rows())
        answer: list[int] = []
        asked = threading.Thread(
            target=lambda: answer.extend(tx.sql("FROM given", given=given)["id"].to_pylist()), daemon=True
        )
        asked.start()
        asked.join(20)
        assert answer == [1, 1]
