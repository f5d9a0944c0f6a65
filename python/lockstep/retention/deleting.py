"""Deletion: what a plan dooms is marked, and after the grace period it goes, unless something has come to need it.

A run may be killed at any request: what it marked stays marked, what it deleted was needed by nobody, and the next run
goes on. Two at once delete the same twice, which does no harm. See `lockstep.lake.deletions` for commits beside it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from lockstep.commit.killing import Asker, end_all
from lockstep.commit.records import keep_ended, open_transactions
from lockstep.delta.actions import Action, parse
from lockstep.delta.log import LOG, read_published
from lockstep.delta.publish import contents
from lockstep.errors import LockstepError, ReadOnlyError
from lockstep.lake import deletions
from lockstep.lake.deletions import Begun
from lockstep.lake.kept_states import kept_state, state_path
from lockstep.lake.lake import Lake
from lockstep.retention import queue
from lockstep.retention.files import Doomed
from lockstep.retention.planning import Plan
from lockstep.retention.survey import named_by
from lockstep.retry import RACE
from lockstep.timeline.entry import Entry
from lockstep.workers import Progress, silent

CHUNK = 1_000
"""So many files are deleted in one go, with what a store can do at once."""

SIDE_BY_SIDE = 32
"""So many chunks are deleted side by side."""

LONGEST = timedelta(hours=12)
"""No run deletes for longer than this: the next one goes on."""

STALE = 2 * LONGEST
"""What a run began so long ago is nobody's any more."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Deleted:
    """What became of what may go.

    Attributes:
        doomed: all of it.
        gone: what was deleted; in a dry run, what would be.
        waiting: what is marked, and stays for its grace period.
        spared: what was marked long enough, and something has come to need it.
    """

    doomed: Sequence[Doomed]
    gone: Sequence[Doomed] = field(default_factory=list)
    waiting: Sequence[Doomed] = field(default_factory=list)
    spared: Sequence[Doomed] = field(default_factory=list)


def carry_out(
    lake: Lake, plan: Plan, *, grace: timedelta, dry_run: bool = False, progress: Progress = silent
) -> Deleted:
    """Delete what a plan dooms and was marked long enough, and mark the rest.

    Raises:
        ReadOnlyError: this process may only read the lake; nothing was marked, and nothing begun.
        UnavailableError: the store failed; a later run goes on.
        CorruptTimelineError: as the timeline says.
    """
    if lake.refusal and not dry_run:
        raise ReadOnlyError(lake.refusal)
    now = lake.clock()
    marks = queue.read_queue(lake.storage)
    due, unmarked = queue.split(plan.doomed, marks.since, now, grace)
    due_paths = {each.path for each in due}
    waiting = [each for each in plan.doomed if each.path not in due_paths]
    if dry_run:
        return Deleted(plan.doomed, due, waiting)
    id_ = lake.new_id()
    queue.mark(lake.storage, unmarked, now, id_)
    _forget_stale(lake, now)
    spared: list[Doomed] = []
    if due:
        alive = _end_dead(lake, plan)
        due = [each for each in due if each.kind != "staging" or each.path.rpartition("/")[2] not in alive]
        due, spared = _begin(lake, plan, due, id_, now)
        _delete(lake, due, now, progress)
        deletions.end(lake.storage, id_)
    over = queue.over(
        marks,
        {each.path for each in waiting},
        {each.path for each in due},
        now,
        grace,
        is_everything=plan.is_everything,
    )
    lake.storage.delete_all(iter(over))
    return Deleted(plan.doomed, due, waiting, spared)


def _end_dead(lake: Lake, plan: Plan) -> frozenset[str]:
    """See that transactions that look dead can never commit, before anything that they staged goes.

    Returns:
        Those that have committed after all: what they staged may be all that says what they did.
    """
    why = "it has not been seen for long, and what it staged is removed"
    known = [record for record in open_transactions(lake) if record.transaction in plan.dead] if plan.dead else []
    asker = Asker(lake.new_id(), "", why, "remove orphan files")
    ended = end_all(lake, plan.dead, plan.head, asker, backoff=RACE)
    for record in known:
        if record.transaction in ended[record.transaction].aborts:
            keep_ended(lake, record, why)
    return frozenset(id_ for id_, entry in ended.items() if id_ not in entry.aborts)


