"""Runs writers of several kinds on the same adopted tables, kills some, and has what is left judged."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import IO

from deltalake import write_deltalake

import lockstep
from lockstep.adoption.adopt import Wanted, adopt, look
from lockstep.catalog import TransactionalCatalog
from lockstep.delta.actions import render
from lockstep.delta.log import LOG
from tests.beside.journal import OWN, SHARED, TRACKED, VECTORS
from tests.beside.judging import Changes, Verdict, judge, nothing_expired, read, too_few
from tests.beside.person import DECISIONS, Person, decided, settled
from tests.beside.row_ids import MATERIALIZED
from tests.beside.rows import SCHEMA, row
from tests.beside.spark_writer import ROOT
from tests.beside.writer import ages
from tests.support.lakes import named

KINDS = ("lockstep", "python", "python", "upkeep", "delta-rs", "delta-rs")
SPARK_KINDS = ("spark", "plain-spark")
BESIDE_SPARK = ("lockstep", "python", "upkeep", "delta-rs")
PAUSE_SECONDS = 1.5
"""So long these wait after each operation, or Spark, which is slower, would lose every race."""

PAUSES = {"delta-rs": 0.2, "lockstep": 0.4}
"""So long these do without Spark, or the Python API, which has more to do for each write, would lose most."""

PERSON_SECONDS = 1.0
"""So often a person looks whether something is to be decided."""

AGE_SECONDS, SPARK_AGE_SECONDS = 1.0, 60.0
"""So long upkeep keeps versions, without Spark and with it: longer than a transaction takes, even the first one of a
Java machine."""

LIVES_SECONDS = dict.fromkeys(KINDS, (0.2, 4.0)) | dict.fromkeys(SPARK_KINDS, (5.0, 45.0))
"""A writer that is to be killed is so some time between these after it has begun its first operation."""


SOON = {"delta.deletedFileRetentionDuration": "interval 1 second", "delta.logRetentionDuration": "interval 1 second"}
"""Properties of the lake's own table, of which upkeep deletes what it can."""


@dataclass
class Writer:
    """One that is at work.

    Attributes:
        lives: so many seconds after it has begun its first operation it is killed; None if it is not.
        dies: when that is, by the monotonic clock; None as long as nobody knows.
    """

    process: subprocess.Popen[bytes]
    kind: str
    journal: Path
    lives: float | None
    dies: float | None = None

    def is_due(self) -> bool:
        """Say whether it is to be killed now."""
        now = time.monotonic()
        if self.dies is None and self.lives is not None and self.journal.exists() and self.journal.stat().st_size:
            self.dies = now + self.lives
        return self.dies is not None and now > self.dies


