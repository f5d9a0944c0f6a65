"""Runs a program in plain Delta and in Lockstep, and says what differs."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

import lockstep
from lockstep.lake.verify import verify
from tests.fuzz.compare import History, apart, differences
from tests.fuzz.process import PlainDelta, PlainDeltaError
from tests.fuzz.steps import Block, Program, Step, effective, failure, other_id, run, title

ATTEMPTS = 3
"""How often a transaction is tried; the statements beside it run once, so that the second time it is alone."""
ORDERS = 4
"""How many serial orders of the transactions and what ran beside them are tried at most."""


@dataclass
class Outcome:
    """What became of a program.

    Attributes:
        wrong: what differs; empty if nothing does.
        skipped: steps that plain Delta refuses.
        steps: how many there were.
        retried: transactions that lost to what ran beside them.
        seconds: what its parts took.
    """

    wrong: list[str] = field(default_factory=list)
    skipped: int = 0
    steps: int = 0
    retried: int = 0
    seconds: dict[str, float] = field(default_factory=dict)


class Differential:
    """Both systems; programs run one after the other.

    Args:
        connect: opens a session of Lockstep's on the lake at a path, which is its current catalog.
        plain: the process of plain Delta.
        folder: where lakes are made.
    """

    def __init__(self, connect: Callable[[Path], Any], plain: PlainDelta, folder: Path) -> None:
        self._connect, self._plain, self._folder = connect, plain, folder
        self._number = itertools.count()

    def run(self, program: Program) -> Outcome:
        """Run a program in both, and compare."""
        program = {**program, "name": f"{program['name']}_{next(self._number)}"}
        root = self._folder / program["name"]
        began = time.monotonic()
        first = self._plain.ask("run", program=program, behind=[], attempt=0)
        ran_plainly = time.monotonic()
        outcome = Outcome(skipped=len(first["failed"]), steps=sum(len(block["steps"]) for block in program["blocks"]))
        ours = _Ours((self._connect(root), self._connect(root)), root, program, first["failed"])
        outcome.wrong = ours.run()
        ran = time.monotonic()
        outcome.retried = len(ours.retried)
        attempts = 1
        if not outcome.wrong:
            unsettled = [
                b["id"] for b in program["blocks"] if b.get("other") and b["id"] not in ours.retried | ours.undone
            ]
            for behind in itertools.islice(_subsets(unsettled), ORDERS):
                plain = first
                if behind:
                    plain = self._plain.ask("run", program=program, behind=behind, attempt=attempts)
                    attempts += 1
                # A later block may hide at the end what the order made of an earlier one: only a whole look settles it.
                unlike = self._unlike(plain, ours)
                found = [unlike] if unlike else [*self._compare(plain, ours)]
                if not found:
                    outcome.wrong = []
                    break
                order = f" (with blocks {behind} before what ran beside them)" if behind else ""
                outcome.wrong += [f"{each}{order}" for each in found]
            outcome.wrong += self._by_itself(root)
        outcome.seconds = {"plain": ran_plainly - began, "ours": ran - ran_plainly, "looks": time.monotonic() - ran}
        self._plain.ask("drop", program=program["name"], attempts=attempts)
        return outcome

    def _unlike(self, plain: dict[str, Any], ours: _Ours) -> str:
        """Say what is otherwise at the end of a program, in a few words: most serial orders are not the right one."""
        if plain["failed"].keys() != ours.refused.keys():
            return f"plain Delta refuses the steps {plain['failed']}, ours was run without {[*ours.refused]}"
        here, there = plain["history"][-1][1], ours.history[-1][1]
        if here.keys() != there.keys():
            return f"the tables are {sorted(here)} in plain Delta and {sorted(there)} in ours"
        for table in sorted(here):
            rows, found = self._plain.ask("rows", path=here[table][0]), ours.rows(table)
            if rows != found:
                return f"{table}: rows at the end\n{apart(rows, found)}"
        return ""

    def _look(self, ours: _Ours) -> dict[str, Any]:
        """Return what plain Delta finds in our tables, or how it fails."""
        found: dict[str, Any] = {}
        for table, (path, _) in ours.history[-1][1].items():
            versions = [tables[table][1] for _, tables in ours.history if tables.get(table, ("", 0))[0] == path]
            try:
                found[table] = self._plain.ask("look", path=path, versions=versions)
            except PlainDeltaError as error:
                found[table] = str(error)
        return found

    def _compare(self, plain: dict[str, Any], ours: _Ours) -> Iterator[str]:
        looked = self._look(ours)
        history: History = [(block, {t: (p, v) for t, (p, v) in tables.items()}) for block, tables in plain["history"]]
        for step, rows in plain["answers"].items():
            if step in ours.answers and ours.answers[step] != rows:
                yield f"step {step} answers\n  plain: {rows}\n  ours:  {ours.answers[step]}"
        for table in sorted(looked):
            if isinstance(looked[table], str):
                yield f"{table}: plain Delta cannot read our table: {looked[table]}"
                continue
            path = history[-1][1][table][0]
            versions = [tables[table][1] for _, tables in history if table in tables]
            look = self._plain.ask("look", path=path, versions=[v for v in versions if v <= versions[-1]])
            yield from differences(table, (history, look), (ours.history, looked[table]))
            if (rust := _in_rust(ours.history[-1][1][table][0])) != _in_rust(path):
                yield f"{table}: delta-rs reads {_in_rust(path)} in plain Delta's table, {rust} in ours"

    def _by_itself(self, root: Path) -> list[str]:
        catalog = lockstep.TransactionalCatalog.open(str(root))
        return [str(found) for found in verify(catalog.lake.storage, catalog.timeline).differences]


def _subsets(blocks: list[int]) -> Iterator[list[int]]:
    for size in range(len(blocks) + 1):
        yield from map(list, itertools.combinations(blocks, size))


def _in_rust(path: str) -> list[int] | str:
    """Return the keys that delta-rs finds at a path, or the name of what it says if it cannot read such a table."""
    try:
        found = pa.table(QueryBuilder().register("t", DeltaTable(path)).execute("SELECT k FROM t").read_all())
        return sorted(found["k"].to_pylist())
    except Exception as error:  # noqa: BLE001 - what it cannot read is told by plain Delta's own table
        return type(error).__name__


class _Ours:
    """One program in Lockstep: what `plain._Run` is there, with transactions."""

    def __init__(self, sessions: tuple[Any, Any], root: Path, program: Program, refused: dict[str, str]) -> None:
        self.session, self.beside = sessions
        self.program, self.refused = program, refused
        self.answers: dict[str, list[str]] = {}
        self.history: list[tuple[str, dict[str, tuple[str, int]]]] = []
        self.versions: dict[str, int] = {}
        self.retried: set[int] = set()
        self.undone: set[int] = set()
        self._root = root
        self._catalog: Any = None

    def run(self) -> list[str]:
        """Run it; return what was refused here and not there, or the other way round."""
        for block in self.program["blocks"]:
            wrong = self._alone(block) if block["kind"] == "alone" else self._transaction(block)
            self.history.append((str(block["id"]), self._tables()))
            for table, (_, version) in self.history[-1][1].items():
                self.versions[f"{table}@{block['id']}"] = version
            if wrong:
                return [f"block {block['id']}: {wrong}"]
        return []

    def rows(self, table: str) -> list[str]:
        """Return a table's rows as a session of Lockstep reads them."""
        return sorted(row[0] for row in self.session.sql(f"SELECT to_json(struct(*)) FROM {table}").collect())

    def _alone(self, block: Block) -> str:
        for step in block["steps"]:
            if (wrong := self._step(self.session, step)) is not None:
                return wrong
        return ""

    def _transaction(self, block: Block) -> str:
        beside = list(block.get("other", []))
        left = {step["id"] for step in effective(block)}
        for _ in range(ATTEMPTS):
            self.session.sql("BEGIN")
            for index, step in enumerate([*block["steps"], None]):
                if index >= block["at"] and beside:
                    refused = next(filter(None, (self._step(self.beside, each) for each in beside)), None)
                    self.history.append((other_id(block), self._tables()))
                    beside = []
                    if refused is not None:
                        self.session.sql("ROLLBACK")
                        return refused
                if step is None or str(step["id"]) in self.refused:
                    continue
                if (wrong := self._step(self.session, step, ran_there=step["id"] in left)) is not None:
                    self.session.sql("ROLLBACK")
                    return wrong
            try:
                self.session.sql(block["end"])
            except Exception as error:  # noqa: BLE001 - judged here
                if not (said := failure(error)).startswith("40001"):
                    return f"{block['end']}: {said}"
                self.retried.add(block["id"])
            else:
                if block["end"] == "ROLLBACK":
                    self.undone.add(block["id"])
                return ""
        return f"lost {ATTEMPTS} times"

    def _step(self, session: Any, step: Step, *, ran_there: bool = True) -> str | None:
        """Run a statement, and return what is wrong: plain Delta does not run what a transaction undoes."""
        expected = self.refused.get(str(step["id"]))
        try:
            rows = run(session, step, self.versions)
        except Exception as error:  # noqa: BLE001 - judged here
            said = failure(error)
            by_delta = not ran_there and "LOCKSTEP_" not in said
            return None if expected or by_delta else f"{title(step)}\n  is refused: {said}"
        if rows is not None:
            self.answers[str(step["id"])] = rows
        return f"{title(step)}\n  is not refused; plain Delta: {expected}" if expected else None

    def _tables(self) -> dict[str, tuple[str, int]]:
        if self._catalog is None:
            self._catalog = lockstep.TransactionalCatalog.open(str(self._root))
        tables = self._catalog.database().tables.values()
        return {table.name.table: (str(self._root / table.location), table.version) for table in tables}
