"""What entries of the timeline changed and read, as the conflict check needs it: read from their commits, and kept."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import chain
from typing import TypeAlias

import msgspec
from msgspec import structs

from lockstep.caches import MIB, Cache, size_of
from lockstep.conflict.writes import Changes
from lockstep.delta.actions import Action, parse
from lockstep.delta.combine.row_tracking import by_commit, copies_own_rows
from lockstep.delta.footprint import UNKNOWN, Footprint, footprint, overwrites
from lockstep.delta.log import read_published, state_at
from lockstep.delta.pruning.row_sets import AS_IT_WAS, EVERY_ROW, NO_ROW, Rows, rows_of
from lockstep.delta.publish import contents, foreign_footprint
from lockstep.errors import LockstepError, UnavailableError
from lockstep.storage import Storage
from lockstep.timeline.entry import Entry, Moved, TableRead, TableWrite
from lockstep.timeline.log import Timeline

KEPT_BYTES = 64 * MIB
"""So much of what the latest transactions changed is kept: some ten thousand of small ones."""

PATH_BYTES = 300
VALUES_BYTES = 250
ENTRY_BYTES = 2_000
"""What a path takes beside its text, what the log says of a file beside that, and an entry beside its files."""

DDL_FACTOR = 5
"""What a change of names takes in memory for each byte of its JSON."""

_Key: TypeAlias = tuple[int, str, tuple[tuple[int, ...], ...]]

_log = logging.getLogger(__name__)


class PastChanges:
    """What the entries of one timeline changed; safe to share between threads."""

    def __init__(self, storage: Storage, timeline: Timeline) -> None:
        """Read the commits of one timeline's entries."""
        self._storage = storage
        self._timeline = timeline
        self._kept = Cache[_Key, Changes](KEPT_BYTES)

    def of(self, entry: Entry) -> Changes:
        """Return what an entry changed, as the conflict check needs it.

        Of a table whose commits cannot be read, Delta's clean-up may have taken them, that is anything: who uses the
        table has a conflict, and nobody else.
        """
        # An entry that is not ratified yet may be looked at, too. If it is never put, its transaction may go on, and
        # come to have the same version with another entry: so this one is not kept. Asked first: a version that is
        # taken by now is this entry's, or never will be.
        is_decided = entry.version <= self._timeline.head.version
        # A commit may be moved after it was looked at, and is another one then.
        key = (
            entry.version,
            entry.transaction.id,
            tuple(self._timeline.versions(write, entry.version) for write in entry.writes),
        )
        if (kept := self._kept.get(key)) is not None:
            return kept
        footprints = {write.id: self._footprint_if_known(entry, write) for write in entry.writes}
        footprints |= {move.id: self._overtaking(move) for move in entry.moved}
        names = {write.id: write.name for write in entry.writes}
        changes = Changes(
            transaction=entry.transaction.id,
            namespaces=tuple(entry.namespaces),
            tables=tuple(entry.tables),
            views=tuple(entry.views),
            writes=footprints,
            reads=reads_of(entry, footprints),
            view_reads=frozenset(entry.view_reads),
            names=names,
            # A plain Delta writer's own check is a serializable one, of the table that it writes.
            isolation="SERIALIZABLE" if entry.kind == "external" else entry.transaction.isolation,
            base=entry.transaction.base_version,
            batch=entry.batch,
            tags=tuple(entry.tags),
            aborts=frozenset(entry.aborts),
            asked=asked_for(entry),
            database_version=entry.version,
            precedes=entry.precedes,
        )
        if is_decided and UNKNOWN not in footprints.values():  # what is unknown may be mended
            self._kept.keep(key, changes, size=_size(changes))
        return changes

    def _footprint_if_known(self, entry: Entry, write: TableWrite) -> Footprint:
        """Return what an entry's write touched, UNKNOWN if nobody can tell for good.

        Raises:
            UnavailableError: the store does not say now. It may later: this is no conflict.
        """
        try:
            return self.of_write(entry, write)
        except UnavailableError:
            raise
        except LockstepError as error:
            _log.warning("table %s: what database version %d changed is unknown: %s", write.name, entry.version, error)
            return UNKNOWN

    def of_write(self, entry: Entry, write: TableWrite) -> Footprint:
        """Return what one write of an entry touched in its table.

        Raises:
            UnavailableError, CorruptTimelineError: its commits cannot be read.
        """
        if not write.commits:  # external: published, and nowhere else
            versions = range(write.from_version + 1, write.to_version + 1)
            return foreign_footprint(self._storage, write.location, versions)
        places = self._timeline.versions(write, entry.version)
        actions: list[Action] = []
        # One that was moved has other row ids and timestamps where it is now than it was ratified with.
        for version, data in zip(places, contents(self._storage, write, places), strict=True):
            # A staged file is cleaned up once its commit is published.
            actions += read_published(self._storage, write.location, version) if data is None else parse(data)
        return self.footprint(actions, write.location, before=places[0] - 1)

    def footprint(self, actions: list[Action], location: str, *, before: int) -> Footprint:
        """Return what a table's commits touch that come after its version `before`, or began from it."""
        summary = footprint(actions, lambda: state_at(self._storage, location, before))
        commits = by_commit(actions)
        return replace(summary, fixed=copies_own_rows(commits, before), overwrites=any(map(overwrites, commits)))

    def _overtaking(self, move: Moved) -> Footprint:
        """Return what the foreign commits that overtook a ratified one touched."""
        [moved_entry] = self._timeline.entries(move.entry - 1, move.entry)
        write = next(write for write in moved_entry.writes if write.id == move.id)
        versions = self._timeline.versions(write, move.entry)
        from_version = versions[move.kept - 1] if move.kept else write.from_version
        to_version = move.to_version - (len(write.commits) - move.kept)
        return self._footprint_if_known(
            moved_entry,
            structs.replace(write, commits=[], from_version=from_version, to_version=to_version),  # as an external one
        )


