"""Cases of a table that takes long: some of them in every run, all of them in `make test-deep`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def sampled(cases: Iterable[tuple[str, Any]], every: int) -> list[Any]:
    """Return cases for `parametrize`, all but a few of them marked deep.

    Args:
        cases: ids, and a value or a tuple of values; those that are like each other stand beside each other.
        every: of so many one, the first, is in every run.
    """
    found = []
    for number, (id_, value) in enumerate(cases):
        values = value if isinstance(value, tuple) else (value,)
        found.append(pytest.param(*values, id=id_, marks=[pytest.mark.deep] if number % every else []))
    return found
