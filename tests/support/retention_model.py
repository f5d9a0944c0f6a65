"""The model of `tests.support.retention_machine`: what each database version has, and what changed it.

Data files are Parquet, all the same: the rows 0, 1 and 2. A deletion vector takes out one of them, which follows from
its id. So what a reader must find follows from the paths and vectors that a version has.
"""

from __future__ import annotations

import io
import json
import shutil
import tempfile
from collections.abc import Callable, Collection
from datetime import datetime
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine
from pyarrow import parquet
from pyroaring import BitMap64

from lockstep.delta.actions import Action
from lockstep.delta.combine.deletion_vectors import Descriptor, serialize
from lockstep.errors import LockstepError
from lockstep.retention.horizon import readable
from lockstep.retention.versions import Readable
from lockstep.storage import open_storage
from lockstep.timeline.entry import Name
from lockstep.transactions.transaction import Transaction
from tests.support.lakes import add, metadata, named, open_catalog, stage
from tests.support.retained import AgedStorage, Content, Killed, Ticking
from tests.support.vectors import stored

ROWS = 3
"""How many a data file has."""

TABLES = [named(each) for each in ("a", "b", "c")]
TABLE = st.sampled_from(TABLES)

Tables = dict[Name, tuple[str, Content]]
"""By name, where a table lies and what it has."""


def _data_file() -> bytes:
    out = io.BytesIO()
    parquet.write_table(pa.table({"id": pa.array(range(ROWS), pa.int64())}), out)
    return out.getvalue()


DATA = _data_file()
"""What every data file has."""


def vector(id: UUID) -> tuple[Descriptor, bytes]:
    """Return the deletion vector of an id: its descriptor, and its file."""
    return stored(serialize(BitMap64([id.int % ROWS])), 1, id)


def rows_of(content: Content) -> set[tuple[str, int]]:
    """Return the rows that a reader must find, each with the name of its file."""
    return {
        (path, row)
        for path, deleted in content.files
        for row in range(ROWS)
        if deleted is None or row != UUID(deleted).int % ROWS
    }


def by_location(tables: Tables) -> dict[str, tuple[Name, Content]]:
    """Return tables by where they lie, which no rename changes."""
    return {location: (name, content) for name, (location, content) in tables.items()}


