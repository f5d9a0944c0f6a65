"""A process that was forked asks its lake's arbiter over connections of its own."""

from __future__ import annotations

import os
import threading
import warnings
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from lockstep.arbiters import Arbiter
from tests.support.arbiters import dynamodb, of


def reads_when_forked(arbiter: Arbiter) -> bool:
    """Tell whether a process that is forked now has an answer of an arbiter."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12, that there are threads
        child = os.fork()
    if not child:
        code = 1
        try:
            arbiter.read()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_forked_process_asks_dynamodb_over_a_connection_of_its_own() -> None:
    """Over one that two processes have, either may read the answer to the other, and take a lost race for a won one."""
    asked_by: list[tuple[str, int]] = []

    class Empty(BaseHTTPRequestHandler):
        """A DynamoDB with no item in it, which keeps its connections open as the real one does."""

        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            asked_by.append(self.client_address)
            self.send_response(200)
            for name, value in (("Type", "application/x-amz-json-1.0"), ("Length", "2")):
                self.send_header(f"Content-{name}", value)
            self.send_header("x-amzn-RequestId", "id")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Empty) as server:
        server.daemon_threads = True  # nobody waits for its connections to end
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            arbiter = of(dynamodb(f"http://127.0.0.1:{server.server_port}"), "file:///lake")
            assert arbiter.read() is None
            assert reads_when_forked(arbiter)
            assert arbiter.read() is None
        finally:
            server.shutdown()
            thread.join()
    parent, child, parent_again = asked_by
    assert parent == parent_again, "it is kept open"
    assert child != parent
