"""The host as a process of its own: for spark-sql, the Thrift server, Spark Connect and Scala, which have no Python.

    python -P -m lockstep.spark.spawned

The shim starts it and talks to it over its standard input and output: there is no port to open and no secret to keep.
It says hello with its version. Then each line in is a request's number, a blank and the request, and each line out the
same number, a blank and the answer, in any order. What a request is, `lockstep.spark.host.protocol` says. The first
line in is not for the host: `{"application": "…"}`. Lines that begin with `files` are the other way round: what this
process asks of HDFS, and is answered (`lockstep.spark.files`).

The input ends when the driver does, whatever ended it. Then this process rolls back what is open, and ends too.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import BinaryIO

import msgspec

from lockstep._version import __version__
from lockstep.spark.files import OverPipes
from lockstep.spark.host.host import Host
from lockstep.storage.hadoop import connect

MOST_AT_ONCE = 1024
"""Requests under way at most. A thread of the driver has one at a time, and one may wait for another's end."""

_log = logging.getLogger(__name__)


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Say hello, and answer requests until there are no more."""
    one_at_a_time = threading.Lock()

    def say(line: bytes) -> None:
        with one_at_a_time:
            answers.write(line + b"\n")
            answers.flush()

    def answer(number: bytes, request: bytes) -> None:
        try:
            say(number + b" " + host.call(request).encode())
        except BrokenPipeError:  # nobody is left who asked, and the input is about to end
            _log.info("the driver ended before it had its answer")

    say(msgspec.json.encode({"version": __version__, "process": os.getpid()}))
    files = OverPipes(say)
    connect(files)
    host = Host(application=msgspec.json.decode(requests.readline() or b"{}").get("application", ""))
    with ThreadPoolExecutor(MOST_AT_ONCE, thread_name_prefix="lockstep-request") as pool:
        pool.submit(int).result()  # there is one thread at least from now on
        for line in requests:
            number, _, request = line.partition(b" ")
            if number == OverPipes.WORD:
                files.heard(request)
            else:
                try:
                    pool.submit(answer, number, request)
                except RuntimeError as error:  # it is in the queue: a thread that there is takes it once it is free
                    _log.warning("a request waits for others, for there is no thread for it: %s", error)
        files.end()  # before those are waited for who wait for its answers
    host.close()


def main() -> None:
    """Serve the process that started this one."""
    logging.basicConfig(format="%(asctime)s %(levelname)s lockstep: %(message)s", stream=sys.stderr)
    # Ctrl-C in a terminal reaches this process too; it is the driver's to say what is interrupted.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not stand between answers
    serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
