"""Micro-batches that happen once: what an entry may record of them, who conflicts, and what a replay does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import msgspec
import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.conflict.writes import Changes, first_conflict
from lockstep.delta.footprint import Footprint
from lockstep.errors import CommitUnknownError, ConflictError, CorruptTimelineError, InvalidError
from lockstep.retry import RACE
from lockstep.timeline.database import Database
from lockstep.timeline.entry import MAX_APPLICATION_CHARACTERS, MAX_BATCH_NUMBER, Batch, Entry, Isolation
from lockstep.timeline.files import decode, entry_path
from lockstep.timeline.fold import apply, fold
from lockstep.transactions.state import State
from lockstep.transactions.transaction import Transaction
from tests.support.entries import T0, entry
from tests.support.faulty import FaultyStorage
from tests.support.lakes import add, append, create, files, named, open_catalog, stage, stage_new, tree


def batch(number: int, application: str = "orders") -> Batch:
    return Batch(application=application, number=number)


# --- the fold ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("recorded", "expected"),
    [
        pytest.param([], {}, id="none"),
        pytest.param([None], {}, id="an entry without"),
        pytest.param([batch(0)], {"orders": 0}, id="the first is 0"),
        pytest.param([batch(0), batch(1)], {"orders": 1}, id="the next"),
        pytest.param([batch(3), None, batch(9)], {"orders": 9}, id="gaps, and others between"),
        pytest.param([batch(3), batch(0, "clicks")], {"orders": 3, "clicks": 0}, id="applications apart"),
        pytest.param([batch(MAX_BATCH_NUMBER)], {"orders": MAX_BATCH_NUMBER}, id="the last that there can be"),
    ],
)
def test_a_database_knows_the_last_batch_of_each_application(
    recorded: list[Batch | None], expected: dict[str, int]
) -> None:
    entries = [entry(0), *(entry(version, batch=one) for version, one in enumerate(recorded, 1))]
    assert dict(fold(entries).batches) == expected


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        pytest.param([entry(1, batch=batch(3)), entry(2, batch=batch(3))], "expected a number above 3", id="twice"),
        pytest.param(
            [entry(1, batch=batch(3)), entry(2, batch=batch(2))], "expected a number above 3", id="going back"
        ),
        pytest.param([entry(1, batch=batch(3), kind="external")], "of 'transaction' only", id="a plain Delta writer's"),
        pytest.param([entry(1, batch=batch(3), kind="abort", aborts=["t9"])], "of 'transaction' only", id="an abort's"),
    ],
)
def test_a_batch_that_does_not_fit_is_a_corrupt_timeline(entries: list[Entry], expected: str) -> None:
    with pytest.raises(CorruptTimelineError, match=expected):
        fold([entry(0), *entries])


def test_a_first_entry_records_no_batch() -> None:
    with pytest.raises(CorruptTimelineError, match="of 'transaction' only"):
        fold([entry(0, batch=batch(0))])


def test_recording_a_batch_leaves_the_database_before_as_it_was() -> None:
    before = fold([entry(0), entry(1, batch=batch(1))])
    assert dict(apply(before, entry(2, batch=batch(2))).batches) == {"orders": 2}
    assert dict(before.batches) == {"orders": 1}


LONG = "é" * MAX_APPLICATION_CHARACTERS
"""The longest name that an application can have, in characters, not bytes."""

WRONG = [
    pytest.param({"application": "", "number": 0}, id="no name"),
    pytest.param({"application": LONG + "x", "number": 0}, id="a name too long"),
    pytest.param({"application": "orders", "number": -1}, id="below 0"),
    pytest.param({"application": "orders", "number": MAX_BATCH_NUMBER + 1}, id="beyond Delta's numbers"),
    pytest.param({"application": "orders", "number": "1"}, id="a text for a number"),
    pytest.param({"application": None, "number": 1}, id="null for a name"),
]


@pytest.mark.parametrize("fields", WRONG)
def test_an_entry_with_a_batch_that_cannot_be_is_refused(fields: dict[str, Any]) -> None:
    stored = {**msgspec.to_builtins(entry(1)), "batch": fields}
    with pytest.raises(CorruptTimelineError):
        decode(msgspec.json.encode(stored), 1)


@pytest.mark.parametrize("recorded", [None, batch(7), batch(MAX_BATCH_NUMBER, LONG)])
def test_an_entry_comes_back_as_it_was_written(recorded: Batch | None) -> None:
    written = msgspec.json.encode(entry(1, batch=recorded))
    assert decode(written, 1).batch == recorded
    assert (b'"batch"' in written) == (recorded is not None), "a field with its default value is left out"


@pytest.mark.parametrize(
    ("batches", "number", "expected"),
    [
        pytest.param({}, 0, False, id="nothing recorded"),
        pytest.param({"clicks": 5}, 0, False, id="another application's"),
        pytest.param({"orders": 0}, 0, True, id="the same"),
        pytest.param({"orders": 5}, 4, True, id="an older one"),
        pytest.param({"orders": 5}, 6, False, id="the next"),
    ],
)
def test_a_batch_is_done_once_it_or_a_later_one_is_recorded(
    batches: dict[str, int], number: int, expected: bool
) -> None:
    database = Database(version=1, committed_at=T0, namespaces={}, tables={}, batches=batches)
    assert database.has_batch(batch(number)) is expected
    assert Transaction("t", base=database, began_at=T0, batch=batch(number)).is_replay is expected


def test_a_transaction_without_a_batch_is_no_replay() -> None:
    database = Database(version=1, committed_at=T0, namespaces={}, tables={}, batches={"orders": 5})
    assert not Transaction("t", base=database, began_at=T0).is_replay


# --- conflicts --------------------------------------------------------------------------------------------------------

WRITES = Footprint(added_paths=frozenset("x"))


@pytest.mark.parametrize(
    ("mine", "winner", "rule"),
    [
        pytest.param(batch(1), batch(1), "application", id="the same batch"),
        pytest.param(batch(2), batch(1), "application", id="the batch before: its effect was not seen"),
        pytest.param(batch(1), batch(2), "application", id="the batch after"),
        pytest.param(batch(1), batch(1, "clicks"), None, id="another application"),
        pytest.param(batch(1), None, None, id="the winner has none"),
        pytest.param(None, batch(1), None, id="ours has none"),
    ],
)
@pytest.mark.parametrize("isolation", ["SNAPSHOT", "SERIALIZABLE"])
def test_of_one_application_only_one_batch_lands(
    mine: Batch | None, winner: Batch | None, rule: str | None, isolation: Isolation
) -> None:
    """The two wrote different tables: nothing else collides."""
    ours = Changes("m", writes={"A": WRITES}, batch=mine, isolation=isolation)
    theirs = Changes("w", writes={"B": WRITES}, batch=winner, isolation=isolation, database_version=7)
    conflict = first_conflict(ours, theirs)
    assert (conflict and conflict.rule) == rule


def test_a_conflict_of_batches_names_both() -> None:
    conflict = first_conflict(Changes("m", batch=batch(3)), Changes("w", batch=batch(2), database_version=7))
    assert conflict is not None
    expected = "recorded batch 2 of application orders, of which this transaction records batch 3"
    assert expected in conflict.message


def test_an_application_is_still_judged_on_its_tables() -> None:
    """Delta's own record of a stream, in a table's log, is another one: both must be free."""
    ours = Changes("m", writes={"A": Footprint(apps=frozenset("s"))}, batch=batch(1))
    theirs = Changes("w", writes={"A": Footprint(apps=frozenset("s"))}, batch=batch(1, "clicks"), database_version=7)
    conflict = first_conflict(ours, theirs)
    assert conflict is not None
    assert (conflict.rule, "streaming application s on table" in conflict.message) == ("application", True)


def test_a_batch_alone_changes_something() -> None:
    """A transaction with a batch is no read-only one to the rules of SERIALIZABLE, for others see what it recorded."""
    assert Changes("m", batch=batch(1)).changes_something()
    assert not Changes("m").changes_something()


# --- transactions -----------------------------------------------------------------------------------------------------


@pytest.fixture
def catalog(store: FaultyStorage) -> TransactionalCatalog:
    """A lake with the tables a and b, at database version 1."""
    found = open_catalog(store)
    create(found, "a", "b")
    return found


def carry_out(catalog: TransactionalCatalog, number: int, path: str, isolation: Isolation | None = None) -> Transaction:
    """Commit a batch that appends a file to both tables."""
    tx = catalog.begin(batch=batch(number), isolation=isolation)
    both(catalog, tx, path)
    catalog.commit(tx)
    return tx


def both(catalog: TransactionalCatalog, tx: Transaction, path: str) -> None:
    stage(catalog, tx, "a", add(path))
    stage(catalog, tx, "b", add(path))


def contents(catalog: TransactionalCatalog) -> tuple[set[str], set[str]]:
    return files(catalog, "a"), files(catalog, "b")


@pytest.mark.parametrize("isolation", ["SNAPSHOT", "SERIALIZABLE"])
def test_a_replayed_batch_changes_nothing(
    catalog: TransactionalCatalog, other: TransactionalCatalog, isolation: Isolation
) -> None:
    """The process that carried it out is gone, and the next one carries it out again."""
    done = carry_out(catalog, 0, "x", isolation)
    assert not done.is_replay
    assert dict(other.database().batches) == {"orders": 0}

    before = tree(other.lake.storage)
    tx = other.begin(batch=batch(0), isolation=isolation)
    assert tx.is_replay
    both(other, tx, "y")
    stage_new(other, tx, "c")
    tx.changing().create_namespace(("s",), {})
    committed = other.commit(tx)
    assert (committed.version, committed.entry) == (done.version, None)
    assert (tx.state, tx.version) == (State.COMPLETED, done.version)
    assert contents(other) == ({"x"}, {"x"})
    assert other.database().version == done.version
    assert tree(other.lake.storage) == before, "what it staged is gone"


def test_a_replay_that_read_is_not_recorded(catalog: TransactionalCatalog) -> None:
    carry_out(catalog, 0, "x")
    tx = catalog.begin(batch=batch(0), record_reads=True)
    tx.read(tx.table(named("a")))
    assert catalog.commit(tx).entry is None


def test_batches_follow_one_another(catalog: TransactionalCatalog) -> None:
    for number, path in enumerate("xyz"):
        assert not carry_out(catalog, number, path).is_replay
    assert contents(catalog) == ({*"xyz"}, {*"xyz"})
    assert catalog.begin(batch=batch(1)).is_replay, "of an older one, too"
    assert dict(catalog.database().batches) == {"orders": 2}


def test_a_batch_without_rows_is_recorded(catalog: TransactionalCatalog, other: TransactionalCatalog) -> None:
    """The application goes on behind it, so it must not be carried out later."""
    committed = catalog.commit(catalog.begin(batch=batch(4)))
    assert committed.entry is not None
    assert (committed.version, committed.entry.batch, committed.entry.writes) == (2, batch(4), [])
    assert other.begin(batch=batch(4)).is_replay
    assert not other.begin(batch=batch(5)).is_replay


def test_older_database_versions_know_older_batches(catalog: TransactionalCatalog) -> None:
    first, second = (carry_out(catalog, number, path).version for number, path in enumerate("xy"))
    assert (first, second) == (2, 3)
    assert [dict(catalog.as_of(version).batches) for version in (1, 2, 3)] == [{}, {"orders": 0}, {"orders": 1}]


@pytest.mark.parametrize("isolation", ["SNAPSHOT", "SERIALIZABLE"])
@pytest.mark.parametrize("number", [0, 1], ids=["the same batch", "the next batch"])
def test_of_two_that_carry_out_an_application_one_is_told_to_run_again(
    catalog: TransactionalCatalog, other: TransactionalCatalog, isolation: Isolation, number: int
) -> None:
    """Its second run finds the batch done, or does what is left."""
    tx = catalog.begin(batch=batch(number), isolation=isolation)
    both(catalog, tx, "y")
    carry_out(other, 0, "x", isolation)
    with pytest.raises(ConflictError, match="recorded batch 0 of application orders"):
        catalog.commit(tx)
    again = carry_out(catalog, number, "y", isolation)
    assert again.is_replay is (number == 0)
    expected = {"x"} if number == 0 else {"x", "y"}
    assert contents(other) == (expected, expected)


def test_a_batch_without_rows_is_beaten_too(catalog: TransactionalCatalog, other: TransactionalCatalog) -> None:
    tx = catalog.begin(batch=batch(0))
    carry_out(other, 0, "x")
    with pytest.raises(ConflictError, match="recorded batch 0"):
        catalog.commit(tx)


def test_a_race_that_is_lost_to_others_loses_no_batch(
    catalog: TransactionalCatalog, other: TransactionalCatalog, store: FaultyStorage
) -> None:
    catalog.backoff = replace(RACE, sleep=lambda _: None)
    tx = catalog.begin(batch=batch(0))
    both(catalog, tx, "x")
    store.interrupt("put_if_absent", lambda: append(other, "b", "y"), path=entry_path(2))
    assert catalog.commit(tx).version == 3
    assert dict(other.database().batches) == {"orders": 0}


def in_doubt(catalog: TransactionalCatalog, store: FaultyStorage, *, landed: bool) -> Transaction:
    """Commit batch 0 to a store that fails while it writes the entry, before or after it is there."""
    tx = catalog.begin(batch=batch(0))
    both(catalog, tx, "x")
    store.go_down(entry_path(2), landed=landed)
    with pytest.raises(CommitUnknownError):
        catalog.commit(tx)
    return tx


@pytest.mark.parametrize("landed", [True, False], ids=["landed", "not landed"])
def test_a_batch_whose_commit_got_no_answer_happens_once(
    catalog: TransactionalCatalog, other: TransactionalCatalog, store: FaultyStorage, landed: bool
) -> None:
    """The stream ends by 40003, and another process carries the batch out again: it is done, or does it."""
    in_doubt(catalog, store, landed=landed)
    assert carry_out(other, 0, "again").is_replay is landed
    expected = {"x"} if landed else {"again"}
    assert contents(other) == (expected, expected)


@pytest.mark.parametrize("landed", [True, False], ids=["landed", "not landed"])
def test_committing_again_finds_out(catalog: TransactionalCatalog, store: FaultyStorage, landed: bool) -> None:
    tx = in_doubt(catalog, store, landed=landed)
    store.heal()
    assert catalog.commit(tx).version == 2
    assert dict(catalog.database().batches) == {"orders": 0}
    assert contents(catalog) == ({"x"}, {"x"})


def test_an_unanswered_commit_that_did_not_land_loses_to_the_replay(
    catalog: TransactionalCatalog, other: TransactionalCatalog, store: FaultyStorage
) -> None:
    tx = in_doubt(catalog, store, landed=False)
    carry_out(other, 0, "again")
    store.heal()
    with pytest.raises(ConflictError, match="recorded batch 0"):
        catalog.commit(tx)
    assert contents(other) == ({"again"}, {"again"})


def test_a_rolled_back_batch_is_still_to_do(catalog: TransactionalCatalog, other: TransactionalCatalog) -> None:
    tx = catalog.begin(batch=batch(0))
    both(catalog, tx, "x")
    catalog.rollback(tx)
    assert dict(other.database().batches) == {}
    assert not carry_out(other, 0, "y").is_replay
    assert contents(other) == ({"y"}, {"y"})


def test_a_savepoint_undoes_rows_and_not_the_batch(catalog: TransactionalCatalog) -> None:
    """The application has seen the batch, whatever it kept of it."""
    tx = catalog.begin(batch=batch(0))
    stage(catalog, tx, "a", add("x"))
    tx.savepoint("s")
    stage(catalog, tx, "b", add("y"))
    catalog.rollback_to(tx, "s")
    catalog.commit(tx)
    assert contents(catalog) == ({"x"}, set())
    assert catalog.begin(batch=batch(0)).is_replay


@pytest.mark.parametrize("fields", WRONG)
def test_a_batch_that_cannot_be_is_refused_at_begin(catalog: TransactionalCatalog, fields: dict[str, Any]) -> None:
    """Before anything is written: what BEGIN takes, readers of the entry take too."""
    with pytest.raises(InvalidError, match="batch "):
        catalog.begin(batch=Batch(**cast(Any, fields)))


def test_a_read_only_transaction_has_no_batch(catalog: TransactionalCatalog) -> None:
    with pytest.raises(InvalidError, match="READ ONLY"):
        catalog.begin(batch=batch(0), read_only=True)


def test_the_longest_name_of_an_application_is_stored(
    catalog: TransactionalCatalog, other: TransactionalCatalog
) -> None:
    catalog.commit(catalog.begin(batch=batch(MAX_BATCH_NUMBER, LONG)))
    assert dict(other.database().batches) == {LONG: MAX_BATCH_NUMBER}
