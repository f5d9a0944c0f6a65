"""What a plain Delta writer wrote over a published commit: noticed before anything else, and refused.

Delta's own log store for S3 looks whether a version is taken and then writes it, so of two drivers the second can write
over the first, and over ours (delta-io/delta, `S3SingleDriverLogStore`). The timeline still has what was ratified; of a
plain writer's commit that it took in it has a digest, which also tells when another table lies in the folder. No
rule can tell what readers, checkpoints and later commits have taken from which of the two since, so nothing is changed:
the log keeps theirs, the timeline ours, and a person decides.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from cachetools import LRUCache

from lockstep.delta.log import commit_path, digest
from lockstep.delta.publish import content, contents
from lockstep.errors import CorruptTimelineError, ExpiredError, ForeignCommitError, SnapshotTooOldError
from lockstep.lake.policy import undecided
from lockstep.storage import Storage
from lockstep.timeline.entry import Commit, Entry, Table, TableWrite
from lockstep.timeline.log import Timeline
from lockstep.timeline.placements import as_ratified

LOST = 10_000
"""Of so many tables it is remembered that the entry of their newest commit is lost, so that it is said once."""

_log = logging.getLogger(__name__)


class Overwritten:
    """Compares the logs of one timeline's tables with what was ratified; safe to share between threads."""

    def __init__(self, storage: Storage, timeline: Timeline, is_published: Callable[[Table], bool]) -> None:
        """Compare the logs of a timeline's tables; `is_published` tells whether a table's log had its newest commit.

        What a foreign commit kept from being published was not written over (`lockstep.lake.behind`).
        """
        self._storage = storage
        self._timeline = timeline
        self._is_published = is_published
        self._lost: LRUCache[str, int] = LRUCache(LOST)
        self._lock = threading.Lock()

    def is_newest_there(self, table: Table) -> bool:
        """Tell whether a table's newest commit is in its log, at the cost of one look, and see that it is ours.

        One that is too large for its entry is only looked for; so is one that `check` does not compare.

        Raises:
            ForeignCommitError: another commit is in its place.
            UnavailableError: the store failed.
        """
        if table.digest:
            return self._is_as_it_was(table)
        newest = self._newest(table)
        if newest is None or newest[1].commits[-1].inline is None:
            return self._storage.exists(commit_path(table.location, table.version))
        return self._is_ours(table, *newest)

    def check(self, table: Table) -> None:
        """See that no other commit is where a table's newest one should be; none is no other.

        One of this lake's is not compared if its entry has expired or is lost, or if it was moved; a plain writer's is
        if the timeline has its digest.

        Raises:
            ForeignCommitError: one is.
            UnavailableError: the store failed.
        """
        if table.digest:
            self._is_as_it_was(table)
        elif (newest := self._newest(table)) is not None:
            self._is_ours(table, *newest)

    def check_past(self, table: Table) -> None:
        """See that the commit by which a table was as an older database version has it is in its log yet.

        It is not compared where it was moved, its entry has expired, or Delta's clean-up took its file.

        Raises:
            ForeignCommitError: another commit is in its place.
            UnavailableError, CorruptTimelineError: the store failed, or the timeline cannot be read.
        """
        if table.digest:
            self._is_as_it_was(table)
        elif (made := self._made(table)) is not None:
            self._is_ours(table, *made)

    def check_base(self, entry: Entry, write: TableWrite, version: int) -> None:
        """See that a commit of ours, which is about to be written, would follow what it was ratified behind.

        A log that was set back, and that a plain writer has written since, has another commit before the gap than the
        timeline: what is written into the gap would change a table that it does not fit.

        Args:
            version: the commit's table version, of those of a write. The one before it is not compared where the
                timeline does not tell of it any more, where it was moved, or where Delta's clean-up took the file.

        Raises:
            ForeignCommitError: another commit is there.
            UnavailableError: the store failed.
        """
        versions = self._timeline.versions(write, entry.version)
        if version in versions[1:]:
            place = versions.index(version) - 1
            data = self._storage.get(commit_path(write.location, versions[place]))
            if data is not None and versions == as_ratified(write) and not says(write.commits[place], data):
                raise written_over(self._storage, entry, write, place, versions[place])
            return
        try:
            before = self._timeline.at(entry.version - 1).table_by_id(write.id)
            if before is not None and before.version == version - 1:
                self.check_past(before)
        except ExpiredError:
            return
        except CorruptTimelineError as error:
            _log.warning("table %s: version %d is not compared with its log: %s", write.name, version - 1, error)

    def is_settled(self, table: Table) -> bool:
        """Tell whether what comes after a table's newest commit can be built on: ours is in its log.

        Whoever has not seen it published looks whether it was: others publish what they ratify.

        Raises:
            ForeignCommitError: it was published, and another one is there now.
            UnavailableError: the store failed.
        """
        if table.digest or self._is_published(table):
            self.check(table)
            return True
        if (newest := self._last(table)) is not None:
            data = self._storage.get(commit_path(table.location, table.version))
            return data is not None and says(newest[1].commits[-1], data)
        return self._is_moved_there(table)

    def _is_moved_there(self, table: Table) -> bool:
        """Tell whether a table's newest commit is in its log, if it is one that was moved; True of any other.

        Raises:
            UnavailableError: the store failed.
        """
        for (id_, number), versions in self._timeline.placements.items():
            if id_ == table.id and versions[-1] == table.version:
                try:
                    [entry] = self._timeline.entries(number - 1, number)
                except (SnapshotTooOldError, CorruptTimelineError):
                    return True  # expired, so published before that; or lost, and then nobody can tell
                [write] = [write for write in entry.writes if write.id == table.id]
                ours = contents(self._storage, write, versions)[-1]
                data = self._storage.get(commit_path(table.location, table.version))
                # What was staged for a large one goes once it is published.
                return data is not None and (ours is None or data == ours)
        return True

    def _is_ours(self, table: Table, entry: Entry, write: TableWrite) -> bool:
        """Tell whether a table's newest commit is in its log.

        Raises:
            ForeignCommitError: another one is there.
        """
        if (data := self._storage.get(commit_path(table.location, table.version))) is None:
            return False
        if not says(write.commits[-1], data):
            raise written_over(self._storage, entry, write, -1, table.version)
        return True

    def _is_as_it_was(self, table: Table) -> bool:
        """Tell whether a table's newest commit, a plain writer's, is in its log.

        Raises:
            ForeignCommitError: another one is there.
        """
        path = commit_path(table.location, table.version)
        if (data := self._storage.get(path)) is None:
            return False
        if digest(data) != table.digest:
            raise _another(table)
        return True

    def _newest(self, table: Table) -> tuple[Entry, TableWrite] | None:
        """Return a table's newest write, if it is ours, published, and where it was ratified."""
        return self._last(table) if self._is_published(table) else None

    def _last(self, table: Table) -> tuple[Entry, TableWrite] | None:
        """Return what `_made` does, or nothing where the entry is lost: the newest version can be read without it."""
        with self._lock:
            if self._lost.get(table.id) == table.since:
                return None
        try:
            return self._made(table)
        except CorruptTimelineError as error:
            with self._lock:
                self._lost[table.id] = table.since
            _log.warning("table %s: its newest commit is not compared with its log: %s", table.name, error)
            return None

    def _made(self, table: Table) -> tuple[Entry, TableWrite] | None:
        """Return the write by which a table got its version, if it is ours, there yet, and where it was ratified.

        Whoever asks first reads its entry; the timeline remembers it for those who come after.
        """
        head = self._timeline.head
        if not head.expired.first_kept < table.since <= head.version:
            return None
        try:
            [entry] = self._timeline.entries(table.since - 1, table.since)
        except SnapshotTooOldError:  # another process let it expire just now
            return None
        for write in entry.writes:
            if write.id == table.id and write.commits:
                versions = self._timeline.versions(write, entry.version)
                is_in_place = versions == as_ratified(write) and versions[-1] == table.version
                return (entry, write) if is_in_place else None
        return None


