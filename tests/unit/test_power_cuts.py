"""Power cuts on a local disk: each disk that one may leave is a lake before a commit or after it, and never between.

What was answered is there. The store's calls to the operating system are recorded and replayed to each point, with and
without what was not synced by then (`tests.support.power`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.commit.outcomes import Committed
from lockstep.delta.actions import Action, render
from lockstep.delta.log import staged_path
from lockstep.errors import LockstepError
from lockstep.lake.lake import Lake
from lockstep.lake.verify import verify
from lockstep.storage import local
from lockstep.storage.local import LocalStorage
from lockstep.timeline.clock import utc_now
from lockstep.timeline.log import Timeline
from tests.support.lakes import NEW_TABLE, add, append, create, files, large, named
from tests.support.memory import MemoryStorage
from tests.support.power import Cut, RecordedDisk, cuts, spark_writes

pytestmark = pytest.mark.long

TABLES = ("t0", "t1", "t2")
DATA = b"rows" * 10


def opened(storage: Any) -> TransactionalCatalog:
    """Open the lake with a checkpoint at each second version, so that those are written, too."""
    timeline = Timeline.create(storage, clock=utc_now, checkpoint_every=2)
    numbers = iter(range(1000))
    lake = Lake(storage, timeline, clock=utc_now, new_id=lambda: f"id{next(numbers):04}")
    return TransactionalCatalog(lake, author="ada")


@dataclass
class Machine:
    """A lake of three tables on a recorded disk, on which Spark writes."""

    disk: RecordedDisk
    catalog: TransactionalCatalog
    syncs_data: bool

    def lay(self, path: str, data: bytes) -> None:
        """Write a file as Spark does; whoever does not have data synced is not judged by it, so there it is."""
        file = Path(self.disk.root, path)
        if self.syncs_data:
            spark_writes(self.disk, file, data)
        else:
            self.catalog.lake.storage.put_if_absent(path, data)

    def stage(self, tx: Any, name: str, action: Action) -> None:
        """Do what a statement does that writes one file."""
        table = self.catalog.table(tx, named(name))
        self.lay(f"{table.location}/{action['add']['path']}", DATA)
        version = table.version + 1
        staged = staged_path(table.location, tx.id, version)
        spark_writes(self.disk, Path(self.disk.root, staged), render([{"commitInfo": {}}, action]))
        self.catalog.stage(tx, table.location, version)


def several_tables(machine: Machine, file: Callable[[str], Action] = add) -> None:
    tx = machine.catalog.begin()
    for name in TABLES:
        machine.stage(tx, name, file("p=1/new.parquet"))
    machine.catalog.commit(tx)


def large_commits(machine: Machine) -> None:
    several_tables(machine, large)


def one_statement(machine: Machine) -> None:
    """A statement on its own, which is all there is: t0 stands for the others."""
    table = machine.catalog.timeline.head.tables[named("t0")]
    machine.lay(f"{table.location}/p=1/new.parquet", DATA)
    content = render([{"commitInfo": {"readVersion": 0}}, add("p=1/new.parquet")]).decode()
    assert isinstance(machine.catalog.write(table.location, table.version + 1, content), Committed)


def new_table(machine: Machine) -> None:
    """A new table beside a write: Spark makes its folder, and that of its log."""
    tx = machine.catalog.begin()
    machine.stage(tx, "t0", add("p=1/new.parquet"))
    creation = tx.reserve(named("t3"), "new-table")
    machine.lay(f"{creation.location}/p=1/new.parquet", DATA)
    staged = staged_path(creation.location, tx.id, 0)
    content = render([{"commitInfo": {}}, *NEW_TABLE, add("p=1/new.parquet")])
    spark_writes(machine.disk, Path(machine.disk.root, staged), content)
    machine.catalog.stage(tx, creation.location, 0)
    machine.catalog.commit(tx)


SCENES: dict[Callable[[Machine], None], tuple[str, ...]] = {
    several_tables: TABLES,
    large_commits: TABLES,
    one_statement: ("t0",),
    new_table: ("t0", "t3"),
}
"""What is done, and which tables get a file by it."""


def record(
    scene: Callable[[Machine], None],
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    fsync_data: bool,
    kind: type[LocalStorage] = LocalStorage,
) -> RecordedDisk:
    """Return what the disk was asked for by a scene."""
    storage = kind(root, fsync_data=fsync_data)
    catalog = opened(storage)
    create(catalog, *TABLES, files=["old.parquet"])
    append(catalog, "t2", "older.parquet")
    catalog.lake.upkeep.settle()
    with monkeypatch.context() as patch:
        disk = RecordedDisk(root)
        patch.setattr(local, "os", disk)
        machine = Machine(disk, catalog, fsync_data or kind is not LocalStorage)
        scene(machine)
        disk.answered()
        catalog.lake.upkeep.settle()
    return disk


def wrong_with(cut: Cut, tables: tuple[str, ...], *, check_data: bool) -> str:
    """Return what is wrong with a lake after a power cut; nothing, if it is before the commit or after it."""
    storage = MemoryStorage()
    storage.files.update(cut.files)
    try:
        catalog = opened(storage)
        head = catalog.lake.refresh()
        if head.set_aside:
            return f"set aside: {list(map(str, head.set_aside.values()))}"
        there = {name: named(name) in head.tables and "p=1/new.parquet" in files(catalog, name) for name in tables}
        if len(set(there.values())) > 1:
            return f"between: {there}"
        is_after = all(there.values())
        if cut.answered and not is_after:
            return "what was answered is gone"
        report = verify(storage, catalog.timeline)
        # Checksums are advice and not synced: one that is empty counts as none, and `verify` tells of it.
        if wrong := [each for each in report.differences if each.problem != "checksum"]:
            return f"verify: {wrong}"
        for name in tables if is_after and check_data else ():
            path = f"{head.tables[named(name)].location}/p=1/new.parquet"
            if storage.get(path) != DATA:
                return f"{path} holds {storage.get(path)!r}"
    except LockstepError as error:
        return repr(error)
    return ""


def findings(disk: RecordedDisk, tables: tuple[str, ...], *, check_data: bool) -> list[str]:
    found = []
    outcomes = 0
    for cut in cuts(disk):
        outcomes += 1
        if wrong := wrong_with(cut, tables, check_data=check_data):
            found.append(f"{cut.after}: {wrong}")
    assert outcomes >= 8, "too little was recorded to prove anything"
    return found


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_a_power_cut_leaves_a_lake_before_or_after(
    scene: Callable[[Machine], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries and published commits are synced as the timeline needs it, where data files are as safe as they are."""
    disk = record(scene, tmp_path, monkeypatch, fsync_data=False)
    assert findings(disk, SCENES[scene], check_data=False) == []


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_with_fsync_data_a_committed_version_has_its_data_after_a_power_cut(
    scene: Callable[[Machine], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though Spark synced nothing, neither files nor the folders that it made."""
    disk = record(scene, tmp_path, monkeypatch, fsync_data=True)
    assert findings(disk, SCENES[scene], check_data=True) == []


class NoData(LocalStorage):
    """Flushes no data."""

    def flush(self, paths: Any) -> None:
        return


class FilesAlone(LocalStorage):
    """Flushes files, and no folder above them."""

    def flush(self, paths: Any) -> None:
        for path in paths:
            self._flush(self._file(path))


class OneFolder(LocalStorage):
    """Flushes files and the folders that they are in, and none above: a partition's folder may have no name."""

    def flush(self, paths: Any) -> None:
        for path in paths:
            self._flush(self._file(path))
            self._flush(self._file(path).rpartition("/")[0])


class NoFolders(LocalStorage):
    """Syncs no folder: a name that was given may be lost."""

    def _sync(self, path: str) -> None:
        if not Path(path).is_dir():
            super()._sync(path)


class NoFiles(LocalStorage):
    """Syncs no file before it gets its name."""

    def _temp_file(self, file: str, chunks: Any, *, sync: bool = True) -> Any:
        return super()._temp_file(file, chunks, sync=False)


BROKEN: dict[type[LocalStorage], str] = {
    NoData: "parquet holds|is gone",
    FilesAlone: "parquet holds|is gone",
    OneFolder: "parquet holds|is gone",
    NoFolders: "what was answered is gone",
    NoFiles: "expected a timeline entry|set aside",
}


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
def test_each_sync_that_is_left_out_is_found(
    kind: type[LocalStorage], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proof of the tests above: a store that spares one kind of sync loses something."""
    disk = record(several_tables, tmp_path, monkeypatch, fsync_data=True, kind=kind)
    found = findings(disk, TABLES, check_data=True)
    assert found
    assert any(re.search(BROKEN[kind], each) for each in found), found[:5]


class WatchedDisk(RecordedDisk):
    """Another process reads an entry that has its name, in a folder that is not synced yet; and does what is to do."""

    def __init__(self, root: Path, other: Callable[[], object]) -> None:
        super().__init__(root)
        self._other: Callable[[], object] | None = other

    def fsync(self, handle: int) -> None:
        has_name = any(re.match(r"link _lockstep/timeline/\d", step.text) for step in self.steps)
        if has_name and self._other is not None and self._open[handle] == f"{self.root}/_lockstep/timeline":
            other, self._other = self._other, None
            other()
        super().fsync(handle)


@pytest.mark.parametrize("scene", [several_tables, large_commits], ids=lambda scene: scene.__name__)
def test_what_another_process_makes_of_an_entry_outlives_it_no_more_than_the_entry_does(
    scene: Callable[[Machine], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who reads an entry before it is on the disk publishes nothing of it, and writes no hint that it is there."""
    storage = LocalStorage(tmp_path)
    catalog = opened(storage)
    create(catalog, *TABLES, files=["old.parquet"])
    catalog.lake.upkeep.settle()
    other = opened(LocalStorage(tmp_path))

    def publish() -> None:
        other.lake.refresh()
        other.lake.upkeep.settle()

    with monkeypatch.context() as patch:
        disk = WatchedDisk(tmp_path, publish)
        patch.setattr(local, "os", disk)
        scene(Machine(disk, catalog, syncs_data=False))
        disk.answered()
        catalog.lake.upkeep.settle()
    assert disk._other is None, "nobody read it"
    assert findings(disk, TABLES, check_data=False) == []
