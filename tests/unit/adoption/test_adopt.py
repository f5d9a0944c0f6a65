"""Adopting: a Delta table becomes a lake's where it is, with its history; or is refused, and the message says why."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow import parquet

from lockstep.adoption.adopt import Wanted, adopt, look
from lockstep.adoption.places import place
from lockstep.catalog import TransactionalCatalog
from lockstep.delta.features import FEATURES, MANAGED_ELSEWHERE
from lockstep.errors import (
    ConflictError,
    DuplicateError,
    InvalidError,
    LockstepError,
    UndefinedError,
    UnsupportedError,
)
from lockstep.lake.claims import SETTLED_AFTER, claim_path
from lockstep.recovery.changes import restore_to, undrop
from lockstep.recovery.restore import Selection
from lockstep.timeline.entry import ADOPTION_FORMAT
from tests.support.adopting import adopt_all, adopted, files_of, ids, plain_table, released, written_log
from tests.support.commands import lockstep
from tests.support.lakes import add, append, create, files, metadata, named, stage, stage_new

CLAIM = claim_path(".").removeprefix("./")


def refusal(catalog: TransactionalCatalog, folder: Path | str, name: str = "t") -> str:
    """Return why a table cannot be adopted; nothing has changed."""
    tx = catalog.begin()
    [found] = look(catalog.lake, tx.names, [Wanted(named(name), str(folder))])
    assert found.reason is not None
    with pytest.raises(InvalidError, match="cannot adopt"):
        adopt(catalog.lake, tx, [found])
    catalog.rollback(tx)
    return found.reason


def bring_back(catalog: TransactionalCatalog) -> None:
    tx = catalog.begin()
    undrop(catalog.lake, tx, named("orders"))
    catalog.commit(tx)


@pytest.fixture(params=["warehouse", "inside"])
def folder(request: pytest.FixtureRequest) -> Path:
    """A table of the rows 1 and 2, in two versions: outside of the root, or below it."""
    place: Path = request.getfixturevalue(request.param)
    return plain_table(place / "orders", 1, 2)


# --- what it is -------------------------------------------------------------------------------------------------------


def test_a_table_is_the_lakes_where_it_is_and_nothing_in_it_changes(
    catalog: TransactionalCatalog, folder: Path
) -> None:
    before = files_of(folder)
    table = adopted(catalog, "orders", folder)
    assert (table.version, table.since) == (1, catalog.timeline.head.version)
    after = files_of(folder)
    assert {path: data for path, data in after.items() if path != CLAIM} == before
    [entry] = catalog.timeline.entries(table.since - 1, table.since)
    assert (entry.format, entry.writes, entry.tables[0].adopted) == (ADOPTION_FORMAT, [], True)


def test_it_is_written_behind_its_own_history(catalog: TransactionalCatalog, folder: Path) -> None:
    adopted(catalog, "orders", folder)
    data = Path(DeltaTable(str(folder), version=0).file_uris()[0].removeprefix("file://")).read_bytes()
    (folder / "copy.parquet").write_bytes(data)
    tx = catalog.begin()
    stage(catalog, tx, "orders", add("copy.parquet", size=len(data)))
    catalog.commit(tx)
    assert DeltaTable(str(folder)).version() == 2
    assert ids(folder) == [1, 1, 2]
    assert ids(folder, 0) == [1]


def test_many_are_adopted_in_one_transaction_with_their_namespaces(
    catalog: TransactionalCatalog, warehouse: Path
) -> None:
    version = adopt_all(
        catalog,
        {f"sales.year.t{n}": plain_table(warehouse / f"t{n}", n) for n in range(3)}
        | {"u": plain_table(warehouse / "u", 9)},
    )
    assert version == catalog.timeline.head.version == 1
    assert {str(name) for name in catalog.database().tables} == {
        *("default.u", "sales.year.t0", "sales.year.t1", "sales.year.t2")
    }


def test_all_are_adopted_or_none(catalog: TransactionalCatalog, warehouse: Path) -> None:
    plain_table(warehouse / "good", 1)
    with pytest.raises(InvalidError, match=r"warehouse/bad \(as default\.bad\): it is no Delta table"):
        adopt_all(catalog, {"good": warehouse / "good", "bad": warehouse / "bad"})
    assert not catalog.database().tables
    assert not (warehouse / "good" / CLAIM).exists()


def test_a_rollback_leaves_it_as_it_was(catalog: TransactionalCatalog, folder: Path) -> None:
    before = files_of(folder)
    tx = catalog.begin()
    adopt(catalog.lake, tx, look(catalog.lake, tx.names, [Wanted(named("orders"), str(folder))]))
    stage(catalog, tx, "orders", add("p"))
    catalog.rollback(tx)
    assert files_of(folder) == before
    assert not catalog.database().tables


def test_a_rollback_takes_hadoops_checksums_with_the_files_that_it_wrote(
    catalog: TransactionalCatalog, folder: Path
) -> None:
    """Upkeep never deletes a file of a table that was adopted, so what stays there would stay for ever."""
    adopted(catalog, "orders", folder)
    before = files_of(folder)
    tx = catalog.begin()
    stage(catalog, tx, "orders", add("d=1/p"))
    tx.savepoint("s")
    stage(catalog, tx, "orders", add("d=1/q"))
    for name in "pq":
        (folder / "d=1" / f".{name}.crc").write_bytes(b"checksum")
    catalog.rollback_to(tx, "s")
    assert [path.name for path in sorted((folder / "d=1").iterdir())] == [".p.crc", "p"]
    catalog.rollback(tx)
    assert files_of(folder) == before


def test_one_that_is_let_go_in_the_same_transaction_is_nobodys(catalog: TransactionalCatalog, folder: Path) -> None:
    before = files_of(folder)
    tx = catalog.begin()
    adopt(catalog.lake, tx, look(catalog.lake, tx.names, [Wanted(named("orders"), str(folder))]))
    tx.changing().drop_table(named("orders"))
    create(catalog, "other")
    catalog.commit(tx)
    assert files_of(folder) == before


def test_a_table_may_be_adopted_and_written_in_one_transaction(catalog: TransactionalCatalog, folder: Path) -> None:
    tx = catalog.begin()
    adopt(catalog.lake, tx, look(catalog.lake, tx.names, [Wanted(named("orders"), str(folder))]))
    stage(catalog, tx, "orders", add("p"))
    catalog.commit(tx)
    assert catalog.database().tables[named("orders")].version == 2
    assert "p" in files(catalog, "orders")


def test_the_drop_of_an_adopted_table_lets_it_go_and_undrop_takes_it_back(
    catalog: TransactionalCatalog, folder: Path
) -> None:
    before = files_of(folder)
    adopted(catalog, "orders", folder)
    catalog.run(lambda tx: tx.changing().drop_table(named("orders")))
    assert files_of(folder) == before
    plain_table(folder, 3)
    bring_back(catalog)
    assert catalog.database([named("orders")]).tables[named("orders")].version == 2


def test_a_dropped_table_does_not_come_back_to_a_folder_that_was_adopted_since(
    catalog: TransactionalCatalog, folder: Path
) -> None:
    adopted(catalog, "orders", folder)
    then = catalog.timeline.head.version
    catalog.run(lambda tx: tx.changing().drop_table(named("orders")))
    adopted(catalog, "mine", folder)
    tx = catalog.begin()
    with pytest.raises(DuplicateError, match=r"adopted since, and is table default\.mine"):
        undrop(catalog.lake, tx, named("orders"))
    with pytest.raises(DuplicateError, match="adopted since"):
        restore_to(catalog.lake, tx, catalog.timeline.at(then), Selection(names=frozenset({named("orders")})))
    assert not tx.names.is_changed
    released(catalog, "mine")
    bring_back(catalog)
    assert [*catalog.database().tables] == [named("orders")]


def test_a_restore_of_all_gives_an_adopted_folder_back_to_the_table_that_had_it(
    catalog: TransactionalCatalog, folder: Path
) -> None:
    table = adopted(catalog, "orders", folder)
    then = catalog.timeline.head
    catalog.run(lambda tx: tx.changing().drop_table(named("orders")))
    adopted(catalog, "mine", folder)
    tx = catalog.begin()
    assert not restore_to(catalog.lake, tx, then, Selection(everything=True))
    catalog.commit(tx)
    assert {name: each.id for name, each in catalog.database().tables.items()} == {named("orders"): table.id}
    assert (folder / CLAIM).exists()


# --- plain Delta writers beside it ------------------------------------------------------------------------------------


def test_what_a_plain_writer_commits_while_a_table_is_adopted_is_taken_in_once(
    catalog: TransactionalCatalog, folder: Path
) -> None:
    tx = catalog.begin()
    adopt(catalog.lake, tx, look(catalog.lake, tx.names, [Wanted(named("orders"), str(folder))]))
    plain_table(folder, 3)
    catalog.commit(tx)
    plain_table(folder, 4)
    table = catalog.database([named("orders")]).tables[named("orders")]
    assert table.version == 3
    assert [entry.kind for entry in catalog.timeline.entries(0)] == ["transaction", "external"]
    append(catalog, "orders", "p")
    assert catalog.database([named("orders")]).tables[named("orders")].version == 4


def test_a_transaction_that_adopts_and_writes_loses_to_a_plain_writer(
    catalog: TransactionalCatalog, folder: Path
) -> None:
    tx = catalog.begin()
    adopt(catalog.lake, tx, look(catalog.lake, tx.names, [Wanted(named("orders"), str(folder))]))
    stage(catalog, tx, "orders", add("p"))
    plain_table(folder, 3)
    with pytest.raises(ConflictError, match="adopts and writes"):
        catalog.commit(tx)
    assert ids(folder) == [1, 2, 3]


def test_two_that_adopt_one_table_conflict(catalog: TransactionalCatalog, folder: Path, root: Path) -> None:
    other = TransactionalCatalog.open(str(root))
    one, two = catalog.begin(), other.begin()
    adopt(catalog.lake, one, look(catalog.lake, one.names, [Wanted(named("a"), str(folder))]))
    adopt(other.lake, two, look(other.lake, two.names, [Wanted(named("b"), str(folder))]))
    catalog.commit(one)
    with pytest.raises(ConflictError, match="created table"):
        other.commit(two)
    assert (folder / CLAIM).exists()


# --- what is refused --------------------------------------------------------------------------------------------------


def test_where_there_is_no_delta_table(catalog: TransactionalCatalog, warehouse: Path) -> None:
    warehouse.mkdir()
    assert "no Delta table" in refusal(catalog, warehouse)
    assert "no Delta table" in refusal(catalog, warehouse / "nowhere")


@pytest.mark.parametrize("feature", sorted(MANAGED_ELSEWHERE))
def test_a_table_whose_commits_a_catalog_decides(catalog: TransactionalCatalog, warehouse: Path, feature: str) -> None:
    assert f"the table feature {feature}: a catalog decides" in refusal(
        catalog, written_log(warehouse / "t", features=[feature])
    )


def test_a_feature_that_nobody_knows(catalog: TransactionalCatalog, warehouse: Path) -> None:
    folder = written_log(warehouse / "t", features=["appendOnly", "fromTheFuture"])
    assert "the table feature fromTheFuture" in refusal(catalog, folder)
    adopted(catalog, "t", written_log(warehouse / "u", features=sorted(FEATURES)))


def test_a_log_with_a_gap(catalog: TransactionalCatalog, warehouse: Path) -> None:
    folder = plain_table(warehouse / "t", 1, 2, 3)
    (folder / "_delta_log" / f"{1:020d}.json").unlink()
    assert "has a gap" in refusal(catalog, folder)


def test_a_table_that_this_lake_has(catalog: TransactionalCatalog, folder: Path, tmp_path: Path) -> None:
    adopted(catalog, "orders", folder)
    assert "is table default.orders of this lake already" in refusal(catalog, folder)
    link = tmp_path / "link"
    link.symlink_to(folder)
    assert "is table default.orders of this lake already" in refusal(catalog, link)
    assert "is table default.orders of this lake already" in refusal(catalog, f"file://{folder}/../{folder.name}/")


def test_a_folder_inside_of_a_table_or_around_one(catalog: TransactionalCatalog, folder: Path) -> None:
    nested = plain_table(folder / "nested", 1)
    assert f"it is inside the Delta table file://{folder}" in refusal(catalog, nested)
    adopted(catalog, "nested", _moved(nested, folder.parent / "out"))


def _moved(table: Path, to: Path) -> Path:
    table.rename(to)
    return to


def test_a_folder_around_a_table_of_the_lake(catalog: TransactionalCatalog, inside: Path) -> None:
    adopted(catalog, "inner", plain_table(inside / "inner", 1))
    assert "table default.inner of this lake lies inside" in refusal(catalog, plain_table(inside, 2))


def test_what_is_in_another_lake_or_is_one(catalog: TransactionalCatalog, tmp_path: Path, root: Path) -> None:
    other = TransactionalCatalog.open(str(tmp_path / "other"), create=True)
    create(other, "a")
    location = other.timeline.head.tables[named("a")].location
    assert f"is inside the lake file://{tmp_path}/other" in refusal(catalog, tmp_path / "other" / location)
    assert "is the root of a lake" in refusal(catalog, tmp_path / "other")
    assert "is the lake" in refusal(catalog, root)
    assert "has it inside" in refusal(catalog, tmp_path)


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("s3://bucket/t", "another kind of store"),
        ("gs://bucket/t", "another kind of store"),
        ("hdfs://host/t", "another kind of store"),
        ("viewfs://host/t", "no store for"),
        ("/data/_delta_log/t", "a folder _delta_log"),
        ("file://host/t", "names the host"),
    ],
)
def test_places_that_are_none(catalog: TransactionalCatalog, where: str, why: str) -> None:
    assert why in refusal(catalog, where)


@pytest.mark.parametrize(
    ("where", "location"),
    [
        ("hdfs://name/data/t", "hdfs://name/data/t"),
        ("hdfs://name:8020/data/t", "hdfs://name/data/t"),
        ("hdfs://name/lake/t", "t"),
        ("hdfs://name.example.org/data/t", None),
        ("hdfs://127.0.0.1/lake/t", None),
    ],
)
def test_in_hdfs_a_place_is_under_the_name_node_of_the_lake(where: str, location: str | None) -> None:
    """Under another one's name may lie the same folder, which would be two tables."""
    if location is not None:
        assert place("hdfs://name:8020/lake", where).location == location
    else:
        with pytest.raises(UnsupportedError, match="another name node than the lake"):
            place("hdfs://name:8020/lake", where)


