"""What is installed: a lock of all that pyproject.toml asks for, metadata as indexes take it, jars in each wheel."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from trove_classifiers import classifiers

from lockstep.spark.jars import SUPPORTED
from project.hatch_build import ShimJarHook

REPOSITORY = Path(__file__).parents[2]
LOCK = (REPOSITORY / "requirements.lock").read_text(encoding="utf-8")
PROJECT: dict[str, Any] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PYTHONS = ("3.11", "3.12", "3.13")


def locked(python: str) -> dict[str, str]:
    """Return the version of each package that the lock has for a Python on Linux."""
    environment = {"python_full_version": f"{python}.0", "python_version": python, "sys_platform": "linux"}
    lines = re.findall(r"^([A-Za-z0-9].*?) \\$", LOCK, re.MULTILINE)
    found = [Requirement(line) for line in lines]
    wanted = [each for each in found if each.marker is None or each.marker.evaluate(environment)]
    names = [canonicalize_name(each.name) for each in wanted]
    assert sorted(set(names)) == sorted(names), "a package with two versions"
    return {name: str(each.specifier).removeprefix("==") for name, each in zip(names, wanted, strict=True)}


def asked_for(extras: frozenset[str]) -> list[Requirement]:
    """Return what Lockstep requires, with extras, and theirs that are its own."""
    optional = PROJECT["optional-dependencies"]
    found = [
        Requirement(text) for text in (*PROJECT["dependencies"], *(t for extra in extras for t in optional[extra]))
    ]
    own = {extra for each in found if each.name == PROJECT["name"] for extra in each.extras} - extras
    return asked_for(extras | own) if own else [each for each in found if each.name != PROJECT["name"]]


@pytest.mark.parametrize("python", PYTHONS)
def test_the_lock_has_what_the_project_asks_for(python: str) -> None:
    has = locked(python)
    for each in asked_for(frozenset({"dev"})):
        version = has.get(canonicalize_name(each.name))
        assert version is not None, f"{each.name} is not in requirements.lock: run `make lock`"
        assert version in each.specifier, f"requirements.lock has {each.name} {version}, not {each}: run `make lock`"


def test_every_package_of_the_lock_has_its_digests() -> None:
    packages = re.split(r"^(?=[A-Za-z0-9])", LOCK, flags=re.MULTILINE)[1:]
    assert len(packages) > len(asked_for(frozenset({"dev"})))
    for package in packages:
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", package), package.partition("\n")[0]


def test_the_lock_names_no_place_to_fetch_from() -> None:
    assert "://" not in LOCK
    assert "--index" not in LOCK
    assert "--find-links" not in LOCK


def test_the_newest_spark_of_the_makefile_is_the_one_that_is_locked() -> None:
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    pins = dict(re.findall(r"^PYSPARK_(\S+) := (\S+)$", makefile, re.MULTILINE))
    assert locked("3.11")["pyspark"] == pins[max(pins)]


def test_classifiers_are_those_that_there_are() -> None:
    assert set(PROJECT["classifiers"]) <= classifiers
    for python in PYTHONS:
        assert f"Programming Language :: Python :: {python}" in PROJECT["classifiers"]


# --- the jars of a wheel ----------------------------------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Make a source tree with a jar for each Spark, newer than the source."""
    source = tmp_path / "jvm-shim" / "src" / "Shim.scala"
    source.parent.mkdir(parents=True)
    source.touch()
    for minor in SUPPORTED:
        jar_in(tmp_path, minor).parent.mkdir(parents=True, exist_ok=True)
        jar_in(tmp_path, minor).touch()
    return tmp_path


def jar_in(tree: Path, minor: str) -> Path:
    return tree / "python" / "lockstep" / "jars" / f"lockstep-spark_{minor}_2.13-9.8.7.jar"


def build(tree: Path) -> tuple[list[str], list[str]]:
    """Let the hook prepare a wheel; return the jars in it, and what it warned of."""
    warned = list[str]()
    asked = PROJECT["optional-dependencies"]["spark"]
    extra = [str(Requirement(text)) for text in asked]  # bounds in hatchling's order
    metadata: Any = SimpleNamespace(version="9.8.7", core=SimpleNamespace(optional_dependencies={"spark": extra}))
    app: Any = SimpleNamespace(display_warning=warned.append)
    config: Any = None
    hook = ShimJarHook(str(tree), {}, config, metadata, str(tree / "dist"), "wheel", app)
    data: dict[str, Any] = {}
    hook.initialize("standard", data)
    return sorted(data["force_include"].values()), warned


def test_a_wheel_has_the_jar_of_each_supported_spark(tree: Path) -> None:
    jars = [f"lockstep/jars/{jar_in(tree, minor).name}" for minor in sorted(SUPPORTED)]
    assert build(tree) == (jars, [])


def test_a_wheel_without_some_jars_says_which_and_how_to_get_them(tree: Path) -> None:
    first, second, *others = sorted(SUPPORTED)
    jar_in(tree, first).unlink()
    os.utime(jar_in(tree, second), (0, 0))  # older than the sources
    jars, [warning] = build(tree)
    assert jars == [f"lockstep/jars/{jar_in(tree, minor).name}" for minor in others]
    assert f"no jar for Spark {first} and {second}, and works with Spark {' and '.join(others)} alone" in warning
    for command in ("`make wheel`", f"`make jar SPARK={first}`", f"`make jar SPARK={second}`"):
        assert command in warning


def test_a_jar_of_another_version_stays_out(tree: Path) -> None:
    (tree / "python/lockstep/jars/lockstep-spark_4.2_2.13-9.8.6.jar").touch()
    assert len(build(tree)[0]) == len(SUPPORTED)
