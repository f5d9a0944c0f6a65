"""Random histories, for a moment; `make soak-retention` runs them for long."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test

from lockstep.timeline import fence
from tests.support.retention_machine import RetentionMachine, live

pytestmark = pytest.mark.long

EXAMPLES = int(os.environ.get("LOCKSTEP_SOAK_EXAMPLES", "3"))


def test_whatever_is_deleted_what_can_be_read_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fence, "GRACE_SECONDS", 0.0)  # no process but this one
    run_state_machine_as_test(
        RetentionMachine,
        settings=settings(
            max_examples=EXAMPLES, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


def test_each_rule_as_often_as_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fence, "GRACE_SECONDS", 0.0)

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def histories(data: st.DataObject) -> None:
        machine = RetentionMachine()
        try:
            live(machine, data, 40)
        finally:
            machine.teardown()

    histories()
