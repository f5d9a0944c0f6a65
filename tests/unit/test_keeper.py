"""What the host does about open transactions unasked: records, timeouts, and the end that a person asked for."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from lockstep.commit import ending, keeping
from lockstep.commit.ended import FOLDER, ended_transactions
from lockstep.commit.records import abort, open_transactions
from lockstep.errors import UnavailableError
from lockstep.spark.host import keeper
from lockstep.spark.host.host import Host
from lockstep.spark.host.keeper import Keeper
from tests.support.client import Client, content
from tests.support.gate import wait_until
from tests.support.lakes import add, location, remove, staged_commits


class Seconds:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Seconds:
    return Seconds()


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, clock: Seconds) -> Host:
    """A host whose keeper looks when the test says so."""
    monkeypatch.setattr(Keeper, "watch", lambda _: None)
    monkeypatch.setattr("lockstep.spark.host.transactions.time.monotonic", clock)
    host = Host("test")
    host.keeper._seconds = clock
    return host


def write(client: Client) -> str:
    """Begin, and write into table a; return the transaction's id."""
    id_ = client.begin(comment="nightly")
    client.stage(client.resolve("a", "append", writes=True)["uri"], 1, add("x"))
    return id_


def recorded(client: Client) -> list[str]:
    return [record.transaction for record in open_transactions(client.lake().lake)]


def called(client: Client, procedure: str, **arguments: Any) -> list[list[Any]]:
    rows: list[list[Any]] = client.ok("call", procedure=procedure, arguments=arguments, text="CALL …")["rows"]
    return rows


def test_a_transaction_is_recorded_once_it_has_written_and_been_open_for_a_second(
    host: Host, one: Client, two: Client, clock: Seconds
) -> None:
    id_ = write(one)
    two.begin()
    host.keeper.look()
    assert recorded(one) == []
    clock.now += keeping.RECORDED_AFTER
    host.keeper.look()
    assert recorded(one) == [id_]  # the other has written nothing
    [before] = open_transactions(one.lake().lake)
    clock.now += keeping.HEARTBEAT
    host.keeper.look()
    [after] = open_transactions(one.lake().lake)
    assert before.seen_at < after.seen_at
    one.ok("rollback")
    host.keeper.look()
    assert recorded(one) == []


def test_what_the_next_spark_begins_is_looked_after_too(host: Host, one: Client, two: Client, clock: Seconds) -> None:
    """A Python process may stop its Spark and start another: the host is the same one."""
    write(one)
    host.keeper.look()
    clock.now += keeping.RECORDED_AFTER
    host.keeper.look()
    host.begin_anew("the next")
    assert recorded(one) == []
    host.keeper._seconds = clock
    two.begin(settings={"transaction_timeout": "1h"})
    two.stage(two.resolve("a", "append", writes=True)["uri"], 1, add("y"))
    host.keeper.look()
    clock.now += keeping.RECORDED_AFTER
    host.keeper.look()
    assert len(recorded(two)) == 1
    clock.now += 3600
    host.keeper.look()
    assert two.refused("commit")[0] == keeper.TIMED_OUT


def test_one_that_took_too_long_is_in_nobodys_way(host: Host, one: Client, two: Client, clock: Seconds) -> None:
    """Its session need not come back, and a younger one would give way to it until what it announced expires."""
    for client in (one, two):
        client.options["resolution"] = "wait-die"
    one.begin(settings={"transaction_timeout": "1h"})
    one.stage(one.resolve("a", "target", writes=True)["uri"], 1, remove("p"), add("x"))
    two.begin()
    uri = two.resolve("a", "target", writes=True)["uri"]
    two.ok("stage", uri=uri, version=1, actions=content(remove("p"), add("y")))
    assert two.refused("claim", uri=uri, version=1)[0] == "40001"
    two.ok("rollback")
    clock.now += 3600
    host.keeper.look()
    two.begin()
    two.stage(two.resolve("a", "target", writes=True)["uri"], 1, remove("p"), add("z"))
    two.ok("commit")
    assert one.refused("commit")[0] == keeper.TIMED_OUT


def ended(client: Client) -> dict[str, str]:
    """What is kept of transactions that were rolled back: their ids, and why."""
    return {record.transaction: record.reason for record in ended_transactions(client.lake().lake)}


@pytest.mark.parametrize(("end", "reason"), [("rollback", "ROLLBACK"), ("lapse", "all connections"), ("commit", None)])
def test_why_one_with_a_record_was_rolled_back_is_kept(
    host: Host, one: Client, clock: Seconds, end: str, reason: str | None
) -> None:
    id_ = write(one)
    host.keeper.look()
    clock.now += keeping.RECORDED_AFTER
    host.keeper.look()
    [record] = open_transactions(one.lake().lake)
    assert record.bytes_staged == 1
    one.ok(end)
    host.keeper.look()
    assert {key: text.startswith(reason or "?") for key, text in ended(one).items()} == ({id_: True} if reason else {})


