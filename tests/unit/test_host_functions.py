"""The host's answers about functions, which the timeline keeps among its views."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

import lockstep
from lockstep.errors import CorruptTimelineError, InvalidError, UndefinedError, UnsupportedError
from lockstep.timeline.entry import View, ViewDefinition
from lockstep.timeline.functions import PROPERTY, as_function, is_function, said
from tests.support.client import Client
from tests.support.lakes import named

FULL: dict[str, Any] = {
    "body": "x + y",
    "is_query": False,
    "parameters": '{"type":"struct","fields":[]}',
    "returns": '{"type":"struct","fields":[]}',
    "is_table": False,
    "is_deterministic": False,
    "comment": "adds",
    "collation": "UTF8_LCASE",
    "catalog": "lake",
    "namespace": ["default"],
    "configs": {"spark.sql.ansi.enabled": "true"},
}
OTHER: dict[str, Any] = {
    **FULL,
    "body": "SELECT 1",
    "is_query": True,
    "is_table": True,
    "parameters": None,
    "comment": None,
    "collation": None,
    "is_deterministic": True,
}
VIEW = {"text": "SELECT 1", "schema": "{}"}


@pytest.fixture
def one(one: Client) -> Client:
    """A session on a lake with the function f, the view v and the namespace s."""
    made(one, "f", FULL)
    one.ok("create_view", namespace=[], table="v", replace="create", view=VIEW)
    one.ok("create_namespace", namespace=["s"], properties={})
    return one


def made(client: Client, table: str, function: dict[str, Any], mode: str = "create") -> None:
    assert client.ok("create_function", namespace=[], table=table, mode=mode, function=function) == {}


def function(client: Client, table: str, **args: Any) -> Any:
    """What the function says; None if there is none."""
    answer = client.ok("function", namespace=[], table=table, **args)
    assert answer.keys() - {"pin", "version"} == ({"missing"} if answer["missing"] else {"missing", "name", "function"})
    return answer.get("function")


@pytest.mark.parametrize("inside", [True, False], ids=["in a transaction", "outside"])
def test_a_function_comes_back_as_it_was_given(one: Client, inside: bool) -> None:
    if inside:
        one.begin()
    made(one, "g", OTHER)
    assert (function(one, "f"), function(one, "g")) == (FULL, OTHER)
    assert function(one, "F") is None, "case counts to this session"
    assert function(one, "F", case_sensitive=False) == FULL
    assert (function(one, "v"), function(one, "a")) == (None, None), "a view and a table are none"
    assert one.ok("functions", namespace=[])["names"] == ["f", "g"]
    assert one.ok("functions", namespace=["s"])["names"] == []


def test_a_function_is_its_transactions_own_until_it_commits(one: Client, two: Client) -> None:
    one.begin()
    made(one, "g", OTHER)
    assert one.ok("drop_function", namespace=[], table="f") == {"dropped": True}
    assert (function(one, "g"), function(one, "f")) == (OTHER, None)
    assert (function(two, "g"), function(two, "f")) == (None, FULL)
    one.ok("commit")
    assert (function(two, "g"), function(two, "f")) == (OTHER, None)
    assert function(two, "f", version="@2") == FULL
    head = two.lake().timeline.head
    [entry] = two.lake().timeline.entries(head.version - 1)
    assert entry.transaction.statements == ["CREATE FUNCTION default.g", "DROP FUNCTION default.f"]


@pytest.mark.parametrize("inside", [True, False], ids=["in a transaction", "outside"])
@pytest.mark.parametrize(
    ("mode", "table", "becomes"),
    [
        ("create", "g", OTHER),
        ("create", "f", ("42723", "function default.f exists")),
        ("replace", "g", OTHER),
        ("replace", "f", OTHER),
        ("if_not_exists", "g", OTHER),
        ("if_not_exists", "f", FULL),
        ("replace", "v", OTHER),
    ],
)
def test_making_and_replacing(one: Client, mode: str, table: str, becomes: Any, inside: bool) -> None:
    if inside:
        one.begin()
    if isinstance(becomes, dict):
        made(one, table, OTHER, mode)
        assert function(one, table) == becomes
    else:
        state, _, message = one.refused("create_function", namespace=[], table=table, mode=mode, function=OTHER)
        assert state == becomes[0]
        assert becomes[1] in message


@pytest.mark.parametrize("mode", ["create", "replace", "if_not_exists"])
def test_a_view_of_the_name_that_a_function_would_be_kept_under_stays_one(one: Client, mode: str) -> None:
    one.ok("create_view", namespace=[], table="w()", replace="create", view=VIEW)
    state, _, message = one.refused("create_function", namespace=[], table="w", mode=mode, function=FULL)
    assert (state, "view default.w() exists" in message) == ("42P07", True)
    assert one.ok("drop_function", namespace=[], table="w") == {"dropped": False}
    assert function(one, "w") is None
    assert one.ok("views", namespace=[])["names"] == ["v", "w()"]


def test_a_function_is_no_view(one: Client) -> None:
    about = {"namespace": [], "table": "f()"}
    assert one.ok("view", **about)["missing"]
    assert one.ok("drop_view", **about) == {"dropped": False}
    for replace in ("create", "replace", "create_or_replace"):
        assert one.refused("create_view", **about, replace=replace, view=VIEW)[0] == "42P07"
    assert one.refused("rename_view", **about, to=["w"])[0] == "42P07"
    forged = {**VIEW, "properties": {PROPERTY: "{}"}}
    assert one.refused("create_view", namespace=[], table="w", replace="create", view=forged)[0] == "22023"
    assert one.ok("views", namespace=[])["names"] == ["v"]


def test_a_namespace_with_a_function_is_not_empty(one: Client) -> None:
    one.ok("create_function", namespace=["s"], table="f", mode="create", function=FULL)
    assert one.refused("drop_namespace", namespace=["s"], cascade=False)[0] == "2BP01"
    assert one.refused("create_function", namespace=["no"], table="f", mode="create", function=FULL)[0] == "3F000"
    assert one.refused("functions", namespace=["no"])[0] == "3F000"


def test_two_that_change_one_function_conflict_and_two_that_make_others_do_not(one: Client, two: Client) -> None:
    for client, name in ((one, "g"), (two, "h")):
        client.begin()
        made(client, name, FULL)
    one.ok("commit")
    two.ok("commit")
    for client in (one, two):
        client.begin()
        made(client, "f", OTHER if client is one else {**FULL, "body": "0"}, "replace")
    one.ok("commit")
    state, _, message = two.refused("commit")
    assert (state, "replaced function default.f" in message) == ("40001", True)


def test_who_called_a_function_is_judged_by_who_replaced_it(one: Client, two: Client) -> None:
    """Write skew: each calls the function that the other replaces."""
    made(one, "g", OTHER)
    for client, called, replaced in ((one, "f", "g"), (two, "g", "f")):
        client.begin(settings={"isolation": "SERIALIZABLE"})
        function(client, called)
        made(client, replaced, {**FULL, "body": "0"}, "replace")
    one.ok("commit")
    state, _, message = two.refused("commit")
    assert (state, "replaced function default.g, which this transaction read" in message) == ("40001", True)


def test_python_lists_no_function_among_the_views_and_drops_none(one: Client, tmp_path: Path) -> None:
    lake, kept_as = lockstep.open(str(tmp_path / "lake")), ("default", "f()")
    with lake.transaction() as tx:
        assert tx.views == [named("v")]
    with pytest.raises(InvalidError, match=r"function default\.f is no view") as dropped, lake.transaction() as tx:
        tx.drop_view(kept_as)
    with pytest.raises(InvalidError, match=r"function default\.f is no view") as renamed, lake.transaction() as tx:
        tx.rename_view(kept_as, "w")
    with pytest.raises(InvalidError, match=r"function default\.f is no view") as replaced, lake.transaction() as tx:
        tx.create_view(kept_as, "SELECT 1 AS one", replace=True)
    assert {each.value.sqlstate for each in (dropped, renamed, replaced)} == {"42809"}
    with pytest.raises(UndefinedError, match=r"there is no such table or view"), lake.transaction() as tx:
        tx.create_view("w", "SELECT * FROM `f()`")


def view(table: str, stored: str) -> View:
    definition = ViewDefinition(text="x", schema="{}", properties={PROPERTY: stored})
    return View(name=named(table), definition=definition, since=1)


def test_what_a_newer_lockstep_says_of_a_function_is_refused() -> None:
    newer = view("f()", msgspec.json.encode({"is_query": True, "is_streaming": True}).decode())
    assert is_function(newer)
    with pytest.raises(UnsupportedError, match=r"function default\.f says what this Lockstep does not know"):
        as_function(newer)
    with pytest.raises(CorruptTimelineError, match=r"function default\.f is damaged"):
        as_function(view("f()", "{"))
    assert not is_function(view("f", "{}"))
    assert said(named("f")) == "view default.f"
