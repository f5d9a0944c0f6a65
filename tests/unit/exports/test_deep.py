"""Every file that a readable version needs is looked for, and what is gone is named with who needs it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import lockstep
from lockstep.catalog import TransactionalCatalog
from lockstep.delta.combine.deletion_vectors import file_path
from lockstep.delta.log import LOG, commit_path
from lockstep.errors import LockstepError
from lockstep.exports.deep import verify_deep
from lockstep.lake.kept_states import FOLDER
from lockstep.recovery.restore import Selection
from lockstep.retention.expiring import expire_snapshots
from lockstep.storage.outside import open_reaching
from lockstep.tables.restoring import restore
from lockstep.tables.state import States
from lockstep.tables.table import Scope
from lockstep.timeline.entry import TagDdl
from tests.support import commands
from tests.support.diverged import put_foreign, settled
from tests.support.faulty import FaultyStorage
from tests.support.lakes import add, append, create, location, named, open_catalog, remove, stage

pytestmark = pytest.mark.long

KEEPS_FILES, KEEPS_LOGS = "delta.deletedFileRetentionDuration", "delta.logRetentionDuration"
VECTOR = {
    "storageType": "u",
    "pathOrInlineDv": "vBn[lx{q8@P<9BNH/isA",
    "offset": 1,
    "sizeInBytes": 36,
    "cardinality": 1,
}


def tagged(catalog: TransactionalCatalog) -> str:
    """Replace the file p of table a by q behind a tag that has p; return the folder of a."""
    catalog.run(lambda tx: tx.changing().create_tag(TagDdl(action="create", name="eod")))
    tx = catalog.begin()
    stage(catalog, tx, "a", remove("p"), add("q"))
    catalog.commit(tx)
    return location(catalog, "a")


def expire(catalog: TransactionalCatalog) -> None:
    lake = catalog.lake
    expire_snapshots(lake, older_than=lake.clock(), retain_last=1, grace=timedelta())


Fault = Callable[[TransactionalCatalog, str], str]


def gone(path: str) -> Fault:
    def lose(catalog: TransactionalCatalog, folder: str) -> str:
        catalog.lake.storage.delete(f"{folder}/{path}")
        return f"{folder}/{path}"

    return lose


def vector(catalog: TransactionalCatalog, folder: str) -> str:
    store = catalog.lake.storage
    path = file_path(VECTOR, location=folder, root=store.url)
    store.put(path, b"rows")
    tx = catalog.begin()
    stage(catalog, tx, "a", remove("q"), add("q", deletionVector=VECTOR))
    catalog.commit(tx)
    store.delete(path)
    return path


def log(catalog: TransactionalCatalog, folder: str) -> str:
    """Lose the commit that the first version needs, and what is kept for its tag."""
    catalog.lake.storage.delete(commit_path(folder, 0))
    catalog.lake.storage.delete_folder(FOLDER)
    return commit_path(folder, 0)


def copy(catalog: TransactionalCatalog, _: str) -> str:
    id_ = catalog.timeline.head.tables[named("a")].id
    [path] = (each.path for each in catalog.lake.storage.walk(f"{FOLDER}/{id_}") if f"/{LOG}/" in each.path)
    catalog.lake.storage.put(path, b"{}")
    return path


FAULTS: list[tuple[str, Fault, set[tuple[str, int, str, str]]]] = [
    ("nothing", lambda *_: "", set()),
    ("a file of the newest version", gone("q"), {("lost", 1, "", KEEPS_FILES)}),
    ("one of a tag's", gone("p"), {("lost", 0, "", KEEPS_FILES), ("lost", 0, "tag eod", KEEPS_FILES)}),
    ("a deletion vector", vector, {("lost", 2, "", KEEPS_FILES)}),
    ("a log", log, {("unreadable", 0, "", KEEPS_LOGS), ("unreadable", 0, "tag eod", KEEPS_LOGS)}),
    ("what is kept", copy, {("damaged", 0, "tags", "")}),
]


@pytest.mark.parametrize(("what", "fault", "found"), FAULTS, ids=[what for what, _, _ in FAULTS])
def test_what_is_gone_is_found(
    what: str, fault: Fault, found: set[tuple[str, int, str, str]], catalog: TransactionalCatalog
) -> None:
    path = fault(catalog, tagged(catalog))
    differences = verify_deep(catalog.lake.storage, catalog.timeline)
    assert {(d.problem, d.table_version, d.needed_by, d.prevented_by) for d in differences} >= found, what
    assert {d.path for d in differences} == ({path} if found else set())
    assert {d.table for d in differences} <= {named("a")}


def test_a_version_that_a_tag_alone_keeps_is_looked_at(catalog: TransactionalCatalog) -> None:
    folder = tagged(catalog)
    append(catalog, "b", "x")
    expire(catalog)
    assert verify_deep(catalog.lake.storage, catalog.timeline) == []
    catalog.lake.storage.delete(f"{folder}/p")
    [found] = verify_deep(catalog.lake.storage, catalog.timeline)
    assert (found.problem, found.needed_by, found.path) == ("lost", "tag eod", f"{folder}/p")


def test_the_command_names_the_file_and_what_prevents_it(store: FaultyStorage) -> None:
    catalog = open_catalog(store)
    create(catalog, "a", files=["p"])
    root, folder = store.url.removeprefix("file://"), tagged(catalog)
    assert commands.lockstep("verify", root, "--deep").exit_code == 0
    store.delete(f"{folder}/p")
    assert commands.lockstep("verify", root).exit_code == 0, "it does not look for files"
    done = commands.lockstep("verify", root, "--deep")
    assert (done.exit_code, KEEPS_FILES in done.stdout) == (1, True), done.output
    differences = json.loads(commands.lockstep("verify", root, "--deep", "--json").stdout)["differences"]
    assert {each["path"] for each in differences} == {f"{folder}/p"}
    assert "tag eod" in {each["needed_by"] for each in differences}


def test_of_many_that_need_a_version_a_few_are_named(catalog: TransactionalCatalog) -> None:
    for number in range(5):
        ddl = TagDdl(action="create", name=f"tag{number}")
        catalog.run(lambda tx, ddl=ddl: tx.changing().create_tag(ddl))  # type: ignore[misc]
    folder = location(catalog, "a")
    catalog.lake.storage.delete(f"{folder}/p")
    found = verify_deep(catalog.lake.storage, catalog.timeline)
    assert {each.needed_by for each in found} == {"", "tag tag0, tag tag1, tag tag2 and 2 more"}


def test_what_nobody_can_read_of_the_newest_version_is_told(catalog: TransactionalCatalog) -> None:
    """All of its commits are there, but it begins with a checkpoint that cannot be read."""
    for number in range(3):
        append(catalog, "a", f"more{number}")
    newest = catalog.database().tables[named("a")].version
    folder = location(catalog, "a")
    catalog.lake.storage.put(f"{folder}/{LOG}/{newest - 1:020d}.checkpoint.parquet", b"torn")
    found = verify_deep(catalog.lake.storage, catalog.timeline)
    assert [(each.problem, each.table_version) for each in found] == [("unreadable", newest)]


def test_what_only_a_commit_in_between_had_is_needed_by_nobody(catalog: TransactionalCatalog) -> None:
    """A table that comes back, and is written by the same transaction, has no readable version before that write."""
    folder = tagged(catalog)
    here = catalog.database().tables[named("a")]
    catalog.run(lambda tx: tx.changing().drop_table(named("a")))
    expire(catalog)
    catalog.lake.storage.delete(f"{folder}/q")
    tx = catalog.begin()
    restore(
        Scope(catalog, tx, States(catalog.lake.storage)),
        catalog.database().tags["eod"].version,
        Selection(everything=True),
    )
    catalog.commit(tx)
    assert catalog.database().tables[named("a")].version > here.version
    assert [each.path for each in verify_deep(catalog.lake.storage, catalog.timeline)] == []


@pytest.mark.parametrize("steps", ["IIII", "IIIIII", "TIII", "TITII", "TITIT", "TITITIIT", "IIDTII", "IIcIII"])
def test_each_version_that_a_clean_up_of_logs_took_is_told_and_no_other(steps: str, tmp_path: Path) -> None:
    """A plain Delta writer wrote a checkpoint, and removed the commits before it: what can be read is tried.

    The steps are I for an append, D for a DELETE, T for a tag, and c for a checkpoint before the last.
    """
    lake = lockstep.open(str(tmp_path), create=True)
    with lake.transaction() as tx:
        tx.create("t", pa.schema([("id", pa.int64())]))
    folder = tmp_path / location(lake.catalog, "t")
    for number, step in enumerate(steps):
        if step == "T":
            lake.tag(f"tag{number}")
        elif step == "c":
            DeltaTable(folder).create_checkpoint()
        else:
            with lake.transaction() as tx:
                tx["t"].append(pa.table({"id": [number]})) if step == "I" else tx["t"].delete("id = 0")
    write_deltalake(folder, pa.table({"id": [99]}), mode="append")
    plain = DeltaTable(folder)
    plain.create_checkpoint()
    for commit in (folder / LOG).glob("*.json"):
        if int(commit.name[:20]) < plain.version():
            commit.unlink()
    assert lake.at()["t"].to_arrow().num_rows == len(plain.to_pyarrow_table())  # the plain commit is taken in
    lost = set()
    for version in range(1, lake.catalog.database().version + 1):
        try:
            lake.at(version)["t"].to_arrow()
        except LockstepError:
            lost.add(lake.catalog.timeline.at(version).tables[named("t")].version)
    found = verify_deep(lake.catalog.lake.storage, lake.catalog.timeline)
    assert sorted((each.problem, each.table_version) for each in found) == [
        ("unreadable", each) for each in sorted(lost)
    ]


def test_versions_that_a_settlement_took_away_are_not_missed(tmp_path: Path) -> None:
    """Ours had more versions than the log has once a plain writer went on from a copy of it that was put back."""
    store = FaultyStorage(open_reaching(str(tmp_path / "diverged"), create=True))
    catalog = open_catalog(store)
    create(catalog, "t", "u", files=["p"])
    append(catalog, "t", "q")
    catalog.run(lambda tx: tx.changing().create_tag(TagDdl(action="create", name="before")))
    append(catalog, "t", "ours")
    append(catalog, "t", "more")
    where = location(catalog, "t")
    catalog.run(lambda tx: tx.changing().create_tag(TagDdl(action="create", name="eod")))
    append(catalog, "t", "still more")
    catalog.lake.upkeep.settle()
    for version in range(2, 5):
        store.delete(commit_path(where, version))
    put_foreign(catalog, 2, add("theirs"))
    settled(open_catalog(store), "ours")
    assert verify_deep(store, open_catalog(store).timeline) == []
    store.delete(f"{where}/q")
    found = verify_deep(store, open_catalog(store).timeline)
    assert {("lost", "q"), ("lost", "tag before")} == {
        (each.problem, each.needed_by or Path(each.path).name) for each in found
    }
