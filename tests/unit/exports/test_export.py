"""Exports of a lake without Spark: what each mode holds, what is refused, and what a kill at any moment leaves."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.delta.actions import bodies, parse, render
from lockstep.delta.combine.deletion_vectors import file_name
from lockstep.delta.log import commit_path
from lockstep.delta.places import is_absolute
from lockstep.errors import (
    CorruptTimelineError,
    DuplicateError,
    ForeignCommitError,
    InvalidError,
    MissingFilesError,
    UnsupportedError,
)
from lockstep.exports.export import Asked, Exporter
from lockstep.exports.files import S3, copied, place_of, referring
from lockstep.exports.importing import import_minimal
from lockstep.exports.target import check_target
from lockstep.lake.exports import drop_export, read_exports, record_path
from lockstep.lake.kept_states import FOLDER
from lockstep.lake.verify import verify
from lockstep.storage import open_storage
from lockstep.storage.outside import open_reaching
from lockstep.timeline.entry import ExportMode
from tests.support.exports import (
    ROWS,
    VECTOR_ID,
    append_file,
    build_lake,
    export,
    exporter,
    file,
    opened,
    paths,
    serialize_rows,
    snapshot,
    tree_of,
)
from tests.support.faulty import FaultyStorage
from tests.support.lakes import add, create, location, log_file, named, open_catalog, stage
from tests.support.s3 import KEYS, moto, serving
from tests.support.vectors import stored


@pytest.fixture
def catalog(store: FaultyStorage) -> TransactionalCatalog:
    return build_lake(store)


@pytest.mark.parametrize("mode", ["full", "partial"])
def test_an_export_is_a_lake_that_says_what_the_version_said(
    catalog: TransactionalCatalog, tmp_path: Path, mode: ExportMode
) -> None:
    done = export(catalog, tmp_path / "to", mode)
    assert (done.database_version, done.tables, done.files, done.size) == (3, 2, 3, 15)
    lake, then = opened(tmp_path / "to"), catalog.timeline.at(3)
    head = lake.database()
    assert head.version == 0
    assert head.committed_at == then.committed_at
    assert dict(head.namespaces) == {("default",): {}, ("sales",): {"owner": "ada"}}
    assert {table.name: (table.id, table.location) for table in head.tables.values()} == {
        table.name: (table.id, table.location) for table in then.tables.values()
    }
    assert head.views[named("v")].definition == then.views[named("v")].definition
    assert [(tag.name, tag.version, tag.comment) for tag in head.tags.values()] == [("eod", 0, "end")]
    assert verify(lake.lake.storage, lake.timeline).differences == ()
    assert len(snapshot(lake, "a").files) == 2
    assert snapshot(lake, "a").metadata["schemaString"] == snapshot(catalog, "a").metadata["schemaString"]
    append_file(lake, "a", "new")
    assert len(snapshot(lake, "a").files) == 3
    assert verify(lake.lake.storage, lake.timeline).differences == ()


def test_a_full_export_needs_nothing_of_the_source(catalog: TransactionalCatalog, tmp_path: Path) -> None:
    export(catalog, tmp_path / "to")
    assert read_exports(catalog.lake.storage) == []
    shutil.rmtree(tmp_path / "lake")
    lake = opened(tmp_path / "to")
    orders = location(lake, "sales.orders")
    assert paths(lake, "sales.orders") == ["p=a%20b/x.parquet"]
    assert (tmp_path / "to" / orders / "p=a b" / "x.parquet").read_bytes() == ROWS
    assert (tmp_path / "to" / orders / file_name(VECTOR_ID)).is_file()


def test_a_partial_export_names_the_files_where_they_are(catalog: TransactionalCatalog, tmp_path: Path) -> None:
    done = export(catalog, tmp_path / "to", "partial")
    lake = opened(tmp_path / "to")
    [body] = snapshot(lake, "sales.orders").files.values()
    folder = f"file:{tmp_path}/lake/{location(catalog, 'sales.orders')}"
    assert body["path"] == f"{folder}/p=a%20b/x.parquet"
    assert (body["deletionVector"]["storageType"], body["deletionVector"]["pathOrInlineDv"]) == (
        *("p", f"{folder}/{file_name(VECTOR_ID)}"),
    )
    [record] = read_exports(catalog.lake.storage)
    assert (record.id, record.mode, record.database_version, record.target) == (
        *(done.id, "partial", 3, f"file://{tmp_path}/to"),
    )
    written = {Path(path).suffix for path in tree_of(tmp_path / "to")}
    assert written == {".json", ".crc"}
    assert drop_export(catalog.lake.storage, done.id) == record
    assert read_exports(catalog.lake.storage) == []


def test_a_minimal_export_is_one_file_that_becomes_a_lake(catalog: TransactionalCatalog, tmp_path: Path) -> None:
    eod = tmp_path / "kept" / "eod.json"
    done = export(catalog, eod, "minimal")
    assert list(tree_of(tmp_path / "kept")) == ["eod.json"]
    assert json.loads(eod.read_bytes())["origin"]["version"] == 3
    append_file(catalog, "a", "even later")
    asked = Asked(to=str(tmp_path / "to"), mode="partial")
    imported = import_minimal(exporter(catalog), str(eod), asked)
    assert imported.database_version == 3
    assert {Path(path).name for path in paths(opened(tmp_path / "to"), "a")} == {"p", "q"}
    assert [tag.name for tag in opened(tmp_path / "to").database().tags.values()] == ["eod"]
    assert {(record.id, record.mode) for record in read_exports(catalog.lake.storage)} == {
        *((done.id, "minimal"), (imported.id, "partial")),
    }
    with pytest.raises(InvalidError, match="no minimal export"):
        import_minimal(exporter(catalog), str(tmp_path / "to/_lockstep/timeline/00000000000000000000.json"), asked)
    with pytest.raises(InvalidError, match="no file"):
        import_minimal(exporter(catalog), str(tmp_path / "kept/none.json"), asked)


def test_streams_go_on_where_they_were(store: FaultyStorage, tmp_path: Path) -> None:
    from lockstep.timeline.entry import Batch

    catalog = open_catalog(store)
    catalog.commit(catalog.begin(batch=Batch(application="clicks", number=7)))
    export(catalog, tmp_path / "to", version=None)
    assert dict(opened(tmp_path / "to").database().batches) == {"clicks": 7}


def test_the_newest_version_has_what_plain_writers_did(catalog: TransactionalCatalog, tmp_path: Path) -> None:
    from tests.support.lakes import foreign

    place = location(catalog, "a")
    catalog.lake.storage.put(f"{place}/foreign", ROWS)
    foreign(catalog, "a", 3, file("foreign"))
    export(catalog, tmp_path / "to", version=None)
    assert paths(opened(tmp_path / "to"), "a") == ["foreign", "later", "p", "q"]


# --- what is refused --------------------------------------------------------------------------------------------------


def nothing_was_written(catalog: TransactionalCatalog, tmp_path: Path) -> bool:
    return not (tmp_path / "to").exists() and read_exports(catalog.lake.storage) == []


@pytest.mark.parametrize("mode", ["full", "partial", "minimal"])
def test_a_missing_file_is_named_before_anything_is_written(
    catalog: TransactionalCatalog, tmp_path: Path, mode: ExportMode
) -> None:
    catalog.lake.storage.delete(f"{location(catalog, 'a')}/q")
    with pytest.raises(MissingFilesError, match="/q"):
        export(catalog, tmp_path / "to", mode)
    assert nothing_was_written(catalog, tmp_path)


def test_a_missing_deletion_vector_is_named(catalog: TransactionalCatalog, tmp_path: Path) -> None:
    catalog.lake.storage.delete(f"{location(catalog, 'sales.orders')}/{file_name(VECTOR_ID)}")
    with pytest.raises(MissingFilesError, match=r"deletion_vector_.*\.bin"):
        export(catalog, tmp_path / "to", "partial")


def test_a_table_whose_log_is_gone_is_named(catalog: TransactionalCatalog, tmp_path: Path) -> None:
    catalog.lake.storage.delete(commit_path(location(catalog, "a"), 0))
    catalog.lake.storage.delete_folder(FOLDER)  # as of a tag that an older Lockstep made
    with pytest.raises(MissingFilesError, match=r"table default\.a cannot be exported"):
        export(catalog, tmp_path / "to")
    assert nothing_was_written(catalog, tmp_path)


def test_a_feature_that_nobody_knows_is_named(catalog: TransactionalCatalog, tmp_path: Path) -> None:
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["zap"], "writerFeatures": ["zap"]}
    tx = catalog.begin()
    stage(catalog, tx, "a", {"protocol": protocol})
    catalog.commit(tx)
    with pytest.raises(UnsupportedError, match=r"table default\.a .* zap"):
        export(catalog, tmp_path / "to", version=None)
    assert nothing_was_written(catalog, tmp_path)


@pytest.mark.parametrize("to", ["lake", "lake/copy", "lake/_lockstep/x", "."])
def test_neither_lake_may_be_in_the_other(catalog: TransactionalCatalog, tmp_path: Path, to: str) -> None:
    with pytest.raises(InvalidError, match="lake"):
        export(catalog, tmp_path / to)
    (tmp_path / "link").symlink_to(tmp_path / "lake")
    with pytest.raises(InvalidError, match="choose a folder of its own"):
        export(catalog, tmp_path / "link" / "copy")


def test_a_folder_with_something_in_it_is_refused(catalog: TransactionalCatalog, tmp_path: Path) -> None:
    (tmp_path / "to").mkdir()
    (tmp_path / "to" / "mine.txt").write_text("keep")
    with pytest.raises(InvalidError, match="not empty"):
        export(catalog, tmp_path / "to")
    TransactionalCatalog.open(str(tmp_path / "other"), create=True)
    with pytest.raises(DuplicateError, match="there is a lake"):
        export(catalog, tmp_path / "other")
    with pytest.raises(InvalidError, match="inside the lake"):
        export(catalog, tmp_path / "other" / "deeper")
    for to in ("other/eod.json", "table/eod.json", "table/deeper/eod.json"):
        (tmp_path / "table" / "_delta_log").mkdir(parents=True, exist_ok=True)
        (tmp_path / "table" / "_delta_log" / "00000000000000000000.json").touch()
        with pytest.raises(InvalidError, match="whose upkeep may delete it"):
            export(catalog, tmp_path / to, "minimal")


def test_a_file_of_another_size_than_the_log_says_is_damaged(catalog: TransactionalCatalog, tmp_path: Path) -> None:
    catalog.lake.storage.put(f"{location(catalog, 'a')}/q", b"half")
    with pytest.raises(CorruptTimelineError, match=r"/q has 4 bytes"):
        export(catalog, tmp_path / "to")
    assert not (tmp_path / "to" / "_lockstep" / "timeline").exists()


def test_a_copy_that_is_not_what_it_was_copied_from_is_found(catalog: TransactionalCatalog, tmp_path: Path) -> None:
    target = FaultyStorage(open_storage(str(tmp_path / "to"), create=True))
    path = f"{location(catalog, 'a')}/p"
    target.interrupt("put", lambda: target.inner.put(path, b"rows?"), path=path, when="after")
    with pytest.raises(CorruptTimelineError, match="is not what"):
        exporter(catalog, target).run(Asked(to=str(tmp_path / "to"), mode="full", version=3))
    assert not (tmp_path / "to" / "_lockstep" / "timeline").exists()


def test_a_dry_run_writes_nothing(catalog: TransactionalCatalog, tmp_path: Path) -> None:
    done = exporter(catalog).run(Asked(to=str(tmp_path / "to"), mode="full", dry_run=True))
    assert (done.is_done, done.database_version, done.files) == (False, 5, 4)
    assert nothing_was_written(catalog, tmp_path)


def test_a_minimal_export_of_another_lake_is_refused(catalog: TransactionalCatalog, tmp_path: Path) -> None:
    """A full export has the same folders, and went on by itself; a copy of the lake has the record."""
    export(catalog, tmp_path / "full", "full")
    export(catalog, tmp_path / "eod.json", "minimal")
    full = opened(tmp_path / "full")
    append_file(full, "a", "by-itself")
    asked = Asked(to=str(tmp_path / "to"), mode="full")
    with pytest.raises(InvalidError, match=r"was exported from file://.*/lake, and file://.*/full does not know"):
        import_minimal(exporter(full), str(tmp_path / "eod.json"), asked)
    assert not (tmp_path / "to").exists()
    shutil.copytree(tmp_path / "lake", tmp_path / "copy")
    import_minimal(exporter(opened(tmp_path / "copy")), str(tmp_path / "eod.json"), asked)
    assert {Path(path).name for path in paths(opened(tmp_path / "to"), "a")} == {"p", "q"}


@pytest.mark.parametrize(
    ("char", "spelled"),
    [
        ("\u200c", "\u200c"),
        ("\u200d", "\u200d"),
        ("\u00ad", "\u00ad"),
        ("\U0010fffd", "\U0010fffd"),
        ("\U0001fae9", "\U0001fae9"),
        ("\u0378", "\u0378"),
        ("\u00e9", "\u00e9"),
        ("\u00a0", "%C2%A0"),
        ("\u2028", "%E2%80%A8"),
        ("\u3000", "%E3%80%80"),
        ("\u0085", "%C2%85"),
        ("\x7f", "%7F"),
        ("%", "%25"),
    ],
    ids=ascii,
)
def test_a_partial_export_spells_names_as_hadoop_does(char: str, spelled: str) -> None:
    """Delta's DELETE with deletion vectors finds no row of a file that is spelled otherwise, and raises nothing.

    What is expected is what `new Path(…).toUri` says, for all of Unicode.
    """
    name = quote(f"p=a{char}b/f.parquet")
    body = referring(add(name)["add"], location="default/t", root="file:///lake", s3="s3")
    assert body["path"] == f"file:/lake/default/t/p=a{spelled}b/f.parquet"
    assert place_of(body["path"], location="", root="file:///lake").path == f"default/t/p=a{char}b/f.parquet"


@pytest.mark.parametrize("is_known", [False, True], ids=["nobody has noticed", "set aside"])
def test_a_minimal_export_is_not_imported_from_a_log_that_was_written_over(
    catalog: TransactionalCatalog, store: FaultyStorage, tmp_path: Path, is_known: bool
) -> None:
    """The log of the version has the other writer's rows, which were in no database version."""
    export(catalog, tmp_path / "eod.json", "minimal", version=None)
    path = log_file(catalog, "a", catalog.timeline.head.tables[named("a")].version)
    append_file(catalog, "a", "newer")
    store.put(path, render([{"commitInfo": {"operation": "WRITE"}}, file("theirs")]))
    store.put(f"{location(catalog, 'a')}/theirs", ROWS)
    if is_known:
        store.put(log_file(catalog, "a", catalog.timeline.head.tables[named("a")].version), store.get(path) or b"")
        with pytest.raises(ForeignCommitError):
            catalog.database([named("a")])
    for mode in ("partial", "full"):
        asked = Asked(to=str(tmp_path / "to"), mode=mode)
        with pytest.raises(ForeignCommitError):
            import_minimal(exporter(open_catalog(store)), str(tmp_path / "eod.json"), asked)
    assert not (tmp_path / "to").exists()


