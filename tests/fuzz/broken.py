"""Lockstep with a fault that it once had, to see that the programs find it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TypeAlias

from lockstep.delta import checksum
from lockstep.delta.combine import collapse
from lockstep.lake import changes

Replace: TypeAlias = Callable[[ModuleType, str, Callable[..., object]], None]
"""Puts another function in a module's place: `setattr`, for good, or that of a test."""

DEFECTS: Mapping[str, tuple[tuple[ModuleType, str, Callable[..., object]], ...]] = {
    # A checksum counts a file that is added again as one more.
    "counted-twice": ((checksum, "_listed_files", lambda _: None), (checksum, "added_again", lambda _: 0)),
    # Commits are merged and renumbered though their data files name row ids and versions of theirs.
    "renumbered": tuple((module, "copies_own_rows", lambda *_: False) for module in (collapse, changes)),
}


def put_back(defect: str, replace: Replace = setattr) -> None:
    """Put a fault back; what it replaces must be there, or all would be left as it is."""
    for module, name, by in DEFECTS[defect]:
        assert callable(getattr(module, name)), f"{module.__name__} has no {name}"
        replace(module, name, by)
