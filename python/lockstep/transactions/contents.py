"""What a transaction's staged commits say, as far as it is kept in memory: COMMIT need not read that back."""

from __future__ import annotations

from lockstep.delta.actions import size_of_added

MAX_CHARACTERS = 8 * 1024 * 1024
"""So much of what was staged is kept in memory until COMMIT; the rest is read back."""


class Contents:
    """The contents of staged commits, by table id and version; what there is no room for is left out."""

    def __init__(self) -> None:
        self._contents: dict[tuple[str, int], str] = {}
        self._size = 0

    def keep(self, table: str, version: int, content: str | None) -> None:
        """Keep what a commit says, as long as there is room, and forget what one said that was staged there before.

        Args:
            content: None where whoever staged it does not say.
        """
        self._size -= len(self._contents.pop((table, version), ""))
        if content is not None and self._size + len(content) <= MAX_CHARACTERS:
            self._size += len(content)
            self._contents[table, version] = content

    def of(self, table: str, version: int) -> str | None:
        """Return what a commit says; None if that is not in memory."""
        return self._contents.get((table, version))

    def bytes_added(self) -> int:
        """Return how large the data files are that these commits add."""
        return sum(map(size_of_added, [*self._contents.values()]))  # another thread may be staging
