"""Two tables that always say the same, and what happens to them beside a Spark that reads them."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import write_deltalake

from lockstep.catalog import TransactionalCatalog
from tests.support.lakes import NEW_TABLE, add, location, remove, stage, stage_new


def parquet(id: int) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table({"id": pa.array([id], pa.int64())}), out)
    return out.getvalue()


class Both:
    """Tables a and b with one row each, of the same id, and whoever changes them: another process, for all we know."""

    def __init__(self, root: Path) -> None:
        self.catalog = TransactionalCatalog.open(str(root), create=True)
        self.root = root
        self.id = 0
        self.create("a", "b")

    def create(self, *names: str) -> None:
        tx = self.catalog.begin()
        for name in names:
            stage_new(self.catalog, tx, name, *self._file(0), start=NEW_TABLE, data=parquet(0))
        self.catalog.commit(tx)

    def commit(self) -> None:
        """Give both rows the next id, in one transaction."""
        tx = self.catalog.begin(isolation="SNAPSHOT")
        for name in "ab":
            changes = [remove(f"{self.id}.parquet"), *self._file(self.id + 1)]
            stage(self.catalog, tx, name, *changes, data=parquet(self.id + 1))
        self.catalog.commit(tx)
        self.id += 1

    def plain_append(self, name: str, id: int) -> None:
        """Commit as delta-rs does."""
        self.catalog.database()
        rows = pa.table({"id": pa.array([id], pa.int64())})
        write_deltalake(self.root / location(self.catalog, name), rows, mode="append")

    def _file(self, id: int) -> list[dict[str, Any]]:
        return [add(f"{id}.parquet", size=len(parquet(id)))]
