"""Expiry beside others: who stands on an older version is told the truth, and who is killed or raced loses nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from threading import Thread
from typing import Any

import pytest
from msgspec import UNSET

from lockstep.errors import ExpiredError, SnapshotTooOldError
from lockstep.storage import Storage
from lockstep.timeline import fence
from lockstep.timeline.base import base_versions
from lockstep.timeline.entry import Expired
from lockstep.timeline.expiry import expire
from lockstep.timeline.files import FOLDER, entry_path, version_in
from lockstep.timeline.hint import CHECKPOINTS, HINT, Hint, write_hint
from lockstep.timeline.log import Timeline
from lockstep.timeline.outcomes import Unknown
from tests.support.entries import commit, draft
from tests.support.expiries import LAST, as_it_was, check_kept, entries_there, long_store, opened, plain, run
from tests.support.faulty import FaultyStorage
from tests.support.killed import Killed, KilledStorage
from tests.support.memory import MemoryStorage


@pytest.fixture
def store() -> FaultyStorage:
    return long_store()


@pytest.fixture
def before(store: FaultyStorage) -> dict[int, tuple[Any, ...]]:
    return as_it_was(store)


# --- who stands on an older version -----------------------------------------------------------------------------------


def test_who_does_not_know_yet_is_told_that_it_expired(store: FaultyStorage) -> None:
    """A process that has not read on finds entries gone, and knows from the fence why."""
    old = Timeline.open(store)
    run(opened(store), 20)
    old._history.__init__()  # type: ignore[misc]  # what it had in memory is not asked for
    old._cache.clear()
    with pytest.raises(ExpiredError, match="entries below 20 are gone"):
        old.entries(3, 5)


def test_entries_of_expired_versions_are_refused(store: FaultyStorage) -> None:
    """Who judges against what was committed since an expired version has to begin again: a plain, retryable error."""
    timeline = opened(store)
    run(timeline, 20, 5)
    with pytest.raises(SnapshotTooOldError, match="run a transaction that began before that again") as raised:
        timeline.entries(15)
    assert raised.value.retryable
    assert [entry.version for entry in timeline.entries(4, 5)] == [5]
    assert [entry.version for entry in timeline.kept()] == [*range(20, LAST + 2)]
    newest_first = timeline.newest_first()
    assert [next(newest_first).version for _ in range(12)] == [*range(LAST + 1, 19, -1)]
    with pytest.raises(SnapshotTooOldError):
        next(newest_first)


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time of all processes on the fence's clock."""
    found = [1000.0]
    for module in ("fence", "growth", "group", "log"):
        monkeypatch.setattr(f"lockstep.timeline.{module}.now", lambda: found[0])
    return found


def late(store: FaultyStorage, seconds: list[float]) -> tuple[Timeline, Timeline]:
    """Two processes that stand on the last version, behind which everything expired meanwhile."""
    old = Timeline.open(store), Timeline.open(store)
    other = opened(store)
    commit(other, *(f"more-{n}" for n in range(10)))
    other.mark_published(other.head.version)
    run(other, other.head.version)
    seconds[0] += fence.GRACE_SECONDS + 1
    return old


def test_a_free_name_is_not_the_end(store: FaultyStorage, seconds: list[float]) -> None:
    """Who was away for long finds no entry behind its head, does not take that for the end, and begins anew."""
    old, _ = late(store, seconds)
    assert [*old.refresh()] == []
    fresh = opened(store)
    assert old.head == fresh.head
    with pytest.raises(SnapshotTooOldError, match="run a transaction that began before that again"):
        old.entries(LAST)
    commit(old, "again")
    assert [entry.transaction.id for entry in fresh.refresh()] == ["again"]


