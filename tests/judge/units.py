"""From the steps of a history to its units: transactions, statements on their own, and commits of plain writers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from lockstep.timeline.entry import Entry
from tests.judge import program
from tests.judge.history import Done, History
from tests.judge.model import Answer, Operation, Query, Update, sorted_rows


@dataclass(frozen=True, slots=True)
class Unit:
    """What is atomic.

    Attributes:
        name: to tell it by.
        operations: what it did, in order; of a query, `at` has the places where it may have been asked.
        observed: what its queries answered, by the number of the operation.
        texts: what Spark was told, by the number of the operation.
        base: the database version that it saw; the first of several where frames may be older.
        newest: the last version that it may have seen.
        version: the one that it made; None if it made none.
        committed: whether it was told so.
        first: the number of its first step.
    """

    name: str
    kind: Literal["transaction", "statement", "plain"]
    operations: tuple[Operation, ...]
    observed: dict[int, Answer]
    texts: tuple[str, ...]
    base: int
    newest: int
    version: int | None = None
    committed: bool = False
    first: int = 0


@dataclass(frozen=True, slots=True)
class Anomaly:
    """Something that must not be."""

    kind: str
    what: str
    unit: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.unit}: {self.what}"


STALE = {"25001", "25P01"}
"""How the use of a frame may be refused that was made on the other side of a BEGIN, COMMIT or ROLLBACK."""


@dataclass
class _Open:
    """A transaction while its steps are gone through."""

    name: str
    id: str
    base: int
    first: int
    operations: list[Operation] = field(default_factory=list)
    observed: dict[int, Answer] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)
    made: dict[str, int] = field(default_factory=dict)
    """Where in it frames were made."""


class Caches:
    """Which tables are cached in which process, and since which database version.

    To Spark a cached table is what it was when it was cached until somebody of the same process changes it: so may be a
    DataFrame of the table alone (`spark.table`), outside a transaction. Queries are never older than their statement.
    """

    def __init__(self, processes: int) -> None:
        self._processes = processes
        self._since: dict[tuple[int, str], int] = {}
        self._tables: dict[str, str] = {}
        """What table a frame, or the view of one, is; by its last name, as the model knows it."""

    def _process(self, done: Done) -> int:
        return max(done.step.session, 0) % self._processes

    def prepared(self, done: Done) -> None:
        do = done.step.do
        match do["do"]:
            case "table":
                self._tables[do["frame"]] = do["table"].rpartition(".")[2]
            case "view" if do["frame"] in self._tables:
                self._tables[do["view"]] = self._tables[do["frame"]]
            case "cache" if do["frame"] in self._tables:
                self._since.setdefault((self._process(done), self._tables[do["frame"]]), done.before)
            case "cache table":
                self._since.setdefault((self._process(done), do["table"].rpartition(".")[2]), done.before)
            case "sql" if do["sql"].startswith("CACHE TABLE lake."):
                self._since.setdefault((self._process(done), do["sql"].rpartition(".")[2]), done.before)

    def written(self, done: Done, tables: set[str]) -> None:
        for table in tables:
            if (self._process(done), table) in self._since:
                self._since[self._process(done), table] = done.after

    def oldest(self, done: Done, frame: str, newest: int) -> int:
        """Return the oldest database version that a frame may show because its table is cached."""
        return self._since.get((self._process(done), self._tables.get(frame, "")), newest)


class Units:
    """Goes through a history once; `units` and `anomalies` are what it finds."""

    def __init__(self, history: History) -> None:
        self.anomalies: list[Anomaly] = []
        self.units: list[Unit] = []
        self._open: dict[int, _Open] = {}
        self._made: dict[str, int] = {}
        """The database version when a frame was made."""
        self._caches = Caches(history.processes)
        self._entries: dict[int, Entry] = {entry.version: entry for entry in history.entries}
        for number, done in enumerate(history.done):
            self._step(number, done)
        for tx in self._open.values():
            version = self._version_of(tx)
            if version is not None:
                self.anomalies.append(Anomaly("resurrected", f"nobody committed it, and yet {version}", tx.name))
            self._add(tx, version, committed=False)

    def _version_of(self, tx: _Open) -> int | None:
        return next(
            (v for v, e in self._entries.items() if e.transaction.id == tx.id and e.kind == "transaction"), None
        )

    def _step(self, number: int, done: Done) -> None:
        match done.step.means:
            case program.Begin():
                self._begin(number, done)
            case program.End(commits):
                self._end(done, commits=commits)
            case program.Read() as read:
                self._read(number, done, read)
            case program.Write() as write:
                self._write(number, done, write)
            case program.Plain() if done.failed:
                self._error(number, done)
            case program.Plain(table, lite):
                operation = Update(table, lite)
                self.units.append(
                    Unit(
                        f"plain{number}",
                        "plain",
                        (operation,),
                        {},
                        (str(done.step.do),),
                        done.before,
                        done.before,
                        first=number,
                    )
                )
            case program.Prepare(frame):
                self._prepare(number, done, frame)

    def _prepare(self, number: int, done: Done, frame: str) -> None:
        if done.failed:
            if done.answer["sqlstate"] not in STALE:
                self._error(number, done)
            return
        self._caches.prepared(done)
        if not frame:
            return
        tx = self._open.get(done.step.session)
        of = done.step.do.get("frame", "") if done.step.do["do"] == "view" else ""
        self._made[frame] = self._made.get(of, done.before)
        if tx is not None and not (of and of not in tx.made):
            tx.made[frame] = tx.made.get(of, len(tx.operations))

    def _error(self, number: int, done: Done) -> None:
        said = f"step {number}, {done.step.do}: {done.answer.get('sqlstate')} {str(done.answer.get('message'))[:600]}"
        self.anomalies.append(Anomaly("error", said, f"step{number}"))

    def _begin(self, number: int, done: Done) -> None:
        if done.failed:
            self._error(number, done)
            return
        version, id = done.answer["rows"][0]
        if version != done.after:
            self.anomalies.append(
                Anomaly(
                    "old-snapshot",
                    f"BEGIN took database version {version}, and {done.after} was there",
                    f"step{number}",
                )
            )
        self._open[done.step.session] = _Open(f"s{done.step.session}@{number}", id, version, number)

    def _end(self, done: Done, *, commits: bool) -> None:
        tx = self._open.pop(done.step.session, None)
        if tx is None:
            return
        version = self._version_of(tx)
        if version is not None:
            self._caches.written(done, {op.table for op in tx.operations if isinstance(op, Update)})
        if (when := done.answer.get("stopped")) is not None:
            self._killed(tx, version, when)
            return
        said = commits and not done.failed
        if not commits and version is not None:
            self.anomalies.append(Anomaly("resurrected", f"rolled back, and yet database version {version}", tx.name))
        if commits and done.failed and version is not None:
            self.anomalies.append(
                Anomaly("resurrected", f"refused ({done.answer['sqlstate']}), and yet {version}", tx.name)
            )
        if commits and done.failed and done.answer["sqlstate"] not in ("40001", "25P02"):
            self._error(tx.first, done)
        if said and version is not None and done.answer["rows"][0][0] != version:
            self.anomalies.append(
                Anomaly("wrong-version", f"COMMIT said {done.answer['rows'][0][0]}, it is {version}", tx.name)
            )
        self._add(tx, version, committed=said)

    def _killed(self, tx: _Open, version: int | None, when: str) -> None:
        """Note a transaction whose process was killed in its COMMIT: ratified is committed, whoever publishes it."""
        is_late = when in ("after-ratify", "between-publishes")
        if is_late != (version is not None):
            what = f"killed {when}, and its database version is {version}"
            self.anomalies.append(Anomaly("lost-commit" if is_late else "resurrected", what, tx.name))
        self._add(tx, version, committed=version is not None)

    def _add(self, tx: _Open, version: int | None, *, committed: bool) -> None:
        self.units.append(
            Unit(
                name=tx.name,
                kind="transaction",
                operations=tuple(tx.operations),
                observed=tx.observed,
                texts=tuple(tx.texts),
                base=tx.base,
                newest=tx.base,
                version=version,
                committed=committed,
                first=tx.first,
            )
        )

    def _read(self, number: int, done: Done, read: program.Read) -> None:
        if done.failed:
            if not (read.frame and done.answer["sqlstate"] in STALE):
                self._error(number, done)
            return
        rows = sorted_rows(done.answer["rows"])
        text = str(done.step.do.get("sql", done.step.do))
        if (tx := self._open.get(done.step.session)) is not None:
            here = len(tx.operations)
            first = tx.made.get(read.frame, 0) if read.frame else here
            tx.observed[here] = rows
            tx.operations.append(Query(read.lite, read.limit, tuple(range(first, here + 1))))
            tx.texts.append(text)
            return
        base = done.after
        if read.frame:
            base = min(self._made.get(read.frame, base), self._caches.oldest(done, read.frame, base))
        operation = Query(read.lite, read.limit, (0,))
        self.units.append(
            Unit(
                f"query{number}",
                "statement",
                (operation,),
                {0: rows},
                (text,),
                base,
                done.after,
                committed=True,
                first=number,
            )
        )

    def _write(self, number: int, done: Done, write: program.Write) -> None:
        operation, text = Update(write.table, write.lite), done.step.do["sql"]
        tx = self._open.get(done.step.session)
        if done.failed:
            if done.answer["sqlstate"] != "40001":
                self._error(number, done)
            return
        if tx is not None:
            tx.operations.append(operation)
            tx.texts.append(text)
            return
        self._caches.written(done, {write.table})
        made = [v for v in range(done.before + 1, done.after + 1) if self._entries[v].kind == "transaction"]
        if len(made) > 1:
            self.anomalies.append(Anomaly("error", f"one statement made versions {made}", f"step{number}"))
        version = made[-1] if made else None
        base = version - 1 if version is not None else done.after
        made_it = Unit(f"statement{number}", "statement", (operation,), {}, (text,), base, base, version, first=number)
        self.units.append(replace(made_it, committed=True))


def asked_at(unit: Unit, number: int, place: int) -> Unit:
    """Return the unit with one query asked at one place alone."""
    query = unit.operations[number]
    assert isinstance(query, Query)
    operations = list(unit.operations)
    operations[number] = replace(query, at=(place,))
    return replace(unit, operations=tuple(operations))


def queries(unit: Unit) -> Iterator[tuple[int, Query]]:
    for number, operation in enumerate(unit.operations):
        if isinstance(operation, Query):
            yield number, operation
