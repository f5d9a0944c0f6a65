"""Files that are lost: whoever reads a table that needs one is told which, of which table, at which version."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable

import lockstep
from lockstep.delta.combine.deletion_vectors import file_name
from lockstep.errors import CorruptTimelineError, InvalidError, UnavailableError, UnsupportedError
from lockstep.exports.export import Asked, Exporter
from lockstep.storage.outside import open_reaching
from lockstep.tables.lost import damage, reason
from lockstep.tables.opened import OpenLake
from tests.support.child import REPOSITORY
from tests.support.faulty import FaultyStorage
from tests.support.lakes import named, open_catalog
from tests.support.promotions import FIRST, build
from tests.unit.tables.test_table import make

WAYS: dict[str, Callable[[OpenLake], object]] = {
    "to_arrow": lambda lake: lake.at()["t"].to_arrow(),
    "sql": lambda lake: lake.at().sql("SELECT sum(id) FROM t"),
}

FULL_OF_FILES = """
import os, sys
import deltalake, duckdb, pyarrow.dataset, lockstep
from lockstep.errors import LockstepError
from tests.support.handles import hold_all_but
lake = lockstep.open(sys.argv[1])
version = lake.at()["t"]
held = hold_all_but(int(sys.argv[2]), 256)
try:
    version.to_arrow()
    said = "read"
except LockstepError as error:
    said = error.sqlstate
for handle in held:
    os.close(handle)
