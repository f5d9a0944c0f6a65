"""Appending to the timeline: who gets a version, and what a lost response does."""

from __future__ import annotations

import json
import math
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import msgspec
import pytest

import lockstep.timeline.group
from lockstep.errors import InvalidError, UnavailableError
from lockstep.storage import open_storage
from lockstep.timeline.entry import (
    Moved,
    NamespaceDdl,
    TransactionInfo,
)
from lockstep.timeline.fence import FOLDER as FENCE
from lockstep.timeline.files import decode, entry_path
from lockstep.timeline.group import ATTEMPTS
from lockstep.timeline.log import Timeline
from lockstep.timeline.outcomes import Lost, Ratified, Unknown
from tests.support.entries import T0, TICK, FakeClock, commit, draft, ids, with_raw
from tests.support.faulty import FaultyStorage


def test_an_appended_entry_is_the_head_and_stored(timeline: Timeline, store: FaultyStorage) -> None:
    """Ratified gives the entry as any reader will see it; the head includes it at once."""
    outcome = timeline.append(draft("a"), after=0)
    assert isinstance(outcome, Ratified)
    assert outcome.entry.version == timeline.head.version == 1
    assert ("a",) in timeline.head.namespaces
    assert decode(store.get(entry_path(1)) or b"", 1) == outcome.entry


def test_commit_times_increase_whatever_the_clock_says(timeline: Timeline, clock: FakeClock) -> None:
    """committed_at is the clock's, cut to a millisecond, or one millisecond after the head's if that is later."""
    times: list[datetime] = []
    for now in [T0, T0 - timedelta(days=1), T0 + timedelta(microseconds=5999), T0 + timedelta(seconds=1)]:
        clock.now = now
        commit(timeline, f"n{len(times)}")
        times.append(timeline.head.committed_at)
    assert times == [T0 + TICK, T0 + 2 * TICK, T0 + 5 * TICK, T0 + timedelta(seconds=1)]


def test_a_clock_in_another_zone_is_stored_as_utc(timeline: Timeline, clock: FakeClock, store: FaultyStorage) -> None:
    """The same moment in another zone is the same commit time, written in UTC."""
    clock.now = (T0 + timedelta(hours=1)).astimezone(timezone(timedelta(hours=2)))
    commit(timeline, "a")
    assert json.loads(store.get(entry_path(1)) or b"")["committed_at"] == "2026-03-01T13:00:00Z"


def test_a_taken_version_is_lost_to_those_who_came_first(timeline: Timeline, store: FaultyStorage) -> None:
    """Every winner since the version that ours was judged against has been read, and nothing of ours is stored."""
    other = Timeline.open(store)
    commit(other, "b", "c")
    outcome = timeline.append(draft("a"), after=0)
    assert isinstance(outcome, Lost)
    assert ids(timeline.entries(0)) == ["b", "c"]
    assert timeline.head == other.head
    assert ids(Timeline.open(store).entries(0)) == ["b", "c"]


def test_an_append_behind_the_known_head_is_lost(timeline: Timeline, store: FaultyStorage) -> None:
    """What was judged against an older version than another thread has read since is not written at the newer one."""
    commit(timeline, "b")
    writes = store.count("put_if_absent")
    outcome = timeline.append(draft("a"), after=0)
    assert isinstance(outcome, Lost)
    assert ids(timeline.entries(0)) == ["b"]
    assert store.count("put_if_absent") == writes


@pytest.mark.parametrize("after", [-1, 1])
def test_an_append_after_an_unknown_version_is_refused(timeline: Timeline, after: int) -> None:
    """There is no appending before version 0 or past the known head."""
    with pytest.raises(InvalidError, match=f"after database version {after}: there are 0 to 0"):
        timeline.append(draft("a"), after=after)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_write_that_failed_once_is_ratified_once(timeline: Timeline, store: FaultyStorage, when: Any) -> None:
    """A lost request is sent again, a lost response is read back; either way there is one entry, and it is ours."""
    store.fail("put_if_absent", when=when)
    outcome = timeline.append(draft("a"), after=0)
    assert isinstance(outcome, Ratified)
    assert ids(Timeline.open(store).entries(0)) == ["a"]
    assert timeline.head.version == 1


def test_our_own_first_try_in_the_way_is_ratified(timeline: Timeline, store: FaultyStorage) -> None:
    """False for an entry that is ours (the store's client repeated a write that had landed) is not a lost race."""
    store.interrupt("put_if_absent", lambda: commit(Timeline.open(store.inner, clock=lambda: T0), "a"))
    outcome = timeline.append(draft("a"), after=0)
    assert isinstance(outcome, Ratified)
    assert timeline.entries(0) == [outcome.entry]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_failed_write_beaten_by_another_is_lost(timeline: Timeline, store: FaultyStorage, when: Any) -> None:
    """After a failure, finding another's transaction id is the exact answer: lost."""
    store.interrupt("put_if_absent", lambda: commit(Timeline.open(store.inner), "b"))
    store.fail("put_if_absent", when=when)
    outcome = timeline.append(draft("a"), after=0)
    assert isinstance(outcome, Lost)
    assert ids(timeline.entries(0)) == ["b"]


