"""What a transaction leaves in memory once it has ended: nothing, whichever way it ended."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from weakref import ref

import pyarrow as pa
import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.commit import records
from lockstep.commit.ended import this_process
from lockstep.conflict.lock_policy import Policy, Resolution
from lockstep.errors import ConflictError, FailedTransactionError, LockstepError
from lockstep.storage import open_storage
from lockstep.transactions.transaction import Transaction
from tests.support.lakes import add, create, named, open_catalog, remove, stage

pytestmark = pytest.mark.behind  # what is done behind an answer is done by threads, as it is for users

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
