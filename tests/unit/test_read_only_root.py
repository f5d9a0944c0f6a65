"""A lake whose root this process may only read: it opens, reads and travels in time, and refuses writes at once."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.errors import FailedTransactionError, ReadOnlyError, UnavailableError
from lockstep.storage import open_storage
from lockstep.storage.local import LocalStorage
from tests.support.lakes import add, append, create, files, foreign, named, open_catalog, stage

NOBODY = 65534
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
    """Take all permissions to write from the root; root itself becomes somebody whom they hold for."""
    places = [root, *root.rglob("*")]
    for place in places:
        place.chmod(0o555 if place.is_dir() else 0o444)
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(NOBODY)
    try:
        yield root
    finally:
        if is_root:
            os.seteuid(0)
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
