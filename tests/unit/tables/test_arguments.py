"""What the methods of tables without Spark are given: a wrong type is refused first, and names the argument."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import lockstep
from lockstep.errors import InvalidError
from lockstep.tables.altering import Alteration
from lockstep.tables.merging import Merge
from lockstep.tables.opened import OpenLake
from lockstep.tables.table import TransactionTable
from lockstep.tables.transaction import LakeTransaction
from lockstep.tables.version import LakeVersion, VersionTable

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
ROWS = {"id": [1], "v": ["a"]}
NEITHER = (7, b"a", True)

Call = Callable[[Any, Any], object]

WITH_VALUES = ("when_matched_update", "when_not_matched_insert", "when_not_matched_by_source_update")


def _conditions(name: str) -> Call:
    more = {"values": {"v": "'a'"}} if name in WITH_VALUES else {}
    return lambda tx, x: getattr(tx["t"].merge(ROWS, "id"), name)(**more, condition=x)


def _values(name: str) -> Call:
    return lambda tx, x: getattr(tx["t"].merge(ROWS, "id"), name)(x)


OF_LAKES: dict[str, tuple[Call, tuple[Any, ...]]] = {
    "open root": (lambda _, x: lockstep.open(x), NEITHER),
    "open create": (lambda _, x: lockstep.open("/nowhere", create=x), (1, "yes", None)),
    "open options": (lambda _, x: lockstep.open("/nowhere", options=x), NEITHER),
    "open author": (lambda _, x: lockstep.open("/nowhere", author=x), NEITHER),
    "open isolation": (lambda _, x: lockstep.open("/nowhere", isolation=x), (*NEITHER, None)),
    "open timeout": (lambda _, x: lockstep.open("/nowhere", timeout=x), ("1", b"a", True, None)),
    "open idle_timeout": (lambda _, x: lockstep.open("/nowhere", idle_timeout=x), ("1", b"a", True, None)),
    "open statement_timeout": (lambda _, x: lockstep.open("/nowhere", statement_timeout=x), ("1", b"a", True, None)),
    "open arbiter": (lambda _, x: lockstep.open("/nowhere", arbiter=x), NEITHER),
    "transaction isolation": (lambda lake, x: lake.transaction(isolation=x), NEITHER),
    "transaction read_only": (lambda lake, x: lake.transaction(read_only=x), ("no", 1, None)),
    "transaction comment": (lambda lake, x: lake.transaction(comment=x), (*NEITHER, None)),
    "transaction timeout": (lambda lake, x: lake.transaction(timeout=x), ("1", b"a", True)),
    "transaction idle_timeout": (lambda lake, x: lake.transaction(idle_timeout=x), ("1", b"a", True)),
    "transaction statement_timeout": (lambda lake, x: lake.transaction(statement_timeout=x), ("1", b"a", True)),
    "transaction batch": (lambda lake, x: lake.transaction(batch=x), (*NEITHER, "ab")),
    "run fn": (lambda lake, x: lake.run(x), (*NEITHER, None)),
    "run attempts": (lambda lake, x: lake.run(print, attempts=x), ("1", True, None)),
    "run isolation": (lambda lake, x: lake.run(print, isolation=x), NEITHER),
    "run comment": (lambda lake, x: lake.run(print, comment=x), (*NEITHER, None)),
    "run batch": (lambda lake, x: lake.run(print, batch=x), NEITHER),
    "run sleep": (lambda lake, x: lake.run(print, sleep=x), NEITHER),
    "at when": (lambda lake, x: lake.at(x), (b"a", True, None, 1.5)),
    "restore when": (lambda lake, x: lake.restore(x), (b"a", True, None, 1.5)),
    "restore namespaces": (lambda lake, x: lake.restore(0, namespaces=x), (7, True, [1], [""])),
    "restore tables": (lambda lake, x: lake.restore(0, tables=x), (7, True, [1], ["a..b"])),
    "restore dry_run": (lambda lake, x: lake.restore(0, dry_run=x), (1, "yes", None)),
    "restore comment": (lambda lake, x: lake.restore(0, comment=x), (*NEITHER, None)),
    "revert version": (lambda lake, x: lake.revert(x), ("1", True, None, 1.5)),
    "revert dry_run": (lambda lake, x: lake.revert(1, dry_run=x), (1, "yes", None)),
    "revert comment": (lambda lake, x: lake.revert(1, comment=x), (*NEITHER, None)),
    "undrop comment": (lambda lake, x: lake.undrop("u", comment=x), (*NEITHER, None)),
    "dropped count": (lambda lake, x: lake.dropped(x), ("1", True, None)),
    "maintain dry_run": (lambda lake, x: lake.maintain(dry_run=x), (1, "yes", None)),
    "sql query": (lambda lake, x: lake.at().sql(x), (*NEITHER, None)),
    "duckdb names": (lambda lake, x: lake.at().duckdb(None, x), (7, True)),
    "to_arrow columns": (lambda lake, x: lake.at()["t"].to_arrow(x), (*NEITHER, "id", [1], [None])),
    "__getitem__ name": (lambda lake, x: lake.at()[x], (*NEITHER, None, (1,), [], "")),
}

VIEW = "SELECT id FROM t"

OF_TRANSACTIONS: dict[str, tuple[Call, tuple[Any, ...]]] = {
    "savepoint name": (lambda tx, x: tx.savepoint(x), (*NEITHER, None)),
    "rollback_to name": (lambda tx, x: tx.rollback_to(x), (*NEITHER, None)),
    "release name": (lambda tx, x: tx.release(x), (*NEITHER, None)),
    "create_namespace name": (lambda tx, x: tx.create_namespace(x), (*NEITHER, None, ())),
    "create_namespace properties": (lambda tx, x: tx.create_namespace("n", x), (*NEITHER, {"a": 1}, {1: "a"})),
    "drop_namespace name": (lambda tx, x: tx.drop_namespace(x), (*NEITHER, None)),
    "drop_namespace cascade": (lambda tx, x: tx.drop_namespace("default", cascade=x), ("no", 1, None)),
    "set_namespace_properties name": (lambda tx, x: tx.set_namespace_properties(x, {}), (*NEITHER, None, ())),
    "set_namespace_properties properties": (
        lambda tx, x: tx.set_namespace_properties("default", x),
        (*NEITHER, None, {"a": 1}, {1: "a"}),
    ),
    "unset_namespace_properties name": (lambda tx, x: tx.unset_namespace_properties(x, "a"), (*NEITHER, None, ())),
    "unset_namespace_properties keys": (
        lambda tx, x: tx.unset_namespace_properties("default", x),
        (7, True, None, [1]),
    ),
    "create_view name": (lambda tx, x: tx.create_view(x, "SELECT 1"), (*NEITHER, None)),
    "create_view query": (lambda tx, x: tx.create_view("u", x), (*NEITHER, None)),
    "create_view replace": (lambda tx, x: tx.create_view("u", VIEW, replace=x), ("no", 1, None)),
    "create_view schema": (lambda tx, x: tx.create_view("u", VIEW, schema=x), (*NEITHER, {"id": "long"})),
    "create_view comment": (lambda tx, x: tx.create_view("u", VIEW, comment=x), NEITHER),
    "create_view properties": (lambda tx, x: tx.create_view("u", VIEW, properties=x), (*NEITHER, {"a": 1}, {1: "a"})),
    "create_view catalog": (lambda tx, x: tx.create_view("u", VIEW, catalog=x), (*NEITHER, None)),
    "drop_view name": (lambda tx, x: tx.drop_view(x), (*NEITHER, None)),
    "rename_view name": (lambda tx, x: tx.rename_view(x, "u"), (*NEITHER, None)),
    "rename_view new_name": (lambda tx, x: tx.rename_view("t", x), (*NEITHER, None)),
    "create name": (lambda tx, x: tx.create(x, SCHEMA), (*NEITHER, None)),
    "create schema": (lambda tx, x: tx.create("u", x), (*NEITHER, None, {"id": "long"}, [("id", pa.int64())])),
    "create partition_by": (lambda tx, x: tx.create("u", SCHEMA, partition_by=x), (*NEITHER, [1], [None])),
    "create properties": (lambda tx, x: tx.create("u", SCHEMA, properties=x), (*NEITHER, "a", [("a", "b")])),
    "create location": (lambda tx, x: tx.create("u", SCHEMA, location=x), NEITHER),
    "drop name": (lambda tx, x: tx.drop(x), (*NEITHER, None)),
    "rename name": (lambda tx, x: tx.rename(x, "u"), (*NEITHER, None)),
    "rename new_name": (lambda tx, x: tx.rename("t", x), (*NEITHER, None)),
    "restore when": (lambda tx, x: tx.restore(x), (b"a", True, None, 1.5)),
    "restore namespaces": (lambda tx, x: tx.restore(0, namespaces=x), (7, True)),
    "restore tables": (lambda tx, x: tx.restore(0, tables=x), (7, True)),
    "revert version": (lambda tx, x: tx.revert(x), ("1", True, None, 1.5)),
    "undrop name": (lambda tx, x: tx.undrop(x), (*NEITHER, None)),
    "undrop id": (lambda tx, x: tx.undrop("u", id=x), NEITHER),
    "tag name": (lambda tx, x: tx.tag(x), (*NEITHER, None)),
    "tag when": (lambda tx, x: tx.tag("x", x), (b"a", True, 1.5)),
    "tag days": (lambda tx, x: tx.tag("x", days=x), ("1", True, 1.5)),
    "tag comment": (lambda tx, x: tx.tag("x", comment=x), (*NEITHER, None)),
    "tag check": (lambda tx, x: tx.tag("x", check=x), (1, "yes")),
    "untag name": (lambda tx, x: tx.untag(x), (*NEITHER, None)),
    "__getitem__ name": (lambda tx, x: tx[x], (*NEITHER, None, ["t"])),
    "sql query": (lambda tx, x: tx.sql(x), (*NEITHER, None)),
    "to_arrow columns": (lambda tx, x: tx["t"].to_arrow(x), (*NEITHER, "id", [1])),
    "to_arrow where": (lambda tx, x: tx["t"].to_arrow(where=x), NEITHER),
    "polars columns": (lambda tx, x: tx["t"].polars(x), (*NEITHER, "id", [1])),
    "polars where": (lambda tx, x: tx["t"].polars(where=x), NEITHER),
    "append schema_mode": (lambda tx, x: tx["t"].append(ROWS, schema_mode=x), (*NEITHER, "overwrite", [])),
    "overwrite where": (lambda tx, x: tx["t"].overwrite(ROWS, x), NEITHER),
    "overwrite schema_mode": (lambda tx, x: tx["t"].overwrite(ROWS, schema_mode=x), (*NEITHER, "overwrite")),
    "delete where": (lambda tx, x: tx["t"].delete(x), NEITHER),
    "update values": (lambda tx, x: tx["t"].update(x), (*NEITHER, None, "v = 1")),
    "update where": (lambda tx, x: tx["t"].update({"v": "'b'"}, x), NEITHER),
    "merge on": (lambda tx, x: tx["t"].merge(ROWS, x), (7, True, None)),
    **{f"{name} condition": (_conditions(name), NEITHER) for name in dir(Merge) if name.startswith("when_")},
    **{f"{name} values": (_values(name), (*NEITHER, None, "v = 1")) for name in WITH_VALUES},
    "add_columns columns": (lambda tx, x: tx["t"].alter.add_columns(x), (7, True, None, "n", [("n", "int")])),
    "rename_column column": (lambda tx, x: tx["t"].alter.rename_column(x, "n"), (*NEITHER, None)),
    "rename_column new_name": (lambda tx, x: tx["t"].alter.rename_column("v", x), (*NEITHER, None)),
    "drop_columns columns": (lambda tx, x: tx["t"].alter.drop_columns(x), (*NEITHER, None, [1])),
    "set_table_properties properties": (lambda tx, x: tx["t"].alter.set_table_properties(x), (*NEITHER, None, "a")),
    "unset_table_properties names": (lambda tx, x: tx["t"].alter.unset_table_properties(x), (*NEITHER, None, [1])),
    "set_table_description text": (lambda tx, x: tx["t"].alter.set_table_description(x), NEITHER),
    "set_column_comment column": (lambda tx, x: tx["t"].alter.set_column_comment(x, "c"), (*NEITHER, None)),
    "set_column_comment text": (lambda tx, x: tx["t"].alter.set_column_comment("v", x), NEITHER),
    "add_constraint constraints": (
        lambda tx, x: tx["t"].alter.add_constraint(x),
        (*NEITHER, None, "id > 0", {1: "id > 0"}, {"c": 1}, {"c": None}),
    ),
    "drop_constraint name": (lambda tx, x: tx["t"].alter.drop_constraint(x), (*NEITHER, None)),
}


@pytest.fixture
def table(lake: OpenLake) -> OpenLake:
    """A lake with a table of one row."""
    with lake.transaction() as tx:
        tx.create("t", SCHEMA).append(ROWS)
    return lake


@pytest.mark.parametrize("case", OF_LAKES)
def test_of_lakes_and_versions(table: OpenLake, case: str) -> None:
    call, wrongs = OF_LAKES[case]
    for wrong in wrongs:
        with pytest.raises(InvalidError) as error:
            call(table, wrong)
        assert error.value.sqlstate == "22023", wrong
        assert names(case, str(error.value)), wrong


@pytest.mark.parametrize("case", OF_TRANSACTIONS)
def test_of_transactions_and_tables(table: OpenLake, case: str) -> None:
    call, wrongs = OF_TRANSACTIONS[case]
    for wrong in wrongs:
        with table.transaction() as tx:
            with pytest.raises(InvalidError) as error:
                call(tx, wrong)
            tx.rollback()
        assert error.value.sqlstate == "22023", wrong
        assert names(case, str(error.value)), wrong
    assert table.at().version == 1


def names(case: str, message: str) -> bool:
    """Tell whether a message names what is wrong: the argument, or that it is no name."""
    _, argument = case.split()
    return argument in message or (argument in ("name", "new_name", "namespaces", "tables") and "is no name" in message)


WHATEVER = {
    "append data",
    "overwrite data",
    "merge source",
    "duckdb connection",
    *("open_to_change", "open_to_append", "find", "replace", "evolve"),
}
"""Arguments of which rows are made, whatever they are; and methods that are there for Lockstep's own."""


