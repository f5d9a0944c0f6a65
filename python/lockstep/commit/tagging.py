"""What a tag needs is kept before its entry is there, so that no tag is without it: see `lockstep.lake.kept_states`.

Which versions of which tables a tag of the newest database version names is known only when the entry lands, so each
attempt keeps what has changed since the one before. What its own transaction writes is in no log yet: that is kept
right behind the commit, once it is published, and by `maintain` if this process dies in between.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator

from lockstep.lake.kept_states import keep, state_path
from lockstep.lake.lake import Lake
from lockstep.timeline.database import Database
from lockstep.timeline.entry import Entry, Table, TagDdl
from lockstep.transactions.transaction import Transaction

_log = logging.getLogger(__name__)


class Keeping:
    """Keeps what the tags need that one transaction makes.

    Attributes:
        paths: what says that it is kept, which may not go from here on, relative to the lake's root.
    """

    def __init__(self, lake: Lake, tx: Transaction, written: Collection[str]) -> None:
        """Keep for the tags that a transaction makes, which writes the tables with these ids."""
        self._lake = lake
        self._tx = tx
        self._written = frozenset(written)
        self._tags: list[TagDdl] = [] if tx.is_replay else [d for d in tx.names.tag_ddl() if d.action == "create"]
        self._kept: set[str] = set()
        self.paths: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self._tags)

    def ahead(self) -> None:
        """Keep what tags name if nothing comes in between.

        Raises:
            LockstepError: see `up_to`.
        """
        if self._tags:
            self.up_to(self._lake.refresh())

    def up_to(self, head: Database) -> None:
        """Keep what tags name if their entry lands right behind this database version.

        Raises:
            ForeignCommitError: a table is set aside, so nobody knows what it is in that version.
            MissingFilesError: a table's log does not tell of it any more.
            UnavailableError, CorruptTimelineError: as the store and the timeline say; nothing was committed.
        """
        if not self._tags:
            return
        tables = [*self._named(head)]
        for table in tables:
            head.refuse_to_tag(table)
        by_path = {state_path(table.id, table.version): table for table in tables}
        keep(self._lake, [table for path, table in by_path.items() if path not in self._kept])
        self._kept |= by_path.keys()
        self.paths = frozenset(by_path)

    def _named(self, head: Database) -> Iterator[Table]:
        versions = {_named_before(ddl, head) for ddl in self._tags}
        for version in sorted(version for version in versions if version is not None):
            yield from self._lake.timeline.at(version).tables.values()
        if None not in versions:
            return
        names, base = self._tx.names, self._tx.base
        for table in head.tables.values():
            is_dropped = base.table_by_id(table.id) is not None and names.table_by_id(table.id) is None
            if not is_dropped and table.id not in self._written:
                yield table
        yield from (table for table in names.returned() if table.id not in self._written)


def _named_before(ddl: TagDdl, head: Database) -> int | None:
    """Return which database version up to this one a tag names; None if it is the one that comes.

    One beyond that there will not be, and the entry is refused.
    """
    return None if ddl.version is None or ddl.version > head.version else ddl.version


def keep_own(lake: Lake, entry: Entry) -> None:
    """Keep what an entry that is published wrote, if it makes a tag of itself.

    At best effort: what fails is told in the log, and `maintain` keeps it later.
    """
    own = (None, entry.version)
    if not entry.writes or not any(ddl.action == "create" and ddl.version in own for ddl in entry.tags):
        return
    try:
        database = lake.timeline.at(entry.version)
        written = [database.table_by_id(write.id) for write in entry.writes]
        keep(lake, [table for table in written if table is not None])
    except Exception as error:  # noqa: BLE001 (it is committed, whatever happens here)
        _log.warning("what a tag of database version %d needs is not kept yet: %s", entry.version, error)
