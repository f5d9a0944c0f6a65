"""Statistics never leave a row out: whatever the rows, each lies within the bounds that a file's say."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.delta.pruning.predicates import FileValues, may_match
from lockstep.tables.statistics import statistics
from lockstep.tables.writing import _parquet

pytestmark = pytest.mark.long


def of(column: list[Any], type_: pa.DataType, *, columns: int = 32) -> dict[str, Any]:
    """Return the statistics of a file of one column c."""
    text = statistics(pa.table({"c": pa.array(column, type_)}), columns=columns)
    decoded: dict[str, Any] = json.loads(text, parse_float=Decimal)
    return decoded


@pytest.mark.parametrize(
    ("column", "type_", "low", "high"),
    [
        ([3, None, -1], pa.int64(), -1, 3),
        ([-(2**63), 2**63 - 1], pa.int64(), -(2**63), 2**63 - 1),
        ([1.5, -0.25], pa.float64(), Decimal("-0.25"), Decimal("1.5")),
        ([Decimal("0.0000001"), Decimal("-1.5")], pa.decimal128(38, 7), Decimal("-1.5000000"), Decimal("0.0000001")),
        ([Decimal(10**37)], pa.decimal128(38, 0), 10**37, 10**37),
        (["b", "a"], pa.string(), "a", "b"),
        (["a" * 32], pa.string(), "a" * 32, "a" * 32),
        (["a" * 33], pa.string(), "a" * 32, "a" * 32 + "\U0010ffff"),
        (["\U0001f600" * 40], pa.string(), "\U0001f600" * 32, "\U0001f600" * 32 + "\U0010ffff"),
        ([date(1, 1, 1), date(9999, 12, 31)], pa.date32(), "0001-01-01", "9999-12-31"),
        (
            [datetime(2024, 1, 31, 23, 59, 59, 123456, UTC)],
            pa.timestamp("us", "UTC"),
            "2024-01-31T23:59:59.123Z",
            "2024-01-31T23:59:59.124Z",
        ),
        (
            [datetime(1969, 12, 31, 23, 59, 59, 999999)],
            pa.timestamp("us"),
            "1969-12-31T23:59:59.999",
            "1970-01-01T00:00:00.000",
        ),
        ([datetime(2024, 1, 1)], pa.timestamp("us"), "2024-01-01T00:00:00.000", "2024-01-01T00:00:00.000"),
    ],
)
def test_bounds(column: list[Any], type_: pa.DataType, low: Any, high: Any) -> None:
    stats = of(column, type_)
    assert stats["minValues"] == {"c": low}
    assert stats["maxValues"] == {"c": high}
    assert stats["numRecords"] == len(column)
    assert stats["nullCount"] == {"c": column.count(None)}


@pytest.mark.parametrize(
    ("column", "type_"),
    [
        ([1.0, float("nan")], pa.float64()),
        ([1.0, float("inf")], pa.float32()),
        ([True, False], pa.bool_()),
        ([b"a"], pa.binary()),
        ([None, None], pa.int32()),
        ([], pa.string()),
    ],
)
def test_no_bounds_where_none_are_to_be_said(column: list[Any], type_: pa.DataType) -> None:
    stats = of(column, type_)
    assert not stats.keys() & {"minValues", "maxValues"}
    assert stats["nullCount"] == {"c": column.count(None)}


def test_no_maximum_where_no_text_is_greater() -> None:
    stats = of(["a" * 32 + "\U0010ffff" * 2], pa.string())
    assert stats["minValues"] == {"c": "a" * 32}
    assert "maxValues" not in stats


def test_days_that_python_has_not_have_no_bounds() -> None:
    days = pa.array([3_000_000], pa.int32()).cast(pa.date32())
    assert "minValues" not in json.loads(statistics(pa.table({"c": days}), columns=32))
    moments = pa.array([-(2**62)], pa.int64()).cast(pa.timestamp("us", "UTC"))
    assert "minValues" not in json.loads(statistics(pa.table({"c": moments}), columns=32))
    last = datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)
    assert "maxValues" not in of([last], pa.timestamp("us", "UTC"))


def test_a_field_of_a_struct_that_is_null_is_null() -> None:
    type_ = pa.struct([("a", pa.int32()), ("b", pa.struct([("c", pa.string())]))])
    stats = of([{"a": 1, "b": {"c": "x"}}, {"a": None, "b": None}, None], type_)
    assert stats["nullCount"] == {"c": {"a": 2, "b": {"c": 2}}}
    assert stats["minValues"] == stats["maxValues"] == {"c": {"a": 1, "b": {"c": "x"}}}


def test_a_slice_says_nothing_of_the_rows_beside_it() -> None:
    type_ = pa.struct([("a", pa.int32())])
    rows = pa.table({"c": pa.array([{"a": 1}, {"a": 5}, None, {"a": 9}], type_)}).slice(1, 2)
    stats = json.loads(statistics(rows, columns=32))
    assert stats == {
        "numRecords": 2,
        "minValues": {"c": {"a": 5}},
        "maxValues": {"c": {"a": 5}},
        "nullCount": {"c": {"a": 1}},
    }


def test_only_so_many_columns_have_statistics_those_of_structs_one_by_one() -> None:
    rows = pa.table({"a": [1], "b": pa.array([{"x": 1, "y": 2}]), "l": pa.array([[1]]), "d": [4]})
    assert json.loads(statistics(rows, columns=2))["minValues"] == {"a": 1, "b": {"x": 1}}
    assert json.loads(statistics(rows, columns=4))["minValues"] == {"a": 1, "b": {"x": 1, "y": 2}}
    assert json.loads(statistics(rows, columns=-1))["nullCount"] == {"a": 0, "b": {"x": 0, "y": 0}, "d": 0}
    assert json.loads(statistics(rows, columns=0)) == {"numRecords": 1}


# --- whatever the rows ------------------------------------------------------------------------------------------------

TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "int32": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "string": (pa.string(), st.text(max_size=80) | st.text("a\uffff\U0010ffff\x00é", min_size=28, max_size=40)),
    "date": (pa.date32(), st.dates()),
    "timestamp": (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC))),
    "timestamp_ntz": (pa.timestamp("us"), st.datetimes()),
    "decimal": (pa.decimal128(20, 4), st.decimals(-(10**15), 10**15, places=4, allow_nan=False)),
    "double": (pa.float64(), st.floats()),
    "float": (pa.float32(), st.floats(width=32)),
}


def within(value: Any, low: Any, high: Any, kind: str) -> bool:
    """Tell whether a value lies between two bounds as JSON has them, by the order of Delta's readers."""
    if kind == "string":
        return (low is None or low.encode() <= value.encode()) and (high is None or value.encode() <= high.encode())
    if kind == "date":
        low, high = (None if each is None else date.fromisoformat(each) for each in (low, high))
    elif kind.startswith("timestamp"):
        low, high = (None if each is None else datetime.fromisoformat(each) for each in (low, high))
    elif kind in ("double", "float"):
        low, high = (None if each is None else float(each) for each in (low, high))
    return (low is None or low <= value) and (high is None or value <= high)


