"""Processes on one lake whose versions expire all the time: some commit, some read, some are stopped, and killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lockstep.storage import open_storage
from lockstep.timeline.fence import fence
from lockstep.timeline.files import entry_path
from lockstep.timeline.log import Timeline
from tests.support.child import REPOSITORY
from tests.support.expirers import GRACE_SECONDS, STOP
from tests.support.placed import root_in

PATIENCE_SECONDS = 90
"""So long at most until enough has expired; a few seconds, if nothing else runs."""

ENOUGH = 60
"""The test ends once all versions below this one are gone."""


class Processes:
    """What plays roles on one lake. Each says what it does into a file, which never is full as a pipe can be."""

    def __init__(self, folder: Path) -> None:
        self.root = root_in(folder)
        self._folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, role: str, name: str) -> None:
        command = [sys.executable, "-m", "tests.support.expirers", role, self.root, name]
        with (self._folder / name).open("wb") as out:
            self._running[name] = subprocess.Popen(command, stdout=out, cwd=REPOSITORY)

    def send(self, name: str, what: signal.Signals) -> None:
        self._running[name].send_signal(what)

    def ended(self) -> dict[str, int]:
        """Return the exit codes of those that have ended."""
        return {name: code for name, process in self._running.items() if (code := process.poll()) is not None}

    def said(self, name: str) -> list[dict[str, Any]]:
        """Wait for a process to end, and return what it said; the last line of a killed one may be torn."""
        assert self._running[name].wait(PATIENCE_SECONDS) in {0, -signal.SIGKILL}
        return [json.loads(line) for line in (self._folder / name).read_text().splitlines() if line.endswith("}")]

    def kill(self) -> None:
        for process in self._running.values():
            process.kill()
            process.wait()


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    processes = Processes(tmp_path)
    yield processes
    processes.kill()


# Slow: some seconds of three committers, a reader and two expirers on two cores.
@pytest.mark.slow
def test_nothing_that_was_committed_is_lost(processes: Processes) -> None:
    """Every version that a process was told is its own is so for everybody; what is read is the same before and after.

    One committer is stopped for longer than it may count on what it saw, again and again, so that versions after its
    own expire meanwhile; one expirer is killed, and the other goes on.
    """
    store = open_storage(processes.root, create=True)
    Timeline.create(store)
    committers, reader, expirers = ("a", "b", "stopped"), "reader", ("one", "killed")
    for role, names in (("commit", committers), ("read", (reader,)), ("expire", expirers)):
        for name in names:
            processes.start(role, name)
    until = time.monotonic() + PATIENCE_SECONDS
    while fence(store) < ENOUGH or store.exists(entry_path(1)):
        assert time.monotonic() < until, f"entries below {fence(store)} are gone"
        assert {name: code for name, code in processes.ended().items() if name != "killed"} == {}
        time.sleep(0.3)
        processes.send("stopped", signal.SIGSTOP)
        time.sleep(3 * GRACE_SECONDS)  # longer than it may count on what it saw
        processes.send("stopped", signal.SIGCONT)
        if fence(store):
            processes.send("killed", signal.SIGKILL)
    store.put(STOP, b"")
    acknowledged = {
        line["version"]: line["committed"]
        for name in committers
        for line in processes.said(name)
        if "committed" in line
    }
    read = {(line["read"], line["at"]) for line in processes.said(reader)}
    expired = [line for name in expirers for line in processes.said(name)]

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
