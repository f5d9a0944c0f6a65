"""What plain Delta writers did to a lake's tables: found in the tables' logs, and told by `external` entries.

Whoever uses a table asks whether its log goes on after what the timeline knows: with the next version's commit or,
where Delta's clean-up has taken that commit already, from a checkpoint after it. What came in between is not known
then, and counts as a change of everything in the table.

A look at the log's files, a minute apart, also finds commits that the timeline has and that are gone though they are
needed: those after the newest checkpoint. They are published again. What a checkpoint covers is Delta's to remove.

Every look compares the table's newest commit with what was ratified (`lockstep.lake.overwritten`). Where a plain writer
wrote over it, the table is refused before anything is published again or taken in.

What becomes of a ratified commit whose version a plain Delta writer took is decided in `lockstep.lake.behind`, and that
a table is set aside in `lockstep.lake.publisher`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar
from urllib.parse import unquote

from cachetools import LRUCache

from lockstep.delta.actions import Action, bodies, parse
from lockstep.delta.log import LogFiles, commit_path, last_published, log_files, read_digest, read_published
from lockstep.delta.publish import content
from lockstep.errors import CorruptTimelineError, InvalidError, LockstepError
from lockstep.forks import Lock
from lockstep.lake.external import Content, ExternalEntries
from lockstep.lake.overwritten import Overwritten
from lockstep.lake.policy import Policies, refused, warning
from lockstep.storage import Storage
from lockstep.storage.outside import check_reach
from lockstep.timeline.clock import Clock
from lockstep.timeline.database import Database
from lockstep.timeline.entry import Commit, Entry, Table, TableWrite
from lockstep.timeline.log import Timeline
from lockstep.workers import Workers

LOOK_EVERY = timedelta(minutes=1)
"""How long a look at a log's files is believed: what is gone is noticed then, not at every use of the table."""

LOOKS = 100_000
"""Of so many tables it is remembered when their logs were looked at."""

LISTED_VERSIONS = 100
"""So many versions are listed to find the newest checkpoint; more only where none is among them."""

CHECKED_FILES = 100
"""So many of the newest data files are looked for before commits that name them are published again."""

T = TypeVar("T")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Found:
    """What is to be taken in of a table that is as it was when somebody looked."""

    table: Table
    content: Content


