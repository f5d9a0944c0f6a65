"""What the first entry of an export may say, and that no other may say it."""

from __future__ import annotations

import pytest
from msgspec import structs

from lockstep.errors import CorruptTimelineError
from lockstep.timeline.entry import TAG_FORMAT, Batch, Entry, NamespaceDdl, Origin, TableDdl, TagDdl
from lockstep.timeline.files import decode, encode
from lockstep.timeline.fold import apply
from tests.support.entries import entry
from tests.support.histories import name, write

ORIGIN = Origin(export="x", mode="full", root="s3://b/lake", version=7, batches=[Batch(application="s", number=3)])
TABLE = TableDdl(action="create", id="1", name=name("t"), location="tables/1", version=0)


def first(**more: object) -> Entry:
    namespaces = [NamespaceDdl(action="create", name=("default",), properties={"a": "b"})]
    return structs.replace(entry(0), format=TAG_FORMAT, namespaces=namespaces, origin=ORIGIN, **more)


def test_an_export_begins_with_all_that_its_version_said() -> None:
    made = first(tables=[TABLE], tags=[TagDdl(action="create", name="eod", version=0)])
    assert decode(encode(made), 0) == made
    database = apply(None, made)
    assert database.tables[name("t")].version == 0
    assert dict(database.batches) == {"s": 3}
    assert database.namespaces["default",] == {"a": "b"}
    assert [tag.version for tag in database.tags.values()] == [0]
    assert apply(database, entry(1, writes=[write(0, 1, "t", "1")])).tables[name("t")].version == 1


def test_only_with_an_origin_a_database_begins_with_something() -> None:
    with pytest.raises(CorruptTimelineError, match="expected an empty database"):
        apply(None, structs.replace(first(tables=[TABLE]), origin=None))


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (first(tables=[structs.replace(TABLE, version=None)]), "expected a write of its first version"),
        (first(tables=[TABLE], writes=[write(0, 1, "t", "1")]), "writes or reads tables"),
        (first(tags=[TagDdl(action="create", name="later", version=1)]), "expected one that there is"),
    ],
)
def test_what_a_first_entry_may_not_say(wrong: Entry, why: str) -> None:
    with pytest.raises(CorruptTimelineError, match=why):
        apply(None, wrong)


def test_no_later_entry_has_an_origin() -> None:
    later = structs.replace(entry(1), format=TAG_FORMAT, origin=ORIGIN)
    with pytest.raises(CorruptTimelineError, match="has an origin"):
        apply(apply(None, entry(0)), later)
