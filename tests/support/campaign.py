"""Several clients at once on one lake, some killed and started anew; then everything they saw is judged.

    python -m tests.support.campaign --seed 7 --rounds 10 --scripts 300     `make soak`, with other numbers

Each round runs once at each isolation level, SERIALIZABLE with recorded reads too, and prints its seed. The same seed
gives the same scripts and the same kills; in which order the processes come to run is the machine's business.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lockstep.catalog import TransactionalCatalog
from lockstep.delta.actions import parse
from lockstep.delta.log import read_published
from lockstep.delta.publish import content
from lockstep.errors import LockstepError
from lockstep.lake.verify import verify
from lockstep.storage import open_storage
from lockstep.timeline.entry import Isolation, Table
from tests.support.child import REPOSITORY
from tests.support.history import Add, Anomaly, Append, Level, Op, Read, Status, Transaction, violations
from tests.support.invariants import Totals, lost_or_resurrected, wrong_totals
from tests.support.keyed import Contents, Tables, data_file, keys_of_files
from tests.support.lakes import PROTOCOL, metadata, open_catalog, stage_new
from tests.support.placed import matching, root_in
from tests.support.replay import BrokenTableError, Replayed
from tests.support.scripts import OPENING_BALANCE, SCRIPTS_PER_KEY, Plan, account, balance, keys_of

PROMISED: dict[Isolation, tuple[Level, ...]] = {
    "SNAPSHOT": ("strong-snapshot-isolation",),
    "SERIALIZABLE": ("strong-snapshot-isolation", "serializable"),
}
"""What a transaction at each level is promised; `strong`, since BEGIN takes the newest version.

