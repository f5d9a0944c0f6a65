"""What COMMIT itself costs, and where its time goes: without Spark, on commits as Delta stages them."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

import lockstep.commit.commit as committing
from lockstep.catalog import TransactionalCatalog
from lockstep.delta.log import staged_path
from lockstep.timeline.entry import Name
from lockstep.transactions.transaction import Transaction
from tests.bench.bounds import Bound

TABLES = {1: 5.0, 10: 15.0, 100: 80.0}
"""How many tables a measured transaction wrote, and how many milliseconds its COMMIT may take."""

STAGES = {
    "collect": "collect",
    "catch up and judge": "_caught_up",
    "rebase and stage": "_rebase",
}

DATA = bytes(1000)
"""Stands for a data file, which nobody reads here."""

COLUMNS = (*STAGES, "ratify", "publish", "clean up and the rest")


@dataclass(frozen=True, slots=True)
class CommitCost:
    """A Markdown section, and what is promised of its figures."""

    text: str
    bounds: list[Bound]


def commit_cost(open_catalog: Callable[[], TransactionalCatalog], repeats: int) -> CommitCost:
    """Measure COMMIT of an append of one file to 1, 10 and 100 tables."""
    catalog = open_catalog()
    rows, bounds = [], []
    for tables, most in TABLES.items():
        runs = [_one(catalog, tables, i) for i in range(repeats)]
        totals = [sum(run.values()) for run in runs]
        low, middle, high = statistics.quantiles(totals, n=4)
        medians = [statistics.median(run[stage] for run in runs) for stage in COLUMNS]
        parts = " | ".join(f"{value:.1f}" for value in medians)
        bounds.append(Bound(f"COMMIT of {tables} tables, ms", middle, most))
        kept = f"{most:g} | {bounds[-1].verdict}"
        rows.append(f"| {tables} | **{middle:.1f}** ({low:.1f}-{high:.1f}) | {kept} | {parts} |")
        print(rows[-1], flush=True)
    head = " | ".join(COLUMNS)
    rule = "|---" * (len(COLUMNS) + 4)
    text = "\n".join([
        "## COMMIT itself",
        "",
        "A transaction that appended one file to each of so many tables, from COMMIT to its answer, on a local disk,",
        "every write flushed (fsync); milliseconds, medians. `ratify` is the put-if-absent of the timeline's entry,",
        "`publish` the tables' `<version>.json` files. What comes behind the answer is not in it.",
        "",
        f"| tables | COMMIT, ms | bound | kept | {head} |",
        f"{rule}|",
        *rows,
        "",
    ])  # fmt: skip
    return CommitCost(text, bounds)


def _one(catalog: TransactionalCatalog, tables: int, round_: int) -> dict[str, float]:
    names = [Name(namespace=("default",), table=f"t{tables}_{i}") for i in range(tables)]
    if names[0] not in catalog.database().tables:
        setup = catalog.begin()
        for name in names:
            _stage_new(catalog, setup, name)
        catalog.commit(setup)
    tx = catalog.begin(isolation="SNAPSHOT")
    for name in names:
        _stage_append(catalog, tx, name, round_)
    spent: dict[str, float] = defaultdict(float)
    with _clocked(catalog, spent):
        started = time.perf_counter()
        catalog.commit(tx)
        whole = (time.perf_counter() - started) * 1000
    spent[COLUMNS[-1]] = whole - sum(spent.values())
    return spent


@contextmanager
def _clocked(catalog: TransactionalCatalog, spent: dict[str, float]) -> Iterator[None]:
    """Add up the time spent in each stage."""

    def clock(stage: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            started = time.perf_counter()
            try:
                return call(*args, **kwargs)
            finally:
                spent[stage] += (time.perf_counter() - started) * 1000

        return timed

    saved = {name: getattr(committing, name) for name in STAGES.values()}
    append, publish = catalog.timeline.append, catalog.lake.publisher.try_publish
    for stage, name in STAGES.items():
        setattr(committing, name, clock(stage, saved[name]))
    catalog.timeline.append = clock("ratify", append)  # type: ignore[method-assign]
    catalog.lake.publisher.try_publish = clock("publish", publish)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for name, original in saved.items():
            setattr(committing, name, original)
        catalog.timeline.append = append  # type: ignore[method-assign]
        catalog.lake.publisher.try_publish = publish  # type: ignore[method-assign]


def _stage_new(catalog: TransactionalCatalog, tx: Transaction, name: Name) -> None:
    creation = tx.reserve(name, catalog.lake.new_id())
    _write(catalog, tx, creation.location, 0, [
        {"commitInfo": {"timestamp": 0, "operation": "CREATE TABLE", "operationParameters": {}}},
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": {"id": creation.id, "format": {"provider": "parquet", "options": {}}, "schemaString": "{}",
                      "partitionColumns": [], "configuration": {}, "createdTime": 0}},
    ])  # fmt: skip


def _stage_append(catalog: TransactionalCatalog, tx: Transaction, name: Name, round_: int) -> None:
    table = tx.table(name)
    path = f"part-{round_}.snappy.parquet"
    catalog.lake.storage.put_if_absent(f"{table.location}/{path}", DATA)  # COMMIT sees that it is there
    _write(catalog, tx, table.location, table.version + 1, [
        {"commitInfo": {"timestamp": 0, "operation": "WRITE", "operationParameters": {"mode": '"Append"'},
                        "isBlindAppend": True}},
        {"add": {"path": path, "partitionValues": {}, "size": len(DATA), "modificationTime": 0,
                 "dataChange": True, "stats": '{"numRecords":10}'}},
    ])  # fmt: skip


def _write(catalog: TransactionalCatalog, tx: Transaction, location: str, version: int, actions: list[object]) -> None:
    data = b"".join(msgspec.json.encode(action) + b"\n" for action in actions)
    catalog.lake.storage.put_if_absent(staged_path(location, tx.id, version), data)
    catalog.stage(tx, location, version, data.decode())
