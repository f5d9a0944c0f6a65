"""New tables where statements say: what may be where, whose it is then, and that nothing is left of what is undone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

import lockstep
from lockstep.adoption.adopt import Wanted, adopt, look
from lockstep.adoption.making import _is_marker, free_place
from lockstep.catalog import TransactionalCatalog
from lockstep.commit.elsewhere import hold, reserve
from lockstep.commit.outcomes import Committed
from lockstep.delta.actions import render
from lockstep.delta.log import commit_path
from lockstep.errors import (
    CommitUnknownError,
    ConflictError,
    DuplicateError,
    ForeignCommitError,
    InvalidError,
    LockstepError,
)
from lockstep.lake.claims import claim_path
from lockstep.recovery.changes import restore_to, undrop
from lockstep.recovery.restore import Selection
from lockstep.storage import Found, open_storage
from lockstep.storage.outside import OutsideStorage
from lockstep.timeline.entry import ADOPTION_FORMAT
from lockstep.timeline.files import entry_path
from tests.support.adopting import adopted, files_of, ids, written_log
from tests.support.exports import ROWS, export, file, opened, paths
from tests.support.faulty import FaultyStorage
from tests.support.lakes import (
    CREATED,
    NEW_TABLE,
    add,
    append,
    create,
    files,
    lay,
    named,
    open_catalog,
    stage,
    stage_new,
)

CLAIM = claim_path(".").removeprefix("./")
LOG = f"_delta_log/{0:020d}.json"


def made(catalog: TransactionalCatalog, folder: Path, *, name: str = "orders") -> int:
    """Make a table with the file p in a transaction of its own, and return the database version."""
    tx = catalog.begin()
    stage_new(catalog, tx, name, add("p"), where=folder)
    return catalog.commit(tx).version


def written(catalog: TransactionalCatalog, folder: Path, name: str = "orders") -> Committed:
    """Make a table with the file p by a statement on its own."""
    creation = catalog.reserve(named(name), location=str(folder))
    lay(catalog.lake.storage, creation.location, [add("p")])
    content = render([*CREATED, add("p")]).decode()
    outcome = catalog.write(creation.location, 0, content, creation=creation)
    assert isinstance(outcome, Committed)
    return outcome


@pytest.mark.parametrize(
    ("path", "size", "in_s3", "in_azure"),
    [
        ("t/_delta_log/_staged_commits/", 0, True, True),
        ("t/_delta_log", 0, True, True),
        ("t/p=a", 0, False, True),
        ("t/p=1.5", 0, False, True),
        ("t/p=a", 1, False, False),
        ("t/_delta_log/_staged_commits/x", 1, False, False),
        ("t/part-0.parquet", 9, False, False),
    ],
)
def test_what_is_only_there_to_be_a_folder(path: str, size: int, in_s3: bool, in_azure: bool) -> None:
    """Hadoop marks more folders in Azure's store than in S3, of partitions too, and rollbacks leave the marks."""
    found = Found(path, size, datetime.now(UTC))
    assert (_is_marker(found, "t"), _is_marker(found, "t", everywhere=True)) == (in_s3, in_azure)


# --- where it may lie -------------------------------------------------------------------------------------------------


def nothing(catalog: TransactionalCatalog, place: Path) -> Path:
    return place / "new"


def the_root(catalog: TransactionalCatalog, place: Path) -> Path:
    return Path(catalog.lake.storage.url.removeprefix("file://"))


def above_the_root(catalog: TransactionalCatalog, place: Path) -> Path:
    return the_root(catalog, place).parent


def the_timeline(catalog: TransactionalCatalog, place: Path) -> Path:
    return the_root(catalog, place) / "_lockstep" / "t"


def in_a_log(catalog: TransactionalCatalog, place: Path) -> Path:
    return place / "_delta_log" / "t"


def with_a_file(catalog: TransactionalCatalog, place: Path) -> Path:
    (place / "new" / "deep").mkdir(parents=True)
    (place / "new" / "deep" / "x.csv").write_text("1")
    return place / "new"


def a_file(catalog: TransactionalCatalog, place: Path) -> Path:
    place.mkdir(parents=True, exist_ok=True)
    (place / "file").write_text("1")
    return place / "file"


