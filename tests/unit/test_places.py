"""Where the paths of a table's log lead: tables of cases, and whoever follows such a path comes to the same place."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote

import pytest

from lockstep.commit.going import old_files
from lockstep.delta import places
from lockstep.delta.actions import Action
from lockstep.delta.combine.deletion_vectors import file_path, is_readable
from lockstep.delta.places import below_root, is_absolute, may_mean, place_of
from lockstep.exports.files import Place
from lockstep.exports.files import place_of as place_to_read
from lockstep.lake.deletions import OLD, Wanted
from lockstep.retention.files import TableFiles
from lockstep.retention.needs import Need
from lockstep.storage.urls import comparable, store_of
from tests.support.lakes import add

LOCAL, S3, HDFS = "file:///lake", "s3://bucket/lake", "hdfs://name/lake"
AZURE, GCS = "abfss://box@account.dfs.core.windows.net/lake", "gs://bucket/lake"

PLACES = [
    # a path without percent-encoding, the lake's root, and where in the lake it leads from the table t
    ("a", LOCAL, "t/a"),
    ("p=x:y/a", LOCAL, "t/p=x:y/a"),
    ("x:y.parquet", LOCAL, "t/x:y.parquet"),
    ("./a", LOCAL, "t/a"),
    ("p//a", LOCAL, "t/p/a"),
    ("../s/a", LOCAL, "s/a"),
    ("../../lake/s/a", LOCAL, "s/a"),
    ("../../a", LOCAL, None),
    ("file:///lake/s/a", LOCAL, "s/a"),
    ("file:/lake/s/a", LOCAL, "s/a"),
    ("FILE:/lake/s/a", LOCAL, "s/a"),
    ("/lake/s/a", LOCAL, "s/a"),
    ("file:/lake//s/./x/../a", LOCAL, "s/a"),
    ("/elsewhere/a", LOCAL, None),
    ("file:///lakes/a", LOCAL, None),
    ("file:///lake", LOCAL, None),
    ("s3://lake/a", LOCAL, None),
    ("file:/a", "file:///", "a"),
    ("s3://bucket/lake/s/a", "s3a://bucket/lake", "s/a"),
    ("s3a://bucket/lake/s/a", S3, "s/a"),
    ("s3n://bucket/lake/s/a", S3, "s/a"),
    ("S3A://bucket/lake/s/a", S3, "s/a"),
    ("s3a://bucket/lake//s/a", S3, "s/a"),
    ("s3a://key@bucket/lake/s/a", S3, "s/a"),
    ("s3://other/lake/s/a", S3, None),
    ("s3://Bucket/lake/s/a", S3, None),
    ("s3://bucket/s/a", "s3://bucket", "s/a"),
    ("gs://bucket/lake/s/a", S3, None),
    ("gs://bucket/lake/s/a", GCS, "s/a"),
    ("hdfs://name:8020/lake/s/a", HDFS, "s/a"),
    ("hdfs://name/lake/s/a", "hdfs://name:8020/lake", "s/a"),
    ("hdfs://NAME:8020/lake/s/a", "hdfs://Name/lake", "s/a"),
    ("hdfs://user@name/lake/s/a", HDFS, "s/a"),
    ("hdfs://name:9000/lake/s/a", HDFS, None),
    ("hdfs://other/lake/s/a", HDFS, None),
    ("abfs://box@account.dfs.core.windows.net/lake/s/a", AZURE, "s/a"),
    ("abfss://box@ACCOUNT.dfs.core.windows.net/lake/s/a", AZURE, "s/a"),
    ("abfss://other@account.dfs.core.windows.net/lake/s/a", AZURE, None),
    ("file:/a#b/lake/s/a", "file:///a#b/lake", "s/a"),
    ("s3a://bucket/a?b/s/a", "s3://bucket/a?b", "s/a"),
]


def about(added: Action, root: str) -> Wanted:
    """Return what a commit is about to need that adds an old file to the table t."""
    now, body = datetime.now(UTC), {**added["add"], "modificationTime": 0}
    return old_files([[{"add": body}]], "t", root, now, began_at=now)


def test_old_change_files_are_known_by_all_their_names() -> None:
    """As data files are: what is being deleted may be named as the log has it, and not as it is looked for."""
    now, path = datetime.now(UTC), "_change_data/p=x%2520y/c"
    wanted = old_files([[{"cdc": {"path": path}}]], "t", "file:///lake", now, began_at=now - 2 * OLD)
    assert wanted.files == {"t/_change_data/p=x%20y/c"}
    assert wanted.spellings == {*may_mean(path, "t", "file:///lake")} > wanted.files


@pytest.mark.parametrize(("path", "root", "expected"), PLACES)
def test_where_in_the_lake_a_path_leads(path: str, root: str, expected: str | None) -> None:
    assert below_root(path, "t", root) == expected


@pytest.mark.parametrize(("path", "root", "expected"), PLACES)
def test_all_who_follow_a_path_come_to_the_same_place(path: str, root: str, expected: str | None) -> None:
    """Who deletes, who is about to need it, and who reads it: a data file, and a deletion vector's."""
    written = quote(path, safe=":/@")
    files = TableFiles("t", root, Need(0))
    files.take(0, [add(written)], datetime.now(UTC))
    files.finish(datetime.now(UTC))
    assert (expected in files.needed) == (expected is not None)
    assert about(add(written), root).files == (set() if expected is None else {expected})
    if expected is not None:
        assert place_to_read(written, location="t", root=root) == Place(root, expected)
    if is_absolute(path):
        vector = {"storageType": "p", "pathOrInlineDv": written, "sizeInBytes": 1, "cardinality": 1}
        files = TableFiles("t", root, Need(0))
        files.take(0, [add("x", deletionVector=vector)], datetime.now(UTC))
        files.finish(datetime.now(UTC))
        assert (expected in files.needed) == (expected is not None)
        wanted = about(add("x", deletionVector=vector), root)
        assert wanted.files == {"t/x", *([] if expected is None else [expected])}
        assert wanted.spellings >= files.needed, "who deletes keeps it by these names"
        assert is_readable(vector, root=root) is (expected is not None)
        if expected is not None:
            assert file_path(vector, location="t", root=root) == expected


