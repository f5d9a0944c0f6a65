"""The contract, typed into spark-sql: each connection is a driver of its own, with a host of its own.

Run by `make test-hosts`: every file starts a Spark for each of its connections, which takes half an hour for all.
What spark-sql does in every run is in `test_programs.py`.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.contract import Case, find
from tests.support.hosts import WHOLE
from tests.support.runner import Connection, run_case
from tests.support.sessions import CATALOG
from tests.support.spark_sql import SparkSqlConnection, as_printed

SQL = Path(__file__).parents[2] / "sql"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not WHOLE, reason="takes minutes: make test-hosts"),
]


APART = {"shared_transaction.test"}
"""Of sessions that are one driver's, which connections are not here."""


@pytest.mark.parametrize("case", [case for case in find(SQL) if case.id not in APART], ids=lambda case: case.id)
def test_the_contract_holds(case: Case, tmp_path: Path) -> None:
    root = tmp_path / CATALOG
    with ExitStack() as stack:

        def connect(name: str) -> Connection:
            connection = SparkSqlConnection(tmp_path / name, root)
            stack.callback(connection.close)
            return connection

        if wrong := run_case(case, connect, {"catalog": CATALOG, "root": str(root)}, as_printed):
            pytest.fail(wrong, pytrace=False)
