"""Releasing, and what is never deleted: tables that others made, or go on with, are theirs."""

from __future__ import annotations

import shutil
from datetime import timedelta
from itertools import product
from pathlib import Path

import pytest
from deltalake import DeltaTable

from lockstep.adoption.adopt import Wanted, adopt, look
from lockstep.adoption.release import release
from lockstep.catalog import TransactionalCatalog
from lockstep.delta.log import LOG
from lockstep.errors import (
    CommitUnknownError,
    ConflictError,
    CorruptTimelineError,
    InvalidError,
    MissingFilesError,
    TransactionStateError,
    UnavailableError,
    UndefinedError,
)
from lockstep.lake.guests import FOLDER, guests
from lockstep.retention.ages import Retention
from lockstep.retention.expiring import expire_snapshots
from lockstep.retention.needs import NOTHING, Need
from lockstep.retention.planning import EVERYTHING, NOT_KNOWN, NOT_MADE_HERE, NOT_OURS, Scope, need_at, plan
from lockstep.retention.upkeep import maintain, remove_orphan_files, vacuum
from lockstep.storage.outside import open_reaching
from lockstep.timeline import fence
from lockstep.timeline.files import entry_path
from tests.support.adopting import adopted, files_of, ids, plain_table, released, written_log
from tests.support.faulty import FaultyStorage
from tests.support.lakes import add, append, create, location, named, open_catalog, remove, stage
from tests.support.retained import AgedStorage, Ticking

AT_ONCE = Retention(age=timedelta(), last=1, grace=timedelta(), orphan_age=timedelta(days=7))


@pytest.fixture(params=["warehouse", "inside"])
def folder(request: pytest.FixtureRequest) -> Path:
    place: Path = request.getfixturevalue(request.param)
    return plain_table(place / "orders", 1, 2)


def test_a_released_table_is_as_plain_delta_would_have_it(catalog: TransactionalCatalog, folder: Path) -> None:
    adopted(catalog, "orders", folder)
    append(catalog, "orders", "p")
    version = released(catalog, "orders")
    assert not (folder / LOG / "_lockstep").exists()
    assert not catalog.database().tables
    plain_table(folder, 3)
    assert adopted(catalog, "orders", folder).version == 3
    assert catalog.timeline.at(version - 1).tables[named("orders")].version == 2


def test_a_table_that_the_lake_made_can_be_released_and_adopted(catalog: TransactionalCatalog, root: Path) -> None:
    create(catalog, "a", files=["p"])
    folder = root / location(catalog, "a")
    before = files_of(folder)
    released(catalog, "a")
    assert files_of(folder) == before
    assert guests(catalog.lake.storage) == {str(folder.relative_to(root))}
    assert adopted(catalog, "b", folder).location == str(folder.relative_to(root))


def test_a_rollback_keeps_it(catalog: TransactionalCatalog, folder: Path) -> None:
    adopted(catalog, "orders", folder)
    before = files_of(folder)
    tx = catalog.begin()
    release(catalog.lake, tx, [named("orders")])
    catalog.rollback(tx)
    assert named("orders") in catalog.database().tables
    assert files_of(folder) == before


@pytest.mark.parametrize("how", ["rollback", "rollback to", "dry run", "refused", "files gone"])
def test_a_release_that_does_not_come_about_leaves_the_table_the_lakes_own(
    catalog: TransactionalCatalog, how: str
) -> None:
    """Else nothing of it would be cleaned up ever again."""
    create(catalog, "a", "b", files=["p"])
    tx = catalog.begin()
    tx.savepoint("before")
    if how == "dry run":
        with tx.looking():
            release(catalog.lake, tx, [named("a")])
    else:
        release(catalog.lake, tx, [named("a")])
    if how == "refused":
        append(catalog, "a", "q")
        with pytest.raises(ConflictError):
            catalog.commit(tx)
    elif how == "files gone":
        stage(catalog, tx, "b", add("r"))
        catalog.lake.storage.delete(f"{location(catalog, 'b')}/r")
        with pytest.raises(MissingFilesError):
            catalog.commit(tx)
    elif how == "rollback to":
        catalog.rollback_to(tx, "before")
        tx.changing().drop_table(named("b"))
        catalog.commit(tx)
    else:
        catalog.rollback(tx)
    assert guests(catalog.lake.storage) == frozenset()
    assert named("a") in catalog.database().tables


def test_what_is_dropped_after_its_release_was_undone_is_the_lakes_own(catalog: TransactionalCatalog) -> None:
    create(catalog, "a", files=["p"])
    tx = catalog.begin()
    tx.savepoint("before")
    release(catalog.lake, tx, [named("a")])
    catalog.rollback_to(tx, "before")
    tx.changing().drop_table(named("a"))
    catalog.commit(tx)
    assert guests(catalog.lake.storage) == frozenset()


