"""Ports for servers that a test starts, which take a port that they are told."""

from __future__ import annotations

import os
import socket
from itertools import count
from pathlib import Path

FIRST = 12_000
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def _end() -> int:
    """Return the first port that the system itself gives out."""
    return max(int(_RANGE.read_text().split()[0]) if _RANGE.exists() else 32_768, FIRST + 1_000)


_tried = count(os.getpid() * 37)  # another process begins elsewhere


def free_port() -> int:
    """Return a port that nobody listens at, and that was not returned before.

    Not one of those that the system gives out: between this and the start of a server, which may take many seconds, any
    connection of any process could be given it.
    """
    size = _end() - FIRST
    for number in _tried:
        port = FIRST + number % size
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
    raise AssertionError("numbers do not end")
