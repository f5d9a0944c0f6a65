"""How many requests each operation makes over the wire, for docs/requests.md: `make requests` writes that part of it.

They are counted in front of the server (`Wire`), so all that Lockstep's client makes of its calls is in it: pages of a
listing, a request for each of several deletions. S3 is moto in this process, Google's store the stand-in, Azure's is
Azurite, which `make test-stores` fetches; the arbiter is a Valkey, which counts what it is asked itself.
"""

from __future__ import annotations

import itertools
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias
from unittest.mock import patch
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa
from redis import Redis

from lockstep.adoption.adopt import Wanted, adopt, look
from lockstep.catalog import TransactionalCatalog
from lockstep.commit import keeping
from lockstep.delta.actions import render
from lockstep.delta.log import commit_path
from lockstep.recovery.tags import new_tag
from lockstep.retention.ages import Retention
from lockstep.retention.expiring import expire_snapshots
from lockstep.retention.upkeep import maintain
from lockstep.storage import open_storage
from lockstep.tables.opened import OpenLake
from lockstep.tables.opened import open as open_lake
from lockstep.tables.transaction import LakeTransaction
from project.render_docs import between
from tests.support import servers, valkey
from tests.support.gcs import TOKEN, Gcs
from tests.support.lakes import CREATED, add, create, named, stage
from tests.support.request_counts import TABLES
from tests.support.s3 import KEYS, moto, serving
from tests.support.wire import Wire

DOCUMENT = Path(__file__).parents[2] / "docs" / "requests.md"
SAME = "the same"

MARK, MARK_OF_ARBITER = "wire", "arbiter"

Kind: TypeAlias = Literal["s3", "gs", "azure"]
COLUMNS: Mapping[Kind, str] = {"s3": "S3", "gs": "Google (a stand-in)", "azure": "Azure"}

KINDS = ("GET", "HEAD", "LIST", "PUT if absent", "PUT", "POST", "DELETE")
"""In which order they are told."""

EXPIRED = 10
"""So many versions expire."""


def kind_of(head: str) -> str:
    """Return which of `KINDS` a request is, by its first line and its headers."""
    method, target, _ = head.partition("\r\n")[0].split(" ")
    asked = parse_qs(urlsplit(target).query, keep_blank_values=True)
    headers = {line.partition(":")[0].lower() for line in head.splitlines()[1:]}
    if method == "GET" and ("list-type" in asked or asked.get("comp") == ["list"]):
        return "LIST"
    if method == "PUT" and headers & {"if-none-match", "x-goog-if-generation-match"}:
        return "PUT if absent"
    return method


class Counted:
    """What an operation asked for, by kind of request: before its answer, and behind it."""

    def __init__(self, before: Counter[str], behind: Counter[str]) -> None:
        self.before, self.behind = before, behind

    def __str__(self) -> str:
        behind = _words(self.behind)
        return _words(self.before) + (f"; behind it {behind}" if behind != "none" else "")


def _words(counted: Counter[str]) -> str:
    assert not counted.keys() - set(KINDS), counted
    return ", ".join(f"{counted[kind]} {kind}" for kind in KINDS if counted[kind]) or "none"


_NUMBERS = itertools.count()
"""Of lakes: a server that a test starts may have what another one of this process had."""


