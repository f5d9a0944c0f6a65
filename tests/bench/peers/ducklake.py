"""DuckLake's writers, in an environment of their own.

    python -m tests.bench.peers.ducklake CATALOG FOLDER ROWS NAME

ROWS is the data inlining row limit: single rows go into the catalog's database with 10, into Parquet files with 0.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import duckdb

from tests.bench.peers.writing import serve
from tests.support.child import Parent

EXTENSIONS = ("ducklake", "sqlite_scanner", "postgres_scanner")

RETRIES = 1000
"""As many as Lockstep tries; by default it gives up after 10."""


def connected(catalog: str, folder: str, rows: str) -> Any:
    """Return a connection that uses a lake."""
    connection = duckdb.connect()
    connection.execute("SET threads = 1")  # eight processes on a few cores
    for extension in EXTENSIONS:
        connection.execute(f"LOAD {extension}")
    connection.execute(f"SET ducklake_max_retry_count = {RETRIES}")
    options = f"DATA_PATH '{folder}', DATA_INLINING_ROW_LIMIT {rows}"
    if catalog.startswith("sqlite:"):
        # Without it nearly every commit beside others ends as "database is locked".
        options += ", META_JOURNAL_MODE 'WAL'"
    connection.execute(f"ATTACH 'ducklake:{catalog}' AS lake ({options})")
    connection.execute("USE lake")
    return connection


class Committer:
    """One thread's transactions."""

    def __init__(self, connection: Any, numbers: Iterator[int]) -> None:
        self._cursor = connection.cursor()
        self._cursor.execute("USE lake")
        self._numbers = numbers

    def __call__(self, tables: Sequence[str]) -> bool:
        """Append a row to each of these tables."""
        try:
            self._cursor.execute("BEGIN")
            for table in tables:
                self._cursor.execute(f"INSERT INTO {table} VALUES ({next(self._numbers)})")
            self._cursor.execute("COMMIT")
        except duckdb.Error as error:
            if not any(sign in str(error).lower() for sign in ("conflict", "lock", "busy")):
                raise
            with contextlib.suppress(duckdb.TransactionException):  # a failed COMMIT has ended it already
                self._cursor.execute("ROLLBACK")
            return False
        return True


def main(catalog: str, folder: str, rows: str, name: str) -> None:
    parent = Parent()
    connection = connected(catalog, folder, rows)
    if name == "set up":
        for table in parent.requests():
            connection.execute(f"CREATE TABLE {table} (id BIGINT)")
            parent.say("made")
        return
    numbers = count()
    serve(parent, lambda: Committer(connection, numbers))


if __name__ == "__main__":
    main(*sys.argv[1:])
