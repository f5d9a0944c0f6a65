"""A module of this repository in a process of its own: lines of JSON in, lines of JSON out, from both ends.

    child = Child("tests.bench.side", "plain")      whoever starts the process
    child.ask("select 1")

    parent = Parent()                               in the process, before it starts a Spark
    for request in parent.requests():
        parent.say(...)

This file imports nothing of Lockstep: processes of plain Delta use it, too.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from queue import Empty, Queue
from typing import IO, Any, Self

REPOSITORY = Path(__file__).parents[2]

CLOSING_S = 60.0
"""How long a process may take to end once it is asked to."""


class EndedError(RuntimeError):
    """The process has ended, and gave no answer."""


class Child:
    """Such a process, as who started it sees it; a context manager that leaves nothing running.

    Args:
        module: the one to run, with the command line's arguments after it.
        errors: where its standard error goes, which has also what Spark prints; None for this process's own.
        environment: what differs from this process's.
        patience_s: how long one answer may take; None for as long as it takes.
        python: what runs it; None for what runs this process.
    """

    def __init__(
        self,
        module: str,
        *arguments: str,
        errors: int | IO[str] | None = None,
        environment: Mapping[str, str] | None = None,
        patience_s: float | None = None,
        python: str | None = None,
    ) -> None:
        self._process = subprocess.Popen(
            [python or sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=REPOSITORY,
            env={**os.environ, **(environment or {})},
            start_new_session=True,  # a group of its own: Python and the JVM are killed as one
        )
        self._module = module
        self._patience_s = patience_s
        self._answers: Queue[str] = Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def returncode(self) -> int | None:
        """How it ended; None while it runs."""
        return self._process.poll()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put("")

    def tell(self, request: object) -> None:
        """Send a request, and go on."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        """Wait for the next answer.

        Raises:
            EndedError: there will be none.
            AssertionError: there was none in time.
        """
        try:
            line = self._answers.get(timeout=self._patience_s)
        except Empty:
            raise AssertionError(f"no answer of {self._module} within {self._patience_s} s") from None
        if not line:
            self._answers.put("")
            code = self._process.wait(CLOSING_S)
            raise EndedError(f"{self._module} ended with exit code {code}; its standard error says why")
        return json.loads(line)

    def ask(self, request: object) -> Any:
        """Send a request, and return its answer."""
        self.tell(request)
        return self.answer()

    def rest(self) -> Iterator[Any]:
        """Yield answers until the process ends by itself.

        Raises:
            EndedError: it failed.
        """
        while True:
            try:
                answer = self.answer()
            except EndedError:
                if self.returncode != 0:
                    raise
                return
            yield answer

    def close(self) -> None:
        """Let it end, which is what the end of its input asks for; kill it if it does not."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(CLOSING_S)
        self.kill()

    def kill(self) -> None:
        """Kill Python and the JVM as a power cut would, and wait until both are gone."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(CLOSING_S)
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()


class Parent:
    """Who started this process. From the making of this on, standard output is for answers alone.

    What Spark and others print goes to the standard error instead.
    """

    def __init__(self) -> None:
        self._answers = os.fdopen(os.dup(1), "w")
        self._turn = threading.Lock()
        os.dup2(2, 1)

    def requests(self) -> Iterator[Any]:
        """Yield each request, until there are no more."""
        return map(json.loads, sys.stdin)

    def say(self, answer: object) -> None:
        """Send an answer; any thread may. What JSON does not know is sent as its text."""
        with self._turn:
            self._answers.write(json.dumps(answer, default=str) + "\n")
            self._answers.flush()
