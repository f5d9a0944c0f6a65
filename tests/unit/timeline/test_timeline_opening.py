"""Making and opening a timeline, and what the hint says of its end."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lockstep.errors import CorruptTimelineError, InvalidError, UnavailableError
from lockstep.storage import open_storage
from lockstep.timeline.files import FOLDER, entry_path
from lockstep.timeline.hint import HINT
from lockstep.timeline.log import Timeline
from tests.support.entries import T0, FakeClock, commit, ids
from tests.support.faulty import FaultyStorage


def test_create_writes_entry_0_and_opens(store: FaultyStorage, clock: FakeClock) -> None:
    """Version 0 is an empty database with the namespace `default`, made by who and when the entry says."""
    timeline = Timeline.create(store, clock=clock, transaction_id="first", author="ann", message="why")
    assert (timeline.head.version, timeline.head.committed_at) == (0, T0)
    assert (dict(timeline.head.namespaces), dict(timeline.head.tables)) == ({("default",): {}}, {})
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
        publish(timeline, 0)


def publish(timeline: Timeline, version: int) -> None:
    """Note that all up to a version is published, and write the hint that tells others."""
    timeline.mark_published(version)
    timeline.write_hint()


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
    "too far for a name": b'{"version": 999999999999999999999999}',
    "published past itself": b'{"version": 3, "published_through": 4}',
    "published below 0": b'{"version": 3, "published_through": -1}',
    "of a later Lockstep": b'{"version": 3, "published_through": 1, "more": 1}',
}


@pytest.mark.parametrize("case", HINTS)
def test_no_hint_changes_what_opening_finds(timeline: Timeline, store: FaultyStorage, case: str) -> None:
    """Unless it names an entry that is lost, the files say what there is; its watermark counts if it can be true."""
    commit(timeline, "a", "b", "c")
    hint = HINTS[case]
    if hint is not None:
        store.put(HINT, hint)
    again = Timeline.open(store)
    assert again.head == timeline.head
    assert again.entries(-1) == timeline.entries(-1)
    assert again.published_through == {"stale": 1, "right": 3, "of a later Lockstep": 1}.get(case, 0)


@pytest.mark.parametrize("gone", [[3], [2, 3], [0, 1, 2, 3]])
@pytest.mark.parametrize("opened", [Timeline.open, Timeline.create])
def test_a_hint_that_names_a_lost_entry_is_told(
    timeline: Timeline, store: FaultyStorage, opened: Callable[..., Timeline], gone: list[int]
) -> None:
    """An older database must not pass for the newest, nor a new one for it; the message says how to go on."""
    commit(timeline, "a", "b", "c")
    publish(timeline, 3)
    for version in gone:
        store.delete(entry_path(version))
    with pytest.raises(CorruptTimelineError, match=rf"{entry_path(3)} is gone: .* delete _lockstep/timeline/_latest"):
        opened(store)
    assert store.exists(entry_path(0)) is (0 not in gone), "nothing was written"
    store.delete(HINT)
    if 0 not in gone:
        assert opened(store).head.version == 3 - len(gone)


def test_a_hint_beyond_any_entry_says_what_is_there(timeline: Timeline, store: FaultyStorage) -> None:
    commit(timeline, "a")
    store.put(HINT, b'{"version": 99999999999999999999, "published_through": 2}')
    with pytest.raises(CorruptTimelineError, match=r"99999999999999999999\.json is gone: .* ends with entry 1"):
        Timeline.open(store)


def test_an_entry_that_one_look_misses_and_another_lists_is_not_lost(timeline: Timeline, store: FaultyStorage) -> None:
    """A mounted file system may remember for a while that a name was free: only what no look finds is lost."""
    commit(timeline, "a", "b")
    publish(timeline, 2)
    entry = Path(store.url.removeprefix("file://"), entry_path(2))
    late = entry.rename(entry.with_suffix(".late"))
    store.interrupt("list", lambda: late.rename(entry))
    assert Timeline.open(store).head.version == 2


def test_nothing_opens_without_a_hint_that_the_store_fails_to_give(timeline: Timeline, store: FaultyStorage) -> None:
    """It may be all that tells of an entry that was lost; one that makes no sense is as good as none."""
    commit(timeline, "a")
    publish(timeline, 1)
    store.fail("get", path=HINT)
    with pytest.raises(UnavailableError):
        Timeline.open(store)
    assert Timeline.open(store).published_through == 1
    store.put(HINT, b"?")
    again = Timeline.open(store)
    assert (again.head, again.published_through) == (timeline.head, 0)


def test_a_right_hint_spares_the_listing(timeline: Timeline, store: FaultyStorage) -> None:
    """With a hint nothing is listed; that is all that it is for."""
    commit(timeline, "a", "b")
    before = store.count("list", FOLDER)
    publish(timeline, 2)
    assert Timeline.open(store).published_through == 2
    assert store.count("list", FOLDER) == before


def test_the_watermark_only_rises(timeline: Timeline, store: FaultyStorage) -> None:
    """mark_published keeps the highest version, here and in the hint, and refuses one beyond the head."""
    commit(timeline, "a", "b", "c")
    for version, expected in [(2, 2), (1, 2), (3, 3)]:
        publish(timeline, version)
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
        publish(timeline, 1)
    assert timeline.published_through == 1
    assert "hint was not written" in caplog.text
    assert "injected" in caplog.text
