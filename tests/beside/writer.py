"""One writer, a process of its own: `python -m tests.beside.writer KIND ROOT WAREHOUSE JOURNAL SEED SECONDS PAUSE`.

    lockstep   a transaction of the core that appends a row to both tables, or puts it in the place of one in both
    python     a transaction of `lockstep.open`: a row into all tables, one taken back from all, or one changed in all
    upkeep     `lockstep maintain`, with ages of some seconds
    delta-rs   the same as python of one table, its compaction or a checkpoint, by somebody who knows nothing of a lake

Those with Spark are `tests.beside.spark_writer`.
"""

from __future__ import annotations

import io
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError
from pyarrow import parquet

import lockstep
from lockstep.catalog import TransactionalCatalog
from lockstep.delta.snapshot import read_snapshot
from lockstep.errors import CommitUnknownError, LockstepError
from lockstep.retention.ages import Retention
from lockstep.retention.upkeep import maintain
from lockstep.tables.table import TransactionTable
from lockstep.transactions.transaction import Transaction
from tests.beside.journal import SHARED, STOPPED, Journal, compacting
from tests.support.lakes import add, named, remove, stage

TABLES = SHARED
SCHEMA = pa.schema([("id", pa.string()), ("was", pa.string())])
CHANGES = ("delete", "update", "merge", "merge anew", "overwrite")
"""What is done about a row: all but the first put another in its place."""

SHORT = {"retention-age": "1s", "retention-versions": "1", "deletion-grace": "10s"}
"""What upkeep keeps: hardly more than open transactions need. A transaction whose first statement takes longer than the
grace, as Spark's may, is refused: nobody else knows yet that it is open."""


def row(id: str, was: str | None = None) -> pa.Table:
    """Return a row, which took the place of another or not."""
    return pa.table({"id": [id], "was": [was]}, schema=SCHEMA)


def through_core(root: str, journal: Journal, ids: Iterator[str], chance: random.Random) -> Iterator[None]:
    """Append to both tables in one transaction; or remove the file of an earlier row of its own from both."""
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
                actions = [add(f"{id}.parquet", size=len(buffer.getvalue()))]
                if taken is not None:
                    actions.append(remove(f"{taken[0]}.parquet", size=taken[1]))
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


def _has_own_file(catalog: TransactionalCatalog, tx: Transaction, id: str) -> bool:
    """Say whether a row's file is there in both tables, as a transaction sees them; not where one cannot be used."""
    try:
        tables = [catalog.table(tx, named(name)) for name in TABLES]
    except LockstepError:
        return False
    snapshots = (read_snapshot(catalog.lake.storage, table.location, table.version) for table in tables)
    return all((f"{id}.parquet", None) in snapshot.files for snapshot in snapshots)


def through_python(root: str, journal: Journal, ids: Iterator[str], chance: random.Random) -> Iterator[None]:
    """Do the same to all tables of the lake in one transaction, by each kind of write that the Python API has."""
    lake = lockstep.open(root)
    tables = [name.table for name in lake.at().tables]
    mine: list[str] = []
    for id in ids:
        taken = mine.pop(chance.randrange(len(mine))) if mine and chance.random() < 0.5 else None
        kind = "append" if taken is None else chance.choice(CHANGES)
        adds = kind != "delete"
        journal.begin(id, kind, tables, takes_back=taken, adds=adds)
        try:
            with lake.transaction(comment=kind) as tx:
                for table in tables:
                    write(tx[f"default.{table}"], kind, id, taken)
            journal.end(id, "done")
            mine += [id] if adds else []
        except CommitUnknownError as error:
            journal.end(id, "unknown", error)
        except LockstepError as error:
            journal.end(id, "refused", error)
        yield


def write(table: TransactionTable, kind: str, id: str, taken: str | None) -> None:
    """Add a row, or put it in the place of another, or only take that one back."""
    if kind == "append":
        table.append(row(id))
    elif kind == "delete":
        table.delete(f"id = '{taken}'")
    elif kind == "update":
        table.update({"id": f"'{id}'", "was": "id"}, where=f"id = '{taken}'")
    elif kind == "overwrite":
        table.overwrite(row(id, taken), where=f"id IN ('{taken}', '{id}')")
    elif kind == "merge":
        rows = pa.table({"id": [taken], "was": [id]})
        table.merge(rows, on="id").when_matched_update({"id": "source.was", "was": "source.id"}).execute()
    else:
        rows = pa.table({"id": [taken, id], "was": [None, taken]}, schema=SCHEMA)
        table.merge(rows, on="id").when_matched_delete().when_not_matched_insert_all().execute()


