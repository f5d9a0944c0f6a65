"""The host: what statements of a transaction stage, and what becomes of those that fail or come too late."""

from __future__ import annotations

from typing import Literal

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.delta.log import staged_path
from lockstep.timeline.files import entry_path
from tests.support.client import Client, content
from tests.support.faulty import FaultyStorage
from tests.support.lakes import (
    CONSTRAINT,
    NEW_TABLE,
    add,
    append,
    files,
    location,
    named,
)


def test_a_clone_of_the_session_may_write_its_transaction(one: Client, two: Client) -> None:
    """Streams run in a clone of their session: the URI says whose the write is."""
    one.begin()
    two.stage(one.resolve("a", "append", writes=True)["uri"], 1, add("x"))
    assert one.ok("commit")["database_version"] == 2


def test_a_rolled_back_transaction_takes_no_more_writes(one: Client) -> None:
    tx = one.begin()
    uri = one.resolve("a", "append", writes=True)["uri"]
    ended = {"open": False, "uris": [uri], "tables": [["lake", "default", "a"]]}
    assert one.ok("rollback") == {"database_version": 1, "transaction_id": tx, "ended": ended}
    assert one.ok("ended") == {"open": False, "uris": [], "tables": []}
    for op, said in (("stage", {"actions": content(add("x"))}), ("staging", {}), ("staged", {})):
        state, _, message = one.refused(op, uri=uri, version=1, **said)
        assert (state, f"transaction {tx} has ended" in message) == ("25P01", True)


def test_of_two_statements_that_stage_one_version_the_second_is_told(one: Client) -> None:
    """Threads of a session write one transaction: Delta checks the loser against the winner, and tries the next."""
    one.begin()
    uri = one.resolve("a", "append", writes=True)["uri"]
    new = one.ok("create", namespace=[], table="c", mode="create")["uri"]
    assert [one.ok("staging", uri=at, version=v)["outcome"] for at, v in ((uri, 1), (new, 0))] == ["free", "free"]
    one.stage(uri, 1, add("x"))
    one.stage(new, 0, *NEW_TABLE)
    assert [one.ok("staging", uri=at, version=v)["outcome"] for at, v in ((uri, 1), (new, 0))] == ["taken", "taken"]
    assert [one.ok("staging", uri=at, version=v)["outcome"] for at, v in ((uri, 2), (new, 1))] == ["free", "free"]


def test_a_statement_from_before_rollback_to_stages_nothing_after_it(one: Client) -> None:
    """It may have read what was undone. Its version would fit: of this table nothing was."""
    tx = one.begin()
    one.ok("savepoint", name="s")
    uri = one.resolve("a", "append", writes=True)["uri"]
    one.ok("rollback_to", name="s")
    assert one.refused("staging", uri=uri, version=1)[0] == "25000"
    assert one.refused("stage", uri=uri, version=1, actions=content(add("x")))[0] == "25000"
    lake = one.lake()
    assert not lake.lake.storage.exists(staged_path(location(lake, "a"), tx, 1))
    assert one.ok("staging", uri=one.resolve("a", "append", writes=True)["uri"], version=1)["outcome"] == "free"


@pytest.mark.parametrize(
    ("version", "state"),
    [
        pytest.param(1, None, id="the snapshot's version"),
        pytest.param(0, "25001", id="an older version"),
        pytest.param(2, "25001", id="a newer version"),
        pytest.param(None, "25001", id="as it is when it is read"),
    ],
)
def test_a_dataframe_from_before_begin_must_show_the_snapshot(
    one: Client, elsewhere: TransactionalCatalog, version: int | None, state: str | None
) -> None:
    append(elsewhere, "a", "x")
    read = {
        "table": elsewhere.database().tables[named("a")].id,
        "version": version,
        "where": None,
        "head": True,
        "cached": False,
    }
    assert one.ok("snapshot", reads=[read]) == {}, "outside a transaction any will do"
    one.begin()
    append(elsewhere, "a", "y")
    answer = one.ask("snapshot", reads=[read])
    assert answer.get("error", {}).get("sqlstate") == state
    assert one.refused("snapshot", reads=[read | {"table": "no table of the snapshot"}])[0] == "25001"


