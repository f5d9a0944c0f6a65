"""A process that has nearly as many files open as it may."""

from __future__ import annotations

import os
import resource


def hold_all_but(free: int, most: int) -> list[int]:
    """Let this process open so many files at most, and open all of these but some; return what to close."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    held: list[int] = []
    try:
        while True:
            held.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        pass
    for _ in range(free):
        os.close(held.pop())
    return held
