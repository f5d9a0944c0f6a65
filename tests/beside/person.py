"""The person who decides, as docs/operating.md says, where a plain writer's commit and Lockstep's cannot both stay.

Of a table that was set aside what one side wrote is lost to readers, by that person's decision and by nothing else: the
judge is told which rows the two sides do not have in common. Where both are kept, nothing is lost.

Half of the time the person is one who knows the command `lockstep settle` alone: what can be chosen is what it offers
with `--dry-run`, and what comes of it is what it answers.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from deltalake import DeltaTable

from lockstep.catalog import TransactionalCatalog
from lockstep.delta.actions import render
from lockstep.delta.log import LOG
from lockstep.delta.snapshot import Snapshot
from lockstep.errors import ConflictError, InvalidError
from lockstep.recovery.choices import choices, wanted_and_there
from lockstep.recovery.divergence import NOT_DIVERGED, Divergence, divergence
from lockstep.recovery.settle import Side, settle
from tests.beside.journal import STOPPED
from tests.beside.rows import rows_of, set_of
from tests.support.lakes import named

TRIES = 200

Way: TypeAlias = Literal["core", "command"]


class Decision(NamedTuple):
    """What a person would like, and by which way they say so."""

    keep: Side
    way: Way


KEPT: tuple[Side, ...] = ("both", "ours", "theirs")
WAYS: tuple[Way, ...] = ("core", "command")
DECISIONS = tuple(Decision(keep, WAYS[(turn + place) % 2]) for turn in range(2) for place, keep in enumerate(KEPT))
"""Each side by each way, by turns."""


class RefusedError(Exception):
    """The command did not settle a table, and this is what it said."""


class Person:
    """Looks after tables that others hammer.

    Args:
        tables: those that plain writers write, too.
        journal: where it is said what was decided.
        decisions: one after the other, as far as what each would keep can be kept.
    """

    def __init__(
        self, root: Path, warehouse: Path, tables: Iterable[str], journal: Path, decisions: Iterator[Decision]
    ) -> None:
        self._catalog, self._root = TransactionalCatalog.open(str(root)), root
        self._warehouse, self._tables = warehouse, [*tables]
        self._journal, self._decisions = journal, decisions

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
        decision = next(self._decisions)
        stopped = self._warehouse / f"{table}{STOPPED}"
        stopped.touch()
        last: Exception = found.why
        try:
            for _ in range(TRIES):  # what plain writers had begun may come in between
                again = self._diverged(table)
                if again is None:
                    return
                found = again
                if (refused := self._why_not(table, found, decision)) is not None:
                    self._say({"table": table, "refused": decision, "why": refused})
                    decision = next(self._decisions)
                    continue
                self._say_what_is_lost(table, decision, found)
                try:
                    self._decide(table, found, decision)
                except (ConflictError, InvalidError, RefusedError) as error:
                    last = error
                else:
                    self._say({"table": table, "settled": decision})
                    return
            raise AssertionError(f"{table} cannot be settled: {last}")
        finally:
            stopped.unlink()

    def _why_not(self, table: str, found: Divergence, decision: Decision) -> str | None:
        """Return why what a decision would keep cannot be kept; None if it can, or the table has just been settled."""
        if decision.way == "core":
            return choices(self._catalog.lake, found, decision.keep)[0].refused
        try:
            offered = json.loads(self._command(table, "--dry-run", "--json"))["choices"]
        except RefusedError as error:
            return str(error)
        [refused] = [each["refused"] for each in offered if each["keep"] == decision.keep]
        return None if refused is None else str(refused)

    def _decide(self, table: str, found: Divergence, decision: Decision) -> None:
        if decision.way == "core":
            settle(self._catalog.lake, found, decision.keep, lambda change: self._catalog.run(change).version)
        else:
            self._command(table, f"--{decision.keep}", "--yes")

    def _command(self, table: str, *options: str) -> str:
        """Return what `lockstep settle` prints.

        Raises:
            RefusedError: it did not do it.
        """
        command = [sys.executable, "-m", "lockstep", "settle", str(self._root), str(named(table)), *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            if "Traceback" in done.stderr:
                raise AssertionError(f"{command} broke: {done.stderr}")
            raise RefusedError(f"{done.stdout}{done.stderr}")
        return done.stdout

    def _say_what_is_lost(self, table: str, decision: Decision, found: Divergence) -> None:
        """Say which rows only one side has, unless both are kept."""
        disputed: list[str] = []
        if decision.keep != "both":
            wanted, _ = wanted_and_there(self._catalog.lake, found)
            folder = self._warehouse / table
            disputed = sorted(_ids_in(folder, wanted) ^ _ids(DeltaTable(str(folder), version=found.newest)))
        line = {"table": table, "keep": decision.keep, "disputed": disputed, "newest": found.newest}
        self._say({**line, "why": found.why.message})

    def _say(self, line: dict[str, object]) -> None:
        with self._journal.open("a", encoding="utf-8") as out:
            out.write(json.dumps(line) + "\n")


def _ids(table: DeltaTable) -> set[str]:
    """Return the ids of the rows of a table, and of what was set of it."""
    return {id for id, _ in rows_of(table) + set_of(table)}


def _ids_in(folder: Path, snapshot: Snapshot) -> set[str]:
    """Return the same of what no log has: delta-rs reads one that is made for it, with the same files and vectors."""
    with tempfile.TemporaryDirectory() as scratch:
        for entry in folder.iterdir():
            if entry.name != LOG:
                (Path(scratch) / entry.name).symlink_to(entry)
        log = Path(scratch) / LOG
        log.mkdir()
        adds = [{"add": add} for add in snapshot.files.values()]
        actions = [{"protocol": snapshot.protocol}, {"metaData": snapshot.metadata}, *adds]
        (log / f"{0:020d}.json").write_bytes(render(actions))
        return _ids(DeltaTable(scratch))


def _lines(journal: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in journal.read_text(encoding="utf-8").splitlines()] if journal.exists() else []


def decided(journal: Path) -> dict[str, set[str]]:
    """Return by table which rows a person's decision was about."""
    rows: dict[str, set[str]] = {}
    for line in _lines(journal):
        if line.get("disputed"):
            rows.setdefault(line["table"], set()).update(line["disputed"])
    return rows


def settled(journal: Path) -> Counter[Decision]:
    """Return how often which decision was carried out."""
    return Counter(Decision(*line["settled"]) for line in _lines(journal) if "settled" in line)
