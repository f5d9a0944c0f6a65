"""DuckDB and Polars read of a version what a query needs, and answer as if they had all of it in memory."""

from __future__ import annotations

import datetime as dt
import math
import os
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import lockstep
from lockstep.errors import CorruptTimelineError, UnsupportedError
from lockstep.exports.export import Asked
from lockstep.tables.opened import OpenLake
from lockstep.tables.streamed import Rows
from tests.support.counting import Counting, counting
from tests.support.exports import exporter
from tests.unit.tables.test_table import make

pytestmark = pytest.mark.long

NAN, TINY = float("nan"), Decimal("0.01")
SCHEMA = pa.schema(
    [
        ("id", pa.int64()), ("day", pa.date32()), ("s", pa.string()), ("d", pa.float64()), ("f", pa.float32()),
        ("dec", pa.decimal128(20, 2)), ("ts", pa.timestamp("us", "UTC")), ("ntz", pa.timestamp("us")),
        ("b", pa.binary()), ("st", pa.struct([("a", pa.int32()), ("n", pa.struct([("x", pa.float64())]))])),
        ("ls", pa.list_(pa.float64())), ("m", pa.map_(pa.string(), pa.decimal128(5, 2))),
    ]
)  # fmt: skip
EPOCH, LATE = dt.datetime(1970, 1, 1, tzinfo=dt.UTC), dt.datetime(2024, 2, 29, 23, 59, 59, 999999, dt.UTC)
EARLY, LAST = dt.datetime(1, 1, 1, 0, 0, 0, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)
MONDAY, TUESDAY = dt.date(2024, 1, 1), dt.date(2024, 1, 2)
FILES: list[list[dict[str, Any]]] = [
    [
        {"id": 1, "day": MONDAY, "s": "a", "d": 1.0, "f": 1.5, "dec": TINY, "ts": EPOCH, "ntz": EARLY, "b": b"\x00",
         "st": {"a": 1, "n": {"x": NAN}}, "ls": [1.0, None, NAN], "m": [("k", TINY)]},
        {"id": 2, "day": MONDAY, "s": None, "d": NAN, "f": NAN, "dec": Decimal(10**17), "ts": LATE, "ntz": LAST,
         "b": b"\xff" * 40, "st": {"a": None, "n": None}, "ls": [], "m": []},
        {"id": 3, "day": MONDAY, "s": "b", "d": -0.0, "f": -0.0, "dec": -TINY, "ts": LATE, "ntz": LAST},
    ],
    [{"id": 4, "day": TUESDAY, "s": "a", "d": 0.0, "f": 0.0, "dec": Decimal(0), "st": {"a": 5, "n": {"x": 0.5}}}],
    [{"id": 5, "day": TUESDAY, "d": NAN, "f": NAN}, {"id": 6, "day": TUESDAY, "d": NAN, "s": "c"}],
    [{"id": 7, "day": None}],
    [{"id": 8, "day": None, "d": float("inf"), "f": float("-inf"), "dec": Decimal("-1e17"), "ts": EPOCH}],
]  # fmt: skip
KINDS: dict[str, dict[str, Any]] = {
    "files": {},
    "partitions": {"partition_by": ["day", "s"]},
    "vectors": {"properties": {"delta.enableDeletionVectors": "true"}},
    "mapped": {"properties": {"delta.columnMapping.mode": "name"}},
    "mapped, partitions and vectors": {
        "partition_by": ["day"],
        "properties": {"delta.columnMapping.mode": "name", "delta.enableDeletionVectors": "true"},
    },
}


def fill(lake: OpenLake, files: list[list[dict[str, Any]]], schema: pa.Schema = SCHEMA, **more: Any) -> None:
    """Make a table of some files, and take two rows out of it: by a vector, if it has those."""
    make(lake, [], schema=schema, **more)
    for rows in files:
        with lake.transaction() as tx:
            tx["t"].append(pa.Table.from_pylist(rows, schema=schema))
    with lake.transaction() as tx:
        tx["t"].delete("id IN (3, 6)")


