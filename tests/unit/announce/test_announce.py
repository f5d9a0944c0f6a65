"""Conflicts at the statement: two open transactions on one lake, each with a catalog of its own as two processes have.

`a` has the data file p, which both want to replace. The older transaction began first.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyroaring import BitMap64

from lockstep.commit.announce import FOLDER
from lockstep.commit.ended import Refusal, ended_transactions
from lockstep.conflict.lock_policy import Policy, Resolution
from lockstep.delta.combine.deletion_vectors import serialize
from lockstep.errors import CommitUnknownError, ConflictError, FailedTransactionError, NoTransactionError
from lockstep.storage import Storage
from lockstep.timeline.files import entry_path
from lockstep.transactions.state import State
from tests.support.faulty import FaultyStorage, Operation
from tests.support.gate import PATIENCE_S, wait_until
from tests.support.lakes import add, create, files, metadata, named, open_catalog, remove, stage
from tests.support.sides import Begin, Side, announced, entries, stage_only
from tests.support.vectors import inline

REPOSITORY = Path(__file__).parents[3]


@pytest.mark.parametrize("policy", ["wait-die", "wound-wait"])
def test_rows_of_one_file_are_left_to_commit(begin: Begin, policy: Policy) -> None:
    """A winner that only marked rows of the file in its deletion vector has not decided yet that ours is lost."""
    older, younger = begin(policy)
    for side, row in ((older, 0), (younger, 1)):
        vector = inline(serialize(BitMap64([row])), 1)
        marked = add("p", deletionVector=vector)
        stage(side.catalog, side.tx, "a", remove("p"), marked, operation="DELETE")
        side.commit()
    assert younger.tx.state is State.COMPLETED


# --- wait-die ---------------------------------------------------------------------------------------------------------


def test_wait_die_the_younger_dies_at_its_statement(begin: Begin) -> None:
    older, younger = begin("wait-die")
    older.replace_p()
    with pytest.raises(ConflictError, match=rf"transaction {older.tx.id}, .* is older, so this .* gives way") as caught:
        younger.replace_p()
    assert (caught.value.sqlstate, caught.value.retryable) == ("40001", True)
    assert announced(older.catalog) == [f"{older.tx.id}.json"], "the dead one is in nobody's way"
    with pytest.raises(FailedTransactionError, match="gives way"):
        younger.commit()
    assert younger.tx.state is State.ROLLED_BACK
    [record] = ended_transactions(older.catalog.lake)
    assert record.transaction == younger.tx.id
    assert record.conflict == Refusal(rule="wait-die", about="default.a", winner=older.tx.id)
    assert older.commit() == 2
    assert files(older.catalog, "a") == {"older"}
    [table] = older.catalog.timeline.head.tables.values()
    root = Path(older.catalog.lake.storage.url.removeprefix("file://"))
    assert not (root / table.location / "younger").exists(), "and its data file is gone"


def test_wait_die_the_older_waits_and_goes_on_when_the_younger_rolls_back(begin: Begin) -> None:
    older, younger = begin("wait-die")
    younger.replace_p()
    waiting = older.replaces_p()
    assert not waiting.done()
    younger.rollback()
    waiting.result(timeout=PATIENCE_S)
    older.commit()
    assert files(older.catalog, "a") == {"older"}
    assert announced(older.catalog) == []


@pytest.mark.parametrize("policy", ["wait-die", "wound-wait"])
def test_one_that_waits_can_be_rolled_back(begin: Begin, policy: Policy) -> None:
    """Its client may have gone, or its user have had enough: nobody else may have to wait for that."""
    older, younger = begin(policy)
    first, second = (younger, older) if policy == "wait-die" else (older, younger)
    first.replace_p()
    waiting = second.replaces_p()
    assert not waiting.done()
    second.rollback()
    with pytest.raises(NoTransactionError, match="rolled back while this statement waited"):
        waiting.result(timeout=PATIENCE_S)
    assert announced(first.catalog) == [f"{first.tx.id}.json"]
    assert first.commit() == 2
    assert files(first.catalog, "a") == {first.name}


def test_one_that_waits_can_be_committed_by_another_thread(begin: Begin) -> None:
    """COMMIT judges for itself; the statement that waited is part of it, and is not told that it failed."""
    older, younger = begin("wait-die")
    younger.replace_p()
    waiting = older.replaces_p()
    assert older.commit() == 2
    waiting.result(timeout=PATIENCE_S)
    with pytest.raises(ConflictError, match="changed file p"):
        younger.commit()
    assert announced(older.catalog) == []


def test_one_that_waits_does_not_take_its_own_commit_for_anothers(store: Storage) -> None:
    """Its entry is there before the thread that commits it knows, and the waiting statement looks in between."""
    faulty = FaultyStorage(store)
    resolution = Resolution("wait-die", 60)
    catalog = open_catalog(faulty, resolution=resolution)
    older = Side(catalog, catalog.begin(isolation="SNAPSHOT"), "older")
    catalog = open_catalog(store, resolution=resolution)
    younger = Side(catalog, catalog.begin(isolation="SNAPSHOT"), "younger")
    younger.replace_p()
    waiting = older.replaces_p()
    landed, committed = threading.Event(), list[int]()
    commits = threading.Thread(target=lambda: committed.append(older.commit()))

    def lands_while_it_looks() -> None:
        commits.start()
        assert landed.wait(PATIENCE_S)

    def is_there_and_seen() -> None:
        landed.set()
        wait_until(lambda: faulty.count("get", entry_path(3)) > 0, "the statement does not look at the timeline")

    faulty.interrupt("put_if_absent", is_there_and_seen, path=entry_path(2), when="after")
    faulty.interrupt("list", lands_while_it_looks, path=catalog.timeline.head.tables[named("a")].id)
    waiting.result(timeout=PATIENCE_S)
    commits.join()
    assert committed == [2]
    younger.rollback()
    for side in (older, younger):
        side.thread.shutdown()


def patience_of(side: Side) -> Callable[[], None]:
    """Have a side wait for its lock-timeout by a clock that stands still; return what makes that time go by."""
    announcer, now = side.catalog._announcer, [0.0]
    announcer._poll = replace(announcer._poll, clock=lambda: now[0])

    def goes_by() -> None:
        now[0] += announcer._poll.timeout_seconds + 1

    return goes_by


def test_one_that_waited_too_long_is_not_refused_while_its_commit_is_under_way(begin: Begin) -> None:
    """It would be told that nothing was committed, and be run again."""
    older, younger = begin("wait-die")
    waits_too_long = patience_of(older)
    younger.replace_p()
    waiting = older.replaces_p()
    with older.lock:  # COMMIT has begun, and its store is slow
        waits_too_long()
        time.sleep(0.6)  # it looks again in between, and may come to its end
        assert not waiting.done()
        assert older.commit() == 2
    waiting.result(timeout=PATIENCE_S)
    younger.rollback()


def test_one_that_waits_is_not_refused_while_nobody_knows_whether_it_committed(store: Storage) -> None:
    faulty = FaultyStorage(store)
    sides = []
    for name, each in (("older", faulty), ("younger", store)):
        catalog = open_catalog(each, resolution=Resolution("wait-die"))
        sides.append(Side(catalog, catalog.begin(isolation="SNAPSHOT"), name))
    older, younger = sides
    waits_too_long = patience_of(older)
    younger.replace_p()
    waiting = older.replaces_p()
    faulty.go_down(entry_path(2), landed=True)
    with pytest.raises(CommitUnknownError):
        older.commit()
    waits_too_long()
    waiting.result(timeout=PATIENCE_S)
    faulty.heal()
    assert older.commit() == 2
    younger.rollback()
    for side in sides:
        side.thread.shutdown()


def test_what_was_taken_back_to_a_savepoint_is_not_refused(begin: Begin) -> None:
    """Its transaction goes on, and commits, though the statement waited too long."""
    older, younger = begin("wait-die")
    waits_too_long = patience_of(older)
    older.tx.savepoint("s")
    younger.replace_p()
    waiting = older.replaces_p()
    older.rollback_to("s")
    waits_too_long()
    stage(older.catalog, older.tx, "a", add("new"), lock=older.lock)
    waiting.result(timeout=PATIENCE_S)
    assert older.commit() == 2
    assert files(older.catalog, "a") == {"p", "new"}


def test_one_that_waits_is_told_when_its_transaction_has_failed(begin: Begin) -> None:
    older, younger = begin("wait-die")
    younger.replace_p()
    waiting = older.replaces_p()
    older.tx.failure = "another statement was refused"
    with pytest.raises(FailedTransactionError, match="another statement was refused"):
        waiting.result(timeout=PATIENCE_S)


def test_nothing_is_announced_of_what_was_rolled_back_meanwhile(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others would wait for it until it expires: nothing in the timeline tells of its end."""
    older, _ = begin("wait-die")
    announce = type(older.catalog._announcer)._announcement

    def late(*args: Any) -> Any:
        older.tx.state = State.ROLLED_BACK
        threading.Thread(target=older.catalog._announcer.withdraw, args=[older.tx]).start()
        return announce(*args)

    monkeypatch.setattr(type(older.catalog._announcer), "_announcement", late)
    with pytest.raises(NoTransactionError):
        older.replace_p()
    wait_until(lambda: announced(older.catalog) == [], "the announcement stays")


