"""The host: JSON in, JSON out; what a session sees, and how each refusal travels."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.commit.announce import FOLDER as ANNOUNCED
from lockstep.delta.actions import render
from lockstep.delta.log import commit_path, staged_path
from lockstep.errors import InvalidError
from lockstep.settings import at
from lockstep.spark.host.host import Host, refusal
from lockstep.timeline.entry import Batch
from tests.support.client import Client, content
from tests.support.faulty import FaultyStorage
from tests.support.gate import wait_until
from tests.support.lakes import (
    NEW_TABLE,
    add,
    append,
    create,
    foreign,
    location,
    named,
    remove,
    staged_commits,
)

# --- sessions ---------------------------------------------------------------------------------------------------------


def test_a_transaction_is_its_sessions_own(one: Client, two: Client) -> None:
    tx = one.begin()
    uri = one.resolve("a", "append", writes=True)["uri"]
    assert uri.startswith(f"lockstep://{tx}-0.file/")
    one.stage(uri, 1, add("x"), text="INSERT INTO a …")
    assert one.resolve("a")["uri"] == uri, "what it wrote, it reads"
    assert two.resolve("a") | {"location": ""} == {
        "missing": False,
        "uri": uri.replace(f"{tx}-0", "head"),
        "version": 0,
        "table": two.lake().database().tables[named("a")].id,
        "name": ["default", "a"],
        "location": "",
        "external": False,
        "pin": 1,
    }
    answer = one.ok("commit")
    assert (answer["database_version"], answer["transaction_id"], answer["tables_changed"]) == (2, tx, 1)
    assert (answer["files_added"], answer["rows_added"], answer["rows_removed"]) == (1, 1, 0)
    assert answer["ended"] == {"open": False, "uris": [uri], "tables": [["lake", "default", "a"]]}
    assert one.ok("ended") == {"open": False, "uris": [], "tables": []}
    assert two.resolve("a")["version"] == 1
    assert two.lake().timeline.entries(1)[0].transaction.statements == ["INSERT INTO a …"]


def test_a_batch_is_that_of_the_next_begin_alone(one: Client, two: Client) -> None:
    """One that stayed would make a replay, whose work is dropped, of the transaction after it."""
    batch = {"application": "orders", "number": 7}
    one.ok("batch", batch=batch)
    two.begin()
    one.begin()
    assert one.ok("begun") == {"batch": batch, "last_batch": None, "is_replay": False}
    assert two.ok("begun") == {"batch": None, "last_batch": None, "is_replay": False}
    assert one.ok("commit")["database_version"] == 2
    assert two.ok("commit")["database_version"] == 1, "an empty transaction that is no batch makes no entry"
    assert not one.ok("ended")["open"]
    assert one.refused("begun")[0] == "25P01"
    one.begin()
    assert one.ok("begun") == {"batch": None, "last_batch": None, "is_replay": False}, "of no application"
    assert dict(one.lake().database().batches) == {"orders": 7}


@pytest.mark.parametrize("taken_back", [True, False], ids=["taken back", "BEGIN was refused"])
def test_a_batch_that_did_not_begin_is_forgotten(one: Client, taken_back: bool) -> None:
    one.ok("batch", batch={"application": "orders", "number": 7})
    if taken_back:
        one.ok("batch")
    else:
        assert one.refused("begin", catalogs={}, current=None)[0] == "22023"
    one.begin()
    assert one.ok("commit")["database_version"] == 1, "no batch, no entry"


@pytest.mark.parametrize(("number", "is_replay"), [(7, True), (8, False)])
def test_a_replay_says_that_it_changed_nothing(
    one: Client, elsewhere: TransactionalCatalog, number: int, is_replay: bool
) -> None:
    elsewhere.commit(elsewhere.begin(batch=Batch(application="orders", number=7)))
    batch = {"application": "orders", "number": number}
    one.ok("batch", batch=batch)
    one.begin()
    assert one.ok("begun") == {"batch": batch, "last_batch": 7, "is_replay": is_replay}
    one.stage(one.resolve("a", "append", writes=True)["uri"], 1, add("x"))
    answer = one.ok("commit")
    version, changed = (2, 0) if is_replay else (3, 1)
    assert (answer["database_version"], answer["tables_changed"], answer["rows_added"]) == (version, changed, changed)
    assert not one.ok("ended")["open"]
    assert one.resolve("a")["version"] == changed


def test_a_server_forgets_sessions_that_are_idle_and_no_others(
    monkeypatch: pytest.MonkeyPatch, host: Host, one: Client, tmp_path: Path
) -> None:
    """A Thrift server that runs for months has as many sessions as there were connections."""
    monkeypatch.setattr("lockstep.spark.host.host.REMEMBERED_SESSIONS", 3)
    lost = Client(host, tmp_path / "lake", "lost")
    lost.ok("lost", transaction="t1")
    tx = one.begin()
    for number in range(10):
        Client(host, tmp_path / "lake", f"idle {number}").resolve("a")
    assert [*host._sessions] == ["lost", "s1", "idle 9"]
    assert one.ok("rollback")["transaction_id"] == tx
    assert lost.refused("commit")[0] == "25P02"


def test_what_the_next_spark_commits_says_its_own_application(host: Host, one: Client) -> None:
    """A Python process may stop its Spark and start another: the host is the same one."""
    one.ok("create_namespace", namespace=["s"], properties={})
    host.begin_anew("the next")
    one.ok("create_namespace", namespace=["t"], properties={})
    timeline = one.lake().timeline
    last = timeline.head.version
    assert [entry.transaction.application for entry in timeline.entries(last - 2)] == ["test", "the next"]


def test_a_batch_is_remembered_until_it_begins_however_many_sessions_pass(
    monkeypatch: pytest.MonkeyPatch, host: Host, one: Client, tmp_path: Path
) -> None:
    """A driver may stand still between the two: for a collection of garbage, or to start a file system."""
    monkeypatch.setattr("lockstep.spark.host.host.REMEMBERED_SESSIONS", 3)
    batch = {"application": "orders", "number": 7}
    one.ok("batch", batch=batch)
    for number in range(10):
        Client(host, tmp_path / "lake", f"idle {number}").resolve("a")
    one.begin()
    assert one.ok("begun")["batch"] == batch


def test_a_new_table_is_remembered_however_many_sessions_pass(
    monkeypatch: pytest.MonkeyPatch, host: Host, one: Client, tmp_path: Path
) -> None:
    """A CTAS that takes hours asks for nothing between its beginning and its end."""
    monkeypatch.setattr("lockstep.spark.host.host.REMEMBERED_SESSIONS", 3)
    uri = one.ok("create", namespace=[], table="new", mode="create")["uri"]
    for number in range(10):
        Client(host, tmp_path / "lake", f"idle {number}").resolve("a")
    assert one.session not in host._sessions
    assert one.ok("write", uri=uri, version=0, actions=content(*NEW_TABLE)) == {"outcome": "committed"}
    assert one.resolve("new")["version"] == 0


@pytest.fixture
def few_creations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a host that is made after this remember two tables that were announced."""
    monkeypatch.setattr("lockstep.spark.host.lakehouses.PENDING_CREATIONS", 2)


