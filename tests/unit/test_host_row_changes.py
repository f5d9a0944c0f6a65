"""The host's answers about the rows of a table that changed: which commits those are, of which table."""

from __future__ import annotations

from typing import Any

from lockstep.catalog import TransactionalCatalog
from lockstep.delta.actions import render
from tests.support.client import Client
from tests.support.faulty import FaultyStorage
from tests.support.lakes import add, append, foreign, log_file, named


def bound(version: int | str, *, inclusive: bool = True) -> dict[str, Any]:
    return {"version": str(version), "micros": None, "inclusive": inclusive}


def asked(table: str, start: int | str, end: int | str | None = None, of: str = "database") -> dict[str, Any]:
    return {
        "namespace": [],
        "table": table,
        "of": of,
        "start": bound(start),
        "end": None if end is None else bound(end),
    }


def runs(answer: dict[str, Any]) -> list[list[int]]:
    """Return of each run the first and the last table version, and the database version."""
    return [commit[:3] for commit in answer["commits"]]


def test_the_table_is_that_of_the_name_at_the_newer_end(one: Client) -> None:
    lake = one.lake()
    first = append(lake, "a", "x")
    id_ = lake.database().tables[named("a")].id
    one.ok("rename", namespace=[], table="a", to=["c"])
    second = append(lake, "c", "y")
    assert runs(one.ok("row_changes", **asked("c", first, second))) == [[1, 1, first], [2, 2, second]]
    assert runs(one.ok("row_changes", **asked("a", first, first))) == [[1, 1, first]]
    assert runs(one.ok("row_changes", **asked("c", first, first))) == [[1, 1, first]], "it is called so now"
    assert one.ok("row_changes", **asked("a", first, second))["missing"]
    assert lake.database().tables[named("c")].id == id_


def test_inside_it_ends_with_the_snapshot(one: Client, elsewhere: TransactionalCatalog) -> None:
    """What was refused as too new stays so, whatever a plain writer did."""
    one.begin()
    later = append(elsewhere, "b", "x")
    sqlstate, _, message = one.refused("row_changes", **asked("b", 0, later))
    assert (sqlstate, f"version {later} does not exist here" in message) == ("22023", True)
    foreign(elsewhere, "a", 1, add("y"))
    one.resolve("a")
    assert one.refused("row_changes", **asked("b", 0, later))[0] == "22023"
    assert [run[2] for run in runs(one.ok("row_changes", **asked("b", 0)))] == [later - 1]


def test_outside_a_statement_keeps_to_its_version(one: Client, elsewhere: TransactionalCatalog) -> None:
    pin = one.ok("row_changes", **asked("a", 0))["pin"]
    append(elsewhere, "a", "x")
    again = one.ok("row_changes", **asked("a", 0), pin=pin, seen=[["a"]])
    assert [run[2] for run in runs(again)] == [pin]


def test_of_the_tables_own_versions_delta_knows_the_range(one: Client) -> None:
    append(one.lake(), "a", "x")
    answer = one.ok("row_changes", **asked("a", 0, of="table"))
    assert (answer["version"], answer["commits"]) == (1, [])
    assert one.ok("row_changes", **asked("nope", 0, of="table"))["missing"]


def test_a_table_that_came_later_had_not_changed(one: Client) -> None:
    later = append(one.lake(), "a", "x")
    sqlstate, _, message = one.refused("row_changes", **asked("a", 0, 0))
    assert (sqlstate, "is not in database version 0" in message) == ("22023", True)
    assert runs(one.ok("row_changes", **asked("a", 0, later)))[-1] == [1, 1, later]


def test_what_was_written_over_in_a_range_is_refused_as_where_a_version_is_read(
    one: Client, store: FaultyStorage
) -> None:
    """The log has another writer's rows there, which no database version has."""
    lake = one.lake()
    first = append(lake, "a", "x")
    last = append(lake, "a", "y")
    lake.lake.upkeep.settle()
    store.put(log_file(lake, "a", 1), render([add("theirs")]))
    assert one.refused("resolve", namespace=[], table="a", use="pinned", version=f"@{first}")[0] == "40002"
    sqlstate, _, message = one.refused("row_changes", **asked("a", first, first))
    assert (sqlstate, "wrote over version 1" in message) == ("40002", True)
    assert one.refused("row_changes", **asked("a", 0, last))[0] == "40002", "within it, too"
    one.begin()
    assert one.refused("row_changes", **asked("a", first, first))[0] == "40002"
    one.ok("rollback")
    assert runs(one.ok("row_changes", **asked("a", last, last))) == [[2, 2, last]]


def test_nor_are_another_writers_files_listed_as_those_of_a_version(one: Client, store: FaultyStorage) -> None:
    lake = one.lake()
    first = append(lake, "a", "x")
    append(lake, "a", "y")
    asked_for: dict[str, Any] = {"table": "files", "transaction": None, "filters": [], "cursor": None}
    [a, _] = one.ok("system_files", **asked_for, at=first)["tables"]
    assert (a["name"], a["version"]) == ("a", 1)
    store.put(log_file(lake, "a", 1), render([add("theirs")]))
    assert one.refused("system_files", **asked_for, at=first)[0] == "40002"
    assert one.ok("system_files", **asked_for, at=None)["at"] == first + 1
