"""One writer, a process of its own: `python -m tests.beside.writer KIND ROOT WAREHOUSE JOURNAL SEED SECONDS PAUSE`.

    lockstep   a transaction of the core that appends a row to both tables, or takes one back from both
    python     a transaction of `lockstep.open`: a row into all tables, one taken back from all, or one changed in all
    delta-rs   an append to one table, or a delete from it, that knows nothing of any lake

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
from deltalake.exceptions import DeltaError
from pyarrow import parquet

import lockstep
from lockstep.catalog import TransactionalCatalog
from lockstep.errors import CommitUnknownError, ConflictError, LockstepError
from lockstep.tables.table import TransactionTable
from tests.beside.journal import SHARED, Journal
from tests.support.lakes import add, named, remove, stage

TABLES = SHARED


def row(id: str) -> pa.Table:
    return pa.table({"id": pa.array([id], pa.string())})


def through_lockstep(root: str, journal: Journal, ids: Iterator[str], chance: random.Random) -> Iterator[None]:
    """Append to both tables in one transaction; or remove the file of an earlier row of its own from both."""
    catalog = TransactionalCatalog.open(root)
    mine: list[tuple[str, int]] = []
    for id in ids:
        taken = mine.pop(chance.randrange(len(mine))) if mine and chance.random() < 0.3 else None
        journal.say(id=id, tables=TABLES, takes_back=None if taken is None else taken[0])
        buffer = io.BytesIO()
        parquet.write_table(row(id), buffer)
        tx = catalog.begin()
        try:
            for table in TABLES:
                actions = [add(f"{id}.parquet", size=len(buffer.getvalue()))]
                if taken is not None:
                    actions.append(remove(f"{taken[0]}.parquet", size=taken[1]))
                stage(catalog, tx, table, *actions, data=buffer.getvalue())
            catalog.commit(tx)
            journal.say(id=id, answer="done")
            mine.append((id, len(buffer.getvalue())))
        except CommitUnknownError:
            journal.say(id=id, answer="unknown")
        except (ConflictError, LockstepError) as error:
            catalog.rollback(tx) if tx.is_open else None
            journal.say(id=id, answer="refused", why=str(error)[:200])
        yield


def through_python(root: str, journal: Journal, ids: Iterator[str], chance: random.Random) -> Iterator[None]:
    """Do the same to all tables of the lake in one transaction, by each kind of write that the Python API has."""
    lake = lockstep.open(root)
    tables = [name.table for name in lake.at().tables]
    mine: list[str] = []
    for id in ids:
        taken = mine.pop(chance.randrange(len(mine))) if mine and chance.random() < 0.5 else None
        kind = "append" if taken is None else chance.choice(("delete", "update", "merge", "overwrite"))
        adds = kind != "delete"
        journal.say(id=id, tables=tables, takes_back=taken, adds=adds)
        try:
            with lake.transaction(comment=kind) as tx:
                for table in tables:
                    write(tx[f"default.{table}"], kind, id, taken)
            journal.say(id=id, answer="done")
            mine += [id] if adds else []
        except CommitUnknownError:
            journal.say(id=id, answer="unknown")
        except LockstepError as error:
            journal.say(id=id, answer="refused", why=str(error)[:200])
        yield


def write(table: TransactionTable, kind: str, id: str, taken: str | None) -> None:
    """Add a row, or put it in the place of another, or only take that one back."""
    if kind == "append":
        table.append(row(id))
    elif kind == "delete":
        table.delete(f"id = '{taken}'")
    elif kind == "update":
        table.update({"id": f"'{id}'"}, where=f"id = '{taken}'")
    elif kind == "overwrite":
        table.overwrite(row(id), where=f"id IN ('{taken}', '{id}')")
    else:
        rows = pa.table({"id": [taken, id]})
        table.merge(rows, on="id").when_matched_delete().when_not_matched_insert_all().execute()


def plainly(warehouse: Path, journal: Journal, ids: Iterator[str], chance: random.Random) -> Iterator[None]:
    """Append to one table; or delete an earlier row of its own from it."""
    mine: list[tuple[str, str]] = []
    for id in ids:
        table = chance.choice(TABLES)
        taken = mine.pop(chance.randrange(len(mine))) if mine and chance.random() < 0.3 else None
        table = table if taken is None else taken[1]
        journal.say(id=id, tables=[table], takes_back=None if taken is None else taken[0], adds=taken is None)
        folder = str(warehouse / table)
        try:
            if taken is None:
                write_deltalake(folder, row(id), mode="append")
                mine.append((id, table))
            else:
                DeltaTable(folder).delete(f"id = '{taken[0]}'")
            journal.say(id=id, answer="done")
        except DeltaError as error:
            journal.say(id=id, answer="unknown", why=str(error)[:200])
        yield


def main(*arguments: str) -> None:
    kind, root, warehouse, journal, seed, seconds, pause = arguments
    said, chance = Journal(Path(journal)), random.Random(seed)
    ids = (f"{seed}-{n}" for n in range(1_000_000))
    kinds: dict[str, Callable[[], Iterator[None]]] = {
        "lockstep": lambda: through_lockstep(root, said, ids, chance),
        "python": lambda: through_python(root, said, ids, chance),
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
