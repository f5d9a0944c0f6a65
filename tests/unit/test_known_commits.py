"""Which entry wrote a version of a table, whatever changed the table since, and how its file is told from any other."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from immutables import Map

from lockstep.delta.actions import Action, render, traced
from lockstep.delta.log import digest
from lockstep.lake.known_commits import KnownCommit, known_commits
from lockstep.timeline.entry import Commit, Entry, TableDdl, TableWrite
from lockstep.timeline.placements import Placements
from lockstep.timeline.segment import bare
from tests.support.entries import entry
from tests.support.lakes import add, named

A, Z = named("a"), named("z")
BETWEEN = TableDdl(action="rename", id="other", name=A, new_name=Z)
"""What another table's entry says."""


def commit(database_version: int, table_version: int) -> bytes:
    """The file of a commit of ours as it was ratified."""
    info: Action = {"commitInfo": {"operation": "WRITE"}}
    return render(traced([info, add(f"{table_version}")], f"txn-{database_version}"))


def ours(database_version: int, *versions: int) -> Entry:
    """A transaction that was ratified for these table versions."""
    commits = [
        Commit(inline=[msgspec.Raw(line) for line in commit(database_version, v).splitlines()]) for v in versions
    ]
    write = TableWrite(
        id="t", name=A, location="t", from_version=versions[0] - 1, to_version=versions[-1], commits=commits
    )
    return entry(database_version, writes=[write])


def theirs(database_version: int, after: int, through: int, digest: str = "") -> Entry:
    """An entry that took plain Delta writers' commits in."""
    write = TableWrite(id="t", name=A, location="t", from_version=after, to_version=through, commits=[], digest=digest)
    return entry(database_version, kind="external", writes=[write])


def changed(database_version: int, *ddls: TableDdl) -> Entry:
    return entry(database_version, tables=[*ddls])


CREATED = entry(1, tables=[TableDdl(action="create", id="t", name=A, location="t")], writes=ours(1, 0).writes)
RENAMED = TableDdl(action="rename", id="t", name=A, new_name=Z)
DROPPED = TableDdl(action="drop", id="t", name=A)


def came(version: int, digest: str = "", *, adopted: bool = False) -> TableDdl:
    """Bring the table back, or take it in, at a version of its log."""
    return TableDdl(action="create", id="t", name=A, location="t", version=version, adopted=adopted, digest=digest)


