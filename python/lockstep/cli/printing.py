"""What the command line prints: JSON, and tables that do to a terminal nothing but stand there."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from lockstep.timeline.entry import Name

PIPE_WIDTH = 1000
"""Characters a line may have when nobody looks at it: a table in a pipe must not be cut to 80."""


def print_json(value: object) -> None:
    """Print a value as indented JSON; what JSON has no type for, as text."""
    import msgspec

    click.echo(msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2).decode())


def say(text: str, *, err: bool = False) -> None:
    """Print lines for people, in which there may be names, reasons and paths that anybody has given.

    Args:
        err: whether on standard error.
    """
    click.echo("\n".join(map(printable, text.split("\n"))), err=err)


def is_terminal() -> bool:
    """Tell whether a person looks at standard output, so that it may be cut to what fits."""
    return sys.stdout.isatty()


def print_way_to_read(root: str, version: int, name: Name | None) -> None:
    """Say to a person at a terminal how a table of a database version is read; nothing if there is none.

    Args:
        root: the lake's, as the command was given it.
        name: of the table.
    """
    if name is None or not is_terminal():
        return
    parts = (".".join(name.namespace), name.table)
    table = ".".join('"' + part.replace('"', '""') + '"' for part in parts)
    command = f"lockstep sql {shlex.quote(root)} {shlex.quote(f'FROM {table}')} --at {version}"
    from rich.console import Console
    from rich.text import Text

    line = Text(f"to read a table of database version {version}: {printable(command)}", style="dim")
    Console(highlight=False).print(line, soft_wrap=True)  # whole, so that it can be copied


def print_section(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], *, cut: bool = False) -> None:
    """Print a titled table, and nothing at all if it has no rows.

    Args:
        cut: whether all columns are cut, see `print_table`; the texts of a list, which has no columns' names, are not.
    """
    if rows:
        if title:
            click.echo(f"\n{title}")
        print_table(columns or [""] * len(rows[0]), rows, header=bool(columns), cut=columns if cut else ())


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, header: bool = True, cut: Collection[str] = ()
) -> None:
    """Print rows under their columns, as wide as the terminal is.

    Args:
        header: whether the columns' names are printed.
        cut: the columns whose cells end in … where there is no room for all of a row, the widest first. Then a row is
            one line; without such columns texts are wrapped.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=header, pad_edge=False, collapse_padding=bool(cut), header_style="bold")
    for column in columns:
        if cut:
            # no_wrap of a column: it gives room last; of a text: it is one line.
            table.add_column(Text(column, no_wrap=True, overflow="ellipsis"), no_wrap=column not in cut)
        else:
            table.add_column(column, overflow="fold")
    for row in rows:
        cells = [printable(str(value)) for value in row]
        table.add_row(*([Text(cell, no_wrap=True, overflow="ellipsis") for cell in cells] if cut else cells))
    width = None if is_terminal() else PIPE_WIDTH
    # Without markup: brackets in a statement are no styles.
    Console(width=width, markup=False, highlight=False, emoji=False).print(table)


def printable(text: str) -> str:
    """Return a text that does to a terminal nothing but stand there."""
    return "".join(
        char if char.isprintable() else " " if char.isspace() else "\N{REPLACEMENT CHARACTER}" for char in text
    )
