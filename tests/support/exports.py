"""What tests of exports share: a lake with something of everything, its exports, and what is in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

from lockstep.catalog import TransactionalCatalog
from lockstep.delta.combine.deletion_vectors import file_name, serialize
from lockstep.delta.snapshot import Snapshot, read_snapshot
from lockstep.exports.export import Asked, Exported, Exporter
from lockstep.storage import Storage, open_storage
from lockstep.timeline.entry import ExportMode, TagDdl, ViewDefinition
from tests.support.faulty import FaultyStorage
from tests.support.lakes import add, named, open_catalog, stage, stage_new
from tests.support.vectors import stored

VECTOR_ID = UUID("11111111-2222-3333-4444-555555555555")
ROWS = b"rows!"
"""The data of the files here: five bytes, as their adds say."""


def file(path: str, **more: Any) -> dict[str, Any]:
    return add(path, size=len(ROWS), **more)


def build_lake(store: FaultyStorage) -> TransactionalCatalog:
    """Return a lake with a file that has a deletion vector and an odd name, a view, a namespace, and a tag."""
    catalog = open_catalog(store)
    catalog.run(lambda tx: tx.changing().create_namespace(("sales",), {"owner": "ada"}))
    tx = catalog.begin()
    descriptor, vector = stored(serialize_rows(0), 1, VECTOR_ID)
    orders = stage_new(catalog, tx, "sales.orders", file("p=a%20b/x.parquet", deletionVector=descriptor), data=ROWS)
    store.put(f"{orders}/p=a b/x.parquet", ROWS)
    store.put(f"{orders}/{file_name(VECTOR_ID)}", vector)
    stage_new(catalog, tx, "a", file("p"), data=ROWS)
    tx.changing().create_view(named("v"), ViewDefinition(text="SELECT 1", schema="{}"), replace=False)
    catalog.commit(tx)
    append_file(catalog, "a", "q")
    catalog.run(lambda tx: tx.changing().create_tag(TagDdl(action="create", name="eod", version=3, comment="end")))
    append_file(catalog, "a", "later")
    store.calls.clear()
    return catalog


def serialize_rows(*rows: int) -> bytes:
    from pyroaring import BitMap64

    return serialize(BitMap64(rows))


def append_file(catalog: TransactionalCatalog, name: str, path: str) -> None:
    tx = catalog.begin()
    stage(catalog, tx, name, file(path), data=ROWS)
    catalog.commit(tx)


def exporter(catalog: TransactionalCatalog, target: Storage | None = None) -> Exporter:
    """Return what exports a lake, into a store with faults if one is given."""

    def opened(url: str, create: bool) -> Storage:
        return target if target is not None and target.url == url else open_storage(url, create=create)

    return Exporter(catalog.lake, opened)


def export(catalog: TransactionalCatalog, to: Path, mode: ExportMode = "full", version: int | None = 3) -> Exported:
    return exporter(catalog).run(Asked(to=str(to), mode=mode, version=version))


def snapshot(catalog: TransactionalCatalog, name: str) -> Snapshot:
    table = catalog.database().tables[named(name)]
    return read_snapshot(catalog.lake.storage, table.location, table.version)


def opened(to: Path) -> TransactionalCatalog:
    return TransactionalCatalog.open(str(to))


def paths(catalog: TransactionalCatalog, name: str) -> list[str]:
    return sorted(path for path, _ in snapshot(catalog, name).files)


def tree_of(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
