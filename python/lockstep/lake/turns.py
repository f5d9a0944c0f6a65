"""Turns: of the processes of one host that race for a timeline, one at a time reads on, judges, puts and publishes.

Who loses the race for the next entry has judged for nothing. On one host that can be spared: an advisory lock on a file
lets one process at a time try. It is a hint and no more. What makes a commit safe is put-if-absent, as if there were no
turns, so whoever cannot have one goes on without:

    the file cannot be made or locked       no turns: the folder is read-only, the file system knows no locks
    it is not this process's turn in time   the holder is stopped or stuck: for a while nobody of this process asks
    the holder is killed                    the operating system lets go of its lock

The threads of one process share its turn, for what they commit together becomes one file of the timeline
(`lockstep.timeline.group`). While other processes wait, no thread joins a turn that is older than `TENURE_SECONDS`.

**Who is next reads on.** While one process has its turn, which is mostly time of the disk, one of those that wait, by a
second lock, knows that it comes next, and does what can be done before its turn (`Turn`, `ahead`): to read what the
others committed. So only what the last of them commits is left to read in the turn.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import logging
import os
import tempfile
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Self

from lockstep.forks import anew_in_forks
from lockstep.workers import thread_of

PATIENCE_SECONDS = 0.5
"""So long at most a thread waits for its turn."""

IGNORED_SECONDS = 5.0
"""So long nobody of this process asks again after a turn did not come in time."""

TENURE_SECONDS = 0.05
"""A turn that is older than this takes in no more threads, if another process waits."""

IDLE_SECONDS = 5.0
"""The thread that waits for the lock ends when nobody has asked for so long."""

FILE = "_lockstep/turn.lock"
"""Where the file lies in a local lake: all who share the folder find it there, in containers, too. It is empty."""

_log = logging.getLogger(__name__)


def lock_file(url: str) -> Path:
    """Return the file whose lock is the turn of this host's processes on a lake, given its root."""
    if url.startswith("file://"):
        return Path(url.removeprefix("file://"), FILE)
    return Path(tempfile.gettempdir(), f"lockstep-turn-{hashlib.sha256(url.encode()).hexdigest()[:32]}.lock")


