"""The history in segments: it says what the entries say, also of versions that expired, and costs what is asked for."""

from __future__ import annotations

import gzip
import hashlib
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.errors import ExpiredError, UnavailableError
from lockstep.timeline.entry import Entry
from lockstep.timeline.expiry import expire
from lockstep.timeline.files import encode
from lockstep.timeline.log import Timeline
from lockstep.timeline.segment import FOLDER, bare, list_segments, read_lines, write_segment
from tests.support.checkpoints import entries_read, long_history, requests, stored
from tests.support.entries import commit
from tests.support.faulty import FaultyStorage
from tests.support.histories import histories
from tests.support.memory import MemoryStorage

EACH = 10


@pytest.fixture(autouse=True)
def _short_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("segment", "past", "known", "log"):
        monkeypatch.setattr(f"lockstep.timeline.{module}.SEGMENT_VERSIONS", EACH)


def opened(store: FaultyStorage) -> Timeline:
    timeline = Timeline.open(store)
    timeline.mark_published(timeline.head.version)
    return timeline


def barely(entries: list[Entry]) -> list[Entry]:
    """Entries as the past has them, newest first."""
    return [bare(entry) for entry in reversed(entries)]


def with_segments(count: int = 45) -> tuple[FaultyStorage, list[Entry]]:
    entries = long_history(count)
    store = stored(entries)
    opened(store).write_segments(39, at_most=100)
    store.calls.clear()
    return store, entries


@settings(max_examples=40, deadline=None)
@given(
    history=histories(),
    cuts=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=4),
    bounds=st.tuples(st.integers(-1, 13), st.integers(-1, 13)),
    lost=st.integers(0, 5),
)
def test_segments_say_what_entries_say(
    history: Any, cuts: list[tuple[int, int]], bounds: tuple[int, int], lost: int
) -> None:
    """Whatever segments there are, overlapping, with gaps, one damaged: the past is that of the entries."""
    entries = history.entries
    store = stored(entries)
    for low, high in cuts:
        if some := entries[low : high + 1]:
            write_segment(store, some)
    for segment in list_segments(store)[lost : lost + 1]:
        store.put(segment.path, b"damaged")
    after, through = bounds
    wanted = [entry for entry in entries if after < entry.version <= through]
    assert [*Timeline.open(store).past(after=after, through=through)] == barely(wanted)


@settings(max_examples=40, deadline=None)
@given(history=histories(), first_kept=st.integers(0, 12), keep=st.sets(st.integers(0, 12)))
def test_expiry_leaves_what_is_kept_and_the_whole_past(history: Any, first_kept: int, keep: set[int]) -> None:
    """Random histories, with tables renamed and dropped, commits moved: what is kept reads as before."""
    entries, store = history.entries, stored(history.entries)
    timeline, last = opened(store), len(history.entries) - 1
    before = {version: timeline.at(version) for version in range(last + 1)}
    asked = min(first_kept, last)
    keep = {version for version in keep if version <= last}
    report = expire(timeline, first_kept=asked, keep=keep, wait=lambda: None)
    assert report.first_kept <= asked
    assert set(report.kept_alone) == {version for version in keep if version < report.first_kept}
    again = opened(store)
    for version, was in before.items():
        if version >= report.first_kept or version in keep:
            assert (again.at(version).tables, again.at(version).views) == (was.tables, was.views)
        else:
            with pytest.raises(ExpiredError):
                again.at(version)
    assert [*again.past(through=last)] == barely(entries)


@pytest.mark.parametrize("damage", [b"damaged", b""])
@pytest.mark.parametrize("has_read", [False, True])
def test_a_damaged_segment_is_written_again_before_the_entries_go_that_say_the_same(
    damage: bytes, has_read: bool
) -> None:
    """Then it is all that tells of them. What was read of it before says nothing of what it is now."""
    store, entries = with_segments()
    timeline = opened(store)
    if has_read:
        assert [*timeline.past()] == barely(entries)
    store.put(list_segments(store)[1].path, damage)
    expire(timeline, first_kept=35, wait=lambda: None)
    assert [*opened(store).past(through=len(entries) - 1)] == barely(entries)


def test_who_looked_before_an_expiry_of_another_sees_the_history_that_it_made() -> None:
    """A driver that runs for weeks: the expiry that it reads of wrote segments, which it has not listed yet."""
    entries = long_history(EACH - 2)
    store = stored(entries)
    long_lived = opened(store)
    assert [*long_lived.past()] == barely(entries)
    other = opened(store)
    expire(other, first_kept=len(entries) - 2, wait=lambda: None)
    long_lived.refresh()
    assert long_lived.head.expired.first_kept == len(entries) - 2
    assert [*long_lived.past(through=len(entries) - 1)] == barely(entries)


def test_segments_are_behind_each_other() -> None:
    store, _ = with_segments()
    assert [(segment.first, segment.last) for segment in list_segments(store)] == [(0, 9), (10, 19), (20, 29), (30, 39)]


