"""Filtered reads of a version find each row that a whole read has, whatever statistics its files have."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lockstep
from lockstep.errors import UnsupportedError
from lockstep.exports.export import Asked, Exporter
from lockstep.storage import open_storage
from lockstep.tables.opened import OpenLake
from tests.support.exports import exporter
from tests.support.s3 import KEYS, moto, serving

pytestmark = pytest.mark.long

GREATEST = "\U0010ffff" * 40
"""A text that no short text is greater than: its file has no maximum."""

SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string()), ("d", pa.date32()), ("b", pa.bool_())])
FILTERS = [
    "s = 'a'", "s > 'a'", "s <= 'a'", "s <> 'a'", "s IS NULL", "s IS NOT NULL", "s IN ('', 'b')", "s LIKE 'a%'",
    "k = 1", "k > 1", "k IS NULL", "k IS DISTINCT FROM 1", "k BETWEEN 1 AND 2", "d = DATE '1970-01-01'",
    "d < DATE '1970-01-01'", "d IS NULL", "b", "NOT b", "b IS NULL", "k = 1 OR s = 'a'", "NOT (k = 1 AND s = 'a')",
]  # fmt: skip
ROWS = st.fixed_dictionaries(
    {
        "k": st.sampled_from([None, 1, 2, 2**62]),
        "s": st.sampled_from([None, "", "a", "b", "a" * 33, "a/b c=%", "__HIVE_DEFAULT_PARTITION__", GREATEST]),
        "d": st.sampled_from([None, dt.date(1, 1, 1), dt.date(1970, 1, 1), dt.date(9999, 12, 31)]),
        "b": st.sampled_from([None, True, False]),
    }
)


def create(lake: OpenLake, schema: pa.Schema = SCHEMA, partition_by: Sequence[str] = ()) -> None:
    with lake.transaction() as tx:
        tx.create("t", schema, partition_by=partition_by)


def append(lake: OpenLake, rows: list[dict[str, Any]], schema: pa.Schema = SCHEMA) -> None:
    with lake.transaction() as tx:
        tx["t"].append(pa.Table.from_pylist(rows, schema=schema))


def counts(lake: OpenLake, where: str) -> list[int]:
    """How many rows each way to read a version finds: the first reads all of them, and filters in memory."""
    version, connection = lake.at(), duckdb.connect()
    version.duckdb(connection)
    query = f"SELECT count(*) AS n FROM {{}} WHERE {where}"
    whole = duckdb.connect()
    whole.register("whole_table", version["t"].to_arrow())
    return [
        whole.sql(query.format("whole_table")).fetchall()[0][0],
        version.sql(query.format("t")).column("n")[0].as_py(),
        connection.sql(query.format("t")).fetchall()[0][0],
    ]


def test_a_file_without_a_greatest_value_is_read_all_the_same(lake: OpenLake) -> None:
    create(lake)
    append(lake, [{"k": 1, "s": "a"}, {"k": 1, "s": GREATEST}])
    append(lake, [{"k": 1, "s": "a"}])
    assert counts(lake, "s = 'a'") == [2, 2, 2]
    assert lake.at()["t"].polars().filter(pl.col("s") == "a").collect().height == 2


@pytest.mark.parametrize("kept", [{"numRecords"}, {"numRecords", "minValues"}, {"numRecords", "maxValues"}, None])
def test_files_of_others_whose_statistics_are_partial(lake: OpenLake, tmp_path: Path, kept: set[str] | None) -> None:
    create(lake)
    append(lake, [{"k": 1, "s": "a"}, {"k": 2, "s": None}])
    append(lake, [{"k": 1, "s": "a"}])
    location = tmp_path / "lake" / lake.catalog.lake.newest().tables[next(iter(lake.at()))].location
    log = location / "_delta_log" / f"{1:020}.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if "add" in line:
            stats = json.loads(line["add"].pop("stats"))
            if kept is not None:
                line["add"]["stats"] = json.dumps({key: stats[key] for key in kept})
    log.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert [counts(lake, where) for where in ("s = 'a'", "k = 1", "k = 2")] == [[2] * 3, [2] * 3, [1] * 3]


@pytest.mark.parametrize("more", [(), (("x", pa.float64()),)], ids=["by files", "by deltalake"])
def test_an_empty_text_of_a_partition_is_found_as_a_whole_read_has_it(
    lake: OpenLake, more: tuple[tuple[str, pa.DataType], ...]
) -> None:
    """delta-rs writes one, where others write null."""
    schema = pa.schema([*SCHEMA, *more])
    create(lake, schema, partition_by=("s",))
    append(lake, [{"k": 1, "s": "a"}, {"k": 2, "s": None}, {"k": 3, "s": "b"}], schema)
    write_deltalake(lake.at()["t"].uri, pa.Table.from_pylist([{"k": 4, "s": ""}], schema=schema), mode="append")
    wheres = [*(where for where in FILTERS if "s " in where), "s = ''", "length(s) = 0", "coalesce(s, '') = ''"]
    found = {where: counts(lake, where) for where in wheres}
    assert {where: each for where, each in found.items() if len({*each}) > 1} == {}
    assert found["s = ''"][0] == 1


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    files=st.lists(st.lists(ROWS, min_size=1, max_size=4), min_size=1, max_size=3),
    partition_by=st.sampled_from([(), ("s",), ("d",), ("b",), ("k", "s")]),
    more=st.sampled_from([(), (("x", pa.float64()),)]),
)
def test_each_filter_finds_what_a_whole_read_has(
    tmp_path_factory: pytest.TempPathFactory,
    files: list[list[dict[str, Any]]],
    partition_by: tuple[str, ...],
    more: tuple[tuple[str, pa.DataType], ...],
) -> None:
    """Of a table whose files Arrow opens itself, and with a column of doubles of one that deltalake reads for it."""
    lake = lockstep.open(str(tmp_path_factory.mktemp("filtered") / "lake"), create=True)
    schema = pa.schema([*SCHEMA, *more])
    create(lake, schema, partition_by=partition_by)
    for rows in files:
        append(lake, rows, schema)
    connection = duckdb.connect()
    lake.at().duckdb(connection)
    connection.register("whole_table", lake.at()["t"].to_arrow())
    for where in FILTERS:
        query = f"SELECT count(*) FROM {{}} WHERE {where}"
        whole, filtered = (connection.sql(query.format(name)).fetchall() for name in ("whole_table", "t"))
        assert filtered == whole, where


@pytest.mark.parametrize("for_spark", [False, True])
def test_a_clone_in_s3_is_read_whatever_it_calls_s3(for_spark: bool, tmp_path: Path) -> None:
    """Spark's are called s3a, and deltalake finds files by the scheme alone that a table was opened by."""
    with serving(moto()) as endpoint:
        options = {**KEYS, "endpoint": endpoint}
        root = f"s3://lake/{tmp_path.name}"
        lake = lockstep.open(root, create=True, options=options)
        create(lake)
        append(lake, [{"k": 1}])
        source = lake.catalog.lake
        exporter = Exporter(source, lambda url, _: open_storage(url, options=options), for_spark=for_spark)
        exporter.run(Asked(to=f"{root}-to", mode="partial"))
        for scheme in ("s3", "s3a"):
            clone = lockstep.open(f"{root}-to".replace("s3", scheme, 1), options=options)
            assert clone.at().sql("SELECT k FROM t").to_pylist() == [{"k": 1}]
            assert pa.table(clone.at()["t"].delta().scan()).column("k").to_pylist() == [1]