def test_a_late_request_that_lands_after_the_read_back_is_ours(timeline: Timeline, store: FaultyStorage) -> None:
    """Nothing found after a time-out is no proof: the write is tried again, and meets its own late first try."""
    store.fail("put_if_absent")
    store.interrupt("put_if_absent", lambda: commit(Timeline.open(store.inner, clock=lambda: T0), "a"))
    assert isinstance(timeline.append(draft("a"), after=0), Ratified)
    assert ids(Timeline.open(store).entries(0)) == ["a"]


@pytest.mark.parametrize("times", [1, ATTEMPTS - 1])
def test_the_read_back_is_tried_again(timeline: Timeline, store: FaultyStorage, times: int) -> None:
    """A read-back that fails for a moment does not make the outcome unknown."""
    store.fail("put_if_absent", when="after")
    store.fail("get", times=times)
    assert isinstance(timeline.append(draft("a"), after=0), Ratified)


def test_an_outcome_that_cannot_be_read_back_is_unknown(timeline: Timeline, store: FaultyStorage) -> None:
    """Unknown, after a bounded number of tries, gives the first failure and what to look for; the head stays."""
    store.fail("put_if_absent", when="after")
    store.fail("get", times=ATTEMPTS)
    outcome = timeline.append(draft("a"), after=0)
    assert isinstance(outcome, Unknown)
    assert (outcome.entry.version, outcome.entry.transaction.id) == (1, "a")
    assert "put_if_absent" in outcome.cause.message
    assert timeline.head.version == 0


def test_appending_again_after_unknown_finds_what_landed(timeline: Timeline, store: FaultyStorage) -> None:
    """The same transaction id is the exact answer later, also behind entries of others; it is never stored twice."""
    store.fail("put_if_absent", when="after")
    store.fail("get", times=ATTEMPTS)
    assert isinstance(timeline.append(draft("a"), after=0), Unknown)
    commit(Timeline.open(store.inner), "b")
    again = timeline.append(draft("a"), after=0)
    assert isinstance(again, Ratified)
    assert again.entry.version == 1
    assert ids(Timeline.open(store).entries(0)) == ["a", "b"]
    assert isinstance(timeline.append(draft("a"), after=0), Ratified)


def test_a_store_that_refuses_every_write_is_unknown_in_bounded_tries(timeline: Timeline, store: FaultyStorage) -> None:
    """A full disk ends in Unknown, the store's own words as its cause, and nothing written."""
    store.fail("put_if_absent", times=100)
    outcome = timeline.append(draft("a"), after=0)
    assert isinstance(outcome, Unknown)
    assert "injected" in outcome.cause.message
    assert store.count("put_if_absent", entry_path(1)) == ATTEMPTS
    assert not store.exists(entry_path(1))


def test_a_store_that_says_taken_and_shows_nothing_is_unknown(timeline: Timeline, store: FaultyStorage) -> None:
    """A claim with nothing there (a conflict answer of S3) is tried again, and unknown in the end."""
    store.claim_taken(times=1000)
    outcome = timeline.append(draft("a"), after=0)
    assert isinstance(outcome, Unknown)
    assert "says it is there" in outcome.cause.message


def test_a_store_that_says_taken_once_is_asked_again(timeline: Timeline, store: FaultyStorage) -> None:
    store.claim_taken(entry_path(1))
    assert isinstance(timeline.append(draft("a"), after=0), Ratified)
    assert ids(Timeline.open(store.inner).entries(0)) == ["a"]


def test_a_lost_race_is_told_even_if_reading_on_fails(timeline: Timeline, store: FaultyStorage) -> None:
    """The one winner that was read is enough to know that we lost."""
    commit(Timeline.open(store.inner), "b", "c")
    # Only the look at who has our version succeeds.
    store.interrupt("get", lambda: store.fail("get", times=10), path=entry_path(1))
    outcome = timeline.append(draft("a"), after=0)
    assert isinstance(outcome, Lost)
    assert ids(timeline.entries(0)) == ["b"]


