"""Types of columns that Spark widened: which changes are known, and what old files' values are then."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from deltalake.exceptions import DeltaError

from lockstep.delta.actions import Action
from lockstep.delta.snapshot import read_snapshot
from lockstep.errors import InvalidError, UnsupportedError
from lockstep.tables.opened import OpenLake
from lockstep.tables.partitions import array_of
from lockstep.tables.widening import is_widening, widened
from tests.support.lakes import metadata, named
from tests.support.python_tables import widen
from tests.support.refused import refused_in
from tests.unit.tables.test_refusals import field, layout

KNOWN = [
    ("byte", "short"), ("byte", "long"), ("short", "integer"), ("integer", "long"), ("byte", "double"),
    ("integer", "double"), ("float", "double"), ("date", "timestamp_ntz"), ("byte", "decimal(10,0)"),
    ("short", "decimal(12,2)"), ("integer", "decimal(38,28)"), ("long", "decimal(20,0)"), ("long", "decimal(38,18)"),
    ("decimal(5,2)", "decimal(5,2)"), ("decimal(5,2)", "decimal(6,2)"), ("decimal(5,2)", "decimal(7, 4)"),
    ("string", "string"),
]  # fmt: skip
UNKNOWN = [
    ("short", "byte"), ("long", "integer"), ("long", "double"), ("byte", "float"), ("double", "float"),
    ("date", "timestamp"), ("timestamp_ntz", "date"), ("byte", "decimal(3,0)"), ("integer", "decimal(10,1)"),
    ("long", "decimal(19,0)"), ("long", "decimal(20,1)"), ("decimal(5,2)", "decimal(5,3)"),
    ("decimal(5,2)", "decimal(5,1)"), ("decimal(5,2)", "decimal(4,2)"), ("integer", "string"), ("void", "long"),
    (None, "long"), ("integer", None), ({"type": "struct"}, "long"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "taken"), KNOWN)
def test_changes_that_the_protocol_has(given: str, taken: str) -> None:
    assert is_widening(given, taken)


@pytest.mark.parametrize(("given", "taken"), UNKNOWN)
def test_changes_that_it_has_not(given: Any, taken: Any) -> None:
    assert not is_widening(given, taken)


def told(change: Any) -> Action:
    return field(**{"delta.typeChanges": change})


def test_a_table_that_tells_of_an_unknown_change_is_neither_read_nor_written() -> None:
    """In a field of a struct too, and where it is not what the protocol says; whatever feature its protocol names."""
    tomorrow = [{"fromType": "integer", "toType": "long"}, {"fromType": "long", "toType": "string"}]
    for change in (tomorrow, "integer", ["integer"]):
        for features in ([], ["typeWidening"], ["typeWidening-preview"]):
            table = layout(features, told(change), features)
            for check in (table.check_readable, lambda table=table: table.check_writable(only_appends=True)):
                with pytest.raises(UnsupportedError, match=r"typeWidening \(id: "):
                    check()


@pytest.mark.parametrize("feature", ["typeWidening", "typeWidening-preview"])
def test_a_table_of_known_changes_is_read_and_written(feature: str) -> None:
    known = told([{"fromType": "integer", "toType": "long", "tableVersion": 3}])
    for table in (layout([feature], known, [feature]), layout([feature], metadata(), [feature])):
        table.check_readable()
        table.check_writable(only_appends=False)


def test_a_day_that_is_no_time_is_named() -> None:
    with pytest.raises(UnsupportedError, match="has a day in an older file that is no time"):
        widened(pa.array([2**31 - 1], pa.int32()).cast(pa.date32()), pa.timestamp("us"))
    with pytest.raises(pa.ArrowInvalid):
        widened(pa.array([2**40]), pa.int32())


PARTITIONS: list[tuple[str, pa.DataType, Any]] = [
    ("7", pa.int64(), 7),
    ("7", pa.decimal128(12, 2), Decimal(7)),
    ("7", pa.float64(), 7.0),
    ("0.1", pa.float64(), 0.1),
    ("1.0E10", pa.float64(), 1e10),
    ("-Infinity", pa.float64(), float("-inf")),
    ("1.25", pa.decimal128(10, 4), Decimal("1.25")),
    ("2024-01-31", pa.timestamp("us"), dt.datetime(2024, 1, 31)),
]


@pytest.mark.parametrize(("text", "type_", "value"), PARTITIONS)
def test_partition_values_from_before_a_change(text: str, type_: pa.DataType, value: Any) -> None:
    assert array_of(text, type_, 2).to_pylist() == [value, value]


def test_old_files_are_read_and_changed(lake: OpenLake) -> None:
    """By vectors, and written anew; types do not change by what is appended."""
    for name, properties in (("t", {}), ("v", {"delta.enableDeletionVectors": "true"})):
        with lake.transaction() as tx:
            narrow = pa.schema([("id", pa.int64()), ("n", pa.int32())])
            t = tx.create(name, narrow, properties=properties)
            t.append({"id": [1, 2, 3, 4], "n": [2**31 - 1, -1, None, 5]})
        widen(lake, name, n=("integer", "long"))
        with lake.transaction() as tx:
            t = tx[name]
            assert t.to_arrow(["id"], where="n = 2147483647").to_pylist() == [{"id": 1}]
            t.append({"id": [5], "n": [2**40]})
            assert t.delete("n = -1") == 1
            assert t.update({"n": f"n + {2**40}"}, "id = 1") == 1
            merge = t.merge({"id": [4, 6], "n": [2**41, 0]}, on="id")
            assert merge.when_matched_update_all().when_not_matched_insert_all().execute() == (1, 1, 0)
            for wrong in (pa.array([2**63], pa.uint64()), pa.array([0.5])):
                with refused_in(tx, InvalidError):
                    t.append({"id": [9], "n": wrong}, schema_mode="merge")
        with lake.transaction(read_only=True) as tx:
            found = {row["id"]: row["n"] for row in tx[name].to_arrow().to_pylist()}
        assert found == {1: 2**31 - 1 + 2**40, 3: None, 4: 2**41, 5: 2**40, 6: 0}
        with lake.transaction() as tx:
            tx[name].alter.set_column_comment("n", "wide")
            tx[name].alter.add_columns(pa.schema([("x", pa.int8())]))
        at = lake.catalog.database().tables[named(name)]
        schema = read_snapshot(lake.catalog.lake.storage, at.location, at.version).metadata["schemaString"]
        assert "delta.typeChanges" in schema, "what is told of changes stays"
        assert '"wide"' in schema
        read = {row["id"]: row["n"] for row in lake.at()[name].to_arrow().to_pylist()}
        assert read == found
        with pytest.raises(DeltaError, match="TypeWidening"):
            lake.at()[name].delta().scan()
