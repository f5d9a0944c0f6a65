"""What tests of promotions share: a lake, a clone of it, and how to change and promote one."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from uuid import UUID

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.delta.combine.deletion_vectors import decode, file_name
from lockstep.exports.export import Asked, Exporter
from lockstep.exports.promote import Promoter
from lockstep.exports.promoted import Promoted
from lockstep.lake.verify import verify
from lockstep.retention.expiring import expire_snapshots
from lockstep.storage import Storage
from lockstep.timeline import fence
from lockstep.timeline.clock import Clock, utc_now
from tests.support.exports import ROWS, file, paths, serialize_rows, snapshot
from tests.support.lakes import location, named, open_catalog, remove, stage, stage_new
from tests.support.vectors import stored

NEW_ROWS = b"other"
"""The data of the files that a clone writes; as long as those of the lake."""
FIRST = UUID("11111111-2222-3333-4444-555555555555")
SECOND = UUID("66666666-2222-3333-4444-555555555555")


def build(store: Storage, clock: Clock = utc_now) -> TransactionalCatalog:
    """Return a lake: table a with the files p and `q r`, the latter with a deletion vector, and tables b and c."""
    catalog = open_catalog(store, clock=clock)
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


def file_names(catalog: TransactionalCatalog, name: str) -> list[str]:
    """Return the files of a table without the folder, named after a transaction, that a promotion has copies in."""
    return sorted(map(without_attempt, paths(catalog, name)))


def without_attempt(path: str) -> str:
    """Return a path without that folder."""
    return re.sub(r"(?:^|(?<=/))[0-9a-f]{24}/", "", path)


def content(catalog: TransactionalCatalog, name: str, file: str) -> bytes | None:
    """Return what is in a file of a table, wherever a promotion has put it."""
    [path] = [path for path in paths(catalog, name) if without_attempt(path) == file]
    return catalog.lake.storage.get(f"{location(catalog, name)}/{unquote(path)}")


def rewrite(clone: TransactionalCatalog) -> None:
    """Change what a clone has: a file for another in a, rows of one more, a new file in b, names."""
    [p, _] = sorted(path for path, _ in snapshot(clone, "a").files)
    change(clone, "a", remove(p, size=5), file("new"), operation="UPDATE")
    [old] = [body for (path, _), body in snapshot(clone, "a").files.items() if path.endswith("q%20r")]
    descriptor, vector = stored(serialize_rows(0, 1), 2, SECOND)
    clone.lake.storage.put(f"{location(clone, 'a')}/{file_name(SECOND)}", vector)
    tx = clone.begin()
    gone = remove(old["path"], size=5, deletionVector=old["deletionVector"])
    stage(clone, tx, "a", gone, {"add": {**old, "deletionVector": descriptor}}, operation="DELETE")
    stage(clone, tx, "b", file("more"), data=NEW_ROWS)
    stage_new(clone, tx, "sales.d", file("x"), file("y"), data=NEW_ROWS)
    tx.changing().drop_table(named("c"))
    tx.changing().rename_table(named("b"), named("c"))
    clone.commit(tx)


def check_promoted(catalog: TransactionalCatalog) -> None:
    """Check that a lake has what `rewrite` did, readable."""
    head = catalog.database()
    assert {str(name) for name in head.tables} == {"default.a", "default.c", "sales.d"}
    assert file_names(catalog, "a") == ["new", "q%20r"]
    assert file_names(catalog, "c") == ["more", "p"]
    assert file_names(catalog, "sales.d") == ["x", "y"]
    store, a = catalog.lake.storage, location(catalog, "a")
    [vector] = [body["deletionVector"] for body in snapshot(catalog, "a").files.values() if "deletionVector" in body]
    assert list(decode(vector, store.get, location=a, root=store.url)) == [0, 1]
    for table, path, data in (("a", "new", NEW_ROWS), ("a", "q%20r", ROWS), ("sales.d", "y", NEW_ROWS)):
        assert content(catalog, table, path) == data
    assert verify(store, catalog.timeline).differences == ()
