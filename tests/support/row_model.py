"""What a lake must hold, in sets of rows: no files, no logs, no rebase, and nothing of Lockstep's.

A transaction's effect is the rows that it removed and the rows that it added, and what it did to names and properties,
each against its snapshot. A database version is the one before it with one effect applied. That this can be done at
all is what conflicts are for, so an effect that does not fit raises `WrongResultError`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import networkx as nx

from tests.support.rows import Row, Where, matching


class WrongResultError(AssertionError):
    """Two transactions are both committed, and no way of running them gives both what they got."""


@dataclass(frozen=True, slots=True)
class TableState:
    """A table: what it is called, its rows, its properties."""

    name: str
    rows: frozenset[Row] = frozenset()
    properties: Mapping[str, str] = field(default_factory=dict)


State: TypeAlias = Mapping[str, TableState]
"""The tables of a database version, by their ids."""


@dataclass
class ModelTransaction:
    """One transaction.

    Attributes:
        base, snapshot: the database version at BEGIN, and what was in it.
        view: what it sees.
        reads: the tables that it read, by id, and which rows; also what it read and undid.
        used: ids of the tables that it read or wrote, and names that it gave, in statements that were not undone.
        version: the database version that it made; None before.
    """

    base: int
    snapshot: State
    view: dict[str, TableState] = field(init=False)
    reads: list[tuple[str, Where]] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    version: int | None = None
    _savepoints: list[tuple[str, dict[str, TableState]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.view = dict(self.snapshot)

    # --- statements ---------------------------------------------------------------------------------------------------

    def find(self, name: str) -> str:
        """Return the id of the table of this name."""
        return next(id for id, table in self.view.items() if table.name == name)

    def select(self, id: str, where: Where) -> list[Row]:
        """Return the rows that satisfy a condition, and note that they were read."""
        self.used.add(id)
        if id in self.snapshot:
            self.reads.append((id, where))
        return matching(self.view[id].rows, where)

    def change(self, id: str, gone: Iterable[Row] = (), new: Iterable[Row] = ()) -> None:
        """Remove rows and add others."""
        self.used.add(id)
        table = self.view[id]
        self.view[id] = replace(table, rows=(table.rows - frozenset(gone)) | frozenset(new))

    def alter(self, id: str, key: str, value: str) -> None:
        """Set a property."""
        self.used.add(id)
        self.view[id] = replace(self.view[id], properties={**self.view[id].properties, key: value})

    def create(self, id: str, table: TableState) -> None:
        """Make a table."""
        self.used |= {id, table.name}
        self.view[id] = table

    def drop(self, id: str) -> None:
        """Drop a table."""
        self.used.add(id)
        del self.view[id]

    def rename(self, id: str, name: str) -> None:
        """Rename a table."""
        self.used |= {id, name}
        self.view[id] = replace(self.view[id], name=name)

    def savepoint(self, name: str) -> None:
        """Remember what it sees."""
        self._savepoints.append((name, dict(self.view)))

    def savepoints(self) -> list[str]:
        """The savepoints that it has, oldest first."""
        return [name for name, _ in self._savepoints]

    def rollback_to(self, name: str) -> None:
        """See again what was seen then."""
        at = self._at(name)
        del self._savepoints[at + 1 :]
        self.view = dict(self._savepoints[at][1])

    def release(self, name: str) -> None:
        """Forget a savepoint and those after it."""
        del self._savepoints[self._at(name) :]

    def _at(self, name: str) -> int:
        return max(at for at, (known, _) in enumerate(self._savepoints) if known == name)

    # --- its effect ---------------------------------------------------------------------------------------------------

    def changed(self) -> set[str]:
        """Ids of the tables that are not as they were."""
        return {id for id in self.view.keys() | self.snapshot.keys() if self.view.get(id) != self.snapshot.get(id)}

    def names(self) -> set[str]:
        """The names that it gave, or took away."""
        tables = [(self.snapshot.get(id), self.view.get(id)) for id in self.changed()]
        names = [{table.name for table in both if table is not None} for both in tables]
        return {
            name for both, found in zip(tables, names, strict=True) if None in both or len(found) > 1 for name in found
        }

    def touches(self, id: str, where: Where) -> bool:
        """Whether it changed what a reader of these rows sees: one of the rows, or the table's name."""
        now, was = self.view.get(id), self.snapshot.get(id)
        if now is None or was is None:
            return now is not was
        return now.name != was.name or bool(matching(now.rows ^ was.rows, where))

    def applied_to(self, state: State) -> dict[str, TableState]:
        """Return a database with this effect.

        Raises:
            WrongResultError: it does not fit.
        """
        new = dict(state)
        for id in self.changed():
            was, now = self.snapshot.get(id), self.view.get(id)
            new.pop(id, None)
            if (table := _applied(id, state.get(id), was, now)) is not None:
                new[id] = table
        names = [table.name for table in new.values()]
        if len(set(names)) < len(names):
            raise WrongResultError(f"two tables have the same name: {sorted(names)}")
        return new


