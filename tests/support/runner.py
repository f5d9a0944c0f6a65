"""Runs a contract's records on sessions, wherever these are: in this process, or in drivers of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tests.support.contract import Case, ContractError, Record, difference, parse, substitute


@dataclass(frozen=True, slots=True)
class Result:
    """What a statement returned."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]


@dataclass(frozen=True, slots=True)
class Failure:
    """How a statement failed; a SQLSTATE of None is Spark's own for an error that has none."""

    sqlstate: str | None
    message: str


class Connection(Protocol):
    """A session of some Spark."""

    def run(self, sql: str) -> Result | Failure:
        """Run one statement to its end."""


Connect = Callable[[str], Connection]
"""Opens the session for a connection's name: `con1`, `con2`, …"""


def run_case(
    case: Case, connect: Connect, variables: dict[str, str], adapt: Callable[[Record], Record] = lambda record: record
) -> str:
    """Run a file until a record does not hold; return where and what is wrong, nothing if all is as it says.

    `adapt` says of a record what of it the connections can show.
    """
    runner = Runner(connect, variables | ({"level": case.level} if case.level else {}))
    for record in parse(case.path.read_text(encoding="utf-8")).records:
        try:
            wrong = runner.run(adapt(record))
        except ContractError as error:
            wrong = str(error)
        if wrong:
            return f"{case.path}:{record.line} [{record.connection}]\n{record.sql}\n\n{wrong}"
    return ""


class Runner:
    """Runs records one after the other, each on its connection: a session, opened when first named."""

    def __init__(self, connect: Connect, variables: dict[str, str]) -> None:
        self._connect = connect
        self._variables = variables
        self._connections: dict[str, Connection] = {}

    def run(self, record: Record) -> str:
        """Run a record; return what is wrong, nothing if all is as it says.

        Raises:
            ContractError: it uses a variable that has no value.
        """
        if record.connection not in self._connections:
            self._connections[record.connection] = self._connect(record.connection)
        found = self._connections[record.connection].run(substitute(record.sql, self._variables))
        if record.kind == "error":
            return self._wrong_error(record, found)
        if isinstance(found, Failure):
            return f"failed with SQLSTATE {found.sqlstate}:\n{_short(found.message)}"
        if record.kind == "let":
            if len(found.rows) != 1 or len(found.rows[0]) != 1:
                return f"expected one value, found {found.rows}"
            self._variables[record.name] = str(found.rows[0][0])
        return difference(record, found.columns, found.rows) if record.kind == "query" else ""

    def _wrong_error(self, record: Record, found: Result | Failure) -> str:
        expected = " or ".join(record.sqlstates)
        if isinstance(found, Result):
            return f"expected SQLSTATE {expected}, found no error but {found.rows}"
        missing = [text for text in record.expected if substitute(text, self._variables) not in found.message]
        if found.sqlstate in record.sqlstates and not missing:
            return ""
        return f"expected SQLSTATE {expected} {missing or ''}, found {found.sqlstate}:\n{_short(found.message)}"


def _short(message: str) -> str:
    """Return an error's text without the JVM's stack, but for what caused it."""
    return "\n".join(line for line in message.splitlines() if not line.startswith("\tat "))
