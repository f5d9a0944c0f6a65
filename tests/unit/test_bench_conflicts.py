"""What the conflict check costs does not grow with what it does not need; who is refused for nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from types import FrameType

import pytest

from lockstep.conflict.writes import Changes
from lockstep.delta.pruning import file_bounds as statistics
from lockstep.delta.pruning.row_sets import Rows
from lockstep.timeline.entry import Name
from tests.bench.aborts import Row, Tried, in_a_circle
from tests.bench.conflicts import CASES, footprint_of, judged, mine, peak_bytes

EACH = pytest.mark.parametrize(("read", "theirs"), CASES.values(), ids=CASES)


def winners(count: int, read: Rows, files: int = 100) -> Iterator[Changes]:
    for n in range(2, count + 2):
        rows = None if read is None else frozenset(condition.replace("{n}", str(n)) for condition in read)
        name = Name(namespace=("s",), table="a")
        wrote = {"A": footprint_of(f"w{n}", files)}
        yield Changes(f"w{n}", writes=wrote, reads={"A": rows}, names={"A": name}, base=1, database_version=n)


@EACH
def test_no_case_is_a_conflict(read: Rows, theirs: Rows) -> None:
    assert judged(mine(read, 1000), winners(10, theirs))[1] == 0


@EACH
def test_memory_does_not_grow_with_winners(read: Rows, theirs: Rows) -> None:
    ours = mine(read, 1000)
    judged(ours, winners(60, theirs))  # fills the caches, which are bounded
    few, many = (peak_bytes(partial(judged, ours, winners(n, theirs))) for n in (20, 60))
    assert many < 1.5 * few


@EACH
def test_what_is_judged_does_not_grow_with_files(read: Rows, theirs: Rows) -> None:
    ours = mine(read, 1000)
    few, many = (times_judged(ours, list(winners(10, theirs, files))) for files in (50, 500))
    assert many == few


def times_judged(ours: Changes, made: list[Changes]) -> int:
    """Return how often a condition asks what a file, or a cover of files, says of a column."""
    found = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal found
        found += event == "call" and frame.f_code is statistics.possible.__code__

    sys.setprofile(count)
    try:
        judged(ours, iter(made))
    finally:
        sys.setprofile(None)
    return found


# --- refused for nothing ----------------------------------------------------------------------------------------------


def tried(at: int, base: int, read: Row, wrote: Row) -> Tried:
    return Tried("", Changes(f"t{at}", base=base), "", frozenset({read} if read else ()), wrote, at)


@pytest.mark.parametrize(
    ("mine", "committed", "expected"),
    [
        pytest.param(tried(2, 0, ("a", "1"), ("a", "1")), [tried(1, 0, ("a", "1"), ("a", "1"))], True, id="one row"),
        pytest.param(tried(2, 0, ("a", "1"), ("a", "1")), [tried(1, 0, ("a", "2"), ("a", "2"))], False, id="two rows"),
        pytest.param(tried(2, 1, ("a", "1"), ("a", "1")), [tried(1, 0, ("a", "1"), ("a", "1"))], False, id="seen"),
        pytest.param(tried(2, 0, ("a",), ("b",)), [tried(1, 0, ("b",), ("a",))], True, id="write skew"),
        pytest.param(tried(2, 0, ("a",), ("c",)), [tried(1, 0, (), ("a",))], False, id="a stale read"),
        pytest.param(
            tried(4, 0, ("a",), ("c",)),
            [tried(1, 0, (), ("a",)), tried(2, 1, ("a",), ("b",)), tried(3, 2, ("b",), ("d",))], False,
            id="a chain that does not come back",
        ),
    ],
)  # fmt: skip
def test_in_a_circle(mine: Tried, committed: list[Tried], expected: bool) -> None:
    assert in_a_circle(mine, committed) is expected


def test_a_circle_may_be_of_three() -> None:
    """Ours did not see the first; the second read what the first wrote, and not what ours writes."""
    second = Tried("", Changes("t2", base=1), "", frozenset({("a",), ("c",)}), ("b",), 2)
    assert in_a_circle(tried(3, 0, ("a",), ("c",)), [tried(1, 0, (), ("a",)), second])
    assert not in_a_circle(tried(3, 0, ("a",), ("x",)), [tried(1, 0, (), ("a",)), second])
