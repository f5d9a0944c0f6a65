"""The host's answers about views: in a transaction and outside, with what Spark needs to know a view again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.spark.host.host import Host
from tests.support.client import Client
from tests.support.lakes import add, append, foreign, named

FULL: dict[str, Any] = {
    "text": "SELECT id AS n FROM a",
    "schema": '{"type":"struct","fields":[]}',
    "catalog": "lake",
    "namespace": ["default"],
    "configs": {"spark.sql.ansi.enabled": "true"},
    "mode": "BINDING",
    "query_columns": ["id"],
    "properties": {"comment": "numbers"},
}
LEAST = {"text": "SELECT 1", "schema": "{}"}
FILLED: dict[str, Any] = {
    "catalog": None,
    "namespace": [],
    "configs": {},
    "mode": None,
    "query_columns": [],
    "properties": {},
    **LEAST,
}


@pytest.fixture
def one(one: Client) -> Client:
    """A session on a lake with the tables a and b, the view v and the namespace s."""
    made(one, "v", FULL)
    one.ok("create_namespace", namespace=["s"], properties={})
    return one


def made(client: Client, table: str, view: dict[str, Any], replace: str = "create", *namespace: str) -> None:
    assert client.ok("create_view", namespace=namespace, table=table, replace=replace, view=view) == {}


def view(client: Client, table: str, **args: Any) -> Any:
    """What the view says; None if there is none."""
    answer = client.ok("view", namespace=[], table=table, **args)
    assert answer.keys() - {"pin", "version"} == ({"missing"} if answer["missing"] else {"missing", "name", "view"})
    return answer.get("view")


def text(client: Client, table: str, **args: Any) -> Any:
    found = view(client, table, **args)
    return None if found is None else found["text"]


@pytest.mark.parametrize("inside", [True, False], ids=["in a transaction", "outside"])
def test_a_view_comes_back_as_it_was_given(one: Client, inside: bool) -> None:
    if inside:
        one.begin()
    made(one, "w", LEAST)
    assert (view(one, "v"), view(one, "w")) == (FULL, FILLED)
    assert view(one, "x") is None
    assert view(one, "a") is None, "a table is no view"


def test_a_view_is_its_transactions_own_until_it_commits(one: Client, two: Client) -> None:
    one.begin()
    made(one, "w", LEAST)
    assert one.ok("drop_view", namespace=[], table="v") == {"dropped": True}
    assert (text(one, "w"), text(one, "v")) == ("SELECT 1", None)
    assert (text(two, "w"), text(two, "v")) == (None, FULL["text"])
    one.ok("commit")
    assert (text(two, "w"), text(two, "v")) == ("SELECT 1", None)
    [entry] = two.lake().timeline.entries(3)
    assert entry.transaction.statements == ["CREATE VIEW default.w", "DROP VIEW default.v"]


def test_what_is_rolled_back_never_was(one: Client) -> None:
    one.begin()
    one.ok("savepoint", name="s")
    made(one, "v", LEAST, "replace")
    one.ok("rollback_to", name="s")
    assert text(one, "v") == FULL["text"]
    made(one, "v", LEAST, "replace")
    one.ok("rollback")
    one.ok("ended")
    assert text(one, "v") == FULL["text"]


@pytest.mark.parametrize("inside", [True, False], ids=["in a transaction", "outside"])
@pytest.mark.parametrize(
    ("replace", "table", "refused"),
    [
        ("create", "w", None),
        ("create", "v", ("42P07", "LOCKSTEP_DUPLICATE", "view default.v exists")),
        ("create", "a", ("42P07", "LOCKSTEP_DUPLICATE", "table default.a exists")),
        ("replace", "v", None),
        ("replace", "w", ("42P01", "LOCKSTEP_UNDEFINED", "no view default.w")),
        ("replace", "a", ("42P01", "LOCKSTEP_UNDEFINED", "no view default.a")),
        ("create_or_replace", "v", None),
        ("create_or_replace", "w", None),
        ("create_or_replace", "a", ("42P07", "LOCKSTEP_DUPLICATE", "table default.a exists")),
        ("maybe", "w", ("XX000", "LOCKSTEP_INTERNAL", "at `$.replace`")),
    ],
)
def test_making_and_replacing(
    one: Client, replace: str, table: str, refused: tuple[str, str, str] | None, inside: bool
) -> None:
    if inside:
        one.begin()
    if refused is None:
        made(one, table, LEAST, replace)
        assert text(one, table) == "SELECT 1"
    else:
        state, condition, message = one.refused("create_view", namespace=[], table=table, replace=replace, view=LEAST)
        assert (state, condition) == refused[:2]
        assert refused[2] in message


@pytest.mark.parametrize("given", [{"text": "SELECT 1"}, {**LEAST, "more": 1}, {**LEAST, "namespace": "s"}])
def test_a_definition_that_is_none_is_refused(one: Client, given: dict[str, Any]) -> None:
    state, _, message = one.refused("create_view", namespace=[], table="w", replace="create", view=given)
    assert state == "XX000"
    assert "at `$.view" in message


@pytest.mark.parametrize("inside", [True, False], ids=["in a transaction", "outside"])
@pytest.mark.parametrize(
    ("to", "now"),
    [(["w"], "default.w"), (["s", "w"], "s.w"), (["lake", "s", "w"], "s.w"), (["lake", "w"], "default.w")],
)
def test_renaming(one: Client, inside: bool, to: list[str], now: str) -> None:
    if inside:
        one.begin()
    assert one.ok("rename_view", namespace=[], table="v", to=to) == {}
    if inside:
        one.ok("commit")
    views = one.lake().database().views
    assert {str(name): found.definition.text for name, found in views.items()} == {now: FULL["text"]}


@pytest.mark.parametrize(
    ("table", "to", "state"), [("x", "w", "42P01"), ("a", "w", "42P01"), ("v", "a", "42P07"), ("v", "v", "42P07")]
)
def test_what_cannot_be_renamed(one: Client, table: str, to: str, state: str) -> None:
    assert one.refused("rename_view", namespace=[], table=table, to=[to])[0] == state


def test_views_and_tables_are_listed_apart(one: Client) -> None:
    made(one, "w", LEAST, "create", "s")
    made(one, "b2", LEAST)
    for inside in (False, True):
        if inside:
            one.begin()
        assert one.ok("views", namespace=[]) == {"names": ["b2", "v"], "namespace": ["default"]}
        assert one.ok("views", namespace=["s"]) == {"names": ["w"], "namespace": ["s"]}
        assert one.ok("tables", namespace=[]) == {"names": ["a", "b"], "namespace": ["default"]}
        assert one.ok("exists", namespace=[], table="v") == {"exists": False}
        assert one.resolve("v")["missing"]
        assert one.ok("drop", namespace=[], table="v") == {"dropped": False}
        assert one.ok("drop_view", namespace=[], table="a") == {"dropped": False}
        assert one.refused("views", namespace=["n"])[:2] == ("3F000", "LOCKSTEP_UNDEFINED")


@pytest.mark.parametrize("mode", ["create", "create_or_replace"])
@pytest.mark.parametrize("inside", [True, False], ids=["in a transaction", "outside"])
def test_a_table_does_not_take_a_views_name(one: Client, mode: str, inside: bool) -> None:
    if inside:
        one.begin()
    state, _, message = one.refused("create", namespace=[], table="v", mode=mode)
    assert state == "42P07"
    assert message.startswith("view default.v ")


# --- which version is read --------------------------------------------------------------------------------------------


def test_a_statement_reads_views_and_tables_at_one_database_version(
    one: Client, two: Client, elsewhere: TransactionalCatalog
) -> None:
    by_table = one.resolve("a")["pin"]
    by_view = two.ok("view", namespace=[], table="v")
    assert by_view["view"] == FULL
    append(elsewhere, "a", "x")
    made(Client(Host(), Path(elsewhere.lake.storage.url.removeprefix("file://"))), "v", LEAST, "replace")
    assert text(one, "v", pin=by_table, seen=[["a"]]) == FULL["text"], "pinned by the table"
    assert two.resolve("a", pin=by_view["pin"], seen=[["v"]], mentioned=[])["version"] == 0, "pinned by the view"
    assert text(one, "v") == "SELECT 1"


@pytest.mark.parametrize(("op", "table"), [("rename", "a"), ("rename_view", "v")])
def test_a_new_name_may_not_be_of_the_catalog_or_of_a_namespace_called_alike(one: Client, op: str, table: str) -> None:
    assert one.ok(op, namespace=[], table=table, to=["lake", "c"]) == {}
    one.ok("create_namespace", namespace=["lake"], properties={})
    sqlstate, _, message = one.refused(op, namespace=[], table="c", to=["lake", "d"])
    assert sqlstate == "42702"
    assert "lake.lake.d, or lake.default.d" in message
    assert one.ok(op, namespace=[], table="c", to=["lake", "lake", "d"]) == {}
    assert one.ok(op, namespace=["lake"], table="d", to=["lake", "default", "e"]) == {}
    listed = one.ok("tables" if op == "rename" else "views", namespace=[])["names"]
    assert "e" in listed


def test_tables_that_a_statement_mentions_are_looked_at_before_its_view_pins_it(
    one: Client, elsewhere: TransactionalCatalog
) -> None:
    elsewhere.database()
    foreign(elsewhere, "b", 1, add("f"))
    pin = one.ok("view", namespace=[], table="v", mentioned=[["default", "b"]])["pin"]
    assert one.resolve("b", pin=pin, seen=[["v"]], mentioned=[])["version"] == 1


def test_a_table_that_a_view_reads_is_looked_at_when_it_is_found(one: Client, elsewhere: TransactionalCatalog) -> None:
    elsewhere.database()
    foreign(elsewhere, "b", 1, add("f"))
    pin = one.ok("view", namespace=[], table="v", mentioned=[])["pin"]
    found = one.resolve("b", pin=pin, seen=[["v"]])
    assert (found["version"], found["pin"]) == (1, pin + 1)
    assert text(one, "v", pin=pin + 1) == FULL["text"]


def test_a_transaction_reads_its_snapshots_views(one: Client, two: Client) -> None:
    one.begin()
    made(two, "v", LEAST, "replace")
    assert text(one, "v") == FULL["text"]
    assert text(two, "v") == "SELECT 1"


@pytest.mark.parametrize("then", ["another text", "no view yet", "the same"])
def test_a_frame_from_before_begin_uses_a_view_as_an_older_snapshot_has_it(one: Client, then: str) -> None:
    """BEGIN READ ONLY AS OF: the snapshot is older than what the DataFrame was told."""
    older, name = one.lake().database().version, "w" if then == "no view yet" else "v"
    if then != "the same":
        made(one, name, LEAST, "create_or_replace")
    append(one.lake(), "b", "x")
    version = one.ok("view", namespace=[], table=name)["version"]
    used = [{"catalog": "lake", "name": ["default", name], "version": version}]
    one.begin(read_only=True, as_of_version=older)
    answer = one.ask("snapshot", views=used, catalogs={"lake": one.options})
    assert answer.get("error", {}).get("sqlstate") == (None if then == "the same" else "25001")


# --- at COMMIT --------------------------------------------------------------------------------------------------------


def test_the_use_of_a_view_is_judged_and_recorded(one: Client, two: Client) -> None:
    """The session that uses v writes b; the other reads b and replaces v: write skew."""
    one.begin()
    view(one, "v")
    one.stage(one.resolve("b", "append", writes=True)["uri"], 1, add("x"), text="INSERT INTO b SELECT * FROM v")
    two.begin()
    table = two.resolve("b")["table"]
    made(two, "v", LEAST, "replace")
    two.ok("commit", reads=[{"table": table, "version": 0, "where": None, "head": True, "cached": False}])
    state, condition, message = one.refused("commit")
    assert (state, condition) == ("40001", "LOCKSTEP_CONFLICT")
    assert "replaced view default.v, which this transaction read" in message
    one.ok("ended")
    one.begin()
    view(one, "v")
    one.stage(one.resolve("b", "append", writes=True)["uri"], 1, add("x"), text="INSERT INTO b SELECT * FROM v")
    done = one.ok("commit")["database_version"]
    [entry] = one.lake().timeline.entries(done - 1)
    assert entry.view_reads == [named("v")]
    assert entry.transaction.statements == ["INSERT INTO b SELECT * FROM v"]


def test_a_namespace_is_not_empty_with_a_view_in_it(one: Client) -> None:
    made(one, "w", LEAST, "create", "s")
    assert one.refused("drop_namespace", namespace=["s"], cascade=False)[0] == "2BP01"
    assert one.ok("drop_namespace", namespace=["s"], cascade=True) == {"dropped": True}
    assert set(one.lake().database().views) == {named("v")}


def test_a_view_cannot_be_made_in_a_read_only_transaction(one: Client) -> None:
    one.begin(read_only=True)
    assert text(one, "v") == FULL["text"]
    for op, args in (("create_view", {"replace": "create_or_replace", "view": LEAST}), ("drop_view", {})):
        assert one.refused(op, namespace=[], table="v", **args)[0] == "25006"
