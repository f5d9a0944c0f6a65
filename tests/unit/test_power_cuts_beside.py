"""Power cuts on a local disk: what must be there before an entry is, and is no part of it.

See `tests.unit.test_power_cuts`; here it is what others than readers of the entry go by.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.arbiters import Accept, Decision, Mark
from lockstep.lake.guests import guests
from lockstep.storage import Mine, local
from lockstep.storage.local import LocalStorage
from lockstep.storage.outside import OutsideStorage
from lockstep.timeline.arbitration import INLINE_BYTES, Arbitration, staged_path
from lockstep.timeline.base import base_path, read_base, write_base
from lockstep.timeline.files import entry_path, find
from lockstep.timeline.log import Timeline
from lockstep.timeline.segment import Segment, read_segment, write_segment
from tests.support.adopting import adopted, written_log
from tests.support.lakes import create, named
from tests.support.memory import MemoryStorage
from tests.support.power import Cut, RecordedDisk, cuts
from tests.support.recorded import Recorded, Server
from tests.unit.test_power_cuts import opened


def left(cut: Cut) -> MemoryStorage:
    storage = MemoryStorage()
    storage.files.update(cut.files)
    return storage


def test_whose_an_adopted_folder_is_outlives_a_power_cut_if_its_adoption_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else upkeep would delete somebody else's table, once it was dropped and its versions have expired."""
    catalog = opened(OutsideStorage(LocalStorage(tmp_path)))
    folder = written_log(tmp_path / "theirs")
    with monkeypatch.context() as patch:
        disk = RecordedDisk(tmp_path)
        patch.setattr(local, "os", disk)
        adopted(catalog, "t", folder)
        disk.answered()
        catalog.lake.upkeep.settle()
    afters = 0
    for cut in cuts(disk):
        storage = left(cut)
        if named("t") in Timeline.open(storage).head.tables:
            afters += 1
            assert guests(storage) == {"theirs"}, cut.after
    assert afters


class Deciding(Recorded):
    """An arbiter that outlives the lake's machine: what it has decided stays so."""

    def __init__(self, disk: RecordedDisk) -> None:
        super().__init__(Server())
        self._disk = disk

    def _swap(self, before: Mark | None, decision: Decision, accept: Accept) -> bool:
        is_recorded = super()._swap(before, decision, accept)
        self._disk.answered()
        return is_recorded


def test_what_an_arbiter_has_decided_and_does_not_hold_outlives_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else nothing could be decided any more before a person has set the arbiter anew."""
    storage, data = LocalStorage(tmp_path), b"x" * (INLINE_BYTES + 1)
    with monkeypatch.context() as patch:
        disk = RecordedDisk(tmp_path)
        patch.setattr(local, "os", disk)
        arbiter = Deciding(disk)
        assert isinstance(Arbitration(storage, arbiter, "lake").put(0, 0, data), Mine)
    decided = arbiter.server.record
    assert decided is not None
    for cut in cuts(disk):
        places = (staged_path(decided), entry_path(0))
        if cut.answered:
            assert any(cut.files.get(place) == data for place in places), cut.after


def test_history_in_the_place_of_damaged_files_outlives_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entries that it was written from may be deleted then."""
    storage = LocalStorage(tmp_path)
    catalog = opened(storage)
    create(catalog, "a", "b")
    timeline = catalog.timeline
    entries, state, file = timeline.entries(-1), timeline.state_at(1), find(storage, 1)
    assert file is not None
    segment = Segment(entries[0].version, entries[-1].version, entries[-1].committed_at)
    for path in (segment.path, base_path(1)):
        storage.put_if_absent(path, b"damaged")
    with monkeypatch.context() as patch:
        disk = RecordedDisk(tmp_path)
        patch.setattr(local, "os", disk)
        write_segment(storage, entries)
        write_base(storage, state, file)
        disk.answered()
    ends = [left(cut) for cut in cuts(disk) if cut.answered]
    assert ends
    for end in ends:
        assert len(read_segment(end, segment)) == len(entries)
        assert read_base(end, 1) == read_base(storage, 1)
