"""What stays in memory is bounded in bytes, however large what is kept is, and what has gone is read again."""

from __future__ import annotations

import gc
import json
import os
import signal
import threading
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

import lockstep.lake.changes as changes_module
import lockstep.tables.state as state_module
import lockstep.timeline.known as known_module
import lockstep.timeline.parts as parts_module
import lockstep.timeline.past as past_module
from lockstep import caches
from lockstep.caches import MIB, Cache, kept_bytes, remembered
from lockstep.catalog import TransactionalCatalog
from lockstep.conflict.writes import Changes
from lockstep.delta.actions import Action, parse, render
from lockstep.delta.pruning import predicates
from lockstep.delta.pruning.file_bounds import FileValues, possible
from lockstep.delta.pruning.predicates import may_any_match, may_match
from lockstep.delta.snapshot import Snapshot, read_snapshot
from lockstep.lake.changes import PastChanges
from lockstep.tables.state import States
from lockstep.timeline.entry import Commit, Entry, Name, Table
from lockstep.timeline.files import File, decode_all, encode, encode_all
from lockstep.timeline.history import History
from lockstep.timeline.log import Timeline
from lockstep.timeline.manifest import KINDS
from lockstep.timeline.parts import Pairs
from lockstep.timeline.past import Past
from lockstep.timeline.segment import bare, read_segment, write_segment
from tests.support.checkpoints import checkpoint, long_history, requests, stored
from tests.support.entries import entry
from tests.support.histories import write
from tests.support.lakes import add, create, named, remove, stage
from tests.support.memory import MemoryStorage

pytestmark = pytest.mark.long

LARGE = "x" * 20_000


# --- one cache, and all of a process ----------------------------------------------------------------------------------


def test_what_was_used_last_stays() -> None:
    cache = Cache[str, int](30)
    for number, name in enumerate("abc"):
        cache.keep(name, number, size=10)
    assert cache.get("a") == 0
    cache.keep("d", 3, size=10)
    assert (cache.get("b"), cache.get("a"), len(cache), cache.size) == (None, 0, 3, 30)


def test_what_is_larger_than_all_may_be_is_not_kept_and_takes_nobodys_place() -> None:
    cache = Cache[str, int](30)
    cache.keep("a", 0, size=10)
    cache.keep("large", 1, size=31)
    assert (cache.get("large"), cache.get("a"), cache.size) == (None, 0, 10)
    cache.keep("a", 2, size=31)
    assert (cache.get("a"), cache.size) == (None, 0), "nor does what it replaces stay: it is out of date"


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 40), st.booleans())))
def test_a_cache_never_exceeds_its_bytes_nor_says_what_was_not_kept(steps: list[tuple[int, int, bool]]) -> None:
    cache, newest = Cache[int, int](100, entries=4), dict[int, int]()
    for number, (key, size, is_kept) in enumerate(steps):
        if is_kept:
            cache.keep(key, number, size=size)
            newest[key] = number
        assert cache.get(key) in (None, newest.get(key))
        assert cache.size <= 100
        assert len(cache) <= 4


