"""Where Delta has not what the driver's states are made with, its own snapshots are used, and one warning says so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.other_delta import renamed

pytestmark = pytest.mark.long

WARNING = "is not as the one that Lockstep was made for"
FOUND = [[0, 1, 2, 3, 4], [0, 1, 3, 4], [0, 1, 3, 4], [1, 3, 4, 7]]


@pytest.mark.deep  # a Spark of its own, for a Delta that nobody has yet
@pytest.mark.slow  # each is a Spark of its own
@pytest.mark.parametrize(
    ("name", "expected", "warnings"),
    [
        pytest.param("", "LocalSnapshot", 0, id="Delta as it is"),
        pytest.param("installSnapshot", "Snapshot", 1, id="what is called by reflection is missing"),
        pytest.param("extractComputedState", "Snapshot", 1, id="what is overridden is missing", marks=pytest.mark.deep),
        pytest.param("InMemoryLogReplay", "Snapshot", 1, id="a class is missing", marks=pytest.mark.deep),
    ],
)
def test_a_delta_of_another_shape_is_used_as_it_is(
    name: str, expected: str, warnings: int, tmp_path: Path, repository: Path
) -> None:
    environment = dict(os.environ)
    if name:
        environment["LOCKSTEP_JARS"] = str(renamed(tmp_path / "jars", name))
    command = [sys.executable, "-m", "tests.support.other_delta", str(tmp_path / "lake")]
    done = subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert [each["rows"] for each in found] == FOUND
    assert {each["snapshot"] for each in found} == {expected}
    assert done.stderr.count(WARNING) == warnings, done.stderr
