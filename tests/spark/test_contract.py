"""The contract: every `.test` file under `sql/`, run as it stands. `tests/README.md` describes the format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.contract import Case, find
from tests.support.runner import run_case
from tests.support.sessions import CATALOG, SparkConnection
from tests.support.sparks import is_before

SQL = Path(__file__).parents[2] / "sql"


@pytest.mark.parametrize("case", find(SQL), ids=lambda case: case.id)
def test_contract(case: Case, connect: Callable[[], Any], root: Path | str) -> None:
    if case.since and is_before(case.since):
        pytest.skip(f"about what Spark has since {case.since}")
    variables = {"catalog": CATALOG, "root": str(root).replace("s3://", "s3a://", 1)}  # as Spark itself calls it
    if wrong := run_case(case, lambda name: SparkConnection(connect()), variables):
        pytest.fail(wrong, pytrace=False)
