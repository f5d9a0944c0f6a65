"""How an arbiter stands to a lake's store, told while others commit; and how it is set anew when it forgot."""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.arbiters import Decision, Mark
from lockstep.errors import ArbiterError, UnavailableError, UnsupportedError
from lockstep.timeline.arbitration import (
    Arbitration,
    choose_server,
    chosen_server,
    copy_decided,
    digest_of,
    wrong_server,
)
from lockstep.timeline.files import find
from lockstep.timeline.log import Timeline

LOOKS = 10
"""So often it is looked again, if the arbiter has decided something meanwhile."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How an arbiter stands to a lake.

    Attributes:
        arbiter: in words.
        decided: the newest database version that it has decided; None if it knows nothing of the lake.
        stored: the newest that the store has.
        wrong: why nothing can be decided until a person has looked; empty if all is well.
        is_another_server: whether it is another server than the lake's, whatever it has decided.
    """

    arbiter: str
    decided: int | None
    stored: int
    wrong: str = ""
    is_another_server: bool = False


def standing(timeline: Timeline) -> Standing:
    """Return how an arbiter stands to a lake.

    Raises:
        UnsupportedError: this process has not the lake's arbiter; or that may forget what it decides.
        UnavailableError, ArbiterError: the store or the arbiter says so.
    """
    return _look(timeline)[0]


def reseed(timeline: Timeline, *, another_server: bool = False) -> Standing:
    """Let an arbiter go on from what the store has; an entry that it decided next, and nobody copied, is copied first.

    Whoever calls this has seen to it that no client writes, and that the store has all that was committed: what the
    arbiter decided beyond that is forgotten.

    Args:
        another_server: whether it may be another server than the lake's, which is the lake's from now on: nobody
            reaches the other one any more.

    Returns:
        How it stood before.

    Raises:
        UnsupportedError: see `standing`.
        UnavailableError: the store or the arbiter failed, or somebody else changed what it holds; call again.
        ArbiterError: it is another server; what it holds is none of Lockstep's records, or cannot be copied.
    """
    before, found, wrong = _look(timeline)
    arbitration, storage = _arbitration(timeline), timeline.storage
    arbiter = arbitration.arbiter
    if another_server and before.is_another_server:
        choose_server(storage, arbiter.check())
    elif before.is_another_server:
        arbitration.accept(arbiter.check())
        raise UnavailableError(f"the arbiter ({arbiter}) was changed meanwhile. Look again")
    if wrong:
        end = _file_of(timeline, before.stored, arbitration.lake)
        if end is None or not arbiter.swap(None if found is None else found.mark, end, arbitration.accept):
            raise UnavailableError(f"the arbiter ({arbiter}), or the store, was changed meanwhile. Look again")
    elif found is not None and found.first == before.stored + 1:
        copy_decided(storage, arbiter, found)
    return before


def compare(lake: str, found: Decision | None, least: int, newest: int, there: Mark | None) -> str:
    """Return why nothing can follow what an arbiter has, as a clause; empty if all is well.

    Others may commit meanwhile: what the store had before the arbiter was asked, that must have decided, and what it
    has decided lies in the store afterwards, but for the very last.

    Args:
        lake: the lake's id.
        found: what the arbiter has.
        least: the newest version that the store had before the arbiter was asked.
        newest: the newest that it had afterwards.
        there: the store's file that has the version which was decided last; None if it has none.
    """
    if found is None:
        return "holds nothing of this lake: it lost what it had, or is another one, or the lake was copied or moved"
    if found.lake != lake:
        return "holds the record of another lake, which had this root before"
    if found.last < least:
        return f"stands at database version {found.last}, behind the store, which has {least}: it forgot"
    if found.first > newest + 1:
        return f"has decided database version {found.last}, and the store ends with {newest}: entries are lost"
    if found.first <= newest and there != found.mark:
        return f"decided another database version {found.last} than the store has"
    return ""


def _look(timeline: Timeline) -> tuple[Standing, Decision | None, str]:
    """Return how an arbiter stands to a lake, what it has, and what is wrong with that."""
    arbitration = _arbitration(timeline)
    arbiter = arbitration.arbiter
    another = wrong_server(arbiter.check(), _server(timeline, arbitration))
    for _ in range(LOOKS):
        timeline.refresh()
        least = timeline.head.version
        found = arbiter.read()
        timeline.refresh()
        newest = timeline.head.version
        file = None if found is None or found.last > newest else _file_of(timeline, found.last, arbitration.lake)
        wrong = compare(arbitration.lake, found, least, newest, None if file is None else file.mark)
        if not wrong or arbiter.read() == found:
            decided = None if found is None else found.last
            return Standing(str(arbiter), decided, newest, another or wrong, bool(another)), found, wrong
    raise UnavailableError(f"the arbiter ({arbiter}) decides faster than it can be looked at. Look again")


def _server(timeline: Timeline, arbitration: Arbitration) -> str:
    try:
        return chosen_server(timeline.storage) or arbitration.server
    except ArbiterError:
        return "unknown"


def _arbitration(timeline: Timeline) -> Arbitration:
    if timeline.arbitration is None:
        raise UnsupportedError(timeline.refusal)
    return timeline.arbitration


def _file_of(timeline: Timeline, version: int, lake: str) -> Decision | None:
    """Return the store's file that has a version, as a decision."""
    file = find(timeline.storage, version)
    return None if file is None else Decision(lake, file.first, file.last, digest_of(file.data))
