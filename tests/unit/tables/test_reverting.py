"""Reverts without Spark of what others appended behind: they keep that, whatever the table, or are refused by name."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake import write_deltalake as write_plainly

from lockstep.delta.actions import bodies
from lockstep.delta.log import commit_path
from lockstep.errors import ConflictError, ExpiredError, InvalidError, MissingFilesError, UnsupportedError
from lockstep.lake.verify import verify
from lockstep.recovery import later
from lockstep.retention.expiring import expire_snapshots
from lockstep.tables.opened import OpenLake
from lockstep.tables.transaction import LakeTransaction
from tests.support.restored import KINDS, ROWS, last_commit, make, rows, snapshot_of, table_of, tagged, touched
from tests.unit.tables.test_row_tracking import tracked

pytestmark = pytest.mark.long

MISTAKES: dict[str, Callable[[LakeTransaction], object]] = {
    "append": lambda tx: tx["t"].append({"id": [7, 8], "v": ["x", "y"]}),
    "delete": lambda tx: tx["t"].delete("id = 2"),
    "update": lambda tx: tx["t"].update({"v": "'z'"}, "id > 2"),
    "overwrite": lambda tx: tx["t"].overwrite({"id": [7], "v": ["x"]}),
    "several": lambda tx: (tx["t"].delete("id = 1"), tx["t"].append({"id": [7], "v": ["x"]}), tx["t"].delete("id = 3")),
}


def append(lake: OpenLake, id_: int) -> int:
    with lake.transaction() as tx:
        tx["t"].append({"id": [id_], "v": ["later"]})
    assert tx.version is not None
    return tx.version


def change(lake: OpenLake, work: Callable[[LakeTransaction], object]) -> int:
    with lake.transaction() as tx:
        work(tx)
    assert tx.version is not None
    return tx.version


def ids_by_deltalake(lake: OpenLake) -> list[int]:
    root = lake.catalog.lake.storage.url.removeprefix("file://")
    table = DeltaTable(f"{root}/{table_of(lake).location}")
    found = pa.RecordBatchReader.from_stream(table.scan(columns=["id"])).read_all()["id"].to_pylist()
    return sorted(each for each in found if each is not None)


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("kind", KINDS)
def test_what_was_appended_behind_stays(lake: OpenLake, kind: str, mistake: str) -> None:
    make(lake, **KINDS[kind])
    before = snapshot_of(lake)
    version = change(lake, MISTAKES[mistake])
    append(lake, 20)
    append(lake, 21)
    kept = snapshot_of(lake).files.keys() - snapshot_of(lake, version=table_of(lake).version - 2).files.keys()
    done = lake.revert(version)
    assert (done.version, done.database_version) == (version, lake.at().version)
    [restored] = done.tables
    assert (restored.version, restored.through) == (0, table_of(lake).version - 3)
    assert [row["id"] for row in rows(lake)] == [1, 2, 20, 21, 3, 4]
    assert sorted(row["v"] for row in rows(lake) if row["id"] < 9) == ROWS["v"]
    assert ids_by_deltalake(lake) == [1, 2, 3, 4, 20, 21]
    assert snapshot_of(lake).files.keys() == before.files.keys() | kept
    assert verify(lake.catalog.lake.storage, lake.catalog.timeline).differences == ()
    lake.revert(lake.at().version)  # it is a version as any other
    assert len(rows(lake)) == len(lake.at(version)["t"].to_arrow()) + 2
    with lake.transaction() as tx:
        assert tx["t"].delete("id = 20") == 1


def test_a_table_with_row_ids_is_refused_by_name(lake: OpenLake) -> None:
    """As a restore of it is: without Spark nobody has proved which ids its rows have then."""
    tracked(lake)
    with lake.transaction() as tx:
        tx["t"].append(ROWS)
    version = change(lake, MISTAKES["delete"])
    append(lake, 20)
    with pytest.raises(UnsupportedError, match=r"table default\.t cannot be restored without Spark.*rowTracking"):
        lake.revert(version)


def test_the_commit_says_what_it_is(lake: OpenLake) -> None:
    make(lake)
    version = change(lake, MISTAKES["append"])
    append(lake, 20)
    lake.revert(version, comment="twice")
    commit = last_commit(lake)
    [info] = bodies(commit, "commitInfo")
    assert info["operation"] == "REVERT"
    assert (info["operationParameters"]["afterVersion"], info["operationParameters"]["throughVersion"]) == ("0", "1")
    assert [next(iter(action)) for action in commit] == ["commitInfo", "protocol", "metaData", "remove"]


def test_tables_of_one_version_are_judged_one_by_one(lake: OpenLake) -> None:
    make(lake)
    make(lake, "alone")
    version = change(lake, lambda tx: (MISTAKES["delete"](tx), tx["alone"].delete("id = 1")))
    append(lake, 20)
    done = lake.revert(version)
    assert {(each.name.table, each.through) for each in done.tables} == {("t", 1), ("alone", None)}
    assert (len(rows(lake)), len(rows(lake, "alone"))) == (5, 4)


def test_a_plain_writers_append_stays_too(lake: OpenLake, tmp_path: Path) -> None:
    make(lake)
    version = change(lake, MISTAKES["delete"])
    write_plainly(f"{tmp_path}/lake/{table_of(lake).location}", pa.table({"id": [30], "v": ["p"]}), mode="append")
    lake.revert(version)
    assert ids_by_deltalake(lake) == [1, 2, 3, 4, 30]


LATER: dict[str, tuple[Callable[[LakeTransaction], object], str]] = {
    "removed files": (lambda tx: tx["t"].delete("id = 4"), "it removed files of it"),
    "new columns": (lambda tx: tx["t"].alter.add_columns(pa.schema([("w", pa.int64())])), "it wrote its columns"),
    "what it had read": (
        lambda tx: tx["t"].append(tx["t"].to_arrow()),
        "it appended to rows that it had read",
    ),
    "renamed": (lambda tx: tx.rename("t", "other"), r"changed table default\.t after it\. Revert"),
}


@pytest.mark.parametrize("later", LATER)
def test_a_later_version_that_depends_on_it_is_named_with_the_reason(
    lake: OpenLake, tmp_path: Path, later: str
) -> None:
    make(lake)
    version = change(lake, MISTAKES["append"])
    append(lake, 20)
    work, why = LATER[later]
    newest = change(lake, work)
    before = touched(tmp_path)
    for dry_run in (True, False):
        with pytest.raises(InvalidError, match=rf"{version} cannot be reverted: version {newest} .*{why}") as error:
            lake.revert(version, dry_run=dry_run)
        assert error.value.sqlstate == "22023"
    assert touched(tmp_path) == before, "nothing was written"


def test_a_change_of_columns_with_appends_behind_is_refused(lake: OpenLake) -> None:
    make(lake)
    version = change(lake, lambda tx: tx["t"].alter.add_columns(pa.schema([("w", pa.int64())])))
    append(lake, 20)
    with pytest.raises(InvalidError, match=r"table default\.t .*columns or properties were changed by it"):
        lake.revert(version)


def clean_up(lake: OpenLake, version: int) -> None:
    """Take a commit from the table's log, as Delta's clean-up does behind a checkpoint."""
    root = lake.catalog.lake.storage.url.removeprefix("file://")
    DeltaTable(f"{root}/{table_of(lake).location}").create_checkpoint()
    lake.catalog.lake.storage.delete(commit_path(table_of(lake).location, version))


def test_what_the_timeline_holds_is_not_looked_for_in_the_log(lake: OpenLake) -> None:
    make(lake)
    version = change(lake, MISTAKES["append"])
    append(lake, 20)
    append(lake, 21)
    clean_up(lake, 2)
    lake.revert(version)
    assert [row["id"] for row in rows(lake)] == [1, 2, 20, 21, 3, 4]


def test_a_log_that_does_not_say_what_came_later_is_no_append(lake: OpenLake, tmp_path: Path) -> None:
    make(lake)
    version = change(lake, MISTAKES["append"])
    write_plainly(f"{tmp_path}/lake/{table_of(lake).location}", pa.table({"id": [30], "v": ["p"]}), mode="append")
    append(lake, 21)
    clean_up(lake, 2)
    with pytest.raises(InvalidError, match=r"0002\.json is gone, which says how"):
        lake.revert(version)


def test_commits_that_no_entry_holds_are_read_some_at_a_time(
    lake: OpenLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(later, "AT_ONCE", 2)
    make(lake)
    version = change(lake, MISTAKES["append"])
    plain = DeltaTable(f"{tmp_path}/lake/{table_of(lake).location}")
    for id_ in range(30, 35):
        write_plainly(plain, pa.table({"id": [id_], "v": ["p"]}), mode="append")
        lake.at()
    assert len(lake.revert(version, dry_run=True).tables) == 1
    plain.update_incremental()
    plain.delete("id = 31")
    append(lake, 40)
    with pytest.raises(InvalidError, match=rf"version {lake.at().version - 1} .* removed files of it"):
        lake.revert(version)


@pytest.mark.parametrize("is_kept", [False, True])
def test_a_version_that_has_expired_is_gone_for_good(lake: OpenLake, is_kept: bool) -> None:
    """Who tries again, as `lockstep.run` does, only loses time. What was before it may be kept by a tag."""
    make(lake)
    version = change(lake, MISTAKES["append"])
    older = append(lake, 20)
    if is_kept:
        tagged(lake, "kept")
    for id_ in (21, 22, 23):
        append(lake, id_)
    catalog = lake.catalog
    expire_snapshots(catalog.lake, older_than=catalog.lake.clock(), retain_last=3, grace=timedelta())
    first = catalog.timeline.head.expired.first_kept
    oldest = first if is_kept else first + 1
    assert (first > older, catalog.timeline.head.expired.has(first - 1)) == (True, not is_kept)
    for each in {version, oldest - 1}:
        with pytest.raises(ExpiredError, match=rf"{each} cannot be reverted: .* be reverted is {oldest};") as refused:
            lake.revert(each)
        assert (type(refused.value), refused.value.retryable) == (ExpiredError, False)
    lake.revert(oldest)


def test_what_comes_back_is_looked_for(lake: OpenLake, tmp_path: Path) -> None:
    make(lake)
    [file] = snapshot_of(lake).files.values()
    version = change(lake, MISTAKES["overwrite"])
    append(lake, 20)
    (tmp_path / "lake" / table_of(lake).location / file["path"]).unlink()
    before = touched(tmp_path)
    with pytest.raises(MissingFilesError, match=file["path"]):
        lake.revert(version)
    assert touched(tmp_path) == before


def test_who_appends_meanwhile_is_kept_and_who_deletes_is_in_the_way(lake: OpenLake) -> None:
    make(lake)
    version = change(lake, MISTAKES["append"])
    append(lake, 20)
    with lake.transaction() as tx:
        tx.revert(version)
        append(lake, 21)
    assert ids_by_deltalake(lake) == [1, 2, 3, 4, 20, 21]
    version = change(lake, MISTAKES["append"])
    append(lake, 22)

    def beside() -> None:
        with lake.transaction() as tx:
            tx.revert(version)
            change(lake, lambda tx: tx["t"].delete("id = 7"))

    with pytest.raises(ConflictError):
        beside()
    assert ids_by_deltalake(lake) == [1, 2, 3, 4, 8, 20, 21, 22]


# --- what is undone by now --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", MISTAKES)
@pytest.mark.parametrize("second", MISTAKES)
def test_versions_are_reverted_one_after_the_other_newest_first(lake: OpenLake, first: str, second: str) -> None:
    make(lake)
    older = change(lake, MISTAKES[first])
    newer = change(lake, lambda tx: (MISTAKES[second](tx), tx["t"].append(tx["t"].to_arrow())))
    lake.revert(newer)
    done = lake.revert(older)
    assert [(each.version, each.through) for each in done.tables] == [(0, None)]
    assert [row["id"] for row in rows(lake)] == ROWS["id"]
    lake.revert(lake.at().version)
    lake.revert(lake.at().version)
    assert len(rows(lake)) == 4


def test_what_was_renamed_and_dropped_in_between_is_as_it_was(lake: OpenLake) -> None:
    make(lake)
    version = change(lake, MISTAKES["append"])
    for work in (lambda tx: tx.rename("t", "other"), lambda tx: tx.drop("t")):
        undone = change(lake, work)
        with pytest.raises(InvalidError, match=r"changed table default\.t after it\. Revert"):
            lake.revert(version)
        lake.revert(undone)
    lake.revert(version)
    assert [row["id"] for row in rows(lake)] == ROWS["id"]


def test_a_version_that_changed_columns_is_reverted_once_what_came_later_is(lake: OpenLake) -> None:
    make(lake, properties={"delta.columnMapping.mode": "name"})
    older = change(lake, lambda tx: tx["t"].alter.add_columns(pa.schema([("w", pa.int64())])))
    newer = change(lake, lambda tx: tx["t"].alter.add_columns(pa.schema([("x", pa.int64())])))
    lake.revert(newer)
    lake.revert(older)
    assert rows(lake)[0].keys() == {"id", "v"}


def test_where_the_rows_alone_are_as_they_were_the_advice_is_another(lake: OpenLake) -> None:
    make(lake)
    version = change(lake, MISTAKES["append"])
    change(lake, lambda tx: tx["t"].alter.set_table_properties({"mine": "1"}))
    with pytest.raises(InvalidError, match=rf"has the rows that version {version} left, but other columns") as error:
        lake.revert(version)
    assert "Revert what came later" not in error.value.message


def test_where_nothing_tells_any_more_what_it_was_the_later_version_is_named(lake: OpenLake) -> None:
    make(lake)
    version = change(lake, MISTAKES["append"])
    undone = change(lake, MISTAKES["delete"])
    lake.revert(undone)
    clean_up(lake, 1)
    lake.catalog.lake.storage.delete(commit_path(table_of(lake).location, 0))
    with pytest.raises(InvalidError, match=rf"version {undone} .* changed table default\.t"):
        lake.revert(version)
