"""What is asked for: `vacuum`, `remove_orphan_files`, `maintain`, and a look at what there is. Nothing here decides.

Without Spark; `maintain` through Spark compacts tables beside this (`lockstep.spark.host.procedures`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from lockstep.commit.records import OpenRecord, open_transactions
from lockstep.errors import InvalidError, UndefinedError
from lockstep.lake.deletions import YOUNGEST
from lockstep.lake.lake import Lake
from lockstep.retention.ages import Retention
from lockstep.retention.compacting import Compactable, compactable
from lockstep.retention.deleting import Deleted, carry_out, totals
from lockstep.retention.expiring import Expired, expire_snapshots
from lockstep.retention.files import Kind
from lockstep.retention.kept import keep_late
from lockstep.retention.planning import EVERYTHING, ORPHANS, VACUUM, Plan, Scope, plan
from lockstep.timeline.database import Database
from lockstep.timeline.entry import Name, Namespace, Table
from lockstep.workers import Progress, silent


@dataclass(frozen=True, slots=True)
class Swept:
    """What became of files that nobody needs.

    Attributes:
        tables: how many tables were looked at.
        kept_whole: by location, why nothing of a table goes.
        deleted_files, deleted_bytes: what went; in a dry run, what would go.
        waiting_files, waiting_bytes: what is marked, and goes in a later run after the grace period.
        paths: what went, or would go: files, and folders with all that is in them.
        by_kind: how many files of each kind nobody needs.
    """

    tables: int
    kept_whole: dict[str, str]
    deleted_files: int
    deleted_bytes: int
    waiting_files: int
    waiting_bytes: int
    paths: tuple[str, ...]
    by_kind: dict[Kind, int]


@dataclass(frozen=True, slots=True)
class Maintained:
    """What `maintain` did.

    Attributes:
        to_compact: in a dry run, what Delta would compact if it were asked to; it is, through Spark.
    """

    expired: Expired
    swept: Swept
    to_compact: tuple[Compactable, ...] = ()


@dataclass(frozen=True, slots=True)
class Status:
    """What there is in a lake.

    Attributes:
        newest_version, oldest_version: the newest, and the oldest of the unbroken run up to it that can be read.
        kept_alone: older ones that can be read.
        committed_at: when the newest was committed.
        tables, views, tags: how many there are.
        transactions: those that are open and have written something.
        gone: how many of these belong to processes that have not been seen for a minute.
        set_aside: by table, why it cannot be used.
        kept_whole: by location, why nothing of a table may be deleted.
        reclaimable_files, reclaimable_bytes: what nobody needs, marked or not.
        leftovers: how many files of each kind that is.
    """

    newest_version: int
    oldest_version: int
    kept_alone: tuple[int, ...]
    committed_at: datetime
    tables: int
    views: int
    tags: int
    transactions: int
    gone: int
    set_aside: dict[str, str]
    kept_whole: dict[str, str]
    reclaimable_files: int
    reclaimable_bytes: int
    leftovers: dict[Kind, int]


def vacuum(
    lake: Lake,
    retention: Retention,
    *,
    table: Name | None = None,
    namespace: Namespace | None = None,
    own: Collection[OpenRecord] = (),
    dry_run: bool = False,
    progress: Progress = silent,
) -> Swept:
    """Delete what no version that can be read needs: of one table, of a namespace with all in it, or of all tables.

    Removed files stay for the table's `delta.deletedFileRetentionDuration`, logs for its `delta.logRetentionDuration`.

    Raises:
        UndefinedError: no such table, or no such namespace (3F000).
        InvalidError: both are given.
        UnavailableError, CorruptTimelineError: as the store and the timeline say; a later run goes on.
    """
    scope = Scope(VACUUM)
    if table is not None and namespace is not None:
        raise InvalidError("vacuum: a table and a namespace are given: expected one of them")
    if table is not None:
        scope = replace(scope, location=_table(lake.refresh(), table).location)
    if namespace is not None:
        if namespace not in lake.refresh().namespaces:
            raise UndefinedError(f"no namespace {'.'.join(namespace)}", sqlstate="3F000")
        scope = replace(scope, chosen=_inside(namespace))
    return _swept(lake, plan(lake, scope, retention, own), retention, dry_run=dry_run, progress=progress)


def remove_orphan_files(
    lake: Lake,
    retention: Retention,
    *,
    older_than: datetime | None = None,
    own: Collection[OpenRecord] = (),
    dry_run: bool = False,
    progress: Progress = silent,
) -> Swept:
    """Delete litter: files that no version names, what dead transactions staged, and folders of tables that are gone.

    A dead transaction is ended first, so that it can never commit.

    Args:
        older_than: what is younger stays; a time `Retention.orphan_age` ago by default.

    Raises:
        InvalidError: that is less than an hour ago, or has no time zone.
        UnavailableError, CorruptTimelineError: as the store and the timeline say; a later run goes on.
    """
    if older_than is not None:
        retention = replace(retention, orphan_age=_age(lake, older_than))
    scope = Scope(ORPHANS, orphan_age=retention.orphan_age)
    return _swept(lake, plan(lake, scope, retention, own), retention, dry_run=dry_run, progress=progress)


def maintain(
    lake: Lake,
    retention: Retention,
    *,
    own: Collection[OpenRecord] = (),
    dry_run: bool = False,
    progress: Progress = silent,
) -> Maintained:
    """Keep what tags need, expire versions, vacuum all tables and remove orphan files, as the settings say.

    Raises:
        UnavailableError, CorruptTimelineError: as the store and the timeline say; a later run goes on.
    """
    if not (dry_run or lake.refusal):
        lake.refresh()
        keep_late(lake)  # before anything goes that it is kept from
    expired = expire_snapshots(
        lake,
        older_than=lake.clock() - retention.age,
        retain_last=retention.last,
        grace=retention.grace,
        own=own,
        dry_run=dry_run,
        progress=progress,
    )
    scope = Scope(EVERYTHING, orphan_age=retention.orphan_age, is_everything=True)
    # What a dry run has not let expire, the run has by then.
    found = plan(lake, scope, retention, own, expired=expired.after if dry_run else None)
    swept = _swept(lake, found, retention, dry_run=dry_run, progress=progress)
    return Maintained(expired, swept, tuple(compactable(lake)) if dry_run else ())


def status(lake: Lake, retention: Retention) -> Status:
    """Look at a lake, all of its tables' folders too; nothing is changed but what any reader does.

    Raises:
        UnavailableError, CorruptTimelineError: as the store and the timeline say.
    """
    found = plan(lake, Scope(EVERYTHING, orphan_age=retention.orphan_age), retention)
    head, now = lake.newest(), lake.clock()  # with what is set aside
    records = open_transactions(lake)
    files, size = totals(found.doomed)
    names = {table.id: str(table.name) for table in head.tables.values()}
    return Status(
        newest_version=head.version,
        oldest_version=found.readable.first,
        kept_alone=tuple(sorted(found.readable.alone)),
        committed_at=head.committed_at,
        tables=len(head.tables),
        views=len(head.views),
        tags=len(head.tags),
        transactions=len(records),
        gone=sum(not record.is_alive(now) for record in records),
        set_aside={names.get(id_, id_): error.message for id_, error in head.set_aside.items()},
        kept_whole=dict(found.kept_whole),
        reclaimable_files=files,
        reclaimable_bytes=size,
        leftovers=_by_kind(found),
    )


def _swept(lake: Lake, found: Plan, retention: Retention, *, dry_run: bool, progress: Progress) -> Swept:
    deleted: Deleted = carry_out(lake, found, grace=retention.grace, dry_run=dry_run, progress=progress)
    deleted_files, deleted_bytes = totals(deleted.gone)
    waiting_files, waiting_bytes = totals(deleted.waiting)
    return Swept(
        tables=found.tables,
        kept_whole=dict(found.kept_whole),
        deleted_files=deleted_files,
        deleted_bytes=deleted_bytes,
        waiting_files=waiting_files,
        waiting_bytes=waiting_bytes,
        paths=tuple(each.path for each in deleted.gone),
        by_kind=_by_kind(found),
    )


def _by_kind(found: Plan) -> dict[Kind, int]:
    counts = Counter[Kind]()
    for each in found.doomed:
        counts[each.kind] += each.files
    return dict(counts)


def _table(database: Database, name: Name) -> Table:
    if (table := database.tables.get(name)) is None:
        raise UndefinedError(f"no table {name} in database version {database.version}")
    return table


def _inside(namespace: Namespace) -> Callable[[Table | None], bool]:
    return lambda table: table is not None and table.name.namespace[: len(namespace)] == namespace


def _age(lake: Lake, older_than: datetime) -> timedelta:
    if older_than.tzinfo is None:
        raise InvalidError(f"older_than is {older_than.isoformat()}, without a time zone")
    age = lake.clock() - older_than
    if age < YOUNGEST:
        raise InvalidError(
            f"older_than is {older_than.isoformat()}, which is less than an hour ago: what is so young may be what a "
            "statement is writing"
        )
    return age