def test_all_caches_of_a_process_keep_so_many_bytes_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever lake they are of: what was used least recently goes, from whichever of them."""
    for cache in caches._process.caches:
        cache.clear()
    monkeypatch.setattr(caches, "PROCESS_BYTES", 100)
    lakes = [Cache[int, str](80) for _ in range(50)]
    for number, lake in enumerate(lakes):
        lake.keep(number, "x", size=20)
    assert kept_bytes() <= caches.PROCESS_BYTES
    assert [bool(len(lake)) for lake in lakes] == [False] * 45 + [True] * 5
    assert lakes[45].get(45) == "x"
    lakes[0].keep(0, "x", size=20)
    assert [bool(len(lake)) for lake in lakes[45:]] == [True, False, True, True, True]


def test_a_cache_that_is_gone_counts_no_more() -> None:
    gc.collect()
    before = kept_bytes()
    cache = Cache[int, int](100)
    cache.keep(1, 1, size=100)
    assert kept_bytes() == before + 100
    del cache
    assert kept_bytes() == before


def test_threads_share_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    gc.collect()
    monkeypatch.setattr(caches, "PROCESS_BYTES", kept_bytes() + 150)
    shared = [Cache[int, int](100) for _ in range(3)]
    wrong: list[object] = []

    def work() -> None:
        for number in range(2_000):
            cache = shared[number % 3]
            cache.keep(number % 17, number % 17, size=7)
            if (found := cache.get(number % 13)) not in (None, number % 13):
                wrong.append(found)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert all(cache.size == 7 * len(cache) <= 100 for cache in shared)
    # What is kept of other tests is large beside these, so it was not looked at each time.
    assert kept_bytes() <= caches.PROCESS_BYTES + caches.PROCESS_BYTES // caches.LOOKS


def test_what_a_function_says_of_texts_is_remembered_in_bytes() -> None:
    calls: list[str] = []

    @remembered(10_000, 1)
    def length(text: str) -> int | None:
        calls.append(text)
        return len(text) or None

    assert [length(""), length(""), length("a"), length("a")] == [None, None, 1, 1]
    assert calls == ["", "a"]
    for size in range(1_000, 1_100):
        assert length("x" * size) == size
    assert length("a") == 1
    assert calls.count("a") == 2


# --- estimates are not too low ----------------------------------------------------------------------------------------


def taken(make: Callable[[], object]) -> int:
    """Return the bytes that what is made takes: the least of some looks, since other threads make things meanwhile."""
    make()  # what is loaded and remembered only once
    gc.collect()
    gc.freeze()  # a collection among all that other tests left takes so long that another thread has its turn
    try:
        return min(taken_once(make) for _ in range(20))
    finally:
        gc.unfreeze()


def taken_once(make: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        made = make()
        gc.collect()
        used, _ = tracemalloc.get_traced_memory()
        del made
    finally:
        tracemalloc.stop()
    return used


def saying(version: int, text: str, *, tables: int = 1) -> Entry:
    """An entry whose message and whose commits say a text."""
    commit = Commit(inline=[msgspec.Raw(msgspec.json.encode(add("p", stats=text)))])
    made = entry(version, writes=[write(0, 1, f"t{n}", f"id-t{n}", commits=[commit]) for n in range(tables)])
    return structs.replace(made, transaction=structs.replace(made.transaction, message=text))


def a_state(text: str, files: int) -> Snapshot:
    snapshot = Snapshot()
    snapshot.take(
        parse(render([add(f"{n:036}", stats=f"{n}{text}", partitionValues={"day": "1"}) for n in range(files)]))
    )
    return snapshot


SAID = ["", "x" * 300, "x" * 5_000]


@pytest.mark.parametrize("text", SAID)
@pytest.mark.parametrize("tables", [1, 100])
def test_an_entry_takes_about_what_is_counted(text: str, tables: int) -> None:
    data = encode(saying(1, text, tables=tables))
    [counted] = File(1, data, decode_all(data, 1)).stored()
    used = taken(lambda: decode_all(bytes(bytearray(data)), 1))
    assert used / 1.2 <= counted.size <= 5 * used


@pytest.mark.parametrize("text", SAID)
def test_an_entry_of_a_segment_takes_about_what_is_counted(text: str) -> None:
    store = MemoryStorage()
    segment = write_segment(store, [saying(version, f"{version}{text}") for version in range(100)])
    past = Past(store, History())
    past._entries(segment)
    used = taken(lambda: read_segment(store, segment))
    assert used / 1.2 <= past._read.size <= 5 * used


@pytest.mark.parametrize("text", SAID)
def test_a_tables_state_takes_about_what_is_counted(text: str) -> None:
    used = taken(lambda: a_state(text, 500))
    assert used / 1.2 <= a_state(text, 500).size <= 3 * used


@pytest.mark.parametrize("text", SAID)
@pytest.mark.parametrize("files", [1, 500])
def test_what_an_entry_changed_takes_about_what_is_counted(
    text: str, files: int, catalog: TransactionalCatalog
) -> None:
    entry = committed(catalog, "a", *(add(f"{n:036}", stats=f"{n}{text}") for n in range(files)))

    def found() -> tuple[Changes, PastChanges]:
        past = PastChanges(catalog.lake.storage, catalog.timeline)
        return past.of(entry), past

    _, past = found()
    used = taken(found)
    assert used / 1.2 <= past._kept.size <= 4 * used


@pytest.mark.parametrize("name", ["tables", "ids", "locations"])
def test_a_part_of_which_all_was_looked_up_takes_about_what_is_counted(name: str) -> None:
    kind = KINDS[name]
    names = [named(f"sales.table_{n:04}") for n in range(128)]
    values: dict[str, Callable[[Name, str], tuple[Any, Any]]] = {
        "tables": lambda name, id_: (name, Table(id=id_, name=name, location=f"sales/{id_}", version=7, since=9)),
        "ids": lambda name, id_: (id_, name),
        "locations": lambda name, id_: (f"sales/{id_}", name),
    }
    pairs = dict(values[name](each, f"{number:036}") for number, each in enumerate(names))
    data = b"".join(kind.encode(*each) for each in sorted(pairs.items()))

    def looked_up() -> Pairs[Any, Any]:
        made = Pairs(kind, bytes(bytearray(data)))
        assert all(made.get(key) == value for key, value in pairs.items())
        return made

    used = taken(looked_up)
    assert used / 1.2 <= looked_up().size <= 3 * used


@pytest.mark.parametrize(
    "predicate", ["a = 1", " AND ".join(["a=1"] * 99), " OR ".join(f"`c{n}` > {n}" for n in range(99))]
)
def test_a_condition_takes_no_more_than_is_counted(predicate: str) -> None:
    parse_condition = predicates._parsed.__wrapped__  # type: ignore[attr-defined]
    used = taken(lambda: parse_condition(predicate))
    assert used <= caches.LEAST + predicates._FACTOR * len(predicate)


# --- full of what is large: the bound is kept, and answers stay right -------------------------------------------------


def committed(catalog: TransactionalCatalog, name: str, *actions: Action) -> Entry:
    """Commit to a table, and return the entry."""
    tx = catalog.begin()
    stage(catalog, tx, name, *actions)
    done = catalog.commit(tx)
    assert done.entry is not None
    return done.entry


def test_entries_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [entry(0), *(saying(version, f"{version}{LARGE}") for version in range(1, 60))]
    store = stored(entries)
    history = History(size=MIB)
    for _ in range(2):
        for version in range(60):
            assert history.read(store, range(version, version + 1), last=59) == [entries[version]]
            assert history._by_version.size <= MIB
    assert len(history._by_version) < 20
    assert requests(store, lambda: history.read(store, range(59, 60), last=59)) == 0


def test_an_entry_of_a_group_keeps_none_of_the_others_in_memory() -> None:
    """What a commit says is a part of the bytes that it was read from."""
    small, large = encode(saying(1, "small")), encode(saying(2, LARGE * 50))
    data = encode_all([small, large])

    def kept() -> Entry:
        file = File(1, (own := bytes(bytearray(data))), decode_all(own, 1))
        return file.stored()[0].entry

    assert kept() == saying(1, "small")
    assert taken(kept) < 10_000


def test_segments_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [saying(version, f"{version}{LARGE}") for version in range(60)]
    store = MemoryStorage()
    segments = [write_segment(store, entries[begin : begin + 10]) for begin in range(0, 60, 10)]
    monkeypatch.setattr(past_module, "KEPT_BYTES", 2 * MIB)
    past = Past(store, History())
    for _ in range(2):
        assert [*past.newest_first(60, 59)] == [bare(each) for each in reversed(entries)]
        assert past._read.size <= 2 * MIB
        assert 0 < len(past._read) < len(segments)


def test_changes_of_any_size(catalog: TransactionalCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes_module, "KEPT_BYTES", MIB)
    past = PastChanges(catalog.lake.storage, catalog.timeline)
    entries = [
        committed(catalog, "a", *(add(f"{n}-{each}", stats=f"{each}{LARGE}") for each in range(10))) for n in range(9)
    ]
    for _ in range(2):
        for number, each in enumerate(entries):
            [footprint] = past.of(each).writes.values()
            assert footprint.added_paths == {f"{number}-{file}" for file in range(10)}
            assert past._kept.size <= MIB
    assert 0 < len(past._kept) < len(entries)


def test_states_of_tables_of_any_size(catalog: TransactionalCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one has is counted as its commits are taken in: what went counts no more."""
    monkeypatch.setattr(state_module, "KEPT_BYTES", MIB)
    states = States(catalog.lake.storage)
    names = [f"t{n}" for n in range(8)]
    create(catalog, *names)
    for round in range(3):
        for name in names:
            gone = [remove(f"{round - 1}-{n}") for n in range(10)] if round else []
            committed(catalog, name, *gone, *(add(f"{round}-{n}", stats=LARGE) for n in range(10)))
            tx = catalog.begin()
            table = catalog.table(tx, named(name))
            state = states.snapshot(tx, table)
            assert state == read_snapshot(catalog.lake.storage, table.location, table.version)
            assert {body["path"] for body in state.files.values()} == {f"{round}-{n}" for n in range(10)}
            assert states._kept.size <= MIB
    assert 0 < len(states._kept) < len(names)