def below_a_file(catalog: TransactionalCatalog, place: Path) -> Path:
    return a_file(catalog, place) / "deep" / "t"


def a_plain_table(catalog: TransactionalCatalog, place: Path) -> Path:
    return written_log(place / "plain")


def inside_a_plain_table(catalog: TransactionalCatalog, place: Path) -> Path:
    return written_log(place / "plain") / "inner"


def a_table_of_ours(catalog: TransactionalCatalog, place: Path) -> Path:
    adopted(catalog, "ours", written_log(place / "ours"))
    return place / "ours"


def around_a_table_of_ours(catalog: TransactionalCatalog, place: Path) -> Path:
    adopted(catalog, "ours", written_log(place / "around" / "ours"))
    return place / "around"


def another_lake(catalog: TransactionalCatalog, place: Path) -> Path:
    TransactionalCatalog.open(str(place / "rival"), create=True)
    return place / "rival"


def in_another_lake(catalog: TransactionalCatalog, place: Path) -> Path:
    return another_lake(catalog, place) / "t"


def claimed_by_another_transaction(catalog: TransactionalCatalog, place: Path) -> Path:
    stage_new(catalog, catalog.begin(), "theirs", where=place / "new")
    return place / "new"


def claimed_by_another_lake(catalog: TransactionalCatalog, place: Path) -> Path:
    rival = TransactionalCatalog.open(str(place / "rival"), create=True)
    stage_new(rival, rival.begin(), "theirs", where=place / "new")
    return place / "new"


def where_a_table_was(catalog: TransactionalCatalog, place: Path) -> Path:
    """Somebody deleted its folder; older versions would show the new table's files as the old one's."""
    made(catalog, place / "new", name="was")
    catalog.run(lambda tx: tx.changing().drop_table(named("was")))
    shutil.rmtree(place / "new")
    return place / "new"


FOLDERS: list[tuple[Callable[[TransactionalCatalog, Path], Path], str, str]] = [
    (the_root, "22023", "is the lake"),
    (above_the_root, "22023", "or has it inside"),
    (the_timeline, "22023", "which holds other things than tables"),
    (in_a_log, "22023", "which holds other things than tables"),
    (with_a_file, "22023", "the folder is not empty, and has no Delta table in it. The first file found is .*x.csv"),
    (a_file, "22023", "file is a file, and no folder"),
    (below_a_file, "22023", "file is a file, and no folder"),
    (a_plain_table, "22023", "a Delta table is there already"),
    (inside_a_plain_table, "22023", "it is inside the Delta table"),
    (a_table_of_ours, "42P07", "it is table default.ours of this lake already"),
    (around_a_table_of_ours, "22023", "table default.ours of this lake lies inside of it"),
    (another_lake, "22023", "it is the root of a lake"),
    (in_another_lake, "22023", "it is inside the lake"),
    (claimed_by_another_transaction, "42P07", "there has made a table in it, or is about to"),
    (claimed_by_another_lake, "42P07", "there has made a table in it, or is about to"),
    (where_a_table_was, "22023", "it is where table default.was was, which older database versions have"),
]


@pytest.mark.parametrize(("arranged", "state", "text"), FOLDERS, ids=[case[0].__name__ for case in FOLDERS])
def test_where_a_new_table_cannot_lie(
    catalog: TransactionalCatalog, warehouse: Path, arranged: Callable[..., Path], state: str, text: str
) -> None:
    folder = arranged(catalog, warehouse)
    before, version = files_of(warehouse), catalog.database().version
    with pytest.raises(LockstepError, match=text) as alone:
        catalog.reserve(named("new"), location=str(folder))
    tx = catalog.begin()
    with pytest.raises(LockstepError, match=text) as inside:
        reserve(catalog.lake, tx, named("new"), str(folder))
    catalog.rollback(tx)
    assert (alone.value.sqlstate, inside.value.sqlstate) == (state, state)
    assert (files_of(warehouse), catalog.database().version) == (before, version)


def test_another_kind_of_store_is_refused(catalog: TransactionalCatalog) -> None:
    with pytest.raises(InvalidError, match="another kind of store"):
        free_place(catalog.lake, catalog.database(), named("t"), "s3://bucket/t")


