"""What is promised of a figure, and whether a run kept it: a benchmark that breaks a promise exits with 1.

The page is written first, in any case: a figure that nobody sees helps nobody.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bound:
    """One figure and its bound.

    Attributes:
        what: of which work.
        value: as measured.
        bound: it is at most this, or at least, if `is_least`.
    """

    what: str
    value: float
    bound: float
    is_least: bool = False

    @property
    def is_kept(self) -> bool:
        """Whether the promise was kept; a figure that is not a number keeps none."""
        return self.value >= self.bound if self.is_least else self.value <= self.bound

    @property
    def verdict(self) -> str:
        """For the last column of a table."""
        return "yes" if self.is_kept else "**no**"

    def __str__(self) -> str:
        side = "at least" if self.is_least else "at most"
        return f"{self.what}: {self.value:.3g}, and the bound is {side} {self.bound:g}"


def missed(bounds: Iterable[Bound]) -> list[str]:
    """Return a line for each bound that was not kept."""
    return [str(bound) for bound in bounds if not bound.is_kept]


def exit_if_missed(bounds: Iterable[Bound]) -> None:
    """End the process with 1 and the bounds that were not kept, if there are any; to be called last."""
    if lines := missed(bounds):
        print(*(f"bench: not kept: {line}" for line in lines), sep="\n", file=sys.stderr)
        sys.exit(1)
