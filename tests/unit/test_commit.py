"""COMMIT: what lands, what is refused and why, and what a store that fails at the worst moment leaves behind."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import lockstep.commit as committing
from lockstep.catalog import TransactionalCatalog
from lockstep.delta.actions import Action, bodies
from lockstep.delta.log import commit_path, read_published, staged_path, staging_folder
from lockstep.errors import (
    CommitUnknownError,
    ConflictError,
    FailedTransactionError,
    NoTransactionError,
    TransactionStateError,
    UnavailableError,
)
from lockstep.model import INLINE_BYTES, Isolation
from lockstep.retry import RACE
from lockstep.storage import open_storage
from lockstep.timeline import entry_path
from lockstep.transactions import State, Transaction
from tests.support.faulty import FaultyStorage
from tests.support.lakes import (
    CONSTRAINT,
    add,
    append,
    create,
    files,
    foreign,
    metadata,
    named,
    open_catalog,
    remove,
    replay,
    stage,
    stage_new,
)


@pytest.fixture
def store(tmp_path: Path) -> FaultyStorage:
    return FaultyStorage(open_storage(str(tmp_path / "lake"), create=True))


@pytest.fixture
def catalog(store: FaultyStorage) -> TransactionalCatalog:
    """A lake with the tables a and b, at table version 0; a has the file p."""
    catalog = open_catalog(store)
    tx = catalog.begin()
    stage_new(catalog, tx, "a", add("p"))
    stage_new(catalog, tx, "b")
    catalog.commit(tx)
    return catalog


@pytest.fixture
def other(catalog: TransactionalCatalog, store: FaultyStorage) -> TransactionalCatalog:
    """The same lake, as another process has it."""
    return open_catalog(store.inner)


def location(catalog: TransactionalCatalog, name: str) -> str:
    return catalog.timeline.head.tables[named(name)].location


def large(path: str) -> Action:
    """A file whose commit is too large for the timeline's entry."""
    return add(path, tags={"why": "x" * INLINE_BYTES})


def tree(store: FaultyStorage) -> set[str]:
    """All files of the lake but those of the timeline."""
    root = Path(store.url.removeprefix("file://"))
    found = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    return {path for path in found if not path.startswith("_lockstep/")}


# --- what lands -------------------------------------------------------------------------------------------------------


def test_all_tables_of_a_transaction_land_in_one_database_version(
    catalog: TransactionalCatalog, other: TransactionalCatalog
) -> None:
    tx = catalog.begin(comment="both")
    stage(catalog, tx, "a", add("x"))
    stage(catalog, tx, "b", add("y"))
    assert (files(other, "a"), files(other, "b")) == ({"p"}, set()), "staged is not visible"
    done = catalog.commit(tx)
    assert (files(other, "a"), files(other, "b")) == ({"p", "x"}, {"y"})
    assert tx.state is State.COMPLETED
    assert tx.version == done.version == other.timeline.head.version
    [entry] = other.timeline.entries(done.version - 1)
    assert [(str(w.name), w.from_version, w.to_version) for w in entry.writes] == [
        ("default.a", 0, 1),
        ("default.b", 0, 1),
    ]
    assert entry.transaction.message == "both"


def test_the_statements_of_a_table_are_one_version(catalog: TransactionalCatalog) -> None:
    tx = catalog.begin()
    stage(catalog, tx, "a", add("x"))
    stage(catalog, tx, "a", remove("x"), add("y"))
    stage(catalog, tx, "a", remove("p"), operation="DELETE")
    catalog.commit(tx)
    assert files(catalog, "a") == {"y"}
    assert catalog.timeline.head.tables[named("a")].version == 1
    [info] = bodies(read_published(catalog.lake.storage, location(catalog, "a"), 1), "commitInfo")
    assert (info["operation"], info["txnId"]) == ("TRANSACTION", tx.id)