def _applied(id: str, there: TableState | None, was: TableState | None, now: TableState | None) -> TableState | None:
    """Do to a table what was done to it elsewhere."""
    if was is None:
        if there is not None:
            raise WrongResultError(f"table {id} was made twice")
        return now
    if there is None:
        raise WrongResultError(f"table {was.name} was changed, and is gone")
    if now is None:
        if there != was:
            raise WrongResultError(f"table {was.name} was dropped with changes that the transaction never saw")
        return None
    gone = was.rows - now.rows
    if not gone <= there.rows:
        raise WrongResultError(f"rows of table {was.name} were removed twice: {sorted(gone - there.rows)}")
    if was.properties not in (now.properties, there.properties):
        raise WrongResultError(f"the properties of table {was.name} were changed twice: {there.properties} is lost")
    if was.name not in (now.name, there.name):
        raise WrongResultError(f"table {was.name} was renamed twice")
    name = there.name if now.name == was.name else now.name
    properties = there.properties if now.properties == was.properties else now.properties
    return TableState(name, (there.rows - gone) | (now.rows - was.rows), properties)


# --- a serial order ---------------------------------------------------------------------------------------------------


def explain(committed: Sequence[ModelTransaction], result: State) -> None:
    """Find a serial order of committed transactions, and run them in it, from an empty database.

    Raises:
        WrongResultError: there is none, or it gives a transaction other rows than it read, or another result.
    """
    graph = nx.DiGraph()
    graph.add_nodes_from(range(len(committed)))
    graph.add_edges_from(
        (one, two)
        for one, before in enumerate(committed)
        for two, after in enumerate(committed)
        if one != two and _comes_before(before, after)
    )
    try:
        order = list(nx.lexicographical_topological_sort(graph, key=lambda at: committed[at].version))
    except nx.NetworkXUnfeasible:
        circle = [committed[one].version for one, _ in nx.find_cycle(graph)]
        raise WrongResultError(f"no serial order explains the database versions {circle}") from None
    state: State = {}
    for tx in (committed[at] for at in order):
        for id, where in tx.reads:
            then, now = tx.snapshot[id], state.get(id)
            if now is None or now.name != then.name or matching(now.rows ^ then.rows, where):
                raise WrongResultError(f"version {tx.version} read {then.name} where {where}, and would read {now}")
        state = tx.applied_to(state)
    if state != result:
        raise WrongResultError(f"the serial order {[committed[at].version for at in order]} ends in {state}")


def _comes_before(one: ModelTransaction, two: ModelTransaction) -> bool:
    """Whether one transaction comes directly before another in every serial order (Adya's ww, wr and rw)."""
    assert one.version is not None
    assert two.version is not None
    if any(two.touches(id, where) for id, where in one.reads) and two.version > one.base:
        return True
    if one.version > two.version:
        return False
    if any(one.touches(id, where) for id, where in two.reads) and one.version <= two.base:
        return True
    return bool(one.names() & two.names()) or any(_both(id, one, two) for id in one.changed() & two.changed())


def _both(id: str, one: ModelTransaction, two: ModelTransaction) -> bool:
    """Whether what both did to a table has an order: adding rows, removing others, and setting a property has none."""
    rows, altered = [], []
    for tx in (one, two):
        now, was = tx.view.get(id), tx.snapshot.get(id)
        if now is None or was is None or now.name != was.name:
            return True
        altered.append(now.properties != was.properties)
        rows.append((was.rows - now.rows, now.rows - was.rows))
    (_, came), (went, _) = rows
    return all(altered) or bool(came & went)
