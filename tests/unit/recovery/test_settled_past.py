"""What older database versions say of a table that was settled since: its log is another side's there, and says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from lockstep.adoption.release import release
from lockstep.catalog import TransactionalCatalog
from lockstep.errors import CorruptTimelineError, ForeignCommitError, LockstepError
from lockstep.exports.export import Asked, Exporter
from lockstep.exports.importing import import_minimal
from lockstep.lake.kept import check_readable
from lockstep.recovery.changes import restore_to, undrop
from lockstep.recovery.restore import Selection, TableRestore
from lockstep.recovery.row_changes import VersionRange, commits_between
from lockstep.recovery.settle import Side
from lockstep.recovery.tags import new_tag
from lockstep.storage.outside import open_reaching
from lockstep.timeline.base import read_base, write_base
from lockstep.timeline.checkpoint import versions
from lockstep.timeline.entry import Entry, Table, TableDdl
from lockstep.timeline.files import entry_path, find
from lockstep.timeline.settlements import successors
from lockstep.transactions.lookup import find_table
from tests.support.diverged import SIDES, diverged, put_foreign, settled
from tests.support.faulty import FaultyStorage
from tests.support.lakes import add, append, create, location, named, open_catalog

BEFORE = 1
"""The database version that made the tables; `OURS` has what was written over, or overtaken."""
OURS = 2


@pytest.fixture
def store(tmp_path: Path) -> FaultyStorage:
    return FaultyStorage(open_reaching(str(tmp_path / "lake"), create=True))


def give_back(catalog: TransactionalCatalog) -> None:
    """Release the table."""
    released: list[Table] = []
    catalog.run(lambda tx: released.extend(release(catalog.lake, tx, [named("t")])))


@pytest.mark.parametrize("keep", SIDES)
@pytest.mark.parametrize("case", ["in conflict", "written over"])
def test_a_version_that_the_log_does_not_tell_of_any_more_is_refused(
    store: FaultyStorage, case: str, keep: Side
) -> None:
    """In whatever process, and whichever side is kept: the log has theirs there. What was before that is as it was."""
    catalog = diverged(store, case)
    late = open_catalog(store.inner)
    catalog.as_of(OURS)  # it is kept in memory
    settlement = settled(catalog, keep)
    late.timeline.refresh()
    for user in (catalog, late, open_catalog(store.inner)):
        with pytest.raises(ForeignCommitError, match=r"default\.t cannot be read at version 1 .*settled") as refused:
            find_table(user.as_of(OURS), named("t"))
        assert refused.value.sqlstate == "40002"
        assert find_table(user.as_of(OURS), named("u")).version == 0
        assert find_table(user.as_of(BEFORE), named("t")).version == 0
        assert find_table(user.as_of(settlement), named("t")).version == 3


@pytest.mark.parametrize("keep", SIDES)
def test_where_only_foreign_commits_were_refused_all_versions_are_as_they_were(
    store: FaultyStorage, keep: Side
) -> None:
    catalog = diverged(store, "refused")
    settled(catalog, keep)
    assert find_table(open_catalog(store).as_of(OURS), named("t")).version == 1
    assert find_table(catalog.as_of(OURS), named("t")).version == 1


def test_it_is_known_from_a_checkpoint_and_from_a_base(store: FaultyStorage) -> None:
    """The entry that says it may be long gone from memory, and from the store."""
    catalog = diverged(store, "written over")
    settlement = settled(catalog, "theirs")
    for number in range(100 - settlement):
        append(catalog, "u", f"more{number}")
    catalog.lake.upkeep.settle()
    assert versions(store) == [100]
    other = open_catalog(store.inner)
    with pytest.raises(ForeignCommitError, match="settled"):
        find_table(other.as_of(OURS), named("t"))
    file = find(store.inner, 100)
    assert file is not None
    write_base(store, other.timeline.state_at(100), file)
    assert read_base(store, 100) == other.timeline.state_at(100)


def test_it_is_shown_of_other_tables_and_no_tag_of_it_is_made(store: FaultyStorage) -> None:
    catalog = diverged(store, "written over")
    now = catalog.lake.clock()
    with pytest.raises(ForeignCommitError, match="wrote over"):
        catalog.run(lambda tx: tx.changing().create_tag(new_tag("eod", version=OURS, days=None, comment="", now=now)))
    settled(catalog, "theirs")
    then = catalog.as_of(OURS)
    assert find_table(then, named("u")).version == 0
    with pytest.raises(ForeignCommitError, match="settled"):
        find_table(then, named("t"))
    with pytest.raises(ForeignCommitError, match="settled"):
        check_readable(catalog.lake, OURS)


def test_no_export_is_made_of_it(store: FaultyStorage, tmp_path: Path) -> None:
    catalog = diverged(store, "written over")
    settled(catalog, "theirs")
    with pytest.raises(ForeignCommitError, match="settled"):
        Exporter(catalog.lake).run(Asked(to=str(tmp_path / "copy"), version=OURS, mode="partial"))


def test_no_lake_is_made_of_a_file_that_was_exported_before(store: FaultyStorage, tmp_path: Path) -> None:
    """It names versions of the tables' logs."""
    catalog = open_catalog(store)
    create(catalog, "t", "u", files=["p"])
    append(catalog, "t", "ours")
    catalog.lake.upkeep.settle()
    Exporter(catalog.lake).run(Asked(to=str(tmp_path / "file"), version=OURS, mode="minimal"))
    put_foreign(catalog, 1, add("theirs"))
    settled(catalog, "theirs")
    with pytest.raises(ForeignCommitError, match="settled"):
        import_minimal(Exporter(catalog.lake), str(tmp_path / "file"), Asked(to=str(tmp_path / "copy"), mode="partial"))


