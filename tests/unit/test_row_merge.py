"""Which changes of one data file's rows may both stand, and what the second to commit then writes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import deepcopy
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from lockstep.commit.row_merge import RowMerge
from lockstep.conflict.writes import Changes
from lockstep.delta.actions import Action, bodies
from lockstep.delta.combine.deletion_vectors import Descriptor, decode, serialize
from lockstep.delta.combine.vector_merge import RowChange, clash, merge_vectors, vectors_now
from lockstep.delta.footprint import Footprint, VectorChange, footprint
from lockstep.errors import CorruptTimelineError
from tests.support.vectors import inline, stored

Rows = frozenset[int]


def vector(*rows: int) -> Descriptor | None:
    """The descriptor of these rows' vector; None for no rows, as Delta has it."""
    return inline(serialize(BitMap64(rows)), len(rows)) if rows else None


def load(descriptor: Descriptor | None) -> BitMap64:
    return decode(descriptor, lambda _: None, location="t", root="file:///l")


def save(rows: BitMap64) -> Descriptor:
    return inline(serialize(rows), len(rows))


def takes(path: str, before: Sequence[int], after: Sequence[int], **more: Any) -> list[Action]:
    """A commit that takes rows out of a file, in the order in which Delta writes it."""
    stats = json.dumps({"numRecords": 99, "tightBounds": False})
    old = {"deletionVector": vector(*before)} if before else {}
    add = {"path": path, "dataChange": True, "stats": stats, "deletionVector": vector(*after)}
    return [{"add": {**add, **more}}, {"remove": {"path": path, "dataChange": True, **old, **more}}]


# --- may both stand? --------------------------------------------------------------------------------------------------

SAME_ROW = "deleted or updated 1 of the same rows of p, as this transaction does"
THEY_PUT_BACK = "put back rows of p, which this transaction changes, too"
WE_PUT_BACK = "deleted or updated rows of p, of which this transaction puts rows back"


@pytest.mark.parametrize(
    ("ours", "theirs", "did"),
    [
        pytest.param(({}, {1}), ({}, {2}), None, id="different rows"),
        pytest.param(({7}, {7, 1}), ({7}, {7, 2}), None, id="different rows, one out before"),
        pytest.param(({7}, {7, 1}), ({7, 3}, {7, 3, 2}), None, id="behind another winner"),
        pytest.param(({}, {3}), ({3}, {3, 2}), None, id="the same as an earlier winner, who is judged for it"),
        pytest.param(
            ({}, {1, 2}),
            ({}, {2, 3}),
            SAME_ROW,
            id="one row of both",
        ),
        pytest.param(
            ({7}, {7, 1}),
            ({7}, {7, 1}),
            SAME_ROW,
            id="the same rows",
        ),
        pytest.param(({7}, {7, 1}), ({7}, {2}), THEY_PUT_BACK, id="put back by them"),
        pytest.param(
            ({7}, {1}),
            ({7}, {7, 2}),
            WE_PUT_BACK,
            id="put back by us",
        ),
        pytest.param(({7}, {}), ({7}, {8}), "put back rows of p, as this transaction does", id="put back by both"),
        pytest.param(
            ({7}, {7, 1}),
            ({7, 2}, {7}),
            THEY_PUT_BACK,
            id="a row of a third one put back",
        ),
    ],
)
def test_clash(ours: tuple[set[int], set[int]], theirs: tuple[set[int], set[int]], did: str | None) -> None:
    """The message says of each of the two what it did."""
    assert clash(RowChange(*map(BitMap64, ours)), RowChange(*map(BitMap64, theirs)), "p") == did


# --- what a footprint says of vectors ---------------------------------------------------------------------------------

P1, P12, P123 = vector(1), vector(1, 2), vector(1, 2, 3)
NO_CHANGE = [{"add": {"path": "p", "dataChange": False, "deletionVector": P1}}, {"remove": {"path": "p"}}]