def test_a_file_that_a_path_leads_to_out_of_the_table_is_found_in_a_full_export() -> None:
    """Of a plain writer whose paths lead there by a way about: the copy lies where the export's log says."""
    for path in ("../u/a%20b.parquet", "p//a%20b.parquet", "./a%20b.parquet", "p=1/a%20b.parquet"):
        body, [made] = copied(add(path)["add"], location="default/t", root="file:///lake", target="default/t")
        assert made.path == f"default/t/{unquote(body['path'])}"
        assert made.source == place_of(path, location="default/t", root="file:///lake")


# --- one target, many exports -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "to"), [("partial", "to"), ("minimal", "eod.json")])
def test_an_export_to_where_one_was_deleted_has_the_newest_version(
    catalog: TransactionalCatalog, tmp_path: Path, mode: ExportMode, to: str
) -> None:
    """Without a version it is begun anew; the same again is that new one, and the old one's record stays."""
    first = export(catalog, tmp_path / to, mode, None)
    append_file(catalog, "a", "since")
    assert export(catalog, tmp_path / to, mode, None).id == first.id, "while it is there, it is whole"
    if mode == "partial":
        shutil.rmtree(tmp_path / to)
    else:
        (tmp_path / to).unlink()
    newest = catalog.lake.refresh().version
    again = export(catalog, tmp_path / to, mode, None)
    assert again.database_version == newest > first.database_version
    append_file(catalog, "a", "later")
    assert export(catalog, tmp_path / to, mode, None).id == again.id
    assert {record.id for record in read_exports(catalog.lake.storage)} == {first.id, again.id}