class Model(RuleBasedStateMachine):
    """A lake, and what each version of it has.

    Attributes:
        versions: what each database version has.
        touched: by version, the locations of the tables that it changed, and nothing for those that changed none.
        logs: by version, the locations of the tables whose logs it took back, or took a version out of.
        last: what each table has, or had when it was dropped, by location.
        drops: which version dropped a table, under which name, and where it lies; oldest first.
        tags: which version each names, and until when it is kept.
        next_death: at which request the process of the next transaction is killed; None for never.
    """

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="lockstep-retention-"))
        self.clock = Ticking()
        self.store = AgedStorage(open_storage(str(self.root)), self.clock)
        self.catalog = open_catalog(self.store, clock=self.clock)
        self.versions: dict[int, Tables] = {0: {}}
        self.touched: dict[int, set[str]] = {}
        self.logs: dict[int, set[str]] = {}
        self.last: dict[str, Content] = {}
        self.drops: list[tuple[int, Name, str]] = []
        self.tags: dict[str, tuple[int, datetime | None]] = {}
        self.number = 0
        self.next_death: int | None = None

    def teardown(self) -> None:
        shutil.rmtree(self.root)

    @property
    def tables(self) -> Tables:
        return self.versions[max(self.versions)]

    def becomes(self, version: int, tables: Tables, logs: Collection[str] = ()) -> None:
        """Note what a version has; those before it that nobody noted changed nothing.

        Args:
            logs: the locations of tables whose logs it took back, which may have the same as before.
        """
        self.fill(version - 1)
        before, after = by_location(self.versions[version - 1]), by_location(tables)
        self.versions[version] = tables
        self.touched[version] = {each for each in before | after if before.get(each) != after.get(each)} | set(logs)
        self.logs[version] = set(logs)
        self.last |= {location: content for location, (_, content) in after.items()}
        self.drops += [(version, before[each][0], each) for each in sorted(before.keys() - after.keys())]

    def fill(self, version: int) -> None:
        """Note that versions up to one changed nothing: fences, expiry, ends of transactions."""
        for each in range(max(self.versions) + 1, version + 1):
            self.versions[each] = self.versions[each - 1]

    def kept(self) -> Readable:
        """Return which versions can be read."""
        self.catalog.lake.refresh()
        now = readable(self.catalog.timeline)
        self.fill(now.newest)
        return now

    def readable(self) -> list[int]:
        now = self.kept()
        return [version for version in range(now.newest + 1) if now.has(version)]

    # --- what the lake is given ---------------------------------------------------------------------------------------

    def new_number(self) -> int:
        self.number += 1
        return self.number

    def new_file(self) -> str:
        return f"part-{self.new_number()}.parquet"

    def new_table(self) -> list[Action]:
        """Return how the log of a new table begins."""
        protocol: Action = {"minReaderVersion": 3, "minWriterVersion": 7}
        protocol |= {key: ["deletionVectors"] for key in ("readerFeatures", "writerFeatures")}
        start = metadata(**{"delta.enableDeletionVectors": "true"})
        start["metaData"]["id"] = str(UUID(int=self.new_number()))
        return [{"protocol": protocol}, start]

    def add(self, path: str, **more: Any) -> Action:
        said = {"modificationTime": self.clock.ms, "size": len(DATA), "stats": json.dumps({"numRecords": ROWS})}
        return add(path, **(said | more))

    def commit(
        self,
        change: Callable[[Transaction], object],
        tables: Tables | Callable[[], Tables],
        logs: Callable[[], Collection[str]] = tuple,
    ) -> bool:
        """Change the lake in a transaction, whose process is killed at the request that `next_death` says, if any.

        Returns: whether it is done, by a process that was killed too.

        Args:
            tables: what the lake has once it is committed, perhaps as the change itself finds out.
            logs: see `becomes`.
        """
        outcome = self.attempt(change)
        if isinstance(outcome, int):
            self.becomes(outcome, tables() if callable(tables) else tables, logs())
        elif outcome == "nothing":
            assert (tables() if callable(tables) else tables) == self.tables, "nothing was done"
        return outcome != "killed"

    def attempt(self, change: Callable[[Transaction], object]) -> int | Literal["nothing", "killed"]:
        """Commit a change, and return which version it became: where its process was killed, the timeline tells."""
        before, begun = self.kept().newest, list[Transaction]()
        self.store.dies_at, self.next_death = self.next_death, None
        try:
            begun.append(self.catalog.begin())
            change(begun[0])
            committed = self.catalog.commit(begun[0])
            if not self.store.is_dead:  # nobody hears of it from one that is
                return "nothing" if committed.entry is None else committed.version
        except (Killed, LockstepError):
            if not self.store.is_dead:
                self.catalog.rollback(begun[0])
                raise
        finally:
            self.store.dies_at = None
        self.catalog = open_catalog(self.store, clock=self.clock)  # the next process
        self.catalog.lake.newest()  # publishes what the killed one had ratified, as whoever reads does
        after = range(before + 1, self.kept().newest + 1)
        entries = zip(after, self.catalog.timeline.entries(before), strict=True)
        return next((at for at, entry in entries if begun and entry.transaction.id == begun[0].id), "killed")

    def write(self, name: Name, actions: list[Action], files: frozenset[tuple[str, str | None]]) -> None:
        location, _ = self.tables[name]
        self.commit(
            lambda tx: stage(self.catalog, tx, str(name), *actions, data=DATA),
            {**self.tables, name: (location, Content(files))},
        )

    def promoted(self, version: int, location: str, path: str) -> None:
        """Note that a version has what a clone wrote into a table: a copy of its file, under the transaction's id."""
        self.catalog.lake.refresh()
        [entry] = self.catalog.timeline.entries(version - 1, version)
        self.fill(version - 1)
        tables = self.versions[version - 1]
        [now] = [each for each, (where, _) in tables.items() if where == location]
        files = tables[now][1].files | {(f"{entry.transaction.id}/{path}", None)}
        self.becomes(version, {**tables, now: (location, Content(files))})