def test_of_very_many_tables_that_were_announced_the_oldest_cannot_be_written(few_creations: None, one: Client) -> None:
    uris = [one.ok("create", namespace=[], table=name, mode="create")["uri"] for name in "xyz"]
    assert one.refused("write", uri=uris[0], version=0, actions=content(*NEW_TABLE))[0] == "42P01"
    assert one.ok("write", uri=uris[1], version=0, actions=content(*NEW_TABLE)) == {"outcome": "committed"}


@pytest.mark.parametrize(
    "request_", [b"\xff", b"", b"[]", b'{"op": "begin"}', b'{"session": "s"}', b"[" * 100_000, b'{"session": {}}']
)
def test_whatever_is_asked_has_an_answer(host: Host, request_: bytes) -> None:
    """The shim waits for one."""
    error = json.loads(host.call(request_))["error"]
    assert (error["condition"], error["sqlstate"]) == ("LOCKSTEP_INTERNAL", "XX000")


def test_a_panic_of_a_library_is_an_answer(one: Client) -> None:
    """What obstore and deltalake raise then is no Exception; it ended the thread, and the shim waited for ever."""

    class Panic(BaseException):
        pass

    def broken() -> None:
        raise Panic("cannot start a runtime")

    timeline = one.lake().timeline
    timeline.storage = store = FaultyStorage(timeline.storage)
    store.interrupt("put_if_absent", broken)
    assert one.refused("drop", namespace=[], table="a")[0] == "XX000"


