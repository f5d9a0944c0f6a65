"""Adopting a schema of Spark's session catalog: which of what that lists is taken in, and what is said of the rest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lockstep.adoption import schemas
from lockstep.adoption.schemas import Listed, check_implementation, nothing_in, schema_said, sort_out, why_left
from lockstep.errors import InvalidError, UnsupportedError
from lockstep.lake.claims import claim_path
from lockstep.spark.host.calls import written_parts
from lockstep.spark.host.host import Host
from tests.support.adopting import plain_table
from tests.support.client import Client

DELTA = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
CLAIM = claim_path(".").removeprefix("./")

# --- decisions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "provider", "reason"),
    [
        ("MANAGED", "delta", None),
        ("EXTERNAL", "DELTA", None),
        ("EXTERNAL", "parquet", "it is a table of parquet"),
        ("MANAGED", "hive", "it is a table of hive"),
        ("EXTERNAL", None, "it is a table of another format, which is not known"),
        ("VIEW", None, "it is a view"),
        ("VIEW", "delta", "it is a view"),
        ("TEMPORARY VIEW", None, "it is a temporary view"),
        ("METRIC_VIEW", None, "it is a METRIC_VIEW: expected a table of delta"),
    ],
)
def test_tables_of_delta_are_taken_and_all_else_has_a_reason(
    kind: str, provider: str | None, reason: str | None
) -> None:
    said = why_left(Listed("t", kind, provider, "file:/t"))
    assert (said is None) if reason is None else (said is not None and said.startswith(reason))


@pytest.mark.parametrize(
    ("text", "schema"),
    [
        ("spark_catalog.shop", "shop"),
        ("SPARK_CATALOG.Shop", "Shop"),
        ("`spark_catalog`.`my shop`", "my shop"),
        ("spark_catalog.`a.b`", "a.b"),
    ],
)
def test_a_schema_is_said_with_its_catalog(text: str, schema: str) -> None:
    assert schema_said(written_parts(text)) == schema


@pytest.mark.parametrize(
    ("text", "kind", "state", "message"),
    [
        ("shop", InvalidError, "22023", r"Write spark_catalog\.shop"),
        ("lake.shop", UnsupportedError, "0A000", r"the catalog lake, .* adopt the folder"),
        ("glue.a.b", UnsupportedError, "0A000", "the catalog glue"),
        ("spark_catalog.a.b", InvalidError, "22023", "a name of one part"),
        ("spark_catalog.", InvalidError, "22023", "is no name"),
        ("", InvalidError, "22023", "is no name"),
    ],
)
def test_what_is_no_schema_of_the_session_catalog_is_refused(
    text: str, kind: type[InvalidError], state: str, message: str
) -> None:
    with pytest.raises(kind, match=message) as refused:
        schema_said(written_parts(text))
    assert refused.value.sqlstate == state


def test_a_session_catalog_of_another_class_is_not_asked() -> None:
    check_implementation(DELTA)
    with pytest.raises(UnsupportedError, match=r"set to be a com\.example\.Catalog") as refused:
        check_implementation("com.example.Catalog")
    assert refused.value.sqlstate == "0A000"


def test_the_tables_of_a_schema_are_parted_in_the_order_of_their_names() -> None:
    listed = [
        Listed("u", "MANAGED", "delta", "file:/u"),
        Listed("v", "VIEW"),
        Listed("raw", "EXTERNAL", "parquet", "file:/raw"),
        Listed("t", "EXTERNAL", "delta"),
    ]
    found = sort_out(listed, "shop", ("s",))
    assert [(str(each.name), each.where) for each in found.wanted] == [("s.t", ""), ("s.u", "file:/u")]
    assert [(str(each.name), each.location) for each in found.left] == [("s.raw", "file:/raw"), ("s.v", "")]


def test_more_tables_than_a_transaction_takes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemas, "MAX_TABLES", 1)
    table = Listed("t", "MANAGED", "delta", "file:/t")
    assert sort_out([table], "shop", ("shop",)).wanted
    with pytest.raises(InvalidError, match=r"schema spark_catalog\.shop has more than 1 Delta tables"):
        sort_out([table, replace(table, name="u")], "shop", ("shop",))


def test_a_schema_without_delta_tables_names_some_of_what_it_has() -> None:
    left = sort_out((Listed(f"v{n:02}", "VIEW") for n in range(12)), "shop", ("shop",)).left
    assert "v00: it is a view" in str(nothing_in("shop", left))
    assert "v09: it is a view" in str(nothing_in("shop", left))
    assert "; and 2 more" in str(nothing_in("shop", left))
    assert str(nothing_in("shop", [])).startswith("schema spark_catalog.shop has no Delta tables. Nothing was changed")


# --- calls ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def client(host: Host, root: Path) -> Client:
    client = Client(host, root)
    client.lake()
    return client


def listed(*tables: Listed, name: str | None = "shop", implementation: str = DELTA) -> dict[str, Any]:
    """Return what the shim says of a schema."""
    fields = ("name", "kind", "provider", "location")
    rows = [{field: getattr(each, field) for field in fields} for each in tables]
    return {"name": name, "implementation": implementation, "tables": rows}


def delta(folder: Path, name: str | None = None) -> Listed:
    """Return how a schema lists a new table in a folder."""
    return Listed(name or folder.name, "EXTERNAL", "delta", f"file:{plain_table(folder, 1)}")


def call(schema: str = "spark_catalog.shop", listed: dict[str, Any] | None = None, **arguments: Any) -> dict[str, Any]:
    return {
        "procedure": "adopt",
        "arguments": {"schema": schema, **arguments},
        "text": "CALL …",
        **({} if listed is None else {"listed": listed}),
    }


def tables(client: Client) -> set[str]:
    return {str(name) for name in client.lake().database().tables}


def test_a_schema_is_listed_first_and_only_then_is_anything_done(client: Client) -> None:
    answer = client.ok("call", **call("spark_catalog.`my shop`"))
    assert (answer["lists"], answer["rows"]) == ("my shop", [])
    for schema, state in (("shop", "22023"), ("lake.shop", "0A000")):
        assert client.refused("call", **call(schema))[0] == state
    assert client.refused("call", **call(location="/t"))[0] == "22023"
    assert client.refused("call", **call(folder="/t"))[0] == "22023"


def test_the_delta_tables_of_a_schema_are_adopted_and_the_rest_is_named(client: Client, warehouse: Path) -> None:
    found = listed(
        Listed("v", "VIEW"),
        Listed("raw", "EXTERNAL", "parquet", "file:/data/raw"),
        delta(warehouse / "a b"),
        delta(warehouse / "elsewhere" / "x", "orders"),
    )
    adopted = [
        ["shop", "a b", f"file://{warehouse}/a b", 0],
        ["shop", "orders", f"file://{warehouse}/elsewhere/x", 0],
    ]
    left = [
        ["shop", "raw", "file:/data/raw", None, "it is a table of parquet"],
        ["shop", "v", None, None, "it is a view"],
    ]
    real: dict[str, Any] = {}
    for arguments, made in (({"dry_run": True}, None), (real, 1)):
        rows = client.ok("call", **call(listed=found, **arguments))["rows"]
        assert rows[:2] == [[*row, None, made] for row in adopted]
        assert [[*row[:4], row[4].split(":")[0].split(",")[0], row[5]] for row in rows[2:]] == [
            [*row, None] for row in left
        ]
        assert tables(client) == (set() if made is None else {"shop.a b", "shop.orders"})


def test_the_namespace_is_made_under_the_schemas_own_name_or_another(client: Client, warehouse: Path) -> None:
    client.ok("call", **call(listed=listed(delta(warehouse / "t")), namespace="a.b"))
    client.ok("create_namespace", namespace=["SHOP"], properties={})
    client.ok("call", **call(listed=listed(delta(warehouse / "u"))), case_sensitive=False)
    client.ok("call", **call(listed=listed(delta(warehouse / "v"))))
    assert tables(client) == {"a.b.t", "SHOP.u", "shop.v"}


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        (None, "its location is empty"),
        (" ", "its location is empty"),
        ("s3://bucket/bad", "is in another kind of store than the lake"),
        ("hdfs://host/bad", "hdfs"),
        ("file:/dropped/meanwhile", "it is no Delta table"),
    ],
)
def test_a_delta_table_that_cannot_be_adopted_refuses_the_schema_and_a_dry_run_says_why(
    client: Client, warehouse: Path, location: str | None, reason: str
) -> None:
    bad = Listed("bad", "EXTERNAL", "delta", location)
    found = listed(delta(warehouse / "good"), bad, Listed("v", "VIEW"))
    rows = client.ok("call", **call(listed=found, dry_run=True))["rows"]
    assert {row[1]: row[4] is None for row in rows} == {"bad": False, "good": True, "v": False}
    assert reason in rows[0][4]
    state, _, message = client.refused("call", **call(listed=found))
    assert (state, "(as shop.bad): " in message, "Nothing was changed" in message) == ("22023", True, True)
    assert not tables(client)
    assert not (warehouse / "good" / CLAIM).exists()


def test_a_rollback_leaves_no_claim(client: Client, warehouse: Path) -> None:
    client.begin()
    [row] = client.ok("call", **call(listed=listed(delta(warehouse / "t"))))["rows"]
    assert row[-1] is None
    assert (warehouse / "t" / CLAIM).exists()
    client.ok("rollback")
    assert not (warehouse / "t" / CLAIM).exists()
    assert not tables(client)


def test_there_is_nothing_to_adopt(client: Client, warehouse: Path) -> None:
    view = Listed("v", "VIEW")
    for found, dry_run, state in (
        (listed(name=None), False, "3F000"),
        (listed(name=None), True, "3F000"),
        (listed(), False, "22023"),
        (listed(), True, "22023"),
        (listed(view), False, "22023"),
        (listed(delta(warehouse / "t"), implementation="com.example.Catalog"), False, "0A000"),
    ):
        assert client.refused("call", **call(listed=found, dry_run=dry_run))[0] == state, (found, dry_run)
    [row] = client.ok("call", **call(listed=listed(view), dry_run=True))["rows"]
    assert row[4].startswith("it is a view")


def test_the_namespace_of_the_system_tables_is_not_made(client: Client, warehouse: Path) -> None:
    table = delta(warehouse / "System.db" / "t")
    for asked in (
        call(listed=listed(table, name="system")),
        call(listed=listed(table), namespace="System.x"),
        {"procedure": "adopt", "arguments": {"folder": str(warehouse)}, "text": "CALL …"},
    ):
        assert client.refused("call", **asked)[0] == "42939"
    assert ("system",) not in client.lake().database().namespaces
