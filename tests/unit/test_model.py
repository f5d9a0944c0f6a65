"""Transactions of several processes, step by step, against a model that knows rows only.

Hypothesis makes the steps, real statements (`tests.support.statements`) run them on a lake in a folder, and after each
commit all of the lake is compared with the model (`tests.support.row_model`). Where another transaction came between, a
conflict is always allowed; a wrong result never is. `--hypothesis-profile=long` runs it for long.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from lockstep.commit.outcomes import Committed
from lockstep.delta.log import staging_folder
from lockstep.errors import ConflictError
from lockstep.lake.verify import verify
from lockstep.retry import RACE
from lockstep.timeline.entry import Entry, Isolation
from lockstep.timeline.files import entry_path
from lockstep.transactions.transaction import Transaction
from tests.support.faulty import FaultyStorage
from tests.support.lakes import named, open_catalog
from tests.support.replay import published
from tests.support.row_model import ModelTransaction, State, TableState, explain
from tests.support.rows import Condition, Properties, Reader, Row, Where, wrong_row_ids
from tests.support.statements import PART, TRACKING, VECTORS, Statements, insert_plainly
from tests.support.unsynced import UnsyncedStorage

pytestmark = pytest.mark.long

PROCESSES = 3
NAMES = ("a", "b", "c")
IDS = 4
"""So few that transactions meet."""

VERBS = ("insert", "delete", "delete", "update", "update", "select", "optimize")
CONDITIONS = (*(Condition("=", id) for id in range(IDS) for _ in range(3)), Condition("<", 2), Condition(">=", 2), None)
DEFINITIONS = ("create", "drop", "rename", "alter")
FEATURES: tuple[Properties, ...] = (
    {},
    {VECTORS: "true"},
    {TRACKING: "true"},
    {VECTORS: "true", TRACKING: "true"},
)


@dataclass(frozen=True, slots=True)
class Change:
    """A statement on the rows of a table: `numbers` are the ids that an INSERT gives its rows."""

    verb: str
    table: int
    where: Where
    numbers: list[int]


processes = st.integers(0, PROCESSES - 1)
tables = st.sampled_from([0, 1, 1, 2])  # of two tables, each as often as the other
names = st.sampled_from(NAMES)
meetings = st.sampled_from(["same rows", "other rows", "skew"])
numbers = st.lists(st.integers(0, IDS - 1), min_size=1, max_size=3)
changes = st.builds(Change, st.sampled_from(VERBS), tables, st.sampled_from(CONDITIONS), numbers)


@dataclass(frozen=True, slots=True)
class Open:
    """An open transaction: Lockstep's, its statements, and the model's."""

    tx: Transaction
    run: Statements
    model: ModelTransaction

    def table(self, number: int) -> str:
        """Return one of the tables that it sees; a name that no table has if it sees none."""
        seen = sorted(table.name for table in self.model.view.values())
        return seen[number % len(seen)] if seen else ""


class Processes(RuleBasedStateMachine):
    """Some processes, each with a transaction open or not, and the model of the lake at each database version.

    Attributes:
        isolation, record_reads: how all of them are set.
        history: by database version, what must be in it.
        changed: by database version, the ids and the names of the tables that its entry is about.
        committed: what has to have a serial order.
    """

    isolation: Isolation = "SERIALIZABLE"
    record_reads = False

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        storage = UnsyncedStorage(Path(self.folder.name))
        self.stores = [FaultyStorage(storage) for _ in range(PROCESSES)]
        self.catalogs = [open_catalog(each) for each in self.stores]
        self.observer = open_catalog(storage)
        self.open: dict[int, Open] = {}
        self.history: list[State] = [{}]
        self.changed: list[set[str]] = [set()]
        self.committed: list[ModelTransaction] = []
        self.serials = 0

    def teardown(self) -> None:
        self.folder.cleanup()

    @initialize()
    def two_tables(self) -> None:
        for catalog in self.catalogs:
            catalog.isolation, catalog.record_reads = self.isolation, self.record_reads
            catalog.backoff = replace(RACE, sleep=lambda _: None)
        one = self._begun(0)
        self._create(one, "a", {TRACKING: "true"})
        self._create(one, "b", {VECTORS: "true", TRACKING: "true"})
        self.commit(0)

    # --- statements ---------------------------------------------------------------------------------------------------

    @rule(at=processes, change=changes, then=st.sampled_from(["go on", "go on", "commit"]))
    def change(self, at: int, change: Change, then: str) -> None:
        one = self._begun(at)
        if name := one.table(change.table):
            id = one.model.find(name)
            gone, new = self._run(one, name, change)
            if change.verb not in ("insert", "optimize"):
                found = one.model.select(id, change.where)
                assert Counter(gone) == Counter(found), "what it finds, in the database version at BEGIN and its own"
            one.model.change(id, [] if change.verb == "select" else gone, new)
        if then == "commit":
            self.commit(at)

    def _run(self, one: Open, name: str, change: Change) -> tuple[list[Row], list[Row]]:
        """Run a statement, and return the rows that it found, and those that it wrote."""
        new: list[Row] = []

        def changed(row: Row) -> Row:
            new.append(self._row(row.id))
            return new[-1]

        match change.verb:
            case "insert":
                new = [self._row(number) for number in change.numbers]
                one.run.insert(name, new)
                return [], new
            case "delete":
                return one.run.delete(name, change.where), []
            case "update":
                return one.run.update(name, change.where, changed), new
            case "select":
                return one.run.select(name, change.where), []
            case _:
                one.run.optimize(name)
                return [], []

    @rule(at=processes, what=st.sampled_from(DEFINITIONS), table=tables, name=names, features=st.sampled_from(FEATURES))
    def define(self, at: int, what: str, table: int, name: str, features: Properties) -> None:
        """CREATE, DROP, RENAME and ALTER TABLE."""
        one = self._begun(at)
        old = one.table(table)
        is_free = named(name) not in one.tx.tables
        if what == "create" and is_free:
            self._create(one, name, features)
        elif what == "drop" and old:
            one.tx.changing().drop_table(named(old))
            one.model.drop(one.model.find(old))
        elif what == "rename" and old and is_free:
            one.tx.changing().rename_table(named(old), named(name))
            one.model.rename(one.model.find(old), name)
        elif what == "alter" and old:
            self.serials += 1
            one.run.alter(old, "comment", str(self.serials))
            one.model.alter(one.model.find(old), "comment", str(self.serials))

    def _create(self, one: Open, name: str, features: Properties) -> None:
        rows = [self._row(number) for number in range(IDS)]
        one.run.create(name, rows, **features)
        one.model.create(one.tx.table(named(name)).id, TableState(name, frozenset(rows), features))

    # --- savepoints ---------------------------------------------------------------------------------------------------

    @rule(at=processes, what=st.sampled_from(["set", "back", "back", "release"]), name=st.sampled_from(["s", "t"]))
    def savepoint(self, at: int, what: str, name: str) -> None:
        """SAVEPOINT, ROLLBACK TO and RELEASE."""
        one = self._begun(at)
        if what == "set":
            one.tx.savepoint(name)
            one.model.savepoint(name)
        elif name in one.model.savepoints():
            if what == "back":
                self.catalogs[at].rollback_to(one.tx, name)
                one.model.rollback_to(name)
                self._check_view(one)
            else:
                one.tx.release(name)
                one.model.release(name)

    @rule(at=processes, change=changes)
    def undo(self, at: int, change: Change) -> None:
        """SAVEPOINT, a change, ROLLBACK TO: that they follow each other is too rare otherwise."""
        self.savepoint(at, "set", "u")
        self.change(at, change, "go on")
        self.savepoint(at, "back", "u")

    # --- ends ---------------------------------------------------------------------------------------------------------

    @rule(at=processes)
    def commit(self, at: int) -> None:
        if (one := self.open.pop(at, None)) is None:
            return
        began = len(self.stores[at].calls)
        try:
            done = self.catalogs[at].commit(one.tx)
        except ConflictError as error:
            self._check_refused(one, error)
        else:
            self._landed(one.model, done)
        calls = self.stores[at].calls[began:]
        read_or_written = ("get", "put", "put_if_absent")
        assert not [call for call in calls if PART in call[1] and call[0] in read_or_written], "a data file"
        self._check_ended(one)

    @rule(at=processes, other=processes)
    def commit_while_another_does(self, at: int, other: int) -> None:
        """The other is first, at the last moment: just before the entry is put."""
        if at != other and {at, other} <= self.open.keys():
            entry = entry_path(self.versions)
            self.stores[at].interrupt("put_if_absent", lambda: self.commit(other), path=entry)
            self.commit(at)
            self.stores[at].heal()  # if it never came so far, the other goes on

    @rule(at=processes, other=processes, both=st.tuples(changes, changes), how=meetings, late=st.booleans())
    def two_at_once(self, at: int, other: int, both: tuple[Change, Change], how: str, late: bool) -> None:
        """Both change the same table and commit: that they meet is too rare otherwise."""
        first, second = both
        if at == other:
            return
        self._begun(at)
        self._begun(other)
        where = first.where if how == "same rows" else _next(first.where)
        second = replace(second, table=first.table, where=where)
        if how == "skew":  # each looks at what the other is going to change
            self.change(at, replace(second, verb="select"), "go on")
            self.change(other, replace(first, verb="select"), "go on")
        self.change(at, first, "go on")
        self.change(other, second, "go on")
        if late:
            self.commit_while_another_does(at, other)
        self.commit(other)
        self.commit(at)

    two_at_once_too = two_at_once  # a rule of its own, so drawn twice as often

    @rule(at=processes)
    def rollback(self, at: int) -> None:
        if (one := self.open.pop(at, None)) is not None:
            self.catalogs[at].rollback(one.tx)
            self._check_ended(one)

    @rule(table=tables, numbers=numbers)
    def insert_as_plain_delta(self, table: int, numbers: list[int]) -> None:
        head = self.observer.database().tables
        if not head:
            return
        name = sorted(head)[table % len(head)]
        rows = [self._row(number) for number in numbers]
        insert_plainly(self.observer.lake.storage, head[name], rows, str(self.serials))
        model = ModelTransaction(self.versions - 1, self.history[-1])
        model.change(head[name].id, new=rows)
        version = self.observer.database([name]).version
        self._landed(model, Committed(version, self.observer.timeline.entries(version - 1)[0]))
        self._check_lake()

    # --- the model's side ---------------------------------------------------------------------------------------------

    @property
    def versions(self) -> int:
        """How many database versions there must be."""
        return len(self.history)

    def _begun(self, at: int) -> Open:
        if at not in self.open:
            tx = self.catalogs[at].begin()
            assert tx.base.version == self.versions - 1, "the snapshot is the newest database version"
            model = ModelTransaction(tx.base.version, self.history[-1])
            self.open[at] = Open(tx, Statements(self.catalogs[at], tx), model)
        return self.open[at]

    def _row(self, number: int) -> Row:
        self.serials += 1
        return Row(number, self.serials % 3, self.serials)

    def _landed(self, model: ModelTransaction, done: Committed) -> None:
        """Take a commit into the model; it must fit."""
        if done.entry is None:
            assert not model.changed(), "what it changed is lost"
            assert done.version == model.base
            return
        assert done.version == self.versions, "database versions follow each other"
        self.history.append(model.applied_to(self.history[-1]))
        self.changed.append(_about(done.entry))
        model.version = done.version
        self.committed.append(model)
        if self.isolation == "SERIALIZABLE":
            explain(self.committed, self.history[-1])

    # --- what must hold -----------------------------------------------------------------------------------------------

    def _check_view(self, one: Open) -> None:
        """Compare all that a transaction sees, without its knowing: that is no read."""
        assert {table.id: name.table for name, table in one.tx.tables.items()} == {
            id: table.name for id, table in one.model.view.items()
        }
        for table in one.tx.tables.values():
            seen = one.run.reader.seen_by(one.tx, table)
            assert one.run.reader.contents(table.location, seen) == Counter(one.model.view[table.id].rows)
            assert seen.properties == one.model.view[table.id].properties

    def _check_refused(self, one: Open, why: ConflictError) -> None:
        """Another transaction was at a table, or a name, that this one used."""
        since = self.changed[one.tx.base.version + 1 :]
        assert any(changed & one.model.used for changed in since), f"there is nobody to conflict with: {why}"

    def _check_ended(self, one: Open) -> None:
        """Nothing that was staged stays, and nothing is gone that anybody sees."""
        for table in {*one.tx.tables.values(), *one.tx.base.tables.values()}:
            assert not self.observer.lake.storage.list(staging_folder(table.location, one.tx.id))
        for other in self.open.values():
            self._check_view(other)
        self._check_lake()

    def _check_lake(self) -> None:
        """Every database version is what it was, for a process that has just looked."""
        self.observer.database()
        databases = [self.observer.timeline.at(version) for version in range(self.versions)]
        assert self.observer.timeline.head.version == self.versions - 1
        assert verify(self.observer.lake.storage, self.observer.timeline).differences == ()
        reader = Reader(self.observer.lake.storage)
        last = {table.location: table.version for database in databases for table in database.tables.values()}
        logs = {location: [*published(reader.storage, location, version)] for location, version in last.items()}
        found = {location: [*reader.history(location, logs[location])] for location in logs}
        for version, (database, state) in enumerate(zip(databases, self.history, strict=True)):
            assert {table.id: name.table for name, table in database.tables.items()} == {
                id: table.name for id, table in state.items()
            }, f"the tables of database version {version}"
            for table in database.tables.values():
                rows, properties = found[table.location][table.version]
                assert rows == Counter(state[table.id].rows), f"table {table.name} in database version {version}"
                assert properties == state[table.id].properties
        assert not [wrong for log in logs.values() if (wrong := wrong_row_ids(log))]


def _next(where: Where) -> Where:
    """Return the same condition on another id."""
    return where and where._replace(bound=(where.bound + 1) % IDS)


def _about(entry: Entry) -> set[str]:
    """Return the ids and the names of the tables that an entry is about."""
    named = {name.table for ddl in entry.tables for name in (ddl.name, ddl.new_name) if name is not None}
    return {write.id for write in entry.writes} | {ddl.id for ddl in entry.tables} | named


class SnapshotProcesses(Processes):
    isolation = "SNAPSHOT"


class RecordingProcesses(Processes):
    record_reads = True


BOUNDED = settings(
    max_examples=20, stateful_step_count=30, deadline=None, derandomize=True, suppress_health_check=[*HealthCheck]
)


@pytest.mark.parametrize(
    "machine",
    [
        pytest.param(SnapshotProcesses, id="snapshot"),
        pytest.param(Processes, id="serializable"),
        pytest.param(RecordingProcesses, id="serializable, readers too"),
    ],
)
def test_every_database_version_is_what_the_model_says(machine: type[Processes]) -> None:
    is_long = settings.get_current_profile_name() == "long"
    run_state_machine_as_test(machine, settings=settings.get_profile("long") if is_long else BOUNDED)