Not `strict-serializable`: serializable snapshot isolation puts a transaction before another that committed first, and
so perhaps before one that had ended when a third began.
"""

KINDS: tuple[tuple[Isolation, bool], ...] = (("SNAPSHOT", False), ("SERIALIZABLE", False), ("SERIALIZABLE", True))
"""What there is to run: the level, and whether reads are recorded."""

CLOSING = "closing"
"""The id of the transaction that reads everything in the end."""

PATIENCE_S = 0.02
"""How often the clients are looked at."""


@dataclass(frozen=True, slots=True)
class Campaign:
    """What is to be run; see `Plan` for the fields that it hands on.

    Attributes:
        kills: how often each client is killed, by itself at a random write or from outside at a random moment.
        deadline_s: after so long all clients are killed and the campaign has failed.
    """

    seed: int
    isolation: Isolation
    clients: int = 4
    scripts: int = 60
    tables: int = 4
    keys: int = 2
    kills: int = 2
    pause_ms: float = 3
    record_reads: bool = False
    broken: str = ""
    deadline_s: float = 300


@dataclass
class Outcome:
    """What a campaign left.

    Attributes:
        history: the first transaction is the harness's own, which made the tables, and the last one reads them all.
        kills: how often a client was killed.
        errors: what clients met that they must not meet.
    """

    campaign: Campaign
    root: str
    history: list[Transaction]
    kills: int
    seconds: float
    errors: list[Anomaly] = field(default_factory=list)

    def open(self) -> TransactionalCatalog:
        """Open the lake, as one more client."""
        return open_catalog(open_storage(self.root), isolation=self.campaign.isolation, turns=True)

    def __str__(self) -> str:
        by = Counter(tx.status for tx in self.history)
        kind = self.campaign.isolation + ", reads recorded" * self.campaign.record_reads
        return (
            f"seed {self.campaign.seed}, {kind}: {len(self.history)} transactions "
            f"({by['ok']} committed, {by['fail']} not, {by['info']} unknown), {self.kills} kills, {self.seconds:.1f} s"
        )


def run(folder: Path, campaign: Campaign) -> Outcome:
    """Run a campaign in an empty folder.

    Raises:
        TimeoutError: the clients did not end in time.
    """
    root = root_in(folder)
    started = time.monotonic()
    opening = _open(root, campaign)
    clients = [_Supervised(folder, root, campaign, number) for number in range(campaign.clients)]
    try:
        while [client for client in clients if not client.is_done()]:
            if time.monotonic() - started > campaign.deadline_s:
                raise TimeoutError(f"seed {campaign.seed}: clients still run after {campaign.deadline_s} s")
            time.sleep(PATIENCE_S)
    finally:
        for client in clients:
            client.kill()
    journals = [line for client in clients for journal in client.journals for line in read_journal(journal)]
    seconds = time.monotonic() - started
    errors = [Anomaly("error", f"{line['tx']}: {line['why']}") for line in journals if line["event"] == "error"]
    errors += [Anomaly("error", said) for client in clients for said in client.errors]
    outcome = Outcome(
        campaign, root, [opening, *transactions(journals)], sum(client.kills for client in clients), seconds, errors
    )
    try:
        outcome.history.append(_read_all(root, campaign))
    except (LockstepError, BrokenTableError) as error:
        errors.append(_error(error))
    return outcome


def judge(outcome: Outcome) -> list[Anomaly]:
    """Return all that is wrong with what a campaign left: nothing, if Lockstep keeps what it promises."""
    totals = Totals(
        tuple(account(table) for table in range(outcome.campaign.tables)),
        balance,
        OPENING_BALANCE * outcome.campaign.tables,
    )
    found = [*outcome.errors, *broken_promises(outcome), *wrong_totals(outcome.history, totals)]
    catalog = outcome.open()
    try:
        found += [*_end(catalog, outcome), *_versions(catalog, totals), *_logs(catalog, outcome.root)]
    except (LockstepError, BrokenTableError) as error:
        found.append(_error(error))
    return found


def broken_promises(outcome: Outcome) -> list[Anomaly]:
    """Return what the history proves and its level forbids.

    Where reads are not recorded, transactions that write nothing are not promised to be serializable, only to see one
    state (docs/isolation.md, Read-only transactions).
    The harness's own last read is never left out: it comes after all, and tells the order of all appends.
    """
    found: dict[Anomaly, None] = {}
    for level in PROMISED[outcome.campaign.isolation]:
        exempt = level == "serializable" and not outcome.campaign.record_reads
        judged = [tx for tx in outcome.history if not exempt or tx.id == CLOSING or _writes(tx)]
        found |= dict.fromkeys(violations(judged, level))
    return list(found)


def _writes(tx: Transaction) -> bool:
    return any(not isinstance(op, Read) for op in tx.ops)


def _error(error: Exception) -> Anomaly:
    return Anomaly("error", f"{type(error).__name__}: {error}")


# --- clients ----------------------------------------------------------------------------------------------------------


class _Supervised:
    """One client, life after life."""

    def __init__(self, folder: Path, root: str, campaign: Campaign, number: int) -> None:
        self.journals: list[Path] = []
        self.kills = 0
        self.errors: list[str] = []
        self._folder, self._root, self._campaign, self._number = folder, root, campaign, number
        self._process: subprocess.Popen[bytes] | None = None
        self._dies_in_s: float | None = None
        self._first_seen: float | None = None
        self._start()

    def _start(self) -> None:
        life = len(self.journals)
        chance = random.Random(f"{self._campaign.seed}/{self._number}/{life}/death")
        may_die = life < self._campaign.kills
        writes = chance.randint(1, 60) if may_die and chance.random() < 0.7 else None
        self._dies_in_s = chance.uniform(0, 1) if may_die and writes is None else None
        self._first_seen = None
        journal = self._folder / f"client-{self._number}-{life}.jsonl"
        plan = Plan(
            root=self._root,
            journal=str(journal),
            seed=self._campaign.seed,
            client=self._number,
            life=life,
            first=self._next_script(),
            scripts=self._campaign.scripts,
            isolation=self._campaign.isolation,
            tables=self._campaign.tables,
            keys=self._campaign.keys,
            pause_ms=self._campaign.pause_ms,
            dies_at=writes,
            dies_after=chance.random() < 0.5,
            record_reads=self._campaign.record_reads,
            broken=self._campaign.broken,
        )
        self.journals.append(journal)
        with journal.with_suffix(".err").open("wb") as said:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.workload", plan.json()], cwd=REPOSITORY, stderr=said
            )

    def _next_script(self) -> int:
        done = [line["script"] for journal in self.journals for line in read_journal(journal) if "script" in line]
        return max(done, default=-1) + 1

    def is_done(self) -> bool:
        """Tell whether it has run all its scripts; kill it if it is time, and start it again if it was killed."""
        if self._process is None:
            return True
        if (code := self._process.poll()) is None:
            self._kill_in_time()
            return False
        if code == 0:
            self._process = None
            return True
        if code > 0:
            said = self.journals[-1].with_suffix(".err").read_text(errors="replace")
            self.errors.append(f"client {self._number} ended with {code}: {said[-2000:]}")
            self._process = None
            return True
        self.kills += 1
        self._start()
        return False

    def _kill_in_time(self) -> None:
        """Kill from outside, so long after its first transaction began."""
        if self._dies_in_s is None or self._process is None or not self.journals[-1].exists():
            return
        self._first_seen = self._first_seen or time.monotonic()
        if time.monotonic() - self._first_seen > self._dies_in_s:
            self._process.kill()

    def kill(self) -> None:
        """End it, whatever it is doing."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