def test_what_waits_may_be_taken_back_to_a_savepoint(begin: Begin) -> None:
    older, younger = begin("wait-die")
    older.tx.savepoint("s")
    younger.replace_p()
    waiting = older.replaces_p()
    older.rollback_to("s")
    younger.rollback()
    waiting.result(timeout=PATIENCE_S)
    older.replace_p()
    assert older.commit() == 2
    assert files(older.catalog, "a") == {"older"}


def test_wait_die_the_older_learns_at_its_statement_that_the_younger_committed(begin: Begin) -> None:
    older, younger = begin("wait-die")
    younger.replace_p()
    waiting = older.replaces_p()
    assert younger.commit() == 2
    with pytest.raises(ConflictError, match=r"\(database version 2\) changed file p of table default.a"):
        waiting.result(timeout=PATIENCE_S)
    assert older.tx.failure is not None


def test_wait_die_a_commit_that_changed_nothing_is_no_conflict(begin: Begin) -> None:
    """What is announced is what statements did; the transaction as a whole may have changed nothing."""
    older, younger = begin("wait-die")
    stage(younger.catalog, younger.tx, "a", add("x"))
    stage(younger.catalog, younger.tx, "a", remove("x"))
    waiting = older.thread.submit(stage, older.catalog, older.tx, "a", metadata(), operation="ALTER TABLE")
    assert younger.commit() == 1
    waiting.result(timeout=PATIENCE_S)
    assert older.commit() == 2