# --- what it is -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [made, lambda *about: written(*about).version], ids=["made", "written"])
def test_it_is_a_table_that_was_adopted_before_it_had_a_version(
    catalog: TransactionalCatalog, root: Path, folder: Path, make: Callable[[TransactionalCatalog, Path], int]
) -> None:
    version = make(catalog, folder)
    [entry] = catalog.timeline.entries(version - 1, version)
    [ddl] = entry.tables
    assert (entry.format, ddl.adopted, ddl.version, len(entry.writes)) == (ADOPTION_FORMAT, True, None, 1)
    assert (folder / LOG).exists()
    again = TransactionalCatalog.open(str(root))
    assert files(again, "orders") == {"p"}
    append(again, "orders", "q")
    assert files(again, "orders") == {"p", "q"}


def test_a_drop_leaves_all_files_and_no_trace_of_the_lake(catalog: TransactionalCatalog, folder: Path) -> None:
    made(catalog, folder)
    before = files_of(folder)
    catalog.run(lambda tx: tx.changing().drop_table(named("orders")))
    assert files_of(folder) == {path: data for path, data in before.items() if path != CLAIM}
    assert CLAIM in before
    adopted(catalog, "again", folder)
    assert files(catalog, "again") == {"p"}


def test_it_comes_back_by_undrop_and_goes_by_restore(catalog: TransactionalCatalog, folder: Path) -> None:
    version = made(catalog, folder)
    tx = catalog.begin()
    restore_to(catalog.lake, tx, catalog.as_of(version - 1), Selection(everything=True))
    catalog.commit(tx)
    assert named("orders") not in catalog.database().tables
    assert (folder / "p").exists()
    tx = catalog.begin()
    undrop(catalog.lake, tx, named("orders"))
    catalog.commit(tx)
    assert files(catalog, "orders") == {"p"}
    assert (folder / CLAIM).exists()


def test_a_table_of_a_namespace_lies_in_no_folder_of_another_table(catalog: TransactionalCatalog, inside: Path) -> None:
    catalog.run(lambda tx: tx.changing().create_namespace(("shop",), {}))
    made(catalog, inside.parent / "shop")
    tx = catalog.begin()
    first = stage_new(catalog, tx, "shop.a")
    catalog.commit(tx)
    second = catalog.reserve(named("shop.b")).location
    assert "/" not in first + second
    assert (first.split("-")[0], second.split("-")[0]) == ("a", "b")


# --- what is undone ---------------------------------------------------------------------------------------------------


def test_a_rollback_leaves_nothing_but_what_others_put_there(catalog: TransactionalCatalog, folder: Path) -> None:
    tx = catalog.begin()
    stage_new(catalog, tx, "orders", add("day=1/p"), where=folder)
    stage(catalog, tx, "orders", add("day=2/q"))
    assert (folder / CLAIM).exists()
    (folder / "day=1" / "theirs.parquet").write_bytes(b"theirs")
    catalog.rollback(tx)
    assert files_of(folder) == {"day=1/theirs.parquet": b"theirs"}
    assert [path.name for path in folder.iterdir()] == ["day=1"], "no empty folders either"


@pytest.mark.parametrize("is_ours", [False, True], ids=["adopted", "back"])
def test_what_is_taken_in_where_a_create_failed_is_no_new_table(
    catalog: TransactionalCatalog, folder: Path, is_ours: bool
) -> None:
    """An analysis that fails leaves a place that was chosen, and the transaction goes on."""
    made(catalog, folder)
    catalog.run(lambda tx: tx.changing().drop_table(named("orders")))
    away = folder.rename(folder.parent / "away")
    tx = catalog.begin()
    tx.reserve(named("failed"), "0" * 24, f"file://{folder}" if "lake" not in folder.parts else "plain/orders")
    away.rename(folder)
    if is_ours:
        undrop(catalog.lake, tx, named("orders"))
    else:
        adopt(catalog.lake, tx, look(catalog.lake, tx.names, [Wanted(named("orders"), str(folder))]))
    stage(catalog, tx, "orders", add("q"))
    version = catalog.commit(tx).version
    [entry] = catalog.timeline.entries(version - 1, version)
    assert [(ddl.adopted, ddl.version) for ddl in entry.tables] == [(not is_ours, 0)]
    assert files(catalog, "orders") == {"p", "q"}


