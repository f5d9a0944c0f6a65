"""What a promotion takes along, says of time, and judges: as one lake would, had all happened in it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.delta.actions import bodies
from lockstep.delta.combine.deletion_vectors import file_name, file_path
from lockstep.delta.log import commit_path, read_published
from lockstep.delta.snapshot import Snapshot
from lockstep.errors import DuplicateError, ExpiredError, StaleCloneError, UnsupportedError
from lockstep.exports.promotion import check_protocols
from lockstep.timeline.entry import TagDdl, ViewDefinition
from lockstep.transactions.transaction import Transaction
from tests.support.exports import ROWS, file, serialize_rows, snapshot
from tests.support.faulty import FaultyStorage
from tests.support.lakes import (
    again,
    foreign,
    lay,
    location,
    metadata,
    named,
    open_catalog,
    remove,
    stage,
    stage_new,
    tree,
)
from tests.support.promotions import (
    NEW_ROWS,
    build,
    change,
    clone_to,
    content,
    file_names,
    let_expire,
    promote,
    without_attempt,
)
from tests.support.vectors import stored

OTHER = UUID("77777777-2222-3333-4444-555555555555")
MINUTE = 60_000
ANCIENT = 1_000_000_000_000
"""The year 2001, in milliseconds: longer ago than any retention."""


@pytest.fixture
def catalog(store: FaultyStorage) -> TransactionalCatalog:
    return build(store)


@pytest.fixture
def clone(catalog: TransactionalCatalog, tmp_path: Path) -> TransactionalCatalog:
    return clone_to(catalog, tmp_path / "clone")


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_file_that_is_added_without_data_change_is_copied(
    catalog: TransactionalCatalog, clone: TransactionalCatalog
) -> None:
    """As DataFrame writes with the option dataChange=false add it: the table never had it."""
    change(clone, "b", file("mine", dataChange=False))
    assert promote(clone, catalog).files == 1
    assert file_names(catalog, "b") == ["mine", "p"]
    assert content(catalog, "b", "mine") == NEW_ROWS


def test_a_vector_that_is_added_without_data_change_is_copied(
    catalog: TransactionalCatalog, clone: TransactionalCatalog
) -> None:
    descriptor, vector = stored(serialize_rows(1), 1, OTHER)
    clone.lake.storage.put(f"{location(clone, 'b')}/{file_name(OTHER)}", vector)
    change(clone, "b", file("mine", dataChange=False, deletionVector=descriptor))
    assert promote(clone, catalog).files == 2
    [new] = [body["deletionVector"] for body in snapshot(catalog, "b").files.values() if "deletionVector" in body]
    assert catalog.lake.storage.get(file_path(new, location=location(catalog, "b"), root="")) == vector


def test_the_files_of_commits_that_stay_separate_are_copied(
    catalog: TransactionalCatalog, clone: TransactionalCatalog
) -> None:
    """Commits with change data of their own stay separate, and each names what it brought."""

    def changes(path: str) -> dict[str, Any]:
        return {"cdc": {"path": path, "partitionValues": {}, "size": 5, "dataChange": False}}

    change(clone, "b", file("first"), changes("_change_data/c1"), operation="UPDATE")
    change(clone, "b", remove("first", size=5), file("second"), changes("_change_data/c2"), operation="UPDATE")
    promote(clone, catalog)
    table = catalog.database().tables[named("b")]
    named_files = {
        body["path"]
        for version in range(1, table.version + 1)
        for action in read_published(catalog.lake.storage, table.location, version)
        for kind, body in action.items()
        if kind in ("add", "cdc")
    }
    assert {*map(without_attempt, named_files)} >= {"second", "_change_data/c1", "_change_data/c2"}
    for path in named_files:
        assert catalog.lake.storage.get(f"{table.location}/{path}") == NEW_ROWS, path


def test_what_a_plain_writer_added_to_the_clone_is_promoted(
    catalog: TransactionalCatalog, clone: TransactionalCatalog
) -> None:
    lay(clone.lake.storage, location(clone, "b"), [file("plain")], NEW_ROWS)
    foreign(clone, "b", 1, file("plain"))
    promote(clone, catalog)
    assert file_names(catalog, "b") == ["p", "plain"]
    assert content(catalog, "b", "plain") == NEW_ROWS


@pytest.mark.parametrize("is_behind", [False, True], ids=["ours was moved behind it", "it is behind ours"])
def test_what_a_plain_writer_did_in_the_clone_may_have_read_its_table(
    catalog: TransactionalCatalog, clone: TransactionalCatalog, is_behind: bool
) -> None:
    """It read b before the lake wrote that, and the lake read c before the clone wrote it: neither can be first."""
    storage = FaultyStorage(clone.lake.storage)
    where, version = location(clone, "b"), 2 if is_behind else 1

    def plain() -> None:
        lay(storage.inner, where, [file("plain")], NEW_ROWS)
        foreign(again(clone), "b", version, file("plain"), isBlindAppend=False)

    if not is_behind:
        storage.interrupt("put_if_absent", plain, path=commit_path(where, version))
    change(open_catalog(storage), "b", file("mine"))
    if is_behind:
        plain()
    change(again(clone), "c", file("mine"))
    tx = catalog.begin()
    tx.read(tx.names.table(named("c")))
    stage(catalog, tx, "b", file("theirs"), data=NEW_ROWS)
    catalog.commit(tx)
    with pytest.raises(StaleCloneError):
        promote(again(clone), catalog)
    assert file_names(catalog, "b") == ["p", "theirs"]


def test_a_late_conflict_leaves_nothing_of_the_promotion(
    catalog: TransactionalCatalog, clone: TransactionalCatalog, store: FaultyStorage
) -> None:
    [path] = [path for path, _ in snapshot(clone, "b").files]
    change(clone, "b", remove(path, size=5), file("mine"), operation="UPDATE")
    rival = TransactionalCatalog.open(store.inner.url)
    before = tree(store)

    def interfere() -> None:
        change(rival, "b", remove("p", size=5), file("theirs"), operation="UPDATE")

    store.interrupt("put_if_absent", interfere, path="00000000000000000004.json")
    with pytest.raises(StaleCloneError):
        promote(clone, catalog)
    assert file_names(catalog, "b") == ["theirs"]
    left = {path for path in tree(store) - before if "_delta_log" not in path}
    assert left == {f"{location(catalog, 'b')}/theirs"}


def test_a_promotion_that_is_interrupted_removes_what_it_copied(
    catalog: TransactionalCatalog, clone: TransactionalCatalog, store: FaultyStorage
) -> None:
    change(clone, "b", file("mine"), file("more"))
    before = tree(store)

    def interrupted() -> None:
        raise KeyboardInterrupt

    store.interrupt("put", interrupted, path=".json")  # once all is copied, and is about to be staged
    with pytest.raises(KeyboardInterrupt):
        promote(clone, catalog)
    catalog.lake.upkeep.settle()
    assert tree(store) == before
    assert promote(clone, catalog).files == 2


# --- versions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["tag", "version"])
def test_a_clone_of_an_older_version_is_judged_from_there(
    catalog: TransactionalCatalog, tmp_path: Path, by: str
) -> None:
    catalog.run(lambda tx: tx.changing().create_tag(TagDdl(action="create", name="eod")))
    version = catalog.as_of("eod").version if by == "tag" else 2
    change(catalog, "b", file("theirs"))
    change(catalog, "c", remove("p", size=5), file("gone"), operation="UPDATE")
    clone = clone_to(catalog, tmp_path / "clone", version)
    assert file_names(clone, "b") != file_names(catalog, "b")
    change(clone, "b", file("mine"))
    assert promote(clone, catalog).base_version == version
    assert file_names(catalog, "b") == ["mine", "p", "theirs"]
    second = clone_to(catalog, tmp_path / "second", version)
    [path] = [path for path, _ in snapshot(second, "c").files]
    change(second, "c", remove(path, size=5), file("mine"), operation="UPDATE")
    with pytest.raises(StaleCloneError, match=r"file p of table default\.c"):
        promote(second, catalog)


# --- reads ------------------------------------------------------------------------------------------------------------


def read_columns_of_c(clone: TransactionalCatalog) -> None:
    """Read the columns of c alone, and write b."""
    tx = clone.begin()
    tx.touch(tx.table(named("c")), 1)
    tx.settle([1])
    stage(clone, tx, "b", file("mine"), data=NEW_ROWS)
    clone.commit(tx)


def read_b_and_give_c_a_column(catalog: TransactionalCatalog) -> None:
    tx = catalog.begin()
    tx.read(tx.table(named("b")))
    stage(catalog, tx, "c", metadata("more"), file("theirs"), data=ROWS)
    catalog.commit(tx)


def test_columns_that_the_clone_read_are_judged(catalog: TransactionalCatalog, clone: TransactionalCatalog) -> None:
    read_columns_of_c(clone)
    read_b_and_give_c_a_column(catalog)
    with pytest.raises(StaleCloneError):
        promote(clone, catalog)


def test_rows_that_come_to_a_table_of_which_the_clone_read_columns_are_no_conflict(
    catalog: TransactionalCatalog, clone: TransactionalCatalog
) -> None:
    read_columns_of_c(clone)
    tx = catalog.begin()
    tx.read(tx.table(named("b")))
    stage(catalog, tx, "c", file("theirs"), data=ROWS)
    catalog.commit(tx)
    assert promote(clone, catalog).database_version == 5


def test_a_clone_of_snapshot_transactions_alone_is_judged_as_such(
    catalog: TransactionalCatalog, clone: TransactionalCatalog
) -> None:
    tx = clone.begin(isolation="SNAPSHOT")
    tx.read(tx.table(named("c")))
    stage(clone, tx, "b", file("mine"), data=NEW_ROWS)
    clone.commit(tx)
    tx = catalog.begin()
    tx.read(tx.table(named("b")))
    stage(catalog, tx, "c", file("theirs"), data=ROWS)
    catalog.commit(tx)
    assert promote(clone, catalog).database_version == 5


def write_c(tx: Transaction, catalog: TransactionalCatalog) -> None:
    stage(catalog, tx, "c", file("theirs"), data=ROWS)


def replace_view(tx: Transaction, _: TransactionalCatalog) -> None:
    tx.changing().create_view(named("v"), ViewDefinition(text="SELECT 2", schema="{}"), replace=True)


@pytest.mark.parametrize("do", [write_c, replace_view])
def test_a_clone_whose_versions_have_expired_counts_as_having_read_every_table_and_view(
    catalog: TransactionalCatalog,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    do: Callable[[Transaction, TransactionalCatalog], None],
) -> None:
    view = ViewDefinition(text="SELECT 1", schema="{}")
    catalog.run(lambda tx: tx.changing().create_view(named("v"), view, replace=False))
    clone = clone_to(catalog, tmp_path / "clone")
    for number in range(3):
        change(clone, "b", file(f"mine{number}"))
    let_expire(clone, monkeypatch)
    assert clone.database().expired.first_kept > 1
    tx = catalog.begin()
    tx.read(tx.table(named("b")))
    do(tx, catalog)
    catalog.commit(tx)
    with pytest.raises(StaleCloneError):
        promote(clone, catalog)


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_clone_of_which_the_lake_does_not_know_any_more_what_came_since_is_refused_for_good(
    catalog: TransactionalCatalog,
    clone: TransactionalCatalog,
    store: FaultyStorage,
    monkeypatch: pytest.MonkeyPatch,
    *,
    dry_run: bool,
) -> None:
    """To run it again never helps, and the error says what does."""
    change(clone, "b", file("mine"))
    for number in range(3):
        change(catalog, "c", file(f"theirs{number}"))
    let_expire(catalog, monkeypatch)
    version, before = catalog.database().version, [*store.walk("default")]
    with pytest.raises(
        ExpiredError, match=r"(?s)has expired.*retention-age.*Nothing was committed.*new clone"
    ) as caught:
        promote(clone, catalog, dry_run=dry_run)
    assert not caught.value.retryable
    assert str(clone.lake.storage.url) in caught.value.message
    assert catalog.database().version == version
    assert [*store.walk("default")] == before


# --- names ------------------------------------------------------------------------------------------------------------


def test_names_that_differ_in_case_alone_are_one(catalog: TransactionalCatalog, clone: TransactionalCatalog) -> None:
    """As to a Spark session, unless it says otherwise."""
    for lake, name in ((clone, "NEW"), (catalog, "new")):
        tx = lake.begin(case_sensitive=False)
        stage_new(lake, tx, name, file("x"), data=ROWS)
        lake.commit(tx)
    with pytest.raises((StaleCloneError, DuplicateError)):
        promote(clone, catalog)


def test_namespaces_that_differ_in_case_alone_are_one(
    catalog: TransactionalCatalog, clone: TransactionalCatalog
) -> None:
    clone.run(lambda tx: tx.changing().create_namespace(("NEW",), {}))
    catalog.run(lambda tx: tx.changing().create_namespace(("new",), {}))
    with pytest.raises(StaleCloneError, match="namespace"):
        promote(clone, catalog)


def test_tables_that_swapped_their_names_and_one_that_was_made_anew(
    catalog: TransactionalCatalog, clone: TransactionalCatalog
) -> None:
    tx = clone.begin()
    names = tx.changing()
    for old, new in (("a", "t"), ("b", "a"), ("t", "b")):
        names.rename_table(named(old), named(new))
    names.drop_table(named("c"))
    clone.commit(tx)
    tx = clone.begin()
    stage_new(clone, tx, "c", file("anew"), data=ROWS)
    stage(clone, tx, "a", file("into_b"), data=NEW_ROWS)
    clone.commit(tx)
    promote(clone, catalog)
    assert {name: file_names(catalog, name) for name in "abc"} == {
        "a": ["into_b", "p"],
        "b": ["p", "q%20r"],
        "c": ["anew"],
    }


def test_a_view_that_was_dropped_and_one_that_was_renamed(catalog: TransactionalCatalog, tmp_path: Path) -> None:
    kept, gone = ViewDefinition(text="SELECT 1", schema="{}"), ViewDefinition(text="SELECT 2", schema="{}")

    def make(tx: Any) -> None:
        tx.changing().create_view(named("v"), kept, replace=False)
        tx.changing().create_view(named("w"), gone, replace=False)

    catalog.run(make)
    clone = clone_to(catalog, tmp_path / "clone")

    def drop(tx: Any) -> None:
        tx.changing().drop_view(named("w"))
        tx.changing().drop_view(named("v"))
        tx.changing().create_view(named("w"), kept, replace=False)

    clone.run(drop)
    promote(clone, catalog)
    assert {str(name): view.definition for name, view in catalog.database().views.items()} == {"default.w": kept}


def test_a_namespace_that_the_clone_dropped_and_the_lake_filled(
    catalog: TransactionalCatalog, clone: TransactionalCatalog
) -> None:
    clone.run(lambda tx: tx.changing().drop_namespace(("sales",), cascade=False))
    tx = catalog.begin()
    stage_new(catalog, tx, "sales.t", file("x"), data=ROWS)
    catalog.commit(tx)
    with pytest.raises(StaleCloneError, match="namespace"):
        promote(clone, catalog)


# --- time -------------------------------------------------------------------------------------------------------------


def test_a_file_is_removed_when_it_is_promoted_and_not_when_the_clone_removed_it(
    catalog: TransactionalCatalog, clone: TransactionalCatalog
) -> None:
    """Delta's VACUUM counts from there, and who reads the lake has had the file until now."""
    [path] = [path for path, _ in snapshot(clone, "b").files]
    change(clone, "b", remove(path, size=5, deletionTimestamp=ANCIENT), file("mine"), operation="UPDATE")
    began = int(time.time() * 1000)
    promote(clone, catalog)
    [gone] = bodies(read_published(catalog.lake.storage, location(catalog, "b"), 1), "remove")
    assert began - MINUTE < gone["deletionTimestamp"]


