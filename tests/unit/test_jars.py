"""Which jars a session needs, and how Delta's come to this machine.

Ivy is played by a shell script that `JAVA_HOME` points to; one slow test asks the real one.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import tomllib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lockstep._version import __version__
from lockstep.errors import UnavailableError, UnsupportedError
from lockstep.spark import jars

ROOT = Path(__file__).parents[2]
CONTENT = b"a whole jar"
DELTA = (
    jars.Artifact("org.example", "delta-spark_4.2_2.13", "1.0", hashlib.sha256(CONTENT).hexdigest()),
    jars.Artifact("org.example", "delta-storage", "1.0", hashlib.sha256(CONTENT).hexdigest()),
)
NAMES = [artifact.file_name for artifact in DELTA]


@pytest.fixture(autouse=True)
def spark_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a Spark of the supported minor, without Delta, and keep this user's folders out of the test."""
    folder = tmp_path / "spark" / "jars"
    folder.mkdir(parents=True)
    folder.joinpath("ivy-2.5.3.jar").touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("LOCKSTEP_JARS", raising=False)
    monkeypatch.setattr("pyspark.__version__", "4.2.0")
    monkeypatch.setattr(jars, "SUPPORTED", {"4.2": jars.SparkSupport(scala="2.13", delta=DELTA)})
    return folder


