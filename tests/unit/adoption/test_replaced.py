"""A plain Delta writer's commit that the lake has taken in is known again: another in its place is refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from lockstep.adoption.adopt import Wanted, look
from lockstep.catalog import TransactionalCatalog
from lockstep.delta.log import LOG
from lockstep.errors import CorruptTimelineError, ForeignCommitError, InvalidError
from lockstep.lake.verify import verify
from lockstep.recovery.changes import restore_to, undrop
from lockstep.recovery.divergence import divergence
from lockstep.recovery.restore import Selection
from lockstep.recovery.settle import Side, settle
from lockstep.recovery.tags import new_tag
from lockstep.timeline.entry import ADOPTION_FORMAT, INLINE_BYTES
from lockstep.timeline.expiry import expire
from lockstep.timeline.segment import list_segments
from lockstep.transactions.transaction import Transaction
from tests.support.adopting import adopted, plain_table
from tests.support.entries import T0
from tests.support.lakes import add, append, create, files, foreign, large, location, named, open_catalog, stage


@pytest.fixture
def folder(catalog: TransactionalCatalog, warehouse: Path) -> Path:
    """An adopted table of the rows 1 and 2, in two versions, beside another one, `b`."""
    create(catalog, "b", files=["p"])
    place = plain_table(warehouse / "orders", 1, 2)
    adopted(catalog, "orders", place)
    return place


def replaced_by(folder: Path, *ids: int) -> None:
    """Have another table of the same columns in a table's folder; what a transaction has staged there stays."""
    other = plain_table(folder.parent / "other", *ids)
    if (staging := folder / LOG / "_lockstep").exists():
        shutil.copytree(staging, other / LOG / "_lockstep")
    shutil.rmtree(folder)
    other.rename(folder)


def reopened(catalog: TransactionalCatalog) -> TransactionalCatalog:
    return open_catalog(catalog.lake.storage)


@pytest.mark.parametrize("ids", [(3, 4), (3, 4, 5)], ids=["as many versions", "more versions"])
@pytest.mark.parametrize("knows", [True, False], ids=["the same process", "another process"])
def test_another_table_in_the_folder_is_refused(
    catalog: TransactionalCatalog, folder: Path, ids: tuple[int, ...], knows: bool
) -> None:
    """It is neither read, nor taken in, nor written; other tables go on; and the table that was there is used again."""
    if knows:
        assert len(files(catalog, "orders")) == 2
    shutil.copytree(folder, folder.parent / "kept")
    tx = catalog.begin()
    stage(catalog, tx, "orders", add("mine"))
    replaced_by(folder, *ids)
    reader = catalog if knows else reopened(catalog)
    for _ in range(2):
        with pytest.raises(ForeignCommitError, match=r"is not the commit that database version \d+ knows as version 1"):
            files(reader, "orders")
    with pytest.raises(ForeignCommitError, match="another table lies in this folder now"):
        catalog.commit(tx)
    assert files(reader, "b") == {"p"}
    found = verify(catalog.lake.storage, catalog.timeline).differences
    assert [(each.problem, each.table_version) for each in found] == [("different", 1)]
    shutil.rmtree(folder)
    shutil.copytree(folder.parent / "kept", folder)
    assert len(files(reader, "orders")) == 2


def test_what_is_there_now_is_taken_by_drop_and_adopt(catalog: TransactionalCatalog, folder: Path) -> None:
    replaced_by(folder, 3, 4, 5)
    catalog.run(lambda tx: tx.changing().drop_table(named("orders")))
    adopted(catalog, "orders", folder)
    assert len(files(reopened(catalog), "orders")) == 3


def test_what_was_taken_in_later_is_known_too(catalog: TransactionalCatalog, folder: Path) -> None:
    """Of a table that the lake made, as well: a plain writer may write over what another one wrote."""
    foreign(catalog, "b", 1, add("theirs"))
    assert files(catalog, "b") == {"p", "theirs"}
    [entry] = catalog.timeline.entries(catalog.timeline.head.version - 1, catalog.timeline.head.version)
    assert (entry.kind, entry.format, len(entry.writes[0].digest)) == ("external", ADOPTION_FORMAT, 16)
    path = Path(catalog.lake.storage.url.removeprefix("file://"), location(catalog, "b"), LOG, f"{1:020d}.json")
    theirs = path.read_bytes()
    path.unlink()
    foreign(catalog, "b", 1, add("others"))
    with pytest.raises(ForeignCommitError, match="wrote over that version"):
        files(reopened(catalog), "b")
    path.write_bytes(theirs)
    append(catalog, "b", "ours")
    assert catalog.timeline.head.tables[named("b")].digest == ""
    assert files(reopened(catalog), "b") == {"p", "theirs", "ours"}


def test_a_large_commit_is_not_compared(catalog: TransactionalCatalog, folder: Path) -> None:
    """As docs/limits.md says: each use of the table would have to read all of it."""
    path = foreign(catalog, "b", 1, large("theirs"))
    assert files(catalog, "b") == {"p", "theirs"}
    assert len(catalog.lake.storage.get(path) or b"") > INLINE_BYTES
    assert catalog.timeline.head.tables[named("b")].digest == ""