# --- wound-wait -------------------------------------------------------------------------------------------------------


def test_wound_wait_the_older_goes_on_and_the_younger_cannot_commit(begin: Begin) -> None:
    older, younger = begin("wound-wait")
    younger.replace_p()
    older.replace_p()
    [abort] = entries(older)
    assert (abort.kind, abort.aborts) == ("abort", [younger.tx.id])
    assert older.tx.id in abort.transaction.message
    with pytest.raises(ConflictError, match="ended this one") as caught:
        younger.commit()
    assert caught.value.sqlstate == "40001"
    assert older.commit() == 3
    assert files(younger.catalog, "a") == {"older"}


def test_wound_wait_the_victim_learns_at_its_next_statement(begin: Begin) -> None:
    older, younger = begin("wound-wait")
    younger.replace_p()
    older.replace_p()
    with pytest.raises(ConflictError, match="ended this one"):
        stage(younger.catalog, younger.tx, "a", add("more"))
    assert announced(older.catalog) == [f"{older.tx.id}.json"]


def test_wound_wait_the_victim_may_be_waiting(begin: Begin, store: Storage) -> None:
    older, younger = begin("wound-wait")
    older.replace_p()
    waiting = younger.replaces_p()
    stage(older.catalog, older.tx, "a", metadata(), operation="ALTER TABLE")
    with pytest.raises(ConflictError, match="ended this one"):
        waiting.result(timeout=PATIENCE_S)


@pytest.mark.parametrize("policy", ["wait-die", "wound-wait"])
def test_what_commit_lets_pass_is_not_refused_at_the_statement(begin: Begin, policy: Policy) -> None:
    """A new column meets no append."""
    first, late = begin(policy)
    stage(first.catalog, first.tx, "a", add("x"))
    first.commit()
    stage(late.catalog, late.tx, "a", metadata("extra"), operation="ADD COLUMNS")
    late.commit()
    assert files(late.catalog, "a") == {"p", "x"}


@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_wound_wait_the_younger_waits(begin: Begin, ending: str) -> None:
    older, younger = begin("wound-wait")
    older.replace_p()
    waiting = younger.replaces_p()
    assert not waiting.done()
    getattr(older, ending)()
    if ending == "commit":
        with pytest.raises(ConflictError, match="changed file p"):
            waiting.result(timeout=PATIENCE_S)
    else:
        waiting.result(timeout=PATIENCE_S)
        younger.commit()
    assert files(older.catalog, "a") == {"older" if ending == "commit" else "younger"}
    assert all(entry.kind == "transaction" for entry in entries(older))


