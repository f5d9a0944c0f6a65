"""Identity columns: rows that are appended, or put in the place of others, get values that no row has had."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lockstep.delta.snapshot import read_snapshot
from lockstep.errors import ConflictError, InvalidError, LockstepError, UnsupportedError
from lockstep.tables.opened import OpenLake
from tests.support.lakes import named
from tests.support.python_tables import made_by_spark
from tests.support.refused import refused_in

LONG = 2**63


def identity(start: Any = 1, step: Any = 1, mark: Any = None, *, explicit: Any = False) -> dict[str, Any]:
    said = {"start": start, "step": step, "allowExplicitInsert": explicit, "highWaterMark": mark}
    return {f"delta.identity.{key}": value for key, value in said.items() if value is not None}


def column(name: str, type_: str = "long", **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": type_, "nullable": True, "metadata": metadata}


def made(lake: OpenLake, *, type_: str = "long", **said: Any) -> None:
    """Make a table of an identity column g beside others, as Spark says it."""
    fields = [column("g", type_, **identity(**said)), column("id"), column("v", "string", CURRENT_DEFAULT="'new'")]
    made_by_spark(lake, fields, ["identityColumns", "allowColumnDefaults"])


def rows(lake: OpenLake) -> dict[int, int]:
    with lake.transaction(read_only=True) as tx:
        return {row["id"]: row["g"] for row in tx["t"].to_arrow().to_pylist()}


def mark(lake: OpenLake) -> int | None:
    table = lake.catalog.database().tables[named("t")]
    schema = read_snapshot(lake.catalog.lake.storage, table.location, table.version).metadata["schemaString"]
    [field] = [each for each in json.loads(schema)["fields"] if each["name"] == "g"]
    return (
        None
        if "delta.identity.highWaterMark" not in field["metadata"]
        else int(field["metadata"]["delta.identity.highWaterMark"])
    )


GIVEN: list[tuple[dict[str, Any], list[int]]] = [
    ({}, [1, 2, 3]),
    ({"start": 10, "step": -3}, [10, 7, 4]),
    ({"mark": 5}, [6, 7, 8]),
    ({"start": 0, "step": 5, "mark": 40}, [45, 50, 55]),
    ({"start": LONG - 3}, [LONG - 3, LONG - 2, LONG - 1]),
    ({"start": -LONG, "step": 2**62}, [-LONG, -(2**62), 0]),
    ({"start": -LONG + 2, "step": -1, "mark": None}, [-LONG + 2, -LONG + 1, -LONG]),
]


@pytest.mark.parametrize(("said", "values"), GIVEN)
def test_values_follow_start_and_step_behind_the_mark(lake: OpenLake, said: dict[str, Any], values: list[int]) -> None:
    made(lake, **said)
    with lake.transaction() as tx:
        tx["t"].append({"id": [0, 1]})
        tx["t"].append({"id": []})
        tx["t"].append({"id": [2]})
    assert rows(lake) == dict(enumerate(values))
    assert mark(lake) == values[-1]
    assert lake.at()["t"].to_arrow(["v"]).column("v").to_pylist() == ["new"] * 3


def test_what_is_put_in_the_place_of_rows_has_new_values(lake: OpenLake) -> None:
    made(lake)
    with lake.transaction() as tx:
        t = tx["t"]
        t.append({"id": [0, 1]})
        t.overwrite({"id": [2]}, "id IN (0, 2)")
        assert t.delete("id = 1") == 1
        tx.savepoint("before")
        t.append({"id": [99]})
        tx.rollback_to("before")
        t.append({"id": [3], "note": ["x"]}, schema_mode="merge")
        t.alter.set_column_comment("g", "generated")
    assert rows(lake) == {2: 3, 3: 4}
    with lake.transaction() as tx:
        tx["t"].overwrite({"id": [7]})
    assert (rows(lake), mark(lake)) == ({7: 5}, 5)


def test_two_that_give_values_at_once_conflict(lake: OpenLake) -> None:
    made(lake)

    def both() -> None:
        with lake.transaction() as tx:
            tx["t"].append({"id": [0]})
            with lake.transaction() as other:
                other["t"].append({"id": [1]})

    with pytest.raises(ConflictError):
        both()
    lake.run(lambda tx: tx["t"].append({"id": [2]}))
    assert rows(lake) == {1: 1, 2: 2}


def test_values_of_ones_own_where_that_is_allowed(lake: OpenLake) -> None:
    """As in Delta they move no mark."""
    made(lake, explicit=True)
    with lake.transaction() as tx:
        tx["t"].append({"id": [0], "g": [100]})
        tx["t"].append({"id": [1]})
    assert (rows(lake), mark(lake)) == ({0: 100, 1: 1}, 1)


def refused(lake: OpenLake, change: Any, kind: type[LockstepError], state: str, words: str) -> None:
    version = lake.at().version
    with lake.transaction() as tx, refused_in(tx, kind, match=words) as error:
        change(tx["t"])
    assert (error.value.sqlstate, lake.at().version) == (state, version)


def test_values_of_ones_own_where_they_are_always_generated(lake: OpenLake) -> None:
    made(lake)
    for change in (lambda t: t.append({"g": [7]}), lambda t: t.overwrite({"g": [7]})):
        refused(lake, change, InvalidError, "42808", "g of table default.t is GENERATED ALWAYS")


@pytest.mark.parametrize("said", [{"start": LONG - 1}, {"mark": LONG - 1}, {"start": -LONG, "step": -1}])
def test_a_long_has_no_room(lake: OpenLake, said: dict[str, Any]) -> None:
    made(lake, **said)
    refused(lake, lambda t: t.append({"id": [1, 2]}), InvalidError, "22003", "has no room for 2 more values")


UNKNOWN: list[dict[str, Any]] = [
    {"step": 0}, {"step": "1"}, {"start": None}, {"explicit": None}, {"step": 2, "mark": 4}, {"start": 5, "mark": 1},
    {"mark": 1.5}, {"type_": "integer"},
]  # fmt: skip


@pytest.mark.parametrize("said", UNKNOWN)
def test_what_is_not_as_the_protocol_says_is_refused_by_name(lake: OpenLake, said: dict[str, Any]) -> None:
    made(lake, **said)
    refused(lake, lambda t: t.append({"id": [1]}), UnsupportedError, "0A000", r"uses identityColumns \(g\)")


def test_one_within_another_column_is_refused_by_name(lake: OpenLake) -> None:
    struct = {"type": "struct", "fields": [column("g", "long", **identity())]}
    made_by_spark(lake, [column("id"), {**column("st"), "type": struct}], ["identityColumns"])
    refused(lake, lambda t: t.append({"id": [1]}), UnsupportedError, "0A000", r"uses identityColumns \(st\)")


def test_rows_that_are_there_are_changed_in_spark(lake: OpenLake) -> None:
    made(lake)
    with lake.transaction() as tx:
        tx["t"].append({"id": [1]})
    for change in (
        lambda t: t.update({"id": "2"}),
        lambda t: t.merge({"id": [1]}, on="id").when_matched_delete().execute(),
    ):
        refused(lake, change, UnsupportedError, "0A000", "uses identityColumns")
    with pytest.raises(UnsupportedError, match="identityColumns"):
        lake.restore(1)
    assert rows(lake) == {1: 1}
