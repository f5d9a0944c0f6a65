"""Processes that write tables without Spark, racing and killed: nothing lost, nothing twice, nothing by half."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lockstep
from lockstep.lake.verify import verify
from lockstep.tables.opened import OpenLake
from tests.support.placed import delta, root_in

pytestmark = [pytest.mark.long, pytest.mark.slow]

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])

RACER = """
import sys, lockstep
root, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
lake = lockstep.open(root)

def load(id):
    def change(tx):
        tx["a"].append({"id": [id], "v": [None]})
        tx["b"].merge({"id": [0, id], "v": ["seen", "new"]}, on="id").when_not_matched_insert_all().execute()
    return change

for id in range(first, first + count):
    lake.run(load(id), attempts=100)
"""

VICTIM = """
import os, signal, sys, lockstep
from lockstep.storage.local import LocalStorage
from lockstep.storage.object import ObjectStorage
root, at, id = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
lake = lockstep.open(root)
lake.at()
calls = 0
kind = ObjectStorage if "://" in root else LocalStorage

def watched(name):
    real = getattr(kind, name)
    def call(self, path, *args, **more):
        global calls
        calls += 1
        if calls == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(self, path, *args, **more)
    setattr(kind, name, call)

for name in ("try_put", "put", "put_chunks", "put_advice", "delete", "delete_folder"):
    watched(name)
with lake.transaction() as tx:
    tx["a"].append({"id": [id], "v": ["whole"]})
    tx["b"].append({"id": [id], "v": ["whole"]})
    tx["b"].update({"v": "'changed'"}, f"id = {id}")
print("committed", flush=True)
"""


def make(root: str) -> OpenLake:
    lake = lockstep.open(root, create=True)
    with lake.transaction() as tx:
        for name in ("a", "b"):
            tx.create(name, SCHEMA, properties={"delta.enableDeletionVectors": "true"})
    return lake


def start(code: str, *args: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *map(str, args)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ids(root: str, name: str) -> list[int]:
    return sorted(column(root, name, "id"))


def column(root: str, name: str, of: str) -> list[Any]:
    """A column of a table as any Delta reader has it, once the lake has been opened anew."""
    uri = lockstep.open(root).at()[name].uri
    values: list[Any] = pa.table(delta(uri).scan(columns=[of])).column(of).to_pylist()
    return values


def test_two_processes_that_race_lose_nothing(tmp_path: Path) -> None:
    root = root_in(tmp_path)
    make(root)
    racers = [start(RACER, root, first, 15) for first in (100, 200)]
    for racer in racers:
        _, errors = racer.communicate(timeout=120)
        assert racer.returncode == 0, errors
    expected = [*range(100, 115), *range(200, 215)]
    assert ids(root, "a") == expected
    assert ids(root, "b") == [0, *expected]


def test_a_process_killed_at_any_write_leaves_all_or_nothing(tmp_path: Path) -> None:
    """It is killed before its n-th write or deletion, for each n, until it comes to its end."""
    root = root_in(tmp_path)
    lake = make(root)
    committed: list[int] = []
    outcomes = set()
    for at in range(1, 100):
        victim = start(VICTIM, root, at, at)
        said, errors = victim.communicate(timeout=60)
        assert victim.returncode in (0, -signal.SIGKILL), errors
        a, b = ids(root, "a"), ids(root, "b")
        assert a == b, f"killed before write {at}: one table has what the other has not"
        if said.startswith("committed"):
            assert at in a, "what was acknowledged is there"
        outcomes.add((victim.returncode, at in a))
        committed += [at] if at in a else []
        assert a == committed
        if victim.returncode == 0:
            break
    else:
        pytest.fail("it never came to its end")
    assert {(-signal.SIGKILL, False), (-signal.SIGKILL, True), (0, True)} == outcomes, (
        "killed before the commit, and after"
    )
    assert set(column(root, "b", "v")) == {"changed"}
    report = verify(lake.catalog.lake.storage, lockstep.open(root).catalog.timeline)
    assert not report.differences, json.dumps([str(each) for each in report.differences])
