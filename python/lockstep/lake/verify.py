"""Compare what a lake's tables say with what its timeline ratified; reads only, so it may be run beside anything.

    unpublished   ratified, and not in the table's log: a writer died between the two; whoever uses the lake next
                  publishes it
    missing       gone from the table's log, though later versions are there, or though a plain Delta writer wrote it;
                  where no checkpoint makes up for it, whoever uses the table next publishes it again, if the timeline
                  has it
    different     there, but not what was ratified, or taken in: another Delta writer took the version, the file was
                  changed, or another table lies in the folder
    checksum      the version's checksum (`.crc`) is none, or not what the table's log says: Delta makes no more
                  checkpoints of a table with such a one, and tells nobody. Remove the table's `.crc` files: they are
                  advice, and Delta computes new ones
    unreadable    a tag keeps this version, and nothing tells of it any more: an older Lockstep made the tag, which
                  kept nothing beside the table's log, and the clean-up of a plain Delta writer, which knows no tags,
                  took a commit. The table property `delta.logRetentionDuration` keeps logs from all writers
    out of reach  the table lies where this process may not look (`locations-only`): nothing is said of it

Each checkpoint of the timeline is compared with what the entries up to its version say. A wrong one is passed over by
whoever meets it; the folder of all of them may be deleted at any time.

Checksums are compared in tables whose log is whole from version 0 on, and otherwise as it was ratified.
Versions older than the first that Delta's own log clean-up left, behind a whole checkpoint, are counted as expired.
Tables that were dropped are passed over: nothing reads their folders but time travel.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from lockstep.delta.log import LogFiles, checksum_path, commit_path, digest, log_files, read_checksum, read_published
from lockstep.delta.publish import contents
from lockstep.delta.replay import Replay
from lockstep.errors import CorruptTimelineError
from lockstep.lake.kept import kept_tables, kept_tags
from lockstep.lake.kept_states import kept_state
from lockstep.storage import Storage
from lockstep.storage.outside import reaches
from lockstep.timeline.base import base_path, read_base
from lockstep.timeline.checkpoint import read_state
from lockstep.timeline.checkpoint import versions as checkpoint_versions
from lockstep.timeline.clock import Clock, utc_now
from lockstep.timeline.database import Database
from lockstep.timeline.entry import Entry, Name, Table, TableWrite, Tag
from lockstep.timeline.log import Timeline
from lockstep.timeline.manifest import manifest_path, read_manifest
from lockstep.timeline.parts import UnusableError
from lockstep.timeline.state import State

KEEPS_FILES = "delta.deletedFileRetentionDuration"
"""The table property by which a VACUUM of a plain Delta writer lets data files be that no newest version has."""

KEEPS_LOGS = "delta.logRetentionDuration"
"""The table property by which a plain Delta writer's clean-up lets logs be."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One table version that is not what the timeline says.

    Attributes:
        problem: which of those that this module, or `lockstep.exports.deep`, names.
        path: the file that it is about, relative to the lake's root, or a URL of what lies outside of it.
        needed_by: a tag or an export that needs it, if one does: "tag eod".
        prevented_by: the table property by which plain Delta writers would have let the file be.
    """

    problem: Literal["unpublished", "missing", "different", "checksum", "unreadable", "lost", "damaged", "out of reach"]
    table: Name
    table_version: int
    database_version: int
    path: str
    needed_by: str = ""
    prevented_by: str = ""


@dataclass(frozen=True, slots=True)
class WrongCheckpoint:
    """A checkpoint of the timeline that is not what the entries say, and why not."""

    database_version: int
    path: str
    why: str


@dataclass(frozen=True, slots=True)
class Report:
    """What was looked at, and what was found."""

    database_version: int
    tables: int
    versions: int
    expired: int
    differences: tuple[Difference, ...]
    checkpoints: int = 0
    wrong_checkpoints: tuple[WrongCheckpoint, ...] = ()

    def with_more(self, differences: Iterable[Difference]) -> Report:
        """Return the report with what another look has found, without what both have."""
        known = {(each.problem, each.path, each.needed_by) for each in self.differences}
        more = [each for each in differences if (each.problem, each.path, each.needed_by) not in known]
        return replace(self, differences=(*self.differences, *more))


def verify(storage: Storage, timeline: Timeline, *, clock: Clock = utc_now) -> Report:
    """Compare every version of every table of the head with its ratified commit, and see what tags keep.

    Args:
        storage, timeline: the lake's.
        clock: says which tags are past their time.

    Raises:
        UnavailableError, CorruptTimelineError: as the store and the timeline say.
    """
    head = timeline.head
    tables = {table.id: table for table in head.tables.values() if reaches(storage, table.location)}
    logs = {table.id: log_files(storage, table.location) for table in tables.values()}
    differences = [out_of_reach(table, head.version) for table in head.tables.values() if table.id not in tables]
    versions = expired = 0
    checkpoints = checkpoint_versions(storage)
    wrong = [_beyond(version, head) for version in checkpoints if version > head.version]
    for entry, state in timeline.states():
        if entry.version in checkpoints and (why := _why_wrong(storage, entry.version, state)) is not None:
            wrong.append(WrongCheckpoint(entry.version, manifest_path(entry.version), why))
        for write in entry.writes:
            if write.id not in tables:
                continue
            log, name = logs[write.id], tables[write.id].name
            for version, known in _ratified(storage, write, timeline.versions(write, entry.version)):
                versions += 1
                if _has_expired(log, version):
                    expired += 1
                elif (problem := _problem(storage, log, write.location, version, known)) is not None:
                    is_lost = not write.commits or (log.is_empty and entry.version <= timeline.published_through)
                    if problem == "unpublished" and is_lost:
                        problem = "missing"  # it was there; nobody has it, or publishes into a folder that is gone
                    path = commit_path(write.location, version)
                    differences.append(Difference(problem, name, version, entry.version, path))
        differences += _replaced(storage, entry, tables, logs)
    found = {difference.path for difference in differences}
    of_heads = (*_written_over(storage, tables.values()), *_gone(logs, tables.values(), timeline))
    differences += [each for each in of_heads if each.path not in found]
    suspects = {difference.table for difference in differences}
    for table in tables.values():
        if table.name not in suspects:
            differences += _wrong_checksums(storage, logs[table.id], table, timeline)
    wrong += _wrong_bases(storage, head)
    differences += _unreadable(storage, timeline, kept_tags(head, clock()))
    return Report(head.version, len(tables), versions, expired, tuple(differences), len(checkpoints), tuple(wrong))


def out_of_reach(table: Table, version: int, needed_by: str = "") -> Difference:
    """Return that nobody may look whether a table of a database version is what it should be."""
    return Difference("out of reach", table.name, table.version, version, table.location, needed_by)


def _replaced(
    storage: Storage, entry: Entry, tables: Mapping[str, Table], logs: Mapping[str, LogFiles]
) -> Iterator[Difference]:
    """Yield each table of which another lies in the folder than that which an entry took in."""
    for ddl in entry.tables:
        if ddl.id in tables and ddl.digest and ddl.version in logs[ddl.id].commits:
            table = tables[ddl.id]
            if _problem(storage, logs[ddl.id], table.location, ddl.version, ddl.digest) is not None:
                path = commit_path(table.location, ddl.version)
                yield Difference("different", table.name, ddl.version, entry.version, path)


def _written_over(storage: Storage, tables: Iterable[Table]) -> Iterator[Difference]:
    """Yield each newest commit of a plain Delta writer that is not the one which was taken in, however long ago."""
    for table in tables:
        path = commit_path(table.location, table.version)
        if table.digest and (data := storage.get(path)) is not None and digest(data) != table.digest:
            yield Difference("different", table.name, table.version, table.since, path)


def _gone(logs: Mapping[str, LogFiles], tables: Iterable[Table], timeline: Timeline) -> Iterator[Difference]:
    """Yield of each table the first commit that its readers need and that its log has not.

    No entry that is kept may tell of it: a table was adopted with it, or what wrote it has expired.
    """
    for table in tables:
        missing = logs[table.id].missing_for(table.version)
        if missing is not None and not logs[table.id].covers(missing):
            number = _ratified_in(timeline, table, missing)
            yield Difference("missing", table.name, missing, number, commit_path(table.location, missing))


def _unreadable(storage: Storage, timeline: Timeline, tags: list[Tag]) -> Iterator[Difference]:
    """Yield each version that tags keep and that nothing tells of any more, once."""
    logs: dict[str, LogFiles] = {}
    seen: set[tuple[str, int]] = set()
    for kept in kept_tables(timeline, tags):
        location, version = kept.table.location, kept.table.version
        if not reaches(storage, location):
            yield out_of_reach(kept.table, kept.tag.version, f"tag {kept.tag.name}")
            continue
        if location not in logs:
            logs[location] = log_files(storage, location)
        missing = logs[location].missing_for(version)
        if missing is None or (location, version) in seen or _is_kept(storage, kept.table):
            continue
        seen.add((location, version))
        yield Difference(
            "unreadable",
            kept.table.name,
            version,
            kept.tag.version,
            commit_path(location, missing),
            needed_by=f"tag {kept.tag.name}",
            prevented_by=KEEPS_LOGS,
        )


def _is_kept(storage: Storage, table: Table) -> bool:
    try:
        return kept_state(storage, table.id, table.version) is not None
    except CorruptTimelineError:  # `verify --deep` says which
        return False


def _beyond(version: int, head: Database) -> WrongCheckpoint:
    why = f"the timeline ends with version {head.version}"
    return WrongCheckpoint(version, manifest_path(version), why)


def _why_wrong(storage: Storage, version: int, state: State) -> str | None:
    """Return why a checkpoint is not what the entries up to its version say; None if it is."""
    try:
        checkpoint = read_state(storage, read_manifest(storage, version))
    except UnusableError as error:
        return str(error)
    return None if checkpoint == state else "it says something else than the entries"


def _wrong_bases(storage: Storage, head: Database) -> Iterator[WrongCheckpoint]:
    """Yield each base that the head says there is, and that cannot be used: nothing else says what it does."""
    for version in (head.expired.first_kept, *head.expired.kept) if head.expired.first_kept else ():
        try:
            read_base(storage, version)
        except UnusableError as error:
            yield WrongCheckpoint(version, base_path(version), str(error))


def _has_expired(log: LogFiles, version: int) -> bool:
    """Tell whether Delta's clean-up took this version: it deletes from the oldest on, behind a checkpoint."""
    return version not in log.commits and log.covers(version) and not any(commit < version for commit in log.commits)


