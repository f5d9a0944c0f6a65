"""RESTORE DATABASE and revert without Spark: tables, by their logs and by their names, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake import write_deltalake as write_plainly

from lockstep.adoption.adopt import Wanted, adopt, look
from lockstep.delta.actions import bodies
from lockstep.errors import (
    ConflictError,
    FailedTransactionError,
    InvalidError,
    UndefinedError,
)
from lockstep.lake.verify import verify
from lockstep.tables.opened import OpenLake
from lockstep.tables.table import TransactionTable
from lockstep.timeline.entry import Isolation, ViewDefinition
from lockstep.transactions.transaction import Transaction
from tests.support.restored import (
    KINDS,
    ROWS,
    SCHEMA,
    last_commit,
    make,
    named,
    rows,
    snapshot_of,
    table_of,
    tagged,
    touched,
)

# --- what a restored table is -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_restored_table_has_the_files_and_columns_that_it_had(lake: OpenLake, kind: str) -> None:
    then = make(lake, **KINDS[kind])
    before, there = rows(lake), table_of(lake).version
    with lake.transaction() as tx:
        tx["t"].delete("id = 2")
        tx["t"].update({"v": "'x'"}, "id = 3")
    with lake.transaction() as tx:
        tx["t"].alter.add_columns(pa.schema([("more", pa.int64())]))
        tx["t"].append({"id": [9], "more": [9]})
    done = lake.restore(then)
    assert (done.version, done.database_version) == (then, lake.at().version)
    assert [(each.name, each.version) for each in done.tables] == [(named("t"), there)]
    assert rows(lake) == before
    assert snapshot_of(lake).files.keys() == snapshot_of(lake, version=there).files.keys()
    assert verify(lake.catalog.lake.storage, lake.catalog.timeline).differences == ()
    with lake.transaction() as tx:
        assert sorted(tx["t"].to_arrow(["id"]).column("id").to_pylist()) == [1, 2, 3, 4]
        assert tx["t"].delete("id = 1") == 1
    assert len(rows(lake)) == 3


def test_a_restore_says_what_deltas_own_says(lake: OpenLake) -> None:
    then = make(lake)
    with lake.transaction() as tx:
        tx["t"].overwrite({"id": [7], "v": ["x"]})
    lake.restore(then, comment="a mistake")
    commit = last_commit(lake)
    [info] = bodies(commit, "commitInfo")
    assert (info["operation"], info["operationParameters"]["version"]) == ("RESTORE", "0")
    assert {key: int(value) for key, value in info["operationMetrics"].items() if key.startswith("num")} == {
        "numRestoredFiles": 1,
        "numRemovedFiles": 1,
        "numOfFilesAfterRestore": 1,
    }
    assert [next(iter(action)) for action in commit] == ["commitInfo", "protocol", "metaData", "remove", "add"]
    assert all(body["dataChange"] for kind in ("add", "remove") for body in bodies(commit, kind))
    [entry] = lake.catalog.timeline.entries(lake.at().version - 1)
    assert entry.transaction.statements == [f"restore all to database version {then}"]
    assert entry.transaction.message == "a mistake"


def test_ids_of_columns_are_not_given_out_twice(lake: OpenLake) -> None:
    then = make(lake, **KINDS["mapped"])
    with lake.transaction() as tx:
        tx["t"].alter.add_columns(pa.schema([("more", pa.int64())]))
    with lake.transaction() as tx:
        tx["t"].alter.rename_column("v", "w")
    lake.restore(then)
    assert snapshot_of(lake).metadata["configuration"]["delta.columnMapping.maxColumnId"] == "3"
    assert [field.name for field in lake.at()["t"].to_arrow().schema] == ["id", "v"]
    with lake.transaction() as tx:
        tx["t"].alter.add_columns(pa.schema([("other", pa.int64())]))
    assert '"delta.columnMapping.id":4' in snapshot_of(lake).metadata["schemaString"]


def test_a_commit_with_its_time_is_later_than_the_one_before(lake: OpenLake) -> None:
    then = make(lake, **KINDS["times"])
    with lake.transaction() as tx:
        tx["t"].delete("id = 1")
    [before] = bodies(last_commit(lake), "commitInfo")
    lake.restore(then)
    [after] = bodies(last_commit(lake), "commitInfo")
    assert after["inCommitTimestamp"] > before["inCommitTimestamp"]


def test_a_protocol_never_goes_down(lake: OpenLake) -> None:
    then = make(lake)
    with lake.transaction() as tx:
        tx["t"].alter.set_table_properties({"delta.enableDeletionVectors": "true"})
        tx["t"].delete("id = 1")
    raised = snapshot_of(lake).protocol
    lake.restore(then)
    assert snapshot_of(lake).protocol == raised
    assert "deletionVectors" in raised["readerFeatures"]
    assert snapshot_of(lake).metadata["configuration"] == {}


# --- names, parts, times ----------------------------------------------------------------------------------------------


def test_names_come_back_with_the_logs(lake: OpenLake) -> None:
    for name in ("kept", "renamed", "dropped", "written_and_dropped"):
        make(lake, name)
    with lake.transaction() as tx:
        tx["dropped"].delete("id = 1")
    tagged(lake, "good")
    before = {name: rows(lake, name) for name in ("kept", "renamed", "dropped", "written_and_dropped")}
    view = ViewDefinition(text="SELECT 1", schema="{}")
    lake.catalog.run(lambda tx: tx.changing().create_view(named("v"), view, replace=False))
    with lake.transaction() as tx:
        tx.create_namespace("late")
        tx.create("late.t", SCHEMA)
        tx["renamed"].delete()
        tx.rename("renamed", "late.renamed")
        tx.drop("dropped")
        tx["written_and_dropped"].delete("id > 1")
    with lake.transaction() as tx:
        tx.drop("written_and_dropped")
    planned = lake.restore("good", dry_run=True)
    done = lake.restore("GOOD")
    assert planned.changes == done.changes
    assert {(change.kind, change.name, change.change, change.old_name) for change in done.changes} == {
        ("namespace", "late", "dropped", None),
        ("table", "late.t", "dropped", None),
        ("table", "default.renamed", "renamed", "late.renamed"),
        ("table", "default.dropped", "created", None),
        ("table", "default.written_and_dropped", "created", None),
        ("view", "default.v", "dropped", None),
    }
    assert {str(each.name) for each in done.tables} == {"default.renamed", "default.written_and_dropped"}
    assert {str(name): rows(lake, name.table) for name in lake.at().tables} == {
        f"default.{name}": each for name, each in before.items()
    }
    diff = [change for change in done.changes if change.name == "default.renamed"]
    assert [(change.from_version, change.to_version) for change in diff] == [(1, 2)]
    assert table_of(lake, "renamed").version == 2


PARTS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "all": ({}, {"default.a", "s.b", "s.c"}),
    "a table": ({"tables": ["a"]}, {"default.a"}),
    "one text is one table": ({"tables": "s.b"}, {"s.b"}),
    "a namespace": ({"namespaces": ["s"]}, {"s.b", "s.c"}),
    "both": ({"namespaces": [("s",)], "tables": [("default", "a")]}, {"default.a", "s.b", "s.c"}),
    "nothing": ({"tables": []}, set()),
}


@pytest.mark.parametrize("part", PARTS)
def test_a_part_is_restored_and_the_rest_stays(lake: OpenLake, part: str) -> None:
    with lake.transaction() as tx:
        tx.create_namespace("s")
    then = [make(lake, name) for name in ("a", "s.b", "s.c")][-1]
    for name in ("a", "s.b", "s.c"):
        with lake.transaction() as tx:
            tx[name].delete()
    arguments, expected = PARTS[part]
    done = lake.restore(then, **arguments)
    assert {str(each.name) for each in done.tables} == expected
    assert {str(name) for name in lake.at().tables if lake.at()[name].to_arrow().num_rows} == expected


def test_a_time_says_the_version_too(lake: OpenLake) -> None:
    then = make(lake)
    moment = lake.catalog.timeline.at(then).committed_at
    with lake.transaction() as tx:
        tx["t"].delete()
    assert lake.restore(moment).version == then
    assert len(rows(lake)) == 4


def test_a_restore_takes_back_what_plain_writers_did_unseen(lake: OpenLake, tmp_path: Path) -> None:
    then = make(lake)
    path = str(tmp_path / "lake" / table_of(lake).location)
    write_plainly(path, pa.table({"id": [7], "v": ["plain"]}, schema=SCHEMA), mode="append")
    lake.restore(then)
    assert len(rows(lake)) == 4
    assert DeltaTable(path).version() == 2


def test_nothing_to_restore_makes_no_version(lake: OpenLake) -> None:
    then = make(lake)
    done = lake.restore(then)
    assert (done.tables, done.changes, done.database_version) == ([], [], None)
    assert lake.at().version == then


def test_a_dry_run_writes_nothing(lake: OpenLake, tmp_path: Path) -> None:
    then = make(lake)
    with lake.transaction() as tx:
        tx["t"].delete("id = 1")
        tx.create("new", SCHEMA)
    before = touched(tmp_path / "lake" / "default")
    done = lake.restore(then, dry_run=True)
    assert (done.database_version, [each.version for each in done.tables]) == (None, [0])
    undone = lake.revert(then + 1, dry_run=True)
    assert undone.changes == done.changes
    assert touched(tmp_path / "lake" / "default") == before


def test_a_dry_run_claims_no_table_that_others_made(lake: OpenLake, tmp_path: Path) -> None:
    write_plainly(str(tmp_path / "plain"), pa.table(ROWS, schema=SCHEMA))
    core = lake.catalog

    def take_in(tx: Transaction) -> None:
        adopt(core.lake, tx, look(core.lake, tx.names, [Wanted(named("t"), str(tmp_path / "plain"))]))

    then = core.run(take_in).version
    claimed = tmp_path / "plain" / "_delta_log" / "_lockstep" / "lake.json"
    assert claimed.exists()
    with lake.transaction() as tx:
        tx.drop("t")
    before = touched(tmp_path / "plain")
    assert claimed not in before
    assert [change.change for change in lake.restore(then, dry_run=True).changes] == ["created"]
    assert touched(tmp_path / "plain") == before
    lake.restore(then)
    assert claimed.exists()
    assert len(rows(lake)) == 4


# --- in a transaction, beside others ----------------------------------------------------------------------------------


def test_it_is_a_statement_of_a_transaction(lake: OpenLake) -> None:
    then = make(lake)
    with lake.transaction() as tx:
        tx["t"].delete()
    with lake.transaction() as tx:
        tx["t"].append({"id": [5], "v": ["e"]})
        tx.savepoint("s")
        tx.restore(then)
        assert tx["t"].to_arrow().num_rows == 4
        tx["t"].append({"id": [6], "v": ["f"]})
        tx.rollback_to("s")
        assert tx["t"].to_arrow().num_rows == 1
        assert [each.version for each in tx.restore(then, tables=["t"]).tables] == [0]
        tx["t"].append({"id": [7], "v": ["g"]})
    assert [row["id"] for row in rows(lake)] == [1, 2, 3, 4, 7]


def test_a_rollback_leaves_the_files_of_older_versions(lake: OpenLake) -> None:
    then = make(lake)
    with lake.transaction() as tx:
        tx["t"].delete()
    with lake.transaction() as tx:
        tx.restore(then)
        tx.rollback()
    assert rows(lake) == []
    assert lake.at(then)["t"].to_arrow().num_rows == 4


def test_one_that_is_refused_spoils_its_transaction(lake: OpenLake) -> None:
    make(lake)
    with lake.transaction() as tx:
        with pytest.raises(UndefinedError):
            tx.restore(0, tables=["nowhere"])
        with pytest.raises(FailedTransactionError):
            tx["t"].delete()
        tx.rollback()
    assert len(rows(lake)) == 4


Use = Callable[[TransactionTable], object]


def deletes(table: TransactionTable) -> None:
    table.delete("id = 1")


def adds_a_column(table: TransactionTable) -> None:
    table.alter.add_columns(pa.schema([("more", pa.int64())]))


BESIDE: dict[str, tuple[Use, Use, bool]] = {
    # As beside Spark's: rows that come are no rows that go.
    "rows, beside an append": (deletes, lambda table: table.append({"id": [5], "v": ["e"]}), False),
    "rows, beside a delete": (deletes, lambda table: table.delete("id = 4"), True),
    "rows, beside other properties": (deletes, lambda table: table.alter.set_table_properties({"mine": "1"}), True),
    "columns, beside an append": (adds_a_column, lambda table: table.append({"id": [5], "v": ["e"]}), True),
}


@pytest.mark.parametrize("isolation", ["SNAPSHOT", "SERIALIZABLE"])
@pytest.mark.parametrize("case", BESIDE)
def test_what_others_do_to_the_table_meanwhile(lake: OpenLake, isolation: Isolation, case: str) -> None:
    before, beside, collides = BESIDE[case]
    then = make(lake)
    with lake.transaction() as tx:
        before(tx["t"])

    def restore_beside() -> None:
        with lake.transaction(isolation=isolation) as tx:
            tx.restore(then)
            with lake.transaction() as second:
                beside(second["t"])

    if collides:
        with pytest.raises(ConflictError):
            restore_beside()
    else:
        restore_beside()
        assert [row["id"] for row in rows(lake)] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("isolation", ["SNAPSHOT", "SERIALIZABLE"])
def test_what_needs_no_restoring_was_looked_at_too(lake: OpenLake, isolation: Isolation) -> None:
    make(lake, "a")
    then = make(lake, "b")
    with lake.transaction() as tx:
        tx["a"].delete("id = 1")

    def restore_beside() -> None:
        with lake.transaction(isolation=isolation) as tx:
            tx.restore(then)
            with lake.transaction() as second:  # sees what is taken back, and writes what would be, too
                seen = second["a"].to_arrow().num_rows
                second["b"].append({"id": [seen], "v": ["seen"]})

    if isolation == "SERIALIZABLE":
        with pytest.raises(ConflictError, match=r"changed table default\.b"):
            restore_beside()
        assert (len(rows(lake, "a")), len(rows(lake, "b"))) == (3, 5)
    else:
        restore_beside()
        assert (len(rows(lake, "a")), len(rows(lake, "b"))) == (4, 5)


# --- reverts ----------------------------------------------------------------------------------------------------------


def test_a_revert_takes_back_one_transaction_and_leaves_others(lake: OpenLake) -> None:
    make(lake, "a")
    make(lake, "b")
    with lake.transaction() as tx:
        tx["a"].delete("id = 1")
        tx.create("new", SCHEMA)
    mistake = tx.version
    with lake.transaction() as tx:
        tx["b"].delete("id = 1")
    assert mistake is not None
    done = lake.revert(mistake)
    assert {(change.name, change.change) for change in done.changes} == {
        ("default.a", "written"),
        ("default.new", "dropped"),
    }
    assert (len(rows(lake, "a")), len(rows(lake, "b"))) == (4, 3)
    assert named("new") not in lake.at().tables
    lake.revert(lake.at().version)
    assert len(rows(lake, "a")) == 3


def test_a_revert_of_what_went_on_is_refused(lake: OpenLake) -> None:
    make(lake)
    for id_ in (1, 2):
        with lake.transaction() as tx:
            tx["t"].delete(f"id = {id_}")
    newest = lake.at().version
    with pytest.raises(InvalidError, match=r"changed table default\.t after it"):
        lake.revert(newest - 1)
    for version in (newest + 1, -1):
        with pytest.raises(InvalidError, match="does not exist for this transaction"):
            lake.revert(version)
    with pytest.raises(InvalidError, match="nothing to revert"):
        lake.revert(0)
    assert lake.at().version == newest
