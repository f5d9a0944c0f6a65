"""`python -m tests.bench.conflicts`: what the conflict check costs, and how often it refuses; in docs/benchmarks.md.

Its section stands between two comments, which `tests.bench` keeps when it writes the page anew.
"""

from __future__ import annotations

import argparse
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterator
from functools import cache
from math import inf

from lockstep.conflict.serializable import Antidependency, judge
from lockstep.conflict.writes import Changes, Conflict, first_conflict
from lockstep.delta.actions import Action, parse, render
from lockstep.delta.footprint import Footprint, footprint
from lockstep.delta.pruning.covers import covers
from lockstep.delta.pruning.predicates import FileValues
from lockstep.delta.pruning.row_sets import EVERY_ROW, Rows
from lockstep.timeline.entry import Name
from tests.bench.aborts import STEPS, rates
from tests.bench.bounds import Bound, exit_if_missed
from tests.bench.page import DOCUMENT, conditions, with_section

MARK = "conflicts"
OURS, WINNERS, THEIRS = 10_000, 1_000, 1_000
"""Files that we changed, winners, and files that each winner changed."""
BOUND_SECONDS = 0.5
FEW, MANY = 50, 250
"""Winners of two runs whose peaks of memory are compared; to trace all of memory takes many times the time."""

NAME = Name(namespace=("s",), table="a")
CASES: dict[str, tuple[Rows, Rows]] = {
    "nothing": (frozenset(), frozenset()),
    "every row; winners none": (EVERY_ROW, frozenset()),
    "a partition, winners in others": (frozenset({"(p = 'none')"}), EVERY_ROW),
    "a range of ids, winners another": (frozenset({"((id >= -9) AND (id < 0))"}), frozenset({"(id >= {n})"})),
    "64 ids, winners a range without": (frozenset(f"(id = {-n})" for n in range(1, 65)), frozenset({"(id > {n})"})),
}
"""What we read, and what each winner read; {n} is another number for each, so that no two conditions are the same."""


def footprint_of(prefix: str, count: int) -> Footprint:
    """Return what a commit touched that rewrote so many files of ten partitions, each of its own range of ids.

    Its removals say partitions and no statistics, as Delta's do.
    """
    came = tuple(FileValues({"p": str(n % 10)}, _stats(n)) for n in range(count))
    went = tuple(FileValues({"p": str(n % 10)}, None) for n in range(count))
    return Footprint(
        removed_paths=frozenset(f"{prefix}-old-{n}.parquet" for n in range(count)),
        added_paths=frozenset(f"{prefix}-new-{n}.parquet" for n in range(count)),
        data_change=True,
        rows_added=came,
        rows_removed=went,
        covers_added=covers(came),
        covers_removed=covers(went),
    )


@cache
def _stats(n: int) -> str:
    bounds = f'"minValues":{{"id":{n * 10}}},"maxValues":{{"id":{n * 10 + 9}}},"nullCount":{{"id":0}}'
    return f'{{"numRecords":9,{bounds}}}'


def winners(count: int, read: Rows) -> Iterator[Changes]:
    """Make winners one at a time, as they come out of the timeline."""
    for n in range(2, count + 2):
        wrote = {"A": footprint_of(f"w{n}", THEIRS)}
        rows = None if read is None else frozenset(condition.replace("{n}", str(n)) for condition in read)
        yield Changes(f"w{n}", writes=wrote, reads={"A": rows}, names={"A": NAME}, base=1, database_version=n)


def mine(read: Rows, files: int = OURS) -> Changes:
    """Make a transaction of ours that rewrote so many files and read these rows."""
    return Changes("m", writes={"A": footprint_of("m", files)}, reads={"A": read}, names={"A": NAME}, base=1)


def judged(ours: Changes, made: Iterator[Changes]) -> tuple[float, int]:
    """Judge ours against winners as COMMIT does, and return the CPU seconds, and the number of conflicts."""
    seconds, conflicts = 0.0, 0
    first: Antidependency | None = None
    for winner in made:
        started = time.process_time()
        found: object = first_conflict(ours, winner)
        if found is None:
            found = judge(ours, [winner], first)
        seconds += time.process_time() - started
        conflicts += isinstance(found, Conflict)
        first = found if isinstance(found, Antidependency) else first
    return seconds, conflicts


