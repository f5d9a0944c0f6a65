"""The clients of a schedule: processes that run random transactions, statements and DDL, and plain Delta writers."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from lockstep.commit.outcomes import Taken
from lockstep.commit.records import abort
from lockstep.delta.actions import Action, render
from lockstep.delta.log import commit_path
from lockstep.errors import (
    CommitUnknownError,
    LockstepError,
    StagedFilesMissingError,
    TransactionStateError,
    UnavailableError,
)
from lockstep.transactions.transaction import Transaction
from tests.sim.effects import WHOLE, changes_files
from tests.sim.journal import Attempt, PlainCommit
from tests.sim.participant import Participant
from tests.sim.statements import Statements
from tests.sim.store import SimulatedStorage
from tests.sim.world import PLAIN, RESTORED, TABLES, World
from tests.support.history import Add
from tests.support.keyed import data_file
from tests.support.lakes import named
from tests.support.replay import BrokenTableError


class Client(Participant[World, SimulatedStorage]):
    """A process with a catalog, in which one or more threads run transactions."""

    def __init__(self, world: World, storage: SimulatedStorage) -> None:
        super().__init__(world, storage)
        self.under_way: dict[str, Transaction] = {}

    def run(self) -> None:
        """Run transactions; the first thread of a process opens the catalog for all."""
        if self.catalog is None:
            self.catalog = self.open()
        for _ in range(self.world.plan.scripts):
            self.chance.choice(self.work)(self)

    @property
    def work(self) -> Sequence[Callable[[Any], None]]:
        """What a client does, each as often as any other."""
        return QUICK if self.world.plan.is_quick else WORK

    def transaction(self, script: Callable[[Statements], None], **options: object) -> None:
        """Run one transaction to its end."""
        began = self.scheduler.steps
        try:
            tx = self.there.begin(record_reads=True, isolation=self.world.plan.isolation, **options)  # type: ignore[arg-type]
        except LockstepError:
            return
        attempt = Attempt(tx.id, self.storage.process.name, tx.base.version, began, at=self.scheduler.now)
        self.world.journal.attempts[tx.id] = attempt
        self.under_way[tx.id] = tx
        try:
            self._carry_out(script, tx, attempt)
        finally:
            self.under_way.pop(tx.id)

    def _carry_out(self, script: Callable[[Statements], None], tx: Transaction, attempt: Attempt) -> None:
        try:
            script(Statements(self.there, tx, attempt, self.world))
        except BrokenTableError as error:
            if self.world.may_lose_files(attempt):
                self.roll_back(tx, attempt, str(error))
                return
            self.world.journal.contradictions.append(f"{tx.id} reads at {tx.base.version}: {error}")
        except LockstepError as error:
            if attempt.is_one_statement or self.chance.random() < 0.9:
                self.roll_back(tx, attempt, str(error))
                return
        if self.chance.random() < 0.06:
            self.roll_back(tx, attempt, "changed its mind")
        else:
            self.commit(tx, attempt)

    def commit(self, tx: Transaction, attempt: Attempt) -> None:
        """COMMIT, and again if nobody knows what became of it; or let it be."""
        attempt.over_at = self.scheduler.now
        for _ in range(100):
            try:
                done = self.there.commit(tx)
                attempt.settle("ok", done.version, at=self.scheduler.steps)
                return
            except CommitUnknownError as error:
                attempt.settle("info", why=error.message)
                if self.chance.random() < 0.15:
                    self.roll_back(tx, attempt, "gave up")
                    return
                if self.chance.random() < 0.1:
                    return  # somebody else finds out
            except LockstepError as error:
                is_loss = isinstance(error, StagedFilesMissingError) and any(p in error.message for p in attempt.wrote)
                if is_loss and not self.world.may_lose_files(attempt):
                    self.world.journal.contradictions.append(f"{tx.id} commits: {error}")
                if not tx.is_open:
                    attempt.settle("fail", at=self.scheduler.steps, why=error.message)
                    return
                if self.chance.random() < 0.3:
                    self.roll_back(tx, attempt, error.message)
                    return
            self.scheduler.sleep(self.chance.random())
        attempt.settle("info", why="gave up asking")

    def roll_back(self, tx: Transaction, attempt: Attempt, why: str) -> None:
        """ROLLBACK."""
        attempt.over_at = attempt.over_at or self.scheduler.now
        try:
            self.there.rollback(tx)
            attempt.settle("fail", at=self.scheduler.steps, why=why)
        except CommitUnknownError as error:
            attempt.settle("info", why=error.message)
        except TransactionStateError as error:
            if tx.version is None:
                self.world.journal.contradictions.append(f"{tx.id} is committed, as no version: {error}")
            attempt.settle("ok", tx.version or 0, at=self.scheduler.steps, why="found at ROLLBACK")
        except LockstepError as error:
            attempt.settle("info", why=error.message)

    def find_out(self, attempt: Attempt) -> None:
        """Ask what became of a transaction of a process that is gone."""
        try:
            done = self.there.find_out(attempt.id, attempt.base)
        except LockstepError:
            return  # somebody else asks
        attempt.settle_as_found(done)

    # --- kinds of work ------------------------------------------------------------------------------------------------

    def writes_many(self) -> None:
        """Reads and writes of some tables."""
        self.transaction(self._some)

    def writes_all(self) -> None:
        """One row into each of the three tables."""
        is_large = self.chance.random() < 0.5

        def script(do: Statements) -> None:
            for name in TABLES:
                if named(name) in do.tx.tables:
                    do.insert(name, "set0", is_large=is_large)

        self.transaction(script)

    def appends(self) -> None:
        """One row into one table: such transactions of one process become a group."""
        self.transaction(lambda do: do.insert(self.chance.choice(TABLES), "set0"))

    def skew(self) -> None:
        """Read one list, and write another: two of these at once have no serial order."""
        one, other = self.chance.sample(["t0", "t1"], 2)

        def script(do: Statements) -> None:
            do.read(one, "list0")
            do.rewrite(other, "list0")

        self.transaction(script)

    def reads_all(self) -> None:
        def script(do: Statements) -> None:
            for name in TABLES:
                if named(name) in do.tx.tables:
                    do.read(name, "set0")
                    do.read(name, "list0")

        self.transaction(script, read_only=True)

    def reads_old(self) -> None:
        """Read an older version."""
        head = self.there.timeline.head.version

        def script(do: Statements) -> None:
            for name in sorted(do.tx.tables):
                do.read(name.table, "set0")

        self.transaction(script, read_only=True, as_of=self.chance.randint(0, head))

    def statement(self) -> None:
        """An autocommitted INSERT, as Delta's log store asks for it."""
        name = self.chance.choice(TABLES)
        path, value = f"part-{self.world.new_id('f')}.parquet", self.world.new_id("v")
        attempt = Attempt("", self.storage.process.name, self.there.timeline.head.version, self.scheduler.steps)
        try:
            for _ in range(5):
                table = self.there.database([named(name)]).tables.get(named(name))
                if table is None:
                    return
                self.storage.put(f"{table.location}/{path}", json.dumps([value]).encode())
                info: Action = {"commitInfo": {"operation": "WRITE", "readVersion": table.version}}
                new = data_file(path, "set0", [value])
                new["add"]["modificationTime"] = int(self.there.lake.clock().timestamp() * 1000)
                actions = [info, new]
                attempt.effects = [partial(changes_files, id=table.id, removed=(), added={path: WHOLE})]
                attempt.ops = [] if name == RESTORED else [Add(f"{table.id}/set0", value)]
                attempt.id, attempt.status = self.world.next_id, "info"  # `write` is going to take it
                self.world.journal.attempts[attempt.id] = attempt
                done = self.there.write(table.location, table.version + 1, render(actions).decode())
                if not isinstance(done, Taken):
                    attempt.settle("ok", done.version, at=self.scheduler.steps)
                    return
                attempt.settle("fail", why="taken")
                attempt.ops = []  # the next one writes the same value
                attempt = Attempt("", self.storage.process.name, self.there.timeline.head.version, self.scheduler.steps)
        except CommitUnknownError as error:
            attempt.settle("info", why=error.message)
        except LockstepError as error:
            attempt.settle("fail", at=self.scheduler.steps, why=error.message)

    def changes_names(self) -> None:
        """Create, drop, rename, undrop, restore, or make a view or a tag."""
        if not self.world.plan.with_names:
            return

        def script(do: Statements) -> None:
            self.chance.choice(self._name_changes(do))()
            if self.chance.random() < 0.4:
                do.insert("t0", "set0")

        self.transaction(script)

    def _name_changes(self, do: Statements) -> list[Callable[[], None]]:
        """Return what can be done to names as they are."""
        found: list[Callable[[], None]] = [
            lambda: do.view("w"),
            lambda: do.tag(f"tag{self.chance.randint(0, 3)}"),
            lambda: do.restore(RESTORED, self.chance.randint(1, do.tx.base.version)),
        ]
        for name, other in (("n0", "n1"), ("n1", "n0")):
            if named(name) in do.tx.tables:
                found += [partial(do.drop, name), partial(do.rename, name, other)]
            else:
                found += [partial(do.create, name), partial(do.undrop, name)]
        is_there = named(RESTORED) in do.tx.tables
        return [*found, partial(do.drop if is_there else do.undrop, RESTORED)]

    def aborts(self) -> None:
        """End a transaction of somebody else, or of one's own."""
        open_ones = [a for a in self.world.journal.attempts.values() if a.status == "open" and a.base > 0]
        if not open_ones:
            return
        victim = self.chance.choice(open_ones)
        try:
            lake = self.there.lake
            victim.is_asked_to_end = True
            abort(
                lake, victim.id, author="ada", statement="CALL abort", snapshot=victim.base, backoff=self.there.backoff
            )
            victim.told.append("aborted")
        except LockstepError:
            pass

    def _some(self, do: Statements) -> None:
        names = [name for name in TABLES if named(name) in do.tx.tables]
        for _ in range(self.chance.randint(1, 4)):
            if not names:
                return
            name = self.chance.choice(names)
            draw = self.chance.random()
            if draw < 0.3:
                do.insert(name, "set0", is_large=self.chance.random() < 0.2)
            elif draw < 0.55:
                do.rewrite(name, self.chance.choice(["list0", "list1"]))
            elif draw < 0.85:
                do.read(name, self.chance.choice(["list0", "list1", "set0"]))
            else:
                do.try_out(lambda name=name: do.insert(name, "set0"))  # type: ignore[misc]


