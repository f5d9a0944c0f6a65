"""A commit of three tables, each request of which fails in each way: before or after, never between."""

from __future__ import annotations

import pytest

from tests.sim.broken import DEFECTS
from tests.sim.commit_faults import COMMITS, Lake, cases
from tests.sim.test_schedules import simulate


def test_all_single_faults_and_some_double_ones() -> None:
    said = simulate("--faults", "2", "--every", "211")
    assert said.count("told {'ok'") == len(COMMITS), "most are committed all the same"


@pytest.mark.deep
def test_all_single_faults_where_an_arbiter_decides() -> None:
    said = simulate("--arbiter", "--faults", "1")
    assert said.count("told {'ok'") == 2 * len(COMMITS)


@pytest.mark.parametrize("name", ["exists-is-believed", "lost-answer-is-a-no"])
def test_a_fault_of_the_commit_protocol_shows_in_a_single_one(name: str) -> None:
    with DEFECTS[name].put_in():
        assert any(result.findings for _, _, result in cases(Lake(), COMMITS[0], 1))
