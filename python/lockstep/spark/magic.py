"""`%%lockstep`: the SQL of a notebook's cell as one transaction.

    %load_ext lockstep.spark.magic

    %%lockstep --comment "rent for March"
    UPDATE lake.bank.accounts SET balance = balance - 60 WHERE owner = 'ada';
    UPDATE lake.bank.accounts SET balance = balance + 60 WHERE owner = 'grace';
    SELECT * FROM lake.bank.accounts

The cell's statements run on the session that the notebook calls `spark`, else on the active one. If one fails, or the
cell is interrupted, nothing of them stays, and the cell says why in a few lines: what Spark said is the `__cause__` of
the error, which is `sys.last_value`. A cell in Python has `with lockstep.transaction(spark):` for the same.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, cell_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments
from pyspark.sql import SparkSession

from lockstep.display import HTML_OF, Section, html
from lockstep.errors import InvalidError, LockstepError
from lockstep.scripts.script import as_written
from lockstep.spark.script import Done, quiet_failures, run_script
from lockstep.spark.session import SessionTransaction
from lockstep.timeline.entry import Isolation


@dataclass(frozen=True, slots=True)
class CellResult:
    """What a cell shows.

    Attributes:
        transaction: the cell's, committed.
        columns, rows: what the last statement that returns rows returned, 1,000 at most; none if there is no such one.
        is_cut: whether there are more.
    """

    transaction: SessionTransaction
    columns: list[str]
    rows: list[list[object]]
    is_cut: bool

    def __repr__(self) -> str:
        lines = [" | ".join(map(str, row)) for row in ([self.columns] if self.columns else []) + self.rows]
        return "\n".join([*lines, *self._more(), repr(self.transaction)])

    def _repr_html_(self) -> str:
        page = html([Section("", self.columns, self.rows), Section("", (), [[text] for text in self._more()])])
        return page + self.transaction._repr_html_()

    def _more(self) -> list[str]:
        return [f"… only the first {len(self.rows)} rows"] if self.is_cut else []


@magics_class
class LockstepMagics(Magics):
    """The magics that `%load_ext lockstep.spark.magic` adds."""

    @magic_arguments()
    @argument("--isolation", type=str.upper, choices=["SNAPSHOT", "SERIALIZABLE"], help="The session's by default.")
    @argument("--comment", default="", help="Why, for the timeline.")
    @cell_magic
    def lockstep(self, line: str, cell: str) -> CellResult:
        """Run the cell's SQL statements in one transaction."""
        try:
            words = shlex.split(line)  # IPython's own splitting would keep quotes
        except ValueError as error:
            raise UsageError(f"{error}: {line}") from None
        arguments = self.lockstep.parser.parse_args(words)
        with _said_shortly():
            return self._run(cell, arguments.isolation, arguments.comment)

    def _run(self, cell: str, isolation: Isolation | None, comment: str) -> CellResult:
        results: list[Done] = []
        tx = run_script(
            self._session(),
            as_written("the cell", cell),
            atomic=True,
            isolation=isolation,
            comment=comment,
            on_done=results.append,
        )
        assert tx is not None, "the script was atomic"
        last = next((result for result in reversed(results) if result.columns), None)
        if last is None:
            return CellResult(tx, [], [], is_cut=False)
        rows = [["NULL" if value is None else value for value in row] for row in last.rows]
        return CellResult(tx, list(last.columns), rows, last.is_cut)

    def _session(self) -> SparkSession:
        namespace: dict[str, Any] = self.shell.user_ns if self.shell is not None else {}
        variable = namespace.get("spark")
        session = variable if isinstance(variable, SparkSession) else SparkSession.getActiveSession()
        if session is None:
            raise InvalidError("there is no Spark session: make one, and call it spark")
        return session


@contextmanager
def _said_shortly() -> Iterator[None]:
    """Let IPython show an error of Lockstep's by its message alone: the frames above it are Lockstep's and Spark's."""
    try:
        with quiet_failures():
            yield
    except LockstepError as error:
        lines = [f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())]
        error._render_traceback_ = lambda: lines  # type: ignore[attr-defined]  # what IPython asks for
        raise


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Add `%%lockstep` to a shell, and how it shows entries and errors; `%load_ext` calls this."""
    shell.register_magics(LockstepMagics)
    if shell.display_formatter is not None:  # a shell that shows nothing has none
        for kind, drawn in HTML_OF.items():
            shell.display_formatter.formatters["text/html"].for_type(kind, drawn)