TIME_WITHOUT_ZONE = TransactionInfo(id="a", began_at=datetime(2026, 3, 1), base_version=0, isolation="SNAPSHOT")  # noqa: DTZ001
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "does not fit": ({"namespaces": [NamespaceDdl(action="drop", name=("x",))]}, "expected it to exist"),
    "other version": ({"version": 7}, "must have its format, and the version and the time"),
    "other time": ({"committed_at": T0 + timedelta(days=1)}, "must have its format, and the version"),
    "other format": ({"format": 2}, "must have its format"),
    "wrong type": ({"reads": [1]}, "expected a timeline entry"),
    "broken commit": (with_raw(b"{"), "expected a timeline entry"),
    "time without zone": ({"transaction": TIME_WITHOUT_ZONE}, "expected a time in UTC"),
    "lone surrogate": ({"namespaces": [NamespaceDdl(action="create", name=("\ud800",))]}, "not Unicode"),
    "bad move": (
        {"kind": "external", "namespaces": [], "moved": [Moved(id="x", entry=0, to_version=1)]},
        "did not write it",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_no_reader_would_accept_is_never_written(timeline: Timeline, store: FaultyStorage, case: str) -> None:
    """An entry that readers would call corrupt is InvalidError before anything is written."""
    changes, message = REFUSED[case]
    with pytest.raises(InvalidError, match=message) as refusal:
        timeline.append(draft("a", **changes), after=0)
    assert "estore" not in refusal.value.message, "there is no file"
    assert not store.exists(entry_path(1))
    commit(timeline, "b")


def test_an_entry_that_is_too_large_is_refused(
    timeline: Timeline, store: FaultyStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One byte more than MAX_ENTRY_BYTES is InvalidError that says what to do; exactly that many are fine."""
    size = len(msgspec.json.encode(draft("a")(1, T0 + TICK)))
    monkeypatch.setattr(lockstep.timeline.group, "MAX_ENTRY_BYTES", size - 1)
    with pytest.raises(InvalidError, match=rf"would have {size} bytes, more than {size - 1}: commit fewer tables"):
        timeline.append(draft("a"), after=0)
    assert not store.exists(entry_path(1))
    monkeypatch.setattr(lockstep.timeline.group, "MAX_ENTRY_BYTES", size)
    commit(timeline, "a")


def test_racing_threads_get_every_version_once(tmp_path: Path) -> None:
    """Threads over one shared timeline and one of their own: all commits land, each once, in one order for all."""
    store = open_storage(str(tmp_path))
    timelines = [Timeline.create(store), Timeline.open(store)]

    def work(me: int) -> None:
        timeline = timelines[me % 2]
        for n in range(5):
            while True:
                outcome = timeline.append(draft(f"w{me}-{n}"), after=timeline.head.version)
                if isinstance(outcome, Ratified):
                    break
                assert isinstance(outcome, Lost)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    for timeline in timelines:
        timeline.refresh()
    found = ids(Timeline.open(store).entries(0))
    assert sorted(found) == sorted(f"w{me}-{n}" for me in range(6) for n in range(5))
    assert ids(timelines[0].entries(0)) == ids(timelines[1].entries(0)) == found


def test_a_definite_failure_is_no_doubt(timeline: Timeline, store: FaultyStorage) -> None:
    """A store that says no before it writes (a full disk) is unavailable: nothing was written, nobody has to look."""
    store.fail("put_if_absent", path=".json", definite=True)
    with pytest.raises(UnavailableError, match="injected"):
        timeline.append(draft("a"), after=0)
    assert [*timeline.refresh()] == []
    commit(timeline, "a")


@pytest.mark.parametrize("definite", [True, False])
def test_a_failure_behind_a_put_that_was_answered_is_never_told_to_be_one_of_the_put(
    timeline: Timeline, store: FaultyStorage, definite: bool
) -> None:
    """The fence is asked for, for the process cannot count on what it saw any more: that request was not even sent."""
    timeline._sure_at = -math.inf
    store.fail("list", path=FENCE, definite=definite)
    assert isinstance(timeline.append(draft("a"), after=0), Ratified)
    timeline._sure_at = -math.inf
    store.fail("list", path=FENCE, definite=definite, times=9)
    assert isinstance(timeline.append(draft("b"), after=1), Unknown)
    store.heal()
    assert ids(Timeline.open(store).entries(1)) == ["b"]


def test_a_definite_failure_after_a_doubtful_one_stays_in_doubt(timeline: Timeline, store: FaultyStorage) -> None:
    store.fail("put_if_absent", path=".json")
    store.fail("put_if_absent", path=".json", times=ATTEMPTS, definite=True)
    assert isinstance(timeline.append(draft("a"), after=0), Unknown)


def test_whether_the_hint_can_be_written_is_not_asked_under_the_lock(tmp_path: Path) -> None:
    """Of HDFS that is a request to the name node: meanwhile others go on."""
    locked: list[bool] = []

    class Asked(FaultyStorage):
        def is_writable(self, folder: str) -> bool:
            locked.append(timeline._lock._inner.locked())
            return super().is_writable(folder)

    timeline = Timeline.create(Asked(open_storage(str(tmp_path))))
    timeline.write_hint()
    assert locked == [False]
