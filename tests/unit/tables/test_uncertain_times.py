"""Tables with times that deltalake may read wrong: whoever asks for other columns is answered as for any table."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lockstep
from lockstep.errors import StoreRefusedError, UnavailableError, UnsupportedError
from lockstep.exports.export import Asked
from lockstep.storage.outside import open_reaching
from lockstep.tables import reading, version
from lockstep.tables.by_deltalake import options_of
from lockstep.tables.opened import OpenLake
from lockstep.tables.times import uncertain
from tests.support.counting import Counting, counting
from tests.support.exports import exporter
from tests.support.faulty import FaultyStorage
from tests.support.lakes import open_catalog
from tests.support.s3 import KEYS, Application, moto, serving

FAR = dt.datetime(1, 1, 1, 0, 0, 0, 1, dt.UTC)
SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])


def fill(lake: OpenLake, files: int = 1, **more: Any) -> None:
    """Make a table with a file for each day, with times of long ago."""
    days = [*range(files)]
    with lake.transaction() as tx:
        rows = pa.table({"id": days, "day": days, "ts": [FAR] * files}, schema=SCHEMA)
        tx.create("t", SCHEMA, partition_by=["day"], **more).append(rows)


@pytest.fixture
def store(tmp_path: Path) -> FaultyStorage:
    return FaultyStorage(open_reaching(str(tmp_path / "lake"), create=True))


# --- a store that fails while a query reads ---------------------------------------------------------------------------


def test_a_query_says_that_the_store_failed_as_the_store_does(store: FaultyStorage) -> None:
    """It was bad input (22023), which nobody runs again, though the reader had said what it was."""
    lake = OpenLake(open_catalog(store), {})
    fill(lake)
    at = lake.at()
    store.fail("get", path=".parquet")
    with pytest.raises(UnavailableError, match="injected: get") as caught:
        at.sql("FROM t")
    assert caught.value.retryable
    assert at.sql("FROM t").num_rows == 1


class Failing:
    """Answers 503 for data files, while it is told to."""

    def __init__(self, app: Application) -> None:
        self._app, self.fails = app, False

    def __call__(self, environ: Any, start_response: Any) -> Any:
        if self.fails and environ["REQUEST_METHOD"] == "GET" and environ["PATH_INFO"].endswith(".parquet"):
            start_response("503 Slow Down", [("Content-Type", "application/xml")])
            return [b"<Error><Code>SlowDown</Code><Message>slow down</Message></Error>"]
        return self._app(environ, start_response)


@pytest.mark.parametrize("column", [pa.int64(), pa.float64()], ids=["Arrow opens files", "deltalake reads"])
def test_a_store_that_fails_is_unavailable_whoever_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, column: pa.DataType
) -> None:
    soon = {"max_retries": "1", "retry_timeout": "1s"}  # else deltalake tries for minutes
    monkeypatch.setattr("lockstep.tables.version.options_of", lambda *args: {**(options_of(*args) or {}), **soon})
    app = Failing(moto())
    with serving(app) as endpoint:
        lake = lockstep.open(f"s3://lake/{tmp_path.name}", create=True, options={**KEYS, "endpoint": endpoint})
        with lake.transaction() as tx:
            tx.create("t", pa.schema([("a", column)])).append({"a": [1]})
        at = lake.at()
        app.fails = True
        for read in (lambda: at.sql("FROM t"), at["t"].to_arrow):
            with pytest.raises(UnavailableError, match="SlowDown") as caught:
                read()
            assert not isinstance(caught.value, StoreRefusedError)


# --- who reads which columns ------------------------------------------------------------------------------------------


def test_tables_are_opened_side_by_side(lake: OpenLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes some requests of the store, one after the other."""
    with lake.transaction() as tx:
        for name in ("a", "b", "c"):
            tx.create(name, SCHEMA).append([{"id": ord(name)}])
    together, relation = threading.Barrier(3, timeout=3), version.VersionTable.relation

    def met(table: version.VersionTable) -> Any:
        together.wait()
        return relation(table)

    monkeypatch.setattr(version.VersionTable, "relation", met)
    connection = duckdb.connect()
    lake.at().duckdb(connection)
    assert connection.sql("SELECT a.id, b.id, c.id FROM a, b, c").fetchall() == [(97, 98, 99)]


def test_which_columns_have_such_times(lake: OpenLake) -> None:
    time = pa.timestamp("us", "UTC")
    schema = pa.schema(
        [("id", pa.int64()), ("far", time), ("near", time), ("ls", pa.list_(time)),
         ("st", pa.struct([("b", time)])), ("st.b", time)]
    )  # fmt: skip
    near = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    row = {"id": 1, "far": FAR, "near": near, "ls": [near], "st": {"b": near}, "st.b": near}
    with lake.transaction() as tx:
        tx.create("t", schema, properties={"delta.columnMapping.mode": "none"}).append([row])
    # `st.b` says two columns at once, and nobody knows which one the log's statistics are of.
    assert uncertain(lake.at()["t"].delta()) == {"far", "ls", "st", "st.b"}


