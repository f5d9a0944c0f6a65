"""Entries of the timeline that no transaction wrote: what plain Delta writers committed, and what they overtook."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from msgspec.structs import replace

from lockstep import __version__
from lockstep.errors import UnavailableError
from lockstep.lake.gate import Gate
from lockstep.retry import RACE, Backoff
from lockstep.timeline.append import Exhausted, Proposal, Settled, append_until
from lockstep.timeline.database import Database
from lockstep.timeline.entry import FORMAT, Entry, Moved, TableWrite, TransactionInfo
from lockstep.timeline.log import Timeline
from lockstep.timeline.outcomes import MakeEntry, Ratified, Unknown

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Content:
    """What such an entry says.

    Attributes:
        writes: the commits that it takes in.
        moves: where commits of ours that they overtook are now.
        message: what people are told, if anything.
    """

    writes: Sequence[TableWrite] = ()
    moves: Sequence[Moved] = ()
    message: str = ""


class ExternalEntries:
    """Appends `external` entries to one timeline; safe to share between threads."""

    def __init__(self, timeline: Timeline, gate: Gate, *, new_id: Callable[[], str], backoff: Backoff = RACE) -> None:
        """Append to a timeline; `backoff` says how often an entry is tried, at the gate it is when it loses often."""
        self._timeline = timeline
        self._gate = gate
        self._new_id = new_id
        self._backoff = backoff

    def append(self, content_of: Callable[[Database], Content | None]) -> int | None:
        """Append an `external` entry, unless somebody else's makes it needless; return its database version.

        Args:
            content_of: what it is to say, judged against this database version; None if there is no need.

        Raises:
            UnavailableError: the store failed, or other transactions took the next database version too often. Whether
                the entry was written does not matter: the next one to look finds it, or writes it.
        """

        def propose() -> Proposal | Settled[None]:
            head = self._timeline.head
            content = content_of(head)
            return Settled(None) if content is None else Proposal(self._draft(content), head.version)

        alone = partial(self._gate.held_by, self._new_id())
        match append_until(self._timeline.append, propose, backoff=self._backoff, alone=alone):
            case Ratified(entry):
                _log.info("database version %d: took in commits of a plain Delta writer", entry.version)
                return entry.version
            case Unknown(entry, cause):
                raise cause.saying(
                    f"cannot tell whether timeline entry {entry.version}, which takes in commits of a plain Delta "
                    f"writer, was written: {cause.message}. Nothing else changed; the next statement looks again"
                ) from cause
            case Exhausted(attempts):
                raise UnavailableError(
                    "an entry that takes in commits of a plain Delta writer lost the timeline to other transactions "
                    f"{attempts} times; nothing changed, and the next statement looks again"
                )
        return None

    def _draft(self, content: Content) -> MakeEntry:
        id_ = self._new_id()

        def draft(version: int, at: datetime) -> Entry:
            info = TransactionInfo(
                id=id_,
                began_at=at,
                base_version=version - 1,
                isolation="SNAPSHOT",
                application=f"Lockstep {__version__}",
                message=content.message,
            )
            entry = Entry(
                format=FORMAT,
                version=version,
                committed_at=at,
                kind="external",
                transaction=info,
                writes=[*content.writes],
                moved=[*content.moves],
            )
            return replace(entry, format=entry.needed_format)

        return draft
