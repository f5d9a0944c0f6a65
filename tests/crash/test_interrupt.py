"""Ctrl-C in the middle of a script: a real process, a real signal, and a terminal to watch it on."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lockstep.catalog import TransactionalCatalog
from tests.support import on_s3
from tests.support.driver import PATIENCE_S
from tests.support.gate import wait_until
from tests.support.hosts import INTERRUPTIBLE
from tests.support.placed import matching, root_in
from tests.support.sessions import ROOTS, SMALL

SCRIPT = """CREATE TABLE lake.default.a (x INT);
INSERT INTO lake.default.a VALUES (1);
INSERT INTO lake.default.a SELECT if(id = 0, 0, length(reflect('java.lang.Thread', 'sleep', id + 600000L)))
FROM range(0, 2, 1, 2);
INSERT INTO lake.default.a VALUES (2);
"""
"""Its third statement writes a first file, and then sleeps in the middle of its job."""

STACK = re.compile(r"Traceback|^\s+at |py4j\.|^Aborted!", re.MULTILINE)
"""What a user is not to see: Python's, Java's and Py4J's stacks, Click's own words."""

SETTINGS = {
    **SMALL,
    "spark.master": "local[1]",
    "spark.driver.memory": "1g",
    **({"spark.jars": ",".join(map(str, on_s3.s3a_jars()))} if ROOTS.startswith("s3") else {}),
}


def read_until(terminal: int, expected: str) -> str:
    """Return what comes out of a terminal until it has said this; if this is empty, until nothing can come any more."""
    said, deadline = "", time.monotonic() + PATIENCE_S
    poll = select.poll()  # `select.select` takes no file whose number is above 1,023
    poll.register(terminal, select.POLLIN)
    while not expected or expected not in said:
        ready = poll.poll(1000 * max(0.0, deadline - time.monotonic()))
        assert ready, f"waited {PATIENCE_S} s for {expected!r}, and read {said!r}"
        data = b""
        with contextlib.suppress(OSError):  # what Linux says of a terminal that nobody holds any more
            data = os.read(terminal, 4096)
        if not data:
            assert not expected, f"expected {expected!r}, and read {said!r}"
            break
        said += data.decode(errors="replace")
    return said


# Slow: it starts a Spark driver of its own.
@pytest.mark.slow
def test_ctrl_c_rolls_back_and_says_so(tmp_path: Path, repository: Path) -> None:
    """The statement that runs is stopped, and nothing that came before it stays: it was all one transaction."""
    (tmp_path / "load.sql").write_text(SCRIPT)
    root = root_in(tmp_path)
    TransactionalCatalog.open(root, create=True)
    conf = [option for key, value in SETTINGS.items() for option in ("--conf", f"{key}={value}")]
    command = [sys.executable, "-c", "from lockstep.cli.main import main; main()", "run", f"{tmp_path}/load.sql"]
    terminal, theirs = pty.openpty()
    with subprocess.Popen(
        [*INTERRUPTIBLE, *command, "--root", root, "--atomic", *conf],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=theirs,
        cwd=repository,
        start_new_session=True,  # a group of its own, all of which a terminal would send the signal to
        env={**os.environ, "NO_COLOR": "1", "TERM": "xterm"},
    ) as process:
        os.close(theirs)
        try:
            watched = read_until(terminal, "[3/4] line 3  INSERT")
            wait_until(lambda: len(matching(root, "*.parquet")) == 2, "its first file is not written", PATIENCE_S)
            os.killpg(process.pid, signal.SIGINT)
            watched += read_until(terminal, "")
            assert process.wait(PATIENCE_S) == 130
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            os.close(terminal)
        assert process.stdout is not None
        assert process.stdout.read() == b""
    assert "load.sql was interrupted at line 3. Nothing of the script was kept." in watched
    assert "SQLSTATE 57014" in watched
    assert not STACK.search(watched)
    assert "[1/4] line 1  " in watched
    assert "\x1b[3" not in watched, "NO_COLOR asks for none"
    assert not TransactionalCatalog.open(root).database().tables
