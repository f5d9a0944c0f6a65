"""Transactions that were rolled back behind their sessions' backs: their rest must not commit without the beginning."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.settings import IDLE_TIMEOUT, STATEMENT_TIMEOUT, TRANSACTION_TIMEOUT, Setting
from lockstep.spark.host.host import Host
from lockstep.spark.host.transactions import KEPT_SECONDS
from lockstep.timeline.files import entry_path
from tests.support.client import Client
from tests.support.faulty import FaultyStorage
from tests.support.lakes import add, staged_commits


def test_a_lost_transaction_can_only_be_ended(one: Client, two: Client) -> None:
    """The host before this one died with it: what follows must not commit as if there had been no BEGIN."""
    one.ok("lost", transaction="t1")
    sqlstate, _, message = one.refused("resolve", namespace=[], table="a", use="live")
    assert (sqlstate, "t1" in message) == ("25P02", True)
    assert one.refused("begin", catalogs={}, current=None)[0] == "25P02"
    assert one.ok("rollback") == {"transaction_id": "t1"}
    assert one.ok("ended") == {"open": False, "uris": [], "tables": []}
    assert one.resolve("a")["version"] == two.resolve("a")["version"] == 0


def test_a_lost_transaction_does_not_commit(one: Client) -> None:
    one.ok("lost", transaction="t1")
    assert one.refused("commit")[0] == "25P02"
    assert one.ok("ended") == {"open": False, "uris": [], "tables": []}
    assert one.begin()


def test_who_comes_back_after_a_shared_transaction_lapsed_is_refused(one: Client, two: Client, tmp_path: Path) -> None:
    id = one.begin()
    one.stage(one.resolve("a", "target")["uri"], 1)
    assert one.ok("lapse")["tables"] == [["lake", "default", "a"]], "caches of it are dropped"
    assert not staged_commits(tmp_path / "lake")
    for op, said in (("resolve", {"namespace": [], "table": "a", "use": "live"}), ("commit", {})):
        state, _, message = one.refused(op, **said)
        assert state == "25P02"
        assert f"{id} was rolled back: all connections" in message
    assert one.ok("rollback") == {"transaction_id": id}
    assert one.ok("ended") == {"open": False, "uris": [], "tables": []}
    assert one.resolve("a")["version"] == two.resolve("a")["version"] == 0
    assert one.begin() != id


def test_what_has_lapsed_lapses_once(one: Client) -> None:
    id = one.begin()
    one.ok("lapse")
    assert one.ok("lapse") == {"uris": [], "tables": []}
    assert one.ok("rollback") == {"transaction_id": id}


def test_begin_says_how_long_a_shared_transaction_is_kept(one: Client) -> None:
    begin = {"catalogs": {"lake": one.options}, "current": "lake"}
    for said, kept in [({}, KEPT_SECONDS), ({"settings": {"shared_transaction_timeout": "0"}}, 0)]:
        assert one.ok("begin", **begin, **said)["kept_seconds"] == kept
        one.ok("rollback")
        one.ok("ended")
    for wrong in ("soon", "-1", "1.5", "", "9" * 19, "9" * 5000):
        state, condition, _ = one.refused("begin", **begin, settings={"shared_transaction_timeout": wrong})
        assert (state, condition) == ("22023", "LOCKSTEP_INVALID")
    assert one.begin(), "a BEGIN that was refused has begun nothing"


@pytest.mark.parametrize("setting", [IDLE_TIMEOUT, STATEMENT_TIMEOUT, TRANSACTION_TIMEOUT], ids=lambda each: each.key)
@pytest.mark.parametrize("long", ["9999999999999d", "9" * 400 + "d"])
def test_a_timeout_of_ages_is_one_that_java_has_a_number_for(one: Client, setting: Setting, long: str) -> None:
    """A number of more than 64 bits is cut off there, and may be any then."""
    begin = {"catalogs": {"lake": one.options}, "current": "lake", "settings": {setting.key: long}}
    answer = one.ok("begin", **begin)
    millis = {IDLE_TIMEOUT: answer["idle_millis"], STATEMENT_TIMEOUT: answer["statement_millis"]}
    assert millis.get(setting, 2**63 - 1) == 2**63 - 1
    assert one.ok("rollback")["transaction_id"] == answer["transaction_id"]


def test_a_begin_that_was_interrupted_has_begun_nothing(
    one: Client, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Py4J calls the host in the thread that Ctrl-C reaches. What the session does next would be in a transaction."""
    begin = {"catalogs": {"lake": one.options}, "current": "lake"}
    one.resolve("a")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as during:
        during.setattr(host.keeper, "watch", interrupt)
        assert one.refused("begin", **begin)[0] == "XX000"
    assert "//head." in one.resolve("a", "append", writes=True)["uri"]
    assert one.refused("commit")[0] == "25P01"
    id_ = one.begin()
    with monkeypatch.context() as during:
        during.setattr("lockstep.spark.host.transactions.ActiveTransactionError", interrupt)
        assert one.refused("begin", **begin, within=id_)[0] == "XX000"
    assert one.ok("rollback")["transaction_id"] == id_, "one that had begun before stays"


