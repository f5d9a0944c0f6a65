"""What a program left in plain Delta's tables and in Lockstep's: both as plain Delta reads them by their paths.

Table versions differ, because a transaction is one. So they are told apart by the block of the program that made them,
and states are compared where a block ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

History: TypeAlias = Sequence[tuple[str, Mapping[str, tuple[str, int]]]]
"""What was there when each block had ended: by table, its path and its version."""
Look: TypeAlias = dict[str, Any]

SAME = ("schema", "partitioned", "clustered", "properties", "features", "description")


def ends(history: History, table: str) -> dict[str, int]:
    """Return the version of a table at the end of each block since it was last created, by the block's name."""
    found: dict[str, int] = {}
    place = history[-1][1][table][0]
    for block, tables in history:
        path, version = tables.get(table, ("", -1))
        if path != place:
            found.clear()
        else:
            found[block] = version
    return found


def block_of(ended: Mapping[str, int], version: int) -> str:
    """Return the name of the block that made a version."""
    # A block that left the table as it was ends at the version of the one before it, which stands first.
    made = sorted(((last, block) for block, last in ended.items() if version <= last), key=lambda end: end[0])
    return made[0][1] if made else f"nobody: version {version}"


def whole(ended: Mapping[str, int], block: str) -> int:
    """Return the version at the end of a block and of what ran beside it."""
    return max(ended[block], ended.get(f"{block}, beside", -1))


def differences(table: str, plain: tuple[History, Look], ours: tuple[History, Look]) -> Iterator[str]:
    """Yield what is otherwise in our table."""
    for name in SAME:
        if plain[1][name] != ours[1][name]:
            yield f"{table}: {name}\n  plain: {plain[1][name]}\n  ours:  {ours[1][name]}"
    ended = [ends(history, table) for history, _ in (plain, ours)]
    common = [block for block in ended[1] if block in ended[0] and ", " not in block]
    states = [
        {block: look["at"][str(whole(versions, block))] for block in common}
        for versions, (_, look) in zip(ended, (plain, ours), strict=True)
    ]
    for block in common:
        if states[0][block]["rows"] != states[1][block]["rows"]:
            yield f"{table}: rows after block {block}\n{apart(states[0][block]['rows'], states[1][block]['rows'])}"
            return
    yield from (f"{table}: {wrong}" for wrong in _row_ids(common, ended, states))
    yield from (f"{table}: {wrong}" for wrong in _feed(common, ended, (plain[1], ours[1]), states))
    yield from (f"{table}: {wrong}" for wrong in _history(ours[1]))
    if ours[1]["checkpoint"]:
        yield f"{table}: {ours[1]['checkpoint']}"


def apart(plain: list[Any], ours: list[Any]) -> str:
    one, other = Counter(map(str, plain)), Counter(map(str, ours))
    return f"  only in plain: {[*(one - other).elements()]}\n  only in ours:  {[*(other - one).elements()]}"


# --- row tracking -----------------------------------------------------------------------------------------------------


def _row_ids(common: list[str], ended: list[dict[str, int]], states: list[dict[str, Any]]) -> Iterator[str]:
    for block in common:
        found = states[1][block].get("ids")
        twice = [id for id, n in Counter(row_id for _, row_id, _ in found or ()).items() if n > 1]
        if twice:
            yield f"row ids {twice} are of several rows after block {block}: {found}"
        if (found is None) is not (states[0][block].get("ids") is None):
            yield f"row tracking after block {block}: plain {found is None}, ours {found is not None}"
    ids = [{block: _by_key(state.get("ids")) for block, state in side.items()} for side in states]
    for block in common:
        one, other = ids[0][block], ids[1][block]
        for key in one.keys() & other.keys():
            since = [block_of(ended[side], ids[side][block][key][1]) for side in (0, 1)]
            if since[0] != since[1]:
                yield (
                    f"row {key} after block {block}: in plain Delta its commit version is of block {since[0]} "
                    f"(row id and version {one[key]}), in ours of {since[1]} ({other[key]})"
                )
    for before, after in pairwise(common):
        for key in ids[0][before].keys() & ids[0][after].keys() & ids[1][before].keys() & ids[1][after].keys():
            kept = [side[before][key][0] == side[after][key][0] for side in ids]
            if kept[0] != kept[1]:
                yield f"row {key} keeps its row id from block {before} to {after}: plain {kept[0]}, ours {kept[1]}"


def _by_key(ids: list[list[int]] | None) -> dict[int, tuple[int, int]]:
    """Return the ids and commit versions of rows, by their keys, without keys that several rows have."""
    times = Counter(key for key, _, _ in ids or ())
    return {key: (row_id, version) for key, row_id, version in ids or () if times[key] == 1}


# --- feed and history -------------------------------------------------------------------------------------------------


def _feed(
    common: list[str], ended: list[dict[str, int]], looks: tuple[Look, Look], states: list[dict[str, Any]]
) -> Iterator[str]:
    plain, ours = (look["feed"] for look in looks)
    if plain is None or isinstance(plain, str):
        return
    if ours is None or isinstance(ours, str):
        yield f"the feed of changes is {ours}"
        return
    for before, after in pairwise(common):
        wrong = [
            _unlike_feed(
                feed, (whole(versions, before), whole(versions, after)), (side[before]["rows"], side[after]["rows"])
            )
            for feed, versions, side in zip((plain, ours), ended, states, strict=True)
        ]
        # Where columns come and go, plain Delta's own feed does not add up either.
        if wrong[1] and not wrong[0]:
            yield f"the feed of block {after}: {wrong[1]}"


def _unlike_feed(
    feed: Mapping[str, Mapping[str, int]], span: tuple[int, int], rows: tuple[list[str], list[str]]
) -> str:
    net: Counter[str] = Counter()
    for version in range(span[0] + 1, span[1] + 1):
        net.update(feed.get(str(version), {}))
    told = {row: n for row, n in net.items() if n}
    wanted = Counter(rows[1])
    wanted.subtract(rows[0])
    changed = {row: n for row, n in wanted.items() if n}
    return "" if told == changed else f"says {told}, and the rows changed by {changed}"


def _history(look: Look) -> Iterator[str]:
    versions = [version for version, _, _ in look["history"]]
    if versions != list(range(look["head"] + 1)):
        yield f"its history has the versions {versions}, its head is {look['head']}"
    times = [time for _, time, _ in look["history"]]
    if times != sorted(times):
        yield f"its history goes back in time: {times}"