def test_what_goes_wrong_is_logged_without_the_settings_of_the_catalog(
    one: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """Keys of a store are among them. Which request it was can be told without."""
    one.options = {"store.secret_access_key": "wJalrXUtnFEMI", **one.options}

    def broken() -> None:
        raise KeyError("no such thing")

    timeline = one.lake().timeline
    timeline.storage = store = FaultyStorage(timeline.storage)
    store.interrupt("put_if_absent", broken)
    assert one.refused("drop", namespace=[], table="a")[0] == "XX000"
    logged = caplog.text
    assert "wJalr" not in logged
    assert all(said in logged for said in ("'drop'", f"'{one.session}'", "'lake'", "KeyError"))


@pytest.mark.parametrize("op", ["resolve", "version_then"])
@pytest.mark.parametrize("micros", [2**62, -(2**62), 10**30])
def test_a_time_that_no_calendar_has_is_refused(one: Client, op: str, micros: int) -> None:
    asked = {"namespace": [], "table": "a", "system_time_micros": micros}
    use = {"use": "pinned"} if op == "resolve" else {}
    assert one.refused(op, **asked, **use)[0] == "22023"
    one.begin()
    assert one.refused(op, **asked, **use)[0] == "22023"


@pytest.mark.parametrize("op", ["resolve", "version_then"])
def test_a_version_that_was_refused_as_too_new_stays_so(one: Client, elsewhere: TransactionalCatalog, op: str) -> None:
    """A snapshot does not move on, for what a plain writer did, once its transaction was told which version is last."""
    then: dict[str, Any] = {"version": "@2", "use": "pinned"} if op == "resolve" else {"version": 2}
    one.begin()
    append(elsewhere, "b", "x")
    assert one.refused(op, namespace=[], table="b", **then)[0] == "22023"
    foreign(elsewhere, "a", 1, add("y"))
    one.resolve("a")
    assert one.refused(op, namespace=[], table="b", **then)[0] == "22023"


@pytest.mark.parametrize("op", ["resolve", "version_then"])
@pytest.mark.parametrize("inside", [False, True])
def test_a_version_that_was_written_over_is_neither_read_nor_restored(
    one: Client, elsewhere: TransactionalCatalog, op: str, *, inside: bool
) -> None:
    """`version_then` is what RESTORE TABLE and a clone as of a version of the database ask. The newest is as it was."""
    then, _ = append(elsewhere, "a", "x"), append(elsewhere, "a", "y")
    elsewhere.lake.upkeep.settle()
    elsewhere.lake.storage.put(commit_path(location(elsewhere, "a"), 1), render([{"commitInfo": {}}]))
    if inside:
        one.begin()
    asked: dict[str, Any] = {"version": f"@{then}", "use": "pinned"} if op == "resolve" else {"version": then}
    assert one.refused(op, namespace=[], table="a", **asked)[:2] == ("40002", "LOCKSTEP_FOREIGN_COMMIT")
    assert one.resolve("a")["version"] == 2


def test_an_error_with_half_an_emoji_is_an_answer() -> None:
    assert json.loads(refusal(InvalidError("a\ud83d")))["error"]["message"] == "a?"


@pytest.mark.parametrize("weaker_first", [True, False])
def test_each_session_has_the_settings_that_it_asked_for(host: Host, tmp_path: Path, *, weaker_first: bool) -> None:
    """The catalogs of two sessions have one name and one lake, and one is stricter than the other."""
    weak, strict = (Client(host, tmp_path / "lake", name) for name in ("weak", "strict"))
    weak.options |= {"isolation": "SNAPSHOT", "outside-writes": "allow"}
    strict.options |= {"isolation": "SERIALIZABLE", "record-reads": "true"}
    for client in (weak, strict) if weaker_first else (strict, weak):
        client.begin()
    begun = {name: host._sessions[name].transaction for name in ("weak", "strict")}
    found = {name: (tx.isolation, tx.record_reads) for name, tx in begun.items() if tx is not None}
    assert found == {"weak": ("SNAPSHOT", False), "strict": ("SERIALIZABLE", True)}
    assert weak.ok("outside", what="LOAD DATA") == {}
    assert strict.refused("outside", what="LOAD DATA")[0] == "25001"
    assert weak.lake().lake is strict.lake().lake, "one timeline in memory for both"


def test_a_statement_on_its_own_commits_at_the_level_of_its_session(host: Host, tmp_path: Path) -> None:
    weak, strict = (Client(host, tmp_path / "lake", name) for name in ("weak", "strict"))
    weak.options |= {"isolation": "SNAPSHOT"}
    create(weak.lake(), "a")
    uri = weak.resolve("a", "append", writes=True)["uri"]
    for version, client in enumerate((weak, strict), 1):
        assert client.ok("write", uri=uri, version=version, actions=content(add(f"f{version}")))
    entries = weak.lake().timeline.entries(1)
    assert [entry.transaction.isolation for entry in entries] == ["SNAPSHOT", "SERIALIZABLE"]


def test_sessions_that_share_a_transaction_may_have_set_their_catalogs_up_differently(
    host: Host, one: Client, tmp_path: Path
) -> None:
    one.begin()
    same = Client(host, tmp_path / "lake", one.session)
    same.options |= {"isolation": "SNAPSHOT"}
    assert same.resolve("a")["version"] == 0
    other_name = Client(host, tmp_path / "lake", one.session, "pond")
    assert other_name.refused("resolve", namespace=[], table="a", use="pinned")[0] == "0A000"


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("lockstep.isolaton", "did you mean lockstep.isolation?"),
        ("LOCKSTEP.isolation", "did you mean lockstep.isolation?"),
        ("lockstep.xyzzy", "there are lockstep.isolation, lockstep.record_reads, "),
    ],
)
def test_a_setting_that_there_is_not_is_refused(one: Client, name: str, near: str) -> None:
    refused = one.refused("check_setting", name=name, value="SNAPSHOT")
    assert refused[:2] == ("42704", "LOCKSTEP_UNDEFINED")
    assert refused[2].startswith(f"{name} is no setting of Lockstep: {near}")
    said = {name.removeprefix("lockstep."): "SNAPSHOT"}
    assert one.refused("begin", settings=said) == refused
    uri = one.resolve("a", "append", writes=True)["uri"]
    assert one.refused("write", uri=uri, version=1, actions=content(add("x")), settings=said) == refused
    assert one.resolve("a")["version"] == 0


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("isolation", "snapshot", "sometimes"),
        ("record_reads", "True", "yes"),
        ("on_statement_error", "CONTINUE", "ignore"),
        ("shared_transaction", "any words", None),
        ("shared_transaction_timeout", "0", "-1"),
        ("driver_state_files", "0", "many"),
    ],
)
def test_a_value_that_a_setting_cannot_have_is_refused(one: Client, name: str, right: str, wrong: str | None) -> None:
    assert name in {setting.key for setting in at("session")}
    one.ok("check_setting", name=f"lockstep.{name}", value=right)
    if wrong is not None:
        assert one.refused("check_setting", name=f"lockstep.{name}", value=wrong)[0] == "22023"
        assert one.refused("begin", settings={name: wrong})[0] == "22023"


