"""CREATE TAG looks for the data files that the tag is to keep, before anything is written."""

from __future__ import annotations

import itertools
import logging
import sys
from pathlib import Path

import deltalake
import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.commit.outcomes import Committed
from lockstep.delta.combine.deletion_vectors import file_name
from lockstep.delta.log import LOG
from lockstep.errors import DuplicateError, ForeignCommitError, MissingFilesError, UnavailableError, UnsupportedError
from lockstep.exports import tagged
from lockstep.exports.tagged import create_tag
from lockstep.recovery.tags import new_tag
from lockstep.storage.locations import Locations
from lockstep.storage.outside import open_reaching
from tests.support.faulty import FaultyStorage
from tests.support.lakes import add, create, foreign, location, named, open_catalog, remove, stage, tree
from tests.support.promotions import FIRST, build


@pytest.fixture
def store(tmp_path: Path) -> FaultyStorage:
    return FaultyStorage(open_reaching(str(tmp_path / "lake"), create=True))


@pytest.fixture
def catalog(store: FaultyStorage) -> TransactionalCatalog:
    """A lake whose version 1 has tables a and b of two files, and whose version 2 has lost a's file p."""
    catalog = open_catalog(store)
    create(catalog, "a", "b", files=["p", "q"])
    tx = catalog.begin()
    stage(catalog, tx, "a", remove("p"))
    catalog.commit(tx)
    return catalog


def tag(catalog: TransactionalCatalog, version: int | None = None, *, check: bool | None = None) -> Committed:
    ddl = new_tag("eod", version=version, days=None, comment="", now=catalog.lake.clock())
    return catalog.run(lambda tx: create_tag(catalog.lake, tx, ddl, check=check))


def vacuum(catalog: TransactionalCatalog, name: str, *paths: str) -> None:
    """Delete files of a table, as a VACUUM does that knows no database versions."""
    for path in paths:
        catalog.lake.storage.delete(f"{location(catalog, name)}/{path}")


def test_an_older_version_whose_files_were_vacuumed_is_not_tagged(catalog: TransactionalCatalog) -> None:
    vacuum(catalog, "a", "p")
    before, head = tree(catalog.lake.storage), catalog.timeline.head.version
    gone = rf"tag eod needs files that are gone: \S*{location(catalog, 'a')}/p\. Nothing was changed.*check => false"
    with pytest.raises(MissingFilesError, match=gone) as error:
        tag(catalog, 1)
    assert error.value.sqlstate == "58P01"
    assert (tree(catalog.lake.storage), catalog.lake.refresh().version) == (before, head)
    assert not catalog.lake.storage.list("_lockstep/kept"), "and nothing was kept for it"
    tag(catalog)  # the newest version does not need it


def test_a_version_is_tagged_without_a_look_where_that_is_said(catalog: TransactionalCatalog) -> None:
    vacuum(catalog, "a", "p")
    tag(catalog, 1, check=False)
    assert catalog.as_of("eod").version == 1


def test_the_newest_version_is_not_tagged_where_a_file_is_lost(catalog: TransactionalCatalog) -> None:
    vacuum(catalog, "b", "p", "q")
    with pytest.raises(MissingFilesError, match=r"/p, \S*/q\. "):
        tag(catalog)
    assert not catalog.database().tags


def test_a_deletion_vector_that_is_lost_is_named(store: FaultyStorage) -> None:
    catalog = build(store)
    tag(catalog)
    catalog.run(lambda tx: tx.changing().drop_tag("eod"))
    vacuum(catalog, "a", file_name(FIRST))
    with pytest.raises(MissingFilesError, match=file_name(FIRST)):
        tag(catalog)


def test_a_table_that_was_dropped_since_counts_in_a_version_that_has_it(catalog: TransactionalCatalog) -> None:
    place = location(catalog, "b")
    catalog.run(lambda tx: tx.changing().drop_table(named("b")))
    catalog.lake.storage.delete(f"{place}/p")
    tag(catalog)
    catalog.run(lambda tx: tx.changing().drop_tag("eod"))
    with pytest.raises(MissingFilesError, match=place):
        tag(catalog, 2)


# --- inside a transaction ---------------------------------------------------------------------------------------------


