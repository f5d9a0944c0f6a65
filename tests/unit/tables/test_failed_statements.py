"""A statement that failed spoils its transaction, as in SQL sessions and PostgreSQL: 25P02."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest

from lockstep.errors import FailedTransactionError, InvalidError, LockstepError, NoTransactionError, UnavailableError
from lockstep.storage import open_storage
from lockstep.tables.opened import OpenLake
from lockstep.tables.transaction import LakeTransaction
from lockstep.timeline.files import entry_path
from tests.support.faulty import FaultyStorage
from tests.support.lakes import open_catalog, tree

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])

FAILING: dict[str, Callable[[LakeTransaction], Any]] = {
    "append": lambda tx: tx["t"].append({"id": ["x"]}),
    "append of no rows": lambda tx: tx["t"].append(7),
    "overwrite": lambda tx: tx["t"].overwrite({"id": [1]}, where="id = 2"),
    "delete": lambda tx: tx["t"].delete("nosuch = 1"),
    "update": lambda tx: tx["t"].update({"v": "1 // 0 + CAST('x' AS INT)"}),
    "merge of no rows": lambda tx: tx["t"].merge(7, on="id"),
    "merge": lambda tx: tx["t"].merge({"id": [1]}, on="id").when_matched_update_all().execute(),
    "create": lambda tx: tx.create("t", SCHEMA),
    "drop": lambda tx: tx.drop("nosuch"),
    "rename": lambda tx: tx.rename("nosuch", "other"),
    "create_namespace": lambda tx: tx.create_namespace("default"),
    "drop_namespace": lambda tx: tx.drop_namespace("nosuch"),
}

LATER: dict[str, Callable[[LakeTransaction], Any]] = {
    "append": lambda tx: tx["t"].append({"id": [9]}),
    "create": lambda tx: tx.create("other", SCHEMA),
    "to_arrow": lambda tx: tx["t"].to_arrow(),
    "polars": lambda tx: tx["t"].polars(),
    "schema": lambda tx: tx["t"].schema,
    "tables": lambda tx: tx.tables,
    "sql": lambda tx: tx.sql("SELECT 1"),
    "savepoint": lambda tx: tx.savepoint("s"),
    "release": lambda tx: tx.release("before"),
}


@pytest.fixture
def table(lake: OpenLake) -> OpenLake:
    """A lake with a table of one row."""
    with lake.transaction() as tx:
        tx.create("t", SCHEMA).append({"id": [1], "v": [1]})
    return lake


def ids(lake: OpenLake) -> list[int]:
    return sorted(lake.at()["t"].to_arrow(["id"]).column("id").to_pylist())


def fail(tx: LakeTransaction, how: str) -> LockstepError:
    with pytest.raises(LockstepError) as failed:
        FAILING[how](tx)
    return failed.value


@pytest.mark.parametrize("how", FAILING)
def test_a_caught_error_commits_nothing(table: OpenLake, how: str) -> None:
    tx = table.transaction().__enter__()
    tx["t"].append({"id": [2]})
    said = fail(tx, how)
    with pytest.raises(FailedTransactionError, match="nothing of it is in any table") as refused:
        tx.__exit__(None, None, None)
    assert refused.value.sqlstate == "25P02"
    assert said.message in refused.value.message, "it says what the failure was"
    assert tx.status == "ROLLED BACK"
    assert ids(table) == [1]


@pytest.mark.parametrize("what", LATER)
def test_nothing_goes_on_after_it(table: OpenLake, what: str) -> None:
    with table.transaction() as tx:
        tx.savepoint("before")
        fail(tx, "append")
        with pytest.raises(FailedTransactionError, match="savepoint from before"):
            LATER[what](tx)
        tx.rollback()
    assert ids(table) == [1]


@pytest.mark.parametrize("properties", [{}, {"delta.enableDeletionVectors": "true"}], ids=["files", "vectors"])
def test_nothing_stays_in_the_store_of_what_was_undone(lake: OpenLake, properties: dict[str, str]) -> None:
    """Neither data files nor deletion vectors: of a rollback, of one to a savepoint, of a statement that failed."""
    with lake.transaction() as tx:
        tx.create("t", SCHEMA, properties=properties).append({"id": [1, 2, 3], "v": [1, 2, 3]})
        tx["t"].alter.add_constraint({"positive": "v > 0"})
    storage = lake.catalog.lake.storage
    before = tree(storage)
    with lake.transaction() as tx:
        tx["t"].delete("id = 2")
        tx["t"].update({"v": "v + 1"}, "id = 1")
        tx.rollback()
    assert tree(storage) == before
    with lake.transaction() as tx:
        tx.savepoint("here")
        tx["t"].delete("id = 2")
        tx.rollback_to("here")
        assert tree(storage) == before
        tx["t"].delete("id = 1")
        kept = tree(storage)
        assert set(before) < set(kept)
        tx.savepoint("later")
        with pytest.raises(InvalidError, match="positive"):
            tx["t"].update({"v": "-v"}, "id = 2")
        assert tree(storage) == kept
        tx.rollback_to("later")
        tx["t"].overwrite({"id": [2], "v": [9]}, where="id = 2")
        tx.rollback_to("later")
        assert tree(storage) == kept
    assert ids(lake) == [2, 3]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("properties", [{}, {"delta.enableDeletionVectors": "true"}], ids=["files", "vectors"])
def test_nothing_stays_of_a_statement_whose_commit_was_not_staged(
    tmp_path: Path, properties: dict[str, str], when: Literal["before", "after"]
) -> None:
    """Its files are written by then, and no commit says which they are."""
    store = FaultyStorage(open_storage(str(tmp_path / "faulty"), create=True))
    lake = OpenLake(open_catalog(store), {})
    with lake.transaction() as tx:
        tx.create("t", SCHEMA, properties=properties).append({"id": [1, 2], "v": [1, 2]})
    lake.catalog.lake.upkeep.settle()
    before = tree(store)
    with lake.transaction() as tx:
        tx.savepoint("before")
        store.fail("put_if_absent", path=f"{tx.id}/00000000000000000001.json", when=when, definite=when == "before")
        with pytest.raises(UnavailableError):
            tx["t"].update({"v": "v + 1"}, "id = 1")
        if when == "before":
            tx.rollback_to("before")
            assert tree(store) == before
        tx.rollback()
    # Of a commit that nobody knows to be there a run of `maintain` finds the folder.
    assert {path for path in tree(store) if "/_lockstep/" not in path} == {
        path for path in before if "/_lockstep/" not in path
    }


@pytest.mark.parametrize("how", FAILING)
def test_a_savepoint_from_before_makes_it_good(table: OpenLake, how: str) -> None:
    with table.transaction() as tx:
        tx["t"].append({"id": [2]})
        tx.savepoint("before")
        tx["t"].append({"id": [3]})
        fail(tx, how)
        tx.rollback_to("before")
        tx["t"].append({"id": [4]})
        fail(tx, how)
        with pytest.raises(InvalidError, match="no savepoint"):
            tx.rollback_to("nosuch")
        with pytest.raises(FailedTransactionError):
            tx["t"].append({"id": [5]})
        tx.rollback_to("before")
        tx["t"].append({"id": [6]})
    assert ids(table) == [1, 2, 6]


def test_what_is_raised_is_raised_though_it_was_spoilt_before(table: OpenLake) -> None:
    def fail_and_raise() -> None:
        with table.transaction() as tx:
            fail(tx, "append")
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fail_and_raise()
    assert ids(table) == [1]


def test_commit_in_the_block_says_so_too_and_ends_it(table: OpenLake) -> None:
    with table.transaction() as tx:
        fail(tx, "delete")
        with pytest.raises(FailedTransactionError):
            tx.commit()
        with pytest.raises(NoTransactionError):
            tx["t"].append({"id": [2]})
    assert tx.status == "ROLLED BACK"


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_of_a_commit_that_lands_is_raised(tmp_path: Path, kind: type[BaseException]) -> None:
    """It is committed, and the program ends as it was told to."""

    def stop() -> None:
        raise kind

    store = FaultyStorage(open_storage(str(tmp_path / "faulty"), create=True))
    lake = OpenLake(open_catalog(store), {})
    with lake.transaction() as tx:
        tx.create("t", pa.schema([("id", pa.int64())]))
    store.interrupt("put_if_absent", stop, path=entry_path(lake.catalog.timeline.head.version + 1), when="after")
    with pytest.raises(kind), lake.transaction() as tx:
        tx["t"].append({"id": [1]})
    assert tx.status == "COMMITTED"
    assert ids(lake) == [1]


def test_an_interrupt_in_a_statement_spoils_it(table: OpenLake) -> None:
    class Rows:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            raise KeyboardInterrupt

    with table.transaction() as tx:
        with pytest.raises(KeyboardInterrupt):
            tx["t"].append(Rows())
        with pytest.raises(FailedTransactionError, match="KeyboardInterrupt"):
            tx.commit()


@pytest.mark.parametrize(
    "read",
    [lambda tx: tx.sql("FROM nosuch"), lambda tx: tx["nosuch"].to_arrow(), lambda tx: tx["t"].to_arrow(where="SELEC")],
)
def test_a_read_that_fails_loses_nothing(table: OpenLake, read: Callable[[LakeTransaction], Any]) -> None:
    """As in SQL sessions: so a program may look whether there is a table, and make it."""
    with table.transaction() as tx:
        tx["t"].append({"id": [2]})
        with pytest.raises(LockstepError):
            read(tx)
        tx["t"].append({"id": [3]})
    assert ids(table) == [1, 2, 3]


def test_run_says_so_and_does_not_try_again(table: OpenLake) -> None:
    tries = []

    def overlook(tx: LakeTransaction) -> None:
        tries.append(tx)
        tx["t"].append({"id": [2]})
        fail(tx, "append")

    with pytest.raises(FailedTransactionError):
        table.run(overlook, sleep=lambda _: None)
    assert len(tries) == 1
    assert ids(table) == [1]