@pytest.mark.parametrize("kind", TYPES)
@given(data=st.data())
def test_each_value_lies_within_the_bounds(kind: str, data: st.DataObject) -> None:
    type_, values = TYPES[kind]
    column = data.draw(st.lists(st.none() | values, max_size=12))
    stats = of(column, type_)
    present = [value for value in pa.array(column, type_).to_pylist() if value is not None]
    assert stats["numRecords"] == len(column)
    assert stats["nullCount"]["c"] == len(column) - len(present)
    low, high = (stats.get(end, {}).get("c") for end in ("minValues", "maxValues"))
    assert all(within(value, low, high, kind) for value in present)


def test_what_a_file_says_itself_is_what_its_rows_say() -> None:
    """Bounds are computed once, by who writes the file, whatever lies between the columns that it has them of."""

    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        drawn = data.draw(st.lists(st.sampled_from(list(TYPES)), min_size=1, max_size=5))
        count = data.draw(st.integers(1, 12))
        columns = {}
        for number, kind in enumerate(drawn):
            type_, values = TYPES[kind]
            column = pa.array(data.draw(st.lists(st.none() | values, min_size=count, max_size=count)), type_)
            if data.draw(st.booleans()):
                columns[f"nested{number}"] = pa.array([{"a": [number], "b": {"c": "x"}}] * count)
            columns[f"nested{number}.a" if number else "c"] = column
        rows = pa.table(columns)
        _, known = _parquet(rows)
        assert json.loads(statistics(rows, columns=-1, known=known)) == json.loads(statistics(rows, columns=-1))

    check()


def test_a_file_says_the_bounds_of_all_its_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    write = pq.write_table
    monkeypatch.setattr(pq, "write_table", lambda *args, **more: write(*args, row_group_size=2, **more))
    _, known = _parquet(
        pa.table({"a": [5, 1, 9, 7, 3], "s": ["m", "z", None, None, "a"], "t": ["x", "y", "z", "b", "c"]})
    )
    assert {name: (low.as_py(), high.as_py()) for name, (low, high) in known.items()} == {"a": (1, 9), "t": ("b", "z")}


def test_a_name_with_a_dot_is_of_no_field_of_a_struct() -> None:
    """Else the file would have bounds of the field, which leave out NaN, and with it Spark would leave out the row."""
    rows = pa.table({"a.b": [1.0, 2.0], "a": [{"b": 1.0}, {"b": math.nan}]})
    data, known = _parquet(rows)
    said = pq.read_metadata(pa.BufferReader(data))
    assert [said.row_group(0).column(leaf).is_stats_set for leaf in range(said.num_columns)] == [False, False]
    assert json.loads(statistics(rows, columns=-1, known=known))["maxValues"] == {"a.b": 2.0}


def literals(kind: str, values: list[Any]) -> Iterator[str]:
    for value in values:
        if kind == "string" and "\\" not in value:
            yield "'{}'".format(value.replace("'", "\\'"))
        elif kind in ("int32", "int64"):
            yield str(value)
        elif kind == "date":
            yield f"DATE '{value.isoformat()}'"


@pytest.mark.parametrize("kind", ["int64", "string", "date"])
@given(data=st.data())
def test_no_file_is_left_out_that_has_the_row(kind: str, data: st.DataObject) -> None:
    type_, values = TYPES[kind]
    column = data.draw(st.lists(values, min_size=1, max_size=8))
    file = FileValues(partition={}, stats=statistics(pa.table({"c": pa.array(column, type_)}), columns=32))
    assert all(may_match(f"(`c` = {literal})", file) for literal in literals(kind, column))
