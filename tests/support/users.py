"""Tests may be run by the user root, whom no permission of a file holds for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

NOBODY = 65534


@contextmanager
def somebody() -> Iterator[None]:
    """Be a user for whom permissions count: root becomes another one, and everybody else is one."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)
