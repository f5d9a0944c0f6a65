"""Commands that are started as a shell starts them, with a terminal of their own."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from threading import Thread


def shown_on_terminal(*args: object) -> tuple[int, str, str]:
    """Run a command of the command line whose standard error is a terminal.

    Returns:
        Its exit code, what it wrote to standard output, and what to the terminal.
    """
    ours, theirs = pty.openpty()
    shown: list[bytes] = []

    def look() -> None:
        while True:
            try:
                data = os.read(ours, 65_536)
            except OSError:  # as Linux says that nobody has the other end any more
                return
            if not data:
                return
            shown.append(data)

    looking = Thread(target=look)
    with subprocess.Popen(
        [sys.executable, "-m", "lockstep", *map(str, args)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TERM": "xterm", "COLUMNS": "100"},
    ) as process:
        os.close(theirs)
        looking.start()
        assert process.stdout is not None
        out = process.stdout.read().decode()
    looking.join()
    os.close(ours)
    return process.returncode, out, b"".join(shown).decode()
