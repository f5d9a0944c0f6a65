"""What must hold of tables that several kinds of writers have written.

They are read by delta-rs. What Lockstep reads is only compared with that.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable

import lockstep
from lockstep.catalog import TransactionalCatalog
from lockstep.delta.actions import TRANSACTION_PARAMETER
from lockstep.delta.log import LOG
from lockstep.delta.snapshot import read_snapshot
from lockstep.lake.verify import verify
from lockstep.timeline.entry import Name
from tests.beside.journal import MADE, TRACKED, VECTORS
from tests.beside.person import Decision
from tests.beside.row_ids import doubled_row_ids, wrong_row_ids
from tests.beside.rows import Rows, counted, gone_of, rows_of, set_of
from tests.beside.writer import GRACE_SECONDS
from tests.support.lakes import named

Changes: TypeAlias = Sequence[tuple[str, str | None, str]]
"""A change feed: of each row that was changed the id, whose place it took, and what was done."""

MISSED = "FILE_NOT_EXIST"
"""What is in an error of Spark's where a file was gone that it was reading."""

LEAST_A_MINUTE = {"lockstep": 10, "python": 10, "delta-rs": 10, "upkeep": 3, "spark": 1.5, "plain-spark": 3}
"""So many writes the writers of a kind must have been acknowledged in each minute, all together. Most have far more: a
round in which one does next to nothing says nothing of it."""


@dataclass
class Said:
    """What a writer said of one operation.

    Attributes:
        tables: those that it wrote.
        takes_back: the row that it removed, if any.
        adds: whether it added a row of its own id.
        answer: done, refused or unknown; None if it was killed before it had one.
        kind: by whom, and what it was.
        why: what the error said.
    """

    tables: list[str]
    takes_back: str | None = None
    adds: bool = True
    answer: str | None = None
    kind: str = ""
    why: str | None = None

    @property
    def writer(self) -> str:
        """By what kind of writer."""
        return self.kind.partition(":")[0]

    @property
    def is_acknowledged(self) -> bool:
        """Whether it was done, and changed what the tables say; upkeep has nothing else to do than what does not."""
        return self.answer == "done" and (self.adds or self.takes_back is not None or self.writer == "upkeep")


@dataclass
class Verdict:
    """What was found wrong, and how much was looked at.

    Attributes:
        kinds: how often each operation of each kind of writer had which answer.
        acknowledged: how many writes of each kind of writer were.
        expired: below which version of the database what is not needed any more had gone.
        reasons: why they were refused, or unknown, without the names and numbers.
        decided: by table, how many rows a person had to decide about.
        settled: how often a person kept which side, by which way.
        kills: how often a writer of each kind was killed.
    """

    wrong: list[str] = field(default_factory=list)
    answers: Counter[str | None] = field(default_factory=Counter)
    kinds: Counter[tuple[str, str | None]] = field(default_factory=Counter)
    acknowledged: Counter[str] = field(default_factory=Counter)
    expired: int = 0
    reasons: Counter[tuple[str, str]] = field(default_factory=Counter)
    decided: dict[str, int] = field(default_factory=dict)
    settled: Counter[Decision] = field(default_factory=Counter)
    kills: Counter[str] = field(default_factory=Counter)


def read(journals: Iterable[Path]) -> dict[str, Said]:
    """Return what all writers said, by the operations' ids; a line that was cut off by a kill was not said."""
    said: dict[str, Said] = {}
    for journal in journals:
        for line in journal.read_text(encoding="utf-8").splitlines(keepends=True):
            if not line.endswith("\n"):
                continue
            body = json.loads(line)
            if "answer" in body:
                said[body["id"]].answer, said[body["id"]].why = body["answer"], body["why"]
            else:
                said[body["id"]] = Said(body["tables"], body["takes_back"], body["adds"], kind=body["kind"])
    return said


