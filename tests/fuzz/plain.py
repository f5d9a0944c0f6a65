"""Plain Delta in a process of its own, which never loads Lockstep: programs and questions in, answers out.

python -m tests.fuzz.plain SETTINGS
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.fuzz.steps import Block, Program, Step, effective, failure, last_version, look_at, other_id, rows_at, run
from tests.support.child import Parent
from tests.support.plain import check_plain, plain_spark


def main(settings: str) -> None:
    """Answer until the input ends."""
    parent = Parent()
    session = plain_spark(json.loads(settings))
    for request in parent.requests():
        try:
            answer = {"answer": REQUESTS[request.pop("do")](session, **request)}
        except Exception as error:  # noqa: BLE001 - told to who asked
            answer = {"error": failure(error)}
        check_plain()
        parent.say(answer)


class _Run:
    """One program in a database of its own, its statements one after the other."""

    def __init__(self, session: Any, database: str) -> None:
        self.session = session
        self.folder = Path(session.conf.get("spark.sql.warehouse.dir").removeprefix("file:"), f"{database}.db")
        self.failed: dict[str, str] = {}
        self.answers: dict[str, list[str]] = {}
        self.history: list[tuple[str, dict[str, tuple[str, int]]]] = []
        self.versions: dict[str, int] = {}

    def block(self, block: Block, other_first: bool) -> None:
        own = (str(block["id"]), effective(block))
        other = (other_id(block), block.get("other", []))
        for name, steps in (other, own) if other_first else (own, other):
            for step in steps:
                self._step(step)
            if steps or name == own[0]:
                self.history.append((name, self.tables()))
        for table, (_, version) in self.history[-1][1].items():
            self.versions[f"{table}@{block['id']}"] = version

    def _step(self, step: Step) -> None:
        try:
            rows = run(self.session, step, self.versions)
        except Exception as error:  # noqa: BLE001 - it fails in Lockstep, too
            self.failed[str(step["id"])] = failure(error)
        else:
            if rows is not None:
                self.answers[str(step["id"])] = rows

    def tables(self) -> dict[str, tuple[str, int]]:
        logs = self.folder.glob("*/_delta_log")
        return {log.parent.name: (str(log.parent), last_version(str(log.parent))) for log in logs}


def run_program(session: Any, program: Program, behind: list[int], attempt: int) -> dict[str, Any]:
    """Run a program.

    Args:
        session: in which.
        program: of statements.
        behind: the blocks whose statements come before those that ran beside them.
        attempt: each has a database of its own.
    """
    database = f"{program['name']}_{attempt}"
    session.sql(f"CREATE DATABASE {database}")
    session.sql(f"USE {database}")
    ran = _Run(session, database)
    for block in program["blocks"]:
        ran.block(block, other_first=block["id"] not in behind)
    return {"failed": ran.failed, "answers": ran.answers, "history": ran.history}


def drop(session: Any, program: str, attempts: int) -> None:
    """Remove what a program left."""
    session.sql("USE default")
    for attempt in range(attempts):
        session.sql(f"DROP DATABASE IF EXISTS {program}_{attempt} CASCADE")


REQUESTS: Mapping[str, Callable[..., Any]] = {"run": run_program, "rows": rows_at, "look": look_at, "drop": drop}

if __name__ == "__main__":
    main(*sys.argv[1:])
