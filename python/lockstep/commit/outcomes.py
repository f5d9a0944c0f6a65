"""What a COMMIT can come to, as values; besides these, `Conflict` and `Gone`. The public edge raises."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from lockstep.commit.files import Gone
from lockstep.conflict.writes import ABORTED, Conflict
from lockstep.errors import (
    CancelledError,
    CommitUnknownError,
    ConflictError,
    LockstepError,
    StagedFilesMissingError,
    TransactionStateError,
)
from lockstep.timeline.entry import Entry


@dataclass(frozen=True, slots=True)
class DueCheckpoint:
    """A table version that Delta would write a checkpoint of, had it made the commit; the table lies at `location`."""

    location: str
    version: int


@dataclass(frozen=True, slots=True)
class Committed:
    """The transaction is durable and visible. `entry` is None where there was nothing to commit."""

    version: int
    entry: Entry | None
    checkpoints: tuple[DueCheckpoint, ...] = ()


@dataclass(frozen=True, slots=True)
class Contended:
    """Every attempt lost its race against transactions that did not conflict; nothing was committed."""

    attempts: int


@dataclass(frozen=True, slots=True)
class InDoubt:
    """The store does not say whether the transaction is committed as this database version."""

    version: int
    cause: LockstepError


@dataclass(frozen=True, slots=True)
class Taken:
    """The table version that Delta asked for is somebody else's; Delta checks for conflicts and asks for the next."""


Outcome: TypeAlias = Committed | Conflict | Contended | Gone | InDoubt


def raised(outcome: Outcome, transaction: str) -> Committed:
    """Return what was committed, or raise what an outcome is at the public edge.

    Args:
        transaction: the id that messages name.

    Raises:
        ConflictError, CancelledError, StagedFilesMissingError: nothing was committed. CommitUnknownError: nobody knows.
    """
    match outcome:
        case Committed():
            return outcome
        case Conflict(rule, message):
            raise (CancelledError if rule == ABORTED else ConflictError)(message)
        case Contended(attempts):
            raise ConflictError(
                f"transaction {transaction} lost {attempts} races for the timeline against transactions that it does "
                "not conflict with. Nothing of it was committed; run it again."
            )
        case Gone(message):
            raise StagedFilesMissingError(message)
        case InDoubt(version, cause):
            raise CommitUnknownError(
                f"the store does not say whether transaction {transaction} is committed as database version "
                f"{version}: {cause.message}. Look for the id in the timeline before you run it again."
            )


def refuse_unless_undone(outcome: Committed | InDoubt | None, transaction: str) -> None:
    """Raise what a ROLLBACK is at the public edge that did not undo the transaction; see `ending.rollback`.

    Raises:
        TransactionStateError (2D000): it is committed. CommitUnknownError: nobody knows.
    """
    match outcome:
        case Committed(version):
            raise TransactionStateError(
                f"too late to roll back: transaction {transaction} is committed as database version {version}. The "
                "answer to its COMMIT was lost, not the COMMIT",
                sqlstate="2D000",
            )
        case InDoubt(version, cause):
            raise CommitUnknownError(
                f"the store still does not say whether transaction {transaction} is committed as database version "
                f"{version}: {cause.message}. The transaction has ended and nothing of it was removed; look for "
                "its id in the timeline once the store answers."
            )
