"""Settling a table with both sides, on real logs: each row of both is there once, to Lockstep and to delta-rs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import lockstep
from lockstep.catalog import TransactionalCatalog
from lockstep.delta.actions import bodies
from lockstep.delta.log import commit_path, read_published
from lockstep.errors import ConflictError, ForeignCommitError, InvalidError
from lockstep.lake.policy import PROPERTY
from lockstep.lake.verify import verify
from lockstep.recovery.choices import choices
from lockstep.recovery.divergence import divergence
from lockstep.recovery.settle import settle
from lockstep.storage.outside import open_reaching
from lockstep.tables.opened import OpenLake
from lockstep.tables.table import TransactionTable
from lockstep.timeline.entry import Counts
from tests.support.diverged import as_it_is, killed_at_each_call, overtaken, put_foreign, settled, write_over
from tests.support.faulty import FaultyStorage
from tests.support.lakes import (
    add,
    append,
    create,
    files,
    large,
    location,
    metadata,
    named,
    open_catalog,
    remove,
    replay,
    stage,
)

ROWS = pa.schema([("id", pa.int64()), ("v", pa.string())])
FEED = {"delta.enableChangeDataFeed": "true"}


@pytest.fixture
def lake(tmp_path: Path) -> OpenLake:
    return lockstep.open(str(tmp_path / "lake"), create=True)


@pytest.fixture
def store(tmp_path: Path) -> FaultyStorage:
    return FaultyStorage(open_reaching(str(tmp_path / "lake"), create=True))


def made(lake: OpenLake, properties: dict[str, str] | None = None) -> Path:
    """Make a table of the rows 1 to 4, each in a file of its own; return its folder."""
    with lake.transaction() as tx:
        tx.create("t", ROWS, properties=properties or {})
    for number in range(1, 5):
        with lake.transaction() as tx:
            tx["t"].append({"id": [number], "v": ["old"]})
    lake.catalog.lake.upkeep.settle()
    return Path(lake.catalog.lake.storage.url.removeprefix("file://"), location(lake.catalog, "t"))


def did(lake: OpenLake, *statements: Callable[[TransactionTable], object]) -> None:
    """Run statements, in a transaction each, and see that all is published."""
    for statement in statements:
        with lake.transaction() as tx:
            statement(tx["t"])
    lake.catalog.lake.upkeep.settle()


def plain_append(folder: Path, *ids: int) -> None:
    for id in ids:
        write_deltalake(folder, pa.table({"id": [id], "v": ["theirs"]}, schema=ROWS), mode="append")


def read(folder: Path) -> list[tuple[int, str]]:
    """Return what delta-rs reads of a table."""
    return sorted((row["id"], row["v"]) for row in DeltaTable(folder).to_pyarrow_table().to_pylist())


def rows(root: str) -> list[tuple[int, str]]:
    """Return what Lockstep reads, in a process that comes new."""
    return sorted((row["id"], row["v"]) for row in lockstep.open(root).at()["t"].to_arrow().to_pylist())


Ours: TypeAlias = Callable[[TransactionTable], object]
Theirs: TypeAlias = Callable[[Path], object]

WAYS: dict[str, tuple[list[Ours], list[Theirs], dict[int, str]]] = {
    "both append": (
        [lambda t: t.append({"id": [5], "v": ["ours"]})],
        [lambda at: plain_append(at, 6)],
        {1: "old", 2: "old", 3: "old", 4: "old", 5: "ours", 6: "theirs"},
    ),
    "theirs goes on": (
        [lambda t: t.append({"id": [5], "v": ["ours"]})],
        [lambda at: plain_append(at, 6, 7), lambda at: DeltaTable(at).delete("id IN (6, 2)")],
        {1: "old", 3: "old", 4: "old", 5: "ours", 7: "theirs"},
    ),
    "each changes rows of other files": (
        [lambda t: t.update({"v": "'ours'"}, "id = 1")],
        [lambda at: DeltaTable(at).update({"v": "'theirs'"}, predicate="id = 2")],
        {1: "ours", 2: "theirs", 3: "old", 4: "old"},
    ),
    "ours deletes, theirs appends": (
        [lambda t: t.delete("id <= 2")],
        [lambda at: plain_append(at, 6)],
        {3: "old", 4: "old", 6: "theirs"},
    ),
    "ours appends, theirs compacts": (
        [lambda t: t.append({"id": [5], "v": ["ours"]})],
        [lambda at: DeltaTable(at).optimize.compact()],
        {1: "old", 2: "old", 3: "old", 4: "old", 5: "ours"},
    ),
    "several of ours": (
        [
            lambda t: t.append({"id": [5], "v": ["ours"]}),
            lambda t: t.update({"v": "'ours'"}, "id IN (1, 5)"),
            lambda t: t.append({"id": [8], "v": ["ours"]}),
        ],
        [lambda at: plain_append(at, 6, 7, 9), lambda at: DeltaTable(at).delete("id = 9")],
        {1: "ours", 2: "old", 3: "old", 4: "old", 5: "ours", 6: "theirs", 7: "theirs", 8: "ours"},
    ),
}


@pytest.mark.parametrize("properties", [{}, FEED], ids=["plain", "feed"])
@pytest.mark.parametrize("way", WAYS)
def test_each_row_of_both_is_there_once(lake: OpenLake, tmp_path: Path, way: str, properties: dict[str, str]) -> None:
    """To Lockstep and to delta-rs; and both write the table as any other from then on."""
    ours, theirs, expected = WAYS[way]
    folder, root = made(lake, properties), str(tmp_path / "lake")
    copy = as_it_is(folder, tmp_path / "plain")
    did(lake, *ours)
    for each in theirs:
        each(copy)
    write_over(folder, copy)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.suffix in (".json", ".parquet")}
    with pytest.raises(ForeignCommitError, match="--both"):
        rows(root)
    head = lake.catalog.timeline.head.version
    assert settled(lake.catalog, "both") == head + 1
    assert rows(root) == read(folder) == sorted(expected.items())
    assert verify(lake.catalog.lake.storage, lake.catalog.timeline).differences == ()
    assert {path: path.read_bytes() for path in before} == before
    with pytest.raises(InvalidError, match="has not diverged"):
        settled(lake.catalog, "both")
    did(lake, lambda t: t.append({"id": [10], "v": ["later"]}), lambda t: t.delete("id = 3"))
    plain_append(folder, 11)
    later = {**expected, 10: "later", 11: "theirs"}
    del later[3]
    assert rows(root) == read(folder) == sorted(later.items())


def test_the_feed_of_changes_tells_each_row_once(lake: OpenLake, tmp_path: Path) -> None:
    """Theirs where they were, ours with the settlement: what the log says adds up to what the table has."""
    folder = made(lake, FEED)
    copy = as_it_is(folder, tmp_path / "plain")
    did(lake, lambda t: t.update({"v": "'ours'"}, "id = 1"))
    plain_append(copy, 6)
    write_over(folder, copy)
    settled(lake.catalog, "both")
    feed = pa.table(DeltaTable(folder).load_cdf(starting_version=5).read_all()).to_pylist()
    assert Counter((row["_commit_version"], row["_change_type"], row["id"], row["v"]) for row in feed) == Counter(
        [
            (5, "insert", 6, "theirs"),
            (6, "update_preimage", 1, "old"),
            (6, "update_postimage", 1, "ours"),
        ]
    )


def test_what_conflicts_is_refused_by_name_before_anything_is_written(lake: OpenLake, tmp_path: Path) -> None:
    """Both updated a row: a table with both would have it twice."""
    folder = made(lake)
    copy = as_it_is(folder, tmp_path / "plain")
    did(lake, lambda t: t.update({"v": "'ours'"}, "id = 1"))
    DeltaTable(copy).update({"v": "'theirs'"}, predicate="id = 1")
    write_over(folder, copy)
    catalog = lake.catalog
    head, before = catalog.timeline.head.version, set(folder.rglob("*"))
    *_, choice = choices(catalog.lake, divergence(catalog.lake, named("t")))
    with pytest.raises(
        InvalidError, match=r"both cannot be kept, for both changed data file .*Keep ours or theirs"
    ) as no:
        settled(catalog, "both")
    assert (choice.keep, choice.refused, no.value.sqlstate) == ("both", no.value.message, "22023")
    assert TransactionalCatalog.open(str(tmp_path / "lake")).timeline.head.version == head
    assert set(folder.rglob("*")) == before
    settled(catalog, "ours")
    assert read(folder)[0] == (1, "ours")


# --- without data -----------------------------------------------------------------------------------------------------


def written_over(store: FaultyStorage, *ours: Any, more: Any = ()) -> TransactionalCatalog:
    """Return a lake whose table t has the file p, and then ours, in whose place a plain writer's commit is."""
    catalog = open_catalog(store)
    create(catalog, "t", "u", files=["p"])
    if more:
        tx = catalog.begin()
        stage(catalog, tx, "t", *more)
        catalog.commit(tx)
    tx = catalog.begin()
    stage(catalog, tx, "t", *(ours or (add("ours"),)))
    catalog.commit(tx)
    catalog.lake.upkeep.settle()
    put_foreign(catalog, catalog.timeline.head.tables[named("t")].version, add("theirs"))
    return catalog


