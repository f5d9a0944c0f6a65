"""Group commit: what comes while a put is under way becomes one file, and is ratified together or not at all."""

from __future__ import annotations

import inspect
import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any

import pytest

import lockstep.timeline.group
from lockstep.errors import CorruptTimelineError, InvalidError, UnavailableError
from lockstep.timeline.checkpoint import Checkpoints
from lockstep.timeline.entry import GROUP_FORMAT
from lockstep.timeline.files import MAX_GROUP, entry_path, find, read
from lockstep.timeline.hint import HINT, Hint, read_hint, write_hint
from lockstep.timeline.log import Timeline
from lockstep.timeline.manifest import manifest_path
from lockstep.timeline.outcomes import Lost, Ratified, Unknown
from tests.support.entries import commit, draft, ids, rewrite
from tests.support.faulty import FaultyStorage
from tests.support.queueing import Queue, anyhow, waiting, while_putting

THREE = ("b", "c", "d")
NOW = datetime(2030, 1, 1, tzinfo=UTC)


def three(queue: Queue) -> None:
    """Three that can follow anything, each judged against the empty database."""
    for id in THREE:
        queue.join(draft(id), anyhow(draft(id)), after=0)


def grouped(timeline: Timeline, store: FaultyStorage) -> list[Any]:
    """Append a, and while it is put b, c and d; return what became of these."""
    with while_putting(timeline, store, entry_path(1), three) as queue:
        assert isinstance(timeline.append(draft("a"), after=0), Ratified)
    return queue.results()


def names(store: FaultyStorage) -> set[str]:
    """Return the versions that give entry files their names."""
    return {name for name in store.inner.list("_lockstep/timeline") if name != HINT.rsplit("/", 1)[1]}


def file_name(version: int) -> str:
    return entry_path(version).rsplit("/", 1)[1]


def test_what_comes_while_a_put_is_under_way_becomes_one_file(timeline: Timeline, store: FaultyStorage) -> None:
    results = grouped(timeline, store)
    assert [(type(each), each.entry.version) for each in results] == [(Ratified, 2), (Ratified, 3), (Ratified, 4)]
    assert names(store) == {file_name(0), file_name(1), file_name(2)}
    assert store.count("put_if_absent", entry_path(2)) == 1
    times = [entry.committed_at for entry in timeline.entries(-1)]
    assert times == sorted(set(times)), "each is later than the one before it"
    group = json.loads(store.get(entry_path(2)) or b"")
    assert (group["format"], [entry["version"] for entry in group["entries"]]) == (GROUP_FORMAT, [2, 3, 4])


@pytest.mark.parametrize("hint", ["newest", "none", 0, 2, 3])
def test_a_group_reads_as_its_entries_one_by_one(timeline: Timeline, store: FaultyStorage, hint: Any) -> None:
    """Wherever a hint points to, or without one; also by who has read up to the entry before it, and goes on after."""
    behind = Timeline.open(store)
    grouped(timeline, store)
    if hint == "newest":
        timeline.write_hint()
        assert read_hint(store) == Hint(version=4, file=2)
    elif hint == "none":
        store.delete(HINT)
    else:
        write_hint(store, Hint(version=hint))
    reopened = Timeline.open(store)
    assert reopened.head == timeline.head
    assert ids(behind.refresh()) == ["a", "b", "c", "d"]
    for reader in (reopened, behind):
        assert [reader.at(version) for version in range(5)] == [timeline.at(version) for version in range(5)]
        assert ids(reader.entries(2, 3)) == ["c"]
    commit(reopened, "e")
    commit(behind := Timeline.open(store), "f")
    assert ids(behind.entries(3)) == ["d", "e", "f"]
    assert names(store) == {file_name(version) for version in (0, 1, 2, 5, 6)}