def test_settings_can_be_set_whatever_became_of_the_transaction(one: Client) -> None:
    one.ok("lost", transaction="t1")
    one.ok("check_setting", name="lockstep.isolation", value="SNAPSHOT")


def test_a_failed_write_may_be_passed_over(one: Client) -> None:
    assert one.refused("begin", settings={"on_statement_error": "ignore"})[0] == "22023"
    one.begin(settings={"on_statement_error": "continue"})
    one.stage(one.resolve("a", "append", writes=True)["uri"], 1, add("x"))
    one.ok("savepoint", name="s", failure="division by zero")
    one.ok("commit", failure="division by zero")
    assert not one.ok("ended")["open"]
    one.begin()  # what one transaction was told is not said to the next
    one.stage(one.resolve("a", "append", writes=True)["uri"], 2, add("y"))
    assert one.refused("savepoint", name="s", failure="division by zero")[0] == "25P02"
    assert one.refused("commit", failure="division by zero")[0] == "25P02"


def test_a_catalogs_resolution_is_told_at_the_statement(one: Client, two: Client) -> None:
    for client in (one, two):
        client.options |= {"resolution": "wait-die", "lock-timeout": "0s"}
        client.catalog = "early"
        client.begin()
    uris = [client.resolve("a", "target", writes=True)["uri"] for client in (one, two)]
    one.stage(uris[0], 1, remove("x"))
    with pytest.raises(AssertionError, match=r"LOCKSTEP_CONFLICT.*gives way \(wait-die\).*40001"):
        two.stage(uris[1], 1, remove("x"))
    assert two.refused("commit")[:2] == ("25P02", "LOCKSTEP_FAILED_TRANSACTION")
    assert not two.ok("ended")["open"]
    assert one.ok("commit")["database_version"] == 2


