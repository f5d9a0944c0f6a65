"""A place in a Spark task where the test holds it: what happens meanwhile happens while the statement runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PATIENCE_S = 60.0
"""How long the test waits for the task, and the task for the test: much longer than either ever takes."""


class Gate:
    """Closed until `open`; two files say who has come how far, for the task runs in a process of its own."""

    def __init__(self, folder: Path, name: str = "gate") -> None:
        self._reached, self._opened = folder / f"{name}-reached", folder / f"{name}-opened"

    def column(self, value: Any) -> Any:
        """Return a column of this value, for whose sake a task has to pass the gate."""
        from pyspark.sql import functions

        passing = _passing(str(self._reached), str(self._opened))
        return functions.udf(passing, "long").asNondeterministic()(value)

    @property
    def is_reached(self) -> bool:
        """Whether a task has come to the gate."""
        return self._reached.exists()

    def open(self) -> None:
        self._opened.touch()


def wait_until(condition: Callable[[], bool], otherwise: str, seconds: float = PATIENCE_S) -> None:
    """Return as soon as the condition holds.

    Raises:
        AssertionError: it did not in time.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.01)


def _passing(reached: str, opened: str) -> Callable[[int], int]:
    """Return a function that needs nothing of this module: Spark's workers do not know it."""
    patience_s = PATIENCE_S

    def passed(value):  # Spark would take types for a wish
        import time
        from pathlib import Path

        Path(reached).touch()
        deadline = time.monotonic() + patience_s
        while not Path(opened).exists():
            if time.monotonic() > deadline:
                raise TimeoutError(opened)
            time.sleep(0.01)
        return value

    return passed
