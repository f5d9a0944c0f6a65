"""Some hundred schedules, each of a seed; ten thousand are `make soak-sim`."""

from __future__ import annotations

import ast
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.sim import keeping
from tests.sim.schedule import run

ROOT = Path(__file__).parents[2]
SCHEDULES = 220
ARBITRATED = 50
LOOKED_AFTER = 70
COPIED = 100
HAPPENS = (
    "ok",
    "fail",
    "groups",
    "checkpoints",
    "precedes",
    "moved",
    "external",
    "abort",
    "drop",
    "views",
    "tags",
    "crashes",
)
"""What so many schedules are to come by; else they would prove little."""


def simulate(*arguments: str, module: str = "tests.sim") -> str:
    """Run a module in a process of its own, and return what it says if it finds nothing."""
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, f"{done.stdout[-10_000:]}{done.stderr[-3_000:]}"
    return done.stdout


def test_whatever_goes_wrong_the_invariants_hold() -> None:
    said = simulate("--schedules", str(SCHEDULES))
    assert f"{SCHEDULES} schedules, 0 with findings" in said
    counts = ast.literal_eval(said[said.index("{") : said.rindex("}") + 1])
    assert {what for what in HAPPENS if not counts[what]} == set()


def test_so_they_do_where_an_arbiter_decides_also_in_a_store_without_conditional_writes() -> None:
    said = simulate("--arbiter", "--schedules", str(ARBITRATED))
    assert f"{ARBITRATED} schedules, 0 with findings" in said
    counts = ast.literal_eval(said[said.index("{") : said.rindex("}") + 1])
    assert counts["decided"] == ARBITRATED
    assert {what for what in ("ok", "fail", "groups", "external", "abort", "crashes") if not counts[what]} == set()


def test_so_they_do_where_versions_expire_and_files_go() -> None:
    said = simulate("--upkeep", "--schedules", str(LOOKED_AFTER))
    assert f"{LOOKED_AFTER} schedules, 0 with findings" in said
    counts = ast.literal_eval(said[said.index("{") : said.rindex("}") + 1])
    happens = ("ok", "runs", "expired", "deleted", "tags", "drop", "external", "abort", "crashes", "settled ours")
    assert {what for what in happens if not counts.get(what)} == set()


def test_what_copies_need_is_kept_beside_expiry_and_what_deletes() -> None:
    said = simulate("--keeping", "--schedules", str(COPIED))
    assert f"{COPIED} schedules, 0 with findings" in said
    counts = ast.literal_eval(said[said.index("{") : said.rindex("}") + 1])
    done = (f"{what}: done" for what in ("writes", "restores", "tags", "copies", "drops", "promotes", "upkeep", "logs"))
    happens = (*done, "made full", "made partial", "made minimal", "crashes", "stops", "expired", "deleted")
    assert {what for what in happens if not counts.get(what)} == set()


def test_no_schedule_sleeps_by_a_real_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine tenths of the time of all schedules was that once; and what others do meanwhile was in none of them."""
    slept: list[float] = []
    strangers = {thread.ident for thread in threading.enumerate()} - {threading.get_ident()}  # such as Py4J's
    really = time.sleep

    def sleep(seconds: float) -> None:
        (really if threading.get_ident() in strangers else slept.append)(seconds)

    monkeypatch.setattr(time, "sleep", sleep)
    for seed in range(3):
        assert not run(seed).findings
        assert not keeping.run(seed).findings
    assert not slept


def test_a_seed_is_the_same_schedule_in_each_process() -> None:
    for more in ([], ["--keeping"]):
        once, again = (simulate(*more, "--seed", "3", "--schedules", "3", "--trace") for _ in range(2))
        assert once.splitlines()[:-1] == again.splitlines()[:-1]
        assert once.rpartition("digest")[2] == again.rpartition("digest")[2]
