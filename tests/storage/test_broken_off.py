"""An answer that breaks off, of an object that somebody deletes before the rest is asked for."""

from __future__ import annotations

import socket
from contextlib import suppress

import pytest

from lockstep.errors import StoreRefusedError
from tests.storage.test_slow_answers import opened
from tests.support.listening import Listening

WHOLE, BEGUN = 1000, b"x" * 10


class Vanishing(Listening):
    """A server of one object of S3's, of which it sends the beginning, and by then it is gone, or all of its bucket."""

    def __init__(self, code: str) -> None:
        super().__init__()
        self._code = code
        self.asked: list[str] = []

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError), connection:
            self.asked.append(connection.recv(10_000).decode())
            if len(self.asked) == 1:
                head = f"HTTP/1.1 200 OK\r\nContent-Length: {WHOLE}\r\nETag: x\r\n"
                connection.sendall(f"{head}Last-Modified: Wed, 21 Oct 2026 07:28:00 GMT\r\n\r\n".encode() + BEGUN)
            else:
                body = f"<?xml version='1.0'?><Error><Code>{self._code}</Code></Error>"
                head = f"HTTP/1.1 404 Not Found\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
                connection.sendall((head + body).encode())


def test_what_was_deleted_meanwhile_is_absent_and_no_failure_of_the_store() -> None:
    with Vanishing("NoSuchKey") as server:
        assert opened(server).get("a") is None
    assert "range: bytes=10-" in server.asked[1].lower(), "obstore asks for the rest"


def test_a_bucket_that_is_gone_is_no_absent_object() -> None:
    with Vanishing("NoSuchBucket") as server, pytest.raises(StoreRefusedError, match="make the bucket"):
        opened(server).get("a")
