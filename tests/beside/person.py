"""The person who decides, as docs/operating.md says, where a plain writer's commit and Lockstep's cannot both stay.

Of a table that was set aside what one side wrote is lost to readers, by that person's decision and by nothing else: the
judge is told which rows the two sides do not have in common.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import unquote

from deltalake import DeltaTable
from pyarrow import parquet

from lockstep.catalog import TransactionalCatalog
from lockstep.errors import ConflictError, InvalidError, LockstepError
from lockstep.recovery.choices import wanted_and_there
from lockstep.recovery.divergence import NOT_DIVERGED, Divergence, divergence
from lockstep.recovery.settle import Side, settle
from tests.beside.journal import STOPPED
from tests.support.lakes import named

TRIES = 200


class Person:
    """Looks after tables that others hammer.

    Args:
        tables: those that plain writers write, too.
        journal: where it is said what was decided.
        sides: which is kept, one after the other.
    """

    def __init__(
        self, root: Path, warehouse: Path, tables: Iterable[str], journal: Path, sides: Iterator[Side]
    ) -> None:
        self._catalog = TransactionalCatalog.open(str(root))
        self._warehouse, self._tables = warehouse, [*tables]
        self._journal, self._sides = journal, sides

    def look(self) -> None:
        """Settle each table that has diverged."""
        for table in self._tables:
            if (found := self._diverged(table)) is not None:
                self._settle(table, found)

    def _diverged(self, table: str) -> Divergence | None:
        try:
            return divergence(self._catalog.lake, named(table))
        except InvalidError as error:
            if error.sqlstate != NOT_DIVERGED:
                raise
            return None

    def _settle(self, table: str, found: Divergence) -> None:
        """Stop the table's plain writers, decide, and let them go on."""
        keep = next(self._sides)
        stopped = self._warehouse / f"{table}{STOPPED}"
        stopped.touch()
        last: LockstepError = found.why
        try:
            for _ in range(TRIES):  # what plain writers had begun may come in between
                again = self._diverged(table)
                if again is None:
                    return
                found = again
                self._say(table, keep, found)
                try:
                    settle(self._catalog.lake, found, keep, lambda change: self._catalog.run(change).version)
                    return
                except (ConflictError, InvalidError) as error:
                    last = error
            raise AssertionError(f"{table} cannot be settled: {last}")
        finally:
            stopped.unlink()

    def _say(self, table: str, keep: str, found: Divergence) -> None:
        """Say which rows only one side has."""
        wanted, _ = wanted_and_there(self._catalog.lake, found)
        folder = self._warehouse / table
        ours = {id for path, _ in wanted.files for id in _ids(folder / unquote(path))}
        theirs = {*DeltaTable(str(folder), version=found.newest).to_pyarrow_table()["id"].to_pylist()}
        disputed = sorted(ours ^ theirs)
        line = {"table": table, "keep": keep, "disputed": disputed, "why": found.why.message, "newest": found.newest}
        with self._journal.open("a", encoding="utf-8") as out:
            out.write(json.dumps(line) + "\n")


def _ids(file: Path) -> list[str]:
    ids: list[str] = parquet.read_table(file, columns=["id"], partitioning=None)["id"].to_pylist()
    return ids


def decided(journal: Path) -> dict[str, set[str]]:
    """Return by table which rows a person's decision was about."""
    rows: dict[str, set[str]] = {}
    if journal.exists():
        for line in journal.read_text(encoding="utf-8").splitlines():
            body = json.loads(line)
            rows.setdefault(body["table"], set()).update(body["disputed"])
    return rows
