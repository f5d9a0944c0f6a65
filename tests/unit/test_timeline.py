"""The timeline: who gets a version, what a lost response does, and what opening believes."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lockstep.timeline
from lockstep.errors import CorruptTimelineError, InvalidError, UnavailableError
from lockstep.model import (
    Commit,
    Entry,
    Moved,
    Name,
    NamespaceDdl,
    TableDdl,
    TableWrite,
    TransactionInfo,
)
from lockstep.storage import open_storage
from lockstep.timeline import ATTEMPTS, HINT, Draft, Lost, Ratified, Timeline, Unknown, decode, entry_path
from tests.support.faulty import FaultyStorage

T0 = datetime(2026, 3, 1, 12, tzinfo=UTC)
TICK = timedelta(milliseconds=1)


class FakeClock:
    """A clock that stands still until it is told the time."""

    def __init__(self) -> None:
        self.now = T0

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(tmp_path: Path) -> FaultyStorage:
    return FaultyStorage(open_storage(str(tmp_path)))


@pytest.fixture
def timeline(store: FaultyStorage, clock: FakeClock) -> Timeline:
    return Timeline.create(store, clock=clock)


def draft(id: str, **changes: Any) -> Draft:
    """A transaction that creates the namespace called like its id, unless the changes say something else."""

    def make(version: int, committed_at: datetime) -> Entry:
        given_: dict[str, Any] = {
            "kind": "transaction",
            "transaction": TransactionInfo(id=id, began_at=T0, base_version=version - 1, isolation="SNAPSHOT"),
            "namespaces": [NamespaceDdl(action="create", name=(id,))],
        }
        return Entry(**{"format": 1, "version": version, "committed_at": committed_at, **given_, **changes})

    return make


def commit(timeline: Timeline, *ids: str) -> None:
    """Append one entry for each transaction id."""
    for id in ids:
        assert isinstance(timeline.append(draft(id), after=timeline.head.version), Ratified)


def ids(entries: Any) -> list[str]:
    return [entry.transaction.id for entry in entries]


def rewrite(store: FaultyStorage, version: int, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change a stored entry's JSON."""
    value = json.loads(store.inner.get(entry_path(version)) or b"")
    store.inner.put(entry_path(version), json.dumps(change(value) or value).encode())


# Making and opening


def test_create_writes_entry_0_and_opens(store: FaultyStorage, clock: FakeClock) -> None:
    """Version 0 is an empty database with the namespace `default`, made by who and when the entry says."""
    timeline = Timeline.create(store, clock=clock, transaction_id="first", author="ann", message="why")
    assert (timeline.head.version, timeline.head.committed_at) == (0, T0)
    assert (timeline.head.namespaces, timeline.head.tables) == ({("default",): {}}, {})
    (entry,) = timeline.entries(-1)
    assert (entry.kind, entry.transaction.id, entry.transaction.author) == ("create", "first", "ann")
    assert store.list("_lockstep/timeline") == ["0" * 20 + ".json"]


def test_creating_again_opens_what_is_there(timeline: Timeline, store: FaultyStorage) -> None:
    """A second create changes nothing and sees the first one's entries."""
    commit(timeline, "a")
    again = Timeline.create(store, transaction_id="late")
    assert again.head == timeline.head
    assert "late" not in ids(again.entries(-1))


def test_two_creators_at_once_have_one_timeline(tmp_path: Path) -> None:
    """Whoever writes entry 0, all who create open the same one."""
    store = open_storage(str(tmp_path))
    barrier = threading.Barrier(8)

    def create(me: int) -> str:
        barrier.wait()
        return Timeline.create(store, transaction_id=str(me)).entries(-1)[0].transaction.id

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(create, range(8)))) == 1


def test_each_new_timeline_has_an_id_of_its_own(tmp_path: Path) -> None:
    """Unless given, the id of entry 0's transaction is unique."""
    stores = [open_storage(str(tmp_path / name), create=True) for name in "ab"]
    assert len({Timeline.create(store).entries(-1)[0].transaction.id for store in stores}) == 2


