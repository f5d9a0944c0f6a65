"""A client of a lake with an arbiter, in a process of its own: makes namespaces, and prints in which versions.

python -m tests.support.arbitrated commit <root> <arbiter> <name> <count> [<options as JSON>]
python -m tests.support.arbitrated die <root> <arbiter> <name>      killed once its entry is decided, and not copied
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from lockstep.arbiters import arbiter_of
from lockstep.catalog import TransactionalCatalog
from lockstep.storage import open_storage
from lockstep.storage.urls import comparable
from tests.support.faulty import FaultyStorage
from tests.support.lakes import open_catalog

REPOSITORY = Path(__file__).parents[2]


def make_namespace(catalog: TransactionalCatalog, name: str) -> int:
    """Commit a transaction that makes a namespace, again while others are first, and return its database version."""
    committed = catalog.run(lambda tx: tx.changing().create_namespace((name,), {}), name)
    return committed.version


def client(*args: str, options: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """Start a client."""
    more = [] if options is None else [json.dumps(options)]
    command = [sys.executable, "-m", "tests.support.arbitrated", *args, *more]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (REPOSITORY / "python", REPOSITORY)))}
    return subprocess.Popen(command, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, text=True)


def main(role: str, root: str, arbiter: str, name: str, *more: str) -> None:
    """Be a client; see the module."""
    if role == "commit":
        count, options = more[0], json.loads(more[1]) if len(more) > 1 else None
        catalog = TransactionalCatalog.open(root, arbiter=arbiter, options=options)
        for number in range(int(count)):
            print(make_namespace(catalog, f"{name}_{number}"), flush=True)
        return
    storage = FaultyStorage(open_storage(root))
    catalog = open_catalog(storage, arbiter=arbiter_of(arbiter, comparable(storage.url)))
    storage.interrupt("put_if_absent", lambda: os.kill(os.getpid(), signal.SIGKILL), path=".json")
    make_namespace(catalog, name)


if __name__ == "__main__":
    main(*sys.argv[1:])