def test_databases_of_many_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions of a catalog whose checkpoints have many parts: fewer of them are kept, and each is right."""
    monkeypatch.setattr(parts_module, "MANIFEST_BYTES", 100_000)
    monkeypatch.setattr(known_module, "DATABASE_BYTES", 3 * MIB)
    entries = long_history(45)
    store = stored(entries)
    for version in range(5, 45, 5):
        checkpoint(store, entries, version)
    timeline, whole = Timeline.open(store, checkpoint_every=5), Timeline.open(stored(entries))
    for version in (*range(46), 3, 44, 17):
        assert timeline.at(version).tables == whole.at(version).tables
        assert timeline._cache.size <= 3 * MIB
        assert timeline._anchors.size <= 3 * MIB


def test_conditions_and_statistics_of_any_size() -> None:
    """What is remembered stays within its bytes; of a condition that is too long to be judged nothing is."""
    file = FileValues({}, '{"numRecords":1,"minValues":{"a":5},"maxValues":{"a":5},"nullCount":{"a":0}}')
    for cache in caches._process.caches:
        cache.clear()
    for number in range(100):
        long = f"a = {number} OR b = '{LARGE[:10_000]}'"
        assert may_any_match(frozenset({"a = 4", "a = 5", long}), file)
        assert may_match("a = 5", file)
        assert not may_match("a = 4", file)
        assert may_match(f"a = {number} AND b = '{LARGE}'", file)
        stats = {"numRecords": 1, "nullCount": {"a": 0}, "minValues": {"a": number, "t": LARGE * 10}}
        assert possible(FileValues({}, json.dumps(stats)), ("a",), None).null is False
    assert 30 * MIB < kept_bytes() <= 3 * 16 * MIB


def test_a_forked_child_waits_for_no_lock_of_its_parents_threads() -> None:
    """Whatever a thread of the parent was in the middle of: the child has caches of its own."""
    cache: Cache[int, int] = Cache(1_000)
    cache.keep(1, 1, size=10)
    with cache._lock:
        child = os.fork()
        if not child:
            found = cache.get(1)
            cache.keep(2, 2, size=10)
            os._exit(0 if (found, cache.get(2), cache.size) == (None, 2, 10) else 1)
        deadline = time.monotonic() + 30
        while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
            if time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
                pytest.fail("it hangs")
    assert ended == (child, 0)
    assert (cache.get(1), cache.size) == (1, 10)