@pytest.mark.parametrize(("mode", "to"), [("partial", "to"), ("minimal", "eod.json")])
def test_an_export_to_where_one_was_deleted_has_the_version_that_is_asked_for(
    catalog: TransactionalCatalog, tmp_path: Path, mode: ExportMode, to: str
) -> None:
    first = export(catalog, tmp_path / to, mode, 3)
    if mode == "partial":
        shutil.rmtree(tmp_path / to)
    else:
        (tmp_path / to).unlink()
    other = export(catalog, tmp_path / to, mode, 2)
    assert (other.database_version, {record.id for record in read_exports(catalog.lake.storage)}) == (
        *(2, {first.id, other.id}),
    )


@pytest.mark.parametrize("version", [3, None])
def test_another_kind_of_export_is_made_where_one_was_deleted(
    catalog: TransactionalCatalog, tmp_path: Path, version: int | None
) -> None:
    export(catalog, tmp_path / "to", "partial", version)
    shutil.rmtree(tmp_path / "to")
    assert export(catalog, tmp_path / "to", "full", version).mode == "full"


def test_the_same_again_is_done_already(catalog: TransactionalCatalog, tmp_path: Path) -> None:
    first = export(catalog, tmp_path / "to", "partial")
    before = tree_of(tmp_path / "to")
    assert export(catalog, tmp_path / "to", "partial", None).id == first.id
    assert tree_of(tmp_path / "to") == before
    for mode, version in (("full", 3), ("partial", 2)):
        with pytest.raises(DuplicateError, match=first.id):
            export(catalog, tmp_path / "to", mode, version)  # type: ignore[arg-type]  # a mode
    assert len(read_exports(catalog.lake.storage)) == 1


