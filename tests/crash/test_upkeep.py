"""Processes on one lake: some end the transactions of others, or delete what nobody needs, while those go on."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lockstep.delta.snapshot import read_snapshot
from lockstep.lake.verify import verify
from lockstep.storage import open_storage
from tests.support.caretakers import STOP, TABLE, make
from tests.support.child import REPOSITORY
from tests.support.lakes import named, open_catalog
from tests.support.placed import root_in

pytestmark = pytest.mark.long

PATIENCE_SECONDS = 240
"""So long at most until enough has happened: ten seconds if nothing else runs, and ninety on a busy machine."""


class Processes:
    """Processes that play roles on a lake, what they have said so far, and how all of them end."""

    def __init__(self, folder: Path, *roles: tuple[str, str]) -> None:
        self.root, self.names = root_in(folder), [name for _, name in roles]
        make(self.root)
        self._files = [folder / f"{name}.log" for name in self.names]
        self._processes = []
        for (role, name), file in zip(roles, self._files, strict=True):
            command = [sys.executable, "-m", "tests.support.caretakers", role, self.root, name]
            with file.open("w") as out:
                self._processes.append(subprocess.Popen(command, stdout=out, cwd=REPOSITORY))

    def said(self, what: str) -> list[dict[str, Any]]:
        """Return the lines so far that say something."""
        texts = [file.read_text() for file in self._files]
        lines = [json.loads(line) for text in texts for line in text.splitlines() if line.endswith("}")]
        return [line for line in lines if what in line]

    def until(self, enough: Callable[[], bool]) -> None:
        """Let them go on until enough has happened, and then see that each has ended well."""
        end_by = time.monotonic() + PATIENCE_SECONDS
        try:
            while not enough():
                assert not self.said("failed")
                assert time.monotonic() < end_by, [file.read_text()[-500:] for file in self._files]
                time.sleep(0.2)
        finally:
            open_storage(self.root).put(STOP, b"")
            codes = [process.wait(PATIENCE_SECONDS) for process in self._processes]
        assert codes == [0] * len(codes), self.said("failed")


def entries_by_id(root: str) -> dict[str, int]:
    catalog = open_catalog(open_storage(root))
    assert verify(catalog.lake.storage, catalog.timeline).differences == ()
    return {entry.transaction.id: entry.version for entry in catalog.timeline.past()}


# Slow: some seconds of three processes each on two cores.
@pytest.mark.slow
def test_of_an_abort_and_a_commit_one_wins(tmp_path: Path) -> None:
    processes = Processes(tmp_path, ("write", "w1"), ("write", "w2"), ("abort", "ender"))
    processes.until(lambda: all(len(processes.said(what)) >= 10 for what in ("committed", "aborted", "cancelled")))
    committed = {line["committed"]: line["version"] for line in processes.said("committed")}
    aborted = {line["aborted"] for line in processes.said("aborted")}
    landed = entries_by_id(processes.root)
    assert not aborted & committed.keys(), "who was told that a transaction is ended, and who that it is committed"
    assert not aborted & landed.keys()
    assert {id_: landed.get(id_) for id_ in committed} == committed
    assert {line["cancelled"] for line in processes.said("cancelled")} <= aborted
    assert not {line["refused"] for line in processes.said("refused")} & landed.keys()


@pytest.mark.slow
def test_two_maintainers_take_nothing_from_writers_nor_from_a_long_reader(tmp_path: Path) -> None:
    roles = (("write", "w"), ("read", "reader"), ("maintain", "m1"), ("maintain", "m2"))
    processes = Processes(tmp_path, *roles)
    root = processes.root

    def gone(by: str | None = None) -> set[str]:
        return {path for line in processes.said("gone") if by in (None, line["by"]) for path in line["gone"]}

    def read() -> list[dict[str, Any]]:
        """Return what the reader said of times at which others knew of it; a busy machine may make it late."""
        return [line for line in processes.said("read") if line["in_time"]]

    processes.until(lambda: bool(gone("m1") and gone("m2")) and len(read()) >= 2)
    assert [line["missing"] for line in read()] == [[]] * len(read())
    assert all(line["looks"] for line in read())
    landed = entries_by_id(root)
    committed = {line["committed"]: line["version"] for line in processes.said("committed")}
    assert {id_: landed.get(id_) for id_ in committed} == committed
    assert committed
    catalog = open_catalog(open_storage(root))
    head = catalog.database()
    assert head.expired.first_kept > 1
    for version in range(head.expired.first_kept, head.version + 1):
        table = catalog.timeline.at(version).tables[named(TABLE)]
        for path, _ in read_snapshot(catalog.lake.storage, table.location, table.version).files:
            assert catalog.lake.storage.exists(f"{table.location}/{path}"), f"{path} of database version {version}"
