"""Which paths are those of a lake's tables: they are read by name where it counts what was read."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from lockstep.errors import UnsupportedError
from lockstep.spark.host.paths import refuse_paths
from lockstep.timeline.entry import Name, Table

TABLES = [Table(id="1", name=Name(("sales",), "orders"), location="sales/orders-1", version=3, since=1)]


def is_refused(path: str, root: str) -> bool:
    try:
        refuse_paths(["/elsewhere", path], root, TABLES)
    except UnsupportedError:
        return True
    return False


def test_a_refusal_names_the_path_and_the_table() -> None:
    with pytest.raises(UnsupportedError, match=r"/lake/sales/orders-1/x is of table sales\.orders"):
        refuse_paths(["/lake/sales/orders-1/x"], "file:///lake", TABLES)


def test_of_several_tables_the_first_by_name_is_named() -> None:
    more = [msgspec.structs.replace(TABLES[0], name=Name(("sales",), name), location=name) for name in "zay"]
    with pytest.raises(UnsupportedError, match=r"is of table sales\.a:"):
        refuse_paths(["/lake"], "file:///lake", more)


@pytest.mark.parametrize(
    ("path", "refused"),
    [
        ("sales/orders-1", True),
        ("sales/orders-1/", True),
        ("sales/orders-1/part-0.parquet", True),
        ("sales/orders-1/_delta_log", True),
        ("sales", True),  # with all that is below it
        ("", True),
        ("..", True),
        ("../../../../../../../..", True),
        ("sales/orders-10", False),
        ("sales/orders", False),
        ("landing/orders-1", False),
        ("../other/sales/orders-1", False),
    ],
)
@pytest.mark.parametrize("written", ["{}", "file:{}", "file://{}", "FILE:{}", "File://{}"])
def test_local_paths(tmp_path: Path, written: str, path: str, refused: bool) -> None:
    root = tmp_path / "lake"
    assert is_refused(written.format(f"{root}/{path}"), f"file://{root}") is refused


def test_links_lead_to_what_they_name(tmp_path: Path) -> None:
    (tmp_path / "lake" / "sales" / "orders-1").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "lake")
    assert is_refused(f"{tmp_path}/link/sales/orders-1", f"file://{tmp_path}/lake")
    assert is_refused(f"{tmp_path}/lake/sales/orders-1", f"file://{tmp_path}/link")


@pytest.mark.parametrize(
    ("path", "refused"),
    [
        ("s3a://bucket/lake/sales/orders-1", True),
        ("s3://bucket/lake/sales/orders-1", True),
        ("s3a://another/lake/sales/orders-1", False),
        ("s3a://bucket/lake2/sales/orders-1", False),
        ("hdfs://bucket/lake/sales/orders-1", False),
        ("/lake/sales/orders-1", False),
    ],
)
def test_paths_in_an_object_store(path: str, refused: bool) -> None:
    assert is_refused(path, "s3://bucket/lake") is refused


@pytest.mark.parametrize(
    ("path", "refused"),
    [
        ("abfss://box@account.dfs.core.windows.net/lake/sales/orders-1", True),
        ("abfs://box@account.dfs.core.windows.net/lake/sales/orders-1", True),
        ("wasbs://box@account.blob.core.windows.net/lake/sales/orders-1", True),
        ("abfs://box@account.dfs.core.windows.net/landing", False),
        ("webhdfs://name:9870/lake/sales/orders-1", False),
    ],
)
def test_paths_in_azure(path: str, refused: bool) -> None:
    assert is_refused(path, "abfss://box@account.dfs.core.windows.net/lake") is refused


@pytest.mark.parametrize(
    ("path", "refused"),
    [
        ("hdfs://name:9000/lake/sales/orders-1", True),
        ("hdfs://NAME:9000/lake/sales/orders-1", True),
        ("hdfs://name:9000/landing", False),
        ("hdfs://name.example.org:9000/lake/sales/orders-1", True),  # it may be the same one
        ("hdfs://127.0.0.1:9000/landing", True),  # and this may be a folder of a table that lies elsewhere
        ("hdfs://name/landing", True),
        ("s3://bucket/landing", False),
        ("webhdfs://name:9870/lake/sales/orders-1", True),  # the same files, asked for by HTTP
        ("swebhdfs://other/landing", True),
    ],
)
def test_paths_in_hdfs(path: str, refused: bool) -> None:
    assert is_refused(path, "hdfs://name:9000/lake") is refused


def test_a_name_node_that_a_table_is_under_may_be_written_as_the_tables_location_does() -> None:
    outside = [*TABLES, msgspec.structs.replace(TABLES[0], id="2", location="hdfs://second/data/t")]
    refuse_paths(["hdfs://second/data/u", "hdfs://second:8020/data/u"], "hdfs://first/lake", outside)
    with pytest.raises(UnsupportedError, match=r"is of table sales\.orders"):
        refuse_paths(["hdfs://second:8020/data/t"], "hdfs://first/lake", outside)