def test_what_was_dropped_is_kept_again_if_all_is_there(catalog: TransactionalCatalog, tmp_path: Path) -> None:
    for to, mode in (("to", "partial"), ("eod.json", "minimal")):
        done = export(catalog, tmp_path / to, mode)  # type: ignore[arg-type]  # a mode
        record = drop_export(catalog.lake.storage, done.id)
        asked = Asked(to=str(tmp_path / to), mode=record.mode, version=3, dry_run=True)
        if mode == "minimal":
            with pytest.raises(DuplicateError, match="there is another export"):
                exporter(catalog).run(asked)
            continue
        assert exporter(catalog).run(asked).is_done is False
        assert read_exports(catalog.lake.storage) == []
        assert export(catalog, tmp_path / to, "partial").id == done.id
        assert read_exports(catalog.lake.storage) == [record]
        drop_export(catalog.lake.storage, done.id)
    catalog.lake.storage.delete(f"{location(catalog, 'a')}/q")
    with pytest.raises(MissingFilesError):
        export(catalog, tmp_path / "to", "partial")
    assert read_exports(catalog.lake.storage) == []


def test_a_lake_that_went_on_is_left_alone_whatever_is_left_of_its_history(
    catalog: TransactionalCatalog, tmp_path: Path
) -> None:
    export(catalog, tmp_path / "to", "partial")
    lake = opened(tmp_path / "to")
    append_file(lake, "a", "new")
    lake.lake.storage.delete("_lockstep/timeline/00000000000000000000.json")  # as if it had expired
    before = tree_of(tmp_path / "to")
    assert export(catalog, tmp_path / "to", "partial").tables == 2
    lake.lake.storage.delete("_lockstep/export.json")
    before.pop("_lockstep/export.json")
    with pytest.raises(DuplicateError, match="there is a lake"):
        export(catalog, tmp_path / "to", "partial")
    assert tree_of(tmp_path / "to") == before


