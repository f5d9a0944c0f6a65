"""The host's answers about names of Spark's session catalog, and about what is dropped there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.spark.host.host import Host
from lockstep.storage import open_storage
from lockstep.timeline.database import Database
from tests.support.client import Client
from tests.support.lakes import create, named, open_catalog

DELTA = "org.apache.spark.sql.delta.catalog.DeltaCatalog"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return where a lake lies that has the tables `sales.orders` and `sales.totals`."""
    lake = open_catalog(open_storage(str(tmp_path / "lake"), create=True))
    lake.run(lambda tx: tx.names.create_namespace(("sales",), {}), "CREATE NAMESPACE sales")
    create(lake, "sales.orders", "sales.totals")
    return tmp_path / "lake"


@pytest.fixture
def one(root: Path) -> Client:
    return Client(Host("test"), root)


def said(name: str, use: str = "used", *, is_delta: bool = False, there: Any = None) -> dict[str, Any]:
    schema, table = name.split(".")
    found = None if there is None else {"name": table, "kind": "MANAGED", "provider": "delta", "location": there}
    return {"name": [schema, table], "use": use, "is_delta": is_delta, "there": found}


def ours(client: Client, *names: dict[str, Any]) -> list[bool]:
    found: list[bool] = client.ok("session_names", names=names, implementation=DELTA)["ours"]
    return found


def folder(client: Client, name: str) -> str:
    house = client.house()
    return house.uris.real(house.catalog.database().tables[named(name)].location)


def test_all_names_of_a_statement_are_looked_up_at_once(one: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    one.house()
    looks, look = [], TransactionalCatalog.database

    def counted(catalog: TransactionalCatalog) -> Database:
        looks.append(catalog)
        return look(catalog)

    monkeypatch.setattr(TransactionalCatalog, "database", counted)
    names = ["sales.orders", "sales.totals", "sales.none", "other.none"]
    assert ours(one, *map(said, names)) == [True, True, False, False]
    assert len(looks) == 1
    one.begin()
    assert ours(one, *map(said, names)) == [True, True, False, False]
    assert len(looks) == 1, "a transaction knows its names"


@pytest.mark.parametrize("use", ["used", "dropped", "made"])
@pytest.mark.parametrize("name", ["sales.Orders", "SALES.orders"])
def test_another_spelling_of_a_name_does_not_pass_by_the_lake(one: Client, name: str, use: str) -> None:
    asked = {"names": [said(name, use, there="file:///shop/orders")], "implementation": DELTA}
    assert one.refused("session_names", **asked)[0] in {"0A000", "42702"}
    asked["names"] = [said(name, use)]
    assert one.refused("session_names", **asked)[0] == "0A000", "case counts to this session"
    assert one.ok("session_names", **asked, case_sensitive=False)["ours"] == [True]


def test_a_transaction_drops_what_nobody_has_in_its_lake(one: Client) -> None:
    one.begin()
    assert ours(one, said("sales.stage", "dropped"), said("other.stage", "dropped")) == [True, False]
    assert ours(one, said("sales.stage", "dropped", there="file:///shop/stage")) == [False]


def test_a_transaction_of_another_lake_is_told_what_names_mean_outside_of_it(one: Client, tmp_path: Path) -> None:
    other = Client(one.host, tmp_path / "other", session=one.session, catalog="other")
    other.ok("begin", catalogs={"other": other.options}, current="other")
    assert ours(one, said("raw.events", there="file:///raw/events"), said("sales.orders")) == [False, True]
    assert one.refused("resolve", namespace=["sales"], table="orders", use="pinned")[0] == "0A000"


@pytest.mark.parametrize("below", ["", "/part"])
@pytest.mark.parametrize("use", ["dropped", "made"])
def test_files_of_the_lake_are_not_dropped_under_another_name(one: Client, use: str, below: str) -> None:
    name = said("shop.orders", use, there=folder(one, "sales.orders") + below)
    state, _, message = one.refused("session_names", names=[name], implementation=DELTA)
    assert state == "0A000"
    assert "sales.orders" in message
    assert "release" in message
    for kind in ("EXTERNAL", "VIEW"):
        name["there"]["kind"] = kind
        assert ours(one, name) == [False], "its files stay"


def test_what_leaves_files_where_they_are_is_the_session_catalogs(one: Client) -> None:
    there = folder(one, "sales.orders")
    assert ours(one, said("shop.orders", there=there), said("shop.orders", "made", is_delta=True, there=there)) == [
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("schema", "at", "kind", "says"),
    [
        ("sales", "/elsewhere", "MANAGED", "namespace"),
        ("SALES", "/elsewhere", "MANAGED", "namespace"),
        ("shop", "", "EXTERNAL", "table sales."),
        ("shop", "/elsewhere", "MANAGED", "sales.orders"),
        ("shop", "/elsewhere", "EXTERNAL", None),
    ],
)
def test_a_schema_is_not_dropped_with_files_of_the_lake(
    one: Client, schema: str, at: str, kind: str, says: str | None
) -> None:
    orders = folder(one, "sales.orders")
    table = {"name": "orders", "kind": kind, "provider": "delta", "location": orders}
    asked = {"schema": schema, "folder": at or orders.rpartition("/")[0], "tables": [table]}
    if says is None:
        assert one.ok("drop_session_schema", **asked) == {}
    else:
        state, _, message = one.refused("drop_session_schema", **asked)
        assert state == "0A000"
        assert says in message


def test_a_session_catalog_that_is_not_sparks_is_refused(one: Client) -> None:
    refusal = one.refused("session_names", names=[said("sales.orders")], implementation="com.example.Catalog")
    assert refusal[0] == "0A000"
    assert "com.example.Catalog" in refusal[2]
