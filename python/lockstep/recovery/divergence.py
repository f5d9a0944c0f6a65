"""How a table has diverged: what the timeline has of it that its log has not, and the other way round; reads only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Literal

from lockstep.delta.log import LogFiles, commit_path, digest, log_files
from lockstep.delta.publish import contents
from lockstep.errors import ForeignCommitError, InvalidError, ReadOnlyError, UndefinedError
from lockstep.lake.known_commits import KnownCommit, ours_of
from lockstep.lake.lake import Lake
from lockstep.lake.policy import undecided
from lockstep.timeline.entry import NEW, Entry, Name, Table, TableWrite

NOT_DIVERGED = "55000"

COMPARED = 10_000
"""So many of the newest database versions are looked through for what the log has in their place: older ones count as
they are told."""

AT_ONCE = 200
"""So many entries are compared at a time."""


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
        same: versions after `common` that are the same on both sides all the same.
    """

    table: Table
    why: ForeignCommitError
    common: int
    newest: int
    ours: dict[int, bytes] = field(default_factory=dict)
    gone: str = ""
    same: frozenset[int] = frozenset()

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
    # Who uses a table looks at its newest commit alone.
    table = lake.timeline.head.table_by_id(found.id) or found
    older = _divergence(lake, table, _below_the_newest(table.name))
    if older.common < table.version:
        return older
    raise InvalidError(
        f"table {name} has not diverged: its log and the timeline say the same, and there is nothing to settle",
        sqlstate=NOT_DIVERGED,
    )


def _below_the_newest(name: Name) -> ForeignCommitError:
    return ForeignCommitError(
        f"table {name}: its log has other commits than the timeline, below the newest one: a plain Delta writer wrote "
        f"over them. Nothing was changed. {undecided(name)}"
    )


@dataclass(frozen=True, slots=True)
class _Span:
    """Versions of a table that came with one entry, and what the log has of them.

    Attributes:
        first, last: the versions.
        verdict: whether the log has the `same`, something `different`, or nobody can tell: Delta's clean-up has taken
            them (`expired`), or a plain Delta writer's commit has no digest in the timeline (`unknown`).
        differing: those of them that are different.
        is_foreign: whether a plain Delta writer made them, so that only the log has them.
    """

    first: int
    last: int
    verdict: Literal["same", "different", "expired", "unknown"]
    differing: frozenset[int] = frozenset()
    is_foreign: bool = False


def _divergence(lake: Lake, table: Table, why: ForeignCommitError) -> Divergence:
    log = log_files(lake.storage, table.location)
    newest = max(log.commits | log.checkpoints, default=NEW)
    make = partial(Divergence, table, why, newest=newest)
    spans = [span for entries in _batches(lake, table) for span in _compared(lake, table, log, entries)]
    spans += _of_history(lake, table, log, spans)
    if table.digest:  # of a plain Delta writer's commit: the table knows it, whoever else does not any more
        spans.append(_of_foreign(lake, log, table, range(table.version, table.version + 1), table.digest))
    different = [span for span in spans if span.verdict == "different"]
    if not different:
        return make(common=table.version)
    lowest = min(different, key=attrgetter("first"))
    common = _common(lowest, [span for span in spans if span.last < lowest.first])
    differing = frozenset(version for span in different for version in span.differing)
    same = frozenset(range(common + 1, newest + 1)) & frozenset(
        version for span in spans if span.verdict == "same" for version in range(span.first, span.last + 1)
    )
    make = partial(make, common=common, same=same - differing)
    if any(span.is_foreign for span in different):
        return make(gone="what lay in the folder, or was committed there by a plain Delta writer, is nowhere else")
    ours, gone = _ours(lake, table, range(common + 1, table.version + 1))
    return make(ours=ours, gone=gone)


def _common(lowest: _Span, older: list[_Span]) -> int:
    """Return the newest version up to which log and timeline say the same.

    Where what a plain Delta writer made is another commit now, another table may lie in the folder: then only what is
    known to be the same is.
    """
    if not lowest.is_foreign:
        return lowest.first - 1
    return max((span.last for span in older if span.verdict == "same"), default=NEW)


def _batches(lake: Lake, table: Table) -> Iterator[list[Entry]]:
    """Yield the entries that wrote a table, or took it in, and have not expired, newest first, some at a time."""
    first_kept = lake.timeline.head.expired.first_kept
    entries = lake.timeline.newest_first(first_kept - 1, max(table.since, first_kept - 1))
    yield from _about(table, islice(entries, COMPARED))


def _of_history(lake: Lake, table: Table, log: LogFiles, spans: list[_Span]) -> list[_Span]:
    """Compare what came before `_batches`, down to where the log has the same; nothing, if that was found already.

    So of a log that was set back it is known what those of ours that differ were ratified behind, however long ago that
    was. The history has no commits, but says who made each: so ours are told from any other.
    """
    found: list[_Span] = []
    if _tells(sorted(spans, key=attrgetter("first"))[:1]):
        return found
    through = min(max(lake.timeline.head.expired.first_kept - 1, table.since - COMPARED), table.since)
    for entries in _about(table, lake.timeline.past(through=through)):
        found += _compared(lake, table, log, entries)
        if _tells(found) or any(map(partial(_begins, table), entries)):
            break
    return found


