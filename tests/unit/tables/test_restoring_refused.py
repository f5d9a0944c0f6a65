"""RESTORE DATABASE and revert without Spark: what is refused, by name, before anything is written."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake import write_deltalake as write_plainly

import lockstep
from lockstep.adoption.adopt import Wanted, adopt, look
from lockstep.delta.actions import Action, render
from lockstep.delta.log import commit_path
from lockstep.errors import (
    InvalidError,
    MissingFilesError,
    ReadOnlyError,
    UndefinedError,
    UnsupportedError,
)
from lockstep.exports.files import places_of
from lockstep.tables.opened import OpenLake
from tests.support.restored import (
    ROWS,
    SCHEMA,
    make,
    named,
    rows,
    snapshot_of,
    table_of,
)


def test_missing_files_are_named_before_anything_is_written(lake: OpenLake, tmp_path: Path) -> None:
    make(lake, "a")
    then = make(lake, "b")
    [path] = [path for path, _ in snapshot_of(lake, "b").files]
    for name in ("a", "b"):
        with lake.transaction() as tx:
            tx[name].overwrite({"id": [9], "v": ["x"]})
    (tmp_path / "lake" / table_of(lake, "b").location / path).unlink()
    before = sorted(each for each in tmp_path.rglob("*"))
    with pytest.raises(MissingFilesError, match=path) as caught:
        lake.restore(then)
    assert not caught.value.retryable, "they stay gone"
    assert sorted(each for each in tmp_path.rglob("*")) == before
    lake.restore(then, tables=["a"])
    assert len(rows(lake, "a")) == 4


def test_the_files_of_a_table_that_comes_back_are_looked_for(lake: OpenLake, tmp_path: Path) -> None:
    then = make(lake)
    location = table_of(lake).location
    with lake.transaction() as tx:
        tx.drop("t")
    [gone] = (tmp_path / "lake" / location).glob("*.parquet")
    gone.unlink()
    for dry_run in (False, True):
        with pytest.raises(MissingFilesError, match=gone.name):
            lake.restore(then, dry_run=dry_run)
    assert named("t") not in lake.at().tables


def test_the_files_of_a_table_that_the_transaction_adopted_are_not_the_restores(lake: OpenLake, tmp_path: Path) -> None:
    """It came by no restore: what it lacks is in nobody's way, as in its adoption."""
    then = make(lake)
    with lake.transaction() as tx:
        tx["t"].overwrite({"id": [9], "v": ["x"]})
    write_plainly(str(tmp_path / "plain"), pa.table(ROWS, schema=SCHEMA))
    [gone] = (tmp_path / "plain").glob("*.parquet")
    gone.unlink()
    with lake.transaction() as tx:
        core, names = lake.catalog.lake, tx.core.names
        adopt(core, tx.core, look(core, names, [Wanted(named("plain"), str(tmp_path / "plain"))]))
        tx.restore(then, tables=["t"])
        assert tx.core.names.brought_back() == []
    assert len(rows(lake)) == 4


def test_a_file_is_looked_for_with_its_deletion_vector() -> None:
    vector = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 1}
    root = "file:///lake"
    inside = [place.path for place in places_of({"path": "a%20b", "deletionVector": vector}, "t", root)]
    assert inside == ["t/a b", "t/ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"]
    inline = {**vector, "storageType": "i"}
    assert [place.path for place in places_of({"path": "p", "deletionVector": inline}, "t", root)] == ["t/p"]
    outside = [place.uri for place in places_of({"path": "file:///other/p"}, "t", root)]
    assert outside == ["file:/other/p"]


def test_a_version_whose_log_is_gone_is_refused(lake: OpenLake, tmp_path: Path) -> None:
    then = make(lake)
    with lake.transaction() as tx:
        tx["t"].delete()
    table = table_of(lake)
    DeltaTable(str(tmp_path / "lake" / table.location)).create_checkpoint()
    (tmp_path / "lake" / commit_path(table.location, 0)).unlink()
    with pytest.raises(MissingFilesError, match=r"0000\.json is gone.*table default\.t cannot be restored"):
        lockstep.open(str(tmp_path / "lake")).restore(then)


def _changed(lake: OpenLake, root: Path, *actions: Action) -> None:
    """Commit to the table as a plain Delta writer does."""
    table = table_of(lake)
    path = root / "lake" / commit_path(table.location, table.version + 1)
    path.write_bytes(render([{"commitInfo": {"operation": "SET TBLPROPERTIES", "timestamp": 0}}, *actions]))


def _with_features(protocol: dict[str, Any], *names: str) -> Action:
    features = sorted({*(protocol.get("writerFeatures") or ("appendOnly", "invariants")), *names})
    return {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}}


def test_what_the_writer_refuses_is_refused_by_name(lake: OpenLake, tmp_path: Path) -> None:
    then = make(lake)
    there = snapshot_of(lake)
    with lake.transaction() as tx:
        tx["t"].delete("id = 1")
    _changed(lake, tmp_path, _with_features(there.protocol, "rowTracking", "domainMetadata"))
    for dry_run in (True, False):
        with pytest.raises(UnsupportedError, match=r"table default\.t cannot be restored without Spark.*rowTracking"):
            lake.restore(then, dry_run=dry_run)
    assert len(rows(lake)) == 3


def test_a_table_that_dropped_what_it_needed_then_is_refused(lake: OpenLake, tmp_path: Path) -> None:
    then = make(lake)
    with lake.transaction() as tx:
        tx["t"].append({"id": [5], "v": ["e"]})
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["appendOnly"]}
    _changed(lake, tmp_path, {"protocol": protocol})
    with pytest.raises(UnsupportedError, match=r"default\.t cannot be restored to version 0 .* invariants"):
        lake.restore(then)
    assert len(rows(lake)) == 5


def test_a_table_for_appends_alone_gives_no_rows_back(lake: OpenLake) -> None:
    then = make(lake, properties={"delta.appendOnly": "true"})
    with lake.transaction() as tx:
        tx["t"].append({"id": [5], "v": ["e"]})
    with pytest.raises(ReadOnlyError, match="appends alone"):
        lake.restore(then)


def test_what_cannot_be_meant_is_refused(lake: OpenLake) -> None:
    make(lake)
    with pytest.raises(UndefinedError, match="no table or view"):
        lake.restore(1, tables=["nowhere"])
    with pytest.raises(UndefinedError, match="no namespace"):
        lake.restore(1, namespaces=["nowhere"])
    with pytest.raises(UndefinedError) as error:
        lake.restore("no tag")
    assert error.value.sqlstate == "42704"
    with pytest.raises(InvalidError, match="time zone"):
        lake.restore(datetime(2026, 1, 1))
    with pytest.raises(InvalidError):
        lake.restore(datetime(2000, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize("argument", ["tables", "namespaces"])
def test_a_tuple_that_may_be_one_name_or_several_is_refused(lake: OpenLake, argument: str) -> None:
    for dry_run in (True, False):
        with pytest.raises(InvalidError, match="one name in parts, or several"):
            lake.restore(0, **{argument: ("sales", "orders")}, dry_run=dry_run)  # type: ignore[arg-type]