def test_it_is_not_restored_nor_brought_back_once_the_settled_table_is_gone(store: FaultyStorage) -> None:
    catalog = diverged(store, "written over")
    old = catalog.timeline.head.tables[named("t")]
    settled(catalog, "theirs")
    give_back(catalog)
    tx = catalog.begin()
    with pytest.raises(ForeignCommitError, match="settled"):
        undrop(catalog.lake, tx, named("back"), id=old.id)
    with pytest.raises(ForeignCommitError, match="settled"):
        restore_to(catalog.lake, tx, catalog.as_of(OURS), Selection(everything=True))
    catalog.rollback(tx)


@pytest.mark.parametrize("keep", SIDES)
@pytest.mark.parametrize("case", ["in conflict", "written over"])
def test_a_settled_table_is_restored_to_a_version_of_which_its_log_still_tells(
    store: FaultyStorage, case: str, keep: Side
) -> None:
    """Under the id that it has now; of a later version the log tells nothing any more."""
    catalog = diverged(store, case)
    settled(catalog, keep)
    new = catalog.timeline.head.tables[named("t")].id
    catalog.run(lambda tx: tx.changing().rename_table(named("t"), named("renamed")))
    tx = catalog.begin()
    for selection in (Selection(everything=True), Selection(names=frozenset([named("t")]))):
        with pytest.raises(ForeignCommitError, match="settled"):
            restore_to(catalog.lake, tx, catalog.as_of(OURS), selection)
    assert restore_to(catalog.lake, tx, catalog.as_of(BEFORE), Selection(everything=True)) == [
        TableRestore(named("t"), 0)
    ]
    assert tx.names.table(named("t")).id == new
    assert named("renamed") not in tx.names.tables
    catalog.rollback(tx)


def test_what_has_nothing_to_do_with_a_settlement_is_restored_though_an_entry_since_is_lost(
    store: FaultyStorage,
) -> None:
    """Only of tables that are meant is it asked what was settled; of others it would be read, and refused, in vain."""
    catalog = diverged(store, "written over")
    settlement = settled(catalog, "theirs")
    for number in range(100 - settlement):
        append(catalog, "u", f"more{number}")
    catalog.lake.upkeep.settle()
    store.inner.delete(entry_path(settlement))
    other = open_catalog(store.inner)
    tx, then = other.begin(), other.as_of(BEFORE)
    for meant in (Selection(names=frozenset([named("t")])), Selection(ids=frozenset([then.tables[named("t")].id]))):
        with pytest.raises(CorruptTimelineError):
            restore_to(other.lake, tx, then, meant)
    assert restore_to(other.lake, tx, then, Selection(names=frozenset([named("u")]))) == [TableRestore(named("u"), 0)]
    other.rollback(tx)


