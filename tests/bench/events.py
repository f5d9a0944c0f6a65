"""A clock that jumps from event to event: programs are generators that say what they wait for. Deterministic.

    def program():
        yield 0.030          # for so many seconds
        yield signal         # until somebody sets it

Nothing here knows of Lockstep.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Generator
from itertools import count
from typing import TypeAlias


class Signal:
    """Something that happens once: who waits for it goes on then, and who comes later does not wait."""

    __slots__ = ("is_set", "waiting")

    def __init__(self) -> None:
        self.is_set = False
        self.waiting: list[Program] = []


Program: TypeAlias = Generator["float | Signal", None, None]


class Clock:
    """Runs programs in the order of what they wait for; two at one moment go in the order in which they asked."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Program]] = []
        self._numbers = count()

    def start(self, program: Program, after: float = 0.0) -> None:
        """Begin a program in so many seconds."""
        heapq.heappush(self._due, (self.now + after, next(self._numbers), program))

    def set(self, signal: Signal) -> None:
        """Let whoever waits for a signal go on."""
        signal.is_set = True
        for program in signal.waiting:
            self.start(program)
        signal.waiting.clear()

    def run(self, until: float) -> None:
        """Let time go on until a moment, or until nothing is left to happen."""
        while self._due and self._due[0][0] <= until:
            self.now, _, program = heapq.heappop(self._due)
            try:
                awaited = next(program)
            except StopIteration:
                continue
            if not isinstance(awaited, Signal):
                self.start(program, awaited)
            elif awaited.is_set:
                self.start(program)
            else:
                awaited.waiting.append(program)


class Turns:
    """One at a time, in the order of coming: a processor, or an interpreter's lock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._is_taken = False
        self._queue: deque[Signal] = deque()

    def hold(self, seconds: float) -> Program:
        """Wait for one's turn, and keep it for so long."""
        if not seconds:
            return
        if self._is_taken:
            signal = Signal()
            self._queue.append(signal)
            yield signal
        self._is_taken = True
        yield seconds
        if self._queue:
            self._clock.set(self._queue.popleft())
        else:
            self._is_taken = False
