"""What lies inside of a folder that somebody has claimed for a new table: who is kept from there, and how long."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from lockstep.adoption.adopt import Wanted, adopt, look
from lockstep.catalog import TransactionalCatalog
from lockstep.commit.elsewhere import reserve
from lockstep.delta.actions import render
from lockstep.delta.log import LOG
from lockstep.errors import ConflictError, InvalidError
from lockstep.exports.export import Asked, Exporter
from lockstep.lake.claims import SETTLED_AFTER, claim_path
from lockstep.storage import open_storage
from lockstep.storage.outside import OutsideStorage
from lockstep.timeline.entry import ExportMode
from lockstep.timeline.files import entry_path
from lockstep.transactions.transaction import Transaction
from tests.support.adopting import adopted, files_of, written_log
from tests.support.faulty import FaultyStorage
from tests.support.lakes import CREATED, add, append, create, files, lay, named, open_catalog, stage_new
from tests.support.retained import Ticking

LONG = SETTLED_AFTER + timedelta(hours=1)


@pytest.fixture
def clock() -> Ticking:
    return Ticking()


@pytest.fixture
def catalog(root: Path, clock: Ticking) -> TransactionalCatalog:
    return TransactionalCatalog.open(str(root), create=True, clock=clock)


@pytest.fixture
def rival(tmp_path: Path, clock: Ticking) -> TransactionalCatalog:
    return TransactionalCatalog.open(str(tmp_path / "rival"), create=True, clock=clock)


@pytest.fixture
def around(warehouse: Path) -> Path:
    return warehouse / "around"


@pytest.fixture
def inner(around: Path) -> Path:
    return around / "eu" / "orders"


@pytest.fixture
def theirs(rival: TransactionalCatalog, around: Path, inner: Path) -> Transaction:
    """A transaction of another lake that is about to make a table; a plain Delta writer makes one inside of it."""
    tx = rival.begin()
    stage_new(rival, tx, "outer", add("p"), where=around)
    written_log(inner, add("q"))
    (inner / "q").write_bytes(b"rows")
    return tx


def adopting(catalog: TransactionalCatalog, *folders: Path) -> None:
    tx = catalog.begin()
    wanted = [Wanted(named(f"t{number}"), str(folder)) for number, folder in enumerate(folders)]
    adopt(catalog.lake, tx, look(catalog.lake, tx.names, wanted))


def test_who_is_kept_away_is_told_by_whom_and_by_which_file(
    catalog: TransactionalCatalog, rival: TransactionalCatalog, theirs: Transaction, around: Path, inner: Path
) -> None:
    for attempt in (
        lambda: adopting(catalog, inner),
        lambda: reserve(catalog.lake, catalog.begin(), named("t"), str(around / "new")),
    ):
        with pytest.raises(InvalidError, match=f"it is inside file://{around}, which the lake") as refused:
            attempt()
        assert refused.value.sqlstate == "42P07"
        for said in (rival.lake.storage.url, theirs.id, f"delete {claim_path(f'file://{around}')}", "UTC"):
            assert said in refused.value.message


def test_what_is_refused_for_other_reasons_too_is_no_duplicate(
    catalog: TransactionalCatalog, theirs: Transaction, inner: Path, warehouse: Path
) -> None:
    with pytest.raises(InvalidError, match="it is no Delta table") as refused:
        adopting(catalog, inner, warehouse / "nothing")
    assert refused.value.sqlstate == "22023"


def test_a_claim_that_a_dead_process_left_keeps_no_table_from_who_adopts_it(
    catalog: TransactionalCatalog, theirs: Transaction, clock: Ticking, around: Path, inner: Path
) -> None:
    """And every new table, of which the transaction might not know if it is open yet."""
    clock.now += LONG
    adopted(catalog, "orders", inner)
    assert files(catalog, "orders") == {"q"}
    assert (around / claim_path(".")).exists()
    with pytest.raises(InvalidError, match="it is inside") as refused:
        catalog.reserve(named("t"), location=str(around / "new"))
    assert refused.value.sqlstate == "42P07"


def gone(rival: TransactionalCatalog, theirs: Transaction, around: Path) -> None:
    shutil.rmtree(rival.lake.storage.url.removeprefix("file://"))


def has_the_table(rival: TransactionalCatalog, theirs: Transaction, around: Path) -> None:
    """Its commit is not published yet, as it were."""
    rival.commit(theirs)
    rival.lake.upkeep.settle()
    for file in (around / LOG).glob("0*"):
        file.unlink()


def unreadable(rival: TransactionalCatalog, theirs: Transaction, around: Path) -> None:
    (around / claim_path(".")).write_text("{}")


@pytest.mark.parametrize("what", [gone, has_the_table, unreadable])
def test_an_old_claim_counts_as_long_as_nobody_can_tell_that_it_is_nobodys(
    catalog: TransactionalCatalog,
    rival: TransactionalCatalog,
    theirs: Transaction,
    clock: Ticking,
    what: Callable[[TransactionalCatalog, Transaction, Path], None],
) -> None:
    around = Path(next(iter(theirs.claimed)).removeprefix("file://"))
    what(rival, theirs, around)
    clock.now += LONG
    with pytest.raises(InvalidError, match=f"{around}/_delta_log/_lockstep/lake.json") as refused:
        adopting(catalog, around / "eu" / "orders")
    assert refused.value.sqlstate == "42P07"


def test_a_transaction_that_is_open_for_so_long_makes_no_table_around_another(
    catalog: TransactionalCatalog, rival: TransactionalCatalog, theirs: Transaction, clock: Ticking, inner: Path
) -> None:
    """VACUUM of the one would delete the other's files."""
    before = files_of(inner)
    clock.now += LONG
    adopted(catalog, "orders", inner)
    with pytest.raises(ConflictError, match=rf"another table lies inside of it \(.*{inner}/_delta_log/") as lost:
        rival.commit(theirs)
    assert lost.value.sqlstate == "40001"
    assert not rival.database().tables
    assert before.items() <= files_of(inner).items()