def test_a_target_of_another_lake_is_refused(catalog: TransactionalCatalog, tmp_path: Path) -> None:
    other = open_catalog(open_storage(str(tmp_path / "other"), create=True))
    export(catalog, tmp_path / "to", "partial")
    with pytest.raises(DuplicateError, match="is the target of export"):
        export(other, tmp_path / "to", "partial", None)


@pytest.mark.parametrize("mode", ["full", "partial"])
@pytest.mark.parametrize("same", [True, False])
def test_two_at_once_are_one_or_the_later_is_refused(
    store: FaultyStorage, catalog: TransactionalCatalog, tmp_path: Path, mode: ExportMode, same: bool
) -> None:
    rival = open_catalog(store.inner)
    # It begins when ours has found nobody, and is done before ours says anything.
    store.interrupt("put_if_absent", lambda: export(rival, tmp_path / "to", mode))
    mine = Asked(to=str(tmp_path / "to"), mode=mode, version=3 if same else 2)
    if same:
        exporter(catalog).run(mine)
    else:
        with pytest.raises(DuplicateError, match="is the target of export"):
            exporter(catalog).run(mine)
    lake = opened(tmp_path / "to")
    assert len(paths(lake, "a")) == 2
    records = read_exports(store.inner)
    assert [record.mode for record in records] == ([] if mode == "full" else ["partial"])
    assert verify(lake.lake.storage, lake.timeline).differences == ()


