"""Ending transactions, many by one entry: which of them that ends, and which had ended before."""

from __future__ import annotations

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.commit import killing
from lockstep.commit.killing import Asker, end_all
from lockstep.errors import CancelledError, UnavailableError
from lockstep.retry import RACE
from tests.support.faulty import FaultyStorage
from tests.support.lakes import add, append, stage

ASKER = Asker("asker", "bob", "too long", "CALL …")


def test_each_is_ended_by_what_came_first(catalog: TransactionalCatalog, other: TransactionalCatalog) -> None:
    snapshot = catalog.database().version
    committed, ended, first, second = (catalog.begin() for _ in range(4))
    for tx in (committed, ended, first, second):
        stage(catalog, tx, "a", add(tx.id))
    version = catalog.commit(committed).version
    end_all(other.lake, [ended.id], snapshot, ASKER, backoff=RACE)
    found = end_all(other.lake, [tx.id for tx in (committed, ended, first, second)], snapshot, ASKER, backoff=RACE)
    assert {id_: entry.version for id_, entry in found.items()} == {
        committed.id: version,
        ended.id: version + 1,
        first.id: version + 2,
        second.id: version + 2,
    }
    assert found[first.id].aborts == sorted([first.id, second.id])
    with pytest.raises(CancelledError):
        catalog.commit(second)
    assert end_all(other.lake, [first.id], snapshot, ASKER, backoff=RACE)[first.id].version == version + 2


def test_who_commits_while_they_are_ended_has_committed(
    catalog: TransactionalCatalog, store: FaultyStorage, other: TransactionalCatalog
) -> None:
    """The entry that ends both loses its race to the commit of one of them, and ends the other alone."""
    mine, theirs = catalog.begin(), other.begin()
    stage(catalog, mine, "a", add("mine"))
    stage(other, theirs, "b", add("theirs"))
    store.interrupt("put_if_absent", lambda: other.commit(theirs))
    found = end_all(catalog.lake, [mine.id, theirs.id], mine.base.version, ASKER, backoff=RACE)
    assert (found[theirs.id].kind, found[mine.id].aborts) == ("transaction", [mine.id])


def test_an_entry_ends_a_bounded_number(catalog: TransactionalCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(killing, "AT_ONCE", 2)
    found = end_all(catalog.lake, ["a", "b", "c"], catalog.database().version, ASKER, backoff=RACE)
    assert [found[id_].aborts for id_ in "abc"] == [["a", "b"], ["a", "b"], ["c"]]
    assert end_all(catalog.lake, [], 0, ASKER, backoff=RACE) == {}


def test_nobody_is_said_to_have_ended_where_nobody_knows(catalog: TransactionalCatalog, store: FaultyStorage) -> None:
    tx = catalog.begin()
    append(catalog, "a", "more")
    version = catalog.timeline.head.version + 1
    store.go_down(f"{version:020d}.json", landed=False)
    with pytest.raises(
        UnavailableError, match=rf"cannot tell whether transaction {tx.id} \(the first of 2\) was ended"
    ):
        end_all(catalog.lake, [tx.id, "z"], tx.base.version, ASKER, backoff=RACE)