def asked_for(entry: Entry) -> str | None:
    """Return who had others ended, and why, if that was a person, and no transaction that needs what they hold.

    What a person does has a statement, see `lockstep.commit.killing.Asker`.
    """
    if entry.kind != "abort" or not entry.transaction.statements:
        return None
    reason = f": {entry.transaction.message}" if entry.transaction.message else ""
    return f"{entry.transaction.author or 'somebody'} asked for that{reason}"


def is_apart(entry: Entry, mine: Changes) -> bool:
    """Tell whether no rule can find anything between a transaction and an entry, which have nothing in common.

    It is told by the entry alone: what its commits say need not be read.
    """
    names = (entry.namespaces, entry.tables, entry.views, entry.tags)
    if entry.kind != "transaction" or any(names) or entry.aborts or entry.moved:
        return False
    if (entry.batch is not None and mine.batch is not None) or (entry.view_reads and mine.views):
        return False
    theirs = {write.id for write in entry.writes} | {read.id for read in entry.reads}
    return all(theirs.isdisjoint(ids) for ids in (mine.writes, mine.reads, [ddl.id for ddl in mine.tables]))


def is_light(entry: Entry) -> bool:
    """Tell whether what an entry changed follows from it alone, without a look at the store, and no name changed."""
    commits = [commit for write in entry.writes for commit in write.commits]
    return (
        entry.kind == "transaction"
        and not (entry.namespaces or entry.tables or entry.views or entry.tags)
        and all(commit.inline is not None and not any(map(_needs_state, commit.inline)) for commit in commits)
    )


def _needs_state(line: msgspec.Raw) -> bool:
    """Tell whether what an action changed follows from it and from what the table was before."""
    return bytes(line).startswith((b'{"metaData"', b'{"protocol"'))


def _size(changes: Changes) -> int:
    """Return about how many bytes changes take in memory."""
    ddl = (changes.namespaces, changes.tables, changes.views, changes.tags)
    conditions = [condition for rows in changes.reads.values() for condition in rows or ()]
    return (
        ENTRY_BYTES
        + sum(map(_size_of_footprint, changes.writes.values()))
        + sum(DDL_FACTOR * len(msgspec.json.encode(each)) for each in ddl)
        + sum(map(size_of, conditions))
    )


def _size_of_footprint(footprint: Footprint) -> int:
    paths = (*footprint.removed_paths, *footprint.added_paths)
    covers = (*footprint.covers_added, *footprint.covers_removed)
    values = chain(footprint.rows_added, footprint.rows_removed, *covers)
    return (
        ENTRY_BYTES
        + sum(PATH_BYTES + len(path) for path in paths)
        + sum(VALUES_BYTES + len(each.stats or "") + size_of(each.partition) for each in values)
        + sum(PATH_BYTES + size_of(change.before) + size_of(change.after) for change in footprint.vectors.values())
    )


def rows_by_table(reads: Iterable[TableRead]) -> dict[str, Rows]:
    """Return which rows reads are of, by table id; of a table that was read only as it had been nothing is said."""
    return {read.id: rows_of(read.predicates) for read in reads if read.predicates != [AS_IT_WAS]}


def reads_of(entry: Entry, footprints: Mapping[str, Footprint]) -> dict[str, Rows]:
    """Return what an entry's transaction read; of a plain Delta writer it is only known when it read no row.

    Who wrote a table has read its columns. One that removed rows and does not say which it read may have read any, and
    so may one that overwrote, whatever its entry says: which rows it removed does not follow from those that it read.
    """
    reads = {id_: EVERY_ROW if footprint.rows_removed else NO_ROW for id_, footprint in footprints.items()}
    if entry.kind == "external":
        return reads | {id_: EVERY_ROW for id_, footprint in footprints.items() if not footprint.blind}
    return (
        reads
        | rows_by_table(entry.reads)
        | {id_: EVERY_ROW for id_, footprint in footprints.items() if footprint.overwrites}
    )