def test_a_record_that_cannot_be_read_is_no_record_that_is_not_there(catalog: TransactionalCatalog) -> None:
    catalog.lake.storage.put(record_path("x1"), b"{}")
    with pytest.raises(CorruptTimelineError, match="x1"):
        read_exports(catalog.lake.storage)


def test_a_full_export_has_files_from_elsewhere_of_its_own(store: FaultyStorage, tmp_path: Path) -> None:
    catalog = open_catalog(store)
    (tmp_path / "else where").mkdir()
    (tmp_path / "else where" / "z.parquet").write_bytes(ROWS)
    create(catalog, "b")
    descriptor, vector = stored(serialize_rows(0), 1, VECTOR_ID)
    (tmp_path / "else where" / file_name(VECTOR_ID)).write_bytes(vector)
    there = f"file:{tmp_path}/else%20where"
    descriptor |= {"storageType": "p", "pathOrInlineDv": f"{there}/{file_name(VECTOR_ID)}"}
    tx = catalog.begin()
    stage(catalog, tx, "b", file(f"{there}/z.parquet", deletionVector=descriptor))
    catalog.commit(tx)
    export(catalog, tmp_path / "partial", "partial", None)
    export(catalog, tmp_path / "full", "full", None)
    shutil.rmtree(tmp_path / "lake")
    shutil.rmtree(tmp_path / "else where")
    lake = opened(tmp_path / "full")
    [body] = snapshot(lake, "b").files.values()
    assert body["path"].startswith("copied-")
    assert (tmp_path / "full" / location(lake, "b") / body["path"]).read_bytes() == ROWS
    from lockstep.delta.combine.deletion_vectors import decode

    rows = decode(body["deletionVector"], lake.lake.storage.get, location=location(lake, "b"), root="file:///none")
    assert list(rows) == [0]
    [other] = snapshot(opened(tmp_path / "partial"), "b").files.values()
    assert other["path"] == f"file:{tmp_path}/else%20where/z.parquet"


