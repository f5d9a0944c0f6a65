"""Expiry: which versions there are afterwards, and that nothing else is lost, whatever else is."""

from __future__ import annotations

import gzip
import json
from datetime import timedelta
from typing import Any

import pytest

from lockstep.errors import CorruptTimelineError, ExpiredError, InvalidError, SnapshotTooOldError
from lockstep.timeline.base import FOLDER as BASES
from lockstep.timeline.base import base_path, base_versions
from lockstep.timeline.checkpoint import versions as checkpoint_versions
from lockstep.timeline.entry import Moved, TagDdl
from lockstep.timeline.expiry import ExpiryReport
from lockstep.timeline.files import decode_all, encode, encode_all, entry_path
from lockstep.timeline.hint import CHECKPOINTS, HINT
from lockstep.timeline.log import Timeline
from lockstep.timeline.outcomes import Ratified
from tests.support.checkpoints import long_history, stored
from tests.support.entries import T0, FakeClock, commit, draft, entry
from tests.support.expiries import LAST, as_it_was, check_kept, entries_there, long_store, opened, plain, run
from tests.support.faulty import FaultyStorage
from tests.support.histories import name


@pytest.fixture
def store() -> FaultyStorage:
    return long_store()


@pytest.fixture
def before(store: FaultyStorage) -> dict[int, tuple[Any, ...]]:
    return as_it_was(store)


def test_what_is_kept_is_as_it_was(store: FaultyStorage, before: dict[int, tuple[Any, ...]]) -> None:
    """What is kept reads as before, in this process and for whoever opens the lake later; the rest is refused."""
    timeline = opened(store)
    report = run(timeline, 20, 5, 12)
    assert (report.first_kept, report.kept_alone, report.entries) == (20, (5, 12), 17)
    check_kept(timeline, before, 20, 5, 12)
    check_kept(opened(store), before, 20, 5, 12)
    assert entries_there(store) == {0, 5, 12, *range(20, LAST + 2)}


def test_a_file_of_several_entries_stays_for_one_of_them(store: FaultyStorage) -> None:
    """A group commit's file is deleted when all of its versions have expired, and not before."""
    entries = long_history(LAST)
    for version in (8, 9, 10):
        store.inner.delete(entry_path(version))
    store.inner.put(entry_path(8), encode_all([encode(each) for each in entries[8:11]]))
    timeline = opened(store)
    was = plain(timeline.at(9))
    run(timeline, 20, 9)
    assert entries_there(store) & {*range(20)} == {0, 8}
    assert plain(opened(store).at(9)) == was
    with pytest.raises(ExpiredError):
        opened(store).at(8)
    run(opened(store), 25)
    assert entries_there(store) & {*range(20)} == {0}


def test_a_dry_run_changes_nothing(store: FaultyStorage) -> None:
    timeline = opened(store)
    files = dict(store.inner.files)  # type: ignore[attr-defined]
    planned = run(timeline, 20, 5, dry_run=True)
    assert store.inner.files == files  # type: ignore[attr-defined]
    done = run(timeline, 20, 5)
    assert (planned.first_kept, planned.kept_alone, planned.entries) == (done.first_kept, done.kept_alone, done.entries)


def test_twice_is_once(store: FaultyStorage) -> None:
    """Whoever asks again for the same appends nothing and deletes nothing."""
    timeline = opened(store)
    run(timeline, 20, 5)
    files = dict(store.inner.files)  # type: ignore[attr-defined]
    again = run(opened(store), 20, 5)
    assert again == ExpiryReport(20, (5,), 0)
    assert store.inner.files == files  # type: ignore[attr-defined]


def test_what_expired_stays_so(store: FaultyStorage, before: dict[int, tuple[Any, ...]]) -> None:
    """An older wish brings nothing back, and what was kept alone goes once nobody wants it."""
    timeline = opened(store)
    run(timeline, 20, 5, 12)
    report = run(timeline, 10, 5, 7)
    assert (report.first_kept, report.kept_alone) == (20, (5,))
    check_kept(opened(store), before, 20, 5)
    assert base_versions(store.inner) == [5, 20]
    run(timeline, 25)
    check_kept(opened(store), before, 25)
    assert base_versions(store.inner) == [25]


@pytest.mark.parametrize("first_kept", [-1, LAST + 1])
def test_what_is_no_version_is_refused(store: FaultyStorage, first_kept: int) -> None:
    with pytest.raises(InvalidError, match="does not exist"):
        run(opened(store), first_kept)


