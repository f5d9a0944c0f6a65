"""Where Spark reads a version of a table that is not the newest: in its own log, or in what is kept for tags."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from lockstep.lake.kept_states import told_at
from lockstep.timeline.entry import NEW, Table

if TYPE_CHECKING:
    from lockstep.spark.host.lakehouses import Lakehouse
    from lockstep.spark.host.sessions import Session


def past_uri(house: Lakehouse, table: Table) -> str:
    """Return the URI under which a table shows an older version.

    Raises:
        UnavailableError, CorruptTimelineError: the store failed; what is kept cannot be read.
    """
    kept = _kept(house, table)
    return house.uris.head(table.location) if kept is None else house.uris.kept(table.location, table.version, kept)


def kept_beside(session: Session, house: Lakehouse, table: Table) -> str | None:
    """Return the folder of what is kept of a table that a transaction is to see together with the table's own log.

    It is that of the version which the table's log is taken back to; or of its snapshot's, if that is not the newest.

    Raises:
        UnavailableError, CorruptTimelineError: the store failed; what is kept cannot be read.
    """
    head = house.catalog.timeline.head
    if table.version == NEW:
        return None
    if (wanted := session.restored.get(table.id)) is not None:
        return _kept(house, structs.replace(table, version=wanted))
    current = head.table_by_id(table.id)
    return None if current is not None and current.version == table.version else _kept(house, table)


def _kept(house: Lakehouse, table: Table) -> str | None:
    told = told_at(house.catalog.lake.storage, table)
    return None if told == table.location else told
