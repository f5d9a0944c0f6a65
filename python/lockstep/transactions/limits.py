"""How long a transaction that no Spark session has may take: its limits, and what a clock makes of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from lockstep.errors import InvalidError
from lockstep.settings import IDLE_TIMEOUT, TRANSACTION_TIMEOUT

TIMED_OUT: Final = "25P04"
IDLED_OUT: Final = "25P03"


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a transaction may take, in seconds; 0 is for ever.

    Attributes:
        total: for how long it may be open, whatever it does.
        idle: for how long it may be open without a statement of it being executed.
        statement: for how long a statement of it may run.
    """

    total: float = 0
    idle: float = 0
    statement: float = 0

    @property
    def are_set(self) -> bool:
        """Whether any of them is a limit."""
        return bool(self.total or self.idle or self.statement)


FOR_EVER: Final = Limits()


def check_seconds(**seconds: float | None) -> None:
    """Raise InvalidError, with the argument's name, unless each is None or seconds that can be waited for."""
    for argument, value in seconds.items():
        if value is not None and not 0 <= value <= threading.TIMEOUT_MAX:
            raise InvalidError(f"{argument} {value!r}: expected seconds, from 0 to {threading.TIMEOUT_MAX:.0f}")


@dataclass(frozen=True, slots=True)
class TimedOut:
    """Why a transaction was rolled back that took too long."""

    why: str
    sqlstate: str


@dataclass(slots=True)
class Timing:
    """What the limits of an open transaction are compared with.

    Attributes:
        limits: of which at least one is set.
        seconds: a clock that never goes back.
        undo: rolls the transaction back.
        began, last: when it was begun, and when a statement of it was last executed, by that clock.
        depth: how many statements of it run, one inside of the other.
    """

    limits: Limits
    seconds: Callable[[], float]
    undo: Callable[[], object]
    began: float = field(init=False)
    last: float = field(init=False)
    depth: int = 0

    def __post_init__(self) -> None:
        self.began = self.last = self.seconds()

    def late(self) -> TimedOut | None:
        """Return what it has taken too long for; None if it has not. Who holds the lock may ask, between statements."""
        now, limits = self.seconds(), self.limits
        if limits.total and now - self.began >= limits.total:
            why = f"it was open for longer than {TRANSACTION_TIMEOUT.name} (timeout={limits.total:g})"
            return TimedOut(why, TIMED_OUT)
        if limits.idle and now - self.last >= limits.idle:
            why = f"no statement of it was executed for longer than {IDLE_TIMEOUT.name} (idle_timeout={limits.idle:g})"
            return TimedOut(why, IDLED_OUT)
        return None