def test_unpublished_commits_stay(store: FaultyStorage) -> None:
    """The timeline alone has what is not published."""
    timeline = Timeline.open(store)
    timeline.mark_published(7)
    assert run(timeline, 20).first_kept == 8


def test_commits_that_were_moved_later_stay(store: FaultyStorage) -> None:
    """Whoever reads an entry that moves commits needs those that were there: none of them goes before it."""
    entries = [*long_history(5), entry(6, kind="external", moved=[Moved(id="id-b", entry=4, to_version=3)])]
    store = stored([*entries, entry(7), entry(8)])
    assert run(opened(store), 5).first_kept == 4
    delete_all(store, CHECKPOINTS)
    assert opened(store).at(5).tables[name("b")].version == 3
    store = stored([*entries, entry(7), entry(8)])
    assert run(opened(store), 6).first_kept == 6  # its base has what the entry moved


def test_versions_of_tags_stay(store: FaultyStorage, before: dict[int, tuple[Any, ...]]) -> None:
    """A tag keeps its version, whoever decides without it; one that is past its time does not."""
    timeline = opened(store, clock=FakeClock())
    late = T0 + timedelta(days=1)
    tags = [TagDdl(action="create", name="a", version=4), TagDdl(action="create", name="b", version=6, retain_until=T0)]
    tags.append(TagDdl(action="create", name="c", version=9, retain_until=late))
    for tag in tags:
        done = timeline.append(draft(tag.name, format=3, namespaces=[], tags=[tag]), timeline.head.version)
        assert isinstance(done, Ratified)
    assert run(timeline, 20).kept_alone == (4, 9)
    check_kept(opened(store), before, 20, 4, 9)


def test_a_tag_of_what_expired_is_refused(store: FaultyStorage) -> None:
    """Who comes too late with a tag is told so, before anything is written."""
    timeline = opened(store)
    run(timeline, 20)
    tag = TagDdl(action="create", name="late", version=4)
    with pytest.raises(InvalidError, match="expected one that there is"):
        timeline.append(draft("late", format=3, namespaces=[], tags=[tag]), timeline.head.version)


# --- lost hints and checkpoints ---------------------------------------------------------------------------------------


def delete_all(store: FaultyStorage, prefix: str) -> None:
    for path in [path for path in store.inner.files if path.startswith(prefix)]:  # type: ignore[attr-defined]
        store.inner.delete(path)


@pytest.mark.parametrize("lost", [[HINT], [CHECKPOINTS], [HINT, CHECKPOINTS]], ids=str)
def test_it_opens_without_hint_and_checkpoints(
    store: FaultyStorage, before: dict[int, tuple[Any, ...]], lost: list[str]
) -> None:
    """Checkpoints are advice as ever: what expired entries said is in the base."""
    timeline = opened(store)
    commit(timeline, *(f"more-{n}" for n in range(10)))
    timeline.mark_published(timeline.head.version)
    timeline.write_checkpoint()
    run(timeline, 20, 5)
    timeline.write_hint()
    for prefix in lost:
        delete_all(store, prefix)
    again = opened(store)
    assert again.head == timeline.head
    check_kept(again, before, 20, 5)


def test_a_checkpoint_that_is_due_is_not_written_once_its_version_has_expired(store: FaultyStorage) -> None:
    """A process was stopped behind its commit while others went on: nothing is lost, and nothing is to be restored."""
    stopped, other = opened(store), opened(store)
    assert stopped.checkpoint_due == LAST
    commit(other, *(f"more-{n}" for n in range(9)))
    other.mark_published(other.head.version)
    run(other, LAST + 5)
    stopped.write_checkpoint()
    assert stopped.checkpoint_due is None
    assert LAST not in checkpoint_versions(store)


def test_who_has_not_seen_the_last_expiry_is_told_to_look_again_and_not_of_damage(store: FaultyStorage) -> None:
    """Its version stands on a base that another process has deleted since: nothing is lost."""
    run(opened(store), 10, 5)
    stopped = opened(store)
    run(opened(store), 20)
    with pytest.raises(SnapshotTooOldError, match="below 20 are gone"):
        stopped.at(5)
    stopped.refresh()
    with pytest.raises(ExpiredError, match="version 5 has expired"):
        stopped.at(5)
    assert plain(stopped.at(20))[0] == 20


