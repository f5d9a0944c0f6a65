"""Exports that end before they are done, or meet another one: what is left, and what the same asked for again makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.errors import DuplicateError, UnavailableError
from lockstep.exports.export import Asked
from lockstep.lake.exports import drop_export, read_exports
from lockstep.lake.verify import verify
from lockstep.storage import open_storage
from lockstep.timeline.entry import ExportMode
from tests.support.exports import build_lake, export, exporter, opened, paths, tree_of
from tests.support.faulty import FaultyStorage
from tests.support.lakes import append, open_catalog


@pytest.fixture
def catalog(store: FaultyStorage) -> TransactionalCatalog:
    return build_lake(store)


@pytest.mark.parametrize("which", ["source", "target"])
@pytest.mark.parametrize("mode", ["full", "partial"])
def test_a_kill_at_any_call_leaves_no_half_lake_and_the_same_again_goes_on(
    store: FaultyStorage, catalog: TransactionalCatalog, tmp_path: Path, mode: ExportMode, which: str
) -> None:
    """To be killed after a call is to be killed before the next one."""
    whole = tmp_path / "whole"
    exported = export(catalog, whole, mode)
    if mode == "partial":
        drop_export(store, exported.id)
    number, ended = 0, False
    while not ended:
        number += 1
        to = tmp_path / f"to{number}"
        target = FaultyStorage(open_storage(str(to), create=True))
        (store if which == "source" else target).die_at(number)
        asked = Asked(to=str(to), mode=mode, version=3)
        try:
            exporter(catalog, target).run(asked)
            ended = True
        except UnavailableError:
            pass
        store.heal()
        target.heal()
        has_begun = (to / "_lockstep" / "export.json").exists()
        is_lake = (to / "_lockstep" / "timeline").exists()
        if has_begun and not (is_lake and mode == "full"):
            assert read_exports(store.inner), f"call {number}: nothing keeps what the export needs"
        append(catalog, "sales.orders", f"meanwhile{number}")
        exporter(catalog).run(asked)
        lake = opened(to)
        assert len(paths(lake, "a")) == 2
        assert verify(lake.lake.storage, lake.timeline).differences == ()
        assert {path for path in tree_of(to) if "_delta_log" not in path and "_lockstep" not in path} == {
            path for path in tree_of(whole) if "_delta_log" not in path and "_lockstep" not in path
        }
        records = read_exports(store.inner)
        assert [record.target for record in records] == ([] if mode == "full" else [f"file://{to}"])
        for record in records:
            drop_export(store, record.id)
    assert number > 10


def test_one_that_sees_another_begun_leaves_it_alone(
    store: FaultyStorage, catalog: TransactionalCatalog, tmp_path: Path
) -> None:
    target = FaultyStorage(open_storage(str(tmp_path / "to"), create=True))

    def rival() -> None:
        with pytest.raises(DuplicateError, match="is the target of export"):
            export(open_catalog(store.inner), tmp_path / "to", "full", 2)

    target.interrupt("put_if_absent", rival, path="export.json")
    done = exporter(catalog, target).run(Asked(to=str(tmp_path / "to"), mode="partial", version=3))
    assert [record.id for record in read_exports(store)] == [done.id]


def test_the_record_is_there_before_the_target(catalog: TransactionalCatalog, tmp_path: Path) -> None:
    target = FaultyStorage(open_storage(str(tmp_path / "to"), create=True))
    seen: list[int] = []
    target.interrupt("put_if_absent", lambda: seen.append(len(read_exports(catalog.lake.storage))))
    exporter(catalog, target).run(Asked(to=str(tmp_path / "to"), mode="partial", version=3))
    writes = [path for operation, path in target.calls if operation in ("put", "put_if_absent")]
    assert seen == [1]
    assert writes[0] == "_lockstep/export.json"
    assert writes[-1] == "_lockstep/timeline/00000000000000000000.json"