def test_who_does_not_ask_for_such_a_time_is_answered_by_deltalake(
    store: FaultyStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = OpenLake(open_catalog(store), {})
    fill(lake, 3)
    at, read = lake.at(), list[Any]()
    own = reading.Files.read

    def told(self: Any, adds: Any, columns: Any) -> pa.Table:
        read.append(columns)
        return own(self, adds, columns)

    monkeypatch.setattr(reading.Files, "read", told)
    assert at.sql("SELECT sum(id) AS n FROM t").column("n").to_pylist() == [3]
    assert at["t"].to_arrow(["day", "id"]).num_rows == 3
    assert at["t"].polars().select("id").collect().height == 3
    assert not read
    assert at.sql("SELECT id FROM t WHERE ts < '0002-01-01T00:00:00Z'").num_rows == 3
    assert at["t"].to_arrow().column("ts").to_pylist() == [FAR] * 3
    assert read


def test_a_clone_is_refused_only_to_who_asks_for_such_a_time(lake: OpenLake, tmp_path: Path) -> None:
    """One table of a lake that nobody can read whole does not keep anybody from the others."""
    fill(lake)
    exporter(lake.catalog).run(Asked(to=str(tmp_path / "clone"), mode="partial"))
    at = lockstep.open(str(tmp_path / "clone")).at()
    connection = duckdb.connect()
    at.duckdb(connection)
    assert connection.sql("SELECT id FROM t").fetchall() == [(0,)]
    assert at.sql("SELECT id, day FROM t WHERE day = 0").to_pylist() == [{"id": 0, "day": 0}]
    assert at["t"].to_arrow(["id"]).to_pylist() == [{"id": 0}]
    with pytest.raises(duckdb.Error, match="outside of the years 1678 to 2261"):
        connection.sql("SELECT ts FROM t").fetchall()
    with pytest.raises(UnsupportedError, match=r"default\.t .* outside of the years 1678 to 2261"):
        at.sql("SELECT id FROM t WHERE ts IS NULL")


# --- how much is read, and how ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[Counting, dict[str, str]]]:
    with counting() as served:
        yield served


@pytest.mark.parametrize("mode", ["none", "name"])
def test_files_that_no_row_of_a_query_can_be_in_are_not_fetched(
    server: tuple[Counting, dict[str, str]], tmp_path: Path, mode: str
) -> None:
    """By the reader of transactions, too: it fetched all of them, whole."""
    lake = lockstep.open(f"s3://lake/{tmp_path.name}", create=True, options=server[1])
    fill(lake, 12, properties={"delta.columnMapping.mode": mode})
    connection = duckdb.connect()
    lake.at().duckdb(connection)
    for where, files in {"day = 3": 1, "day > 9": 2, "day IS NULL": 0, "day = 3 AND id = 4": 1, "id = 3": 12}.items():
        server[0].read.clear()
        found = connection.sql(f"SELECT count(ts) FROM t WHERE {where}").fetchall()
        assert found == [(0 if "4" in where or "NULL" in where else 2 if ">" in where else 1,)], where
        assert len(server[0].read) == files, where


def test_with_a_limit_no_more_files_are_fetched_than_are_read_ahead(
    server: tuple[Counting, dict[str, str]], tmp_path: Path
) -> None:
    lake = lockstep.open(f"s3://lake/{tmp_path.name}", create=True, options=server[1])
    fill(lake, 40)
    rows = lake.at()["t"].relation()
    server[0].read.clear()
    assert rows.head(1, columns=["ts"]).to_pylist() == [{"ts": FAR}]
    assert len(server[0].read) <= reading.AT_A_TIME + 2


def test_files_are_fetched_side_by_side(store: FaultyStorage) -> None:
    """As many at a time as are told, in the order of their log."""
    lake = OpenLake(open_catalog(store), {})
    fill(lake, 9)
    at = lake.at()
    whole, streamed = at["t"].to_arrow(), at["t"].relation().to_table()
    assert whole.column("id").to_pylist() == streamed.column("id").to_pylist()
    assert sorted(whole.column("id").to_pylist()) == [*range(9)]
    for read in (at["t"].to_arrow, at["t"].relation().to_table):
        store.fail("get", path=".parquet")
        with pytest.raises(UnavailableError, match="injected"):
            read()


def test_the_first_rows_and_some_rows_are_had_as_from_any_dataset(lake: OpenLake) -> None:
    fill(lake, 5)
    rows = lake.at()["t"].relation()
    whole = rows.to_table()
    for count in (0, 1, 3, 5, 9):
        assert rows.head(count) == whole.slice(0, count), count
    assert rows.head(2, columns=["id"], filter=pc.field("day") >= 0).num_rows == 2
    assert rows.take(pa.array([3, 0]), columns=["id"]) == whole.select(["id"]).take([3, 0])
