"""The scheduler: real threads, of which one runs at a time, until it comes to a point where a seed says who goes on.

A task is a thread of a simulated process. It hands the baton on where it calls `pause` (a request to the store, mostly)
or `block` (a lock, a pause of seconds, an answer that another task owes it), and nowhere else, so that a schedule
follows from the seed alone. Time is a number here, and goes on when somebody waits for it.

A process that crashes is never heard of again: each of its tasks is ended at the point where it stands, and whatever
its `finally` blocks try then fails before it does anything.
"""

from __future__ import annotations

import random
import threading
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field

MAX_STEPS = 200_000
"""A schedule that takes longer than this goes round in circles."""

MAX_SECONDS = 36_000.0
"""So does one that has waited for so long; time that somebody had pass does not count."""


class Crashed(BaseException):
    """The process of this task is no more."""


class StuckError(AssertionError):
    """Nobody can go on, or everybody does for ever."""


@dataclass(eq=False)
class Process:
    """A simulated process: what crashes as one, and has one clock.

    Attributes:
        frozen_until: before this step none of its tasks runs, unless nobody else can.
    """

    name: str
    skew_seconds: float = 0.0
    is_dead: bool = False
    frozen_until: int = 0


@dataclass(eq=False)
class Task:
    """A thread of a process.

    Attributes:
        ready: what it waits for; nothing, if it is None.
        deadline: until when at most.
        at: what it is about to do.
    """

    process: Process
    name: str
    wake: threading.Lock
    ready: Callable[[], bool] | None = None
    deadline: float | None = None
    is_done: bool = False
    at: str = ""


class _Runner:
    """A real thread, which carries out one task after another."""

    idle: list[_Runner] = []  # noqa: RUF012 (shared by all schedules of this process, one after the other)

    def __init__(self) -> None:
        self.wake = threading.Lock()
        self.wake.acquire()
        self.work: Callable[[], None] | None = None
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            self.wake.acquire()
            work, self.work = self.work, None
            assert work is not None, "woken without work"
            work()

    @classmethod
    def get(cls) -> _Runner:
        return cls.idle.pop() if cls.idle else cls()


@dataclass
class Habits:
    """How a schedule goes about its choices.

    Attributes:
        stay: how often a task that could go on does.
        at_locks: how often the baton is handed on where a lock is taken that is free.
        freeze: how often, by step, a process stops for a while.
        hurry: how often, by step, time jumps to when the next sleeper wakes, though others could run.
        land: how often, by step, one of the requests arrives that are under way still.
        slow: how often others may go on, at most, while one write is on its way.
    """

    stay: float = 0.3
    at_locks: float = 0.0
    freeze: float = 0.0
    hurry: float = 0.0
    land: float = 0.05
    slow: int = 0


