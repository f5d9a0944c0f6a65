"""spark-sql as its users type into it: a connection of the contract is a process, and so a driver of its own."""

from __future__ import annotations

import json
import re
import subprocess
import zipfile
from dataclasses import replace
from functools import cache
from pathlib import Path

from lockstep.spark.jars import session_jars
from tests.support.contract import Record
from tests.support.gate import wait_until
from tests.support.hosts import command, environment, settings
from tests.support.runner import Failure, Result
from tests.support.sessions import CATALOG, INTERPRETED

STATEMENT_SECONDS = 180
"""Until a statement has ended, the start of Spark with the first one."""

TASK_FAILED = "58030"

_PROMPT = re.compile(r"^(?:spark-sql \([^)]*\)| {10,})> ?")
_TIME = re.compile(r"^Time taken: .*$", re.MULTILINE)
_SQLSTATE = re.compile(r"SQLSTATE: (\w{5})")
_SEMICOLON = re.compile(r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|--.*|/\*(?s:.*?)\*/)|;""")
"""A semicolon, or a string or comment, which is the first group."""


def as_printed(record: Record) -> Record:
    """Return what of a record spark-sql shows.

    Of `SHOW TABLES` it prints names alone, of `DESCRIBE` no NULL; of a write that failed not what failed in its tasks.
    """
    if record.kind == "query" and re.match("SHOW TABLE|DESCRIBE", record.sql):
        return replace(record, kind="ok", expected=())
    if record.kind == "error" and TASK_FAILED in record.sqlstates:
        return replace(record, expected=())
    return record


class SparkSqlConnection:
    """A spark-sql process; results are read from its standard output, and errors from its standard error.

    After each statement it is told to `!cat` a file that is not there. That is a command of its own, not SQL, so it
    changes nothing in Spark; its complaint on the standard error shows that the statement has ended.
    """

    def __init__(self, folder: Path, root: Path) -> None:
        folder.mkdir()
        said = settings(folder, root) | INTERPRETED | {
            "spark.sql.catalogImplementation": "in-memory",  # two processes cannot share a folder of Derby's
            "spark.sql.cli.print.header": "true",
            "spark.log.level": "OFF",  # it would be on the standard error, between errors
        }  # fmt: skip
        self._out, self._err = folder / "out", folder / "err"
        self._taken = {self._out: 0, self._err: 0}
        self._statements = 0
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(
                command("spark-sql", said),
                stdin=subprocess.PIPE, stdout=out, stderr=err, cwd=folder, env=environment(), text=True,
            )  # fmt: skip
        found = self.run(f"USE {CATALOG}")
        assert isinstance(found, Result), found

    def run(self, sql: str) -> Result | Failure:
        """Type a statement in and wait for its end; a failure is what is not followed by the time that it took.

        Raises:
            AssertionError: it does not end, or spark-sql did.
        """
        assert self._process.stdin is not None
        self._statements += 1
        # It ends a statement at each semicolon but those with a backslash, as a script's need, and helps at a tab.
        typed = _SEMICOLON.sub(lambda found: found[1] or r"\;", sql.rstrip("; \n")).replace("\t", " ")
        print(f"{typed}\n;\n!cat statement-{self._statements};", file=self._process.stdin, flush=True)
        asked, answered = f"!cat statement-{self._statements};\n", f"cat: statement-{self._statements}:"
        wait_until(lambda: self._says(answered), f"no end of {sql}; see {self._err}", STATEMENT_SECONDS)
        printed, said = self._take(self._out, asked), self._take(self._err, answered)
        if self._statements > 1:
            said = _TIME.sub("", said, count=1)  # that of the `!cat` before
        if _TIME.search(said) is None:
            return Failure(_sqlstate(said), said)
        # What is typed in comes back with prompts, and with a carriage return where a terminal would wrap it.
        lines = [line for line in printed.split("\n")[:-1] if not _PROMPT.match(line)]
        columns, *rows = [line.split("\t") for line in lines] or [[]]
        if columns == ["createtab_stmt"]:  # one value of many lines
            return Result(columns, [["\n".join(lines[1:])]])
        return Result(columns, [row + [""] * (len(columns) - len(row)) for row in rows])

    def close(self) -> None:
        """End the process; an open transaction is rolled back."""
        self._process.communicate("quit;\n", timeout=STATEMENT_SECONDS)

    def _says(self, text: str) -> bool:
        assert self._process.poll() is None, self._err.read_text(encoding="utf-8")
        return text in self._err.read_text(encoding="utf-8")

    def _take(self, file: Path, end: str) -> str:
        """Return what a file has that was not taken yet, up to `end`."""
        content = file.read_bytes()[self._taken[file] :]
        content = content[: content.index(end.encode()) + len(end)]
        self._taken[file] += len(content)
        return content.decode()


def _sqlstate(said: str) -> str | None:
    """Return an error's SQLSTATE. Delta's errors are printed without theirs; Delta has a list of them."""
    if states := _SQLSTATE.findall(said):
        return str(states[-1])  # those of what caused it come first
    named = re.search(r"^\[(DELTA_\w+)", said, re.MULTILINE)
    return _states_of_delta().get(named[1]) if named else None


@cache
def _states_of_delta() -> dict[str, str]:
    [delta] = [jar for jar in session_jars() if jar.name.startswith("delta-spark_")]
    with zipfile.ZipFile(delta) as jar:
        errors = json.loads(jar.read("error/delta-error-classes.json"))
    return {name: error["sqlState"] for name, error in errors.items()}