def test_going_back_to_a_savepoint_frees_the_folder(catalog: TransactionalCatalog, folder: Path) -> None:
    tx = catalog.begin()
    reserve(catalog.lake, tx, named("orders"), str(folder))  # a statement that got no further
    tx.savepoint("before")
    stage_new(catalog, tx, "orders", add("p"), where=folder)
    stage(catalog, tx, "orders", add("q"))
    catalog.rollback_to(tx, "before")
    assert not list(folder.iterdir())
    assert not tx.claimed
    stage_new(catalog, tx, "orders", add("r"), where=folder)
    tx.savepoint("after")
    stage(catalog, tx, "orders", add("s"))
    catalog.rollback_to(tx, "after")
    catalog.commit(tx)
    assert files(catalog, "orders") == {"r"}


def test_what_a_transaction_makes_and_drops_is_gone_and_not_made_again(
    catalog: TransactionalCatalog, folder: Path
) -> None:
    tx = catalog.begin()
    stage_new(catalog, tx, "orders", add("p"), where=folder)
    tx.changing().drop_table(named("orders"))
    with pytest.raises(InvalidError, match="this transaction itself has made one there and dropped it"):
        reserve(catalog.lake, tx, named("orders"), str(folder))
    stage_new(catalog, tx, "other")
    catalog.commit(tx)
    assert not list(folder.iterdir())
    made(catalog, folder)
    assert files(catalog, "orders") == {"p"}


def test_what_a_clone_of_it_needs_stays(catalog: TransactionalCatalog, folder: Path) -> None:
    tx = catalog.begin()
    stage_new(catalog, tx, "orders", add("p"), where=folder)
    stage_new(catalog, tx, "clone", add(f"file://{folder}/p"))
    tx.changing().drop_table(named("orders"))
    catalog.commit(tx)
    assert (folder / "p").exists()


def test_a_statement_whose_namespace_was_dropped_leaves_nothing(catalog: TransactionalCatalog, folder: Path) -> None:
    catalog.run(lambda tx: tx.changing().create_namespace(("shop",), {}))
    creation = catalog.reserve(named("shop.t"), location=str(folder))
    lay(catalog.lake.storage, creation.location, [add("p")])
    (folder / "theirs").write_bytes(b"")
    catalog.run(lambda tx: tx.changing().drop_namespace(("shop",), cascade=False))
    with pytest.raises(InvalidError, match="no namespace shop"):
        catalog.write(creation.location, 0, render([*CREATED, add("p")]).decode(), creation=creation)
    assert files_of(folder) == {"theirs": b""}


# --- beside others ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_rival", [False, True], ids=["one lake", "two lakes"])
def test_of_two_that_find_a_folder_empty_one_makes_the_table(
    catalog: TransactionalCatalog, root: Path, tmp_path: Path, warehouse: Path, is_rival: bool
) -> None:
    """The second has written its data already; that goes, and nothing else does."""
    other = TransactionalCatalog.open(str(tmp_path / "rival" if is_rival else root), create=True)
    one, two, folder = catalog.begin(), other.begin(), warehouse / "orders"
    mine, theirs = (reserve(c.lake, t, named("mine"), str(folder)) for c, t in ((catalog, one), (other, two)))
    alone = other.reserve(named("u"), location=str(folder))
    stage_new(catalog, one, "mine", add("p"), where=folder)
    before = files_of(folder)
    assert mine.location == theirs.location == alone.location
    lay(other.lake.storage, theirs.location, [add("day=1/theirs")])
    with pytest.raises(DuplicateError, match="has made a table in it, or is about to") as refused:
        hold(other.lake, two, theirs.location, render([*CREATED, add("day=1/theirs")]).decode())
    lay(other.lake.storage, alone.location, [add("alone")])
    with pytest.raises(DuplicateError, match="has made a table in it, or is about to"):
        other.write(alone.location, 0, render([*CREATED, add("alone")]).decode(), creation=alone)
    assert refused.value.sqlstate == "42P07"
    other.rollback(two)
    assert files_of(folder) == before
    catalog.commit(one)
    assert files(catalog, "mine") == {"p"}
    assert not other.database().tables or not is_rival


