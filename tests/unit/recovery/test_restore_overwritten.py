"""RESTORE DATABASE and revert, where a plain writer wrote over a commit that is not a table's newest, as on S3."""

from __future__ import annotations

import pytest
from msgspec import structs

from lockstep.catalog import TransactionalCatalog
from lockstep.delta.actions import render
from lockstep.delta.log import commit_path
from lockstep.errors import ForeignCommitError
from lockstep.exports.tagged import create_tag
from lockstep.lake.kept_states import snapshot_of
from lockstep.recovery.changes import restore_to, revert
from lockstep.recovery.restore import Selection, TableRestore
from lockstep.recovery.tags import new_tag
from tests.support.entries import T0
from tests.support.faulty import FaultyStorage
from tests.support.lakes import append, create, location, named, open_catalog, remove


def whole(store: FaultyStorage) -> TransactionalCatalog:
    """Return a lake with a table of three versions, the second of which is about to be written over."""
    catalog = open_catalog(store)
    create(catalog, "t", files=["p"])
    append(catalog, "t", "q")
    append(catalog, "t", "r")
    catalog.lake.upkeep.settle()
    return catalog


def write_over(catalog: TransactionalCatalog) -> TransactionalCatalog:
    store = catalog.lake.storage
    store.put(commit_path(location(catalog, "t"), 1), render([{"commitInfo": {"operation": "WRITE"}}, remove("p")]))
    return open_catalog(store)


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize("beside", [False, True])
def test_a_table_is_not_taken_back_to_what_was_written_over(
    store: FaultyStorage, *, beside: bool, dry_run: bool
) -> None:
    """Who reads that version is told the same. The one before is as it was."""
    first = whole(store).timeline.head.version - 2
    catalog = write_over(open_catalog(store))
    tx = catalog.begin()
    with pytest.raises(ForeignCommitError, match=r"wrote over version 1"):
        restore_to(catalog.lake, tx, catalog.as_of(first + 1), Selection(everything=True), dry_run=dry_run)
    with pytest.raises(ForeignCommitError, match=r"wrote over version 1"):
        revert(catalog.lake, tx, first + 2, beside=beside, dry_run=dry_run)
    if beside:
        with pytest.raises(ForeignCommitError, match=r"wrote over version 1"):
            revert(catalog.lake, tx, first + 1, beside=True, dry_run=dry_run)
    restored = restore_to(catalog.lake, tx, catalog.as_of(first), Selection(everything=True), dry_run=dry_run)
    assert restored == [TableRestore(named("t"), 0)]
    catalog.rollback(tx)


def test_a_table_is_taken_back_to_what_a_tag_keeps_though_it_was_written_over(store: FaultyStorage) -> None:
    catalog = whole(store)
    second = catalog.timeline.head.version - 1
    ddl = new_tag("then", version=second, days=None, comment="", now=T0)
    catalog.run(lambda tx: create_tag(catalog.lake, tx, ddl, check=False))
    catalog.lake.upkeep.settle()
    catalog = write_over(catalog)
    tx = catalog.begin()
    restored = restore_to(catalog.lake, tx, catalog.as_of("then"), Selection(everything=True))
    assert restored == [TableRestore(named("t"), 1)]
    table = structs.replace(tx.names.table(named("t")), version=1)
    assert {path for path, _ in snapshot_of(catalog.lake.storage, table).files} == {"p", "q"}
    catalog.rollback(tx)