def test_statements_with_change_files_are_versions_of_their_own(catalog: TransactionalCatalog) -> None:
    """A version with `cdc` actions says nothing else to readers of changes, so such statements are not merged."""
    tx = catalog.begin()
    stage(catalog, tx, "a", remove("p"), add("q"), {"cdc": {"path": "_change_data/c", "size": 1}}, operation="UPDATE")
    stage(catalog, tx, "a", add("r"))
    done = catalog.commit(tx)
    assert done.entry is not None
    [write] = done.entry.writes
    assert (write.from_version, write.to_version, len(write.commits)) == (0, 2, 2)
    assert replay(catalog.lake.storage, write.location, 1) == {"q"}
    assert files(catalog, "a") == {"q", "r"}


def test_a_large_commit_is_staged_and_not_inlined(catalog: TransactionalCatalog, store: FaultyStorage) -> None:
    tx = catalog.begin()
    stage(catalog, tx, "a", large("x"))
    stage(catalog, tx, "b", add("small"))
    done = catalog.commit(tx)
    assert done.entry is not None
    big, small = done.entry.writes
    assert big.commits[0].inline is None
    assert (big.commits[0].staged or "").startswith(f"_delta_log/_lockstep/{tx.id}/commit-")
    assert small.commits[0].staged is None
    assert len(store.get(entry_path(done.version)) or b"") < INLINE_BYTES
    assert files(catalog, "a") == {"p", "x"}
    assert not any("/_lockstep/" in path for path in tree(store)), "published, so what was staged is not needed"


def test_a_transaction_that_changed_nothing_makes_no_entry_and_leaves_nothing(
    catalog: TransactionalCatalog, store: FaultyStorage
) -> None:
    before = tree(store)
    tx = catalog.begin()
    stage(catalog, tx, "a", add("x"))
    stage(catalog, tx, "a", remove("x"), operation="DELETE")
    stage_new(catalog, tx, "c", add("y"))
    tx.drop_table(named("c"))
    assert catalog.commit(tx).entry is None
    assert (tx.state, tx.version) == (State.COMPLETED, 1)
    assert tree(store) == before


def test_an_ended_transaction_cannot_be_committed_again(catalog: TransactionalCatalog) -> None:
    tx = catalog.begin()
    stage(catalog, tx, "a", add("x"))
    catalog.commit(tx)
    with pytest.raises(NoTransactionError, match="has ended"):
        catalog.commit(tx)
    catalog.rollback(tx)  # fine, and without effect
    assert files(catalog, "a") == {"p", "x"}


def test_a_lost_race_against_another_table_costs_metadata_only(
    catalog: TransactionalCatalog, other: TransactionalCatalog, store: FaultyStorage
) -> None:
    tx = catalog.begin()
    stage(catalog, tx, "a", add("x"))
    store.interrupt("put_if_absent", lambda: append(other, "b", "y"), path=entry_path(2))
    before = store.count("put", ".json")
    assert catalog.commit(tx).version == 3
    assert (files(catalog, "a"), files(catalog, "b")) == ({"p", "x"}, {"y"})
    assert store.count("put", ".json") == before


def test_losing_every_race_is_a_conflict_that_may_be_retried(
    catalog: TransactionalCatalog, store: FaultyStorage, other: TransactionalCatalog
) -> None:
    catalog.backoff = replace(RACE, attempts=2)
    before = tree(store)
    tx = catalog.begin()
    stage(catalog, tx, "a", add("x"))
    for version in (2, 3):
        store.interrupt(
            "put_if_absent",
            lambda v=version: other.run(lambda t: t.create_namespace((f"n{v}",), {})),  # type: ignore[misc]
            path=entry_path(version),
        )
    with pytest.raises(ConflictError, match="lost 2 races"):
        catalog.commit(tx)
    assert tx.state is State.ROLLED_BACK
    assert tree(store) == before


# --- conflicts --------------------------------------------------------------------------------------------------------

Act = Callable[[TransactionalCatalog, Transaction], None]


def writes(name: str, *actions: Any, operation: str = "WRITE") -> Act:
    return lambda catalog, tx: stage(catalog, tx, name, *actions, operation=operation)


def reads(name: str) -> Act:
    return lambda _, tx: tx.read(tx.table(named(name)))


def does(*acts: Act) -> Act:
    def all_of_them(catalog: TransactionalCatalog, tx: Transaction) -> None:
        for act in acts:
            act(catalog, tx)

    return all_of_them


