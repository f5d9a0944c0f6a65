"""Judges a history: what was seen, in which order it could have been, and whether what was read is recorded.

    wrong-read       a query did not answer what it means at the snapshot, with the transaction's own writes
    lost-update      a commit removed rows that an earlier one had removed
    wrong-contents   the tables do not hold what the commits made
    no-serial-order  (SERIALIZABLE) no order of the transactions, one after the other, gives what each saw and did
    unrecorded-read  (SERIALIZABLE) a row would have changed what a transaction saw or did, and no condition in the
                     timeline's entry accepts it

All follow from the model alone (`tests.judge.model`); of Lockstep it uses the reading of entries and of conditions.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from lockstep.delta.pruning.predicates import may_match
from lockstep.timeline.entry import Entry
from tests.judge.history import History
from tests.judge.model import (
    CannotApplyError,
    Effect,
    Model,
    Run,
    State,
    Update,
    applied,
    holds,
    sorted_rows,
)
from tests.judge.tables import Layout, Row, as_file, random_row
from tests.judge.units import Anomaly, Unit, Units, asked_at, queries
from tests.support.orders import TooManyError, find_order

CANDIDATES = 120
"""Rows that are tried against what a transaction says it read, for each table, beside those that are there."""

SEARCHED_AT_MOST = 4_000
"""Sets of transactions that the search for a serial order looks at; more are an answer of its own."""


def judge(history: History) -> list[Anomaly]:
    """Return all that is wrong with a history."""
    return _Judge(history).judged()


class _Judge:
    def __init__(self, history: History) -> None:
        self._history = history
        found = Units(history)
        self._units = found.units
        self._anomalies = found.anomalies
        self._model = Model(history.program.tables, history.start)
        self._states: dict[int, State] = {history.version: history.start}
        self._effects: dict[str, Effect] = {}
        self._pending: list[Unit] = []

    def judged(self) -> list[Anomaly]:
        try:
            if self._fold():
                self._reads()
                self._contents()
                if self._history.program.isolation == "SERIALIZABLE":
                    self._units = [self._settled(unit) for unit in self._units if unit.base in self._states]
                    self._order()
                    self._coverage()
        finally:
            self._model.close()
        return self._anomalies

    def _wrong(self, kind: str, unit: Unit, what: str) -> None:
        self._anomalies.append(Anomaly(kind, what, unit.name))

    # --- states -------------------------------------------------------------------------------------------------------

    def _fold(self) -> bool:
        """Make the state of each database version, of what its unit does to the one that it saw."""
        self._units = [unit for unit in self._units if unit.base >= self._history.version]  # else told already
        plain = [unit for unit in self._units if unit.kind == "plain"]
        made = {unit.version: unit for unit in self._units if unit.version is not None and unit.kind != "plain"}
        ids = {id: name for name, id in self._history.ids.items()}
        for entry in self._history.entries:
            state = self._states[entry.version - 1]
            if entry.kind == "external":
                tables = {ids[write.id] for write in entry.writes}
                absorbed = [u for u in plain if u.operations[0].table in tables and u.base <= entry.version]  # type: ignore[union-attr]
                absorbed = self._absorbed(entry, absorbed, ids)
                for unit in absorbed:
                    plain.remove(unit)
                    self._effects[unit.name] = self._effect(unit, state)
                    state = applied(state, self._effects[unit.name])
                self._states[entry.version] = state
                continue
            unit_made = made.get(entry.version)
            if unit_made is None:
                if entry.writes:
                    self._anomalies.append(Anomaly("error", f"database version {entry.version} is nobody's"))
                    return False
                self._states[entry.version] = state
                continue
            effect = self._effect(unit_made, self._states[unit_made.base])
            self._effects[unit_made.name] = effect
            try:
                self._states[entry.version] = applied(state, effect)
            except CannotApplyError as error:
                self._wrong("lost-update", unit_made, str(error))
                return False
        self._pending = plain
        return True

    def _absorbed(self, entry: Entry, candidates: list[Unit], ids: Mapping[str, str]) -> list[Unit]:
        """Return the plain commits that an entry took in: as many of each table as it has versions, oldest first."""
        left = {ids[write.id]: write.to_version - write.from_version for write in entry.writes}
        found = []
        for unit in candidates:
            table = unit.operations[0].table  # type: ignore[union-attr]
            if left[table]:
                left[table] -= 1
                found.append(unit)
        return found

    def _effect(self, unit: Unit, state: State) -> Effect:
        self._model.load(state)
        return self._model.run(unit.operations).effect

    def _truth(self, version: int, step: int) -> State:
        """Return a version's state, with what plain writers committed before a step and nobody has taken in yet."""
        state = self._states[version]
        for unit in self._pending_at(version, step):
            state = applied(state, self._effect(unit, state))
        return state

    def _pending_at(self, version: int, step: int) -> list[Unit]:
        plain = [unit for unit in self._units if unit.kind == "plain" and unit.first < step]
        return [u for u in plain if u.name not in self._effects or not self._is_in(u, version)]

    def _is_in(self, unit: Unit, version: int) -> bool:
        table = unit.operations[0].table  # type: ignore[union-attr]
        came = self._effects[unit.name].came[table]
        return not came - self._states[version][table] or self._was_in(unit, version)

    def _was_in(self, unit: Unit, version: int) -> bool:
        """Tell whether a plain writer's rows were in an earlier version: somebody has changed them since."""
        table = unit.operations[0].table  # type: ignore[union-attr]
        came = self._effects[unit.name].came[table]
        return any(not came - state[table] for v, state in self._states.items() if v <= version)

    # --- what was seen ------------------------------------------------------------------------------------------------

    def _reads(self) -> None:
        for unit in self._units:
            if unit.kind == "plain" or not unit.observed:
                continue
            versions = [v for v in range(unit.base, unit.newest + 1) if v in self._states]
            runs = []
            for version in versions:
                fresh = version == unit.newest
                self._model.load(self._truth(version, unit.first) if fresh else self._states[version])
                runs.append(self._model.run(unit.operations))
            for number, query in queries(unit):
                seen = unit.observed[number]
                meant = [answer for run in runs for answer in run.answers[number].values()]
                if not any(holds(seen, answer, query.limit) for answer in meant):
                    self._wrong(
                        "wrong-read",
                        unit,
                        f"{unit.texts[number]}\n    answered {seen}\n    and means {meant[-1]} at {versions}",
                    )

    def _contents(self) -> None:
        last = max(self._states)
        truth = self._truth(last, len(self._history.done))
        for name, held in self._history.contents.items():
            if held != truth[name]:
                more, less = sorted_rows((held - truth[name]).elements()), sorted_rows((truth[name] - held).elements())
                self._anomalies.append(Anomaly("wrong-contents", f"table {name}: has {more}, has not {less}"))

    def _settled(self, unit: Unit) -> Unit:
        """Return the unit with each of its queries asked where it was, if it may have been at several places."""
        if unit.kind != "transaction":
            return unit
        self._model.load(self._states[unit.base])
        answers = self._model.run(unit.operations).answers
        for number, query in queries(unit):
            right = [at for at, answer in answers[number].items() if holds(unit.observed[number], answer, query.limit)]
            unit = asked_at(unit, number, right[-1] if right else query.at[-1])
        return unit

    # --- a serial order -----------------------------------------------------------------------------------------------

    def _order(self) -> None:
        """Look for an order in which each unit, after those before it, sees and does what it saw and did."""
        records = self._history.program.record_reads
        units = [
            unit
            for unit in self._units
            if unit.name in self._effects
            or (unit.kind == "transaction" and unit.committed and records and unit.version is not None)
        ]
        units.sort(key=self._place)
        if any(a.kind == "wrong-read" for a in self._anomalies):
            return  # nothing has an order that cannot be at all
        try:
            order = find_order(units, self._history.start, self._next, at_most=SEARCHED_AT_MOST)
        except TooManyError:
            self._anomalies.append(
                Anomaly("error", f"no serial order of {len(units)} was found in {SEARCHED_AT_MOST} tries")
            )
            return
        if order is None:
            names = ", ".join(f"{unit.name} ({unit.version} from {unit.base})" for unit in units)
            self._anomalies.append(Anomaly("no-serial-order", names))

    def _place(self, unit: Unit) -> float:
        if unit.version is not None:
            return unit.version
        return unit.base + 0.5

    def _next(self, unit: Unit, state: State) -> State | None:
        """Return the state after a unit, if it sees and does in this one what it saw and did; else None."""
        self._model.load(state)
        run = self._model.run(unit.operations)
        effect = self._effects.get(unit.name, Effect({}, {}))
        if not self._is_same(unit, run, effect):
            return None
        try:
            return applied(state, run.effect)
        except CannotApplyError:
            return None

    def _is_same(self, unit: Unit, run: Run, effect: Effect) -> bool:
        if run.effect != effect:
            return False
        return all(
            any(holds(unit.observed[number], answer, query.limit) for answer in run.answers[number].values())
            for number, query in queries(unit)
        )

    # --- what is recorded ---------------------------------------------------------------------------------------------

    def _coverage(self) -> None:
        entries = {entry.version: entry for entry in self._history.entries}
        for unit in self._units:
            if unit.version is not None and unit.kind != "plain":
                self._covered(unit, entries[unit.version])

    def _covered(self, unit: Unit, entry: Entry) -> None:
        state = self._states[unit.base]
        self._model.load(state)
        meant = self._model.run(unit.operations)
        rng = random.Random(f"{self._history.program.seed}/{unit.name}")
        read = {each.id: each.predicates for each in entry.reads}
        own = {op.table for op in unit.operations if isinstance(op, Update)} if unit.kind == "statement" else set()
        for table in self._history.program.tables:
            predicates = read.get(self._history.ids[table.name], [])
            if predicates is None or table.name in own:  # of its own table Delta judges a statement on its own
                continue
            for how, row in _candidates(rng, table, state):
                file = as_file(table, row, self._history.physical[table.name])
                if any(may_match(predicate, file) for predicate in predicates):
                    continue
                if self._differs(unit, meant, (how, table.name, row)):
                    texts = "; ".join(unit.texts)
                    self._wrong("unrecorded-read", unit, f"{how} {row} in {table.name}, not in {predicates}: {texts}")
                    break

    def _differs(self, unit: Unit, meant: Run, change: tuple[str, str, Row]) -> bool:
        run = self._model.run(unit.operations, change)
        return run.effect != meant.effect or run.answers != meant.answers


def _candidates(rng: random.Random, table: Layout, state: State) -> Sequence[tuple[str, Row]]:
    """Return rows that could be there, and those that are."""
    there = [("without", row) for row in state[table.name]]
    if table.name == "ids":
        return [*there, *(("with", (k,)) for k in range(-1, 6))]
    rows = list(state[table.name])
    new = [random_row(rng, "nobody", -1) for _ in range(CANDIDATES)]
    # A row that differs from one that is there in one value alone: what a condition of many parts lets through.
    for row in rows:
        other, at = random_row(rng, "nobody", -1), rng.randrange(len(row) - 2)
        new.append((*row[:at], other[at], *row[at + 1 : -2], "nobody", -1))
    return [*there, *(("with", row) for row in new)]