def _begins(table: Table, entry: Entry) -> bool:
    """Tell whether an entry made a table, or took it in: nothing before it is of the table."""
    return any(
        ddl.id == table.id and ddl.action == "create" and (ddl.adopted or ddl.version is None) for ddl in entry.tables
    )


def _tells(spans: Iterable[_Span]) -> bool:
    """Tell whether one of some spans is in the log as it was, or was cleaned up, and counts so."""
    return any(span.verdict in ("same", "expired") for span in spans)


def _about(table: Table, entries: Iterator[Entry]) -> Iterator[list[Entry]]:
    """Yield those entries that wrote a table, or took it in, some at a time."""
    about = (
        entry
        for entry in entries
        if any(write.id == table.id for write in entry.writes) or any(ddl.id == table.id for ddl in entry.tables)
    )
    while some := list(islice(about, AT_ONCE)):
        yield some


def _compared(lake: Lake, table: Table, log: LogFiles, entries: list[Entry]) -> list[_Span]:
    """Compare what entries say of a table with its log."""

    def compared(entry: Entry) -> list[_Span]:
        spans = []
        for write in (write for write in entry.writes if write.id == table.id):
            if entry.kind != "external":
                spans.append(_of_ours(lake, log, entry, write))
            else:
                versions = range(write.from_version + 1, write.to_version + 1)
                spans.append(_of_foreign(lake, log, table, versions, write.digest))
        spans += [
            _of_foreign(lake, log, table, range(ddl.version + 1), ddl.digest)
            for ddl in entry.tables
            if ddl.id == table.id and ddl.version is not None and (ddl.adopted or ddl.digest)
        ]
        return spans

    return [span for spans in lake.side_by_side(compared, entries) for span in spans]


def _of_ours(lake: Lake, log: LogFiles, entry: Entry, write: TableWrite) -> _Span:
    differing, expired = set(), 0
    commits, files = _ours_of(lake, entry, write)
    versions = [commit.version for commit in commits]
    for commit, file in zip(commits, files, strict=True):
        there = lake.storage.get(commit_path(write.location, commit.version)) if commit.version in log.commits else None
        if there is None and log.covers(commit.version):
            expired += 1
        elif there is None or not (there == file if file is not None else commit.is_in(there)):
            differing.add(commit.version)
    verdict: Literal["same", "different", "expired"] = "expired" if expired == len(versions) else "same"
    return _Span(versions[0], versions[-1], "different" if differing else verdict, frozenset(differing))


def _ours_of(lake: Lake, entry: Entry, write: TableWrite) -> tuple[list[KnownCommit], list[bytes | None]]:
    """Return the commits of a write, and the file of each; None for one that is only known from others."""
    commits = ours_of(entry, write, lake.timeline.placements)
    if not write.commits:  # as the history has it
        return commits, [None] * len(commits)
    return commits, contents(lake.storage, write, [commit.version for commit in commits])


def _of_foreign(lake: Lake, log: LogFiles, table: Table, versions: range, known: str) -> _Span:
    """Compare the last of a plain Delta writer's commits, of which alone there may be a digest."""
    first, last = versions[0], versions[-1]
    there = lake.storage.get(commit_path(table.location, last)) if last in log.commits else None
    verdict: Literal["same", "different", "expired", "unknown"] = "unknown"
    if there is None:
        verdict = "expired" if log.covers(last) else "different"
    elif known:
        verdict = "same" if digest(there) == known else "different"
    differing = frozenset(versions) if verdict == "different" else frozenset()
    return _Span(first, last, verdict, differing, is_foreign=True)


def _ours(lake: Lake, table: Table, wanted: range) -> tuple[dict[int, bytes], str]:
    """Return what the timeline has of some versions of a table, and why not of all."""
    ours: dict[int, bytes] = {}
    for entries in _batches(lake, table):
        for entry in entries:
            for write in (write for write in entry.writes if write.id == table.id and write.commits):
                for commit, file in zip(*_ours_of(lake, entry, write), strict=True):
                    if commit.version in wanted and (data := file or _there(lake, table, commit)) is not None:
                        ours[commit.version] = data
            for write in (write for write in entry.writes if write.id == table.id and write.digest):
                data = lake.storage.get(commit_path(table.location, write.to_version))
                if write.to_version == write.from_version + 1 and data is not None and digest(data) == write.digest:
                    ours[write.to_version] = data
        if all(version in ours for version in wanted):
            break
    ours = {version: ours[version] for version in sorted(ours) if version in wanted}
    if missing := [version for version in wanted if version not in ours]:
        what = "which was too large for its entry, is too old or has expired, or is another writer's"
        return ours, f"version {missing[0]}, {what}, is nowhere else"
    return ours, ""


def _there(lake: Lake, table: Table, commit: KnownCommit) -> bytes | None:
    """Return what a log has of a version, if that is a ratified commit."""
    data = lake.storage.get(commit_path(table.location, commit.version))
    return data if data is not None and commit.is_in(data) else None
