"""Timelines in memory with a long history, checkpoints of them, and what is asked of their stores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from immutables import Map

from lockstep.timeline.checkpoint import Checkpoints
from lockstep.timeline.entry import Entry
from lockstep.timeline.files import FOLDER as ENTRIES
from lockstep.timeline.files import File, encode, entry_path, find
from lockstep.timeline.fold import fold
from lockstep.timeline.hint import Hint, write_hint
from lockstep.timeline.placements import placements
from lockstep.timeline.state import State
from tests.support.entries import entry
from tests.support.faulty import FaultyStorage
from tests.support.histories import create, write
from tests.support.memory import MemoryStorage


def stored(entries: list[Entry]) -> FaultyStorage:
    """A store in memory with these entries."""
    inner = MemoryStorage()
    inner.files = {entry_path(each.version): encode(each) for each in entries}
    return FaultyStorage(inner)


def state_of(entries: list[Entry]) -> State:
    return State(fold(entries), Map(placements(entries)))


def checkpoint(store: FaultyStorage, entries: list[Entry], version: int) -> None:
    """Write the checkpoint of a version, and a hint that names it."""
    file = find(store.inner, version) or File(version, b"", entries[version : version + 1])
    Checkpoints(store.inner).write(state_of(entries[: version + 1]), file)
    write_hint(store.inner, Hint(version=entries[-1].version, checkpoint=version))


def long_history(count: int) -> list[Entry]:
    """Version 1 makes three tables, and each one after it writes one of them."""
    tables = ["a", "b", "c"]
    first = entry(
        1,
        tables=[create(each, f"id-{each}") for each in tables],
        writes=[write(-1, 0, each, f"id-{each}") for each in tables],
    )
    found = [entry(0), first]
    for version in range(2, count + 1):
        table, at = tables[version % 3], (version - 2) // 3
        found.append(entry(version, writes=[write(at, at + 1, table, f"id-{table}")]))
    return found


def requests(store: FaultyStorage, act: Callable[[], Any]) -> int:
    """Return how many requests something makes."""
    before = len(store.calls)
    act()
    return len(store.calls) - before


def entries_read(store: FaultyStorage) -> set[int]:
    return {int(path[-25:-5]) for done, path in store.calls if done == "get" and path.startswith(f"{ENTRIES}/0")}