def test_all_write_the_same_bytes() -> None:
    """Who comes second finds what he would have written; what is damaged is written again."""
    store, entries = with_segments()
    files = {path: data for path, data in store.inner.files.items() if path.startswith(FOLDER)}  # type: ignore[attr-defined]
    [first, *_] = files
    for damage in (None, b"damaged"):
        if damage is not None:
            store.inner.put(first, damage)
        for low in range(0, 40, EACH):
            write_segment(store, entries[low : low + EACH])
        assert {path: store.inner.get(path) for path in files} == files


def test_digests_stay() -> None:
    """What a commit said is gone, and it can be told whether a file is what it was."""
    store, entries = with_segments()
    segment = list_segments(store)[0]
    lines = read_lines(store, segment)
    assert [line.sha256 for line in lines] == [hashlib.sha256(encode(entry)).hexdigest() for entry in entries[:EACH]]
    assert lines[2].commits == [[hashlib.sha256(b"{}\n").hexdigest()]]
    text = gzip.decompress(store.inner.get(segment.path) or b"")
    assert b'"inline"' not in text
    assert text.count(b"\n") == EACH


def test_only_what_is_touched_is_read() -> None:
    store, entries = with_segments()
    timeline = opened(store)
    store.calls.clear()
    assert [entry.version for entry in timeline.past(after=12, through=17)] == [17, 16, 15, 14, 13]
    assert requests(store, lambda: [*timeline.past(after=12, through=17)]) == 0
    assert [path for done, path in store.calls if done == "get"] == [list_segments(store)[1].path]
    assert [*timeline.past(since=entries[33].committed_at, until=entries[35].committed_at)] == barely(entries[33:36])


@pytest.mark.parametrize("shift", [timedelta(0), timedelta(milliseconds=500)])
def test_a_time_is_found_in_segments(shift: timedelta) -> None:
    """Which version a time is of is the same with segments as without, at a few requests."""
    store, entries = with_segments()
    for version in range(46):
        timeline, moment = opened(store), entries[version].committed_at + shift
        store.calls.clear()
        assert timeline.at_time(moment).version == version
        if version < 35:
            assert entries_read(store) <= {*range(version + 2)}
            assert len([path for done, path in store.calls if done == "get" and path.startswith(FOLDER)]) == 1


@pytest.mark.parametrize("damage", [b"damaged", gzip.compress(b"{}\n" * EACH), None], ids=["bytes", "lines", "gone"])
def test_a_time_of_a_damaged_segment_is_found_in_entries(damage: bytes | None) -> None:
    store, entries = with_segments()
    timeline, segment = opened(store), list_segments(store)[2]
    if damage is None:
        assert [*timeline.past(after=43)], "so that it has looked which segments there are"
        store.inner.delete(segment.path)
    else:
        store.inner.put(segment.path, damage)
    for version in (19, 20, 25, 29, 30):
        assert timeline.at_time(entries[version].committed_at).version == version


def test_times_of_expired_versions() -> None:
    """A version that is kept alone is found by its time, and who asks for another one's is told that it expired."""
    store, entries = with_segments()
    expire(opened(store), first_kept=30, keep=[12], wait=lambda: None)
    timeline = opened(store)
    for version in range(46):
        moment = entries[version].committed_at
        if version == 12 or version >= 30:
            assert timeline.at_time(moment).version == version
        else:
            with pytest.raises(ExpiredError, match="has expired"):
                timeline.at_time(moment)
    for segment in list_segments(store):
        store.inner.delete(segment.path)
    with pytest.raises(ExpiredError):
        opened(store).at_time(entries[12].committed_at)  # nobody knows any more when the next one was


def test_expiry_writes_the_segments_that_are_missing() -> None:
    """Nothing goes before the history has it, also where a segment is not full yet; the next one begins there."""
    store = stored(long_history(45))
    expire(opened(store), first_kept=43, wait=lambda: None)
    firsts = [(segment.first, segment.last) for segment in list_segments(store)]
    assert firsts == [(0, 9), (10, 19), (20, 29), (30, 39), (40, 42)]
    timeline = opened(store)
    commit(timeline, *(f"n-{number}" for number in range(8)))
    timeline.write_due_segment()
    assert [(segment.first, segment.last) for segment in list_segments(store)][-1] == (43, 49)
    assert [entry.version for entry in timeline.past()] == [*range(timeline.head.version, -1, -1)]


def test_who_passes_a_multiple_writes_a_segment() -> None:
    timeline = Timeline.create(FaultyStorage(MemoryStorage()), checkpoint_every=100)
    commit(timeline, *(f"n-{number}" for number in range(8)))
    assert timeline.segment_due is None
    commit(timeline, "n-8")
    assert timeline.segment_due == 9
    timeline.write_due_segment()
    assert [(segment.first, segment.last) for segment in list_segments(timeline.storage)] == [(0, 9)]
    assert timeline.segment_due is None


def test_a_store_that_fails_is_told() -> None:
    """A segment that cannot be read now is none that is damaged: the entries would not come either."""
    store, _ = with_segments()
    timeline = opened(store)
    store.fail("get", path=".jsonl.gz")
    with pytest.raises(UnavailableError):
        next(iter(timeline.past(through=5)))
    assert next(iter(timeline.past(through=5))).version == 5
