"""Lockstep's core as one writer: `python -m tests.bench.peers.lockstep ROOT NAME [fsync-data]`. No Spark, real files.

It takes turns with the others, as whoever opens a lake does, and flushes what COMMIT flushes, with `fsync-data` or not.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from lockstep.errors import LockstepError
from lockstep.storage import open_storage
from tests.bench.peers.writing import serve
from tests.bench.turns import stage_append
from tests.support.child import Parent
from tests.support.lakes import open_catalog


def main(root: str, name: str, fsync_data: str = "") -> None:
    parent = Parent()
    catalog = open_catalog(open_storage(root, fsync_data=bool(fsync_data)), turns=True)
    numbers = count()

    def commit(tables: Sequence[str]) -> bool:
        file = f"{name}-{next(numbers)}"
        tx = catalog.begin()
        for table in tables:
            stage_append(catalog, Path(root), tx, table, file)
        try:
            catalog.commit(tx)
        except LockstepError as error:
            if not error.retryable:
                raise
            return False
        return True

    serve(parent, lambda: commit)
    catalog.lake.upkeep.settle()


if __name__ == "__main__":
    main(*sys.argv[1:])
