"""The code blocks of a Markdown page, as values; `tests/spark/test_docs.py` runs them.

A block is excluded from running only by an HTML comment on the line before it, which gives the reason:

    <!-- not run: it starts a second session -->

What a block prints may stand right behind it, in a block of its own with this comment before it:

    <!-- output -->

The test compares the two, line by line; `…` stands for whatever is different each time (an id, a duration).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

_FENCE = re.compile(r"^(?P<indent> *)(?P<fence>`{3,}|~{3,})(?P<info>[^`]*)$")
_NOT_RUN = re.compile(r"^\s*<!-- not run: (?P<reason>\S.*?) *-->\s*$")
_OUTPUT = re.compile(r"^\s*<!-- output -->\s*$")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block: its language, its text, the line (from 1) of its first line, why it is not run.

    Attributes:
        output: what the page says that it prints; None if the page does not say.
    """

    language: str
    text: str
    line: int
    not_run: str = ""
    output: str | None = None

    def prints(self, printed: str) -> bool:
        """Tell whether this is what the page says that the block prints; blanks at the ends of lines do not count."""
        said = [re.escape(line.rstrip()).replace("…", ".*") for line in (self.output or "").strip().splitlines()]
        lines = [line.rstrip() for line in printed.strip().splitlines()]
        return len(said) == len(lines) and all(map(re.fullmatch, said, lines))


def blocks(page: str) -> list[Block]:
    """Return all fenced blocks of a page, in order; those of output are part of the block that prints it.

    Raises:
        ValueError: a fence that is never closed, a `not run` comment that no block follows, or an `output` comment that
            does not stand between two blocks.
    """
    found: list[Block] = []
    lines = page.splitlines()
    reason, at = "", 0
    is_behind_block, is_output = False, False
    while at < len(lines):
        if match := _NOT_RUN.match(lines[at]):
            reason, is_behind_block = match["reason"], False
        elif _OUTPUT.match(lines[at]):
            if not is_behind_block:
                raise ValueError(f"line {at + 1}: expected a code block right before its output")
            is_output = True
        elif match := _FENCE.match(lines[at]):
            end = _closing(lines, at, match["fence"])
            text = "\n".join(line.removeprefix(match["indent"]) for line in lines[at + 1 : end])
            language = (match["info"].split() or [""])[0]
            if is_output:
                found[-1] = replace(found[-1], output=text)
            else:
                found.append(Block(language, text, at + 2, reason))
            is_behind_block, is_output = not is_output, False
            reason, at = "", end
        elif lines[at].strip():
            if reason or is_output:
                raise ValueError(f"line {at + 1}: expected a code block after {reason or 'its announcement'}")
            is_behind_block = False
        at += 1
    return found


def _closing(lines: list[str], opening: int, fence: str) -> int:
    for at in range(opening + 1, len(lines)):
        line = lines[at].strip()
        if line.startswith(fence) and not line.strip(fence[0]):
            return at
    raise ValueError(f"line {opening + 1}: this code block is never closed")


def table_of(page: str, first: str) -> dict[str, dict[str, str]]:
    """Return the cells of a table of a page, by its first column and by the words above them.

    Args:
        first: what stands above the first column.
    """
    lines = iter(page.splitlines())
    head = next(_cells(line) for line in lines if line.startswith(f"| {first} |"))
    next(lines)
    rows: dict[str, dict[str, str]] = {}
    for line in lines:
        if not line.startswith("|"):
            break
        row, *cells = _cells(line)
        rows[row] = dict(zip(head[1:], cells, strict=True))
    return rows


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]