def test_names_that_are_taken_or_have_no_namespace(catalog: TransactionalCatalog, folder: Path) -> None:
    create(catalog, "a")
    tx = catalog.begin()
    [found] = look(catalog.lake, tx.names, [Wanted(named("a"), str(folder))])
    with pytest.raises(DuplicateError, match=r"table default\.a exists"):
        adopt(catalog.lake, tx, [found])
    [found] = look(catalog.lake, tx.names, [Wanted(named("nowhere.a"), str(folder))])
    with pytest.raises(UndefinedError, match="no namespace nowhere"):
        adopt(catalog.lake, tx, [found])
    assert not tx.names.is_changed
    assert not (folder / CLAIM).exists()


def test_one_folder_under_two_names(catalog: TransactionalCatalog, folder: Path) -> None:
    with pytest.raises(InvalidError, match=r"as default\.b\): it is to be default\.a as well"):
        adopt_all(catalog, {"a": folder, "b": folder})


# --- two lakes --------------------------------------------------------------------------------------------------------


@pytest.fixture
def rival(tmp_path: Path) -> TransactionalCatalog:
    return TransactionalCatalog.open(str(tmp_path / "rival"), create=True)


def test_two_lakes_cannot_have_one_table(
    catalog: TransactionalCatalog, rival: TransactionalCatalog, warehouse: Path
) -> None:
    folder = plain_table(warehouse / "orders", 1)
    adopted(catalog, "orders", folder)
    with pytest.raises(DuplicateError, match=r"is table default\.orders of the lake file://.*/lake"):
        adopted(rival, "mine", folder)
    assert not rival.database().tables
    catalog.run(lambda tx: tx.changing().drop_table(named("orders")))
    adopted(rival, "mine", folder)
    with pytest.raises(DuplicateError, match=r"of the lake file://.*/rival"):
        bring_back(catalog)