def test_the_new_log_has_nothing_of_the_old_ones_versions(catalog: TransactionalCatalog, tmp_path: Path) -> None:
    tx = catalog.begin()
    metadata = dict(snapshot(catalog, "a").metadata)
    metadata["configuration"] = {
        "delta.enableInCommitTimestamps": "true",
        "delta.inCommitTimestampEnablementVersion": "3",
        "delta.inCommitTimestampEnablementTimestamp": "77",
    }
    stage(
        catalog,
        tx,
        "a",
        {"metaData": metadata},
        {"txn": {"appId": "s", "version": 4}},
        {"domainMetadata": {"domain": "d", "configuration": "{}", "removed": False}},
        file("ids", baseRowId=40, defaultRowCommitVersion=3),
        data=ROWS,
    )
    catalog.commit(tx)
    then = catalog.database().committed_at
    export(catalog, tmp_path / "to", version=None)
    lake = opened(tmp_path / "to")
    actions = parse(lake.lake.storage.get(commit_path(location(lake, "a"), 0)) or b"")
    assert next(iter(actions[0])) == "commitInfo"
    [info], [new] = bodies(actions, "commitInfo"), bodies(actions, "metaData")
    assert info["inCommitTimestamp"] == int(then.timestamp() * 1000)
    assert new["configuration"] == {"delta.enableInCommitTimestamps": "true"}
    assert new["id"] != metadata["id"]
    assert bodies(actions, "txn") == [{"appId": "s", "version": 4}]
    assert [domain["domain"] for domain in bodies(actions, "domainMetadata")] == ["d"]
    [ids] = [body for body in bodies(actions, "add") if body["path"] == "ids"]
    assert (ids["baseRowId"], ids["defaultRowCommitVersion"]) == (40, 0)


@pytest.mark.parametrize(
    ("root", "location", "path", "named"),
    [
        ("file:///data/lake", "t", "a%20b", "file:/data/lake/t/a%20b"),
        ("s3://b/lake", "t", "a%20b", "{s3}://b/lake/t/a%20b"),
        ("s3a://b/lake", "t", "x", "{s3}://b/lake/t/x"),
        ("s3://b/lake", "t", "s3a://b/lake/u/x", "{s3}://b/lake/u/x"),
        ("s3a://b/lake", "t", "s3://b/lake/u/x", "{s3}://b/lake/u/x"),
        ("s3a://b/lake", "s3://c/t", "x", "{s3}://c/t/x"),
        ("s3://b/lake", "t", "s3a://c/t/x", "{s3}://c/t/x"),
        ("gs://s3/lake", "t", "x", "gs://s3/lake/t/x"),
        ("abfss://c@a.dfs.core.windows.net/lake", "t", "x", "abfss://c@a.dfs.core.windows.net/lake/t/x"),
        ("hdfs://n:8020/lake", "t", "x", "hdfs://n:8020/lake/t/x"),
    ],
)
@pytest.mark.parametrize("s3", ["s3", "s3a"])
def test_a_partial_export_names_files_in_s3_as_who_reads_it_does(
    root: str, location: str, path: str, named: str, s3: S3
) -> None:
    """Whatever the log calls them; and either name is told to be the same file."""
    add: dict[str, Any] = {"path": path}
    if is_absolute(path):
        add["deletionVector"] = {"storageType": "p", "pathOrInlineDv": path}
    found = referring(add, location=location, root=root, s3=s3)
    assert {found["path"], *(v["pathOrInlineDv"] for v in [found.get("deletionVector")] if v)} == {named.format(s3=s3)}
    assert place_of(found["path"], location="", root=root) == place_of(path, location=location, root=root)


