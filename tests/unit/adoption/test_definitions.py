"""Which views and functions of a schema of Spark's session catalog a lake makes as well, when it adopts the tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lockstep.adoption.adopt import Found, Wanted
from lockstep.adoption.definitions import Defined, Held, Move, Named, one_of, with_definitions
from lockstep.adoption.schemas import ADOPTED, Sorted
from lockstep.errors import UndefinedError
from lockstep.spark.host.host import Host
from lockstep.timeline.entry import MAX_VIEW_BYTES, Name, Namespace, ViewDefinition
from lockstep.timeline.functions import PROPERTY, FunctionDefinition, is_function
from tests.support.adopting import plain_table
from tests.support.client import Client

SHOP: Namespace = ("shop",)


def named(text: str, meaning: str | None = None) -> Named:
    """Return a name as it is written, and what it means in a text that was made in the schema."""
    written = text.split(".")
    whole = [*["spark_catalog", "shop"][: 3 - len(written)], *written] if meaning is None else meaning.split(".")
    return Named(written, whole)


def view(name: str, *reads: Named, calls: tuple[Named, ...] = (), text: str = "SELECT 1", **said: Any) -> Defined:
    return Defined(name, view=ViewDefinition(text=text, schema="{}", **said), reads=reads, calls=calls)


def function(name: str, *reads: Named, problem: str | None = None) -> Defined:
    said = FunctionDefinition(
        body="SELECT 1",
        is_query=True,
        is_table=True,
        parameters=None,
        returns="{}",
        is_deterministic=True,
        comment=None,
        collation=None,
        catalog="spark_catalog",
        namespace=["elsewhere"],
        configs={},
    )
    return Defined(name, is_function=True, function=said, problem=problem, reads=reads)


def sort_out(
    *listed: Defined,
    namespace: Namespace = SHOP,
    taken: tuple[str, ...] = (),
    tables: tuple[str, ...] = ("orders",),
    same: Callable[[str], str] = str.casefold,
) -> tuple[list[str], dict[str, str]]:
    """Return what a lake makes beside the tables, and why it leaves the rest."""
    move = Move("shop", "lake", namespace, same)
    wanted = [Wanted(Name(namespace=namespace, table=each), f"/{each}") for each in tables]
    views = [each.name for each in listed if not each.is_function]
    generic = [Found(Name(namespace=namespace, table=each), "", reason="generic") for each in views]
    found = with_definitions(Sorted(wanted, generic), listed, move, taken)
    assert found.wanted == wanted
    assert {(each.catalog, tuple(each.namespace)) for _, each in found.views} <= {("lake", namespace)}
    return [name.table for name, _ in found.views], {each.name.table: each.reason or "" for each in found.left}


def test_what_names_only_what_the_lake_is_to_have_is_made() -> None:
    made, left = sort_out(
        view("v", named("orders")),
        view("w", named("shop.V"), calls=(named("f"),)),
        function("f", named("ORDERS"), named("shop.orders")),
        view("constant"),
    )
    assert (made, left) == (["constant", "f()", "v", "w"], {})


@pytest.mark.parametrize(
    ("reads", "reason"),
    [
        (
            named("spark_catalog.shop.orders"),
            "it says spark_catalog.shop.orders, which is not the lake's lake.shop.orders",
        ),
        (named("other.t", "spark_catalog.other.t"), "it reads spark_catalog.other.t, which is not of this schema"),
        (
            named("orders", "spark_catalog.other.orders"),
            "it reads spark_catalog.other.orders, which is not of this schema",
        ),
        (named("orders", "lake.shop.orders"), "it reads lake.shop.orders, which is not of this schema"),
        (named("shop.orders", "shop.orders"), "it reads shop.orders, which is not of this schema"),
        (named("delta./t", "spark_catalog.delta./t"), "it reads spark_catalog.delta./t, which is not of this schema"),
        (named("raw"), "it reads spark_catalog.shop.raw, which stays in the metastore"),
        (named("f"), "it reads spark_catalog.shop.f, which stays in the metastore"),
    ],
)
def test_what_would_name_something_else_stays_and_says_so(reads: Named, reason: str) -> None:
    made, left = sort_out(view("v", reads), function("f"))
    assert made == ["f()"]
    assert left["v"].startswith(reason)


def test_what_names_what_stays_stays_as_well() -> None:
    made, left = sort_out(
        view("a", named("b")),
        view("b", named("c"), named("orders")),
        view("c", calls=(named("g"),)),
        function("g", problem="has a query in it"),
        view("d", named("orders")),
    )
    assert made == ["d"]
    assert left == {
        "a": "it reads spark_catalog.shop.b, which stays in the metastore: make it in the lake, without that",
        "b": "it reads spark_catalog.shop.c, which stays in the metastore: make it in the lake, without that",
        "c": "it calls spark_catalog.shop.g, which stays in the metastore: make it in the lake, without that",
        "g()": "it has a query in it",
    }


def test_in_another_namespace_a_name_with_the_schema_is_another() -> None:
    made, left = sort_out(view("v", named("orders")), view("w", named("shop.orders")), namespace=("a", "b"))
    assert made == ["v"]
    assert left["w"].startswith("it says shop.orders, which is not the lake's lake.a.b.orders")


def test_case_matters_only_where_it_does_to_the_session() -> None:
    assert sort_out(view("v", named("Orders")))[0] == ["v"]
    assert sort_out(view("v", named("Orders")), same=str)[0] == []


def test_a_name_that_the_lake_has_is_left_to_it() -> None:
    made, left = sort_out(view("V"), function("f"), taken=("v", "f"))
    assert made == ["f()"], "a table f is no function"
    assert left["V"].startswith("the lake has, or gets, something of that name already")


def test_a_function_and_what_is_called_as_it_is_kept_are_two() -> None:
    """A lake keeps a function f as a view `f()`; a metastore may have a view, or a table, of that very name as well."""
    made, left = sort_out(view("f()"), function("f"), view("of_view", named("f()")), view("of_it", calls=(named("f"),)))
    assert made == ["f()", "of_it"], "the function, and what calls it"
    assert [*left] == ["f()", "of_view"]
    assert left["f()"].startswith("its name is one under which a lake keeps a function")
    assert left["of_view"].startswith("it reads spark_catalog.shop.f(), which stays")
    mixed = (view("calls_a_view", calls=(named("v"),)), view("reads_a_function", named("f")))
    made, left = sort_out(*mixed, view("v"), function("f"))
    assert (made, [*left]) == (["f()", "v"], ["calls_a_view", "reads_a_function"])
    made, left = sort_out(function("f"), tables=("f()",))
    assert (made, [*left]) == ([], ["f()"])


def test_a_view_says_where_it_comes_from_and_a_function_looks_like_no_view() -> None:
    move = Move("shop", "lake", SHOP, str.casefold)
    found = with_definitions(Sorted([], []), [view("v"), function("f")], move, ())
    assert [each.properties.get(ADOPTED) for _, each in found.views] == [None, "spark_catalog.shop.v"]
    _, left = sort_out(view("v", properties={PROPERTY: "{}"}))
    assert left["v"].startswith(f"view shop.v cannot have the property {PROPERTY}"), "as CREATE VIEW says it"


def test_what_is_too_large_to_be_kept_stays() -> None:
    made, left = sort_out(view("v", text="x" * MAX_VIEW_BYTES))
    assert (made, "at most" in left["v"]) == ([], True)


# --- one of them ------------------------------------------------------------------------------------------------------


def alone(
    last: str,
    *listed: Defined,
    is_function: bool = False,
    has: tuple[Defined, ...] = (),
    tables: tuple[str, ...] = ("orders",),
    same: tuple[str, ...] = ("orders",),
) -> str | None:
    """Return why one stays, in a lake that has adopted some before; None if it is made."""
    move = Move("shop", "lake", SHOP, str.casefold)
    before = {name.table: kept for name, kept in with_definitions(Sorted([], []), has, move, ()).views}
    held = Held(tables, same, before)
    found = one_of(last, is_function=is_function, listed=listed, move=move, held=held)
    assert (len(found.views), len(found.left), found.wanted) in ((1, 0, []), (0, 1, []))
    return found.left[0].reason if found.left else None


def test_one_is_made_where_the_lake_has_what_it_names() -> None:
    reads, calls = view("v", named("orders")), view("w", named("v2"), calls=(named("f"),))
    v2, f = view("v2", text="SELECT 2"), function("f")
    assert alone("V", reads, v2) is None
    assert alone("f", view("f"), f, is_function=True) is None
    assert alone("w", calls, v2, f, has=(v2, f)) is None
    for has, missing in (((v2,), "calls spark_catalog.shop.f"), ((f,), "reads spark_catalog.shop.v2"), ((), "reads")):
        assert (reason := alone("w", calls, v2, f, has=has)) is not None
        assert reason.startswith(f"it {missing}")
    changed = view("v2", text="SELECT 3")
    assert alone("w", calls, changed, f, has=(v2, f)) is not None, "the lake's says something else"
    assert alone("v", reads, same=()) is not None, "the lake's table is another one"
    assert (reason := alone("v2", v2, has=(v2,))) is not None
    assert reason.startswith("the lake has, or gets, something of that name")


@pytest.mark.parametrize(("is_function", "sqlstate"), [(False, "42P01"), (True, "42883")])
def test_one_that_there_is_not_is_refused(is_function: bool, sqlstate: str) -> None:
    with pytest.raises(UndefinedError, match=r"spark_catalog\.shop\.x") as refused:
        alone("x", function("x") if not is_function else view("x"), is_function=is_function)
    assert refused.value.sqlstate == sqlstate


# --- the procedure ----------------------------------------------------------------------------------------------------


@pytest.fixture
def client(host: Host, root: Path) -> Client:
    client = Client(host, root)
    client.lake()
    return client


def schema(folder: Path, *definitions: dict[str, Any]) -> dict[str, Any]:
    """Return a call of `adopt` for a schema of the table orders, with what the shim says of its definitions."""
    tables = [{"name": "orders", "kind": "EXTERNAL", "provider": "delta", "location": f"file:{plain_table(folder, 1)}"}]
    views = [
        {"name": each["name"], "kind": "VIEW", "provider": None, "location": None}
        for each in definitions
        if not each["is_function"]
    ]
    return {
        "procedure": "adopt",
        "text": "CALL …",
        "listed": {
            "implementation": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "name": "shop",
            "tables": [*tables, *views],
            "definitions": list(definitions),
        },
    }


ORDERS = {"written": ["orders"], "meaning": ["spark_catalog", "shop", "orders"]}
VIEW = {
    "name": "v",
    "is_function": False,
    "view": {"text": "SELECT * FROM orders", "schema": "{}"},
    "problem": None,
    "reads": [ORDERS],
}
FUNCTION = {
    "name": "f",
    "is_function": True,
    "function": {
        "body": "SELECT id FROM orders",
        "is_query": True,
        "is_table": True,
        "parameters": None,
        "returns": "{}",
        "is_deterministic": True,
        "comment": None,
        "collation": None,
        "catalog": "spark_catalog",
        "namespace": ["default"],
        "configs": {},
    },
    "reads": [ORDERS],
}
CLASS = {"name": "g", "is_function": True, "problem": "is made of the class org.example.G"}


def test_they_are_made_in_the_transaction_that_adopts_the_tables(client: Client, tmp_path: Path) -> None:
    asked = schema(tmp_path / "orders", VIEW, FUNCTION, CLASS)
    for arguments, made in (({"dry_run": True}, None), ({}, 1)):
        rows = client.ok("call", arguments={"schema": "spark_catalog.shop", **arguments}, **asked)["rows"]
        assert [[*row[:2], *row[3:]] for row in rows] == [
            ["shop", "orders", 0, None, made],
            ["shop", "f()", None, None, made],
            ["shop", "v", None, None, made],
            ["shop", "g()", None, "it is made of the class org.example.G", None],
        ]
        assert [row[2] for row in rows[1:]] == [None] * 3
    database = client.lake().database()
    assert sorted(
        (str(name), is_function(each), each.definition.namespace) for name, each in database.views.items()
    ) == [
        ("shop.f()", True, ["shop"]),
        ("shop.v", False, ["shop"]),
    ]


def test_a_rollback_takes_them_back_with_the_tables(client: Client, tmp_path: Path) -> None:
    client.begin()
    client.ok("call", arguments={"schema": "spark_catalog.shop"}, **schema(tmp_path / "orders", VIEW))
    client.ok("rollback")
    database = client.lake().database()
    assert not [*database.views, *database.tables]


def test_one_is_made_by_its_name_after_the_tables(client: Client, tmp_path: Path) -> None:
    client.ok("call", arguments={"schema": "spark_catalog.shop"}, **schema(tmp_path / "orders"))
    asked = schema(tmp_path / "orders", VIEW, FUNCTION, CLASS)
    assert client.ok("call", **{**asked, "listed": None}, arguments={"view": "spark_catalog.shop.v"})["lists"] == "shop"
    for arguments, made in (({"dry_run": True}, None), ({}, 2)):
        [row] = client.ok("call", arguments={"view": "spark_catalog.shop.v", **arguments}, **asked)["rows"]
        assert row == ["shop", "v", None, None, None, made]
    [row] = client.ok("call", arguments={"function": "spark_catalog.SHOP.f"}, **asked)["rows"]
    assert row == ["shop", "f()", None, None, None, 3]
    refused: list[tuple[dict[str, str], str]] = [
        ({"view": "spark_catalog.shop.v"}, "0A000"),  # it is there
        ({"function": "spark_catalog.shop.g"}, "0A000"),
        ({"view": "spark_catalog.shop.nothing"}, "42P01"),
        ({"view": "shop.v"}, "22023"),
        ({"view": "lake.shop.v"}, "22023"),
        ({"view": "spark_catalog.shop.v", "schema": "spark_catalog.shop"}, "22023"),
    ]
    for given, sqlstate in refused:
        assert sqlstate in client.refused("call", arguments=given, **asked), given
    [row] = client.ok("call", arguments={"function": "spark_catalog.shop.g", "dry_run": True}, **asked)["rows"]
    assert row[4] == "it is made of the class org.example.G"
    assert len(client.lake().database().views) == 2