def test_who_has_read_a_group_has_read_all_of_it(timeline: Timeline, store: FaultyStorage) -> None:
    """No thread sees a head inside a file, from which it could not read on."""
    grouped(timeline, store)
    reader = Timeline.open(store)
    store.inner.delete(entry_path(2))
    behind = Timeline.open(store)
    assert behind.head.version == 1
    store.inner.put(entry_path(2), json.dumps(json.loads('{"format": 1}')).encode())
    assert reader.head.version == 4
    with pytest.raises(CorruptTimelineError, match=entry_path(2)):
        behind.refresh()
    assert behind.head.version == 1, "all, or none"


def test_time_travel_finds_the_middle_of_a_group_by_its_time(timeline: Timeline, store: FaultyStorage) -> None:
    grouped(timeline, store)
    time = timeline.at(3).committed_at
    assert Timeline.open(store).at_time(time) == timeline.at(3)


def test_a_checkpoint_inside_a_group_is_opened_without_what_was_before(store: FaultyStorage) -> None:
    timeline = Timeline.create(store, checkpoint_every=3)
    grouped(timeline, store)
    timeline.write_checkpoint()
    commit(timeline, "e")
    timeline.write_hint()
    file = find(store, 3)
    assert file is not None
    assert (file.first, file.last) == (2, 4)
    state = Checkpoints(store).newest(5, 3)
    assert state is not None
    assert state.database == timeline.at(3)
    store.inner.delete(entry_path(1))
    assert Timeline.open(store, checkpoint_every=3).head == timeline.head
    rewrite(
        store, 2, lambda group: group | {"entries": [*group["entries"][:2], group["entries"][2] | {"kind": "abort"}]}
    )
    assert Checkpoints(store).newest(5, 3) is None, f"{manifest_path(3)} is of another history"


def test_one_that_cannot_follow_waits_and_has_lost(timeline: Timeline, store: FaultyStorage) -> None:
    """One that cannot be judged without a look at the store, and one that must not follow; the others go on."""

    def come(queue: Queue) -> None:
        queue.join(draft("b"), None, after=0, joins=False)
        queue.join(draft("c"), lambda entries, database: None, after=0, joins=False)
        queue.join(draft("d"), anyhow(draft("d")), after=0)

    with while_putting(timeline, store, entry_path(1), come) as queue:
        timeline.append(draft("a"), after=0)
    lost, refused, ratified = queue.results()
    assert (lost, refused) == (Lost(), Lost())
    assert isinstance(ratified, Ratified)
    assert ids(timeline.entries(0)) == ["a", "d"]


def test_what_others_appended_is_never_followed_unseen(timeline: Timeline, store: FaultyStorage) -> None:
    """Their tables' logs have not been looked at, nor brought up to date: it must be proposed anew."""
    commit(Timeline.open(store), "theirs")
    timeline.refresh()
    assert timeline.append(draft("ours"), 0, anyhow(draft("ours"))) == Lost()


def test_a_group_behind_a_put_that_another_process_wins_is_not_put(timeline: Timeline, store: FaultyStorage) -> None:
    """It was judged behind an entry that there never was."""
    other = Timeline.open(store)

    def come(queue: Queue) -> None:
        three(queue)
        commit(other, "theirs")

    with while_putting(timeline, store, entry_path(1), come) as queue:
        assert timeline.append(draft("a"), after=0) == Lost()
    assert queue.results() == [Lost()] * 3
    assert ids(timeline.entries(0)) == ["theirs"]
    assert names(store) == {file_name(0), file_name(1)}


def test_a_group_that_loses_its_version_to_another_process_has_lost(timeline: Timeline, store: FaultyStorage) -> None:
    other = Timeline.open(store)

    def theirs() -> None:
        other.refresh()
        commit(other, "theirs")

    store.interrupt("put_if_absent", theirs, path=entry_path(2))
    assert grouped(timeline, store) == [Lost()] * 3
    assert ids(Timeline.open(store).entries(0)) == ["a", "theirs"]