def upkeep(root: str, journal: Journal, ids: Iterator[str]) -> Iterator[None]:
    """Have old versions expire, and what they alone needed go, as fast as that can be."""
    lake = TransactionalCatalog.open(root).lake
    for id in ids:
        journal.begin(id, "maintain", (), adds=False)
        try:
            maintain(lake, Retention.of(SHORT))
            journal.end(id, "done")
        except LockstepError as error:
            journal.end(id, "refused", error)
        yield


def plainly(warehouse: Path, journal: Journal, ids: Iterator[str], chance: random.Random) -> Iterator[None]:
    """Do to one table what delta-rs can do."""
    mine: dict[str, list[str]] = {table: [] for table in TABLES}
    for id in ids:
        table, rows = chance.choice(TABLES), chance.random()
        taken = None
        if (warehouse / f"{table}{STOPPED}").exists():
            time.sleep(0.05)
            yield
            continue
        if rows < 0.15:
            kind, adds = chance.choice(("compact", "checkpoint")), False
        elif rows < 0.55 and mine[table]:
            taken, kind = mine[table].pop(chance.randrange(len(mine[table]))), chance.choice(CHANGES)
            adds = kind != "delete"
        else:
            kind, adds = "append", True
        journal.begin(id, kind, [table], takes_back=taken, adds=adds)
        try:
            by_delta_rs(str(warehouse / table), kind, id, taken)
            journal.end(id, "done")
            mine[table] += [id] if adds else []
        except DeltaError as error:
            is_conflict = isinstance(error, CommitFailedError) and str(error).startswith("Failed to commit transaction")
            journal.end(id, "refused" if is_conflict else "unknown", error)
        yield


def by_delta_rs(folder: str, kind: str, id: str, taken: str | None) -> None:
    """Do one thing to a table."""
    table = DeltaTable(folder)
    if kind == "append":
        write_deltalake(table, row(id), mode="append")
    elif kind == "overwrite":
        write_deltalake(table, row(id, taken), mode="overwrite", predicate=f"id IN ('{taken}', '{id}')")
    elif kind == "delete":
        table.delete(f"id = '{taken}'")
    elif kind == "update":
        table.update({"id": f"'{id}'", "was": "id"}, predicate=f"id = '{taken}'")
    elif kind == "merge":
        merge = table.merge(row(id, taken), "t.id = s.was", source_alias="s", target_alias="t")
        merge.when_matched_update({"id": "s.id", "was": "s.was"}).execute()
    elif kind == "merge anew":
        rows = pa.table({"id": [taken, id], "was": [None, taken]}, schema=SCHEMA)
        merge = table.merge(rows, "t.id = s.id", source_alias="s", target_alias="t")
        merge.when_matched_delete().when_not_matched_insert_all().execute()
    elif kind == "compact":
        with compacting(Path(folder).parent, [Path(folder).name], alone=True):
            DeltaTable(folder).optimize.compact()
    else:
        table.create_checkpoint()


def main(*arguments: str) -> None:
    kind, root, warehouse, journal, seed, seconds, pause = arguments
    said, chance = Journal(Path(journal), kind), random.Random(seed)
    ids = (f"{seed}-{n}" for n in range(1_000_000))
    kinds: dict[str, Callable[[], Iterator[None]]] = {
        "lockstep": lambda: through_core(root, said, ids, chance),
        "python": lambda: through_python(root, said, ids, chance),
        "upkeep": lambda: upkeep(root, said, ids),
        "delta-rs": lambda: plainly(Path(warehouse), said, ids, chance),
    }
    end = time.monotonic() + float(seconds)
    for _ in kinds[kind]():
        if time.monotonic() > end:
            return
        time.sleep(float(pause))


if __name__ == "__main__":
    assert named("a").table in TABLES
    main(*sys.argv[1:])
