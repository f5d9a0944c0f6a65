"""What the environment calls an arbiter, and is none: told to who needs one, and to nobody else."""

from __future__ import annotations

from typing import NoReturn

from lockstep.arbiters import Accept, Arbiter, Decision, Mark
from lockstep.errors import InvalidError
from lockstep.settings import DEFAULT_ARBITER


class Misnamed(Arbiter):
    """No lake has it."""

    kind = "misnamed"
    alternative = "one that there is"

    def __init__(self, error: InvalidError, root: str) -> None:
        """Remember what is wrong with the address."""
        super().__init__("", root, is_default=True)
        self._error = error

    def __str__(self) -> str:
        return f"{DEFAULT_ARBITER.name}, which cannot be used: {self._error.message}"

    @property
    def place(self) -> str:
        """Nothing is recorded there."""
        return "nothing"

    def _refuse(self) -> NoReturn:
        raise InvalidError(f"{DEFAULT_ARBITER.name}: {self._error.message}")

    def _check(self) -> str:
        self._refuse()

    def _swap(self, before: Mark | None, decision: Decision, accept: Accept) -> bool:  # noqa: ARG002 (of no use)
        self._refuse()

    def _read(self) -> Decision | None:
        self._refuse()
