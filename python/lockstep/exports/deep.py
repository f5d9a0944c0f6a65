"""Whether all is there that readable versions need: their data files, deletion vectors, and what tells of them.

`lockstep verify --deep`. Reads only. The states of tables are read as whoever travels in time reads them, and then each
folder is listed once, whatever the number of versions that have files in it.

    unreadable  neither a table's log nor what is kept for tags tells of a version
    lost        a data file, or the file of a deletion vector, that a version names is gone
    damaged     a copy of a log's file that is kept for tags is gone, or is not what was written
    out of reach  a table, or a file, lies where this process may not look: nothing is said of it
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from msgspec import structs

from lockstep.delta.actions import Action, bodies
from lockstep.delta.log import commit_path, log_files, read_published
from lockstep.errors import CorruptTimelineError, LockstepError, UnavailableError, UnsupportedError
from lockstep.exports.copying import Stores
from lockstep.exports.files import Place, named_in, places_of
from lockstep.lake.exports import read_exports
from lockstep.lake.kept import kept_tags
from lockstep.lake.kept_states import damaged, kept_state, kept_states, snapshot_of, state_path
from lockstep.lake.verify import KEEPS_FILES, KEEPS_LOGS, Difference, out_of_reach
from lockstep.storage import Storage
from lockstep.storage.outside import opener_of, reaches
from lockstep.timeline.clock import Clock, utc_now
from lockstep.timeline.entry import Name, Table
from lockstep.timeline.log import Timeline
from lockstep.timeline.settlements import refusal
from lockstep.workers import Workers

AT_ONCE = 32
"""So many tables' logs are read, and folders listed, at a time."""


SAID = 3
"""So many of those that need a version are named."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A version of a table that somebody may read.

    Attributes:
        table: at that version.
        database_version: one that has it.
        needed_by: tags and exports; empty if it is just not expired.
    """

    table: Table
    database_version: int
    needed_by: str = ""


_Found: TypeAlias = tuple[list[tuple[Wanted, Place]], list[Difference]]
"""The files that versions need, and which of the versions nothing tells of."""


@dataclass
class _Run:
    """The versions of a table that the unbroken run of readable database versions has.

    Attributes:
        first: the oldest.
        steps: up to which version of it which database version goes.
    """

    first: Wanted
    steps: list[tuple[int, int]] = field(default_factory=list)

    def at(self, version: int) -> Wanted:
        """Return one of the versions."""
        database = next((database for last, database in self.steps if last >= version), self.first.database_version)
        return Wanted(structs.replace(self.first.table, version=version), database)


def verify_deep(storage: Storage, timeline: Timeline, *, clock: Clock = utc_now) -> list[Difference]:
    """Return what is gone of all that readable versions need.

    Raises:
        UnavailableError, CorruptTimelineError: as the store and the timeline say.
        UnsupportedError: a log begins with a checkpoint, and pyarrow is not installed.
        LockstepError: files lie in a store that cannot be reached.
    """
    workers = Workers(AT_ONCE, "lockstep-verify")
    found: list[Difference] = []
    needs: dict[Place, dict[tuple[str, str], Wanted]] = {}

    def note(pairs: Iterable[tuple[Wanted, Place]]) -> None:
        for wanted, place in pairs:
            # The newest version that somebody needs it for stands for the older ones.
            needs.setdefault(place, {})[wanted.table.id, wanted.needed_by] = wanted

    kept: dict[str, set[int]] = {}
    states = kept_states(storage).states
    for id_, version in states:
        kept.setdefault(id_, set()).add(version)
    for pairs, problems in workers.map(
        lambda run: _of_run(storage, run, kept.get(run.first.table.id, ())), _runs(timeline)
    ):
        note(pairs)
        found += problems
    for pairs, problems in workers.map(lambda one: _of_one(storage, one), _singles(storage, timeline, clock)):
        note(pairs)
        found += problems
    in_reach = [place for place in needs if reaches(storage, named_in(place, storage.url))]
    for place in needs.keys() - in_reach:
        found += [_difference("out of reach", each, named_in(place, storage.url), "") for each in needs[place].values()]
    for place in Stores(storage, opener_of(storage)).missing(in_reach, workers):
        found += [
            _difference("lost", each, named_in(place, storage.url), KEEPS_FILES) for each in needs[place].values()
        ]
    return [*found, *_damaged_copies(storage, timeline, states)]


def _difference(problem: str, wanted: Wanted, path: str, prevented_by: str) -> Difference:
    return Difference(
        problem=problem,  # type: ignore[arg-type]
        table=wanted.table.name,
        table_version=wanted.table.version,
        database_version=wanted.database_version,
        path=path,
        needed_by=wanted.needed_by,
        prevented_by=prevented_by,
    )


# --- which versions ---------------------------------------------------------------------------------------------------


def _singles(storage: Storage, timeline: Timeline, clock: Clock) -> list[Wanted]:
    """Return the versions that tags and exports name, and those that stay alone for whatever else."""
    head = timeline.head
    by_version: dict[int, list[str]] = {version: [] for version in head.expired.kept}
    for tag in kept_tags(head, clock()):
        by_version.setdefault(tag.version, []).append(f"tag {tag.name}")
    for record in read_exports(storage):
        if not head.expired.has(record.database_version):
            by_version.setdefault(record.database_version, []).append(f"export {record.id}")
    needs: dict[tuple[str, int], tuple[Table, int, list[str]]] = {}
    for version, needed_by in sorted(by_version.items()):
        for table in timeline.at(version).tables.values():
            _, _, who = needs.get((table.id, table.version), (None, 0, []))
            needs[table.id, table.version] = table, version, who + needed_by
    return [
        Wanted(table, version, _said(who))
        for table, version, who in needs.values()
        if refusal(head, table) is None  # a settlement took away what is refused
    ]


