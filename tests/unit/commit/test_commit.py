"""COMMIT: what lands, of transactions and of statements on their own, and that it lands once."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.commit.outcomes import Taken
from lockstep.delta.actions import bodies
from lockstep.delta.log import commit_path, read_published
from lockstep.errors import (
    CommitUnknownError,
    ConflictError,
    DuplicateError,
    NoTransactionError,
    TransactionStateError,
)
from lockstep.retry import RACE
from lockstep.storage import open_storage
from lockstep.timeline.entry import INLINE_BYTES
from lockstep.timeline.files import entry_path
from lockstep.transactions.state import State
from tests.support.faulty import FaultyStorage
from tests.support.lakes import (
    add,
    append,
    create,
    files,
    foreign,
    large,
    lay,
    location,
    metadata,
    named,
    open_catalog,
    remove,
    replay,
    stage,
    stage_new,
    tree,
)

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
    tx.changing().drop_table(named("c"))
    assert catalog.commit(tx).entry is None
    assert (tx.state, tx.version) == (State.COMPLETED, 1)
    assert tree(store) == before


def test_an_ended_transaction_cannot_be_committed_again(catalog: TransactionalCatalog) -> None:
    tx = catalog.begin()
    stage(catalog, tx, "a", add("x"))
    catalog.commit(tx)
    with pytest.raises(NoTransactionError, match="has ended"):
        catalog.commit(tx)
    with pytest.raises(TransactionStateError, match="is committed as database version 2") as caught:
        catalog.rollback(tx)
    assert caught.value.sqlstate == "2D000"
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
            lambda v=version: other.run(lambda t: t.changing().create_namespace((f"n{v}",), {})),  # type: ignore[misc]
            path=entry_path(version),
        )
    with pytest.raises(ConflictError, match="lost 2 races"):
        catalog.commit(tx)
    assert tx.state is State.ROLLED_BACK
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
    lay(catalog.lake.storage, location(catalog, name), actions)
    return catalog.write(location(catalog, name), version, content)


def test_a_statement_whose_table_version_is_taken_is_told_so(
    catalog: TransactionalCatalog, other: TransactionalCatalog, store: FaultyStorage
) -> None:
    append(other, "a", "y")
    before = tree(store)
    assert isinstance(autocommit(catalog, "a", 1, large("x")), Taken)
    store.interrupt("put_if_absent", lambda: append(other, "a", "z"), path=entry_path(3))
    assert isinstance(autocommit(catalog, "a", 2, large("x")), Taken)
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
    assert isinstance(autocommit(catalog, "a", 3, add("y")), Taken)


def test_a_refused_creation_leaves_nothing(
    catalog: TransactionalCatalog, other: TransactionalCatalog, store: FaultyStorage
) -> None:
    creation = catalog.reserve(named("c"))
    store.put(f"{creation.location}/part-0", b"rows")
    create(other, "c")
    with pytest.raises(DuplicateError, match=r"table default\.c exists") as refused:
        catalog.write(creation.location, 0, json.dumps(metadata()), creation=creation)
    assert refused.value.sqlstate == "42P07"
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