def _begin(lake: Lake, plan: Plan, due: list[Doomed], id_: str, now: datetime) -> tuple[list[Doomed], list[Doomed]]:
    """Write down what is about to go, and return what of it nobody has come to need meanwhile, and the rest."""
    begun = Begun(
        format=deletions.FORMAT,
        id=id_,
        began_at=now,
        files=tuple(each.path for each in due if not each.is_folder),
        folders=tuple(each.path for each in due if each.is_folder),
    )
    deletions.begin(lake.storage, begun)
    lake.fence()
    named, locations = named_since(lake, plan.head)

    def is_needed(doomed: Doomed) -> bool:
        inside = f"{doomed.path}/"
        if doomed.is_folder and any(f"{path}/".startswith(inside) for path in (*named, *locations)):
            return True
        return doomed.path in named or any(inside.startswith(f"{location}/") for location in locations)

    spared = [each for each in due if is_needed(each)]
    return [each for each in due if not is_needed(each)], spared


def named_since(lake: Lake, version: int) -> tuple[frozenset[str], frozenset[str]]:
    """Return the files that entries after a version bring into tables, and the locations of which nobody can tell.

    Those are also the ones of tables that came back, or were made: one without files has a folder, too.

    Raises:
        UnavailableError, CorruptTimelineError: the store failed; the timeline cannot be read.
    """
    named: set[str] = set()
    locations: set[str] = set()
    for entry in lake.timeline.entries(version):
        named.update(_kept_by(lake, entry))
        locations |= {ddl.location for ddl in entry.tables if ddl.action == "create"}
        for location, commits in _commits(lake, entry):
            if commits is None:
                locations.add(location)
            else:
                named |= named_by(iter(commits), location, lake.storage.url)
    return frozenset(named), frozenset(locations)


def _kept_by(lake: Lake, entry: Entry) -> Iterator[str]:
    """Yield what is kept for the tags that an entry makes: what says so, and what lies in the folder of its copies."""
    for ddl in entry.tags:
        if ddl.action != "create":
            continue
        for table in lake.timeline.at(entry.version if ddl.version is None else ddl.version).tables.values():
            if (state := kept_state(lake.storage, table.id, table.version)) is not None:
                yield state_path(table.id, table.version)
                yield f"{state.folder}/{LOG}"


def _commits(lake: Lake, entry: Entry) -> Iterator[tuple[str, list[list[Action]] | None]]:
    """Yield what an entry wrote, by location; None where nobody can tell any more."""
    for write in entry.writes:
        try:
            if write.commits:
                files = contents(lake.storage, write, lake.timeline.versions(write, entry.version))
                commits = None if None in files else [parse(data) for data in files if data is not None]
            else:
                versions = range(write.from_version + 1, write.to_version + 1)
                commits = [read_published(lake.storage, write.location, version) for version in versions]
        except LockstepError as error:
            _log.warning("nothing of %s is deleted: %s", write.location, error)
            commits = None
        yield write.location, commits


def _delete(lake: Lake, due: Sequence[Doomed], now: datetime, progress: Progress) -> None:
    """Delete files side by side; those of a log one after the other, oldest first: what is left has no gap."""
    done, end_by = 0, now + LONGEST

    def in_steps(work: Callable[[Sequence[str]], None], groups: Sequence[Sequence[str]]) -> None:
        nonlocal done
        for place in range(0, len(groups), SIDE_BY_SIDE):
            if lake.clock() > end_by:
                return
            some = groups[place : place + SIDE_BY_SIDE]
            lake.side_by_side(work, some)
            done += sum(map(len, some))
            progress(done, len(due))

    files = [each.path for each in due if each.kind in ("data", "litter")]
    in_steps(lake.storage.delete_all, [*_chunks(files)])
    logs: dict[str, list[str]] = {}
    for each in due:
        if each.kind == "log":
            logs.setdefault(each.path.rpartition("/")[0], []).append(each.path)
    in_steps(partial(_one_by_one, lake), [*logs.values()])
    folders = [[each.path] for each in due if each.is_folder]
    in_steps(lambda paths: lake.storage.delete_folder(paths[0]), folders)


def _one_by_one(lake: Lake, paths: Sequence[str]) -> None:
    for path in paths:
        lake.storage.delete(path)


def _chunks(paths: Sequence[str]) -> Iterator[Sequence[str]]:
    size = max(1, min(CHUNK, len(paths) // SIDE_BY_SIDE))
    for place in range(0, len(paths), size):
        yield paths[place : place + size]


def _forget_stale(lake: Lake, now: datetime) -> None:
    """Remove what runs began that were killed long ago."""
    for begun in deletions.begun(lake.storage):
        if now - begun.began_at > STALE:
            deletions.end(lake.storage, begun.id)


def totals(doomed: Iterable[Doomed]) -> tuple[int, int]:
    """Return how many files these are, and how many bytes."""
    each = [(one.files, one.size) for one in doomed]
    return sum(files for files, _ in each), sum(size for _, size in each)
