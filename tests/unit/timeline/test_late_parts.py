"""Parts of a checkpoint that are read late: when they are gone by then, damaged, or the store does not answer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.errors import CorruptTimelineError, UnavailableError
from lockstep.timeline.checkpoint import Checkpoints, read_state, versions
from lockstep.timeline.database import Database
from lockstep.timeline.entry import Entry
from lockstep.timeline.files import entry_path
from lockstep.timeline.fold import fold
from lockstep.timeline.log import Timeline
from lockstep.timeline.manifest import FOLDER, manifest_path, read_manifest
from lockstep.timeline.outcomes import Ratified
from lockstep.timeline.parts import FOLDER as PARTS
from lockstep.timeline.parts import digest_of, part_path
from lockstep.timeline.placements import amendments
from tests.support.checkpoints import checkpoint, entries_read, long_history, state_of, stored
from tests.support.entries import entry
from tests.support.faulty import FaultyStorage
from tests.support.histories import History as Steps
from tests.support.histories import create, histories, name, namespace, write


@pytest.fixture(params=[1, 3])
def small_parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part ends after each key, or after a few."""
    monkeypatch.setattr("lockstep.timeline.parts.PART_ITEMS", request.param)


@pytest.fixture
def lake(small_parts: None) -> tuple[FaultyStorage, list[Entry]]:
    """Twelve tables that nobody changes since, three that somebody does, and a checkpoint of version 6 and of 10."""
    tables = [f"t{n}" for n in range(12)]
    made = entry(1, tables=[create(t, f"id-{t}") for t in tables], writes=[write(-1, 0, t, f"id-{t}") for t in tables])
    later = [msgspec.structs.replace(e, version=e.version + 1) for e in long_history(11)[1:]]
    moved_on = [msgspec.structs.replace(e, committed_at=entry(e.version).committed_at) for e in later]
    transactions = [
        msgspec.structs.replace(e, transaction=msgspec.structs.replace(e.transaction, base_version=e.version - 1))
        for e in moved_on
    ]
    entries = [entry(0), made, *transactions]
    store = stored(entries)
    checkpoint(store, entries, 6)
    checkpoint(store, entries, 10)
    return store, entries


def damage_all(store: FaultyStorage, change: Callable[[str], object]) -> None:
    for each in store.inner.list(PARTS):
        change(f"{PARTS}/{each}")


ASKS: dict[str, Callable[[Database], Any]] = {
    "a name": lambda head: head.tables[name("t7")],
    "another name": lambda head: head.tables.get(name("t77")),
    "an id": lambda head: head.table_by_id("id-t7"),
    "a location": lambda head: head.table_at("tables/id-t7"),
    "namespaces": lambda head: dict(head.namespaces),
    "all": lambda head: sorted(head.tables.values(), key=lambda table: table.name),
    "how many there are in a namespace": lambda head: head.index.inside[("default",)],
    "equality": lambda head: head.tables == {n: t for n, t in head.tables.items() if n != name("t7")},
}


