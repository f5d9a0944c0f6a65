"""`python -m tests.support.caretakers ROLE ROOT NAME`: a process on a lake that others write, read and clean up.

    write       replaces the table's oldest file by a new one, a transaction each, and says what became of it
    abort       ends every open transaction that it is told of, and says which it ended and which were too late
    read        is open for long at a time, and says which files of its snapshot were not there all the while, and
                whether it had told of itself in time
    maintain    lets versions expire, and deletes what nobody needs, and says what went

Each line that it prints is JSON. No Spark: a table's rows are of no matter here, its files are.
"""

from __future__ import annotations

import json
import sys
import time
from datetime import timedelta

from lockstep.catalog import TransactionalCatalog
from lockstep.commit import records
from lockstep.delta.snapshot import read_snapshot
from lockstep.errors import (
    CancelledError,
    ConflictError,
    LockstepError,
    MissingFilesError,
    SnapshotTooOldError,
    TransactionStateError,
    UndefinedError,
)
from lockstep.retention import planning
from lockstep.retention.ages import Retention
from lockstep.retention.upkeep import maintain
from lockstep.storage import open_storage
from lockstep.timeline import fence
from lockstep.transactions.transaction import Transaction
from tests.support.lakes import add, metadata, named, open_catalog, remove, stage, stage_new

STOP = "_lockstep/stop"
"""All of them go on until there is such a file."""

TABLE = "a"
FILES = 3
GRACE = timedelta(seconds=0.4)
"""A reader may have begun so long ago without anybody knowing; here it says so at once."""

OPEN_SECONDS = 3.0
RETENTION = Retention(age=timedelta(), last=3, grace=GRACE, orphan_age=timedelta(hours=1))


def say(**what: object) -> None:
    print(json.dumps(what), flush=True)


def make(root: str) -> None:
    """Make the lake: a table whose removed files may go at once."""
    catalog = open_catalog(open_storage(root, create=True))
    at_once = metadata(**{"delta.deletedFileRetentionDuration": "interval 0 seconds"})
    protocol = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
    tx = catalog.begin()
    stage_new(catalog, tx, TABLE, *(add(f"0-{n}", modificationTime=0) for n in range(FILES)), start=[protocol, at_once])
    catalog.commit(tx)


def paths(catalog: TransactionalCatalog, tx: Transaction) -> list[str]:
    table = tx.table(named(TABLE))
    return sorted(path for path, _ in read_snapshot(catalog.lake.storage, table.location, table.version).files)


def tell(catalog: TransactionalCatalog, tx: Transaction, name: str) -> None:
    records.write(catalog.lake, records.record_of(tx, now=catalog.lake.clock(), process=name))


def write(catalog: TransactionalCatalog, name: str) -> None:
    number = 0
    while not catalog.lake.storage.exists(STOP):
        number += 1
        tx = catalog.begin()
        tell(catalog, tx, name)
        new = f"{int(time.time() * 1000):015d}-{name}-{number}"
        try:
            stage(catalog, tx, TABLE, remove(paths(catalog, tx)[0]), add(new), operation="UPDATE")
            say(committed=tx.id, version=catalog.commit(tx).version)
        except CancelledError:
            say(cancelled=tx.id)
        except (ConflictError, MissingFilesError, SnapshotTooOldError) as error:
            say(refused=tx.id, sqlstate=error.sqlstate)
            if tx.is_open:
                catalog.rollback(tx)
        records.remove(catalog.lake, tx.id)


def abort(catalog: TransactionalCatalog, name: str) -> None:
    while not catalog.lake.storage.exists(STOP):
        for record in records.open_transactions(catalog.lake):
            try:
                entry = records.abort(catalog.lake, record.transaction, author=name, statement="abort")
            except (TransactionStateError, UndefinedError) as error:
                say(late=record.transaction, sqlstate=error.sqlstate)
            else:
                say(aborted=record.transaction, version=entry.version)
        time.sleep(0.05)  # else nobody would ever commit


def read(catalog: TransactionalCatalog, name: str) -> None:
    while not catalog.lake.storage.exists(STOP):
        tx = catalog.begin()
        tell(catalog, tx, name)
        is_told_in_time = is_in_grace(catalog, tx.base.version)
        location, files, until = tx.table(named(TABLE)).location, paths(catalog, tx), time.monotonic() + OPEN_SECONDS
        looks, missing = 0, set[str]()
        while time.monotonic() < until:
            looks += 1
            missing |= {path for path in files if not catalog.lake.storage.exists(f"{location}/{path}")}
        say(read=tx.base.version, in_time=is_told_in_time, looks=looks, missing=sorted(missing))
        catalog.rollback(tx)
        records.remove(catalog.lake, tx.id)


def is_in_grace(catalog: TransactionalCatalog, version: int) -> bool:
    """Tell whether a version stays even if nobody knows of its readers: it was the newest so short a time ago.

    That it was is counted from the time which its successor says; a busy machine may take long to write that down.
    """
    catalog.database()
    try:
        newer = catalog.timeline.entries(version)[:1]
    except SnapshotTooOldError:
        return False
    return all(catalog.lake.clock() - entry.committed_at < GRACE for entry in newer)


def look_after(catalog: TransactionalCatalog, name: str) -> None:
    setattr(planning, "YOUNGEST", timedelta())  # noqa: B010 (mypy: as if an hour had gone by since each was removed)
    while not catalog.lake.storage.exists(STOP):
        try:
            done = maintain(catalog.lake, RETENTION)
        except SnapshotTooOldError as error:  # of so few versions that are kept, all that it saw may expire meanwhile
            say(by_next_run=name, why=error.message)
            continue
        say(
            by=name, gone=[path for path in done.swept.paths if "_lockstep" not in path], first=done.expired.after.first
        )


def main() -> None:
    """Play a role."""
    role, root, name = sys.argv[1:]
    fence.GRACE_SECONDS = GRACE.total_seconds()
    roles = {"write": write, "abort": abort, "read": read, "maintain": look_after}
    try:
        roles[role](open_catalog(open_storage(root)), name)
    except LockstepError as error:
        say(failed=name, error=str(error))
        raise


if __name__ == "__main__":
    main()
