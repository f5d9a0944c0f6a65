"""A wheel is built, installed into an empty environment, and used there, by python and by spark-submit.

`make test` only builds it. `make test-wheel` takes that of `make wheel`, installs it into an empty environment, with
PySpark, and starts two Spark drivers there; and into another one, without PySpark and Java.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from lockstep._version import __version__
from lockstep.spark.jars import SUPPORTED
from tests.support.markdown import blocks

MADE = os.environ.get("LOCKSTEP_TEST_WHEEL", "")
"""A wheel that `make wheel` has built, with a jar for each Spark."""

pytestmark = pytest.mark.slow
installed = pytest.mark.skipif(not MADE, reason="make test-wheel installs the wheel of make wheel")

JOB = """
import sys
import lockstep
from pyspark.sql import SparkSession

assert "site-packages" in lockstep.__file__, lockstep.__file__
builder = SparkSession.builder.config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "1")
if len(sys.argv) > 2:
    builder = builder.master(sys.argv[2])
spark = lockstep.configure(builder, root=sys.argv[1], catalog="lake").getOrCreate()
with lockstep.transaction(spark, comment="from a wheel") as tx:
    spark.sql("CREATE TABLE lake.default.a AS SELECT 1 AS id")
    spark.sql("CREATE TABLE lake.default.b AS SELECT 2 AS id")
both = spark.sql("SELECT a.id + b.id FROM lake.default.a, lake.default.b").collect()[0][0]
print(f"version {tx.version}, sum {both}")
"""


def run(*command: str | Path, **environment: str) -> str:
    """Run a command to its end; its output is in the failure if it fails."""
    clean = {
        k: v
        for k, v in os.environ.items()
        if k not in ("PYTHONPATH", "SPARK_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
    }
    done = subprocess.run(
        [str(part) for part in command],
        env={**clean, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    """Build the wheel with what is installed here: that needs no network; or take the one of `make wheel`."""
    if MADE:
        return Path(MADE)
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, repository)
    [built] = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """Return the bin folder of a new virtual environment that holds the wheel and what it asks for, nothing else."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True)
    run(folder / "bin" / "python", "-m", "pip", "install", "--quiet", f"{wheel}[spark]")
    return folder / "bin"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    script = tmp_path / "job.py"
    script.write_text(JOB)
    return script


def test_the_wheel_holds_the_shim(wheel: Path) -> None:
    """One wheel, with the jar for the newest Spark in it at least, and nothing of the tests."""
    names = zipfile.ZipFile(wheel).namelist()
    jars = {name for name in names if name.endswith(".jar")}
    possible = {f"lockstep/jars/lockstep-spark_{minor}_2.13-{__version__}.jar" for minor in SUPPORTED}
    assert f"lockstep/jars/lockstep-spark_{max(SUPPORTED)}_2.13-{__version__}.jar" in jars <= possible
    assert jars == possible or not MADE
    assert "lockstep/py.typed" in names
    assert not [name for name in names if name.startswith("tests")]


@installed
def test_a_script_uses_the_wheel(environment: Path, job: Path, tmp_path: Path) -> None:
    """`pip install` and `lockstep.configure` are enough."""
    out = run(environment / "python", job, tmp_path / "lake", "local[1]", PYSPARK_PYTHON=str(environment / "python"))
    assert "version 1, sum 3" in out


@installed
def test_tables_are_written_where_there_is_neither_pyspark_nor_java(
    wheel: Path, repository: Path, tmp_path: Path
) -> None:
    """The first block of the guide, in an environment without what Spark needs; what takes Spark says so."""
    python = tmp_path / "environment" / "bin" / "python"
    venv.create(tmp_path / "environment", with_pip=True)
    run(python, "-m", "pip", "install", "--quiet", f"{wheel}[python]")
    brought = {package["name"] for package in json.loads(run(python, "-m", "pip", "list", "--format", "json"))}
    assert "lockstep-delta" in brought
    assert not brought & {"pyspark", "delta-spark", "py4j"}
    page = blocks((repository / "docs" / "python.md").read_text(encoding="utf-8"))
    first = next(block for block in page if block.language == "python")
    (tmp_path / "job.py").write_text(f"import os\n\nos.chdir({str(tmp_path)!r})\n{first.text}")
    out = run(python, tmp_path / "job.py", PATH="/nowhere", JAVA_HOME="")
    assert "both tables changed in database version 2" in out
    with pytest.raises(
        AssertionError, match=r"lockstep\.configure takes pyspark.*pip install 'lockstep-delta\[spark\]'"
    ):
        run(python, "-c", "import lockstep; lockstep.configure")


@installed
def test_spark_submit_uses_the_wheel(environment: Path, repository: Path, tmp_path: Path) -> None:
    """The job and the command line of the documentation: under spark-submit the jars are given to it."""
    page = blocks((repository / "docs" / "scripts.md").read_text(encoding="utf-8"))
    [script] = [block.text for block in page if block.text.startswith("# job.py")]
    [line] = [block.text for block in page if block.text.startswith("spark-submit")]
    (tmp_path / "job.py").write_text(script)
    search = f"{environment}{os.pathsep}{os.environ['PATH']}"
    out = run("bash", "-c", f"cd {tmp_path} && {line}", PATH=search, PYSPARK_PYTHON=str(environment / "python"))
    assert "database version 1" in out


@installed
def test_spark_submit_without_jars_says_what_to_do(environment: Path, job: Path, tmp_path: Path) -> None:
    """A driver whose class path has no shim is told the line to paste, before anything is written."""
    with pytest.raises(AssertionError, match=r"spark-submit --jars .*lockstep-spark_4\.2"):
        run(
            environment / "spark-submit",
            *("--master", "local[1]", job, tmp_path / "lake"),
            PYSPARK_PYTHON=str(environment / "python"),
        )
    assert not (tmp_path / "lake").exists()
