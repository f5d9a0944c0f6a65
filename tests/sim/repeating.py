"""What a schedule needs besides its seed, to be the same in each process: an order of sets."""

from __future__ import annotations

import logging
import os
import sys


def repeatable() -> None:
    """Begin this module anew with hashes that are the same in each process; and say only what was found."""
    logging.disable(logging.CRITICAL)  # of faults that are meant to be there
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"})
