"""What a transaction leaves in memory once it has ended: nothing, whichever way it ended."""

from __future__ import annotations

import gc
import logging
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from weakref import ref

import pyarrow as pa
import pytest

import lockstep
from lockstep.catalog import TransactionalCatalog
from lockstep.commit import keeping, records
from lockstep.commit.ended import this_process
from lockstep.conflict.lock_policy import Policy, Resolution
from lockstep.errors import CommitUnknownError, ConflictError, FailedTransactionError, LockstepError, UnavailableError
from lockstep.lake import publisher
from lockstep.spark.host.host import Host
from lockstep.spark.host.lakehouses import Lakehouse
from lockstep.spark.host.transactions import end_unasked
from lockstep.spark.host.uris import Uris
from lockstep.storage import open_storage
from lockstep.tables.opened import OpenLake
from lockstep.tables.transaction import LakeTransaction
from lockstep.timeline import history
from lockstep.timeline.files import entry_path
from lockstep.transactions.transaction import Transaction
from tests.support.client import Client
from tests.support.faulty import FaultyStorage
from tests.support.lakes import add, create, log_file, named, open_catalog, remove, stage
from tests.support.unsynced import UnsyncedStorage

# What is done behind an answer is done by threads, as it is for users.
pytestmark = [pytest.mark.behind, pytest.mark.long]


@pytest.fixture(autouse=True)
def _nothing_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """What pytest keeps for its report of a test that fails refers to errors."""
    with caplog.at_level(logging.CRITICAL + 1, "lockstep"):
        yield


SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture
def catalog(tmp_path: Path) -> TransactionalCatalog:
    """A lake with the tables a and b."""
    catalog = open_catalog(open_storage(str(tmp_path / "lake"), create=True))
    create(catalog, "a", "b", files=["p"])
    return catalog


def left(catalog: TransactionalCatalog, end: Callable[[], Transaction]) -> object:
    """Return a transaction that `end` has brought to its end if anything refers to it yet, else None."""
    gone = ref(end())
    catalog.lake.upkeep.settle()
    gc.collect()
    return gone()


def staged(catalog: TransactionalCatalog) -> Transaction:
    tx = catalog.begin()
    stage(catalog, tx, "a", add("q"))
    return tx


def committed(catalog: TransactionalCatalog) -> Transaction:
    tx = staged(catalog)
    catalog.commit(tx)
    return tx


def rolled_back(catalog: TransactionalCatalog) -> Transaction:
    tx = staged(catalog)
    catalog.rollback(tx)
    return tx


def taken_back_to_a_savepoint(catalog: TransactionalCatalog) -> Transaction:
    tx = catalog.begin()
    stage(catalog, tx, "a", add("q"))
    for name in ("one", "two"):
        tx.savepoint(name)
        stage(catalog, tx, "b", add(name))
    catalog.rollback_to(tx, "one")
    catalog.commit(tx)
    return tx


def refused_for_a_conflict(catalog: TransactionalCatalog) -> Transaction:
    tx = catalog.begin()
    stage(catalog, tx, "a", remove("p"))
    other = catalog.begin()
    stage(catalog, other, "a", remove("p"))
    catalog.commit(other)
    with pytest.raises(ConflictError):
        catalog.commit(tx)
    return tx


def ended_by_a_person(catalog: TransactionalCatalog) -> Transaction:
    tx = staged(catalog)
    records.write(catalog.lake, records.record_of(tx, now=catalog.lake.clock(), process=this_process()))
    records.abort(catalog.lake, tx.id, author="ada", statement="lockstep abort")
    with pytest.raises(LockstepError):
        catalog.commit(tx)
    return tx


def failed(catalog: TransactionalCatalog) -> Transaction:
    tx = staged(catalog)
    tx.failure = "no space is left"
    with pytest.raises(FailedTransactionError):
        catalog.commit(tx)
    return tx


def only_read(catalog: TransactionalCatalog) -> Transaction:
    tx = catalog.begin(read_only=True)
    catalog.table(tx, named("a"))
    catalog.commit(tx)
    return tx


ENDS = [
    committed,
    rolled_back,
    taken_back_to_a_savepoint,
    refused_for_a_conflict,
    ended_by_a_person,
    failed,
    only_read,
]


@pytest.mark.parametrize("end", ENDS)
def test_nothing_refers_to_a_transaction_that_has_ended(
    end: Callable[[TransactionalCatalog], Transaction], catalog: TransactionalCatalog
) -> None:
    assert left(catalog, lambda: end(catalog)) is None


@pytest.mark.parametrize("policy", ["wait-die", "wound-wait"])
def test_nor_to_one_that_announced_what_it_did(policy: Policy, tmp_path: Path) -> None:
    store = open_storage(str(tmp_path / "lake"), create=True)
    catalog = open_catalog(store, resolution=Resolution(policy=policy, lock_timeout_seconds=0.1))
    create(catalog, "a", "b", files=["p"])

    def refused() -> Transaction:
        older, younger = catalog.begin(), catalog.begin()
        stage(catalog, older, "a", remove("p"))
        with pytest.raises(ConflictError):
            stage(catalog, younger, "a", remove("p"))
        catalog.rollback(younger)
        catalog.commit(older)
        return younger

    assert left(catalog, refused) is None
    assert not catalog._announcer._announcements
    assert not catalog._announcer._refused


