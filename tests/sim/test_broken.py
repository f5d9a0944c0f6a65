"""The checks that follow a schedule find what they are for: old faults, put back on purpose; all: `make test-judge`."""

from __future__ import annotations

import os

import pytest

from tests.sim.broken import DEFECTS, FREQUENT
from tests.sim.test_schedules import simulate

ALL = os.environ.get("LOCKSTEP_TEST_JUDGE") == "all"


@pytest.mark.deep  # it says nothing of Lockstep, but of the checks, which a change of Lockstep does not touch
def test_each_old_fault_is_found() -> None:
    names = DEFECTS if ALL else FREQUENT
    said = simulate(*names, module="tests.sim.broken")
    assert [line.partition(":")[0] for line in said.splitlines()] == list(names)
    assert "NOT FOUND" not in said