def _said(needed_by: list[str]) -> str:
    """Return who needs it: of many that keep the same the first ones, and how many more there are."""
    more = f" and {len(needed_by) - SAID} more" if len(needed_by) > SAID else ""
    return ", ".join(needed_by[:SAID]) + more


def _runs(timeline: Timeline) -> list[_Run]:
    """Return the versions of tables in the unbroken run of readable database versions, but for what was settled."""
    first = timeline.at(timeline.head.expired.first_kept)
    runs = {table.id: _Run(Wanted(table, first.version)) for table in first.tables.values()}
    for run in runs.values():
        run.steps.append((run.first.table.version, first.version))
    for entry in timeline.scan(first.version):
        written = {write.id for write in entry.writes}  # what comes back and is written at once is read as it is then
        for ddl in entry.tables:
            if ddl.action == "create" and ddl.id not in runs and ddl.id not in written and ddl.version is not None:
                table = Table(id=ddl.id, name=ddl.name, location=ddl.location, version=ddl.version, since=entry.version)
                runs[ddl.id] = _Run(Wanted(table, entry.version), [(ddl.version, entry.version)])
        for write in entry.writes:
            last = max((write.to_version, *timeline.versions(write, entry.version)))
            if write.id not in runs:
                table = Table(id=write.id, name=write.name, location=write.location, version=last, since=entry.version)
                runs[write.id] = _Run(Wanted(table, entry.version))
            runs[write.id].steps.append((last, entry.version))
    for id_, right_through in timeline.head.settled.items():
        if id_ not in runs:
            continue
        run = runs.pop(id_)
        if run.first.table.version <= right_through:
            runs[id_] = _Run(run.first, [step for step in run.steps if step[0] <= right_through])
    return [*runs.values()]


# --- what they need ---------------------------------------------------------------------------------------------------


def _of_one(storage: Storage, wanted: Wanted) -> _Found:
    """Return the files that one version needs, or that nothing tells which they are."""
    if not reaches(storage, wanted.table.location):
        return [], [out_of_reach(wanted.table, wanted.database_version, wanted.needed_by)]
    try:
        files = snapshot_of(storage, wanted.table).files.values()
    except (UnavailableError, UnsupportedError):  # nobody can tell here
        raise
    except LockstepError:
        return [], [_untold(wanted, log_files(storage, wanted.table.location).missing_for(wanted.table.version))]
    return [(wanted, place) for file in files for place in _places(file, wanted.table, storage)], []


def _of_run(storage: Storage, run: _Run, kept: Collection[int]) -> _Found:
    """Return the files that a run of versions needs, each with the newest of the versions up to which it came.

    Args:
        kept: which versions of the table are kept for tags, so that they can be read without the table's log.
    """
    table = run.first.table
    if not reaches(storage, table.location):
        return _of_one(storage, run.first)
    last = max((version for version, _ in run.steps), default=table.version)
    log = log_files(storage, table.location)
    end, shown = max(log.commits | log.checkpoints, default=-1), {version for version, _ in run.steps}
    pairs, problems = _of_one(storage, run.first)
    missing = log.missing_for(table.version)
    for version in range(table.version + 1, min(last, end) + 1):  # behind the end `verify` says what is the matter
        wanted, was_told = run.at(version), missing is None
        commit = _commit(storage, wanted) if version in log.commits else None
        if version in log.checkpoints:
            missing = None
        elif was_told and commit is None:
            missing = version
        if missing is not None and version not in kept:
            problems += [_untold(wanted, missing)] if version in shown else []
        elif missing is None and was_told and commit is not None:
            pairs += ((wanted, place) for add in bodies(commit, "add") for place in _places(add, table, storage))
        else:  # a checkpoint, or what is kept, tells of it, and alone of what came before it
            more, untold = _of_one(storage, wanted)
            pairs, problems = [*pairs, *more], [*problems, *untold]
    if last == table.version:
        return pairs, problems
    # Last, for what the newest version has yet is said of that.
    newest, untold = _of_one(storage, run.at(last))
    return [*pairs, *newest], [*problems, *(each for each in untold if each not in problems)]


def _commit(storage: Storage, wanted: Wanted) -> list[Action] | None:
    """Return the commit of a version; None if it cannot be read, and reading it again would not help."""
    try:
        return read_published(storage, wanted.table.location, wanted.table.version)
    except UnavailableError:
        raise
    except LockstepError:
        return None


def _places(file: dict[str, object], table: Table, storage: Storage) -> Iterator[Place]:
    return places_of(file, table.location, storage.url)


def _untold(wanted: Wanted, missing: int | None) -> Difference:
    """Return that nothing tells of a version, with the commit that its log lacks, if it is that."""
    version = wanted.table.version if missing is None else missing
    return _difference("unreadable", wanted, commit_path(wanted.table.location, version), KEEPS_LOGS)


def _damaged_copies(storage: Storage, timeline: Timeline, states: Iterable[tuple[str, int]]) -> Sequence[Difference]:
    """Return the copies of logs' files, kept for tags, that are not what was written."""
    names = {table.id: table.name for table in timeline.head.tables.values()}
    found = []
    for id_, version in sorted(states):
        try:
            state = kept_state(storage, id_, version)
            paths = [] if state is None else [*damaged(storage, state)]
        except CorruptTimelineError:
            paths = [state_path(id_, version)]
        name = names.get(id_, Name(namespace=(), table=id_))
        found += [Difference("damaged", name, version, timeline.head.version, path, needed_by="tags") for path in paths]
    return found
