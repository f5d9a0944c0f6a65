"""Checkpoints of the timeline: they say what the entries say, or nothing, and opening reads them instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from immutables import Map

from lockstep.errors import CorruptTimelineError, InvalidError, UnavailableError
from lockstep.lake.verify import verify
from lockstep.timeline.checkpoint import Checkpoints, read_state, versions
from lockstep.timeline.entry import Entry, Moved
from lockstep.timeline.files import FOLDER as ENTRIES
from lockstep.timeline.files import File, encode, entry_path
from lockstep.timeline.fold import fold
from lockstep.timeline.hint import HINT, Hint, write_hint
from lockstep.timeline.log import Timeline
from lockstep.timeline.manifest import FOLDER, KINDS, manifest_path, read_manifest
from lockstep.timeline.parts import FOLDER as PARTS_FOLDER
from lockstep.timeline.parts import NewPart, cut, part_path
from lockstep.timeline.placements import amendments, as_ratified, placements
from lockstep.timeline.state import State
from tests.support.checkpoints import checkpoint, entries_read, long_history, state_of, stored
from tests.support.entries import commit, entry
from tests.support.faulty import FaultyStorage
from tests.support.histories import History as Steps
from tests.support.histories import create, histories, name, namespace, write

# --- what it says -----------------------------------------------------------------------------------------------------


@given(histories(20), st.data())
@settings(deadline=None, max_examples=50)
def test_a_checkpoint_is_what_the_fold_says(steps: Steps, data: st.DataObject) -> None:
    """Read back, it is the state at its version; and opening with it is opening without it, at each older version."""
    entries, last = steps.entries, len(steps.entries) - 1
    version = data.draw(st.integers(0, last))
    store = stored(entries)
    checkpoint(store, entries, version)
    assert read_state(store, read_manifest(store, version)) == state_of(entries[: version + 1])
    opened = Timeline.open(store)
    moved_since = {move.entry for each in entries[version + 1 :] for move in each.moved}
    needed = range(min([version, *moved_since]), last + 2)
    assert entries_read(store) <= {0, *needed}, "what is before it is not read, but for commits that are moved"
    assert opened.head == fold(entries)
    moved = amendments(entries)
    assert dict(opened.moves) == moved
    for older in data.draw(st.lists(st.integers(0, last), max_size=5)):
        assert opened.at(older) == fold(entries[: older + 1], moved)
        assert opened.at_time(entries[older].committed_at) == opened.at(older)
    placed = placements(entries)
    for each in entries:
        for write_ in each.writes:
            assert opened.versions(write_, each.version) == placed.get((write_.id, each.version), as_ratified(write_))


def test_a_commit_that_is_moved_after_the_checkpoint_is_moved_in_it() -> None:
    """The checkpoint says what was known at its version; versions since see the commit where it is now."""
    entries = [
        entry(0),
        entry(1, tables=[create()], writes=[write(-1, 0)]),
        entry(2, writes=[write(0, 1)]),
        entry(3, namespaces=[namespace("create", "n")]),
        entry(4, namespaces=[namespace("create", "m")]),
        entry(5, kind="external", moved=[Moved(id="id-t", entry=2, to_version=2)]),
    ]
    store = stored(entries)
    checkpoint(store, entries, 3)
    opened = Timeline.open(store)
    assert [opened.at(version).tables[name("t")].version for version in (3, 4, 5, 2, 1)] == [2, 2, 2, 2, 0]


@given(histories(20))
@settings(deadline=None, max_examples=50)
def test_whoever_writes_a_checkpoint_writes_the_same(steps: Steps) -> None:
    """One who folded all entries, and one who began from another checkpoint: the parts are the same bytes."""
    entries, last = steps.entries, len(steps.entries) - 1
    store = stored(entries)
    checkpoint(store, entries, last // 2)
    opened = Timeline.open(store, checkpoint_every=1)
    opened.write_checkpoint()
    if last > last // 2:
        alone = stored(entries)
        checkpoint(alone, entries, last)
        written = {path: alone.inner.get(path) for path in [manifest_path(last), *parts(alone)]}
        assert written.items() <= {path: store.inner.get(path) for path in written}.items()


def parts(store: FaultyStorage) -> list[str]:
    return [f"{PARTS_FOLDER}/{each}" for each in store.inner.list(PARTS_FOLDER)]


def only_part(store: FaultyStorage, which: str) -> str:
    """Return the path of the one part that a map has in the checkpoint of version 8."""
    [part] = getattr(read_manifest(store.inner, 8), which)
    return part_path(part.digest)


def many_tables(count: int) -> list[Entry]:
    names = [f"t{n}" for n in range(count)]
    first = entry(
        1,
        tables=[create(each, f"id-{each}") for each in names],
        writes=[write(-1, 0, each, f"id-{each}") for each in names],
    )
    return [entry(0), first, entry(2, writes=[write(0, 1, "t7", "id-t7")])]


def test_checkpoints_share_the_parts_in_which_nothing_changed() -> None:
    """Of 20,000 tables one changed, so one part is written, and the manifest."""
    entries = many_tables(20_000)
    store = stored(entries)
    checkpoint(store, entries, 1)
    before = {*store.inner.list(PARTS_FOLDER)}
    assert len(before) > 20
    opened = Timeline.open(store, checkpoint_every=1)
    store.calls.clear()
    opened.write_checkpoint()
    assert len({*store.inner.list(PARTS_FOLDER)} - before) == 1
    assert [path for done, path in store.calls if done == "put_if_absent"][1:] == [manifest_path(2)]


def test_parts_are_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    state = state_of(many_tables(5_000))
    monkeypatch.setattr("lockstep.timeline.parts.PART_BYTES", 10_000)
    found = [*cut(KINDS["tables"], state.database.tables, lambda *_: False)]
    assert max(len(part.data) for part in found if isinstance(part, NewPart)) < 11_000
    assert sum(part.part.count for part in found if isinstance(part, NewPart)) == 5_000


# --- what is not believed ---------------------------------------------------------------------------------------------


@pytest.fixture
def damaged() -> tuple[FaultyStorage, list[Entry]]:
    entries = long_history(12)
    store = stored(entries)
    checkpoint(store, entries, 8)
    return store, entries


@pytest.mark.parametrize("which", ["manifest", "tables", "namespaces", "ids", "locations", "inside"])
def test_damage_anywhere_is_passed_over(
    damaged: tuple[FaultyStorage, list[Entry]], which: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Whichever byte is another one, wherever the file ends, or if it is not there: the entries say what there is."""
    store, entries = damaged
    path = manifest_path(8) if which == "manifest" else only_part(store, which)
    whole = store.inner.get(path) or b""
    changed = [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(0, len(whole), 3)]
    torn = [whole[:at] for at in range(0, len(whole), 29)]
    for data in [*changed, *torn, b"[" * 100_000, None]:
        store.inner.delete(path)
        if data is not None:
            store.inner.put(path, data)
        store.calls.clear()
        caplog.clear()
        assert Timeline.open(store).head == fold(entries)
        assert entries_read(store) >= set(range(13)), data
        said = "the checkpoint of database version 8 is passed over" if which == "manifest" else "a checkpoint's part"
        assert said in caplog.text