@pytest.mark.parametrize(
    ("actions", "expected"),
    [
        pytest.param(takes("p", [], [1]), {"p": (None, P1)}, id="first vector"),
        pytest.param(takes("p", [1], [1, 2]), {"p": (P1, P12)}, id="next vector"),
        pytest.param(takes("p", [], [1]) + takes("p", [1], [1, 2]), {"p": (None, P12)}, id="two commits"),
        pytest.param(takes("p", [], [1])[::-1] + takes("p", [1], [1, 2]), {"p": (None, P12)}, id="in either order"),
        pytest.param(takes("p", [], [1]) + takes("q", [1], [1, 2]), {"p": (None, P1), "q": (P1, P12)}, id="two files"),
        pytest.param([*takes("p", [], [1]), {"add": {"path": "new"}}], {"p": (None, P1)}, id="beside a new file"),
        pytest.param([{"add": {"path": "p", "deletionVector": P1}}], {}, id="added with a vector"),
        pytest.param([{"remove": {"path": "p", "deletionVector": P1}}], {}, id="removed"),
        pytest.param([*takes("p", [], [1]), {"remove": {"path": "p", "deletionVector": P1}}], {}, id="then removed"),
        pytest.param(takes("p", [], [1]) + takes("p", [1, 2], [1, 2, 3]), {}, id="a step is missing"),
        pytest.param(takes("p", [1], [1, 2]) + takes("p", [1, 2], [1]), {}, id="given back its vector"),
        pytest.param([{"remove": {"path": "p", "deletionVector": P1}}, {"add": {"path": "p"}}], {}, id="dropped"),
        pytest.param([*takes("p", [], [1]), {"add": {"path": "p", "deletionVector": P1}}], {}, id="added once more"),
        pytest.param(NO_CHANGE, {}, id="the add without data change"),
        pytest.param([NO_CHANGE[0], {"remove": {"path": "p", "dataChange": False}}], {}, id="neither with data change"),
    ],
)  # fmt: skip
def test_files_that_only_got_another_vector(actions: list[Action], expected: dict[str, tuple[Any, Any]]) -> None:
    assert footprint(actions).vectors == {path: VectorChange(*change) for path, change in expected.items()}


@pytest.mark.parametrize(
    ("winners", "expected"),
    [
        pytest.param([], {}, id="no winner"),
        pytest.param([footprint(takes("q", [], [2]))], {}, id="of another file"),
        pytest.param([footprint(takes("p", [1], [1, 2]))], {"p": P12}, id="one"),
        pytest.param(
            [footprint(takes("p", [1], [1, 2])), Footprint(), footprint(takes("p", [1, 2], [1, 2, 3]))],
            {"p": P123},
            id="two",
        ),
    ],
)
def test_the_vectors_behind_the_winners(winners: list[Footprint], expected: dict[str, Descriptor]) -> None:
    assert vectors_now(footprint(takes("p", [1], [1, 9])), winners) == expected


def test_winners_that_do_not_follow_each_other_are_refused() -> None:
    with pytest.raises(CorruptTimelineError, match="data file p: expected a commit that replaces"):
        vectors_now(footprint(takes("p", [1], [1, 2])), [footprint(takes("p", [], [3]))])


# --- what is written --------------------------------------------------------------------------------------------------


def merged(commits: Sequence[Sequence[Action]], *winners: Sequence[Action]) -> list[list[Action]]:
    ours = footprint([action for commit in commits for action in commit])
    others = [footprint(winner) for winner in winners]
    return merge_vectors(commits, ours, vectors_now(ours, others), load=load, save=save)


def rows_of(file: dict[str, Any]) -> set[int]:
    return set(load(file.get("deletionVector")))


def test_ours_lands_on_the_vector_that_is_there() -> None:
    ours = [
        {"commitInfo": {}},
        *takes("p", [7], [7, 1], baseRowId=40, defaultRowCommitVersion=2),
        {"add": {"path": "n"}},
    ]
    before = deepcopy(ours)
    (commit,) = merged([ours], takes("p", [7], [7, 2]), takes("p", [2, 7], [7, 2, 3]))
    [remove], [add, new] = bodies(commit, "remove"), bodies(commit, "add")
    assert remove["deletionVector"] == vector(2, 3, 7), "what is removed is what the table has, by its very name"
    assert rows_of(add) == {1, 2, 3, 7}
    assert add["deletionVector"]["cardinality"] == 4
    assert [(f["baseRowId"], f["defaultRowCommitVersion"], f["dataChange"]) for f in (add, remove)] == [
        (40, 2, True)
    ] * 2
    assert (new, commit[0], ours) == ({"path": "n"}, {"commitInfo": {}}, before)


