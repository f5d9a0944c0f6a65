"""A proxy, as one stands between many a network and its object store: it passes on requests, and opens tunnels.

    with Proxy(server) as proxy:                    # where requests go to, whatever host they ask for
        open_storage(…, options={"endpoint": "http://store.invalid", "proxy_url": proxy.url})

A name that nobody knows but the proxy shows that a request went through it.
"""

from __future__ import annotations

import base64
import socket
import threading
from contextlib import closing, suppress
from typing import Self
from urllib.parse import urlsplit


class Proxy:
    """A server for one request a connection; a context manager. See the module.

    Attributes:
        requests: of each request the method, and what it asked for: a URL, or the host and port of a tunnel.
    """

    def __init__(self, server: str, *, user: str = "", password: str = "") -> None:
        """Pass all on to a server.

        Args:
            server: its URL.
            user, password: what to ask for, if for anything.
        """
        parts = urlsplit(server)
        self._server = (parts.hostname or "", parts.port or 80)
        self._wanted = base64.b64encode(f"{user}:{password}".encode()).decode() if user else ""
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._threads: list[threading.Thread] = []
        self._open: set[socket.socket] = set()
        self.requests: list[tuple[str, str]] = []

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self._socket.getsockname()[1]}"

    @property
    def url(self) -> str:
        """The URL of it, without a user."""
        return f"http://{self.address}"

    def __enter__(self) -> Self:
        self._begin(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for connection in [*self._open]:  # clients keep tunnels for the next request
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()

    def _begin(self, work: object, *args: object) -> None:
        thread = threading.Thread(target=work, args=args)  # type: ignore[arg-type]
        thread.start()
        self._threads.append(thread)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self._open.add(connection)
            self._begin(self._serve, connection)

    def _serve(self, client: socket.socket) -> None:
        with closing(client), suppress(ConnectionError):
            head, _, body = _until_blank_line(client).partition(b"\r\n\r\n")
            if not head:
                return
            first, *lines = head.decode().split("\r\n")
            method, target, version = first.split(" ")
            self.requests.append((method, target))
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            if self._wanted and headers.get("proxy-authorization") != f"Basic {self._wanted}":
                client.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
                return
            with closing(socket.create_connection(self._server)) as server:
                if method == "CONNECT":
                    client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                else:
                    parts = urlsplit(target)
                    path = target.partition(parts.netloc)[2] or "/"
                    kept = [line for line in lines if not line.lower().startswith(("proxy-", "connection:"))]
                    whole = [f"{method} {path} {version}", *kept, "Connection: close", "", ""]
                    server.sendall("\r\n".join(whole).encode() + body)
                up = threading.Thread(target=_pass_on, args=(client, server))
                up.start()
                _pass_on(server, client)
                up.join()


def _until_blank_line(client: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = client.recv(65536)
        if not piece:
            return b""
        data += piece
    return data


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    """Pass on what comes until nothing comes, and then end both directions: a request has a connection of its own."""
    with suppress(OSError):
        while piece := source.recv(65536):
            target.sendall(piece)
    for each in (source, target):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
