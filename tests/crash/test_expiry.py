"""Processes on one lake whose versions expire all the time: some commit, some read, some are stopped, and killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from lockstep.storage import open_storage
from lockstep.timeline.fence import fence
from lockstep.timeline.files import entry_path
from lockstep.timeline.log import Timeline
from tests.support.child import REPOSITORY
from tests.support.expirers import GRACE_SECONDS, STOP

PATIENCE_SECONDS = 90
"""So long at most until enough has expired; a few seconds, if nothing else runs."""

ENOUGH = 60
"""The test ends once all versions below this one are gone."""


def start(role: str, root: Path, name: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.support.expirers", role, str(root), name]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY)


def said(process: subprocess.Popen[str]) -> list[dict[str, Any]]:
    """Wait for a process to end, and return what it said; the last line of a killed one may be torn."""
    out, _ = process.communicate(timeout=PATIENCE_SECONDS)
    lines = [json.loads(line) for line in out.splitlines() if line.endswith("}")]
    assert process.returncode in {0, -signal.SIGKILL}
    return lines


# Slow: some seconds of three committers, a reader and two expirers on two cores.
@pytest.mark.slow
def test_nothing_that_was_committed_is_lost(tmp_path: Path) -> None:
    """Every version that a process was told is its own is so for everybody; what is read is the same before and after.

    One committer is stopped for longer than it may count on what it saw, again and again, so that versions after its
    own expire meanwhile; one expirer is killed, and the other goes on.
    """
    root = tmp_path / "lake"
    root.mkdir()
    Timeline.create(open_storage(str(root)))
    committers = [start("commit", root, name) for name in ("a", "b", "stopped")]
    readers = [start("read", root, "reader")]
    expirers = [start("expire", root, name) for name in ("one", "killed")]
    store, until = open_storage(str(root)), time.monotonic() + PATIENCE_SECONDS
    while fence(store) < ENOUGH or store.exists(entry_path(1)):
        assert time.monotonic() < until
        time.sleep(0.3)
        committers[2].send_signal(signal.SIGSTOP)
        time.sleep(3 * GRACE_SECONDS)  # longer than it may count on what it saw
        committers[2].send_signal(signal.SIGCONT)
        if fence(store):
            expirers[1].kill()
    store.put(STOP, b"")
    acknowledged = {line["version"]: line["committed"] for c in committers for line in said(c) if "committed" in line}
    read = {(line["read"], line["at"]) for reader in readers for line in said(reader)}
    expired = [line for expirer in expirers for line in said(expirer)]

    timeline = Timeline.open(store)
    entries = {entry.version: entry for entry in timeline.past()}
    assert sorted(entries) == [*range(timeline.head.version + 1)]
    assert {version: entries[version].transaction.id for version in acknowledged} == acknowledged
    ids = [entry.transaction.id for entry in entries.values()]
    assert len(ids) == len(set(ids))
    assert {(version, entries[version].committed_at.isoformat()) for version, _ in read} == read
    assert acknowledged
    assert read
    assert any(line["first_kept"] for line in expired)
    assert timeline.head.expired.first_kept >= ENOUGH
