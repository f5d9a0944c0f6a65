"""What an append is given, and what can become of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from lockstep.errors import UnavailableError
from lockstep.timeline.database import Database
from lockstep.timeline.entry import Entry

MakeEntry: TypeAlias = Callable[[int, datetime], Entry]
"""Makes an entry out of the version and the commit time that it is to have."""

Behind: TypeAlias = Callable[[Sequence[Entry], Database], MakeEntry | None]
"""Judges a change again that was judged against an older database version, and does so without a look at the store.

It is given the entries since and the database that they make, and returns what makes the entry behind them; None if the
change cannot follow them, or that takes more than there is in memory.
"""


@dataclass(frozen=True, slots=True)
class Ratified:
    """The entry is in the timeline, as stored."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class Lost:
    """Another transaction has the version; nothing of ours was written. The timeline has read who won."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """The store neither confirmed nor denied the write, and could not be read back.

    Attributes:
        entry: what we tried to write. Its version and its transaction's id are where and what to look for.
        cause: the store's last failure.
    """

    entry: Entry
    cause: UnavailableError


AppendOutcome: TypeAlias = Ratified | Lost | Unknown