def test_what_waits_behind_a_put_that_fails_is_put_in_its_place(timeline: Timeline, store: FaultyStorage) -> None:
    """Nothing was written, so the versions are free, and each was judged against what there is."""
    store.fail("put_if_absent", path=entry_path(1), definite=True)
    with while_putting(timeline, store, entry_path(1), three) as queue:  # comes after the failure that is first
        with pytest.raises(UnavailableError):
            timeline.append(draft("a"), after=0)
        assert isinstance(timeline.append(draft("a"), after=0), Ratified)
    assert all(isinstance(each, Ratified) for each in queue.results())

    def come(queue: Queue) -> None:
        queue.join(draft("f"), anyhow(draft("f")), after=4)
        raise UnavailableError("injected", definite=True)

    with while_putting(timeline, store, entry_path(5), come) as queue, pytest.raises(UnavailableError):
        timeline.append(draft("e"), after=4)
    [result] = queue.results()
    assert isinstance(result, Ratified)
    assert result.entry.version == 5
    assert ids(Timeline.open(store).entries(4)) == ["f"]


@pytest.mark.parametrize("definite", [True, False])
def test_a_group_that_the_store_refuses_is_refused_each(
    timeline: Timeline, store: FaultyStorage, definite: bool
) -> None:
    """A firm no is raised to each, with an error of its own; what nobody knows is unknown to each."""
    store.fail("put_if_absent", path=entry_path(2), definite=definite, times=9)
    store.fail("get", path=entry_path(2), times=9)
    results = grouped(timeline, store)
    if definite:
        assert [type(each) for each in results] == [UnavailableError] * 3
        assert len({id(each) for each in results}) == 3
    else:
        assert [(type(each), each.entry.version) for each in results] == [(Unknown, 2), (Unknown, 3), (Unknown, 4)]
    store.heal()
    assert Timeline.open(store).head.version == 1


def test_a_group_whose_answer_is_lost_is_found_to_be_there(timeline: Timeline, store: FaultyStorage) -> None:
    store.fail("put_if_absent", path=entry_path(2), when="after")
    assert [each.entry.version for each in grouped(timeline, store)] == [2, 3, 4]
    assert ids(Timeline.open(store).entries(0)) == ["a", "b", "c", "d"]


def test_a_group_of_which_nobody_knows_is_found_later_by_each(timeline: Timeline, store: FaultyStorage) -> None:
    """Asked again, with the same id and the same version, each is told that it is committed."""
    store.go_down(entry_path(2), landed=True)
    assert [type(each) for each in grouped(timeline, store)] == [Unknown] * 3
    store.heal()
    for id in THREE:
        again = timeline.append(draft(id), after=1)
        assert isinstance(again, Ratified)
        assert again.entry.transaction.id == id
    assert timeline.head.version == 4