@dataclass
class Scheduler:
    """Runs the tasks of one schedule; whoever makes it is its first task.

    Attributes:
        passed: how much of the time that it is somebody had pass at once.
        under_way: requests that will arrive, in any order: nobody waits for them any more.
        digest: of all that was done so far; equal schedules have equal ones.
    """

    seed: int | str
    habits: Habits = field(default_factory=Habits)
    now: float = 0.0
    passed: float = 0.0
    steps: int = 0
    digest: int = 0
    under_way: list[Callable[[], object]] = field(default_factory=list)
    trace: list[str] | None = None

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.current = Task(Process("main"), "main", threading.Lock())
        self.current.wake.acquire()
        self.main = self.current
        self.tasks = [self.current]
        self._failure: str | None = None
        self._is_closed = False

    # --- for tasks ----------------------------------------------------------------------------------------------------

    def spawn(self, work: Callable[[], object], name: str, process: Process | None = None) -> Task:
        """Have a task begin at some time, in this process or another."""
        runner = _Runner.get()
        task = Task(process or self.current.process, name, runner.wake)
        self.tasks.append(task)

        def run() -> None:
            try:
                self.check_alive()
                work()
            except Crashed:
                pass
            except BaseException as error:  # noqa: BLE001 (a task that fails fails the schedule)
                self._failure = self._failure or f"{name}: {error!r}"
            task.is_done = True
            self.tasks.remove(task)
            _Runner.idle.append(runner)
            self._hand_on()

        runner.work = run
        return task

    def pause(self, what: str) -> None:
        """Let others go on."""
        self._switch(what)

    def block(self, ready: Callable[[], bool], seconds: float | None = None) -> bool:
        """Wait until something is so, or for so many seconds, and tell whether it is."""
        task = self.current
        task.ready = ready
        task.deadline = None if seconds is None else self.now + max(0.0, seconds)
        self._switch("")
        task.ready = task.deadline = None
        return ready()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        self.block(lambda: False, seconds)

    def pass_time(self, seconds: float) -> None:
        """Have time pass in which nobody does anything, wherever he stands: minutes, or weeks.

        No request is under way for so long: they all arrive before.
        """
        self.land_all()
        self.now += seconds
        self.passed += seconds
        self.pause(f"{seconds:.0f} s pass")

    def check_alive(self) -> None:
        """End the task here if its process has crashed, or the schedule has failed."""
        if self.current.process.is_dead:
            raise Crashed
        if self._failure is not None and self.current is self.main:
            raise StuckError(self._failure)

    def crash(self, process: Process) -> None:
        """End a process: none of its tasks does anything from here on."""
        process.is_dead = True
        self.note(f"{process.name} crashes")
        self.check_alive()

    def later(self, effect: Callable[[], object]) -> None:
        """Have a request arrive at some time."""
        self.under_way.append(effect)

    def land_all(self) -> None:
        """Have all requests arrive that are under way."""
        while self.under_way:
            self._land()

    def close(self) -> None:
        """End all tasks but the first, which asks for it; whatever went wrong before."""
        self._failure = None
        self._is_closed = True
        for task in self.tasks:
            task.process.is_dead = task is not self.main
        while len(self.tasks) > 1:
            self._hand_to(self.tasks[-1])
            self.main.wake.acquire()

    # --- who goes on --------------------------------------------------------------------------------------------------

    def _switch(self, what: str) -> None:
        task = self.current
        self.check_alive()
        self.note(what)
        task.at = what
        chosen = self._choose()
        if chosen is not task:
            self._hand_to(chosen)
            task.wake.acquire()
        if task.process.is_dead or self._failure is not None:
            task.ready = task.deadline = None
            self.check_alive()

    def _hand_on(self) -> None:
        self._hand_to(self.main if self._is_closed else self._choose())

    def _hand_to(self, task: Task) -> None:
        self.current = task
        task.wake.release()

    def _choose(self) -> Task:
        self.steps += 1
        chance, habits = self.random, self.habits
        if self._failure is not None or self.steps > MAX_STEPS or self.now - self.passed > MAX_SECONDS:
            self._failure = self._failure or f"no end after {self.steps} steps and {self.now:.0f} simulated seconds"
            return self.main
        if self.under_way and chance.random() < habits.land:
            self._land()
        self.now += 0.0005
        if habits.freeze and chance.random() < habits.freeze:
            chance.choice(self.tasks).process.frozen_until = self.steps + chance.randint(5, 200)
        able = [task for task in self.tasks if self._is_able(task)]
        if not able or (habits.hurry and chance.random() < habits.hurry):
            able = self._wait(able)
            if not able:
                waiting = ", ".join(f"{task.process.name}/{task.name}" for task in self.tasks)
                self._failure = f"nobody can go on: {waiting}"
                return self.main
        if self.current in able and not self.current.is_done and chance.random() < habits.stay:
            return self.current
        awake = [task for task in able if task.process.frozen_until <= self.steps] or able
        chosen = chance.choice(awake)
        self.digest = zlib.crc32(f"{chosen.process.name}/{chosen.name}".encode(), self.digest)
        return chosen

    def _is_able(self, task: Task) -> bool:
        if task.ready is None or task.process.is_dead:
            return True
        return (task.deadline is not None and task.deadline <= self.now) or task.ready()

    def _wait(self, able: list[Task]) -> list[Task]:
        """Let time go on to when the next sleeper wakes; return who can go on then."""
        deadlines = [t.deadline for t in self.tasks if t.deadline is not None and t.deadline > self.now]
        if not deadlines:
            return able
        self.now = min(deadlines)
        return [task for task in self.tasks if self._is_able(task)]

    def _land(self) -> None:
        effect = self.under_way.pop(self.random.randrange(len(self.under_way)))
        self.note("a request arrives late")
        effect()

    def note(self, what: str) -> None:
        """Add a line to what was done."""
        if not what:
            return
        line = f"{self.current.process.name}/{self.current.name} {what}"
        self.digest = zlib.crc32(line.encode(), self.digest)
        if self.trace is not None:
            self.trace.append(f"{self.steps:6} {self.now:10.3f} {line}")
