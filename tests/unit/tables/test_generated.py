"""Generated columns: their values follow from the other columns, or are checked; what is not certain is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from typing import Any

import pyarrow as pa
import pytest

from lockstep.delta.snapshot import read_snapshot
from lockstep.errors import InvalidError, LockstepError, UnsupportedError
from lockstep.tables.generated import in_duckdb
from lockstep.tables.layout import with_features
from lockstep.tables.opened import OpenLake
from lockstep.tables.schema import delta_struct
from lockstep.tables.transaction import LakeTransaction
from tests.support.generated_columns import BASE, EXPRESSIONS
from tests.support.lakes import named, stage
from tests.support.refused import refused_in

KEY = "delta.generationExpression"
COLUMNS = {"year": ("YEAR(y)", "integer"), "twice": ("id * 2", "long")}
OTHERS = {field["name"]: field["type"] for field in delta_struct(BASE)["fields"]}


def known(expression: str, type_: str) -> str | None:
    return in_duckdb({"name": "c", "type": type_, "metadata": {KEY: expression}}, OTHERS)


def test_what_is_certain_has_the_type_of_its_column() -> None:
    found = {text for text, type_ in EXPRESSIONS.items() if known(text, type_)}
    assert found == set(EXPRESSIONS)
    assert not [text for text, type_ in EXPRESSIONS.items() if known(text, "binary" if type_ != "binary" else "long")]


UNKNOWN = {
    "CAST(z AS DATE)": "date",
    "YEAR(z)": "integer",
    "DATE_TRUNC('DAY', n)": "timestamp_ntz",
    "date_format(y, 'yyyy-MM')": "string",
    "CAST(n AS STRING)": "string",
    "CAST(x AS INT)": "integer",
    "CAST(x AS DATE)": "date",
    "CAST(g AS INT)": "integer",
    "CAST(g AS STRING)": "string",
    "CAST(i AS VARCHAR(3))": "string",
    "YEAR(x)": "integer",
    "i / 2": "double",
    "i DIV 2": "long",
    "i % 2": "integer",
    "g + 1": "double",
    "id + 2147483648": "long",
    "upper(x)": "string",
    "trim(x)": "string",
    "SUBSTRING(x, 0, 2)": "string",
    "SUBSTRING(x, -2)": "string",
    "SUBSTRING(x, i, 2)": "string",
    "SUBSTRING(x, 1, -1)": "string",
    "SUBSTRING(i, 1, 1)": "string",
    "x || i": "string",
    "x || '\\\\n'": "string",
    'x || "a"': "string",
    "x || 'it''s'": "string",
    "x || 'it' 's'": "string",
    "x || '${a}'": "string",
    "CAST(i AS TEXT)": "string",
    "CAST(i AS INT8)": "long",
    "concat(x, 'a',)": "string",
    "length(x) AS n": "integer",
    "concat(x)": "string",
    "coalesce(x, 'a')": "string",
    "i > 1": "boolean",
    "hash(x)": "integer",
    "other": "long",
    "t.i": "integer",
    "CASE WHEN i > 1 THEN 1 ELSE 2 END": "integer",
    "current_date()": "date",
    "1 +": "integer",
    "NULL": "string",
    "id" + " + 1" * 2000: "long",
}


def test_what_is_not_certain_is_not_computed() -> None:
    assert not [text for text, type_ in UNKNOWN.items() if known(text, type_) is not None]


def with_generated(lake: OpenLake, expressions: dict[str, tuple[str, str]], **more: Any) -> None:
    """Make a table with generated columns, as Spark says them."""
    columns = pa.schema([("id", pa.int64()), ("x", pa.string()), ("y", pa.date32())])
    with lake.transaction() as tx:
        tx.create("t", columns, **more)
    table = lake.catalog.database().tables[named("t")]
    before = read_snapshot(lake.catalog.lake.storage, table.location, table.version)
    schema = json.loads(before.metadata["schemaString"])
    schema["fields"] += [
        {"name": name, "type": type_, "nullable": True, "metadata": {KEY: text}}
        for name, (text, type_) in expressions.items()
    ]
    core = lake.catalog.begin()
    protocol = {"protocol": with_features(before.protocol, {"generatedColumns"})}
    metadata = {"metaData": {**before.metadata, "schemaString": json.dumps(schema)}}
    stage(lake.catalog, core, "t", protocol, metadata, operation="ADD COLUMNS")
    lake.catalog.commit(core)


@pytest.fixture
def generated(lake: OpenLake) -> OpenLake:
    """A lake with a table of two generated columns."""
    with_generated(lake, COLUMNS)
    return lake


def rows(tx: LakeTransaction) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in tx["t"].to_arrow(["id", "year", "twice"]).sort_by("id").to_pylist()]


def test_values_follow_from_the_other_columns(generated: OpenLake) -> None:
    day, later = date(1969, 12, 31), date(2026, 3, 2)
    with generated.transaction() as tx:
        t = tx["t"]
        t.append({"id": [2, 1, None], "y": [later, day, None]})
        assert rows(tx) == [(1, 1969, 2), (2, 2026, 4), (None, None, None)]
        t.append({"id": [3], "year": [None], "twice": [6]})
        assert t.update({"y": "DATE '2000-01-01'"}, "id = 1") == 1
        assert t.update({"id": "id + 3", "twice": "(id + 3) * 2"}, "id = 2") == 1
        t.delete("id IS NULL")
        assert rows(tx) == [(1, 2000, 2), (3, None, 6), (5, 2026, 10)]
        merge = t.merge({"id": [3, 7], "x": ["a", "b"], "y": [later, day]}, on="id")
        assert merge.when_matched_update_all().when_not_matched_insert_all().execute() == (1, 1, 0)
        merge = t.merge({"id": [8], "y": [later]}, on="id")
        merge.when_not_matched_insert({"id": "source.id"}).when_not_matched_by_source_update({"y": "NULL"}).execute()
        assert rows(tx) == [(1, None, 2), (3, None, 6), (5, None, 10), (7, None, 14), (8, None, 16)]
        t.overwrite({"id": [4], "y": [later]})
        assert rows(tx) == [(4, 2026, 8)]
        t.overwrite({"twice": [None, None]})
        assert rows(tx) == [(None, None, None)] * 2


WRONG: list[Callable[[LakeTransaction], Any]] = [
    lambda tx: tx["t"].append({"id": [1], "twice": [3]}),
    lambda tx: tx["t"].append({"id": [1, 2], "twice": [2, None]}),
    lambda tx: tx["t"].append({"id": [None], "twice": [0]}),
    lambda tx: tx["t"].overwrite({"y": [date(2026, 1, 1)], "year": [2025]}),
    lambda tx: tx["t"].update({"twice": "7"}),
    lambda tx: tx["t"].merge({"id": [5], "n": [1]}, on="id").when_matched_update({"twice": "source.n"}).execute(),
    lambda tx: tx["t"].merge({"id": [6]}, on="id").when_not_matched_insert({"id": "9", "twice": "1"}).execute(),
]


def test_values_that_rows_bring_are_checked(generated: OpenLake) -> None:
    with generated.transaction() as tx:
        tx["t"].append({"id": [5]})
        for number, change in enumerate(WRONG):
            with refused_in(tx, InvalidError, match="GENERATED ALWAYS AS") as refused:
                change(tx)
            assert refused.value.sqlstate == "23514", number
        assert rows(tx) == [(5, None, 10)]


REFUSED: list[tuple[Callable[[LakeTransaction], Any], type[LockstepError]]] = [
    (lambda tx: tx["t"].append({"id": [2**62]}), InvalidError),  # it overflows
    (lambda tx: tx["t"].update({"id": "4611686018427387904"}), InvalidError),
    (
        lambda tx: (
            tx["t"]
            .merge({"id": [5]}, on="id")
            .when_matched_update({"twice": "10"}, "target.x IS NULL")
            .when_matched_update({"id": "6"})
            .execute()
        ),
        UnsupportedError,
    ),
    (lambda tx: tx["t"].alter.rename_column("id", "other"), UnsupportedError),
    (lambda tx: tx["t"].alter.rename_column("year", "other"), UnsupportedError),
    (lambda tx: tx["t"].alter.drop_columns("y"), UnsupportedError),
    (lambda tx: tx["t"].alter.drop_columns("year"), UnsupportedError),
]


def test_what_cannot_be(lake: OpenLake) -> None:
    with_generated(lake, COLUMNS, properties={"delta.columnMapping.mode": "name"})
    with lake.transaction() as tx:
        tx["t"].append({"id": [5]})
        for change, kind in REFUSED:
            with refused_in(tx, kind):
                change(tx)
        assert rows(tx) == [(5, None, 10)]


@pytest.mark.parametrize(
    ("expression", "more", "words"),
    [
        (("upper(x)", "string"), {}, r"generatedColumns \(c: upper\(x\)\), which only Spark computes"),
        (("id * 2", "integer"), {}, r"c: id \* 2"),
        (("id * 2", "long"), {"partition_by": "x"}, "partitions by texts"),
    ],
)
def test_other_generated_columns_are_refused_by_name(
    lake: OpenLake, expression: tuple[str, str], more: dict[str, Any], words: str
) -> None:
    with_generated(lake, {"c": expression}, **more)
    changes: list[Callable[[LakeTransaction], Any]] = [
        lambda tx: tx["t"].append({"id": [1]}),
        lambda tx: tx["t"].delete(),
        lambda tx: tx["t"].update({"id": "1"}),
    ]
    with lake.transaction() as tx:
        for change in changes:
            with refused_in(tx, UnsupportedError, match=words):
                change(tx)
