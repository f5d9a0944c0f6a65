"""Lockstep with a fault put back on purpose, to see that schedules find it: as `tests.judge.broken` does.

    python -m tests.sim.broken [NAME …]

Each of them was one, or is what a comment in the code says must not be.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import lockstep.commit.commit as committing
from lockstep import catalog
from lockstep.arbiters import Accept, Arbiter, Decision, Mark
from lockstep.commit import ending
from lockstep.commit.outcomes import Committed
from lockstep.commit.race import Race
from lockstep.delta import publish
from lockstep.delta.log import staging_folder
from lockstep.errors import ArbiterError, LockstepError, UnavailableError
from lockstep.lake.changes import is_light
from lockstep.lake.lake import Lake
from lockstep.lake.publisher import Publisher
from lockstep.storage import Mine, Storage, Theirs
from lockstep.timeline import arbitration
from lockstep.timeline.database import Database
from lockstep.timeline.entry import Entry
from lockstep.timeline.outcomes import MakeEntry
from lockstep.transactions.transaction import Transaction
from tests.sim import broken_keeping, broken_upkeep, keeping
from tests.sim.arbiter import SimulatedArbiter
from tests.sim.repeating import repeatable
from tests.sim.schedule import run


def exists_is_believed() -> AbstractContextManager[object]:
    """What the store says is there counts as ours, unless a look finds something else."""

    def put_if_absent(self: Storage, path: str, data: bytes) -> Mine | Theirs:
        if self.try_put(path, data) or (content := self.get(path)) in (None, data):
            return Mine()
        assert content is not None
        return Theirs(content)

    return patch.object(Storage, "put_if_absent", put_if_absent)


def lost_answer_is_a_no() -> AbstractContextManager[object]:
    """A write of the timeline that failed counts as not written, without a look."""
    whole = Storage.put_if_absent

    def put_if_absent(self: Storage, path: str, data: bytes) -> Mine | Theirs:
        try:
            return whole(self, path, data)
        except UnavailableError as error:
            raise UnavailableError(error.message, definite="/timeline/" in path) from error

    return patch.object(Storage, "put_if_absent", put_if_absent)


def taken_is_published() -> AbstractContextManager[object]:
    """A version that is in a table's log counts as ours, whatever it says."""
    whole = publish._put

    def put(*arguments: Any, **options: Any) -> bool:
        whole(*arguments, **options)
        return True

    return patch.object(publish, "_put", put)


def group_is_not_judged() -> AbstractContextManager[object]:
    """A member of a group is not judged against what those read and wrote that it follows."""

    def judge_again(
        _: Lake, race: Race, draft: Callable[[int | None], MakeEntry], entries: Sequence[Entry], __: Database
    ) -> MakeEntry | None:
        written = race.mine.writes.keys()
        if any(not is_light(entry) or written & {write.id for write in entry.writes} for entry in entries):
            return None
        return draft(race.precedes)

    return patch.object(committing, "_judge_again", judge_again)


def precedes_is_not_told() -> AbstractContextManager[object]:
    """No entry says which winner it comes before, as if that were known from its first attempt, against nobody."""
    return patch.object(Race, "precedes", property(lambda _: None))


@contextmanager
def staged_goes_first() -> Iterator[None]:
    """What a transaction staged is removed before it is published."""
    whole = ending.finish

    def finish(lake: Lake, tx: Transaction, entry: Entry, **options: Any) -> Committed:
        lake.delete([staging_folder(table.location, tx.id) for table in tx.written_tables()], [])
        return whole(lake, tx, entry, **options)

    with patch.object(ending, "finish", finish), patch.object(committing, "finish", finish):
        yield


def doubt_is_not_occupied() -> AbstractContextManager[object]:
    """A COMMIT whose write is not found counts as failed, though the write may arrive yet."""
    return patch.object(Lake, "occupy", lambda self, version: self.timeline.refresh())


def head_is_returned() -> AbstractContextManager[object]:
    """Readers are given the newest version that is known, and not the one that was published for them."""
    whole = Publisher.publish_all

    def publish_all(self: Publisher, **options: Any) -> Database:
        found = whole(self, **options)
        self._timeline.refresh()
        return found if found.set_aside else self._timeline.head

    return patch.object(Publisher, "publish_all", publish_all)


def half_is_published() -> AbstractContextManager[object]:
    """A table that cannot be published counts as published, and is not set aside."""
    return patch.object(Publisher, "_set_aside", lambda *_: None)


def nobody_occupies_orphans() -> AbstractContextManager[object]:
    """Of a process that is gone it is looked once whether its COMMIT landed; a write that is under way is not met."""

    def settle(lake: Lake, transaction: str, snapshot: int) -> Committed | None:
        entry = ending._entry_of(lake, transaction, snapshot)
        return None if entry is None else Committed(entry.version, entry)

    return patch.object(catalog, "settle_orphan", settle)


