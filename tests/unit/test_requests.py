"""How many requests come one after the other, however many tables a transaction has."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.delta.actions import render
from lockstep.delta.log import staged_path
from lockstep.storage import open_storage
from tests.support.faulty import FaultyStorage
from tests.support.lakes import add, create, lay, named, open_catalog, stage
from tests.support.rounds import Rounds

TABLES = pytest.mark.parametrize("tables", [1, 10, 100])


@pytest.fixture
def rounds(store: FaultyStorage) -> Rounds:
    return Rounds(store.inner)


def opened(rounds: Rounds, tables: int) -> TransactionalCatalog:
    catalog = open_catalog(rounds)
    create(catalog, *(f"t{n}" for n in range(tables)))
    catalog.database()
    return catalog


@TABLES
def test_begin_and_rollback_of_what_did_nothing(rounds: Rounds, tables: int) -> None:
    catalog = opened(rounds, tables)
    with rounds.counting() as counted:
        catalog.rollback(catalog.begin())
    assert [len(round_) for round_ in counted] == [1]


@TABLES
@pytest.mark.behind
def test_commit_syncs_what_it_promises_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tables: int
) -> None:
    """Before it answers: the entry and its folder, each table's commit and its folder. Behind the answer: nothing."""
    names = [f"t{n}" for n in range(tables)]
    catalog = open_catalog(open_storage(str(tmp_path / "lake"), create=True))
    create(catalog, *names)
    tx = catalog.begin()
    for name in names:
        stage(catalog, tx, name, add("x"))
    logs = [f"{tx.table(named(name)).location}/_delta_log" for name in names]
    catalog.lake.upkeep.settle()
    folders: list[str] = []
    fsync = os.fsync

    def synced(handle: int) -> None:
        path = Path(f"/proc/self/fd/{handle}").readlink()
        folder = path if path.is_dir() else path.parent
        folders.append(str(folder.relative_to(tmp_path / "lake")))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", synced)
    catalog.commit(tx)
    assert sorted(folders) == sorted(2 * ["_lockstep/timeline", *logs])
    catalog.lake.upkeep.settle()
    assert len(folders) == 2 * (1 + tables)


@TABLES
def test_the_first_use_of_tables(rounds: Rounds, tables: int) -> None:
    catalog = opened(rounds, tables)
    tx = catalog.begin()
    with rounds.counting() as counted:
        catalog.look(tx, [named(f"t{n}") for n in range(tables)])
    assert [len(round_) for round_ in counted] == [2 * tables], "whether there is a next commit, and the newest one"


@TABLES
@pytest.mark.behind
def test_commit_is_three_requests_one_after_the_other(rounds: Rounds, tables: int) -> None:
    """Look at the tables, their new files and the timeline; ratify; publish.

    One who has not written the tables before reads their checksums, too, beside the look.
    """
    catalog = opened(rounds, tables)
    tx = catalog.begin()
    catalog.look(tx, [named(f"t{n}") for n in range(tables)])
    for n in range(tables):
        table = tx.table(named(f"t{n}"))
        actions = [{"commitInfo": {"operation": "WRITE"}}, add("x")]
        lay(rounds, table.location, actions)
        rounds.put(staged_path(table.location, tx.id, 1), render(actions))
        catalog.stage(tx, table.location, 1, render(actions).decode())
    catalog.lake.upkeep.settle()  # what the commits before left to do
    answered = 0
    with rounds.counting() as counted:
        catalog.commit(tx)
        answered = len(counted)
    operations = [{operation for operation, _ in round_} for round_ in counted[:answered]]
    assert operations == [{"get", "exists"}, {"put_if_absent"}, {"put_if_absent"}]
    assert [len(round_) for round_ in counted[:answered]] == [1 + 3 * tables, 1, tables]
