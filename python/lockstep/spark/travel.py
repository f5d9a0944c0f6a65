"""Reading in Python what was: a block in which a session sees one older version of the database."""

from __future__ import annotations

from datetime import UTC, datetime

from pyspark.sql import SparkSession

from lockstep.arguments import takes
from lockstep.errors import InvalidError
from lockstep.spark.session import SessionTransaction


@takes(when=int | datetime | str)
def at(spark: SparkSession, when: int | datetime | str) -> SessionTransaction:
    """Return a read-only transaction to use in a `with` statement, in which all tables and views are as they were.

    It is `BEGIN READ ONLY AS OF`: every statement and DataFrame of the block sees that database version, and finds
    tables and views under the names that they had in it.

    Args:
        when: a database version's number, a time (the newest version that was committed by then), or a tag's name.

    Raises:
        InvalidError: a number below 0, a time without a zone, or no name. As the block begins: no such version or tag.
    """
    if isinstance(when, int):
        if isinstance(when, bool) or when < 0:
            raise InvalidError(f"at: {when} is no database version: expected 0 or more")
        return SessionTransaction(spark, f"BEGIN READ ONLY AS OF VERSION {when}")
    if isinstance(when, datetime):
        if when.tzinfo is None:
            raise InvalidError(f"at: {when!r} has no time zone: say which, {when.replace(tzinfo=UTC)!r} for UTC")
        text = when.astimezone(UTC).isoformat(timespec="microseconds")
        return SessionTransaction(spark, f"BEGIN READ ONLY AS OF TIMESTAMP '{text}'")
    name = when.replace("\\", "\\\\").replace("'", "\\'")
    return SessionTransaction(spark, f"BEGIN READ ONLY AS OF TAG '{name}'")
