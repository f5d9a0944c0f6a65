"""`make soak-keeping`: threads that write, restore, tag, clone and promote, beside those that delete what nobody needs.

    python -m tests.beside.keeping --seconds 60 --seed 7

One lake on a disk, whose clock runs `FASTER` times as fast: files become old, versions expire and are deleted within
seconds. Each thread does one kind of work, all at once, with a catalog of its own as if it were a process. All that
`verify` and `verify --deep` look at must be there: of a full export once it is made, of a clone for as long as its
record is there, of the lake in the end. If something is lost, it is told what expired and what was deleted.
"""

from __future__ import annotations

import argparse
import logging
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

from lockstep.catalog import TransactionalCatalog
from lockstep.errors import LockstepError
from lockstep.exports.deep import verify_deep
from lockstep.exports.export import Asked, Exporter
from lockstep.exports.promote import Promoter
from lockstep.exports.tagged import create_tag
from lockstep.lake.exports import drop_export, read_exports
from lockstep.lake.verify import verify
from lockstep.recovery.restore import Selection
from lockstep.retention.ages import Retention
from lockstep.retention.removing import Remover
from lockstep.retention.upkeep import maintain, remove_orphan_files, vacuum
from lockstep.storage import Found, Storage, open_storage
from lockstep.tables.restoring import restore
from lockstep.tables.state import States
from lockstep.tables.table import Scope
from lockstep.timeline import fence
from lockstep.timeline.entry import ExportMode, Name, TagDdl
from lockstep.transactions.transaction import Transaction
from tests.support.exports import snapshot
from tests.support.faulty import FaultyStorage
from tests.support.lakes import PROTOCOL, add, metadata, open_catalog, remove, stage, stage_new

FASTER = 1_200
"""An hour takes three seconds."""
GRACE_SECONDS = 2.0
"""Between the fence and the first deletion: short, and yet longer than a thread stands still here."""
SIZE = len(b"rows")
NOTHING_FOR_LONG = {f"delta.{name}RetentionDuration": "interval 0 seconds" for name in ("deletedFile", "log")}
START = ({"commitInfo": {"operation": "CREATE TABLE"}}, PROTOCOL, metadata(**NOTHING_FOR_LONG))
MOST_CLONES = 5
TOLD = 40
"""Of so many deletions and expiries it is told what they were, if something is lost."""


class Clock:
    """A clock that runs faster than the host's, from when it is made."""

    def __init__(self) -> None:
        self._began = time.time()

    def __call__(self) -> datetime:
        return self.at(time.time())

    def at(self, seconds: float) -> datetime:
        """Return what it shows when the host's shows so many seconds since 1970."""
        return datetime.fromtimestamp(self._began + (seconds - self._began) * FASTER, UTC)


class Fast(FaultyStorage):
    """A store that tells of files by that clock; it has no faults."""

    def __init__(self, inner: Storage, clock: Clock) -> None:
        super().__init__(inner)
        self._clock = clock

    def walk(self, folder: str) -> Iterator[Found]:
        for found in super().walk(folder):
            yield Found(found.path, found.size, self._clock.at(found.modified_at.timestamp()))


