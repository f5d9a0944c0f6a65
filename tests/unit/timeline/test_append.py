"""The loop that appends: what ends it, what it tries again, and that whatever it appends was proposed anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

import pytest

from lockstep.errors import ConflictError, InvalidError, LockstepError, UnavailableError
from lockstep.retry import RACE, Contention
from lockstep.timeline.append import Exhausted, Proposal, Settled, append_until
from lockstep.timeline.outcomes import AppendOutcome, Behind, Lost, MakeEntry, Ratified, Unknown
from tests.support.entries import T0, draft

ATTEMPTS = 3
POLICY = replace(RACE, attempts=ATTEMPTS, clock=lambda: 0.0, sleep=lambda seconds: None)

ENTRY = draft("a")(1, T0)
RATIFIED = Ratified(ENTRY)
UNKNOWN = Unknown(ENTRY, UnavailableError("no answer"))
SETTLED = Settled("there is no need")
BEATEN = ConflictError("somebody was first")
TOO_LARGE = InvalidError("the entry is too large")
FULL = UnavailableError("no space")
PROPOSALS = [Proposal(draft(f"attempt {attempt}"), after=10 * attempt) for attempt in range(1, ATTEMPTS + 1)]
"""What the attempts propose: each another entry, after another version."""

Proposed: TypeAlias = Proposal | Settled[str] | LockstepError
Appended: TypeAlias = AppendOutcome | LockstepError


class Script:
    """Answers `propose` and `append` one after the other as it was told, and keeps what was appended."""

    def __init__(self, proposed: Sequence[Proposed], outcomes: Sequence[Appended]) -> None:
        self.proposed = list(proposed)
        self.outcomes = list(outcomes)
        self.appended: list[Proposal] = []

    def propose(self) -> Proposal | Settled[str]:
        found = self.proposed.pop(0)
        if isinstance(found, LockstepError):
            raise found
        return found

    def append(self, make: MakeEntry, after: int, behind: Behind | None) -> AppendOutcome:
        self.appended.append(Proposal(make, after, behind))
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, LockstepError):
            raise outcome
        return outcome


@pytest.mark.parametrize("losses", range(ATTEMPTS))
@pytest.mark.parametrize(
    ("ending", "outcome"),
    [
        pytest.param(None, RATIFIED, id="ratified"),
        pytest.param(None, UNKNOWN, id="unknown: never tried again"),
        pytest.param(None, FULL, id="append raises that the store failed"),
        pytest.param(None, TOO_LARGE, id="append raises that the entry is refused"),
        pytest.param(SETTLED, None, id="nothing to append"),
        pytest.param(BEATEN, None, id="propose raises a conflict"),
        pytest.param(FULL, None, id="propose raises that the store failed"),
    ],
)
def test_all_but_a_lost_race_ends_the_loop(
    losses: int, ending: Settled[str] | LockstepError | None, outcome: Ratified | Unknown | LockstepError | None
) -> None:
    """At whichever attempt it comes: as it is, and neither `propose` nor `append` is asked again."""
    proposed: list[Proposed] = [*PROPOSALS[:losses], PROPOSALS[losses] if ending is None else ending]
    outcomes: list[Appended] = [*[Lost()] * losses, *([] if outcome is None else [outcome])]
    script, contention = Script([*proposed, TOO_LARGE], [*outcomes, TOO_LARGE]), Contention()
    expected = outcome if ending is None else ending
    if isinstance(expected, LockstepError):
        with pytest.raises(type(expected)) as raised:
            append_until(script.append, script.propose, backoff=POLICY, contention=contention)
        assert raised.value is expected
    else:
        assert append_until(script.append, script.propose, backoff=POLICY, contention=contention) is expected
    assert script.appended == PROPOSALS[: len(outcomes)], "each attempt appends what was proposed for it"
    assert (len(script.proposed), len(script.outcomes)) == (1, 1), "asked once more, or once too little"
    assert contention.losses == losses, "only a lost race is remembered as one"


@pytest.mark.parametrize("attempts", [1, ATTEMPTS])
def test_lost_races_alone_exhaust_it(attempts: int) -> None:
    script, contention = Script(PROPOSALS, [Lost()] * ATTEMPTS), Contention()
    policy = replace(POLICY, attempts=attempts)
    assert append_until(script.append, script.propose, backoff=policy, contention=contention) == Exhausted(attempts)
    assert script.appended == PROPOSALS[:attempts]
    assert contention.losses == attempts


def test_it_is_exhausted_when_the_time_is_up() -> None:
    """The attempts that there were are told, not those that the policy would have allowed."""
    policy = replace(POLICY, timeout_seconds=0)
    script = Script(PROPOSALS, [Lost()] * ATTEMPTS)
    assert append_until(script.append, script.propose, backoff=policy) == Exhausted(1)