# --- a COMMIT without an answer, and then nobody ----------------------------------------------------------------------


@pytest.fixture
def store(one: Client) -> FaultyStorage:
    """The store of the timeline, to be made to fail."""
    timeline = one.lake().timeline
    store = FaultyStorage(timeline.storage)
    timeline.storage = store
    return store


def in_doubt(one: Client, store: FaultyStorage, *, landed: bool = True) -> str:
    """Begin, write, and send a COMMIT that has no answer; return the transaction's id."""
    id = one.begin()
    one.stage(one.resolve("a", "append", writes=True)["uri"], 1, add("x"))
    store.go_down(entry_path(2), landed=landed)
    assert one.refused("commit")[:2] == ("40003", "LOCKSTEP_COMMIT_UNKNOWN")
    return id


@pytest.mark.parametrize("says", ["commit", "rollback"])
def test_who_comes_back_hears_that_a_lapsed_transaction_is_committed(
    one: Client, two: Client, store: FaultyStorage, caplog: pytest.LogCaptureFixture, says: str
) -> None:
    id = in_doubt(one, store)
    store.heal()
    with caplog.at_level(logging.WARNING, "lockstep"):
        assert one.ok("lapse")["tables"] == [["lake", "default", "a"]], "caches of it are dropped all the same"
    assert f"{id} is committed as database version 2" in caplog.text
    state, _, message = one.refused("resolve", namespace=[], table="a", use="live")
    assert (state, f"{id} is committed as database version 2" in message) == ("25P02", True)
    assert "was rolled back" not in message
    for _ in range(2):
        state, _, message = one.refused(says)
        assert (state, f"transaction {id} is committed as database version 2" in message) == ("2D000", True)
    assert one.ok("ended") == {"open": False, "uris": [], "tables": []}
    assert one.resolve("a")["version"] == two.resolve("a")["version"] == 1
    assert one.begin() != id


@pytest.mark.parametrize("says", ["commit", "rollback"])
def test_who_comes_back_hears_that_nobody_knows(
    one: Client, store: FaultyStorage, elsewhere: TransactionalCatalog, says: str
) -> None:
    id = in_doubt(one, store)
    one.ok("lapse")
    state, _, message = one.refused("resolve", namespace=[], table="a", use="live")
    assert (state, "does not say whether" in message, "was rolled back" in message) == ("25P02", True, False)
    state, condition, message = one.refused(says)
    assert (state, condition) == ("40003", "LOCKSTEP_COMMIT_UNKNOWN")
    assert f"transaction {id} is committed as database version 2" in message
    assert not one.ok("ended")["open"]


def test_a_lapsed_transaction_whose_commit_did_not_land_was_rolled_back(one: Client, store: FaultyStorage) -> None:
    id = in_doubt(one, store, landed=False)
    store.heal()
    one.ok("lapse")
    assert one.ok("rollback") == {"transaction_id": id}