def test_an_older_checkpoint_is_taken_where_the_newest_is_damaged() -> None:
    entries = long_history(150)
    store = stored(entries)
    checkpoint(store, entries, 60)
    checkpoint(store, entries, 120)
    store.inner.put(manifest_path(120), b"{}")
    assert Timeline.open(store).head == fold(entries)
    assert entries_read(store) == {0, *range(60, 152)}


@pytest.mark.parametrize("operation", ["get", "list"])
def test_a_checkpoint_that_the_store_does_not_give_is_passed_over(operation: Any) -> None:
    entries = long_history(120)
    store = stored(entries)
    checkpoint(store, entries, 60)
    write_hint(store.inner, Hint(version=120))
    store.fail(operation, path=manifest_path(60) if operation == "get" else FOLDER)
    assert Timeline.open(store).head == fold(entries)


def test_a_checkpoint_of_another_history_is_passed_over(
    damaged: tuple[FaultyStorage, list[Entry]], caplog: pytest.LogCaptureFixture
) -> None:
    """A lake that went on from an older copy: version 8 is another one now, and its checkpoint is still there."""
    store, entries = damaged
    entries[8] = entry(8, namespaces=[namespace("create", "other")])
    others = entries[:9]
    for version in range(8, 13):
        store.inner.delete(entry_path(version))
    store.inner.put(entry_path(8), encode(entries[8]))
    write_hint(store.inner, Hint(version=8, checkpoint=8))
    assert Timeline.open(store).head == fold(others)
    assert "it is of another history" in caplog.text
    again = Timeline.open(store, checkpoint_every=4)
    again.write_checkpoint()
    assert read_state(store, read_manifest(store, 8)) == state_of(others), "it is written over"


def test_a_damaged_part_is_mended_by_the_next_checkpoint(damaged: tuple[FaultyStorage, list[Entry]]) -> None:
    """By whoever has met it. Otherwise all later checkpoints that share it would be of no use."""
    store, entries = damaged
    store.inner.put(only_part(store, "namespaces"), b"?")
    opened = Timeline.open(store, checkpoint_every=4)
    assert dict(opened.head.namespaces) == {("default",): {}}
    assert opened.checkpoint_due == 12
    opened.write_checkpoint()
    assert read_state(store, read_manifest(store, 12)) == state_of(entries)
    assert read_state(store, read_manifest(store, 8)) == state_of(entries[:9]), "it shares the part"