def test_nor_does_one_whose_claim_was_deleted_by_who_took_it_for_dead(
    catalog: TransactionalCatalog, rival: TransactionalCatalog, theirs: Transaction, around: Path, inner: Path
) -> None:
    (around / claim_path(".")).unlink()
    adopted(catalog, "orders", inner)
    with pytest.raises(ConflictError, match="another table lies inside of it"):
        rival.commit(theirs)
    assert not rival.database().tables


@pytest.mark.parametrize("mode", ["full", "minimal"])
def test_nothing_is_exported_to_where_a_table_is_about_to_be_made(
    catalog: TransactionalCatalog, theirs: Transaction, around: Path, mode: ExportMode
) -> None:
    assert theirs.is_open
    create(catalog, "a")
    with pytest.raises(InvalidError, match=rf"the Delta table .*{around.name}"):
        Exporter(catalog.lake).run(Asked(to=str(around / "copy"), mode=mode))
    with pytest.raises(InvalidError, match=rf"the Delta table .*{around.name}"):
        TransactionalCatalog.open(str(around / "lake"), create=True)


def test_a_transaction_that_is_open_for_so_long_makes_its_table_if_nothing_is_inside(
    rival: TransactionalCatalog, clock: Ticking, around: Path
) -> None:
    tx = rival.begin()
    stage_new(rival, tx, "outer", add("day=1/p"), where=around)
    clock.now += LONG
    rival.commit(tx)
    assert files(rival, "outer") == {"day=1/p"}


# --- what it costs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_alone", [False, True], ids=["a transaction", "a statement"])
def test_folders_above_are_looked_at_once_however_many_races_are_lost(
    tmp_path: Path, warehouse: Path, is_alone: bool
) -> None:
    """Nor for each of a transaction's tables: between two attempts only the claims and the logs are."""
    store = FaultyStorage(OutsideStorage(open_storage(str(tmp_path / "lake"), create=True)))
    catalog, folders = open_catalog(store), [warehouse / "eu" / "2026" / name for name in ("one", "two")]
    create(catalog, "a", files=["p"])
    head = catalog.timeline.head.version
    tx = catalog.begin()
    commit: Callable[[], object] = partial(catalog.commit, tx)
    if is_alone:
        creation = catalog.reserve(named("one"), location=str(folders[0]))
        lay(store, creation.location, [add("p")])
        content = render([*CREATED, add("p")]).decode()
        commit = partial(catalog.write, creation.location, 0, content, creation=creation)
    else:
        for folder in folders:
            stage_new(catalog, tx, folder.name, add("p"), where=folder)
    for number in range(3):
        rival = partial(append, open_catalog(open_storage(str(tmp_path / "lake"))), "a", f"q{number}")
        store.interrupt("put_if_absent", rival, path=entry_path(head + 1 + number))
    store.calls.clear()
    commit()
    assert catalog.timeline.head.version == head + 4
    asked = Counter(path for _, path in store.calls)
    looks = [
        look for folder in folders[0].parents for look in (f"file://{folder}/{LOG}", claim_path(f"file://{folder}"))
    ]
    assert {look: asked[look] for look in looks[:-2]} == dict.fromkeys(looks[:-2], 1)
