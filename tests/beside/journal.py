"""The journal of a writer: a line before each operation, and one for its answer.

Where the second is missing, the writer was killed, and nobody was told anything.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SHARED = ("a", "b")
"""The tables that every kind of writer writes."""

TRACKED = ("c", "d")
"""Those with row tracking and a change feed, which delta-rs does not write."""


class Journal:
    """What a writer says that it does, line by line; what is in the file has been said."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")

    def say(self, **said: Any) -> None:
        self._file.write(json.dumps(said) + "\n")
        self._file.flush()
