"""What a COMMIT can come to, as values; besides these, `Conflict` and `Gone`. The public edge raises."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from lockstep.commit.files import Gone
from lockstep.conflict.writes import Conflict
from lockstep.errors import LockstepError
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
