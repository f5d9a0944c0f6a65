"""TransactionalCatalog without Spark: opening a lake, its versions, and statements on their own."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from lockstep.catalog import TransactionalCatalog, new_id
from lockstep.commit.outcomes import Committed
from lockstep.errors import (
    ConflictError,
    CorruptTimelineError,
    DuplicateError,
    InvalidError,
    UnavailableError,
    UndefinedError,
    UnsupportedError,
)
from lockstep.timeline.files import entry_path
from lockstep.transactions.lookup import find_table
from tests.support.entries import T0
from tests.support.lakes import NEW_TABLE, add, append, create, files, lay, named


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def catalog(root: Path) -> TransactionalCatalog:
    return TransactionalCatalog.open(str(root), create=True, author="ada")


def content(*actions: object) -> str:
    return "".join(json.dumps(action) + "\n" for action in ({"commitInfo": {"operation": "WRITE"}}, *actions))


# --- opening ----------------------------------------------------------------------------------------------------------


def test_a_lake_is_made_once_and_opened_by_all(root: Path, catalog: TransactionalCatalog) -> None:
    for each in (TransactionalCatalog.open(str(root)), TransactionalCatalog.open(f"file://{root}", create=True)):
        assert each.timeline.head == catalog.timeline.head
    assert dict(catalog.database().namespaces) == {("default",): {}}


def test_a_root_that_is_not_there_is_named(root: Path) -> None:
    with pytest.raises(InvalidError, match=f"no folder {root}: make a lake with `lockstep init {root}`") as caught:
        TransactionalCatalog.open(str(root))
    assert caught.value.sqlstate == "22023"


def test_a_folder_without_a_timeline_is_no_lake(root: Path) -> None:
    root.mkdir()
    with pytest.raises(InvalidError, match=f"no Lockstep timeline at file://{root}: make one with `lockstep init"):
        TransactionalCatalog.open(str(root))


def test_a_root_that_cannot_be_made_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UnavailableError, match=r"cannot open the lake's root .*: Not a directory") as caught:
        TransactionalCatalog.open(str(tmp_path / "file" / "lake"), create=True)
    assert caught.value.sqlstate == "58030"


@pytest.mark.parametrize("folder", ["_delta_log", "_lockstep", "_symlink_format_manifest"])
def test_a_root_whose_tables_could_not_be_written_is_refused(tmp_path: Path, folder: str) -> None:
    with pytest.raises(InvalidError, match=f"cannot be a lake's root: tables in a folder {folder}"):
        TransactionalCatalog.open(str(tmp_path / folder / "lake"), create=True)


def test_a_store_that_nobody_has_is_unsupported() -> None:
    with pytest.raises(UnsupportedError, match="no store for 'ftp://host/lake'"):
        TransactionalCatalog.open("ftp://host/lake")


def test_a_corrupt_entry_is_named_with_what_was_expected(root: Path, catalog: TransactionalCatalog) -> None:
    catalog.run(lambda tx: tx.changing().create_namespace(("s",), {}))
    entry = root / entry_path(1)
    entry.write_bytes(b'{"format": 1, "version": 1')
    with pytest.raises(CorruptTimelineError, match=f"{entry_path(1)}: expected a timeline entry") as caught:
        TransactionalCatalog.open(str(root))
    assert caught.value.sqlstate == "XX001"


# --- versions ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def timed(root: Path) -> TransactionalCatalog:
    """A lake whose database version n > 0 was made n minutes after T0, each with a commit of table a."""
    times = iter([T0, *[T0 + timedelta(minutes=n // 3) for n in range(3, 100)]])
    ticks: list[datetime] = []

    def clock() -> datetime:
        ticks.append(next(times))
        return ticks[-1]

    catalog = TransactionalCatalog.open(str(root), create=True, clock=clock)
    create(catalog, "a")
    append(catalog, "a", "x")
    return catalog


def test_an_older_version_by_number_and_by_time(timed: TransactionalCatalog) -> None:
    assert [set(timed.as_of(n).tables) for n in (0, 1, 2)] == [set(), {named("a")}, {named("a")}]
    assert [timed.as_of(n).tables[named("a")].version for n in (1, 2)] == [0, 1]
    for version in (0, 1, 2):
        assert timed.as_of(timed.as_of(version).committed_at).version == version
    with pytest.raises(InvalidError, match="database version 9 does not exist: there are 0 to 2"):
        timed.as_of(9)
    with pytest.raises(InvalidError, match="no database at"):
        timed.as_of(T0 - timedelta(seconds=1))


def test_nothing_is_newer_than_a_snapshot(timed: TransactionalCatalog) -> None:
    assert timed.as_of(1, at_most=1).version == 1
    assert timed.as_of(T0 + timedelta(days=1), at_most=1).version == 1
    with pytest.raises(InvalidError, match="version 2 is newer than this transaction's snapshot, version 1"):
        timed.as_of(2, at_most=1)


def test_a_snapshot_is_that_of_begin(catalog: TransactionalCatalog, root: Path) -> None:
    create(catalog, "a")
    tx = catalog.begin(isolation="SNAPSHOT", comment="why")
    append(TransactionalCatalog.open(str(root)), "a", "x")
    catalog.database()
    assert tx.table(named("a")).version == 0
    assert (tx.isolation, tx.comment, tx.author, tx.base.version) == ("SNAPSHOT", "why", "ada", 1)
    assert catalog.begin().isolation == "SERIALIZABLE"


def test_ids_are_unique_and_fit_into_a_uri() -> None:
    ids = {new_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(id.isalnum() and len(id) == 24 for id in ids)


# --- statements on their own ------------------------------------------------------------------------------------------


def test_a_created_table_exists_with_its_first_version(catalog: TransactionalCatalog) -> None:
    creation = catalog.reserve(named("a"))
    assert named("a") not in catalog.database().tables
    lay(catalog.lake.storage, creation.location, [add("x")])
    done = catalog.write(creation.location, 0, content(*NEW_TABLE, add("x")), creation=creation, text="CREATE  TABLE a")
    assert isinstance(done, Committed)
    assert done.entry is not None
    assert done.entry.transaction.statements == ["CREATE TABLE a"]
    assert find_table(catalog.database(), named("a")).version == 0
    assert files(catalog, "a") == {"x"}


def test_of_two_that_reserve_a_name_the_first_to_write_has_it(catalog: TransactionalCatalog) -> None:
    first, second = catalog.reserve(named("a")), catalog.reserve(named("a"))
    catalog.write(second.location, 0, content(*NEW_TABLE), creation=second)
    with pytest.raises(DuplicateError, match=r"table default\.a exists") as caught:
        catalog.write(first.location, 0, content(*NEW_TABLE), creation=first)
    assert caught.value.sqlstate == "42P07"
    with pytest.raises(DuplicateError):
        catalog.reserve(named("a"))


def test_a_table_or_namespace_dropped_meanwhile_is_undefined(catalog: TransactionalCatalog) -> None:
    create(catalog, "a")
    location = catalog.database().tables[named("a")].location
    catalog.run(lambda tx: tx.changing().create_namespace(("s",), {}))
    creation = catalog.reserve(named("s.b"))
    catalog.run(lambda tx: tx.changing().drop_table(named("a")))
    catalog.run(lambda tx: tx.changing().drop_namespace(("s",), cascade=True))
    with pytest.raises(UndefinedError, match="was dropped while the statement ran") as gone:
        catalog.write(location, 1, content(add("x")))
    with pytest.raises(UndefinedError, match=r"there is no namespace s for table s\.b") as nowhere:
        catalog.write(creation.location, 0, content(*NEW_TABLE), creation=creation)
    assert (gone.value.sqlstate, nowhere.value.sqlstate) == ("42P01", "3F000")


def test_versions_without_a_gap(catalog: TransactionalCatalog) -> None:
    create(catalog, "a")
    location = catalog.database().tables[named("a")].location
    with pytest.raises(InvalidError, match=r"default\.a is at version 0: version 2 cannot follow"):
        catalog.write(location, 2, content(add("x")))


def test_a_commit_that_names_the_overlay_names_the_real_folder(catalog: TransactionalCatalog, root: Path) -> None:
    create(catalog, "a")
    location = catalog.database().tables[named("a")].location
    catalog.write(location, 1, content(add(f"lockstep://head.file{root}/elsewhere/x.parquet")))
    assert files(catalog, "a") == {f"file:{root}/elsewhere/x.parquet"}


def test_ddl_on_its_own_conflicts_like_a_transaction(catalog: TransactionalCatalog, root: Path) -> None:
    create(catalog, "a")
    tx = catalog.begin()
    tx.changing().drop_table(named("a"))
    append(TransactionalCatalog.open(str(root)), "a", "x")
    with pytest.raises(ConflictError, match=r"wrote table default\.a, which this transaction dropped"):
        catalog.commit(tx)
    assert catalog.run(lambda tx: tx.changing().drop_table(named("a")), "DROP TABLE a").version == 3
    with pytest.raises(UndefinedError):
        find_table(catalog.database(), named("a"))
