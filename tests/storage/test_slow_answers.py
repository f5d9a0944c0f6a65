"""What goes on coming is waited for, however long it takes in all; what does not come is not."""

from __future__ import annotations

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import pytest

from lockstep.errors import UnavailableError
from lockstep.storage import Storage, open_storage
from lockstep.storage import object as object_stores
from lockstep.storage.object import ObjectStorage
from tests.support.listening import Listening

PIECES, PIECE = 70, b"x" * 1000
"""What an object is made of."""

LONG_SECONDS = 35
"""Longer than the client's own bound for a request with all of its answer, half a minute."""


class Trickling(Listening):
    """A server of one object of S3's, which it sends in pieces: so many, with pauses, and then no more."""

    def __init__(self, pause_seconds: float, pieces: int = PIECES) -> None:
        super().__init__()
        self._pause_seconds = pause_seconds
        self._pieces = pieces

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError), connection:
            while connection.recv(10_000):
                head = f"HTTP/1.1 200 OK\r\nContent-Length: {PIECES * len(PIECE)}\r\nETag: x\r\n"
                connection.sendall(f"{head}Last-Modified: Wed, 21 Oct 2026 07:28:00 GMT\r\n\r\n".encode())
                for _ in range(self._pieces):
                    connection.sendall(PIECE)
                    time.sleep(self._pause_seconds)


def opened(server: Listening, **more: str) -> Storage:
    keys = {"access_key_id": "a", "secret_access_key": "b", "region": "us-east-1"}
    store = open_storage("s3://lake/root", options={**keys, "endpoint": f"http://127.0.0.1:{server.port}", **more})
    assert isinstance(store, ObjectStorage)
    store.repeat = replace(store.repeat, attempts=1)
    return store


@pytest.mark.slow
def test_an_object_may_take_as_long_as_it_goes_on_coming() -> None:
    """A large one does, and one that is copied to somewhere slow."""
    with Trickling(LONG_SECONDS / PIECES) as server, ThreadPoolExecutor(2) as pool:
        store = opened(server)
        whole = pool.submit(store.get, "a")
        pieces = pool.submit(lambda: b"".join(store.chunks("a") or ()))
        assert whole.result() == pieces.result() == PIECE * PIECES


def test_an_object_that_stops_coming_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_stores, "_PATIENT", object_stores._PATIENT | {"read_timeout": "0.2s"})
    with Trickling(0, pieces=PIECES // 2) as server:
        with pytest.raises(UnavailableError):
            opened(server).get("a")
        with pytest.raises(UnavailableError):
            b"".join(opened(server).chunks("a") or ())


def test_a_timeout_that_somebody_sets_is_for_all_of_an_answer() -> None:
    """As the option says."""
    with Trickling(0.1) as server, pytest.raises(UnavailableError):
        opened(server, timeout="1s").get("a")
