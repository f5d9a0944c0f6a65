"""A socket that answers each request with the same bytes, with silence, or with a reset."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager


@contextmanager
def answering(answer: bytes | None, *, is_reset: bool = False) -> Iterator[str]:
    """Serve requests with these bytes, whatever they ask; None: with silence, until the block ends."""
    over = threading.Event()
    threads: list[threading.Thread] = []

    def serve(connection: socket.socket) -> None:
        with closing(connection):
            data = b""
            while b"\r\n\r\n" not in data and (piece := connection.recv(65536)):
                data += piece
            if is_reset:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            elif answer is None:
                over.wait()
            else:
                connection.sendall(answer)

    def accept() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threads.append(threading.Thread(target=serve, args=(connection,)))
            threads[-1].start()

    server = socket.create_server(("127.0.0.1", 0))
    accepting = threading.Thread(target=accept)
    accepting.start()
    try:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
    finally:
        over.set()
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        for thread in [accepting, *threads]:
            thread.join()


def http(status: str, code: str = "") -> bytes:
    body = f"<Error><Code>{code}</Code></Error>" if code else ""
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode()
