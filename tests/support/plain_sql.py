"""Plain Delta in a process of its own: SQL to run, and tables to look at by their paths.

python -m tests.support.plain_sql SETTINGS

request                            answer
{"sql": ["CREATE TABLE …", …]}     {"run": 1}
{"look": "/path/of/a/table"}       {"version": 4, "checkpoint": 3, "ids": [1, 2]}
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.support.child import Child, Parent
from tests.support.plain import check_plain, plain_settings, plain_spark
from tests.support.sessions import INTERPRETED, SMALL


class PlainSql:
    """That process, as the tests see it; the tables that it makes are folders of `tables`."""

    def __init__(self, folder: Path) -> None:
        settings = {**SMALL, **INTERPRETED, **plain_settings(folder), "spark.master": "local[2]"}
        self._process = Child("tests.support.plain_sql", json.dumps(settings))
        self.tables = folder / "warehouse"

    def sql(self, *statements: str) -> None:
        self._process.ask({"sql": statements})

    def look(self, folder: Path) -> dict[str, Any]:
        """Return a table's version, that of the checkpoint that Delta reads it from, -1 for none, and its ids."""
        found: dict[str, Any] = self._process.ask({"look": str(folder)})
        return found

    def close(self) -> None:
        self._process.close()


# --- inside the process -----------------------------------------------------------------------------------------------


def _run(session: Any, statements: list[str]) -> dict[str, Any]:
    for statement in statements:
        session.sql(statement)
    return {"run": len(statements)}


def _look(session: Any, path: str) -> dict[str, Any]:
    logs = session._jvm.org.apache.spark.sql.delta.DeltaLog
    logs.clearCache()  # as whoever comes to the table anew
    snapshot = logs.forTable(session._jsparkSession, path).unsafeVolatileSnapshot()
    ids = sorted(row.id for row in session.read.format("delta").load(path).select("id").collect())
    return {"version": snapshot.version(), "checkpoint": snapshot.checkpointProvider().version(), "ids": ids}


REQUESTS: Mapping[str, Callable[[Any, Any], dict[str, Any]]] = {"sql": _run, "look": _look}


def main(settings: str) -> None:
    """Answer until the input ends."""
    parent = Parent()
    session = plain_spark(json.loads(settings))
    for request in parent.requests():
        [(what, argument)] = request.items()
        answer = REQUESTS[what](session, argument)
        check_plain()
        parent.say(answer)


if __name__ == "__main__":
    main(*sys.argv[1:])
