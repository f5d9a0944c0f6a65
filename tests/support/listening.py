"""A socket that listens: each connection is served by a thread of its own, until the block ends."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Self


class Listening:
    """A context manager; `_serve` says what is done with a connection, which it closes.

    Attributes:
        _open: the connections that are served; `_lock` is held to change them.
    """

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._open: set[socket.socket] = set()

    @property
    def port(self) -> int:
        """Where to connect."""
        return int(self._socket.getsockname()[1])

    def __enter__(self) -> Self:
        self._begin(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        with self._lock:
            for connection in self._open:  # clients keep theirs for the next request
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()

    def _begin(self, work: object, *args: object) -> None:
        thread = threading.Thread(target=work, args=args, daemon=True)  # type: ignore[arg-type]
        thread.start()
        self._threads.append(thread)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with self._lock:
                self._open.add(connection)
            self._begin(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        raise NotImplementedError
