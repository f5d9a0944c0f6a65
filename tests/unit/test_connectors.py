"""Which connector Spark needs for a root, and who is told; that the coordinates are right: `make test-packages`."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lockstep.errors import InvalidError, LockstepError, UnavailableError, UnsupportedError
from lockstep.spark.configuration import conf, configure
from lockstep.spark.connectors import connector_of, told
from lockstep.spark.doctor import examine
from tests.support.commands import read

S3 = "org.apache.hadoop:hadoop-aws:3.5.0," + ",".join(
    f"software.amazon.awssdk:{part}:2.35.4" for part in ("s3", "s3-transfer-manager", "sts")
)
AZURE = "abfss://c@a.dfs.core.windows.net/lake"


@pytest.fixture
def spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the jars of a Spark that has Hadoop 3.5.0, and Delta."""
    folder = tmp_path / "spark" / "jars"
    folder.mkdir(parents=True)
    for jar in ("hadoop-client-api-3.5.0.jar", "delta-spark_4.2_2.13-4.4.0.jar"):
        (folder / jar).touch()
    monkeypatch.setenv("SPARK_HOME", str(folder.parent))
    return folder


@pytest.mark.parametrize(
    ("hadoop", "root", "arguments"),
    [
        ("3.5.0", "s3://b/lake", f"--packages {S3} --exclude-packages software.amazon.awssdk:bundle"),
        ("3.5.0", "s3a://b", f"--packages {S3} --exclude-packages software.amazon.awssdk:bundle"),
        ("3.9.9", "s3://b/lake", "--packages org.apache.hadoop:hadoop-aws:3.9.9"),  # whose SDK is not known here
        ("3.5.0", AZURE, "--packages org.apache.hadoop:hadoop-azure:3.5.0"),
        ("3.4.1", AZURE, "--packages org.apache.hadoop:hadoop-azure:3.4.1"),
        ("3.5.0", "gs://b/lake", "--packages org.apache.hadoop:hadoop-gcp:3.5.0"),
    ],
)
def test_the_coordinates_follow_from_the_root_and_from_sparks_hadoop(
    tmp_path: Path, hadoop: str, root: str, arguments: str
) -> None:
    (tmp_path / f"hadoop-client-api-{hadoop}.jar").touch()
    assert connector_of(root, tmp_path).arguments == arguments


@pytest.mark.parametrize(
    ("hadoop", "root", "error", "says"),
    [
        ("3.4.2", "gs://b/lake", UnsupportedError, r"Hadoop 3\.4\.2.*no connector for gs://.*gcs-connector"),
        ("", "s3://b/lake", UnavailableError, r"no hadoop-client-api-\*\.jar"),
        ("3.5.0", "s3://", InvalidError, "names no bucket"),
        ("3.5.0", "ftp://b/lake", UnsupportedError, "no store for"),
    ],
)
def test_where_no_coordinates_are_known_that_is_said(
    tmp_path: Path, hadoop: str, root: str, error: type[LockstepError], says: str
) -> None:
    if hadoop:
        (tmp_path / f"hadoop-client-api-{hadoop}.jar").touch()
    with pytest.raises(error, match=says):
        connector_of(root, tmp_path)


def test_a_person_is_told_what_is_missing_what_is_there_and_what_is_of_another_release(spark: Path) -> None:
    assert told("s3://b/lake").startswith(f"not among Spark's own jars, so start Spark with --packages {S3} --exclude")
    jar = spark / "hadoop-aws-3.5.0.jar"
    jar.touch()
    assert told("s3://b/lake") == "hadoop-aws-3.5.0.jar, among Spark's own jars"
    jar.rename(spark / "hadoop-aws-3.4.1.jar")
    with pytest.raises(UnsupportedError, match=r"has hadoop-aws-3\.4\.1\.jar, and its Hadoop is 3\.5\.0: put"):
        told("s3://b/lake")


def test_the_doctor_tells_it_before_it_looks_at_the_store(spark: Path) -> None:
    found = next(each for each in examine("s3://b/lake") if each.what == "connector")
    assert found.is_well
    assert S3 in found.detail


def test_settings_have_them_where_they_are_asked_for_and_missing(spark: Path) -> None:
    names = {"spark.jars.packages", "spark.jars.excludes"}
    made = conf(root="s3://b/lake", jars=False, packages=True)
    assert [made[name] for name in sorted(names)] == ["software.amazon.awssdk:bundle", S3]
    assert not names & conf(root="s3://b/lake", jars=False).keys()
    for local in ("/data/lake", "hdfs://name/lake"):
        assert not names & conf(root=local, jars=False, packages=True).keys()
    (spark / "hadoop-aws-3.5.0.jar").touch()
    assert not names & conf(root="s3://b/lake", jars=False, packages=True).keys()


def test_locations_in_other_kinds_of_store_have_theirs_fetched_too(spark: Path) -> None:
    def made(root: str, *locations: str) -> dict[str, str]:
        found = conf(root=root, locations={each: {} for each in locations}, jars=False, packages=True)
        return {name: found[name] for name in ("spark.jars.packages", "spark.jars.excludes") if name in found}

    azure, excluded = "org.apache.hadoop:hadoop-azure:3.5.0", "software.amazon.awssdk:bundle"
    assert made("/data/lake", "s3://b/w", "/data/w") == {"spark.jars.packages": S3, "spark.jars.excludes": excluded}
    both = {"spark.jars.packages": f"{S3},{azure}", "spark.jars.excludes": excluded}
    assert made("s3://b/lake", AZURE, "s3://c/w") == both
    assert made("/data/lake", AZURE) == {"spark.jars.packages": azure}
    (spark / "hadoop-aws-3.5.0.jar").touch()
    assert made("s3://b/lake", AZURE) == {"spark.jars.packages": azure}


@pytest.mark.usefixtures("spark")
def test_what_somebody_has_spark_fetch_already_is_kept() -> None:
    builder = SparkSession.Builder().config("spark.jars.packages", "a:b:1").config("spark.jars.excludes", "c:d")
    made = configure(builder, root=AZURE, packages=True)._options
    assert made["spark.jars.packages"] == "a:b:1,org.apache.hadoop:hadoop-azure:3.5.0"
    assert made["spark.jars.excludes"] == "c:d"


@pytest.mark.usefixtures("spark")
def test_the_command_line_prints_them() -> None:
    made = read("conf", AZURE, "--packages")
    assert made["spark.jars.packages"] == "org.apache.hadoop:hadoop-azure:3.5.0"
