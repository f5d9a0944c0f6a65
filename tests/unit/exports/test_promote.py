"""Promoting a clone without Spark: what lands in the lake, what is refused, and what a kill at any moment leaves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.delta.actions import bodies
from lockstep.delta.combine.deletion_vectors import file_name
from lockstep.delta.log import read_published
from lockstep.errors import (
    ConflictError,
    InvalidError,
    LockstepError,
    MissingFilesError,
    StaleCloneError,
    UndefinedError,
    UnsupportedError,
)
from lockstep.exports.export import Asked, Exporter
from lockstep.lake.exports import drop_export, read_exports
from lockstep.storage import Storage, open_storage
from lockstep.timeline.entry import Batch, ViewDefinition
from tests.support.exports import ROWS, file, serialize_rows, snapshot
from tests.support.faulty import FaultyStorage
from tests.support.lakes import location, metadata, named, open_catalog, remove, stage, stage_new, tree
from tests.support.promotions import (
    NEW_ROWS,
    build,
    change,
    check_promoted,
    clone_to,
    file_names,
    promote,
    rewrite,
)
from tests.support.vectors import stored


@pytest.fixture
def catalog(store: FaultyStorage) -> TransactionalCatalog:
    return build(store)


@pytest.fixture
def clone(catalog: TransactionalCatalog, tmp_path: Path) -> TransactionalCatalog:
    """A clone of it, of database version 2, in which nothing is changed; version 3 of the lake is the fence."""
    return clone_to(catalog, tmp_path / "clone")


def test_what_was_changed_in_a_clone_is_one_transaction_of_the_lake(
    catalog: TransactionalCatalog, clone: TransactionalCatalog
) -> None:
    rewrite(clone)
    done = promote(clone, catalog)
    check_promoted(catalog)
    assert (done.clone_version, done.base_version, done.database_version) == (2, 2, 4)
    assert (done.tables, done.files, done.size, done.is_done) == (4, 5, 20, True)
    [entry] = catalog.timeline.entries(3, 4)
    [export] = read_exports(catalog.lake.storage)
    assert entry.transaction.message == (
        f"promoted from {clone.lake.storage.url}, database version 2 (export {export.id}, "
        f"transaction {clone.timeline.entries(1, 2)[0].transaction.id})"
    )
    assert (entry.transaction.author, entry.transaction.base_version) == ("ada", 2)
    assert entry.batch == Batch(application=f"lockstep clone {export.id}", number=2)


def test_the_table_is_the_same_one_to_streams_and_keeps_its_properties(
    catalog: TransactionalCatalog, clone: TransactionalCatalog
) -> None:
    before = snapshot(catalog, "a").metadata
    new = metadata("more", **{"delta.appendOnly": "false"})["metaData"]
    change(clone, "a", {"metaData": {**new, "id": snapshot(clone, "a").metadata["id"]}}, file("new"))
    promote(clone, catalog)
    after = snapshot(catalog, "a").metadata
    assert (after["id"], after["configuration"]) == (before["id"], {"delta.appendOnly": "false"})
    assert "more" in after["schemaString"]


def test_a_table_that_was_made_in_the_clone_is_there_from_the_promotion_on(
    catalog: TransactionalCatalog, clone: TransactionalCatalog
) -> None:
    """Else it could be read as of a time at which the lake had no such table."""
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["inCommitTimestamp"]}
    tx = clone.begin()
    start = [{"protocol": protocol}, metadata(**{"delta.enableInCommitTimestamps": "true"})]
    stage_new(clone, tx, "made", file("p"), start=start, data=NEW_ROWS)
    clone.commit(tx)
    since = catalog.lake.clock()
    promote(clone, catalog)
    [info] = bodies(read_published(catalog.lake.storage, location(catalog, "made"), 0), "commitInfo")
    assert info["inCommitTimestamp"] >= int(since.timestamp() * 1000)


def test_nothing_is_written_by_a_dry_run_nor_where_nothing_was_changed(
    catalog: TransactionalCatalog, clone: TransactionalCatalog, store: FaultyStorage
) -> None:
    assert promote(clone, catalog).database_version is None
    rewrite(clone)
    before = tree(store)
    planned = promote(clone, catalog, dry_run=True)
    assert (planned.tables, planned.files, planned.database_version, planned.is_done) == (4, 5, None, False)
    assert (tree(store), catalog.database().version) == (before, 3)


def test_others_may_go_on_beside_a_clone(catalog: TransactionalCatalog, clone: TransactionalCatalog) -> None:
    change(clone, "b", file("mine"))
    change(catalog, "b", file("theirs"))
    change(catalog, "a", remove("p"), file("rewritten"), operation="OPTIMIZE")
    assert promote(clone, catalog).database_version == 6
    assert file_names(catalog, "b") == ["mine", "p", "theirs"]


@pytest.mark.parametrize("dry_run", [False, True])
def test_what_the_lake_changed_too_is_a_conflict_and_nothing_is_written(
    catalog: TransactionalCatalog, clone: TransactionalCatalog, store: FaultyStorage, dry_run: bool
) -> None:
    rewrite(clone)
    change(catalog, "a", remove("p"), file("theirs"), operation="UPDATE")
    before = tree(store)
    with pytest.raises(
        StaleCloneError, match=r"(?s)database version 4\) changed file p of table default\.a.*Make a new clone"
    ) as caught:
        promote(clone, catalog, dry_run=dry_run)
    assert not isinstance(caught.value, ConflictError), "who catches that runs it again"
    assert (caught.value.retryable, caught.value.sqlstate) == (False, "55000")
    assert "; run it again" not in caught.value.message
    assert (tree(store), catalog.database().version) == (before, 4)


def test_rows_of_one_file_are_judged_before_anything_is_copied(
    catalog: TransactionalCatalog, clone: TransactionalCatalog, store: FaultyStorage
) -> None:
    """The clone took row 1 of `q r`, in a deletion vector that the lake does not have yet."""
    rewrite(clone)
    [old] = [body for body in snapshot(catalog, "a").files.values() if "deletionVector" in body]
    third = UUID("77777777-2222-3333-4444-555555555555")
    descriptor, vector = stored(serialize_rows(0, 1), 2, third)
    store.put(f"{location(catalog, 'a')}/{file_name(third)}", vector)
    gone = remove(old["path"], size=5, deletionVector=old["deletionVector"])
    change(catalog, "a", gone, {"add": {**old, "deletionVector": descriptor}}, operation="DELETE")
    before = tree(store)
    with pytest.raises(StaleCloneError, match="row"):
        promote(clone, catalog)
    assert tree(store) == before


def test_what_the_clone_read_is_judged_too(catalog: TransactionalCatalog, clone: TransactionalCatalog) -> None:
    tx = clone.begin()
    tx.read(tx.table(named("c")))
    stage(clone, tx, "b", file("mine"), data=NEW_ROWS)
    clone.commit(tx)
    tx = catalog.begin()
    tx.read(tx.table(named("b")))
    stage(catalog, tx, "c", file("theirs"), data=ROWS)
    catalog.commit(tx)
    with pytest.raises(StaleCloneError):
        promote(clone, catalog)


def test_it_happens_once(catalog: TransactionalCatalog, clone: TransactionalCatalog) -> None:
    rewrite(clone)
    done = promote(clone, catalog)
    again = promote(clone, catalog)
    assert (again.database_version, again.tables, catalog.database().version) == (done.database_version, 4, 4)
    change(clone, "a", file("later"))
    with pytest.raises(InvalidError, match=r"was promoted at its database version 2, which is database version 4"):
        promote(clone, catalog)
    assert catalog.database().version == 4


def test_of_two_at_once_one_is_the_promotion_and_its_files_stay(
    catalog: TransactionalCatalog, clone: TransactionalCatalog, store: FaultyStorage
) -> None:
    rewrite(clone)
    rival = open_catalog(store.inner)
    store.interrupt("put_if_absent", lambda: promote(clone, rival), path="00000000000000000004.json")
    assert promote(clone, catalog).database_version == 4
    check_promoted(catalog)
    assert catalog.database().version == 4


def refuse_row_ids(clone: TransactionalCatalog) -> None:
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [], "writerFeatures": ["rowTracking"]}
    change(clone, "a", {"protocol": protocol}, file("new"))


def refuse_unknown_feature(clone: TransactionalCatalog) -> None:
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["x9"], "writerFeatures": ["x9"]}
    change(clone, "a", {"protocol": protocol}, file("new"))


def refuse_view(clone: TransactionalCatalog) -> None:
    view = ViewDefinition(text="SELECT 1", schema="{}")
    clone.run(lambda tx: tx.changing().create_view(named("v"), view, replace=False))


def refuse_stream(clone: TransactionalCatalog) -> None:
    tx = clone.begin(batch=Batch(application="load", number=1))
    stage(clone, tx, "a", file("new"), data=NEW_ROWS)
    clone.commit(tx)


def refuse_protection(clone: TransactionalCatalog) -> None:
    change(clone, "a", metadata(**{"delta.requireCheckpointProtectionBeforeVersion": "1"}), file("new"))


def refuse_strange_file(clone: TransactionalCatalog) -> None:
    change(clone, "a", file("file:/elsewhere/x"))


@pytest.mark.parametrize(
    ("do", "says"),
    [
        (refuse_row_ids, r"table default\.a cannot be promoted: it has the table feature rowTracking"),
        (refuse_unknown_feature, "the table feature x9"),
        (refuse_view, r"view default\.v cannot be promoted"),
        (refuse_stream, "streaming application load"),
        (refuse_protection, "requireCheckpointProtectionBeforeVersion"),
        (refuse_strange_file, "names file:/elsewhere/x"),
    ],
)
def test_what_cannot_be_promoted_is_refused_by_name(
    catalog: TransactionalCatalog,
    clone: TransactionalCatalog,
    store: FaultyStorage,
    do: Callable[[TransactionalCatalog], None],
    says: str,
) -> None:
    do(clone)
    before = tree(store)
    with pytest.raises((UnsupportedError, InvalidError), match=says):
        promote(clone, catalog)
    assert tree(store) == before


def test_a_clone_that_is_kept_no_more_is_refused(catalog: TransactionalCatalog, clone: TransactionalCatalog) -> None:
    change(clone, "a", file("new"))
    [record] = read_exports(catalog.lake.storage)
    drop_export(catalog.lake.storage, record.id)
    with pytest.raises(UndefinedError, match=f"export {record.id}"):
        promote(clone, catalog)


def test_what_is_no_clone_is_refused(
    catalog: TransactionalCatalog, clone: TransactionalCatalog, tmp_path: Path
) -> None:
    with pytest.raises(InvalidError, match="is no clone"):
        promote(catalog, catalog)
    with pytest.raises(InvalidError, match="is a clone of"):
        promote(clone, clone)
    Exporter(catalog.lake).run(Asked(to=str(tmp_path / "full"), mode="full"))
    with pytest.raises(UnsupportedError, match="is a full export"):
        promote(TransactionalCatalog.open(str(tmp_path / "full")), catalog)


def test_a_file_that_is_lost_is_named(catalog: TransactionalCatalog, clone: TransactionalCatalog) -> None:
    change(clone, "a", file("new"))
    clone.lake.storage.delete(f"{location(clone, 'a')}/new")
    with pytest.raises(MissingFilesError, match="new"):
        promote(clone, catalog)


@pytest.mark.parametrize("which", ["origin", "clone"])
def test_a_kill_at_any_call_leaves_nothing_visible_and_the_same_again_completes_it(tmp_path: Path, which: str) -> None:
    """To be killed after a call is to be killed before the next one.

    A lake is used again as long as nothing of the promotion is visible: a kill finds what the kills before it left.
    Every so many calls it is a new one, so that kills find nothing, too.
    """
    number, lakes = 0, 1
    root, there = changed_pair(tmp_path, lakes)
    while number < MOST_CALLS:
        number += 1
        (root if which == "origin" else there).die_at(number)
        try:
            clone, lake = opened_both(there, root)
            promote(clone, lake)
            has_ended = True
        except LockstepError:
            has_ended = False
        root.heal()
        there.heal()
        if open_catalog(root.inner).database().version == 3:
            assert file_names(open_catalog(root.inner), "a") == ["p", "q%20r"]
            if number % FRESH:
                continue
        clone, lake = opened_both(there.inner, root.inner)
        assert promote(clone, lake).database_version == 4, f"call {number}"
        check_promoted(open_catalog(root.inner))
        if has_ended:
            break
        lakes += 1
        root, there = changed_pair(tmp_path, lakes)
    assert 10 < number < MOST_CALLS


MOST_CALLS = 1_000
FRESH = 5
"""After so many calls, a promotion that was killed is completed, and the next one begins with new lakes."""


def opened_both(clone: Storage, lake: Storage) -> tuple[TransactionalCatalog, TransactionalCatalog]:
    """Open both lakes as a process of its own would."""
    return open_catalog(clone), open_catalog(lake)


def changed_pair(tmp_path: Path, number: int) -> tuple[FaultyStorage, FaultyStorage]:
    """Return the stores of a new lake and of a clone of it in which something was changed."""
    root = FaultyStorage(open_storage(str(tmp_path / f"lake{number}"), create=True))
    Exporter(build(root).lake).run(Asked(to=str(tmp_path / f"clone{number}"), mode="partial"))
    there = FaultyStorage(open_storage(str(tmp_path / f"clone{number}")))
    rewrite(open_catalog(there))
    return root, there