class Counting:
    """A lake in a store that is reached over a wire, and the operations on it."""

    def __init__(self, wire: Wire, root: str, options: Mapping[str, str], tables: int) -> None:
        self._wire, self._root = wire, root
        self._options = {**options, "endpoint": wire.endpoint + urlsplit(options["endpoint"]).path}
        self._near = options
        self.names = [f"t{number}" for number in range(tables)]
        self.lake = self._opened(create=True)
        with self.lake.transaction() as tx:
            for name in self.names:
                tx.create(name, pa.schema([("id", pa.int64())]))
        self.append()  # what a first commit to a table reads is remembered by then

    def count(self, run: Callable[[], object]) -> Counted:
        """Run an operation, and count."""
        upkeep, held = self.lake.catalog.lake.upkeep, list[Callable[[], object]]()
        add = upkeep.add
        upkeep.settle()
        start = self._asked()
        # What comes behind an answer begins when that is counted, however slow the machine.
        with patch.object(upkeep, "add", lambda *tasks, **about: held.append(partial(add, *tasks, **about))):
            run()
            before = self._asked() - start
        for begin in held:
            begin()
        upkeep.settle()
        return Counted(before, self._asked() - start - before)

    def _asked(self) -> Counter[str]:
        return Counter(map(kind_of, [*self._wire.heads]))

    def all(self) -> dict[str, Counted]:
        """Return what each operation asks for."""
        catalog, lake = self.lake.catalog, self.lake.catalog.lake
        found = {
            "open a lake": self.count(self._opened),
            "`BEGIN` and `ROLLBACK`": self.count(lambda: catalog.rollback(catalog.begin())),
        }
        tx = catalog.begin()
        found["the first use of tables"] = self.count(lambda: catalog.look(tx, map(named, self.names)))
        catalog.rollback(tx)
        found |= self.commits()
        found["`CREATE TAG`, of tables of four commits"] = self.count(self._tag)
        version = catalog.timeline.head.version
        self.append()
        found["`restore`"] = self.count(lambda: self.lake.restore(version))
        self._adopt("first")()  # with which the bucket is raced, as what lies beside the root
        found["`adopt`"] = self.count(self._adopt("second"))
        for _ in range(EXPIRED):
            self.append()
        there = catalog.timeline.head.version - catalog.timeline.head.expired.first_kept + 1
        last = there - EXPIRED - 1  # of which the tag keeps one more
        expired = partial(expire_snapshots, lake, older_than=lake.clock(), retain_last=last, grace=timedelta())
        assert expired(dry_run=True).versions == EXPIRED
        found[f"`expire`, of {EXPIRED} versions"] = self.count(expired)
        found["`maintain`, which deletes nothing"] = self.count(lambda: maintain(lake, Retention.of({})))
        return found

    def commits(self) -> dict[str, Counted]:
        """Return what commits ask for: of files that are written already, and from the first request to the last."""
        with self.lake.transaction() as tx:
            self._write(tx)
            committed = self.count(tx.commit)
        return {"`COMMIT`": committed, "append from Python, `BEGIN` to `COMMIT`": self.count(self.append)}

    def append(self) -> None:
        """Append a row to each table, in one transaction."""
        with self.lake.transaction() as tx:
            self._write(tx)

    def _write(self, tx: LakeTransaction) -> None:
        for name in self.names:
            tx[name].append({"id": [1]})

    def _tag(self) -> None:
        catalog = self.lake.catalog
        tx = catalog.begin()
        tx.changing().create_tag(new_tag("eod", version=None, days=None, comment="", now=catalog.lake.clock()))
        catalog.commit(tx)

    def _adopt(self, which: str) -> Callable[[], object]:
        """Make plain tables beside the lake, and return what adopts them."""
        folder = f"{self._root}-{which}"
        plain = open_storage(folder, create=True, options=self._near)
        for name in self.names:
            plain.put(commit_path(name, 0), render(CREATED))
        wanted = [Wanted(named(f"{which}_{name}"), f"{folder}/{name}") for name in self.names]

        def run() -> None:
            catalog = self.lake.catalog
            tx = catalog.begin()
            adopt(catalog.lake, tx, look(catalog.lake, tx.names, wanted))
            catalog.commit(tx)

        return run

    def _opened(self, *, create: bool = False) -> OpenLake:
        return open_lake(self._root, create=create, options=self._options)


def counts(kind: Kind) -> dict[int, dict[str, Counted]]:
    """Return what each operation asks a store of a kind for, by the number of tables."""
    with running(kind) as server, Wire(server.options["endpoint"]) as wire:
        return {tables: counting(wire, server, tables).all() for tables in TABLES}


def commits(kind: Kind) -> dict[int, Counted]:
    """Return what a COMMIT asks for, by the number of tables; quicker than `counts`."""
    with running(kind) as server, Wire(server.options["endpoint"]) as wire:
        return {tables: counting(wire, server, tables).commits()["`COMMIT`"] for tables in TABLES}


