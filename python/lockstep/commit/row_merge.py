"""Conflicts by row: reads the deletion vectors that two transactions gave the same data files, and merges them.

    find    applies the rule `row` of `lockstep.conflict.writes` to one winner
    merge   rewrites our commits to land behind all winners; called anew for each attempt, from what we staged

Which rows clash, and what two vectors of one file become, is decided in `lockstep.delta.combine.vector_merge`; here is
what that needs from the storage.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from cachetools import LRUCache, cached

from lockstep.conflict.writes import Changes, Hit
from lockstep.delta.actions import Action
from lockstep.delta.combine.deletion_vectors import (
    Descriptor,
    RowSet,
    decode,
    file_path,
    in_a_file,
    is_readable,
    serialize,
)
from lockstep.delta.combine.vector_merge import RowChange, clash, merge_vectors, vectors_now
from lockstep.delta.footprint import Footprint, VectorChange
from lockstep.storage import Storage

CACHED_BYTES = 64 * 2**20
"""Delta puts the vectors of one statement into few files of some MB: so much of them is kept during a commit."""


class RowMerge:
    """The deletion vectors of one COMMIT.

    Attributes:
        vector_files: files that it wrote, relative to the lake's root: those of all attempts.
        landing: those that the last attempt's commits name.
    """

    def __init__(
        self,
        storage: Storage,
        locations: Mapping[str, str],
        *,
        seed: str,
        vector_files: set[str],
        read: Callable[[str], bytes | None] | None = None,
    ) -> None:
        """Start with nothing read.

        Args:
            storage: the lake's.
            locations: by table id, the folders of the tables that we wrote.
            seed: our transaction's id; it makes the names of our files ours.
            vector_files: where to note files before they are written.
            read: how to read a vector's file, if some are not in the lake yet.
        """
        self._storage = storage
        self._locations = locations
        self._seed = seed
        files: LRUCache[Any, bytes | None] = LRUCache(CACHED_BYTES, getsizeof=_size)
        self._read = cached(files, lock=threading.Lock())(storage.get if read is None else read)
        self.vector_files = vector_files
        self.landing: set[str] = set()

    def find(self, mine: Changes, winner: Changes) -> Hit | None:
        """Find the first file from which both took the same row, or whose vectors cannot be read.

        Raises:
            UnavailableError, CorruptTimelineError: the store failed; a vector is not what it must be.
        """
        for id in sorted(mine.writes.keys() & winner.writes.keys()):
            ours, theirs = mine.writes[id].vectors, winner.writes[id].vectors
            for path in sorted(ours.keys() & theirs.keys()):
                name = str(mine.names.get(id) or winner.names.get(id) or id)
                file = f"file {path} of table {name}"
                if (what := self._clash(self._locations[id], ours[path], theirs[path], file)) is not None:
                    return Hit(what, about=name)
        return None

    def merge_rows(
        self, id: str, commits: Sequence[Sequence[Action]], ours: Footprint, winners: Sequence[Footprint]
    ) -> list[list[Action]]:
        """Return the commits as they land behind the winners; files are written that they name.

        Args:
            id: the table's.
            commits: ours, as `collapse` returns them; left as they are.
            ours: what they touch.
            winners: what landed since our snapshot, in order, in which `find` found nothing.

        Raises:
            UnavailableError, CorruptTimelineError: as `find`.
        """
        location = self._locations[id]
        return merge_vectors(
            commits,
            ours,
            vectors_now(ours, winners),
            load=lambda vector: self._load(location, vector),
            save=lambda rows: self._save(location, rows),
        )

    def new_attempt(self) -> None:
        """Forget what the last attempt's commits name: others will land."""
        self.landing = set()

    def _clash(self, location: str, ours: VectorChange, theirs: VectorChange, file: str) -> str | None:
        vectors = (ours.before, ours.after, theirs.before, theirs.after)
        if not all(is_readable(vector, root=self._storage.url) for vector in vectors):
            return f"changed {file}, as this transaction does"
        rows = [self._load(location, vector) for vector in vectors]
        return clash(RowChange(*rows[:2]), RowChange(*rows[2:]), file)

    def _load(self, location: str, vector: Descriptor | None) -> RowSet:
        return decode(vector, self._read, location=location, root=self._storage.url)

    def _save(self, location: str, rows: RowSet) -> Descriptor:
        # Named by its content: an attempt that comes to the same rows comes to the same file, one that comes to others
        # leaves it alone, for an entry that names it may still be on its way.
        data = serialize(rows)
        digest = hashlib.sha256(f"{self._seed} ".encode() + data).digest()
        [descriptor], content = in_a_file([(data, len(rows))], UUID(bytes=digest[:16], version=4))
        path = file_path(descriptor, location=location, root=self._storage.url)
        self.vector_files.add(path)
        self.landing.add(path)
        self._storage.put_once(path, content)
        return descriptor


def _size(content: bytes | None) -> int:
    """Return the bytes of a file, none of one that is gone."""
    return len(content or b"")