# --- histories --------------------------------------------------------------------------------------------------------


def read_journal(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a journal, but for one that its writer did not finish."""
    if path.exists():
        for line in path.read_bytes().split(b"\n")[:-1]:
            yield json.loads(line)


def transactions(lines: Iterable[dict[str, Any]]) -> list[Transaction]:
    """Put the lines of all journals together.

    A client that was killed before it said `committing` did not commit; one killed after that may have.
    """
    by_name: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        by_name.setdefault(line["tx"], []).append(line)
    return sorted((_transaction(name, events) for name, events in by_name.items()), key=lambda tx: tx.began)


def _transaction(name: str, events: Sequence[dict[str, Any]]) -> Transaction:
    said = {event["event"]: event["at"] for event in events}
    status: Status = "fail"
    if "ok" in said:
        status = "ok"
    elif "committing" in said and "fail" not in said:
        status = "info"
    return Transaction(
        id=name,
        ops=tuple(op for event in events if (op := _op(event)) is not None),
        status=status,
        process=name.partition(".")[0],
        began=said["began"],
        ended=said.get("ok", said.get("fail")),
    )


def _op(event: dict[str, Any]) -> Op | None:
    match event["event"]:
        case "read":
            return Read(event["key"], tuple(event["values"]))
        case "append":
            return Append(event["key"], event["value"])
        case "add":
            return Add(event["key"], event["value"])
    return None


# --- the lake before and after ----------------------------------------------------------------------------------------

SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [{"name": name, "type": "string", "nullable": True, "metadata": {}} for name in ("key", "value")],
    }
)


def _open(root: str, campaign: Campaign) -> Transaction:
    """Make the tables, each with an account, in one transaction.

    Each list has a file from the beginning: two who make a list of nothing at once would not touch the same file, and
    so would not conflict, as two INSERTs do not.
    """
    catalog = open_catalog(open_storage(root, create=True))
    began = time.monotonic_ns()
    tx = catalog.begin()
    ops: list[Op] = []
    start = [PROTOCOL, {"metaData": {**metadata()["metaData"], "schemaString": SCHEMA}}]
    for table in range(campaign.tables):
        value = f"opening.{table}={OPENING_BALANCE}"
        lists = [
            data_file(f"opening-{key.partition('/')[2]}.parquet", key.partition("/")[2], ())
            for number in range(0, campaign.scripts, SCRIPTS_PER_KEY)
            for key in keys_of(table, "list", number, campaign.keys)
        ]
        files = [data_file("opening.parquet", "account", (value,)), *lists]
        location = stage_new(catalog, tx, f"t{table}", *files, start=start, data=b"[]")
        catalog.lake.storage.put(f"{location}/opening.parquet", json.dumps([value]).encode())
        ops.append(Append(account(table), value))
    catalog.commit(tx)
    return Transaction("opening", tuple(ops), began=began, ended=time.monotonic_ns())


def _read_all(root: str, campaign: Campaign) -> Transaction:
    """Read every key of the newest database version, as one transaction of one more client."""
    began = time.monotonic_ns()
    contents = _contents(open_catalog(open_storage(root)))
    reads = tuple(Read(key, values) for key, values in contents.items())
    return Transaction(CLOSING, reads, began=began, ended=time.monotonic_ns())


def _contents(catalog: TransactionalCatalog) -> Contents:
    tables = catalog.database(catalog.lake.refresh().tables).tables.values()
    return Tables(catalog.lake.storage).contents(tables)


def _end(catalog: TransactionalCatalog, outcome: Outcome) -> Iterator[Anomaly]:
    """Compare what is there with what the clients were told."""
    yield from lost_or_resurrected(outcome.history, _contents(catalog))


def _versions(catalog: TransactionalCatalog, totals: Totals) -> Iterator[Anomaly]:
    """Add up the accounts of every database version since the tables were made."""
    tables = Tables(catalog.lake.storage)
    for version in range(1, catalog.timeline.head.version + 1):
        if (what := totals.wrong(tables.contents(catalog.as_of(version).tables.values()))) is not None:
            yield Anomaly("total", f"database version {version}: {what}", keys=totals.accounts)


def _logs(catalog: TransactionalCatalog, root: str) -> Iterator[Anomaly]:
    """Compare the tables' own logs, as any Delta reader finds them, with what the timeline's entries hold."""
    tables, store = Tables(catalog.lake.storage), open_storage(root)
    commits = matching(root, "_delta_log/*.json")
    for table in catalog.database().tables.values():
        plain = Replayed(strict=False)
        for commit in commits:
            if commit.startswith(f"{table.location}/"):
                plain.take(parse(store.get(commit) or b""))
        ratified = _ratified(catalog, table)
        if tables.grouped(table, keys_of_files(plain)) != tables.grouped(table, keys_of_files(ratified)):
            yield Anomaly("plain-reader", f"a plain reader of {table.name} sees something else than the timeline")
    for difference in verify(catalog.lake.storage, catalog.timeline).differences:
        yield Anomaly("verify", f"{difference.path}: {difference.problem}")


def _ratified(catalog: TransactionalCatalog, table: Table) -> Replayed:
    """Return a table by the timeline's entries alone.

    Those of plain writers, and large ones whose staged file was cleaned up, are in the table's log only.
    """
    found = Replayed(strict=False)
    storage = catalog.lake.storage
    for write in (write for entry in catalog.timeline.entries(-1) for write in entry.writes if write.id == table.id):
        for version in range(write.from_version + 1, write.to_version + 1):
            at = version - write.from_version - 1
            data = content(storage, table.location, write.commits[at]) if write.commits else None
            found.take(read_published(storage, table.location, version) if data is None else parse(data))
    return found


# --- by hand ----------------------------------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="make soak", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=None, help="of the first round; random if not given")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--scripts", type=int, default=200, help="for each client")
    parser.add_argument("--kills", type=int, default=5, help="of each client")
    parser.add_argument("--tables", type=int, default=4)
    parser.add_argument("--keys", type=int, default=2)
    parser.add_argument("--broken", default="", help="a defect of tests.support.broken")
    asked = vars(parser.parse_args())
    rounds, seed = asked.pop("rounds"), asked.pop("seed")
    first = random.randrange(10**6) if seed is None else seed
    wrong = 0
    for seed in range(first, first + rounds):
        for isolation, record_reads in KINDS:
            campaign = Campaign(seed=seed, isolation=isolation, record_reads=record_reads, deadline_s=3600, **asked)
            with tempfile.TemporaryDirectory(prefix="lockstep-soak-") as folder:
                outcome = run(Path(folder), campaign)
                judging = time.monotonic()
                found = judge(outcome)
            print(f"{outcome}, judged in {time.monotonic() - judging:.1f} s: {len(found)} anomalies", flush=True)
            for anomaly in found[:20]:
                print(f"    {anomaly}", flush=True)
            wrong += bool(found)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