def test_spark_is_given_names_of_files_that_it_knows() -> None:
    """By s3a, also where the lake was opened as s3; without Spark it is what the lake was opened as."""
    with serving(moto()) as endpoint:
        options = {**KEYS, "endpoint": endpoint}
        build_lake(FaultyStorage(open_reaching("s3://lake/names", options=options)))
        for root, for_spark, named_by in (("s3", False, "s3"), ("s3a", False, "s3a"), ("s3", True, "s3a")):
            lake = TransactionalCatalog.open(f"{root}://lake/names", options=options).lake
            exporter = Exporter(lake, lambda url, _: open_storage(url, options=options), for_spark=for_spark)
            to = f"{root}://lake/names-{named_by}-{for_spark}"
            exporter.run(Asked(to=to, mode="partial"))
            copy = open_storage(to, options=options)
            logs = [found.path for found in copy.walk("") if found.path.endswith(f"_delta_log/{0:020d}.json")]
            adds = [add for log in logs for add in bodies(parse(copy.get(log) or b""), "add")]
            assert {add["path"].partition("://")[0] for add in adds} == {named_by}, (root, for_spark)


@pytest.mark.parametrize(
    ("source", "target", "refused"),
    [
        ("s3://b/lake", "s3://b/lake", "the lake itself"),
        ("s3://b/lake", "s3a://b/lake/x", "is inside the lake"),
        ("s3a://b/x/lake", "s3://b/x", "is inside s3://b/x"),
        ("hdfs://nn:8020/lake", "hdfs://nn/lake", "the lake itself"),
        ("hdfs://nn/lake", "hdfs://nn:8020/lake/export", "is inside the lake"),
        ("hdfs://nn:8020/x/lake", "hdfs://nn/x", "is inside hdfs://nn/x"),
        ("hdfs://nn:8020/lake", "hdfs://nn:9000/lake/export", ""),
        ("abfs://c@a.dfs.core.windows.net/lake", "abfss://c@a.dfs.core.windows.net/lake/x", "is inside the lake"),
        ("abfss://c@a.dfs.core.windows.net/lake", "abfss://d@a.dfs.core.windows.net/lake/x", ""),
        ("s3://b/lake", "s3://b/lake2", ""),
        ("s3://b/lake", "s3://c/lake/x", ""),
        ("file:///data/lake", "s3://data/lake/x", ""),
        ("file:///data/lake", "file:///data/lake2", ""),
        ("file:///data/lake", "file:///data/_lockstep/x", "cannot be a lake's root"),
    ],
)
def test_where_a_target_may_be(source: str, target: str, refused: str) -> None:
    if not refused:
        check_target(source, target)
        return
    with pytest.raises(InvalidError, match=refused):
        check_target(source, target)


@pytest.mark.parametrize("mode", ["partial", "minimal"])
def test_a_clone_is_exported_in_full_alone(catalog: TransactionalCatalog, tmp_path: Path, mode: ExportMode) -> None:
    """Its files are kept by the lake that it was made of, which would not know of a third one that names them."""
    export(catalog, tmp_path / "one", "partial")
    with pytest.raises(UnsupportedError, match="names files there"):
        export(opened(tmp_path / "one"), tmp_path / "two", mode, version=None)
    assert not (tmp_path / "two").exists()
    export(opened(tmp_path / "one"), tmp_path / "two", "full", version=None)
    export(opened(tmp_path / "two"), tmp_path / "three", mode, version=None)


@pytest.mark.parametrize("mode", ["partial", "minimal"])
def test_so_is_one_whose_first_entry_has_expired(
    catalog: TransactionalCatalog, tmp_path: Path, mode: ExportMode
) -> None:
    export(catalog, tmp_path / "one", "partial")
    clone = opened(tmp_path / "one")
    append_file(clone, "a", "new")
    clone.lake.storage.delete("_lockstep/timeline/00000000000000000000.json")  # as if it had expired
    with pytest.raises(UnsupportedError, match="names files there"):
        export(clone, tmp_path / "two", mode, version=None)
    assert not (tmp_path / "two").exists()
    export(clone, tmp_path / "two", "full", version=None)