def test_of_two_folders_of_which_one_is_in_the_other_the_second_commit_loses(
    catalog: TransactionalCatalog, warehouse: Path
) -> None:
    for number, (first, second) in enumerate([("a", "a/b"), ("c/d/e", "c")]):
        one, two = catalog.begin(), catalog.begin()
        outer = reserve(catalog.lake, two, named("t"), str(warehouse / second))
        stage_new(catalog, one, f"t{number}", where=warehouse / first)
        assert outer.location.endswith(second)
        catalog.lake.storage.put(f"{outer.location}/q", b"rows")
        tx_commit = render([{"commitInfo": {"operation": "WRITE"}}, *NEW_TABLE, add("q")]).decode()
        catalog.lake.storage.put(f"{outer.location}/_delta_log/_lockstep/{two.id}/{0:020d}.json", tx_commit.encode())
        catalog.stage(two, outer.location, 0, tx_commit)
        catalog.commit(one)
        with pytest.raises(ConflictError, match="inside of the other"):
            catalog.commit(two)
        assert (warehouse / first / LOG).exists()


@pytest.mark.parametrize("place", ["orders", "orders/inner", ""])
def test_a_statement_loses_to_a_table_that_came_to_its_folder(
    catalog: TransactionalCatalog, root: Path, warehouse: Path, place: str
) -> None:
    """It found the folder empty; then another process adopted a table there, inside of it, or around it."""
    other, folder = TransactionalCatalog.open(str(root)), warehouse / "around" / "orders"
    creation = catalog.reserve(named("orders"), location=str(folder))
    adopted(other, "first", written_log(warehouse / "around" / place))
    lay(catalog.lake.storage, creation.location, [add("p")])
    with pytest.raises(
        DuplicateError, match=r"it is table default\.first of this|where table default\.first is by now"
    ):
        catalog.write(creation.location, 0, render([*CREATED, add("p")]).decode(), creation=creation)
    assert not (folder / "p").exists()
    assert [*other.database().tables] == [named("first")]
    assert (warehouse / "around" / place / CLAIM).exists()


@pytest.mark.parametrize("is_alone", [False, True], ids=["a transaction", "a statement"])
def test_a_plain_writer_who_makes_a_table_there_first_keeps_it(
    catalog: TransactionalCatalog, folder: Path, is_alone: bool
) -> None:
    if is_alone:
        creation = catalog.reserve(named("orders"), location=str(folder))
        written_log(folder, add("theirs"))
        lay(catalog.lake.storage, creation.location, [add("p")])
        with pytest.raises(ConflictError, match="a plain Delta writer has made a table at"):
            catalog.write(creation.location, 0, render([*CREATED, add("p")]).decode(), creation=creation)
    else:
        tx = catalog.begin()
        stage_new(catalog, tx, "other")
        stage_new(catalog, tx, "orders", add("p"), where=folder)
        (folder / LOG).write_bytes(render([*NEW_TABLE, add("theirs")]))
        with pytest.raises(ConflictError, match="a plain Delta writer has made a table at"):
            catalog.commit(tx)
    assert not catalog.database().tables
    assert files_of(folder).keys() == {LOG}
    adopted(catalog, "orders", folder)
    assert files(catalog, "orders") == {"theirs"}


def test_a_plain_writer_who_comes_just_before_publication_is_found(tmp_path: Path) -> None:
    """The commit is in the timeline by then. Nothing of either is lost, and nobody reads a mixture."""
    store = FaultyStorage(open_storage(str(tmp_path / "lake"), create=True))
    catalog, folder = open_catalog(OutsideStorage(store)), tmp_path / "lake" / "orders"
    create(catalog, "other")
    tx = catalog.begin()
    stage_new(catalog, tx, "orders", add("p"), where=folder)
    stage(catalog, tx, "other", add("q"))
    theirs = render([*NEW_TABLE, add("theirs")])
    place = commit_path("orders", 0)
    store.interrupt("put_if_absent", lambda: (folder / LOG).write_bytes(theirs) and None, path=place)
    version = catalog.commit(tx).version
    assert (folder / LOG).read_bytes() == theirs
    assert files(catalog, "other") == {"q"}
    with pytest.raises(ForeignCommitError, match="Neither is lost"):
        catalog.database([named("orders")])
    [entry] = catalog.timeline.entries(version - 1, version)
    assert any("p" in bytes(line).decode() for write in entry.writes for c in write.commits for line in c.inline or ())
    catalog.run(lambda tx: tx.changing().drop_table(named("orders")))
    assert (folder / LOG).read_bytes() == theirs
    assert (folder / "p").exists()


