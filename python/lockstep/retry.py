"""How often to try again, and how long to pause before that: one value, and the loop that follows it.

    for attempt in backoff.tries():         # 1, 2, 3, …
        if try_it():
            return "done"
    return "gave up"                        # out of attempts, or out of time

Pauses are drawn evenly from 0 to a window ("full jitter": M. Brooker, "Exponential Backoff and Jitter", 2015), whose
unit is the time that the attempt itself took: it follows the store, a disk or S3, and the load by itself.

**Which growth is fair.** A lost race for the timeline has a winner, so the lake goes on whatever the losers do: a pause
only saves the work of attempts that would be lost too. Windows that double, as networks have them, let a writer that
has just come overtake one that lost nine times and sleeps long: under constant load the unlucky starve. `RACE` does the
opposite, in two ways. Its window *shrinks* with each loss (`losers_first`), so those who lost most try most often. And
a commit after one that lost pauses before its first attempt (`Contention`), or the winner, who is the only one awake,
would win again; IEEE 802.11 calls that post-backoff (2020, 10.3.3).
Measured, it halves the 99th percentile and the longest wait of 16 writers, and costs a fifth of their commits per
second on two cores: what the winner alone would have done at full speed (docs/benchmarks.md, "Fairness").

`AGAIN`, `CLAIM`, `REQUEST` and `POLL` double: they wait for the work of others, whose length nobody knows, and not for
a turn.
"""

from __future__ import annotations

import math
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count

from lockstep.errors import InvalidError
from lockstep.settings import COMMIT_ATTEMPTS, COMMIT_TIMEOUT, Setting

RIVALS = 8
"""How many attempt times the first window of a race spans: so many writers find room in it without meeting."""

FRESH_SECONDS = 5.0
"""How long a lost race counts as a sign that there is contention."""


def losers_first(losses: int) -> float:
    """Return the window after so many lost races, in attempt times: it shrinks."""
    return RIVALS / losses


def doubling(losses: int) -> float:
    """Return the window after so many failures, in units: it doubles."""
    return 2.0 ** min(losses - 1, 62)  # beyond that the cap decides anyway, and a float would overflow


@dataclass(slots=True)
class Contention:
    """What one process remembers of the races it lost, across its commits; threads may share it, it is only a hint.

    Attributes:
        losses: of the commit that lost most lately; halved with each commit since.
        attempt_seconds: how long the last lost attempt took.
        at_seconds: when that was, on the policy's clock.
    """

    losses: int = 0
    attempt_seconds: float = 0.0
    at_seconds: float = -math.inf


@dataclass(frozen=True, slots=True)
class Backoff:
    """A policy of trying again. Give all of it, or take one below and `dataclasses.replace` what differs.

    Attributes:
        attempts: how many at most, 1 or more.
        timeout_seconds: no attempt begins later than this after the first.
        base_seconds: the least unit of the windows; the time that the attempt took, where that is longer.
        cap_seconds: no window is longer.
        growth: from how often it failed, 1 or more, to the window in units.
        random: draws from [0, 1).
        clock: seconds, never going back.
        sleep: waits for so many seconds.

    Raises:
        InvalidError: less than one attempt, or a time below zero or not finite.
    """

    attempts: int
    timeout_seconds: float
    base_seconds: float
    cap_seconds: float
    growth: Callable[[int], float]
    random: Callable[[], float] = random.random
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise InvalidError(f"attempts={self.attempts}: expected 1 or more")
        for name in ("timeout_seconds", "base_seconds", "cap_seconds"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InvalidError(f"{name}={getattr(self, name)}: expected a number of seconds, 0 or more")

    def window(self, losses: int, attempt_seconds: float) -> float:
        """Return the longest pause, in seconds, after the last of so many attempts failed."""
        return min(self.cap_seconds, self.growth(losses) * max(self.base_seconds, attempt_seconds))

    def tries(self, contention: Contention | None = None) -> Iterator[int]:
        """Yield 1, 2, 3, … for as long as the policy lets one try, with the pauses in between.

        Args:
            contention: what is remembered from one such loop to the next; nothing, if None.
        """
        start = self.clock()
        memory = contention if contention is not None else Contention()
        if memory.losses > 0 and start - memory.at_seconds < FRESH_SECONDS:
            self._pause(self.window(1, memory.attempt_seconds), self.timeout_seconds)
        memory.losses //= 2
        for attempt in count(1):
            began = self.clock()
            yield attempt
            now = self.clock()
            memory.losses = max(memory.losses, attempt)
            memory.attempt_seconds, memory.at_seconds = now - began, now
            seconds_left = start + self.timeout_seconds - now
            if attempt >= self.attempts or seconds_left <= 0:
                return
            self._pause(self.window(attempt, now - began), seconds_left)

    def _pause(self, window: float, seconds_left: float) -> None:
        self.sleep(min(self.random() * window, seconds_left))


RACE = Backoff(attempts=1000, timeout_seconds=60, base_seconds=0.001, cap_seconds=0.5, growth=losers_first)
"""A commit that lost the timeline to transactions that it does not conflict with. The cap is for attempts that were
slow for once: measured, they made single writers wait for seconds."""

AGAIN = Backoff(attempts=5, timeout_seconds=3600, base_seconds=0.1, cap_seconds=10, growth=doubling)
"""A whole transaction after a conflict, or after the store failed. Few attempts bound the growth."""

CLAIM = Backoff(attempts=10, timeout_seconds=5, base_seconds=0.01, cap_seconds=1, growth=doubling)
"""One object that a store refuses to write because of another write of it, which then left nothing."""

REQUEST = Backoff(attempts=6, timeout_seconds=30, base_seconds=0.1, cap_seconds=5, growth=doubling)
"""One request to an object store, which gave no answer, or was throttled. The store client's own bound on each request
(half a minute) comes on top of the last."""

POLL = Backoff(attempts=1_000_000, timeout_seconds=30, base_seconds=0.005, cap_seconds=0.5, growth=doubling)
"""Looking whether another transaction has ended; the timeout ends it, never the attempts."""


def race_backoff(options: Mapping[str, str]) -> Backoff:
    """Return `RACE` as a catalog's options `commit-attempts` and `commit-timeout` change it.

    Raises:
        InvalidError: one of them is not what it must be.
    """
    attempts = COMMIT_ATTEMPTS.value_in(options) or ""
    if not re.fullmatch(r"0*[1-9][0-9]{0,8}", attempts, re.ASCII):
        raise InvalidError(f"commit-attempts is {attempts[:40]!r}: expected a number from 1 to 999999999")
    return replace(RACE, attempts=int(attempts), timeout_seconds=seconds(COMMIT_TIMEOUT, options))


_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|min|m|h|d)?")
_SECONDS = {"ms": 0.001, "s": 1, None: 1, "m": 60, "min": 60, "h": 3600, "d": 86400}


def seconds(setting: Setting, options: Mapping[str, str]) -> float:
    """Return the seconds of a duration among a catalog's options, as Spark's settings write them.

    That is '500ms', '30s', '10min', '1h', '7d', or a plain number of seconds.

    Raises:
        InvalidError: it is none.
    """
    text = setting.value_in(options) or ""
    if (match := _DURATION.fullmatch(text.strip().lower())) is None:
        raise InvalidError(f"{setting.name} is {text!r}: expected a duration, as 500ms, 30s, 10min, 1h or 7d")
    return float(match[1]) * _SECONDS[match[2]]
