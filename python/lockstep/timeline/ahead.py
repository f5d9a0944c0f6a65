"""What is read side by side, before somebody asks for it, one thing after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import Future

from lockstep.storage import Names, Storage
from lockstep.timeline.database import Database, tag_key
from lockstep.timeline.entry import Entry, Name
from lockstep.timeline.layered_map import LayeredMap, fetch
from lockstep.workers import Threads

READERS = 64
"""Threads that read the files that opening a lake needs: an entry is small, and a store far away."""


class Ahead:
    """Files of a store, some of which are read from now on; they are given out as they were then."""

    def __init__(self, storage: Storage, paths: Iterable[str]) -> None:
        """Begin to read these, each of which is given out as often as it is named, and then forgotten.

        What goes wrong is raised for whoever asks for the file. That there is none is said once: who asks again looks
        again.
        """
        self._storage = storage
        self._left = Counter(paths)
        self._futures: dict[str, Future[bytes | None]] = {}
        if self._left:
            pool = Threads(min(READERS, len(self._left)), thread_name_prefix="lockstep-ahead", quick=storage.quick)
            self._futures = {path: pool.submit(storage.get, path) for path in self._left}
            pool.shutdown(wait=False)

    @property
    def quick(self) -> bool:
        """Whether the store's files are read at once."""
        return self._storage.quick

    def __contains__(self, path: str) -> bool:
        return path in self._futures

    def list(self, folder: str, after: str | None = None) -> Names:
        """Return the names in a folder, sorted, that sort after one; asked for when this is called.

        Raises:
            UnavailableError: the store failed.
        """
        return self._storage.list(folder, after)

    def get(self, path: str) -> bytes | None:
        """Return a whole file, or None when there is none at this path.

        Raises:
            UnavailableError: the store failed.
        """
        if (future := self._futures.get(path)) is None:
            return self._storage.get(path)
        self._left[path] -= 1
        if not self._left[path] or future.result() is None:
            del self._futures[path]
        return future.result()


def fetch_for(database: Database | None, entries: Sequence[Entry]) -> None:
    """Have in memory what the entries that follow a database version need of it.

    Raises:
        UnavailableError, CorruptTimelineError: as looking it up would.
    """
    if database is None or not isinstance(database.tables, LayeredMap):
        return  # all of it is in memory
    names = {name for entry in entries for name in _names(entry)}
    if not any(entry.tables or entry.views or entry.namespaces or _says_more(entry) for entry in entries):
        fetch((database.tables, names))
        return
    namespaces = {ddl.name for entry in entries for ddl in entry.namespaces}
    changed_names = {name for entry in entries for name in _new_names(entry)}
    ids = {ddl.id for entry in entries for ddl in entry.tables} | {m.id for entry in entries for m in entry.moved}
    locations = {ddl.location for entry in entries for ddl in entry.tables if ddl.action == "create"}
    fetch(
        (database.tables, names),
        (database.views, changed_names | {ddl.name for entry in entries for ddl in entry.views}),
        (database.namespaces, namespaces | {name.namespace for name in changed_names}),
        (database.batches, {entry.batch.application for entry in entries if entry.batch is not None}),
        (database.tags, {tag_key(ddl.name) for entry in entries for ddl in entry.tags}),
        (database.index.ids, ids),
        (database.index.locations, locations),
        (database.index.inside, namespaces | {name.namespace for name in changed_names}),
    )
    gone = {ddl.name for entry in entries for ddl in entry.tables if ddl.action != "create"}
    moved = {name for e in entries for m in e.moved if (name := database.index.ids.get(m.id)) is not None}
    tables = [table for name in gone if (table := database.tables.get(name)) is not None]
    fetch((database.tables, moved), (database.index.locations, [table.location for table in tables]))


def _says_more(entry: Entry) -> bool:
    """Tell whether an entry asks for more than the tables that it writes and the names that it gives and takes."""
    return bool(entry.moved or entry.tags) or entry.batch is not None


def _names(entry: Entry) -> Iterable[Name]:
    """Yield the names that an entry asks the tables for."""
    yield from (write.name for write in entry.writes)
    yield from _new_names(entry)


def _new_names(entry: Entry) -> Iterable[Name]:
    """Yield the names that an entry gives and takes."""
    for ddl in entry.tables:
        yield ddl.name
        if ddl.new_name is not None:
            yield ddl.new_name
    yield from (ddl.name for ddl in entry.views)