print(said)
print(version.to_arrow().num_rows)
"""
"""Reads a table where a process may open so many files more; and again, where it may open all."""


@pytest.fixture
def store(tmp_path: Path) -> FaultyStorage:
    return FaultyStorage(open_reaching(str(tmp_path / "lake"), create=True))


def lost(folder: Path, pattern: str) -> str:
    """Remove a file of a table, and return its name."""
    [file] = folder.glob(pattern)
    file.unlink()
    return file.name


def truncated(folder: Path, pattern: str) -> str:
    """Cut a file of a table off, and return its name."""
    [file] = folder.glob(pattern)
    file.write_bytes(file.read_bytes()[:-20])
    return file.name


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("harm", "pattern"),
    [
        (lost, "part-*.parquet"),
        (truncated, "part-*.parquet"),
        (lost, "_delta_log/*0.json"),
    ],
)
def test_a_file_that_is_lost_or_cut_off_is_named_with_its_table_and_version(
    lake: OpenLake, tmp_path: Path, harm: Callable[[Path, str], str], pattern: str, way: str
) -> None:
    make(lake, [{"id": 1, "v": "a"}])
    [folder] = (tmp_path / "lake" / "default").iterdir()
    name = harm(folder, pattern)
    with pytest.raises(CorruptTimelineError, match=name) as caught:
        WAYS[way](lake)
    assert caught.value.sqlstate == "XX001"
    assert not caught.value.retryable
    for said in (folder.name, "default.t", "version"):
        assert said in caught.value.message


@pytest.mark.parametrize("harm", [lost, truncated])
def test_a_transaction_names_it_with_its_table_too(
    lake: OpenLake, tmp_path: Path, harm: Callable[[Path, str], str]
) -> None:
    make(lake, [{"id": 1, "v": "a"}])
    name = harm(tmp_path / "lake", "default/*/part-*.parquet")
    with pytest.raises(CorruptTimelineError, match=rf"{name}.*table default\.t"):
        lake.run(lambda tx: tx.sql("SELECT sum(id) FROM t"))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("harm", [lost, truncated])
def test_a_file_is_named_that_a_clone_shares(
    lake: OpenLake, tmp_path: Path, harm: Callable[[Path, str], str], way: str
) -> None:
    """It lies in the folder of the lake that the clone was made of."""
    make(lake, [{"id": 1, "v": "a"}])
    Exporter(lake.catalog.lake).run(Asked(to=str(tmp_path / "clone"), mode="partial"))
    clone = lockstep.open(str(tmp_path / "clone"))
    name = harm(tmp_path / "lake", "default/*/part-*.parquet")
    with pytest.raises(CorruptTimelineError, match=f"table default.t .*its file file:///.*/lake/default/.*{name}"):
        WAYS[way](clone)


def test_a_deletion_vector_is_named_that_a_clone_shares(store: FaultyStorage, tmp_path: Path) -> None:
    catalog = build(store)
    Exporter(catalog.lake).run(Asked(to=str(tmp_path / "clone"), mode="partial"))
    there = open_reaching(str(tmp_path / "clone"))
    table = open_catalog(there).database().tables[named("a")]
    assert damage(there, table) is None
    store.delete(f"{catalog.database().tables[named('a')].location}/{file_name(FIRST)}")
    assert f"{catalog.lake.storage.url}/default/a-" in (told := str(damage(there, table)))
    assert file_name(FIRST) in told


def test_what_a_query_says_itself_is_told_and_no_file_is_looked_for(store: FaultyStorage) -> None:
    """Also where a part of it has the name that a table might have."""
    lake = OpenLake(open_catalog(store), {})
    make(lake, [{"id": 1, "v": "a"}])
    for query in ("SELECT error('boom') FROM t", "WITH u AS (SELECT 1 AS a) SELECT error('boom') FROM u"):
        store.calls.clear()
        with pytest.raises(InvalidError, match="DuckDB: Invalid Input Error: boom"):
            lake.at().sql(query)
        assert store.count("walk") == 0


def test_a_deletion_vector_that_is_lost_is_named(store: FaultyStorage) -> None:
    table = build(store).database().tables[named("a")]
    assert damage(store, table) is None
    store.delete(f"{table.location}/{file_name(FIRST)}")
    assert file_name(FIRST) in str(damage(store, table))


def test_what_deltalake_does_not_support_is_told_as_that(lake: OpenLake) -> None:
    make(lake, [{"id": 1, "v": "a"}])
    table = lake.at()["t"]
    with pytest.raises(UnsupportedError, match="Read it in Spark"):
        raise table._refusal(OSError("no such thing"))


@pytest.mark.parametrize(
    "said", ["Generic error: after 3 retries, x", "error sending request", "Too many open files (os error 24)"]
)
def test_a_store_that_is_not_asked_now_is_no_kind_of_table(lake: OpenLake, tmp_path: Path, said: str) -> None:
    """Whoever tries again reads it."""
    make(lake, [{"id": 1, "v": "a"}])
    catalog = open_catalog(FaultyStorage(open_reaching(str(tmp_path / "lake"))))
    found = reason(catalog.lake.storage, catalog.database().tables[named("t")], OSError(said))
    assert isinstance(found, UnavailableError)
    assert found.retryable


@pytest.mark.parametrize("way", WAYS)
def test_a_checkpoint_that_is_gone_and_not_needed_is_not_missed(lake: OpenLake, tmp_path: Path, way: str) -> None:
    """Spark's Delta goes on without one as well: the commits tell of all. deltalake does not."""
    make(lake, [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])
    [folder] = (tmp_path / "lake" / "default").iterdir()
    DeltaTable(folder).create_checkpoint()
    there = WAYS[way](lake)
    lost(folder, "_delta_log/*.checkpoint.parquet")
    assert (folder / "_delta_log" / "_last_checkpoint").exists()
    assert WAYS[way](lockstep.open(str(tmp_path / "lake"))) == there
    with pytest.raises(UnsupportedError, match="checkpoint"):
        lake.at()["t"].delta()


@pytest.mark.parametrize("free", [2, 4, 6, 8])
def test_a_process_with_too_many_files_open_is_told_so(lake: OpenLake, tmp_path: Path, free: int) -> None:
    """The panics of deltalake are no `Exception`. Nothing is left of it once files are closed."""
    make(lake, [{"id": 1, "v": "a"}])
    command = [sys.executable, "-c", FULL_OF_FILES, str(tmp_path / "lake"), str(free)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, cwd=REPOSITORY)
    assert (done.returncode, done.stdout.splitlines()) == (0, ["58030", "1"]), done.stderr[-4000:]
