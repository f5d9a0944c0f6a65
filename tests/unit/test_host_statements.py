"""The host's answers to statements: refusals, and at which database version their tables are read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lockstep import errors
from lockstep.catalog import TransactionalCatalog
from lockstep.delta.log import staged_path
from lockstep.spark.host.host import Host, condition_of
from tests.support.client import Client, content
from tests.support.faulty import FaultyStorage
from tests.support.lakes import (
    NEW_TABLE,
    add,
    append,
    create,
    foreign,
    named,
    open_catalog,
)

# --- refusals ---------------------------------------------------------------------------------------------------------


A = {"namespace": [], "table": "a"}
X = {"namespace": [], "table": "x"}


@pytest.mark.parametrize(
    ("op", "args", "state", "condition"),
    [
        ("commit", {}, "25P01", "LOCKSTEP_NO_TRANSACTION"),
        ("rollback", {}, "25P01", "LOCKSTEP_NO_TRANSACTION"),
        ("begin", {"catalogs": {}}, "22023", "LOCKSTEP_INVALID"),
        ("tables", {"namespace": ["no"]}, "3F000", "LOCKSTEP_UNDEFINED"),
        ("create", A | {"mode": "create"}, "42P07", "LOCKSTEP_DUPLICATE"),
        ("create", X | {"mode": "replace"}, "42P01", "LOCKSTEP_UNDEFINED"),
        ("create", X | {"mode": "create", "provider": "csv"}, "0A000", "LOCKSTEP_UNSUPPORTED"),
        ("create", X | {"mode": "create", "location": "s3://bucket/t"}, "22023", "LOCKSTEP_INVALID"),
        ("drop_namespace", {"namespace": ["default"], "cascade": False}, "2BP01", "LOCKSTEP_INVALID"),
        ("resolve", A | {"use": "pinned", "version": "@99"}, "22023", "LOCKSTEP_INVALID"),
        ("resolve", A | {"use": "pinned", "version": "nine"}, "22023", "LOCKSTEP_INVALID"),
        ("resolve", A | {"use": "pinned", "version": "²"}, "22023", "LOCKSTEP_INVALID"),
        ("resolve", A | {"use": "pinned", "version": "@" + "9" * 5000}, "22023", "LOCKSTEP_INVALID"),
        ("staged", {"uri": "lockstep://head.file/no/lake/t", "version": 1}, "22023", "LOCKSTEP_INVALID"),
        ("no such", {}, "XX000", condition_of(errors.LockstepError)),
    ],
)
def test_a_refusal_travels_as_data(one: Client, op: str, args: dict[str, Any], state: str, condition: str) -> None:
    assert one.refused(op, **args)[:2] == (state, condition)


def test_every_error_has_a_condition_of_its_own() -> None:
    kinds = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.LockstepError)
    ]
    assert len({condition_of(kind) for kind in kinds}) == len(kinds)
    assert condition_of(errors.CorruptTimelineError) == "LOCKSTEP_CORRUPT_TIMELINE"


def test_a_catalog_without_a_lake_says_which_root(host: Host, tmp_path: Path) -> None:
    client = Client(host, tmp_path / "none")
    client.options["create"] = "false"
    state, condition, message = client.refused("exists", namespace=[], table="a")
    assert (state, condition) == ("22023", "LOCKSTEP_INVALID")
    assert f"no folder {tmp_path / 'none'}" in message
    client.options = {}
    assert "set spark.sql.catalog.lake.root" in client.refused("exists", namespace=[], table="a")[2]


def test_a_missing_table_is_an_answer_and_no_error(one: Client) -> None:
    assert one.resolve("nothing") == {"missing": True, "pin": 1}
    one.begin()
    assert one.resolve("nothing") == {"missing": True}
    assert one.ok("drop", namespace=[], table="nothing") == {"dropped": False}


# --- two catalogs -----------------------------------------------------------------------------------------------------


def test_a_transaction_is_in_one_catalog(host: Host, one: Client, tmp_path: Path) -> None:
    second = Client(host, tmp_path / "second", catalog="pond")
    create(second.lake(), "a")
    catalogs = {"lake": one.options, "pond": second.options}
    assert one.refused("begin", catalogs=catalogs)[2].startswith("which catalog? This session has lake, pond")
    one.ok("begin", catalogs=catalogs, current="pond")
    state, _, message = one.refused("resolve", namespace=[], table="a", use="pinned")
    assert state == "0A000"
    assert "the open transaction is in catalog pond" in message
    second.stage(second.resolve("a", "append", writes=True)["uri"], 1, add("x"))
    assert one.ok("commit")["database_version"] == 2
    assert one.lake().database().version == 1


# --- one statement, one database version ------------------------------------------------------------------------------


def test_all_tables_of_a_statement_are_of_one_database_version(one: Client, elsewhere: TransactionalCatalog) -> None:
    pin = one.resolve("a")["pin"]
    create(elsewhere, "c")
    append(elsewhere, "a", "x")
    append(elsewhere, "b", "y")
    asked: dict[str, Any] = {"pin": pin, "seen": [["a"]], "mentioned": []}
    assert one.resolve("b", **asked)["version"] == 0, "as it was when the statement read its first table"
    assert one.resolve("c", **asked) == {"missing": True, "pin": pin}
    assert [one.resolve(name)["version"] for name in "abc"] == [1, 1, 0]
    assert "version" not in one.resolve("a", "live")


def test_all_tables_that_a_statement_mentions_are_looked_at_before_it_is_pinned(
    one: Client, elsewhere: TransactionalCatalog
) -> None:
    foreign(elsewhere, "b", 1, add("f"))
    found = one.resolve("a", mentioned=[["a"], ["default", "b"]])
    assert found["version"] == 0
    assert one.resolve("b", pin=found["pin"], seen=[["a"]], mentioned=[])["version"] == 1


@pytest.mark.parametrize("statements", [1, 200])
def test_any_host_goes_on_with_a_statement(
    one: Client, elsewhere: TransactionalCatalog, tmp_path: Path, statements: int
) -> None:
    """The number is the statement's: whoever is asked, and whatever else was asked meanwhile."""
    pin = one.resolve("a")["pin"]
    for number in range(statements):
        append(elsewhere, "b", f"{number}")
        one.resolve("a")
    for client in (one, Client(Host(), tmp_path / "lake", session="of another")):
        found = client.resolve("b", pin=pin, seen=[["a"]], mentioned=[])
        assert (found["pin"], found["version"]) == (pin, 0)
    assert one.resolve("b")["version"] == statements


