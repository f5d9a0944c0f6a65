"""The optimistic loop: judge a change against the newest database version, try to append it, and again if others won.

Every entry but the first, which `Timeline.create` writes, goes through here: COMMIT, autocommitted statements, what
plain Delta writers did, and the end of a killed transaction. Whether one attempt put its entry into the timeline, or
nobody knows, is decided by `Timeline.append` (`lockstep.timeline.group`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Generic, Protocol, TypeAlias, TypeVar

from lockstep.errors import UnavailableError
from lockstep.retry import Backoff, Contention
from lockstep.timeline.entry import Entry
from lockstep.timeline.outcomes import AppendOutcome, Behind, Lost, MakeEntry, Ratified, Unknown

LOSSES = 5
"""After so many lost attempts the next ones are made alone."""

T = TypeVar("T")

TryOnce: TypeAlias = Callable[[MakeEntry, int, Behind | None], AppendOutcome]
"""Tries once to make an entry the version after the given one, as `Timeline.append` does."""


class Turn(Protocol):
    """What lets one process of a host at a time try, see `lockstep.lake.turns`: a hint, for nothing depends on it."""

    def begin(self) -> None:
        """Wait for the turn, for a bounded time."""
        ...

    def end(self) -> None:
        """Let others have theirs."""
        ...


class AnyTime:
    """No turns: everybody tries at any time."""

    def begin(self) -> None:
        """Begin at once."""

    def end(self) -> None:
        """End; nobody waits for it."""


_ANY_TIME = AnyTime()


@dataclass(frozen=True, slots=True)
class Proposal:
    """An entry to append.

    Attributes:
        draft: makes the entry.
        after: the database version that it was judged against.
        behind: judges it again behind what this process appends meanwhile, see `Timeline.append`.
    """

    draft: MakeEntry
    after: int
    behind: Behind | None = None


@dataclass(frozen=True, slots=True)
class Settled(Generic[T]):
    """There is nothing to append, and this is why."""

    why: T


@dataclass(frozen=True, slots=True)
class Exhausted:
    """Every attempt was lost to other transactions; nothing was written.

    Attributes:
        attempts: how many there were.
    """

    attempts: int


def append_until(
    append: TryOnce,
    propose: Callable[[], Proposal | Settled[T]],
    *,
    backoff: Backoff,
    contention: Contention | None = None,
    alone: Callable[[], AbstractContextManager[object]] = nullcontext,
    turn: Turn = _ANY_TIME,
) -> Ratified | Unknown | Settled[T] | Exhausted:
    """Append an entry, proposing it anew whenever another transaction took the version that it was for.

    Args:
        append: tries once.
        propose: reads on, judges, and says what to append, or that nothing is. Called once an attempt.
        backoff: how often, and how soon, it is tried again after a lost race.
        contention: what is remembered of races from one call to the next; nothing, if None.
        alone: keeps back others that this process appends, for an attempt after more than `LOSSES` were lost: one that
            reads much before it can follow others would lose to many small ones for ever.
        turn: begins with each attempt, and ends with each that is lost. To end it else is the caller's, who may have
            more to do for what has been ratified.

    Returns:
        What ended it. `Unknown` is not tried again: whoever asked must find out first.

    Raises:
        LockstepError: whatever `append` and `propose` raise.
    """
    attempts = 0
    for attempts in backoff.tries(contention):
        with alone() if attempts > LOSSES else nullcontext():
            turn.begin()
            proposal = propose()
            if isinstance(proposal, Settled):
                return proposal
            outcome = append(proposal.draft, proposal.after, proposal.behind)
            if not isinstance(outcome, Lost):
                return outcome
        turn.end()
    return Exhausted(attempts)


def settled(outcome: Ratified | Unknown | Settled[T] | Exhausted, *, what: str) -> Entry | T:
    """Return the entry that was appended, or why none was.

    Args:
        what: was to be done by the entry, as a clause: "older versions have expired".

    Raises:
        UnavailableError: nobody knows whether it was, or all attempts were lost; asking again is safe.
    """
    match outcome:
        case Ratified(entry):
            return entry
        case Settled(why):
            return why
        case Unknown(_, cause):
            raise cause.saying(f"cannot tell whether {what}: {cause.message}. Run it again") from cause
        case Exhausted(attempts):
            raise UnavailableError(f"nothing was done: {attempts} races for the timeline were lost before {what}")