OUTSIDE = [
    # a path, the table's location, the lake's root, and what the lake calls that place
    ("s3a://other/x/a", "t", S3, "s3://other/x/a"),
    ("abfs://box@Other.dfs.core.windows.net/x", "t", AZURE, "abfss://box@other.dfs.core.windows.net/x"),
    ("hdfs://other:8020/x/a", "t", HDFS, "hdfs://other/x/a"),
    ("a", "s3://other/t", S3, "s3://other/t/a"),
    ("../u//a", "s3://other/t", S3, "s3://other/u/a"),
    ("s3a://other/t/a", "s3://other/t", S3, "s3://other/t/a"),
    ("../../x/a", "t", S3, "s3://bucket/x/a"),
    ("file:/elsewhere/./a", "t", LOCAL, "file:///elsewhere/a"),
]


@pytest.mark.parametrize(("path", "location", "root", "expected"), OUTSIDE)
def test_what_lies_outside_has_one_name(path: str, location: str, root: str, expected: str) -> None:
    assert place_of(path, location, root) == expected


def test_a_link_that_is_made_later_leads_into_the_lake_from_then_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver runs for weeks; what it saw before of a path says nothing of the files that a clone shares by it now."""
    now = [0.0]
    monkeypatch.setattr(places, "time", SimpleNamespace(monotonic=lambda: now[0]))
    (tmp_path / "lake" / "t").mkdir(parents=True)
    path, root = f"file:{tmp_path}/alias/t/a.parquet", f"file://{tmp_path}/lake"
    assert may_mean(path, "clone", root) == [f"file://{tmp_path}/alias/t/a.parquet"]
    (tmp_path / "alias").symlink_to(tmp_path / "lake")
    now[0] += 1
    assert may_mean(path, "clone", root) == ["t/a.parquet"]


def test_links_make_no_other_place(tmp_path: Path) -> None:
    """The lake, and what lies outside of it, by one link and by another; to read a file its name stays as it is."""
    (tmp_path / "lake").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "lake")
    (tmp_path / "more").symlink_to(tmp_path / "data")
    for root in (f"file://{tmp_path}/lake", f"file://{tmp_path}/link"):
        for name in ("lake", "link"):
            path = f"file:{tmp_path}/{name}/s/a"
            vector = {"storageType": "p", "pathOrInlineDv": path}
            assert place_of(path, "t", root) == file_path(vector, location="t", root=root) == "s/a"
            assert place_to_read(path, location="t", root=root) == Place(root, "s/a")
        assert place_of(f"file:{tmp_path}/more/a", "t", root) == f"file://{tmp_path}/data/a"
        assert place_to_read(f"file:{tmp_path}/more/a", location="t", root=root).root == f"file://{tmp_path}/more"


MEANINGS = [
    # a path as the log has it, the lake's root, and what of the lake has to stay for it, from the table t
    ("a", S3, {"t/a"}),
    ("a%20b", S3, {"t/a%20b", "t/a b"}),
    ("x:y", S3, {"t/x:y"}),
    ("%2Flake/s/a", S3, {"t/%2Flake/s/a", "t/lake/s/a", "s/a"}),
    ("/lake/s/a", S3, {"s/a"}),
    ("/lake/s/a", HDFS, {"s/a"}),
    ("/elsewhere/a", S3, set()),
    ("hdfs:/lake/s/a", HDFS, {"s/a"}),
    ("hdfs:///lake/s/a", HDFS, {"s/a"}),
    ("hdfs://other-name:9000/lake/s/a", HDFS, {"s/a"}),
    ("webhdfs://name:9870/lake/s/a", HDFS, {"s/a"}),
    ("viewfs://cluster/lake/s/a", HDFS, {"s/a"}),
    ("wasbs://box@account.blob.core.windows.net/lake/s/a", AZURE, {"s/a"}),
    ("abfss://box@other.dfs.core.windows.net/lake/s/a", AZURE, set()),
    ("s3a://other/lake/s/a", S3, set()),
    ("file:/lake/s/a", HDFS, set()),
    ("hdfs://name/lake/s/a", LOCAL, set()),
    ("gs:///lake/s/a", S3, set()),
]


@pytest.mark.parametrize(("path", "root", "expected"), MEANINGS)
def test_where_nobody_can_tell_which_store_a_path_is_of_the_lakes_file_stays(
    path: str, root: str, expected: set[str]
) -> None:
    assert {place for place in may_mean(path, "t", root) if "://" not in place} == expected
    assert about(add(path), root).spellings >= expected, "who is about to need it asks for the same"


STORES = [
    ("s3a", "bucket", "s3://bucket"),
    ("S3", "Bucket", "s3://Bucket"),
    ("gs", "bucket", "gs://bucket"),
    ("abfs", "Box@Account.dfs.core.windows.net", "abfss://box@account.dfs.core.windows.net"),
    ("hdfs", "Name:8020", "hdfs://name"),
    ("hdfs", "name:8021", "hdfs://name:8021"),
    ("file", "", "file://"),
    ("file", "localhost", "file://"),
]


@pytest.mark.parametrize(("scheme", "authority", "expected"), STORES)
def test_a_store_has_one_spelling(scheme: str, authority: str, expected: str) -> None:
    assert store_of(scheme, authority) == expected
    if expected != "file://":
        assert comparable(f"{scheme}://{authority}/lake/") == f"{expected}/lake"
