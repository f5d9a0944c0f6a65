"""Names that are two here and one to DuckDB, which ignores case: refused, and not taken for one another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import arro3.core
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from lockstep.errors import InvalidError, LockstepError, UndefinedError
from lockstep.tables.opened import OpenLake
from tests.support.refused import refused_in

# --- columns of rows --------------------------------------------------------------------------------------------------


def _table(*names: str) -> pa.Table:
    return pa.Table.from_arrays([pa.array([1])] * len(names), names=list(names))


@pytest.mark.parametrize("names", [("id", "V", "v"), ("ID", "id", "v"), ("id", "v", "v"), ("id", "ß", "ẞ")])
def test_a_merge_takes_no_two_columns_of_one_name(table: OpenLake, names: tuple[str, ...]) -> None:
    with table.transaction() as tx:
        with refused_in(tx, InvalidError, "one name") as refused:
            tx["t"].merge(_table(*names), on="id").when_matched_update({"id": "7"}).execute()
        assert refused.value.sqlstate == "42804"
        assert tx["t"].to_arrow().to_pylist() == [{"id": 1, "v": "a"}]


@pytest.mark.parametrize("name", ["__lockstep_clause", "__LOCKSTEP_index"])
def test_a_merge_takes_no_column_of_lockstep_s_own(table: OpenLake, name: str) -> None:
    with table.transaction() as tx:
        with refused_in(tx, InvalidError, name) as refused:
            tx["t"].merge(_table("id", name), on="id").when_matched_update({"v": "'b'"}).execute()
        assert refused.value.sqlstate == "42939"
        assert tx["t"].to_arrow().to_pylist() == [{"id": 1, "v": "a"}]


def test_no_column_of_a_table_is_lockstep_s_own(lake: OpenLake) -> None:
    with lake.transaction() as tx, refused_in(tx, InvalidError, "Lockstep's own"):
        tx.create("own", pa.schema([("id", pa.int64()), ("__LOCKSTEP_index", pa.int64())])).append({"id": [1]})


TWICE = {
    "Arrow": _table("a", "A"),
    "a reader": _table("a", "A").to_reader(),
    "a dataset": ds.dataset(_table("a", "A")),
    "a scanner": ds.dataset(_table("a", "A")).scanner(),
    "Polars": pl.DataFrame({"a": [1], "A": [2]}),
    "a lazy frame": pl.LazyFrame({"a": [1], "A": [2]}),
    "a table of others": arro3.core.Table.from_arrow(pa.table({"a": [1], "A": [2]})),
    "a reader of others": arro3.core.RecordBatchReader.from_arrow(_table("a", "A")),
    "columns": {"a": [1], "A": [2]},
    "dictionaries": [{"a": 1, "A": 2}],
}


@pytest.mark.parametrize("kind", [*TWICE, "pandas"])
def test_a_query_takes_no_rows_with_two_columns_of_one_name(table: OpenLake, kind: str) -> None:
    import pandas as pd  # type: ignore[import-untyped]

    rows = pd.DataFrame({"a": [1], "A": [2]}) if kind == "pandas" else TWICE[kind]
    with table.transaction() as tx, refused_in(tx, InvalidError, "one name") as refused:
        tx.sql("FROM n", n=rows)
    assert refused.value.sqlstate == "42804"


# --- tables of a query ------------------------------------------------------------------------------------------------


@pytest.fixture
def alike(lake: OpenLake) -> OpenLake:
    """A lake with tables that are one to DuckDB, each with one number."""
    with lake.transaction() as tx:
        for namespace in ("main", "n", "N"):
            tx.create_namespace(namespace)
        for number, name in enumerate(("m", "M", "main.m", "n.t", "N.t", "other")):
            tx.create(name, pa.schema([("a", pa.int64())])).append({"a": [number]})
    return lake


def answers(lake: OpenLake, query: str, **relations: Any) -> list[list[int]]:
    """What a query answers in a transaction, and at the newest version."""
    with lake.transaction(read_only=True) as tx:
        rows = tx.sql(query, **relations)
    assert lake.at().sql(query, **relations).equals(rows)
    return [list(row) for row in zip(*(column.to_pylist() for column in rows.columns), strict=True)]


def refused(lake: OpenLake, query: str, **relations: Any) -> set[str]:
    """The SQLSTATEs with which a query is refused in a transaction, and at the newest version."""
    with lake.transaction(read_only=True) as tx, refused_in(tx, LockstepError) as first:
        tx.sql(query, **relations)
    with pytest.raises(LockstepError) as second:
        lake.at().sql(query, **relations)
    return {first.value.sqlstate, second.value.sqlstate}


@pytest.mark.parametrize(
    ("one", "other"), [("main.m", "m"), ("m", '"M"'), ("n.t", "N.t"), ('"default".m', "main.m"), ("main.m", '"M"')]
)
def test_two_tables_of_one_name_in_a_query_are_refused(alike: OpenLake, one: str, other: str) -> None:
    for first, second in ((one, other), (other, one)):
        assert refused(alike, f"SELECT (SELECT a FROM {first}) AS x, (SELECT a FROM {second}) AS y") == {"42702"}


def test_tables_in_queries_of_their_own_are_not(alike: OpenLake) -> None:
    for number, name in enumerate(("m", '"M"', "main.m", "n.t", "N.t")):
        assert answers(alike, f"SELECT x.a, y.a FROM {name} x, {name} y") == [[number, number]]
    assert answers(alike, 'SELECT x.a, y.a FROM m x, "default".m y') == [[0, 0]]


def test_what_is_only_a_part_of_the_query_is_no_table(alike: OpenLake) -> None:
    assert answers(alike, "WITH m AS (SELECT a * 10 AS a FROM main.m) FROM m") == [[20]]
    assert answers(alike, 'WITH "M" AS (SELECT a + 7 AS a FROM m), u AS (FROM "M") SELECT u.a FROM u, other') == [[7]]
    assert answers(alike, "WITH RECURSIVE m AS (SELECT 1 AS a UNION ALL SELECT a + 1 FROM m WHERE a < 3) FROM m") == [
        [1],
        [2],
        [3],
    ]


def test_what_is_a_part_in_one_place_may_be_a_table_in_another(alike: OpenLake) -> None:
    mixed = "SELECT (WITH m AS (SELECT 5 AS a) SELECT a FROM m) AS part, (SELECT a FROM m) AS x"
    assert answers(alike, mixed) == [[5, 0]]
    assert refused(alike, f"{mixed}, (SELECT a FROM main.m) AS y") == {"42702"}


# --- relations beside tables ------------------------------------------------------------------------------------------


def test_a_relation_hides_a_bare_name_and_no_other(alike: OpenLake) -> None:
    hundred = pa.table({"a": [100]})
    assert answers(alike, "FROM m", m=hundred) == [[100]]
    assert answers(alike, 'SELECT x.a, y.a FROM "default".m x, m y', m=hundred) == [[0, 100]]
    assert answers(alike, 'SELECT x.a, y.a FROM m x, "default".m y', m=hundred) == [[100, 0]]
    assert answers(alike, "SELECT x.a, y.a FROM n.t x, t y", t=hundred) == [[3, 100]]
    for query in ("FROM main.m", "FROM main.m x, m y"):  # to DuckDB, rows that are given are in `main`
        assert refused(alike, query, M=hundred) == {"42702"}
    with alike.transaction(read_only=True) as tx, pytest.raises(UndefinedError):
        tx.sql('FROM "default".nosuch', nosuch=hundred)


def test_a_relation_hides_what_duckdb_takes_for_its_name(alike: OpenLake) -> None:
    assert answers(alike, "FROM OTHER", other=pa.table({"a": [100]})) == [[100]]
    assert answers(alike, "FROM other", OTHER=pa.table({"a": [100]})) == [[100]]


def test_relations_have_names_of_their_own(alike: OpenLake) -> None:
    one = pa.table({"a": [1]})
    assert refused(alike, "FROM r", r=one, R=one) == {"42702"}
    assert refused(alike, "FROM other", __lockstep_0=one) == {"42939"}


# --- namespaces that are called as a database of DuckDB's -------------------------------------------------------------


@pytest.mark.parametrize("namespace", ["temp", "memory", "Temp"])
def test_a_namespace_called_as_a_database_of_duckdb_is_read_by_its_whole_name(lake: OpenLake, namespace: str) -> None:
    """By the short one DuckDB does not know which is meant, and says the whole one."""
    with lake.transaction() as tx:
        tx.create_namespace(namespace)
        tx.create(f"{namespace}.t", pa.schema([("a", pa.int64())])).append({"a": [1]})
    assert refused(lake, f"FROM {namespace}.t", t=_table("a")) == {"42703"}
    assert answers(lake, f"FROM memory.{namespace}.t", t=pa.table({"a": [9]})) == [[1]]
    with lake.transaction() as tx, refused_in(tx, InvalidError, "several parts in one pair"):
        tx.sql("FROM memory.other.t")
    with duckdb.connect() as connection:
        lake.at().duckdb(connection)
        assert connection.sql(f"FROM memory.{namespace}.t").fetchall() == [(1,)]


def test_a_database_of_duckdb_may_be_called_as_a_namespace(lake: OpenLake, tmp_path: Path) -> None:
    with lake.transaction() as tx:
        tx.create_namespace("sales")
        tx.create("sales.t", pa.schema([("a", pa.int64())])).append({"a": [1]})
    with duckdb.connect(tmp_path / "sales.duckdb") as connection:
        lake.at().duckdb(connection)
        assert connection.sql("FROM sales.sales.t").fetchall() == [(1,)]


@pytest.mark.parametrize("query", ["SELECT no_such(1)", "FROM no_such(1)", "SELECT id FROM t WHERE no_such(id) > 1"])
def test_a_function_that_duckdb_has_not_is_no_table(table: OpenLake, query: str) -> None:
    assert refused(table, query) == {"42883"}