WORK: tuple[Callable[[Client], None], ...] = (
    Client.writes_many,
    Client.writes_many,
    Client.writes_all,
    Client.appends,
    Client.appends,
    Client.skew,
    Client.reads_all,
    Client.reads_old,
    Client.statement,
    Client.changes_names,
    Client.aborts,
)


QUICK = (*[Client.appends] * 6, Client.skew, Client.reads_all)
"""Small transactions only."""


PLAIN_SECONDS = 1800.0
"""A plain writer's commit takes so long at most."""


class PlainWriter:
    """A Delta writer that knows nothing of Lockstep, and appends to tables' logs."""

    def __init__(self, world: World, storage: SimulatedStorage, locations: Sequence[str], ids: Sequence[str]) -> None:
        self.world = world
        self.storage = storage
        self.tables = list(zip(locations, ids, strict=True))

    def run(self) -> None:
        """Append to some tables, half of the time just when somebody is about to publish into one."""
        scheduler = self.world.scheduler
        for _ in range(2 * self.world.plan.scripts):
            table = scheduler.random.choice(self.tables)
            if scheduler.random.random() < 0.5:
                where = f"put_if_absent {table[0]}/_delta_log/0"
                scheduler.block(lambda where=where: any(t.at.startswith(where) for t in scheduler.tasks), 1)  # type: ignore[misc]
            self.append(*table)

    def append(self, location: str, id_: str) -> None:
        """Append one file; whatever goes wrong on the way is no concern of Lockstep's."""
        new = self.new_commit()
        try:
            self.storage.put(f"{location}/{new.path}", json.dumps([new.value]).encode())
            names = self.storage.list(f"{location}/_delta_log")
            version = 1 + max((int(n[:20]) for n in names if n.endswith(".json") and n[:20].isdigit()), default=-1)
            self.commit(location, id_, version, new)
        except UnavailableError:
            pass

    def new_commit(self, *more: Action) -> NewCommit:
        """Return a commit that appends a file, with more actions before that."""
        number = self.world.new_id(PLAIN.rstrip("-"))
        path, value = f"{number}.parquet", self.world.new_id("v")
        info: Action = {"commitInfo": {"operation": "WRITE", "engineInfo": "plain"}}
        new = data_file(path, "set0", [value])
        new["add"]["modificationTime"] = int(self.world.clock(self.storage.process).timestamp() * 1000)
        return NewCommit(number, path, value, render([info, *more, new]), self.world.scheduler.now)

    def commit(self, location: str, id_: str, version: int, new: NewCommit) -> None:
        """Put a commit into a table's log, unless there is one of that version.

        Raises:
            UnavailableError: the store failed.
        """
        self.world.journal.plain.append(PlainCommit(location, version, new.path, new.data))
        ops = [] if location == self.tables[-1][0] else [Add(f"{id_}/set0", new.value)]
        self.world.journal.attempts[new.number] = Attempt(new.number, "plain", 0, 0, ops=list(ops), is_plain=True)
        path = commit_path(location, version)

        def put() -> bool:
            # Who takes longer than an hour may have lost its data file to upkeep by then, as it may in plain Delta.
            is_quick = self.world.scheduler.now - new.began < PLAIN_SECONDS
            return is_quick and self.storage.disk.put_if_absent(path, new.data)

        self.storage.write("put_if_absent", path, put)


@dataclass(frozen=True, slots=True)
class NewCommit:
    """A plain writer's commit: a number, the file that it adds, that file's value, and since when it is made."""

    number: str
    path: str
    value: str
    data: bytes
    began: float