def test_opening_where_there_is_none_says_how_to_make_one(store: FaultyStorage) -> None:
    """No timeline is InvalidError that names the root and `lockstep init`; other files in the folder do not count."""
    store.put("_lockstep/timeline/notes.json", b"")
    with pytest.raises(InvalidError, match=rf"no Lockstep timeline at {store.url}: .*`lockstep init {store.url}`"):
        Timeline.open(store)


def test_a_reopened_timeline_is_the_same(timeline: Timeline, store: FaultyStorage) -> None:
    """Opening gives the head, the entries and every older version that the writer had, over several reader threads."""
    commit(timeline, *(f"n{n}" for n in range(25)))
    again = Timeline.open(store)
    assert again.head == timeline.head
    assert again.entries(-1) == timeline.entries(-1)
    assert [again.at(n) for n in range(26)] == [timeline.at(n) for n in range(26)]


def test_opening_reports_a_store_that_fails(timeline: Timeline, store: FaultyStorage) -> None:
    """A failed read of an entry is UnavailableError, not a shorter timeline."""
    commit(timeline, "a", "b")
    store.fail("get", path=entry_path(1))
    with pytest.raises(UnavailableError, match="injected"):
        Timeline.open(store)
    store.fail("list")
    with pytest.raises(UnavailableError, match="injected"):
        Timeline.open(store)


@pytest.mark.parametrize("missing", [0, 1])
def test_a_missing_entry_is_named(timeline: Timeline, store: FaultyStorage, missing: int) -> None:
    """A gap in the files is corruption, whether or not there is a hint."""
    commit(timeline, "a", "b")
    store.delete(entry_path(missing))
    for _ in range(2):
        with pytest.raises(CorruptTimelineError, match=rf"{entry_path(missing)} is missing: .* 0 to 2"):
            Timeline.open(store)
        timeline.mark_published(0)


# The hint

HINTS = {
    "missing": None,
    "empty": b"",
    "not JSON": b"{",
    "not UTF-8": b'"\xff"',
    "not an object": b"[1]",
    "nested without end": b'{"version": 3, "x": ' + b"[" * 100_000,
    "wrong type": b'{"version": "3"}',
    "negative": b'{"version": -1}',
    "stale": b'{"version": 1, "published_through": 1}',
    "at 0": b'{"version": 0}',
    "right": b'{"version": 3, "published_through": 3}',
    "ahead": b'{"version": 4, "published_through": 4}',
    "far ahead": b'{"version": 99999999999999999999, "published_through": 2}',
    "too far for a name": b'{"version": 999999999999999999999999}',
    "published past itself": b'{"version": 3, "published_through": 4}',
    "published below 0": b'{"version": 3, "published_through": -1}',
    "of a later Lockstep": b'{"version": 3, "published_through": 1, "more": 1}',
}


@pytest.mark.parametrize("case", HINTS)
def test_no_hint_changes_what_opening_finds(timeline: Timeline, store: FaultyStorage, case: str) -> None:
    """Whatever the hint says, the head and the entries are the files'; its watermark counts only if it can be true."""
    commit(timeline, "a", "b", "c")
    hint = HINTS[case]
    if hint is not None:
        store.put(HINT, hint)
    again = Timeline.open(store)
    assert again.head == timeline.head
    assert again.entries(-1) == timeline.entries(-1)
    assert again.published_through == {"stale": 1, "right": 3, "of a later Lockstep": 1}.get(case, 0)


def test_an_unreadable_hint_changes_nothing(timeline: Timeline, store: FaultyStorage) -> None:
    """A hint that the store fails to give is as good as none."""
    commit(timeline, "a")
    timeline.mark_published(1)
    store.fail("get", path=HINT)
    again = Timeline.open(store)
    assert (again.head, again.published_through) == (timeline.head, 0)