@pytest.mark.parametrize("what", [b"", b'{"commitInfo":{}}\n{"add":{"pa'], ids=["empty", "torn"])
def test_a_commit_that_is_not_whole_is_not_taken_in(catalog: TransactionalCatalog, folder: Path, what: bytes) -> None:
    """Until it is: its writer may not be done."""
    torn = folder / LOG / f"{2:020d}.json"
    torn.write_bytes(what)
    version = catalog.timeline.head.version
    with pytest.raises(CorruptTimelineError, match=torn.name):
        files(catalog, "orders")
    assert catalog.timeline.head.version == version
    torn.write_bytes(b'{"commitInfo":{}}\n')
    assert len(files(catalog, "orders")) == 2


@pytest.mark.parametrize("what", [b"", b'{"commitInfo":{}}\n{"add":{"pa'], ids=["empty", "torn"])
@pytest.mark.parametrize("checksum", [True, False], ids=["with checksum", "without"])
def test_a_table_whose_last_commit_is_not_whole_is_not_adopted(
    catalog: TransactionalCatalog, warehouse: Path, what: bytes, checksum: bool
) -> None:
    """A checksum says what the table is like, and not that its commit is whole."""
    place = plain_table(warehouse / "t", 1, 2)
    torn = place / LOG / f"{1:020d}.json"
    torn.write_bytes(what)
    if checksum:
        create(catalog, "b", files=["p"])
        catalog.lake.upkeep.settle()
        root = Path(catalog.lake.storage.url.removeprefix("file://"))
        shutil.copy(root / location(catalog, "b") / LOG / f"{0:020d}.crc", place / LOG / f"{1:020d}.crc")
    [found] = look(catalog.lake, catalog.database(), [Wanted(named("t"), str(place))])
    assert torn.name in (found.reason or "")


@pytest.mark.parametrize("has_history", [True, False])
@pytest.mark.parametrize("ids", [(3, 4), (3, 4, 5)], ids=["as many versions", "more versions"])
def test_another_table_is_not_settled_as_the_one_that_was_there_though_the_adoption_has_expired(
    catalog: TransactionalCatalog, folder: Path, ids: tuple[int, ...], *, has_history: bool
) -> None:
    """The table knows its newest commit by its digest, and what was there is nowhere else."""
    for number in range(3):
        append(catalog, "b", f"b{number}")
    catalog.lake.upkeep.settle()
    expire(catalog.timeline, first_kept=catalog.timeline.head.version - 1, wait=lambda: None)
    if not has_history:
        for segment in list_segments(catalog.lake.storage):
            catalog.lake.storage.delete(segment.path)
    replaced_by(folder, *ids)
    other = reopened(catalog)
    found = divergence(other.lake, named("orders"))
    assert (found.common, found.newest, found.is_ahead) == (-1, len(ids) - 1, False)
    with pytest.raises(InvalidError, match="ours cannot be kept, for what lay in the folder"):
        settled_as("ours", other)
    settled_as("theirs", other)
    assert len(files(reopened(catalog), "orders")) == len(ids)
    assert not verify(catalog.lake.storage, other.timeline).differences


@pytest.mark.parametrize("has_expired", [True, False])
@pytest.mark.parametrize("ids", [(3, 4), (3, 4, 5)], ids=["as many versions", "more versions"])
def test_another_table_is_not_brought_back_as_the_one_that_was_dropped(
    catalog: TransactionalCatalog, folder: Path, ids: tuple[int, ...], *, has_expired: bool
) -> None:
    """Nor seen in the transaction that asks for it."""
    then = catalog.database()
    catalog.run(
        lambda tx: tx.changing().create_tag(new_tag("then", version=then.version, now=T0, days=None, comment=""))
    )
    catalog.run(lambda tx: tx.changing().drop_table(named("orders")))
    dropped = catalog.timeline.head.version
    if has_expired:
        for number in range(3):
            append(catalog, "b", f"b{number}")
        catalog.lake.upkeep.settle()
        expire(catalog.timeline, first_kept=dropped, wait=lambda: None)
    shutil.copytree(folder, folder.parent / "kept")
    replaced_by(folder, *ids)
    everything = Selection(everything=True)
    ways: list[Callable[[Transaction], object]] = [
        lambda tx: restore_to(catalog.lake, tx, catalog.as_of("then"), everything, dry_run=True)
    ]
    if not has_expired:
        ways.append(lambda tx: undrop(catalog.lake, tx, named("orders")))
    for bring_back in ways:
        tx = catalog.begin()
        with pytest.raises(ForeignCommitError, match=r"orders cannot come back: .* another table lies in this folder"):
            bring_back(tx)
        assert named("orders") not in tx.names.tables
        catalog.rollback(tx)
    shutil.rmtree(folder)
    shutil.copytree(folder.parent / "kept", folder)
    tx = catalog.begin()
    restore_to(catalog.lake, tx, catalog.as_of("then"), Selection(names=frozenset([named("orders")])))
    catalog.commit(tx)
    assert len(files(catalog, "orders")) == 2


def settled_as(keep: Side, catalog: TransactionalCatalog) -> None:
    found = divergence(catalog.lake, named("orders"))
    settle(catalog.lake, found, keep, lambda do: catalog.run(do).version)
