"""A timeline as it grows: what others appended is read on, file by file, and becomes the head."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import count

from lockstep.timeline.ahead import fetch_for
from lockstep.timeline.checkpoint import State
from lockstep.timeline.clock import far_ahead
from lockstep.timeline.entry import Entry
from lockstep.timeline.files import File, Gets, Stored, read
from lockstep.timeline.fold import FETCHED_FOR
from lockstep.timeline.known import Known

_log = logging.getLogger(__name__)


class Growing(Known):
    """A timeline that this process reads on; safe to share between threads."""

    def refresh(self, *, files: int | None = None) -> list[Entry]:
        """Read what was committed since, and return the entries that are new since this call began, oldest first.

        Args:
            files: so many files at most; None reads until there is none.

        Raises:
            UnavailableError: the store failed; what was read before that is kept.
            CorruptTimelineError: a new entry cannot be read or does not fit.
        """
        version = self._head.version
        self._read_on(self.storage, files)
        return self.entries(version)

    def _read_on(self, storage: Gets, at_most: int | None = None) -> None:
        begun = self._puts_begun
        for number in count():
            if self._put_landed > begun:
                return  # it was put since this call began, behind all that there was then
            if number == at_most or (file := read(storage, self._head.version + 1)) is None:
                return
            self._absorb_file(file)

    def _absorb_file(self, file: File, states: Sequence[State] | None = None) -> None:
        """Make the last entry of a file the head: all of its entries at once, or none.

        Whoever sees one of them knows of them all, for the next file has its name by the last.

        Args:
            states: as `_absorb` says.
        """
        if states is None:
            fetch_for(self._head, file.entries)
        self._absorb(file.stored(), first=file.first, states=states)

    def _absorb_all(self, new: Sequence[Stored]) -> None:
        """Make the last of some entries that follow the head the head; nobody else uses this timeline yet."""
        for begin in range(0, len(new), FETCHED_FOR):
            some = new[begin : begin + FETCHED_FOR]
            fetch_for(self._head, [stored.entry for stored in some])
            for stored in some:
                self._absorb([stored], first=stored.entry.version)

    def _absorb(self, new: Sequence[Stored], *, first: int, states: Sequence[State] | None = None) -> None:
        """Make the last of these entries the head, unless another thread already has.

        Args:
            new: they follow one another.
            first: the version by which their file has its name.
            states: what the entries up to each of them say together, if that is known already: then nothing can go
                wrong.

        Raises:
            CorruptTimelineError: one does not fit.
            UnavailableError, CorruptTimelineError: what one changes cannot be read, or entries whose commits it moves.
        """
        now = self._clock()
        while True:
            with self._lock:
                before = State(self._head, self._placements)
            old_head = before.database
            if new[-1].entry.version <= old_head.version:
                return
            after = states or self._states(before, [stored.entry for stored in new])
            with self._lock:
                if self._head is not old_head:
                    continue
                self._history.keep(new)
                for stored, state in zip(new, after, strict=True):
                    self._take(state.database, state.placements if stored.entry.moved else None)
                self._head_file = first
            head = after[-1].database
            if (far := far_ahead(head, now)) and not far_ahead(old_head, now):
                _log.warning("%s", far)
            return

    def _states(self, state: State, entries: Sequence[Entry]) -> list[State]:
        """Return what the entries up to each of these say together."""
        states = []
        for entry in entries:
            state = self._after(state, entry)
            states.append(state)
        return states