def peak_bytes(run: Callable[[], object]) -> int:
    """Return the peak of memory that Python allocated while something ran."""
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def cost(repeats: int) -> tuple[str, list[Bound]]:
    """Measure all cases, and return the table of what they cost, and its bounds."""
    rows, bounds = [], list[Bound]()
    judged(mine(frozenset({"(id = 1)"}), 1), winners(1, frozenset({"(id = 2)"})))  # the first one imports the parser
    for name, (read, theirs) in CASES.items():
        ours = mine(read)
        fresh, conflicts = judged(ours, winners(WINNERS, theirs))
        again = statistics.median(judged(ours, winners(WINNERS, theirs))[0] for _ in range(repeats))
        few, many = (_mebibytes(ours, winners(n, theirs)) for n in (FEW, MANY))
        checks = [
            Bound(f"the conflict check, {name}, {when}", inf if conflicts else seconds, BOUND_SECONDS)
            for when, seconds in (("first", fresh), ("again", again))
        ]
        bounds += checks
        verdicts = [check.verdict for check in checks]
        rows.append(f"| {name} | {fresh:.3f} | {verdicts[0]} | {again:.3f} | {verdicts[1]} | {few:.1f} | {many:.1f} |")
        print(rows[-1], flush=True)
    return "\n".join([
        f"| rows read | first, s | kept | again, s | kept | peak, MiB: {FEW} winners | {MANY} winners |",
        "|---" * 7 + "|",
        *rows,
    ]), bounds  # fmt: skip


def _mebibytes(ours: Changes, made: Iterator[Changes]) -> float:
    return peak_bytes(lambda: judged(ours, made)) / 2**20


def reading() -> tuple[float, float]:
    """Return how long a winner's commit takes to be read and summed up, and how much of that its covers take, in ms."""
    actions: list[Action] = []
    for n in range(THEIRS):
        file = {"path": f"old-{n}.parquet", "partitionValues": {"p": str(n % 10)}, "size": 1, "dataChange": True}
        actions += [{"remove": file}, {"add": {**file, "path": f"new-{n}.parquet", "stats": _stats(n)}}]
    data = render(actions)
    found = footprint(actions)
    whole = statistics.median(_milliseconds(lambda: footprint(parse(data))) for _ in range(21))
    sides = (found.rows_added, found.rows_removed)
    return whole, statistics.median(_milliseconds(lambda: [covers(side) for side in sides]) for _ in range(21))


def _milliseconds(run: Callable[[], object]) -> float:
    started = time.process_time()
    run()
    return (time.process_time() - started) * 1000


def text(costs: str, read: tuple[float, float], refused: str, repeats: int) -> str:
    """Return the section."""
    return f"""## The conflict check

The check alone, without Spark and storage (`make bench-conflicts`): a transaction that rewrote {OURS:,} files of a
table is judged at `SERIALIZABLE` behind {WINNERS:,} winners that rewrote {THEIRS:,} other files each, by what all of
them wrote and read. The bound is {BOUND_SECONDS} s, of CPU. No two winners read by the same condition: the *first* time
each one's is parsed; *again* (the median of {repeats}) they are known, as when the next transaction meets them. The
peak is what Python allocates while winners come one by one. To read a winner's commit, once, takes {read[0]:.1f} ms
before that, of which {read[1]:.1f} ms go into the [covers](../python/lockstep/delta/pruning/covers.py) by which many
files are judged as few. Measured on {conditions()}: other
work makes it slower.

{costs}

How often transactions are refused, and how often for nothing: a made-up load ([`aborts.py`](../tests/bench/aborts.py)),
eight transactions open at any time, {STEPS:,} tried, the same under each rule. *For nothing* is by rows: had the
transaction committed, there would be a serial order still.

{refused}"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.conflicts", description=__doc__)
    parser.add_argument("--no-write", action="store_true", help="print only; leave docs/benchmarks.md as it is")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    costs, bounds = cost(args.repeats)
    found = text(costs, reading(), rates(), args.repeats)
    print(found)
    if not args.no_write:
        DOCUMENT.write_text(with_section(DOCUMENT.read_text(encoding="utf-8"), MARK, found), encoding="utf-8")
    exit_if_missed(bounds)


if __name__ == "__main__":
    main()
