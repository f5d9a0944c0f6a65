"""What Spark reads, judged: programs of old faults, and random ones (`tests.judge`; `make soak-spark` runs more)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.judge import known, lake
from tests.judge.actor import Actor
from tests.judge.history import tell
from tests.judge.judging import judge
from tests.judge.program import Program, generate
from tests.judge.run import Connect, run
from tests.support.sampled import sampled
from tests.support.sessions import new_session

# Slow: each program makes some dozen statements, and the lakes to begin with are made before.
pytestmark = [pytest.mark.long, pytest.mark.slow]

SEEDS = (303,)
"""Random programs that are run each time; `make soak-spark` runs others."""


@pytest.fixture(scope="module")
def template(spark_session: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], lake.Template]:
    """Return a function that makes the lake of a layout, once."""
    folder = tmp_path_factory.mktemp("templates")

    @cache
    def made(layout: int) -> lake.Template:
        root = folder / str(layout)
        return lake.make(root, layout, new_session(spark_session, root).sql)

    return made


def wrong(program: Program, template: Callable[[int], lake.Template], root: Path, spark: Any) -> str:
    """Run a program in this process's Spark; return what is wrong and how it came to be, nothing if all is right."""

    def connect(number: int) -> Connect:
        return lambda root, zone, records: Actor(new_session(spark, root), zone, record_reads=records)

    history = run(program, template(program.layout), root, connect)
    found = judge(history)
    return "\n".join(map(str, found)) + f"\nseed {program.seed}\n{tell(history)}" if found else ""


@pytest.mark.parametrize("name", sampled(zip(known.TEXTS, known.TEXTS, strict=True), 3))
def test_what_once_was_wrong_is_right(
    name: str, template: Callable[[int], lake.Template], root: Path, spark_session: Any
) -> None:
    if found := wrong(known.program(name), template, root, spark_session):
        pytest.fail(found, pytrace=False)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_programs_read_what_their_level_promises(
    seed: int, template: Callable[[int], lake.Template], root: Path, spark_session: Any
) -> None:
    if found := wrong(generate(seed, length=24), template, root, spark_session):
        pytest.fail(found, pytrace=False)