def test_nobody_commits_where_entries_were_deleted(store: FaultyStorage, seconds: list[float]) -> None:
    """THE danger of deleting entries: their names are free, so a put succeeds. It is no commit, and is told so."""
    old, _ = late(store, seconds)
    with pytest.raises(SnapshotTooOldError, match="Nothing of this was committed"):
        old.append(draft("too-late"), LAST)
    assert old.head.version == LAST
    fresh = opened(store)
    assert "too-late" not in {entry.transaction.id for entry in fresh.kept()}
    run(fresh, fresh.head.version)
    assert entry_path(LAST + 1) not in store.inner.files  # type: ignore[attr-defined]


def test_what_others_put_there_is_not_read(store: FaultyStorage, seconds: list[float]) -> None:
    """Two such processes do not take each other's entries for the timeline."""
    old, other = late(store, seconds)
    with pytest.raises(SnapshotTooOldError):
        old.append(draft("too-late"), LAST)
    with pytest.raises(SnapshotTooOldError):
        other.append(draft("later"), LAST)
    for timeline in (old, other):
        timeline.refresh()
        assert timeline.head == opened(store).head


def test_another_thread_that_begins_anew_makes_nobody_sure_of_an_old_head(
    store: FaultyStorage, seconds: list[float]
) -> None:
    """The process slept; one of its threads has an entry under way, another opens the lake again meanwhile."""
    old, _ = late(store, seconds)

    def another() -> None:
        for _ in range(2):
            thread = Thread(target=old.refresh)
            thread.start()
            thread.join()

    store.interrupt("put_if_absent", another, path=entry_path(LAST + 1))
    with pytest.raises(SnapshotTooOldError):
        old.append(draft("lost"), LAST)