def test_a_commit_that_was_not_answered_keeps_what_it_wrote_down_until_that_is_settled(root: Path) -> None:
    """Its entry may be there; and if it turns out that it is not, the folder is the lake's own as before."""
    for landed in (True, False):
        store = FaultyStorage(open_reaching(str(root / str(landed)), create=True))
        catalog = open_catalog(store)
        create(catalog, "a", files=["p"])
        place = location(catalog, "a")
        tx = catalog.begin()
        release(catalog.lake, tx, [named("a")])
        store.go_down(entry_path(2), landed=landed)
        with pytest.raises(CommitUnknownError):
            catalog.commit(tx)
        store.heal()
        assert guests(store) == {place}
        if landed:
            with pytest.raises(TransactionStateError, match=r"did land|is committed"):
                catalog.rollback(tx)
        else:
            catalog.rollback(tx)
        assert guests(store) == (frozenset({place}) if landed else frozenset())


def test_a_release_that_could_not_be_written_down_is_not_committed(root: Path) -> None:
    store = FaultyStorage(open_reaching(str(root), create=True))
    catalog = open_catalog(store)
    create(catalog, "a", files=["p"])
    place = location(catalog, "a")
    tx = catalog.begin()
    release(catalog.lake, tx, [named("a")])
    store.fail("put", path=f"{tx.id}.json")
    with pytest.raises(UnavailableError):
        catalog.commit(tx)
    assert named("a") in open_catalog(store).database().tables
    catalog.commit(tx)
    assert guests(store) == {place}


def test_what_is_in_no_log_yet_cannot_be_given_back(catalog: TransactionalCatalog, folder: Path) -> None:
    adopted(catalog, "orders", folder)
    tx = catalog.begin()
    stage(catalog, tx, "orders", add("p"))
    with pytest.raises(InvalidError, match=r"made, adopted or wrote it: COMMIT first"):
        release(catalog.lake, tx, [named("orders")])
    with pytest.raises(UndefinedError):
        release(catalog.lake, tx, [named("nosuch")])
    catalog.rollback(tx)
    tx = catalog.begin()
    release(catalog.lake, tx, [named("orders")])
    adopt(catalog.lake, tx, look(catalog.lake, tx.names, [Wanted(named("again"), str(folder))]))
    with pytest.raises(InvalidError, match="COMMIT first"):
        release(catalog.lake, tx, [named("again")])


def test_a_write_beside_a_release_conflicts(catalog: TransactionalCatalog, folder: Path) -> None:
    adopted(catalog, "orders", folder)
    tx = catalog.begin()
    release(catalog.lake, tx, [named("orders")])
    append(catalog, "orders", "p")
    with pytest.raises(ConflictError):
        catalog.commit(tx)


def test_what_others_have_staged_in_a_released_table_stays_for_them(
    catalog: TransactionalCatalog, folder: Path
) -> None:
    adopted(catalog, "orders", folder)
    tx = catalog.begin()
    stage(catalog, tx, "orders", add("p"))
    released(catalog, "orders")
    left = [path.name for path in (folder / LOG / "_lockstep").iterdir()]
    assert left == [tx.id]
    with pytest.raises(ConflictError):
        catalog.commit(tx)


def test_what_a_killed_process_left_of_a_commit_goes_with_the_release(
    catalog: TransactionalCatalog, folder: Path
) -> None:
    """It has committed and is published, so nobody needs it; of an id that no entry has nobody knows that."""
    adopted(catalog, "orders", folder)
    append(catalog, "orders", "p")
    committed = catalog.timeline.entries(catalog.timeline.head.version - 1)
    for id_ in (next(iter(committed)).transaction.id, "0123456789abcdef01234567"):
        (folder / LOG / "_lockstep" / id_).mkdir(parents=True)
        (folder / LOG / "_lockstep" / id_ / f"{2:020d}.json").write_text("{}")
    released(catalog, "orders")
    assert [path.name for path in (folder / LOG / "_lockstep").iterdir()] == ["0123456789abcdef01234567"]


# --- what is never deleted --------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has read the timeline before an entry went: there is nobody to wait for."""
    monkeypatch.setattr(fence, "GRACE_SECONDS", 0.0)


@pytest.fixture
def clock() -> Ticking:
    return Ticking()


@pytest.fixture
def aged(tmp_path: Path, clock: Ticking) -> AgedStorage:
    return AgedStorage(open_reaching(str(tmp_path / "lake"), create=True), clock)


