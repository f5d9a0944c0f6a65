"""`python -m tests.bench.long`: a lake that grows to a million versions; in docs/benchmarks.md.

It tells whether what is asked of the lake costs the same however long its history is, and what expiry costs.

One lake is made and measured at each of its lengths, so that nothing but the length differs. Its entries, checkpoints
and segments are what Lockstep writes wherever one is read; elsewhere there is a file of that name (a link), so that
folders are as long as they would be, and that there is as much to delete. Nothing is flushed.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import timedelta
from itertools import islice
from operator import attrgetter
from pathlib import Path

from immutables import Map

from lockstep.storage import Names, Storage, open_storage
from lockstep.timeline.checkpoint import Checkpoints
from lockstep.timeline.database import Database
from lockstep.timeline.entry import Entry, Name, Namespace, NamespaceDdl, Table, TableDdl, names_in
from lockstep.timeline.expiry import expire
from lockstep.timeline.files import File, encode, entry_path
from lockstep.timeline.fold import DEFAULT_NAMESPACE
from lockstep.timeline.hint import Hint, write_hint
from lockstep.timeline.log import Timeline
from lockstep.timeline.manifest import manifest_path
from lockstep.timeline.parts import PART_ITEMS
from lockstep.timeline.segment import SEGMENT_VERSIONS, Segment, write_segment
from lockstep.timeline.state import State
from tests.bench.page import DOCUMENT, with_section
from tests.support.around import Around
from tests.support.entries import T0, entry
from tests.support.histories import write
from tests.support.unsynced import UnsyncedStorage

MARK = "long"
NAMESPACES = 100
EVERY = 100
SINCE = 50
"""Entries since the newest checkpoint, which is half of the interval's hundred."""

STRIDE = 7_919
"""A prime: tables are written in turn, and the next one is far away in the order of names."""

NAMES = 50_000
"""So many names may one file have, and some more: of ext4, 65,000."""

DELAY_SECONDS = 0.3
"""A store with this delay tells how many requests follow one another."""

OPEN_SECONDS = 0.5
OPEN_REQUESTS = 5
FLAT = 1.5
"""So many times as long as in a shorter history may something take in the longest, and `NOISE_SECONDS` more."""

NOISE_SECONDS = 0.05
MORE_REQUESTS = 4
MEMORY_MIB = 16
EXPIRY_REQUESTS = 1.2
"""For each version that expires."""

EXPIRY_MIB = 400