def test_nor_while_the_first_is_about_to_commit(
    catalog: TransactionalCatalog, rival: TransactionalCatalog, warehouse: Path
) -> None:
    folder = plain_table(warehouse / "orders", 1)
    tx = catalog.begin()
    adopt(catalog.lake, tx, look(catalog.lake, tx.names, [Wanted(named("orders"), str(folder))]))
    with pytest.raises(DuplicateError, match="may be about to adopt it"):
        adopted(rival, "mine", folder)
    catalog.rollback(tx)
    adopted(rival, "mine", folder)


def test_what_a_killed_process_claimed_is_free_after_a_day(
    catalog: TransactionalCatalog, rival: TransactionalCatalog, warehouse: Path
) -> None:
    folder = plain_table(warehouse / "orders", 1)
    tx = catalog.begin()
    adopt(catalog.lake, tx, look(catalog.lake, tx.names, [Wanted(named("orders"), str(folder))]))
    said = msgspec.json.decode((folder / CLAIM).read_bytes())
    said["claimed_at"] = (rival.lake.clock() - SETTLED_AFTER - timedelta(minutes=1)).isoformat()
    (folder / CLAIM).write_bytes(msgspec.json.encode(said))
    adopted(rival, "mine", folder)
    assert str(rival.lake.storage.url) in (folder / CLAIM).read_text()


