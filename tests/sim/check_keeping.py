"""What must be so of a lake of which copies are made, after a schedule and whenever somebody was told that one is made.

made        a copy that somebody was told is made is whole, and a clone stays so until somebody wants its record dropped
recorded    the record of a clone, and of a minimal export, is there until then, and its version can be read
readable    each version that can be read is whole: its logs, or what is kept for tags, tell of each table, and each
            data file and deletion vector is there
tagged      what a tag names can be read
verify      Lockstep's own comparisons find nothing, `lockstep verify --deep` neither, but copies of logs that count for
            nobody (`Kept.sure`)
"""

from __future__ import annotations

from collections.abc import Iterator

from lockstep.catalog import TransactionalCatalog
from lockstep.errors import LockstepError
from lockstep.exports.deep import verify_deep
from lockstep.exports.files import places_of
from lockstep.lake.exports import needed_versions, read_exports
from lockstep.lake.kept_states import FOLDER, kept_states, snapshot_of
from lockstep.lake.verify import verify
from lockstep.timeline.entry import Table
from tests.sim.bucket import Quiet
from tests.sim.copies import KeptWorld
from tests.sim.store import URL


def findings(world: KeptWorld, fresh: TransactionalCatalog, quiet: Quiet) -> Iterator[str]:
    """Yield what is wrong, given a catalog that was just opened, and nobody else there."""
    yield from world.wrong
    head = fresh.lake.newest()
    yield from (f"aside: {id_}: {error}" for id_, error in head.set_aside.items())
    recorded = {record.id for record in read_exports(quiet)}
    needed = needed_versions(quiet, world.now())
    for copy in world.needed.values():
        if copy.mode != "full":
            if copy.id not in recorded or copy.version not in needed:
                yield f"recorded: {copy.mode} export {copy.id} of {copy.version} is not recorded"
            if head.expired.has(copy.version):
                yield f"recorded: {copy.mode} export {copy.id} is of {copy.version}, which has expired"
        if lost := world.bucket.lost(copy.places):
            yield f"made: {lost} of {copy.mode} export {copy.id} of {copy.version} are gone"
    for tag in head.tags.values():
        if tag.is_kept(world.now()) and head.expired.has(tag.version):
            yield f"tagged: {tag.name} names {tag.version}, which has expired"
    yield from _unreadable(world, fresh, quiet)
    # Whoever takes more than an hour over a checkpoint of the timeline may find parts of it gone: it is advice.
    yield from (f"verify: {each}" for each in verify(quiet, fresh.timeline).differences)
    unsure = _unsure(quiet)
    for each in verify_deep(quiet, fresh.timeline):
        if each.problem != "damaged" or not each.path.startswith(unsure):
            yield f"verify --deep: {each}"


def hollow(quiet: Quiet) -> Iterator[str]:
    """Yield what is said to be kept for tags, and is gone, though upkeep has run often enough since."""
    yield from (f"hollow: what is kept of {id_} at {version}" for id_, version in kept_states(quiet).hollow)


def _unsure(quiet: Quiet) -> tuple[str, ...]:
    """Return where the copies lie, or lay, of states that count for nobody: the tables' own logs tell of those."""
    kept = kept_states(quiet)
    return tuple(f"{FOLDER}/{id_}/{version:020d}-" for id_, version in kept.states.keys() - kept.sure)


def _unreadable(world: KeptWorld, fresh: TransactionalCatalog, quiet: Quiet) -> Iterator[str]:
    head, looked = fresh.timeline.head, set[Table]()
    for version in range(head.version + 1):
        if head.expired.has(version):
            continue
        for table in fresh.timeline.at(version).tables.values():
            if table in looked:
                continue
            looked.add(table)
            try:
                found = snapshot_of(quiet, table)
                places = [each for body in found.files.values() for each in places_of(body, table.location, URL)]
            except LockstepError as error:
                yield f"readable: {table.name} in database version {version}: {error!r}"
                continue
            if lost := world.bucket.lost(places):
                yield f"readable: {lost} of {table.name} in database version {version} are gone"