class Keeping:
    """The lake, its clones, and what was found."""

    def __init__(self, folder: Path, seed: int, last: int) -> None:
        self.folder, self.seed = folder, seed
        self.clock = Clock()
        self.store = Fast(open_storage(str(folder / "lake"), create=True), self.clock)
        self.kept = Retention(age=timedelta(0), last=last, grace=timedelta(0), orphan_age=timedelta(hours=1))
        self.clones: dict[str, str] = {}
        self.outcomes: Counter[str] = Counter()
        self.lost: list[str] = []
        self.deleted: list[str] = []
        self._number = 0
        self._lock = threading.Lock()

    def catalog(self, store: Storage | None = None) -> TransactionalCatalog:
        return open_catalog(store or self.store, clock=self.clock)

    def name(self, kind: str) -> str:
        with self._lock:
            self._number += 1
            return f"{kind}{self._number}"

    def new_file(self) -> dict[str, Any]:
        return add(self.name("f"), size=SIZE, modificationTime=int(self.clock().timestamp() * 1000))

    # --- the kinds of work --------------------------------------------------------------------------------------------

    def writes(self, chance: random.Random, catalog: TransactionalCatalog) -> None:
        names = [*catalog.lake.refresh().tables]
        if names and chance.random() < 0.08:
            name = chance.choice(names)
            catalog.run(lambda tx: tx.changing().drop_table(name))
            return
        if not names or chance.random() < 0.12:
            self._in_one(catalog, lambda tx: self._make(catalog, tx))
        else:
            self._in_one(catalog, lambda tx: self._rewrite(chance, catalog, tx, chance.choice(names)))

    def _make(self, catalog: TransactionalCatalog, tx: Transaction) -> None:
        stage_new(catalog, tx, self.name("t"), self.new_file(), start=START)

    def _rewrite(self, chance: random.Random, catalog: TransactionalCatalog, tx: Transaction, name: Name) -> None:
        there = sorted(path for path, _ in snapshot(catalog, name.table).files)
        gone = chance.sample(there, min(len(there), chance.randint(0, 2)))
        at = int(self.clock().timestamp() * 1000)
        stage(
            catalog, tx, name.table, *(remove(path, size=SIZE, deletionTimestamp=at) for path in gone), self.new_file()
        )

    def restores(self, chance: random.Random, catalog: TransactionalCatalog) -> None:
        version = chance.choice(self._readable(catalog)[-25:])
        everything = Selection(everything=True)
        self._in_one(catalog, lambda tx: restore(Scope(catalog, tx, States(self.store)), version, everything))

    def tags(self, chance: random.Random, catalog: TransactionalCatalog) -> None:
        tags = sorted(tag.name for tag in catalog.lake.refresh().tags.values())
        if len(tags) > 4 or (tags and chance.random() < 0.4):
            catalog.run(lambda tx: tx.changing().drop_tag(chance.choice(tags)))
            return
        tag = TagDdl(action="create", name=self.name("g"), version=self._some(chance, catalog))
        self._in_one(catalog, lambda tx: create_tag(catalog.lake, tx, tag))

    def clones_and_promotes(self, chance: random.Random, catalog: TransactionalCatalog) -> None:
        if len(self.clones) >= MOST_CLONES or (self.clones and chance.random() < 0.3):
            target = chance.choice(sorted(self.clones))
            self.check(target)
            drop_export(self.store, self.clones.pop(target))
            shutil.rmtree(target)
            return
        target = self._exported(chance, catalog, "partial")
        if chance.random() < 0.5:
            clone = self.catalog(Fast(open_storage(target), self.clock))
            if names := [*clone.database().tables]:
                self._in_one(clone, lambda tx: self._rewrite(chance, clone, tx, chance.choice(names)))
            self._in_one(clone, lambda tx: self._make(clone, tx))
            Promoter(clone.lake, catalog.lake, author="", statement="").run()

    def exports(self, chance: random.Random, catalog: TransactionalCatalog) -> None:
        target = self._exported(chance, catalog, "full")
        self.check(target)
        shutil.rmtree(target)

    def _exported(self, chance: random.Random, catalog: TransactionalCatalog, mode: ExportMode) -> str:
        target = str(self.folder / self.name(mode))
        done = Exporter(catalog.lake).run(Asked(to=target, mode=mode, version=self._some(chance, catalog)))
        if mode == "partial":
            self.clones[target] = done.id
        return target

    def maintains(self, _: random.Random, catalog: TransactionalCatalog) -> None:
        maintain(catalog.lake, self.kept)

    def deletes(self, chance: random.Random, catalog: TransactionalCatalog) -> None:
        (vacuum if chance.random() < 0.5 else remove_orphan_files)(catalog.lake, self.kept)

    @staticmethod
    def _in_one(catalog: TransactionalCatalog, work: Callable[[Transaction], object]) -> None:
        tx = catalog.begin()
        try:
            work(tx)
            catalog.commit(tx)
        finally:
            if tx.is_open:
                catalog.rollback(tx)

    @staticmethod
    def _readable(catalog: TransactionalCatalog) -> list[int]:
        head = catalog.lake.refresh()
        return [*head.expired.kept, *range(head.expired.first_kept, head.version + 1)]

    def _some(self, chance: random.Random, catalog: TransactionalCatalog) -> int | None:
        return chance.choice([None, *self._readable(catalog)[-10:]])

    # --- what is found ------------------------------------------------------------------------------------------------

    def check(self, root: str) -> None:
        """Note what a lake has lost."""
        catalog = TransactionalCatalog.open(root)
        found = [*verify(catalog.lake.storage, catalog.timeline).differences]
        found += verify_deep(catalog.lake.storage, catalog.timeline)
        if found:
            self.lost.append(f"{root}: {found[:5]}; the records are {read_exports(self.store)}")
            self.lost += self.deleted[-TOLD:]

    def work(self, number: int, until: float) -> None:
        """Do one kind of work until a time of the host's."""
        do = WORK[number]
        chance = random.Random(f"{self.seed} {number}")
        catalog = self.catalog()
        while time.time() < until and not self.lost:
            if chance.random() < 0.3:
                catalog = self.catalog()
            try:
                do(self, chance, catalog)
                outcome = "done"
            except LockstepError as error:
                outcome = type(error).__name__
            except (KeyError, FileNotFoundError):
                outcome = "gone"  # a table that was dropped since this looked
            self.outcomes[f"{do.__name__}: {outcome}"] += 1

    def run(self, seconds: float) -> None:
        """Do all of it for so long, and check what is there then."""
        delete = Remover.remove

        def told(remover: Remover, files: Any, folders: Any, record: Any) -> Any:
            expired = remover.lake.timeline.head.expired
            self.deleted.append(f"{record} deletes {[*files, *folders]}, where {expired} has expired")
            return delete(remover, files, folders, record)

        until = time.time() + seconds
        with patch.object(fence, "GRACE_SECONDS", GRACE_SECONDS), patch.object(Remover, "remove", told):
            threads = [threading.Thread(target=self.work, args=(number, until)) for number in range(len(WORK))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.catalog().lake.newest()
        for root in (*self.clones, str(self.folder / "lake")):
            self.check(root)


WORK: tuple[Callable[[Keeping, random.Random, TransactionalCatalog], None], ...] = (
    *(Keeping.writes, Keeping.writes, Keeping.restores, Keeping.tags, Keeping.clones_and_promotes, Keeping.exports),
    *(Keeping.maintains, Keeping.maintains, Keeping.deletes),
)


def main() -> int:
    """Do what the arguments say; return 1, and leave the folder, if anything was lost."""
    parser = argparse.ArgumentParser(prog="python -m tests.beside.keeping", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0, help="of the first round")
    parser.add_argument("--last", type=int, default=5, help="how many of the newest versions are kept")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    for seed in range(given.seed, given.seed + given.rounds):
        folder = Path(tempfile.mkdtemp(prefix="lockstep-keeping-"))
        keeping = Keeping(folder, seed, given.last)
        keeping.run(given.seconds)
        print(f"seed {seed}: {dict(sorted(keeping.outcomes.items()))}", flush=True)
        if keeping.lost:
            print(*keeping.lost, f"what is left lies in {folder}", sep="\n")
            return 1
        shutil.rmtree(folder, ignore_errors=True)  # a catalog may be writing behind its last answer
    return 0


if __name__ == "__main__":
    sys.exit(main())