def makes(name: str) -> Act:
    def make(catalog: TransactionalCatalog, tx: Transaction) -> None:
        stage_new(catalog, tx, name)

    return make


def drops(name: str) -> Act:
    return lambda _, tx: tx.drop_table(named(name))


def renames(name: str, to: str) -> Act:
    return lambda _, tx: tx.rename_table(named(name), named(to))


def removes_p(catalog: TransactionalCatalog, tx: Transaction) -> None:
    stage(catalog, tx, "a", remove("p"), operation="DELETE")


def makes_namespace(catalog: TransactionalCatalog, tx: Transaction) -> None:
    tx.create_namespace(("s",), {})


CASES: list[tuple[str, Act, Act, Isolation, str | None]] = [
    ("append and append", writes("a", add("x")), writes("a", add("y")), "SERIALIZABLE", None),
    ("different tables", writes("a", add("x")), writes("b", add("y")), "SERIALIZABLE", None),
    ("both delete p", removes_p, removes_p, "SNAPSHOT", "changed file p of table default.a, as this"),
    ("delete and append", removes_p, writes("a", add("y")), "SNAPSHOT", None),
    ("what was read changed", does(reads("b"), writes("a", add("x"))), writes("b", add("y")), "SERIALIZABLE", None),
    (
        "write skew",
        does(reads("b"), writes("a", add("x"))),
        does(reads("a"), writes("b", add("y"))),
        "SERIALIZABLE",
        "changed table default.b, which this transaction read, and read what this transaction changed",
    ),
    (
        "write skew at SNAPSHOT",
        does(reads("b"), writes("a", add("x"))),
        does(reads("a"), writes("b", add("y"))),
        "SNAPSHOT",
        None,
    ),
    (
        "what was deleted was looked for",
        removes_p,
        does(reads("a"), writes("a", add("y"))),
        "SERIALIZABLE",
        "changed table default.a, which this transaction read, and read what this transaction changed",
    ),
    ("schema changed", writes("a", add("x")), writes("a", CONSTRAINT), "SNAPSHOT", "changed the schema"),
    ("schema changed by us", writes("a", CONSTRAINT), writes("a", add("y")), "SNAPSHOT", "schema or properties"),
    ("two properties", writes("a", metadata(k="v")), writes("a", metadata(l="v")), "SNAPSHOT", "changed the schema"),
    ("a property", writes("a", add("x")), writes("a", metadata(k="v")), "SERIALIZABLE", None),
    ("a property by us", writes("a", metadata(k="v")), writes("a", add("y")), "SERIALIZABLE", None),
    ("a column", writes("a", add("x")), writes("a", metadata("c")), "SERIALIZABLE", None),
    ("a column by us", writes("a", metadata("c")), writes("a", add("y")), "SERIALIZABLE", None),
    ("table dropped", writes("a", add("x")), drops("a"), "SNAPSHOT", "dropped table default.a, which this"),
    ("dropped by us", drops("a"), writes("a", add("y")), "SNAPSHOT", "wrote table default.a, which this"),
    ("table renamed", writes("a", add("x")), renames("a", "c"), "SNAPSHOT", "renamed table default.a to default.c"),
    ("same name created", makes("c"), makes("c"), "SNAPSHOT", "gave a table the name default.c"),
    ("a name held in between", does(makes("c"), renames("c", "d")), makes("c"), "SNAPSHOT", None),
    ("made and dropped again", does(makes("c"), drops("c"), writes("b", add("y"))), makes("c"), "SNAPSHOT", None),
    ("same namespace created", makes_namespace, makes_namespace, "SNAPSHOT", "created namespace s, which this"),
]


