"""COMMIT beside others: who may land behind whom, and as what."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.delta.actions import Action, bodies
from lockstep.delta.log import read_published
from lockstep.errors import (
    ConflictError,
)
from lockstep.timeline.entry import Isolation
from lockstep.transactions.state import State
from lockstep.transactions.transaction import Transaction
from tests.support.faulty import FaultyStorage
from tests.support.lakes import (
    CONSTRAINT,
    add,
    append,
    files,
    foreign,
    location,
    metadata,
    named,
    open_catalog,
    remove,
    stage,
    stage_new,
    tree,
)

Act = Callable[[TransactionalCatalog, Transaction], None]
"""What a transaction does."""


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
    return lambda _, tx: tx.changing().drop_table(named(name))


def renames(name: str, to: str) -> Act:
    return lambda _, tx: tx.changing().rename_table(named(name), named(to))


def removes_p(catalog: TransactionalCatalog, tx: Transaction) -> None:
    stage(catalog, tx, "a", remove("p"), operation="DELETE")


def makes_namespace(catalog: TransactionalCatalog, tx: Transaction) -> None:
    tx.changing().create_namespace(("s",), {})


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


@pytest.mark.parametrize("is_read", [True, False])
def test_what_a_plain_writer_adds_to_a_table_that_was_read_is_not_dropped_unseen(
    catalog: TransactionalCatalog, *, is_read: bool
) -> None:
    """Whoever copies a table and drops it would lose that. Who only drops it came after the plain writer."""
    tx = catalog.begin()
    table = catalog.table(tx, named("a"))
    if is_read:
        tx.read(table)
    tx.changing().drop_table(named("a"))
    foreign(catalog, "a", table.version + 1, add("f"))
    if is_read:
        with pytest.raises(ConflictError, match=r"wrote table default\.a, which this transaction dropped"):
            catalog.commit(tx)
        assert catalog.database().tables[named("a")].version == table.version + 1
    else:
        catalog.commit(tx)
        assert named("a") not in catalog.database().tables


def test_a_winner_that_was_moved_counts_where_it_is(catalog: TransactionalCatalog, store: FaultyStorage) -> None:
    """Ours lands behind both: the foreign commit, and the ratified one that it displaced."""
    tx = catalog.begin(isolation="SNAPSHOT")
    stage(catalog, tx, "a", add("x"))
    store_of_other = FaultyStorage(store.inner)
    other = open_catalog(store_of_other)
    late = other.begin()
    stage(other, late, "a", add("y"))
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
