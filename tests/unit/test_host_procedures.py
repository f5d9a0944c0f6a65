"""The host's answers to CALL: what is no argument, which name is meant, and what a transaction may see."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.client import Client
from tests.support.lakes import append, create, named


def called(client: Client, procedure: str, **arguments: Any) -> list[list[Any]]:
    rows: list[list[Any]] = client.ok("call", procedure=procedure, arguments=arguments, text="CALL …")["rows"]
    return rows


def refused(client: Client, procedure: str, **arguments: Any) -> str:
    return client.refused("call", procedure=procedure, arguments=arguments, text="CALL …")[0]


@pytest.mark.parametrize(
    ("procedure", "arguments"),
    [
        ("create_tag", {"tag": None}),
        ("create_tag", {}),
        ("drop_tag", {"tag": None}),
        ("undrop", {"table": None}),
        ("diff", {"from": None}),
        ("revert", {"version": None}),
        ("restore", {"version": 0, "tables": ["a", None]}),
        ("restore", {"version": 0, "namespaces": [None]}),
    ],
)
def test_null_is_no_argument(one: Client, procedure: str, arguments: dict[str, Any]) -> None:
    one.begin()
    assert refused(one, procedure, **arguments) == "22023"
    assert called(one, "tags") == []


@pytest.mark.parametrize(
    ("setting", "said", "compacts"),
    [
        (None, {}, True),
        ("true", {}, True),
        ("false", {}, False),
        ("false", {"optimize": True}, True),
        ("true", {"optimize": False}, False),
        ("true", {"dry_run": True}, False),
    ],
)
def test_maintain_compacts_as_the_call_says_or_else_the_setting(
    one: Client, setting: str | None, said: dict[str, Any], compacts: bool
) -> None:
    if setting is not None:
        one.options["maintain-optimize"] = setting
    answer = one.ok("call", procedure="maintain", arguments=said, text="CALL …")
    assert answer["compacts"] == ([["default", "a"], ["default", "b"]] if compacts else [])


def test_a_namespace_may_be_called_like_the_catalog(one: Client) -> None:
    catalog = one.lake()
    catalog.run(lambda tx: tx.changing().create_namespace(("lake",), {}))
    create(catalog, "lake.a", files=["inner"])
    catalog.run(lambda tx: tx.changing().drop_table(named("a")))
    catalog.run(lambda tx: tx.changing().drop_table(named("lake.a")))
    assert refused(one, "undrop", table="lake.a") == "42702"
    assert called(one, "undrop", table="`lake`.`lake`.`a`")[0][:2] == ["lake", "a"]
    assert called(one, "undrop", table="lake.default.a")[0][:2] == ["default", "a"]
    one.begin()
    assert refused(one, "restore", version=0, tables=["lake.a"]) == "42702"


def test_a_reader_of_an_older_version_is_told_of_nothing_newer(one: Client) -> None:
    catalog = one.lake()
    then = catalog.database().version
    append(catalog, "a", "x")
    catalog.run(lambda tx: tx.changing().drop_table(named("b")))
    newer = called(one, "diff", **{"from": then})
    assert len(newer) == 2
    assert len(called(one, "dropped_tables")) == 1
    assert called(one, "dropped_tables", most=0) == []
    one.begin(read_only=True, as_of_version=then)
    assert called(one, "diff", **{"from": then}) == []
    assert called(one, "dropped_tables") == []
    assert refused(one, "diff", **{"from": then, "to": then + 1}) == "22023"
    assert refused(one, "diff", **{"from": then + 1}) == "22023"


def test_a_reader_of_an_older_version_knows_the_tags_of_when_it_began(one: Client, two: Client) -> None:
    catalog = one.lake()
    then = catalog.database().version
    append(catalog, "a", "x")
    called(one, "create_tag", tag="Before", version=then)
    one.begin(read_only=True, as_of_tag="before")
    assert [row[:2] for row in called(one, "tags")] == [["Before", then]]
    called(two, "drop_tag", tag="before")
    called(two, "create_tag", tag="later")
    assert [row[:2] for row in called(one, "tags")] == [["Before", then]]
    assert catalog.as_of("later").version == then + 4
    assert one.resolve("a", version="@BEFORE")["version"] == one.resolve("a", version=f"@{then}")["version"] == 0