def says(commit: Commit, data: bytes) -> bool:
    """Tell whether a file is a ratified commit's: one that was staged has a digest in its name (`ratified_path`)."""
    if commit.inline is not None:
        return data == b"".join(bytes(action) + b"\n" for action in commit.inline)
    return (commit.staged or "").endswith(f"-{digest(data)}.json")


def _another(table: Table) -> ForeignCommitError:
    """Return the refusal of a table of which a version is not the plain writer's commit that the timeline knows."""
    return ForeignCommitError(
        f"table {table.name}: {commit_path(table.location, table.version)} is not the commit that database version "
        f"{table.since} knows as version {table.version}: another table lies in this folder now, or an older copy of "
        "it, or a plain Delta writer wrote over that version. Nothing was changed. Put back what was there, if you "
        "have it. "
        f"{undecided(table.name)}"
    )


def written_over(storage: Storage, entry: Entry, write: TableWrite, place: int, version: int) -> ForeignCommitError:
    """Return the refusal of a table of which a plain writer wrote over a published version.

    Args:
        entry, write: what was ratified.
        place: which of the write's commits was written over.
        version: its table version, which has another commit now.

    Raises:
        UnavailableError: the store failed.
    """
    path = commit_path(write.location, version)
    commit = write.commits[place]
    what = (
        f"table {write.name}: a plain Delta writer wrote over version {version}, which database version "
        f"{entry.version} (transaction {entry.transaction.id}) had published. Nothing was changed"
    )
    if content(storage, write.location, commit) is None:
        return ForeignCommitError(
            f"{what}: the foreign commit is {path}. Ours was too large for its entry and is nowhere else: get that "
            f"file back from the store's old versions of it, or from a backup. {undecided(write.name)}"
        )
    ours = f"timeline entry {entry.version}" if commit.staged is None else f"{write.location}/{commit.staged}"
    return ForeignCommitError(
        f"{what}, and neither is lost: the foreign commit is {path}, ours is in {ours}. {undecided(write.name)}"
    )