def _wrong_checksums(storage: Storage, log: LogFiles, table: Table, timeline: Timeline) -> Iterator[Difference]:
    """Replay a table's log up to its newest version, and compare each checksum with what the log says there."""
    replay = Replay()
    for version in range(table.version + 1):
        if version not in log.commits:
            return
        replay.take(read_published(storage, table.location, version))
        if version not in log.checksums:
            continue
        checksum = read_checksum(storage, table.location, version)
        if checksum is None or replay.wrong(checksum):
            path = checksum_path(table.location, version)
            yield Difference("checksum", table.name, version, _ratified_in(timeline, table, version), path)


def _ratified_in(timeline: Timeline, table: Table, version: int) -> int:
    """Return the database version that a table version came with; the first that is kept, if that has expired."""
    return next((number for number, last in _written(timeline, table) if last >= version), timeline.head.version)


def _written(timeline: Timeline, table: Table) -> Iterator[tuple[int, int]]:
    """Yield each kept database version that wrote a table, or took it in, and up to which version of its log."""
    for entry in timeline.kept():
        for ddl in entry.tables:
            if ddl.id == table.id and ddl.version is not None:
                yield entry.version, ddl.version
        for write in entry.writes:
            if write.id == table.id:
                yield entry.version, max((write.to_version, *timeline.versions(write, entry.version)))


def _ratified(storage: Storage, write: TableWrite, versions: Sequence[int]) -> Iterator[tuple[int, bytes | str]]:
    """Yield each table version of a write with its file, or the digest of that; an empty one if neither is known.

    So it is of foreign commits but the last, which the timeline notes and does not hold, of a last one that is large,
    and of what `contents` cannot tell.
    """
    if not write.commits:
        for version in range(write.from_version + 1, write.to_version + 1):
            yield version, write.digest if version == write.to_version else ""
        return
    for version, data in zip(versions, contents(storage, write, versions), strict=True):
        yield version, data or ""


def _problem(
    storage: Storage, log: LogFiles, location: str, version: int, known: bytes | str
) -> Literal["unpublished", "missing", "different"] | None:
    if version not in log.commits:
        return "missing" if any(commit > version for commit in log.commits) else "unpublished"
    if not known:
        return None
    data = storage.get(commit_path(location, version))
    is_known = data is not None and (digest(data) if isinstance(known, str) else data) == known
    return None if is_known else "different"