def test_what_was_asked_ahead_says_nothing_of_now(
    store: FaultyStorage, seconds: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening a lake takes nine seconds, and the name after the last was looked at when that began."""
    other = opened(store)
    other.write_hint()
    whole, this_thread = Timeline._read_on, threading.get_ident()

    def slow(timeline: Timeline, files: Any, at_most: int | None = None) -> None:
        # Threads that tests before this one have left may read on, too.
        if timeline is other or threading.get_ident() != this_thread:
            return whole(timeline, files, at_most)
        for answer in list(files._futures.values()):
            answer.result()
        seconds[0] += 2
        commit(other, *(f"more-{n}" for n in range(10)))
        other.mark_published(other.head.version)
        run(other, other.head.version)
        seconds[0] += 7
        return whole(timeline, files, at_most)

    with monkeypatch.context() as while_it_opens:  # `seconds` stays the time behind it
        while_it_opens.setattr(Timeline, "_read_on", slow)
        opening = Timeline.open(store)
    seconds[0] += 4
    with pytest.raises(SnapshotTooOldError):
        opening.append(draft("lost"), opening.head.version)


def test_what_landed_and_expired_before_it_was_looked_at_is_not_told_to_be_lost(
    store: FaultyStorage, seconds: list[float]
) -> None:
    """The put lands; the machine sleeps; others commit behind it, and let versions expire; then the fence is asked."""
    old, other = Timeline.open(store), opened(store)

    def meanwhile() -> None:
        other.refresh()
        commit(other, *(f"more-{n}" for n in range(10)))
        other.mark_published(other.head.version)
        run(other, other.head.version)
        seconds[0] += fence.GRACE_SECONDS + 1

    store.interrupt("put_if_absent", meanwhile, path=entry_path(LAST + 1), when="after")
    assert isinstance(old.append(draft("mine"), LAST), Unknown)
    assert ("mine",) in opened(store).head.namespaces


def test_nothing_is_deleted_before_everybody_has_to_ask(store: FaultyStorage) -> None:
    """Between the fence and the first deletion is the time for which a process may count on what it saw."""
    timeline, seen = opened(store), []

    def wait() -> None:
        seen.append((fence.fence(store.inner), entries_there(store)))

    expire(timeline, first_kept=20, wait=wait)
    assert seen == [(20, {*range(LAST + 2)})]


@pytest.mark.parametrize("version", [5, 18, 19, 20, 25])
@pytest.mark.parametrize("checkpoint", [None, 5, 20])
def test_a_hint_from_before_is_not_believed(store: FaultyStorage, version: int, checkpoint: int | None) -> None:
    """A process that was away for long, or killed, leaves an old hint: of what has expired, or just before that.

    The checkpoint that it names may be one of a version that is kept alone, behind which entries are gone. Its own
    entry may be there yet: who let versions expire was killed, too.
    """
    own = store.inner.get(entry_path(version)) or b""
    run(opened(store), 20, 5)
    store.inner.put(entry_path(version), own)
    write_hint(store.inner, Hint(version=version, published_through=5, checkpoint=checkpoint or UNSET))
    assert opened(store).head.version == LAST + 1
    assert opened(store).at(20).version == 20


# --- killed, and raced ------------------------------------------------------------------------------------------------


def count_calls(files: dict[str, bytes], act: Callable[[Storage], object]) -> int:
    store = KilledStorage(memory(files))
    act(store)
    return len(store.calls)


def memory(files: dict[str, bytes]) -> MemoryStorage:
    store = MemoryStorage()
    store.files = dict(files)
    return store


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
def test_killed_at_any_call(
    store: FaultyStorage, before: dict[int, tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch, *, is_done: bool
) -> None:
    """Wherever it dies, the lake opens, what is kept reads as before, and the next one ends the work."""
    monkeypatch.setattr("lockstep.timeline.layered_map.READERS", 1)
    files = dict(store.inner.files)  # type: ignore[attr-defined]

    def act(other: Storage) -> None:
        run(opened(other), 20, 5)

    for at in range(count_calls(files, act)):
        inner = memory(files)
        try:
            act(KilledStorage(inner, at=at, is_done=is_done))
        except Killed:
            pass
        else:
            pytest.fail(f"call {at} killed nobody")
        check_survived(inner, before)


def check_survived(inner: MemoryStorage, before: dict[int, tuple[Any, ...]]) -> None:
    """See that a lake is whole whose expiry was killed, that it needs no checkpoint, and that the next one ends it."""
    found = opened(inner)
    has_expired = found.head.expired.first_kept == 20
    for version, was in before.items():
        if version >= 20 or version == 5 or not has_expired:
            assert plain(found.at(version)) == was
        else:
            with pytest.raises(ExpiredError):
                found.at(version)
    bare = memory({path: data for path, data in inner.files.items() if not path.startswith((CHECKPOINTS, HINT))})
    assert opened(bare).head == found.head
    run(found, 20, 5)
    check_kept(opened(inner), before, 20, 5)
    assert {v for name in inner.list(FOLDER) if (v := version_in(name)) is not None} == {0, 5, *range(20, LAST + 2)}
    assert (base_versions(inner), inner.list(fence.FOLDER)) == ([5, 20], [f"{20:020d}.json"])


def _race(calls: Iterator[int], at: int, store: Storage, _: str, __: str, when: str) -> None:
    if when == "before" and next(calls) == at:
        run(opened(store), 25, 5, 22)


def test_two_who_expire_at_once_do_no_harm(store: FaultyStorage, before: dict[int, tuple[Any, ...]]) -> None:
    """Wherever the second comes in between, what either keeps no more is gone, and what both keep is there."""
    files = dict(store.inner.files)  # type: ignore[attr-defined]
    count = count_calls(files, lambda other: run(opened(other), 20, 5, 12))
    for at in range(0, count, 3):
        inner = FaultyStorage(memory(files))

        inner._meet = partial(_race, iter(range(10**6)), at, inner.inner)  # type: ignore[method-assign]
        run(opened(inner), 20, 5, 12)
        found = opened(inner.inner)
        assert found.head.expired in (Expired(first_kept=25, kept=(5,)), Expired(first_kept=25, kept=(5, 22))), at
        check_kept(found, before, 25, *found.head.expired.kept)
