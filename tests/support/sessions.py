"""What tests with Spark know about their sessions."""

from __future__ import annotations

from typing import Any

CATALOG = "lake"
"""What every session calls its test's lake."""


def is_open(session: Any) -> bool:
    """Tell whether a session has a transaction open."""
    return bool(session.sparkContext._gateway.jvm.lockstep.spark.Bridge.isOpen(session._jsparkSession))
