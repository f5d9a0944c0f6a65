"""What tests of promotions share: a lake, a clone of it, and how to change and promote one."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.delta.combine.deletion_vectors import file_name
from lockstep.exports.export import Asked, Exporter
from lockstep.exports.promote import Promoter
from lockstep.exports.promoted import Promoted
from lockstep.retention.expiring import expire_snapshots
from lockstep.timeline import fence
from tests.support.exports import ROWS, file, serialize_rows
from tests.support.faulty import FaultyStorage
from tests.support.lakes import open_catalog, stage, stage_new
from tests.support.vectors import stored

NEW_ROWS = b"other"
"""The data of the files that a clone writes; as long as those of the lake."""
FIRST = UUID("11111111-2222-3333-4444-555555555555")


def build(store: FaultyStorage) -> TransactionalCatalog:
    """Return a lake: table a with the files p and `q r`, the latter with a deletion vector, and tables b and c."""
    catalog = open_catalog(store)
    catalog.run(lambda tx: tx.changing().create_namespace(("sales",), {}))
    tx = catalog.begin()
    descriptor, vector = stored(serialize_rows(0), 1, FIRST)
    a = stage_new(catalog, tx, "a", file("p"), file("q%20r", deletionVector=descriptor), data=ROWS)
    store.put(f"{a}/q r", ROWS)
    store.put(f"{a}/{file_name(FIRST)}", vector)
    for name in ("b", "c"):
        stage_new(catalog, tx, name, file("p"), data=ROWS)
    catalog.commit(tx)
    return catalog


def clone_to(catalog: TransactionalCatalog, to: Path, version: int | None = None) -> TransactionalCatalog:
    """Return a new clone of a lake."""
    Exporter(catalog.lake).run(Asked(to=str(to), mode="partial", version=version))
    return TransactionalCatalog.open(str(to))


def change(catalog: TransactionalCatalog, name: str, *actions: dict[str, Any], operation: str = "WRITE") -> None:
    """Commit actions to a table."""
    tx = catalog.begin()
    stage(catalog, tx, name, *actions, operation=operation, data=NEW_ROWS)
    catalog.commit(tx)


def let_expire(catalog: TransactionalCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all versions of a lake but the newest expire; no process uses it but this one."""
    monkeypatch.setattr(fence, "GRACE_SECONDS", 0.0)
    expire_snapshots(catalog.lake, older_than=catalog.lake.clock(), retain_last=1, grace=timedelta())


def promote(clone: TransactionalCatalog, catalog: TransactionalCatalog, *, dry_run: bool = False) -> Promoted:
    """Promote a clone."""
    return Promoter(clone.lake, catalog.lake, author="ada", statement="promote").run(dry_run=dry_run)