def test_a_right_hint_spares_the_listing(timeline: Timeline, store: FaultyStorage) -> None:
    """With a hint nothing is listed; that is all that it is for."""
    commit(timeline, "a", "b")
    before = store.count("list")
    timeline.mark_published(2)
    assert Timeline.open(store).published_through == 2
    assert store.count("list") == before


def test_the_watermark_only_rises(timeline: Timeline, store: FaultyStorage) -> None:
    """mark_published keeps the highest version, here and in the hint, and refuses one beyond the head."""
    commit(timeline, "a", "b", "c")
    for version, expected in [(2, 2), (1, 2), (3, 3)]:
        timeline.mark_published(version)
        assert timeline.published_through == expected
        assert json.loads(store.get(HINT) or b"") == {"version": 3, "published_through": expected}
    with pytest.raises(InvalidError, match="newest known is 3"):
        timeline.mark_published(4)
    assert timeline.published_through == 3


def test_a_hint_that_cannot_be_written_is_logged(
    timeline: Timeline, store: FaultyStorage, caplog: pytest.LogCaptureFixture
) -> None:
    """The watermark rises all the same; the failure is a warning in the log and never an error."""
    commit(timeline, "a")
    store.fail("put")
    with caplog.at_level(logging.WARNING):
        timeline.mark_published(1)
    assert timeline.published_through == 1
    assert "hint was not written" in caplog.text
    assert "injected" in caplog.text


# Appending


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
    """Lost names every winner since the version that ours was judged against, and nothing of ours is stored."""
    other = Timeline.open(store)
    commit(other, "b", "c")
    outcome = timeline.append(draft("a"), after=0)
    assert isinstance(outcome, Lost)
    assert ids(outcome.winners) == ["b", "c"]
    assert timeline.head == other.head
    assert ids(Timeline.open(store).entries(0)) == ["b", "c"]


def test_an_append_behind_the_known_head_is_lost(timeline: Timeline, store: FaultyStorage) -> None:
    """What was judged against an older version than another thread has read since is not written at the newer one."""
    commit(timeline, "b")
    writes = store.count("put_if_absent")
    outcome = timeline.append(draft("a"), after=0)
    assert isinstance(outcome, Lost)
    assert ids(outcome.winners) == ["b"]
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
    assert ids(outcome.winners) == ["b"]


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


