"""Clients of a lake that is looked after: time passes, versions expire, files go, and persons decide and bring back.

They do what `tests.sim.clients` does, and between that

time        minutes or weeks pass, wherever everybody stands
upkeep      versions expire; `vacuum`, `remove_orphan_files` and `maintain`, each of which may be killed anywhere
open        transactions stay open while time passes, with a record that others find, or without
rows        are deleted by vectors; two transactions may take rows out of one file
tags        are made of old versions, for days or for ever, dropped, and read
back        tables are restored, brought back, and versions reverted
persons     settle what plain Delta writers made diverge, give tables back, and adopt them again
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

from lockstep.commit import records
from lockstep.commit.records import OpenRecord, record_of
from lockstep.errors import LockstepError, UnavailableError
from lockstep.recovery.divergence import Divergence, divergence
from lockstep.recovery.settle import Side, settle
from lockstep.retention.expiring import Expired, expire_snapshots
from lockstep.retention.upkeep import Maintained, Swept, maintain, remove_orphan_files, vacuum
from lockstep.transactions.state import State
from lockstep.transactions.transaction import Transaction
from tests.sim import effects
from tests.sim.clients import WORK, Client, PlainWriter
from tests.sim.journal import Attempt
from tests.sim.logs import Logs
from tests.sim.statements import Statements
from tests.sim.store import SimulatedStorage
from tests.sim.world import RESTORED, TABLES, World
from tests.support.lakes import named

NIGHT = timedelta(hours=12)
"""So much time passes at a time: in between, whoever has a transaction open says so."""

LONG = (timedelta(minutes=5), timedelta(hours=2), timedelta(hours=13), timedelta(days=2), timedelta(days=9))

SIDES: tuple[Side, ...] = ("ours", "theirs", "both")


class Caretaker(Client):
    """A process whose threads also look after the lake.

    Attributes:
        kept: its open transactions that others are told of.
        beaten: how often time had passed when it last told them.
        threads: how many of its threads have work to do yet.
    """

    def __init__(self, world: World, storage: SimulatedStorage) -> None:
        super().__init__(world, storage)
        world.caretakers.append(self)
        self.kept: dict[str, tuple[Transaction, Attempt]] = {}
        self.beaten = 0
        self.threads = 0

    @property
    def work(self) -> Sequence[Callable[[Any], None]]:
        return CARE

    def run(self) -> None:
        super().run()
        self.threads -= 1

    def keep(self) -> None:
        """Tell others of open transactions whenever time has passed, until the work is done."""
        while True:
            self.scheduler.block(lambda: not self.threads or (bool(self.kept) and self.beaten < self.world.nights))
            if not self.threads:
                return
            night = self.world.nights
            for tx, attempt in [*self.kept.values()]:
                self.tell(tx, attempt)
            self.beaten = night

    def tell(self, tx: Transaction, attempt: Attempt) -> None:
        """Write a transaction's record, at best effort."""
        at, record = self.scheduler.now, self._record(tx)
        try:
            records.write(self.there.lake, record)
        except LockstepError:
            return
        if tx.id in self.kept:
            attempt.beats.append((at, record.base_version))
            attempt.told_at = attempt.told_at or self.scheduler.now

    def _record(self, tx: Transaction) -> OpenRecord:
        return record_of(tx, now=self.there.lake.clock(), process=self.storage.process.name)

    @property
    def own(self) -> list[OpenRecord]:
        """Records of this process' transactions that have written something, as a session's host gives them."""
        return [self._record(tx) for tx in self.under_way.values() if tx.state is State.INFLIGHT]

    # --- time ---------------------------------------------------------------------------------------------------------

    def passes_time(self) -> None:
        """Have time pass, night after night."""
        left = self.chance.choice(LONG)
        while left > timedelta(0):
            self.world.nights += 1
            night = self.world.nights
            self.scheduler.pass_time(min(left, NIGHT).total_seconds())
            self.scheduler.block(partial(self._all_told, night), 60)
            left -= NIGHT

    def _all_told(self, night: int) -> bool:
        """Whether all processes have said that their transactions are open since so many nights had passed."""
        others = (each for each in self.world.caretakers if not each.storage.process.is_dead)
        return all(not each.kept or each.beaten >= night for each in others)

    def stays_open(self) -> None:
        """A transaction that writes, stays open while time passes, and reads and writes again."""
        self.transaction(self._long)

    def reads_for_long(self) -> None:
        """A reader of one version, be it an old one, while time passes."""
        options: dict[str, object] = {"read_only": True}
        if self.chance.random() < 0.5:
            options["as_of"] = self.some_version()

        def script(do: Statements) -> None:
            for _ in range(self.chance.randint(1, 2)):
                self._read_all(do)
                self.passes_time()
            self._read_all(do)

        self.transaction(script, **options)

    def _long(self, do: Statements) -> None:
        names = self._there(do)
        if not names:
            return
        writes: list[Callable[[str], None]] = [do.insert_rows, do.delete_row, partial(do.insert, key="set0")]
        self.chance.choice(writes)(self.chance.choice(names))
        if self.chance.random() < 0.7:
            self.kept[do.tx.id] = do.tx, do.attempt
            self.tell(do.tx, do.attempt)
        for _ in range(self.chance.randint(1, 2)):
            self.passes_time()
            self._read_all(do)
            if self.chance.random() < 0.5:
                do.insert_rows(self.chance.choice(names))

    def _carry_out(self, script: Callable[[Statements], None], tx: Transaction, attempt: Attempt) -> None:
        super()._carry_out(script, tx, attempt)
        if self.kept.pop(tx.id, None) is not None:
            records.remove(self.there.lake, tx.id)
        if any("--theirs" in told for told in attempt.told) and self.chance.random() < 0.5:
            self.settles()  # as it was told to

    def _read_all(self, do: Statements) -> None:
        for name in self._there(do):
            do.read_rows(name)

    @staticmethod
    def _there(do: Statements) -> list[str]:
        return [name for name in TABLES if named(name) in do.tx.tables]

    # --- upkeep -------------------------------------------------------------------------------------------------------

    def upkeep(self) -> None:
        """One run of what deletes: any of them, which may fail anywhere."""
        kept, lake = self.world.plan.retention, self.there.lake
        runs: list[Callable[[], object]] = [
            partial(maintain, lake, kept, own=self.own),
            partial(maintain, lake, kept, own=self.own),
            partial(vacuum, lake, kept, own=self.own),
            partial(vacuum, lake, kept, table=named(self.chance.choice(TABLES)), own=self.own),
            partial(remove_orphan_files, lake, kept, own=self.own),
            self._expire,
        ]
        try:
            with self.world.running():
                self.world.counts["runs"] += 1
                done = self.chance.choice(runs)()
        except LockstepError:
            self.world.counts["failed runs"] += 1  # a later one goes on
            return
        swept = done.swept if isinstance(done, Maintained) else done
        self.world.counts["expired"] += done.expired.versions if isinstance(done, Maintained) else 0
        self.world.counts["deleted"] += swept.deleted_files if isinstance(swept, Swept) else 0

    def nights(self) -> None:
        """Some runs, and time between them, as a schedule does it."""
        for _ in range(self.chance.randint(2, 3)):
            self.upkeep()
            self.passes_time()

    def _expire(self) -> Expired:
        lake, kept = self.there.lake, self.world.plan.retention
        return expire_snapshots(
            lake, older_than=lake.clock() - kept.age, retain_last=kept.last, grace=kept.grace, own=self.own
        )

    def litters(self) -> None:
        """Write a file that no commit will name, as a process does that dies."""
        try:
            table = self.there.timeline.head.tables.get(named(self.chance.choice(TABLES)))
            if table is not None:
                self.storage.put(f"{table.location}/litter-{self.world.new_id('f')}.parquet", b"[]")
        except UnavailableError:
            pass

    # --- what changes the lake ----------------------------------------------------------------------------------------

    def deletes_rows(self) -> None:
        """DELETE some rows of some files."""

        def script(do: Statements) -> None:
            for name in self._there(do):
                for _ in range(self.chance.randint(0, 2)):
                    do.delete_row(name)

        self.transaction(script)

    def tags_or_untags(self) -> None:
        """Make a tag of some version, for some days or for ever; or drop one."""

        def script(do: Statements) -> None:
            there = sorted(tag.name for tag in do.tx.base.tags.values())
            if there and self.chance.random() < 0.3:
                do.untag(self.chance.choice(there))
            else:
                version = self.chance.choice([None, self.some_version()])
                do.tag(f"kept{self.world.new_id('')}", version, self.chance.choice([None, 1, 20]))

        self.transaction(script)

    def reads_a_tag(self) -> None:
        """Read a tagged version, which must be there as long as the tag keeps it."""
        try:
            tags = sorted(tag.name for tag in self.there.timeline.head.tags.values())
        except UnavailableError:
            return
        if tags:
            self.transaction(self._read_all, read_only=True, as_of=self.chance.choice(tags))

    def brings_back(self) -> None:
        """RESTORE, UNDROP or revert."""

        def script(do: Statements) -> None:
            version = self.some_version()
            self.chance.choice(
                [
                    partial(do.restore, RESTORED, version),
                    partial(do.revert, min(version + 1, do.tx.base.version)),
                    partial(do.undrop if named(RESTORED) not in do.tx.tables else do.drop, RESTORED),
                ]
            )()

        self.transaction(script)

    def some_version(self) -> int:
        """Return a version that can be read, as far as this process knows."""
        head = self.there.timeline.head
        versions = [v for v in range(head.version + 1) if not head.expired.has(v)]
        return self.chance.choice([self.chance.choice(versions), versions[-1], *head.expired.kept[:1]])

    # --- what persons decide ------------------------------------------------------------------------------------------

    def gives_back(self) -> None:
        """Release a table, or adopt one that was released."""

        def script(do: Statements) -> None:
            given = self.world.journal.released
            there = [name for name in (RESTORED, "n0", "n1") if named(name) in do.tx.tables]
            if given and self.chance.random() < 0.6:
                do.adopt(*self.chance.choice(given))
            elif there:
                do.release(self.chance.choice(there))

        self.transaction(script)

    def settles(self) -> None:
        """Settle a table that has diverged, one way or another."""
        for name in TABLES:
            try:
                found = divergence(self.there.lake, named(name))
            except LockstepError:
                continue
            keep = self.chance.choice(SIDES)
            with suppress(LockstepError):  # it cannot be kept, or somebody was first
                settle(self.there.lake, found, keep, partial(self._settled, name, found, keep))

    def _settled(self, name: str, found: Divergence, keep: Side, change: Callable[[Transaction], None]) -> int:
        """Run what settles a table in a transaction, and note what it comes to."""
        attempts: list[Attempt] = []

        def script(do: Statements) -> None:
            do.attempt.is_one_statement = True
            old = do.tx.names.table(named(name))
            change(do.tx)
            new = do.tx.names.table(named(name))
            logs = Logs(self.storage.disk)
            common = logs.rows(old.location, found.common) if found.common >= 0 else {}
            theirs = logs.rows(old.location, found.newest)
            self.world.journal.unjudged |= {old.id, new.id}
            done = partial(effects.settles, name=name, old=old.id, new=new.id, keep=keep, common=common, theirs=theirs)
            do.attempt.effects.append(done)
            attempts.append(do.attempt)

        self.transaction(script)
        self.world.counts[f"settled {keep}"] += bool(attempts) and attempts[0].status == "ok"
        if not attempts or attempts[0].status != "ok":
            raise UnavailableError(f"not settled, as far as is known: {[each.told for each in attempts]}")
        return attempts[0].version


