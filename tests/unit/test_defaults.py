"""Whether Spark's own defaults configure Lockstep: what is refused before Spark starts, and what is let through."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lockstep.errors import InvalidError
from lockstep.spark.bridge import EXTENSION
from lockstep.spark.defaults import is_of_connect, require_lockstep

LINE = f"spark.sql.extensions io.delta.sql.DeltaSparkSessionExtension,{EXTENSION}\n"


@pytest.fixture(autouse=True)
def spark_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a Spark that has not started, with an empty folder of settings, and nothing in the environment."""
    # Another test's Spark may run in this process, and what a running Spark has been told is not asked again.
    monkeypatch.setattr(SparkSession, "getActiveSession", classmethod(lambda _: None))
    for name in [name for name in os.environ if "SPARK" in name or name.endswith("_OPTIONS")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    tmp_path.joinpath("conf").mkdir()
    return tmp_path


@pytest.fixture
def defaults(spark_home: Path) -> Path:
    return spark_home / "conf" / "spark-defaults.conf"


@pytest.mark.parametrize("content", [None, "", "spark.master local\n", f"# {LINE}"])
def test_a_spark_without_lockstep_is_refused(content: str | None, defaults: Path) -> None:
    if content is not None:
        defaults.write_text(content)
    with pytest.raises(InvalidError, match=f"which lake.*--root, or put what `lockstep conf ROOT` .* into {defaults}"):
        require_lockstep({"spark.master": "local"})


def test_a_spark_whose_defaults_name_lockstep_starts(
    defaults: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    defaults.write_text(f"spark.master local\n  {LINE}")
    require_lockstep({})
    (tmp_path / "other").mkdir()
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "other"))
    with pytest.raises(InvalidError, match=r"other/spark-defaults\.conf"):
        require_lockstep({})


def test_settings_of_the_command_line_configure_too() -> None:
    require_lockstep({"spark.sql.extensions": EXTENSION})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PYSPARK_SUBMIT_ARGS", f"--conf spark.sql.extensions={EXTENSION} pyspark-shell"),
        ("PYSPARK_SUBMIT_ARGS", "--properties-file job.conf pyspark-shell"),
        ("JDK_JAVA_OPTIONS", f"-Dspark.sql.extensions={EXTENSION}"),
        ("PYSPARK_GATEWAY_PORT", "1"),
        ("SPARK_REMOTE", "sc://host"),
    ],
)
def test_what_cannot_be_known_here_is_not_refused(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    require_lockstep({})


def test_a_client_of_spark_connect_is_not_asked() -> None:
    require_lockstep({"spark.remote": "sc://host"})


def test_settings_that_cannot_be_read_are_not_judged(defaults: Path) -> None:
    defaults.mkdir()
    require_lockstep({})


@pytest.mark.parametrize(
    ("settings", "variables", "expected"),
    [
        ({}, {}, False),
        ({"spark.master": "local"}, {"PYSPARK_GATEWAY_PORT": "1"}, False),
        ({"spark.api.mode": "Classic"}, {}, False),
        ({"spark.api.mode": "connect"}, {}, True),
        ({}, {"SPARK_API_MODE": "connect"}, True),
        ({"spark.remote": "sc://localhost"}, {}, True),
        ({}, {"SPARK_REMOTE": "sc://localhost"}, True),
        ({}, {"SPARK_REMOTE": ""}, True),
        ({}, {"SPARK_CONNECT_MODE_ENABLED": "1"}, True),
        ({}, {"SPARK_CONNECT_MODE": "1"}, True),
        ({"spark.api.mode": "classic"}, {"SPARK_CONNECT_MODE": "1"}, False),
    ],
)
def test_a_client_of_connect_is_told_from_what_starts_a_jvm(
    settings: dict[str, str], variables: dict[str, str], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "PYSPARK_GATEWAY_PORT",
        "SPARK_API_MODE",
        "SPARK_REMOTE",
        "SPARK_CONNECT_MODE",
        "SPARK_CONNECT_MODE_ENABLED",
    ):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert is_of_connect(settings) == expected
