"""Random histories, for a moment; `make soak-retention` runs them for long."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from lockstep.timeline import fence
from tests.support.retention_machine import RetentionMachine

EXAMPLES = int(os.environ.get("LOCKSTEP_SOAK_EXAMPLES", "3"))


def test_whatever_is_deleted_what_can_be_read_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fence, "GRACE_SECONDS", 0.0)  # no process but this one
    run_state_machine_as_test(
        RetentionMachine,
        settings=settings(
            max_examples=EXAMPLES, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
