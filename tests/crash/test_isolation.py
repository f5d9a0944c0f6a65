"""The anomalies of `sql/isolation`, with the sessions of each file in two drivers: they share nothing but the lake."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.contract import Case, find
from tests.support.driver import Driver
from tests.support.placed import root_in
from tests.support.runner import run_case
from tests.support.sessions import CATALOG

# Slow: two Spark drivers are started, at the same time on two cores, and serve all files.
pytestmark = [pytest.mark.long, pytest.mark.slow]

SQL = Path(__file__).parents[2] / "sql"
EVERYTHING = os.environ.get("LOCKSTEP_TEST_ISOLATION") == "all"
SAMPLE = ("g2_item.test", "otv.test-SERIALIZABLE", "p4.test-SERIALIZABLE")
"""What is run without it, for `make test-isolation` sets it: the same files are run in one process, all and always."""


def cases() -> list[Case]:
    return [case for case in find(SQL / "isolation") if EVERYTHING or case.id in SAMPLE]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Driver, Driver]]:
    one, two = (root_in(tmp_path_factory.mktemp(name)) for name in ("one", "two"))
    with Driver(one) as first, Driver(two) as second:
        yield first, second


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.id)
def test_isolation_holds_between_processes(case: Case, pair: tuple[Driver, Driver], tmp_path: Path) -> None:
    """`con1` and `con3` are sessions of the one process, `con2` is of the other."""
    root = root_in(tmp_path)
    variables = {"catalog": CATALOG, "root": root}
    if wrong := run_case(case, lambda name: pair[name == "con2"].connect(root), variables):
        pytest.fail(wrong, pytrace=False)
