"""What a terminal shows, as pictures: docs/images/log.svg, show.svg and explain.svg.

The commands run for real, on a lake whose clock and ids are given, so the pictures are the same each time. What lies in
its tables is made up (`tests.support.lakes`): the commands show the timeline alone.

EXPLAIN needs Spark. Its picture is made of docs/images/explain.txt: statements, an empty line, and what the last one
answers. `tests/spark/test_user_interface.py` runs them and compares.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

from lockstep.catalog import TransactionalCatalog
from tests.support.lakes import add, remove, stage, stage_new

COLUMNS, LINES = 110, 50
FONTS = re.compile(r"\s*@font-face \{.*?\}\n", re.DOTALL)
EXPLAINED = Path(__file__).parents[1] / "docs/images/explain.txt"
BOLD, PLAIN = "\x1b[1m", "\x1b[0m"
"""What switches a terminal to either."""
BEGAN = datetime(2026, 3, 1, 4, 30, tzinfo=UTC)


def screens() -> dict[str, str]:
    """Return the pictures, by their files' names."""
    with tempfile.TemporaryDirectory() as folder:
        _fill(str(Path(folder) / "lake"))
        pictures = {
            f"{command[0]}.svg": _picture(" ".join(["lockstep", *command]), command[0], _shown(command, folder))
            for command in (["log", "lake", "-n", "5"], ["show", "lake", "latest"])
        }
    statements, plan = EXPLAINED.read_text(encoding="utf-8").split("\n\n", 1)
    text = f"{BOLD}{statements}{PLAIN}\n\n{plan}"
    return {**pictures, "explain.svg": _picture("EXPLAIN in a transaction", "explain", text)}


def _fill(root: str) -> None:
    """Make a lake of two tables, and a few transactions that change them."""
    ticks, numbers = itertools.count(), itertools.count(1)
    catalog = TransactionalCatalog.open(
        root,
        create=True,
        author="ada",
        application="nightly",
        clock=lambda: BEGAN + timedelta(seconds=7 * next(ticks)),
        ids=lambda: f"{next(numbers) * 0x9E3779B97F4A7C15F39CC060 % 2**96:024x}",
    )
    tx = catalog.begin(comment="set up")
    tx.changing().create_namespace(("bank",), {})
    catalog.commit(tx)
    tx = catalog.begin(comment="first load")
    for name in ("bank.accounts", "bank.transfers"):
        tx.note_statement(f"CREATE TABLE {name} (…)")
        stage_new(catalog, tx, name, add(f"{name}-1.parquet"))
    catalog.commit(tx)
    for number, comment in enumerate(("rent for January", "rent for February", "rent for March"), 1):
        tx = catalog.begin(comment=comment)
        tx.note_statement("UPDATE bank.accounts SET balance = balance - 60 WHERE owner = 'ada'")
        files = [f"bank.accounts-{at}.parquet" for at in (number, number + 1)]
        stage(catalog, tx, "bank.accounts", remove(files[0], stats='{"numRecords": 1}'), add(files[1]))
        tx.note_statement("INSERT INTO bank.transfers VALUES ('ada', 'grace', 60)")
        stage(catalog, tx, "bank.transfers", add(f"transfer-{number}.parquet"))
        catalog.commit(tx)


def _shown(command: list[str], folder: str) -> str:
    """Return what a command writes into a terminal of `COLUMNS`."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color"}
    for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"):
        environment.pop(name, None)
    with os.fdopen(ours, "rb", buffering=0) as screen:
        process = subprocess.Popen(
            [sys.executable, "-m", "lockstep", *command], cwd=folder, stdout=its, stderr=its, env=environment
        )
        os.close(its)
        written = b""
        try:
            while part := screen.read(65536):
                written += part
        except OSError:  # how Linux tells that nobody has the terminal open any more
            pass
    if process.wait() != 0:
        raise RuntimeError(f"lockstep {' '.join(command)} failed: {written.decode()}")
    return written.decode().replace("\r\n", "\n")


def _picture(title: str, name: str, text: str) -> str:
    """Return a terminal with a text in it; the name keeps its styles apart from those of other pictures of a page."""
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True)
    console.print(Text.from_ansi(text), end="")
    picture = console.export_svg(title=title, unique_id=name)
    # A picture in a page loads nothing: the reader's own font has to do.
    return FONTS.sub("", picture).replace("Fira Code, ", "")
