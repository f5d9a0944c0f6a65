"""A timeline as it grows: what others appended is read on, file by file, and becomes the head."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence

from lockstep.timeline.ahead import fetch_for
from lockstep.timeline.clock import far_ahead
from lockstep.timeline.entry import NEW, Entry
from lockstep.timeline.fence import counts_on, fence, left_behind, now
from lockstep.timeline.files import FOLDER, File, Gets, Stored, read
from lockstep.timeline.fold import FETCHED_FOR
from lockstep.timeline.known import Known
from lockstep.timeline.state import State

READ_AT_ONCE = 64
"""So many files are read before what they need of a checkpoint is, for all of them together."""

_log = logging.getLogger(__name__)


class Growing(Known):
    """A timeline that this process reads on; safe to share between threads.

    Attributes:
        _sure_at: when the head was known to be one after which nothing has expired, see `lockstep.timeline.fence`.
        _durable_through: the entries up to this one are known to outlive a power cut.
    """

    _sure_at = -math.inf
    _durable_through = NEW

    def refresh(self, *, files: int | None = None) -> Iterator[Entry]:
        """Read what was committed since, and return the entries that are new since this call began, oldest first.

        Who has not looked for long may find more than memory has room for: they are handed out a few at a time.

        Args:
            files: so many files at most; None reads until there is none.

        Raises:
            UnavailableError: the store failed; what was read before that is kept.
            SnapshotTooOldError: the next one has expired; the lake is to be opened again.
            CorruptTimelineError: a new entry cannot be read or does not fit.
        """
        version = self._head.version
        self._read_on(self.storage, files)
        return self.scan(version)

    def secure_through(self, version: int) -> None:
        """See that the entries up to a version are durable, before anything is made of them that may outlive them.

        An entry of a local lake can be read a moment before its writer has seen that its name is on the disk.

        Raises:
            UnavailableError: the store failed; nobody knows whether they outlive a power cut.
        """
        if version > self._durable_through:
            head = self._head.version
            self.storage.sync_names(FOLDER)
            self._durable_through = max(self._durable_through, head)

    def _read_on(self, storage: Gets, at_most: int | None = None) -> None:
        begun, number, is_end, is_free = self._puts_begun, 0, False, False
        while not is_end:
            files: list[File] = []
            head, asked = self._head.version, now()
            try:
                while len(files) < READ_AT_ONCE and not is_end:
                    # What was put since this call began is behind all that there was then.
                    if is_end := self._put_landed > begun or number == at_most:
                        break
                    asked = now()
                    file = read(storage, files[-1].last + 1 if files else head + 1)
                    if is_end := file is None:
                        is_free = True
                        break
                    files.append(file)
                    number += 1
            finally:
                self._make_sure(head)
                self._absorb_files(files)
            if is_free and storage is self.storage:  # else it was asked ahead, nobody knows when
                self._sure_at = max(self._sure_at, asked)

    def _absorb_files(self, files: Sequence[File]) -> None:
        """Make the last entry of files that follow one another the head."""
        fetch_for(self._head, [entry for file in files for entry in file.entries])
        for file in files:
            self._absorb_file(file)

    def _make_sure(self, head: int) -> None:
        """See that what was just found, or not found, behind a head is what comes after it (`lockstep.timeline.fence`).

        Raises:
            UnavailableError: the store failed.
            SnapshotTooOldError: what came after it has expired.
        """
        expired = self._head.expired.first_kept
        if head + 1 < expired:  # another thread has begun anew meanwhile, and what it is sure of is a later head
            raise left_behind(head, expired)
        if counts_on(self._sure_at):
            return
        began = now()
        if first_kept := fence(self.storage, head + 1):
            raise left_behind(head, first_kept)
        self._sure_at = max(self._sure_at, began)

    def _absorb_file(self, file: File, states: Sequence[State] | None = None) -> None:
        """Make the last entry of a file the head: all of its entries at once, or none.

        Whoever sees one of them knows of them all, for the next file has its name by the last.

        Args:
            states: as `_absorb` says.
        """
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
