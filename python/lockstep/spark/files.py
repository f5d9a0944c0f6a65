"""How this process reaches HDFS: by a driver's JVM, which has Hadoop's client (`lockstep.storage.hadoop`).

A PySpark driver asks over Py4J (`OverPy4J`); a host that the shim started asks back over its pipes (`OverPipes`).
Neither waits for a statement of the driver, so a request to the host may wait for HDFS without waiting for itself.
"""

from __future__ import annotations

import base64
import itertools
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import cached_property
from typing import Any

from py4j.protocol import Py4JError

from lockstep.errors import UnavailableError
from lockstep.workers import Threads

MOST_AT_ONCE = 32
"""Requests that are under way over Py4J; each has a thread of the JVM for itself."""

PATIENCE_SECONDS = 300
"""So long an answer is waited for. Hadoop's client tries again on its own, and may look for a name node for longer."""


class OverPy4J:
    """Asks over the gateway of a PySpark driver, from threads of its own.

    An interrupt (Ctrl-C) is raised in the main thread, and in the middle of a call of Py4J's it would leave an answer
    behind, which the next call would take for its own. These threads are never interrupted; who waits for them is.
    """

    def __init__(self, gateway: Any, configuration: Callable[[], Any]) -> None:
        """Take the driver's gateway, and what gives Hadoop's configuration as the driver has it; asked if need be."""
        self._gateway = gateway
        self._configuration_of = configuration
        self._threads = Threads(MOST_AT_ONCE, thread_name_prefix="lockstep-hadoop")

    def __call__(self, request: bytes) -> bytes:
        return _answer_of(self._threads.submit(self._asked, request))

    @cached_property
    def _call(self) -> Any:
        return self._gateway.jvm.lockstep.spark.Bridge.files

    @cached_property
    def _configuration(self) -> Any:
        return self._configuration_of()

    def _asked(self, request: bytes) -> bytes:
        try:
            return bytes(self._call(self._configuration, request))  # one round trip
        except (Py4JError, OSError) as error:  # the JVM has ended, or has no memory left
            said = next(iter(str(error).splitlines()), type(error).__name__)
            raise UnavailableError(f"the driver's JVM did not answer ({said})") from error


class OverPipes:
    """Asks the driver that started this process: a line out for each request, and a line in for its answer.

    files <number> <request, in Base64>
    files <number> <answer, in Base64>
    """

    WORD = b"files"

    def __init__(self, say: Callable[[bytes], None]) -> None:
        """Take what sends a line to the driver."""
        self._say = say
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._waiting: dict[bytes, Future[bytes]] = {}
        self._has_ended = False

    def __call__(self, request: bytes) -> bytes:
        number, future = b"%d" % next(self._numbers), Future[bytes]()
        with self._lock:
            if self._has_ended:
                raise UnavailableError("the driver has ended", definite=True)
            self._waiting[number] = future
        try:
            future.set_running_or_notify_cancel()  # it is on its way
            self._say(b"%s %s %s" % (self.WORD, number, base64.b64encode(request)))
            return _answer_of(future)
        except BrokenPipeError as error:
            raise UnavailableError("the driver has ended") from error
        finally:
            with self._lock:
                self._waiting.pop(number, None)

    def heard(self, line: bytes) -> None:
        """Take a line that began with `WORD`, without that."""
        number, _, answer = line.partition(b" ")
        with self._lock:
            future = self._waiting.pop(number, None)
        if future is not None:  # nobody waits any more who ran out of patience
            future.set_result(base64.b64decode(answer))

    def end(self) -> None:
        """Let nobody wait any longer: the driver has ended."""
        with self._lock:
            self._has_ended = True
            waiting = [*self._waiting.values()]
            self._waiting.clear()
        for future in waiting:
            future.set_exception(UnavailableError("the driver ended before it answered"))


def _answer_of(future: Future[bytes]) -> bytes:
    try:
        return future.result(PATIENCE_SECONDS)
    except TimeoutError as error:
        has_not_begun = future.cancel()
        message = f"no answer within {PATIENCE_SECONDS} seconds"
        raise UnavailableError(message, definite=has_not_begun) from error
