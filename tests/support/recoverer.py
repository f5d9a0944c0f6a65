"""A process that begins a transaction on each lake that it is told of, and says what it was given. No Spark.

    python -m tests.support.recoverer

A request is a lake's root, an answer the table versions of the snapshot and what is set aside.
"""

from __future__ import annotations

from lockstep.storage import open_storage
from tests.support.child import Parent
from tests.support.lakes import open_catalog


def begun(root: str) -> dict[str, object]:
    base = open_catalog(open_storage(root)).begin().base
    versions = {str(name): table.version for name, table in base.tables.items()}
    return {"versions": versions, "set_aside": [error.message for error in base.set_aside.values()]}


if __name__ == "__main__":
    parent = Parent()
    for root in parent.requests():
        parent.say(begun(root))