def test_a_commit_in_doubt_keeps_everything_until_that_is_known(tmp_path: Path) -> None:
    store = FaultyStorage(open_storage(str(tmp_path / "lake"), create=True))
    catalog, folder = open_catalog(OutsideStorage(store)), tmp_path / "lake" / "orders"
    tx = catalog.begin()
    stage_new(catalog, tx, "orders", add("p"), where=folder)
    store.go_down(entry_path(1), landed=True)
    with pytest.raises(CommitUnknownError):
        catalog.commit(tx)
    assert {"p", CLAIM} <= files_of(folder).keys()
    store.heal()
    assert catalog.commit(tx).version == 1
    assert files(catalog, "orders") == {"p"}


def test_what_is_refused_in_the_log_is_not_staged(catalog: TransactionalCatalog, warehouse: Path) -> None:
    """A claim that cannot be read is somebody's, and says so."""
    folder = warehouse / "orders"
    (folder / CLAIM).parent.mkdir(parents=True)
    (folder / CLAIM).write_text(json.dumps({"format": 1}))
    with pytest.raises(InvalidError, match="expected which lake the table is of"):
        catalog.reserve(named("t"), location=str(folder))


# --- without Spark ----------------------------------------------------------------------------------------------------


def test_python_makes_a_table_where_it_is_told(catalog: TransactionalCatalog, root: Path, folder: Path) -> None:
    lake, schema = lockstep.open(str(root)), pa.schema([("id", pa.int64())])
    with lake.transaction() as tx:
        tx.create("orders", schema, location=str(folder)).append({"id": [1]})
        assert files_of(folder)
        tx.rollback()
    assert not files_of(folder)
    with lake.transaction() as tx:
        tx.create("orders", schema, location=str(folder)).append({"id": [1]})
    with lake.transaction() as tx:
        tx["orders"].append({"id": [2]})
        tx.savepoint("before")
        with pytest.raises(DuplicateError, match=r"it is table default\.orders of this lake already"):
            tx.create("other", schema, location=str(folder))
        tx.rollback_to("before")
    assert ids(folder) == [1, 2]


@pytest.mark.parametrize("text", ["sub/t", "./sub/t", "file:sub/t", "t"])
def test_a_relative_path_names_no_folder(
    catalog: TransactionalCatalog, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """It would be one below where the process began, which nobody said, and another one for the next process."""
    monkeypatch.chdir(written_log(tmp_path / "begun" / "sub" / "t").parent.parent)
    lake, tx = lockstep.open(str(root)), catalog.begin()
    attempts: list[Callable[[], object]] = [
        lambda: lake.run(lambda tx: tx.create("t", pa.schema([("id", pa.int64())]), location=text)),
        lambda: catalog.reserve(named("t"), location=text),
        lambda: adopt(catalog.lake, tx, look(catalog.lake, tx.names, [Wanted(named("t"), text)])),
    ]
    for attempt in attempts:
        with pytest.raises(InvalidError, match=r"is a relative path, and nothing says of|names no folder") as refused:
            attempt()
        assert refused.value.sqlstate == "22023"
    assert not catalog.database().tables


# --- copies -----------------------------------------------------------------------------------------------------------


def test_a_copy_has_a_folder_of_its_own(catalog: TransactionalCatalog, folder: Path, tmp_path: Path) -> None:
    tx = catalog.begin()
    stage_new(catalog, tx, "orders", file("p"), where=folder, data=ROWS)
    export(catalog, tmp_path / "copy", version=catalog.commit(tx).version)
    copy = opened(tmp_path / "copy")
    [table] = copy.database().tables.values()
    assert table.location == f"default/orders-{table.id}"
    assert paths(copy, "orders") == ["p"]
    assert (tmp_path / "copy" / table.location / "p").read_bytes() == ROWS
