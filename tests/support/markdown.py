"""The code blocks of a Markdown page, as values; `tests/spark/test_docs.py` runs them.

A block is excluded from running only by an HTML comment on the line before it, which gives the reason:

    <!-- not run: it starts a second session -->
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_FENCE = re.compile(r"^(?P<indent> *)(?P<fence>`{3,}|~{3,})(?P<info>[^`]*)$")
_NOT_RUN = re.compile(r"^\s*<!-- not run: (?P<reason>\S.*?) *-->\s*$")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block: its language, its text, the line (from 1) of its first line, why it is not run."""

    language: str
    text: str
    line: int
    not_run: str = ""


def blocks(page: str) -> list[Block]:
    """Return all fenced blocks of a page, in order.

    Raises:
        ValueError: a fence that is never closed, or a `not run` comment that no block follows.
    """
    found: list[Block] = []
    lines = page.splitlines()
    reason, at = "", 0
    while at < len(lines):
        if match := _NOT_RUN.match(lines[at]):
            reason = match["reason"]
        elif match := _FENCE.match(lines[at]):
            end = _closing(lines, at, match["fence"])
            text = "\n".join(line.removeprefix(match["indent"]) for line in lines[at + 1 : end])
            language = (match["info"].split() or [""])[0]
            found.append(Block(language, text, at + 2, reason))
            reason, at = "", end
        elif lines[at].strip() and reason:
            raise ValueError(f"line {at + 1}: expected a code block after `not run: {reason}`")
        at += 1
    return found


def _closing(lines: list[str], opening: int, fence: str) -> int:
    for at in range(opening + 1, len(lines)):
        line = lines[at].strip()
        if line.startswith(fence) and not line.strip(fence[0]):
            return at
    raise ValueError(f"line {opening + 1}: this code block is never closed")
