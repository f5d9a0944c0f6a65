"""Columns whose types Spark widened, in tables that Python writes: old files and new ones, to both."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lockstep
from lockstep.tables.opened import OpenLake

pytestmark = pytest.mark.long

INTS = {"TINYINT": 2**7, "SMALLINT": 2**15, "INT": 2**31, "BIGINT": 2**63}
FROM_DAY, TO_DAY = dt.date(1600, 1, 1), dt.date(9999, 12, 31)
NEW_TIME = dt.datetime.fromisoformat("2024-02-29 23:59:59.999999")

PAIRS: dict[tuple[str, str], tuple[list[Any], Any]] = {
    **{(given, "DECIMAL(10,0)"): ([-INTS[given], INTS[given] - 1], Decimal(7)) for given in list(INTS)[:3]},
    **{(given, "DECIMAL(14,4)"): ([-INTS[given], INTS[given] - 1], Decimal("7.5")) for given in list(INTS)[:3]},
    **{(given, "DOUBLE"): ([-INTS[given], INTS[given] - 1], 1e300) for given in list(INTS)[:3]},
    **{
        (given, taken): ([-INTS[given], INTS[given] - 1], INTS[taken] - 1)
        for given in INTS
        for taken in INTS
        if INTS[given] < INTS[taken]
    },
    ("BIGINT", "DECIMAL(20,0)"): ([-(2**63), 2**63 - 1], Decimal(10**20 - 1)),
    ("BIGINT", "DECIMAL(38,18)"): ([-(2**63), 2**63 - 1], Decimal("0.000000000000000001")),
    ("FLOAT", "DOUBLE"): ([0.1, -1.5], 0.1),
    ("DECIMAL(5,2)", "DECIMAL(5,2)"): ([Decimal("-999.99"), Decimal("0.01")], Decimal(0)),
    ("DECIMAL(5,2)", "DECIMAL(10,4)"): ([Decimal("-999.99"), Decimal("0.01")], Decimal("0.0001")),
    ("DECIMAL(18,2)", "DECIMAL(38,10)"): ([Decimal("-1e15"), Decimal("0.01")], Decimal("1e27")),
    ("DATE", "TIMESTAMP_NTZ"): ([FROM_DAY, TO_DAY], NEW_TIME),
}  # fmt: skip
"""By type before and after: values of old files, and one of a new file."""

NAMES = {f"c{number}": pair for number, pair in enumerate(PAIRS)}
NESTED = "st STRUCT<a: TINYINT, b: STRING>, ls ARRAY<SMALLINT>, m MAP<INT, FLOAT>"
WIDER = {"st.a": "BIGINT", "ls.element": "INT", "m.key": "BIGINT", "m.value": "DOUBLE"}


@pytest.fixture
def lake(spark: Any, root: Path) -> OpenLake:
    """The session's lake, opened without Spark."""
    spark.sql("CREATE NAMESPACE lake.py")
    return lockstep.open(str(root))


def literal(value: Any, type_: str) -> str:
    if isinstance(value, dt.datetime):
        return f"TIMESTAMP_NTZ '{value.isoformat(sep=' ')}'"
    return f"CAST('{value}' AS {type_})"


def make(spark: Any, properties: str) -> None:
    """Make a table of narrow columns with two rows, partitioned by two of them; widen all of its columns."""
    columns = ", ".join(f"{name} {given}" for name, (given, _) in NAMES.items())
    spark.sql(
        f"CREATE TABLE lake.py.w (id BIGINT, {columns}, {NESTED}, p INT, q DATE) PARTITIONED BY (p, q) TBLPROPERTIES "
        f"(delta.enableTypeWidening = true, delta.feature.timestampNtz = 'supported'{properties})"
    )
    for at in (0, 1):
        values = ", ".join(literal(old[at], given) for (given, _), (old, _) in PAIRS.items())
        nested = f"named_struct('a', {at}Y, 'b', 'x'), array({at}S, null), map({at}, CAST(0.1 AS FLOAT))"
        spark.sql(
            f"INSERT INTO lake.py.w SELECT /*+ COALESCE(1) */ {at} + extra, {values}, {nested}, 7, DATE '2024-01-31' "
            "FROM VALUES (0), (10) AS t(extra)"
        )
    changes = {name: taken for name, (given, taken) in NAMES.items() if given != taken}
    said = ", ".join(f"{name} TYPE {taken}" for name, taken in (changes | WIDER).items())
    spark.sql(f"ALTER TABLE lake.py.w ALTER COLUMN {said}, p TYPE DECIMAL(12,2), q TYPE TIMESTAMP_NTZ")


