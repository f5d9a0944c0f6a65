"""A program that differs, made smaller: blocks and statements go as long as what is left differs."""

from __future__ import annotations

import time
from collections.abc import Iterator

from tests.fuzz.differential import Differential, Outcome
from tests.fuzz.steps import Program, title

SECONDS = 300
"""How long shrinking may take."""


def shrink(differential: Differential, program: Program, outcome: Outcome) -> tuple[Program, Outcome]:
    """Return the smallest program found, and what is wrong with it."""
    until = time.monotonic() + SECONDS
    smaller = True
    while smaller:
        smaller = False
        for candidate in candidates(program):
            if time.monotonic() > until:
                return program, outcome
            if (tried := differential.run(candidate)).wrong:
                program, outcome, smaller = candidate, tried, True
                break
    return program, outcome


def candidates(program: Program) -> Iterator[Program]:
    """Yield the program without one thing: a block, what ran beside one, a statement; the last ones first."""
    blocks = program["blocks"]
    for at in range(len(blocks) - 1, 0, -1):
        yield {**program, "blocks": blocks[:at] + blocks[at + 1 :]}
    for at, block in enumerate(blocks):
        if block.get("other"):
            yield {**program, "blocks": [*blocks[:at], {**block, "other": []}, *blocks[at + 1 :]]}
        for step in range(len(block["steps"]) - 1, -1, -1):
            # A savepoint's statements go as one: without it ROLLBACK TO would be refused.
            if str(block["steps"][step].get("sql", "")).startswith(("SAVEPOINT", "ROLLBACK TO")):
                continue
            left = block["steps"][:step] + block["steps"][step + 1 :]
            if left:
                yield {**program, "blocks": [*blocks[:at], {**block, "steps": left}, *blocks[at + 1 :]]}


def text(program: Program) -> str:
    """Return a program as SQL."""
    lines: list[str] = []
    for block in program["blocks"]:
        lines.append(f"-- block {block['id']}")
        if block["kind"] == "transaction":
            lines.append("BEGIN;")
        for index, step in enumerate([*block["steps"], None]):
            if index == block.get("at"):
                lines += [f"{title(each)};  -- in another session" for each in block.get("other", [])]
            if step is not None:
                lines.append(f"{title(step)};")
        if block["kind"] == "transaction":
            lines.append(f"{block['end']};")
    return "\n".join(lines)