def test_a_dry_run_says_that_nobody_loses_anything(store: FaultyStorage) -> None:
    catalog = written_over(store)
    *_, both = choices(catalog.lake, divergence(catalog.lake, named("t")))
    assert (both.keep, both.lost_versions, both.counts, both.refused) == ("both", (), Counts(), None)


def test_who_dies_anywhere_has_settled_it_or_not(tmp_path: Path) -> None:
    """Whoever comes after that settles it, or finds it settled."""
    for number, after, is_settled in killed_at_each_call(
        tmp_path, lambda store: written_over(store, remove("p"), add("ours")), "both"
    ):
        if not is_settled:
            settled(after, "both")
        assert files(after, "t") == {"ours", "theirs"}, number
        newest = after.timeline.head.tables[named("t")].version
        assert replay(after.lake.storage, location(after, "t"), newest) == {"ours", "theirs"}


def test_of_two_who_settle_it_at_once_one_does(store: FaultyStorage) -> None:
    catalog = written_over(store)
    other = open_catalog(store.inner)
    found = divergence(other.lake, named("t"))
    settled(catalog, "both")
    version = catalog.timeline.head.version
    with pytest.raises((ConflictError, InvalidError)):
        settle(other.lake, found, "both", lambda do: other.run(do).version)
    assert open_catalog(store.inner).timeline.head.version == version
    assert files(other, "t") == {"p", "ours", "theirs"}


