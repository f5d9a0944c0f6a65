"""One client of a randomized history test: a process that runs random transactions, and writes down each step.

    python -m tests.support.workload '<Plan as JSON>'

Delta's part is played by a few lines. A row is a value of a key; a data file holds some rows of one key, and its
statistics say which key. Reading a table is replaying its published log up to the pin, then what is staged.

    append t0/list0.0    UPDATE: removes the list's file, adds one with a value more    reads the table
    merge  t0/set0.0     MERGE: the same with a set, all of whose files become one      reads the table
    add    t0/set0.0     INSERT: adds a file with one row                               reads nothing
    transfer             two accounts, which are lists: their last values are balances

What is done is a function of the plan's seed and the script's number; what comes of it is not, with several processes.
The journal has a line for each event, written before a step that others can notice and after one that tells something.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from lockstep.catalog import TransactionalCatalog
from lockstep.delta.actions import Action
from lockstep.delta.log import read_published, read_staged
from lockstep.errors import CommitUnknownError, ConflictError, LockstepError
from lockstep.storage import Storage, open_storage
from lockstep.timeline.entry import NEW, Isolation, Table
from lockstep.transactions.transaction import Transaction
from tests.support.faulty import FaultyStorage
from tests.support.lakes import add, named, open_catalog, remove, stage

Contents: TypeAlias = dict[str, tuple[str, ...]]
Step: TypeAlias = tuple[str, ...]
"""A verb and its keys: `("read", "t0/set0.0")`."""

ATTEMPTS = 3
"""How often a script is run that loses against another."""

ROLLED_BACK = 0.08
"""How many of the transactions that write change their minds."""

SCRIPTS_PER_KEY = 30
"""After so many scripts of each client new keys are used: longer lists would cost more than they tell."""

OPENING_BALANCE = 100


@dataclass(frozen=True, slots=True)
class Plan:
    """What one life of a client is to do.

    Attributes:
        root, journal: the lake's folder, and the file for the client's own account.
        client, life: whose life, and the how many-th: it begins with script `first`, after the last life's last.
        keys: how many lists, and as many sets, each table has at a time.
        pause_ms: the longest pause after a step, so that others come in between.
        dies_at: the number of the put-if-absent at which it kills itself, None to live; `dies_after` it, or before.
        broken: the defect of `tests.support.broken` to run with, or "".
    """

    root: str
    journal: str
    seed: int
    client: int
    life: int = 0
    first: int = 0
    scripts: int = 60
    isolation: Isolation = "SERIALIZABLE"
    tables: int = 4
    keys: int = 2
    pause_ms: float = 3
    record_reads: bool = False
    dies_at: int | None = None
    dies_after: bool = False
    broken: str = ""

    def json(self) -> str:
        """Return the command line's argument."""
        return json.dumps(asdict(self))


# --- what is done -----------------------------------------------------------------------------------------------------


def account(table: int) -> str:
    """Return the key of a table's account."""
    return f"t{table}/account"


def keys_of(table: int, kind: str, number: int, keys: int) -> list[str]:
    """Return the lists or the sets of a table that a client's script of this number is about."""
    return [f"t{table}/{kind}{number // SCRIPTS_PER_KEY}.{n}" for n in range(keys)]


def balance(value: object) -> int:
    """Return what an account holds whose last value is this: `1b.17.0=90` is 90."""
    return int(str(value).partition("=")[2])


def script(plan: Plan, number: int) -> list[Step]:
    """Return the steps of a client's script: an audit, a transfer, two reads and a write, or any steps."""
    chance = random.Random(f"{plan.seed}/{plan.client}/{number}")
    tables, kinds = range(plan.tables), ("list", "set")
    keys = [key for table in tables for kind in kinds for key in keys_of(table, kind, number, plan.keys)]
    match chance.choices(["audit", "transfer", "skew", "mixed"], [20, 25, 25, 30])[0]:
        case "audit":
            return [("read", account(table)) for table in chance.sample(range(plan.tables), plan.tables)]
        case "transfer":
            source, target = (account(table) for table in chance.sample(range(plan.tables), 2))
            return [("read", source), ("read", target), ("transfer", source, target)]
        case "skew":
            one, other = chance.sample(keys, 2)
            return [("read", one), ("read", other), (_write(chance, one), one)]
        case _:
            chosen = chance.choices(keys, k=chance.randint(1, 5))
            return [("read" if chance.random() < 0.5 else _write(chance, key), key) for key in chosen]


def _write(chance: random.Random, key: str) -> str:
    return chance.choice(["add", "add", "merge"]) if "/set" in key else "append"


