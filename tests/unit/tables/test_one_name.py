"""Names that are two here and one to DuckDB, which ignores case: refused, and not taken for one another."""

from __future__ import annotations

import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from lockstep.errors import InvalidError
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
