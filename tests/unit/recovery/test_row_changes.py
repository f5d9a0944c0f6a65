"""Which commits of a table lie between two database versions."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.delta.actions import render
from lockstep.errors import ExpiredError, ForeignCommitError, InvalidError
from lockstep.recovery.diff import diff
from lockstep.recovery.row_changes import VersionRange, commits_between, range_of_times, range_of_versions
from lockstep.recovery.tags import new_tag
from lockstep.retention.expiring import expire_snapshots
from lockstep.timeline.entry import UNKNOWN_COUNTS
from tests.support.faulty import FaultyStorage
from tests.support.lakes import add, append, foreign, log_file, named, stage


@pytest.mark.parametrize(
    ("start", "end", "inclusive", "expected"),
    [
        (3, 5, (True, True), VersionRange(2, 5)),
        (3, 5, (False, True), VersionRange(3, 5)),
        (3, 5, (True, False), VersionRange(2, 4)),
        (3, 5, (False, False), VersionRange(3, 4)),
        (3, None, (True, True), VersionRange(2, 9)),
        (3, None, (True, False), VersionRange(2, 9)),
        (3, 3, (True, True), VersionRange(2, 3)),
        (3, 3, (False, False), VersionRange(3, 3)),
        (9, None, (False, True), VersionRange(9, 9)),
        (0, 0, (True, True), VersionRange(-1, 0)),
        (0, 0, (True, False), VersionRange(-1, -1)),
    ],
)
def test_the_ends_are_in_the_range_unless_they_are_said_not_to_be(
    start: int, end: int | None, inclusive: tuple[bool, bool], expected: VersionRange
) -> None:
    first, last = inclusive
    assert range_of_versions(start, end, last=9, start_inclusive=first, end_inclusive=last) == expected


@pytest.mark.parametrize(
    ("start", "end", "says"),
    [(5, 3, "name the older one first"), (10, None, "there are 0 to 9"), (3, 10, "version 10"), (-1, 3, "version -1")],
)
def test_a_range_that_cannot_be_is_refused(start: int, end: int | None, says: str) -> None:
    with pytest.raises(InvalidError, match=says):
        range_of_versions(start, end, last=9)


def test_times_are_those_of_commits(catalog: TransactionalCatalog) -> None:
    append(catalog, "a", "q")
    append(catalog, "a", "r")
    timeline, last = catalog.timeline, catalog.timeline.head.version
    at = timeline.at(last - 1).committed_at
    moment = timedelta(microseconds=1)
    before = timeline.at(0).committed_at - moment

    def ranged(start: object, end: object = None, *, both: bool = True) -> VersionRange:
        return range_of_times(timeline, start, end, last=last, start_inclusive=both, end_inclusive=both)  # type: ignore[arg-type]

    assert ranged(at, at) == VersionRange(last - 2, last - 1)
    assert ranged(at, at, both=False) == VersionRange(last - 1, last - 1)
    assert ranged(at + moment) == VersionRange(last - 1, last)
    assert ranged(at - moment, at) == VersionRange(last - 2, last - 1)
    assert ranged(before, at) == VersionRange(-1, last - 1)
    assert ranged(at + timedelta(days=1)) == VersionRange(last, last), "nothing has changed yet"
    with pytest.raises(InvalidError, match="name the earlier one first"):
        ranged(at, before)


def test_each_commit_is_of_the_version_that_made_it(catalog: TransactionalCatalog) -> None:
    first = append(catalog, "a", "q")
    append(catalog, "b", "x")
    second = append(catalog, "a", "r")
    table = catalog.database().tables[named("a")]
    found = commits_between(catalog.timeline, table.id, VersionRange(first - 1, second))
    assert [(run.first, run.last, run.version) for run in found] == [
        (table.version - 1, table.version - 1, first),
        (table.version, table.version, second),
    ]
    assert found[-1].committed_at == catalog.timeline.at(second).committed_at
    assert commits_between(catalog.timeline, table.id, VersionRange(second, second)) == []


def test_what_a_plain_writer_did_is_of_the_version_that_took_it_in(catalog: TransactionalCatalog) -> None:
    table = catalog.database().tables[named("a")]
    foreign(catalog, "a", table.version + 1, add("x"))
    foreign(catalog, "a", table.version + 2, add("y"))
    taken = catalog.database([named("a")])
    found = commits_between(catalog.timeline, table.id, VersionRange(table.since, taken.version))
    assert [(run.first, run.last) for run in found] == [(1, 2)]
    assert found[-1].version == taken.tables[named("a")].since


def moved_commit(catalog: TransactionalCatalog, store: FaultyStorage, *foreign_files: str) -> int:
    """Commit to table a behind plain writers, each of whom takes its version of the log; return its version."""
    tx = catalog.begin()
    stage(catalog, tx, "a", add("x"))
    for version, file in enumerate(foreign_files, 1):

        def take(version: int = version, file: str = file) -> None:
            foreign(catalog, "a", version, add(file))

        store.interrupt("put_if_absent", take, path=log_file(catalog, "a", version))
    return catalog.commit(tx).version


@pytest.mark.parametrize("foreign_files", [["f"], ["f", "g"]])
def test_a_commit_that_was_moved_brings_with_it_what_it_is_behind(
    catalog: TransactionalCatalog, store: FaultyStorage, foreign_files: list[str]
) -> None:
    """Whoever begins a copy with the database at a version, and goes on with its changes, has each row once."""
    mine = moved_commit(catalog, store, *foreign_files)
    table, last = catalog.database([named("a")]).tables[named("a")], catalog.timeline.head.version
    assert last == mine + len(foreign_files), "each move is an entry"
    for low in range(mine - 1, last + 1):
        for high in range(low, last + 1):
            found = commits_between(catalog.timeline, table.id, VersionRange(low, high))
            ends = [catalog.timeline.at(version).tables[named("a")].version for version in (low, high)]
            told = [version for run in found for version in range(run.first, run.last + 1)]
            assert told == [*range(ends[0] + 1, ends[1] + 1)], (low, high)
            assert {run.version for run in found} <= {mine}


@pytest.mark.parametrize("written_over", range(5))
def test_a_log_that_has_another_commit_than_a_version_made_does_not_say_what_that_changed(
    catalog: TransactionalCatalog, store: FaultyStorage, written_over: int
) -> None:
    """Be it moved, or a plain writer's; but of what ours was moved behind nobody knows what it was."""
    moved_commit(catalog, store, "f")  # behind version 1, at 2
    append(catalog, "a", "y")
    foreign(catalog, "a", 4, add("z"))
    last = catalog.database([named("a")])
    lake, table = catalog.lake, last.tables[named("a")]
    lake.upkeep.settle()

    def changed() -> list[int]:
        versions = VersionRange(0, last.version)
        found = commits_between(lake.timeline, table.id, versions, partial(lake.check_written, table))
        return [version for run in found for version in range(run.first, run.last + 1)]

    assert changed() == [0, 1, 2, 3, 4]
    store.put(log_file(catalog, "a", written_over), render([add("theirs")]))
    if written_over == 1:
        assert changed() == [0, 1, 2, 3, 4]
    else:
        with pytest.raises(ForeignCommitError, match=f"version {written_over}"):
            changed()


