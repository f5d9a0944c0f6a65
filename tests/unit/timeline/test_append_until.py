"""The optimistic loop: what ends it, and what it leaves to whoever asked."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from lockstep.errors import InvalidError, UnavailableError
from lockstep.retry import RACE
from lockstep.timeline.append import Exhausted, Proposal, Settled, append_until
from lockstep.timeline.outcomes import AppendOutcome, Lost, MakeEntry, Ratified, Unknown
from tests.support.entries import draft

ENTRY = draft("ours")(1, datetime(2026, 1, 1, tzinfo=UTC))
WINNER = draft("theirs")(1, datetime(2026, 1, 1, tzinfo=UTC))
FEW = replace(RACE, attempts=3, sleep=lambda seconds: None)

RATIFIED, UNKNOWN, LOST = Ratified(ENTRY), Unknown(ENTRY, UnavailableError("it hangs")), Lost((WINNER,))


@pytest.mark.parametrize(
    ("answers", "ended_by", "proposals"),
    [
        ([RATIFIED], RATIFIED, 1),
        ([LOST, RATIFIED], RATIFIED, 2),
        ([LOST, LOST, RATIFIED], RATIFIED, 3),
        ([LOST, LOST, LOST], Exhausted(3), 3),
        ([UNKNOWN], UNKNOWN, 1),
        ([LOST, UNKNOWN, RATIFIED], UNKNOWN, 2),
        ([InvalidError("too large")], InvalidError, 1),
        ([LOST, UnavailableError("no space")], UnavailableError, 2),
    ],
)
def test_what_an_attempt_comes_to_decides(
    answers: list[AppendOutcome | Exception], ended_by: object, proposals: int
) -> None:
    """A lost race is tried again, with a new proposal; all else is the answer, and nothing is tried behind it."""
    judged: list[int] = []
    left = iter(answers)

    def propose() -> Proposal:
        judged.append(len(judged))
        return Proposal(draft("ours"), after=judged[-1])

    def append(_: MakeEntry, after: int) -> AppendOutcome:
        assert after == judged[-1], "it was judged against another version"
        answer = next(left)
        if isinstance(answer, Exception):
            raise answer
        return answer

    if isinstance(ended_by, type):
        with pytest.raises(ended_by):
            append_until(append, propose, backoff=FEW)
    else:
        assert append_until(append, propose, backoff=FEW) == ended_by
    assert len(judged) == proposals


def refuse() -> Proposal | Settled[str]:
    raise InvalidError("the table was dropped")


@pytest.mark.parametrize("lost_before", [0, 2])
def test_a_proposal_that_is_none_ends_it(lost_before: int) -> None:
    calls: list[int] = []

    def propose() -> Proposal | Settled[str]:
        return Settled("a conflict") if len(calls) == lost_before else Proposal(draft("ours"), after=0)

    def append(make: MakeEntry, after: int) -> AppendOutcome:
        calls.append(after)
        return LOST

    assert append_until(append, propose, backoff=FEW) == Settled("a conflict")
    assert len(calls) == lost_before


def test_what_a_proposal_raises_is_raised_and_nothing_is_appended() -> None:
    def append(make: MakeEntry, after: int) -> AppendOutcome:
        raise AssertionError("nothing was proposed")

    with pytest.raises(InvalidError, match="the table was dropped"):
        append_until(append, refuse, backoff=FEW)