@pytest.mark.parametrize(("mine", "theirs", "isolation", "message"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_who_may_land_behind_whom(  # noqa: PLR0917 (pytest calls it by name)
    catalog: TransactionalCatalog,
    other: TransactionalCatalog,
    store: FaultyStorage,
    mine: Act,
    theirs: Act,
    isolation: Isolation,
    message: str | None,
) -> None:
    tx, winner = catalog.begin(isolation=isolation), other.begin()
    mine(catalog, tx)
    theirs(other, winner)
    other.commit(winner)
    if message is None:
        assert catalog.commit(tx).version == 3
        return
    with pytest.raises(ConflictError) as caught:
        catalog.commit(tx)
    assert message in caught.value.message
    assert f"transaction {winner.id} (database version 2)" in caught.value.message
    assert caught.value.retryable
    assert tx.state is State.ROLLED_BACK
    assert not any(tx.id in path for path in tree(store))


def test_a_transaction_that_turns_in_commit_timestamps_on_has_no_winners(
    catalog: TransactionalCatalog, other: TransactionalCatalog
) -> None:
    """Delta stamped it after the snapshot's last version; that stays right, for it never lands behind another write."""
    tx = catalog.begin(isolation="SNAPSHOT")
    stage(catalog, tx, "a", metadata(**{"delta.enableInCommitTimestamps": "true"}))
    append(other, "a", "y")
    with pytest.raises(ConflictError, match="whose schema or properties this transaction changed"):
        catalog.commit(tx)


def test_a_winner_that_was_moved_counts_where_it_is(
    catalog: TransactionalCatalog, other: TransactionalCatalog, store: FaultyStorage
) -> None:
    """Ours lands behind both: the foreign commit, and the ratified one that it displaced."""
    tx = catalog.begin(isolation="SNAPSHOT")
    stage(catalog, tx, "a", add("x"))
    late = other.begin()
    stage(other, late, "a", add("y"))
    store_of_other = FaultyStorage(other.lake.storage)
    other.lake.storage = store_of_other
    store_of_other.interrupt("put_if_absent", lambda: foreign(other, "a", 1, add("f")), path=f"{1:020d}.json")
    other.commit(late)
    catalog.commit(tx)
    assert files(catalog, "a") == {"p", "f", "y", "x"}
    assert catalog.timeline.head.tables[named("a")].version == 3


def test_row_ids_are_given_behind_those_of_the_winners(
    catalog: TransactionalCatalog, other: TransactionalCatalog
) -> None:
    def rows(path: str) -> list[Action]:
        mark = {"domain": "delta.rowTracking", "configuration": '{"rowIdHighWaterMark":9}', "removed": False}
        return [add(path, baseRowId=0, defaultRowCommitVersion=1), {"domainMetadata": mark}]

    tx, winner = catalog.begin(isolation="SNAPSHOT"), other.begin(isolation="SNAPSHOT")
    stage(catalog, tx, "a", *rows("x"))
    stage(other, winner, "a", *rows("y"))
    other.commit(winner)
    catalog.commit(tx)
    actions = read_published(catalog.lake.storage, location(catalog, "a"), 2)
    [file] = bodies(actions, "add")
    assert (file["path"], file["baseRowId"], file["defaultRowCommitVersion"]) == ("x", 10, 2)
    assert [json.loads(d["configuration"]) for d in bodies(actions, "domainMetadata")] == [{"rowIdHighWaterMark": 19}]


# --- a store that fails -----------------------------------------------------------------------------------------------


def test_a_lost_response_is_no_lost_commit(
    catalog: TransactionalCatalog, store: FaultyStorage, other: TransactionalCatalog
) -> None:
    """The entry was written and the answer lost: reading it back tells, and COMMIT succeeds."""
    tx = catalog.begin()
    stage(catalog, tx, "a", add("x"))
    store.fail("put_if_absent", path=entry_path(2), when="after")
    assert catalog.commit(tx).version == 2
    assert files(other, "a") == {"p", "x"}


def in_doubt(catalog: TransactionalCatalog, store: FaultyStorage, *, landed: bool) -> Transaction:
    """Return a transaction that appended x to a, and whose COMMIT got no answer."""
    tx = catalog.begin()
    stage(catalog, tx, "a", add("x"))
    store.go_down(entry_path(2), landed=landed)
    with pytest.raises(CommitUnknownError, match="committed as database version 2") as caught:
        catalog.commit(tx)
    assert not caught.value.retryable
    assert (tx.is_open, tx.in_doubt) == (True, 2)
    return tx


@pytest.mark.parametrize("landed", [True, False])
def test_after_an_unanswered_commit_another_one_finds_out(
    catalog: TransactionalCatalog, store: FaultyStorage, other: TransactionalCatalog, landed: bool
) -> None:
    tx = in_doubt(catalog, store, landed=landed)
    with pytest.raises(TransactionStateError, match="COMMIT again to find out"):
        stage(catalog, tx, "a", add("later"))
    with pytest.raises(CommitUnknownError):  # never "nothing was changed", on which the whole might be run again
        catalog.commit(tx)
    store.heal()
    assert catalog.commit(tx).version == 2
    assert files(other, "a") == {"p", "x"}
    assert not any("/_lockstep/" in path for path in tree(store))


def test_an_unanswered_commit_whose_version_another_took_is_judged_anew(
    catalog: TransactionalCatalog, store: FaultyStorage, other: TransactionalCatalog
) -> None:
    tx = in_doubt(catalog, store, landed=False)
    store.heal()
    append(other, "b", "y")
    assert catalog.commit(tx).version == 3
    assert files(other, "a") == {"p", "x"}


def test_rollback_after_an_unanswered_commit_that_landed_comes_too_late(
    catalog: TransactionalCatalog, store: FaultyStorage, other: TransactionalCatalog
) -> None:
    """It must not remove a file of what is committed."""
    tx = in_doubt(catalog, store, landed=True)
    store.heal()
    with pytest.raises(TransactionStateError, match=r"too late to roll back: .* database version 2") as caught:
        catalog.rollback(tx)
    assert caught.value.sqlstate == "2D000"
    assert tx.state is State.COMPLETED
    assert files(other, "a") == {"p", "x"}
    assert store.exists(f"{location(other, 'a')}/x")


def test_rollback_after_an_unanswered_commit_that_did_not_land_sees_that_it_never_will(
    catalog: TransactionalCatalog, store: FaultyStorage, other: TransactionalCatalog
) -> None:
    """The write may still be under way: its version is taken from it, and only then its files are removed."""
    tx = in_doubt(catalog, store, landed=False)
    store.heal()
    catalog.rollback(tx)
    assert not store.inner.put_if_absent(entry_path(2), b"{}"), "the request that was under way arrives, and loses"
    assert files(other, "a") == {"p"}
    assert tx.state is State.ROLLED_BACK
    assert not store.exists(f"{location(other, 'a')}/x")


def test_rollback_while_the_store_is_down_ends_the_transaction_and_removes_nothing(
    catalog: TransactionalCatalog, store: FaultyStorage, other: TransactionalCatalog
) -> None:
    tx = in_doubt(catalog, store, landed=True)
    with pytest.raises(CommitUnknownError, match="still does not say"):
        catalog.rollback(tx)
    assert tx.state is State.ROLLED_BACK
    assert store.exists(f"{location(other, 'a')}/x")
    assert files(other, "a") == {"p", "x"}, "it had landed"


def test_an_interrupted_commit_is_in_doubt(
    catalog: TransactionalCatalog, store: FaultyStorage, other: TransactionalCatalog
) -> None:
    """Ctrl-C between the write and its answer: what the block's exit rolls back then is committed."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    tx = catalog.begin()
    stage(catalog, tx, "a", add("x"))
    store.interrupt("put", interrupt, path="_latest")  # the hint, right after ratifying and publishing
    with pytest.raises(KeyboardInterrupt):
        catalog.commit(tx)
    catalog.rollback(tx)
    assert store.exists(f"{location(other, 'a')}/x")

    tx = catalog.begin()
    stage(catalog, tx, "a", add("y"))
    store.interrupt("put_if_absent", interrupt, path=entry_path(3), when="after")
    with pytest.raises(KeyboardInterrupt):
        catalog.commit(tx)
    assert tx.in_doubt == 3
    with pytest.raises(TransactionStateError, match="too late"):
        catalog.rollback(tx)
    assert store.exists(f"{location(other, 'a')}/y")


def test_a_store_that_refuses_before_it_writes_leaves_no_doubt(
    catalog: TransactionalCatalog, store: FaultyStorage, other: TransactionalCatalog
) -> None:
    """A full disk is 58030 and nothing was committed; the transaction is open, and may be committed later."""
    tx = catalog.begin()
    stage(catalog, tx, "a", add("x"))
    store.fail("put_if_absent", path=entry_path(2), definite=True)
    with pytest.raises(UnavailableError) as caught:
        catalog.commit(tx)
    assert caught.value.sqlstate == "58030"
    assert (tx.is_open, tx.in_doubt) == (True, None)
    assert files(other, "a") == {"p"}
    assert catalog.commit(tx).version == 2


@pytest.mark.parametrize("operation", ["get", "exists", "put_if_absent"])
def test_a_failure_before_ratifying_leaves_the_transaction_open_and_cleanable(
    catalog: TransactionalCatalog, store: FaultyStorage, operation: Any
) -> None:
    before = tree(store)
    tx = catalog.begin()
    stage(catalog, tx, "a", large("x"))
    where = {"get": f"{1:020d}.json", "exists": f"{1:020d}.json", "put_if_absent": ".json"}[operation]
    store.fail(operation, path=where)
    with pytest.raises(UnavailableError):
        catalog.commit(tx)
    assert (tx.is_open, tx.in_doubt, tx.state) == (True, None, State.INFLIGHT)
    catalog.rollback(tx)
    assert tree(store) == before


def test_a_store_that_fails_while_publishing_fails_no_commit(
    catalog: TransactionalCatalog, store: FaultyStorage, other: TransactionalCatalog
) -> None:
    tx = catalog.begin()
    stage(catalog, tx, "a", add("x"))
    stage(catalog, tx, "b", add("y"))
    store.fail("put_if_absent", path=f"_delta_log/{1:020d}.json")
    assert catalog.commit(tx).version == 2
    assert tx.state is State.COMPLETED
    assert (files(other, "a"), files(other, "b")) == ({"p", "x"}, {"y"})


# --- crashes ----------------------------------------------------------------------------------------------------------


class Crash(BaseException):
    """The process ends here; nothing of it runs on."""


def crash(store: FaultyStorage, path: str, nth: int = 1) -> None:
    """End the process just before the nth write of a file that ends like this."""
    seen: list[str] = []

    def die() -> None:
        seen.append(path)
        if len(seen) == nth:
            raise Crash

    for _ in range(nth):
        store.interrupt("put_if_absent", die, path=path)


def test_a_crash_before_ratifying_leaves_the_version_before(
    catalog: TransactionalCatalog, store: FaultyStorage
) -> None:
    tx = catalog.begin()
    stage(catalog, tx, "a", add("x"))
    stage(catalog, tx, "b", add("y"))
    crash(store, entry_path(2))
    with pytest.raises(Crash):
        catalog.commit(tx)
    again = open_catalog(store.inner)
    assert (files(again, "a"), files(again, "b")) == ({"p"}, set())
    assert again.timeline.head.version == 1


@pytest.mark.parametrize("published", [0, 1])
@pytest.mark.parametrize("size", ["inline", "staged"])
def test_after_a_crash_before_publishing_whoever_comes_next_publishes(
    catalog: TransactionalCatalog, store: FaultyStorage, published: int, size: str
) -> None:
    """Ratified is committed: between ratify and publish, and between two publishes."""
    file = large if size == "staged" else add
    tx = catalog.begin()
    stage(catalog, tx, "a", file("x"))
    stage(catalog, tx, "b", file("y"))
    crash(store, f"_delta_log/{1:020d}.json", nth=published + 1)
    with pytest.raises(Crash):
        catalog.commit(tx)
    # The other table's thread may have been faster than the crash; each number of published tables must be right.
    again = open_catalog(store.inner)
    assert again.timeline.head.version == 2
    assert (files(again, "a"), files(again, "b")) == ({"p", "x"}, {"y"})
    assert again.timeline.published_through == 2


def test_a_reader_that_comes_between_ratify_and_publish_publishes(
    catalog: TransactionalCatalog, store: FaultyStorage, other: TransactionalCatalog
) -> None:
    seen = []
    tx = catalog.begin()
    stage(catalog, tx, "a", add("x"))
    store.interrupt("put_if_absent", lambda: seen.append(files(other, "a")), path=f"_delta_log/{1:020d}.json")
    catalog.commit(tx)
    assert seen == [{"p", "x"}]


# --- rollback ---------------------------------------------------------------------------------------------------------


def test_rollback_removes_exactly_what_the_transaction_made(
    catalog: TransactionalCatalog, store: FaultyStorage
) -> None:
    before = tree(store)
    tx = catalog.begin()
    stage(catalog, tx, "a", add("x"))
    stage(catalog, tx, "a", remove("p"), add("p2"), operation="UPDATE")
    stage(catalog, tx, "a", remove("p2"), add("p"), operation="RESTORE")
    stage_new(catalog, tx, "c", add("y"))
    stage_new(catalog, tx, "d", add("z"))
    tx.rename_table(named("c"), named("c2"))
    tx.drop_table(named("d"))
    stage(catalog, tx, "b", add("w"))
    tx.drop_table(named("b"))
    tx.rename_table(named("a"), named("a2"))
    failed = tx.reserve(named("e"), "e-id")
    store.put(f"{failed.location}/half.parquet", b"rows of a CREATE TABLE AS SELECT that failed")
    assert tree(store) != before
    catalog.rollback(tx)
    assert tx.state is State.ROLLED_BACK
    assert tree(store) == before


def test_rollback_goes_through_though_the_store_fails(catalog: TransactionalCatalog, store: FaultyStorage) -> None:
    """What is staged is visible to nobody: that it cannot be removed now is no reason to keep the session inside."""
    tx = catalog.begin()
    stage(catalog, tx, "a", add("x"))
    stage(catalog, tx, "b", add("y"))
    store.fail("get", path=staged_path(location(catalog, "a"), tx.id, 1))
    store.fail("delete_folder", path=staging_folder(location(catalog, "b"), tx.id))
    catalog.rollback(tx)
    assert tx.state is State.ROLLED_BACK
    assert not store.exists(f"{location(catalog, 'b')}/y")


def test_a_failed_transaction_is_rolled_back_by_its_commit(catalog: TransactionalCatalog, store: FaultyStorage) -> None:
    before = tree(store)
    tx = catalog.begin()
    stage(catalog, tx, "a", add("x"))
    tx.failure = "division by zero"
    with pytest.raises(FailedTransactionError, match="division by zero") as caught:
        catalog.commit(tx)
    assert caught.value.sqlstate == "25P02"
    assert tx.state is State.ROLLED_BACK
    assert tree(store) == before


def test_the_loser_of_a_drop_race_leaves_nothing_in_the_dropped_table(
    catalog: TransactionalCatalog, other: TransactionalCatalog, store: FaultyStorage
) -> None:
    tx = catalog.begin()
    stage(catalog, tx, "a", add("x"))
    other.run(lambda t: t.drop_table(named("a")))
    before = tree(store) - {path for path in tree(store) if tx.id in path or path.endswith("/x")}
    with pytest.raises(ConflictError, match=r"dropped table default\.a"):
        catalog.commit(tx)
    assert tree(store) == before


# --- many at once -----------------------------------------------------------------------------------------------------

THREADS, COMMITS = 8, 5


def check_dense(catalog: TransactionalCatalog, expected: set[str], *tables: str) -> None:
    """Every commit landed exactly once: in the timeline, in the logs, and at the version that both agree on."""
    for name in tables:
        assert files(catalog, name) == {path for path in expected if path.startswith(name)}
        table = catalog.timeline.head.tables[named(name)]
        added = [
            body["path"]
            for version in range(1, table.version + 1)
            for body in bodies(read_published(catalog.lake.storage, table.location, version), "add")
        ]
        assert len(added) == len(set(added)) == table.version
        assert not catalog.lake.storage.exists(commit_path(table.location, table.version + 1))
    entries = catalog.timeline.entries(-1)
    assert [entry.version for entry in entries] == list(range(len(entries)))
    ids = [entry.transaction.id for entry in entries]
    assert len(set(ids)) == len(ids)
    assert not any(entry.kind == "external" for entry in entries), "no commit of ours was taken for a foreign one"


def test_of_many_threads_every_commit_lands_exactly_once(tmp_path: Path) -> None:
    catalog = open_catalog(open_storage(str(tmp_path)))
    create(catalog, "a", "b")

    def work(thread: int) -> None:
        for n in range(COMMITS):
            append(catalog, "ab"[(thread + n) % 2], f"{'ab'[(thread + n) % 2]}-{thread}-{n}")

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, range(THREADS)))
    expected = {f"{'ab'[(t + n) % 2]}-{t}-{n}" for t in range(THREADS) for n in range(COMMITS)}
    check_dense(open_catalog(open_storage(str(tmp_path))), expected, "a", "b")
    assert catalog.timeline.head.version == THREADS * COMMITS + 1


PROCESS = """
import sys
from lockstep.storage import open_storage
from tests.support.lakes import append, open_catalog

root, process, commits = sys.argv[1], sys.argv[2], int(sys.argv[3])
catalog = open_catalog(open_storage(root))
print("ready", flush=True)
sys.stdin.readline()
for n in range(commits):
    append(catalog, "ab"[n % 2], f"{'ab'[n % 2]}-{process}-{n}")
"""


def test_of_several_processes_every_commit_lands_exactly_once(tmp_path: Path, repository: Path) -> None:
    catalog = open_catalog(open_storage(str(tmp_path)))
    create(catalog, "a", "b")
    started = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, str(tmp_path), str(process), str(COMMITS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=repository,
        )
        for process in range(3)
    ]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in started:
        process.communicate("go\n", timeout=60)
    assert [process.returncode for process in started] == [0, 0, 0]
    expected = {f"{'ab'[n % 2]}-{p}-{n}" for p in range(3) for n in range(COMMITS)}
    check_dense(open_catalog(open_storage(str(tmp_path))), expected, "a", "b")


# --- statements on their own ------------------------------------------------------------------------------------------


def autocommit(catalog: TransactionalCatalog, name: str, version: int, *actions: Any) -> object:
    content = "".join(json.dumps(action) + "\n" for action in ({"commitInfo": {"operation": "WRITE"}}, *actions))
    return catalog.write(location(catalog, name), version, content)


def test_a_statement_whose_table_version_is_taken_is_told_so(
    catalog: TransactionalCatalog, other: TransactionalCatalog, store: FaultyStorage
) -> None:
    append(other, "a", "y")
    before = tree(store)
    assert isinstance(autocommit(catalog, "a", 1, large("x")), committing.Taken)
    store.interrupt("put_if_absent", lambda: append(other, "a", "z"), path=entry_path(3))
    assert isinstance(autocommit(catalog, "a", 2, large("x")), committing.Taken)
    assert {path for path in tree(store) - before if "/_lockstep/" in path} == set(), (
        "a staged commit that lost is litter"
    )
    autocommit(catalog, "a", 3, add("x"))
    assert files(other, "a") == {"p", "y", "z", "x"}


def test_a_foreign_commit_takes_a_statements_version(catalog: TransactionalCatalog, store: FaultyStorage) -> None:
    store.interrupt("put_if_absent", lambda: foreign(catalog, "a", 1, add("f")), path=entry_path(2))
    autocommit(catalog, "a", 1, add("x"))  # ratified first, so it is the foreign one that comes in between
    assert files(catalog, "a") == {"p", "f", "x"}
    foreign(catalog, "a", 3, add("g"))
    assert isinstance(autocommit(catalog, "a", 3, add("y")), committing.Taken)


def test_a_refused_creation_leaves_nothing(
    catalog: TransactionalCatalog, other: TransactionalCatalog, store: FaultyStorage
) -> None:
    creation = catalog.reserve(named("c"))
    store.put(f"{creation.location}/part-0", b"rows")
    create(other, "c")
    with pytest.raises(Exception, match=r"table default\.c exists"):
        catalog.write(creation.location, 0, json.dumps(metadata()), creation=creation)
    assert not any(path.startswith(creation.location) for path in tree(store))
    assert "default.c" in {str(name) for name in other.database().tables}


def test_a_creation_in_doubt_keeps_its_files(
    catalog: TransactionalCatalog, other: TransactionalCatalog, store: FaultyStorage
) -> None:
    creation = catalog.reserve(named("c"))
    store.put(f"{creation.location}/part-0", b"rows")
    store.go_down(entry_path(2), landed=True)
    with pytest.raises(CommitUnknownError):
        catalog.write(creation.location, 0, json.dumps(metadata()), creation=creation)
    assert store.exists(f"{creation.location}/part-0")
    assert named("c") in other.database().tables