def test_a_diff_says_that_nobody_counted_what_plain_writers_did(
    catalog: TransactionalCatalog, store: FaultyStorage
) -> None:
    mine = moved_commit(catalog, store, "f")
    foreign(catalog, "a", 3, add("g"))
    last = catalog.database([named("a")]).version
    timeline = catalog.timeline
    [moved], [taken] = diff(timeline, mine - 1, mine), diff(timeline, last - 1, last)
    assert (moved.from_version, moved.to_version, moved.counts) == (0, 2, UNKNOWN_COUNTS)
    assert (taken.from_version, taken.to_version, taken.counts) == (2, 3, UNKNOWN_COUNTS)
    assert diff(timeline, mine, mine + 1) == [], "that it was moved changes nothing"


def test_a_diff_across_what_has_expired_says_so(catalog: TransactionalCatalog) -> None:
    """Though a tag keeps the older of the two, so that it can be read."""
    append(catalog, "a", "q")
    older = catalog.timeline.head.version
    kept = new_tag("kept", version=older, days=None, comment="", now=catalog.lake.clock())
    catalog.run(lambda tx: tx.changing().create_tag(kept))
    for file in "rst":
        append(catalog, "a", file)
    expire_snapshots(catalog.lake, older_than=catalog.lake.clock(), retain_last=1, grace=timedelta())
    head = catalog.database()
    assert (head.expired.first_kept > older + 1, catalog.timeline.at(older).version) == (True, older)
    with pytest.raises(ExpiredError, match="is not known any more") as refused:
        diff(catalog.timeline, older, head.version)
    assert type(refused.value) is ExpiredError
    assert diff(catalog.timeline, older, older) == []
