"""The coordinates of each kind of store's connector, fetched by Spark as it starts: `make test-packages`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.s3 import KEYS, moto, serving

pytestmark = [
    pytest.mark.skipif(not os.environ.get("LOCKSTEP_TEST_PACKAGES"), reason="fetches 100 MB: `make test-packages`"),
    pytest.mark.slow,
]

PROGRAM = """
import json, sys
import lockstep
from pyspark.sql import SparkSession

root, options, is_used = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3] == "used"
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = lockstep.configure(builder, root=root, options=options, packages=True, create=True).getOrCreate()
hadoop = spark._jvm.org.apache.hadoop.fs.FileSystem
scheme = root.partition("://")[0].replace("s3", "s3a")
found = hadoop.getFileSystemClass(scheme, spark._jsc.hadoopConfiguration()).getName()
rows = []
if is_used:
    spark.sql("CREATE NAMESPACE lake.shop")
    spark.sql("CREATE TABLE lake.shop.a AS SELECT 1 AS id")
    with lockstep.transaction(spark):
        spark.sql("INSERT INTO lake.shop.a VALUES (2)")
        spark.sql("CREATE TABLE lake.shop.b AS SELECT id + 1 AS id FROM lake.shop.a")
    rows = [row.id for row in spark.sql("SELECT id FROM lake.shop.b ORDER BY id").collect()]
print(json.dumps([found, rows]))
"""


def run(folder: Path, root: str, options: dict[str, str], *, is_used: bool) -> list[object]:
    """Run the program with nothing fetched before, and return what it prints."""
    home = folder / "home"  # Spark looks below it for what Maven and Ivy have fetched already
    home.mkdir()
    environment = {**os.environ, "JAVA_TOOL_OPTIONS": f"-Duser.home={home}"}
    arguments = [root, json.dumps(options), "used" if is_used else "looked at"]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5_000:]
    found: list[object] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_with_those_for_s3_a_session_writes_and_reads_a_lake(tmp_path: Path) -> None:
    with serving(moto()) as endpoint:
        found = run(tmp_path, "s3://lake/packages", {**KEYS, "endpoint": endpoint}, is_used=True)
    assert found == ["org.apache.hadoop.fs.s3a.S3AFileSystem", [2, 3]]


@pytest.mark.parametrize(
    ("root", "options", "file_system"),
    [
        (
            "abfss://c@a.dfs.core.windows.net/lake",
            {"account_key": "a2V5"},
            "org.apache.hadoop.fs.azurebfs.SecureAzureBlobFileSystem",
        ),
        ("gs://b/lake", {"skip_signature": "true"}, "org.apache.hadoop.fs.gs.GoogleHadoopFileSystem"),
    ],
    ids=["azure", "google"],
)
def test_with_the_others_spark_has_a_file_system(
    tmp_path: Path, root: str, options: dict[str, str], file_system: str
) -> None:
    """And no more is shown: there is no server for them here that speaks what they do."""
    assert run(tmp_path, root, options, is_used=False) == [file_system, []]