def test_why_a_table_is_set_aside_keeps_nothing_of_who_found_out(tmp_path: Path) -> None:
    """An error holds the frames that it came through, and those their callers', with all that is in them."""
    store = FaultyStorage(open_storage(str(tmp_path / "lake"), create=True))
    catalog = open_catalog(store)
    create(catalog, "a", files=["p"])

    def not_published() -> Transaction:
        store.fail("put_if_absent", path=log_file(catalog, "a", 1), times=100)
        return committed(catalog)

    assert left(catalog, not_published) is None
    [error] = catalog.lake.publisher._errors.values()
    assert isinstance(error, UnavailableError)


def test_nor_does_why_a_deserted_one_was_not_rolled_back(tmp_path: Path) -> None:
    store = FaultyStorage(open_storage(str(tmp_path / "lake"), create=True))
    catalog = open_catalog(store)
    create(catalog, "a", files=["p"])
    house, errors = Lakehouse("lake", catalog, Uris(store.url)), list[LockstepError | None]()

    def deserted() -> Transaction:
        tx = staged(catalog)
        tx.in_doubt = tx.base.version + 1
        store.fail("put_if_absent", path=entry_path(tx.in_doubt), times=100)
        errors.append(end_unasked(tx, house))
        return tx

    assert left(catalog, deserted) is None
    assert isinstance(errors[0], CommitUnknownError)


# --- of tables without Spark, and of a host's sessions ----------------------------------------------------------------


def used(lake: OpenLake, act: Callable[[LakeTransaction], object]) -> LakeTransaction:
    """A transaction that has written and read, and whose block `act` ends."""
    with suppress(LookupError, LockstepError), lake.transaction(timeout=600, statement_timeout=60) as tx:
        tx["t"].append({"id": [1]})
        tx.savepoint("s")
        tx["t"].delete("id = 1")
        tx.rollback_to("s")
        assert tx.sql("SELECT count(*) AS n FROM t").to_pylist()
        act(tx)
    return tx


def fail(_: LakeTransaction) -> None:
    raise LookupError


ACTS: list[Callable[[LakeTransaction], object]] = [
    lambda tx: tx.commit(),
    lambda tx: tx.rollback(),
    lambda tx: None,
    fail,
    lambda tx: tx["nowhere"].append({"id": [1]}),
    lambda tx: tx["t"].append({"other": [1]}),
]


@pytest.mark.parametrize("act", ACTS)
def test_nor_to_one_of_tables_without_spark(act: Callable[[LakeTransaction], object], tmp_path: Path) -> None:
    lake = lockstep.open(str(tmp_path / "lake"), create=True)
    with lake.transaction() as tx:
        tx.create("t", SCHEMA)
    del tx
    ended = used(lake, act)
    gone, core = ref(ended), ref(ended.core)
    del ended
    lake.catalog.lake.upkeep.settle()
    gc.collect()
    assert (gone(), core()) == (None, None)
    assert not keeping.KEEPER._watched


def test_nor_to_a_lake_that_nobody_has_any_more(tmp_path: Path) -> None:
    """A driver that opens a lake anew with each key of its store."""
    lake = lockstep.open(str(tmp_path / "lake"), create=True)
    with lake.transaction() as tx:
        tx.create("t", SCHEMA).append({"id": [1]})
    assert lake.at()["t"].to_arrow().num_rows == 1
    core = lake.catalog.lake
    core.upkeep.settle()
    gone = ref(core), ref(core.timeline)
    del lake, tx, core
    gc.collect()
    assert [each() for each in gone] == [None, None]


@pytest.mark.parametrize("end", ["commit", "rollback", "refused", "deserted", "deserted in doubt"])
def test_nor_to_one_of_a_session(end: str, tmp_path: Path) -> None:
    """Whether it ended it or was deserted; what is kept of one in doubt is what its session is told."""
    host = Host("test")
    client = Client(host, tmp_path / "lake")
    create(client.lake(), "a", files=["p"])
    client.begin()
    client.stage(client.resolve("a", "changed", writes=True)["uri"], 1, remove("p"))
    [tx] = [each.transaction for each in host._sessions.values() if each.transaction is not None]
    gone = ref(tx)
    if end == "refused":
        other = client.lake().begin()
        stage(client.lake(), other, "a", remove("p"))
        client.lake().commit(other)
        del other
        assert client.refused("commit")[0] == "40001"
        client.ok("ended")
    elif end.startswith("deserted"):
        tx.in_doubt = tx.base.version + 1 if end.endswith("doubt") else None
        client.ok("lapse", why="deserted")
    else:
        client.ok(end)
    del tx
    client.lake().lake.upkeep.settle()
    gc.collect()
    assert gone() is None


def test_a_commit_holds_few_of_the_entries_since_its_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those may be more than memory has room for: of a transaction that was open for days, or in an idle process."""
    monkeypatch.setattr(publisher, "LOOKED_AT_BYTES", 100_000)
    monkeypatch.setattr(history.History.__init__, "__kwdefaults__", {"size": 0})
    store = UnsyncedStorage(tmp_path)
    catalog = open_catalog(store)
    create(catalog, "a", "b", files=["p"])
    tx = catalog.begin()
    stage(catalog, tx, "a", add("q"))
    other = open_catalog(store)
    count, size = 600, 20_000
    for number in range(count):
        theirs = other.begin()
        stage(other, theirs, "b", add(f"f{number}", tags={"why": "x" * size}))
        other.commit(theirs)
    other.lake.upkeep.settle()
    tracemalloc.start()
    try:
        catalog.timeline.refresh()
        assert catalog.timeline.head.version == other.timeline.head.version
        assert tracemalloc.get_traced_memory()[1] < count * size / 2
        tracemalloc.reset_peak()
        catalog.commit(tx)
        assert tracemalloc.get_traced_memory()[1] < count * size / 2
    finally:
        tracemalloc.stop()
    catalog.lake.upkeep.settle()
