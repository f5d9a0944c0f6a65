"""The texts of a transaction's statements, as far as its entry keeps them."""

from __future__ import annotations

MAX_STATEMENTS = 100
MAX_STATEMENT_CHARACTERS = 1000
"""How much of a transaction's text its entry keeps."""


def shortened(text: str) -> str:
    """Return a statement's text as an entry keeps it: on one line, and bounded."""
    return " ".join(text.split())[:MAX_STATEMENT_CHARACTERS]


def note(statements: list[str], text: str) -> None:
    """Add a statement's text to those that are kept, bounded; an analysis that runs twice says it once."""
    short = shortened(text)
    if len(statements) < MAX_STATEMENTS and statements[-1:] != [short]:
        statements.append(short)