def test_commits_that_stay_separate_are_a_chain_on_what_is_there() -> None:
    """Where there are change files, each statement is a version of its own (`collapse`)."""
    first, second = merged([takes("p", [], [1]), takes("p", [1], [1, 2])], takes("p", [], [3]))
    assert [rows_of(b) for c in (first, second) for k in ("remove", "add") for b in bodies(c, k)] == [
        {3}, {1, 3}, {1, 3}, {1, 2, 3},
    ]  # fmt: skip
    assert bodies(second, "remove")[0]["deletionVector"] == bodies(first, "add")[0]["deletionVector"]


def test_files_that_no_winner_touched_stay_as_they_are() -> None:
    ours = takes("p", [], [1]) + takes("q", [5], [5, 6])
    (commit,) = merged([ours], takes("p", [], [2]))
    assert commit[2:] == ours[2:]


@pytest.mark.parametrize(
    ("stats", "expected"),
    [
        pytest.param('{"numRecords":9}', '{"numRecords":9,"tightBounds":false}', id="tight by default"),
        pytest.param('{"tightBounds":true,"numRecords":9}', '{"tightBounds":false,"numRecords":9}', id="tight"),
        pytest.param(
            '{"numRecords":9,"maxValues":{"d":12345678901234567890.123456789}}',
            '{"numRecords":9,"maxValues":{"d":12345678901234567890.123456789},"tightBounds":false}',
            id="no digit is lost",
        ),
        pytest.param("", "", id="none"),
    ],
)
def test_bounds_are_wide(stats: str, expected: str) -> None:
    (commit,) = merged([takes("p", [], [1], stats=stats)], takes("p", [], [2]))
    assert bodies(commit, "add")[0]["stats"] == expected


# --- properties -------------------------------------------------------------------------------------------------------

few = st.frozensets(st.integers(0, 12), max_size=6)


@given(few, few, st.lists(few, max_size=3))
def test_disjoint_changes_merge_to_the_union_and_overlapping_ones_clash(
    base: Rows, ours: Rows, theirs: list[Rows]
) -> None:
    """Each winner takes out what it wants of what the ones before it left; ours wants rows of what was there first."""
    ours -= base
    left, winners, clashes = base, [], []
    for rows in (rows - base for rows in theirs):
        if rows - left:
            winners.append(takes("p", sorted(left), sorted(left | rows)))
            change = RowChange(BitMap64(left), BitMap64(left | rows))
            clashes.append(clash(RowChange(BitMap64(base), BitMap64(base | ours)), change, "p"))
        left |= rows
    assert any(clashes) == bool(ours & left), "a row that any of them took before us is a conflict"
    if not ours or any(clashes):
        return
    (commit,) = merged([takes("p", sorted(base), sorted(base | ours))], *winners)
    [remove], [add] = bodies(commit, "remove"), bodies(commit, "add")
    assert rows_of(remove) == left
    assert rows_of(add) == base | ours | left
    assert rows_of(add) - rows_of(remove) == ours, "the feed of changes says what we did, and no more"


@pytest.mark.parametrize(("cached_bytes", "reads"), [(1000, 1), (1, 2)])
def test_a_file_of_vectors_is_read_once_if_it_fits_into_the_cache(
    monkeypatch: pytest.MonkeyPatch, cached_bytes: int, reads: int
) -> None:
    """One that does not is read each time, and refused to nobody."""
    monkeypatch.setattr("lockstep.commit.row_merge.CACHED_BYTES", cached_bytes)
    before, content = stored(serialize(BitMap64([7])), 1, UUID(int=1, version=4))
    paths: list[str] = []

    def get(path: str) -> bytes:
        paths.append(path)
        return content

    storage: Any = SimpleNamespace(url="file:///l", get=get)
    ours, theirs = (
        Changes(transaction=name, writes={"t": Footprint(vectors={"f": VectorChange(before, after)})})
        for name, after in (("ours", save(BitMap64([7, 1]))), ("theirs", save(BitMap64([7, 2]))))
    )
    assert RowMerge(storage, {"t": "t"}, seed="ours", vector_files=set()).find(ours, theirs) is None
    assert len(paths) == reads
