"""One writer, a process of its own, without Spark.

python -m tests.beside.writer KIND ROOT WAREHOUSE JOURNAL SEED SECONDS PAUSE COLUMNS AGE

    lockstep   a transaction of the core that appends a row to its tables, or puts it in the place of one in all of them
    python     a transaction of `lockstep.open` (`tests.beside.python_writer`)
    upkeep     `lockstep maintain`, with ages of some seconds
    delta-rs   somebody who knows nothing of a lake (`tests.beside.plain_writer`)

COLUMNS says whether they add columns, AGE for how many seconds upkeep keeps versions. Those with Spark are
`tests.beside.spark_writer`.
"""

from __future__ import annotations

import io
import json
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pyarrow import parquet

from lockstep.catalog import TransactionalCatalog
from lockstep.delta.snapshot import read_snapshot
from lockstep.errors import CommitUnknownError, LockstepError
from lockstep.retention.ages import Retention
from lockstep.retention.upkeep import maintain
from lockstep.transactions.transaction import Transaction
from tests.beside.journal import SHARED, Journal
from tests.beside.plain_writer import plainly
from tests.beside.python_writer import through_python
from tests.beside.rows import row
from tests.support.lakes import add, named, remove, stage

TABLES = SHARED
GRACE_SECONDS = 10
"""How long upkeep waits before it deletes a file that it has marked."""


def ages(age: float) -> dict[str, str]:
    """Return what upkeep keeps: hardly more than open transactions need.

    Args:
        age: so many seconds a transaction may take, or as many as the grace, if these are more. One that takes longer
            is refused: what others committed since it began, by which it is judged, has expired.
    """
    return {"retention-age": f"{age:g}s", "retention-versions": "1", "deletion-grace": f"{GRACE_SECONDS}s"}


def through_core(root: str, journal: Journal, ids: Iterator[str], chance: random.Random) -> Iterator[None]:
    """Append to several tables in one transaction; or remove the file of an earlier row of its own from all of them."""
    catalog = TransactionalCatalog.open(root)
    mine: list[tuple[str, int]] = []
    for id in ids:
        taken = mine.pop(chance.randrange(len(mine))) if mine and chance.random() < 0.3 else None
        tx = catalog.begin()
        if taken is not None and not _has_own_file(catalog, tx, taken[0]):
            taken = None  # somebody has compacted it, and to write the rest of that file anew is for the others
        was = None if taken is None else taken[0]
        journal.begin(id, "append" if was is None else "replace", TABLES, takes_back=was)
        buffer = io.BytesIO()
        parquet.write_table(row(id, was), buffer)
        try:
            for table in TABLES:
                actions = [add(f"{id}.parquet", size=len(buffer.getvalue()), stats=_statistics(id, was))]
                if taken is not None:
                    # Now: a vacuum by others would take it from under their readers if it had gone long ago.
                    gone = {"size": taken[1], "deletionTimestamp": int(time.time() * 1000)}
                    actions.append(remove(f"{taken[0]}.parquet", **gone))
                stage(catalog, tx, table, *actions, data=buffer.getvalue())
            catalog.commit(tx)
            journal.end(id, "done")
            mine.append((id, len(buffer.getvalue())))
        except CommitUnknownError as error:
            journal.end(id, "unknown", error)
        except LockstepError as error:
            catalog.rollback(tx) if tx.is_open else None
            journal.end(id, "refused", error)
        yield


def _statistics(id: str, was: str | None) -> str:
    """Return what a file of one row says of it: without that each predicate would have to read it."""
    values = {"id": id} if was is None else {"id": id, "was": was}
    counts = {"id": 0, "was": int(was is None)}
    return json.dumps({"numRecords": 1, "minValues": values, "maxValues": values, "nullCount": counts})


def _has_own_file(catalog: TransactionalCatalog, tx: Transaction, id: str) -> bool:
    """Say whether a row's file is there in all tables, as a transaction sees them; not where one cannot be used."""
    try:
        tables = [catalog.table(tx, named(name)) for name in TABLES]
    except LockstepError:
        return False
    snapshots = (read_snapshot(catalog.lake.storage, table.location, table.version) for table in tables)
    return all((f"{id}.parquet", None) in snapshot.files for snapshot in snapshots)


def upkeep(root: str, journal: Journal, ids: Iterator[str], age: float) -> Iterator[None]:
    """Have old versions expire, and what they alone needed go, as fast as that can be."""
    lake = TransactionalCatalog.open(root).lake
    for id in ids:
        journal.begin(id, "maintain", (), adds=False)
        try:
            maintain(lake, Retention.of(ages(age)))
            journal.end(id, "done")
        except LockstepError as error:
            journal.end(id, "refused", error)
        yield


def main(*arguments: str) -> None:
    kind, root, warehouse, journal, seed, seconds, pause, columns, age = arguments
    adds_columns = columns == "True"
    said, chance = Journal(Path(journal), kind), random.Random(seed)
    ids = (f"{seed}-{n}" for n in range(1_000_000))
    kinds: dict[str, Callable[[], Iterator[None]]] = {
        "lockstep": lambda: through_core(root, said, ids, chance),
        "python": lambda: through_python(root, said, ids, chance, adds_columns=adds_columns),
        "upkeep": lambda: upkeep(root, said, ids, float(age)),
        "delta-rs": lambda: plainly(Path(warehouse), said, ids, chance, adds_columns=adds_columns),
    }
    end = time.monotonic() + float(seconds)
    for _ in kinds[kind]():
        if time.monotonic() > end:
            return
        time.sleep(float(pause))


if __name__ == "__main__":
    assert named("a").table in TABLES
    main(*sys.argv[1:])
