"""Reading the timeline: its versions, beside writers, and entries that are damaged."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta, timezone
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lockstep.timeline.files
from lockstep.caches import Cache
from lockstep.errors import CorruptTimelineError, InvalidError, UnavailableError
from lockstep.storage import open_storage
from lockstep.timeline.clock import FAR_AHEAD
from lockstep.timeline.entry import (
    Commit,
    Moved,
    Name,
    NamespaceDdl,
    TableWrite,
)
from lockstep.timeline.files import decode, entry_path
from lockstep.timeline.known import DATABASE_BYTES
from lockstep.timeline.log import Timeline
from lockstep.timeline.outcomes import Ratified
from tests.support.entries import T0, TICK, FakeClock, commit, draft, ids, rewrite, with_raw
from tests.support.faulty import FaultyStorage


def test_refresh_returns_what_is_new_in_order(timeline: Timeline, store: FaultyStorage) -> None:
    """Others' entries appear with a refresh, not before, oldest first and once; then one look finds no more."""
    other = Timeline.open(store)
    commit(other, "a", "b")
    assert timeline.head.version == 0
    assert ids(timeline.refresh()) == ["a", "b"]
    assert timeline.head == other.head
    looks = store.count("get")
    assert [*timeline.refresh()] == []
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


def test_every_version_can_be_seen_again(timeline: Timeline) -> None:
    """at(n) is the database after entry n, however often and in whatever order it is asked for, with a small cache."""
    timeline._cache = Cache(DATABASE_BYTES, entries=2)
    seen = [timeline.head]
    for n in range(6):
        commit(timeline, f"n{n}")
        seen.append(timeline.head)
    for n in [3, 0, 6, 5, 3, 3, 1, 2, 1, 4]:
        assert timeline.at(n) == seen[n]
    assert [each.version for each in timeline._cache.values()] == [1, 4], "the one asked for longest ago goes first"


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
        assert seen.moves == {("id-t", 2): 2}


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


def drop_field(field: str) -> Callable[[dict[str, Any]], Any]:
    return lambda value: {key: item for key, item in value.items() if key != field}


DAMAGE: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "future format": (lambda v: v.update(format=7, brand_new=True), "format 7, of a newer Lockstep than this one"),
    "no such format": (lambda v: v.update(format=0), "format 0, expected 1 to 6"),
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
        to_do = "upgrade Lockstep here" if case == "future format" else "restore the file from a backup"
        assert caught.value.message.count("restore") + caught.value.message.count("upgrade") == 1
        assert to_do in caught.value.message


@pytest.mark.parametrize(
    "data", [b"", b"{", b"null", b'{"format":1,"x":' + b"[" * 100_000, b'"\xff"', b"\xff\xfe", b"{} {}"]
)
def test_bytes_that_are_no_json_object_are_named(data: bytes) -> None:
    """Any other bytes are CorruptTimelineError too, however they are broken."""
    with pytest.raises(CorruptTimelineError, match=entry_path(5)):
        decode(data, 5)


def test_a_stored_entry_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound holds for readers as well, before anything is parsed."""
    monkeypatch.setattr(lockstep.timeline.files, "MAX_ENTRY_BYTES", 10)
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


# --- a clock that is wrong --------------------------------------------------------------------------------------------

YEAR = timedelta(days=365)


@pytest.fixture
def skewed(timeline: Timeline, store: FaultyStorage) -> Timeline:
    """A timeline whose version 2 came from a machine whose clock is a year ahead; 3 from one whose clock is right."""
    clock = FakeClock()
    clock.now = T0 + timedelta(hours=1)
    commit(Timeline.open(store, clock=clock), "a")
    commit(Timeline.open(store, clock=lambda: T0 + YEAR), "b")
    clock.now = T0 + timedelta(hours=2)
    again = Timeline.open(store, clock=clock)
    commit(again, "c")
    clock.now = T0 + timedelta(hours=3)
    return again


def test_times_go_on_behind_a_clock_that_is_ahead(skewed: Timeline) -> None:
    assert [entry.committed_at - T0 for entry in skewed.entries(0)] == [timedelta(hours=1), YEAR, YEAR + TICK]


def test_a_clock_that_is_ahead_is_told_once(
    timeline: Timeline, store: FaultyStorage, caplog: pytest.LogCaptureFixture
) -> None:
    """By each process that meets the first such entry: when it reads on, or when it opens."""
    clock = FakeClock()
    reader = Timeline.open(store, clock=clock)
    commit(Timeline.open(store, clock=lambda: T0 + FAR_AHEAD), "a")
    reader.refresh()
    assert not caplog.messages, "clocks are never quite the same"
    commit(Timeline.open(store, clock=lambda: T0 + YEAR), "b", "c")
    reader.refresh()
    commit(reader, "d")
    [told] = caplog.messages
    assert "database version 2 says that it was committed at 2027-03-01T12:00:00+00:00" in told
    assert "ask for them by number (FOR SYSTEM_VERSION AS OF" in told
    caplog.clear()
    Timeline.open(store, clock=clock)
    assert caplog.messages == [told]
    clock.now = T0 + YEAR
    Timeline.open(store, clock=clock)
    assert caplog.messages == [told], "until the clock is past it"


def test_a_time_that_may_be_a_later_versions_is_refused(skewed: Timeline) -> None:
    """Versions 2 and 3 were there by now, and their times do not say so: an older one must not pass for it."""
    for hours in (1.5, 2.5, 3):
        with pytest.raises(InvalidError, match=r"cannot be told: database version 2 says .*SYSTEM_VERSION AS OF"):
            skewed.at_time(T0 + timedelta(hours=hours))
    assert skewed.at_time(T0 + timedelta(hours=1)).version == 1, "that is when it was committed"
    assert skewed.at_time(T0 + timedelta(minutes=1)).version == 0, "what came before is right"
    assert skewed.at(2).version == 2
    assert skewed.at_time(T0 + YEAR).version == 2
    assert skewed.at_time(T0 + 2 * YEAR).version == 3, "whichever clock was wrong"
