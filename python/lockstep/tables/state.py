"""A table as a transaction sees it: its log up to the pin, and the commits that the transaction staged."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from copy import copy
from dataclasses import fields, replace
from typing import Any

from lockstep.caches import MIB, Cache
from lockstep.delta.actions import Action, bodies, parse
from lockstep.delta.log import read_published, read_staged, state_at
from lockstep.delta.snapshot import Snapshot, read_snapshot
from lockstep.errors import LockstepError
from lockstep.storage import Storage
from lockstep.tables.layout import BY_DOMAINS, Layout, layout_of
from lockstep.timeline.entry import NEW, Table
from lockstep.transactions.transaction import Transaction

KEPT_BYTES = 128 * MIB
"""So much of what tables' logs say is kept between transactions: of some 50,000 files with usual statistics."""

STEPS = 100
"""A state that is kept is carried on over so many commits; more are read anew, from a checkpoint perhaps."""


class States:
    """What tables' logs come to, kept between the transactions of a lake; safe to share between threads.

    By the tables' ids: a folder whose log was settled, or that was adopted again, is another table (`lockstep settle`).
    """

    def __init__(self, storage: Storage) -> None:
        """Read the logs of a lake's tables."""
        self._storage = storage
        self._kept = Cache[str, tuple[int, Snapshot]](KEPT_BYTES)
        self._lock = threading.Lock()

    def layout(self, tx: Transaction, table: Table) -> Layout:
        """Return a table's layout, which takes no list of its files but for features that act through domains.

        Raises:
            UnsupportedError, CorruptTimelineError, MissingFilesError, UnavailableError: it cannot be read.
        """
        protocol: Mapping[str, Any] | None = None
        metadata: Mapping[str, Any] | None = None
        for version in reversed(tx.staged.get(table.id, [])):
            commit = self._staged(tx, table, version)
            protocol = protocol or next(iter(bodies(commit, "protocol")), None)
            metadata = metadata or next(iter(bodies(commit, "metaData")), None)
        if protocol is None or metadata is None:
            at_pin = state_at(self._storage, table.location, table.version)
            if at_pin is None:
                snapshot = self._published(table)
                protocol, metadata = protocol or snapshot.protocol, metadata or snapshot.metadata
            else:
                protocol, metadata = protocol or at_pin.protocol, metadata or at_pin.metadata
        layout = layout_of(str(table.name), protocol, metadata)
        return replace(layout, domains=self.snapshot(tx, table).domains) if layout.features & BY_DOMAINS else layout

    def snapshot(self, tx: Transaction, table: Table) -> Snapshot:
        """Return a table as a transaction sees it, with all its files; the caller may not change it.

        Raises:
            UnsupportedError, CorruptTimelineError, MissingFilesError, UnavailableError: it cannot be read.
        """
        snapshot = Snapshot() if table.version == NEW else self._published(table)
        if versions := tx.staged.get(table.id):
            snapshot = _copied(snapshot)
            for version in versions:
                snapshot.take(self._staged(tx, table, version))
        return snapshot

    def commit_time(self, tx: Transaction, table: Table) -> int:
        """Return when a table's last commit says that it was made, in ms since 1970: 0 where it does not, or is none.

        Raises:
            CorruptTimelineError, UnavailableError: it cannot be read.
        """
        if versions := tx.staged.get(table.id):
            commit = self._staged(tx, table, versions[-1])
        elif table.version == NEW:
            return 0
        else:
            commit = read_published(self._storage, table.location, table.version)
        return max((int(info.get("inCommitTimestamp") or 0) for info in bodies(commit, "commitInfo")), default=0)

    def _staged(self, tx: Transaction, table: Table, version: int) -> list[Action]:
        content = tx.staged_content(table, version)
        return read_staged(self._storage, table.location, tx.id, version) if content is None else parse(content)

    def _published(self, table: Table) -> Snapshot:
        kept = self._kept.get(table.id)
        if kept is not None and kept[0] == table.version:
            return kept[1]
        snapshot = self._carried_on(kept, table) or read_snapshot(self._storage, table.location, table.version)
        with self._lock:
            newest = self._kept.get(table.id)
            if newest is None or newest[0] < table.version:
                self._kept.keep(table.id, (table.version, snapshot), size=snapshot.size)
        return snapshot

    def _carried_on(self, kept: tuple[int, Snapshot] | None, table: Table) -> Snapshot | None:
        """Return a state that is kept with the commits since, None where it is to be read anew."""
        if kept is None or not 0 < table.version - kept[0] <= STEPS:
            return None
        snapshot = _copied(kept[1])
        try:
            for version in range(kept[0] + 1, table.version + 1):
                snapshot.take(read_published(self._storage, table.location, version))
        except LockstepError:  # cleaned up, perhaps: a checkpoint says it, or reading anew says what is wrong
            return None
        return snapshot


def _copied(snapshot: Snapshot) -> Snapshot:
    return Snapshot(**{field.name: copy(getattr(snapshot, field.name)) for field in fields(Snapshot)})
