"""What the pages and docstrings for those who work on the code name, in it: each name leads to something."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from lockstep import settings

REPOSITORY = Path(__file__).parents[2]
PACKAGE = REPOSITORY / "python" / "lockstep"
ROOMS = {path.parent.name for path in PACKAGE.glob("*/__init__.py")} - {"spark"}  # `spark.…` is nearly always Spark's
PAGES = [REPOSITORY / "CONTRIBUTING.md", REPOSITORY / "docs" / "design.md"]
NAME = re.compile(r"`(?P<name>[a-z_]+(?:\.(?:[a-z_]+|[A-Z]\w+))+)(?:\(\))?`")
SOURCES = (".py", ".scala")
FILE = re.compile(r"`(?P<path>[\w/.-]+\.(?:py|scala))`")
OURS = {setting.name for setting in settings.SETTINGS} | {"lockstep.asked"}
"""Not names of the code: settings, and a mark of relations (`Scans.Asked`)."""


def names() -> Iterator[tuple[str, str]]:
    """Return where a name of the code stands, and the name in full; `delta.rowTracking` is Delta's."""
    for path in [*PAGES, *PACKAGE.rglob("*.py")]:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            for match in NAME.finditer(line):
                name = match["name"]
                first, last = name.split(".")[0], name.split(".")[-1]
                if last in ("py", "scala", "md", "json") or name in OURS or name.startswith("lockstep.spark."):
                    continue
                if first in ROOMS | {"lockstep"}:
                    yield (
                        f"{path.relative_to(REPOSITORY)}:{number}",
                        name if first == "lockstep" else f"lockstep.{name}",
                    )


def leads_somewhere(name: str) -> bool:
    """Tell whether there is a module, or something in one, of that name."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            owner: object = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            if part in getattr(owner, "__annotations__", {}) and not isinstance(owner, ModuleType):
                return True  # a field without a default
            if not hasattr(owner, part):
                return False
            owner = getattr(owner, part)
        return True
    return False


@pytest.mark.parametrize(("place", "name"), sorted(names()))
def test_a_name_in_the_docs_is_one_of_the_code(place: str, name: str) -> None:
    assert leads_somewhere(name), f"{place} names `{name}`, and there is no such thing"


def test_a_name_of_nothing_leads_nowhere() -> None:
    assert leads_somewhere("lockstep.timeline.log.Timeline.append")
    assert not leads_somewhere("lockstep.timeline.log.Timeline.nothing")
    assert not leads_somewhere("lockstep.nothing.at_all")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_file_that_a_page_names_is_there(page: Path) -> None:
    folders = ("python", "jvm-shim", "tests", "project", "sql")
    there = [
        path.as_posix() for folder in folders for path in (REPOSITORY / folder).rglob("*.*") if path.suffix in SOURCES
    ]
    linked = re.compile(r"\[[^\]]*\]\([^)]*\)")  # `make docs` looks at links
    named = {match["path"] for match in FILE.finditer(linked.sub("", page.read_text(encoding="utf-8")))}
    assert named
    assert not [name for name in named if not any(path.endswith(f"/{name}") for path in there)]