def test_a_claim_that_nobody_can_read_is_for_a_person(
    catalog: TransactionalCatalog, rival: TransactionalCatalog, warehouse: Path, tmp_path: Path
) -> None:
    folder = plain_table(warehouse / "orders", 1)
    adopted(catalog, "orders", folder)
    (tmp_path / "lake").rename(tmp_path / "gone")
    with pytest.raises(InvalidError, match=r"which cannot be read\..* delete"):
        adopted(rival, "mine", folder)
    (folder / CLAIM).write_text("{}")
    with pytest.raises(LockstepError, match="expected which lake the table is of"):
        adopted(rival, "mine", folder)
    (folder / CLAIM).unlink()
    adopted(rival, "mine", folder)


# --- logs of all kinds ------------------------------------------------------------------------------------------------


def test_a_log_that_begins_with_a_checkpoint(catalog: TransactionalCatalog, warehouse: Path) -> None:
    folder = plain_table(warehouse / "t", 1, 2, 3)
    DeltaTable(str(folder)).create_checkpoint()
    for version in range(2):
        (folder / "_delta_log" / f"{version:020d}.json").unlink()
    plain_table(folder, 4)
    assert adopted(catalog, "t", folder).version == 3
    append(catalog, "t", "p")
    assert DeltaTable(str(folder)).version() == 4