class Foreign:
    """Finds what plain Delta writers did, and tells the timeline; safe to share between threads."""

    def __init__(
        self,
        storage: Storage,
        timeline: Timeline,
        external: ExternalEntries,
        policies: Policies,
        *,
        clock: Clock,
        pool: Workers,
        overwritten: Overwritten,
    ) -> None:
        """Look at the tables of one timeline, at as many at a time as the pool has threads."""
        self._storage = storage
        self._timeline = timeline
        self._external = external
        self._policies = policies
        self._clock = clock
        self._pool = pool
        self._overwritten = overwritten
        self._last_looks: LRUCache[str, datetime] = LRUCache(LOOKS)
        self._lock = Lock()

    def look(
        self,
        tables: Sequence[Table],
        restore: Callable[[Entry, TableWrite], object],
        *,
        for_write: bool = False,
    ) -> list[bool | LockstepError]:
        """Tell of each table whether its log goes on after what the timeline knows; publish again what it has lost.

        Delta's clean-up may make the next commit seem absent. It takes the oldest first, so it has not been there since
        the last look at the log's files if the commit that the timeline knows last is there.

        Args:
            restore: publishes a write again whose commit is gone.
            for_write: whether a commit is to follow, which needs a log to follow on. Delta itself tells whoever reads a
                table without a log.

        Returns:
            In the order of the tables. An error is why nobody can tell: ForeignCommitError if a plain writer wrote over
            the newest commit; CorruptTimelineError if a commit is gone that readers need, and nothing has it any more,
            or, for who writes, the whole log is; UnavailableError if the store failed.
        """
        now = self._clock()
        are_recent = [self._looked_at_since(now - LOOK_EVERY, now, table) for table in tables]
        looks: list[Callable[[], bool | LogFiles | None]] = []
        for table, is_recent in zip(tables, are_recent, strict=True):
            looks.append(partial(self._compared, table, is_recent))
            looks.append(partial(self._goes_on if is_recent else self._files, table))
        # All in one go, whichever kind of look it is.
        answers = self._pool.map(_known, looks, quick=self._storage.quick)

        def conclude(number: int) -> bool:
            table, is_there, found = tables[number], *answers[2 * number : 2 * number + 2]
            for answer in (is_there, found):
                if isinstance(answer, LockstepError):
                    raise answer
            if is_there and isinstance(found, bool):
                return found
            files = found if isinstance(found, LogFiles) else self._files(table)
            return self._mend(table, files, now, restore, for_write)

        # Only for a log that has lost something is more asked.
        conclusions = [partial(_known, partial(conclude, number)) for number in range(len(tables))]
        return self._pool.map(lambda task: task(), conclusions, quick=self._storage.quick)

    def check_past(self, table: Table) -> None:
        """See that a table of an older database version is what its log says; see `Overwritten.check_past`.

        Raises:
            InvalidError (42501): the lake may not have a table there.
        """
        check_reach(self._storage, table.location, f"table {table.name} at ")
        self._overwritten.check_past(table)

    def check_written(self, table: Table, entry: Entry) -> None:
        """See that what an entry committed to a table is in its log yet; see `Overwritten.check_written`.

        Raises:
            InvalidError (42501): the lake may not have a table there.
        """
        check_reach(self._storage, table.location, f"table {table.name} at ")
        self._overwritten.check_written(table, entry)

    def _compared(self, table: Table, is_recent: bool) -> bool | None:
        check_reach(self._storage, table.location, f"table {table.name} at ")
        if is_recent:
            return self._overwritten.is_newest_there(table)
        self._overwritten.check(table)
        return None

    def _goes_on(self, table: Table) -> bool:
        return self._storage.exists(commit_path(table.location, table.version + 1))

    def _files(self, table: Table) -> LogFiles:
        after = max(table.version - LISTED_VERSIONS, -1)
        files = log_files(self._storage, table.location, after)
        return files if files.checkpoints or after < 0 else log_files(self._storage, table.location)

    def _mend(
        self,
        table: Table,
        files: LogFiles,
        now: datetime,
        restore: Callable[[Entry, TableWrite], object],
        for_write: bool,
    ) -> bool:
        """Publish again what is gone from a log, and tell whether it goes on after what the timeline knows."""
        if not files.is_empty:
            self._heal(table, files, restore)
        elif for_write:  # the folder is gone, with all data: half a log would only hide it
            raise outdated(table, commit_path(table.location, table.version))
        with self._lock:
            self._last_looks[table.id] = now
        return table.version + 1 in files.commits or files.newest_after(table.version) is not None

    def _looked_at_since(self, begin: datetime, now: datetime, table: Table) -> bool:
        """Tell whether a log's files were listed after `begin`, as far as that is remembered and the clock is right."""
        with self._lock:
            return begin < self._last_looks.get(table.id, begin) <= now

    def _heal(self, table: Table, files: LogFiles, restore: Callable[[Entry, TableWrite], object]) -> None:
        """Publish again what is gone from a log though readers of the table's version need it.

        Raises:
            ForeignCommitError: what is left before it is not what it was ratified behind.
        """
        missing_versions = set(range(files.newest_checkpoint + 1, table.version + 1)) - files.commits
        origins: dict[int, tuple[Entry, TableWrite]] = {}
        lost_writes: list[tuple[Entry, TableWrite]] = []
        commits: dict[int, Commit] = {}
        while missing_versions:
            version = max(missing_versions)
            if (origin := self._origin(table, version)) is None:
                expired = self._timeline.head.expired.first_kept
                what = "which a plain Delta writer wrote" + (", or whose entry has expired" if expired else "")
                raise outdated(table, commit_path(table.location, version), what)
            entry, write, versions = origin
            lost_writes.append((entry, write))
            commits |= {v: commit for v, commit in zip(versions, write.commits, strict=True) if v in missing_versions}
            origins |= dict.fromkeys(missing_versions & set(versions), (entry, write))
            missing_versions -= set(versions)
        for version in sorted(origins.keys() - {version + 1 for version in origins}):  # the first of each gap
            self._overwritten.check_base(*origins[version], version)
        if commits:
            self._check_data(table, files, commits)
        for entry, write in lost_writes:
            _log.warning("table %s: version %d is gone from its log and published again", table.name, write.to_version)
            restore(entry, write)

    def _check_data(self, table: Table, files: LogFiles, lost_commits: Mapping[int, Commit]) -> None:
        """See that the files that lost commits added are there: a log that names lost files would only hide the loss.

        What a later commit removed may be gone, VACUUM takes it; the log is read on for that only if something is.

        Raises:
            CorruptTimelineError: one is gone; the whole folder is older than the timeline.
        """
        commits = {
            version: parse(content(self._storage, table.location, commit) or b"")
            for version, commit in lost_commits.items()
        }
        added_paths = files_left([commits[version] for version in sorted(commits)])
        probes = [path for path in [*added_paths][-CHECKED_FILES:] if ":" not in path]
        missing_paths = [path for path in probes if not self._storage.exists(_file(table, path))]
        if not missing_paths:
            return
        for version in range(min(lost_commits) + 1, table.version + 1):
            if version in files.commits - commits.keys():
                commits[version] = read_published(self._storage, table.location, version)
        needed_paths = files_left([commits[version] for version in sorted(commits)])
        for path in missing_paths:
            if path in needed_paths:
                raise outdated(table, _file(table, path))

    def _origin(self, table: Table, version: int) -> tuple[Entry, TableWrite, tuple[int, ...]] | None:
        """Find which entry holds a table version, and which versions with it.

        None if a plain Delta writer wrote it, or its entry has expired.
        """
        for entry in self._timeline.newest_first(self._timeline.head.expired.first_kept - 1):
            for write in entry.writes:
                versions = self._timeline.versions(write, entry.version)
                if write.id == table.id and version in versions:
                    return entry, write, versions
        return None

    def take_in(self, table: Table) -> None:
        """Take a table's foreign commits into the timeline.

        A file is foreign if the timeline has no commit of that version at a moment after the file was seen, for ours
        are ratified before they are published. That the entry can be appended proves it.

        Raises:
            ForeignCommitError: the newest commit that is ours was written over; what follows it is not taken in. Or the
                table is to have no foreign commits.
            CorruptTimelineError: the newest foreign commit is not whole.
            UnavailableError: the store failed, or others took the next database version too often.
        """
        self._timeline.refresh()
        found: _Found | None = None

        def foreign(head: Database) -> Content | None:
            nonlocal found
            current = head.table_by_id(table.id)
            # Of an attempt that others won, all is known yet of a table that they left as it was: who looked again
            # would be late for the next one, too.
            if found is None or found.table != current:
                found = None if current is None else self._find(current)
            return None if found is None else found.content

        self._external.append(foreign)

    def _find(self, table: Table) -> _Found | None:
        """Return what is to be taken in of a table, as the timeline knows it; None if nothing is.

        Raises:
            LockstepError: see `take_in`.
        """
        if not self._overwritten.is_settled(table):
            return None  # nothing comes after what is not published: that is done first, by the next use
        if (newest := self._newest(table)) is None:
            return None
        path = commit_path(table.location, newest)
        policy = self._policies.at(table.id, table.location, table.version, newest)
        if policy != "absorb":
            # What is seen may be ours, ratified since: it was ratified before it was published.
            self._timeline.refresh()
            if (now := self._timeline.head.table_by_id(table.id)) != table:
                return None if now is None else self._find(now)
        if policy == "refuse":
            raise refused(table.name, path)
        write = _write(table, newest, read_digest(self._storage, table.location, newest))
        message = warning(table.name, path) if policy == "warn" else ""
        if message:
            _log.warning("%s", message)
        return _Found(table, Content(writes=[write], message=message))

    def accept(self, table: Table, through: int) -> int:
        """Take in a table's foreign commits up to a version, all that there are, whatever its policy is.

        Raises:
            InvalidError: the table is not as it was when somebody decided that, or its log ends elsewhere.
            LockstepError: see `take_in`.
        """
        self._timeline.refresh()

        def decided(head: Database) -> Content:
            current = head.table_by_id(table.id)
            if current != table or not self._overwritten.is_settled(current):
                raise InvalidError(f"table {table.name} has changed meanwhile: settle it again")
            path = commit_path(current.location, through)
            if (newest := self._newest(current)) != through:
                there = "as it was" if newest is None else f"version {newest}"
                raise InvalidError(
                    f"table {table.name}: its log ends with {there} by now, and not with {path}, up to which it was "
                    "judged: a plain Delta writer has just written it. Stop it, and settle the table then"
                )
            write = _write(current, through, read_digest(self._storage, current.location, through))
            message = f"settled: what a plain Delta writer committed to table {current.name} is kept, up to {path}"
            return Content(writes=[write], message=message)

        version = self._external.append(decided)
        assert version is not None, "it is appended, or an error says why not"
        return version

    def _newest(self, table: Table) -> int | None:
        """Return the newest version of a log that goes on after what the timeline knows; None if it does not."""
        last = last_published(self._storage, table.location, table.version)
        return (
            last
            if last > table.version
            else log_files(self._storage, table.location, table.version).newest_after(table.version)
        )


