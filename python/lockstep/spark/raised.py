"""What Lockstep refused, and Spark raised on its behalf, as an error of Lockstep's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException

from lockstep.errors import InvalidError, LockstepError
from lockstep.spark.host.host import condition_of


@contextmanager
def lockstep_errors() -> Iterator[None]:
    """Raise what Lockstep refused as `lockstep.errors`, though it came through Spark."""
    try:
        yield
    except PySparkException as error:
        if (ours := from_spark(error)) is None:
            raise
        raise ours from error


_OF_THE_SHIM = {"LOCKSTEP_SYNTAX": InvalidError}
"""What the shim refuses by itself, without asking Python; its other conditions are plain LockstepErrors."""


def from_spark(error: PySparkException) -> LockstepError | None:
    """Return Lockstep's own error that Spark raised on its behalf, None if it is another's."""
    condition = error.getCondition() or ""
    if not condition.startswith("LOCKSTEP_"):
        return None
    kinds = {condition_of(kind): kind for kind in _kinds(LockstepError)} | _OF_THE_SHIM
    message = str(getattr(error, "_desc", error)).removeprefix(f"[{condition}] ")
    state = error.getSqlState()
    return kinds.get(condition, LockstepError)(message.removesuffix(f" SQLSTATE: {state}"), sqlstate=state)


def _kinds(kind: type[LockstepError]) -> Iterator[type[LockstepError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _kinds(child)