def comparable(value: Any) -> Any:
    """Return a value that equals another one if that says the same; NaN does, and -0.0 is not 0.0."""
    if isinstance(value, dict):
        return {key: comparable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [comparable(each) for each in value]
    return repr(value) if isinstance(value, float) else value


def viewed(lake: OpenLake) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    lake.at().duckdb(connection)
    return connection


DUCKDB = [
    "d > 1", "d >= 'nan'::DOUBLE", "d = 'nan'::DOUBLE", "d <> 1", "NOT d <= 1", "d < 0", "d <= 0", "d = 0", "d = -0.0",
    "d IN (0, 1)", "d NOT IN (0, 1)", "d IS NULL", "d BETWEEN -1 AND 'inf'::DOUBLE", "f > 1", "f = 0", "f < 0",
    "dec > 0", "dec = 0.01", "dec IN (0.01, 0)", "dec <= -0.01", "dec > 99999999999999999",
    "ts = '1970-01-01T00:00:00Z'",
    "ts > '2024-02-29T23:59:59.999998Z'", "ts < '1970-01-01T00:00:00.000001Z'", "ntz > TIMESTAMP '9999-01-01'",
    "ntz = TIMESTAMP '0001-01-01 00:00:00.000001'", "ntz IS NOT NULL", "b = '\\x00'::BLOB", "b > '\\x00'::BLOB",
    "st.a > 1", "st.a IS NULL", "st.n.x > 0", "st.n.x = 'nan'::DOUBLE", "st IS NULL", "st.n IS NULL", "ls IS NULL",
    "len(ls) = 0", "ls[3] > 5", "m IS NULL", "m['k'] = 0.01", "day = DATE '2024-01-01'", "day IS NULL",
    "day > DATE '2024-01-01' AND d > 1", "day = DATE '2024-01-02' OR d = 1", "s = 'a'", "s IS NULL AND d IS NULL",
    "s IN ('a', 'c') AND day <> DATE '2024-01-01'", "id > 2 AND d > 1", "d > (SELECT min(d) FROM t)", "true",
]  # fmt: skip
POLARS: dict[str, Callable[[], pl.Expr]] = {
    "d > 1": lambda: pl.col("d") > 1,
    "d is NaN": lambda: pl.col("d").is_nan(),
    "d = NaN": lambda: pl.col("d") == NAN,
    "d <> 1": lambda: pl.col("d") != 1,
    "not d <= 1": lambda: ~(pl.col("d") <= 1),
    "d = 0": lambda: pl.col("d") == 0,
    "d in": lambda: pl.col("d").is_in([0.0, 1.0]),
    "f > 1": lambda: pl.col("f") > 1,
    "dec": lambda: pl.col("dec") > 0,
    "ts": lambda: pl.col("ts") == EPOCH,
    "ntz": lambda: pl.col("ntz") > dt.datetime(9999, 1, 1),  # of a column without a zone
    "st": lambda: pl.col("st").struct.field("a") > 1,
    "null": lambda: pl.col("st").is_null(),
    "ls": lambda: pl.col("ls").list.len() == 0,
    "day": lambda: (pl.col("day") == MONDAY) & (pl.col("d") > 1),
    "s": lambda: pl.col("s").is_null() | (pl.col("s") == "a"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_answer_is_that_of_all_rows_in_memory(lake: OpenLake, kind: str) -> None:
    """NaN, -0.0, nulls, microseconds, decimals and what is in structs, lists and maps among them."""
    fill(lake, FILES, **KINDS[kind])
    version = lake.at()
    whole = version["t"].to_arrow()
    assert whole.num_rows == 6
    lazy, eager = duckdb.connect(), duckdb.connect()
    version.duckdb(lazy)
    eager.register("t", whole)
    for where in DUCKDB:
        query = f"FROM t WHERE {where} ORDER BY id"
        found, wanted = (comparable(each.sql(query).fetchall()) for each in (lazy, eager))
        assert found == wanted, where
    for counted in ("true", "d > 1", "day IS NULL"):
        query = f"SELECT count(*) FROM t WHERE {counted}"
        wanted = eager.sql(query).fetchall()
        assert lazy.sql(query).fetchall() == wanted, counted
        assert version.sql(query).column(0).to_pylist() == [count for (count,) in wanted], counted
    frame, in_memory = version["t"].polars(), pl.from_arrow(whole)
    assert isinstance(in_memory, pl.DataFrame)
    for name, predicate in POLARS.items():
        for engine in ("in-memory", "streaming"):
            rows = frame.filter(predicate()).sort("id").collect(engine=engine)
            assert comparable(rows.rows()) == comparable(in_memory.filter(predicate()).sort("id").rows()), name
    assert frame.collect_schema() == in_memory.schema


def test_a_view_is_read_as_often_as_it_is_asked(lake: OpenLake) -> None:
    """Twice in one query, too, and while another query of the same connection is being read."""
    fill(lake, FILES, **KINDS["vectors"])
    connection = duckdb.connect()
    lake.at().duckdb(connection)
    for _ in range(2):
        joined = "SELECT count(*) FROM t a JOIN t b ON a.d = b.d OR (a.d IS NULL AND b.d IS NULL)"
        assert connection.sql(joined).fetchall() == [(8,)]
        assert connection.sql("SELECT d FROM t WHERE id = 4 UNION ALL SELECT d FROM t WHERE id = 1").fetchall() == [
            (0.0,), (1.0,),
        ]  # fmt: skip
    frame = lake.at()["t"].polars()
    assert frame.join(frame, on="id").select(pl.len()).collect().item() == 6


TIMES = pa.schema(
    [("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("st", pa.struct([("x", pa.timestamp("us", "UTC"))])),
     ("ls", pa.list_(pa.timestamp("us", "UTC")))]
)  # fmt: skip
FAR = [dt.datetime(1, 1, 1, 0, 0, 0, 1, dt.UTC), dt.datetime(9999, 12, 31, 23, 59, 59, 999999, dt.UTC)]
READERS: dict[str, Callable[[OpenLake, str], list[Any]]] = {
    "to_arrow": lambda lake, name: lake.at()[name].to_arrow().to_pylist(),
    "sql": lambda lake, name: lake.at().sql(f"FROM {name}").to_pylist(),
    "duckdb": lambda lake, name: viewed(lake).sql(f"FROM {name}").to_arrow_table().to_pylist(),
    "polars": lambda lake, name: lake.at()[name].polars().collect().to_arrow().to_pylist(),
}


@pytest.mark.parametrize("kind", ["files", "mapped"])
def test_times_of_any_year_are_read_as_spark_writes_them(
    lake: OpenLake, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """As INT96; deltalake takes those before 1677 and after 2262 for others."""
    monkeypatch.setattr(pq, "write_table", partial(pq.write_table, use_deprecated_int96_timestamps=True))
    shapes = {"ts": lambda time: time, "st": lambda time: {"x": time}, "ls": lambda time: [time]}
    for column, shaped in shapes.items():
        times = enumerate([*FAR, EPOCH])
        rows = [{**dict.fromkeys(TIMES.names), "id": number, column: shaped(time)} for number, time in times]
        with lake.transaction() as tx:
            tx.create(column, TIMES, **KINDS[kind]).append(pa.Table.from_pylist(rows, TIMES))
        for reader, read in READERS.items():
            assert sorted(read(lake, column), key=lambda row: row["id"]) == rows, (column, reader)


def test_times_that_no_reader_has_right_are_refused(lake: OpenLake, tmp_path: Path) -> None:
    """Files elsewhere are deltalake's alone to read; those whose times are certain it does read."""
    for name, time in {"near": EPOCH, "far": FAR[0]}.items():
        with lake.transaction() as tx:
            tx.create(name, TIMES.remove(3)).append([{"id": 1, "ts": time}])
    exporter(lake.catalog).run(Asked(to=str(tmp_path / "clone"), mode="partial"))
    clone = lockstep.open(str(tmp_path / "clone")).at()
    assert clone["near"].to_arrow(["ts"]).to_pylist() == [{"ts": EPOCH}]
    for read in (clone["far"].to_arrow, clone["far"].relation().to_table):
        with pytest.raises(UnsupportedError, match=r"default\.far .* outside of the years 1678 to 2261"):
            read()


@pytest.mark.parametrize("kind", ["files", "vectors", "mapped"])
def test_a_file_that_is_lost_is_named(lake: OpenLake, tmp_path: Path, kind: str) -> None:
    """As soon as a query comes to it, and no earlier."""
    fill(lake, FILES[:1], **KINDS[kind])
    version = lake.at()
    rows = version["t"].relation()
    for file in (tmp_path / "lake").glob("default/*/part-*.parquet"):
        file.unlink()
    with pytest.raises(CorruptTimelineError, match=r"its file default/t-.*/part-.* is gone"):
        version.sql("SELECT max(d) FROM t")
    with pytest.raises((pa.ArrowException, OSError)):
        rows.to_table()


# --- how much is read -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[Counting, dict[str, str]]]:
    with counting() as served:
        yield served


WAYS: dict[str, Callable[[OpenLake, Any], Any]] = {
    "duckdb": lambda lake, column: viewed(lake).sql(f"SELECT {column} FROM t LIMIT 1").fetchall()[0][0],
    "sql": lambda lake, column: lake.at().sql(f"SELECT {column} FROM t LIMIT 1").column(0)[0].as_py(),
    "polars": lambda lake, column: lake.at()["t"].polars().select(column).head(1).collect().item(),
}


def in_s3(server: tuple[Counting, dict[str, str]], tmp_path: Path) -> OpenLake:
    root = f"s3://lake/{tmp_path.parent.name}-{tmp_path.name}"
    return lockstep.open(root, create=True, options=server[1])


READ_AHEAD = 32 + 8 * (os.cpu_count() or 1)
"""More files than DataFusion reads ahead, which is some for each core."""


@pytest.mark.parametrize("kind", ["files", "vectors", "mapped"])
@pytest.mark.parametrize("way", WAYS)
def test_a_limit_does_not_open_all_files(
    server: tuple[Counting, dict[str, str]], tmp_path: Path, kind: str, way: str
) -> None:
    lake = in_s3(server, tmp_path)
    schema = pa.schema([("id", pa.int64()), ("d", pa.float64())])
    make(lake, [], schema=schema, partition_by=["id"], **KINDS[kind])
    with lake.transaction() as tx:  # a file for each
        tx["t"].append({"id": list(range(READ_AHEAD)), "d": [0.5] * READ_AHEAD})
    server[0].read.clear()
    assert WAYS[way](lake, "d") == 0.5
    assert 0 < len(server[0].read) < READ_AHEAD / 2


@pytest.mark.parametrize("kind", ["files", "vectors", "mapped"])
@pytest.mark.parametrize("way", WAYS)
def test_columns_that_no_query_asks_for_are_not_read(
    server: tuple[Counting, dict[str, str]], tmp_path: Path, kind: str, way: str
) -> None:
    lake = in_s3(server, tmp_path)
    schema = pa.schema([("id", pa.int64()), ("d", pa.float64()), ("fat", pa.binary())])
    fat = os.urandom(4_000_000)
    fill(lake, [[{"id": 1, "d": 0.5, "fat": fat}, {"id": 3, "d": 0.5}]], schema, **KINDS[kind])
    server[0].read.clear()
    assert WAYS[way](lake, "d") == 0.5
    assert 0 < server[0].read.total() < len(fat) / 2
    assert WAYS[way](lake, "octet_length(fat)" if way != "polars" else pl.col("fat").bin.size()) == len(fat)
    assert server[0].read.total() > len(fat)


def test_partitions_that_no_row_can_be_in_are_not_opened(
    server: tuple[Counting, dict[str, str]], tmp_path: Path
) -> None:
    lake = in_s3(server, tmp_path)
    fill(lake, FILES, **KINDS["partitions"])
    connection = viewed(lake)
    for where, most in {
        "day = DATE '2024-01-02'": 2,
        "day = DATE '2024-01-02' AND d > 1": 2,
        "day IS NULL AND s IS NULL": 2,
        "s = 'a'": 2,
        "day > DATE '2024-01-02'": 0,
    }.items():
        server[0].read.clear()
        connection.sql(f"SELECT d FROM t WHERE {where}").fetchall()
        assert len(server[0].read) <= most, where


@pytest.mark.parametrize("type_", [pa.int64(), pa.string(), pa.date32()])
def test_many_partitions_are_told_by_their_range(
    server: tuple[Counting, dict[str, str]], tmp_path: Path, type_: pa.DataType
) -> None:
    """But for texts, of which all are read: readers may order those otherwise."""
    lake = in_s3(server, tmp_path)
    schema = pa.schema([("k", type_), ("d", pa.float64())])
    make(lake, [], schema=schema, partition_by=["k"])
    days = pa.array([*range(40), None], pa.int32())
    with lake.transaction() as tx:
        tx["t"].append(pa.table({"k": days.cast(type_), "d": [0.5] * 41}, schema=schema))
    server[0].read.clear()
    values = days.cast(type_).to_pylist()
    least = duckdb.ConstantExpression(values[15])
    found = viewed(lake).table("t").filter(duckdb.ColumnExpression("k") >= least).fetchall()
    assert sorted(k for k, _ in found) == sorted(value for value in values if value is not None and value >= values[15])
    assert len(server[0].read) == (41 if pa.types.is_string(type_) else 25)


# --- the dataset itself -----------------------------------------------------------------------------------------------

TABLE = pa.table({"a": [1, 2, 3], "b": [1.0, NAN, None], "c.d": ["x", "y", None], "st": [{"x": 1}, {"x": 2}, None]})


class Told:
    """Reads a table in memory, and says which columns it was asked for."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.rows = Rows(TABLE.schema, self.read)

    def read(self, names: Any, _: Any) -> pa.RecordBatchReader:
        self.asked.append(list(names))
        return TABLE.select(list(names)).to_reader()


@pytest.mark.parametrize(
    ("asked", "read"),
    [
        ({}, ["a", "b", "c.d", "st"]),
        ({"columns": ["c.d"]}, ["c.d"]),
        ({"columns": ["st", "a"]}, ["st", "a"]),
        ({"columns": ["a"], "filter": ds.field("b") > 0}, ["a", "b"]),
        ({"columns": ["a"], "filter": (ds.field("c.d") == "x") | ds.field("st", "x").is_null()}, ["a", "c.d", "st"]),
        ({"columns": [], "filter": ds.field("a").isin([1, 2])}, ["a"]),
    ],
)
def test_what_a_scan_asks_for_is_what_is_read(asked: Mapping[str, Any], read: list[str]) -> None:
    told = Told()
    found, wanted = (each.scanner(**asked).to_table() for each in (told.rows, ds.dataset(TABLE)))
    assert found.schema == wanted.schema
    assert comparable(found.to_pylist()) == comparable(wanted.to_pylist())
    assert told.asked == [read]


def test_rows_are_counted_by_the_narrowest_column() -> None:
    told = Told()
    assert told.rows.count_rows() == told.rows.scanner(columns=[]).count_rows() == 3
    assert told.asked[-1] == ["a"]


def test_what_goes_past_its_scans_fails() -> None:
    with pytest.raises(FileNotFoundError, match=r"scanner\(\) alone"):
        ds.Scanner.from_dataset(Told().rows).to_table()


def test_reads_are_of_batches(lake: OpenLake) -> None:
    """However long a table is: none of its batches is."""
    make(lake, [], schema=pa.schema([("d", pa.float64())]))
    with lake.transaction() as tx:
        tx["t"].append({"d": [math.pi] * 200_000})
    sizes = [batch.num_rows for batch in lake.at()["t"].relation().to_batches()]
    assert sum(sizes) == 200_000
    assert max(sizes) < 200_000 / 4


@pytest.mark.parametrize("kind", ["files", "times"])
def test_rows_without_columns_are_as_many(lake: OpenLake, kind: str) -> None:
    type_ = pa.int64() if kind == "files" else pa.timestamp("us")
    with lake.transaction() as tx:
        tx.create("t", pa.schema([("a", type_)]))
        tx["t"].append({"a": pa.nulls(2, type_)})
        tx["t"].append({"a": pa.nulls(1, type_)})
        assert tx["t"].to_arrow([]).num_rows == 3
    rows = lake.at()["t"].to_arrow([])
    assert (rows.num_rows, rows.num_columns) == (3, 0)


@pytest.mark.parametrize("kind", ["deltalake", "times"])
def test_a_column_that_is_asked_for_twice_is_there_twice(lake: OpenLake, kind: str) -> None:
    """As in a transaction; a time that deltalake may read wrong is read by the reader of transactions."""
    time = dt.datetime(2020 if kind == "deltalake" else 1500, 1, 1, tzinfo=dt.UTC)
    with lake.transaction() as tx:
        tx.create("t", pa.schema([("a", pa.int64()), ("b", pa.timestamp("us", "UTC"))]))
        tx["t"].append({"a": [1], "b": [time]})
        rows = tx["t"].to_arrow(["b", "a", "b"])
    assert rows.column_names == ["b", "a", "b"]
    assert lake.at()["t"].to_arrow(["b", "a", "b"]).equals(rows)
