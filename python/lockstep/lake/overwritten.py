"""What a plain Delta writer wrote over a published commit: noticed before anything else, and refused.

Delta's own log store for S3 looks whether a version is taken and then writes it, so of two drivers the second can write
over the first, and over ours (delta-io/delta, `S3SingleDriverLogStore`). The timeline still has what was ratified; of a
plain writer's commit that it took in it has a digest, which also tells when another table lies in the folder. No
rule can tell what readers, checkpoints and later commits have taken from which of the two since, so nothing is changed:
the log keeps theirs, the timeline ours, and a person decides.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from cachetools import LRUCache

from lockstep.delta.log import commit_path, digest
from lockstep.delta.publish import content
from lockstep.errors import CorruptTimelineError, ExpiredError, ForeignCommitError, UnavailableError
from lockstep.forks import Lock
from lockstep.lake.known_commits import KnownCommit, known_commits, ours_of
from lockstep.lake.policy import undecided
from lockstep.storage import Storage
from lockstep.timeline.entry import Entry, Name, Table, TableWrite
from lockstep.timeline.log import Timeline

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
        self._lock = Lock()

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
        if newest is None or _is_large(newest):
            return self._storage.exists(commit_path(table.location, table.version))
        return self._is_there(table, newest)

    def check(self, table: Table) -> None:
        """See that no other commit is where a table's newest one should be; none is no other.

        One of this lake's is not compared if its entry has expired or is lost, if it was moved, or if the table was
        renamed or undropped since; a plain writer's is if the timeline has its digest.

        Raises:
            ForeignCommitError: one is.
            UnavailableError: the store failed.
        """
        if table.digest:
            self._is_as_it_was(table)
        elif (newest := self._newest(table)) is not None:
            self._is_there(table, newest)

    def check_past(self, table: Table) -> None:
        """See that the commit by which a table was as an older database version has it is in its log yet.

        It is compared as `check` does, and not where Delta's clean-up took its file.

        Raises:
            ForeignCommitError: another commit is in its place.
            UnavailableError, CorruptTimelineError: the store failed, or the timeline cannot be read.
        """
        if table.digest:
            self._is_as_it_was(table)
        elif (made := self._made(table)) is not None:
            self._is_there(table, made)

    def check_written(self, table: Table, entry: Entry) -> None:
        """See that what an entry committed to a table is in its log yet; none is no other.

        Of a plain Delta writer's commits the last one is compared, if the timeline has its digest.

        Raises:
            ForeignCommitError: another commit is in the place of one.
            UnavailableError: the store failed.
        """
        for write in (write for write in entry.writes if write.id == table.id):
            if entry.kind != "external":
                commits = ours_of(entry, write, self._timeline.placements)
            else:
                commits = [KnownCommit(write.to_version, entry, digest=write.digest)] if write.digest else []
            for commit in commits:
                self._is_there(table, commit)

    def check_base(self, entry: Entry, write: TableWrite, version: int) -> None:
        """See that a commit of ours, which is about to be written, would follow what it was ratified behind.

        A log that was set back, and that a plain writer has written since, has another commit before the gap than the
        timeline: what is written into the gap would change a table that it does not fit.

        What is compared is the newest commit before it that the timeline tells from any other, whichever entry wrote
        it, and whether or not that has expired. Between the two there can only be plain writers' commits: large ones,
        those that ours was moved behind, and what a table came with that was adopted.

        Args:
            version: the commit's table version, of those of a write. It is not compared where Delta's clean-up took
                the file, and where nobody knows any more who wrote: the entry is lost, and the history, too.

        Raises:
            ForeignCommitError: another commit is there.
            UnavailableError: the store failed; or what is asked for has expired just now, and asking again tells.
        """
        try:
            commits = known_commits(self._through(entry, write.id), write.id, version - 1, self._timeline.placements)
            base = next((commit for commit in commits if commit.is_told), None)
        except ExpiredError as error:
            what = f"what version {version} of table {write.name} was ratified behind has expired just now"
            raise UnavailableError(f"{what}; the next statement looks again") from error
        except CorruptTimelineError as error:
            _log.warning("table %s: version %d is not compared with its log: %s", write.name, version - 1, error)
            return
        if base is not None:
            self._is_there(write, base)

    def _through(self, entry: Entry, id: str) -> Iterator[Entry]:
        """Yield an entry that wrote a table, and those before it that may have, newest first; see `_through_last`."""
        yield entry
        try:
            before = self._timeline.at(entry.version - 1).table_by_id(id)
        except ExpiredError:
            before = None
        if before is not None:
            yield from self._through_last(before)
        else:  # it came back in this entry; or nobody can tell where it was, but the history
            yield from self._timeline.past(through=entry.version - 1)

    def _through_last(self, table: Table) -> Iterator[Entry]:
        """Yield the entry that changed a table last, and those before it, newest first.

        Which of them wrote it is mostly told by the first, which is whole, as is one whose commit that has moved. The
        others are as the history has them, which needs few requests and knows what has expired.
        """
        last = table.since
        if self._timeline.head.expired.first_kept <= last:
            [entry] = self._timeline.entries(last - 1, last)
            last -= 1
            yield entry
            for move in entry.moved:
                if (move.id, move.to_version) == (table.id, table.version) and not self._has_expired(move.entry):
                    yield from self._timeline.entries(move.entry - 1, move.entry)
        yield from self._timeline.past(through=last)

    def _has_expired(self, version: int) -> bool:
        return version < self._timeline.head.expired.first_kept

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
        commits = known_commits(self._through_last(table), table.id, table.version, self._timeline.placements)
        try:
            newest = next(commits, None)
        except (ExpiredError, CorruptTimelineError):
            return True  # expired, so published before that; or lost, and then nobody can tell
        if newest is None or newest.ours is None or newest.version < table.version:
            return True  # a plain writer's, which was there before the timeline had it
        if self._has_expired(newest.entry.version):
            return True
        data = self._storage.get(commit_path(table.location, table.version))
        return data is not None and newest.is_in(data)

    def _is_there(self, table: Table | TableWrite, commit: KnownCommit) -> bool:
        """Tell whether a table's log has a commit that the timeline tells from any other.

        Raises:
            ForeignCommitError: another one is in its place.
        """
        if (data := self._storage.get(commit_path(table.location, commit.version))) is None:
            return False
        if not commit.is_in(data):
            raise self._refusal(table, commit)
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
            raise _another(table.name, path, table.version, known_by=table.since)
        return True

    def _newest(self, table: Table) -> KnownCommit | None:
        """Return a table's newest commit, if it is ours, published, and where it was ratified."""
        return self._last(table) if self._is_published(table) else None

    def _last(self, table: Table) -> KnownCommit | None:
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

    def _made(self, table: Table) -> KnownCommit | None:
        """Return a table's newest commit if it is ours, where it was ratified, and what changed the table last.

        Whoever asks first reads its entry; the timeline remembers it for those who come after.
        """
        head = self._timeline.head
        if not head.expired.first_kept <= table.since <= head.version:
            return None
        try:
            entries = self._timeline.entries(table.since - 1, table.since)
        except ExpiredError:  # another process let it expire just now
            return None
        made = next(known_commits(entries, table.id, table.version, self._timeline.placements), None)
        is_in_place = made is not None and made.version == table.version and not made.is_moved
        return made if made is not None and made.ours is not None and is_in_place else None

    def _refusal(self, table: Table | TableWrite, commit: KnownCommit) -> ForeignCommitError:
        """Return the refusal of a table in whose log another commit is in the place of one that the timeline knows."""
        if commit.ours is None:
            path, name = commit_path(table.location, commit.version), self._timeline.head.current_name(table)
            return _another(name, path, commit.version, known_by=commit.entry.version)
        write, place = commit.ours
        if not write.commits and not self._has_expired(commit.entry.version):  # the history had it at fewer requests
            [entry] = self._timeline.entries(commit.entry.version - 1, commit.entry.version)
            write = next(each for each in entry.writes if each.id == table.id)
        return self.written_over(commit.entry, write, place, commit.version)

    def written_over(self, entry: Entry, write: TableWrite, place: int, version: int) -> ForeignCommitError:
        """Return the refusal of a table of which a plain writer wrote over a published version.

        Args:
            entry, write: what was ratified.
            place: which of the write's commits was written over.
            version: its table version, which has another commit now.

        Raises:
            UnavailableError: the store failed.
        """
        name, path = self._timeline.head.current_name(write), commit_path(write.location, version)
        what = (
            f"table {name}: a plain Delta writer wrote over version {version}, which database version "
            f"{entry.version} (transaction {entry.transaction.id}) had published. Nothing was changed"
        )
        commit = write.commits[place] if write.commits else None
        if commit is None or content(self._storage, write.location, commit) is None:
            why = "was in an entry that has expired" if commit is None else "was too large for its entry"
            return ForeignCommitError(
                f"{what}: the foreign commit is {path}. Ours {why} and is nowhere else: get that file back from the "
                f"store's old versions of it, or from a backup. {undecided(name)}"
            )
        ours = f"timeline entry {entry.version}" if commit.staged is None else f"{write.location}/{commit.staged}"
        return ForeignCommitError(
            f"{what}, and neither is lost: the foreign commit is {path}, ours is in {ours}. {undecided(name)}"
        )


def _is_large(commit: KnownCommit) -> bool:
    return commit.ours is not None and commit.ours[0].commits[commit.ours[1]].inline is None


def _another(name: Name, path: str, version: int, *, known_by: int) -> ForeignCommitError:
    """Return the refusal of a table of which a version is not the plain writer's commit that the timeline knows."""
    return ForeignCommitError(
        f"table {name}: {path} is not the commit that database version {known_by} knows as version {version}: another "
        "table lies in this folder now, or an older copy of it, or a plain Delta writer wrote over that version. "
        f"Nothing was changed. Put back what was there, if you have it. {undecided(name)}"
    )