NOWHERE: Placements = Map()
MOVED = NOWHERE.set(("t", 2), (3,))
PARTLY_MOVED = NOWHERE.set(("t", 2), (1, 3))
CASES: dict[str, tuple[list[Entry], int, Placements, list[tuple[int, int]]]] = {
    # entries, the version that is asked for, placements, and (table version, database version) of what is found
    "it was written last": ([CREATED, ours(2, 1)], 1, NOWHERE, [(1, 2), (0, 1)]),
    "an older version": ([CREATED, ours(2, 1), ours(3, 2)], 1, NOWHERE, [(1, 2), (0, 1)]),
    "renamed since": ([CREATED, ours(2, 1), changed(3, RENAMED)], 1, NOWHERE, [(1, 2), (0, 1)]),
    "undropped since": ([ours(2, 1), changed(3, DROPPED), changed(4, came(1))], 1, NOWHERE, [(1, 4), (1, 2)]),
    "undropped and written in one entry": (
        [ours(2, 1), changed(3, DROPPED), entry(4, tables=[came(1)], writes=ours(4, 2).writes)],
        1,
        NOWHERE,
        [(1, 4), (1, 2)],
    ),
    "another table's entries between": ([ours(2, 1), changed(3, BETWEEN), changed(4, RENAMED)], 1, NOWHERE, [(1, 2)]),
    "moved": ([CREATED, ours(2, 1), entry(3, kind="external")], 3, MOVED, [(3, 2), (0, 1)]),
    "what moved it": ([CREATED, ours(2, 1)], 2, MOVED, [(0, 1)]),
    "several versions in one entry": ([CREATED, ours(2, 1, 2, 3)], 2, NOWHERE, [(2, 2), (0, 1)]),
    "of several the last was moved": ([CREATED, ours(2, 1, 2)], 3, PARTLY_MOVED, [(3, 2), (0, 1)]),
    "between several of which the last was moved": ([CREATED, ours(2, 1, 2)], 2, PARTLY_MOVED, [(1, 2), (0, 1)]),
    "taken in": ([CREATED, theirs(2, 0, 4, "d")], 4, NOWHERE, [(4, 2), (0, 1)]),
    "in the middle of what was taken in": ([CREATED, theirs(2, 0, 4, "d")], 3, NOWHERE, [(3, 2), (0, 1)]),
    "before what was taken in": ([CREATED, theirs(2, 0, 4, "d")], 0, NOWHERE, [(0, 1)]),
    "adopted": ([changed(1, came(5, "d", adopted=True)), ours(2, 6)], 5, NOWHERE, [(5, 1)]),
    "released and adopted again": (
        [ours(2, 1), changed(3, DROPPED), changed(4, came(7, adopted=True)), ours(5, 8)],
        7,
        NOWHERE,
        [(7, 4)],
    ),
    "an export's": ([entry(0, kind="create", tables=[came(5)]), ours(1, 6)], 5, NOWHERE, [(5, 0)]),
    "its entry has expired": ([changed(3, RENAMED)], 1, NOWHERE, []),
    "before it was made": ([CREATED, ours(2, 1)], -1, NOWHERE, []),
}


@pytest.mark.parametrize("case", CASES)
def test_the_write_that_has_a_version_now_made_it(case: str) -> None:
    """By id and table version: which entry changed the table last does not matter. The history tells the same."""
    entries, version, placements, wanted = CASES[case]
    for known in (entries, [*map(bare, entries)]):
        found = known_commits(known[::-1], "t", version, placements)
        assert [(each.version, each.entry.version) for each in found] == wanted


def first(entries: Sequence[Entry], version: int, placements: Placements = NOWHERE) -> KnownCommit:
    return next(known_commits(entries, "t", version, placements))


def test_a_commit_where_it_was_ratified_is_told_by_all_that_it_says() -> None:
    for place, version in enumerate((1, 2)):
        found = first([ours(2, 1, 2)], version)
        assert found.is_told
        assert found.ours is not None
        assert found.ours[1] == place
        assert found.is_in(commit(2, version))
        assert not found.is_in(commit(2, 3 - version))
        assert not found.is_in(commit(2, version) + b"\n")


@pytest.mark.parametrize("what", ["moved", "known from the history alone"])
def test_a_commit_of_which_nobody_knows_what_it_says_is_told_by_the_transaction_in_it(what: str) -> None:
    found = first([ours(2, 1)], 3, MOVED) if what == "moved" else first([bare(ours(2, 1))], 1)
    assert found.is_told
    commit_info: Action = {"commitInfo": {"operation": "WRITE"}}
    assert found.is_in(render(traced([commit_info, add("with other row ids")], "txn-2")))
    assert not found.is_in(render(traced([commit_info, add("with other row ids")], "txn-3")))
    for another in (b"", b"{", b"[]", render([add("plain")]), render([commit_info])):
        assert not found.is_in(another)


def test_a_plain_writers_commit_is_told_by_its_digest_and_by_nothing_else() -> None:
    data = render([add("plain")])
    assert first([theirs(2, 0, 1, digest(data))], 1).is_in(data)
    assert not first([theirs(2, 0, 1, digest(data))], 1).is_in(data + b"\n")
    assert not first([theirs(2, 0, 1)], 1).is_told
    assert not first([theirs(2, 0, 4, digest(data))], 3).is_told, "the digest is that of the last"
    assert not first([changed(2, came(1, adopted=True))], 1).is_told
