"""The bench of a lake that grows: what it puts down is what Lockstep would write, and a goal that is missed is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lockstep.timeline.fold import fold
from tests.bench.long import Cost, Expiry, Row, database_at, made, missed

COST = Cost(0.1, 50)
ROW = Row(1_000, COST, 3, 2.0, COST, COST, COST, COST)
EXPIRY = Expiry(1_000, 1.0, 1_100, 50.0)


@pytest.mark.parametrize(("tables", "version"), [(7, 1), (7, 2), (7, 20), (10, 55), (100, 457)])
def test_a_database_is_what_its_entries_make(tables: int, version: int) -> None:
    assert database_at(version, tables) == fold(made(each, tables) for each in range(version + 1))


def test_goals_that_are_met_say_nothing() -> None:
    assert missed([ROW, replace(ROW, versions=10**6)], EXPIRY) == []


@pytest.mark.parametrize(
    ("row", "expiry", "said"),
    [
        (replace(ROW, open=Cost(0.6, 50)), EXPIRY, "to open takes 0.60 s, more than 0.5"),
        (replace(ROW, in_sequence=6), EXPIRY, "to open takes 6 requests one after the other"),
        (replace(ROW, memory_mib=17.0), EXPIRY, "an opened lake has 17.0 MiB"),
        (replace(ROW, log=Cost(0.3, 50)), EXPIRY, "log is not flat: 0.100 s, then 0.300 s"),
        (replace(ROW, moment=Cost(0.1, 60)), EXPIRY, "moment is not flat: 50 requests, then 60"),
        (ROW, replace(EXPIRY, requests=1_300), "expiry takes 1300 requests for 1000 versions"),
        (ROW, replace(EXPIRY, memory_mib=500.0), "expiry takes 500 MiB"),
    ],
)
def test_a_goal_that_is_missed_is_told(row: Row, expiry: Expiry, said: str) -> None:
    assert any(goal.startswith(said) for goal in missed([ROW, row], expiry))
