"""Who gives way when two open transactions replace the same files: a pure function over what both announce.

    first-committer-wins    nobody announces anything; the second of the two is told at COMMIT (the default)
    wait-die                an older transaction waits for a younger one; a younger one dies at once
    wound-wait              an older transaction wounds a younger one, which dies; a younger one waits for an older

The two schemes are those of D. Rosenkrantz, R. Stearns and P. Lewis, "System Level Concurrency Control for Distributed
Database Systems", ACM TODS 3(2), 1978. Age is the time of BEGIN, then the id. Whoever waits, waits for the younger only
(or the older only), so there is no circle: no deadlock, whatever the clocks say, as both sides compare the same two
stored values. A transaction that runs again begins anew and so is younger; `lockstep.run` bounds how often.

Nothing here is needed for correctness. What is announced late, not at all, or by a clock that is wrong is found by the
check at COMMIT, as ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal, TypeAlias, get_args

import msgspec

from lockstep.delta.footprint import Footprint
from lockstep.errors import InvalidError
from lockstep.retry import seconds
from lockstep.settings import ANNOUNCEMENT_EXPIRY, LOCK_TIMEOUT, RESOLUTION
from lockstep.timeline.entry import Name, Value

Policy: TypeAlias = Literal["first-committer-wins", "wait-die", "wound-wait"]

Time: TypeAlias = Annotated[datetime, msgspec.Meta(tz=True)]
"""A time with its zone: one without cannot be compared."""

FORMAT = 1
MAX_FILES = 10_000
"""Files that one announcement names; who replaces more announces the whole table."""

MAX_EXPIRY_SECONDS = 100 * 366 * 24 * 60 * 60
"""There is a time at which every announcement expires: the calendar ends with the year 9999."""


class Announcement(Value, frozen=True):
    """What an open transaction has done to one table, as a file says it to the others.

    Attributes:
        format: 1; others are passed over.
        transaction: its id.
        base_version: its snapshot: if it is committed or killed by now, a later timeline entry says so.
        began_at: its age, UTC.
        announced_at, expires_at: when this was written, and from when on nobody heeds it, UTC, by its writer's clock.
        table: what the table is called, for messages.
        whole: it changed schema, properties or protocol, or more than `MAX_FILES` files.
        files: the paths of the data files that it removed, as the log writes them; none for an append.
    """

    format: int
    transaction: str
    base_version: int
    began_at: Time
    announced_at: Time
    expires_at: Time
    table: Name
    whole: bool = False
    files: frozenset[str] = frozenset()

    @property
    def age(self) -> tuple[datetime, str]:
        """What transactions are ordered by: the smaller is the older."""
        return self.began_at, self.transaction


@dataclass(frozen=True, slots=True)
class Claim:
    """What one statement does to a table, and others may not do beside it; an append claims no file."""

    files: frozenset[str] = frozenset()
    whole: bool = False

    @classmethod
    def of(cls, footprint: Footprint) -> Claim:
        """Return what a staged commit claims."""
        whole = bool(footprint.metadata or footprint.protocol) or len(footprint.removed_paths) > MAX_FILES
        return cls(frozenset() if whole else footprint.removed_paths, whole)

    def beyond(self, other: Claim | None) -> Claim | None:
        """Return what of this is not held already, None if all is: a transaction does not ask twice."""
        if other is None:  # even an append asks once: it and another's change of the schema cannot both commit
            return self
        if other.whole:
            return None
        new = Claim(self.files - other.files, self.whole)
        return new if new.files or new.whole else None

    def both(self, other: Claim | None) -> Claim:
        """Return the two together."""
        if other is None:
            return self
        files = self.files | other.files
        whole = self.whole or other.whole or len(files) > MAX_FILES
        return Claim(frozenset() if whole else files, whole)

    def collides(self, theirs: Announcement) -> bool:
        """Tell whether the two cannot both commit, by what is announced (rules `file`, `metadata`, `protocol`)."""
        return self.whole or theirs.whole or bool(self.files & theirs.files)


@dataclass(frozen=True, slots=True)
class Resolution:
    """How a catalog resolves conflicts.

    Attributes:
        policy: see the module.
        lock_timeout_seconds: how long a statement waits for another transaction, in all.
        expiry_seconds: how long an announcement holds that is not renewed; each statement renews those that are due.
    """

    policy: Policy = "first-committer-wins"
    lock_timeout_seconds: float = 30
    expiry_seconds: float = 600

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Resolution:
        """Return what a catalog's options `resolution`, `lock-timeout` and `announcement-expiry` say.

        Raises:
            InvalidError: one of them is not what it must be.
        """
        policy = RESOLUTION.value_in(options)
        policies: dict[str | None, Policy] = {each: each for each in get_args(Policy)}
        if policy not in policies:
            raise InvalidError(f"resolution is {policy!r}: expected one of {', '.join(RESOLUTION.choices)}")
        expiry_seconds = seconds(ANNOUNCEMENT_EXPIRY, options)
        if not 1 <= expiry_seconds <= MAX_EXPIRY_SECONDS:
            raise InvalidError(
                f"announcement-expiry is {expiry_seconds} s: expected a second or more, and at most a hundred years"
            )
        return cls(policies[policy], seconds(LOCK_TIMEOUT, options), expiry_seconds)


FIRST_COMMITTER_WINS = Resolution()

# --- verdicts ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Go:
    """Nobody is in the way."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait until these have ended."""

    on: tuple[Announcement, ...]


@dataclass(frozen=True, slots=True)
class Die:
    """Give way now, to this one."""

    because: Announcement


@dataclass(frozen=True, slots=True)
class Wound:
    """See that these can never commit, and look again."""

    whom: tuple[Announcement, ...]


Verdict: TypeAlias = Go | Wait | Die | Wound


def resolve(
    mine: Announcement, claim: Claim, others: Iterable[Announcement], policy: Policy, *, now: datetime
) -> Verdict:
    """Return what to do about the other open transactions of a table.

    Args:
        mine: who asks.
        claim: what its statement asks for, without what it holds already.
        others: all that stands announced for the table; expired ones, and our own, are passed over.
    """
    in_the_way = sorted(
        (
            other
            for other in others
            if other.transaction != mine.transaction and other.expires_at > now and claim.collides(other)
        ),
        key=lambda other: other.age,
    )
    older = tuple(other for other in in_the_way if other.age < mine.age)
    younger = tuple(other for other in in_the_way if other.age > mine.age)
    if policy == "wait-die":
        if older:
            return Die(older[0])
        return Wait(younger) if younger else Go()
    if policy == "wound-wait":
        if younger:
            return Wound(younger)
        return Wait(older) if older else Go()
    return Go()
