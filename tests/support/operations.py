"""What a transaction may do to a small database, once as Delta's actions and once as a function of rows and names.

Each operation says what it writes and reads as Lockstep records it, what Delta and DuckLake keep of it, and what it
means (`tests.support.meaning`). An ALTER TABLE is recorded so as a statement on its own: inside a transaction it counts
as a reader of all rows. The database is described in `tests.support.operation`.
"""

from __future__ import annotations

from tests.support.name_operations import describing, naming, viewing
from tests.support.operation import Operation
from tests.support.row_operations import appending, by_vector, changing, replacing


def on_rows(by: str) -> list[Operation]:
    """Return those that write rows or files of tables."""
    n = _first_row(by)
    return [*appending(by, n), *changing(by), *by_vector(by), *replacing(by, n)]


def operations(by: str) -> dict[str, Operation]:
    """Return all operations as one of two transactions does them, by name.

    Args:
        by: "m" or "w"; new files, ids and rows are named after it, so that the two transactions never share one.
    """
    n = _first_row(by)
    found = [*on_rows(by), *describing(by, n), *naming(by), *viewing(by, n)]
    return {operation.name: operation for operation in found}


def _first_row(by: str) -> int:
    """Return the id of a transaction's first new row."""
    return {"m": 50, "w": 60}[by]
