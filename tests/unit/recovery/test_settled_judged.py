"""How a table has diverged, as it is judged: from which version on, and what its log says in short of that."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.delta.actions import Action, render
from lockstep.delta.log import commit_path
from lockstep.delta.snapshot import read_snapshot
from lockstep.errors import InvalidError
from lockstep.lake.policy import PROPERTY
from lockstep.lake.verify import verify
from lockstep.recovery.choices import choices
from lockstep.recovery.divergence import divergence
from lockstep.recovery.settle import Side
from lockstep.storage.outside import open_reaching
from tests.support.diverged import HELD, SIDES, diverged, put_foreign, settled, write_checkpoint
from tests.support.faulty import FaultyStorage
from tests.support.lakes import (
    PROTOCOL,
    add,
    again,
    append,
    create,
    files,
    foreign,
    location,
    metadata,
    named,
    open_catalog,
    stage,
)


@pytest.fixture
def store(tmp_path: Path) -> FaultyStorage:
    return FaultyStorage(open_reaching(str(tmp_path / "lake"), create=True))


def log_path(catalog: TransactionalCatalog, name: str) -> str:
    return f"{location(catalog, 't')}/_delta_log/{name}"


# --- where the two sides differ ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", SIDES)
def test_an_equal_version_hides_no_older_one_that_differs(store: FaultyStorage, keep: Side) -> None:
    catalog = open_catalog(store)
    create(catalog, "t", "u", files=["p"])
    for version in (1, 2, 3):
        append(catalog, "t", f"ours{version}")
    catalog.lake.upkeep.settle()
    for version in (1, 3):
        put_foreign(catalog, version, add(f"theirs{version}"))
    found = divergence(catalog.lake, named("t"))
    assert (found.common, found.same) == (0, frozenset({2}))
    ours, theirs, _ = choices(catalog.lake, found)
    assert (ours.lost_versions, theirs.lost_versions) == ((1, 3), (1, 3))
    assert (ours.counts.files_added, theirs.counts.files_added) == (2, 2)
    settled(catalog, keep)
    assert files(catalog, "t") == {"p", "ours2"} | {f"{keep}1", f"{keep}3"}


@pytest.mark.parametrize("keep", ["ours", "theirs", "both"])
def test_what_was_written_over_below_the_newest_commit_is_settled_though_the_table_can_be_used(
    store: FaultyStorage, keep: Side
) -> None:
    """Whoever uses the table compares the newest commit alone, and `verify` each: who settles it looks as closely."""
    catalog = open_catalog(store)
    create(catalog, "t", "u", files=["p"])
    for version in (1, 2, 3):
        append(catalog, "t", f"ours{version}")
    catalog.lake.upkeep.settle()
    put_foreign(catalog, 2, add("theirs2"))
    assert files(catalog, "t") == {"p", "ours1", "theirs2", "ours3"}
    assert [each.problem for each in verify(store, catalog.timeline).differences] == ["different"]
    found = divergence(catalog.lake, named("t"))
    assert (found.common, found.same, found.newest) == (1, frozenset({3}), 3)
    assert "below the newest one" in found.why.message
    settled(catalog, keep)
    of_both = {"ours2", "theirs2"}
    assert files(catalog, "t") == {"p", "ours1", "ours3"} | (of_both if keep == "both" else {f"{keep}2"})
    assert verify(store, again(catalog).timeline).differences == ()
    with pytest.raises(InvalidError, match="has not diverged"):
        settled(catalog, keep)


def test_what_a_plain_writer_wrote_over_another_ones_commit_is_found_below_an_equal_one(store: FaultyStorage) -> None:
    catalog = open_catalog(store)
    create(catalog, "t", files=["p"])
    foreign(catalog, "t", 1, add("first"))
    files(catalog, "t")
    append(catalog, "t", "ours2")
    append(catalog, "t", "ours3")
    catalog.lake.upkeep.settle()
    put_foreign(catalog, 1, add("another"))
    put_foreign(catalog, 3, add("theirs"))
    found = divergence(catalog.lake, named("t"))
    assert found.common == 0
    with pytest.raises(InvalidError, match="is nowhere else"):
        settled(catalog, "ours")
    settled(catalog, "theirs")
    assert files(catalog, "t") == {"p", "another", "ours2", "theirs"}


@pytest.mark.parametrize("keep", SIDES)
def test_versions_that_the_clean_up_of_logs_took_do_not_count_as_different(store: FaultyStorage, keep: Side) -> None:
    catalog = open_catalog(store)
    create(catalog, "t", "u", files=["p"])
    append(catalog, "t", "q")
    append(catalog, "t", "ours")
    catalog.lake.upkeep.settle()
    write_checkpoint(store, location(catalog, "t"), 1, [PROTOCOL, metadata(), add("p"), add("q")])
    for version in (0, 1):
        store.inner.delete(commit_path(location(catalog, "t"), version))
    put_foreign(catalog, 2, add("theirs"))
    assert divergence(catalog.lake, named("t")).common == 1
    settled(catalog, keep)
    newest = catalog.timeline.head.tables[named("t")].version
    assert newest == 3
    assert {path for path, _ in read_snapshot(store, location(catalog, "t"), newest).files} == {"p", "q", keep}


def test_what_refused_foreign_commits_is_ahead_though_the_clean_up_took_it(store: FaultyStorage) -> None:
    """Plain writers went on, checkpointed, and removed what came before: nothing of ours is lost by it."""
    catalog = open_catalog(store)
    create(catalog, "t", "u", files=["p"])
    tx = catalog.begin()
    stage(catalog, tx, "t", metadata(**{PROPERTY: "refuse"}))
    catalog.commit(tx)
    catalog.lake.upkeep.settle()
    put_foreign(catalog, 2, add("theirs"))
    put_foreign(catalog, 3, add("theirs2"))
    assert divergence(catalog.lake, named("t")).is_ahead
    said = [PROTOCOL, metadata(**{PROPERTY: "refuse"}), add("p"), add("theirs")]
    write_checkpoint(store, location(catalog, "t"), 2, said)
    for version in (0, 1):
        store.inner.delete(commit_path(location(catalog, "t"), version))
    found = divergence(catalog.lake, named("t"))
    assert (found.is_ahead, choices(catalog.lake, found)[1].lost_versions) == (True, ())
    settled(catalog, "theirs")
    assert catalog.timeline.head.tables[named("t")].version == 3


def test_not_more_is_read_to_count_than_a_bound(store: FaultyStorage) -> None:
    catalog = diverged(store, "written over")
    found = replace(divergence(catalog.lake, named("t")), newest=5_000)
    before = store.count("get")
    ours, _, _ = choices(catalog.lake, found)
    assert store.count("get") - before < 50
    assert ours.counts.files_added == -1


# --- checkpoints and compacted files ----------------------------------------------------------------------------------

TXN: Action = {"txn": {"appId": "stream", "version": 7}}
DOMAIN: Action = {"domainMetadata": {"domain": "mine", "configuration": '{"a": 1}', "removed": False}}
FILES = [add("theirs"), add("theirs2")]
RIGHT = [PROTOCOL, metadata(), TXN, DOMAIN, *FILES]
"""What the log says at version 2."""

WRONG: dict[str, list[Action]] = {
    "files": [PROTOCOL, metadata(), TXN, DOMAIN, add("ours"), add("theirs2")],
    "the size of a file": [PROTOCOL, metadata(), TXN, DOMAIN, add("theirs", size=2), add("theirs2")],
    "metadata": [PROTOCOL, metadata("another"), TXN, DOMAIN, *FILES],
    "protocol": [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 4}}, metadata(), TXN, DOMAIN, *FILES],
    "a batch": [PROTOCOL, metadata(), {"txn": {"appId": "stream", "version": 8}}, DOMAIN, *FILES],
    "no batch": [PROTOCOL, metadata(), DOMAIN, *FILES],
    "a domain": [PROTOCOL, metadata(), TXN, *FILES],
}


def written_over(store: FaultyStorage) -> TransactionalCatalog:
    catalog = diverged(store, "written over")
    put_foreign(catalog, 2, TXN, DOMAIN, add("theirs2"))
    return catalog


def refused(catalog: TransactionalCatalog, keep: Side, says: str) -> None:
    """See that a table is not settled, and that a dry run says so, too."""
    head = catalog.timeline.head.version
    dry = {each.keep: each.refused or "" for each in choices(catalog.lake, divergence(catalog.lake, named("t")))}
    with pytest.raises(InvalidError, match=says) as error:
        settled(catalog, keep)
    assert error.value.sqlstate == "22023"
    assert dry[keep] == error.value.message
    assert open_catalog(catalog.lake.storage).timeline.head.version == head


@pytest.mark.parametrize("keep", SIDES)
@pytest.mark.parametrize("case", WRONG)
def test_a_checkpoint_that_differs_in_anything_is_named(store: FaultyStorage, case: str, keep: Side) -> None:
    catalog = written_over(store)
    write_checkpoint(store, location(catalog, "t"), 2, WRONG[case])
    refused(catalog, keep, r"00002\.checkpoint\.parquet says something else .* Put it aside")
    write_checkpoint(store, location(catalog, "t"), 2, RIGHT)
    settled(catalog, keep)
    assert files(catalog, "t") == HELD[keep]


@pytest.mark.parametrize("keep", SIDES)
def test_an_older_checkpoint_is_compared_as_well(store: FaultyStorage, keep: Side) -> None:
    catalog = written_over(store)
    write_checkpoint(store, location(catalog, "t"), 2, RIGHT)
    write_checkpoint(store, location(catalog, "t"), 1, [PROTOCOL, metadata(), add("ours")])
    refused(catalog, keep, r"00001\.checkpoint\.parquet says something else")


CLASSIC, OTHER = "checkpoint.parquet", f"checkpoint.{UUID(int=1)}.parquet"
PART = f"checkpoint.{1:010d}.{2:010d}.parquet"


@pytest.mark.parametrize("names", [[CLASSIC, OTHER], [CLASSIC, PART], [PART]])
def test_of_several_checkpoints_of_a_version_readers_may_take_any(store: FaultyStorage, names: list[str]) -> None:
    """So may they of a part, once the others are there."""
    catalog = written_over(store)
    for name in names:
        write_checkpoint(store, location(catalog, "t"), 2, RIGHT, name)
    refused(catalog, "theirs", "several checkpoints of version 2, or parts of one")


@pytest.mark.parametrize("keep", SIDES)
def test_a_compacted_file_of_what_differs_is_named(store: FaultyStorage, keep: Side) -> None:
    catalog = written_over(store)
    path = log_path(catalog, f"{0:020d}.{1:020d}.compacted.json")
    store.inner.put(path, render([PROTOCOL, metadata(), add("ours")]))
    refused(catalog, keep, r"0001\.compacted\.json stands for commits.* Put it aside")
    store.inner.delete(path)
    settled(catalog, keep)


def test_what_comes_before_the_difference_is_left_alone(store: FaultyStorage) -> None:
    catalog = written_over(store)
    store.inner.put(log_path(catalog, f"{0:020d}.{0:020d}.compacted.json"), b"whatever")
    write_checkpoint(store, location(catalog, "t"), 0, [PROTOCOL, metadata(), add("p")])
    settled(catalog, "ours")
    assert files(catalog, "t") == HELD["ours"]


def test_a_checkpoint_without_the_commits_before_it_is_nobodys(store: FaultyStorage) -> None:
    catalog = written_over(store)
    write_checkpoint(store, location(catalog, "t"), 2, RIGHT)
    store.inner.delete(commit_path(location(catalog, "t"), 0))
    refused(catalog, "theirs", "are gone, so nobody can tell")
