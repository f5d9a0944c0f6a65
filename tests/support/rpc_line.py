"""A line between Hadoop's client and a name node, on which a request or its answer gets lost.

    with RpcLine("127.0.0.1", 8020) as line:
        store = open_storage(f"hdfs://{line.address}/lake")
        line.next = "lost answer"

A fault meets the next rename. Requests go over one connection, and name their method in plain text.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from queue import Queue
from typing import Literal, Self, TypeAlias

Fault: TypeAlias = Literal["lost request", "lost answer", "lost answer, and dead", "late"]
FAULTS: tuple[Fault, ...] = ("lost request", "lost answer", "lost answer, and dead", "late")
"""What may happen to a rename.

    lost request            the connection is cut, and the name node never hears of it
    lost answer             the name node has renamed, and the connection is cut
    lost answer, and dead   the same, and nobody gets through any more, until `revive` says so
    late                    the connection is cut, and the request reaches the name node when `deliver` says so
"""

_RENAME = b"rename2"
ANSWER_SECONDS = 10
"""So long a request may take."""


class RpcLine:
    """A server that passes bytes on, both ways; a context manager. See the module.

    Attributes:
        next: what meets the next rename.
    """

    def __init__(self, host: str, port: int) -> None:
        self._name_node = (host, port)
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._open: list[socket.socket] = []
        self._late: list[tuple[socket.socket, bytes]] = []
        self._muted: list[socket.socket] = []
        self._unheard: Queue[bytes] = Queue()
        self._is_dead = False
        self.next: Fault | None = None

    @property
    def address(self) -> str:
        """The address to use in place of the name node's."""
        return f"127.0.0.1:{self._socket.getsockname()[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for each in (self._socket, *self._open):
            _cut(each)

    def revive(self) -> None:
        """Let connections through again."""
        self._is_dead = False

    def deliver(self) -> bytes:
        """Bring a late request to the name node, if there is one, and return what it answers."""
        if not self._late:
            return b""
        above, request = self._late.pop()
        above.sendall(request)
        return self._unheard.get(timeout=ANSWER_SECONDS)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                below, _ = self._socket.accept()
                if self._is_dead:
                    _cut(below)
                    continue
                above = socket.create_connection(self._name_node)
                self._open += [below, above]
                threading.Thread(target=self._requests, args=(below, above), daemon=True).start()
                threading.Thread(target=self._answers, args=(below, above), daemon=True).start()

    def _requests(self, below: socket.socket, above: socket.socket) -> None:
        with suppress(OSError):
            while request := below.recv(65536):
                fault = self.next if _RENAME in request else None
                if fault is None:
                    above.sendall(request)
                    continue
                self.next = None
                if fault == "late":
                    self._muted.append(below)
                    self._late.append((above, request))
                elif fault != "lost request":
                    self._is_dead = fault == "lost answer, and dead"
                    self._muted.append(below)
                    above.sendall(request)
                    self._unheard.get(timeout=ANSWER_SECONDS)  # it is done; the answer goes nowhere
                _cut(below)
                return

    def _answers(self, below: socket.socket, above: socket.socket) -> None:
        with suppress(OSError):
            while answer := above.recv(65536):
                if below in self._muted:
                    self._unheard.put(answer)
                else:
                    below.sendall(answer)


def _cut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