def test_a_group_that_nobody_puts_is_put_by_who_waits(
    timeline: Timeline, store: FaultyStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that began it was interrupted before it came to that."""
    monkeypatch.setattr(lockstep.timeline.group, "PATIENCE_SECONDS", 0.01)
    assert isinstance(timeline._place(draft("interrupted"), 0, None), tuple)
    assert isinstance(timeline.append(draft("b"), 0, anyhow(draft("b"))), Ratified)
    assert ids(timeline.entries(0)) == ["interrupted", "b"]
    assert not waiting(timeline)


def test_who_is_interrupted_as_he_begins_a_group_leaves_none_without_an_entry(
    timeline: Timeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C between two lines: a signal is looked at behind each call."""
    monkeypatch.setattr(lockstep.timeline.group, "PATIENCE_SECONDS", 0.01)

    class Interrupted(list[Any]):
        def append(self, each: Any) -> None:
            super().append(each)
            if len(begun) < 1:
                begun.append(each)
                raise KeyboardInterrupt

    begun: list[Any] = []
    monkeypatch.setattr(timeline, "_groups", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        timeline.append(draft("a"), after=0)
    assert isinstance(timeline.append(draft("b"), 0, anyhow(draft("b"))), Ratified)
    assert ids(timeline.entries(0))[-1] == "b"
    assert not waiting(timeline)


@pytest.mark.parametrize("line", [1, -1], ids=["as it begins to lead", "as it ends"])
def test_whenever_who_leads_is_interrupted_the_next_is_put(
    timeline: Timeline, monkeypatch: pytest.MonkeyPatch, line: int
) -> None:
    """Ctrl-C at the worst of times, between two lines: at the lock that it takes to lead, and at the one to end."""
    monkeypatch.setattr(lockstep.timeline.group, "PATIENCE_SECONDS", 0.01)
    turn = timeline._turn

    class Interrupted:
        """The lock, with an interrupt just after it was let go the first time, or as it is taken the last."""

        def __enter__(self) -> Any:
            if line == -1 and inspect.stack()[1].function == "_end" and not done:
                done.append(1)
                raise KeyboardInterrupt
            return turn.__enter__()

        def __exit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> None:
            turn.__exit__(kind, error, trace)
            if line == 1 and inspect.stack()[1].function == "_lead" and not done:
                done.append(1)
                raise KeyboardInterrupt

        def __getattr__(self, name: str) -> Any:
            return getattr(turn, name)

    done: list[int] = []
    monkeypatch.setattr(timeline, "_turn", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        timeline.append(draft("a"), after=0)
    answers: list[Any] = []
    thread = threading.Thread(
        target=lambda: answers.append(timeline.append(draft("b"), 0, anyhow(draft("b")))), daemon=True
    )
    thread.start()
    thread.join(30)
    assert [type(answer) for answer in answers] == [Ratified]
    assert ids(timeline.entries(0))[-1] == "b"
    assert not waiting(timeline)


def test_who_is_interrupted_while_he_puts_leaves_nobody_waiting(timeline: Timeline, store: FaultyStorage) -> None:
    """Ctrl-C in the thread that puts a group: nobody knows whether it was written, and the queue goes on."""

    def interrupted() -> None:
        raise KeyboardInterrupt

    store.interrupt("put_if_absent", interrupted, path=entry_path(2))
    leader: list[BaseException] = []

    def come(queue: Queue) -> None:
        def lead() -> None:
            try:
                timeline.append(draft("b"), 0, anyhow(draft("b")))
            except KeyboardInterrupt as error:
                leader.append(error)

        threads.append(threading.Thread(target=lead))
        threads[0].start()
        while waiting(timeline) < 2:
            threads[0].join(0.01)
        queue.join(draft("c"), anyhow(draft("c")), after=0)

    threads: list[threading.Thread] = []
    with while_putting(timeline, store, entry_path(1), come) as queue:
        timeline.append(draft("a"), after=0)
    threads[0].join()
    assert len(leader) == 1
    assert [type(each) for each in queue.results()] == [Unknown]
    commit(timeline, "d")


def test_a_group_has_a_bound(timeline: Timeline, store: FaultyStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who finds no room waits for the next one, and is judged again behind what has landed."""
    monkeypatch.setattr(lockstep.timeline.group, "MAX_GROUP", 2)

    def come(queue: Queue) -> None:
        for place, id in enumerate("bcdef"):
            queue.join(draft(id), anyhow(draft(id)), after=0, joins=place < 2)

    with while_putting(timeline, store, entry_path(1), come) as queue:
        timeline.append(draft("a"), after=0)
    assert all(isinstance(each, Ratified) for each in queue.results())
    assert {len(file.entries) for version in range(7) if (file := read(store, version)) is not None} <= {1, 2}
    assert sorted(ids(Timeline.open(store).entries(0))) == list("abcdef")


def test_one_that_readers_would_refuse_is_refused_alone(timeline: Timeline, store: FaultyStorage) -> None:
    def come(queue: Queue) -> None:
        queue.join(draft("b"), anyhow(draft("b")), after=0)
        queue.join(draft("b", namespaces=[]), anyhow(draft("a")), after=0, joins=False)  # makes namespace a again
        queue.join(draft("c"), anyhow(draft("c")), after=0)

    with while_putting(timeline, store, entry_path(1), come) as queue:
        timeline.append(draft("a"), after=0)
    first, wrong, last = queue.results()
    assert isinstance(wrong, InvalidError)
    assert [first.entry.version, last.entry.version] == [2, 3]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param(lambda g: g | {"entries": g["entries"][:1]}, "length >= 2", id="one entry is no group"),
        pytest.param(lambda g: g | {"entries": g["entries"][::-1]}, "expected 2", id="not in order"),
        pytest.param(lambda g: g | {"more": 1}, "unknown field `more`", id="unknown field"),
        pytest.param(
            lambda g: g | {"entries": [g["entries"][0], g["entries"][1] | {"format": 7}]}, "format 7", id="format"
        ),
    ],
)
def test_a_damaged_group_is_named(
    timeline: Timeline, store: FaultyStorage, change: Callable[[Any], Any], expected: str
) -> None:
    grouped(timeline, store)
    rewrite(store, 2, change)
    with pytest.raises(CorruptTimelineError, match=expected) as caught:
        Timeline.open(store)
    assert entry_path(2) in caught.value.message


def test_a_lost_group_is_proven_by_the_hint(timeline: Timeline, store: FaultyStorage) -> None:
    grouped(timeline, store)
    timeline.write_hint()
    store.delete(entry_path(2))
    with pytest.raises(CorruptTimelineError, match=f"{entry_path(4)} is gone"):
        Timeline.open(store)


def test_many_threads_and_two_timelines_lose_and_double_nothing(store: FaultyStorage) -> None:
    """Each id is there once, each as who appended it was told, and times rise."""
    timelines = [Timeline.create(store), Timeline.open(store)]
    told: list[tuple[str, int]] = []

    def work(me: int) -> None:
        timeline: Timeline = timelines[me % 2]
        for number in range(12):
            id = f"w{me}-{number}"
            while True:
                timeline.refresh()
                outcome = timeline.append(draft(id), timeline.head.version, anyhow(draft(id)))
                if isinstance(outcome, Ratified):
                    told.append((id, outcome.entry.version))
                    break

    threads = [threading.Thread(target=work, args=(me,)) for me in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    reader = Timeline.open(store)
    entries = reader.entries(0)
    assert sorted(told) == sorted((entry.transaction.id, entry.version) for entry in entries)
    assert len(told) == 96
    assert len(names(store)) <= 97


def test_any_entry_of_a_long_group_is_found(timeline: Timeline, store: FaultyStorage) -> None:
    """Whichever of the names before its own its file has; and none is found of a version that there is not."""
    names = [f"n{number}" for number in range(MAX_GROUP)]

    def come(queue: Queue) -> None:
        for name in names:
            queue.join(draft(name), anyhow(draft(name)), after=0)

    with while_putting(timeline, store, entry_path(1), come):
        timeline.append(draft("a"), after=0)
    for version in range(2, MAX_GROUP + 2):
        file = find(store, version)
        assert file is not None
        assert (file.first, file.last) == (2, MAX_GROUP + 1)
    assert find(store, MAX_GROUP + 2) is None
    assert ids(timeline.entries(1)) == names


def test_refresh_reads_all_that_was_there_beside_a_put_that_landed_long_ago(store: FaultyStorage) -> None:
    """An append in doubt that is tried again may be of the very same bytes: its answer tells nothing of the end."""
    ahead = Timeline.create(store.inner, clock=lambda: NOW + timedelta(seconds=30))
    ours = Timeline.open(store, clock=lambda: NOW)
    store.go_down(entry_path(1), landed=True)
    assert isinstance(ours.append(draft("a"), 0), Unknown)
    store.heal()
    for id_ in "bc":
        ahead.refresh()
        assert isinstance(ahead.append(draft(id_), ahead.head.version), Ratified)
    store.interrupt("get", lambda: ours.append(draft("a"), 0), path=entry_path(1))
    ours.refresh()
    assert ours.head.version == 3