def test_a_store_that_says_taken_and_shows_nothing_is_unknown(
    timeline: Timeline, store: FaultyStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """False with nothing there (a conflict answer of S3) is tried again, and unknown in the end."""
    monkeypatch.setattr(store, "put_if_absent", lambda path, data: False)
    outcome = timeline.append(draft("a"), after=0)
    assert isinstance(outcome, Unknown)
    assert "says it is there" in outcome.cause.message


def test_a_lost_race_is_told_even_if_reading_on_fails(timeline: Timeline, store: FaultyStorage) -> None:
    """The one winner that was read is enough to know that we lost."""
    commit(Timeline.open(store.inner), "b", "c")
    # Only the look at who has our version succeeds.
    store.interrupt("get", lambda: store.fail("get", times=10), path=entry_path(1))
    outcome = timeline.append(draft("a"), after=0)
    assert isinstance(outcome, Lost)
    assert ids(outcome.winners) == ["b"]


def with_raw(raw: bytes, **changes: Any) -> dict[str, Any]:
    """What makes a draft create the table t with one inline commit."""
    key = Name(namespace=("default",), table="t")
    commits = [Commit(inline=[msgspec.Raw(raw)])]
    write = TableWrite(id="id-t", name=key, location="t", from_version=-1, to_version=0, commits=commits)
    create = TableDdl(action="create", id="id-t", name=key, location="t")
    return {"namespaces": [], "tables": [create], "writes": [write], **changes}


TIME_WITHOUT_ZONE = TransactionInfo(id="a", began_at=datetime(2026, 3, 1), base_version=0, isolation="SNAPSHOT")  # noqa: DTZ001
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "does not fit": ({"namespaces": [NamespaceDdl(action="drop", name=("x",))]}, "expected it to exist"),
    "other version": ({"version": 7}, "must have the version and the time"),
    "other time": ({"committed_at": T0 + timedelta(days=1)}, "must have the version and the time"),
    "other format": ({"format": 2}, "must have the version and the time"),
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
    with pytest.raises(InvalidError, match=message):
        timeline.append(draft("a", **changes), after=0)
    assert not store.exists(entry_path(1))
    commit(timeline, "b")


def test_an_entry_that_is_too_large_is_refused(
    timeline: Timeline, store: FaultyStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One byte more than MAX_ENTRY_BYTES is InvalidError that says what to do; exactly that many are fine."""
    size = len(msgspec.json.encode(draft("a")(1, T0 + TICK)))
    monkeypatch.setattr(lockstep.timeline, "MAX_ENTRY_BYTES", size - 1)
    with pytest.raises(InvalidError, match=rf"would have {size} bytes, more than {size - 1}: stage"):
        timeline.append(draft("a"), after=0)
    assert not store.exists(entry_path(1))
    monkeypatch.setattr(lockstep.timeline, "MAX_ENTRY_BYTES", size)
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


# Reading


def test_refresh_returns_what_is_new_in_order(timeline: Timeline, store: FaultyStorage) -> None:
    """Others' entries appear with a refresh, not before, oldest first and once; then one look finds no more."""
    other = Timeline.open(store)
    commit(other, "a", "b")
    assert timeline.head.version == 0
    assert ids(timeline.refresh()) == ["a", "b"]
    assert timeline.head == other.head
    looks = store.count("get")
    assert timeline.refresh() == []
    assert store.count("get") == looks + 1


def test_a_refresh_that_fails_keeps_what_it_read(timeline: Timeline, store: FaultyStorage) -> None:
    """An outage between two entries is UnavailableError; the state is consistent and the next refresh goes on."""
    commit(Timeline.open(store), "a", "b")
    store.fail("get", path=entry_path(2))
    with pytest.raises(UnavailableError, match="injected"):
        timeline.refresh()
    assert timeline.head.version == 1
    assert ids(timeline.refresh()) == ["b"]


def test_refresh_refuses_an_entry_that_does_not_fit(timeline: Timeline, store: FaultyStorage) -> None:
    """A foreign file in the next place is corruption, each time, and the head stays where it was."""
    bad = draft("a", namespaces=[NamespaceDdl(action="drop", name=("x",))])(1, T0 + TICK)
    store.put(entry_path(1), msgspec.json.encode(bad))
    for _ in range(2):
        with pytest.raises(CorruptTimelineError, match="timeline entry 1 has drop of namespace x"):
            timeline.refresh()
        assert timeline.head.version == 0


def test_entries_between_two_versions(timeline: Timeline) -> None:
    """`after` is exclusive, `through` inclusive; neither may lie outside the known history."""
    commit(timeline, "a", "b", "c")
    assert ids(timeline.entries(0)) == ["a", "b", "c"]
    assert ids(timeline.entries(1, 2)) == ["b"]
    assert timeline.entries(3) == timeline.entries(2, 1) == []
    assert [entry.version for entry in timeline.entries(-1, 0)] == [0]
    for after, through in [(4, None), (0, 4), (-2, None)]:
        with pytest.raises(InvalidError, match="does not exist: there are 0 to 3"):
            timeline.entries(after, through)


def test_every_version_can_be_seen_again(timeline: Timeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """at(n) is the database after entry n, however often and in whatever order it is asked for, with a small cache."""
    monkeypatch.setattr(lockstep.timeline, "CACHED_VERSIONS", 2)
    seen = [timeline.head]
    for n in range(6):
        commit(timeline, f"n{n}")
        seen.append(timeline.head)
    for n in [3, 0, 6, 5, 3, 3, 1, 2, 1, 4]:
        assert timeline.at(n) == seen[n]
    assert list(timeline._cache) == [1, 4], "the one asked for longest ago goes first"


@pytest.mark.parametrize("version", [-1, 3])
def test_a_version_that_is_not_there_is_refused(timeline: Timeline, version: int) -> None:
    """Below 0 and beyond the head is InvalidError with SQLSTATE 22023 that names the range."""
    commit(timeline, "a", "b")
    with pytest.raises(InvalidError, match=rf"database version {version} does not exist: there are 0 to 2") as caught:
        timeline.at(version)
    assert caught.value.sqlstate == "22023"


def test_the_database_as_it_was_at_a_time(timeline: Timeline, clock: FakeClock) -> None:
    """at_time is the latest version committed then or before, in any zone; after the head it is the head."""
    for n in (1, 2):
        clock.now = T0 + timedelta(seconds=n)
        commit(timeline, f"n{n}")
    zone = timezone(timedelta(hours=5))
    for offset, version in [(0, 0), (0.999, 0), (1, 1), (1.5, 1), (2, 2), (1e6, 2)]:
        ts = T0 + timedelta(seconds=offset)
        assert timeline.at_time(ts).version == timeline.at_time(ts.astimezone(zone)).version == version


def test_a_time_before_the_database_is_refused(timeline: Timeline) -> None:
    """Before version 0, and a time without a zone, are InvalidError (22023); the first names the times there are."""
    commit(timeline, "a")
    with pytest.raises(
        InvalidError, match=r"versions 0 to 1 .* 2026-03-01T12:00:00\+00:00 to .*12:00:00.001"
    ) as caught:
        timeline.at_time(T0 - TICK)
    assert caught.value.sqlstate == "22023"
    with pytest.raises(InvalidError, match="has no time zone"):
        timeline.at_time(T0.replace(tzinfo=None))


def test_an_older_version_sees_a_commit_that_moved_since(timeline: Timeline, store: FaultyStorage) -> None:
    """When an external entry moves a commit, at(n) answers with its new place, also where the old one was cached."""
    name = Name(namespace=("default",), table="t")
    timeline.append(draft("a", **with_raw(b"{}")), after=0)
    late = TableWrite(id="id-t", name=name, location="t", from_version=0, to_version=1, commits=[Commit(staged="s")])
    timeline.append(draft("b", namespaces=[], writes=[late]), after=1)
    commit(timeline, "c")
    assert timeline.at(2).tables[name].version == 1
    moved = [Moved(id="id-t", entry=2, to_version=2)]
    outcome = timeline.append(draft("d", kind="external", namespaces=[], moved=moved), after=3)
    assert isinstance(outcome, Ratified)
    for seen in (timeline, Timeline.open(store)):
        assert [seen.at(n).tables[name].version for n in (1, 2, 3, 4)] == [0, 2, 2, 2]
        assert seen.head.tables[name].version == 2
        assert seen.moved == {("id-t", 2): 2}


def test_readers_see_whole_states_while_others_write(tmp_path: Path) -> None:
    """While one thread appends, every database another one sees has exactly its version's namespaces."""
    timeline = Timeline.create(open_storage(str(tmp_path)))
    done = threading.Event()

    def read() -> int:
        looks = 0
        while not done.is_set() or looks == 0:
            for db in (timeline.head, timeline.at(timeline.head.version // 2)):
                assert len(db.namespaces) == db.version + 1
            assert len(timeline.entries(-1)) >= db.version
            looks += 1
        return looks

    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        try:
            commit(timeline, *(f"n{n}" for n in range(30)))
        finally:
            done.set()
        assert all(reader.result() > 0 for reader in readers)


# What is stored


def drop_field(field: str) -> Callable[[dict[str, Any]], Any]:
    return lambda value: {key: item for key, item in value.items() if key != field}


DAMAGE: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "future format": (lambda v: v.update(format=2, brand_new=True), "format 2, this Lockstep reads 1; upgrade"),
    "no format": (drop_field("format"), "missing required field `format`"),
    "format of another type": (lambda v: v.update(format="1"), "Expected `int`"),
    "unknown field": (lambda v: v.update(extra=1), "unknown field `extra`"),
    "missing field": (drop_field("kind"), "missing required field `kind`"),
    "unknown kind": (lambda v: v.update(kind="merge"), "Invalid enum value 'merge'"),
    "another's number": (lambda v: v.update(version=3), "says it is entry 3, expected 1"),
    "time without zone": (lambda v: v.update(committed_at="2026-03-01T12:00:01"), "expected a time in UTC"),
    "other zone": (lambda v: v.update(committed_at="2026-03-01T14:00:01+02:00"), "expected a time in UTC"),
    "microseconds": (lambda v: v.update(committed_at="2026-03-01T12:00:01.000001Z"), "expected milliseconds"),
    "not an object": (lambda _: [1], "expected a timeline entry"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_a_damaged_entry_is_named_with_what_was_expected(timeline: Timeline, store: FaultyStorage, case: str) -> None:
    """Opening and refreshing both refuse a file that is not a strict entry of format 1, and name it."""
    change, expected = DAMAGE[case]
    commit(Timeline.open(store), "a")
    rewrite(store, 1, change)
    for call in (timeline.refresh, lambda: Timeline.open(store)):
        with pytest.raises(CorruptTimelineError) as caught:
            call()
        assert entry_path(1) in caught.value.message
        assert expected in caught.value.message


@pytest.mark.parametrize(
    "data", [b"", b"{", b"null", b'{"format":1,"x":' + b"[" * 100_000, b'"\xff"', b"\xff\xfe", b"{} {}"]
)
def test_bytes_that_are_no_json_object_are_named(data: bytes) -> None:
    """Any other bytes are CorruptTimelineError too, however they are broken."""
    with pytest.raises(CorruptTimelineError, match=entry_path(5)):
        decode(data, 5)


def test_a_stored_entry_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound holds for readers as well, before anything is parsed."""
    monkeypatch.setattr(lockstep.timeline, "MAX_ENTRY_BYTES", 10)
    with pytest.raises(CorruptTimelineError, match="11 bytes, expected at most 10"):
        decode(b" " * 11, 5)


WHOLE = msgspec.json.encode(draft("a", **with_raw(b'{"add":{"path":"p"}}'))(1, T0 + TICK))


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_no_damage_to_the_bytes_raises_anything_else(data: st.DataObject) -> None:
    """Cut short or with bytes replaced, an entry is refused as corrupt, or reads as some whole entry 1."""
    cut = data.draw(st.integers(0, len(WHOLE) - 1))
    with pytest.raises(CorruptTimelineError):
        decode(WHOLE[:cut], 1)
    place, with_ = data.draw(st.integers(0, len(WHOLE) - 1)), data.draw(st.binary(max_size=3))
    try:
        entry = decode(WHOLE[:place] + with_ + WHOLE[place + 1 :], 1)
    except CorruptTimelineError:
        return
    assert (entry.format, entry.version) == (1, 1)


def test_an_entry_survives_its_file() -> None:
    """Encoding and decoding an entry gives the same entry, its inline commits byte for byte."""
    entry = decode(WHOLE, 1)
    assert entry == draft("a", **with_raw(b'{"add":{"path":"p"}}'))(1, T0 + TICK)
    assert msgspec.json.encode(entry) == WHOLE
    assert bytes((entry.writes[0].commits[0].inline or [])[0]) == b'{"add":{"path":"p"}}'


def test_a_definite_failure_is_no_doubt(timeline: Timeline, store: FaultyStorage) -> None:
    """A store that says no before it writes (a full disk) is unavailable: nothing was written, nobody has to look."""
    store.fail("put_if_absent", path=".json", definite=True)
    with pytest.raises(UnavailableError, match="injected"):
        timeline.append(draft("a"), after=0)
    assert timeline.refresh() == []
    commit(timeline, "a")


def test_a_definite_failure_after_a_doubtful_one_stays_in_doubt(timeline: Timeline, store: FaultyStorage) -> None:
    store.fail("put_if_absent", path=".json")
    store.fail("put_if_absent", path=".json", times=ATTEMPTS, definite=True)
    assert isinstance(timeline.append(draft("a"), after=0), Unknown)