def test_rows_are_as_old_as_the_promotion_to_who_travels_in_time(
    catalog: TransactionalCatalog, clone: TransactionalCatalog
) -> None:
    lake_file = file("mine")
    foreign(clone, "b", 1, lake_file, inCommitTimestamp=ANCIENT)
    lay(clone.lake.storage, location(clone, "b"), [lake_file], NEW_ROWS)
    began = int(time.time() * 1000)
    promote(clone, catalog)
    [info] = bodies(read_published(catalog.lake.storage, location(catalog, "b"), 1), "commitInfo")
    assert began - MINUTE < info["inCommitTimestamp"]


# --- protocols --------------------------------------------------------------------------------------------------------


def protocol(*features: str, reader: int = 3, writer: int = 7) -> dict[str, Any]:
    lists = {"readerFeatures": list(features), "writerFeatures": list(features)} if writer == 7 else {}
    return {"minReaderVersion": reader, "minWriterVersion": writer, **lists}


@pytest.mark.parametrize(
    ("before", "between", "now", "says"),
    [
        (protocol(), [], protocol(), None),
        (protocol(reader=1, writer=2), [protocol("v2Checkpoint")], protocol("v2Checkpoint"), None),
        (protocol("v2Checkpoint"), [], protocol(), "the clone dropped v2Checkpoint"),
        (protocol("deletionVectors"), [], protocol(reader=1, writer=2), "the clone dropped deletionVectors"),
        (protocol(reader=2, writer=5), [], protocol(reader=1, writer=2), "the clone dropped a version"),
        (protocol(), [protocol("rowTracking")], protocol(), "rowTracking"),
        (protocol(), [protocol("x9")], protocol(), "the table feature x9"),
        (protocol(), [protocol(reader=4)], protocol(), "newer"),
    ],
)
def test_what_a_protocol_of_a_clone_says_of_promotion(
    clone: TransactionalCatalog,
    before: dict[str, Any],
    between: list[dict[str, Any]],
    now: dict[str, Any],
    says: str | None,
) -> None:
    table = clone.database().tables[named("a")]
    if says is None:
        check_protocols(table, before, between, Snapshot(protocol=now))
    else:
        with pytest.raises(UnsupportedError, match=says):
            check_protocols(table, before, between, Snapshot(protocol=now))
