"""The end of transactions that their own sessions did not ask for, by an `abort` entry of the timeline.

The entry and the victim's own are both appended behind everything that was looked at, so one of the two comes first and
the other sees it: who was ended so cannot commit, who has committed cannot be ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from lockstep import __version__
from lockstep.lake.lake import Lake
from lockstep.retry import Backoff
from lockstep.timeline.append import Proposal, Settled, append_until, settled
from lockstep.timeline.entry import FORMAT, Entry, TransactionInfo


@dataclass(frozen=True, slots=True)
class Asker:
    """Who has a transaction ended.

    Attributes:
        id: under which it keeps others back when it lost the timeline too often: a transaction's, or a new one.
        author: for the entry.
        message: why.
        statement: with which a person asked for it; none, if another transaction needs what the victim holds.
    """

    id: str
    author: str
    message: str
    statement: str | None = None


AT_ONCE = 1_000
"""So many transactions does one entry end; a thousand ids are some 30 kB of it."""


def end(lake: Lake, transaction: str, snapshot: int, asker: Asker, *, backoff: Backoff) -> Entry:
    """See that a transaction has ended, and return the entry that did it: its own commit, or an `abort`.

    Args:
        transaction: the victim's id.
        snapshot: the database version that it began at: whatever it did is in a later entry.
        backoff: how often it is tried again while others win the race for the timeline.

    Raises:
        UnavailableError: nobody knows whether there is such an entry; asking again is safe.
        CorruptTimelineError: as the timeline says.
    """
    return end_all(lake, [transaction], snapshot, asker, backoff=backoff)[transaction]


def ended_by(lake: Lake, transaction: str, snapshot: int) -> Entry | None:
    """Return the entry that ended a transaction: its own commit, or an `abort`; None, as long as there is none.

    Raises:
        UnavailableError, CorruptTimelineError: as the timeline says.
    """
    lake.timeline.refresh()
    entries = entries_since(lake, snapshot, lake.timeline.head.version)
    return next((entry for entry in entries if transaction in (entry.transaction.id, *entry.aborts)), None)


def end_all(
    lake: Lake, transactions: Iterable[str], snapshot: int, asker: Asker, *, backoff: Backoff
) -> dict[str, Entry]:
    """See that transactions have ended, by one entry for `AT_ONCE` of them, and return by id which entry did it.

    Args:
        snapshot: a database version at which none of them had committed.

    Raises:
        UnavailableError, CorruptTimelineError: see `end`.
    """
    ended: dict[str, Entry] = {}
    victims = sorted(set(transactions))
    for begin in range(0, len(victims), AT_ONCE):
        ended |= _end(lake, victims[begin : begin + AT_ONCE], snapshot, asker, backoff)
    return ended


def _end(lake: Lake, victims: Sequence[str], snapshot: int, asker: Asker, backoff: Backoff) -> dict[str, Entry]:
    seen, ended = snapshot, dict[str, Entry]()

    def note(entries: Iterable[Entry]) -> bool:
        """Note which of the victims these entries ended, and tell whether that is all."""
        for entry in entries:
            ended.update(dict.fromkeys({entry.transaction.id, *entry.aborts}.intersection(victims), entry))
            if len(ended) == len(victims):
                return True
        return False

    def propose() -> Proposal | Settled[None]:
        nonlocal seen
        lake.timeline.refresh()
        # Once: another thread may read on at any moment, and what it read was not looked through for the victims.
        version = lake.timeline.head.version
        if note(entries_since(lake, seen, version)):
            return Settled(None)
        seen = version
        left = [victim for victim in victims if victim not in ended]
        return Proposal(partial(_abort, left, lake.new_id(), asker), after=version)

    held = partial(lake.gate.held_by, asker.id)
    outcome = append_until(lake.timeline.append, propose, backoff=backoff, contention=lake.contention, alone=held)
    others = f" (the first of {len(victims)})" if len(victims) > 1 else ""
    if (entry := settled(outcome, what=f"transaction {victims[0]}{others} was ended")) is not None:
        ended.update(dict.fromkeys(entry.aborts, entry))
    return ended


def entries_since(lake: Lake, seen: int, version: int) -> Iterator[Entry]:
    """Yield what came after a database version, up to another one."""
    gone = lake.timeline.head.expired.first_kept - 1
    if seen < gone:  # the history outlives the entries, and says who committed and who was ended
        yield from lake.timeline.past(after=seen, through=gone)
        seen = gone
    yield from lake.timeline.scan(min(seen, version), version)


def _abort(transactions: list[str], id_: str, asker: Asker, version: int, at: datetime) -> Entry:
    # An id of its own: under the id of who asks it would read as a commit of that one.
    return Entry(
        format=FORMAT,
        version=version,
        committed_at=at,
        kind="abort",
        transaction=TransactionInfo(
            id=id_,
            began_at=at,
            base_version=version - 1,
            isolation="SNAPSHOT",
            author=asker.author,
            application=f"Lockstep {__version__}",
            message=asker.message,
            statements=[] if asker.statement is None else [asker.statement],
        ),
        aborts=transactions,
    )