@dataclass
class Round:
    """What the writers of one round work on.

    Attributes:
        folder: for the lake, the tables and the journals.
        end: when it is over, by the monotonic clock.
        chance: says who is killed, and when.
        killed: how many of the writers are killed, of 1; another takes the place of each.
        pauses: how many seconds those of each kind without Spark wait after each operation.
        adds_columns: whether those without Spark add columns.
        age: for how many seconds upkeep keeps versions.
        person: who decides where a plain writer's commit and Lockstep's cannot both stay.
        kills: how often a writer of each kind was killed.
    """

    folder: Path
    end: float
    seed: int
    killed: float
    pauses: Mapping[str, float]
    adds_columns: bool
    age: float
    chance: random.Random
    person: Person
    kills: Counter[str] = field(default_factory=Counter)
    journals: list[Path] = field(default_factory=list)
    running: list[Writer] = field(default_factory=list)

    def start(self, kind: str) -> None:
        """Start a writer."""
        number = len(self.journals)
        journal = self.folder / f"{number}.journal"
        self.journals.append(journal)
        left, name = str(max(self.end - time.monotonic(), 0.5)), f"{self.seed}w{number}"
        root, warehouse = str(self.folder / "lake"), str(self.folder / "warehouse")
        if kind in SPARK_KINDS:
            settings = json.dumps(spark_settings(kind, root, self.folder / f"{number}.spark", self.age))
            arguments = ["tests.beside.spark_writer", kind, warehouse, str(journal), name, left, settings]
        else:
            habits = [str(self.pauses.get(kind, 0)), str(self.adds_columns), str(self.age)]
            arguments = ["tests.beside.writer", kind, root, warehouse, str(journal), name, left, *habits]
        with self._output(kind, number) as output:
            # A group of its own, so that a kill takes Spark's Java with it.
            process = subprocess.Popen(
                [sys.executable, "-m", *arguments], start_new_session=True, stdout=output, stderr=output
            )
        lives = self.chance.uniform(*LIVES_SECONDS[kind]) if self._is_to_die() else None
        self.running.append(Writer(process, kind, journal, lives))

    def _is_to_die(self) -> bool:
        return self.chance.random() < self.killed

    @contextmanager
    def _output(self, kind: str, number: int) -> Iterator[IO[bytes] | None]:
        """Give where a writer's words go: Spark has many."""
        if kind in SPARK_KINDS:
            with (self.folder / f"{number}.output").open("wb") as output:
                yield output
        else:
            yield None

    def watch(self) -> None:
        """Kill who is to die, put others in the places of those who ended, and return when all have."""
        looked = time.monotonic()
        while self.running:
            if time.monotonic() > looked + PERSON_SECONDS:
                self.person.look()
                looked = time.monotonic()
            writer = self.running.pop(0)
            process, kind = writer.process, writer.kind
            if process.poll() is not None:
                assert process.returncode in (0, -signal.SIGKILL), f"a writer of {kind} failed: {process.returncode}"
                self._replace(kind)
            elif writer.is_due():
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                self.kills[kind] += 1
                self._replace(kind)
            else:
                self.running.append(writer)
                time.sleep(0.02 / len(self.running))

    def kill_all(self) -> None:
        """Leave nobody at work."""
        for writer in self.running:
            os.killpg(writer.process.pid, signal.SIGKILL)
            writer.process.wait()
        self.running.clear()

    def _replace(self, kind: str) -> None:
        if time.monotonic() < self.end:
            self.start(kind)


def spark_settings(kind: str, root: str, folder: Path, age: float) -> dict[str, str]:
    """Return the settings of a writer's Spark, all of whose own files lie in a folder."""
    from tests.support.plain import plain_settings
    from tests.support.sessions import INTERPRETED, SMALL

    own = {"spark.master": "local[2]", "spark.driver.memory": "1g", **SMALL, **INTERPRETED}
    if kind == "plain-spark":
        return {**plain_settings(folder), **own}
    kept = {f"spark.sql.catalog.lake.{name}": value for name, value in ages(age).items()}
    return {ROOT: root, "spark.sql.warehouse.dir": str(folder), **kept, **own}


def run(
    folder: Path,
    seconds: float,
    seed: int,
    *,
    killed: float = 0.5,
    spark: bool = False,
    kinds: Sequence[str] = (),
) -> Verdict:
    """Have writers at work for some time, and judge what is left.

    Args:
        folder: an empty one, for the lake, the tables and the journals.
        killed: how many of the writers are killed, of 1; another takes the place of each.
        spark: whether some of them are Spark drivers, through Lockstep and without.
        kinds: which writers there are, one for each time that a kind is named; by default some of all.
    """
    root, warehouse, journal = folder / "lake", folder / "warehouse", folder / "person"
    tables = (*SHARED, *TRACKED)
    make_tables(root, warehouse, tables)
    chance = random.Random(seed)
    person = Person(root, warehouse, tables, journal, islice(cycle(DECISIONS), seed % len(DECISIONS), None))
    pauses = dict.fromkeys(KINDS, PAUSE_SECONDS) if spark else PAUSES
    taking_part = kinds or ((*BESIDE_SPARK, *SPARK_KINDS) if spark else KINDS)
    age = SPARK_AGE_SECONDS if spark else AGE_SECONDS
    going = Round(folder, time.monotonic() + seconds, seed, killed, pauses, not spark, age, chance, person)
    for kind in taking_part:
        going.start(kind)
    try:
        going.watch()
    finally:
        going.kill_all()
    person.look()
    said = read(each for each in going.journals if each.exists())
    feeds = feeds_by_spark(folder, warehouse) if {*SPARK_KINDS} & {*taking_part} else None
    verdict = judge(root, warehouse, (*tables, OWN), said, decided(journal), feeds=feeds)
    verdict.kills, verdict.settled = going.kills, settled(journal)
    verdict.wrong += too_few(verdict.acknowledged, taking_part, seconds)
    verdict.wrong += nothing_expired(verdict.expired, seconds, age) if "upkeep" in taking_part else []
    return verdict