@pytest.mark.parametrize("doubt", [False, True])
def test_whatever_goes_wrong_a_lapsed_transaction_is_over(
    host: Host, one: Client, store: FaultyStorage, elsewhere: TransactionalCatalog, doubt: bool
) -> None:
    """What is left of it must not be what the next statement goes on with."""

    def broken() -> None:
        raise RuntimeError("no threads any more")

    if doubt:
        in_doubt(one, store)
        store.heal()
        store.interrupt("get", broken)
    else:
        one.begin()
        one.stage(one.resolve("a", "append", writes=True)["uri"], 1, add("x"))
        one.lake().lake.storage = data = FaultyStorage(one.lake().lake.storage)
        data.interrupt("get", broken)
    one.ok("lapse")
    assert host._sessions[one.session].transaction is None
    assert one.refused("resolve", namespace=[], table="a", use="live")[0] == "25P02"
    if doubt:
        assert one.refused("rollback")[0] == "40003", "it may be committed"
    else:
        assert one.ok("rollback")
    assert not one.ok("ended")["open"]


@pytest.mark.parametrize("end", ["commit", "rollback"])
@pytest.mark.parametrize("again", ["commit", "rollback"])
def test_what_has_been_ended_is_not_open_any_more(one: Client, end: str, again: str) -> None:
    """The answer says so, and nothing is left to end, or to take back."""
    one.begin()
    one.stage(one.resolve("a", "append", writes=True)["uri"], 1, add("x"))
    assert not one.ok(end)["ended"]["open"]
    assert one.refused(again)[0] == "25P01"
    assert not one.ok("ended")["open"]


# --- a COMMIT that a host died of -------------------------------------------------------------------------------------


@pytest.fixture
def successor(one: Client, tmp_path: Path) -> Client:
    """The same session with the host that was started when the first one had died."""
    return Client(Host(), tmp_path / "lake", one.session)


def orphaned(one: Client, successor: Client, store: FaultyStorage, *, landed: bool) -> str:
    """Send a COMMIT that has no answer, and have another host told of it."""
    id = in_doubt(one, store, landed=landed)
    store.heal()
    successor.ok("lost", transaction=id, sent={"catalog": "lake", "options": one.options, "snapshot": 1})
    assert successor.ok("ended") == {"open": True, "uris": [], "tables": []}, "nobody knows yet"
    state, _, message = successor.refused("resolve", namespace=[], table="a", use="live")
    assert (state, f"{id} is in doubt" in message, "COMMIT again" in message) == ("25P02", True, True)
    return id


def test_another_commit_finds_out_that_the_first_landed(
    one: Client, successor: Client, store: FaultyStorage, tmp_path: Path
) -> None:
    id = orphaned(one, successor, store, landed=True)
    done = successor.ok("commit")
    assert (done["transaction_id"], done["database_version"], done["files_added"]) == (id, 2, 1)
    assert not staged_commits(tmp_path / "lake")
    assert successor.refused("rollback")[0] == "2D000"
    assert not successor.ok("ended")["open"]
    assert successor.resolve("a")["version"] == 1, "it was published, which the first host did not get to"


def test_a_rollback_finds_out_that_the_commit_landed(one: Client, successor: Client, store: FaultyStorage) -> None:
    id = orphaned(one, successor, store, landed=True)
    state, _, message = successor.refused("rollback")
    assert (state, f"transaction {id} is committed as database version 2" in message) == ("2D000", True)
    assert not successor.ok("ended")["open"]


@pytest.mark.parametrize("says", ["commit", "rollback"])
def test_one_that_did_not_land_never_will(
    one: Client, successor: Client, store: FaultyStorage, tmp_path: Path, says: str
) -> None:
    """Its write may be under way yet, so the place that it would take is taken."""
    id = orphaned(one, successor, store, landed=False)
    if says == "commit":
        state, _, message = successor.refused("commit")
        assert (state, f"{id} was rolled back" in message) == ("25P02", True)
    else:
        assert successor.ok("rollback") == {"transaction_id": id}
    assert (tmp_path / "lake" / entry_path(2)).is_file()
    assert not successor.ok("ended")["open"]
    assert successor.resolve("a")["version"] == 0


def test_a_store_that_does_not_answer_leaves_it_in_doubt(
    one: Client, successor: Client, store: FaultyStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    orphaned(one, successor, store, landed=True)
    timeline = successor.lake().timeline
    monkeypatch.setattr(timeline, "storage", broken := FaultyStorage(timeline.storage))
    broken.fail("get", times=100)
    for says in ("commit", "rollback"):
        assert successor.refused(says)[:2] == ("40003", "LOCKSTEP_COMMIT_UNKNOWN")
        assert successor.ok("ended")["open"]
    broken.heal()
    assert successor.ok("commit")["database_version"] == 2
