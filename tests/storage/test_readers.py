"""What reads a version of a lake without Spark reads it in every store; `make test-stores` adds those to be fetched."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import lockstep
from lockstep.tables.opened import OpenLake
from tests.support import servers
from tests.support.s3 import KEYS, moto, serving

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.int32()), ("d", pa.float64())])
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "partitions": {"partition_by": ["day"]},
    "vectors": {"properties": {"delta.enableDeletionVectors": "true"}},
    "mapped": {"properties": {"delta.columnMapping.mode": "name"}},
}
ROWS = [(1, 1, float("inf")), (3, 2, None), (4, None, -0.5)]


@contextmanager
def in_process() -> Iterator[servers.Server]:
    with serving(moto()) as endpoint:
        yield servers.Server("s3://lake", {**KEYS, "endpoint": endpoint})


@contextmanager
def on_disk() -> Iterator[None]:
    yield None


FETCHED = {"s3proxy": servers.s3proxy, "versitygw": servers.versitygw, "azurite": servers.azurite}
STARTERS: Mapping[str, Callable[[], AbstractContextManager[servers.Server | None]]] = {
    "local": on_disk,
    "s3": in_process,
    **(FETCHED if servers.ARE_WANTED else {}),
}


@pytest.fixture(scope="module", params=STARTERS)
def lake(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenLake]:
    """A lake with a table of each kind, whose second row is deleted; of the whole numbers Arrow opens the files."""
    folder = tmp_path_factory.mktemp("readers")
    with STARTERS[request.param]() as server:
        root = str(folder) if server is None else server.url(f"{folder.parent.name}/{folder.name}")
        lake = lockstep.open(root, create=True, options=None if server is None else server.options)
        with lake.transaction() as tx:
            for name, more in KINDS.items():
                rows = {"id": [1, 2, 3, 4], "day": [1, 1, 2, None], "d": [float("inf"), 0.5, None, -0.5]}
                tx.create(name, SCHEMA, **more).append(pa.table(rows, schema=SCHEMA))
                tx[name].delete("id = 2")
            tx.create("whole", SCHEMA.remove(2)).append(pa.table({"id": [1, 4], "day": [1, None]}, SCHEMA.remove(2)))
        yield lake


def viewed(lake: OpenLake, name: str) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    lake.at().duckdb(connection, [name])
    return connection


READERS: dict[str, Callable[[OpenLake, str], list[tuple[Any, ...]]]] = {
    "to_arrow": lambda lake, name: [tuple(row.values()) for row in lake.at()[name].to_arrow().to_pylist()],
    "duckdb": lambda lake, name: viewed(lake, name).sql(f"FROM {name}").fetchall(),
    "polars": lambda lake, name: lake.at()[name].polars().collect().rows(),
    "sql": lambda lake, name: [tuple(row.values()) for row in lake.at().sql(f"FROM {name}").to_pylist()],
    "delta": lambda lake, name: [
        tuple(row.values()) for row in pa.table(lake.at()[name].delta().scan()).to_pylist()
    ],
}  # fmt: skip


@pytest.mark.parametrize("reader", READERS)
def test_each_reader_has_the_rows_of_each_kind_of_table(lake: OpenLake, reader: str) -> None:
    for name in KINDS:
        assert sorted(READERS[reader](lake, name)) == ROWS, name
    assert sorted(READERS[reader](lake, "whole")) == [(1, 1), (4, None)]


def test_filtered_reads(lake: OpenLake) -> None:
    for name in KINDS:
        assert viewed(lake, name).sql(f"SELECT id FROM {name} WHERE day = 2 OR d > 1 ORDER BY id").fetchall() == [
            (1,), (3,),
        ]  # fmt: skip
        assert lake.at()[name].polars().filter(pl.col("day").is_null()).select("id").collect().item() == 4
    assert viewed(lake, "whole").sql("SELECT id FROM whole WHERE day = 1").fetchall() == [(1,)]


def test_a_dataset_of_arrow_and_one_of_deltalake(lake: OpenLake) -> None:
    assert sorted(lake.at()["vectors"].relation().to_table(columns=["id"]).column("id").to_pylist()) == [1, 3, 4]
    assert sorted(lake.at()["whole"].delta().to_pyarrow_dataset().to_table().column("id").to_pylist()) == [1, 4]