class Rival(PlainWriter):
    """A plain writer that commits just when somebody publishes; half of the time with a constraint, which conflicts."""

    def run(self) -> None:
        for _ in range(3 * self.world.plan.scripts):
            self.race(*self.world.scheduler.random.choice(self.tables))

    def race(self, location: str, id_: str) -> None:
        """Take the version of a table that somebody is about to publish; or just the next one, after some time."""
        scheduler = self.world.scheduler
        constraint = {f"delta.constraints.c{self.world.new_id('')}": "id > 0"}
        metadata = self.world.plan.new_table(**constraint)[1]
        new = self.new_commit(*([metadata] if scheduler.random.random() < 0.5 else []))
        asked = f"put_if_absent {location}/_delta_log/0"

        def versions() -> list[int]:
            about = (t.at for t in scheduler.tasks if t.at.startswith(asked) and t.at.endswith(".json"))
            return [int(at[len(asked) - 1 :][:20]) for at in about]

        try:
            self.storage.put(f"{location}/{new.path}", json.dumps([new.value]).encode())
            scheduler.block(lambda: bool(versions()), 5)
            self.commit(location, id_, max(versions(), default=Logs(self.storage.disk).newest(location) + 1), new)
        except UnavailableError:
            pass


def _care() -> Iterator[Callable[[Any], None]]:
    yield from WORK
    yield from [Caretaker.nights] * 3
    yield from [Caretaker.upkeep] * 3
    yield from [Caretaker.stays_open] * 3
    yield from [Caretaker.deletes_rows] * 3
    yield from [Caretaker.brings_back] * 2
    yield from [Caretaker.settles] * 4
    yield from (
        Caretaker.passes_time,
        Caretaker.reads_for_long,
        Caretaker.litters,
        Caretaker.tags_or_untags,
        Caretaker.reads_a_tag,
        Caretaker.gives_back,
    )


CARE = tuple(_care())
