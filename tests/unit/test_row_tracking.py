"""Row ids and commit versions that stand in data files: whose commits keep their versions, and land nowhere else."""

from __future__ import annotations

from typing import Any

import pytest

from lockstep.conflict.writes import Changes, first_conflict
from lockstep.delta.actions import Action, split
from lockstep.delta.combine.collapse import collapse
from lockstep.delta.combine.row_tracking import by_commit, copies_own_rows
from lockstep.delta.footprint import Footprint
from lockstep.errors import ConflictError
from tests.support.faulty import FaultyStorage
from tests.support.lakes import add, append, create, named, open_catalog, remove, stage

PIN = 4
VECTOR = {"storageType": "u", "pathOrInlineDv": "x", "cardinality": 1}


def of(version: int, **more: Any) -> dict[str, Any]:
    """What a file says that was given its row ids at a table version."""
    return {"baseRowId": version * 10, "defaultRowCommitVersion": version, **more}


def commit(operation: str, *actions: Action) -> list[Action]:
    return [{"commitInfo": {"operation": operation}}, *actions]


INSERT = commit("WRITE", add("a", **of(5)))
NOTHING = commit("UPDATE")
OPTIMIZE = commit("OPTIMIZE", remove("a", **of(5), dataChange=False), add("c", **of(7), dataChange=False))


@pytest.mark.parametrize(
    ("second", "copies"),
    [
        pytest.param(OPTIMIZE[1:], True, id="its own file, into a new one"),
        pytest.param([remove("p", **of(2)), add("c", **of(6))], False, id="an older file, into a new one"),
        pytest.param([remove("a", **of(5))], False, id="its own file, gone"),
        pytest.param([remove("a", **of(5)), add("a", **of(5), deletionVector=VECTOR)], False, id="a vector for it"),
        pytest.param(
            [remove("a", **of(5)), add("a", **of(5), deletionVector=VECTOR), add("c", **of(6))],
            True,
            id="a vector for it, and its rows in a new one",
        ),
        pytest.param([remove("a"), add("c")], False, id="no row tracking"),
    ],
)
def test_which_commits_copy_rows_that_the_transaction_gave_their_ids(second: list[Action], copies: bool) -> None:
    commits = [INSERT, commit("?", *second)]
    assert copies_own_rows(commits, PIN) is copies
    assert copies_own_rows(by_commit(action for each in commits for action in each), PIN) is copies


def test_row_ids_for_old_files_are_the_transactions_own_too() -> None:
    backfill = commit("ROW TRACKING BACKFILL", add("p", **of(5), dataChange=False))
    update = commit("UPDATE", remove("p", **of(5)), add("c", **of(6)))
    assert copies_own_rows([backfill, update], PIN)


def collapsed(*commits: list[Action]) -> list[list[Action]]:
    return collapse(commits, pin=PIN, transaction_id="t", statements=(), timestamp_ms=0, engine="E")


def test_versions_that_stand_in_data_files_stay() -> None:
    """An empty commit too: with it gone, those behind it would come to other versions."""
    kept = collapsed(INSERT, NOTHING, OPTIMIZE)
    assert [[split(action)[0] for action in each] for each in kept] == [
        ["commitInfo", "add"],
        ["commitInfo"],
        ["commitInfo", "remove", "add"],
    ]
    assert len(collapsed(INSERT, NOTHING, commit("WRITE", add("b", **of(7))))) == 1


def test_such_commits_land_behind_nobody() -> None:
    """Not even behind a commit that gave out no row ids: it has taken the version that the files name."""
    mine = Changes("m", writes={"T": Footprint(added_paths=frozenset("c"), fixed=True)}, names={"T": named("t")})
    for footprint in (Footprint(added_paths=frozenset("x")), Footprint(apps=frozenset("a"))):
        found = first_conflict(mine, Changes("w", writes={"T": footprint}))
        assert found is not None
        assert found.rule == "row-tracking"
    assert first_conflict(mine, Changes("w", writes={"U": Footprint(added_paths=frozenset("x"))})) is None
    blind = Changes("m", writes={"T": Footprint(added_paths=frozenset("c"))})
    assert first_conflict(blind, Changes("w", writes={"T": Footprint(added_paths=frozenset("x"))})) is None


def test_commit_refuses_them_behind_a_winner(store: FaultyStorage) -> None:
    """The whole way: what is staged, collapsed, judged and ratified."""
    catalog = open_catalog(store, isolation="SNAPSHOT")
    create(catalog, "t", "u")
    for winner in ("u", "t"):
        tx = catalog.begin()
        version = tx.table(named("t")).version
        stage(catalog, tx, "t", add(f"{winner}-a", **of(version + 1)))
        stage(catalog, tx, "t", remove(f"{winner}-a", **of(version + 1)), add(f"{winner}-c", **of(version + 2)))
        append(catalog, winner, f"{winner}-x")
        if winner == "t":
            with pytest.raises(ConflictError, match="updated or moved rows"):
                catalog.commit(tx)
        else:
            catalog.commit(tx)
            assert catalog.timeline.head.tables[named("t")].version == version + 2