def test_a_waiting_statement_does_not_keep_its_own_transaction_from_being_rolled_back(one: Client, two: Client) -> None:
    for client in (one, two):
        client.options |= {"resolution": "wait-die", "lock-timeout": "60s"}
        client.catalog = "early"
        client.begin()
    uris = [client.resolve("a", "target", writes=True)["uri"] for client in (one, two)]
    two.stage(uris[1], 1, remove("x"))
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(one.stage, uris[0], 1, remove("x"))
        lake = one.lake()
        folder = f"{ANNOUNCED}/{lake.timeline.head.tables[named('a')].id}"
        wait_until(lambda: waiting.done() or len(lake.lake.storage.list(folder)) > 1, "the statement does not wait")
        one.ok("rollback")
        with pytest.raises(AssertionError, match=r"LOCKSTEP_NO_TRANSACTION.*rolled back while this statement waited"):
            waiting.result(timeout=60)
        assert two.ok("commit")["database_version"] == 2


def test_a_waiting_statement_keeps_no_other_session_from_committing(one: Client, two: Client) -> None:
    for client in (one, two):
        client.options |= {"resolution": "wait-die", "lock-timeout": "60s"}
        client.catalog = "early"
        client.begin()
    uris = [client.resolve("a", "target", writes=True)["uri"] for client in (one, two)]
    two.stage(uris[1], 1, remove("x"))
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(one.stage, uris[0], 1, remove("x"))
        lake = one.lake()
        folder = f"{ANNOUNCED}/{lake.timeline.head.tables[named('a')].id}"
        wait_until(lambda: waiting.done() or len(lake.lake.storage.list(folder)) > 1, "the statement does not wait")
        assert two.ok("commit")["database_version"] == 2
        with pytest.raises(AssertionError, match=r"LOCKSTEP_CONFLICT.*database version 2"):
            waiting.result(timeout=60)


@pytest.mark.parametrize(
    ("option", "value"), [("resolution", "hope"), ("lock-timeout", "long"), ("commit-attempts", "0")]
)
def test_an_option_that_makes_no_sense_is_refused(one: Client, option: str, value: str) -> None:
    one.options[option], one.catalog = value, "other"
    state, condition, message = one.refused("tables", namespace=[])
    assert (state, condition) == ("22023", "LOCKSTEP_INVALID")
    assert repr(value) in message


def test_closing_rolls_back_whatever_is_open(host: Host, one: Client, two: Client, tmp_path: Path) -> None:
    first, _ = one.begin(), two.begin()
    for client in (one, two):
        client.stage(client.resolve("a", "append", writes=True)["uri"], 1, add("x"))
    _, _, doubtful = host.transaction_of(first)
    doubtful.in_doubt = 2
    broken = FaultyStorage(one.lake().lake.storage)
    one.lake().timeline.storage = broken
    broken.fail("get", times=100)
    host.close()
    left = [path.parent.name for path in staged_commits(tmp_path / "lake")]
    assert left == [first], "what cannot be rolled back now keeps nobody else from it"
    assert one.refused("commit")[0] == "25P01"


def test_closing_goes_on_whatever_goes_wrong(
    host: Host, one: Client, two: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = one.begin()
    two.options |= {"store.session_token": "another lake in memory"}
    two.begin()
    for client in (one, two):
        client.stage(client.resolve("a", "append", writes=True)["uri"], 1, add("x"))

    def broken() -> None:
        raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    lake = one.lake().lake
    lake.storage = store = FaultyStorage(lake.storage)
    store.interrupt("get", broken)
    host.close()
    assert [path.parent.name for path in staged_commits(tmp_path / "lake")] == [first]
    assert "cannot schedule new futures" in caplog.text
    assert [client.refused("commit")[0] for client in (one, two)] == ["25P01", "25P01"]


def test_a_statement_is_told_that_a_version_is_taken_only_if_it_can_see_by_what(one: Client) -> None:
    """Delta looks in the log for what took it, and tries the same version again, for ever, if nothing is there."""
    lake = one.lake()
    foreign(lake, "a", 1, add("x"))
    uri = one.resolve("a", "append", writes=True)["uri"]
    write = {"uri": uri, "version": 1, "actions": content(add("y"))}
    assert one.ok("write", **write) == {"outcome": "taken"}
    lake.lake.storage.delete(commit_path(location(lake, "a"), 1))
    assert one.refused("write", **write)[0] == "XX001"


def test_a_transactions_statement_is_told_so_only_if_it_can_see_by_what(one: Client) -> None:
    tx = one.begin()
    uri = one.resolve("a", "append", writes=True)["uri"]
    one.stage(uri, 1, add("x"))
    lake = one.lake()
    storage, folder = lake.lake.storage, location(lake, "a")
    for version, path in ((1, staged_path(folder, tx, 1)), (0, commit_path(folder, 0))):
        assert one.ok("staging", uri=uri, version=version) == {"outcome": "taken"}
        storage.delete(path)
        assert one.refused("staging", uri=uri, version=version)[0] == "XX001"
