"""What must be so of a lake that is looked after, beside what `tests.sim.check` says of every one.

expired     no version expired that its age, the number of the newest ones, the grace period, a tag, or an open
            transaction with a record kept
tagged      what a tag keeps can be read
released    a table that was given back has all of its files
finished    upkeep that was killed anywhere is completed by later runs: nothing is written down as being deleted
left        after these runs nothing is left in a table's folder that no version needs
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import timedelta

from lockstep.delta.combine.deletion_vectors import file_path
from lockstep.lake.deletions import FOLDER, PREFIX
from lockstep.retention.upkeep import Maintained
from lockstep.timeline.database import Database
from lockstep.timeline.entry import Entry
from lockstep.timeline.files import FOLDER as TIMELINE
from lockstep.timeline.files import version_in
from lockstep.timeline.log import Timeline
from tests.sim.archive import entries_of
from tests.sim.journal import Attempt, Model
from tests.sim.logs import Logs
from tests.sim.store import URL, Disk
from tests.sim.world import CLOCKS_SECONDS, World

CLOCKS = timedelta(seconds=CLOCKS_SECONDS)


def expired_too_early(
    world: World, entries: Sequence[Entry], databases: Sequence[Database], landed: Sequence[float]
) -> Iterator[str]:
    """Yield which versions expired that somebody had asked to keep.

    Args:
        landed: when each entry came to be there.
    """
    kept = world.plan.retention
    for entry in (each for each in entries if each.kind == "expiry"):
        before, after = databases[entry.version - 1], databases[entry.version]
        gone = [v for v in range(entry.version) if after.expired.has(v) and not before.expired.has(v)]
        tagged = {tag.version for tag in before.tags.values() if tag.is_kept(entry.committed_at + CLOCKS)}
        at = landed[entry.version]
        began = min((run.began for run in world.journal.runs if run.began <= at <= run.ended), default=0.0)
        kept_open = (each for each in world.journal.attempts.values() if _was_kept(each, began, at))
        open_ones = {each.pinned(at): each.id for each in kept_open}
        for version in gone:
            what = f"expired: entry {entry.version} expires {version}, "
            until = entries[version + 1].committed_at
            if until > entry.committed_at - max(kept.age, kept.grace) + CLOCKS:
                yield f"{what}which was the newest until {until}"
            if version > entry.version - 1 - kept.last:
                yield f"{what}one of the newest {kept.last}"
            if version in tagged:
                yield f"{what}which a tag keeps"
            if version in open_ones:
                yield f"{what}at which {open_ones[version]} is open, which has a record"


def _was_kept(attempt: Attempt, began: float, at: float) -> bool:
    """Whether a run that began at some time, and expired something later, must have known that this one is open."""
    is_told = attempt.told_at is not None and attempt.told_at < began
    return is_told and attempt.is_kept(at) and (attempt.over_at is None or at < attempt.over_at)


def unreadable_tags(world: World, head: Database) -> Iterator[str]:
    """Yield the tags that keep what nobody can read."""
    now = world.now() + CLOCKS
    for tag in head.tags.values():
        if tag.is_kept(now) and head.expired.has(tag.version):
            yield f"tagged: {tag.name} keeps version {tag.version}, which has expired"


def released(model: Model, logs: Logs) -> Iterator[str]:
    """Yield which tables that were given back are not whole."""
    for location in sorted(model.released):
        newest = logs.newest(location)
        if newest < 0:
            yield f"released: the log of {location} is gone"
            continue
        try:
            files = logs.rows(location, newest)
        except AssertionError as error:
            yield f"released: {location}: {error}"
            continue
        lost = [path for path in files if logs.disk.get(f"{location}/{path}") is None]
        if lost:
            yield f"released: {lost} of {location} are gone"


def unfinished(disk: Disk) -> Iterator[str]:
    """Yield what is written down as being deleted once nobody deletes any more."""
    for name in sorted(disk.folders[FOLDER]):
        if name.startswith(PREFIX):
            yield f"finished: {name} is there yet: {disk.folders[FOLDER][name].decode()}"


def left(world: World, disk: Disk, timeline: Timeline, told: Maintained) -> Iterator[str]:
    """Yield which files are in the lake that no version needs, unless the last run says that it kept tables whole."""
    if told.swept.waiting_files:
        yield f"left: {told.swept.waiting_files} files are marked, however often upkeep runs"
    if told.swept.kept_whole:
        return
    logs, head = Logs(disk), timeline.head
    readable = [timeline.at(version) for version in range(head.version + 1) if not head.expired.has(version)]
    tables = {(table.location, table.version) for each in readable for table in each.tables.values()}
    # A plain writer's commits behind what the lake knows of a dropped table: UNDROP would bring them with it.
    last = {location: max(version for where, version in tables if where == location) for location, _ in tables}
    behind = {(each, version) for each in last for version in range(last[each] + 1, logs.newest(each) + 1)}
    needed = {path for each in tables | behind for path in _needed(logs, *each)}
    for location in sorted({location for location, _ in tables}):
        found = {path for path in disk.under(location) if "/_delta_log/" not in path}
        if unneeded := sorted(found - needed):
            yield f"left: {unneeded} of {location}"
    made = {ddl.location for entry in entries_of(disk) for ddl in entry.tables if ddl.action == "create"}
    others = {location for _, location in world.journal.released}
    for location in sorted(made - others - {location for location, _ in tables}):
        if there := disk.under(location):
            yield f"left: {there}, though no version has a table there"
    for name in disk.folders[TIMELINE]:
        version = version_in(name)
        if version and version < head.expired.first_kept and head.expired.has(version):
            yield f"left: entry {name}, and there are the versions {head.expired.readable(head.version)}"


def _needed(logs: Logs, location: str, version: int) -> Collection[str]:
    files = logs.files(location, version)
    vectors = [body["deletionVector"] for body in files.values() if body.get("deletionVector") is not None]
    paths = {f"{location}/{path}" for path, _ in files}
    return paths | {file_path(each, location=location, root=URL) for each in vectors}
