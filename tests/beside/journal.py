"""The journal of a writer: a line before each operation, and one for its answer.

Where the second is missing, the writer was killed, and nobody was told anything. What all writers say of their rows is
here, too: a row has its `id`, which nobody else writes, and in `was` the id of the row whose place it took, if any. A
property or a column that is set of a table counts as a row.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

SHARED = ("a", "b", "e")
"""The tables that every kind of writer writes."""

TRACKED = ("c", "d")
"""Those with row tracking and a change feed, of which delta-rs writes no more than checkpoints."""

VECTORS = ("d", "e")
"""Those with deletion vectors: rows go by these, but where delta-rs writes the rest of a file anew."""

OWN = "own"
"""The one that the lake has made itself, whose files upkeep deletes; only writers through Lockstep know it."""

MADE = "made"
"""What the names of tables begin with that writers of the Python API make, rename and drop. They count as one table:
each has one row, whose id its name ends in."""

SET = "beside"
"""What the names of properties and columns begin with that writers set; they end in the id of who did."""

STOPPED = ".stopped"
"""What the name of a file beside a table's folder ends in while its plain writers are asked to stand still."""


@contextmanager
def compacting(warehouse: Path, tables: Sequence[str], *, alone: bool) -> Iterator[None]:
    """Hold tables while they are compacted.

    Of two compactions of the same files, where the later is delta-rs's (1.6.6), both commit, and the rows are there
    twice: it does so to itself, without Lockstep. So it compacts a table alone.
    """
    with ExitStack() as stack:
        for table in sorted(tables):
            file = stack.enter_context((warehouse / f"{table}.compacted").open("a"))
            fcntl.flock(file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield


class Journal:
    """What a writer says that it does, line by line; what is in the file has been said.

    Args:
        writer: what kind it is.
    """

    def __init__(self, path: Path, writer: str) -> None:
        self._file = path.open("a", encoding="utf-8")
        self._writer = writer

    def begin(
        self, id: str, what: str, tables: Sequence[str], *, takes_back: str | None = None, adds: bool = True
    ) -> None:
        """Say what is about to be done.

        Args:
            id: of the operation, and of the row that it adds.
            takes_back: the row that it removes, if any.
            adds: whether it adds a row, of which `was` is then `takes_back`.
        """
        kind = f"{self._writer}: {what}"
        self._say({"id": id, "kind": kind, "tables": [*tables], "takes_back": takes_back, "adds": adds})

    def end(self, id: str, answer: str, why: object = None) -> None:
        """Say what came of it: done, refused or unknown."""
        self._say({"id": id, "answer": answer, "why": None if why is None else str(why)[:600]})

    def _say(self, said: dict[str, object]) -> None:
        self._file.write(json.dumps(said) + "\n")
        self._file.flush()
