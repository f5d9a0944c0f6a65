"""What a long history costs: requests and memory, with checkpoints."""

from __future__ import annotations

import logging
from datetime import timedelta
from itertools import islice

import pytest

from lockstep.errors import InvalidError
from lockstep.timeline.files import Stored
from lockstep.timeline.history import History
from lockstep.timeline.log import Timeline
from tests.support.checkpoints import checkpoint, long_history, requests, stored
from tests.support.entries import T0, entry


def counted(count: int) -> dict[str, int]:
    """Return the requests of what people do in a lake of so many versions, with a checkpoint every hundred."""
    entries = long_history(count)
    store = stored(entries)
    for version in range(100, count, 100):
        checkpoint(store, entries, version)
    opened: list[Timeline] = []
    found = {"open": requests(store, lambda: opened.append(Timeline.open(store)))}
    [timeline] = opened
    found["tables"] = requests(store, lambda: sorted(timeline.head.tables))
    found["log"] = requests(store, lambda: [*islice(timeline.newest_first(), 100)])
    found["one entry"] = requests(store, lambda: timeline.entries(41, 42))
    found["at"] = requests(store, lambda: timeline.at(45))
    found["at in the middle"] = requests(store, lambda: timeline.at(count // 200 * 100 + 45))
    return found


def test_requests_do_not_grow_with_the_history() -> None:
    """Opening, the newest hundred entries, one entry, an older version: as many with 2,050 versions as with 650."""
    short, long = counted(650), counted(2_050)
    assert long == short
    assert short["open"] <= 60
    assert short["tables"] == 0
    assert short["one entry"] == 1
    assert max(short["at"], short["at in the middle"]) <= 60


@pytest.mark.parametrize("count", [250, 2_050])
def test_a_time_is_found_in_few_requests(count: int) -> None:
    """Of n entries, about log2(n) are looked at before the version is read."""
    entries = long_history(count)
    store = stored(entries)
    for version in range(100, count, 100):
        checkpoint(store, entries, version)
    timeline = Timeline.open(store)
    half = timedelta(milliseconds=500)
    for version in (0, 7, 120, count - 70, count - 1):
        made: list[int] = []
        at = entries[version].committed_at + half
        looked = requests(store, lambda at=at, made=made: made.append(timeline.at_time(at).version))  # type: ignore[misc]
        assert made == [version]
        assert looked <= count.bit_length() + 2 + 4 + 100
    with pytest.raises(InvalidError, match=f"its versions 0 to {count} were committed from"):
        timeline.at_time(T0 - half)


def test_entries_in_memory_are_bounded() -> None:
    """By their number and by their bytes; what was used last stays, and who goes through all of them keeps none."""
    history = History(entries=3, size=100)
    store = stored(long_history(10))
    history.keep(Stored(entry(version), 10) for version in range(6))
    history.read(store, range(3, 4), last=10)
    history.keep([Stored(entry(6), 10)])
    assert requests(store, lambda: history.read(store, range(3, 4), last=10)) == 0
    assert requests(store, lambda: history.read(store, range(4, 5), last=10)) == 1
    history.keep([Stored(entry(7), 95)])
    assert requests(store, lambda: history.read(store, range(7, 8), last=10)) == 0
    assert requests(store, lambda: history.read(store, range(3, 4), last=10)) == 1


def test_a_long_scan_keeps_nothing() -> None:
    entries = long_history(700)
    store = stored(entries)
    history = History()
    for _ in range(2):
        assert requests(store, lambda: [*history.scan(store, range(701), last=700)]) == 701
    assert [each.version for each in history.scan(store, range(700, 690, -1), last=700)] == [*range(700, 690, -1)]


def test_the_log_says_nothing_of_a_checkpoint_that_is_whole(caplog: pytest.LogCaptureFixture) -> None:
    entries = long_history(12)
    store = stored(entries)
    checkpoint(store, entries, 8)
    with caplog.at_level(logging.INFO):
        Timeline.open(store)
    assert caplog.text == ""
