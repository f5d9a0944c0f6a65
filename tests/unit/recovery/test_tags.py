"""Tags: names of database versions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.commit.outcomes import Committed
from lockstep.errors import ConflictError, CorruptTimelineError, DuplicateError, InvalidError, UndefinedError
from lockstep.timeline.checkpoint import versions
from lockstep.timeline.entry import FORMAT, TAG_FORMAT, Tag, TagDdl
from lockstep.timeline.files import FOLDER, decode_all, entry_path
from lockstep.timeline.fold import fold
from lockstep.timeline.log import Timeline
from lockstep.transactions.lookup import find_tag
from tests.support.faulty import FaultyStorage
from tests.support.lakes import add, append, named, open_catalog, stage


def tag(catalog: TransactionalCatalog, name: str, version: int | None = None, **more: object) -> Committed:
    ddl = msgspec.convert({"action": "create", "name": name, "version": version, **more}, TagDdl)
    return catalog.run(lambda tx: tx.changing().create_tag(ddl))


def untag(catalog: TransactionalCatalog, name: str) -> Committed:
    return catalog.run(lambda tx: tx.changing().drop_tag(name))


def test_a_tag_names_the_version_that_made_it_unless_another_is_said(catalog: TransactionalCatalog) -> None:
    made = tag(catalog, "eod")
    old = tag(catalog, "first", 1, comment="the first load")
    head = catalog.database()
    assert head.tag("eod") == Tag(
        name="eod", version=made.version, since=made.version, created_at=catalog.timeline.at(made.version).committed_at
    )
    found = find_tag(head, "first")
    assert (found.version, found.since, found.comment) == (1, old.version, "the first load")


def test_a_tag_inside_a_transaction_names_what_that_commits(catalog: TransactionalCatalog) -> None:
    tx = catalog.begin()
    stage(catalog, tx, "a", add("x"))
    tx.changing().create_tag(TagDdl(action="create", name="loaded"))
    append(catalog, "b", "z")
    version = catalog.commit(tx).version
    append(catalog, "a", "y")
    assert catalog.as_of("loaded").version == version
    assert catalog.as_of("loaded").tables[named("a")].version == 1


def test_case_does_not_count_and_is_kept(catalog: TransactionalCatalog) -> None:
    tag(catalog, "EndOfDay")
    assert find_tag(catalog.database(), "endofday").name == "EndOfDay"
    with pytest.raises(DuplicateError, match="tag EndOfDay exists") as error:
        tag(catalog, "ENDOFDAY")
    assert error.value.sqlstate == "42710"


def test_a_tag_that_is_dropped_may_be_made_again(catalog: TransactionalCatalog) -> None:
    tag(catalog, "eod", 1)
    untag(catalog, "EOD")
    assert not catalog.database().tags
    with pytest.raises(UndefinedError, match="no tag eod") as error:
        untag(catalog, "eod")
    assert error.value.sqlstate == "42704"
    with pytest.raises(UndefinedError, match="no tag eod"):
        catalog.as_of("eod")
    tag(catalog, "eod", 2)
    assert catalog.as_of("eod").version == 2


def test_a_tag_is_moved_in_one_transaction(catalog: TransactionalCatalog) -> None:
    tag(catalog, "eod", 1)
    tx = catalog.begin()
    tx.changing().drop_tag("eod")
    assert tx.names.tag("eod") is None
    tx.changing().create_tag(TagDdl(action="create", name="eod", version=2))
    catalog.commit(tx)
    assert catalog.as_of("eod").version == 2


def test_what_comes_and_goes_in_one_transaction_never_was(catalog: TransactionalCatalog) -> None:
    tx = catalog.begin()
    tx.changing().create_tag(TagDdl(action="create", name="eod", version=1))
    tx.changing().drop_tag("eod")
    assert catalog.commit(tx).entry is None


def test_a_savepoint_takes_tags_back(catalog: TransactionalCatalog) -> None:
    tx = catalog.begin()
    tx.savepoint("s")
    tx.changing().create_tag(TagDdl(action="create", name="eod", version=1))
    catalog.rollback_to(tx, "s")
    tx.changing().create_tag(TagDdl(action="create", name="eod", version=2))
    catalog.commit(tx)
    assert catalog.as_of("eod").version == 2


@pytest.mark.parametrize(
    ("name", "sqlstate"),
    [("", "42602"), ("  ", "42602"), ("41", "42602"), ("@41", "42602"), ("a\x00b", "42602"), ("x" * 256, "42622")],
    ids=repr,
)
def test_a_name_that_can_be_none_is_refused(catalog: TransactionalCatalog, name: str, sqlstate: str) -> None:
    with pytest.raises(InvalidError) as error:
        catalog.run(lambda tx: tx.changing().create_tag(TagDdl(action="create", name=name)))
    assert error.value.sqlstate == sqlstate
    assert not catalog.database().tags


def test_a_version_that_is_not_there_is_refused(catalog: TransactionalCatalog) -> None:
    with pytest.raises(InvalidError, match="of database version 99: expected one that there is"):
        tag(catalog, "later", 99)
    assert not catalog.database().tags


@pytest.mark.parametrize("theirs", ["create", "drop"])
@pytest.mark.parametrize("ours", ["create", "drop"])
def test_two_that_change_one_tag_conflict(store: FaultyStorage, ours: str, theirs: str) -> None:
    one, other = open_catalog(store), open_catalog(store)
    if "drop" in (ours, theirs):
        tag(one, "eod", 0)
    transactions = {}
    for catalog, action in ((one, ours), (other, theirs)):
        tx = catalog.begin()
        tx.changing().drop_tag("eod") if "drop" in (ours, theirs) else None
        if action == "create":
            tx.changing().create_tag(TagDdl(action="create", name="EOD", version=0))
        transactions[catalog] = tx
    other.commit(transactions[other])
    with pytest.raises(ConflictError, match=r"(created|dropped) tag (eod|EOD), which this transaction"):
        one.commit(transactions[one])


def test_different_tags_do_not_conflict(store: FaultyStorage) -> None:
    one, other = open_catalog(store), open_catalog(store)
    tx = one.begin()
    tx.changing().create_tag(TagDdl(action="create", name="a"))
    tag(other, "b")
    one.commit(tx)
    assert set(one.database().tags) == {"a", "b"}


def test_a_tag_lives_in_checkpoints(catalog: TransactionalCatalog, store: FaultyStorage) -> None:
    """Whoever opens the lake from a checkpoint sees it, and may drop it."""
    catalog = TransactionalCatalog.open(store.url, checkpoint_interval=3)
    tag(catalog, "eod", 0, comment="kept")
    for number in range(7):
        tx = catalog.begin()
        tx.changing().create_namespace((f"n{number}",), {})
        catalog.commit(tx)
    catalog.lake.upkeep.settle()
    assert versions(store)
    for entry in (1, 2, 3):
        store.delete(entry_path(entry))
    again = TransactionalCatalog.open(store.url)
    assert find_tag(again.database(), "EOD").comment == "kept"
    untag(again, "eod")
    assert not TransactionalCatalog.open(store.url).database().tags


def test_an_older_lockstep_is_told_to_upgrade_and_a_lake_without_tags_is_as_ever(
    catalog: TransactionalCatalog, store: FaultyStorage
) -> None:
    append(catalog, "a", "x")
    without = catalog.timeline.head.version
    tag(catalog, "eod")
    formats = [entry.format for entry in catalog.timeline.entries(0)]
    assert formats == [FORMAT] * without + [TAG_FORMAT]
    data = store.get(entry_path(without + 1))
    assert data is not None
    for number in (FORMAT, 9):
        wrong = data.replace(b'"format":3', b'"format":%d' % number)
        with pytest.raises(CorruptTimelineError, match="expected 3 of what it says" if number == 1 else "upgrade"):
            decode_all(wrong, without + 1)


def test_retention_is_a_time(catalog: TransactionalCatalog) -> None:
    until = datetime(2030, 1, 1, tzinfo=UTC)
    tag(catalog, "eod", retain_until=until)
    found = find_tag(catalog.database(), "eod")
    assert found.is_kept(until - timedelta(seconds=1))
    assert not found.is_kept(until)
    tag(catalog, "ever")
    assert find_tag(catalog.database(), "ever").is_kept(until)


def test_the_timeline_says_it_all_again(catalog: TransactionalCatalog, store: FaultyStorage) -> None:
    tag(catalog, "a")
    tag(catalog, "b", 1)
    untag(catalog, "a")
    assert store.list(FOLDER)
    folded = fold(Timeline.open(store).scan())
    assert dict(folded.tags) == dict(catalog.database().tags)
    assert set(folded.tags) == {"b"}