def files_left(commits: Iterable[Sequence[Action]]) -> dict[str, None]:
    """Return the paths that consecutive commits add and leave, in the order in which they were first added.

    A commit that removes a file and adds it, under another deletion vector, leaves it.
    """
    paths: dict[str, None] = {}
    for commit in commits:
        for body in bodies(commit, "remove"):
            paths.pop(body["path"], None)
        paths |= {body["path"]: None for body in bodies(commit, "add")}
    return paths


def _known(look: Callable[[], T]) -> T | LockstepError:
    """Return what a look tells, or why it tells nothing: one table's trouble keeps nobody from the others."""
    try:
        return look()
    except LockstepError as error:
        return error


def _file(table: Table, path: str) -> str:
    return f"{table.location}/{unquote(path)}"


def outdated(table: Table, path: str, what: str = "which is committed") -> CorruptTimelineError:
    """Say that a table's folder has less than the timeline, and that nobody can make up for it."""
    return CorruptTimelineError(
        f"{path} is gone, {what}: the folder of table {table.name} is older than the timeline (a backup that copied "
        "tables first?), or files of it are lost. Restore them, or DROP TABLE, which leaves the folder and takes the "
        "table out of the catalog. Nobody can use the table until then"
    )


def _write(table: Table, newest: int, digest: str) -> TableWrite:
    return TableWrite(
        id=table.id,
        name=table.name,
        location=table.location,
        from_version=table.version,
        to_version=newest,
        commits=[],
        digest=digest,
    )