# --- Delta's part -----------------------------------------------------------------------------------------------------


class UnreadableError(Exception):
    """A table version names a data file that is not there."""


class Tables:
    """Reads tables as a Delta reader does: from the published log, staged commits, and data files."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._replayed: dict[str, tuple[int, dict[str, str]]] = {}
        self._data: dict[str, tuple[str, ...]] = {}

    def files(self, location: str, version: int, staged: Iterable[Sequence[Action]] = ()) -> dict[str, str]:
        """Return the files of a table, oldest first, and the key of each.

        Published commits do not change, so a later version is replayed from an earlier one.
        """
        done, files = self._replayed.get(location, (NEW, {}))
        if done > version:
            done, files = NEW, {}
        for each in range(done + 1, version + 1):
            replay(files, read_published(self.storage, location, each))
        self._replayed[location] = version, dict(files)
        for actions in staged:
            replay(files, actions)
        return files

    def seen_by(self, tx: Transaction, table: Table) -> dict[str, str]:
        """Return a table's files as a transaction sees them."""
        staged = (read_staged(self.storage, table.location, tx.id, version) for version in tx.staged.get(table.id, []))
        return self.files(table.location, table.version, staged)

    def rows(self, location: str, files: Iterable[str]) -> tuple[str, ...]:
        """Return the values in some files, in order.

        Raises:
            UnreadableError: one of them is gone.
        """
        return tuple(value for path in files for value in self._read(f"{location}/{path}"))

    def _read(self, path: str) -> tuple[str, ...]:
        if path not in self._data:
            if (data := self.storage.get(path)) is None:
                raise UnreadableError(f"data file {path} is gone, and a table version names it")
            self._data[path] = tuple(json.loads(data))
        return self._data[path]

    def contents(self, tables: Iterable[Table]) -> Contents:
        """Return all keys of some table versions, with their values."""
        found: Contents = {}
        for table in tables:
            found |= self.grouped(table, self.files(table.location, table.version))
        return found

    def grouped(self, table: Table, files: dict[str, str]) -> Contents:
        """Return each key's values."""
        return {
            f"{table.name.table}/{key}": self.rows(table.location, [path for path in files if files[path] == key])
            for key in dict.fromkeys(files.values())
        }


def replay(files: dict[str, str], actions: Iterable[Action]) -> None:
    """Take one commit in: what it removes, then what it adds."""
    actions = list(actions)
    for action in actions:
        if "remove" in action:
            files.pop(action["remove"]["path"], None)
    for action in actions:
        if "add" in action:
            files[action["add"]["path"]] = json.loads(action["add"]["stats"])["minValues"]["key"]


def data_file(path: str, key: str, values: Sequence[str]) -> Action:
    """Return the add of a file that holds these rows of one key."""
    stats = {"numRecords": len(values), "minValues": {"key": key}, "maxValues": {"key": key}, "nullCount": {"key": 0}}
    return add(path, stats=json.dumps(stats))


def note_read(tx: Transaction, table: Table, key: str) -> None:
    """Tell the transaction what is read, as the host does of a query, and of the target of an UPDATE or a MERGE.

    The predicate is Catalyst's text of it; the files' statistics know the column.
    """
    tx.read(table, f"(key = '{key}')")


class Delta:
    """One transaction's statements, as Delta would run them."""

    def __init__(self, catalog: TransactionalCatalog, tables: Tables, tx: Transaction) -> None:
        self.catalog = catalog
        self.tables = tables
        self.tx = tx
        self._files = 0

    def read(self, key: str) -> tuple[str, ...]:
        """SELECT: return a key's values."""
        _, table, _, files = self._find(key)
        return self.tables.rows(table.location, files)

    def insert(self, key: str, value: str) -> None:
        """INSERT: a new file with one row; nothing is read."""
        table, column = key.split("/")
        self._stage(table, column, (value,), [], "WRITE")

    def rewrite(self, key: str, value: str, operation: str) -> None:
        """UPDATE or MERGE: one new file with a row more, in place of the key's files."""
        name, table, column, files = self._find(key)
        self._stage(name, column, (*self.tables.rows(table.location, files), value), files, operation)

    def _find(self, key: str) -> tuple[str, Table, str, list[str]]:
        """Return a key's table, and its files there; that is a read."""
        name, column = key.split("/")
        table = self.tx.table(named(name))
        note_read(self.tx, table, column)
        files = self.tables.seen_by(self.tx, table)
        return name, table, column, [path for path in files if files[path] == column]

    def _stage(self, table: str, column: str, values: Sequence[str], instead_of: Sequence[str], operation: str) -> None:
        self._files += 1
        new = data_file(f"part-{self.tx.id}-{self._files}.parquet", column, values)
        data = json.dumps(values).encode()
        stage(self.catalog, self.tx, table, *map(remove, instead_of), new, operation=operation, data=data)


