"""Arbiters: what decides which entry a database version is, where a lake's store cannot, or is slow to say no.

    valkey://host:6379/0?prefix=lockstep            Valkey or Redis (`lockstep.arbiters.valkey`)
    dynamodb://table?region=eu-west-1               DynamoDB (`lockstep.arbiters.dynamodb`)

An arbiter holds one record for each lake: the file of the timeline that was decided last. One operation changes it,
`swap`: of any number of clients that want to decide what comes after a file, exactly one does. It is asked by
`lockstep.timeline.arbitration`, and by nobody who only reads.

The record is found by the lake's root, so a copy of a lake never uses the original's; and it names the lake, so one
that was made anew at the same root, or in another store that has the same URL, is not taken for the old one.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, TypeAlias, TypeVar

from lockstep.arbiters.address import Address, address_of
from lockstep.errors import InvalidError, LockstepError, UnavailableError
from lockstep.retry import REQUEST, Backoff
from lockstep.settings import DEFAULT_ARBITER
from lockstep.storage.failures import Meaning, error_of

T = TypeVar("T")

CHECKED_SECONDS = 60
"""After so long it is looked again whether an arbiter still keeps what it is told."""

ANSWER_SECONDS = 5
"""So long an arbiter has for one answer. With the pauses of `REQUEST`, one question is settled within a minute."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Which file a lake's timeline ends with.

    Attributes:
        lake: the id of the lake: that of the transaction which made it.
        last: the version of the file's last entry.
        digest: the SHA-256 of the file, in hex.
    """

    lake: str
    last: int
    digest: str


@dataclass(frozen=True, slots=True)
class Decision:
    """A file of the timeline that was decided.

    Attributes:
        lake: as in `Mark`.
        first, last: the versions of the file's first and last entry; the first gives it its name.
        digest: the SHA-256 of the file, in hex.
        data: the file. None if it lies in the store: under its name, or, before it was copied there, under one that its
            digest tells (`lockstep.timeline.arbitration.staged_path`).
    """

    lake: str
    first: int
    last: int
    digest: str
    data: bytes | None = None

    @property
    def mark(self) -> Mark:
        """What the next decision is to follow."""
        return Mark(self.lake, self.last, self.digest)


@dataclass(frozen=True, slots=True)
class Swapped:
    """What came of the wish to record a decision; true if it is recorded by the request that was answered.

    Attributes:
        is_recorded: see above. If not, the record was another one, which may be this very decision.
        may_have_been: whether an earlier request of the same call, whose answer was lost, may have been carried out.
            The record may have been changed since, or be forgotten: that it is another one says nothing then.
    """

    is_recorded: bool
    may_have_been: bool = False

    def __bool__(self) -> bool:
        return self.is_recorded


class FailedError(Exception):
    """One request to an arbiter failed; `Arbiter` tries again, or makes an `UnavailableError` of it."""

    def __init__(self, meaning: Meaning, text: str) -> None:
        super().__init__(text)
        self.meaning = meaning

    def before_deciding(self) -> FailedError:
        """Return the same failure, of a request that was to be followed by one that decides, and was not."""
        return FailedError(Meaning.UNREACHED if self.meaning.may_be_done else self.meaning, str(self))


Accept: TypeAlias = Callable[[str], None]
"""Told a server's identity, see `Arbiter.check`; raises if it may not decide for the lake."""


def anyone(_: str) -> None:
    """Accept any server."""


