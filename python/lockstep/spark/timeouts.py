"""Timeouts of one transaction: settings that its session says while it begins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import ceil

from pyspark.sql import SparkSession

from lockstep.settings import IDLE_TIMEOUT, STATEMENT_TIMEOUT, TRANSACTION_TIMEOUT
from lockstep.transactions.limits import check_seconds

_SETTINGS = {"timeout": TRANSACTION_TIMEOUT, "idle_timeout": IDLE_TIMEOUT, "statement_timeout": STATEMENT_TIMEOUT}
"""What each argument of `lockstep.transaction` is set as."""


def timeouts(**seconds: float | None) -> dict[str, str]:
    """Return timeouts as a session sets them; one of None is not set.

    Raises:
        InvalidError: one is less than 0, or no number.
    """
    check_seconds(**seconds)
    said = {key: value for key, value in seconds.items() if value is not None}
    # 0 is for ever, so what is less than a millisecond is one
    return {_SETTINGS[key].name: f"{round(value * 1000) or ceil(value)}ms" for key, value in said.items()}


@contextmanager
def during(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Have a session say settings for a while, and what it said before afterwards."""
    before = {name: spark.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)
