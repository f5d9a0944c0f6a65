"""Reads of a table as it had been, or of what had changed in it: no conflict comes of them, and a revert knows them."""

from __future__ import annotations

from typing import Any

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.errors import InvalidError
from lockstep.recovery.changes import revert
from lockstep.timeline.entry import Entry
from tests.support.client import Client, content
from tests.support.lakes import add, append, lay, remove, stage


def newest(catalog: TransactionalCatalog) -> Entry:
    head = catalog.lake.refresh().version
    [entry] = catalog.timeline.entries(head - 1, head)
    return entry


def told(catalog: TransactionalCatalog) -> list[tuple[str, list[str] | None]]:
    return [(read.name.table, read.predicates) for read in newest(catalog).reads]


def write(client: Client, version: int, *actions: dict[str, Any], **more: Any) -> None:
    uri = client.resolve("a", "append", writes=True)["uri"]
    done = client.ok("write", uri=uri, version=version, actions=content(*actions), **more)
    assert done == {"outcome": "committed"}


def staged(client: Client, version: int, *actions: dict[str, Any], **more: Any) -> None:
    uri = client.resolve("a", "append", writes=True)["uri"]
    house = client.house()
    lay(house.catalog.lake.storage, house.uris.parse(uri).location, actions)
    done = client.ok("stage", uri=uri, version=version, actions=content(*actions), **more)
    assert done["outcome"] == "staged"


def scan(client: Client, where: str | None) -> dict[str, Any]:
    table = client.resolve("a")
    return {"table": table["table"], "version": table["version"], "where": where, "head": True, "cached": False}


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("has_read", [False, True])
def test_an_append_of_what_was_read_as_it_had_been_is_told_from_one_that_read_nothing(
    one: Client, inside: bool, has_read: bool
) -> None:
    catalog = one.lake()
    wrong = append(catalog, "a", "x")
    if inside:
        one.begin()
        staged(one, 2, add("y"), has_read=has_read)
        one.ok("commit")
    else:
        write(one, 2, add("y"), has_read=has_read)
    assert told(catalog) == ([("a", ["false"])] if has_read else [])
    tx = catalog.begin()
    if has_read:
        with pytest.raises(InvalidError, match="it appended to rows that it had read"):
            revert(catalog.lake, tx, wrong, beside=True)
    else:
        [restored] = revert(catalog.lake, tx, wrong, beside=True)
        assert (restored.version, restored.through) == (0, 1)


def test_beside_rows_of_its_own_that_says_nothing(one: Client) -> None:
    write(one, 1, add("y"), has_read=True, reads=[scan(one, "id > 1")])
    assert told(one.lake()) == [("a", ["id > 1"])]


def test_what_is_not_written_is_not_recorded(one: Client) -> None:
    """A ROLLBACK TO takes back what was written, and what that had read with it."""
    one.begin()
    one.ok("savepoint", name="s")
    staged(one, 1, add("y"), has_read=True)
    one.ok("rollback_to", name="s")
    uri = one.resolve("b", "append", writes=True)["uri"]
    one.stage(uri, 1, add("z"))
    one.ok("commit")
    assert told(one.lake()) == []


def test_it_conflicts_with_nobody(one: Client) -> None:
    """Neither with who has changed the table before it, nor with who had not seen it."""
    catalog = one.lake()
    late = catalog.begin()
    one.begin()
    staged(one, 1, add("y"), has_read=True)
    append(catalog, "a", "x")
    one.ok("commit")
    stage(catalog, late, "a", add("z"))
    catalog.commit(late)
    assert newest(catalog).precedes is None


def test_who_removes_what_it_did_not_look_for_has_read_any_row_all_the_same(one: Client) -> None:
    one.begin()
    staged(one, 1, remove("p"), add("y"), has_read=True)
    one.ok("commit")
    assert told(one.lake()) == [("a", None)]
