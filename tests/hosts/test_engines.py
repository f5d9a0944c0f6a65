"""Engines that only read: what docs/python.md says of them, tried in an environment of their own: `make test-engines`.

Not part of `make test`: DuckDB's extension `delta` is there for one version of DuckDB, which is not the one that
Lockstep has.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest

import lockstep
from tests.unit.tables.test_lazy_reads import FILES, KINDS, fill

PYTHON = os.environ.get("LOCKSTEP_TEST_ENGINES", "")
"""Of the environment that has them."""

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not PYTHON, reason="needs DuckDB's extension: make test-engines")]

TEXTS = "SELECT CAST(COLUMNS(*) AS VARCHAR) FROM"
BY_DELTA_SCAN = f"""
import json, sys, duckdb
connection = duckdb.connect(config={{"autoinstall_known_extensions": "false"}})
connection.execute("LOAD delta")
connection.execute("SET TimeZone = 'UTC'")
found = {{}}
for each in json.load(sys.stdin)["tables"]:
    location, version = each["location"], each["version"]
    found[each["table"]] = connection.sql(f"{TEXTS} delta_scan('{{location}}', version => {{version}})").fetchall()
json.dump(found, sys.stdout)
"""


def manifest(root: Path, version: int) -> str:
    command = [sys.executable, "-m", "lockstep", "manifest", str(root), "--at", str(version)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


PARTED_AND_MAPPED = "mapped, partitions and vectors"


def of_each(rows: list[Any], kind: str) -> list[tuple[Any, ...]]:
    """Return rows in an order, as the extension has them: null for a partition's value, where columns are mapped."""
    if kind == PARTED_AND_MAPPED:
        rows = [(*row[:1], None, *row[2:]) for row in rows]
    return sorted(map(tuple, rows), key=repr)


@pytest.mark.parametrize("kind", KINDS)
def test_duckdb_reads_each_version_by_the_manifest(tmp_path: Path, kind: str) -> None:
    """By `delta_scan`: the rows that the lake has at that version, before its DELETE and after it."""
    root = tmp_path / "lake"
    lake = lockstep.open(str(root), create=True)
    fill(lake, FILES, **KINDS[kind])
    newest = lake.at().version
    for version in (2, newest - 1, newest):
        command = [PYTHON, "-c", BY_DELTA_SCAN]
        text = manifest(root, version)
        found = subprocess.run(command, check=True, input=text, capture_output=True, text=True).stdout
        connection = duckdb.connect()
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("whole_table", lake.at(version)["t"].to_arrow())
        [rows] = json.loads(found).values()
        assert of_each(rows, "") == of_each(connection.sql(f"{TEXTS} whole_table").fetchall(), kind), version
