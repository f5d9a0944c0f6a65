"""Deletion: what a plan dooms is marked, and after the grace period it goes, unless something has come to need it.

It goes in batches, each of which is written down before any of it goes (`lockstep.lake.deletions`). A run may be
killed, or stopped for as long as you like, at any request: what it marked stays marked, what it deleted was needed by
nobody, and what it wrote down the next run takes over. That looks who has come to need any of it since, deletes the
rest, and only then forgets it. So whoever was stopped finds nothing left to delete when he goes on, for names of files
are not used again; and he looks before each step whether what he wrote down is still there, for a plain Delta writer
may bring a file back. Two at once delete the same twice, which does no harm.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from msgspec import structs

from lockstep.commit.files import PROBES
from lockstep.commit.killing import Asker, end_all
from lockstep.commit.records import keep_ended, open_transactions, remove_ended
from lockstep.delta.log import LOG, commit_path
from lockstep.errors import LockstepError, ReadOnlyError, UnavailableError
from lockstep.lake import deletions
from lockstep.lake.claims import claim_path
from lockstep.lake.deletions import FORMAT, Begun
from lockstep.lake.guests import guests
from lockstep.lake.lake import Lake
from lockstep.retention import queue
from lockstep.retention.clocks import check_clock
from lockstep.retention.files import Doomed
from lockstep.retention.pins import CLOCKS
from lockstep.retention.planning import Plan
from lockstep.retention.removing import Remover
from lockstep.retention.since import Named, Since
from lockstep.retry import RACE
from lockstep.timeline.database import Database
from lockstep.workers import Progress, silent

BATCH = 100_000
"""So many paths are written down at a time: whoever might bring one back reads them all."""

LONGEST = timedelta(hours=12)
"""No run deletes for longer than this: the next one goes on."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Deleted:
    """What became of what may go.

    Attributes:
        doomed: all of it.
        gone: what was deleted; in a dry run, what would be.
        waiting: what is marked, and stays for its grace period, or because the run's time was over.
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
        InvalidError: this host's clock is not the store's; likewise.
        UnavailableError: the store failed; a later run goes on.
        CorruptTimelineError: as the timeline says.
    """
    if lake.refusal and not dry_run:
        raise ReadOnlyError(lake.refusal)
    if not dry_run:
        check_clock(lake)
    now = lake.clock()
    marks = queue.read_queue(lake.storage)
    due, unmarked = queue.split(plan.doomed, marks.since, now, grace)
    due_paths = {each.path for each in due}
    waiting = [each for each in plan.doomed if each.path not in due_paths]
    if dry_run:
        return Deleted(plan.doomed, due, waiting)
    id_ = lake.new_id()
    if plan.is_everything:
        queue.forget(lake.storage, marks, {each.path for each in plan.doomed})
    queue.mark(lake.storage, unmarked, now, id_)
    end_by = now + LONGEST
    _take_over(lake, Remover(lake, end_by), id_)
    gone: list[Doomed] = []
    spared: list[Doomed] = []
    if due:
        alive = _end_dead(lake, plan)
        due = [each for each in due if each.kind != "staging" or each.path.rpartition("/")[2] not in alive]
        gone, spared = _delete(lake, plan, due, id_, Remover(lake, end_by, progress, len(due)))
        done = {each.path for each in (*gone, *spared)}
        waiting += [each for each in due if each.path not in done]  # its time was over, and the next run goes on
    over = queue.over(
        marks,
        {each.path for each in waiting},
        {each.path for each in gone},
        now,
        grace,
        is_everything=plan.is_everything,
    )
    lake.storage.delete_all(iter(over))
    remove_ended(lake)
    return Deleted(plan.doomed, gone, waiting, spared)


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


def _delete(
    lake: Lake, plan: Plan, due: Sequence[Doomed], id_: str, remover: Remover
) -> tuple[list[Doomed], list[Doomed]]:
    """Delete batch after batch, and return what went, and what was spared; what is neither there was no time for."""
    since = Since(lake, plan.head, plan.head_id)
    gone: list[Doomed] = []
    spared: list[Doomed] = []
    for number, batch in enumerate(_batches(due)):
        if remover.is_late:
            break
        begun = Begun.of(f"{id_}-{number}", plan.head, lake.clock(), _paths(batch), plan.head_id)
        begun, needed = _begin(lake, plan, since, begun, batch)
        spared += needed
        remover.total -= len(needed)
        remover.remove(begun.files, begun.folders, deletions.path_of(begun.id))
        gone += [each for each in batch if each.path in remover.gone]
        deletions.end(lake.storage, begun.id)  # be it that time is over: nothing more of it goes
    return gone, spared


