"""What a statement is told of relations before Spark asks for them: what it would be told, and read unless said."""

from __future__ import annotations

from typing import Any

import pytest

from lockstep.catalog import TransactionalCatalog
from tests.support.client import Client
from tests.support.lakes import add, append, create, foreign, named


def ahead(table: str, use: str = "pinned", *, touch: int = 1) -> dict[str, Any]:
    return {"name": ["default", table], "use": use, "writes": use != "pinned", "touch": touch}


def told(client: Client, *others: dict[str, Any], **said: Any) -> list[dict[str, Any] | None]:
    """Ask for table `c`, and return what is told of others with it."""
    mentioned = [["c"], *(each["name"] for each in others)]
    answer = client.resolve("c", ahead=others, mentioned=mentioned, **said)
    found: list[dict[str, Any] | None] = answer["ahead"]
    return found


@pytest.fixture
def one(one: Client) -> Client:
    create(one.lake(), "c")
    return one


# --- a transaction ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("use", ["pinned", "changed", "append"])
def test_what_is_told_ahead_is_what_would_be_told_when_asked(one: Client, use: str) -> None:
    one.begin()
    [answer] = told(one, ahead("a", use))
    assert answer == one.resolve("a", use, writes=use != "pinned")


@pytest.mark.parametrize(
    ("commit", "state"),
    [
        pytest.param({}, "40001", id="nothing is said of it: read in whole"),
        pytest.param({"settled": [1]}, None, id="all is known of it: its columns were read"),
        pytest.param({"unused": [1]}, None, id="there was no loading"),
        pytest.param({"unused": [2], "settled": [3]}, "40001", id="there was none of others"),
    ],
)
@pytest.mark.parametrize("use", ["pinned", "changed"])
def test_what_is_told_ahead_is_read_in_whole_unless_commit_says_otherwise(
    one: Client, two: Client, use: str, commit: dict[str, Any], state: str | None
) -> None:
    """To forget to say it costs a refusal, and never a read: the other reads b, and writes a."""
    one.begin()
    two.begin()
    told(one, ahead("a", use))
    one.stage(one.resolve("b", "append", writes=True)["uri"], 1, add("x"))
    two.resolve("b")
    two.stage(two.resolve("a", "append", writes=True)["uri"], 1, add("y"))
    two.ok("commit")
    answer = one.ask("commit", **commit)
    assert answer.get("error", {}).get("sqlstate") == state


def test_of_a_loading_that_was_none_no_column_is_read(one: Client) -> None:
    for said, tables in (({"settled": [1]}, ["a"]), ({"unused": [1]}, [])):
        one.begin()
        told(one, ahead("a"))
        [tx] = [session.transaction for session in one.host._sessions.values() if session.transaction is not None]
        one.ok("commit", **said)
        assert [read.name.table for read in tx.reads() if read.name.table != "c"] == tables


def test_a_snapshot_does_not_move_on_under_what_was_told_ahead(one: Client, elsewhere: TransactionalCatalog) -> None:
    """A plain writer's commit that is found later is in a database version in which what was told must be the same."""
    tx = one.begin()
    [before] = told(one, ahead("a"))
    assert before is not None
    assert before["version"] == 0
    append(elsewhere, "a", "y")
    foreign(elsewhere, "b", 1, add("z"))
    assert [f"//{tx}-0." in one.resolve(table)["uri"] for table in "ba"] == [True, True], "as it was at BEGIN"


def test_a_plain_writers_commit_is_seen_by_what_is_told_ahead(one: Client, elsewhere: TransactionalCatalog) -> None:
    one.begin()
    foreign(elsewhere, "a", 1, add("z"))
    [answer] = told(one, ahead("a"))
    assert answer is not None
    assert answer["version"] == 1


# --- a statement on its own -------------------------------------------------------------------------------------------


def test_a_statement_is_told_of_one_version(one: Client, elsewhere: TransactionalCatalog) -> None:
    append(elsewhere, "a", "x")
    answers = told(one, ahead("a"), ahead("b", touch=2))
    pin = elsewhere.database().version
    assert [(each["version"], each["pin"]) for each in answers if each is not None] == [(1, pin), (0, pin)]


def test_a_statement_that_changes_a_table_is_told_ahead_what_it_reads(
    one: Client, elsewhere: TransactionalCatalog
) -> None:
    append(elsewhere, "a", "x")
    answers = told(one, ahead("a"), ahead("b", touch=2), use="append", writes=True)
    pin = elsewhere.database().version
    assert [(each["version"], each["pin"]) for each in answers if each is not None] == [(1, pin), (0, pin)]


# --- what is not told -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inside", [True, False], ids=["inside", "alone"])
def test_a_name_that_nothing_has_is_told_of_too(one: Client, *, inside: bool) -> None:
    if inside:
        one.begin()
    [answer] = told(one, ahead("nothing"))
    assert answer is not None
    assert answer["missing"]


def test_what_is_refused_is_refused_to_who_asks_for_it(one: Client) -> None:
    one.begin(read_only=True)
    assert told(one, ahead("a", "append"), ahead("b", touch=2))[0] is None
    assert one.refused("resolve", namespace=[], table="a", use="append", writes=True)[0] == "25006"


def test_who_only_names_a_table_does_not_refuse_the_others(one: Client, elsewhere: TransactionalCatalog) -> None:
    assert named("a") in elsewhere.database().tables
    one.begin()
    answers = told(one, ahead("nothing"), ahead("a", touch=2))
    assert [each is not None and each["missing"] for each in answers] == [True, False]
