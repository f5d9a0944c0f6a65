"""A checksum is compared with what the table's log says; `test_cli.py` has what else `lockstep verify` finds."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from lockstep.adoption.adopt import Wanted, adopt, look
from lockstep.delta.log import checksum_path, commit_path
from lockstep.lake.verify import verify
from lockstep.storage.outside import open_reaching
from lockstep.transactions.transaction import Transaction
from tests.support.expiries import run
from tests.support.faulty import FaultyStorage
from tests.support.lakes import add, again, append, create, foreign, location, named, open_catalog, stage


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("numFiles", 7),
        ("tableSizeBytes", 7),
        ("allFiles", []),
        ("metadata", {"id": "x"}),
        ("protocol", {"minReaderVersion": 3, "minWriterVersion": 7}),
        ("setTransactions", [{"appId": "a", "version": 1}]),
        ("domainMetadata", [{"domain": "d", "configuration": "{}"}]),
    ],
)
def test_a_checksum_that_is_not_what_the_log_says_is_found(field: str, value: Any, store: FaultyStorage) -> None:
    catalog = open_catalog(store)
    create(catalog, "t", files=["a"])
    version = append(catalog, "t", "b")
    assert verify(store, catalog.timeline).differences == ()
    path = checksum_path(location(catalog, "t"), 1)
    said = json.loads(store.get(path) or b"")
    store.put(path, json.dumps({**said, field: value}).encode())
    (found,) = verify(store, catalog.timeline).differences
    assert (found.problem, found.table_version, found.database_version, found.path) == ("checksum", 1, version, path)


def test_a_checksum_that_leaves_something_out_is_right(store: FaultyStorage) -> None:
    catalog = open_catalog(store)
    create(catalog, "t", files=["a"])
    tx = catalog.begin()
    stage(catalog, tx, "t", {"txn": {"appId": "a", "version": 1}}, add("b"))
    catalog.commit(tx)
    path = checksum_path(location(catalog, "t"), 1)
    said = json.loads(store.get(path) or b"")
    left_out = ("allFiles", "setTransactions", "domainMetadata")
    store.put(path, json.dumps({key: value for key, value in said.items() if key not in left_out}).encode())
    assert verify(store, catalog.timeline).differences == ()


# --- commits that no transaction of the lake's can publish again ------------------------------------------------------


def taken_in(store: FaultyStorage) -> tuple[int, int]:
    """Take a plain Delta writer's commit in."""
    catalog = open_catalog(store)
    create(catalog, "t", files=["a"])
    foreign(catalog, "t", 1, add("b"))
    return 1, catalog.database([named("t")]).version


def adopted(store: FaultyStorage) -> tuple[int, int]:
    """Adopt a table of three versions, and go on with it."""
    catalog = open_catalog(store)
    folder = Path(store.url.removeprefix("file://"), "plain")
    for number in range(3):
        write_deltalake(folder, pa.table({"id": [number]}), mode="append")

    def take_in(tx: Transaction) -> None:
        adopt(catalog.lake, tx, look(catalog.lake, tx.names, [Wanted(named("t"), str(folder))]))

    done = catalog.run(take_in)
    append(catalog, "t", "p")
    return 2, done.version


def expired(store: FaultyStorage) -> tuple[int, int]:
    """Let all database versions but the newest expire."""
    catalog = open_catalog(store)
    create(catalog, "t", files=["a"])
    append(catalog, "t", "b")
    create(catalog, "u")
    catalog.lake.upkeep.settle()
    run(catalog.timeline, catalog.timeline.head.version)
    return 0, catalog.timeline.head.version


@pytest.mark.parametrize("made", [taken_in, adopted, expired])
def test_a_commit_that_only_the_log_had_is_missing_if_it_is_gone(
    made: Callable[[FaultyStorage], tuple[int, int]], tmp_path: Path
) -> None:
    """And not unpublished: nobody can use the table until it is put back."""
    store = FaultyStorage(open_reaching(str(tmp_path / "lake"), create=True))
    version, number = made(store)
    catalog = again(open_catalog(store))
    assert verify(store, catalog.timeline).differences == ()
    path = commit_path(location(catalog, "t"), version)
    (tmp_path / "lake" / path).unlink()
    (found,) = verify(store, again(catalog).timeline).differences
    assert (found.problem, found.table_version, found.database_version, found.path) == (
        "missing",
        version,
        number,
        path,
    )


@pytest.mark.parametrize("made", [taken_in, adopted])
@pytest.mark.parametrize("goes_on", [False, True])
def test_a_commit_that_was_taken_in_is_told_from_another_one(
    made: Callable[[FaultyStorage], tuple[int, int]], tmp_path: Path, goes_on: bool
) -> None:
    """Also where the table has gone on since."""
    store = FaultyStorage(open_reaching(str(tmp_path / "lake"), create=True))
    version, number = made(store)
    catalog = again(open_catalog(store))
    if goes_on:
        append(catalog, "t", "more")
    path = commit_path(location(catalog, "t"), version)
    store.put(path, (store.get(path) or b"") + b"\n")
    (found,) = verify(store, again(catalog).timeline).differences
    assert (found.problem, found.table_version, found.database_version, found.path) == (
        "different",
        version,
        number,
        path,
    )
