"""The host: a table as of a time at which what is committed next may be there, too, is read as it is now."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support.client import Client
from tests.support.lakes import add


def micros(later: timedelta) -> int:
    return int((datetime.now(UTC) + later).timestamp() * 1_000_000)


NOW, TOMORROW = timedelta(0), timedelta(days=1)
LEAST = {"text": "SELECT 1", "schema": "{}"}


def append(client: Client, table: str) -> None:
    client.stage(client.resolve(table, "append", writes=True)["uri"], 1, add(client.session))


def both(one: Client, two: Client) -> str | None:
    """Have each session write what the other one has read, and return what the second is refused with, if it is."""
    append(one, "b")
    append(two, "a")
    one.ok("commit")
    error = two.ask("commit").get("error")
    return None if error is None else str(error["sqlstate"])


@pytest.mark.parametrize("later", [NOW, TOMORROW])
def test_a_time_after_the_snapshot_is_a_read_of_what_is_there(one: Client, two: Client, later: timedelta) -> None:
    for session, table in ((one, "a"), (two, "b")):
        session.begin()
        assert session.resolve(table, system_time_micros=micros(later))["version"] == 0
    assert both(one, two) == "40001"


def test_what_was_before_the_snapshot_stays_as_it_is(one: Client, two: Client) -> None:
    then = micros(NOW)
    for session, table in ((two, "a"), (one, "b")):
        session.begin()
        append(session, table)
        session.ok("commit")
    for session, table in ((one, "a"), (two, "b")):
        session.begin()
        assert session.resolve(table, system_time_micros=then)["version"] == 0
    for session, table in ((one, "b"), (two, "a")):
        session.stage(session.resolve(table, "append", writes=True)["uri"], 2, add("z"))
        session.ok("commit")


def test_a_clone_as_of_such_a_time_is_a_read(one: Client, two: Client) -> None:
    for session, table in ((one, "a"), (two, "b")):
        session.begin()
        asked: dict[str, Any] = {"namespace": [], "table": table, "system_time_micros": micros(TOMORROW)}
        assert session.ok("version_then", **asked)["version"] == 0
    assert both(one, two) == "40001"


def test_what_a_view_reads_as_of_such_a_time_is_read(one: Client, two: Client) -> None:
    for table in ("a", "b"):
        one.ok("create_view", namespace=[], table=f"of_{table}", replace="create", view=LEAST)
    for session, table in ((one, "a"), (two, "b")):
        session.begin()
        shown = session.ok("view", namespace=[], table=f"of_{table}", system_time_micros=micros(TOMORROW))
        session.resolve(table, version=f"@{shown['version']}")
    assert both(one, two) == "40001"


def test_a_statement_on_its_own_says_what_it_read_as_of_a_time_to_come(one: Client) -> None:
    assert "table" not in one.resolve("a", system_time_micros=micros(NOW)), "which nobody will have committed before"
    assert one.resolve("a", system_time_micros=micros(TOMORROW))["table"] == one.resolve("a")["table"]