def feeds_by_spark(folder: Path, warehouse: Path) -> dict[str, Changes]:
    """Return the change feeds of the tables that have one, as Spark without Lockstep reads them.

    Args:
        folder: for what Spark says.
    """
    output, settings = folder / "feeds", json.dumps(spark_settings("plain-spark", "", folder / "feeds.spark", 0))
    with (folder / "feeds.output").open("wb") as words:
        command = [sys.executable, "-m", "tests.beside.spark_feed", str(warehouse), str(output), settings, *TRACKED]
        subprocess.run(command, check=True, stdout=words, stderr=words)
    found = json.loads(output.read_text(encoding="utf-8"))
    return {table: [(id, was, change) for id, was, change in changes] for table, changes in found.items()}


def make_tables(root: Path, warehouse: Path, tables: Sequence[str]) -> None:
    """Make the tables, and have a new lake adopt them, which has one of its own besides."""
    catalog = TransactionalCatalog.open(str(root), create=True)
    for table in tables:
        write_deltalake(str(warehouse / table), row(f"first-{table}").slice(0, 0))
        _give_features(warehouse / table, table)
    tx = catalog.begin()
    wanted = [Wanted(named(table), str(warehouse / table)) for table in tables]
    adopt(catalog.lake, tx, look(catalog.lake, tx.names, wanted))
    catalog.commit(tx)
    with lockstep.open(str(root)).transaction() as made:
        made.create(f"default.{OWN}", SCHEMA, properties=SOON)


def _give_features(folder: Path, table: str) -> None:
    """Give an empty table row tracking and a change feed, deletion vectors, or all of that, as Delta does."""
    log = folder / LOG
    first = [json.loads(line) for line in (log / f"{0:020d}.json").read_text(encoding="utf-8").splitlines()]
    [metadata] = [action["metaData"] for action in first if "metaData" in action]
    protocol: dict[str, object] = {"minReaderVersion": 1, "minWriterVersion": 7}
    features = ["appendOnly", "invariants"]
    if table in TRACKED:
        features += ["changeDataFeed", "domainMetadata", "rowTracking"]
        metadata["configuration"] |= {
            "delta.enableChangeDataFeed": "true",
            "delta.enableRowTracking": "true",
            "delta.rowTracking.materializedRowIdColumnName": MATERIALIZED,
            "delta.rowTracking.materializedRowCommitVersionColumnName": "_row-commit-version-col",
        }
    if table in VECTORS:
        features.append("deletionVectors")
        protocol |= {"minReaderVersion": 3, "readerFeatures": ["deletionVectors"]}
        metadata["configuration"] |= {"delta.enableDeletionVectors": "true"}
    second = [
        {"commitInfo": {"operation": "SET TBLPROPERTIES", "timestamp": 0}},
        {"protocol": {**protocol, "writerFeatures": features}},
        {"metaData": metadata},
    ]
    if table in (*TRACKED, *VECTORS):
        (log / f"{1:020d}.json").write_bytes(render(second))