class Turn:
    """One thread's part in its process's turn, from `begin` to `end`; a context manager that sees to the end.

    Attributes:
        ahead: what is done while the process before this one has its turn.
    """

    def __init__(
        self, turns: Turns | None, before: Callable[[], object], *, ahead: Callable[[], object] = lambda: None
    ) -> None:
        """Take part in some turns, or in none.

        Args:
            before: is called before each beginning.
            ahead: is called once before a turn that is waited for, when this process is the next to have it. Nothing
                may depend on it, for it is not called where nobody has to wait.
        """
        self._turns = turns
        self._before = before
        self.ahead = ahead

    def begin(self) -> None:
        """Wait for the turn, for a bounded time; whoever does not get it goes on without.

        Raises:
            What `ahead` raises; then the turn is not begun.
        """
        self._before()
        if self._turns is not None:
            self._turns.enter(self)

    def end(self) -> None:
        """Let others have their turn; nothing, if this one did not begin or has ended."""
        if self._turns is not None:
            self._turns.leave(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


class Turns:
    """The turns of this process on one lake; safe to share between threads."""

    def __init__(
        self,
        file: Path,
        *,
        patience_seconds: float = PATIENCE_SECONDS,
        tenure_seconds: float = TENURE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Lock a file, which is opened, or made, when a turn is first asked for."""
        self._file = file
        self._patience = patience_seconds
        self._tenure = tenure_seconds
        self._clock = clock
        self._locks: _Locks | None = None
        self.begin_anew()
        anew_in_forks(self)

    def begin_anew(self) -> None:
        """Know of nothing: neither does a process that has just been forked, and its parent's turn is not its own.

        It lets go of the files that it shares with its parent: it would hold the parent's lock when that is killed.
        """
        if self._locks is not None:
            self._locks.close()  # else what its parent's threads were in the middle of has them for ever
        self._lock = threading.Lock()
        self._came = threading.Condition(self._lock)  # this process has its turn
        self._asked = threading.Condition(self._lock)  # there is something to do for the thread that waits for it
        self._locks = None
        self._is_usable = True
        self._inside: set[Turn] = set()
        self._holds = False
        self._is_next = False
        self._since = 0.0
        self._ignored_until = 0.0
        self._waiting = 0
        self._is_asking = False
        self._has_thread = False

    def enter(self, turn: Turn) -> bool:
        """Wait until this process has its turn and a thread may join in, and tell whether that came in time.

        Raises:
            What the turn's `ahead` raises.
        """
        with self._lock:
            if self._clock() < self._ignored_until or not self._is_open():
                return False
            if self._joins(turn):
                return True
            self._waiting += 1
            try:
                if self._ask() and self._comes(turn):
                    return True
            finally:
                self._waiting -= 1
                if self._holds and not (self._inside or self._waiting):
                    self._let_go()  # it came for a thread that has failed ahead
            self._ignored_until = self._clock() + IGNORED_SECONDS
        _log.info("no turn at %s within %s s: going on without", self._file, self._patience)
        return False

    def _comes(self, turn: Turn) -> bool:
        """Wait as `enter` does, and do what is to be done ahead; under the lock, but while that is done."""
        until = time.monotonic() + self._patience
        if not self._came.wait_for(lambda: self._is_next or self._joins(turn), self._patience):
            return False
        if turn in self._inside:
            return True
        self._lock.release()
        try:
            turn.ahead()
        finally:
            self._lock.acquire()
        return self._came.wait_for(lambda: self._joins(turn), max(0.0, until - time.monotonic()))

    def leave(self, turn: Turn) -> None:
        """Note that a thread has done what it wanted its turn for; the last one gives it up."""
        with self._lock:
            if turn not in self._inside:
                return
            self._inside.remove(turn)
            if not self._inside:
                self._let_go()
                if self._waiting:
                    self._ask()  # behind the others

    def _joins(self, turn: Turn) -> bool:
        """Let a thread join in, if it may; under the lock."""
        if self._locks is None:
            return False
        if not (self._holds or self._is_asking) and self._locks.try_acquire():
            self._take()
        is_new = self._clock() - self._since < self._tenure
        if not self._holds or not (is_new or not self._inside or not self._locks.others_wait()):
            return False
        self._inside.add(turn)
        return True

    def _let_go(self) -> None:
        self._holds = False
        assert self._locks is not None, "it was locked"
        self._locks.release()

    def _take(self) -> None:
        self._holds = True
        self._since = self._clock()

    def _is_open(self) -> bool:
        """Tell whether there are turns; the file is opened by whoever asks first."""
        if self._locks is None and self._is_usable:
            try:
                self._locks = _Locks(self._file)
            except OSError as error:
                self._is_usable = False
                _log.info("no turns: cannot open %s (%s)", self._file, error.strerror)
        return self._locks is not None

    # --- the thread that waits for the lock, which may take for ever --------------------------------------------------

    def _ask(self) -> bool:
        """Have a thread wait for the lock, unless one does, and tell whether one does; under the lock of this object.

        Where there can be none, as there are too many or the interpreter ends, who asks next tries it again.
        """
        if self._holds or self._is_asking:
            return True
        if self._has_thread:
            self._is_asking = True
            self._asked.notify()
            return True
        # A thread that has begun waits for this object's lock, so it sees both.
        self._is_asking = self._has_thread = thread_of(self._wait, "lockstep-turn") is not None
        return self._has_thread

    def _wait(self) -> None:
        while True:
            with self._lock:
                if not self._asked.wait_for(lambda: self._is_asking, IDLE_SECONDS):
                    self._has_thread = False
                    return
                locks = self._locks
            assert locks is not None, "nobody asks before it is there"
            has_it = locks.acquire(self._comes_next)
            with self._lock:
                self._is_asking = self._is_next = False
                if not has_it:
                    self._is_usable, self._locks = False, None
                elif self._waiting:
                    self._take()
                    self._came.notify_all()
                else:
                    locks.release()

    def _comes_next(self) -> None:
        with self._lock:
            self._is_next = True
            self._came.notify_all()


class _Locks:
    """The lock of a file, `turn.lock`; and two beside it, by which others can tell who comes next, and that some wait.

    `turn.next` one of those who wait has, `turn.waiting` all of them share.
    """

    def __init__(self, file: Path) -> None:
        """Open both; raises OSError."""
        self._mine, self._next = _opened(file), _opened(file.with_suffix(".next"))
        # Two handles, for the lock of a handle is one: who waits shares it, who looks tries to have it alone.
        self._line, self._look = (_opened(file.with_suffix(".waiting")) for _ in range(2))
        self.close = weakref.finalize(self, _close, self._mine, self._next, self._line, self._look)

    def try_acquire(self) -> bool:
        return _try_lock(self._mine)

    def acquire(self, comes_next: Callable[[], object]) -> bool:
        """Wait for the lock, however long; False if the file system has none.

        Args:
            comes_next: is called when nobody who waits is before this process any more.
        """
        try:
            fcntl.flock(self._line, fcntl.LOCK_SH)
            try:
                fcntl.flock(self._next, fcntl.LOCK_EX)
                comes_next()
                fcntl.flock(self._mine, fcntl.LOCK_EX)
            finally:
                fcntl.flock(self._next, fcntl.LOCK_UN)
                fcntl.flock(self._line, fcntl.LOCK_UN)
        except OSError as error:
            _log.info("no turns: cannot lock (%s)", error.strerror)
            return False
        return True

    def release(self) -> None:
        fcntl.flock(self._mine, fcntl.LOCK_UN)

    def others_wait(self) -> bool:
        """Tell whether another process waits for the lock."""
        if not _try_lock(self._look):
            return True
        fcntl.flock(self._look, fcntl.LOCK_UN)
        return False


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in {errno.EWOULDBLOCK, errno.EACCES}:
            _log.debug("cannot lock: %s", error.strerror)  # whoever waits for it is told the same
        return False
    return True


def _opened(file: Path) -> int:
    """Open a file, whoever made it; to lock it takes no more than to read it. Links of others are not followed."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(file, flags)
    except FileNotFoundError:
        return os.open(file, flags | os.O_CREAT, 0o644)


def _close(*handles: int) -> None:
    for handle in handles:
        os.close(handle)