def test_a_refused_commit_is_kept_as_a_conflict_however_long_it_takes_to_end(
    host: Host, one: Client, two: Client, clock: Seconds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is rolled back first, and then removes what it wrote: in an object store the keeper looks in between."""
    write(one)
    one.ok("commit")
    _, loser = one.begin(), two.begin()
    for client in (one, two):
        client.stage(client.resolve("a", "append", writes=True)["uri"], 2, remove("x"))
    host.keeper.look()
    clock.now += keeping.RECORDED_AFTER
    host.keeper.look()
    one.ok("commit")
    discard = ending.discard

    def slowly(*arguments: Any) -> None:
        looking = threading.Thread(target=host.keeper.look)
        looking.start()
        looking.join()
        discard(*arguments)

    monkeypatch.setattr(ending, "discard", slowly)
    assert two.refused("commit")[0] == "40001"
    host.keeper.look()
    [record] = ended_transactions(one.lake().lake)
    assert (record.transaction, record.conflict and record.conflict.rule) == (loser, "file")
    assert recorded(one) == []


def test_of_one_without_a_record_nothing_is_kept(host: Host, one: Client) -> None:
    write(one)
    host.keeper.look()
    one.ok("rollback")
    host.keeper.look()
    assert ended(one) == {}


def test_that_it_timed_out_is_kept_once(host: Host, one: Client, clock: Seconds) -> None:
    id_ = one.begin(settings={"transaction_timeout": "10s"})
    one.stage(one.resolve("a", "append", writes=True)["uri"], 1, add("x"))
    for _ in range(5):
        host.keeper.look()
        clock.now += 3
    one.refused("commit")
    host.keeper.look()
    assert ended(one) == {id_: "it was open for longer than lockstep.transaction_timeout"}
    assert len(one.lake().lake.storage.list(FOLDER)) == 1


def test_all_of_a_driver_are_listed_at_once(one: Client, two: Client) -> None:
    first, second = write(one), two.begin(read_only=True)
    rows = called(one, "transactions")
    assert [row[0] for row in rows] == [first, second]
    assert [row[1] for row in rows] == ["INFLIGHT", "REQUESTED"]
    tables, comment, bytes_staged, age_seconds = rows[0][-4:]
    assert (tables, comment, bytes_staged, 0 <= age_seconds < 60) == ("default.a", "nightly", 1, True)
    one.ok("rollback")
    two.ok("commit")
    assert called(one, "transactions") == []


def test_one_that_is_busy_is_open_all_the_same(host: Host, one: Client, two: Client) -> None:
    """A COMMIT that removes nothing yet needs its files: who deletes beside it must know of it."""
    id_ = write(one)
    session = next(each for each in host._all_sessions() if each.has(id_))
    found: list[list[Any]] = []
    uri = one.house().uris.head(location(one.lake(), "a"))

    def look() -> None:
        found.extend(called(two, "transactions"))
        found.append([two.ok("kept_versions", uri=uri, catalogs={"lake": two.options})])

    looking = threading.Thread(target=look)
    with session.lock:
        looking.start()
        looking.join()
    [row, [kept]] = found
    assert (row[0], row[1]) == (id_, "INFLIGHT")
    assert kept["files"] == ["x"], "that of a transaction that nobody was told of"
    assert kept["since"] < (session.transaction.began_at.timestamp() - 500) * 1000  # type: ignore[union-attr]


def test_the_end_of_a_host_takes_its_records_with_it(host: Host, one: Client, clock: Seconds) -> None:
    write(one)
    host.keeper.look()
    clock.now += keeping.RECORDED_AFTER
    host.keeper.look()
    assert recorded(one)
    host.close()
    assert recorded(one) == []
    assert list(ended(one).values()) == ["its driver ended"]


@pytest.mark.parametrize("where", ["session", "catalog"])
def test_a_transaction_that_is_open_too_long_is_rolled_back(
    host: Host, one: Client, clock: Seconds, where: str
) -> None:
    settings = {"transaction_timeout": "1min"} if where == "session" else {"transaction_timeout": "0"}
    if where == "catalog":
        one.options["transaction-timeout"] = "1min"
        settings = {}
    id_ = one.begin(settings=settings, catalogs={"lake": one.options})
    one.stage(one.resolve("a", "append", writes=True)["uri"], 1, add("x"))
    clock.now += 59
    host.keeper.look()
    one.resolve("a")
    clock.now += 1
    host.keeper.look()
    state, _, message = one.refused("resolve", namespace=[], table="a", use="pinned")
    assert state == "25P04"
    assert f"transaction {id_} was rolled back: it was open for longer than lockstep.transaction_timeout" in message
    assert one.refused("commit")[0] == "25P04"
    assert one.ok("rollback")["transaction_id"] == id_
    assert not one.ok("ended")["open"]
    assert one.lake().timeline.head.tables == one.lake().timeline.at(1).tables
    one.begin()


def test_a_session_can_say_for_ever(host: Host, one: Client, clock: Seconds) -> None:
    one.options["transaction-timeout"] = "1min"
    one.begin(settings={"transaction_timeout": "0"})
    clock.now += 1e6
    host.keeper.look()
    one.ok("commit")


def test_no_transaction_is_ended_while_a_request_of_it_is_under_way(host: Host, one: Client, clock: Seconds) -> None:
    one.begin(settings={"transaction_timeout": "1s"})
    clock.now += 2
    [session] = host._all_sessions()
    with_lock = threading.Thread(target=host.keeper.look)
    with session.lock:
        with_lock.start()
        with_lock.join()
        assert session.lost_transaction is None
    host.keeper.look()
    assert session.lost_transaction is not None


def test_one_that_a_person_ended_is_told_at_its_next_statement(host: Host, one: Client, two: Client) -> None:
    id_ = write(one)
    [[ended, version]] = called(two, "abort", transaction=id_, reason="too long")
    assert ended == id_
    state, _, message = one.refused("resolve", namespace=[], table="a", use="pinned")
    assert state == "57014"
    assert "asked for that: too long" in message
    assert f"database version {version}" in message
    assert called(two, "transactions") == []
    assert leftovers(one)  # a statement of it may be reading them
    one.ok("rollback")
    assert not leftovers(one)
    one.ok("ended")
    one.begin()


def leftovers(client: Client) -> list[Path]:
    return staged_commits(Path(client.options["root"]))


def test_what_a_statement_wrote_that_ran_meanwhile_goes_too(one: Client, two: Client) -> None:
    id_ = write(one)
    uri = one.resolve("b", "append", writes=True)["uri"]
    called(two, "abort", transaction=id_)
    with pytest.raises(AssertionError, match="57014"):
        one.stage(uri, 1, add("y"))
    assert len(leftovers(one)) == 2
    one.ok("rollback")
    assert not leftovers(one)
    assert not list(Path(one.options["root"]).rglob("y"))


def test_one_that_another_process_ended_is_told_in_time(host: Host, one: Client, clock: Seconds) -> None:
    id_ = write(one)
    host.keeper.look()
    clock.now += keeping.RECORDED_AFTER
    host.keeper.look()
    abort(one.lake().lake, id_, author="bob", statement="lockstep abort …")
    host.keeper.look()
    one.resolve("a")  # not looked for again yet
    clock.now += keeping.HEARTBEAT
    host.keeper.look()
    assert one.refused("resolve", namespace=[], table="a", use="pinned")[0] == "57014"
    assert recorded(one) == []


def test_an_own_transaction_is_rolled_back_and_not_aborted(one: Client) -> None:
    id_ = write(one)
    assert one.refused("call", procedure="abort", arguments={"transaction": id_}, text="CALL …")[0] == "22023"
    one.ok("commit")


def test_the_thread_goes_when_nothing_is_open(monkeypatch: pytest.MonkeyPatch, one: Client, host: Host) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(keeper, "TICK", 0.01)
    host.keeper.watch()
    wait_until(lambda: host.keeper._thread is None, "the thread stays")
    one.begin()
    assert host.keeper._thread is not None
    one.ok("commit")
    wait_until(lambda: host.keeper._thread is None, "the thread stays")


def test_where_there_can_be_no_thread_begin_is_answered_and_a_later_one_begins_it(
    monkeypatch: pytest.MonkeyPatch, one: Client, two: Client, host: Host
) -> None:
    """A driver that has too many threads for a moment."""
    monkeypatch.undo()
    start, refused = threading.Thread.start, ["first"]

    def begin(thread: threading.Thread) -> None:
        if thread.name == "lockstep-keeper" and refused:
            raise RuntimeError(f"can't start new thread: {refused.pop()}")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", begin)
    one.begin()
    assert not refused
    assert host.keeper._thread is None
    two.begin()
    assert host.keeper._thread is not None
    for client in (one, two):
        client.ok("rollback")


def test_one_that_cannot_be_looked_after_keeps_no_other_from_its_timeout(
    monkeypatch: pytest.MonkeyPatch, host: Host, clock: Seconds, one: Client, two: Client
) -> None:
    one.begin()
    one.stage(one.resolve("a", "append", writes=True)["uri"], 1, add("x"))
    two.begin(settings={"transaction_timeout": "5s"})

    def record_of(*_: object, **__: object) -> None:
        raise UnavailableError("a part of the checkpoint cannot be read")

    monkeypatch.setattr(keeper, "record_of", record_of)
    for _ in range(10):
        clock.now += 1
        host.keeper.look()
    answer = two.ask("resolve", namespace=[], table="a", use="pinned", mentioned=[["a"]])
    assert answer["error"]["sqlstate"] == "25P04"
