"""Who gives way: the two schemes as a table, and what collides with what."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from lockstep.conflict.lock_policy import (
    FIRST_COMMITTER_WINS,
    MAX_FILES,
    Announcement,
    Claim,
    Die,
    Go,
    Policy,
    Resolution,
    Verdict,
    Wait,
    Wound,
    resolve,
)
from lockstep.delta.combine.evolution import UNCLEAR
from lockstep.delta.footprint import Footprint
from lockstep.errors import InvalidError
from lockstep.timeline.entry import Name

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
TABLE = Name(namespace=("s",), table="t")


def announced(id: str, age: int, files: str = "f", *, whole: bool = False, expires: int = 60) -> Announcement:
    """What a transaction announced that began `age` seconds ago."""
    return Announcement(
        format=1,
        transaction=id,
        base_version=0,
        began_at=NOW - timedelta(seconds=age),
        announced_at=NOW,
        expires_at=NOW + timedelta(seconds=expires),
        table=TABLE,
        whole=whole,
        files=frozenset(files.split()),
    )


ME = announced("me", 5)
F = Claim(frozenset("f"))
OLDER, OLDEST, YOUNGER, YOUNGEST = (
    announced(id, age) for id, age in (("older", 6), ("oldest", 9), ("younger", 4), ("youngest", 1))
)
TWIN, ELDER_TWIN = announced("zz", 5), announced("aa", 5)
EXPIRED, JUST_EXPIRED = announced("gone", 9, expires=-1), announced("gone", 9, expires=0)
ELSEWHERE, ALTER, APPEND = announced("x", 9, "g"), announced("x", 9, "", whole=True), announced("x", 9, "")


@pytest.mark.parametrize(
    ("others", "wait_die", "wound_wait"),
    [
        pytest.param([], Go(), Go(), id="nobody"),
        pytest.param([ME], Go(), Go(), id="itself"),
        pytest.param([OLDER], Die(OLDER), Wait((OLDER,)), id="an older one"),
        pytest.param([YOUNGER], Wait((YOUNGER,)), Wound((YOUNGER,)), id="a younger one"),
        pytest.param([OLDER, OLDEST], Die(OLDEST), Wait((OLDEST, OLDER)), id="two older ones"),
        pytest.param([YOUNGEST, YOUNGER], Wait((YOUNGER, YOUNGEST)), Wound((YOUNGER, YOUNGEST)), id="two younger ones"),
        pytest.param([YOUNGER, OLDER], Die(OLDER), Wound((YOUNGER,)), id="one of each: wound first, then wait"),
        pytest.param([TWIN], Wait((TWIN,)), Wound((TWIN,)), id="of the same age, and a greater id: younger"),
        pytest.param([ELDER_TWIN], Die(ELDER_TWIN), Wait((ELDER_TWIN,)), id="of the same age, a smaller id: older"),
        pytest.param([EXPIRED], Go(), Go(), id="expired"),
        pytest.param([JUST_EXPIRED], Go(), Go(), id="expires now"),
        pytest.param([ELSEWHERE], Go(), Go(), id="other files"),
        pytest.param([APPEND], Go(), Go(), id="an append"),
        pytest.param([ALTER], Die(ALTER), Wait((ALTER,)), id="a change of the schema"),
    ],
)
def test_verdicts(others: list[Announcement], wait_die: Verdict, wound_wait: Verdict) -> None:
    assert resolve(ME, F, others, "wait-die", now=NOW) == wait_die
    assert resolve(ME, F, others, "wound-wait", now=NOW) == wound_wait
    assert resolve(ME, F, others, "first-committer-wins", now=NOW) == Go()


@pytest.mark.parametrize("policy", ["wait-die", "wound-wait"])
def test_of_two_exactly_one_is_let_wait_and_never_both(policy: Policy) -> None:
    """No circle, so no deadlock: whoever of the two asks, only one of them would wait for the other."""
    for one, other in [(ME, OLDER), (ME, YOUNGEST), (ME, TWIN), (ME, ELDER_TWIN)]:
        verdicts = [resolve(one, F, [other], policy, now=NOW), resolve(other, F, [one], policy, now=NOW)]
        assert [isinstance(verdict, Wait) for verdict in verdicts].count(True) == 1


@pytest.mark.parametrize(
    ("claim", "theirs", "collides"),
    [
        pytest.param(Claim(frozenset("fg")), announced("x", 1, "g h"), True, id="a file of both"),
        pytest.param(Claim(frozenset("f")), announced("x", 1, "g"), False, id="different files"),
        pytest.param(Claim(), announced("x", 1, ""), False, id="two appends"),
        pytest.param(Claim(), announced("x", 1, "", whole=True), True, id="an append beside a change of the schema"),
        pytest.param(Claim(whole=True), announced("x", 1, ""), True, id="a change of the schema beside an append"),
    ],
)
def test_collisions(claim: Claim, theirs: Announcement, collides: bool) -> None:
    assert claim.collides(theirs) is collides


MANY = frozenset(map(str, range(MAX_FILES + 1)))


@pytest.mark.parametrize(
    ("touched", "expected"),
    [
        pytest.param(Footprint(added_paths=frozenset("f")), Claim(), id="an append claims no file"),
        pytest.param(
            Footprint(removed_paths=frozenset("f"), added_paths=frozenset("g")),
            F,
            id="an update claims what it replaces",
        ),
        pytest.param(Footprint(metadata=UNCLEAR), Claim(whole=True), id="a new schema claims the table"),
        pytest.param(Footprint(protocol=UNCLEAR), Claim(whole=True), id="a new protocol claims the table"),
        pytest.param(Footprint(removed_paths=MANY), Claim(whole=True), id="too many files claim the table"),
    ],
)
def test_what_a_commit_claims(touched: Footprint, expected: Claim) -> None:
    assert Claim.of(touched) == expected


@pytest.mark.parametrize(
    ("claim", "held", "asked", "both"),
    [
        pytest.param(Claim(), None, Claim(), Claim(), id="even the first append asks"),
        pytest.param(Claim(), F, None, F, id="a later append does not"),
        pytest.param(F, F, None, F, id="what is held is not asked for again"),
        pytest.param(
            Claim(frozenset("fg")), F, Claim(frozenset("g")), Claim(frozenset("fg")), id="what is new is asked for"
        ),
        pytest.param(Claim(whole=True), F, Claim(whole=True), Claim(whole=True), id="from files to the table"),
        pytest.param(F, Claim(whole=True), None, Claim(whole=True), id="who holds the table holds its files"),
        pytest.param(
            Claim(MANY - {"0"}),
            Claim(frozenset("0f")),
            Claim(MANY - {"0"}),
            Claim(whole=True),
            id="too many files in all are the table",
        ),
    ],
)
def test_what_is_asked_for_beyond_what_is_held(
    claim: Claim, held: Claim | None, asked: Claim | None, both: Claim
) -> None:
    assert claim.beyond(held) == asked
    assert claim.both(held) == both


def test_a_catalogs_options() -> None:
    assert Resolution.of({}) == FIRST_COMMITTER_WINS == Resolution("first-committer-wins", 30, 600)
    options = {"resolution": "wait-die", "lock-timeout": "500ms", "announcement-expiry": "1h"}
    assert Resolution.of(options) == Resolution("wait-die", 0.5, 3600)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"resolution": "no-wait"},
            "resolution is 'no-wait': expected one of first-committer-wins, wait-die, wound-wait",
        ),
        ({"lock-timeout": "long"}, "lock-timeout is 'long': expected a duration"),
        ({"announcement-expiry": "0s"}, "expected a second or more"),
        ({"announcement-expiry": "4000000d"}, "at most a hundred years"),
        ({"announcement-expiry": "9" * 400 + "d"}, "at most a hundred years"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidError, match=says):
        Resolution.of(options)
