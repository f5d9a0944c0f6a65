"""What delta-rs does to one table at a time, by its path, and knows nothing of a lake."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.schema import PrimitiveType

from tests.beside.journal import SHARED, STOPPED, TRACKED, VECTORS, Journal, compacting
from tests.beside.rows import CHANGES, SCHEMA, column_of, property_of, row

UPKEEP = ("compact", "z-order", "checkpoint", "vacuum", "dry vacuum")
ALTERATIONS = ("set a property", "add a column")
ALTERED = tuple(table for table in SHARED if table not in VECTORS)
"""Of a table with features of readers that delta-rs (1.6.6) alters it says that it may have variants as well.
Lockstep's Python does not write such a table any more."""

ABANDONED = (1, 1)
"""When a file was read and written last that a vacuum may delete: longer ago than any table keeps files for."""


def plainly(
    warehouse: Path, journal: Journal, ids: Iterator[str], chance: random.Random, *, adds_columns: bool
) -> Iterator[None]:
    """Do to one table what delta-rs can do.

    Args:
        adds_columns: whether there may be columns that not all rows have; Spark's `REPLACE WHERE` wants all.
    """
    mine: dict[str, list[str]] = {table: [] for table in (*SHARED, *TRACKED)}
    for id in ids:
        table, share = chance.choice(SHARED), chance.random()
        taken, adds = None, True
        if share < 0.17:
            kind, adds = chance.choice(UPKEEP), False
            table = chance.choice(TRACKED) if kind in ("checkpoint", "dry vacuum") else table
        elif share < 0.19:
            kind, table = chance.choice(ALTERATIONS if adds_columns else ALTERATIONS[:1]), chance.choice(ALTERED)
        elif share < 0.57 and mine[table]:
            taken, kind = mine[table].pop(chance.randrange(len(mine[table]))), chance.choice(CHANGES)
            adds = kind != "delete"
        else:
            kind = "append"
        if (warehouse / f"{table}{STOPPED}").exists():
            mine[table] += [] if taken is None else [taken]
            time.sleep(0.05)
            yield
            continue
        journal.begin(id, kind, [table], takes_back=taken, adds=adds)
        try:
            by_delta_rs(str(warehouse / table), kind, id, taken)
            journal.end(id, "done")
            mine[table] += [id] if adds and kind not in ALTERATIONS else []
        except DeltaError as error:
            is_conflict = isinstance(error, CommitFailedError) and str(error).startswith("Failed to commit transaction")
            journal.end(id, "refused" if is_conflict else "unknown", error)
        yield


def by_delta_rs(folder: str, kind: str, id: str, taken: str | None) -> None:
    """Do one thing to a table."""
    table = DeltaTable(folder)
    if kind == "append":
        write_deltalake(table, row(id), mode="append", schema_mode="merge")
    elif kind == "overwrite":
        predicate = f"id IN ('{taken}', '{id}')"
        write_deltalake(table, row(id, taken), mode="overwrite", predicate=predicate, schema_mode="merge")
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
        merge.when_matched_delete().when_not_matched_insert({"id": "s.id", "was": "s.was"}).execute()
    elif kind == "set a property":
        table.alter.set_table_properties({property_of(id): "set"}, raise_if_not_exists=False)
    elif kind == "add a column":
        table.alter.add_columns(Field(column_of(id), PrimitiveType("string")))
    else:
        _look_after(table, Path(folder), kind, id)


def _look_after(table: DeltaTable, folder: Path, kind: str, id: str) -> None:
    """Compact a table, or have a checkpoint, or a vacuum."""
    if kind in ("compact", "z-order"):
        with compacting(folder.parent, [folder.name], alone=True):
            optimize = DeltaTable(str(folder)).optimize
            optimize.compact() if kind == "compact" else optimize.z_order(["id"])
    elif kind == "checkpoint":
        table.create_checkpoint()
    else:
        abandoned = folder / f"abandoned-{id}.parquet"
        abandoned.touch()
        os.utime(abandoned, ABANDONED)
        is_dry = kind == "dry vacuum"
        found = table.vacuum(dry_run=is_dry, full=True)
        if is_dry:
            assert abandoned.name in found, f"a vacuum of {folder} would leave {abandoned.name}: {found}"
            assert abandoned.exists(), f"a dry vacuum of {folder} has deleted {abandoned.name}"
            abandoned.unlink()
        else:
            assert not abandoned.exists(), f"a vacuum of {folder} has left {abandoned.name}"
