"""What is kept for tags, and who needs it: all else of it goes as litter does, by the one decision that all deletes by.

A state is needed as long as some database version can be read that has its table at its version, whether or not a tag
still names that: the table's own log may not tell of it any more.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from lockstep.errors import CorruptTimelineError, LockstepError, UnavailableError
from lockstep.lake.kept import kept_tables, kept_tags
from lockstep.lake.kept_states import AT_ONCE, Kept, keep, kept_state, kept_states, kept_versions
from lockstep.lake.lake import Lake
from lockstep.retention.files import Doomed
from lockstep.retention.horizon import readable
from lockstep.retention.needs import Need, need_of
from lockstep.retention.versions import Readable
from lockstep.timeline.entry import Table
from lockstep.timeline.known import Known

_log = logging.getLogger(__name__)


def needed_states(timeline: Known, can_be_read: Readable) -> Callable[[str, int], bool]:
    """Return what tells whether a table, by its id, at a version of its log is in a database version that can be read.

    Of the unbroken run it is asked from which version on, so more may stay for a while than is needed.

    Raises:
        UnavailableError, CorruptTimelineError: the timeline cannot be read.
    """
    alone = {
        (table.id, table.version) for version in can_be_read.alone for table in timeline.at(version).tables.values()
    }
    firsts = {table.id: table.version for table in timeline.at(can_be_read.first).tables.values()}
    for entry in timeline.scan(can_be_read.first):
        for ddl in entry.tables:
            if ddl.action == "create":
                firsts[ddl.id] = min(ddl.version or 0, firsts.get(ddl.id, ddl.version or 0))

    def is_needed(id: str, version: int) -> bool:
        return (id, version) in alone or (id in firsts and version >= firsts[id])

    return is_needed


def doomed_states(lake: Lake, kept: Kept, is_needed: Callable[[str, int], bool], before: datetime) -> list[Doomed]:
    """Return what may go of what is kept: states that nobody needs, and what is left of attempts to keep one.

    What says that a state is kept goes first, so none is ever said to be kept that is not. It goes, too, if the copies
    are gone: who kept them stood still, and said so late (`Kept.sure`). Then `keep_late` keeps the state anew.

    Args:
        before: what was written later stays, for its tag may be about to be made.

    Raises:
        UnavailableError: the store failed.
    """
    hollow = kept.hollow
    doomed = [
        Doomed(found.path, "litter", found.size, found.modified_at)
        for key, found in kept.states.items()
        if (not is_needed(*key) or key in hollow) and found.modified_at < before
    ]
    of_key = Counter(key for key, _ in kept.folders.values())
    for folder, (key, files) in kept.folders.items():
        newest = max(found.modified_at for found in files)
        if newest >= before or (is_needed(*key) and _is_of_state(lake, kept, key, folder, of_key[key])):
            continue
        said = kept.states.get(key)
        if said is not None and not is_needed(*key) and said.modified_at >= before:
            continue
        doomed.append(Doomed(folder, "folder", sum(found.size for found in files), newest, len(files)))
    return doomed


def _is_of_state(lake: Lake, kept: Kept, key: tuple[str, int], folder: str, folders: int) -> bool:
    """Tell whether a folder is that of a state, or may be: others are left of processes that were slower, or killed."""
    if key not in kept.states:
        return False
    if folders == 1:
        return True
    try:
        state = kept_state(lake.storage, *key)
    except CorruptTimelineError as error:
        _log.warning("nothing that is kept for tags of that table at that version is deleted: %s", error)
        return True
    return state is not None and state.folder == folder


def keep_late(lake: Lake) -> None:
    """Keep what tags need of which nothing is kept: an older Lockstep made them, or their maker died behind the commit.

    What cannot be kept any more is told in the log.

    Raises:
        UnavailableError, CorruptTimelineError: as the store and the timeline say; a later run goes on.
    """
    tags = kept_tags(lake.timeline.head, lake.clock())
    if not tags:
        return
    there = kept_states(lake.storage).states.keys()
    tables = {(each.table.id, each.table.version): each.table for each in kept_tables(lake.timeline, tags)}
    new = [table for key, table in tables.items() if key not in there]
    for place in range(0, len(new), AT_ONCE):
        _keep_what_can_be(lake, new[place : place + AT_ONCE])


def _keep_what_can_be(lake: Lake, tables: Sequence[Table]) -> None:
    try:
        keep(lake, tables)
    except UnavailableError:
        raise
    except LockstepError as error:
        if len(tables) == 1:
            _log.warning("a tag keeps table %s, and %s", tables[0].name, error)
        else:
            for table in tables:
                _keep_what_can_be(lake, [table])


def with_kept(lake: Lake, location: str, need: Need) -> Need:
    """Return the need of a folder's tables with those versions that are kept for tags beside the table's log.

    Raises:
        UnavailableError, CorruptTimelineError: the store failed; the timeline cannot be read.
    """
    databases = map(lake.timeline.at, readable(lake.timeline).alone)
    alone = {(table.id, table.version) for each in databases if (table := each.table_at(location))}
    kept = {(id_, version) for id_ in {id_ for id_, _ in alone} for version in kept_versions(lake.storage, id_)}
    return replace(need_of(alone, kept), first=need.first)
