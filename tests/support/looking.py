"""A keeper of open transactions that looks when a test says so."""

from __future__ import annotations

from lockstep.commit.keeping import Keeper


class Looking(Keeper):
    """A keeper that looks when the test says so, by a clock that the test sets."""

    def __init__(self) -> None:
        super().__init__(seconds=lambda: self.now)
        self.now = 1000.0

    def after(self, seconds: float) -> None:
        self.now += seconds
        self.look()

    def _run(self) -> None:
        """Leave it to the test."""