def by_id(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=lambda row: row["id"])


def in_spark(spark: Any) -> list[dict[str, Any]]:
    return by_id(spark.table("lake.py.w").toArrow())


def in_python(lake: OpenLake) -> list[dict[str, Any]]:
    with lake.transaction(read_only=True) as tx:
        return by_id(tx["py.w"].to_arrow())


@pytest.mark.deep  # tests/unit/tables has it without Spark
@pytest.mark.parametrize("vectors", [True, pytest.param(False, marks=pytest.mark.deep)])
def test_widened_columns_are_read_and_written_by_both(spark: Any, lake: OpenLake, vectors: bool) -> None:
    make(spark, ", delta.enableDeletionVectors = true" if vectors else "")
    before = in_spark(spark)
    assert in_python(lake) == before
    for name, pair in NAMES.items():
        with lake.transaction(read_only=True) as tx:
            rows = tx["py.w"].to_arrow(["id"], where=f"{name} = {before[0][name]!r}" if "INT" in pair[1] else "id = 0")
            assert 0 in rows.column("id").to_pylist(), (name, pair)
    changed = told_of_changes(spark)
    new = {name: value for name, (_, value) in zip(NAMES, PAIRS.values(), strict=True)}
    nested = {"st": {"a": 2**40, "b": "y"}, "ls": [2**20], "m": [(2**40, 0.1)]}
    place = {"p": Decimal("7.25"), "q": NEW_TIME}
    with lake.transaction() as tx:
        t = tx["py.w"]
        schema = t.schema
        t.append(pa.Table.from_pylist([{"id": 20, **new, **nested, **place}, {"id": 21}], schema=schema))
        assert t.delete("id = 10") == 1
        assert t.update({"st": "{'a': 5, 'b': 'z'}"}, "id = 0") == 1
        merged = t.merge(pa.Table.from_pylist([{"id": 11, **new, **nested, **place}], schema=schema), on="id")
        assert merged.when_matched_update_all().execute() == (0, 1, 0)
    expected = [
        {**before[0], "st": {"a": 5, "b": "z"}},
        before[1],
        {"id": 11, **new, **nested, **place},
        {"id": 20, **new, **nested, **place},
        {**dict.fromkeys(schema.names), "id": 21},
    ]
    assert in_spark(spark) == expected
    assert in_python(lake) == expected
    for name, (_, taken) in NAMES.items():
        # One query a column, in which each value leaves files out by itself.
        queries = (
            f"SELECT {row['id']} AS wanted, id FROM lake.py.w WHERE {name} = {literal(row[name], taken)}"
            for row in expected[:4]
        )
        found = {tuple(row) for row in spark.sql(" UNION ALL ".join(queries)).collect()}
        assert {(row["id"], row["id"]) for row in expected[:4]} <= found, (name, taken)
    spark.sql("UPDATE lake.py.w SET c0 = 3 WHERE p = 7 AND id = 1")
    spark.sql("DELETE FROM lake.py.w WHERE q = TIMESTAMP_NTZ '2024-02-29 23:59:59.999999' AND id = 20")
    assert in_python(lake) == in_spark(spark) == [expected[0], {**expected[1], "c0": 3}, expected[2], expected[4]]
    assert told_of_changes(spark) == changed, "Python's commits keep what the schema tells of changes"


def told_of_changes(spark: Any) -> dict[str, Any]:
    return {f.name: f.metadata for f in spark.table("lake.py.w").schema}
