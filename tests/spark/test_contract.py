"""The contract: every `.test` file under `sql/`, run as it stands. `tests/README.md` describes the format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from tests.support.contract import ContractError, Record, difference, find, parse, substitute
from tests.support.sessions import CATALOG

FAILURES = (PySparkException, Py4JJavaError)
"""How statements fail: PySpark leaves some of Spark's exceptions, of jobs for one, to Py4J."""

SQL = Path(__file__).parents[2] / "sql"


@pytest.mark.parametrize("path", find(SQL), ids=lambda path: str(path.relative_to(SQL)))
def test_contract(path: Path, connect: Callable[[], Any], root: Path) -> None:
    runner = Runner(connect, {"catalog": CATALOG, "root": str(root)})
    for record in parse(path.read_text(encoding="utf-8")).records:
        try:
            wrong = runner.run(record)
        except (*FAILURES, ContractError) as error:
            wrong = f"{type(error).__name__}: {_short(error)}"
        if wrong:
            pytest.fail(f"{path}:{record.line} [{record.connection}]\n{record.sql}\n\n{wrong}", pytrace=False)


class Runner:
    """Runs records one after the other, each on its connection: a session, opened when first named."""

    def __init__(self, connect: Callable[[], Any], variables: dict[str, str]) -> None:
        self._connect = connect
        self._variables = variables
        self._sessions: dict[str, Any] = {}

    def run(self, record: Record) -> str:
        """Run a record; return what is wrong, nothing if all is as it says."""
        if record.connection not in self._sessions:
            self._sessions[record.connection] = self._connect()
        session = self._sessions[record.connection]
        sql = substitute(record.sql, self._variables)
        if record.kind == "error":
            return self._wrong_error(session, sql, record)
        result = session.sql(sql)
        rows = [tuple(row) for row in result.collect()]
        if record.kind == "let":
            ((value,),) = rows
            self._variables[record.name] = str(value)
        return difference(record, result.columns, rows) if record.kind == "query" else ""

    def _wrong_error(self, session: Any, sql: str, record: Record) -> str:
        try:
            rows = session.sql(sql).collect()
        except FAILURES as error:
            state = error.getSqlState() if isinstance(error, PySparkException) else error.java_exception.getSqlState()
            missing = [text for text in record.expected if substitute(text, self._variables) not in str(error)]
            if state == record.sqlstate and not missing:
                return ""
            return f"expected SQLSTATE {record.sqlstate} {missing or ''}, found {state}:\n{_short(error)}"
        return f"expected SQLSTATE {record.sqlstate}, found no error but {rows}"


def _short(error: Exception) -> str:
    """Return an error's text without the JVM's stack, but for what caused it."""
    return "\n".join(line for line in str(error).splitlines() if not line.startswith("\tat "))
