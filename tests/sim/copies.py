"""What the clients share that make copies of a lake, and what is needed by these at any time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from lockstep.delta.actions import Action
from lockstep.exports.files import Place, places_of
from lockstep.retention.ages import LOGS, REMOVED
from lockstep.timeline.database import Database
from lockstep.timeline.entry import ExportMode
from lockstep.timeline.files import decode, entry_path
from lockstep.timeline.fold import apply
from tests.sim.bucket import Bucket
from tests.sim.logs import Logs
from tests.sim.scheduler import Process, Scheduler
from tests.sim.store import START, URL, Disk
from tests.sim.world import Plan, World
from tests.support.lakes import metadata

VECTORS = {key: ["deletionVectors"] for key in ("readerFeatures", "writerFeatures")}
PROTOCOL: Action = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **VECTORS}}
CREATE: Action = {"commitInfo": {"operation": "CREATE TABLE"}}


@dataclass
class Copied:
    """A copy that somebody was told is made.

    Attributes:
        id: the export's.
        target: its root, or the folder of its file.
        version: the database version that it is of.
        places: the files that it names, wherever they are.
    """

    id: str
    target: str
    mode: ExportMode
    version: int
    places: frozenset[Place] = field(default_factory=frozenset)


class KeptWorld(World):
    """What these clients share.

    Attributes:
        rate: how much faster the clocks of processes, and of the store, go than that of the pauses.
        targets: where somebody has wanted a copy, and of which kind.
        needed: by id, the copies that are made, and whose records nobody has wanted to drop.
        wrong: what cannot have been, as it was noticed.
    """

    def __init__(self, scheduler: Scheduler, plan: Plan, rate: float) -> None:
        super().__init__(scheduler, plan)
        self.rate = rate
        self.bucket = Bucket(lambda: scheduler.now * rate)
        self.targets: dict[str, ExportMode] = {}
        self.needed: dict[str, Copied] = {}
        self.wrong: list[str] = []
        self._dropped: set[str] = set()
        self.bucket.lake.gone = self._is_gone

    @property
    def new_table(self) -> tuple[Action, ...]:
        """How the log of a table begins."""
        properties = {REMOVED: self.plan.removed_for, LOGS: self.plan.removed_for}
        return CREATE, PROTOCOL, metadata(**properties, **{"delta.enableDeletionVectors": "true"})

    def now(self) -> datetime:
        return START + timedelta(seconds=self.scheduler.now * self.rate)

    def clock(self, process: Process) -> datetime:
        return self.now() + timedelta(seconds=process.skew_seconds)

    # --- copies -------------------------------------------------------------------------------------------------------

    def copied(self, copy: Copied) -> None:
        """Note that somebody was told that a copy is made: it must be whole from now on."""
        if copy.mode != "minimal":
            copy.places = frozenset(named_by(self.bucket, copy.target))
        if copy.id not in self._dropped and (lost := self.bucket.lost(copy.places)):
            self.wrong.append(f"made: {copy.mode} export {copy.id} of {copy.version} is made, and {lost} are gone")
        if copy.id not in self._dropped:
            self.needed[copy.id] = copy
        self.counts[f"made {copy.mode}"] += 1

    def dropped(self, copy: Copied) -> None:
        """Note that somebody is about to drop the record of a copy, and does not need it any more."""
        self._dropped.add(
            copy.id
        )  # whoever is just asking for the same may be told that it is made, and it is not kept
        self.needed.pop(copy.id, None)
        self.targets.pop(copy.target, None)

    def _is_gone(self, path: str) -> None:
        """Note what was deleted of the lake that a clone names."""
        for copy in self.needed.values():
            if copy.mode == "partial" and any(f"{p.root}/{p.path}" == f"{URL}/{path}" for p in copy.places):
                self.wrong.append(f"gone: {path} was deleted, which clone {copy.id} of {copy.version} names")


def database_of(disk: Disk) -> Database:
    """Return what the first version of a lake says that was made as a copy."""
    data = disk.get(entry_path(0))
    assert data is not None, "there is no lake"
    return apply(None, decode(data, 0))


def named_by(bucket: Bucket, root: str) -> Iterator[Place]:
    """Yield the files that the first version of a copy names."""
    disk = bucket.disk(root)
    for table in database_of(disk).tables.values():
        for body in Logs(disk).files(table.location, 0).values():
            yield from places_of(body, table.location, root)
