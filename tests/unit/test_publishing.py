"""Publishing: what keeps a ratified commit waiting, and whom it keeps waiting with it."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.delta.log import commit_path
from lockstep.errors import CorruptTimelineError, UnavailableError
from lockstep.lake.publisher import Progress
from lockstep.timeline.entry import INLINE_BYTES
from lockstep.timeline.hint import HINT
from tests.support.faulty import FaultyStorage
from tests.support.lakes import (
    add,
    append,
    create,
    files,
    location,
    log_file,
    named,
    open_catalog,
    stage,
)


def test_a_table_that_cannot_be_published_keeps_no_other_waiting(
    catalog: TransactionalCatalog, store: FaultyStorage, caplog: pytest.LogCaptureFixture
) -> None:
    tx = catalog.begin()
    stage(catalog, tx, "a", add("x"))
    stage(catalog, tx, "b", add("y"))
    store.fail("put_if_absent", path=log_file(catalog, "a", 1), times=100)
    with caplog.at_level(logging.WARNING):
        assert catalog.commit(tx).version == 2
    assert catalog.begin().base.version == 2
    assert files(catalog, "b") == {"p", "y"}
    told = [record for record in caplog.records if "table default.a" in record.getMessage()]
    assert [record.levelname for record in told] == ["WARNING"], "said once, and nothing is wrong with the table"
    assert "database version 2 is committed, but not in the log of table default.a yet" in told[0].getMessage()
    assert "the next use tries again" in told[0].getMessage()
    with pytest.raises(UnavailableError, match="injected"):
        catalog.database([named("a")])
    store.heal()
    assert files(catalog, "a") == {"p", "x"}


def test_threads_know_together_what_is_published() -> None:
    """Each says what it has seen; what one has published, the other need not have."""
    one = Progress(5, frozenset({(2, "a"), (4, "b")}))
    two = Progress(3, frozenset({(3, "c")}))
    assert one.union(two) == two.union(one) == Progress(5, frozenset({(4, "b")}))
    assert one.union(Progress(4)) == Progress(5)
    assert one.union(Progress()) == one


def test_a_lake_forgets_what_was_dropped(catalog: TransactionalCatalog, store: FaultyStorage) -> None:
    for n in range(5):
        create(catalog, f"t{n}")
        tx = catalog.begin()
        stage(catalog, tx, f"t{n}", add("x"))
        store.fail("put_if_absent", path=log_file(catalog, f"t{n}", 1))
        catalog.commit(tx)
        catalog.run(lambda tx, n=n: tx.changing().drop_table(named(f"t{n}")))  # type: ignore[misc]
    catalog.database([named("a"), named("b")])
    ids = {table.id for table in catalog.timeline.head.tables.values()}
    assert {id_ for _, id_ in catalog.lake.publisher._errors} <= ids


def test_of_many_tables_all_that_can_be_are_published(catalog: TransactionalCatalog, store: FaultyStorage) -> None:
    """More than threads: the failure of one must not take the others' turn."""
    names = [f"t{n:02}" for n in range(20)]
    create(catalog, *names)
    tx = catalog.begin()
    for name in names:
        stage(catalog, tx, name, add("x"))
    store.fail("put_if_absent", path=log_file(catalog, "t00", 1))
    catalog.commit(tx)
    assert [name for name in names if not store.exists(log_file(catalog, name, 1))] == ["t00"]


def test_a_staged_commit_that_somebody_removed_is_named(
    catalog: TransactionalCatalog, store: FaultyStorage, tmp_path: Path
) -> None:
    tx = catalog.begin()
    stage(catalog, tx, "a", add("x", tags={"why": "x" * INLINE_BYTES}))
    store.fail("put_if_absent", path=log_file(catalog, "a", 1))
    catalog.commit(tx)
    [staged] = (tmp_path / "lake").rglob("commit-*.json")
    staged.unlink()
    with pytest.raises(CorruptTimelineError, match=r"neither its staged file \(.*/commit-.*json\) nor its published"):
        catalog.database([named("a")])
    assert files(catalog, "b") == {"p"}


def test_refresh_returns_no_head_that_is_not_published(catalog: TransactionalCatalog, store: FaultyStorage) -> None:
    """What another thread ratifies while we publish is not shown yet: its table's log may not have it."""
    tx, late = catalog.begin(), catalog.begin()
    stage(catalog, tx, "a", add("x"))
    stage(catalog, late, "b", add("y"))
    store.fail("put_if_absent", path=log_file(catalog, "a", 1))
    catalog.commit(tx)

    def ratify_another() -> None:
        store.fail("put_if_absent", path=log_file(catalog, "b", 1))
        catalog.commit(late)

    store.interrupt("put_if_absent", ratify_another, path=log_file(catalog, "a", 1))
    database = catalog.lake.refresh()
    assert catalog.timeline.head.version == 3
    assert database.version == 2
    for table in database.tables.values():
        assert store.exists(commit_path(table.location, table.version))


def test_a_lost_hint_costs_time_and_nothing_else(catalog: TransactionalCatalog, store: FaultyStorage) -> None:
    """Old commits may be gone by then from the log (Delta's clean-up) and from staging: they were published."""
    tx = catalog.begin()
    stage(catalog, tx, "a", add("x", tags={"why": "x" * INLINE_BYTES}))
    catalog.commit(tx)
    append(catalog, "a", "y")
    store.delete(HINT)
    store.delete(log_file(catalog, "a", 0))
    store.delete(log_file(catalog, "a", 1))
    store.put(f"{location(catalog, 'a')}/_delta_log/{2:020d}.checkpoint.parquet", b"PAR1")
    again = open_catalog(store.inner)
    assert again.database([named("a")]).tables[named("a")].version == 2
    assert again.timeline.published_through == 3
