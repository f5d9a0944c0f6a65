"""The demo would say so if something were not as it should be; `.ci/run` runs it, which takes a minute."""

from __future__ import annotations

import importlib.util
import io
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from rich.console import Console

DEMO = Path(__file__).parents[2] / "sql" / "demo"


@pytest.fixture(scope="module")
def demo() -> ModuleType:
    """Return `run.py` as a module; it is a program, and no part of a package."""
    spec = importlib.util.spec_from_file_location("lockstep_demo", DEMO / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=100)


def printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_wrong_result_fails_the_demo(demo: ModuleType, console: Console) -> None:
    checks = demo.Checks(console)
    checks.equal("one", 1, 1)
    checks.equal("rows [of a]", {"a": 1}, {"a": 2}, shown="as expected")
    checks.equal("three", 3, 3)
    assert checks.verdict() == 1
    assert "✗ rows [of a]: expected {'a': 1}, got {'a': 2}" in printed(console)
    assert "as expected" not in printed(console)
    assert "✗ 1 of 3 checks failed" in printed(console)


def test_right_results_pass(demo: ModuleType, console: Console) -> None:
    checks = demo.Checks(console)
    checks.equal("one", 1, 1)
    checks.equal("rows", {"a": 1}, {"a": 1}, shown="1 in 1 table")
    assert checks.verdict() == 0
    assert "✓ rows: 1 in 1 table" in printed(console)
    assert "✓ all 2 checks passed" in printed(console)


def test_checking_nothing_is_no_success(demo: ModuleType, console: Console) -> None:
    assert demo.Checks(console).verdict() == 1


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    ran = subprocess.run(
        [sys.executable, DEMO / "run.py", "--root", tmp_path], capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 2
    assert "is not empty" in ran.stderr
    assert list(tmp_path.iterdir()) == [tmp_path / "mine"]


def test_a_setting_without_a_value_is_refused(tmp_path: Path) -> None:
    command = [sys.executable, str(DEMO / "run.py"), "--root", str(tmp_path), "--conf", "spark.jars"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 2
    assert "--conf: expected KEY=VALUE, got spark.jars" in ran.stderr
    assert not list(tmp_path.iterdir())
