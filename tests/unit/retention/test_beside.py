"""What a VACUUM of Delta's is told to let stay that it cannot see in the table: open transactions, and slow readers."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.commit.records import open_transactions, record_of, write
from lockstep.delta.log import log_files, staging_folder
from lockstep.errors import MissingFilesError
from lockstep.retention.ages import Retention
from lockstep.retention.beside import beside, need_within
from lockstep.retention.expiring import expire_snapshots
from lockstep.retention.planning import need_at
from lockstep.retention.upkeep import vacuum
from lockstep.timeline.entry import TagDdl
from lockstep.transactions.transaction import Transaction
from tests.support.lakes import add, append, create, location, named, open_catalog, remove, stage, stage_new
from tests.support.retained import AgedStorage, Ticking

DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
CLOCKS = timedelta(minutes=10)


@pytest.fixture
def catalog(aged: AgedStorage, clock: Ticking) -> TransactionalCatalog:
    """A lake with the table a, and database version 2, in which it has the file p."""
    catalog = open_catalog(aged, clock=clock)
    create(catalog, "a", files=["p"])
    return catalog


def change(catalog: TransactionalCatalog, *actions: Any) -> int:
    tx = catalog.begin()
    stage(catalog, tx, "a", *actions)
    return catalog.commit(tx).version


def opened(catalog: TransactionalCatalog, *actions: Any) -> Transaction:
    tx = catalog.begin()
    stage(catalog, tx, "a", *actions)
    return tx


def expire(catalog: TransactionalCatalog) -> None:
    expire_snapshots(catalog.lake, older_than=catalog.lake.clock(), retain_last=1, grace=timedelta())


# --- open transactions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("told", ["by a record", "by this process", "by nobody"])
def test_what_an_open_transaction_wrote_stays(catalog: TransactionalCatalog, clock: Ticking, told: str) -> None:
    began = clock.now
    tx = opened(catalog, add("new"))
    clock.now += 3 * HOUR
    record = record_of(tx, now=clock(), process="elsewhere:1")
    if told == "by a record":
        write(catalog.lake, record)
    found = beside(catalog.lake, location(catalog, "a"), DAY, [record] if told == "by this process" else [])
    assert found.files == {"new"}, "it is staged, whoever knows of the transaction"
    if told == "by nobody":
        assert clock.now - found.since < timedelta(seconds=1)
    else:
        assert began - CLOCKS <= found.since <= tx.began_at - CLOCKS, "what its statements are writing is not staged"
    catalog.commit(tx)
    assert beside(catalog.lake, location(catalog, "a"), DAY, []).files == set(), "its entry says it now"


def test_a_transaction_that_has_not_been_seen_for_a_day_keeps_what_it_staged_and_nothing_younger(
    catalog: TransactionalCatalog, clock: Ticking
) -> None:
    tx = opened(catalog, add("new"))
    write(catalog.lake, record_of(tx, now=clock(), process="elsewhere:1"))
    clock.now += 2 * DAY
    found = beside(catalog.lake, location(catalog, "a"), DAY, [])
    assert found.files == {"new"}
    assert clock.now - found.since < timedelta(seconds=1)


def test_where_a_staged_commit_cannot_be_read_nothing_is_deleted(catalog: TransactionalCatalog) -> None:
    place = location(catalog, "a")
    catalog.lake.storage.put(f"{staging_folder(place, 'x')}/{1:020d}.json", b"{")
    with pytest.raises(MissingFilesError, match=r"nothing was deleted.*remove_orphan_files"):
        beside(catalog.lake, place, DAY, [])


@pytest.mark.parametrize("how", ["dropped", "renamed"])
def test_what_a_table_shares_stays_that_a_transaction_makes_under_the_name_of_another(
    catalog: TransactionalCatalog, clock: Ticking, how: str
) -> None:
    """By that name others know the folder of the other table alone, and the new one's only the store knows."""
    create(catalog, "b", files=["x"])
    place = location(catalog, "b")
    tx = catalog.begin()
    if how == "dropped":
        tx.changing().drop_table(named("a"))
    else:
        tx.changing().rename_table(named("a"), named("c"))
    stage_new(catalog, tx, "a", add(f"{catalog.lake.storage.url}/{place}/x", modificationTime=1))
    record = record_of(tx, now=clock(), process="elsewhere:1")
    write(catalog.lake, record)
    assert (record.tables, record.names) == ((named("a"),) * 2, (named("a"),))
    assert [each.tables for each in open_transactions(catalog.lake)] == [record.tables]
    assert beside(catalog.lake, place, DAY, []).files == {"x"}
    tx_b = catalog.begin()
    stage(catalog, tx_b, "b", remove("x", deletionTimestamp=clock.ms), add("y"))
    catalog.commit(tx_b)
    append(catalog, "b", "z")
    expire(catalog)
    clock.now += 9 * DAY
    write(catalog.lake, record_of(tx, now=clock(), process="elsewhere:1"))
    for _ in range(2):
        assert vacuum(catalog.lake, Retention.of({}), table=named("b")).paths == ()
        clock.now += DAY / 2
        write(catalog.lake, record_of(tx, now=clock(), process="elsewhere:1"))
    clock.now += 0.9 * DAY
    assert vacuum(catalog.lake, Retention.of({}), table=named("b")).waiting_files == 0


