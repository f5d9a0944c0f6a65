"""What commits have come to need since a plan was made: whatever deletes spares it, however long ago that was.

Who asks has raised a fence (`lockstep.lake.deletions`): up to there the entries say it, and behind it a commit that
needs such a thing is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from lockstep.commit.killing import entries_since
from lockstep.delta.actions import Action, parse
from lockstep.delta.log import LOG, read_published
from lockstep.delta.publish import contents
from lockstep.errors import CorruptTimelineError, ExpiredError, LockstepError
from lockstep.lake.deletions import is_in_any
from lockstep.lake.kept_states import FOLDER as KEPT
from lockstep.lake.kept_states import kept_state, state_path
from lockstep.lake.lake import Lake
from lockstep.lake.shared import files_elsewhere
from lockstep.retention.survey import named_by
from lockstep.timeline.entry import Entry, Moved, TableDdl, TableWrite

_log = logging.getLogger(__name__)


@dataclass
class Named:
    """What must not go: files, and all that lies in some folders.

    Attributes:
        is_unknown: whether nobody can tell of which files else that is so: then nothing goes that a table may name.
    """

    is_unknown: bool = False
    _files: set[str] = field(default_factory=set)
    _locations: set[str] = field(default_factory=set)
    _above: set[str] = field(default_factory=set)

    def add_files(self, paths: Iterable[str]) -> None:
        """Note that files are needed."""
        for path in paths:
            self._files.add(path)
            self._note_above(path)

    def add_locations(self, locations: Iterable[str]) -> None:
        """Note that all in some folders is needed, and the folders themselves."""
        for location in locations:
            self._locations.add(location)
            self._note_above(location)

    def _note_above(self, path: str) -> None:
        while path and path not in self._above:
            self._above.add(path)
            path = path.rpartition("/")[0]

    def spares(self, path: str, *, is_folder: bool) -> bool:
        """Tell whether something has to stay: a file, or a folder with all that is in it."""
        if path in self._files or (is_folder and path in self._above):
            return True
        if path in self._locations or is_in_any(path, self._locations):
            return True
        return self.is_unknown and f"/{LOG}/" not in f"{path}/"  # no table names files of a log


class Since:
    """What the entries behind a database version have come to need, taken in as the timeline grows."""

    def __init__(self, lake: Lake, version: int, id: str = "") -> None:
        """Begin at a version; one below 0 is one that nobody knows.

        Args:
            id: of the transaction that made that version; empty if nobody knows.
        """
        self._lake, self._version, self._id = lake, version, id
        self.named = Named(is_unknown=version < 0)

    def read_on(self) -> Named:
        """Take in all up to the newest version that is known, and return what is needed.

        Those are also the folders of tables that came back, or were made: one without files has a folder, too.

        Raises:
            UnavailableError, CorruptTimelineError: the store failed; the timeline cannot be read.
        """
        version = self._lake.timeline.head.version
        if version < self._version:
            _log.warning(
                "there is no database version %s, the newest is %s: was the lake set back?", self._version, version
            )
            self.named.is_unknown = True
        elif self._id and id_at(self._lake, self._version) != self._id:
            _log.warning("database version %s is another one than it was: was the lake set back?", self._version)
            self.named.is_unknown = True
        self._id = ""  # what it was is looked at once
        if self._version < 0 or version <= self._version:
            return self.named
        read, moved = 0, list[Moved]()
        for entry in entries_since(self._lake, self._version, version):
            self._take(entry)
            moved += entry.moved
            read += 1
        for move in moved:
            self._take_overtaking(move)
        if read != version - self._version:  # of entries that have expired, some are not in the history
            _log.warning("database versions since %s cannot be read, so little is deleted", self._version)
            self.named.is_unknown = True
        self._version = version
        return self.named

    def _take(self, entry: Entry) -> None:
        lake, named = self._lake, self.named
        try:
            named.add_files(_kept_by(lake, entry))
        except CorruptTimelineError as error:
            _log.warning("nothing that is kept for tags is deleted: %s", error)
            named.add_locations([KEPT])
        for ddl in entry.tables:
            if ddl.action == "create":
                named.add_locations([ddl.location])
                self._take_elsewhere(ddl)
        for write in entry.writes:
            self._take_commits(write.location, self._commits(write, entry))

    def _take_overtaking(self, move: Moved) -> None:
        """Take in what others committed that came before one of ours: no entry names more of it than the last version.

        Ours may have been ratified before the plan was made.
        """
        entries = entries_since(self._lake, move.entry - 1, move.entry)
        write = next((write for entry in entries for write in entry.writes if write.id == move.id), None)
        if write is None:
            _log.warning("no data is deleted: nobody can tell what overtook database version %s", move.entry)
            self.named.is_unknown = True
            return
        ours = self._lake.timeline.versions(write, move.entry) if write.commits else ()
        all_of_them = range(write.from_version + 1, move.to_version + 1)
        theirs = [version for version in all_of_them if version not in ours]
        self._take_commits(write.location, self._published(write.location, theirs))

    def _take_commits(self, location: str, commits: list[list[Action]] | None) -> None:
        try:
            files = None if commits is None else named_by(iter(commits), location, self._lake.storage.url)
        except LockstepError as error:  # a deletion vector of an unknown kind
            _log.warning("no data is deleted: nobody can tell what was written into %s: %s", location, error)
            files = None
        if files is None:
            self.named.add_locations([location])
            self.named.is_unknown = True  # it may be a clone, which names files of others
        else:
            self.named.add_files(files)

    def _take_elsewhere(self, ddl: TableDdl) -> None:
        """Take in which files outside of its folder a table needs that came back, or that others had made."""
        if ddl.version is None:
            return
        try:
            self.named.add_files(files_elsewhere(self._lake.storage, ddl.location, ddl.version))
        except LockstepError as error:
            _log.warning("no data is deleted: the log of %s does not say which files it shares: %s", ddl.name, error)
            self.named.is_unknown = True

    def _commits(self, write: TableWrite, entry: Entry) -> list[list[Action]] | None:
        """Return what an entry wrote into a table; None where nobody can tell any more.

        Those of an external entry, and of one that has expired, are in the table's log alone; so is a large commit once
        what was staged of it is cleaned up, behind its publication.
        """
        lake = self._lake
        if not write.commits:
            return self._published(write.location, range(write.from_version + 1, write.to_version + 1))
        versions = lake.timeline.versions(write, entry.version)
        try:
            files = contents(lake.storage, write, versions)
            if None not in files:
                return [parse(data) for data in files if data is not None]
        except LockstepError as error:
            _log.info("the commits of %s are looked for in its log: %s", write.location, error)
        return self._published(write.location, versions)

    def _published(self, location: str, versions: Iterable[int]) -> list[list[Action]] | None:
        try:
            return [read_published(self._lake.storage, location, version) for version in versions]
        except LockstepError as error:
            _log.warning("no data is deleted: nobody can tell what was written into %s: %s", location, error)
            return None


def id_at(lake: Lake, version: int) -> str:
    """Return the id of the transaction that made a database version; empty where the history does not tell any more.

    Raises:
        UnavailableError, CorruptTimelineError: the store failed; the timeline cannot be read.
    """
    timeline = lake.timeline
    if version < timeline.head.expired.first_kept:
        entries = timeline.past(after=version - 1, through=version)
    else:
        entries = timeline.scan(version - 1, version)
    return next((entry.transaction.id for entry in entries), "")


def _kept_by(lake: Lake, entry: Entry) -> Iterator[str]:
    """Yield what is kept for the tags that an entry makes: what says so, and what lies in the folder of its copies."""
    for ddl in entry.tags:
        if ddl.action != "create":
            continue
        try:
            tables = lake.timeline.at(entry.version if ddl.version is None else ddl.version).tables
        except ExpiredError:  # the tag is gone, or its time is over, and nothing is kept for it
            continue
        for table in tables.values():
            if (state := kept_state(lake.storage, table.id, table.version)) is not None:
                yield state_path(table.id, table.version)
                yield f"{state.folder}/{LOG}"
