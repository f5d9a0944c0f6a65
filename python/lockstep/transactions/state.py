"""Where a transaction is in its life."""

from __future__ import annotations

import enum


class State(enum.StrEnum):
    """Where a transaction is in its life: `lockstep.transactions.transaction` draws it."""

    REQUESTED = "REQUESTED"
    INFLIGHT = "INFLIGHT"
    COMPLETED = "COMPLETED"
    ROLLED_BACK = "ROLLED_BACK"
