"""The process of plain Delta, as its parent sees it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.plain import plain_settings
from tests.support.sessions import INTERPRETED, JAVA, SMALL

REPOSITORY = Path(__file__).parents[2]


class PlainDelta:
    """A Spark with Delta and without Lockstep."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        settings = {**SMALL, **INTERPRETED, **plain_settings(folder), "spark.master": "local[2]"}
        self._errors = (folder / "errors.txt").open("w", encoding="utf-8")
        environment = {**os.environ, "JDK_JAVA_OPTIONS": JAVA}
        command = [sys.executable, "-m", "tests.fuzz.plain", json.dumps(settings), str(folder / "warehouse")]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=REPOSITORY,
            env=environment,
        )
        self._ready = False

    def ask(self, do: str, **arguments: Any) -> Any:
        """Have something done, and return the answer."""
        if not self._ready:
            assert self._read() == {"ready": True}
            self._ready = True
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self._process.stdin.flush()
        answer = self._read()
        assert not answer["loaded"], f"plain Delta has loaded {answer['loaded']}"
        if "error" in answer:
            raise PlainDeltaError(answer["error"])
        return answer["answer"]

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"plain Delta has ended; {self._errors.name} says why"
        return json.loads(line)

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()


class PlainDeltaError(Exception):
    """Plain Delta could not do what it was asked: read a table that Lockstep wrote, for one."""