def test_all_is_written_again_where_somebody_deleted_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts that the new checkpoint would share with the last one are gone too."""
    monkeypatch.setattr("lockstep.timeline.parts.PART_ITEMS", 1)  # each thing is a part
    entries = long_history(12)
    store = stored(entries)
    checkpoint(store, entries, 8)
    opened = Timeline.open(store, checkpoint_every=10)
    assert opened.checkpoint_due == 10
    store.inner.delete_folder(FOLDER)
    opened.write_checkpoint()
    assert read_state(store, read_manifest(store, 10)) == state_of(entries[:11])


# --- entries that are lost --------------------------------------------------------------------------------------------


def test_a_backup_without_the_newest_entries_is_told(damaged: tuple[FaultyStorage, list[Entry]]) -> None:
    """The hint tells of them, and where it is lost too, a checkpoint of a version that is not there any more does."""
    store, _ = damaged
    for version in range(7, 13):
        store.inner.delete(entry_path(version))
    with pytest.raises(CorruptTimelineError, match=rf"{entry_path(12)} is gone: {HINT} is written after"):
        Timeline.open(store)
    store.inner.delete(HINT)
    for opened in (Timeline.open, Timeline.create):
        with pytest.raises(CorruptTimelineError, match=rf"{entry_path(8)} is gone: {manifest_path(8)} .* entry 6\."):
            opened(store)
    store.inner.delete_folder(FOLDER)
    assert Timeline.open(store).head.version == 6


def test_what_was_committed_while_somebody_looked_is_not_lost(damaged: tuple[FaultyStorage, list[Entry]]) -> None:
    """Who was stopped behind its listing of the entries finds a checkpoint of one that came later."""
    store, entries = damaged
    late = {version: store.inner.get(entry_path(version)) or b"" for version in range(7, 13)}
    for version in late:
        store.inner.delete(entry_path(version))
    store.inner.delete(HINT)
    store.interrupt("list", lambda: [store.inner.put(entry_path(n), late[n]) for n in late], path=ENTRIES, when="after")
    assert Timeline.open(store).head.version == len(entries) - 1 == 12


def test_a_new_lake_does_not_hide_that_all_entries_are_lost(damaged: tuple[FaultyStorage, list[Entry]]) -> None:
    store, _ = damaged
    store.inner.delete_folder(ENTRIES)
    with pytest.raises(CorruptTimelineError, match="ends with no entry at all"):
        Timeline.create(store)
    assert store.inner.list(ENTRIES) == []
    store.inner.delete_folder(FOLDER)
    with pytest.raises(InvalidError, match="no Lockstep timeline"):
        Timeline.open(store)


@pytest.mark.parametrize("gone", [0, 8, 10])
def test_entries_that_must_be_there_are_missed(damaged: tuple[FaultyStorage, list[Entry]], gone: int) -> None:
    """The first, that of the checkpoint, and all since: a checkpoint does not stand in for any of them."""
    store, _ = damaged
    store.inner.delete(entry_path(gone))
    with pytest.raises(CorruptTimelineError, match=rf"{entry_path(gone)} is missing"):
        Timeline.open(store)


def test_an_older_entry_that_is_lost_is_told_to_whoever_needs_it(damaged: tuple[FaultyStorage, list[Entry]]) -> None:
    store, entries = damaged
    store.inner.delete(entry_path(4))
    opened = Timeline.open(store)
    assert opened.head == fold(entries)
    needs: list[Callable[[], Any]] = [
        lambda: opened.entries(-1),
        lambda: [*opened.scan()],
        lambda: [*opened.newest_first()],
        lambda: opened.at(5),
        lambda: verify(store, opened),
    ]
    for each in needs:
        with pytest.raises(CorruptTimelineError, match=rf"{entry_path(4)} is missing"):
            each()
    assert opened.at(9) == fold(entries[:10])


# --- writing ----------------------------------------------------------------------------------------------------------


def test_a_checkpoint_is_due_past_each_interval(store: FaultyStorage) -> None:
    """It is of the interval's version, whoever commits next, and the hint names it once it is written."""
    timeline = Timeline.create(store, checkpoint_every=5)
    commit(timeline, *"abcd")
    assert timeline.checkpoint_due is None
    commit(timeline, *"efg")
    assert timeline.checkpoint_due == 5
    timeline.write_checkpoint()
    assert timeline.checkpoint_due is None
    assert versions(store) == [5]
    assert msgspec.json.decode(store.get(HINT) or b"") == {"version": 7, "published_through": 0, "checkpoint": 5}
    commit(timeline, *"hi")
    assert timeline.checkpoint_due is None
    commit(timeline, "j")
    assert timeline.checkpoint_due == 10
    assert Timeline.open(store, checkpoint_every=0).checkpoint_due is None