def test_a_transaction_tags_what_it_commits(catalog: TransactionalCatalog) -> None:
    """What it removes is needed no more, nor what it drops; what it adds is."""
    vacuum(catalog, "a", "q")
    vacuum(catalog, "b", "p")
    tx = catalog.begin()
    ddl = new_tag("eod", version=None, days=None, comment="", now=catalog.lake.clock())
    stage(catalog, tx, "a", remove("q"), add("new"))
    tx.changing().drop_table(named("b"))
    vacuum(catalog, "a", "new")
    with pytest.raises(MissingFilesError, match=r"/new\. "):
        create_tag(catalog.lake, tx, ddl)
    assert tx.names.tag("eod") is None, "the transaction is as it was"
    catalog.lake.storage.put(f"{location(catalog, 'a')}/new", b"rows")
    create_tag(catalog.lake, tx, ddl)
    assert catalog.commit(tx).version == catalog.as_of("eod").version


def test_a_tag_that_there_is_is_said_before_files_are_looked_for(catalog: TransactionalCatalog) -> None:
    tag(catalog)
    vacuum(catalog, "a", "q")
    with pytest.raises(DuplicateError):
        tag(catalog)


def test_a_table_that_is_set_aside_is_no_lost_file(catalog: TransactionalCatalog, store: FaultyStorage) -> None:
    store.fail("put_if_absent", path=f"{LOG}/{2:020d}.json", times=9)
    tx = catalog.begin()
    stage(catalog, tx, "a", remove("q"), add("ours"))
    catalog.commit(tx)
    store.heal()
    foreign(catalog, "a", 2, remove("q"), add("theirs"))
    with pytest.raises(ForeignCommitError, match="settle it, or DROP TABLE"):
        tag(open_catalog(store))


# --- how it looks -----------------------------------------------------------------------------------------------------


def test_each_folder_is_listed_once_however_many_files_it_has(
    store: FaultyStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And so where tables are looked at in several parts."""
    monkeypatch.setattr(tagged, "AT_ONCE", 2)
    catalog = open_catalog(store)
    create(catalog, *"abcde", files=[f"{part}/{number}" for part in ("x", "y") for number in range(50)])
    store.calls.clear()
    tag(catalog)
    for name, part in itertools.product("abcde", ("x", "y")):
        assert store.count("list", f"{location(catalog, name)}/{part}") == 1
    made = catalog.run(lambda tx: tx.changing().drop_tag("eod")).version
    vacuum(catalog, "e", "y/49")
    with pytest.raises(MissingFilesError, match=f"{location(catalog, 'e')}/y/49"):
        tag(catalog, made)


def test_where_files_cannot_be_looked_for_there_is_no_tag_unless_that_is_said(
    catalog: TransactionalCatalog, store: FaultyStorage
) -> None:
    store.fail("list", path=location(catalog, "b"), times=9)
    with pytest.raises(UnavailableError, match=r"tag eod needs the files to be looked for; check => false"):
        tag(catalog)
    store.heal()
    assert not catalog.database().tags
    tag(catalog, check=False)


def test_what_lies_out_of_reach_is_not_looked_for(tmp_path: Path) -> None:
    """Of a shallow clone only what is in its own folder is kept: the source's files are the source's."""
    store = open_reaching(str(tmp_path / "lake"), create=True, locations=Locations(only=True))
    catalog = open_catalog(store)
    create(catalog, "a", files=["p"])
    append_uri(catalog, (tmp_path / "elsewhere" / "gone.parquet").as_uri())
    tag(catalog)


def append_uri(catalog: TransactionalCatalog, uri: str) -> None:
    tx = catalog.begin()
    stage(catalog, tx, "a", add(uri))
    catalog.commit(tx)


def test_without_pyarrow_a_log_that_takes_it_is_left_out_and_told(
    catalog: TransactionalCatalog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = f"{catalog.lake.storage.url.removeprefix('file://')}/{location(catalog, 'a')}"
    deltalake.DeltaTable(folder).create_checkpoint()
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(UnsupportedError, match=r"lockstep-delta\[parquet\].*check => false"):
        tag(catalog, check=True)
    with caplog.at_level(logging.WARNING, logger="lockstep"):
        tag(catalog)
    assert "the data files of table default.a were not looked for, for a tag" in caplog.text
    catalog.run(lambda tx: tx.changing().drop_tag("eod"))
    vacuum(catalog, "b", "p")
    with pytest.raises(MissingFilesError):
        tag(catalog)