def counting(wire: Wire, server: servers.Server, tables: int) -> Counting:
    """Make a lake with some tables to count on."""
    return Counting(wire, server.url(f"counted-{next(_NUMBERS)}"), server.options, tables)


@contextmanager
def running(kind: Kind) -> Iterator[servers.Server]:
    """Run a server for as long as the block, in which no transaction counts as a long one, however slow the machine."""
    with patch.object(keeping, "RECORDED_AFTER", 3600.0), _serving(kind) as server:  # else its record is written, too
        yield server


@contextmanager
def _serving(kind: Kind) -> Iterator[servers.Server]:
    match kind:
        case "s3":
            with serving(moto()) as endpoint:
                yield servers.Server("s3://lake", {**KEYS, "endpoint": endpoint})
        case "gs":
            with serving(Gcs(), threaded=True) as endpoint:
                yield servers.Server("gs://lake", {"bearer_token": TOKEN, "endpoint": endpoint})
        case "azure":
            with servers.azurite() as server:
                yield server


def counts_of_arbiter() -> dict[int, Counter[str]]:
    """Return which commands a Valkey is asked in a COMMIT, by the number of tables."""
    found = {}
    with tempfile.TemporaryDirectory() as folder, valkey.running(Path(folder, "valkey")) as server:
        client = server.client
        for tables in TABLES:
            names = [f"t{number}" for number in range(tables)]
            catalog = TransactionalCatalog.open(
                str(Path(folder, f"lake-{tables}")), create=True, arbiter=server.address()
            )
            create(catalog, *names)
            catalog.lake.upkeep.settle()
            tx = catalog.begin()
            for name in names:
                stage(catalog, tx, name, add("new"))
            start = _commands(client)
            catalog.commit(tx)
            found[tables] = _commands(client) - start - Counter(info=1)  # the first look, which sees all but itself
            catalog.lake.upkeep.settle()
    return found


def _commands(client: Redis) -> Counter[str]:
    """Return how often each command was carried out, those of scripts too."""
    said = client.info("commandstats")
    return Counter({name.removeprefix("cmdstat_"): each["calls"] for name, each in said.items()})


def arbiters_table(found: Mapping[int, Counter[str]]) -> str:
    """Return a row for each number of tables."""
    rows = [
        f"| `COMMIT` | {tables} | {', '.join(f'{calls} {name.upper()}' for name, calls in sorted(asked.items()))} |"
        for tables, asked in found.items()
    ]
    return "\n".join(["| operation | tables | Valkey |", "|---|---|---|", *rows])


def table(found: Mapping[Kind, Mapping[int, Mapping[str, Counted]]]) -> str:
    """Return a row for each operation and number of tables, a column for each store."""
    lines = [f"| operation | tables | {' | '.join(COLUMNS[kind] for kind in found)} |", "|---" * (2 + len(found)) + "|"]
    for operation in next(iter(found.values()))[TABLES[0]]:
        for tables in TABLES:
            first, *others = (str(found[kind][tables][operation]) for kind in found)
            cells = [first, *(SAME if cell == first else cell for cell in others)]
            lines.append(f"| {operation} | {tables} | {' | '.join(cells)} |")
    return "\n".join(lines)


def columns(page: str) -> dict[str, dict[tuple[str, int], str]]:
    """Return what a page says: by the column, of each operation and number of tables."""
    lines = page.partition(f"<!-- {MARK} -->\n")[2].partition(f"\n<!-- /{MARK} -->")[0].splitlines()
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {
        name: {(row[0], int(row[1])): row[2] if row[number] == SAME else row[number] for row in rows}
        for number, name in enumerate(head)
        if name in COLUMNS.values()
    }


def main() -> None:
    """Count, and write the page's part."""
    page = DOCUMENT.read_text(encoding="utf-8")
    page = between(page, MARK, table({kind: counts(kind) for kind in COLUMNS}))
    page = between(page, MARK_OF_ARBITER, arbiters_table(counts_of_arbiter()))
    DOCUMENT.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