# --- both, and neither ------------------------------------------------------------------------------------------------


def test_by_default_nothing_is_announced_and_the_second_learns_at_commit(begin: Begin) -> None:
    older, younger = begin("first-committer-wins")
    older.replace_p()
    younger.replace_p()
    assert announced(older.catalog) == []
    younger.commit()
    with pytest.raises(ConflictError, match="changed file p"):
        older.commit()


@pytest.mark.parametrize(("policy", "waits"), [("wait-die", "older"), ("wound-wait", "younger")])
def test_waiting_has_an_end(begin: Begin, policy: Policy, waits: str) -> None:
    older, younger = begin(policy, lock_timeout_seconds=0.05)
    first, second = (younger, older) if waits == "older" else (older, younger)
    first.replace_p()
    with pytest.raises(ConflictError, match=rf"transaction {first.tx.id}, .* within lock-timeout \(0.05 s\)"):
        second.replace_p()
    assert announced(first.catalog) == [f"{first.tx.id}.json"]
    assert ended_transactions(first.catalog.lake) == [], "it is open yet"
    second.rollback()
    [record] = ended_transactions(first.catalog.lake)
    assert record.conflict == Refusal(rule="lock-timeout", about="default.a", winner=first.tx.id)
    first.commit()


@pytest.mark.parametrize("policy", ["wait-die", "wound-wait"])
def test_appends_and_statements_on_other_files_do_not_meet(begin: Begin, policy: Policy) -> None:
    older, younger = begin(policy, lock_timeout_seconds=0)
    for first, second in ((older, younger), (younger, older)):
        stage(first.catalog, first.tx, "a", add(f"{first.name}-1"))
        stage(second.catalog, second.tx, "a", add(f"{second.name}-2"))
    younger.replace_p()
    older.commit()
    younger.commit()


@pytest.mark.parametrize("policy", ["wait-die", "wound-wait"])
def test_what_committed_before_the_statement_is_told_at_the_statement(begin: Begin, policy: Policy) -> None:
    older, younger = begin(policy)
    older.replace_p()
    older.commit()
    with pytest.raises(ConflictError, match="changed file p"):
        younger.replace_p()


@pytest.mark.parametrize("policy", ["wait-die", "wound-wait"])
def test_what_one_holds_it_does_not_ask_for_again(begin: Begin, policy: Policy) -> None:
    """The older waits for the younger in wait-die; what the younger does meanwhile to the same file is its right."""
    older, younger = begin(policy)
    first, second = (younger, older) if policy == "wait-die" else (older, younger)
    first.replace_p()
    waiting = second.replaces_p()
    first.replace_p()
    assert not waiting.done()
    first.rollback()
    waiting.result(timeout=PATIENCE_S)


# --- clocks, and those who die ----------------------------------------------------------------------------------------


class Ticking:
    """A clock that goes by itself and can be set forward."""

    ahead = timedelta(0)

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead


@pytest.mark.parametrize("policy", ["wait-die", "wound-wait"])
def test_an_expired_announcement_is_ignored_and_removed(store: Storage, policy: Policy) -> None:
    clock = Ticking()
    catalogs = [open_catalog(store, resolution=Resolution(policy, 0, 60), clock=clock) for _ in range(2)]
    sides = [Side(catalog, catalog.begin(), name) for catalog, name in zip(catalogs, ("older", "younger"), strict=True)]
    first, second = reversed(sides) if policy == "wait-die" else sides
    first.replace_p()
    clock.ahead = timedelta(seconds=61)
    second.replace_p()
    assert announced(second.catalog) == [f"{second.tx.id}.json"]
    assert second.commit() == 2
    with pytest.raises(ConflictError, match="changed file p"):
        first.commit()  # safety never hung on what was announced


def test_each_statement_renews_what_is_due_in_every_table(store: Storage) -> None:
    create(open_catalog(store), "b")
    clock = Ticking()
    catalogs = [open_catalog(store, resolution=Resolution("wait-die", 0, 60), clock=clock) for _ in range(2)]
    older, younger = (Side(catalog, catalog.begin(), "x") for catalog in catalogs)
    younger.replace_p()
    clock.ahead = timedelta(seconds=40)
    stage(younger.catalog, younger.tx, "b", add("more"))
    clock.ahead = timedelta(seconds=80)
    with pytest.raises(ConflictError, match="within lock-timeout"):
        older.replace_p()


