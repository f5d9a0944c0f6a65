"""What tags keep: pure rules over tags, database versions and what a log has."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.delta.log import LogFiles, commit_path
from lockstep.errors import MissingFilesError
from lockstep.lake.kept import KeptTable, check_readable, kept_tables, kept_tags, unreadable
from lockstep.lake.kept_states import FOLDER
from lockstep.lake.verify import verify
from lockstep.timeline.entry import Table, Tag, TagDdl
from tests.support.faulty import FaultyStorage
from tests.support.lakes import append, create, location, named, open_catalog

NOW = datetime(2030, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


def make_tag(catalog: TransactionalCatalog, name: str, until: datetime | None = None) -> None:
    catalog.run(lambda tx: tx.changing().create_tag(TagDdl(action="create", name=name, retain_until=until)))


@pytest.mark.parametrize(
    ("until", "kept"),
    [(None, True), (NOW + DAY, True), (NOW + timedelta(milliseconds=1), True), (NOW, False), (NOW - DAY, False)],
)
def test_a_tag_keeps_until_its_time(until: datetime | None, kept: bool, catalog: TransactionalCatalog) -> None:
    make_tag(catalog, "eod", until)
    assert [tag.name for tag in kept_tags(catalog.database(), NOW)] == (["eod"] if kept else [])


def test_a_table_is_kept_as_it_was_whatever_became_of_it(catalog: TransactionalCatalog) -> None:
    create(catalog, "renamed", "dropped", "new_one", files=["x"])
    make_tag(catalog, "first")
    append(catalog, "renamed", "y")
    catalog.run(lambda tx: tx.changing().rename_table(named("renamed"), named("other")))
    catalog.run(lambda tx: tx.changing().drop_table(named("dropped")))
    create(catalog, "later")
    make_tag(catalog, "second")
    tags = kept_tags(catalog.database(), NOW)
    everything = {(kept.tag.name, kept.table.name.table) for kept in kept_tables(catalog.timeline, tags)}
    assert {("first", "renamed"), ("first", "dropped"), ("second", "other"), ("second", "later")} <= everything
    assert ("second", "dropped") not in everything


LOGS = [
    # commits, checkpoints, the version that is kept, the first that is needed, the commit that is missing
    (range(6), [], 3, 0, None),
    (range(6), [2, 4], 3, 2, None),
    (range(6), [3], 3, 3, None),
    (range(3, 6), [2], 3, 2, None),
    (range(3, 6), [3, 5], 3, 3, None),
    (range(4, 6), [3, 5], 3, 3, None),
    (range(5, 9), [5, 8], 3, 0, 0),
    ([0, 1, 3, 4], [], 3, 0, 2),
    ([4, 6], [3], 6, 3, 5),
    ([], [], 0, 0, 0),
]


@pytest.mark.parametrize(("commits", "checkpoints", "version", "first", "missing"), LOGS)
def test_what_a_log_needs_for_a_version(
    commits: list[int], checkpoints: list[int], version: int, first: int, missing: int | None
) -> None:
    log = LogFiles(frozenset(commits), frozenset(checkpoints))
    kept = [kept_version(version)]
    assert log.needed_from(version) == first
    assert unreadable(log, kept) == ([] if missing is None else [(kept[0], missing)])


def kept_version(version: int) -> KeptTable:
    tag = Tag(name="eod", version=9, since=9, created_at=NOW)
    table = Table(id="t", name=named("t"), location="t", version=version, since=1)
    return KeptTable(tag, table)


def test_verify_finds_a_kept_version_whose_log_is_gone(store: FaultyStorage) -> None:
    catalog = open_catalog(store)
    create(catalog, "t", files=["a"])
    make_tag(catalog, "eod", NOW)
    tagged = catalog.database().version
    place = location(catalog, "t")
    append(catalog, "t", "b")
    catalog.run(lambda tx: tx.changing().drop_table(named("t")))
    assert verify(store, catalog.timeline, clock=lambda: NOW - DAY).differences == ()
    store.delete(commit_path(place, 0))
    assert verify(store, catalog.timeline, clock=lambda: NOW - DAY).differences == (), "the tag keeps it by itself"
    store.delete_folder(FOLDER)  # as a tag is that an older Lockstep made
    (found,) = verify(store, catalog.timeline, clock=lambda: NOW - DAY).differences
    assert (found.problem, found.table, found.database_version) == ("unreadable", named("t"), tagged)
    assert found.path == commit_path(place, 0)
    assert verify(store, catalog.timeline, clock=lambda: NOW).differences == ()


def test_a_version_that_a_log_does_not_tell_of_any_more_is_not_tagged(store: FaultyStorage) -> None:
    catalog = open_catalog(store)
    create(catalog, "a", "b", files=["p"])
    for n in range(5):
        append(catalog, "a", f"x{n}")
    place, head = location(catalog, "a"), catalog.timeline.head
    store.put(f"{place}/_delta_log/{4:020d}.checkpoint.parquet", b"whole")  # what Delta's clean-up leaves
    for version in range(4):
        store.delete(commit_path(place, version))
    with pytest.raises(MissingFilesError, match=r"database version 3 .* that of default.a among them"):
        check_readable(catalog.lake, 3)
    check_readable(catalog.lake, head.version)
