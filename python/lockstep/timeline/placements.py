"""Where the commits of a timeline are that plain Delta writers pushed to later table versions, by its `moved`.

A commit is ratified under one table version, and may be published under a later one. Where an entry has several commits
of a table, the first may be in the table's log when a plain Delta writer takes the version of the next: `placements`
tells the version of each, `amendments` that of the last.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import TypeAlias

from immutables import Map

from lockstep.errors import CorruptTimelineError
from lockstep.timeline.entry import Entry, Moved, TableWrite
from lockstep.timeline.files import RESTORE, entry_path

Moves: TypeAlias = Mapping[tuple[str, int], int]
"""(table id, version of the entry that wrote it) → the table version where that entry's last commit is now."""

Placements: TypeAlias = Map[tuple[str, int], tuple[int, ...]]
"""(table id, version of the entry that wrote it) → the table version of each of that entry's commits, in order."""

NOT_MOVED: Moves = MappingProxyType({})


def amendments(entries: Iterable[Entry]) -> dict[tuple[str, int], int]:
    """Collect from a whole timeline where the commits that were moved end; the last word on a commit wins.

    Raises:
        CorruptTimelineError: see `placements`.
    """
    return ends(placements(entries))


def ends(places: Mapping[tuple[str, int], tuple[int, ...]]) -> dict[tuple[str, int], int]:
    """Return the amendments that placements make."""
    return {key: versions[-1] for key, versions in places.items()}


def placements(entries: Iterable[Entry]) -> dict[tuple[str, int], tuple[int, ...]]:
    """Collect from a whole timeline the versions of the commits that were moved; the last word on a commit wins.

    Raises:
        CorruptTimelineError: an entry moves a commit that no earlier entry made, or moves it back, or leaves two
            commits of a table at one version.
    """
    by_table: dict[str, dict[int, tuple[int, ...]]] = {}
    places: dict[tuple[str, int], tuple[int, ...]] = {}
    for entry in entries:
        places |= _move_all(entry, by_table)
        for write in movable(entry):
            by_table.setdefault(write.id, {})[entry.version] = as_ratified(write)
    return places


def placements_after(places: Placements, entry: Entry, between: Iterable[Entry]) -> Placements:
    """Return the placements after one more entry, as `placements` of the whole timeline does.

    Args:
        places: those before it.
        entry: the entry.
        between: the entries from the first one whose commits it moves (`first_moved`) to the one before it.

    Raises:
        CorruptTimelineError: see `placements`.
    """
    ids = {move.id for move in entry.moved}
    by_table: dict[str, dict[int, tuple[int, ...]]] = {}
    for earlier in between:
        for write in movable(earlier):
            if write.id in ids:
                versions = places.get((write.id, earlier.version)) or as_ratified(write)
                by_table.setdefault(write.id, {})[earlier.version] = versions
    return places.update(_move_all(entry, by_table))


def first_moved(entry: Entry) -> int:
    """Return the first entry whose commits an entry moves, which moves some."""
    return max(0, min(move.entry for move in entry.moved))


def movable(entry: Entry) -> list[TableWrite]:
    """Return the writes of an entry that can be moved; those of an external one were published before it was."""
    return entry.writes if entry.kind == "transaction" else []


def _move_all(entry: Entry, by_table: dict[str, dict[int, tuple[int, ...]]]) -> dict[tuple[str, int], tuple[int, ...]]:
    """Move what an entry moves, and return where that is now.

    Args:
        by_table: by table id and entry, in the order of entries, where each commit is; changed in place.
    """
    places: dict[tuple[str, int], tuple[int, ...]] = {}
    for move in entry.moved:
        versions = by_table.get(move.id, {}).get(move.entry)
        if not versions:
            raise misfit(entry, f"moves table {move.id} in entry {move.entry}, which did not write it")
        by_table[move.id][move.entry] = places[move.id, move.entry] = _versions_after(entry, move, versions)
    for id_ in {move.id for move in entry.moved}:
        for (one, low), (other, high) in pairwise(by_table[id_].items()):
            if low[-1] >= high[-1]:
                raise misfit(
                    entry, f"puts table {id_} of entry {other} at {high[-1]}: entry {one} is at {low[-1]} already"
                )
    return places


def as_ratified(write: TableWrite) -> tuple[int, ...]:
    """Return the table version that each of a write's commits was ratified for: none of one that the history has."""
    return tuple(range(write.to_version - len(write.commits) + 1, write.to_version + 1))


def _versions_after(entry: Entry, move: Moved, versions: tuple[int, ...]) -> tuple[int, ...]:
    """Return the versions of a write's commits after a move: the first ones stay, the others end at its version."""
    if move.to_version <= versions[-1]:
        raise misfit(
            entry, f"moves table {move.id} in entry {move.entry} to {move.to_version}, not past {versions[-1]}"
        )
    if not 0 <= move.kept < len(versions):
        raise misfit(
            entry,
            f"moves table {move.id} in entry {move.entry} and keeps {move.kept} of its {len(versions)} commits: "
            "expected to keep less than all",
        )
    behind = len(versions) - move.kept
    return versions[: move.kept] + tuple(range(move.to_version - behind + 1, move.to_version + 1))


def misfit(entry: Entry, what: str) -> CorruptTimelineError:
    """Return what to say of an entry that does not fit those before it: which, and what is wrong with it."""
    return CorruptTimelineError(f"timeline entry {entry.version} {what} ({entry_path(entry.version)}). {RESTORE}")