def judge(
    root: Path,
    warehouse: Path,
    tables: Iterable[str],
    said: dict[str, Said],
    decided: Mapping[str, AbstractSet[str]] | None = None,
    *,
    feeds: Mapping[str, Changes] | None = None,
) -> Verdict:
    """Say what of it does not hold: each acknowledged write once, each transaction whole, the timeline as the logs.

    Args:
        warehouse: where the tables lie that the lake has adopted; what it has made itself lies in its root.
        decided: by table, the rows that only one side had where a person decided which to keep.
        feeds: by table, its change feed as another reads it than delta-rs.
    """
    kinds = Counter((each.kind, each.answer) for each in said.values())
    verdict = Verdict(answers=Counter(each.answer for each in said.values()), kinds=kinds)
    verdict.acknowledged = Counter(each.writer for each in said.values() if each.is_acknowledged)
    verdict.reasons = Counter((each.kind, _in_general(each.why)) for each in said.values() if each.why is not None)
    verdict.wrong += lost_files(said)
    verdict.decided = {table: len(rows) for table, rows in (decided or {}).items()}
    catalog = TransactionalCatalog.open(str(root))
    verdict.expired = catalog.timeline.head.expired.first_kept
    names = {table: named(table) for table in tables}
    made = {name.table: name for name in catalog.timeline.head.tables if name.table.startswith(f"{MADE}-")}
    database = catalog.database([*names.values(), *made.values()])
    rows: dict[str, Rows] = {MADE: Counter()}
    by_spark = any("spark: " in each.kind for each in said.values())
    for table, name in (names | made).items():
        folder = _folder(root, warehouse, database.tables[name].location, table)
        found = DeltaTable(str(folder))
        content = rows_of(found)
        if database.tables[name].version != found.version():
            verdict.wrong.append(
                f"{table}: the timeline has {database.tables[name].version}, the log {found.version()}"
            )
        verdict.wrong += _doubled(folder)
        verdict.wrong += _other_files(catalog, name, found)
        verdict.wrong += _other_rows(root, name, content)
        if table in TRACKED:
            verdict.wrong += doubled_row_ids(folder)
            live = {Path(unquote(uri)).name for uri in found.file_uris()}
            verdict.wrong += wrong_row_ids(folder, live, gone_of(found))
            if not (by_spark and table in VECTORS):  # delta-rs reads no feed of vectors but from change files
                verdict.wrong += wrong_feed(feed_of(found), content, table)
            if feeds and table in feeds:
                verdict.wrong += wrong_feed(feeds[table], content, f"{table}, by Spark")
        if table in made:
            rows[MADE] += content
            verdict.wrong += _wrong_name(table, content)
        else:
            rows[table] = content + set_of(found)
    verdict.wrong += [f"verify: {each}" for each in verify(catalog.lake.storage, catalog.timeline).differences]
    _judge_rows(verdict, rows, said, _in_doubt(said, decided or {}))
    return verdict


def lost_files(said: Mapping[str, Said]) -> list[str]:
    """Return which operations missed a file: nobody may delete one that so young a version of a table has."""
    return [f"{id} ({each.kind}) missed a file: {each.why}" for id, each in said.items() if MISSED in (each.why or "")]


def too_few(acknowledged: Counter[str], kinds: Iterable[str], seconds: float) -> list[str]:
    """Return which kinds of writers had fewer writes acknowledged than they must in a round of so many seconds.

    Args:
        kinds: those that took part, whether they said anything or not.
    """
    least = {kind: int(LEAST_A_MINUTE[kind] * seconds / 60) for kind in {*kinds}}
    return [
        f"{kind} had {acknowledged[kind]} writes acknowledged in {seconds:g} seconds, and must have {count}"
        for kind, count in sorted(least.items())
        if acknowledged[kind] < count
    ]


def nothing_expired(expired: int, seconds: float, age: float) -> list[str]:
    """Return that upkeep kept all versions, if it did in so many seconds though it keeps them for far fewer."""
    has_had_time = seconds > 2 * max(age, GRACE_SECONDS)
    return [f"no version has expired in {seconds:g} seconds"] if has_had_time and not expired else []


def _in_general(why: str) -> str:
    """Return a message without what differs each time."""
    return re.sub(r"[\w./-]*\d[\w./-]*", "…", why.replace("\n", " "))[:200]


def _folder(root: Path, warehouse: Path, location: str, table: str) -> Path:
    return warehouse / table if "://" in location else root / location


def _wrong_name(table: str, content: Rows) -> list[str]:
    """Return what a table that a writer made has other than the row that its name says."""
    right = [id for id, _ in content.elements()] == [table.removeprefix(f"{MADE}-")]
    return [] if right else [f"{table} has {content}, which its name does not say"]


def _in_doubt(said: dict[str, Said], decided: Mapping[str, AbstractSet[str]]) -> set[tuple[str, str]]:
    """Return of which rows of which tables a person's decision says whether they are there.

    What only changed such a row found it or not, and so on.
    """
    doubtful = {(table, id) for table, ids in decided.items() for id in ids}
    waiting = True
    while waiting:
        more = {
            (table, id)
            for id, each in said.items()
            for table in each.tables
            if each.takes_back is not None and (table, each.takes_back) in doubtful
        }
        waiting = not more <= doubtful
        doubtful |= more
    return doubtful


