"""What the command line prints: JSON, and tables that do to a terminal nothing but stand there."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

import click

PIPE_WIDTH = 1000
"""Characters a line may have when nobody looks at it: a table in a pipe must not be cut to 80."""


def print_json(value: object) -> None:
    """Print a value as indented JSON; what JSON has no type for, as text."""
    import msgspec

    click.echo(msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2).decode())


def print_section(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a titled table, and nothing at all if it has no rows."""
    if rows:
        if title:
            click.echo(f"\n{title}")
        print_table(columns or [""] * len(rows[0]), rows, header=bool(columns))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, header: bool = True) -> None:
    """Print rows under their columns, as wide as the terminal is."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, show_header=header, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(printable(str(value)) for value in row))
    width = None if sys.stdout.isatty() else PIPE_WIDTH
    # Without markup: brackets in a statement are no styles.
    Console(width=width, markup=False, highlight=False, emoji=False).print(table)


def printable(text: str) -> str:
    """Return a text that does to a terminal nothing but stand there."""
    return "".join(
        char if char.isprintable() else " " if char.isspace() else "\N{REPLACEMENT CHARACTER}" for char in text
    )