DYING = """
import sys, time
from lockstep.conflict.lock_policy import Resolution
from lockstep.storage import open_storage
from tests.support.gate import wait_until
from tests.support.lakes import add, open_catalog, remove, stage

catalog = open_catalog(open_storage(sys.argv[1]), resolution=Resolution(sys.argv[2], 0, 1))
tx = catalog.begin()
stage(catalog, tx, "a", remove("p"), add("dead"))
print("staged", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("policy", ["wait-die", "wound-wait"])
def test_nobody_waits_for_ever_for_a_killed_process(store: Storage, policy: Policy) -> None:
    """SIGKILL leaves the announcement. wait-die waits until it expires; wound-wait need not even wait."""
    catalog = open_catalog(store, resolution=Resolution(policy, PATIENCE_S if policy == "wait-die" else 0))
    side = Side(catalog, catalog.begin(), "older")
    root = store.url.removeprefix("file://")
    with subprocess.Popen(
        [sys.executable, "-c", DYING, root, policy], stdout=subprocess.PIPE, text=True, cwd=REPOSITORY
    ) as dying:
        assert dying.stdout is not None
        assert dying.stdout.readline() == "staged\n"
        dying.kill()
    side.replace_p()
    assert announced(side.catalog) == [f"{side.tx.id}.json"]
    side.commit()
    assert files(catalog, "a") == {"older"}


def test_who_died_between_its_commit_and_the_end_is_in_nobodys_way(begin: Begin, store: Storage) -> None:
    older, younger = begin("wait-die", lock_timeout_seconds=0)
    [table] = younger.catalog.timeline.head.tables.values()
    stage(younger.catalog, younger.tx, "a", metadata())
    path = f"{FOLDER}/{table.id}/{younger.tx.id}.json"
    left = store.get(path)
    younger.commit()
    assert left is not None
    store.put(path, left)
    later = older.catalog.begin()
    stage(older.catalog, later, "a", add("x"))
    assert announced(older.catalog) == [f"{later.id}.json"]


@pytest.mark.parametrize("broken", [b"", b"{}", b'{"format": 2}', b"\xff"], ids=str)
def test_an_announcement_that_makes_no_sense_is_passed_over(begin: Begin, store: Storage, broken: bytes) -> None:
    older, _ = begin("wait-die", lock_timeout_seconds=0)
    [table] = older.catalog.timeline.head.tables.values()
    store.put(f"{FOLDER}/{table.id}/later.json", broken)
    older.replace_p()
    assert older.commit() == 2


@pytest.mark.parametrize("operation", ["put", "list"])
def test_a_store_that_fails_leaves_the_conflict_to_commit(store: Storage, operation: Operation) -> None:
    faulty = FaultyStorage(store)
    sides = [
        Side(catalog, catalog.begin(isolation="SNAPSHOT"), name)
        for catalog, name in ((open_catalog(s, resolution=Resolution("wait-die")), str(s)) for s in (store, faulty))
    ]
    sides[0].replace_p()
    [table] = sides[0].catalog.timeline.head.tables.values()
    where = f"{FOLDER}/{table.id}" + (f"/{sides[1].tx.id}.json" if operation == "put" else "")
    faulty.fail(operation, path=where)
    stage_only(sides[1], remove("p"))
    sides[0].commit()
    with pytest.raises(ConflictError, match="changed file p"):
        sides[1].commit()


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_an_announcement_that_cannot_be_removed_does_not_unsay_how_it_ended(store: Storage, end: str) -> None:
    """COMMIT is done when it is withdrawn: an error that nobody expected there would tell of it as failed."""

    def broken() -> None:
        raise RuntimeError("nobody expected this")

    faulty = FaultyStorage(store)
    catalog = open_catalog(faulty, resolution=Resolution("wait-die", 0))
    side = Side(catalog, catalog.begin(), "x")
    side.replace_p()
    [name] = announced(catalog)
    faulty.interrupt("delete", broken, path=name)
    if end == "commit":
        assert side.commit() == 2
    else:
        side.rollback()
    assert announced(catalog) == [name], "it stays until it expires"