def test_a_store_without_tls_that_the_environment_names_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is written: deltalake must be told that it may."""
    with serving(moto()) as endpoint:
        for key, value in {**KEYS, "endpoint_url": endpoint}.items():
            monkeypatch.setenv(f"AWS_{key.upper()}", value)
        lake = lockstep.open(f"s3://lake/{tmp_path.name}", create=True)
        create(lake)
        append(lake, [{"k": 1}])
        assert lake.at()["t"].to_arrow(["k"]).to_pylist() == [{"k": 1}]


def test_files_outside_of_the_folder_are_read_alike_by_every_way_of_a_version(table: OpenLake, tmp_path: Path) -> None:
    """Those of a partial clone; Arrow's dataset looks for them below the clone's own table."""
    exporter(table.catalog).run(Asked(to=str(tmp_path / "clo ne"), mode="partial"))
    clone = lockstep.open(str(tmp_path / "clo ne"))
    version, rows = clone.at(), [{"id": 1, "v": "a"}]
    connection = duckdb.connect()
    version.duckdb(connection)
    assert version["t"].to_arrow().to_pylist() == rows
    assert version.sql("FROM t WHERE id = 1").to_pylist() == rows
    assert version["t"].polars().collect().to_dicts() == rows
    assert connection.sql("FROM t").fetchall() == [(1, "a")]
    with clone.transaction() as tx, pytest.raises(UnsupportedError, match=r"partial export.*at a version \(lake\.at\)"):
        tx.sql("FROM t")


@pytest.mark.parametrize("partition_by", [None, "p"])
def test_a_filter_of_polars_takes_nulls_as_polars_does(lake: OpenLake, partition_by: str | None) -> None:
    with lake.transaction() as tx:
        tx.create("t", pa.schema([("id", pa.int64()), ("p", pa.string())]), partition_by=partition_by)
        tx["t"].append({"id": [1, 2, None], "p": ["a", None, "b"]})
    frame = lake.at()["t"].polars()
    in_memory = frame.collect()
    for column, values in (("id", [1]), ("id", [1, None]), ("p", ["a"]), ("p", ["a", None])):
        for asked in (pl.col(column).is_in(values), ~pl.col(column).is_in(values)):
            assert sorted(frame.filter(asked).collect().rows(), key=str) == sorted(
                in_memory.filter(asked).rows(), key=str
            ), asked
