"""Copies of a lake with adopted tables: an export has them in its own folders, and what a clone changed comes back."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.delta.combine.deletion_vectors import file_name
from lockstep.exports.export import Asked, Exporter
from lockstep.exports.importing import import_minimal
from lockstep.exports.promote import Promoter
from lockstep.timeline.entry import ExportMode
from lockstep.transactions.folders import is_own
from tests.support.adopting import adopted, files_of, written_log
from tests.support.exports import ROWS, file, paths, serialize_rows
from tests.support.lakes import named, remove, stage
from tests.support.vectors import stored

VECTOR = UUID("11111111-2222-3333-4444-555555555555")


@pytest.fixture(params=["warehouse", "inside"])
def folder(request: pytest.FixtureRequest) -> Path:
    """A partitioned table that somebody made: the file x, which has a deletion vector, and y."""
    place: Path = request.getfixturevalue(request.param)
    descriptor, vector = stored(serialize_rows(0), 1, VECTOR)
    adds = file("p=a%20b/x", deletionVector=descriptor), file("p=c/y")
    folder = written_log(place / "orders", *adds)
    for path in ("p=a b/x", "p=c/y"):
        (folder / path).parent.mkdir()
        (folder / path).write_bytes(ROWS)
    (folder / file_name(VECTOR)).write_bytes(vector)
    return folder


def copied(catalog: TransactionalCatalog, to: Path, mode: ExportMode) -> TransactionalCatalog:
    exporter = Exporter(catalog.lake)
    if mode == "minimal":
        exporter.run(Asked(to=f"{to}.json", mode="minimal"))
        import_minimal(exporter, f"{to}.json", Asked(to=str(to), mode="full"))
    else:
        exporter.run(Asked(to=str(to), mode=mode))
    return TransactionalCatalog.open(str(to))


@pytest.mark.parametrize("mode", ["full", "minimal"])
def test_a_full_copy_has_a_table_and_files_of_its_own(
    catalog: TransactionalCatalog, folder: Path, tmp_path: Path, mode: ExportMode
) -> None:
    adopted(catalog, "orders", folder)
    copy = copied(catalog, tmp_path / "copy", mode)
    table = copy.database().tables[named("orders")]
    assert is_own(table.location, table.id)
    assert paths(copy, "orders") == ["p=a%20b/x", "p=c/y"]
    data = files_of(tmp_path / "copy" / table.location)
    assert {name for name in data if "_delta_log" not in name} == {"p=a b/x", "p=c/y", file_name(VECTOR)}


def test_a_clone_names_the_files_where_they_are_and_what_it_changes_comes_back(
    catalog: TransactionalCatalog, folder: Path, tmp_path: Path
) -> None:
    adopted(catalog, "orders", folder)
    clone = copied(catalog, tmp_path / "clone", "partial")
    assert paths(clone, "orders") == [f"file:{folder}/p=a%20b/x", f"file:{folder}/p=c/y"]
    tx = clone.begin()
    stage(clone, tx, "orders", remove(f"file:{folder}/p=c/y"), file("p=c/z"), data=ROWS)
    clone.commit(tx)
    Promoter(clone.lake, catalog.lake, author="ada", statement="promote").run()
    attempt = next(iter(catalog.timeline.past())).transaction.id
    assert paths(catalog, "orders") == sorted(["p=a%20b/x", f"{attempt}/p=c/z"])
    assert (folder / attempt / "p=c" / "z").read_bytes() == ROWS