def _begin(lake: Lake, plan: Plan, since: Since, begun: Begun, batch: Sequence[Doomed]) -> tuple[Begun, list[Doomed]]:
    """Write down what is about to go, and return what of it nobody has come to need meanwhile, and the rest of it."""
    deletions.begin(lake.storage, begun)
    try:
        lake.fence()
        # Plain Delta writers ask nobody: the later one looks what they have committed, the less of it is not seen.
        database = lake.newest()
        is_unknown = _goes_on_unseen(lake, database, plan)
        named = since.read_on()
        named.is_unknown |= is_unknown
        named.add_locations(_released(lake, database))
        named.add_locations(_claimed(lake, begun.folders))
        spared = [each for each in batch if named.spares(each.path, is_folder=each.is_folder)]
        if not spared:
            return begun, []
        rest = _without(begun, named)
        deletions.narrow(lake.storage, begun, rest)
    except LockstepError:
        for id_ in (begun.id, _rest(begun)):
            with suppress(UnavailableError):
                deletions.end(lake.storage, id_)  # nothing of it has gone, and nothing will
        raise
    return rest, spared


def _released(lake: Lake, database: Database) -> frozenset[str]:
    """Return the folders that are not the lake's and have none of its tables: one may have been released since.

    In those that have one a plan dooms nothing but what this lake's own dead transactions staged.
    """
    return frozenset(each for each in guests(lake.storage) if database.table_at(each) is None)


def _claimed(lake: Lake, folders: Iterable[str]) -> list[str]:
    """Return those of the folders of tables that no version has which another lake says to be its own by now."""
    tables = [each for each in folders if f"/{LOG}/" not in each]
    there = lake.side_by_side(lambda each: lake.storage.exists(claim_path(each)), tables)
    return [each for each, is_there in zip(tables, there, strict=True) if is_there]


def _goes_on_unseen(lake: Lake, database: Database, plan: Plan) -> bool:
    """Tell whether some table may have come to need files since the plan of which the timeline cannot tell.

    A table that is set aside takes nothing in; it may be a clone, too. What its log said by then, the plan knows.
    """
    for id_ in database.set_aside:
        if (table := database.table_by_id(id_)) is None:
            continue
        last = plan.set_aside.get(id_)
        if last is None or lake.storage.exists(commit_path(table.location, last + 1)):
            _log.warning("no data is deleted: what has been written into %s since cannot be told", table.name)
            return True
    return False


def _without(begun: Begun, named: Named) -> Begun:
    """Return what begins to go without what is needed, with an id of its own."""
    files = [path for path in begun.files if not named.spares(path, is_folder=False)]
    folders = [path for path in begun.folders if not named.spares(path, is_folder=True)]
    return structs.replace(begun, id=_rest(begun), files=tuple(files), folders=tuple(folders))


def _rest(begun: Begun) -> str:
    return f"{begun.id}-rest"


def _batches(due: Sequence[Doomed]) -> Iterator[Sequence[Doomed]]:
    """Yield what is due in the order in which it may go: data, then logs, from their oldest files on, then folders."""
    order = {"data": 0, "litter": 0, "log": 1, "staging": 2, "folder": 2}
    in_order = sorted(due, key=lambda each: order[each.kind])
    for place in range(0, len(in_order), BATCH):
        yield in_order[place : place + BATCH]


def _paths(batch: Sequence[Doomed]) -> tuple[list[str], list[str]]:
    return [each.path for each in batch if not each.is_folder], [each.path for each in batch if each.is_folder]