def test_a_version_that_never_was_is_refused(one: Client) -> None:
    assert one.refused("resolve", namespace=[], table="a", use="pinned", pin=7)[0] == "22023"


def test_what_another_process_chose_is_published_before_it_is_read(
    one: Client, elsewhere: TransactionalCatalog, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """That process has died since, between ratifying a commit and publishing it."""
    one.resolve("a")
    with monkeypatch.context() as patched:
        patched.setattr(elsewhere.lake.publisher, "try_publish", lambda *_, **__: False)
        pin = append(elsewhere, "b", "x")
    found = one.resolve("b", pin=pin, mentioned=[])
    assert found["version"] == 1
    log = Path(found["location"].removeprefix("file://"), "_delta_log")
    assert (log / f"{1:020}.json").exists()


@pytest.mark.parametrize("changed", ["nothing", "a", "a, later", "a, dropped", "v, made"])
def test_what_plain_writers_did_to_a_table_found_late_is_read_beside_what_is_the_same(
    one: Client, elsewhere: TransactionalCatalog, changed: str
) -> None:
    seen: dict[str, Any] = {"pin": one.resolve("a")["pin"], "seen": [["a"], ["v"]]}
    elsewhere.database()
    if changed == "a":
        append(elsewhere, "a", "x")
    elif changed == "a, dropped":
        elsewhere.run(lambda tx: tx.changing().drop_table(named("a")))
    elif changed == "v, made":
        create(elsewhere, "v")
    foreign(elsewhere, "b", 1, add("f"))
    if changed == "a, later":
        elsewhere.database([named("b")])
        append(elsewhere, "a", "x")
    found = one.resolve("b", **seen)
    moves = changed in ("nothing", "a, later")
    assert found["version"] == (1 if moves else 0)
    assert found["pin"] == seen["pin"] + (1 if moves else 0)
    assert one.resolve("b")["version"] == 1, "the next statement reads it in any case"


def test_what_is_read_as_it_was_at_a_time_is_no_newer_than_the_rest(
    one: Client, elsewhere: TransactionalCatalog
) -> None:
    pin = one.resolve("a")["pin"]
    append(elsewhere, "b", "y")
    tomorrow = int((datetime.now(UTC) + timedelta(days=1)).timestamp() * 1_000_000)
    then: dict[str, Any] = {"system_time_micros": tomorrow, "mentioned": []}
    assert one.resolve("b", pin=pin, seen=[["a"]], **then)["version"] == 0
    assert one.resolve("b", **then)["version"] == 1


def test_inside_a_transaction_every_statement_reads_its_snapshot(one: Client, elsewhere: TransactionalCatalog) -> None:
    tx = one.begin()
    shared = one.resolve("a")
    assert (shared["version"], "head" in shared["uri"]) == (0, True), "through the warm URI while that is at the pin"
    append(elsewhere, "a", "x")
    one.lake().database()
    own = one.resolve("a")
    assert own["uri"].startswith(f"lockstep://{tx}-0."), "and through its own once the table has moved on"
    assert one.resolve("a", version="@1")["version"] == 0
    assert one.refused("resolve", namespace=[], table="a", use="pinned", version="@2")[0] == "22023"


# --- statements on their own ------------------------------------------------------------------------------------------


def test_an_autocommitted_create_and_write(one: Client) -> None:
    uri = one.ok("create", namespace=[], table="c", mode="create")["uri"]
    assert one.ok("exists", namespace=[], table="c") == {"exists": False}
    first = {"version": 0, "actions": content(*NEW_TABLE), "text": "CREATE TABLE c"}
    assert one.ok("write", uri=uri, **first) == {"outcome": "committed"}
    assert one.ok("exists", namespace=[], table="c") == {"exists": True}
    assert one.ok("write", uri=uri, version=1, actions=content(add("x"))) == {"outcome": "committed"}
    texts = [entry.transaction.statements for entry in one.lake().timeline.entries(1)]
    assert texts == [["CREATE TABLE c"], ["WRITE default.c"]]
    assert one.ok("write", uri=uri, version=1, actions=content(add("y"))) == {"outcome": "taken"}


def test_a_refused_create_is_forgotten(one: Client, elsewhere: TransactionalCatalog) -> None:
    """Its files are removed with the refusal, so no second try may make them a table."""
    uri = one.ok("create", namespace=[], table="c", mode="create")["uri"]
    create(elsewhere, "c")
    write = {"uri": uri, "version": 0, "actions": content(*NEW_TABLE)}
    assert one.refused("write", **write)[0] == "42P07"
    elsewhere.run(lambda tx: tx.changing().drop_table(named("c")))
    assert one.refused("write", **write)[0] == "42P01"


def test_a_write_past_the_open_transaction_is_refused(one: Client) -> None:
    uri = one.resolve("a", "live")["uri"]
    one.begin()
    state, condition, message = one.refused("write", uri=uri, version=1, actions=content(add("x")))
    assert (state, condition) == ("25001", "LOCKSTEP_ACTIVE_TRANSACTION")
    assert "before BEGIN" in message


def test_a_table_set_aside_is_refused_inside_a_transaction_too(one: Client, elsewhere: TransactionalCatalog) -> None:
    """At its pin the log has a foreign commit where the timeline has ours: reading it would show the wrong rows."""
    store = FaultyStorage(elsewhere.lake.storage)
    elsewhere = open_catalog(store)
    log = f"{elsewhere.database().tables[named('a')].location}/_delta_log/{1:020d}.json"
    store.interrupt("put_if_absent", lambda: foreign(elsewhere, "a", 1, {"remove": {"path": "x"}}), path=log)
    tx = elsewhere.begin(isolation="SNAPSHOT")
    elsewhere.lake.storage.put(
        staged_path(tx.table(named("a")).location, tx.id, 1), content({"remove": {"path": "x"}}).encode()
    )
    tx.stage(tx.table(named("a")).location, 1)
    elsewhere.commit(tx)
    one.begin()
    assert one.resolve("b")["version"] == 0
    for use in ("pinned", "target"):
        assert one.refused("resolve", namespace=[], table="a", use=use)[:2] == ("40002", "LOCKSTEP_FOREIGN_COMMIT")
    assert one.ok("drop", namespace=[], table="a") == {"dropped": True}
    assert one.ok("commit")["tables_changed"] == 1


def test_what_a_rollback_could_not_undo_is_refused_outside(one: Client) -> None:
    one.begin()
    assert one.refused("outside", what="VACUUM")[0] == "25001"
    state, _, message = one.refused("outside", what="GENERATE")
    assert (state, "manifest" in message) == ("25001", True)
    state, _, message = one.refused("outside", what="InsertInto spark_catalog.x")
    assert (state, "spark.sql.catalog.lake.outside-writes=allow" in message) == ("25001", True)


def test_what_a_session_asks_in_a_transaction_that_has_ended_does_not_happen_on_its_own(one: Client) -> None:
    """Another thread may have ended it between the request and its turn; or a host that died kept it."""
    uri = one.resolve("a", "append")["uri"]
    tx = one.begin()
    one.ok("rollback")
    one.ok("ended")
    for op, about in (("drop", {"namespace": [], "table": "a"}), ("commit", {}), ("rollback", {})):
        assert one.refused(op, within=tx, **about)[0] == "25P01"
    assert one.resolve("a", "append")["uri"] == uri