@pytest.fixture
def old(aged: AgedStorage, clock: Ticking) -> TransactionalCatalog:
    """A lake in which years pass as the test says, and in which upkeep has something to delete of its own table."""
    old = open_catalog(aged, clock=clock)
    create(old, "own", files=["p"])
    tx = old.begin()
    stage(old, tx, "own", remove("p", deletionTimestamp=clock.ms), add("q"))
    old.commit(tx)
    return old


def upkeep(catalog: TransactionalCatalog, clock: Ticking, aged: AgedStorage) -> list[str]:
    """Run all upkeep, years apart, and return what was deleted of tables."""
    aged.deleted.clear()
    for _ in range(3):
        clock.now += timedelta(days=1000)
        append(catalog, "own", f"day-{clock.ms}")
        maintain(catalog.lake, AT_ONCE)
        remove_orphan_files(catalog.lake, AT_ONCE)
    return [path for path in aged.deleted if not path.startswith("_lockstep/")]


FOLDERS = ("warehouse", "lake/plain", "lake/plain-0123456789abcdef01234567")
CASES = [*product(FOLDERS, ("stays", "is dropped", "is released"))]


@pytest.mark.parametrize("case", CASES, ids=": ".join)
def test_no_upkeep_ever_deletes_a_file_of_a_table_that_was_adopted(
    old: TransactionalCatalog, clock: Ticking, aged: AgedStorage, tmp_path: Path, case: tuple[str, str]
) -> None:
    where, then = case
    folder = plain_table(tmp_path / where, 1, 2)
    DeltaTable(str(folder)).delete("id = 1")
    (folder / "litter").write_bytes(b"somebody's")
    adopted(old, "orders", folder)
    append(old, "orders", "p")
    tx = old.begin()
    stage(old, tx, "orders", remove("p", deletionTimestamp=clock.ms))
    old.commit(tx)
    if then == "is dropped":
        old.run(lambda tx: tx.changing().drop_table(named("orders")))
    if then == "is released":
        released(old, "orders")
    before = files_of(folder)
    deleted = upkeep(old, clock, aged)
    assert f"{location(old, 'own')}/p" in deleted
    assert not [path for path in deleted if not path.startswith(location(old, "own"))]
    assert files_of(folder) == before
    assert ids(folder, 2) == [2]


def test_nor_of_one_that_the_lake_made_and_gave_back(
    old: TransactionalCatalog, clock: Ticking, aged: AgedStorage, tmp_path: Path
) -> None:
    create(old, "a", "b", files=["p"])
    a, b = (tmp_path / "lake" / location(old, name) for name in "ab")
    released(old, "a")
    old.run(lambda tx: tx.changing().drop_table(named("b")))
    before = files_of(a)
    upkeep(old, clock, aged)
    assert files_of(a) == before
    assert not files_of(b)


def test_what_dead_transactions_staged_goes_from_adopted_tables_too(
    old: TransactionalCatalog, clock: Ticking, aged: AgedStorage, warehouse: Path
) -> None:
    folder = plain_table(warehouse / "orders", 1)
    adopted(old, "orders", folder)
    tx = old.begin()
    stage(old, tx, "orders", add("p"))
    [staged] = [path for path in files_of(folder) if tx.id in path]
    upkeep(old, clock, aged)
    assert not (folder / staged).exists()
    assert (folder / "p").exists()  # nobody can tell that it is not somebody else's


def test_a_clone_in_an_adopted_table_keeps_the_files_that_it_shares(
    old: TransactionalCatalog, clock: Ticking, aged: AgedStorage, warehouse: Path, tmp_path: Path
) -> None:
    shared = f"file://{tmp_path}/lake/{location(old, 'own')}/p"
    folder = written_log(warehouse / "clone", add(shared))
    adopted(old, "clone", folder)
    assert not [path for path in upkeep(old, clock, aged) if path.endswith("/p")]


def test_versions_from_before_an_adoption_are_nobodys_need(old: TransactionalCatalog, warehouse: Path) -> None:
    """A VACUUM through Lockstep would be refused, for want of commits that were cleaned up long before."""
    folder = plain_table(warehouse / "orders", 1, 2, 3)
    DeltaTable(str(folder)).create_checkpoint()
    (folder / LOG / f"{0:020d}.json").unlink()
    table = adopted(old, "orders", folder)
    append(old, "orders", "p")
    assert need_at(old.lake, table.location) == need_at(old.lake, table.location) == Need(first=2)
    released(old, "orders")
    assert need_at(old.lake, table.location) == Need(first=2)
    assert need_at(old.lake, f"{table.location}s") == NOTHING
    assert need_at(old.lake, location(old, "own")) == Need(first=0)


