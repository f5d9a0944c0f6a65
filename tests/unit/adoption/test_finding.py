"""The tables below a folder, and the names that a lake gives them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lockstep.adoption import finding
from lockstep.adoption.finding import tables_below
from lockstep.catalog import TransactionalCatalog
from lockstep.errors import InvalidError
from lockstep.timeline.entry import Name
from tests.support.adopting import plain_table


def found(catalog: TransactionalCatalog, folder: Path, *namespace: str) -> dict[str, str]:
    tables = tables_below(catalog.lake.storage, str(folder), namespace or None)
    return {str(each.name): each.where.removeprefix(f"file://{folder}/") for each in tables}


def test_a_warehouse_of_spark_gives_its_schemas(catalog: TransactionalCatalog, warehouse: Path) -> None:
    plain_table(warehouse / "loose", 1)
    plain_table(warehouse / "sales.db" / "orders", 1)
    plain_table(warehouse / "sales.db" / "old" / "orders", 1)
    assert found(catalog, warehouse) == {
        "default.loose": "loose",
        "sales.orders": "sales.db/orders",
        "sales.old.orders": "sales.db/old/orders",
    }
    assert set(found(catalog, warehouse, "w")) == {"w.loose", "w.sales.orders", "w.sales.old.orders"}
    assert set(found(catalog, warehouse / "sales.db", "s")) == {"s.orders", "s.old.orders"}


def test_a_name_keeps_its_dots_and_what_is_hidden_is_passed_over(
    catalog: TransactionalCatalog, warehouse: Path
) -> None:
    plain_table(warehouse / "a.b", 1)
    plain_table(warehouse / "_trash" / "a", 1)
    plain_table(warehouse / ".cache" / "a", 1)
    [table] = tables_below(catalog.lake.storage, str(warehouse))
    assert table.name == Name(namespace=("default",), table="a.b")


def test_what_is_inside_of_a_table_is_no_table_of_its_own(catalog: TransactionalCatalog, warehouse: Path) -> None:
    plain_table(warehouse / "outer", 1)
    plain_table(warehouse / "outer" / "inner", 1)
    assert set(found(catalog, warehouse)) == {"default.outer"}


def test_folders_that_cannot_be_meant(
    catalog: TransactionalCatalog, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidError, match="no Delta tables below"):
        found(catalog, warehouse)
    plain_table(warehouse / "a", 1)
    with pytest.raises(InvalidError, match="is a Delta table itself"):
        found(catalog, warehouse / "a")
    plain_table(warehouse / "b", 1)
    monkeypatch.setattr(finding, "MAX_TABLES", 1)
    with pytest.raises(InvalidError, match="more than 1 tables"):
        found(catalog, warehouse)


def test_a_table_whose_folder_is_no_utf8_is_refused_by_name(catalog: TransactionalCatalog, warehouse: Path) -> None:
    """COMMIT could not write it down, and would not say which of the tables it was."""
    plain_table(warehouse / "orders", 1)
    (warehouse / "orders").rename(os.fsdecode(os.fsencode(warehouse) + b"/t\xff"))
    plain_table(warehouse / "fine", 1)
    with pytest.raises(InvalidError, match=r"'t\\udcff', has U\+DCFF as character 2") as refused:
        found(catalog, warehouse)
    assert refused.value.sqlstate == "22021"
    assert refused.value.message.isascii()