@pytest.mark.parametrize("ask", ASKS)
@pytest.mark.parametrize("damage", ["gone", "damaged"])
def test_what_is_asked_for_is_made_of_the_entries(
    lake: tuple[FaultyStorage, list[Entry]], ask: str, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A lake that is open already answers as if nothing had happened, and says in its log what did."""
    store, entries = lake
    opened = Timeline.open(store)
    damage_all(store, store.inner.delete if damage == "gone" else lambda path: store.inner.put(path, b"{}\n"))
    with caplog.at_level(logging.WARNING):
        assert ASKS[ask](opened.head) == ASKS[ask](fold(entries))
    assert "the timeline's entries are read instead" in caplog.text
    assert opened.head == fold(entries)
    for version in range(len(entries)):
        assert opened.at(version) == fold(entries[: version + 1])


def test_the_checkpoint_before_it_saves_most_entries(lake: tuple[FaultyStorage, list[Entry]]) -> None:
    """Where only what the newer one has is damaged, the older one is of use, and the entries in between."""
    store, entries = lake
    older = read_manifest(store.inner, 6).digests()
    for digest in read_manifest(store.inner, 10).digests() - older:
        store.inner.put(f"{PARTS}/{digest}.jsonl", b"")
    assert Timeline.open(store).head == fold(entries)
    assert entries_read(store) <= {0, *range(6, 14)}


def test_checkpoints_that_share_a_damaged_part_are_passed_over(
    small_parts: None, caplog: pytest.LogCaptureFixture
) -> None:
    """Few of them are looked at: each further back than the one before, and the oldest, which has another part."""
    entries = long_history(300)
    entries[1] = msgspec.structs.replace(entries[1], namespaces=[namespace("create", "n")])
    store = stored(entries)
    for version in range(0, 300, 2):
        checkpoint(store, entries, version)
    [shared] = [part for part in read_manifest(store.inner, 298).namespaces if part.first <= ("n",)][-1:]
    store.inner.put(part_path(shared.digest), b"")
    opened = Timeline.open(store)
    store.calls.clear()
    assert dict(opened.head.namespaces) == {("default",): {}, ("n",): {}}
    assert sum(path.startswith(f"{FOLDER}/0") for done, path in store.calls if done == "get") <= 10
    assert caplog.text.count("the timeline's entries are read instead") == 1
    assert "the checkpoint of database version 296 is passed over" in caplog.text


def test_one_of_an_older_version_is_found_behind_many_that_cannot_be_believed() -> None:
    """Also the very oldest."""
    entries = long_history(60)
    for good in (2, 4, 50):
        store = stored(entries)
        for version in range(2, 60, 2):
            checkpoint(store, entries, version)
            if version > good:
                store.inner.put(manifest_path(version), b"{}")
        state = Checkpoints(store).newest(59)
        assert state is not None
        assert state.database.version <= good
        assert state == state_of(entries[: state.database.version + 1])


def test_a_store_that_does_not_answer_is_told_and_asked_again(lake: tuple[FaultyStorage, list[Entry]]) -> None:
    """Nothing is made of the entries then: the store would not give those either."""
    store, entries = lake
    opened = Timeline.open(store)
    store.fail("get", path=".jsonl", times=1_000)
    for ask in ("a name", "an id", "a location", "namespaces", "all"):
        with pytest.raises(UnavailableError, match="injected"):
            ASKS[ask](opened.head)
    store.heal()
    assert opened.head == fold(entries)


def test_where_the_entries_are_lost_too_that_is_told(lake: tuple[FaultyStorage, list[Entry]]) -> None:
    store, _ = lake
    opened = Timeline.open(store)
    damage_all(store, store.inner.delete)
    store.inner.delete(entry_path(3))
    for _ in range(2):
        with pytest.raises(CorruptTimelineError, match=rf"{entry_path(3)} is missing"):
            ASKS["a name"](opened.head)


def test_a_commit_that_cannot_read_what_it_changes_says_why(lake: tuple[FaultyStorage, list[Entry]]) -> None:
    """It is not the entry's fault, and nothing was written."""
    store, _ = lake
    opened = Timeline.open(store)
    before = opened.head.version
    store.fail("get", path=".jsonl")
    with pytest.raises(UnavailableError, match="injected"):
        opened.append(writes_t7, after=before)
    damage_all(store, store.inner.delete)
    store.inner.delete(entry_path(3))
    with pytest.raises(CorruptTimelineError, match=rf"{entry_path(3)} is missing"):
        opened.append(writes_t7, after=before)
    assert opened.head.version == before
    assert not store.inner.exists(entry_path(before + 1))


def writes_t7(version: int, committed_at: datetime) -> Entry:
    made = entry(version, writes=[write(0, 1, "t7", "id-t7")])
    return msgspec.structs.replace(made, committed_at=committed_at)


def test_after_the_entry_is_written_nothing_needs_to_be_read(lake: tuple[FaultyStorage, list[Entry]]) -> None:
    """The commit is a fact: a store that fails at that moment must not make it look as if it were none."""
    store, _ = lake
    opened = Timeline.open(store)
    opened.head.tables[name("t7")]
    cache = opened.head.tables.base._cache._kept  # type: ignore[attr-defined]

    def fail() -> None:
        cache.clear()
        store.fail("get", path=".jsonl", times=1_000)

    before = opened.head.version
    store.interrupt("put_if_absent", fail)
    assert isinstance(opened.append(writes_t7, after=before), Ratified)
    assert opened.head.version == before + 1
    assert opened.head.tables[name("t7")].version == 1


def test_a_lake_that_goes_on_reads_no_part_under_its_lock(lake: tuple[FaultyStorage, list[Entry]]) -> None:
    """While one thread reads what a new entry needs, another may ask for the head and for older versions."""
    store, entries = lake
    opened = Timeline.open(store)
    opened.head.tables.base._cache._kept.clear()  # type: ignore[attr-defined]
    made = entry(len(entries), writes=[write(0, 1, "t7", "id-t7")])
    store.inner.put(entry_path(made.version), msgspec.json.encode(made))
    seen: list[int] = []
    store.interrupt("get", lambda: seen.append(opened.at(opened.head.version).version), path=".jsonl")
    opened.refresh()
    assert seen == [made.version - 1]
    assert opened.head == fold([*entries, made])


# --- checkpoints that come from checkpoints ---------------------------------------------------------------------------


@given(histories(20), st.sampled_from([1, 2, 256]), st.integers(0, 3))
@settings(deadline=None, max_examples=60)
def test_each_checkpoint_of_a_process_is_what_the_fold_says(steps: Steps, size: int, behind: int) -> None:
    """One that writes a checkpoint of each version, each made of the one before: none says anything else."""
    entries = steps.entries
    store = stored(entries[:1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lockstep.timeline.parts.PART_ITEMS", size)
        opened = Timeline.open(store, checkpoint_every=1)
        for version, each in enumerate(entries):
            store.inner.put(entry_path(version), msgspec.json.encode(each))
            if version % (behind + 1) == 0:
                opened.refresh()
                opened.write_checkpoint()
                assert opened.head == fold(entries[: version + 1])
        for version in versions(store):
            found = read_state(store, read_manifest(store, version))
            assert found == state_of(entries[: version + 1])
            alone = stored(entries)
            checkpoint(alone, entries, version)
            assert alone.inner.get(manifest_path(version)) == store.inner.get(manifest_path(version))
        again = Timeline.open(store)
        assert again.head == fold(entries)
        moved = amendments(entries)
        for version in range(len(entries)):
            assert again.at(version) == fold(entries[: version + 1], moved)


def test_who_finds_the_checkpoint_written_stands_on_it(lake: tuple[FaultyStorage, list[Entry]]) -> None:
    """Two processes that are due at once: the second writes nothing, reads no part, and has the same database."""
    store, entries = lake
    one, two = (Timeline.open(store, checkpoint_every=4) for _ in range(2))
    assert one.checkpoint_due == two.checkpoint_due == 12
    one.write_checkpoint()
    store.calls.clear()
    two.write_checkpoint()
    assert {done for done, _ in store.calls} == {"get", "put"}, "it writes the hint"
    assert store.count("get", ".jsonl") == 0
    assert one.head == two.head == fold(entries)
    for timeline in (one, two):
        assert len(timeline.head.tables.changes) == 0  # type: ignore[attr-defined]


# --- other formats ----------------------------------------------------------------------------------------------------


def of_format(number: int) -> Iterator[bytes]:
    """Manifests of another format, with the fields of the first one and with others."""
    for more in ({"parts": ["a" * 64]}, {"new": True}):
        said = {"format": number, "version": 8, "committed_at": "2026-03-01T12:00:08Z", "entry": "0" * 64, **more}
        data = msgspec.json.encode(said)
        yield msgspec.json.encode({"digest": digest_of(data), "manifest": msgspec.Raw(data)})


@pytest.mark.parametrize("number", [1, 3])
def test_a_checkpoint_of_another_format_is_passed_over(number: int, caplog: pytest.LogCaptureFixture) -> None:
    """The next one is of this format, at the same version if need be."""
    for manifest in of_format(number):
        entries = long_history(12)
        store = stored(entries)
        checkpoint(store, entries, 8)
        store.inner.put(manifest_path(8), manifest)
        opened = Timeline.open(store, checkpoint_every=8)
        assert opened.head == fold(entries)
        assert f"({manifest_path(8)}): it is of format {number}, this Lockstep reads 2" in caplog.text
        assert ("to upgrade makes use of it" in caplog.text) == (number == 3)
        opened.write_checkpoint()
        assert Checkpoints(store).newest(12, 8) == state_of(entries[:9])
