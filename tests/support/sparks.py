"""Which Spark the tests run on, and what older ones lack."""

from __future__ import annotations

from importlib.metadata import version

import pytest

RUNNING = version("pyspark")


def number(release: str) -> tuple[int, ...]:
    """Return a version's major and minor."""
    return tuple(int(part) for part in release.split(".")[:2])


def is_before(minor: str) -> bool:
    """Tell whether the tests run on a Spark before this minor."""
    return number(RUNNING) < number(minor)


def since(minor: str, what: str) -> pytest.MarkDecorator:
    """Mark a test of something that a Spark before this minor lacks."""
    return pytest.mark.skipif(is_before(minor), reason=f"Spark {RUNNING} has no {what}; it came with {minor}")
