"""The overlay's URIs: one form, read back as written, in every kind of root."""

from __future__ import annotations

import pytest

from lockstep.delta.real_paths import real_paths
from lockstep.errors import InvalidError
from lockstep.spark.host.uris import Uris
from lockstep.timeline.entry import NEW

ROOTS = [
    # a storage's URL, the head's URI of sales/orders-1, its real one
    ("file:///data/lake", "lockstep://head.file/data/lake", "file:///data/lake"),
    ("s3://bucket/a/b", "lockstep://head.s3a.bucket/a/b", "s3a://bucket/a/b"),
    ("s3a://bucket", "lockstep://head.s3a.bucket", "s3a://bucket"),
    ("s3://my.dotted.bucket/p", "lockstep://head.s3a.my.dotted.bucket/p", "s3a://my.dotted.bucket/p"),
    ("hdfs://name:8020/lake", "lockstep://head.hdfs.name:8020/lake", "hdfs://name:8020/lake"),
    ("file:///my lake/ünï#?", "lockstep://head.file/my lake/ünï#?", "file:///my lake/ünï#?"),
]


@pytest.mark.parametrize(("root", "head", "real"), ROOTS)
def test_the_form_of_uris(root: str, head: str, real: str) -> None:
    uris, at = Uris(root), "sales/orders-1"
    assert uris.head(at) == f"{head}/{at}"
    assert uris.own(at, "t1", 7) == f"{head.replace('head', 't1-7', 1)}/{at}"
    assert uris.own(at, "t1", NEW) == f"{head.replace('head', 't1-new', 1)}/{at}"
    assert uris.real(at) == f"{real}/{at}"


@pytest.mark.parametrize("root", [root for root, _, _ in ROOTS])
def test_what_is_written_is_read_back(root: str) -> None:
    uris, at = Uris(root), "sales/orders-1"
    for uri, transaction in ((uris.head(at), None), (uris.own(at, "t1", 7), "t1"), (uris.own(at, "t1", NEW), "t1")):
        assert uris.holds(uri)
        view = uris.parse(uri)
        assert (view.transaction, view.location) == (transaction, at)
    folder = "_lockstep/kept/1/2-3"
    kept, beside = uris.kept(at, 7, folder), uris.own(at, "0f", 7, kept=folder)
    assert [uris.parse(uri).transaction for uri in (kept, beside)] == [None, "0f"]
    assert [uris.parse(uri).location for uri in (kept, beside)] == [at, at]
    assert uris.real(folder).encode().hex() in kept.partition("-7.")[0]
    assert (uris.parse(beside).epoch, uris.parse(uris.own(at, "0f", 7, 3, folder)).epoch) == (0, 3)


@pytest.mark.parametrize(("root", "head", "real"), ROOTS[:5])
def test_a_commit_that_names_one_names_the_real_folder_in_the_end(root: str, head: str, real: str) -> None:
    """Shallow clones write absolute paths: what `real_paths` makes of them is what `real` says, as Hadoop spells it."""
    uri = Uris(root).own("sales/orders-1", "t1", 7)
    [action] = real_paths([{"add": {"path": f"{uri}/x.parquet"}}])
    assert action["add"]["path"] == f"{real.replace('file:///', 'file:/')}/sales/orders-1/x.parquet"


@pytest.mark.parametrize(
    ("uri", "location"),
    [
        ("lockstep://head.file/data/lakeside/t", "file:///data/lakeside/t"),
        ("lockstep://head.file/data/lake", "file:///data/lake"),
        ("lockstep://head.s3a.data/lake/t", "s3://data/lake/t"),
        ("lockstep://head.file/data/a b/t#1?%20", "file:///data/a b/t#1?%20"),
    ],
)
def test_a_uri_that_is_not_below_the_root_is_that_of_a_table_outside(uri: str, location: str) -> None:
    uris = Uris("file:///data/lake")
    assert not uris.holds(uri)
    assert uris.parse(uri).location == location
    assert uris.head(location) == uri
    assert Uris("s3://bucket/lake").parse(uris.own(location, "t1", 7)).location == location
    assert uris.real(location) == location.replace("s3://", "s3a://")


@pytest.mark.parametrize("uri", ["file:///data/lake/t", "/data/lake/t", ""])
def test_what_is_no_uri_of_ours_is_refused(uri: str) -> None:
    with pytest.raises(InvalidError, match="is not a lockstep:// URI"):
        Uris("file:///data/lake").holds(uri)


@pytest.mark.parametrize("view", ["0fxfoo-1", "0fx-1-1", "0fx٣-1", "0fx²-1", f"0fx{10**19}-1"])
def test_an_epoch_that_is_no_number_is_that_of_no_transaction(view: str) -> None:
    with pytest.raises(InvalidError, match="of no transaction"):
        Uris("file:///data/lake").parse(f"lockstep://{view}.file/data/lake/t")
