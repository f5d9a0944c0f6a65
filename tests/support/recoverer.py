"""A process that begins a transaction on each lake that it is told of, and says what it was given. No Spark.

    python -m tests.support.recoverer

reads a lake's root from each line, and answers with the table versions of the snapshot and with what is set aside.
"""

from __future__ import annotations

import json
import sys

from lockstep.storage import open_storage
from tests.support.lakes import open_catalog


def begun(root: str) -> dict[str, object]:
    base = open_catalog(open_storage(root)).begin().base
    versions = {str(name): table.version for name, table in base.tables.items()}
    return {"versions": versions, "set_aside": [error.message for error in base.set_aside.values()]}


if __name__ == "__main__":
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(begun(line.strip())), flush=True)
