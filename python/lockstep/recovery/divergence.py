"""How a table has diverged: what the timeline has of it that its log has not, and the other way round; reads only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial

from lockstep.delta.actions import parse
from lockstep.delta.combine.going_back import why_not
from lockstep.delta.counts import total
from lockstep.delta.log import LOG, commit_path, digest, log_files
from lockstep.delta.publish import contents
from lockstep.delta.snapshot import Snapshot, read_snapshot
from lockstep.errors import ForeignCommitError, InvalidError, LockstepError, ReadOnlyError, UndefinedError
from lockstep.lake.lake import Lake
from lockstep.lake.overwritten import says
from lockstep.timeline.entry import NEW, Counts, Name, Table, TableWrite

NOT_DIVERGED = "55000"
UNKNOWN = Counts(files_added=-1, files_removed=-1, rows_added=-1, rows_removed=-1)


@dataclass(frozen=True, slots=True)
class Divergence:
    """A table whose log and timeline say different things.

    Attributes:
        table: as the timeline has it.
        why: what whoever uses the table is told.
        common: the newest version up to which they say the same; -1 if there is none.
        newest: the newest version of the log.
        ours: by version, the commits of the timeline that the log has not.
        gone: why nobody has some of these any more; empty if they are there.
    """

    table: Table
    why: ForeignCommitError
    common: int
    newest: int
    ours: dict[int, bytes] = field(default_factory=dict)
    gone: str = ""

    @property
    def is_ahead(self) -> bool:
        """Whether the log merely goes on after what the timeline has: nothing of ours is missing."""
        return not self.ours and not self.gone


def divergence(lake: Lake, name: Name) -> Divergence:
    """Return how a table has diverged.

    Raises:
        UndefinedError: there is no such table.
        InvalidError (55000): it has not diverged, so there is nothing to settle.
        ReadOnlyError: this process may only read the lake, and does not look what others wrote.
        UnavailableError, CorruptTimelineError: the store failed; or the table cannot be used for another reason, which
            is told.
    """
    if lake.refusal:
        raise ReadOnlyError(f"whether table {name} has diverged is found by who may write the lake. {lake.refusal}")
    if (found := lake.refresh().tables.get(name)) is None:
        raise UndefinedError(f"no table {name}: `lockstep tables` lists those that there are")
    try:
        lake.caught_up(lambda database: [t for t in (database.table_by_id(found.id),) if t is not None], for_write=True)
    except ForeignCommitError as error:
        return _divergence(lake, lake.timeline.head.table_by_id(found.id) or found, error)
    raise InvalidError(
        f"table {name} has not diverged: its log and the timeline say the same, and there is nothing to settle",
        sqlstate=NOT_DIVERGED,
    )


def _divergence(lake: Lake, table: Table, why: ForeignCommitError) -> Divergence:
    log = log_files(lake.storage, table.location)
    newest = max(log.commits | log.checkpoints, default=NEW)
    make = partial(Divergence, table, why, newest=newest)
    if table.digest and _digest_there(lake, table) not in (table.digest, None):
        return make(
            common=NEW, gone="what lay in the folder, or was committed there by a plain Delta writer, is nowhere else"
        )
    ours: dict[int, bytes] = {}
    common = table.version
    for write in _newest_writes(lake, table):
        versions = lake.timeline.versions(*write)
        if not write[0].commits:
            break  # a plain writer's, which is in the log
        files = contents(lake.storage, write[0], versions)
        there = [lake.storage.get(commit_path(table.location, version)) for version in versions]
        commits = write[0].commits
        same = [
            found is not None and (found == file if file is not None else says(commit, found))
            for commit, file, found in zip(commits, files, there, strict=True)
        ]
        if all(same):
            break
        common = versions[0] - 1
        for version, file, found, is_same in zip(versions, files, there, same, strict=True):
            if (data := found if is_same else file) is None:
                gone = f"version {version}, which was too large for its entry, is nowhere else"
                return make(common=common, ours=ours, gone=gone)
            ours[version] = data
    return make(common=common, ours=dict(sorted(ours.items())))


def _newest_writes(lake: Lake, table: Table) -> Iterator[tuple[TableWrite, int]]:
    """Yield the writes of a table that have not expired, each with its database version, newest first."""
    for entry in lake.timeline.newest_first(lake.timeline.head.expired.first_kept - 1):
        for write in entry.writes:
            if write.id == table.id:
                yield write, entry.version


def _digest_there(lake: Lake, table: Table) -> str | None:
    data = lake.storage.get(commit_path(table.location, table.version))
    return None if data is None else digest(data)


def check_checkpoint(lake: Lake, found: Divergence) -> None:
    """See that the log's newest checkpoint says what its commits say: it may have been made of what was written over.

    Raises:
        InvalidError: it does not, or nobody can tell; so readers see one or the other, as they come to the table.
        LockstepError: the log cannot be read.
    """
    log = log_files(lake.storage, found.table.location)
    if found.is_ahead or log.newest_checkpoint <= found.common:
        return
    version = log.newest_checkpoint
    before = replace(log, checkpoints=frozenset(each for each in log.checkpoints if each <= found.common))
    path = f"{found.table.location}/{LOG}/{version:020d}.checkpoint…"
    if before.missing_for(version) is not None:
        if found.gone:
            return  # a log of its own, which its own writer has cleaned up
        raise InvalidError(
            f"table {found.table.name} cannot be settled: commits before the checkpoint {path} are gone, so nobody can "
            "tell whether it was made of ours or of theirs. It takes a person's hand"
        )
    by_commits = read_snapshot(lake.storage, found.table.location, version, log=before)
    by_checkpoint = read_snapshot(lake.storage, found.table.location, version)
    if by_commits.files.keys() != by_checkpoint.files.keys():
        raise InvalidError(
            f"table {found.table.name} cannot be settled: the checkpoint {path} says something else than the commits "
            "of the log, for it was made of a commit that was written over. Put it aside, with its parts and "
            "_last_checkpoint, and settle the table then"
        )


# --- what readers lose ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Choice:
    """What it means to keep one side.

    Attributes:
        keep: "ours" or "theirs".
        lost_versions: those versions of the log, or of the timeline, whose commits readers see no more.
        counts: what these did; -1 is not known.
        refused: why it cannot be kept; None if it can.
    """

    keep: str
    lost_versions: tuple[int, ...]
    counts: Counts
    refused: str | None = None


def choices(lake: Lake, found: Divergence) -> list[Choice]:
    """Return what each choice takes from readers; no data file is deleted by either.

    Raises:
        UnavailableError: the store failed.
    """
    theirs = tuple(range(found.common + 1, found.newest + 1))
    read = lake.storage.get
    files = [read(commit_path(found.table.location, version)) for version in theirs]
    try:
        wanted_and_there(lake, found)
        refused = None
    except LockstepError as error:
        refused = error.message
    return [
        Choice("ours", theirs, _counts(files), refused),
        Choice("theirs", tuple(found.ours), UNKNOWN if found.gone else _counts([*found.ours.values()])),
    ]


def _counts(files: list[bytes | None]) -> Counts:
    known = [data for data in files if data is not None]
    try:
        return total([parse(data) for data in known]) if len(known) == len(files) else UNKNOWN
    except LockstepError:
        return UNKNOWN


def wanted_and_there(lake: Lake, found: Divergence) -> tuple[Snapshot, Snapshot]:
    """Return the table as the timeline has it, and as its log has it.

    Raises:
        InvalidError: no commit makes it what the timeline has, or nobody knows what that is.
        LockstepError: the log cannot be read.
    """
    name = found.table.name
    if found.gone:
        raise InvalidError(f"table {name}: ours cannot be kept, for {found.gone}. Put it back, if there is a backup")
    try:
        wanted = _snapshot(lake, found, found.common)
    except LockstepError as error:
        raise InvalidError(
            f"table {name}: ours cannot be kept, for the log cannot be read up to version {found.common}, behind which "
            f"the two differ: {error.message}"
        ) from error
    for data in found.ours.values():
        wanted.take(parse(data))
    there = _snapshot(lake, found, found.newest)
    if (reason := why_not(wanted, there)) is not None:
        raise InvalidError(f"table {name}: ours cannot be kept behind theirs, for {reason}. It takes a person's hand")
    return wanted, there


def _snapshot(lake: Lake, found: Divergence, version: int) -> Snapshot:
    return Snapshot() if version == NEW else read_snapshot(lake.storage, found.table.location, version)