def test_each_argument_of_a_public_method_has_a_case() -> None:
    cases = {*OF_LAKES, *OF_TRANSACTIONS}
    missing = [
        f"{name} {argument}"
        for kind in (OpenLake, LakeTransaction, TransactionTable, Alteration, Merge, LakeVersion, VersionTable)
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if (not name.startswith("_") or name == "__getitem__") and name not in WHATEVER
        for argument, parameter in inspect.signature(method).parameters.items()
        if argument != "self" and parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    assert {case for case in missing if case not in cases} <= WHATEVER


# --- texts that no UTF-8 has, and rows that are none ------------------------------------------------------------------

HALF = "x\ud800"
"""Half of a pair of surrogates, which a file's name or a broken decoder may bring."""

WITH_HALF: dict[str, Call] = {
    "open": lambda _, x: lockstep.open(f"/nowhere/{x}", create=True),
    "option": lambda _, x: lockstep.open("/nowhere", options={"endpoint": x}),
    "at": lambda lake, x: lake.at().sql(f"SELECT '{x}'"),
    "at, a relation": lambda lake, x: lake.at().sql("SELECT 1", **{x: pa.table({"a": [1]})}),
    "comment": lambda lake, x: lake.transaction(comment=x),
    "query": lambda lake, x: _in(lake, lambda tx: tx.sql(f"SELECT '{x}'")),
    "relation": lambda lake, x: _in(lake, lambda tx: tx.sql("SELECT 1", **{x: pa.table({"a": [1]})})),
    "where": lambda lake, x: _in(lake, lambda tx: tx["t"].to_arrow(where=f"v = '{x}'")),
    "value": lambda lake, x: _in(lake, lambda tx: tx["t"].update({"v": f"'{x}'"})),
    "property": lambda lake, x: _in(lake, lambda tx: tx["t"].alter.set_table_properties({"a": x})),
    "key": lambda lake, x: _in(lake, lambda tx: tx["t"].alter.set_table_properties({x: "a"})),
    "description": lambda lake, x: _in(lake, lambda tx: tx["t"].alter.set_table_description(x)),
    "column's comment": lambda lake, x: _in(lake, lambda tx: tx["t"].alter.set_column_comment("v", x)),
    "constraint": lambda lake, x: _in(lake, lambda tx: tx["t"].alter.add_constraint({"c": f"v <> '{x}'"})),
    "dropped": lambda lake, x: _in(lake, lambda tx: tx["t"].alter.drop_columns([x])),
    "namespace": lambda lake, x: _in(lake, lambda tx: tx.create_namespace(x)),
    "table": lambda lake, x: _in(lake, lambda tx: tx.create(x, SCHEMA)),
    "location": lambda lake, x: _in(lake, lambda tx: tx.create("l", SCHEMA, location=f"/nowhere/{x}")),
}


def _in(lake: OpenLake, work: Callable[[LakeTransaction], object]) -> None:
    with lake.transaction() as tx:
        work(tx)


@pytest.mark.parametrize("case", WITH_HALF)
def test_a_text_that_no_utf8_has_is_refused(table: OpenLake, case: str) -> None:
    with pytest.raises(InvalidError) as error:
        WITH_HALF[case](table, HALF)
    assert error.value.sqlstate == "22021"
    str(error.value).encode()
    assert table.at().version == 1


def test_a_query_takes_rows_as_append_takes_them(table: OpenLake) -> None:
    with table.transaction() as tx:
        for rows in ({"a": [1]}, [{"a": 1}], ({"a": 1},), pa.table({"a": [1]})):
            assert tx.sql("FROM n", n=rows).to_pylist() == [{"a": 1}]
            assert table.at().sql("FROM n", n=rows).to_pylist() == [{"a": 1}]
        for wrong, sqlstate in (
            (None, "42804"),
            (7, "22023"),
            ([7], "42804"),
            (pa.table({}), "22023"),
            (WIDE, "0A000"),
        ):
            with pytest.raises(InvalidError) as error:
                tx.sql("FROM n", n=wrong)
            assert error.value.sqlstate == sqlstate, wrong


WIDE = pa.table({"id": [1], "w": pa.array([1], pa.decimal256(50, 2))})
HALVES = pa.table({"id": [1], "w": pa.array([1.5], pa.float16())})


@pytest.mark.parametrize(("rows", "sqlstate"), [(WIDE, "0A000"), (HALVES, "0A000"), ([], "22023")])
def test_rows_that_duckdb_does_not_take_are_an_error_of_lockstep_s(table: OpenLake, rows: Any, sqlstate: str) -> None:
    with pytest.raises(InvalidError) as error, table.transaction() as tx:
        tx["t"].merge(rows, on="target.id = source.id").when_matched_delete().execute()
    assert error.value.sqlstate == sqlstate
