"""Which database versions stay: pure, over numbers.

A version stays while one of these needs it: the age that versions are kept for, the number of newest ones that are, a
tag, an export, an open transaction that began at it, a reader that may have begun at it within the grace period. All
but the tags, exports and transactions ask for an unbroken run up to the newest; those may keep single older ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import islice

from lockstep.timeline.entry import Entry

CHANGE_NOTHING = frozenset({"expiry", "abort"})
"""Kinds of entries behind which the database is what it was before."""


@dataclass(frozen=True, slots=True)
class Readable:
    """The database versions that can be read.

    Attributes:
        first, newest: of the unbroken run.
        alone: older ones.
    """

    first: int
    newest: int
    alone: frozenset[int] = frozenset()

    def has(self, version: int) -> bool:
        """Whether a version is one of them."""
        return self.first <= version <= self.newest or version in self.alone


@dataclass(frozen=True, slots=True)
class Wishes:
    """Who wants which versions to stay.

    Attributes:
        newest_then: the newest version at the time from which on all are kept, so that each moment since then can be
            read; None where nobody can tell, which keeps all.
        newest_in_grace: the newest version when the grace period of readers began; None keeps all.
        first_of_last: the oldest of the newest versions that are kept however old they are, see `first_of_last`.
        published_through: the commits of the versions up to this one are in their tables' logs; of a later one the
            entry may be the only place that has them.
        tags, transactions: the versions that tags name, and that open transactions began at.
        exports: the versions that exports refer to; None where nobody can tell, which keeps all.
    """

    newest_then: int | None
    newest_in_grace: int | None
    first_of_last: int
    published_through: int
    tags: Collection[int] = ()
    transactions: Collection[int] = ()
    exports: Collection[int] | None = ()


def first_of_last(newest_first: Iterable[Entry], number: int, otherwise: int) -> int:
    """Return the oldest of so many of the newest versions; `otherwise` where there are not so many.

    What changes nothing does not count. Else each run of upkeep, which is such a version, would push another one out
    of those that are kept, until a lake that nobody writes has nothing left but runs of upkeep.
    """
    versions = (entry.version for entry in newest_first if counts(entry))
    return next(islice(versions, number - 1, None), otherwise)


def counts(entry: Entry) -> bool:
    """Tell whether an entry made a version that counts where a number of the newest is kept: it changed something.

    An external entry that takes in no commit only has its number, so that no late write can get it (`Lake.fence`).
    """
    return entry.kind not in CHANGE_NOTHING and bool(entry.kind != "external" or entry.writes or entry.moved)


def retained(readable: Readable, wishes: Wishes) -> Readable:
    """Return which of the versions that can be read stay."""
    if wishes.newest_then is None or wishes.newest_in_grace is None or wishes.exports is None:
        return readable
    bounds = (
        wishes.newest_then,
        wishes.newest_in_grace,
        wishes.first_of_last,
        wishes.published_through,
        readable.newest,
    )
    first = max(readable.first, min(bounds))
    single = {*wishes.tags, *wishes.transactions, *wishes.exports}
    alone = frozenset(version for version in single if version < first and readable.has(version))
    return Readable(first, readable.newest, alone)


def expired(before: Readable, after: Readable) -> int:
    """Return how many versions can be read no more."""
    run = after.first - before.first
    return run + len(before.alone) - len(after.alone)
