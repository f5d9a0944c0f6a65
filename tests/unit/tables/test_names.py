"""Names in transactions without Spark: views, which Spark makes, and properties of namespaces."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lockstep.errors import (
    ConflictError,
    DuplicateError,
    FailedTransactionError,
    InvalidError,
    LockstepError,
    UndefinedError,
    UnsupportedError,
)
from lockstep.tables.opened import OpenLake
from lockstep.tables.transaction import LakeTransaction
from tests.support.lakes import named
from tests.support.refused import refused_in
from tests.support.views import FULL, do


@pytest.fixture
def views(table: OpenLake) -> OpenLake:
    """A lake with a table t and the views a and b, and a namespace s."""
    with table.transaction() as tx:
        tx.create_namespace("s")
        do(tx.core, "+b=2")
        tx.core.changing().create_view(named("a"), FULL, replace=False)
    return table


def test_views_are_listed_renamed_and_dropped(views: OpenLake) -> None:
    """With all that Spark said of them; what was before stays to be read in older versions."""
    before = views.at().version
    with views.transaction() as tx:
        assert [str(name) for name in tx.views] == ["default.a", "default.b"]
        tx.rename_view("a", "s.a")
        tx.drop_view("b")
        assert [str(name) for name in tx.views] == ["s.a"]
        with refused_in(tx, UndefinedError, match=r"no view default\.b"):
            tx.drop_view("b")
    database = views.catalog.database()
    assert {str(name): view.definition for name, view in database.views.items()} == {"s.a": FULL}
    assert sorted(map(str, views.catalog.as_of(before).views)) == ["default.a", "default.b"]
    with views.transaction() as tx:
        tx.drop_namespace("s", cascade=True)
        assert tx.views == []


WRONG: list[tuple[Callable[[LakeTransaction], object], type[LockstepError], str, str]] = [
    (lambda tx: tx.drop("a"), InvalidError, "42809", "a is a view: drop_view drops it"),
    (lambda tx: tx.rename("a", "c"), InvalidError, "42809", "a is a view: rename_view renames it"),
    (lambda tx: tx.drop_view("t"), InvalidError, "42809", "t is a table: drop drops it"),
    (lambda tx: tx.rename_view("t", "c"), InvalidError, "42809", "t is a table: rename renames it"),
    (lambda tx: tx.rename_view("a", "t"), DuplicateError, "42P07", "table default.t exists"),
    (lambda tx: tx.rename_view("a", "b"), DuplicateError, "42P07", "view default.b exists"),
    (lambda tx: tx.rename_view("a", "no.a"), UndefinedError, "3F000", "no namespace no"),
    (lambda tx: tx.rename_view("no", "a"), UndefinedError, "42P01", "no view default.no"),
    (lambda tx: tx.drop_view("no"), UndefinedError, "42P01", "lockstep views"),
    (lambda tx: tx.create_view("c", "SELECT 1"), UnsupportedError, "0A000", "make it in Spark"),
    (lambda tx: tx["a"].append({"id": [1]}), UnsupportedError, "0A000", "a is a view"),
    (lambda tx: tx["a"].to_arrow(), UnsupportedError, "0A000", "a is a view"),
    (lambda tx: tx.sql("FROM a"), UnsupportedError, "0A000", "a is a view"),
    (lambda tx: tx["a"].alter.set_table_description("x"), UnsupportedError, "0A000", "a is a view"),
]


@pytest.mark.parametrize("case", range(len(WRONG)))
def test_what_is_said_of_views_and_tables(views: OpenLake, case: int) -> None:
    change, kind, state, words = WRONG[case]
    with views.transaction() as tx:
        with refused_in(tx, kind) as refused:
            change(tx)
        assert refused.value.sqlstate == state
        assert words in str(refused.value)
        assert [str(name) for name in (*tx.views, *tx.tables)] == ["default.a", "default.b", "default.t"]


def test_a_refused_view_spoils_the_transaction(views: OpenLake) -> None:
    def caught() -> None:
        with views.transaction() as tx:
            with pytest.raises(UnsupportedError):
                tx.create_view("c", "SELECT 1")
            tx["t"].append({"id": [2]})

    with pytest.raises(FailedTransactionError):
        caught()


def test_two_that_rename_one_view_conflict(views: OpenLake) -> None:
    def both() -> None:
        with views.transaction() as tx:
            tx.rename_view("a", "mine")
            with views.transaction() as other:
                other.drop_view("a")

    with pytest.raises(ConflictError):
        both()
    assert sorted(map(str, views.catalog.database().views)) == ["default.b"]


def test_properties_of_namespaces(views: OpenLake) -> None:
    with views.transaction() as tx:
        tx.create_namespace("n", {"owner": "ada", "team": "x"})
        tx.set_namespace_properties("n", {"team": "y", "comment": "said in Python"})
        tx.unset_namespace_properties("n", ["owner", "never"])
        assert tx.namespaces["n",] == {"team": "y", "comment": "said in Python"}
        tx.savepoint("before")
        tx.unset_namespace_properties("n", "team")
        assert tx.namespaces["n",] == {"comment": "said in Python"}
        tx.rollback_to("before")
        for change in (
            lambda: tx.set_namespace_properties("n", {"location": "/tmp"}),
            lambda: tx.create_namespace("m", {"location": "/tmp"}),
        ):
            with refused_in(tx, UnsupportedError, match="cannot have a location"):
                change()
        with refused_in(tx, InvalidError, match="has no name"):
            tx.set_namespace_properties("n", {" ": "x"})
        for change in (
            lambda: tx.set_namespace_properties("no", {"a": "b"}),
            lambda: tx.unset_namespace_properties("no", "a"),
        ):
            with refused_in(tx, UndefinedError, match="no namespace no"):
                change()
    assert dict(views.catalog.database().namespaces["n",]) == {"team": "y", "comment": "said in Python"}
    with views.transaction(read_only=True) as tx:
        assert [".".join(name) for name in tx.namespaces] == ["default", "n", "s"]
