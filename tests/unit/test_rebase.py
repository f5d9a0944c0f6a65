"""Rebasing: what follows the version a commit lands in, and that nothing else does."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from copy import deepcopy
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.delta.actions import Action, bodies
from lockstep.delta.combine.rebase import rebase
from lockstep.delta.footprint import Footprint, footprint
from lockstep.errors import InvalidError

PIN = 4
VERSION, TIMESTAMP = "delta.inCommitTimestampEnablementVersion", "delta.inCommitTimestampEnablementTimestamp"


def add(path: str, row_id: int | None, version: int | None, rows: int = 1) -> Action:
    return {"add": {"path": path, "baseRowId": row_id, "defaultRowCommitVersion": version, "rows": rows}}


def remove(path: str, row_id: int | None, version: int | None) -> Action:
    return {"remove": {"path": path, "baseRowId": row_id, "defaultRowCommitVersion": version}}


def mark(value: int) -> Action:
    configuration = f'{{"rowIdHighWaterMark":{value}}}'
    return {"domainMetadata": {"domain": "delta.rowTracking", "configuration": configuration, "removed": False}}


def enabled(version: int | str, timestamp: int, **more: str) -> Action:
    return {"metaData": {"id": "m", "configuration": {VERSION: str(version), TIMESTAMP: str(timestamp), **more}}}


def info(**fields: Any) -> Action:
    return {"commitInfo": fields}


def landed(commits: Sequence[Sequence[Action]], first: int = 8, *winners: Footprint) -> list[list[Action]]:
    return rebase(commits, pin=PIN, first_version=first, winners=winners)


# --- row tracking ---


@pytest.mark.parametrize(
    ("staged", "first", "expected"),
    [
        pytest.param([[add("a", 9, 5)]], 5, [[add("a", 9, 5)]], id="nothing came between"),
        pytest.param([[add("a", 9, 5)]], 8, [[add("a", 9, 8)]], id="behind winners"),
        pytest.param([[add("a", 9, 7), add("b", 8, 5)]], 5, [[add("a", 9, 5), add("b", 8, 5)]], id="three collapsed"),
        pytest.param([[add("p", 2, 4), remove("q", 1, 3)]], 8, [[add("p", 2, 4), remove("q", 1, 3)]], id="old files"),
        pytest.param([[add("p", None, None)]], 8, [[add("p", None, None)]], id="no row tracking"),
        pytest.param(
            [[add("a", 9, 5)], [remove("a", 9, 5), add("a", 9, 5), add("b", 10, 6)]],
            8,
            [[add("a", 9, 8)], [remove("a", 9, 8), add("a", 9, 8), add("b", 10, 9)]],
            id="separate: a file keeps the version of its first add",
        ),
        pytest.param(
            [[add("a", 9, 6)], [add("b", 10, 7)]],
            8,
            [[add("a", 9, 8)], [add("b", 10, 9)]],
            id="separate: a no-op before them left a gap",
        ),
    ],
)
def test_row_commit_versions(staged: list[list[Action]], first: int, expected: list[list[Action]]) -> None:
    assert landed(staged, first) == expected


@pytest.mark.parametrize(
    ("staged", "winners", "expected"),
    [
        pytest.param([mark(19), add("a", 10, 5)], [], [mark(19), add("a", 10, 8)], id="no winner"),
        pytest.param([mark(19), add("a", 10, 5)], [None], [mark(19), add("a", 10, 8)], id="a winner without new rows"),
        pytest.param([mark(19), add("a", 10, 5)], [14], [mark(24), add("a", 15, 8)], id="shifted behind the winner"),
        pytest.param([mark(19), add("a", 10, 5)], [14, 29], [mark(39), add("a", 30, 8)], id="behind the highest"),
        pytest.param(
            [mark(29), add("b", 20, 6)], [14], [mark(29), add("b", 20, 8)], id="already above: a file is gone"
        ),
        pytest.param([mark(29), add("b", 20, 6)], [24], [mark(34), add("b", 25, 8)], id="only what is left counts"),
        pytest.param([mark(19), remove("p", 3, 2)], [30], [mark(30), remove("p", 3, 2)], id="no new file: never back"),
        pytest.param([mark(19)], [15], [mark(19)], id="no file at all"),
        pytest.param(
            [mark(19), add("a", 10, 5), add("p", 3, 2)],
            [14],
            [mark(24), add("a", 15, 8), add("p", 3, 2)],
            id="old files keep their ids",
        ),
        pytest.param([add("a", 10, 5)], [14], [add("a", 15, 8)], id="a file without rows raises no mark"),
        pytest.param([mark(0), add("a", 0, 5)], [0], [mark(1), add("a", 1, 8)], id="the first rows of a table"),
    ],
)
def test_row_ids(staged: list[Action], winners: list[int | None], expected: list[Action]) -> None:
    assert landed([staged], 8, *(Footprint(row_id_mark=value) for value in winners)) == [expected]


# --- timestamps ---


@pytest.mark.parametrize(
    ("own", "winners", "expected"),
    [
        pytest.param([50], [], [50], id="no winner"),
        pytest.param([50], [40], [50], id="later already"),
        pytest.param([50], [50], [51], id="the same millisecond"),
        pytest.param([50], [70, None, 60], [71], id="after the latest winner"),
        pytest.param([50, 52, 90], [60], [61, 62, 90], id="separate commits go on rising"),
        pytest.param([None], [60], [None], id="not enabled"),
    ],
)
def test_in_commit_timestamps(own: list[int | None], winners: list[int | None], expected: list[int | None]) -> None:
    commits = [[info(inCommitTimestamp=stamp)] for stamp in own]
    result = landed(commits, 8, *(Footprint(timestamp_ms=stamp) for stamp in winners))
    assert [commit[0]["commitInfo"]["inCommitTimestamp"] for commit in result] == expected


@pytest.mark.parametrize(
    ("staged", "expected"),
    [
        pytest.param([enabled(6, 40)], [enabled(8, 61)], id="enabled here"),
        pytest.param([enabled(4, 40)], [enabled(4, 40)], id="enabled at the pin"),
        pytest.param([enabled(2, 40, k="v")], [enabled(2, 40, k="v")], id="enabled long ago"),
        pytest.param(
            [{"metaData": {"configuration": None}}], [{"metaData": {"configuration": None}}], id="no properties"
        ),
    ],
)
def test_the_enablement_of_in_commit_timestamps(staged: list[Action], expected: list[Action]) -> None:
    (result,) = landed([[info(inCommitTimestamp=50), *staged]], 8, Footprint(timestamp_ms=60))
    assert result[1:] == expected


def test_later_commits_repeat_the_enablement_as_it_landed() -> None:
    commits = [[info(inCommitTimestamp=n), enabled(5, 50)] for n in (50, 55)]
    assert [commit[1] for commit in landed(commits, 8, Footprint(timestamp_ms=70))] == [enabled(8, 71), enabled(8, 71)]


def test_a_new_table_that_enabled_it_on_the_way_needs_no_enablement() -> None:
    """InCommitTimestampUtils: the properties are there to tell older commits apart, and there are none."""
    staged = [[info(inCommitTimestamp=50), enabled(1, 50, k="v")]]
    (result,) = rebase(staged, pin=-1, first_version=0, winners=[])
    assert result[1] == {"metaData": {"id": "m", "configuration": {"k": "v"}}}


# --- the rest ---


@pytest.mark.parametrize(
    ("reads", "expected"),
    [
        pytest.param([4], [4], id="what was read stays what was read"),
        pytest.param([2], [2], id="an older one"),
        pytest.param([None], [None], id="nothing read"),
        pytest.param([4, 5, 6], [4, 8, 9], id="staged versions become the ones before"),
        pytest.param([5, 6], [4, 8], id="a no-op before them is gone: its reader read the pin"),
    ],
)
def test_read_versions(reads: list[int | None], expected: list[int | None]) -> None:
    result = landed([[info(readVersion=read)] for read in reads])
    assert [commit[0]["commitInfo"]["readVersion"] for commit in result] == expected


def test_a_commit_without_read_version_gets_none() -> None:
    assert rebase([[info(operation="CREATE TABLE")]], pin=-1, first_version=0, winners=[]) == [
        [info(operation="CREATE TABLE")]
    ]


@pytest.mark.parametrize("first", [PIN, 0])
def test_a_commit_cannot_land_at_or_below_its_pin(first: int) -> None:
    with pytest.raises(InvalidError, match="cannot land in version"):
        landed([], first)


def test_an_enablement_version_that_is_no_number_is_refused() -> None:
    with pytest.raises(InvalidError, match="'x'"):
        landed([[enabled("x", 1)]])


# --- properties ---


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[list[Action]], int, list[Footprint], int]:
    """Commits that add files with rows behind row id `base`, as Delta gives them out, some gone again; and winners."""
    base = draw(st.integers(-1, 20))
    top, commits = base, []
    for staged in range(PIN + 1, PIN + 1 + draw(st.integers(1, 3))):
        commit: list[Action] = [info(inCommitTimestamp=draw(st.integers(0, 50)), readVersion=staged - 1)]
        for n in range(draw(st.integers(0, 3))):
            rows = draw(st.integers(0, 5))
            if draw(st.booleans()):
                commit.append(add(f"f{staged}-{n}%20", top + 1, staged, rows))
            top += rows
        old = add(f"p{staged}", draw(st.integers(0, 5)), draw(st.integers(0, PIN)))
        old["add"] |= {
            "stats": '{"numRecords":1}',
            "size": 7,
            "partitionValues": {"a": None},
            "deletionVector": {"o": 1},
        }
        commits.append([*commit, mark(top), old] if top > base else [*commit, old])
    winners, at = [], base
    for _ in range(draw(st.integers(0, 3))):
        at += draw(st.integers(0, 9))
        winners.append(Footprint(row_id_mark=draw(st.sampled_from([at, None])), timestamp_ms=draw(st.integers(0, 60))))
    return commits, base, winners, PIN + 1 + len(winners)


def held(commits: Iterable[Sequence[Action]]) -> Counter[str]:
    """What the data files hold, and where they are."""
    said = ("path", "size", "stats", "partitionValues", "deletionVector", "rows", "dataChange")
    files = [b for commit in commits for kind in ("add", "remove", "cdc") for b in bodies(commit, kind)]
    return Counter(json.dumps([file.get(field) for field in said]) for file in files)


@given(histories())
def test_nothing_that_a_data_file_holds_ever_changes(
    case: tuple[list[list[Action]], int, list[Footprint], int],
) -> None:
    commits, _, winners, first = case
    before = deepcopy(commits)
    result = rebase(commits, pin=PIN, first_version=first, winners=winners)
    assert held(result) == held(before)
    assert [[*action] for commit in result for action in commit] == [
        [*action] for commit in before for action in commit
    ]
    assert commits == before, "the staged commits are left as they were"


@given(histories())
def test_no_row_id_is_given_out_twice_and_the_mark_never_falls(
    case: tuple[list[list[Action]], int, list[Footprint], int],
) -> None:
    commits, base, winners, first = case
    result = rebase(commits, pin=PIN, first_version=first, winners=winners)
    taken = max([base, *(w.row_id_mark for w in winners if w.row_id_mark is not None)])
    top = taken
    for version, commit in enumerate(result, first):
        new = [b for b in bodies(commit, "add") if b["defaultRowCommitVersion"] > PIN]
        assert {b["defaultRowCommitVersion"] for b in new} <= {version}
        for file in sorted((b for b in new if b["rows"]), key=lambda b: b["baseRowId"]):
            assert file["baseRowId"] > top
            top = file["baseRowId"] + file["rows"] - 1
        said = footprint(commit).row_id_mark
        assert said is None or said >= top


@given(histories(), st.integers(0, 3))
def test_rebasing_twice_is_rebasing_once(
    case: tuple[list[list[Action]], int, list[Footprint], int], first_winners: int
) -> None:
    commits, _, winners, first = case
    early, late = winners[:first_winners], winners[first_winners:]
    then = PIN + 1 + len(early)
    once = rebase(commits, pin=PIN, first_version=then, winners=early)
    twice = rebase(once, pin=then - 1, first_version=first, winners=late)
    assert twice == rebase(commits, pin=PIN, first_version=first, winners=winners)


@given(histories())
def test_in_commit_timestamps_rise_strictly(case: tuple[list[list[Action]], int, list[Footprint], int]) -> None:
    commits, _, winners, first = case
    result = rebase(commits, pin=PIN, first_version=first, winners=winners)
    stamps = [max((w.timestamp_ms or 0 for w in winners), default=-1)]
    stamps += [commit[0]["commitInfo"]["inCommitTimestamp"] for commit in result]
    if not winners:
        stamps = stamps[1:]
    assert all(a < b for a, b in pairwise(stamps))