class CountingStorage(Around):
    """Counts requests to another store, and delays each."""

    def __init__(self, inner: Storage, delay_seconds: float = 0.0) -> None:
        """`in_sequence` is how many of them were made one behind the answer of the other."""
        self.inner = inner
        self.quick = inner.quick and not delay_seconds
        self.requests = 0
        self.in_sequence = 0
        self._delay_seconds = delay_seconds
        self._lock = threading.Lock()

    def _count(self) -> None:
        with self._lock:
            self.requests += 1
            place = self.in_sequence + 1  # behind those that were answered before this one was made
        if self._delay_seconds:
            time.sleep(self._delay_seconds)
        with self._lock:
            self.in_sequence = max(self.in_sequence, place)

    def get(self, path: str) -> bytes | None:
        self._count()
        return self.inner.get(path)

    def try_put(self, path: str, data: bytes) -> bool:
        self._count()
        return self.inner.try_put(path, data)

    def put(self, path: str, data: bytes) -> None:
        self._count()
        self.inner.put(path, data)

    def list(self, folder: str, after: str | None = None) -> Names:
        names = self.inner.list(folder, after)
        for _ in range(1 + len(names) // 1000):  # as an object store lists
            self._count()
        return names

    def exists(self, path: str) -> bool:
        self._count()
        return self.inner.exists(path)

    def delete(self, path: str) -> None:
        self._count()
        self.inner.delete(path)

    def delete_folder(self, path: str) -> None:
        self._count()
        self.inner.delete_folder(path)


@dataclass(frozen=True)
class Cost:
    """What something took: the best of some runs, and how many requests it made."""

    seconds: float
    requests: int


@dataclass(frozen=True)
class Row:
    """A lake at one length."""

    versions: int
    open: Cost
    in_sequence: int
    memory_mib: float
    show: Cost
    version: Cost
    moment: Cost
    log: Cost


@dataclass(frozen=True)
class Expiry:
    """What it cost to let versions expire: without the pause before the first deletion."""

    versions: int
    seconds: float
    requests: int
    memory_mib: float


def name_of(number: int) -> Name:
    return Name(namespace=(f"n{number % NAMESPACES:02}",), table=f"t{number:06}")


def made(version: int, tables: int) -> Entry:
    """The entry of a version: the first makes the tables, each later one writes one."""
    if version == 0:
        return entry(0)
    if version == 1:
        names = [(f"id-{number}", name_of(number)) for number in range(tables)]
        return entry(
            1,
            namespaces=[NamespaceDdl(action="create", name=(f"n{number:02}",)) for number in range(NAMESPACES)],
            tables=[TableDdl(action="create", id=id_, name=name, location=f"t/{id_}") for id_, name in names],
            writes=[write(-1, 0, "", id_, name=name, location=f"t/{id_}") for id_, name in names],
        )
    number, before = (version - 2) * STRIDE % tables, (version - 2) // tables
    id_ = f"id-{number}"
    return entry(version, writes=[write(before, before + 1, "", id_, name=name_of(number), location=f"t/{id_}")])


def database_at(version: int, tables: int) -> Database:
    """The database that the entries of `made` up to a version make; nobody has to apply them one by one."""
    rounds, rest = divmod(version - 1, tables)
    found: dict[Name, Table] = {}
    for place in range(tables):  # the order in which each round writes the tables
        number, writes = place * STRIDE % tables, rounds + (place < rest)
        since = 1 if not writes else (writes - 1) * tables + place + 2
        name, id_ = name_of(number), f"id-{number}"
        found[name] = Table(id=id_, name=name, location=f"t/{id_}", version=writes, since=since)
    namespaces: dict[Namespace, dict[str, str]] = {(f"n{number:02}",): {} for number in range(NAMESPACES)}
    return Database(
        version=version,
        committed_at=made(version, tables).committed_at,
        namespaces={DEFAULT_NAMESPACE: {}, **namespaces},
        tables=found,
    )


class Lake:
    """A lake in the making."""

    def __init__(self, root: str, tables: int, read: set[int], expiring: int) -> None:
        """Begin with nothing; around some versions is what Lockstep would write.

        So are the segments of all versions before the first that is to stay: expiry reads them before it deletes their
        entries.
        """
        self.store = UnsyncedStorage(Path(root))
        self._root, self._tables, self._end = Path(root), tables, 0
        self._real = {version for each in read for version in range(each - 2 * SINCE, each + 2 * SINCE)} | {0, 1}
        self._checkpoints = {version - SINCE for version in read}
        self._segments = {version // SEGMENT_VERSIONS for each in read for version in (each - 2 * SINCE, each)}
        self._segments |= {*range(expiring // SEGMENT_VERSIONS + 1)}

    def grow(self, count: int) -> None:
        """Go on to a version, and leave a hint of it."""
        for version in range(self._end, count + 1):
            if version in self._real:
                self._write(version)
            else:
                self._link(entry_path(version), version)
            if version and version % EVERY == 0 and version not in self._checkpoints:
                self._link(manifest_path(version), version)
            if (version + 1) % SEGMENT_VERSIONS == 0:
                self._segment(version)
        self._end = count + 1
        hint = Hint(version=count, published_through=count, checkpoint=count - SINCE)
        write_hint(self.store, hint)

    def _write(self, version: int) -> None:
        entry = made(version, self._tables)
        file = File(version, encode(entry), [entry])
        self.store.put(entry_path(version), file.data)
        if version in self._checkpoints:
            Checkpoints(self.store).write(State(database_at(version, self._tables), Map()), file)

    def _segment(self, last: int) -> None:
        first = last + 1 - SEGMENT_VERSIONS
        if last // SEGMENT_VERSIONS in self._segments:
            write_segment(self.store, [made(version, self._tables) for version in range(first, last + 1)])
        else:
            self._link(Segment(first, last, T0 + timedelta(seconds=last)).path, last)

    def _link(self, path: str, version: int) -> None:
        """Have a file of a name; one of a file system has room for so many names."""
        example = self._root / "examples" / f"{path.split('/')[1]}-{version // NAMES}"
        if not example.exists():
            example.parent.mkdir(exist_ok=True)
            example.write_bytes(manifest_like(self._tables) if "checkpoints" in path else b"not read")
        (self._root / path).parent.mkdir(parents=True, exist_ok=True)
        os.link(example, self._root / path)


def manifest_like(tables: int) -> bytes:
    """Bytes that name as many parts as a manifest does."""
    return b"".join(b'"%064x",' % part for part in range(3 * tables // PART_ITEMS))


def asked(count: int) -> list[int]:
    """Return versions to travel to, each half-way between two multiples of a hundred."""
    return [count * part // 16 // EVERY * EVERY + SINCE for part in (2, 7, 11)]


def cost(store: Storage, act: Callable[[Storage], object], repeats: int) -> Cost:
    found, counting = [], CountingStorage(store)
    for _ in range(repeats):
        counting.requests, began = 0, time.perf_counter()
        act(counting)
        found.append(time.perf_counter() - began)
    return Cost(min(found), counting.requests)  # others use this machine, too


def open_and_load(store: Storage) -> Timeline:
    """Open a lake and look one table up."""
    timeline = Timeline.open(store)
    timeline.head.tables[name_of(42)]
    return timeline


def in_sequence(store: Storage) -> int:
    """Return how many requests follow one another when a lake is opened and a table loaded."""
    slow = CountingStorage(store, DELAY_SECONDS)
    open_and_load(slow)
    return slow.in_sequence


def memory_mib(store: Storage) -> float:
    """Return what is in use of Python's memory while an opened lake lives."""
    tracemalloc.start()
    try:
        made = open_and_load(store)
        used, _ = tracemalloc.get_traced_memory()
        del made
    finally:
        tracemalloc.stop()
    return used / 2**20


def measured(store: Storage, count: int, repeats: int) -> Row:
    """Measure a lake at its length."""

    def travel(store: Storage) -> None:
        for version in asked(count):
            Timeline.open(store).at(version).tables[name_of(42)]

    def travel_in_time(store: Storage) -> None:
        for version in asked(count):
            found = Timeline.open(store).at_time(made(version, 100).committed_at)
            assert found.version == version

    def newest(store: Storage) -> None:
        assert len([*islice(Timeline.open(store).past(), 100)]) == 100

    def show(store: Storage) -> None:
        [*names_in(Timeline.open(store).head.tables, ("n07",))]

    return Row(
        versions=count,
        open=cost(store, open_and_load, repeats),
        in_sequence=min(in_sequence(store) for _ in range(2)),
        memory_mib=memory_mib(store),
        show=cost(store, show, repeats),
        version=cost(store, travel, repeats),
        moment=cost(store, travel_in_time, repeats),
        log=cost(store, newest, repeats),
    )


def expired(root: str, versions: int) -> Expiry:
    """Let versions expire in a process of its own, whose memory tells."""
    out = subprocess.run(
        [sys.executable, "-m", "tests.bench.long", "--expire", root, str(versions)],
        check=True,
        capture_output=True,
        text=True,
    )
    return Expiry(**json.loads(out.stdout))


def _expire(root: str, versions: int) -> Expiry:
    store = CountingStorage(open_storage(root))
    timeline = Timeline.open(store)
    before, store.requests, began = _peak_mib(), 0, time.perf_counter()
    report = expire(timeline, first_kept=versions, wait=lambda: None)
    assert report.entries == versions - 1
    return Expiry(versions, time.perf_counter() - began, store.requests, _peak_mib() - before)


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def missed(rows: list[Row], expiry: Expiry) -> list[str]:
    """Return which goals are missed, in words."""
    *shorter, last = rows
    found = []
    if last.open.seconds > OPEN_SECONDS:
        found.append(f"to open takes {last.open.seconds:.2f} s, more than {OPEN_SECONDS}")
    if last.in_sequence > OPEN_REQUESTS:
        found.append(f"to open takes {last.in_sequence} requests one after the other, more than {OPEN_REQUESTS}")
    if last.memory_mib > MEMORY_MIB:
        found.append(f"an opened lake has {last.memory_mib:.1f} MiB, more than {MEMORY_MIB}")
    for what in ("open", "show", "version", "moment", "log"):
        one, other = min((getattr(row, what) for row in shorter), key=attrgetter("seconds")), getattr(last, what)
        if other.seconds > FLAT * one.seconds + NOISE_SECONDS:
            found.append(f"{what} is not flat: {one.seconds:.3f} s, then {other.seconds:.3f} s")
        if other.requests > one.requests + MORE_REQUESTS:
            found.append(f"{what} is not flat: {one.requests} requests, then {other.requests}")
    if expiry.requests > EXPIRY_REQUESTS * expiry.versions:
        found.append(f"expiry takes {expiry.requests} requests for {expiry.versions} versions")
    if expiry.memory_mib > EXPIRY_MIB:
        found.append(f"expiry takes {expiry.memory_mib:.0f} MiB, more than {EXPIRY_MIB}")
    return found


def run(lengths: list[int], tables: int, versions: int, repeats: int) -> tuple[str, list[str]]:
    """Return what the page says of the lake, and which goals are missed."""
    root = tempfile.mkdtemp(prefix="lockstep-long-")
    try:
        read = {version for count in lengths for version in (count, *asked(count))}
        lake = Lake(root, tables, read | {versions + SINCE}, expiring=versions)
        rows = []
        for count in lengths:
            lake.grow(count)
            rows.append(measured(open_storage(root), count, repeats))
            print(_row(rows[-1]), flush=True)
        expiry = expired(root, versions)
    finally:
        shutil.rmtree(root)
    goals = missed(rows, expiry)
    return text(rows, tables, expiry, goals), goals


def _cost(cost: Cost) -> str:
    return f"{cost.seconds * 1e3:.0f} ({cost.requests})"


def _row(row: Row) -> str:
    costs = " | ".join(_cost(each) for each in (row.show, row.version, row.moment, row.log))
    opened = f"**{row.open.seconds * 1e3:.0f}** ({row.open.requests}, {row.in_sequence} in sequence)"
    return f"| {row.versions:,} | {opened} | {row.memory_mib:.1f} | {costs} |"


def text(rows: list[Row], tables: int, expiry: Expiry, goals: list[str]) -> str:
    """Return a table of what was measured, and which goals were missed."""
    verdict = f"Missed in this run: {'; '.join(goals)}." if goals else "All were kept in this run."
    lines = "\n".join(map(_row, rows))
    return f"""## A lake that grows to a million versions

A lake of {tables:,} tables in {NAMESPACES} namespaces that grows: milliseconds, the best of some runs,
and in brackets requests; each opens the lake first. *Open* looks one table up; *in sequence* is how many requests
follow one another, told by a store that takes {DELAY_SECONDS * 1e3:.0f} ms for each. *Show* lists the tables of one
namespace; *version* and *time* read three older versions, each {SINCE} entries after a checkpoint; *log* reads the
newest 100 entries (those of the shortest history are in one segment with the entry that made all tables).

| versions | open, ms (requests) | memory, MiB | show | version, three | time, three | log |
|---|---|---|---|---|---|---|
{lines}

{expiry.versions:,} of these versions expired in {expiry.seconds:.0f} s, with {expiry.requests:,} requests and
{expiry.memory_mib:.0f} MiB more memory than the process had before (and the pause of 10 s before the first deletion).
Bounds that fail `make bench-scale`: to open, {OPEN_SECONDS} s and {OPEN_REQUESTS} requests in sequence, and
{MEMORY_MIB} MiB; the longest history no more than {FLAT} times a shorter one and {NOISE_SECONDS * 1e3:.0f} ms, and
{MORE_REQUESTS} requests more; {EXPIRY_REQUESTS} requests for each version that expires, and {EXPIRY_MIB} MiB.
{verdict}
"""


def main() -> None:
    """Measure, print, write the section if asked, and fail where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="a short history of a small lake")
    parser.add_argument("--write", action="store_true", help="put the section into docs/benchmarks.md")
    parser.add_argument("--expire", nargs=2, metavar=("ROOT", "VERSIONS"), help="only that, of a lake that is there")
    args = parser.parse_args()
    if args.expire is not None:
        root, versions = args.expire
        print(json.dumps(asdict(_expire(root, int(versions)))))
        return
    sizes = ([1_000, 5_000], 1_000, 3_000) if args.small else ([1_000, 100_000, 1_000_000], 100_000, 100_000)
    page, goals = run(*sizes, args.repeats)
    print(page)
    if args.write:
        DOCUMENT.write_text(with_section(DOCUMENT.read_text(encoding="utf-8"), MARK, page), encoding="utf-8")
    for goal in goals:
        print(f"missed: {goal}", file=sys.stderr)
    if goals:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