def test_what_a_later_settlement_changed_in_the_log_is_not_restored(store: FaultyStorage) -> None:
    """Each settlement counts that the table has had since, and what was dropped in between is gone."""
    version = diverged(store, "written over").timeline.head.version
    table = Table(id="x", name=named("t"), location="t-x", version=3, since=1)

    def entry(*ddl: TableDdl) -> Entry:
        [made] = open_catalog(store).timeline.entries(version - 1, version)
        return structs.replace(made, tables=[*ddl])

    def settlement(old: str, new: str, right_through: int) -> Entry:
        return entry(
            TableDdl(action="drop", id=old, name=named("t"), right_through=right_through),
            TableDdl(action="create", id=new, name=named("t"), location="t-x", version=9),
        )

    first, second = settlement("x", "y", 3), settlement("y", "z", 5)
    assert successors([table], [first]) == {"x": "y"}
    assert successors([table], [first, second]) == {"x": "z"}
    assert successors([table], [settlement("x", "y", 2)]) == {}
    assert successors([table], [first, settlement("y", "z", 2)]) == {}
    assert successors([table], [entry(TableDdl(action="drop", id="x", name=named("t"))), second]) == {}


def test_a_transaction_from_before_does_not_read_it(store: FaultyStorage) -> None:
    catalog = open_catalog(store)
    create(catalog, "t", "u", files=["p"])
    append(catalog, "t", "ours")
    catalog.lake.upkeep.settle()
    tx = catalog.begin()
    put_foreign(catalog, 1, add("theirs"))
    settled(catalog, "theirs")
    with pytest.raises(LockstepError, match="settled"):
        catalog.table(tx, named("t"))
    assert catalog.table(tx, named("u")).version == 0
    catalog.rollback(tx)
    old = catalog.timeline.at(BEFORE).tables[named("t")]
    catalog.lake.publisher.refuse_aside(old)


@pytest.mark.parametrize("keep", SIDES)
def test_what_changed_across_the_settlement_is_refused(store: FaultyStorage, keep: Side) -> None:
    """The commit that goes back takes out rows that no database version of the table ever had."""
    catalog = diverged(store, "written over")
    settlement = settled(catalog, keep)
    later = append(catalog, "t", "more")
    id_ = catalog.timeline.head.tables[named("t")].id
    for after in (0, settlement - 1):
        with pytest.raises(ForeignCommitError, match=f"from {settlement + 1} on") as refused:
            commits_between(catalog.timeline, id_, VersionRange(after, later))
        assert refused.value.sqlstate == "40002"
    [run] = commits_between(catalog.timeline, id_, VersionRange(settlement, later))
    assert (run.first, run.last, run.version) == (4, 4, later)
    other = catalog.timeline.head.tables[named("u")].id
    assert len(commits_between(catalog.timeline, other, VersionRange(0, later))) == 1


# --- who comes late ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("knows", [True, False], ids=["it has read on", "it has not"])
def test_nothing_is_published_behind_a_settled_table_that_was_given_back(store: FaultyStorage, knows: bool) -> None:
    """A process that ratified before it, and was slow: the folder is others' by then, and so is its log."""
    catalog = open_catalog(store)
    create(catalog, "t", "u", files=["p"])
    slow = open_catalog(store.inner)
    append(catalog, "t", "ours")
    catalog.lake.upkeep.settle()
    slow.timeline.refresh()
    [entry] = slow.timeline.entries(OURS - 1, OURS)
    where = location(catalog, "t")
    put_foreign(catalog, 1, add("theirs"))
    settled(catalog, "theirs")
    give_back(catalog)
    if knows:
        slow.timeline.refresh()
    before = {each.path for each in store.walk(where)}
    for fresh in (True, False):
        slow.lake.publisher.publish_write(entry, entry.writes[0], fresh=fresh)
        slow.lake.publisher.write_checksums(entry, entry.writes)
    assert {each.path for each in store.walk(where)} == before
    assert open_catalog(store.inner).timeline.moves == {}