def test_a_plain_writer_that_goes_on_meanwhile_is_noticed(store: FaultyStorage) -> None:
    catalog = written_over(store)
    found = divergence(catalog.lake, named("t"))
    put_foreign(catalog, found.newest + 1, add("later"))
    with pytest.raises(InvalidError, match="has just written"):
        settle(catalog.lake, found, "both", lambda do: catalog.run(do).version)
    settled(catalog, "both")
    assert files(catalog, "t") == {"p", "ours", "theirs", "later"}


def test_what_a_table_refused_is_taken_in(store: FaultyStorage) -> None:
    """Nothing of ours is missing: it is the same as theirs."""
    catalog = open_catalog(store)
    create(catalog, "t", files=["p"])
    tx = catalog.begin()
    stage(catalog, tx, "t", metadata(**{PROPERTY: "refuse"}))
    catalog.commit(tx)
    put_foreign(catalog, 2, remove("p"), add("theirs"))
    id_ = catalog.timeline.head.tables[named("t")].id
    *_, both = choices(catalog.lake, divergence(catalog.lake, named("t")))
    assert both.refused is None
    settled(catalog, "both")
    assert files(catalog, "t") == {"theirs"}
    assert catalog.timeline.head.tables[named("t")].id == id_


def test_ours_that_a_table_refused_to_publish_behind_theirs_is_kept_with_it(store: FaultyStorage) -> None:
    catalog = open_catalog(store)
    create(catalog, "t", files=["p"])
    tx = catalog.begin()
    stage(catalog, tx, "t", metadata(**{PROPERTY: "refuse"}))
    catalog.commit(tx)
    tx = catalog.begin()
    stage(catalog, tx, "t", add("ours"))
    where = location(catalog, "t")
    store.interrupt(
        "put_if_absent", lambda: put_foreign(open_catalog(store.inner), 2, add("theirs")), path=commit_path(where, 2)
    )
    catalog.commit(tx)
    with pytest.raises(ForeignCommitError, match="'refuse'"):
        files(catalog, "t")
    settled(catalog, "both")
    assert files(catalog, "t") == {"p", "ours", "theirs"}


