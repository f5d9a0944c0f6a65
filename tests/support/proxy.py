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
from urllib.parse import urlsplit

from tests.support.listening import Listening


class Proxy(Listening):
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
        super().__init__()
        parts = urlsplit(server)
        self._server = (parts.hostname or "", parts.port or 80)
        self._wanted = base64.b64encode(f"{user}:{password}".encode()).decode() if user else ""
        self.requests: list[tuple[str, str]] = []

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """The URL of it, without a user."""
        return f"http://{self.address}"

    def _serve(self, connection: socket.socket) -> None:
        with closing(connection) as client, suppress(ConnectionError):
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