def test_a_damaged_part_is_made_of_the_base(store: FaultyStorage, before: dict[int, tuple[Any, ...]]) -> None:
    run(opened(store), 20, 5)
    for path in [path for path in store.inner.files if "/parts/" in path]:  # type: ignore[attr-defined]
        store.inner.put(path, b"damaged")
    check_kept(opened(store), before, 20, 5)


def test_a_damaged_base_is_told(store: FaultyStorage) -> None:
    """Where base and checkpoints are gone, nobody guesses: the lost file has its name in the message."""
    run(opened(store), 20, 5)
    delete_all(store, CHECKPOINTS)
    store.inner.put(base_path(5), gzip.compress(b"{}\n{}\n"))
    with pytest.raises(CorruptTimelineError, match=f"{base_path(5)} cannot be used"):
        opened(store).at(5)


def test_an_unfinished_base_is_written_again(store: FaultyStorage, before: dict[int, tuple[Any, ...]]) -> None:
    store.inner.put(base_path(20), b"torn")
    run(opened(store), 20)
    delete_all(store, CHECKPOINTS)
    check_kept(opened(store), before, 20)


def test_lost_is_not_expired(store: FaultyStorage) -> None:
    """An entry that is missing though nobody let it expire is lost, before the first that is kept and after it."""
    run(opened(store), 20, 5)
    store.inner.delete(entry_path(24))
    delete_all(store, CHECKPOINTS)
    store.inner.delete(HINT)
    with pytest.raises(CorruptTimelineError, match=f"{entry_path(24)} is missing"):
        opened(store)


def test_without_checkpoint_and_base_nothing_is_guessed(store: FaultyStorage) -> None:
    run(opened(store), 20)
    delete_all(store, CHECKPOINTS)
    delete_all(store, BASES)
    with pytest.raises(CorruptTimelineError, match=f"expected {base_path(20)}"):
        opened(store)


# --- older Locksteps --------------------------------------------------------------------------------------------------


def test_an_older_lockstep_says_that_it_is_to_be_upgraded(store: FaultyStorage) -> None:
    """It needs entry 0 to open, and reads its format first; one that is open already meets that of the expiry."""
    first = store.inner.get(entry_path(0))
    run(opened(store), 20)
    for version in (0, LAST + 1):
        assert json.loads(store.inner.get(entry_path(version)) or b"")["format"] == 4
    assert json.loads(store.inner.get(entry_path(0)) or b"")["first"] == json.loads(first or b"")
    assert [entry.version for entry in decode_all(first or b"", 0)] == [0]


# --- checkpoints ------------------------------------------------------------------------------------------------------


def test_checkpoints_of_expired_versions_go(store: FaultyStorage) -> None:
    """Their manifests go at once, and parts once no manifest has named them for an hour."""
    clock = FakeClock()
    timeline = opened(store, clock=clock)
    for version in (10, 15, 20, 25):
        timeline.secure_version(version)
    store.inner.put(f"{CHECKPOINTS}/parts/{'0' * 64}.jsonl", b"nobody knows this")
    parts = len(store.inner.list(f"{CHECKPOINTS}/parts"))
    assert run(timeline, 20, 15).checkpoints == 1
    assert checkpoint_versions(store.inner) == [15, 20, 25]
    assert len(store.inner.list(f"{CHECKPOINTS}/parts")) == parts
    clock.now += timedelta(minutes=59)
    assert run(timeline, 20, 15).parts == 0
    clock.now += timedelta(minutes=1)
    assert run(timeline, 20, 15).parts >= 2
    for path in store.inner.list(BASES):
        store.inner.delete(f"{BASES}/{path}")
    again = opened(store)
    for version in (15, 20, 25):
        assert again.at(version) == timeline.at(version)  # of the checkpoints alone


def test_a_clock_that_was_ahead_keeps_no_parts_for_ever(store: FaultyStorage) -> None:
    """One run's clock was ten years ahead: the next one notes anew which parts nobody names."""
    clock = FakeClock()
    timeline = opened(store, clock=clock)
    timeline.secure_version(20)
    store.inner.put(f"{CHECKPOINTS}/parts/{'0' * 64}.jsonl", b"nobody knows this")
    clock.now += timedelta(days=3650)
    run(timeline, 20)
    clock.now = T0
    for hours in range(2):
        clock.now += timedelta(hours=1)
        deleted = run(timeline, 20).parts
        assert (deleted > 0) == (hours == 1)
