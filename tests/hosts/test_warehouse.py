"""docs/migration.md, step by step, beside a Spark without Lockstep that goes on writing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.warehouse import disagreeing
from tests.beside.judging import Said

DONE = Said(["t"], answer="done")
OPEN = Said(["t"])
REFUSED = Said(["t"], answer="refused")
TAKER = Said(["t"], takes_back="x", adds=False, answer="done")


# Deep: a metastore and two Sparks, over a minute; each step alone is in tests/spark/test_docs.py.
@pytest.mark.slow
@pytest.mark.deep
def test_a_warehouse_is_adopted_and_given_back_while_plain_spark_goes_on_writing(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "tests.bench.warehouse",
        "--tables",
        "4",
        "--files",
        "30",
        "--folder",
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert "`release(namespace => …)`" in done.stdout


@pytest.mark.parametrize(
    ("before", "after", "rows", "agrees"),
    [
        (DONE, {}, [["x", None]], True),
        (DONE, {}, [], False),  # lost
        (DONE, {}, [["x", None], ["x", None]], False),  # there twice
        (DONE, {}, [["x", "y"]], False),  # in the place of another
        (OPEN, {}, [], True),
        (OPEN, {}, [["x", None]], True),
        (REFUSED, {}, [["x", None]], False),
        (DONE, {}, [["x", None], ["z", None]], False),  # one that nobody wrote
        (DONE, {"y": TAKER}, [], True),  # taken back meanwhile
        (DONE, {"y": TAKER}, [["x", None]], True),
    ],
)
def test_what_is_read_agrees_with_what_was_said(
    before: Said, after: dict[str, Said], rows: list[list[str | None]], agrees: bool
) -> None:
    wrong = disagreeing({"x": before}, {"x": before, **after}, {"t": rows})
    assert (not wrong) == agrees


def test_a_row_that_was_taken_back_before_is_not_there() -> None:
    said = {"x": DONE, "y": TAKER}
    assert not disagreeing(said, said, {"t": []})
    assert disagreeing(said, said, {"t": [["x", None]]})