def test_what_settles_a_table_tells_its_metadata_anew(store: FaultyStorage) -> None:
    """Delta takes that for a change of the table, and lets nothing that began before commit behind it."""
    catalog = written_over(store)
    settled(catalog, "both")
    table = catalog.timeline.head.tables[named("t")]
    actions = read_published(store, table.location, table.version)
    assert len(bodies(actions, "metaData")) == 1
    assert bodies(actions, "commitInfo")[0]["operationParameters"]["settle"] == "both"


def test_times_of_commits_go_on_behind_theirs(store: FaultyStorage) -> None:
    later = 4_000_000_000_000
    features = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["inCommitTimestamp"]}
    timed = ({"protocol": features}, metadata(**{"delta.enableInCommitTimestamps": "true"}))
    catalog = written_over(store, more=timed)
    table = catalog.timeline.head.tables[named("t")]
    content = json.dumps({"commitInfo": {"inCommitTimestamp": later}}) + "\n" + json.dumps(add("theirs")) + "\n"
    store.put(commit_path(table.location, table.version), content.encode())
    settled(catalog, "both")
    [info] = bodies(read_published(store, table.location, table.version + 1), "commitInfo")
    assert info["inCommitTimestamp"] == later + 1


def test_ours_that_nobody_has_any_more_cannot_be_kept(store: FaultyStorage) -> None:
    """A large commit is in no entry."""
    written_over(store, large("ours"))
    other = open_catalog(store)
    with pytest.raises(InvalidError, match="too large for its entry"):
        settled(other, "both")
    settled(other, "theirs")


@pytest.mark.parametrize("side", ["ours", "theirs"])
def test_files_that_are_gone_refuse_both(store: FaultyStorage, side: str) -> None:
    """A plain writer's VACUUM took them; a dry run says so."""
    catalog = written_over(store)
    store.inner.delete(f"{location(catalog, 't')}/{side}")
    *_, both = choices(catalog.lake, divergence(catalog.lake, named("t")))
    assert f"/{side} is gone, a file that one of them added" in (both.refused or "")
    with pytest.raises(InvalidError, match="is gone, a file that one of them added"):
        settled(catalog, "both")


def test_a_log_whose_commits_are_gone_is_not_kept_with_ours(store: FaultyStorage) -> None:
    """Nobody knows what they did. Nor is one that ends before what statements have read of ours."""
    catalog = written_over(store)
    put_foreign(catalog, 2, add("theirs2"))
    where = location(catalog, "t")
    found = divergence(catalog.lake, named("t"))
    store.inner.delete(commit_path(where, 1))
    with pytest.raises(InvalidError, match=r"both cannot be kept, for .*0001\.json is gone, and nobody knows"):
        settle(catalog.lake, found, "both", lambda do: catalog.run(do).version)
    store.inner.delete(commit_path(where, 2))
    shorter = type(found)(found.table, found.why, common=0, newest=0, ours=found.ours)
    with pytest.raises(InvalidError, match="its log ends at version 0"):
        settle(catalog.lake, shorter, "both", lambda do: catalog.run(do).version)


def test_a_conflict_before_publication_is_one_yet(store: FaultyStorage) -> None:
    catalog = open_catalog(store)
    create(catalog, "t", files=["p"])
    overtaken(catalog, store, remove("p"), add("theirs"))
    with pytest.raises(InvalidError, match="both changed data file p"):
        settled(catalog, "both")


def test_what_comes_after_it_is_written_on_both(store: FaultyStorage) -> None:
    catalog = written_over(store)
    settled(catalog, "both")
    append(open_catalog(store.inner), "t", "more")
    assert files(catalog, "t") == {"p", "ours", "theirs", "more"}
