"""What a cell of `%%lockstep` that fails shows, in a real IPython; the script's run is played."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from pyspark.logger import PySparkLogger
from traitlets.config import Config

from lockstep.errors import ConflictError, LockstepError, StatementError
from lockstep.spark import magic

PYSPARK_LOGGER = PySparkLogger.getLogger("SQLQueryContextLogger")


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setattr(magic.LockstepMagics, "_session", lambda self: None)
    config = Config()
    config.HistoryManager.enabled = False
    shell = InteractiveShell(config=config)
    magic.load_ipython_extension(shell)
    yield shell
    shell.restore_sys_module_state()


def failing(monkeypatch: pytest.MonkeyPatch, error: LockstepError) -> None:
    """Let the script of a cell fail as one of Spark's does: deep down, because of something else."""

    def run(*_: object, **__: object) -> Any:
        assert not PYSPARK_LOGGER.isEnabledFor(logging.ERROR)
        try:
            raise RuntimeError("JVM\n" + "\tat a.b(C.scala:1)\n" * 100)
        except RuntimeError as cause:
            raise error from cause

    monkeypatch.setattr(magic, "run_script", run)


def test_a_cell_that_fails_shows_its_message_alone(
    shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = StatementError("the cell, line 2, column 1: failed\nNothing was kept.", number=1, line=2, column=1)
    error.add_note("a note")
    failing(monkeypatch, error)
    done = shell.run_cell("%%lockstep\n\nSELECT nope")
    shown = capsys.readouterr()
    assert (shown.out + shown.err).splitlines() == [
        "StatementError: the cell, line 2, column 1: failed",
        "Nothing was kept. (SQLSTATE XX000)",
        "a note",
    ]
    assert done.error_in_exec is error  # whoever handles it finds what it was, and why
    assert isinstance(error.__cause__, RuntimeError)
    assert PYSPARK_LOGGER.isEnabledFor(logging.ERROR)


def test_an_error_elsewhere_keeps_its_traceback(
    shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing(monkeypatch, ConflictError("another went first"))
    shell.run_cell("%%lockstep\nSELECT 1")
    capsys.readouterr()
    shell.run_cell("from lockstep.errors import ConflictError\nraise ConflictError('in Python')")
    assert "Traceback" in capsys.readouterr().out


@pytest.mark.parametrize("line", ["--comment 'no end", "--isolation chaos", "--nosuch"])
def test_wrong_options_are_an_error_of_usage(
    line: str, shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    shell.run_cell(f"%%lockstep {line}\nSELECT 1")
    shown = capsys.readouterr()
    assert "UsageError" in shown.err
    assert "Traceback" not in shown.out + shown.err


def test_pyspark_can_write_to_the_log_that_is_made_quiet() -> None:
    """Of another class than PySpark's, each failure of a statement would be a TypeError."""
    code = (
        "import lockstep.spark.magic as magic, pyspark.logger as own\n"
        "with magic._said_shortly(): pass\n"
        "own.PySparkLogger.getLogger('SQLQueryContextLogger').error('no table', errorClass='TABLE')"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stderr=subprocess.PIPE)