# --- slow readers -----------------------------------------------------------------------------------------------------


def first(catalog: TransactionalCatalog, grace: timedelta, at: datetime) -> int | None:
    place = location(catalog, "a")
    log = log_files(catalog.lake.storage, place)
    catalog.lake.refresh()
    return need_within(catalog.lake, place, need_at(catalog.lake, place), at - grace, log).first


def test_what_a_version_needs_stays_for_the_grace_period_after_it_expired(
    catalog: TransactionalCatalog, clock: Ticking
) -> None:
    clock.now += DAY
    change(catalog, remove("p"), add("q"))
    change(catalog, remove("q"), add("r"))
    assert first(catalog, DAY, clock.now) == 0, "it can be read"
    clock.now += DAY
    expire(catalog)
    assert first(catalog, DAY, clock.now) == 0
    assert first(catalog, timedelta(), clock.now) == 2
    append(catalog, "a", "s")
    clock.now += HOUR
    expire(catalog)
    assert first(catalog, HOUR / 2, clock.now) == 2, "an earlier expiry is over"
    assert first(catalog, DAY, clock.now) == 0, "of two within it the older one counts"
    clock.now += DAY
    assert first(catalog, DAY, clock.now) == 3


def test_so_does_what_a_tag_kept(catalog: TransactionalCatalog, clock: Ticking) -> None:
    catalog.run(lambda tx: tx.changing().create_tag(TagDdl(action="create", name="eod", version=2)))
    change(catalog, remove("p"), add("q"))
    append(catalog, "a", "r")
    expire(catalog)
    clock.now += 9 * DAY
    assert first(catalog, DAY, clock.now) == 2
    catalog.run(lambda tx: tx.changing().drop_tag("eod"))
    expire(catalog)
    assert first(catalog, DAY, clock.now) == 0
    assert first(catalog, timedelta(), clock.now) == 2


def test_a_table_that_was_made_since_needs_its_first_version(catalog: TransactionalCatalog, clock: Ticking) -> None:
    create(catalog, "b", files=["x"])
    append(catalog, "b", "y")
    append(catalog, "a", "z")
    expire(catalog)
    place = location(catalog, "b")
    log = log_files(catalog.lake.storage, place)
    assert need_within(catalog.lake, place, need_at(catalog.lake, place), clock.now - DAY, log).first == 0


def test_what_the_log_does_not_tell_of_any_more_is_not_asked_for(catalog: TransactionalCatalog, clock: Ticking) -> None:
    change(catalog, remove("p"), add("q"))
    change(catalog, remove("q"), add("r"))
    expire(catalog)
    place = location(catalog, "a")
    catalog.lake.storage.delete(f"{place}/_delta_log/{0:020d}.json")
    assert first(catalog, DAY, clock.now) == 2, "no version before it can be told"


def test_what_is_marked_stays_until_its_grace_period_is_over(catalog: TransactionalCatalog, clock: Ticking) -> None:
    change(catalog, remove("p", deletionTimestamp=clock.ms), add("q"))
    append(catalog, "a", "r")
    expire(catalog)
    clock.now += 9 * DAY
    vacuum(catalog.lake, Retention.of({}))
    place = location(catalog, "a")
    assert beside(catalog.lake, place, DAY, []).files == {"p"}
    clock.now += DAY
    assert beside(catalog.lake, place, DAY, []).files == set()
