"""The process of plain Delta, as its parent sees it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.child import Child
from tests.support.plain import plain_settings
from tests.support.sessions import INTERPRETED, JAVA, SMALL


class PlainDelta:
    """A Spark with Delta and without Lockstep; `errors.txt` of its folder says what became of it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        settings = {**SMALL, **INTERPRETED, **plain_settings(folder), "spark.master": "local[2]"}
        self._errors = (folder / "errors.txt").open("w", encoding="utf-8")
        self._process = Child(
            "tests.fuzz.plain",
            json.dumps(settings),
            errors=self._errors,
            environment={"JDK_JAVA_OPTIONS": JAVA},
        )

    def ask(self, do: str, **arguments: Any) -> Any:
        """Have something done, and return the answer."""
        answer = self._process.ask({"do": do, **arguments})
        if "error" in answer:
            raise PlainDeltaError(answer["error"])
        return answer["answer"]

    def close(self) -> None:
        """End it."""
        self._process.close()
        self._errors.close()


class PlainDeltaError(Exception):
    """Plain Delta could not do what it was asked: read a table that Lockstep wrote, for one."""
