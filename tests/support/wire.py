"""A wire between a store and its server that loses, cuts, delays and resets real bytes, one HTTP request at a time.

    with Wire(endpoint) as wire:
        store = open_storage("s3://lake/x", options={**KEYS, "endpoint": wire.endpoint})
        wire.next("PUT", "entry.json", "lost answer")

Each request has a connection of its own, on both sides, so a fault is of one request and of no other.
"""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import closing, suppress
from typing import Literal, Self, TypeAlias
from urllib.parse import unquote, urlsplit

Fault: TypeAlias = Literal[
    "reset", "cut request", "cut answer", "lost answer", "late", "slow", "403", "429", "503", "503 after"
]
FAULTS: tuple[Fault, ...] = (
    "reset", "cut request", "cut answer", "lost answer", "late", "slow", "403", "429", "503", "503 after"
)  # fmt: skip
"""What may happen to a request.

    reset         the connection is reset, and the server never hears of the request
    cut request   the server gets half of the request, and then nothing more
    cut answer    the client gets half of the answer, and then a reset
    lost answer   the server has done what was asked, and the client's connection is reset
    late          the client's connection is reset, and the request reaches the server when `deliver` says so
    slow          the answer takes a moment
    403, 429, 503 the wire answers for the server, which never hears of the request
    503 after     the wire answers so after the server has done what was asked
"""

DONE: frozenset[Fault] = frozenset({"cut answer", "lost answer", "slow", "503 after"})
"""After these, what was asked is done."""

SLOW_SECONDS = 0.05


HELD_SECONDS = 120
"""So long an answer is kept back at most."""


class Held:
    """An answer that is kept back: the server has given it, and whoever asked waits.

    Attributes:
        came: set when the server has answered.
        go: to be set when the answer may go on.
    """

    def __init__(self) -> None:
        self.came = threading.Event()
        self.go = threading.Event()


class Wire:
    """A server that passes requests on; a context manager. See the module.

    Attributes:
        requests: method and path of each request that came, oldest first.
        heads: the same requests' first lines and headers, as they came.
    """

    def __init__(self, endpoint: str) -> None:
        parts = urlsplit(endpoint)
        self._server = (parts.hostname or "", parts.port or 80)
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._planned: list[tuple[str, str, Fault]] = []
        self._late: list[bytes] = []
        self._numbered: dict[int, Fault] = {}
        self._holds: list[tuple[str, str, Held]] = []
        self.requests: list[tuple[str, str]] = []
        self.heads: list[str] = []

    @property
    def endpoint(self) -> str:
        """The address to use in place of the server's."""
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def __enter__(self) -> Self:
        accepting = threading.Thread(target=self._accept)
        accepting.start()
        self._threads.append(accepting)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for thread in self._threads:
            thread.join()

    def next(self, method: str, path: str, fault: Fault, *, times: int = 1) -> None:
        """Let the next requests of a method, for paths that end so, meet a fault."""
        with self._lock:
            self._planned += [(method, path, fault)] * times

    def hold(self, method: str, path: str, *, nth: int = 1) -> Held:
        """Keep back the answer to the nth request from now on of a method, for paths that end so."""
        holds = [Held() for _ in range(nth)]
        for held in holds[:-1]:
            held.go.set()
        with self._lock:
            self._holds += [(method, path, held) for held in holds]
        return holds[-1]

    def number(self, faults: dict[int, Fault]) -> None:
        """Let requests meet faults by their numbers from now on, the first being 0; forget all else."""
        with self._lock:
            self._planned, self._numbered = [], dict(faults)
            self.requests = []

    def deliver(self) -> int:
        """Bring late requests to the server, and return how many there were."""
        with self._lock:
            late, self._late = self._late, []
        for request in late:
            self._ask(request)
        return len(late)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection,))
            thread.start()
            self._threads.append(thread)

    def _serve(self, connection: socket.socket) -> None:
        with closing(connection), suppress(ConnectionError):
            request = _read_request(connection)
            if request is None:
                return
            fault = self._fault_of(request)
            answer = self._answer(request, fault)
            self._keep_back(request)
            if fault == "slow":
                threading.Event().wait(SLOW_SECONDS)
            if fault in {"reset", "cut request", "lost answer", "late"}:
                _reset(connection)
            elif fault == "cut answer":
                connection.sendall(answer[: len(answer) // 2])
                _reset(connection)
            else:
                connection.sendall(answer)

    def _keep_back(self, request: bytes) -> None:
        method, path = _asked(request)
        with self._lock:
            found = next((each for each in self._holds if each[0] == method and path.endswith(each[1])), None)
            if found is None:
                return
            self._holds.remove(found)
        found[2].came.set()
        found[2].go.wait(HELD_SECONDS)

    def _fault_of(self, request: bytes) -> Fault | None:
        method, path = _asked(request)
        with self._lock:
            fault = self._numbered.pop(len(self.requests), None)
            self.requests.append((method, path))
            self.heads.append(request.partition(b"\r\n\r\n")[0].decode())
            for plan in self._planned:
                if fault is None and plan[0] == method and path.endswith(plan[1]):
                    self._planned.remove(plan)
                    return plan[2]
        return fault

    def _answer(self, request: bytes, fault: Fault | None) -> bytes:
        match fault:
            case "reset":
                return b""
            case "late":
                with self._lock:
                    self._late.append(request)
                return b""
            case "cut request":
                return self._ask(request[: len(request) // 2])
            case "403" | "429" | "503":
                return _error(fault)
            case "503 after":
                self._ask(request)
                return _error("503")
            case _:
                return self._ask(request)

    def _ask(self, request: bytes) -> bytes:
        """Send bytes to the server, and return its answer: all that comes until it closes."""
        with closing(socket.create_connection(self._server, timeout=30)) as server:
            server.sendall(request)
            server.shutdown(socket.SHUT_WR)
            answer = b""
            with suppress(ConnectionError):
                while piece := server.recv(65536):
                    answer += piece
            return answer


def _asked(request: bytes) -> tuple[str, str]:
    """Return a request's method and path."""
    method, target, _ = request.split(b"\r\n", 1)[0].decode().split(" ")
    return method, unquote(target.partition("?")[0])


def _read_request(connection: socket.socket) -> bytes | None:
    """Return one whole request, which asks for its connection to be closed; None if none came."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            return None
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
    length = next((int(line.split(b":")[1]) for line in lines if line.lower().startswith(b"content-length:")), 0)
    while len(body) < length:
        piece = connection.recv(65536)
        if not piece:
            return None
        body += piece
    return b"\r\n".join([*lines, b"Connection: close", b"", b""]) + body


def _error(status: str) -> bytes:
    words = {"403": ("Forbidden", "AccessDenied"), "429": ("Too Many Requests", "SlowDown")}
    reason, code = words.get(status, ("Service Unavailable", "ServiceUnavailable"))
    body = f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code><Message>the wire</Message></Error>'
    head = f"HTTP/1.1 {status} {reason}\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Connection: close\r\n\r\n{body}".encode()


def _reset(connection: socket.socket) -> None:
    """Close a connection so that the other side sees a reset, and no end."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