class Arbiter(ABC):
    """Where the newest decision about one lake is kept; safe to use from many threads.

    Nothing is asked before it must be: who only reads a lake never reaches its arbiter.

    Attributes:
        kind: which service it is.
        name: what a lake remembers of it, beside the kind: the prefix of keys, or the table.
        key: what the lake's record is found by.
        is_default: whether the environment names it, for those lakes that have it, and not a setting for this one.
        alternative: what another lake of the same URL has to have of its own, in words.
        repeat: how often, and how soon, a request that may succeed in a moment is tried again.
    """

    kind: ClassVar[str]
    alternative: ClassVar[str]
    repeat: Backoff = REQUEST

    def __init__(self, name: str, key: str, *, is_default: bool = False) -> None:
        self.name = name
        self.key = key
        self.is_default = is_default

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"

    @property
    @abstractmethod
    def place(self) -> str:
        """Where the lake's record is, in words that say what to delete; not a word of an address."""
        ...

    def prepare(self) -> None:  # noqa: B027 (some need none)
        """Make the client, so that what is missing for that is told at once; makes no request.

        Raises:
            UnsupportedError: its library is not installed, or it is not told enough.
        """

    def check(self) -> str:
        """See that what is recorded here stays so.

        Returns:
            Which server this is: another one has another identity, also if both are called the same, and so has one
            that lost all that it had. Empty if that cannot be told.

        Raises:
            UnsupportedError: what is recorded may be forgotten, or nobody can tell.
            UnavailableError: it gave no answer.
        """
        identity, _ = self._asked("check", self._check, writes=False)
        return identity

    def swap(self, before: Mark | None, decision: Decision, accept: Accept = anyone) -> Swapped:
        """Record a decision if the record is still that of a mark; tell what came of it.

        Before that the server is checked, at least each `CHECKED_SECONDS` and after each failure.

        Args:
            before: what the record must be; None: there must be none.
            accept: is told the identity of a server that was checked.

        Raises:
            UnsupportedError: this arbiter may forget what it is told; nothing was recorded.
            UnavailableError: it gave no answer. Unless it is `definite`, the decision may be recorded all the same.
            LockstepError: what `accept` raised; nothing was recorded.
        """
        is_recorded, may_have_been = self._asked("decide an entry at", lambda: self._swap(before, decision, accept))
        return Swapped(is_recorded, may_have_been)

    def read(self) -> Decision | None:
        """Return what is recorded of the lake; None if nothing is.

        Raises:
            UnavailableError: it gave no answer.
            ArbiterError: the record is none of ours.
        """
        found, _ = self._asked("read", self._read, writes=False)
        return found

    def _asked(self, what: str, ask: Callable[[], T], *, writes: bool = True) -> tuple[T, bool]:
        """Return the answer to a request, and whether one before it, which got none, may have been carried out."""
        failure: FailedError | None = None
        may_be_done = False
        for _ in self.repeat.tries():
            try:
                return ask(), may_be_done
            except FailedError as error:
                failure, may_be_done = error, may_be_done or (writes and error.meaning.may_be_done)
                if not error.meaning.is_passing:
                    break
            except LockstepError as error:
                if isinstance(error, UnavailableError):
                    raise error.saying(error.message, definite=not may_be_done) from error
                if may_be_done:
                    raise UnavailableError(error.message) from error
                raise
        assert failure is not None
        message = f"cannot {what} the arbiter ({self}): {failure}"
        raise error_of(failure.meaning, message, definite=not may_be_done) from failure

    @abstractmethod
    def _check(self) -> str:
        """Do what `check` says, once.

        Raises:
            UnsupportedError: see there.
            FailedError: the request failed.
        """
        ...

    @abstractmethod
    def _swap(self, before: Mark | None, decision: Decision, accept: Accept) -> bool:
        """Do what `swap` says, once: the server that is asked is one that was checked.

        Raises:
            FailedError: the request failed.
            LockstepError: the server may not decide; nothing was recorded.
        """
        ...

    @abstractmethod
    def _read(self) -> Decision | None:
        """Do what `read` says, once.

        Raises:
            FailedError: the request failed.
            ArbiterError: the record is none of ours.
        """
        ...


def arbiter_of(text: str | None, root: str) -> Arbiter | None:
    """Return the arbiter that a client is told to use for the lake at a root; makes no request.

    Args:
        text: see the module; None or empty: what the environment says, if it says anything. That is for lakes that have
            this arbiter. So whatever is wrong with it stops nobody before an arbiter is needed.
        root: as `lockstep.storage.urls.comparable` gives it.

    Raises:
        InvalidError: the setting makes no sense; the message has none of its parts that may be a password.
        UnsupportedError: the client library is not installed.
    """
    if text:
        made = _made(address_of(text), root, is_default=False)
        made.prepare()
        return made
    if not (said := os.environ.get(DEFAULT_ARBITER.name)):
        return None
    try:
        address = address_of(said)
    except InvalidError as error:
        from lockstep.arbiters.misnamed import Misnamed

        return Misnamed(error, root)
    return _made(address, root, is_default=True)


def _made(address: Address, root: str, *, is_default: bool) -> Arbiter:
    if address.kind == "valkey":
        from lockstep.arbiters.valkey import Valkey

        return Valkey(address, root, is_default=is_default)
    from lockstep.arbiters.dynamodb import DynamoDb

    return DynamoDb(address, root, is_default=is_default)