def test_nothing_is_staged_into_a_table_that_was_dropped_meanwhile(one: Client) -> None:
    one.begin()
    uri = one.resolve("a", "append", writes=True)["uri"]
    one.ok("drop", namespace=[], table="a")
    assert one.refused("staging", uri=uri, version=1)[0] == "22023"


def test_what_may_not_be_staged_is_not_written(one: Client) -> None:
    tx = one.begin()
    uri = one.resolve("a", "append", writes=True)["uri"]
    lake = one.lake()
    storage, folder = lake.lake.storage, location(lake, "a")
    assert one.refused("stage", uri=uri, version=2, actions=content(add("x")))[0] == "22023", "1 would be the next"
    one.stage(uri, 1, add("x"))
    assert one.ok("stage", uri=uri, version=1, actions=content(add("y")))["outcome"] == "taken"
    assert storage.get(staged_path(folder, tx, 1)) == content(add("x")).encode()


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_commit_whose_staging_is_in_doubt_leaves_only_a_rollback(
    one: Client, when: Literal["before", "after"]
) -> None:
    """Who reads the transaction's folder might see it, and COMMIT does not have it: not even ROLLBACK TO helps."""
    tx = one.begin()
    uri = one.resolve("a", "append", writes=True)["uri"]
    one.stage(uri, 1, add("x"))
    one.ok("savepoint", name="s")
    lake = one.lake()
    store = FaultyStorage(lake.lake.storage)
    lake.lake.storage = store
    path = staged_path(location(lake, "a"), tx, 2)
    store.fail("put_if_absent", path=path, when=when)
    assert one.refused("stage", uri=uri, version=2, actions=content(add("y")))[0] == "58030"
    store.heal()
    assert one.refused("rollback_to", name="s")[0] == "25P02"
    assert one.refused("commit")[0] == "25P02"
    assert files(lake, "a") == set()


def test_a_commit_that_nobody_noted_leaves_only_a_rollback(one: Client) -> None:
    tx = one.begin()
    uri = one.resolve("a", "append", writes=True)["uri"]
    storage, folder = one.lake().lake.storage, location(one.lake(), "a")
    storage.put(staged_path(folder, tx, 1), b"of a write that failed, and was done all the same")
    state, _, message = one.refused("stage", uri=uri, version=1, actions=content(add("y")))
    assert (state, "ROLLBACK, and run the transaction again" in message) == ("58030", True), message
    assert storage.get(staged_path(folder, tx, 1)) == b"of a write that failed, and was done all the same"
    assert one.refused("commit")[0] == "25P02"


def test_a_conflict_ends_the_transaction_and_a_doubt_does_not(one: Client, elsewhere: TransactionalCatalog) -> None:
    one.begin()
    one.stage(one.resolve("a", "target", writes=True)["uri"], 1, CONSTRAINT)
    append(elsewhere, "a", "y")
    state, condition, message = one.refused("commit")
    assert (state, condition) == ("40001", "LOCKSTEP_CONFLICT")
    assert "wrote table default.a, whose schema or properties this transaction changed" in message
    assert not one.ok("ended")["open"]

    one.begin()
    one.stage(one.resolve("a", "append", writes=True)["uri"], 2, add("z"))
    lake = one.lake()
    store = FaultyStorage(lake.lake.storage)
    lake.timeline.storage = store
    store.interrupt("put_if_absent", lambda: store.fail("get", path=entry_path(3), times=9), path=entry_path(3))
    store.fail("put_if_absent", path=entry_path(3), when="after")
    assert one.refused("commit")[:2] == ("40003", "LOCKSTEP_COMMIT_UNKNOWN")
    assert one.ok("ended")["open"]
    store.heal()
    assert one.ok("commit")["database_version"] == 3
    assert not one.ok("ended")["open"]


def test_a_failed_write_fails_the_transaction(one: Client) -> None:
    one.begin()
    one.stage(one.resolve("a", "append", writes=True)["uri"], 1, add("x"))
    state, condition, message = one.refused("commit", failure="division by zero")
    assert (state, condition) == ("25P02", "LOCKSTEP_FAILED_TRANSACTION")
    assert "division by zero" in message
    assert not one.ok("ended")["open"]
    one.resolve("a")