# --- the client -------------------------------------------------------------------------------------------------------


class Client:
    """One life: runs its scripts, each until it is committed or has been refused often enough."""

    def __init__(self, plan: Plan) -> None:
        storage = FaultyStorage(open_storage(plan.root))
        self.plan = plan
        self.name = f"{plan.client}{chr(ord('a') + plan.life)}"
        self.catalog = open_catalog(storage, isolation=plan.isolation)
        self.tables = Tables(self.catalog.lake.storage)
        self._journal = os.open(plan.journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        if plan.dies_at is not None:
            _die_at(storage, plan.dies_at, after=plan.dies_after)

    def note(self, tx: str, event: str, **more: Any) -> None:
        """Write one line of the journal; it is out of this process before anything else happens."""
        line = {"at": time.monotonic_ns(), "tx": tx, "event": event, **more}
        os.write(self._journal, json.dumps(line).encode() + b"\n")

    def run(self) -> None:
        """Run the plan."""
        for number in range(self.plan.first, self.plan.scripts):
            chance = random.Random(f"{self.plan.seed}/{self.name}/{number}")
            for attempt in range(ATTEMPTS):
                if self._attempt(f"{self.name}.{number}.{attempt}", number, chance):
                    break
                time.sleep(chance.random() * 0.01)

    def _attempt(self, name: str, number: int, chance: random.Random) -> bool:
        """Run one transaction, and tell whether it need not be tried again."""
        steps = script(self.plan, number)
        self.note(name, "began", script=number)
        try:
            return self._transaction(name, steps, chance)
        except (LockstepError, UnreadableError) as error:
            self.note(name, "error", why=f"{type(error).__name__}: {error}")
            return True

    def _transaction(self, name: str, steps: Sequence[Step], chance: random.Random) -> bool:
        writes = any(verb != "read" for verb, *_ in steps)
        read_only = not writes and chance.random() < 0.5
        tx = self.catalog.begin(read_only=read_only, record_reads=self.plan.record_reads)
        try:
            delta = Delta(self.catalog, self.tables, tx)
            for n, step in enumerate(steps):
                self._step(delta, name, step, n, chance)
                time.sleep(chance.random() * self.plan.pause_ms / 1000)
            if writes and chance.random() < ROLLED_BACK:
                self.catalog.rollback(tx)
                self.note(name, "fail", why="rolled back")
                return True
            self.note(name, "committing")
            done = self.catalog.commit(tx)
            self.note(name, "ok", version=done.version)
        except ConflictError as error:
            self.note(name, "fail", why=error.message)
            return False
        except CommitUnknownError as error:
            self.note(name, "info", why=error.message)
        finally:
            if tx.is_open and tx.in_doubt is None:
                self.catalog.rollback(tx)
                self.note(name, "fail", why="it met an error")
        return True

    def _step(self, delta: Delta, name: str, step: Step, number: int, chance: random.Random) -> None:
        verb, *keys = step
        if verb == "read":
            self.note(name, "read", key=keys[0], values=delta.read(keys[0]))
            return
        amount = chance.randint(1, 30)
        for key, sign in zip(keys, (-1, 1), strict=False):
            value = f"{name}.{number}"
            if verb == "transfer":
                value = f"{value}={balance(delta.read(key)[-1]) + sign * amount}"
            self.note(name, "add" if verb in ("add", "merge") else "append", key=key, value=value)
            if verb == "add":
                delta.insert(key, value)
            else:
                delta.rewrite(key, value, "MERGE" if verb == "merge" else "UPDATE")


def _die_at(storage: FaultyStorage, number: int, *, after: bool) -> None:
    """Have this process killed at its `number`-th put-if-absent from now: no handler runs, nothing is flushed."""
    when: Literal["before", "after"] = "after" if after else "before"
    for _ in range(number - 1):
        storage.interrupt("put_if_absent", lambda: None, when=when)
    storage.interrupt("put_if_absent", lambda: os.kill(os.getpid(), signal.SIGKILL), when=when)


def main(argument: str) -> None:
    plan = Plan(**json.loads(argument))
    client = Client(plan)
    if plan.broken:
        from tests.support.broken import DEFECTS

        DEFECTS[plan.broken](client.catalog)
    client.run()


if __name__ == "__main__":
    main(sys.argv[1])
