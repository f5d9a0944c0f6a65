"""What is kept of transactions that were rolled back: which, why, once, and not for ever."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.commit import ended
from lockstep.commit.ended import FOLDER, MAX_KEPT, ended_transactions, note, this_process
from lockstep.commit.records import ALIVE, abort, record_of, write
from lockstep.commit.records import ended as ended_record
from lockstep.errors import ConflictError
from lockstep.retention.ages import Retention
from lockstep.retention.expiring import expire_snapshots
from lockstep.retention.upkeep import maintain
from lockstep.transactions.transaction import Transaction
from tests.support.lakes import add, named, remove, stage


def files(catalog: TransactionalCatalog) -> list[str]:
    catalog.lake.upkeep.settle()
    return list(catalog.lake.storage.list(FOLDER))


def collide(catalog: TransactionalCatalog, other: TransactionalCatalog) -> tuple[Transaction, Transaction]:
    """Have two transactions remove one file; the second is refused. Return the loser, then the winner."""
    with_file = catalog.begin()
    stage(catalog, with_file, "a", add("x"))
    catalog.commit(with_file)
    loser, winner = catalog.begin(comment="late"), other.begin()
    stage(catalog, loser, "a", remove("x"))
    stage(other, winner, "a", remove("x"))
    other.commit(winner)
    with pytest.raises(ConflictError):
        catalog.commit(loser)
    return loser, winner


def test_a_conflict_is_kept_once_with_its_rule_and_its_winner(
    catalog: TransactionalCatalog, other: TransactionalCatalog
) -> None:
    loser, winner = collide(catalog, other)
    [record] = ended_transactions(catalog.lake)
    assert record.transaction == loser.id
    assert (record.author, record.message, record.tables) == ("ada", "late", (named("a"),))
    assert record.process == this_process()
    assert record.conflict == ended.Refusal(
        rule="file", about="default.a", winner=winner.id, winner_version=winner.version
    )
    assert winner.id in record.reason
    assert len(files(catalog)) == 1


def test_what_commits_or_is_rolled_back_in_time_leaves_nothing(catalog: TransactionalCatalog) -> None:
    for end in (catalog.commit, catalog.rollback):
        tx = catalog.begin()
        stage(catalog, tx, "a", add(f"of-{tx.id}"))
        end(tx)
    assert files(catalog) == []


def test_one_whose_process_is_gone_is_kept_when_a_person_ends_it(
    catalog: TransactionalCatalog, other: TransactionalCatalog
) -> None:
    tx = catalog.begin()
    stage(catalog, tx, "a", add("x"))
    then = catalog.lake.clock() - ALIVE
    write(catalog.lake, record_of(tx, now=then, process="there:1"))
    abort(other.lake, tx.id, author="bob", statement="CALL …", reason="gone")
    [record] = ended_transactions(other.lake)
    assert (record.transaction, record.process, record.conflict) == (tx.id, "there:1", None)
    assert record.reason == "bob asked for that, and its process was gone: gone"


def test_one_whose_process_lives_is_left_to_that(catalog: TransactionalCatalog, other: TransactionalCatalog) -> None:
    tx = catalog.begin()
    stage(catalog, tx, "a", add("x"))
    write(catalog.lake, record_of(tx, now=catalog.lake.clock(), process="here:1"))
    abort(other.lake, tx.id, author="bob", statement="CALL …")
    assert ended_transactions(other.lake) == []


def kept(catalog: TransactionalCatalog, *, age: timedelta, id_: str = "") -> str:
    tx = catalog.begin()
    now = catalog.lake.clock()
    record = ended_record(record_of(tx, now=now, process="here:1"), "ROLLBACK", now - age)
    note(catalog.lake, msgspec.structs.replace(record, transaction=id_ or tx.id))
    return id_ or tx.id


@pytest.mark.parametrize("dry_run", [True, False])
def test_it_is_kept_as_long_as_versions_are(catalog: TransactionalCatalog, dry_run: bool) -> None:
    age = timedelta(days=400)
    old, young = kept(catalog, age=age + timedelta(minutes=1)), kept(catalog, age=age - timedelta(minutes=1))
    new = kept(catalog, age=timedelta(0))
    assert [record.transaction for record in ended_transactions(catalog.lake)] == [new, young, old]
    since = catalog.lake.clock() - age
    expire_snapshots(catalog.lake, older_than=since, retain_last=1, grace=timedelta(), dry_run=dry_run)
    left = [new, young, old] if dry_run else [new, young]
    assert [record.transaction for record in ended_transactions(catalog.lake)] == left
    maintain(catalog.lake, Retention.of({"retention-age": "1h"}), dry_run=dry_run)
    assert [record.transaction for record in ended_transactions(catalog.lake)] == (left if dry_run else [new])


def test_of_too_many_the_oldest_go(catalog: TransactionalCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ended, "MAX_KEPT", 3)
    ids = [kept(catalog, age=timedelta(minutes=minutes)) for minutes in (5, 4, 3, 2, 1)]
    assert [record.transaction for record in ended_transactions(catalog.lake)] == ids[:1:-1]
    assert len(files(catalog)) == 3
    assert MAX_KEPT >= 100


def test_one_with_two_records_is_listed_once(catalog: TransactionalCatalog) -> None:
    for minutes in (2, 1):
        kept(catalog, age=timedelta(minutes=minutes), id_="t" * 24)
    assert len(files(catalog)) == 2
    assert len(ended_transactions(catalog.lake)) == 1


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff", b'{"format": 2}', b"[" * 100_000])
def test_a_record_that_cannot_be_read_is_passed_over(catalog: TransactionalCatalog, damage: bytes) -> None:
    kept(catalog, age=timedelta(0))
    [name] = files(catalog)
    catalog.lake.storage.put(f"{FOLDER}/{name}", damage)
    catalog.lake.storage.put(f"{FOLDER}/notes.txt", b"not ours")
    assert ended_transactions(catalog.lake) == []
    kept(catalog, age=timedelta(0))
    assert "notes.txt" in files(catalog)
