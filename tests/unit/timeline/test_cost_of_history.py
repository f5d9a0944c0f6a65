"""What a long history and a large catalog cost: requests and memory, with checkpoints."""

from __future__ import annotations

import logging
import tracemalloc
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

import msgspec
import pytest

from lockstep.errors import InvalidError
from lockstep.storage import Storage
from lockstep.timeline.entry import Entry
from lockstep.timeline.files import FOLDER as ENTRIES
from lockstep.timeline.files import Stored
from lockstep.timeline.fold import apply, fold
from lockstep.timeline.hint import Hint, write_hint
from lockstep.timeline.history import History
from lockstep.timeline.log import Timeline
from lockstep.timeline.outcomes import Ratified
from tests.support.checkpoints import checkpoint, long_history, requests, stored
from tests.support.entries import T0, entry
from tests.support.faulty import FaultyStorage
from tests.support.histories import create, drop, name, rename, write
from tests.support.memory import MemoryStorage
from tests.support.rounds import Rounds

pytestmark = pytest.mark.long


def counted(count: int) -> dict[str, int]:
    """Return the requests of what people do in a lake of so many versions, with a checkpoint every hundred."""
    entries = long_history(count)
    store = stored(entries)
    for version in range(100, count, 100):
        checkpoint(store, entries, version)
    opened: list[Timeline] = []
    found = {"open": requests(store, lambda: opened.append(Timeline.open(store)))}
    [timeline] = opened
    found["tables"] = requests(store, lambda: sorted(timeline.head.tables))
    found["log"] = requests(store, lambda: [*islice(timeline.newest_first(), 100)])
    found["one entry"] = requests(store, lambda: timeline.entries(41, 42))
    found["at"] = requests(store, lambda: timeline.at(45))
    found["at in the middle"] = requests(store, lambda: timeline.at(count // 200 * 100 + 45))
    return found


def test_requests_do_not_grow_with_the_history() -> None:
    """Opening, the newest hundred entries, one entry, an older version: as many with 2,050 versions as with 650."""
    short, long = counted(650), counted(2_050)
    assert long == short
    assert short["open"] <= 60
    assert short["tables"] == 0
    assert short["one entry"] == 1
    assert max(short["at"], short["at in the middle"]) <= 60


@pytest.mark.parametrize("count", [250, 2_050])
def test_a_time_is_found_in_few_requests(count: int) -> None:
    """Of n entries, about log2(n) are looked at before the version is read."""
    entries = long_history(count)
    store = stored(entries)
    for version in range(100, count, 100):
        checkpoint(store, entries, version)
    timeline = Timeline.open(store)
    half = timedelta(milliseconds=500)
    for version in (0, 7, 120, count - 70, count - 1):
        made: list[int] = []
        at = entries[version].committed_at + half
        looked = requests(store, lambda at=at, made=made: made.append(timeline.at_time(at).version))  # type: ignore[misc]
        assert made == [version]
        assert looked <= count.bit_length() + 2 + 4 + 100
    with pytest.raises(InvalidError, match=f"its versions 0 to {count} were committed from"):
        timeline.at_time(T0 - half)


def test_entries_in_memory_are_bounded() -> None:
    """By their bytes; what was used last stays, and who goes through all of them keeps none."""
    history = History(size=30)
    store = stored(long_history(10))
    history.keep(Stored(entry(version), 10) for version in range(1, 6))
    history.read(store, range(3, 4), last=10)
    history.keep([Stored(entry(6), 10)])
    assert requests(store, lambda: history.read(store, range(3, 4), last=10)) == 0
    assert requests(store, lambda: history.read(store, range(4, 5), last=10)) == 1
    history.keep([Stored(entry(7), 25)])
    assert requests(store, lambda: history.read(store, range(7, 8), last=10)) == 0
    assert requests(store, lambda: history.read(store, range(3, 4), last=10)) == 1


def test_a_long_scan_keeps_nothing() -> None:
    entries = long_history(700)
    store = stored(entries)
    history = History()
    for _ in range(2):
        assert requests(store, lambda: [*history.scan(store, range(701), last=700)]) == 701
    assert [each.version for each in history.scan(store, range(700, 690, -1), last=700)] == [*range(700, 690, -1)]


def test_the_log_says_nothing_of_a_checkpoint_that_is_whole(caplog: pytest.LogCaptureFixture) -> None:
    entries = long_history(12)
    store = stored(entries)
    checkpoint(store, entries, 8)
    with caplog.at_level(logging.INFO):
        Timeline.open(store)
    assert caplog.text == ""


# --- a large catalog --------------------------------------------------------------------------------------------------


def large_lake(tables: int, since: int) -> tuple[MemoryStorage, list[Entry]]:
    """Version 1 makes so many tables; a checkpoint is of version 2, and each of the versions since writes a table."""
    names = [f"t{n:06}" for n in range(tables)]
    first = entry(
        1,
        tables=[create(each, f"id-{each}") for each in names],
        writes=[write(-1, 0, each, f"id-{each}") for each in names],
    )
    entries = [entry(0), first]
    for n in range(since + 1):
        name_ = names[(n * 7_919) % tables]
        entries.append(entry(n + 2, writes=[write(0, 1, name_, f"id-{name_}")]))
    store = stored(entries)
    checkpoint(store, entries, 2)
    assert isinstance(store.inner, MemoryStorage)
    return store.inner, entries


@pytest.fixture(scope="module")
def small() -> tuple[MemoryStorage, list[Entry]]:
    return large_lake(100, 50)


@pytest.fixture(scope="module")
def large() -> tuple[MemoryStorage, list[Entry]]:
    return large_lake(100_000, 50)


def opened_and_loaded(store: Storage) -> Timeline:
    """Open a lake and look one table up."""
    timeline = Timeline.open(store)
    assert timeline.head.tables[name("t000099")].id == "id-t000099"
    return timeline


def without_later_entries(inner: MemoryStorage) -> MemoryStorage:
    """The lake as it was at its checkpoint."""
    then = MemoryStorage()
    then.files = {p: data for p, data in inner.files.items() if not p.startswith(f"{ENTRIES}/0") or int(p[-25:-5]) < 3}
    write_hint(then, Hint(version=2, checkpoint=2))
    return then


def test_requests_do_not_grow_with_the_catalog(small: Any, large: Any) -> None:
    """Of 100,000 tables as of 100, one part is read to load one, and of those that were written since theirs alone."""
    at_checkpoint = [without_later_entries(lake) for lake, _ in (small, large)]
    first, second = (requests(store := FaultyStorage(lake), lambda: opened_and_loaded(store)) for lake in at_checkpoint)
    assert first == second <= 7
    store = FaultyStorage(large[0])
    opened_and_loaded(store)
    assert store.count("get", ".jsonl") <= 51
    assert len(store.calls) <= 56 + 51


def test_few_requests_wait_for_others(small: Any, large: Any) -> None:
    """The hint; the manifest and entries; the parts that the entries change; that of the table."""
    for lake, _ in (small, large):
        store = Rounds(lake)
        with store.counting() as rounds:
            opened_and_loaded(store)
        assert len(rounds) <= 4


def test_memory_is_in_proportion_to_what_is_touched(large: Any) -> None:
    """What 100,000 tables are is over 50 MB; of one that is loaded its part stays, beside the bounds of all parts."""
    lake = without_later_entries(large[0])
    tracemalloc.start()
    try:
        timeline = opened_and_loaded(lake)
        left, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(timeline.head.tables) == 100_000
    assert left < 3_000_000
    assert peak < 5_000_000


@pytest.mark.parametrize(
    ("most", "changes"),
    [
        (1, {"writes": [write(0, 1, "t000007", "id-t000007")]}),
        (5, {"tables": [create("u", "id-u")], "writes": [write(-1, 0, "u", "id-u")]}),
        (6, {"tables": [rename("t000007", "u", "id-t000007")]}),
        (4, {"tables": [drop("t000007", "id-t000007")]}),
    ],
)
def test_an_entry_costs_what_it_says(large: Any, most: int, changes: dict[str, Any]) -> None:
    """It reads the parts that its names, ids and folders are in, and once those are in memory no more than it says."""
    store = FaultyStorage(without_later_entries(large[0]))
    head = Timeline.open(store).head
    after = entry(3, **changes)
    read = requests(store, lambda: apply(head, after))
    assert 1 <= read <= most
    tracemalloc.start()
    try:
        assert requests(store, lambda: apply(head, after)) == 0
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 50_000


def test_a_large_catalog_is_what_the_entries_say(large: Any) -> None:
    """All of it, read part by part; and by id and folder."""
    lake, entries = large
    head = Timeline.open(lake).head
    again = fold(entries)
    assert head == again
    for id_ in ("id-t000000", "id-t000099", "id-t099999"):
        assert head.table_by_id(id_) == head.table_at(f"tables/{id_}") == again.table_by_id(id_)


def test_a_checkpoint_reads_and_writes_what_changed_since_the_last(large: Any) -> None:
    """Also in a process that has been there for long: it does not come back to what the last checkpoint has."""
    inner = MemoryStorage()
    inner.files = dict(large[0].files)
    store = FaultyStorage(inner)
    timeline = Timeline.open(store, checkpoint_every=1)
    timeline.write_checkpoint()
    for n in (7, 8, 70_000):
        table = f"t{n:06}"
        version = timeline.head.version + 1
        at = timeline.head.tables[name(table)].version
        before = set(inner.files)
        store.calls.clear()
        commit_one(timeline, entry(version, writes=[write(at, at + 1, table, f"id-{table}")]))
        timeline.write_checkpoint()
        parts = [path for path in {*inner.files} - before if path.endswith(".jsonl")]
        assert len(parts) == 1
        assert store.count("get", ".jsonl") <= 1
        assert timeline.head.tables[name(table)].version == at + 1
        changes = timeline.head.tables.changes  # type: ignore[attr-defined]
        assert len(changes) == 0


def commit_one(timeline: Timeline, made: Entry) -> None:
    def draft(version: int, committed_at: datetime) -> Entry:
        return msgspec.structs.replace(made, version=version, committed_at=committed_at)

    assert isinstance(timeline.append(draft, after=timeline.head.version), Ratified)