def test_a_checkpoint_is_asked_for_features_too(catalog: TransactionalCatalog, warehouse: Path) -> None:
    folder = warehouse / "t"
    write_deltalake(
        str(folder), pa.table({"id": pa.array([1], pa.int64())}), configuration={"delta.appendOnly": "true"}
    )
    DeltaTable(str(folder)).create_checkpoint()
    log = folder / "_delta_log"
    [file] = log.glob("*.checkpoint.parquet")
    rows = parquet.read_table(file).to_pylist()
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["odd"], "writerFeatures": ["odd"]}
    for row in rows:
        if row["protocol"] is not None:
            row["protocol"] = protocol
    parquet.write_table(pa.Table.from_pylist(rows), file)
    (log / f"{0:020d}.json").unlink()
    assert "the table feature odd" in refusal(catalog, folder)


def test_one_that_a_lake_made_and_lost_is_adopted_as_any_other(
    catalog: TransactionalCatalog, rival: TransactionalCatalog, warehouse: Path, tmp_path: Path
) -> None:
    tx = rival.begin()
    location = stage_new(rival, tx, "a", metadata("more"))
    rival.commit(tx)
    warehouse.mkdir()
    (tmp_path / "rival" / location).rename(warehouse / "a")
    adopted(catalog, "a", warehouse / "a")


def test_the_command_makes_no_namespace_of_the_system_tables(catalog: TransactionalCatalog, folder: Path) -> None:
    root = catalog.lake.storage.url.removeprefix("file://")
    done = lockstep("adopt", root, folder.parent, "--namespace", "System", "--yes")
    assert done.exit_code == 1
    assert "42939" in done.output
    assert ("System",) not in catalog.lake.refresh().namespaces
    assert not Path(claim_path(str(folder))).exists(), "nothing was claimed"


def test_the_command_takes_a_relative_path_as_its_shell_does(
    catalog: TransactionalCatalog, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    done = lockstep("adopt", catalog.lake.storage.url, folder.name, "--table", "default.mine", "--yes")
    assert done.exit_code == 0, done.output
    assert catalog.lake.refresh().tables[named("mine")].location in (f"file://{folder}", "plain/orders")