@pytest.fixture
def ivy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let these shell commands be what Java does; `out` is the folder where Ivy puts what it fetched."""

    def play(commands: str) -> None:
        java = tmp_path / "java" / "bin" / "java"
        java.parent.mkdir(parents=True, exist_ok=True)
        java.write_text(f"#!/bin/sh\nmkdir out\n{commands}\n")
        java.chmod(0o755)
        monkeypatch.setenv("JAVA_HOME", str(java.parents[1]))

    return play


@pytest.fixture
def no_ivy(ivy: Callable[[str], None]) -> None:
    """Fail if anything is fetched."""
    ivy("echo this test fetches nothing; exit 1")


ARRIVE = "\n".join(f"printf '{CONTENT.decode()}' > out/{name}" for name in NAMES)


def fill(folder: Path, content: bytes = CONTENT) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / name for name in NAMES]
    for path in paths:
        path.write_bytes(content)
    return paths


# Where Delta is looked for


@pytest.mark.usefixtures("no_ivy")
def test_the_folder_given_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark_folder: Path) -> None:
    given = fill(tmp_path / "given")
    fill(tmp_path / "environment")
    fill(spark_folder)
    monkeypatch.setenv("LOCKSTEP_JARS", str(tmp_path / "environment"))
    assert jars.delta_jars(tmp_path / "given") == given


@pytest.mark.usefixtures("no_ivy")
def test_the_environment_comes_before_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark_folder: Path
) -> None:
    environment = fill(tmp_path / "environment")
    fill(spark_folder)
    monkeypatch.setenv("LOCKSTEP_JARS", str(tmp_path / "environment"))
    assert jars.delta_jars() == environment


@pytest.mark.usefixtures("no_ivy")
def test_a_folder_with_half_of_them_is_passed_over(tmp_path: Path) -> None:
    whole = fill(tmp_path / "cache" / "lockstep" / "jars")
    fill(tmp_path / "half")[1].unlink()
    assert jars.delta_jars(tmp_path / "half") == whole


@pytest.mark.usefixtures("no_ivy")
def test_a_folder_of_ones_own_may_hold_a_rebuilt_delta(tmp_path: Path) -> None:
    own = fill(tmp_path / "own", b"patched")
    assert jars.delta_jars(tmp_path / "own") == own


@pytest.mark.usefixtures("no_ivy")
def test_a_spark_that_has_delta_gets_none(spark_folder: Path) -> None:
    spark_folder.joinpath("delta-spark_2.13-4.4.1.jar").touch()
    assert jars.delta_jars() == []


@pytest.mark.usefixtures("no_ivy")
def test_the_cache_is_used_without_asking_anybody(tmp_path: Path) -> None:
    whole = fill(tmp_path / "cache" / "lockstep" / "jars")
    assert jars.delta_jars() == whole


def test_pips_spark_is_taken_where_no_other_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME")
    assert list(jars.spark_jars_folder().glob("spark-sql_2.13-*.jar"))


# Fetching


def test_what_is_missing_is_fetched_into_the_cache(tmp_path: Path, ivy: Callable[[str], None]) -> None:
    ivy(ARRIVE)
    folder = tmp_path / "cache" / "lockstep" / "jars"
    assert jars.delta_jars() == [folder / name for name in NAMES]
    assert sorted(path.name for path in folder.iterdir()) == sorted(NAMES), "nothing else stays behind"


def test_only_the_damaged_one_is_fetched_again(tmp_path: Path, ivy: Callable[[str], None]) -> None:
    whole, damaged = fill(tmp_path / "cache" / "lockstep" / "jars")
    damaged.write_bytes(CONTENT[:-1])
    ivy(f"grep -q '{DELTA[0].module}' ivy.xml && exit 1\n{ARRIVE}")
    assert jars.delta_jars() == [whole, damaged]
    assert damaged.read_bytes() == CONTENT


def test_ivy_is_asked_for_these_artifacts_alone_and_keeps_to_its_own_folder(
    tmp_path: Path, ivy: Callable[[str], None]
) -> None:
    ivy(f'pwd > {tmp_path}/pwd; echo "$@" > {tmp_path}/arguments; cp ivy.xml {tmp_path}\n{ARRIVE}')
    jars.delta_jars()
    scratch = (tmp_path / "pwd").read_text().strip()
    arguments = (tmp_path / "arguments").read_text()
    assert f"-Divy.default.ivy.user.dir={scratch} " in arguments
    assert f"-cache {scratch}/cache " in arguments
    assert (tmp_path / "ivy.xml").read_text().count('conf="default->master"') == len(DELTA)


def test_wrong_content_is_refused_and_not_kept(tmp_path: Path, ivy: Callable[[str], None]) -> None:
    ivy(ARRIVE.replace(CONTENT.decode(), "something else"))
    with pytest.raises(UnavailableError, match="wrong content"):
        jars.delta_jars()
    assert list((tmp_path / "cache" / "lockstep" / "jars").iterdir()) == []


def test_a_failed_fetch_says_why_and_where_to_put_the_files(tmp_path: Path, ivy: Callable[[str], None]) -> None:
    ivy("echo ':::: ERRORS'; echo '  Server access error at url x (java.net.ConnectException: no)'; exit 1")
    with pytest.raises(UnavailableError) as caught:
        jars.delta_jars()
    said = caught.value.message
    assert caught.value.retryable
    assert "(Server access error at url x (java.net.ConnectException: no))" in said
    for part in (*map(str, DELTA), *NAMES, str(tmp_path / "cache" / "lockstep" / "jars"), "LOCKSTEP_JARS"):
        assert part in said


def test_an_artifact_that_is_not_published_is_named(ivy: Callable[[str], None]) -> None:
    ivy("echo '\t\t:: org.example#delta-storage;1.0: not found'; exit 1")
    with pytest.raises(UnavailableError, match=re.escape("(org.example#delta-storage;1.0: not found)")):
        jars.delta_jars()


def test_an_endless_fetch_is_given_up(ivy: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "FETCH_TIMEOUT_SECONDS", 0.1)
    ivy("exec sleep 60")
    with pytest.raises(UnavailableError, match=re.escape("no answer within 0.1 seconds")):
        jars.delta_jars()


def test_a_folder_that_cannot_be_written_is_an_error_of_ours(tmp_path: Path, ivy: Callable[[str], None]) -> None:
    ivy(ARRIVE)
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(UnavailableError, match="LOCKSTEP_JARS"):
        jars.delta_jars()


def test_no_java_is_an_error_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnavailableError, match="no java on the PATH"):
        jars.delta_jars()


def test_a_java_home_without_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(UnavailableError, match=re.escape(f"no java in JAVA_HOME ({tmp_path})")):
        jars.java()


def test_a_spark_without_ivy_is_an_error_of_ours(spark_folder: Path) -> None:
    spark_folder.joinpath("ivy-2.5.3.jar").unlink()
    with pytest.raises(UnavailableError, match="no ivy"):
        jars.delta_jars()


def test_eight_at_once_all_find_whole_files(ivy: Callable[[str], None]) -> None:
    ivy(ARRIVE)
    with ThreadPoolExecutor(8) as pool:
        for found in pool.map(lambda _: jars.delta_jars(), range(8)):
            assert [path.read_bytes() for path in found] == [CONTENT, CONTENT]


# Deep: whoever starts a Spark of the tests has fetched its own from there, and a network may be gone for a moment.
@pytest.mark.slow
@pytest.mark.deep
def test_the_real_registry_has_what_is_pinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.delenv("SPARK_HOME", raising=False)
    for support in jars.SUPPORTED.values():
        found = jars.cached_files(support.delta, tmp_path / "fetched", jars.ivy_jar(jars.spark_jars_folder()))
        assert all(path.is_file() for path in found)


# The shim


def test_the_shim_is_chosen_by_the_minor_version_of_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "__file__", str(tmp_path / "lockstep" / "spark" / "jars.py"))
    shim = tmp_path / "lockstep" / "jars" / f"lockstep-spark_4.2_2.13-{__version__}.jar"
    shim.parent.mkdir(parents=True)
    shim.touch()
    assert jars.shim_jar() == shim
    delta = fill(tmp_path / "given")
    assert jars.session_jars(tmp_path / "given") == [shim, *delta]


def test_a_missing_shim_says_how_to_build_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "__file__", str(tmp_path / "lockstep" / "spark" / "jars.py"))
    with pytest.raises(UnsupportedError, match=r"`make jar SPARK=4\.2`"):
        jars.shim_jar()


@pytest.mark.parametrize("version", ["4.3.0", "4.20.0", "3.5.1", "5.0.0.dev0"])
def test_another_spark_is_refused_by_name(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.__version__", version)
    with pytest.raises(UnsupportedError, match=re.escape(f"pyspark is {version}")) as refused:
        jars.session_jars()
    assert "Spark 4.2 with delta-spark_4.2_2.13 1.0 and delta-storage 1.0\n" in refused.value.message


# The pins


def test_the_pins_of_the_package_and_of_the_jars_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = project["optional-dependencies"]["spark"]
    [bounds] = [found for found in asked if found.startswith("pyspark")]
    lowest, highest = re.findall(r"\d+\.\d+(?=\.\d+)", bounds)
    assert (lowest, highest) == (min(jars.SUPPORTED), max(jars.SUPPORTED))
    for minor, support in jars.SUPPORTED.items():
        assert support.delta[0].module == f"delta-spark_{minor}_{support.scala}"
        assert f"delta-spark=={support.delta[0].revision}" in asked


def test_each_spark_can_be_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.findall(r"^PYSPARK_(\S+) := \1\.\d+$", makefile, re.MULTILINE) == sorted(jars.SUPPORTED)
    assert f"SPARKS := {' '.join(sorted(jars.SUPPORTED))}\n" in makefile


def test_the_refusal_of_a_wrong_combination_names_each_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    check = (ROOT / "jvm-shim/src/main/scala/lockstep/spark/Versions.scala").read_text(encoding="utf-8")
    *others, newest = sorted(jars.SUPPORTED)
    said = re.sub(r'" \+\s+s"', "", check)
    assert f"each Spark {', '.join(others)} and {newest}:" in said


def test_the_build_and_the_package_look_for_the_same_jar() -> None:
    told = subprocess.run(
        ["make", "--print-data-base", "--question", "help"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout
    (built,) = re.findall(r"^JAR := (.*)$", told, re.MULTILINE)
    assert built == f"python/lockstep/jars/lockstep-spark_4.2_2.13-{__version__}.jar"