def _take_over(lake: Lake, remover: Remover, run: str) -> None:
    """Finish what other runs began, whether they were killed, are stopped, or go on beside this one.

    What is taken over is written down by this run, too, before it raises its fence: another run that goes on removes
    what itself wrote down when it has come to its end, though this one still deletes. One that cannot be finished keeps
    nobody from the others. What was planned by one database version becomes one: runs that are killed as they take
    over leave as many as they are, and not twice as many each.

    Raises:
        UnavailableError, CorruptTimelineError: as the store and the timeline say.
    """
    found = _together(deletions.begun(lake.storage), run)
    if not found:
        return
    try:
        for _, own in found:
            deletions.begin(lake.storage, own)
        lake.fence()
        is_unknown = bool(lake.newest().set_aside)  # what their logs had when that was planned, nobody knows
        theirs = guests(lake.storage)  # what was released since is among these, and somebody else's
    except LockstepError:
        for _, own in found:
            with suppress(UnavailableError):
                deletions.end(lake.storage, own.id)  # nothing has gone by this; what the others wrote down stays
        raise
    for begun, own in found:
        try:
            _finish(lake, begun, own, remover, theirs, is_unknown=is_unknown)
        except LockstepError as error:
            _log.warning(
                "what %s says cannot be deleted, and a later run tries again: %s", deletions.path_of(own.id), error
            )


def _together(begun: Iterable[Begun], run: str) -> list[tuple[list[Begun], Begun]]:
    """Return what other runs began, by the database version that it was planned by, and all of each as a run's own."""
    by_head: dict[tuple[int, str], list[Begun]] = {}
    for each in sorted(begun, key=lambda each: -len(each.files)):  # what is left of one is in the order that it was in
        by_head.setdefault((each.head, each.head_id), []).append(each)
    return [
        (
            some,
            structs.replace(
                some[0],
                format=FORMAT,
                id=f"{run}-over-{number}",
                files=tuple(dict.fromkeys(path for each in some for path in each.files)),
                folders=tuple(dict.fromkeys(path for each in some for path in each.folders)),
            ),
        )
        for number, some in enumerate(by_head.values())
    ]


def _finish(
    lake: Lake, begun: Sequence[Begun], own: Begun, remover: Remover, theirs: Iterable[str], *, is_unknown: bool
) -> None:
    """Delete the rest of what other runs began by one database version, behind a fence.

    Args:
        own: the same, as this run has written it down.
        theirs: folders that are not the lake's.
        is_unknown: whether some table may need files of which the timeline cannot tell.
    """
    named = Since(lake, own.head, own.head_id).read_on()
    named.add_locations(theirs)
    named.add_locations(_claimed(lake, own.folders))
    named.add_locations(_written(lake, own.folders, min(each.began_at for each in begun) - CLOCKS))
    if named.is_unknown or is_unknown:
        deletions.end(lake.storage, own.id)  # nothing of it has gone by this
        for each in begun:
            if _is_gone(lake, each):
                deletions.end(lake.storage, each.id)
                continue
            _log.warning(
                "%s says what a run of upkeep has begun to delete, and nobody can tell what of that has come to be "
                "needed: it stays until all of that is gone, and until then none of it can be brought back. If no "
                "upkeep is running, you may delete that file",
                deletions.path_of(each.id),
            )
        return
    rest = _without(own, named)
    deletions.narrow(lake.storage, own, rest)
    for each in begun:
        deletions.end(lake.storage, each.id)  # what is left of it, this run's own says
    if remover.remove(rest.files, rest.folders, deletions.path_of(rest.id)):
        deletions.end(lake.storage, rest.id)


def _written(lake: Lake, folders: Iterable[str], since: datetime) -> list[str]:
    """Return those of the folders of tables that no version has into which somebody has written since a time.

    All in them was older when that was planned: else they stay until it is.
    """

    def is_written(folder: str) -> bool:
        return any(each.modified_at > since for each in lake.storage.walk(folder))

    tables = [each for each in folders if f"/{LOG}/" not in each]
    return [each for each, found in zip(tables, lake.side_by_side(is_written, tables), strict=True) if found]


def _is_gone(lake: Lake, begun: Begun) -> bool:
    """Tell whether nothing is left of what some run began to delete."""
    for place in range(0, len(begun.files), PROBES):
        if any(lake.side_by_side(lake.storage.exists, begun.files[place : place + PROBES])):
            return False
    return not any(next(lake.storage.walk(folder), None) for folder in begun.folders)


def totals(doomed: Iterable[Doomed]) -> tuple[int, int]:
    """Return how many files these are, and how many bytes."""
    each = [(one.files, one.size) for one in doomed]
    return sum(files for files, _ in each), sum(size for _, size in each)
