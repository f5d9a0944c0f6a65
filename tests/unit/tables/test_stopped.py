"""Ctrl-C, and too little memory, while DuckDB computes for a statement without Spark: neither is bad input."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from lockstep.tables.opened import OpenLake
from lockstep.tables.queries import connected
from tests.support.gate import wait_until

ROWS = pa.table({"id": [1]})
LONG = "SELECT count(*) FROM range(1000000000000) t(a) WHERE sqrt(a) > 0"
"""It would take hours."""


class _Stopped:
    """Rows that are interrupted while DuckDB asks for them."""

    def __init__(self, at: str) -> None:
        self._at = at

    @property
    def schema(self) -> pa.Schema:
        self._met("schema")
        return ROWS.schema

    def __arrow_c_schema__(self) -> object:
        self._met("schema")
        return ROWS.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        self._met("stream")
        return ROWS.__arrow_c_stream__(requested_schema)

    def _met(self, what: str) -> None:
        if what == self._at:
            signal.raise_signal(signal.SIGINT)


def _batches() -> Iterator[pa.RecordBatch]:
    yield from ROWS.to_batches()
    signal.raise_signal(signal.SIGINT)


def _reader() -> Any:
    return pa.RecordBatchReader.from_batches(ROWS.schema, _batches())


@pytest.mark.parametrize("rows", [lambda: _Stopped("stream"), _reader], ids=["stream", "reader"])
def test_ctrl_c_while_rows_are_read_is_no_bad_input(lake: OpenLake, rows: Callable[[], Any]) -> None:
    with pytest.raises(KeyboardInterrupt), lake.transaction() as tx:
        tx.sql("SELECT * FROM rows", rows=rows())


@pytest.mark.parametrize(
    ("sent", "raises"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGUSR1, TimeoutError)], ids=["ctrl-c", "another"]
)
@pytest.mark.parametrize("after", [0.0, 0.5])
def test_a_query_ends_with_what_the_handler_of_a_signal_raises(
    lake: OpenLake, sent: signal.Signals, raises: type[BaseException], after: float
) -> None:
    """It comes once DuckDB computes: what Python does before, an import for one, has its own way with signals."""

    def handle(*_: object) -> None:
        raise TimeoutError("the caller's own")

    def send() -> None:
        wait_until(_computing, "no query begins")
        time.sleep(after)  # so that it is further on
        os.kill(os.getpid(), sent)

    before = signal.signal(signal.SIGUSR1, handle)
    sending = threading.Thread(target=send)
    try:
        sending.start()
        with pytest.raises(raises), lake.transaction() as tx:
            tx.sql(LONG)
        assert lake.at().version == 0
    finally:
        sending.join()
        signal.signal(signal.SIGUSR1, before)
    wait_until(lambda: not _computing(), "the query goes on")


def _computing() -> bool:
    return any(each.name.startswith("lockstep-query") for each in threading.enumerate())


def test_a_query_that_names_it_is_bad_input_all_the_same(lake: OpenLake) -> None:
    from lockstep.errors import InvalidError

    with pytest.raises(InvalidError), lake.transaction() as tx:
        tx.sql("SELECT error('Invalid Input Error: reading rows registered as x failed: KeyboardInterrupt')")


def test_too_little_memory_is_no_bad_input() -> None:
    from lockstep.tables.queries import answer

    with connected() as connection:
        connection.execute("SET memory_limit = '1MB'")
        with pytest.raises(MemoryError):
            answer(connection, "SELECT list(a) FROM range(10000000) t(a)")