@pytest.mark.parametrize("path", [".jsonl", manifest_path(5)])
@pytest.mark.parametrize("when", ["before", "after"])
def test_two_who_write_at_once_write_the_same(store: FaultyStorage, path: str, when: Any) -> None:
    one = Timeline.create(store, checkpoint_every=5)
    commit(one, *"abcdef")
    two = Timeline.open(FaultyStorage(store.inner), checkpoint_every=5)
    store.interrupt("put_if_absent", two.write_checkpoint, path=path, when=when)
    one.write_checkpoint()
    assert two.checkpoint_due is None, "the other did write"
    assert store.count("put") == 1, "nothing is written over but the hint"
    assert len(store.list(PARTS_FOLDER)) == 1
    assert read_state(store, read_manifest(store, 5)).database == one.at(5)


def test_a_crash_before_the_manifest_leaves_no_checkpoint(store: FaultyStorage) -> None:
    timeline = Timeline.create(store, checkpoint_every=5)
    commit(timeline, *"abcdef")
    store.fail("put_if_absent", path=manifest_path(5))
    with pytest.raises(UnavailableError):
        timeline.write_checkpoint()
    assert len(store.list(PARTS_FOLDER)) == 1
    assert versions(store) == []
    again = Timeline.open(store, checkpoint_every=5)
    assert again.head == timeline.head
    again.write_checkpoint()
    assert versions(store) == [5]


def test_a_version_whose_entry_is_gone_gets_none(store: FaultyStorage) -> None:
    timeline = Timeline.create(store, checkpoint_every=5)
    commit(timeline, *"abcdef")
    store.delete(entry_path(5))
    with pytest.raises(CorruptTimelineError, match="is missing"):
        timeline.write_checkpoint()
    assert versions(store) == []


# --- an older Lockstep ------------------------------------------------------------------------------------------------


class OldHint(msgspec.Struct):
    """The hint as Lockstep knew it before there were checkpoints."""

    version: int
    published_through: int = 0


def test_an_older_reader_meets_nothing_that_it_does_not_know(store: FaultyStorage) -> None:
    """It passes over the hint's new field, and lists nothing but entries; what it writes does not name a checkpoint."""
    timeline = Timeline.create(store, checkpoint_every=5)
    commit(timeline, *"abcdefg")
    timeline.write_checkpoint()
    assert msgspec.json.decode(store.get(HINT) or b"", type=OldHint) == OldHint(7, 0)
    assert {each for each in store.list(ENTRIES) if each != "_latest"} == {f"{n:020d}.json" for n in range(8)}
    store.put(HINT, msgspec.json.encode(OldHint(7, 3)))
    again = Timeline.open(store)
    assert (again.head, again.published_through) == (timeline.head, 3)


@pytest.mark.parametrize("named", [b"-1", b"9", b"4", b"null", b'"5"', b"99999999999999999999999"])
def test_a_hint_that_names_no_checkpoint_is_no_error(store: FaultyStorage, named: bytes) -> None:
    timeline = Timeline.create(store, checkpoint_every=5)
    commit(timeline, *"abcdefg")
    timeline.write_checkpoint()
    store.put(HINT, b'{"version":7,"published_through":0,"checkpoint":' + named + b"}")
    assert Timeline.open(store).head == timeline.head


# --- verify -----------------------------------------------------------------------------------------------------------


def test_verify_compares_each_checkpoint_with_the_entries() -> None:
    """One that is whole and says something else than the entries, one that is damaged, one of a version never made."""
    entries = long_history(12)
    store = stored(entries)
    for version in (2, 4, 6, 8):
        checkpoint(store, entries, version)
    wrong = fold(entries[:5])
    tables = dict(wrong.tables)
    del tables[name("a")]
    changed = State(msgspec.structs.replace(wrong, tables=tables), Map())
    store.delete(manifest_path(4))
    Checkpoints(store).write(changed, File(4, store.get(entry_path(4)) or b"", entries[4:5]))
    store.put(manifest_path(6), b"{")
    store.put(manifest_path(99), b"{")
    timeline = Timeline.open(store)
    report = verify(store, timeline)
    assert [each.path for each in report.wrong_checkpoints] == [manifest_path(version) for version in (99, 4, 6)]
    assert "the timeline ends with version 12" in report.wrong_checkpoints[0].why
    assert "something else than the entries" in report.wrong_checkpoints[1].why
    assert report.checkpoints == 5
