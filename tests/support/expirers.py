"""`python -m tests.support.expirers ROLE ROOT NAME`: a process on a timeline whose versions expire meanwhile.

    commit   appends as often as it can, and says each version that it was told is its own
    expire   lets all but the newest versions, and every fiftieth, expire
    read     reads versions as they were when it began, and says what it saw

Each line that it prints is JSON.
"""

from __future__ import annotations

import json
import sys
import time
from functools import partial

from lockstep.errors import ExpiredError
from lockstep.retry import RACE
from lockstep.storage import Storage, open_storage
from lockstep.timeline import fence
from lockstep.timeline.append import Proposal, append_until
from lockstep.timeline.expiry import expire
from lockstep.timeline.log import Timeline
from lockstep.timeline.outcomes import Ratified, Unknown
from tests.support.entries import draft

GRACE_SECONDS = 0.5
STOP = "_lockstep/stop"
"""All of them go on until there is such a file."""

KEPT = 20
ALONE = 50


def say(**what: object) -> None:
    print(json.dumps(what), flush=True)


def commit(store: Storage, name: str) -> None:
    """Append, and open anew where the lake says that this process was away for too long."""
    timeline, number = Timeline.open(store, checkpoint_every=10), 0
    while not store.exists(STOP):
        number += 1
        id_ = f"{name}-{number}"

        def propose(timeline: Timeline = timeline, id_: str = id_) -> Proposal:
            timeline.refresh()
            return Proposal(draft(id_, namespaces=[]), after=timeline.head.version)

        try:
            outcome: object = append_until(timeline.append, propose, backoff=RACE)
        except ExpiredError as error:
            say(refused=id_, why=error.message)
            timeline = Timeline.open(store, checkpoint_every=10)
            continue
        if isinstance(outcome, Unknown) and name == "stopped":  # for so long that what it wrote has expired since
            say(unknown=id_)
            timeline = Timeline.open(store, checkpoint_every=10)
            continue
        assert isinstance(outcome, Ratified), outcome
        say(committed=id_, version=outcome.entry.version)
        timeline.mark_published(timeline.head.version)
        timeline.write_checkpoint()
        timeline.write_hint()


def let_expire(store: Storage, name: str) -> None:
    timeline = Timeline.open(store)
    while not store.exists(STOP):
        timeline.refresh()
        head = timeline.head.version
        timeline.mark_published(head)
        report = expire(
            timeline,
            first_kept=max(0, head - KEPT),
            keep=range(0, head, ALONE),
            author=name,
            wait=partial(time.sleep, GRACE_SECONDS),
        )
        say(expired=report.entries, first_kept=report.first_kept)


def read(store: Storage, name: str) -> None:
    timeline = Timeline.open(store)
    while not store.exists(STOP):
        for version in range(max(0, timeline.head.version - 3 * KEPT), timeline.head.version + 1):
            try:
                database = timeline.at(version)
            except ExpiredError:
                continue
            say(read=version, reader=name, at=database.committed_at.isoformat())
        timeline = Timeline.open(store)


def main() -> None:
    """Play a role."""
    role, root, name = sys.argv[1:]
    fence.GRACE_SECONDS = GRACE_SECONDS
    roles = {"commit": commit, "expire": let_expire, "read": read}
    roles[role](open_storage(root), name)


if __name__ == "__main__":
    main()
