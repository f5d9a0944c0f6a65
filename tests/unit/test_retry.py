"""The policies of trying again: their windows as a table, and the loop on a clock that only the pauses move."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import pytest

from lockstep.errors import InvalidError
from lockstep.retry import AGAIN, POLL, RACE, RIVALS, Backoff, Contention, race_backoff, seconds
from lockstep.settings import LOCK_TIMEOUT


@dataclass
class Time:
    """A clock that pauses move; an attempt takes `attempt_seconds`."""

    now: float = 1000.0
    pauses: list[float] = field(default_factory=list)

    def sleep(self, pause: float) -> None:
        self.pauses.append(pause)
        self.now += pause

    def policy(self, like: Backoff, **changes: float) -> Backoff:
        """Return the policy on this clock, always drawing the middle of the window."""
        return replace(like, clock=lambda: self.now, sleep=self.sleep, random=lambda: 0.5, **changes)  # type: ignore[arg-type]


def lose(time: Time, policy: Backoff, *, attempt_seconds: float, contention: Contention | None = None) -> int:
    """Fail every attempt, and return how many there were."""
    tried = 0
    for attempt in policy.tries(contention):
        tried = attempt
        time.now += attempt_seconds
    return tried


@pytest.mark.parametrize(
    ("policy", "losses", "attempt_seconds", "expected"),
    [
        pytest.param(RACE, 1, 0.01, 0.01 * RIVALS, id="a race: at first, room for its rivals"),
        pytest.param(RACE, 4, 0.01, 0.01 * RIVALS / 4, id="a race: less after each loss"),
        pytest.param(RACE, 1, 100.0, RACE.cap_seconds, id="a race: never above the cap"),
        pytest.param(RACE, 1, 0.0, 0.001 * RIVALS, id="a race: an attempt that took no time counts as the base"),
        pytest.param(AGAIN, 1, 0.0, 0.1, id="a transaction: the base"),
        pytest.param(AGAIN, 3, 0.0, 0.4, id="a transaction: doubles"),
        pytest.param(AGAIN, 3, 2.0, 8.0, id="a transaction: in units of what it took"),
        pytest.param(AGAIN, 5, 2.0, 10.0, id="a transaction: never above the cap"),
        pytest.param(POLL, 10**6, 0.0, 0.5, id="a poll: no number of looks overflows"),
    ],
)
def test_windows(policy: Backoff, losses: int, attempt_seconds: float, expected: float) -> None:
    assert policy.window(losses, attempt_seconds) == pytest.approx(expected)


def test_who_lost_more_pauses_less() -> None:
    windows = [RACE.window(losses, 0.01) for losses in range(1, 100)]
    assert windows == sorted(windows, reverse=True)


def test_there_is_no_pause_before_the_first_attempt_and_none_after_the_last() -> None:
    time = Time()
    assert lose(time, time.policy(AGAIN, attempts=3), attempt_seconds=0) == 3
    assert time.pauses == [0.05, 0.1]


def test_no_attempt_begins_after_the_timeout_and_the_last_pause_ends_with_it() -> None:
    time = Time()
    policy = time.policy(AGAIN, attempts=100, timeout_seconds=1.0, base_seconds=1.0)
    assert lose(time, policy, attempt_seconds=0.2) == 3
    assert time.pauses == [0.5, pytest.approx(0.1)], "0.2 + 0.5 + 0.2 s had gone by of the one"


def test_a_commit_after_one_that_lost_lets_others_go_first() -> None:
    """The winner of a race is the only one awake, and would win the next one too."""
    time, contention = Time(), Contention()
    lose(time, time.policy(RACE, attempts=4), attempt_seconds=0.01, contention=contention)
    before_first = []
    for _ in range(4):
        time.pauses.clear()
        next(time.policy(RACE).tries(contention))
        before_first.append(bool(time.pauses))
    assert before_first == [True, True, True, False], "what 4 losses leave is halved each time"


def test_an_old_race_is_forgotten() -> None:
    time, contention = Time(), Contention()
    lose(time, time.policy(RACE, attempts=4), attempt_seconds=0.01, contention=contention)
    time.now += 3600
    time.pauses.clear()
    next(time.policy(RACE).tries(contention))
    assert time.pauses == []


@pytest.mark.parametrize(
    "wrong", [{"attempts": 0}, {"timeout_seconds": -1}, {"cap_seconds": math.inf}, {"base_seconds": math.nan}], ids=str
)
def test_a_policy_without_bounds_is_refused(wrong: dict[str, float]) -> None:
    [(name, value)] = wrong.items()
    with pytest.raises(InvalidError, match=f"{name}={value}: expected"):
        replace(RACE, **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("500ms", 0.5), ("30s", 30), ("1.5", 1.5), ("10min", 600), ("2 m", 120), ("1H", 3600), ("30d", 30 * 86400)],
)
def test_durations(text: str, expected: float) -> None:
    assert seconds(LOCK_TIMEOUT, {"lock-timeout": text}) == expected


@pytest.mark.parametrize("text", ["", "soon", "-1s", "1w", "1s2", "٣s", "inf"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(InvalidError, match=rf"lock-timeout is '{text}': expected a duration, as 500ms"):
        seconds(LOCK_TIMEOUT, {"lock-timeout": text})


def test_a_catalog_may_set_how_long_a_commit_tries() -> None:
    assert race_backoff({}) == RACE
    assert race_backoff({"commit-attempts": "3", "commit-timeout": "2s"}) == replace(
        RACE, attempts=3, timeout_seconds=2
    )
    for wrong in ("0", "many", "-1", "1.5"):
        with pytest.raises(InvalidError, match=f"commit-attempts is '{wrong}'"):
            race_backoff({"commit-attempts": wrong})
    with pytest.raises(InvalidError, match=r"commit-attempts is '9{40}': expected a number"):
        race_backoff({"commit-attempts": "9" * 5000})  # Python makes no number of so many digits