def arbiter_follows_anything() -> AbstractContextManager[object]:
    """An arbiter takes a decision whatever it has."""
    whole = SimulatedArbiter._swap

    def swap(self: SimulatedArbiter, before: Mark | None, decision: Decision, accept: Accept) -> bool:
        decided = self._storage.disk.decided
        return whole(self, before if decided is None else decided.mark, decision, accept)

    return patch.object(SimulatedArbiter, "_swap", swap)


def decided_is_committed() -> AbstractContextManager[object]:
    """What was decided is answered without having been copied into the store."""
    return patch.object(arbitration, "copy", lambda *_: None)


def decided_is_left() -> AbstractContextManager[object]:
    """Nobody copies what another client decided, and did not copy."""
    whole = arbitration.copy_decided

    def read_decided(storage: Storage, arbiter: Arbiter, found: Decision) -> bytes:
        return whole(storage, arbiter, found) if found.data is None else found.data

    return patch.object(arbitration, "copy_decided", read_decided)


def failed_copy_is_a_no() -> AbstractContextManager[object]:
    """A failure after a decision counts as nothing having been decided."""

    def no(error: LockstepError, *_: object, **__: object) -> LockstepError:
        return ArbiterError(error.message)

    return patch.object(arbitration, "after_failure", no)


@dataclass(frozen=True, slots=True)
class Defect:
    """A fault, the seed from which on it is looked for, for when that was written it showed at once, and where."""

    put_in: Callable[[], AbstractContextManager[object]]
    seed: int
    has_arbiter: bool = False
    has_upkeep: bool = False
    is_keeping: bool = False


DEFECTS: Mapping[str, Defect] = {
    "exists-is-believed": Defect(exists_is_believed, 6),
    "lost-answer-is-a-no": Defect(lost_answer_is_a_no, 1),
    "taken-is-published": Defect(taken_is_published, 1),
    "staged-goes-first": Defect(staged_goes_first, 1),
    "half-is-published": Defect(half_is_published, 2),
    "arbiter-follows-anything": Defect(arbiter_follows_anything, 0, has_arbiter=True),
    "decided-is-committed": Defect(decided_is_committed, 0, has_arbiter=True),
    "decided-is-left": Defect(decided_is_left, 0, has_arbiter=True),
    "failed-copy-is-a-no": Defect(failed_copy_is_a_no, 0, has_arbiter=True),
    "group-is-not-judged": Defect(group_is_not_judged, 99),
    "precedes-is-not-told": Defect(precedes_is_not_told, 108),
    "doubt-is-not-occupied": Defect(doubt_is_not_occupied, 98),
    "head-is-returned": Defect(head_is_returned, 157),
    "nobody-occupies-orphans": Defect(nobody_occupies_orphans, 81),
    "expiry-ignores-tags": Defect(broken_upkeep.expiry_ignores_tags, 0, has_upkeep=True),
    "open-ones-keep-nothing": Defect(broken_upkeep.open_ones_keep_nothing, 0, has_upkeep=True),
    "vectors-are-litter": Defect(broken_upkeep.vectors_are_litter, 0, has_upkeep=True),
    "rows-are-not-merged": Defect(broken_upkeep.rows_are_not_merged, 0, has_upkeep=True),
    "given-back-is-the-lakes": Defect(broken_upkeep.given_back_is_the_lakes, 0, has_upkeep=True),
    "killed-runs-are-forgotten": Defect(broken_upkeep.killed_runs_are_forgotten, 0, has_upkeep=True),
    "settled-loses-a-commit": Defect(broken_upkeep.settled_loses_a_commit, 0, has_upkeep=True),
    "records-keep-nothing": Defect(broken_keeping.records_keep_nothing, 0, is_keeping=True),
    "records-are-read-once": Defect(broken_keeping.records_are_read_once, 0, is_keeping=True),
    "records-are-not-confirmed": Defect(broken_keeping.records_are_not_confirmed, 0, is_keeping=True),
    "expiry-knows-what-it-looked-at": Defect(broken_keeping.expiry_knows_what_it_looked_at, 0, is_keeping=True),
}

FREQUENT = (
    *tuple(DEFECTS)[:5],
    *("expiry-ignores-tags", "vectors-are-litter", "settled-loses-a-commit"),
    *("records-keep-nothing", "records-are-not-confirmed"),
)
"""These show in one schedule out of some ten; the others in one out of some hundred."""

MOST = 400
"""So many schedules a fault is given to show, before it counts as not found."""


def find(name: str) -> tuple[int, str] | None:
    """Run schedules until one shows a fault; return how many that took, and what it found."""
    with DEFECTS[name].put_in():
        for number in range(MOST):
            defect = DEFECTS[name]
            seed = defect.seed + number
            if defect.is_keeping:
                found = keeping.run(seed)
            else:
                found = run(seed, has_arbiter=defect.has_arbiter, has_upkeep=defect.has_upkeep)
            if result := found.findings:
                return number + 1, result[0]
    return None


def main(names: list[str]) -> int:
    """Look for each fault; return 1 if one does not show."""
    repeatable()
    missed = 0
    for name in names or DEFECTS:
        found = find(name)
        print(f"{name}: {'NOT FOUND' if found is None else f'{found[0]} schedules: {found[1][:160]}'}", flush=True)
        missed += found is None
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
