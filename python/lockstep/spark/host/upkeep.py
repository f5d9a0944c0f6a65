"""The procedures that look after a lake: `expire_snapshots`, `vacuum`, `remove_orphan_files` and `maintain`."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from lockstep.commit.records import OpenRecord
from lockstep.errors import ActiveTransactionError, InvalidError
from lockstep.retention import upkeep
from lockstep.retention.compacting import shown, usable
from lockstep.retention.expiring import Expired, expire_snapshots
from lockstep.retention.floor import OPTIONS, check, check_since, kept_by, look, read_floor, set_floor
from lockstep.retention.upkeep import Swept
from lockstep.settings import ORPHAN_AGE, RETENTION_AGE, RETENTION_VERSIONS
from lockstep.spark.host.calls import micros
from lockstep.spark.host.protocol import procedures as protocol
from lockstep.spark.host.times import time_of
from lockstep.timeline.entry import Name, Namespace

if TYPE_CHECKING:
    from lockstep.spark.host.lakehouses import Lakehouse
    from lockstep.spark.host.sessions import Session

EXPIRED = {"expired_versions": "bigint", "oldest_version": "bigint", "deleted_entries": "bigint"}
SWEPT = {
    "tables": "bigint",
    "tables_kept_whole": "bigint",
    "deleted_files": "bigint",
    "deleted_bytes": "bigint",
    "waiting_files": "bigint",
    "waiting_bytes": "bigint",
}
KEPT = {
    "setting": "string",
    "kept": "string",
    "wanted": "string",
    "author": "string",
    "set_at": "timestamp",
    "statement": "string",
}
TYPES = {"age": "string", "versions": "int", "grace": "string", "orphan_age": "string"}
ARGUMENTS = {name: option.replace("-", "_") for name, option in OPTIONS.items()}
"""The parameters of `retention`: their types, and which setting each is for."""
COMPACTED = {"compacted_tables": "bigint", "compacted": "string"}


def expire(house: Lakehouse, own: Collection[OpenRecord], given: protocol.Arguments) -> protocol.Row:
    """Make older database versions unreadable."""
    older_than, last = given.get("older_than"), given.get("retain_last")
    lake = house.catalog.lake
    floor = read_floor(lake.storage)
    retention = kept_by(floor, house.kept_for)
    if isinstance(older_than, int):
        check_since(floor, RETENTION_AGE, time_of(older_than), lake.clock())
    if isinstance(last, int):
        check(floor, {RETENTION_VERSIONS.name: str(last)})
    return _expired(
        expire_snapshots(
            lake,
            older_than=time_of(older_than) if isinstance(older_than, int) else lake.clock() - retention.age,
            retain_last=last if isinstance(last, int) else retention.last,
            grace=retention.grace,
            own=own,
            dry_run=bool(given.get("dry_run")),
        )
    )


def vacuum(
    house: Lakehouse,
    own: Collection[OpenRecord],
    given: protocol.Arguments,
    table: Name | None,
    namespace: Namespace | None,
) -> protocol.Row:
    """Delete files that no version needs."""
    swept = upkeep.vacuum(
        house.catalog.lake,
        house.retention(),
        table=table,
        namespace=namespace,
        own=own,
        dry_run=bool(given.get("dry_run")),
    )
    return _swept(swept)


def orphans(house: Lakehouse, own: Collection[OpenRecord], given: protocol.Arguments) -> protocol.Row:
    """Delete litter."""
    older_than, lake = given.get("older_than"), house.catalog.lake
    floor = read_floor(lake.storage)
    if isinstance(older_than, int):
        check_since(floor, ORPHAN_AGE, time_of(older_than), lake.clock())
    swept = upkeep.remove_orphan_files(
        lake,
        kept_by(floor, house.kept_for),
        older_than=time_of(older_than) if isinstance(older_than, int) else None,
        own=own,
        dry_run=bool(given.get("dry_run")),
    )
    return _swept(swept)


def maintain(house: Lakehouse, own: Collection[OpenRecord], given: protocol.Arguments) -> protocol.Row:
    """Do all of it, but for the compaction, which is Delta's; a dry run says what that would be."""
    is_dry = bool(given.get("dry_run"))
    done = upkeep.maintain(house.catalog.lake, house.retention(), own=own, dry_run=is_dry)
    found = done.to_compact if _compacts(house, given) else ()
    compacted: protocol.Row = [len(found), shown(found)] if is_dry else [None, None]
    return [*_expired(done.expired), *_swept(done.swept), *compacted]


def to_compact(house: Lakehouse, given: protocol.Arguments) -> list[list[str]]:
    """Return the tables that `maintain` has Delta compact: all that can be used, unless call or setting say not to."""
    if given.get("dry_run") or not _compacts(house, given):
        return []
    names = [table.name for table in usable(house.catalog.lake.timeline.head)]
    return [[*name.namespace, name.table] for name in names]


def _compacts(house: Lakehouse, given: protocol.Arguments) -> bool:
    said = given.get("optimize")
    return house.compacts if said is None else bool(said)


def keep_at_least(house: Lakehouse, author: str, text: str, given: protocol.Arguments) -> list[protocol.Row]:
    """Say what the lake keeps at least, whoever looks after it, or set it where values are given."""
    storage = house.catalog.lake.storage
    wanted = {name: str(value) for name, argument in ARGUMENTS.items() if (value := given.get(argument)) is not None}
    found = look(storage, wanted)
    if wanted and not given.get("dry_run"):
        set_floor(house.catalog.lake, wanted, author=author, statement=text)
        found = look(storage, {})
    return [
        [each.name, each.value, each.wanted, each.author or None, micros(each.at), each.statement or None]
        for each in found
    ]


def refuse_inside(session: Session, house: Lakehouse, what: str, why: str = "what it deletes is gone") -> None:
    """Raise ActiveTransactionError (25001) inside a transaction: what is deleted does not come back by ROLLBACK."""
    if session.inside(house) is not None:
        raise ActiveTransactionError(f"{what} cannot run inside a transaction: {why}. COMMIT first")


def check_one(given: protocol.Arguments) -> None:
    """Raise InvalidError if both a table and a namespace are given."""
    if given.get("table") is not None and given.get("namespace") is not None:
        raise InvalidError("vacuum: table and namespace are given: expected one of them")


def _expired(found: Expired) -> protocol.Row:
    return [found.versions, found.after.first, found.entries]


def _swept(found: Swept) -> protocol.Row:
    return [
        *(found.tables, len(found.kept_whole)),
        *(found.deleted_files, found.deleted_bytes, found.waiting_files, found.waiting_bytes),
    ]
