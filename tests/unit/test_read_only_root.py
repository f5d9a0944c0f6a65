"""A lake whose root this process may only read: it opens, reads and travels in time, and refuses writes at once."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import lockstep
from lockstep.catalog import TransactionalCatalog
from lockstep.errors import FailedTransactionError, ReadOnlyError, UnavailableError
from lockstep.lake.lake import Lake
from lockstep.retention.ages import Retention
from lockstep.retention.expiring import expire_snapshots
from lockstep.retention.upkeep import maintain, remove_orphan_files, vacuum
from lockstep.storage import open_storage
from lockstep.storage.local import LocalStorage
from tests.support.commands import lockstep as command
from tests.support.lakes import add, append, create, files, foreign, named, open_catalog, stage
from tests.support.users import somebody

MESSAGE = r"may only read the lake file:///.*_lockstep/timeline"


@pytest.fixture
def root() -> Iterator[Path]:
    """A lake of one table in three versions, which nobody may write while `as_reader` is used."""
    folder = Path(tempfile.mkdtemp(prefix="lockstep-read-only-"))  # pytest's own are closed to other users
    catalog = open_catalog(LocalStorage(folder))
    create(catalog, "t", files=["a"])
    append(catalog, "t", "b")
    catalog.lake.upkeep.settle()
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def as_reader(root: Path) -> Iterator[Path]:
    """Take all permissions to write from the root."""
    with reading_only(root):
        yield root


@contextmanager
def reading_only(root: Path) -> Iterator[None]:
    """Take all permissions to write from a folder; the user root becomes somebody whom they hold for."""
    places = [root, *root.rglob("*")]
    for place in places:
        place.chmod(0o555 if place.is_dir() else 0o444)
    try:
        with somebody():
            yield
    finally:
        for place in places:
            place.chmod(0o755)


def everything(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_it_is_read_and_travelled(as_reader: Path) -> None:
    """Opened as sessions open it, with `create`; nothing is written, and nothing fails for that."""
    before = everything(as_reader)
    catalog = TransactionalCatalog.open(str(as_reader), create=True, author="ada")
    assert files(catalog, "t") == {"a", "b"}
    assert catalog.as_of(1).tables[named("t")].version == 0
    tx = catalog.begin()
    assert catalog.table(tx, named("t")).version == 1
    tx.read(catalog.table(tx, named("t")))
    assert catalog.commit(tx).version == 2
    catalog.lake.upkeep.settle()
    assert everything(as_reader) == before


def test_writes_are_refused_before_anything_is_staged(as_reader: Path) -> None:
    """In transactions, on their own and of the catalog: 25006, and not a file of them is anywhere."""
    catalog = TransactionalCatalog.open(str(as_reader), author="ada")
    before = everything(as_reader)
    location = catalog.timeline.head.tables[named("t")].location
    tx = catalog.begin()
    for change in (
        tx.check_writable,
        tx.changing,
        lambda: catalog.stage(tx, location, 2, "{}"),
        lambda: tx.reserve(named("new"), "id"),
        lambda: catalog.reserve(named("new")),
        lambda: catalog.run(lambda tx: tx.changing().create_namespace(("n",), {})),
        lambda: catalog.write(location, 2, "{}"),
    ):
        with pytest.raises(ReadOnlyError, match=MESSAGE) as caught:
            change()
        assert caught.value.sqlstate == "25006"
    catalog.rollback(tx)
    assert everything(as_reader) == before


AT_ONCE = Retention(age=timedelta(), last=1, grace=timedelta(), orphan_age=timedelta(hours=1))
UPKEEP: dict[str, Callable[[Lake], object]] = {
    "expire": lambda lake: expire_snapshots(lake, older_than=lake.clock(), retain_last=1, grace=timedelta()),
    "maintain": lambda lake: maintain(lake, AT_ONCE),
    "gc": lambda lake: remove_orphan_files(lake, AT_ONCE),
    "vacuum": lambda lake: vacuum(lake, AT_ONCE),
}


@pytest.mark.parametrize("name", UPKEEP)
def test_upkeep_is_refused_before_anything_is_done(as_reader: Path, name: str) -> None:
    catalog = TransactionalCatalog.open(str(as_reader))
    before = everything(as_reader)
    with pytest.raises(ReadOnlyError, match=MESSAGE) as caught:
        UPKEEP[name](catalog.lake)
    assert caught.value.sqlstate == "25006"
    assert everything(as_reader) == before


def test_what_a_plain_writer_commits_is_not_seen_until_somebody_takes_it_in(root: Path) -> None:
    """Who cannot say so in the timeline sees the table as the timeline says, which is whole."""
    catalog = open_catalog(LocalStorage(root))
    reader = open_catalog(Unwritable(root))
    foreign(catalog, "t", 2, add("c"))
    assert files(reader, "t") == {"a", "b"}
    tx = reader.begin()
    assert reader.table(tx, named("t")).version == 1
    assert files(catalog, "t") == {"a", "b", "c"}
    assert files(reader, "t") == {"a", "b", "c"}


DRY_RUNS = {
    "restore to a version": ("restore", "lake", "--to-version", 2),
    "restore of a dropped table": ("restore", "lake", "--to-version", 3, "--table", "n.gone"),
    "revert": ("revert", "lake", 3),
    "expire": ("expire", "lake", "--retain-last", 1, "--older-than", "0d", "--grace", "1h"),
    "vacuum": ("vacuum", "lake"),
    "gc": ("gc", "lake"),
    "maintain": ("maintain", "lake"),
    "adopt": ("adopt", "lake", "beside", "--table", "n.adopted"),
    "export": ("export", "lake", "new"),
    "clone": ("clone", "lake", "new"),
    "promote": ("promote", "clone"),
}


@pytest.fixture(scope="module")
def lakes() -> Iterator[Path]:
    """A lake that Python writes, a clone of it that was written, and a Delta table beside them."""
    folder = Path(tempfile.mkdtemp(prefix="lockstep-read-only-"))
    lake = lockstep.open(str(folder / "lake"), create=True)
    with lake.transaction() as tx:
        tx.create_namespace("n")
    with lake.transaction() as tx:
        for name in ("n.t", "n.gone"):
            tx.create(name, pa.schema([("id", pa.int64())])).append({"id": [1, 2]})
    with lake.transaction() as tx:
        tx["n.t"].delete("id = 1")
    with lake.transaction() as tx:
        tx.drop("n.gone")
    location = lake.catalog.database().tables[named("n.t")].location
    assert command("clone", folder / "lake", folder / "clone").exit_code == 0
    clone = lockstep.open(str(folder / "clone"))
    with clone.transaction() as tx:
        tx["n.t"].append({"id": [3]})
    for each in (lake, clone):
        each.catalog.lake.upkeep.settle()
    shutil.copytree(folder / "lake" / location, folder / "beside")
    shutil.rmtree(folder / "beside" / "_delta_log" / "_lockstep", ignore_errors=True)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("name", DRY_RUNS)
def test_a_dry_run_only_reads(lakes: Path, name: str) -> None:
    """It needs no permission to write, and leaves every file as it was."""
    what, where, *more = DRY_RUNS[name]
    given = [str(lakes / each) if each in ("beside", "new") else each for each in more]
    before = everything(lakes)
    with reading_only(lakes):
        done = command(what, lakes / str(where), *given, "--dry-run", "--json")
    assert (done.exit_code, done.stderr) == (0, ""), (done.output, done.exception)
    assert everything(lakes) == before


def test_what_was_begun_to_look_cannot_be_committed_nor_stage(root: Path) -> None:
    catalog = open_catalog(LocalStorage(root))
    before = everything(root)
    tx = catalog.begin(dry_run=True)
    tx.changing().create_namespace(("n",), {})
    location = tx.tables[named("t")].location
    for change in (lambda: catalog.stage(tx, location, 2, "{}"), lambda: catalog.commit(tx)):
        with pytest.raises(ReadOnlyError, match="only looks"):
            change()
    catalog.rollback(tx)
    assert everything(root) == before


class Unwritable(LocalStorage):
    """A root that is mounted to be read: every write says so."""

    def is_writable(self, folder: str) -> bool:
        return False

    def try_put(self, path: str, data: bytes) -> bool:
        raise UnavailableError("Read-only file system", definite=True)

    def put(self, path: str, data: bytes) -> None:
        raise UnavailableError("Read-only file system", definite=True)


def test_whether_a_folder_can_be_written_is_told_by_the_nearest_that_is_there(root: Path) -> None:
    store = open_storage(str(root))
    assert all(map(store.is_writable, ("", "_lockstep/timeline", "not/there")))


def test_the_nearest_folder_counts(as_reader: Path) -> None:
    store = open_storage(str(as_reader))
    assert not any(map(store.is_writable, ("", "_lockstep/timeline", "not/there")))


def test_a_commit_whose_files_could_not_be_flushed_can_only_be_rolled_back(tmp_path: Path) -> None:
    """A second fsync of the same file succeeds though its data is lost, so COMMIT must not be tried again."""
    failures = [OSError(5, "Input/output error")]

    def fsync(handle: int) -> None:
        if "new" in str(Path(f"/proc/self/fd/{handle}").readlink()) and failures:
            raise failures.pop()

    catalog = open_catalog(LocalStorage(tmp_path, fsync_data=True))
    create(catalog, "t", files=["a"])
    tx = catalog.begin()
    stage(catalog, tx, "t", add("new"))
    catalog.lake.storage._fsync = fsync  # type: ignore[attr-defined]
    with pytest.raises(UnavailableError, match=r"cannot flush .*new.*: Input/output error"):
        catalog.commit(tx)
    with pytest.raises(FailedTransactionError, match="cannot flush"):
        catalog.commit(tx)
    assert files(catalog, "t") == {"a"}
