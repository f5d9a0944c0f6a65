"""What a transaction's `with` block, and running a function in one, come to: the same with Spark and without."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from lockstep.errors import CommitUnknownError, InvalidError, LockstepError
from lockstep.retry import AGAIN
from lockstep.timeline.entry import Batch
from lockstep.transactions.batches import check_batch

T = TypeVar("T")


class Block(ABC):
    """How a transaction's block ends."""

    @abstractmethod
    def commit(self) -> object:
        """Commit now instead of at the end of the block."""

    @abstractmethod
    def rollback(self) -> None:
        """Roll back now instead of by an exception."""

    def _commit_and_find_out(self) -> None:
        try:
            self.commit()
        except CommitUnknownError:
            self.commit()  # once more: it tells what became of the first, or is the one that commits


def give_up(undo: Callable[[], object], error: BaseException) -> None:
    """Roll back because of an error, and never put another in its place."""
    try:
        undo()
    except Exception as failure:  # noqa: BLE001 (what was raised first is raised, with a note of this)
        error.add_note(f"Lockstep did not roll back: {failure}")
    else:
        if isinstance(error, CommitUnknownError):
            error.add_note("Lockstep has rolled it back since then: nothing of it is committed.")


def run_again(
    attempt: Callable[[], T], *, attempts: int, sleep: Callable[[float], None], batch: tuple[str, int] | None
) -> T:
    """Do what is one transaction, again from the start if another was first, and return what it returns.

    Args:
        attempt: runs the transaction.
        attempts: how often at most, 1 or more.
        sleep: waits for so many seconds.
        batch: what it carries out, if that. Then a COMMIT without an answer is retried, too.

    Raises:
        LockstepError: the last attempt's, or the first that is not retryable.
        InvalidError: fewer than one attempt.
    """
    last_error: LockstepError | None = None
    for _ in replace(AGAIN, attempts=attempts, sleep=sleep).tries():
        try:
            return attempt()
        except LockstepError as error:
            if not (error.retryable or (batch is not None and isinstance(error, CommitUnknownError))):
                raise
            last_error = error
    assert last_error is not None, "there was one attempt, which returned or raised"
    raise last_error


def check_isolation(isolation: str) -> None:
    """Raise InvalidError unless it is the name of an isolation level."""
    if isolation not in ("SNAPSHOT", "SERIALIZABLE"):
        raise InvalidError(f"isolation {isolation!r}: expected SNAPSHOT or SERIALIZABLE")


def batch_of(batch: tuple[str, int] | None) -> Batch | None:
    """Return what a caller says that a transaction carries out.

    Raises:
        InvalidError: it is not two values, or cannot be a batch, see `check_batch`.
    """
    if batch is None:
        return None
    if len(batch) != 2:
        raise InvalidError(f"batch {batch!r}: expected the name of an application and the number of its micro-batch")
    made = Batch(application=batch[0], number=batch[1])
    check_batch(made)
    return made
