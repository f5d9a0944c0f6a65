"""Names whose case does not count: how they are found, and when two of them are one."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.conflict.writes import Changes, first_conflict
from lockstep.errors import ConflictError, DuplicateError, InvalidError
from lockstep.timeline.entry import Name, Namespace, NamespaceDdl, TableDdl, folded
from lockstep.transactions.ddl import holder, spelled, spelled_namespace
from tests.support.lakes import stage_new
from tests.support.views import says


def name(text: str) -> Name:
    *namespace, table = text.split(".")
    return Name(namespace=tuple(namespace), table=table)


class Seen:
    """Some tables and namespaces."""

    views: dict[Name, None] = {}  # noqa: RUF012

    def __init__(self, *tables: str) -> None:
        self.tables = {name(each): None for each in tables}
        self.namespaces: dict[Namespace, dict[str, str]] = {each.namespace: {} for each in self.tables}

    def like(self, key: Name) -> list[Name]:
        return [each for each in self.tables if folded(each) == key]


@pytest.mark.parametrize(
    ("asked", "found"),
    [("N.T", "N.T"), ("n.t", "N.T"), ("n.new", "N.new"), ("none.T", "none.T"), ("M.B", "M.B"), ("m.b", "M.b")],
)
def test_a_name_is_found_as_it_is_stored(asked: str, found: str) -> None:
    seen = Seen("N.T", "M.B", "M.b")
    assert spelled(name(asked), seen) == name(found)  # type: ignore[arg-type]


def test_an_exact_name_goes_before_others_and_several_others_are_refused() -> None:
    seen = Seen("n.Table", "n.TABLE")
    assert spelled(name("n.TABLE"), seen) == name("n.TABLE")  # type: ignore[arg-type]
    with pytest.raises(InvalidError, match=r"n\.TABLE, n\.Table") as caught:
        spelled(name("n.table"), seen)  # type: ignore[arg-type]
    assert caught.value.sqlstate == "42702"


def test_a_nested_namespace_is_found_as_far_as_it_is_there() -> None:
    seen = Seen("A.t", "A.B.t")
    assert spelled_namespace(("a", "b"), seen) == ("A", "B")  # type: ignore[arg-type]
    assert spelled_namespace(("a", "c"), seen) == ("A", "c")  # type: ignore[arg-type]
    assert spelled_namespace((), seen) == ()  # type: ignore[arg-type]


def test_a_name_is_held_by_one_in_another_case_unless_case_counts() -> None:
    seen = Seen("n.t")
    assert holder(name("n.T"), seen) is None  # type: ignore[arg-type]
    assert holder(name("n.T"), seen, case_sensitive=False) == "table"  # type: ignore[arg-type]


@pytest.mark.parametrize("case_sensitive", [True, False])
def test_two_that_make_names_differing_in_case_conflict_unless_case_counts(case_sensitive: bool) -> None:
    def made(table: str) -> Changes:
        ddl = TableDdl(action="create", id=table, name=name(f"n.{table}"), location=f"/{table}-folder")
        return Changes(table, tables=(ddl,), case_sensitive=case_sensitive)

    def filled(namespace: str) -> Changes:
        ddl = NamespaceDdl(action="create", name=(namespace,))
        return Changes(namespace, namespaces=(ddl,), case_sensitive=case_sensitive)

    expected = None if case_sensitive else "name-taken"
    found = first_conflict(made("t"), made("T"))
    assert (found and found.rule) == expected
    assert (first_conflict(filled("n"), filled("N")) is None) == case_sensitive


def test_the_core_is_exact_unless_it_is_told_otherwise(tmp_path: Path) -> None:
    catalog = TransactionalCatalog.open(str(tmp_path / "lake"), create=True)
    one, two = catalog.begin(), catalog.begin()
    for tx, table in ((one, "t"), (two, "T")):
        stage_new(catalog, tx, table)
    catalog.commit(one)
    catalog.commit(two)
    late = catalog.begin(case_sensitive=False)
    stage_new(catalog, late, "x")
    stage_new(catalog, other := catalog.begin(), "X")
    catalog.commit(other)
    with pytest.raises(ConflictError, match=r"default\.X"):
        catalog.commit(late)


def test_a_name_may_be_given_another_case_and_no_other_tables(tmp_path: Path) -> None:
    catalog = TransactionalCatalog.open(str(tmp_path / "lake"), create=True)
    tx = catalog.begin(case_sensitive=False)
    stage_new(catalog, tx, "t")
    stage_new(catalog, tx, "u")
    tx.changing().rename_table(name("default.t"), name("default.T"))
    with pytest.raises(DuplicateError):
        tx.changing().rename_table(name("default.u"), name("default.t"))
    catalog.commit(tx)
    assert sorted(table.table for table in catalog.database().tables) == ["T", "u"]


def test_another_case_is_not_given_where_another_table_has_it(tmp_path: Path) -> None:
    """Two that differ in case alone were made where case counts; the other was gone from the catalog without a word."""
    catalog = TransactionalCatalog.open(str(tmp_path / "lake"), create=True)
    tx = catalog.begin()
    stage_new(catalog, tx, "TT")
    stage_new(catalog, tx, "Tt")
    catalog.commit(tx)
    tx = catalog.begin(case_sensitive=False)
    for new in ("Tt", "tt"):
        with pytest.raises(DuplicateError, match=rf"default\.{new} exists"):
            tx.changing().rename_table(name("default.TT"), name(f"default.{new}"))
    catalog.commit(tx)
    assert sorted(table.table for table in catalog.database().tables) == ["TT", "Tt"]


def test_a_view_is_not_lost_that_cannot_be_given_another_case(tmp_path: Path) -> None:
    catalog = TransactionalCatalog.open(str(tmp_path / "lake"), create=True)
    tx = catalog.begin()
    stage_new(catalog, tx, "t")
    for view in ("V", "v"):
        tx.changing().create_view(name(f"default.{view}"), says("SELECT 1"), replace=False)
    catalog.commit(tx)
    tx = catalog.begin(case_sensitive=False)
    with pytest.raises(DuplicateError):
        tx.changing().rename_view(name("default.V"), name("default.v"))
    catalog.commit(tx)
    assert sorted(view.table for view in catalog.database().views) == ["V", "v"]