def _judge_rows(
    verdict: Verdict,
    rows: Mapping[str, Rows],
    said: dict[str, Said],
    doubtful: AbstractSet[tuple[str, str]],
) -> None:
    takers = {each.takes_back: each for each in said.values() if each.takes_back is not None}
    counts = {table: _by_id(found) for table, found in rows.items()}
    for id, each in said.items():
        taker = takers.get(id)
        found = {table: counts[table][id] for table in each.tables}
        sure = {table: count for table, count in found.items() if (table, id) not in doubtful}
        wrong = len({*sure.values()}) > 1 or not {*sure.values()} <= _allowed(each, taker)
        wrong |= not {*found.values()} <= {0, 1}
        if each.adds and each.takes_back is not None:  # one in the place of another, whatever came of it later
            gone = taker is not None and taker.answer != "refused"
            both = {counts[table][each.takes_back] + count for table, count in sure.items()}
            wrong |= not both <= ({0, 1} if gone else {1})
        if wrong:
            verdict.wrong.append(f"{id} ({each}; taken back by {taker}): {found}")
    for table, content in rows.items():
        for id, was in content:
            if id not in said or not said[id].adds:
                verdict.wrong.append(f"{table} has {id}, which nobody wrote")
            elif was != said[id].takes_back:
                verdict.wrong.append(f"{table} has {id} in the place of {was}, and not of {said[id].takes_back}")


def _allowed(each: Said, taker: Said | None) -> set[int]:
    """Return how often the row of an operation may be there, given what its writer and its taker were told."""
    may_be_gone = taker is not None and taker.answer != "refused"
    must_be_gone = taker is not None and taker.answer == "done"
    if not each.adds or each.answer == "refused" or must_be_gone:
        return {0}
    if each.answer == "done" and not may_be_gone:
        return {1}
    return {0, 1}


def _by_id(rows: Rows) -> Counter[str]:
    counts: Counter[str] = Counter()
    for (id, _), count in rows.items():
        counts[id] += count
    return counts


def _other_files(catalog: TransactionalCatalog, name: Name, found: DeltaTable) -> list[str]:
    """Return what Lockstep's replay of a log has that delta-rs has not, or the other way round.

    A file of which another deletion vector holds is another one.
    """
    table = catalog.database([name]).tables[name]
    files = read_snapshot(catalog.lake.storage, table.location, found.version()).files
    ours = {(path.rpartition("/")[2], _cardinality(add)) for (path, _), add in files.items()}
    gone = gone_of(found)
    theirs = {(file, len(gone.get(file, ()))) for file in (Path(uri).name for uri in found.file_uris())}
    return [f"{name}: two replays differ in {sorted(ours ^ theirs)[:5]}"] if ours != theirs else []


def _cardinality(add: Mapping[str, Any]) -> int:
    return int((add.get("deletionVector") or {}).get("cardinality", 0))


def _other_rows(root: Path, name: Name, content: Rows) -> list[str]:
    """Return what Lockstep reads of a table that delta-rs does not, or the other way round."""
    with lockstep.open(str(root)).transaction() as tx:
        ours = counted(tx[name].to_arrow(["id", "was"]))
    differ = [row for row in ours.keys() | content.keys() if ours[row] != content[row]]
    return [f"{name}: two readers differ in {sorted(differ, key=str)[:5]}"] if differ else []


def feed_of(found: DeltaTable) -> Changes:
    """Return the change feed of all versions, as delta-rs reads it."""
    feed = pa.table(found.load_cdf(starting_version=1).read_all())
    return [*zip(*(feed[name].to_pylist() for name in ("id", "was", "_change_type")), strict=True)]


def wrong_feed(feed: Changes, rows: Rows, table: str) -> list[str]:
    """Return what the change feed of all versions does not add up to."""
    total: Rows = Counter()
    for id, was, change in feed:
        total[id, was] += 1 if change in ("insert", "update_postimage") else -1
    wrong = [row for row in total.keys() | rows.keys() if total[row] != rows[row]]
    return [
        f"{table}: the change feed has {row} {total[row]} times, the table {rows[row]} times"
        for row in sorted(wrong, key=str)
    ]


def _doubled(folder: Path) -> list[str]:
    """Return the transactions of Lockstep that a log has more than once."""
    ids: Counter[str] = Counter()
    for commit in (folder / LOG).glob("*.json"):
        for line in commit.read_text(encoding="utf-8").splitlines():
            info = json.loads(line).get("commitInfo") or {}
            if id := (info.get("operationParameters") or {}).get(TRANSACTION_PARAMETER):
                ids[str(id)] += 1
    return [f"{folder.name} has transaction {id} {count} times" for id, count in ids.items() if count > 1]
