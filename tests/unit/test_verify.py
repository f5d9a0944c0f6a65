"""A checksum is compared with what the table's log says; `test_cli.py` has what else `lockstep verify` finds."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lockstep.delta.log import checksum_path
from lockstep.lake.verify import verify
from tests.support.faulty import FaultyStorage
from tests.support.lakes import add, append, create, location, open_catalog, stage


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
