"""Commit and kill cannot both win, and of two statements that race one goes on: wherever they meet."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Literal

import pytest

from lockstep.conflict.lock_policy import Resolution
from lockstep.errors import ConflictError, UnavailableError
from lockstep.storage import Storage, open_storage
from lockstep.timeline.files import entry_path
from tests.support.faulty import FaultyStorage, Operation, T
from tests.support.lakes import create, open_catalog, replay
from tests.support.sides import Begin, Side, entries, outcome


class Stepping(FaultyStorage):
    """Does something just before its n-th call."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self.steps = 0
        self.at: tuple[int, Callable[[], object]] | None = None

    def _run(self, operation: Operation, path: str, call: Callable[[], T]) -> T:
        self.steps += 1
        if self.at is not None and self.steps == self.at[0]:
            self.at[1]()
        return super()._run(operation, path, call)


def race(root: Path, which: str, step: int) -> tuple[bool, bool, bool, set[str], list[str]]:
    """Let a victim's COMMIT and the statement that kills it race; one of them is interrupted at one of its steps.

    Returns:
        whether the step was reached; whether the victim, and the killer, committed; the files; the kinds of entries.
    """
    store = open_storage(str(root), create=True)
    create(open_catalog(store), "a", files=["p"])
    stores = {name: Stepping(store) for name in ("killer", "victim")}
    sides = {}
    for name, each in stores.items():  # the killer begins first: it is older
        catalog = open_catalog(each, resolution=Resolution("wound-wait", 0))
        sides[name] = Side(catalog, catalog.begin(isolation="SNAPSHOT"), name)
    sides["victim"].replace_p()
    won: dict[str, bool] = {}
    acts = {"killer": sides["killer"].replace_p, "victim": sides["victim"].commit}
    other = "victim" if which == "killer" else "killer"
    interrupted = stores[which]
    interrupted.steps, interrupted.at = 0, (step, lambda: won.update({other: outcome(acts[other])}))
    won[which] = outcome(acts[which])
    reached = interrupted.steps >= step
    interrupted.at = None
    for name in acts.keys() - won.keys():
        won[name] = outcome(acts[name])
    assert not (won["victim"] and won["killer"]), "the statement was told, not only COMMIT"
    won["killer"] = outcome(sides["killer"].commit) and won["killer"]
    fresh = open_catalog(store)
    [table] = fresh.database().tables.values()
    kinds: list[str] = [entry.kind for entry in fresh.timeline.entries(1)]
    return reached, won["victim"], won["killer"], replay(store, table.location, table.version), kinds


@pytest.mark.parametrize("which", ["victim", "killer"])
def test_commit_and_kill_cannot_both_win_wherever_they_meet(tmp_path: Path, which: str) -> None:
    """Every step of one of the two is interrupted by all of the other."""
    seen = set()
    for step in range(1, 100):
        reached, victim, killer, found, kinds = race(tmp_path / f"{step}", which, step)
        assert victim != killer, f"step {step}: exactly one commits"
        assert found == {"victim" if victim else "killer"}
        seen.add((victim, tuple(kinds)))
        if not reached:
            break
    else:
        pytest.fail("99 steps were not all")
    assert {victim for victim, _ in seen} == {True, False}, "both orders came up"
    assert seen <= {(True, ("transaction",)), (False, ("abort", "transaction"))}


@pytest.mark.parametrize("which", ["older", "younger"])
def test_of_two_statements_that_race_exactly_one_goes_on_wherever_they_meet(tmp_path: Path, which: str) -> None:
    """First announce, then look: at least one sees the other. With wait-die and no time to wait, at most one too."""
    seen = set()
    for step in range(1, 100):
        store = open_storage(str(tmp_path / f"{step}"), create=True)
        create(open_catalog(store), "a", files=["p"])
        stores = {name: Stepping(store) for name in ("older", "younger")}
        catalogs = {n: open_catalog(each, resolution=Resolution("wait-die", 0)) for n, each in stores.items()}
        sides = {name: Side(catalog, catalog.begin(), name) for name, catalog in catalogs.items()}
        goes_on: dict[str, bool] = {}
        other = sides["younger" if which == "older" else "older"]
        interrupted = stores[which]
        interrupted.steps = 0
        interrupted.at = step, lambda o=other, g=goes_on: g.update({o.name: outcome(o.replace_p)})
        goes_on[which] = outcome(sides[which].replace_p)
        if interrupted.steps < step:
            break
        assert sorted(goes_on.values()) == [False, True], f"step {step}: {goes_on}"
        seen.add(goes_on["older"])
    else:
        pytest.fail("99 steps were not all")
    assert seen == {True, False}, "both orders came up"


def test_a_victim_that_commits_after_the_look_for_it_is_not_killed(begin: Begin) -> None:
    """Another thread of the killer's process may read on in between, which was not looked through."""
    older, younger = begin("wound-wait")
    younger.replace_p()
    lake = older.catalog.lake
    new_id = lake.new_id

    def meanwhile() -> str:
        lake.new_id = new_id
        assert younger.commit() == 2
        lake.timeline.refresh()
        return new_id()

    lake.new_id = meanwhile
    with pytest.raises(ConflictError):
        older.replace_p()
    assert [entry.kind for entry in entries(older)] == ["transaction"], "no abort of one that is committed"


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_kill_whose_answer_is_lost_is_no_guess(
    begin: Begin, store: Storage, when: Literal["before", "after"]
) -> None:
    """Written or not: the killer goes on, and the timeline decides who of the two commits."""
    _, younger = begin("wound-wait")
    younger.replace_p()
    faulty = FaultyStorage(store)
    catalog = open_catalog(faulty, resolution=Resolution("wound-wait", 0))
    older = Side(catalog, younger.catalog.begin(isolation="SNAPSHOT"), "older")
    older.tx.began_at = younger.tx.began_at - timedelta(seconds=1)

    def lose() -> None:
        faulty.fail("get", path=entry_path(2), times=9)
        raise UnavailableError("the answer is lost, and so is that of every look after it")

    faulty.interrupt("put_if_absent", lose, path=entry_path(2), when=when)
    older.replace_p()
    faulty.heal()
    if when == "before":
        assert younger.commit() == 2
    else:
        with pytest.raises(ConflictError, match="ended this one"):
            younger.commit()
    assert outcome(older.commit) == (when == "after")
