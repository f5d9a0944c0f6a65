"""Transactions without Spark beside each other: what SERIALIZABLE refuses, what lands, what is undone."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

import lockstep
from lockstep.errors import (
    ConflictError,
    FailedTransactionError,
    InvalidError,
    LockstepError,
    NoTransactionError,
    TransactionStateError,
    UndefinedError,
)
from lockstep.tables.opened import OpenLake
from lockstep.tables.transaction import LakeTransaction

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])
VECTORS = {"delta.enableDeletionVectors": "true"}


@pytest.fixture
def bank(lake: OpenLake) -> OpenLake:
    """A lake with the tables a and b, of the rows (1, 0) to (9, 0)."""
    with lake.transaction() as tx:
        for name in ("a", "b"):
            tx.create(name, SCHEMA, properties=VECTORS).append({"id": range(1, 10), "v": [0] * 9})
    return lake


def count(lake: OpenLake, name: str, where: str = "true") -> int:
    return int(lake.at().sql(f"SELECT count(*) AS n FROM {name} WHERE {where}").column("n")[0].as_py())


def race(
    lake: OpenLake, one: Callable[[LakeTransaction], Any], other: Callable[[LakeTransaction], Any], **more: Any
) -> bool:
    """Tell whether a transaction lands behind another that begins after it and commits before it."""
    first = lake.transaction(**more)
    try:
        with first:
            one(first)
            with lake.transaction(**more) as second:
                other(second)
    except ConflictError as error:
        refusal: ConflictError | None = error
    else:
        refusal = None
    assert first.status == ("COMMITTED" if refusal is None else "ROLLED BACK")
    return refusal is None


def reads(name: str, where: str | None = None) -> Callable[[LakeTransaction], Any]:
    return lambda tx: tx[name].to_arrow(where=where)


def appends(name: str, id: int = 100) -> Callable[[LakeTransaction], Any]:
    return lambda tx: tx[name].append({"id": [id], "v": [1]})


def then(*steps: Callable[[LakeTransaction], Any]) -> Callable[[LakeTransaction], Any]:
    return lambda tx: [step(tx) for step in steps]


def updates(name: str, where: str) -> Callable[[LakeTransaction], Any]:
    return lambda tx: tx[name].update({"v": "v + 1"}, where)


def merges(name: str, *ids: int) -> Callable[[LakeTransaction], Any]:
    rows = {"id": list(ids), "v": [5] * len(ids)}
    return lambda tx: tx[name].merge(rows, on="id").when_matched_update_all().when_not_matched_insert_all().execute()


def test_write_skew_over_two_tables_is_refused(bank: OpenLake) -> None:
    """Each reads what the other changes: no order of the two explains what both saw."""
    one, other = then(reads("a"), appends("b")), then(reads("b"), appends("a"))
    assert not race(bank, one, other)
    assert (count(bank, "a"), count(bank, "b")) == (10, 9)
    assert race(bank, one, other, isolation="SNAPSHOT")


def test_write_skew_over_columns_is_refused(bank: OpenLake) -> None:
    """The one writes down how many columns there are, the other adds one where it finds nothing written down."""
    one = then(lambda tx: tx["a"].schema, appends("b"))
    other = then(reads("b"), lambda tx: tx["a"].alter.add_columns(pa.schema([("more", pa.int64())])))
    assert not race(bank, one, other)
    assert race(bank, one, then(reads("b"), updates("a", "id = 1"))), "rows are no columns"


def test_write_skew_by_queries_is_refused(bank: OpenLake) -> None:
    query = "SELECT count(*) FROM a JOIN b USING (id)"
    assert not race(bank, then(lambda tx: tx.sql(query), appends("b")), then(lambda tx: tx.sql(query), appends("a")))


@pytest.mark.parametrize(
    ("one", "other", "lands"),
    [
        (appends("a"), appends("a"), True),
        (then(reads("a", "id = 3"), appends("b")), then(reads("b", "id = 200"), appends("a")), True),
        (then(reads("a", "id = 100"), appends("b")), then(reads("b", "id = 100"), appends("a")), False),
        (updates("a", "id = 1"), updates("a", "id = 2"), True),
        (updates("a", "id = 1"), updates("a", "id = 1"), False),
        (updates("a", "id = 1"), updates("b", "id = 1"), True),
        (merges("a", 1), merges("a", 2), True),
        (merges("a", 1, 300), merges("a", 2, 300), False),
        # As if the one had come first, which saw nothing of the other, and the other read nothing.
        (lambda tx: tx["a"].overwrite({"id": [1], "v": [1]}), appends("a"), True),
        (lambda tx: tx["a"].delete(), appends("a"), True),
        (lambda tx: tx["a"].delete(), updates("a", "id = 1"), False),
        (lambda tx: tx.drop("a"), appends("a"), False),
    ],
)
def test_what_lands_behind_what(bank: OpenLake, one: Any, other: Any, lands: bool) -> None:
    assert race(bank, one, other) == lands


def test_racing_deletes_of_one_file_are_merged(bank: OpenLake) -> None:
    assert race(bank, lambda tx: tx["a"].delete("id < 3"), lambda tx: tx["a"].delete("id > 7"))
    assert count(bank, "a") == 5


def test_a_transaction_sees_its_snapshot_and_its_own_writes(bank: OpenLake) -> None:
    with bank.transaction(isolation="SNAPSHOT") as tx:
        assert tx["a"].to_arrow().num_rows == 9
        with bank.transaction() as other:
            other["a"].delete("id = 1")
        tx["a"].append({"id": [50]})
        assert tx["a"].to_arrow().num_rows == 10
    assert count(bank, "a") == 9


def test_run_tries_again_what_lost(bank: OpenLake) -> None:
    calls: list[int] = []

    def change(tx: LakeTransaction) -> int:
        calls.append(1)
        total = tx["a"].to_arrow().num_rows
        if len(calls) == 1:
            with bank.transaction() as other:
                other["a"].append({"id": [70]})
                other["a"].update({"v": "7"}, "id = 1")
        tx["a"].update({"v": str(total)}, "id = 1")
        return total

    assert bank.run(change, sleep=lambda _: None, comment="again") == 10
    assert len(calls) == 2
    with pytest.raises(InvalidError, match="generator"):
        bank.run(lambda tx: (yield))


def test_a_batch_is_done_once(bank: OpenLake) -> None:
    def load(tx: LakeTransaction) -> bool:
        if not tx.is_replay:
            tx["a"].append({"id": [80]})
        return tx.is_replay

    assert [bank.run(load, batch=("loader", 7)) for _ in range(2)] == [False, True]
    assert count(bank, "a", "id = 80") == 1
    with pytest.raises(InvalidError):
        bank.transaction(batch=("loader", -1))


def test_an_exception_rolls_back_and_is_what_is_raised(bank: OpenLake) -> None:
    tx = bank.transaction()

    def fail() -> None:
        with tx:
            tx["a"].append({"id": [1]})
            tx.create("c", SCHEMA).append({"id": [1]})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert tx.status == "ROLLED BACK"
    assert [str(name) for name in bank.at().tables] == ["default.a", "default.b"]
    files = [found.path for found in bank.catalog.lake.storage.walk("default")]
    assert sum(path.endswith(".parquet") for path in files) == 2, "data files of the rolled back are gone"
    with pytest.raises(TransactionStateError), tx:
        pass
    with pytest.raises(NoTransactionError):
        tx["a"].append({"id": [1]})


def test_savepoints(bank: OpenLake) -> None:
    with bank.transaction() as tx:
        tx["a"].delete("id = 1")
        tx.savepoint("s")
        tx["a"].delete()
        tx.drop("b")
        tx.rollback_to("s")
        tx["a"].delete("id = 2")
        tx.release("s")
        with pytest.raises(UndefinedError):
            tx.rollback_to("s")
    assert (count(bank, "a"), count(bank, "b")) == (7, 9)


def test_a_statement_of_which_nobody_knows_leaves_only_rollback(
    bank: OpenLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = bank.catalog.lake.storage
    put = type(storage).put_if_absent

    def lost(self: Any, path: str, data: bytes) -> Any:
        if "/_delta_log/_lockstep/" in path:
            raise lockstep.errors.UnavailableError("no answer")
        return put(self, path, data)

    with bank.transaction() as tx:
        with monkeypatch.context() as patched:
            patched.setattr(type(storage), "put_if_absent", lost)
            with pytest.raises(lockstep.errors.UnavailableError):
                tx["a"].append({"id": [1]})
        with pytest.raises(FailedTransactionError):
            tx["b"].append({"id": [1]})
        with pytest.raises(FailedTransactionError):
            tx.commit()
    assert tx.status == "ROLLED BACK"
    assert (count(bank, "a"), count(bank, "b")) == (9, 9)


def test_threads_lose_nothing(bank: OpenLake) -> None:
    def load(thread: int) -> None:
        for number in range(6):

            def change(tx: LakeTransaction, id: int = 1000 + 100 * thread + number) -> None:
                tx["a"].append({"id": [id], "v": [id]})
                tx["b"].append({"id": [id], "v": [id]})

            bank.run(change)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(load, range(8)))
    query = "SELECT count(*) AS n, count(DISTINCT id) AS d FROM a JOIN b USING (id) WHERE id >= 1000"
    assert bank.at().sql(query).to_pylist() == [{"n": 48, "d": 48}]


def test_a_table_that_is_lost_holds_nobody_up_who_reads_others(bank: OpenLake) -> None:
    before = bank.at()
    log = f"{bank.catalog.database().tables[before['a'].name].location}/_delta_log"
    bank.catalog.lake.upkeep.settle()
    bank.catalog.lake.storage.delete_folder(log)
    with pytest.raises(LockstepError):
        bank.at()["a"].to_arrow()
    assert bank.at()["b"].to_arrow().num_rows == 9


def test_what_a_plain_writer_did_is_seen(bank: OpenLake) -> None:
    from deltalake import write_deltalake

    with bank.transaction() as tx:
        tx.create("plain", SCHEMA)
    write_deltalake(bank.at()["plain"].uri, pa.table({"id": [1], "v": [1]}, schema=SCHEMA), mode="append")
    assert bank.at()["plain"].to_arrow().num_rows == 1
    with bank.transaction() as tx:
        assert tx["plain"].to_arrow().num_rows == 1
        assert tx["plain"].delete() == 1
    assert count(bank, "plain") == 0
