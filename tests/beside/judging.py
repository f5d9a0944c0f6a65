"""What must hold of tables that several kinds of writers have written: read by delta-rs, by nothing of Lockstep's."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from lockstep.catalog import TransactionalCatalog
from lockstep.delta.log import LOG
from lockstep.delta.snapshot import read_snapshot
from lockstep.lake.verify import verify
from lockstep.timeline.entry import Name
from tests.beside.journal import TRACKED
from tests.support.lakes import named


@dataclass
class Said:
    """What a writer said of one operation.

    Attributes:
        tables: those that it wrote.
        takes_back: the row that it removed, if any.
        adds: whether it added a row of its own id.
        answer: done, refused or unknown; None if it was killed before it had one.
    """

    tables: list[str]
    takes_back: str | None = None
    adds: bool = True
    answer: str | None = None


@dataclass
class Verdict:
    """What was found wrong, and how much was looked at."""

    wrong: list[str] = field(default_factory=list)
    answers: Counter[str | None] = field(default_factory=Counter)


def read(journals: Iterable[Path]) -> dict[str, Said]:
    """Return what all writers said, by the operations' ids; a line that was cut off by a kill was not said."""
    said: dict[str, Said] = {}
    for journal in journals:
        for line in journal.read_text(encoding="utf-8").splitlines(keepends=True):
            if not line.endswith("\n"):
                continue
            body = json.loads(line)
            if "answer" in body:
                said[body["id"]].answer = body["answer"]
            else:
                said[body["id"]] = Said(body["tables"], body["takes_back"], body.get("adds", True))
    return said


def judge(root: Path, warehouse: Path, tables: Iterable[str], said: dict[str, Said]) -> Verdict:
    """Say what of it does not hold: each acknowledged write once, each transaction whole, the timeline as the logs."""
    verdict = Verdict(answers=Counter(each.answer for each in said.values()))
    catalog = TransactionalCatalog.open(str(root))
    names = {table: named(table) for table in tables}
    database = catalog.database(names.values())
    rows: dict[str, Counter[str]] = {}
    for table, name in names.items():
        found = DeltaTable(str(warehouse / table))
        rows[table] = Counter(found.to_pyarrow_table()["id"].to_pylist())
        if database.tables[name].version != found.version():
            verdict.wrong.append(
                f"{table}: the timeline has {database.tables[name].version}, the log {found.version()}"
            )
        verdict.wrong += _doubled(warehouse / table)
        verdict.wrong += _other_files(catalog, name, found)
        if table in TRACKED:
            verdict.wrong += doubled_row_ids(warehouse / table)
            verdict.wrong += wrong_feed(found, rows[table], table)
    verdict.wrong += [f"verify: {each}" for each in verify(catalog.lake.storage, catalog.timeline).differences]
    _judge_rows(verdict, rows, said)
    return verdict


def _judge_rows(verdict: Verdict, rows: dict[str, Counter[str]], said: dict[str, Said]) -> None:
    takers = {each.takes_back: each for each in said.values() if each.takes_back is not None}
    for id, each in said.items():
        counts = [rows[table][id] for table in each.tables]
        taker = takers.get(id)
        may_be_gone = taker is not None and taker.answer != "refused"
        must_be_gone = taker is not None and taker.answer == "done"
        if not each.adds or each.answer == "refused" or must_be_gone:
            allowed = {0}
        elif each.answer == "done":
            allowed = {0, 1} if may_be_gone else {1}
        else:
            allowed = {0, 1}
        if len({*counts}) > 1 or not {*counts} <= allowed:
            verdict.wrong.append(f"{id} ({each}; taken back by {taker}): {dict(zip(each.tables, counts, strict=True))}")
    for table, found in rows.items():
        verdict.wrong += [f"{table} has {id}, which nobody wrote" for id in found if id not in said]


def _other_files(catalog: TransactionalCatalog, name: Name, found: DeltaTable) -> list[str]:
    """Return what Lockstep's replay of a log has that delta-rs has not, or the other way round."""
    table = catalog.database([name]).tables[name]
    ours = {path for path, _ in read_snapshot(catalog.lake.storage, table.location, found.version()).files}
    theirs = {Path(uri).name for uri in found.file_uris()}
    ours = {path.rpartition("/")[2] for path in ours}
    return [f"{name}: two replays differ in {sorted(ours ^ theirs)[:5]}"] if ours != theirs else []


def doubled_row_ids(folder: Path) -> list[str]:
    """Return the files of a log whose fresh row ids overlap those of another: each id is given out once."""
    ranges: dict[str, tuple[int, int]] = {}
    for commit in sorted((folder / LOG).glob("*.json")):
        for line in commit.read_text(encoding="utf-8").splitlines():
            if (add := json.loads(line).get("add")) is not None and add["path"] not in ranges:
                count = json.loads(add["stats"])["numRecords"]
                ranges[add["path"]] = add["baseRowId"], add["baseRowId"] + count
    in_order = sorted((begin, end, path) for path, (begin, end) in ranges.items() if begin < end)
    return [
        f"{folder.name}: row ids of {path} ({begin} to {end}) begin before those of {other} end ({last})"
        for (_, last, other), (begin, end, path) in pairwise(in_order)
        if begin < last
    ]


def wrong_feed(found: DeltaTable, rows: Counter[str], table: str) -> list[str]:
    """Return what the change feed of all versions does not add up to."""
    feed = pa.table(found.load_cdf(starting_version=1).read_all())
    total: Counter[str] = Counter()
    for id, change in zip(feed["id"].to_pylist(), feed["_change_type"].to_pylist(), strict=True):
        total[id] += 1 if change in ("insert", "update_postimage") else -1
    wrong = {id for id in total.keys() | rows.keys() if total[id] != rows[id]}
    return [f"{table}: the change feed has {id} {total[id]} times, the table {rows[id]} times" for id in sorted(wrong)]


def _doubled(folder: Path) -> list[str]:
    """Return the transactions of Lockstep that a log has more than once."""
    ids: Counter[str] = Counter()
    for commit in (folder / LOG).glob("*.json"):
        for line in commit.read_text(encoding="utf-8").splitlines():
            info = json.loads(line).get("commitInfo") or {}
            if id := info.get("lockstepTransaction"):
                ids[str(id)] += 1
    return [f"{folder.name} has transaction {id} {count} times" for id, count in ids.items() if count > 1]
