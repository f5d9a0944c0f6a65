"""A COMMIT looks whether the files are still there that its commits add."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any
from urllib.parse import unquote
from uuid import uuid4

import pytest
from pyroaring import BitMap64

from lockstep.catalog import TransactionalCatalog
from lockstep.commit.outcomes import Committed
from lockstep.delta.actions import render
from lockstep.delta.combine.deletion_vectors import file_name, file_path, serialize
from lockstep.delta.log import LOG
from lockstep.errors import (
    StagedFilesMissingError,
    UnavailableError,
)
from lockstep.lake.deletions import OLD
from lockstep.timeline.files import entry_path
from lockstep.transactions.state import State
from tests.support.faulty import FaultyStorage
from tests.support.lakes import (
    NEW_TABLE,
    add,
    append,
    files,
    large,
    location,
    named,
    open_catalog,
    remove,
    stage,
    tree,
)
from tests.support.retained import Ticking
from tests.support.vectors import stored


def vector(store: FaultyStorage, where: str, row: int) -> tuple[str, Any]:
    """Write a file with a deletion vector of one row; return its path and descriptor."""
    id_ = uuid4()
    descriptor, content = stored(serialize(BitMap64([row])), 1, id_)
    path = f"{where}/{file_name(id_)}"
    store.put(path, content)
    return path, descriptor


@pytest.mark.parametrize("kind", ["data", "partition", "change", "vector"])
def test_a_commit_whose_files_are_gone_is_refused(
    catalog: TransactionalCatalog, store: FaultyStorage, other: TransactionalCatalog, kind: str
) -> None:
    """A VACUUM beside it took them: committed, they would make the table unreadable."""
    where = location(catalog, "a")
    before = tree(store)
    tx = catalog.begin()
    path, marks = vector(store, where, 0)
    adds: dict[str, list[Any]] = {
        "data": [add("x")],
        "partition": [add("day=a%2520b/x", partitionValues={"day": "a%20b"})],
        "change": [add("x"), {"cdc": {"path": "_change_data/c", "size": 1, "partitionValues": {}}}],
        "vector": [remove("p"), add("p", deletionVector=marks)],
    }
    stage(catalog, tx, "a", *adds[kind], operation="DELETE")
    stage(catalog, tx, "b", add("y"))
    names = {"data": "x", "partition": "day=a%20b/x", "change": "_change_data/c", "vector": path.rpartition("/")[2]}
    name = names[kind]
    if kind == "partition":  # Spark writes what the log's path means, decoded
        store.put(f"{where}/{name}", b"rows")
        store.delete(f"{where}/day=a%2520b/x")
    store.delete(f"{where}/{name}")
    with pytest.raises(
        StagedFilesMissingError, match=rf"wrote are gone: {re.escape(f'{where}/{name}')}\. To a VACUUM"
    ) as caught:
        catalog.commit(tx)
    assert (caught.value.sqlstate, caught.value.retryable, tx.state) == ("58P01", True, State.ROLLED_BACK)
    assert other.database().version == 1
    assert tree(store) - {path} == before


@pytest.mark.parametrize("path", ["day=a%20b/x", "day=a%253A1/x"])
def test_an_old_file_is_looked_for_as_its_path_is_read(
    catalog: TransactionalCatalog, store: FaultyStorage, other: TransactionalCatalog, path: str
) -> None:
    """Of a partition whose name is encoded: a RESTORE brings it back, or a DELETE gives it a deletion vector."""
    where = location(catalog, "a")
    tx = catalog.begin()
    stage(catalog, tx, "a", add(path, modificationTime=0), operation="RESTORE")
    store.put(f"{where}/{unquote(path)}", b"rows")
    store.delete(f"{where}/{path}")
    assert catalog.commit(tx).version == 2
    assert files(other, "a") == {"p", path}


def test_a_message_about_many_files_is_short(catalog: TransactionalCatalog, store: FaultyStorage) -> None:
    tx = catalog.begin()
    stage(catalog, tx, "a", *(add(f"x{n}") for n in range(50)))
    for n in range(40):
        store.delete(f"{location(catalog, 'a')}/x{n}")
    with pytest.raises(StagedFilesMissingError, match=r"40 of the 50 files .*, .*, .* and 37 more\. To a VACUUM"):
        catalog.commit(tx)


def test_what_the_table_had_before_and_what_is_another_tables_is_not_looked_for(
    catalog: TransactionalCatalog, store: FaultyStorage
) -> None:
    """One look for each file that is new, however many files a statement touches."""
    tx = catalog.begin()
    _, marks = vector(store, location(catalog, "a"), 0)
    stage(catalog, tx, "a", remove("p"), add("p", deletionVector=marks), operation="DELETE")
    stage(catalog, tx, "b", add("file:///elsewhere/x"), operation="CLONE")
    looked = len(store.calls)
    catalog.commit(tx)
    seen = {path.rpartition("/")[2] for kind, path in store.calls[looked:] if kind == "exists" and LOG not in path}
    assert seen == {file_path(marks, location="t", root="file:///r").rpartition("/")[2]}


def test_a_store_that_cannot_be_asked_for_files_leaves_the_transaction_open(
    catalog: TransactionalCatalog, store: FaultyStorage, other: TransactionalCatalog
) -> None:
    tx = catalog.begin()
    stage(catalog, tx, "a", add("x"))
    store.fail("exists", path="/x")
    with pytest.raises(UnavailableError):
        catalog.commit(tx)
    assert tx.is_open
    assert catalog.commit(tx).version == 2
    assert files(other, "a") == {"p", "x"}


def test_a_statement_on_its_own_whose_files_are_gone_is_refused(
    catalog: TransactionalCatalog, store: FaultyStorage, other: TransactionalCatalog
) -> None:
    before = tree(store)
    where = location(catalog, "a")
    content = render([{"commitInfo": {"operation": "WRITE"}}, add("x"), large("y")]).decode()
    with pytest.raises(StagedFilesMissingError, match="2 of the 2 files that the statement"):
        catalog.write(where, 1, content)
    assert tree(store) == before
    creation = catalog.reserve(named("c"))
    store.put(f"{creation.location}/there", b"rows")
    content = render([*NEW_TABLE, add("there"), add("gone")]).decode()
    with pytest.raises(StagedFilesMissingError):
        catalog.write(creation.location, 0, content, creation=creation)
    assert tree(store) == before
    assert other.database().version == 1


@pytest.mark.parametrize("stood_still", [timedelta(0), OLD])
def test_a_statement_that_stood_still_looks_for_its_files_again(
    catalog: TransactionalCatalog, store: FaultyStorage, stood_still: timedelta
) -> None:
    """Just before its entry its process is suspended, and somebody commits; files that had got old may be gone."""
    clock = Ticking()
    slow = open_catalog(store, clock=clock)
    where = location(slow, "a")
    content = render([{"commitInfo": {"operation": "WRITE"}}, add("x", modificationTime=clock.ms)]).decode()
    store.put(f"{where}/x", b"rows")

    def meanwhile() -> None:
        clock.now += stood_still
        store.delete(f"{where}/x")
        append(catalog, "b", "y")

    store.interrupt("put_if_absent", meanwhile, path=entry_path(2))
    if stood_still:
        with pytest.raises(StagedFilesMissingError, match=f"{where}/x"):
            slow.write(where, 1, content)
    else:  # it is not asked for at each try what was there a moment ago
        assert isinstance(slow.write(where, 1, content), Committed)
