"""How often transactions of a made-up load are refused, by the rule that they are held to: pure functions, one seed.

Eight transactions are open at any time, and in each step one of them, drawn at random, commits or is refused, and
another begins. The load is a pipeline:

    ingest   appends a file to one of four raw tables, and reads nothing
    etl      reads a raw table, all of it or its newest day, and appends to one of four derived tables
    merge    reads the newest day of a raw table and a region of the one dimension table, and rewrites that region
    point    updates one row, by id, of the one accounts table of 100 files
    report   reads two derived tables and appends to the one table of reports

Each also says which rows it read and wrote, which no rule gets to see. By them it is told whether one was refused for
nothing: a transaction that had committed all the same would be in no circle of dependencies.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from lockstep.conflict.serializable import Antidependency, judge
from lockstep.conflict.writes import Changes, Conflict, first_conflict
from lockstep.delta.footprint import Footprint
from lockstep.delta.pruning.predicates import FileValues
from lockstep.delta.pruning.row_sets import EVERY_ROW, Rows

OPEN, STEPS, SEED = 8, 4_000, 20_260_301
MIX = {"ingest": 40, "etl": 25, "merge": 10, "point": 20, "report": 5}
FILES, REGIONS, IDS_IN_A_FILE = 100, 20, 1_000
STEPS_IN_A_DAY = 200
WHOLE_TABLE = 0.5
"""The share of etl jobs that read all days."""
RECENT = 200
"""So many of the last commits are searched for circles, which are as long as transactions are open: some ten steps."""

Verdict: TypeAlias = "bool | Antidependency | None"
Judge: TypeAlias = Callable[[Changes, list[Changes]], Verdict]
"""Tells whether a transaction is refused, by True; else the first antidependency, if it looks for one."""


def snapshot(mine: Changes, winners: list[Changes]) -> Verdict:
    return any(first_conflict(mine, winner) for winner in winners)


def serializable(mine: Changes, winners: list[Changes]) -> Verdict:
    if snapshot(mine, winners):
        return True
    found = judge(mine, winners)
    return True if isinstance(found, Conflict) else found


def no_stale_reads(mine: Changes, winners: list[Changes]) -> Verdict:
    """Refuse whatever read a table of which any row has changed since."""
    stale = any(winner.writes[id].data_change for winner in winners for id in mine.reads.keys() & winner.writes.keys())
    return stale or snapshot(mine, winners)


JUDGES: dict[str, Judge] = {
    "`SNAPSHOT`": snapshot,
    "`SERIALIZABLE`": serializable,
    "no table read may have changed": no_stale_reads,
}


Row: TypeAlias = tuple[str, ...]
"""A row by its table, and by what a reader may ask for; as what was read, it is all rows that begin so."""


@dataclass(frozen=True)
class Tried:
    """A transaction: its kind, what the rules see of it, the place that it rewrites, and the rows that they do not see.

    Attributes:
        at: the version that it got or, while it has none, would get.
    """

    kind: str
    changes: Changes
    rewrites: str
    read: frozenset[Row]
    wrote: Row
    at: int = 0

    def comes_before(self, other: Tried) -> bool:
        """Tell whether every serial order has this one before the other: it was seen, or did not see, what matters."""
        seen = self.at <= (other.changes.base or 0)
        unseen = other.at > (self.changes.base or 0)
        return (seen and other.has_read(self.wrote)) or (unseen and self.has_read(other.wrote))

    def has_read(self, row: Row) -> bool:
        return any(row[: len(asked)] == asked for asked in self.read)


def in_a_circle(mine: Tried, committed: list[Tried]) -> bool:
    """Tell whether a transaction would be in a circle of dependencies, did it commit behind these."""
    reached, fresh = set[int](), [mine]
    while fresh:
        one = fresh.pop()
        if one.at != mine.at and one.comes_before(mine):
            return True
        for other in committed:
            if other.at not in reached and other.at != one.at and one.comes_before(other):
                reached.add(other.at)
                fresh.append(other)
    return False


@dataclass
class Load:
    """A database under this load, and what it has committed and refused.

    Attributes:
        versions: by table and place in it, how often the file there was rewritten.
        entries: what committed, in order, as the rules see it; `committed` is the same with its rows.
        tried, refused, needless: how many transactions of each kind; the last are those refused for nothing.
    """

    judge: Judge
    draw: random.Random
    versions: Counter[str] = field(default_factory=Counter)
    entries: list[Changes] = field(default_factory=list)
    committed: list[Tried] = field(default_factory=list)
    tried: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    needless: Counter[str] = field(default_factory=Counter)
    begun: int = 0

    def run(self, steps: int) -> None:
        """Commit or refuse so many transactions."""
        pending = [self.begin() for _ in range(OPEN)]
        for _ in range(steps):
            place = self.draw.randrange(OPEN)
            mine = replace(pending[place], at=len(self.entries) + 1)
            self.tried[mine.kind] += 1
            if not self.commit(mine):
                self.refused[mine.kind] += 1
                self.needless[mine.kind] += not in_a_circle(mine, self.committed[-RECENT:])
            pending[place] = self.begin()

    def commit(self, mine: Tried) -> bool:
        found = self.judge(mine.changes, self.entries[mine.changes.base :])
        if found is True:
            return False
        precedes = found.winner.database_version if isinstance(found, Antidependency) else None
        self.entries.append(replace(mine.changes, database_version=mine.at, precedes=precedes))
        self.committed.append(mine)
        self.versions[mine.rewrites] += 1
        return True

    def begin(self) -> Tried:
        """Return the next transaction, as it will be when it is done."""
        self.begun += 1
        # All draws are made whatever the kind, so that the same transactions are tried under each judge.
        kind = self.draw.choices(list(MIX), list(MIX.values()))[0]
        raw, derived, other = (self.draw.randrange(4) for _ in range(3))
        region, id, part = self.draw.randrange(REGIONS), self.draw.randrange(FILES * IDS_IN_A_FILE), self.draw.random()
        new, today = str(self.begun), self.day()
        newest = frozenset({f"(day = '{today}')"})
        reads: dict[str, Rows]
        rewrites, read = "", set[Row]()
        wrote: Row = (f"derived{derived}", new)
        match kind:
            case "ingest":
                reads, writes, wrote = {}, {f"raw{raw}": self.append({"day": today})}, (f"raw{raw}", today, new)
            case "etl":
                reads = {f"raw{raw}": EVERY_ROW if part < WHOLE_TABLE else newest}
                writes = {f"derived{derived}": self.append({})}
                read = {(f"raw{raw}",) if part < WHOLE_TABLE else (f"raw{raw}", today)}
            case "merge":
                rewrites, wrote = f"dimension-{region}", ("dimension", str(region))
                reads = {f"raw{raw}": newest, "dimension": frozenset({f"(region = '{region}')"})}
                writes = {"dimension": self.rewrite(rewrites, {"region": str(region)}, None)}
                read = {(f"raw{raw}", today), wrote}
            case "point":
                rewrites, wrote = f"accounts-{id // IDS_IN_A_FILE}", ("accounts", str(id))
                reads = {"accounts": frozenset({f"(id = {id})"})}
                writes = {"accounts": self.rewrite(rewrites, {}, id - id % IDS_IN_A_FILE)}
                read = {wrote}
            case _:
                reads = {f"derived{derived}": EVERY_ROW, f"derived{other}": EVERY_ROW}
                writes, wrote = {"reports": self.append({})}, ("reports", new)
                read = {(f"derived{derived}",), (f"derived{other}",)}
        changes = Changes(f"t{new}", writes=writes, reads=reads, base=len(self.entries))
        return Tried(kind, changes, rewrites, frozenset(read), wrote)

    def day(self) -> str:
        return str(self.begun // STEPS_IN_A_DAY)

    def append(self, partition: dict[str, str | None]) -> Footprint:
        added = frozenset({f"new-{self.begun}"})
        return Footprint(added_paths=added, data_change=True, rows_added=(FileValues(partition, None),), blind=True)

    def rewrite(self, place: str, partition: dict[str, str | None], low: int | None) -> Footprint:
        stats = None
        if low is not None:
            bounds = {"minValues": {"id": low}, "maxValues": {"id": low + IDS_IN_A_FILE - 1}}
            stats = json.dumps({"numRecords": IDS_IN_A_FILE, "nullCount": {"id": 0}, **bounds})
        return Footprint(
            removed_paths=frozenset({f"{place}-{self.versions[place]}"}),
            added_paths=frozenset({f"new-{self.begun}"}),
            data_change=True,
            rows_added=(FileValues(partition, stats),),
            rows_removed=(FileValues(partition, None),),
        )


def rates(steps: int = STEPS) -> str:
    """Run the load under each judge, and return the table of what share was refused, and what share for nothing."""
    rows = []
    for name, judge_ in JUDGES.items():
        load = Load(judge_, random.Random(SEED))
        load.run(steps)
        shares = [(load.refused[kind], load.needless[kind], load.tried[kind]) for kind in MIX]
        every = (load.refused.total(), load.needless.total(), load.tried.total())
        rows.append(f"| {name} | {' | '.join(_share(*share) for share in (every, *shares))} |")
    return "\n".join([f"| refused (for nothing), by | all | {' | '.join(MIX)} |", "|---" * (len(MIX) + 2) + "|", *rows])


def _share(refused: int, needless: int, tried: int) -> str:
    return f"{refused / tried:.1%} ({needless / tried:.1%})"


if __name__ == "__main__":
    print(rates())