def test_upkeep_says_what_it_leaves_alone(old: TransactionalCatalog, warehouse: Path) -> None:
    folder = plain_table(warehouse / "orders", 1)
    adopted(old, "orders", folder)
    found = plan(old.lake, Scope(EVERYTHING), AT_ONCE)
    assert found.kept_whole == {f"file://{folder}": NOT_OURS}
    assert not vacuum(old.lake, AT_ONCE, table=named("orders")).paths


def test_a_table_that_no_lockstep_made_is_no_orphan_whatever_it_is_called(
    old: TransactionalCatalog, clock: Ticking, aged: AgedStorage, tmp_path: Path
) -> None:
    folder = plain_table(tmp_path / "lake" / "plain" / "orders-0123456789abcdef01234567", 1)
    before = files_of(folder)
    upkeep(old, clock, aged)
    assert files_of(folder) == before
    assert plan(old.lake, Scope(EVERYTHING), AT_ONCE).kept_whole == {"plain/orders-0123456789abcdef01234567": NOT_KNOWN}
    (folder / LOG / f"{0:020d}.json").write_bytes(b"{torn")
    upkeep(old, clock, aged)
    assert (folder / LOG / f"{0:020d}.json").exists()


def test_a_copy_of_another_lakes_folder_is_no_orphan_and_one_that_the_lake_made_is(
    old: TransactionalCatalog, clock: Ticking, aged: AgedStorage, tmp_path: Path
) -> None:
    rival = open_catalog(AgedStorage(open_reaching(str(tmp_path / "rival"), create=True), clock), clock=clock)
    create(rival, "theirs", files=["p"])
    there = location(rival, "theirs")
    copied = tmp_path / "lake" / "saved" / Path(there).name
    shutil.copytree(tmp_path / "rival" / there, copied)
    before = files_of(copied)
    create(old, "ours", files=["p"])
    ours, moved = location(old, "ours"), f"moved/{Path(location(old, 'ours')).name}"
    shutil.copytree(tmp_path / "lake" / ours, tmp_path / "lake" / moved)
    old.run(lambda tx: tx.changing().drop_table(named("ours")))
    aside = tmp_path / "lake" / "default" / "killed-0123456789abcdef01234567"
    aside.mkdir()
    (aside / "part-0.parquet").write_bytes(b"of a statement that was killed")
    upkeep(old, clock, aged)
    assert files_of(copied) == before
    assert not files_of(tmp_path / "lake" / ours)
    assert files_of(tmp_path / "lake" / moved)
    assert not files_of(aside)
    assert plan(old.lake, Scope(EVERYTHING), AT_ONCE).kept_whole == {
        f"saved/{copied.name}": NOT_KNOWN,
        moved: NOT_KNOWN,
    }


def test_a_folder_that_the_lake_made_and_a_plain_writer_began_anew_is_no_orphan(
    old: TransactionalCatalog, clock: Ticking, aged: AgedStorage, tmp_path: Path
) -> None:
    create(old, "ours", files=["p"])
    where = location(old, "ours")
    old.run(lambda tx: tx.changing().drop_table(named("ours")))
    shutil.rmtree(tmp_path / "lake" / where)
    before = files_of(plain_table(tmp_path / "lake" / where, 1))
    upkeep(old, clock, aged)
    assert files_of(tmp_path / "lake" / where) == before
    assert plan(old.lake, Scope(EVERYTHING), AT_ONCE).kept_whole == {where: NOT_MADE_HERE}


def test_a_folder_stays_where_the_history_does_not_tell_any_more_that_the_lake_made_it(
    old: TransactionalCatalog, clock: Ticking, aged: AgedStorage, tmp_path: Path
) -> None:
    create(old, "ours", files=["p"])
    where = location(old, "ours")
    old.run(lambda tx: tx.changing().drop_table(named("ours")))
    clock.now += timedelta(days=1000)
    append(old, "own", "r")
    expire_snapshots(old.lake, older_than=clock(), retain_last=1, grace=timedelta())
    shutil.rmtree(tmp_path / "lake" / "_lockstep" / "history")
    fresh = open_catalog(aged, clock=clock)
    upkeep(fresh, clock, aged)
    assert files_of(tmp_path / "lake" / where)


def test_what_says_whose_folders_are_is_never_passed_over(old: TransactionalCatalog, inside: Path) -> None:
    adopted(old, "orders", plain_table(inside / "orders", 1))
    [record] = old.lake.storage.list(FOLDER)
    for damaged in (b"{}", b'{"format": 2, "locations": []}'):
        old.lake.storage.put(f"{FOLDER}/{record}", damaged)
        with pytest.raises(CorruptTimelineError, match="guests"):
            plan(old.lake, Scope(EVERYTHING), AT_ONCE)
