"""Rows as a program gives them: nothing of them is lost without a word, and nothing unreadable is committed."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import arro3.core
import polars as pl
import pyarrow as pa
import pytest

from lockstep.errors import InvalidError, LockstepError
from lockstep.tables.opened import OpenLake
from lockstep.tables.transaction import LakeTransaction
from tests.support.refused import refused_in

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])


def rows_of(lake: OpenLake) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in lake.at()["t"].to_arrow().to_pylist()), key=repr)


@pytest.fixture
def table(lake: OpenLake) -> OpenLake:
    """A lake with an empty table."""
    with lake.transaction() as tx:
        tx.create("t", SCHEMA)
    return lake


def append(tx: LakeTransaction, rows: Any) -> None:
    tx["t"].append(rows)


def overwrite(tx: LakeTransaction, rows: Any) -> None:
    tx["t"].overwrite(rows)


def merge(tx: LakeTransaction, rows: Any) -> None:
    tx["t"].merge(rows, on="id").when_matched_update_all().when_not_matched_insert_all().execute()


WAYS = [append, overwrite, merge]


@pytest.mark.parametrize("put", WAYS)
def test_dictionaries_have_the_columns_of_all_of_them(table: OpenLake, put: Any) -> None:
    with table.transaction() as tx:
        put(tx, [{"id": 1}, {"id": 2, "v": 5}, {"v": None, "id": 3}])
    assert rows_of(table) == [(1, None), (2, 5), (3, None)]


@pytest.mark.parametrize("put", [append, overwrite])
def test_an_empty_dictionary_is_a_row_of_nulls(table: OpenLake, put: Any) -> None:
    with table.transaction() as tx:
        put(tx, [{}, {"id": 1}])
        append(tx, [{}, {}])
        append(tx, [])
    assert rows_of(table) == [(1, None), (None, None), (None, None), (None, None)]


@pytest.mark.parametrize("put", [append, overwrite])
def test_a_name_that_only_a_later_dictionary_has_is_looked_at(table: OpenLake, put: Any) -> None:
    with pytest.raises(InvalidError, match="no column 'nosuch'") as refused, table.transaction() as tx:
        put(tx, [{"id": 1}, {"id": 2, "nosuch": None}])
    assert refused.value.sqlstate == "42703"
    assert rows_of(table) == []


@pytest.mark.parametrize("rows", [[{"id": 1}, 7], ["text"], [{"id": 1}, None], [{7: 1}], [{"id": 1}, {"id": "x"}]])
def test_lists_that_are_no_rows(table: OpenLake, rows: Any) -> None:
    with pytest.raises(InvalidError) as refused, table.transaction() as tx:
        append(tx, rows)
    assert refused.value.sqlstate == "42804"


# --- texts that are none ----------------------------------------------------------------------------------------------

_BAD = b"a\xff\xfe"


def _bad(type_: pa.DataType) -> pa.Array:
    plain = pa.array([b"good", _BAD], pa.large_binary() if type_ == pa.large_string() else pa.binary())
    return pa.Array.from_buffers(type_, 2, plain.buffers())


BROKEN: dict[str, tuple[pa.DataType, pa.Array]] = {
    "string": (pa.string(), _bad(pa.string())),
    "large": (pa.string(), _bad(pa.large_string())),
    "dictionary": (pa.string(), pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), _bad(pa.string()))),
    "struct": (
        pa.struct([("x", pa.string())]),
        pa.StructArray.from_arrays([_bad(pa.string())], fields=[pa.field("x", pa.string())]),
    ),
    "list": (pa.list_(pa.string()), pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), _bad(pa.string()))),
    "map": (
        pa.map_(pa.string(), pa.int64()),
        pa.MapArray.from_arrays(pa.array([0, 1, 2], pa.int32()), _bad(pa.string()), pa.array([1, 2], pa.int64())),
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
@pytest.mark.parametrize("put", WAYS)
def test_a_text_that_is_no_utf8_is_refused_before_anything_is_written(lake: OpenLake, kind: str, put: Any) -> None:
    type_, values = BROKEN[kind]
    with lake.transaction() as tx:
        tx.create("t", pa.schema([("id", pa.int64()), ("s", type_)]))
    with pytest.raises(InvalidError) as refused, lake.transaction() as tx:
        put(tx, pa.table({"id": [1, 2], "s": values}))
    assert refused.value.sqlstate == "22021"
    assert lake.at()["t"].version == 0
    assert rows_of(lake) == []


@pytest.mark.parametrize("put", WAYS)
def test_a_day_with_a_time_is_no_text(lake: OpenLake, put: Any) -> None:
    with lake.transaction() as tx:
        tx.create("t", pa.schema([("id", pa.int64()), ("s", pa.date32())]))
    days = pa.array([1, 86_400_001], pa.int64()).view(pa.date64())
    with pytest.raises(InvalidError, match="whole number of days") as refused, lake.transaction() as tx:
        put(tx, pa.table({"id": [1, 2], "s": days}))
    assert refused.value.sqlstate == "42804"
    assert rows_of(lake) == []


# --- what Arrow, Parquet and other readers do not take ----------------------------------------------------------------


@pytest.mark.parametrize("kind", ["DATE", "TIMESTAMP"])
@pytest.mark.parametrize("text", ["infinity", "-infinity", "10000-01-01", "0044-03-15 (BC)"])
def test_times_outside_of_the_years_that_all_readers_have(lake: OpenLake, kind: str, text: str) -> None:
    type_ = pa.date32() if kind == "DATE" else pa.timestamp("us")
    with lake.transaction() as tx:
        tx.create("t", pa.schema([("id", pa.int64()), ("d", type_), ("l", pa.list_(type_))])).append([{"id": 1}])
        far = tx.sql(f"SELECT 1::BIGINT AS id, '{text}'::{kind} AS d")
        for change in (
            lambda: tx["t"].append(far),
            lambda: tx["t"].update({"d": f"'{text}'::{kind}"}),
            lambda: tx["t"].update({"l": f"['{text}'::{kind}]"}),
            lambda: tx["t"].merge(far, on="id").when_matched_update({"d": "source.d"}).execute(),
        ):
            with refused_in(tx, InvalidError) as refused:
                change()
            assert refused.value.sqlstate == "22008"
    assert rows_of(lake) == [(1, None, None)]


def test_what_arrow_refuses_is_an_error_of_lockstep_s(lake: OpenLake) -> None:
    inner = pa.struct([pa.field("a", pa.int32(), nullable=False)])
    with lake.transaction() as tx:
        tx.create("t", pa.schema([("id", pa.int64()), ("s", pa.string()), ("x", inner)]))
    categories = pl.DataFrame({"s": pl.Series(["a"], dtype=pl.Categorical)})
    no_text: Any = False
    with lake.transaction() as tx:
        for change, sqlstate in (
            (lambda: tx["t"].append([{"x": None}, {"x": {"a": 1}}]), "23502"),
            (lambda: tx["t"].append([{"id": 1}]), "23502"),
            (lambda: tx["t"].append(categories), "42804"),
            (lambda: tx["t"].delete(no_text), "22023"),
        ):
            with refused_in(tx, LockstepError) as refused:
                change()
            assert refused.value.sqlstate == sqlstate
    assert rows_of(lake) == []


# --- an index of pandas -----------------------------------------------------------------------------------------------


def _frame(**columns: list[Any]) -> Any:
    import pandas as pd  # type: ignore[import-untyped]

    return pd.DataFrame(columns)


@pytest.mark.parametrize("put", WAYS)
def test_an_index_with_a_name_is_a_column(table: OpenLake, put: Any) -> None:
    with table.transaction() as tx:
        put(tx, _frame(id=[1, 2], v=[10, 20]).set_index("id"))
        append(tx, _frame(id=[3], v=[30]).set_index(["id", "v"]))
        append(tx, _frame(id=[4, 5], v=[40, 50])[1:])
        append(tx, _frame(id=[6], v=[60]).groupby("id").sum())
    assert rows_of(table) == [(1, 10), (2, 20), (3, 30), (5, 50), (6, 60)]


def test_an_index_whose_name_is_taken_or_no_column_s_is_refused(table: OpenLake) -> None:
    frame = _frame(id=[1], v=[10])
    with table.transaction() as tx:
        for index, sqlstate in (("id", "42804"), ("nosuch", "42703")):
            with refused_in(tx, InvalidError, index) as refused:
                append(tx, frame.rename_axis(index=index))
            assert refused.value.sqlstate == sqlstate
    assert rows_of(table) == []


# --- structs that columns are set to ----------------------------------------------------------------------------------

NESTED = pa.schema(
    [
        ("id", pa.int64()),
        ("st", pa.struct([("a", pa.int64()), ("In", pa.struct([("x", pa.int64())]))])),
        ("ls", pa.list_(pa.struct([("a", pa.int64())]))),
        ("m", pa.map_(pa.string(), pa.struct([("a", pa.int64())]))),
    ]
)


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("st", "{'b': 1}"),
        ("st", "{'a': 1, 'b': 1}"),
        ("st", "{'a': 1, 'In': {'y': 1}}"),
        ("st", "row(1, {'x': 1})"),
        ("ls", "[{'b': 1}]"),
        ("m", "MAP {'k': {'b': 1}}"),
    ],
)
def test_a_struct_with_a_field_that_the_column_has_not_is_refused(lake: OpenLake, column: str, text: str) -> None:
    with lake.transaction() as tx:
        t = tx.create("t", NESTED)
        t.append({"id": [1]})
        source = tx.sql(f"SELECT 1::BIGINT AS id, {text} AS {column}")
        for change in (
            lambda: t.update({column: text}),
            lambda: t.merge(source, on="id").when_matched_update({column: f"source.{column}"}).execute(),
            lambda: t.merge(source, on="st.a").when_not_matched_insert({column: text}).execute(),
            lambda: t.merge({"id": [7]}, on="id").when_not_matched_by_source_update({column: text}).execute(),
        ):
            with refused_in(tx, InvalidError):
                change()
    assert rows_of(lake) == [(1, None, None, None)]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{'A': 1, 'in': {'X': 2}}", {"a": 1, "In": {"x": 2}}),
        ("{'a': 1}", {"a": 1, "In": None}),
        ("NULL", None),
        ("CASE WHEN id = 1 THEN st END", None),
    ],
)
def test_a_struct_with_fields_of_the_column_is_taken(lake: OpenLake, text: str, value: Any) -> None:
    with lake.transaction() as tx:
        t = tx.create("t", NESTED)
        t.append({"id": [1]})
        assert t.update({"st": text}) == 1
    assert lake.at()["t"].to_arrow(["st"]).column("st").to_pylist() == [value]


# --- rows that a merge puts in as they are ----------------------------------------------------------------------------

TYPED = pa.schema(
    [
        ("id", pa.int64()),
        ("n", pa.int32()),
        ("ts", pa.timestamp("us", "UTC")),
        ("d", pa.date32()),
        ("x", pa.decimal128(5, 2)),
        ("st", pa.struct([("a", pa.int32())])),
    ]
)
NOT_OF_THE_TYPE: dict[str, Any] = {
    "a fraction": ("n", [2.5], "42804"),
    "no room": ("n", [2**40], "22003"),
    "a text of a number": ("n", ["2"], "42804"),
    "no zone": ("ts", [datetime(2020, 1, 1)], "42804"),
    "a text of a day": ("d", ["2020-01-02"], "42804"),
    "more digits": ("x", [Decimal("1.005")], "22003"),
    "another field": ("st", [{"b": 1}], "42804"),
}


@pytest.mark.parametrize("kind", NOT_OF_THE_TYPE)
def test_a_merge_of_whole_rows_takes_the_values_that_append_takes(lake: OpenLake, kind: str) -> None:
    column, values, sqlstate = NOT_OF_THE_TYPE[kind]
    rows = pa.table({**{field.name: pa.nulls(1, field.type) for field in TYPED}, "id": [1], column: values})
    with lake.transaction() as tx:
        t = tx.create("t", TYPED)
        for change in (
            lambda: t.append({"id": [1], column: values}),
            lambda: t.merge(rows, on="id").when_not_matched_insert_all().execute(),
            lambda: t.merge(rows, on="id").when_matched_update_all().execute(),
        ):
            with refused_in(tx, InvalidError, column) as refused:
                change()
            assert refused.value.sqlstate == sqlstate
    assert rows_of(lake) == []


def test_a_merge_of_whole_rows_takes_types_that_say_the_same(lake: OpenLake) -> None:
    given = {
        "id": pa.array([1, 2], pa.int8()),
        "n": pa.array([3, 4], pa.uint16()),
        "ts": pa.array([datetime(2020, 1, 1, tzinfo=UTC)] * 2, pa.timestamp("s", "Europe/Berlin")),
        "d": pa.array([date(2020, 1, 2), None], pa.date64()),
        "x": pa.array([Decimal("1.5"), None], pa.decimal256(50, 1)),
        "st": pa.array([{"a": 1}, {"a": 2}], pa.struct([("a", pa.int64())])),
    }
    with lake.transaction() as tx:
        t = tx.create("t", TYPED)
        t.append({"id": [1], "st": [{"a": 7}]})
        merge = t.merge(pa.table(given), on="id").when_matched_update_all().when_not_matched_insert_all()
        assert merge.execute() == (1, 1, 0)
    noon = datetime(2020, 1, 1, tzinfo=UTC)
    assert rows_of(lake) == [
        (1, 3, noon, date(2020, 1, 2), Decimal("1.50"), {"a": 1}),
        (2, 4, noon, None, None, {"a": 2}),
    ]


def test_only_what_a_merge_puts_in_must_be_there(lake: OpenLake) -> None:
    inner = pa.struct([pa.field("a", pa.int32(), nullable=False)])
    with lake.transaction() as tx:
        t = tx.create("t", pa.schema([pa.field("id", pa.int64(), nullable=False), ("st", inner)]))
        rows = {"id": [1, None], "st": [{"a": 1}, None]}
        assert t.merge(rows, on="id").when_not_matched_insert_all("source.id IS NOT NULL").execute() == (1, 0, 0)
        with refused_in(tx, InvalidError) as refused:
            t.merge({"id": [1], "st": [None]}, on="id").when_matched_update_all().execute()
        assert refused.value.sqlstate == "23502"


def test_expressions_of_a_merge_are_still_cast(lake: OpenLake) -> None:
    with lake.transaction() as tx:
        t = tx.create("t", TYPED)
        merge = t.merge({"id": [1], "n": ["2"]}, on="id")
        assert merge.when_not_matched_insert({"id": "source.id", "n": "source.n"}).execute() == (1, 0, 0)
        assert t.to_arrow(["n"]).column("n").to_pylist() == [2]


@pytest.mark.parametrize("type_", [pa.int64(), pa.uint64(), pa.int8()])
def test_an_integer_is_taken_for_a_decimal_that_has_room_for_it(lake: OpenLake, type_: pa.DataType) -> None:
    for precision, scale in ((5, 2), (38, 35), (3, 0)):
        name = f"t{precision}"
        with lake.transaction() as tx:
            tx.create(name, pa.schema([("d", pa.decimal128(precision, scale))]))
            tx[name].append({"d": pa.array([0, 100, None], type_) if scale < 35 else pa.array([0, 99, None], type_)})
        found = lake.at()[name].to_arrow().column("d").to_pylist()
        assert found == [0, 100 if scale < 35 else 99, None]


@pytest.mark.parametrize("number", [1000, -1000, 2**63 - 1, -(2**63)])
def test_an_integer_that_a_decimal_has_no_room_for_is_refused(lake: OpenLake, number: int) -> None:
    with lake.transaction() as tx:
        table = tx.create("t", pa.schema([("d", pa.decimal128(5, 2))]))
        with pytest.raises(InvalidError, match="no room") as refused:
            table.append({"d": pa.array([number], pa.int64())})
        assert refused.value.sqlstate == "22003"
        tx.rollback()


# --- rows that a query names ------------------------------------------------------------------------------------------


class Once:
    """Rows that are given once: whoever asks again is given none."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows.to_reader()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._rows.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize("kind", [Once, arro3.core.RecordBatchReader.from_arrow, arro3.core.Table.from_arrow])
def test_rows_of_others_are_the_same_wherever_a_query_names_them(table: OpenLake, kind: Any) -> None:
    """As those that delta-rs gives, of which DuckDB would find none where it looks again, or could not look."""
    rows = pa.table({"id": [1, 2]})
    query = "SELECT count(*) AS n, (SELECT count(*) FROM news) AS again FROM news"
    with table.transaction(read_only=True) as tx:
        assert tx.sql(query, news=kind(rows)).to_pylist() == [{"n": 2, "again": 2}]
    assert table.at().sql(query, news=kind(rows)).to_pylist() == [{"n": 2, "again": 2}]
