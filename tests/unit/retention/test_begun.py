"""What has begun to go: batches, runs that are killed, stopped or out of time, and who comes to need some of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from threading import Event, Thread

import msgspec
import pytest
from msgspec import structs

from lockstep.catalog import TransactionalCatalog
from lockstep.commit.commit import commit
from lockstep.commit.files import Gone
from lockstep.commit.outcomes import Committed, Outcome
from lockstep.errors import LockstepError, UnavailableError
from lockstep.lake import deletions
from lockstep.lake.claims import claim_path
from lockstep.lake.guests import note_guests
from lockstep.lake.lake import Lake
from lockstep.retention import deleting, removing
from lockstep.retention.ages import Retention
from lockstep.retention.deleting import carry_out
from lockstep.retention.expiring import expire_snapshots
from lockstep.retention.planning import EVERYTHING, Plan, Scope, plan
from lockstep.retention.since import Named
from lockstep.retention.upkeep import maintain
from lockstep.storage import open_storage
from tests.support.faulty import FaultyStorage
from tests.support.killed import Killed, KilledStorage
from tests.support.lakes import (
    PROTOCOL,
    add,
    again,
    append,
    create,
    foreign,
    large,
    location,
    metadata,
    named,
    open_catalog,
    remove,
    stage,
    stage_new,
    tree,
)
from tests.support.retained import AgedStorage, Ticking

pytestmark = pytest.mark.long

DAY = timedelta(days=1)
AT_ONCE = Retention(age=timedelta(), last=1, grace=timedelta(), orphan_age=7 * DAY)
OLD = [f"p{n}" for n in range(6)]


@pytest.fixture
def catalog(aged: AgedStorage, clock: Ticking, monkeypatch: pytest.MonkeyPatch) -> TransactionalCatalog:
    """The lake, and batches of two, which go one file after the other."""
    monkeypatch.setattr(deleting, "BATCH", 2)
    monkeypatch.setattr(removing, "SIDE_BY_SIDE", 1)
    return lake(aged, clock)


def lake(aged: AgedStorage, clock: Ticking) -> TransactionalCatalog:
    """Make a lake in which q took the place of six files of table a, nine days ago."""
    catalog = open_catalog(aged, clock=clock)
    create(catalog, "a", files=OLD)
    tx = catalog.begin()
    stage(catalog, tx, "a", *(remove(path, deletionTimestamp=clock.ms) for path in OLD), add("q"))
    catalog.commit(tx)
    clock.now += 9 * DAY
    append(catalog, "a", "r")
    expire_snapshots(catalog.lake, older_than=clock(), retain_last=1, grace=timedelta())
    return catalog


def planned(catalog: TransactionalCatalog) -> Plan:
    found = plan(catalog.lake, Scope(EVERYTHING, orphan_age=7 * DAY, is_everything=True), AT_ONCE)
    return replace(found, doomed=sorted(found.doomed, key=lambda each: each.path))


def bringing_back(catalog: TransactionalCatalog, path: str) -> Callable[[], Outcome]:
    """Be about to bring a file back, as a restore of an old version of the table's own log does; it is there now."""
    tx = catalog.begin()
    stage(catalog, tx, "a", add(path, modificationTime=1), operation="RESTORE")
    return lambda: commit(catalog.lake, tx)


def bring_back(catalog: TransactionalCatalog, path: str) -> Outcome:
    return bringing_back(catalog, path)()


def data(catalog: TransactionalCatalog) -> set[str]:
    return {path for path in catalog.lake.storage.list(location(catalog, "a")) if not path.startswith(("_", "."))}


def begun(catalog: TransactionalCatalog) -> list[deletions.Begun]:
    return deletions.begun(catalog.lake.storage)


def stop_at(catalog: TransactionalCatalog, path: str, found: Plan | None = None) -> None:
    """Have a process delete by a plan and be killed, or stopped, before it deletes a file."""
    faulty = FaultyStorage(catalog.lake.storage)

    def die() -> None:
        raise Killed

    for _ in range(2):
        faulty.interrupt("delete", die, path=path)
        faulty.interrupt("delete_folder", die, path=path)
    other = open_catalog(faulty, clock=catalog.lake.clock)
    with suppress(Killed):
        carry_out(other.lake, found or planned(other), grace=timedelta())


# --- what is spared: a table of cases ---------------------------------------------------------------------------------

FILE, LOG_FILE, STAGED = "a-1/p", "a-1/_delta_log/00000000000000000000.json", "a-1/_delta_log/_lockstep/t"
UNKNOWN = None
SPARED = [
    (FILE, "file", {"files": ["a-1/p"]}, True),
    (FILE, "file", {"files": ["a-1/q"]}, False),
    (FILE, "file", {"files": ["s3://other/a-1/p"], "locations": ["s3://other/a-1"]}, False),
    (FILE, "file", {"locations": ["a-1"]}, True),
    (FILE, "file", {"locations": ["a-1/p/inside"]}, False),
    ("a-1/x=1/p", "file", {"locations": ["a-1"]}, True),
    ("a-12/p", "file", {"locations": ["a-1"]}, False),
    ("a-1", "folder", {"files": ["a-1/x=1/p"]}, True),
    ("a-1", "folder", {"files": ["a-12/p"]}, False),
    ("a-1", "folder", {"locations": ["a-1"]}, True),
    ("a-1", "folder", {"locations": ["a-1/inner"]}, True),
    ("a-1/inner", "folder", {"locations": ["a-1"]}, True),
    (STAGED, "folder", {"files": ["a-1/p"]}, False),
    (FILE, "file", UNKNOWN, True),
    ("a-1", "folder", UNKNOWN, True),
    (LOG_FILE, "file", UNKNOWN, False),
    (STAGED, "folder", UNKNOWN, False),
]


@pytest.mark.parametrize(("path", "kind", "needed", "is_spared"), SPARED)
def test_what_commits_have_come_to_need_is_spared(
    path: str, kind: str, needed: dict[str, list[str]] | None, is_spared: bool
) -> None:
    """And where nobody knows what that is, all that a table may name."""
    named = Named(is_unknown=needed is UNKNOWN)
    named.add_files((needed or {}).get("files", []))
    named.add_locations((needed or {}).get("locations", []))
    assert named.spares(path, is_folder=kind == "folder") is is_spared


def test_a_large_commit_of_a_clone_keeps_what_it_shares(catalog: TransactionalCatalog) -> None:
    """It was staged, and once it is published the log alone says which files of another table it brings back."""
    tx = catalog.begin()
    stage_new(catalog, tx, "clone")
    catalog.commit(tx)
    found, other = planned(catalog), again(catalog)
    shared = large(f"{catalog.lake.storage.url}/{location(catalog, 'a')}/p3")
    shared["add"]["modificationTime"] = 1
    tx = other.begin()
    stage(other, tx, "clone", shared)
    other.commit(tx)
    other.lake.upkeep.settle()
    done = carry_out(catalog.lake, found, grace=timedelta())
    assert [each.path.rpartition("/")[2] for each in done.spared] == ["p3"]
    assert data(catalog) == {"p3", "q", "r"}


# --- what plain Delta writers have done since the plan ----------------------------------------------------------------


@pytest.mark.parametrize("table", ["a", "clone"])
@pytest.mark.parametrize("is_taken_over", [False, True])
def test_what_a_plain_writer_has_brought_back_since_the_plan_is_spared(
    catalog: TransactionalCatalog, table: str, is_taken_over: bool
) -> None:
    """And nobody has used the lake since: the run itself looks, before each batch."""
    tx = catalog.begin()
    stage_new(catalog, tx, "clone")
    catalog.commit(tx)
    found = planned(catalog)
    if is_taken_over:
        stop_at(catalog, "p0", found)
        found = replace(found, doomed=[])
    url = f"{catalog.lake.storage.url}/{location(catalog, 'a')}"
    path, version = ("p1", 3) if table == "a" else (f"{url}/p1", 1)
    foreign(catalog, table, version, add(path, modificationTime=1))
    carry_out(again(catalog).lake, found, grace=timedelta())
    assert data(catalog) == {"p1", "q", "r"} | ({*OLD[2:]} if is_taken_over else set())


@pytest.mark.parametrize("policy", ["refuse", "absorb"])
@pytest.mark.parametrize("is_written", [True, False])
def test_while_a_table_is_set_aside_that_was_written_since_the_plan_nothing_goes_that_it_may_need(
    catalog: TransactionalCatalog, policy: str, is_written: bool
) -> None:
    """What is written into it is not taken in, so no entry tells; it may be a clone, too."""
    tx = catalog.begin()
    place = stage_new(catalog, tx, "clone", start=[PROTOCOL, metadata(**{"lockstep.external_commits": policy})])
    catalog.commit(tx)
    faulty = FaultyStorage(catalog.lake.storage)
    other = open_catalog(faulty, clock=catalog.lake.clock)
    if policy == "absorb":  # its log cannot be looked at, also while that is planned
        faulty.fail("list", path=f"{place}/_delta_log", times=1000)
    found = planned(other)
    assert len(found.doomed) == len(OLD)
    assert len(found.set_aside) == (policy == "absorb")
    if is_written:
        foreign(catalog, "clone", 1, add(f"{faulty.url}/{location(catalog, 'a')}/p1", modificationTime=1))
    carry_out(other.lake, found, grace=timedelta())
    assert data(catalog) == ({*OLD, "q", "r"} if is_written else {"q", "r"})


# --- batches ----------------------------------------------------------------------------------------------------------


def test_no_more_is_written_down_at_a_time_than_a_batch(catalog: TransactionalCatalog) -> None:
    """So who looks reads little; and what is written down at a moment is what goes at that moment."""
    seen: list[tuple[str, ...]] = []
    progress: list[tuple[int, int]] = []

    def look(*done: int) -> None:
        seen.append(tuple(path for each in begun(catalog) for path in each.files))
        progress.append((done[0], done[1]))

    done = carry_out(catalog.lake, planned(catalog), grace=timedelta(), progress=look)
    assert {len(paths) for paths in seen} == {2}
    assert sorted({path for paths in seen for path in paths}) == sorted(each.path for each in done.gone)
    assert len(done.gone) == len(OLD)
    assert progress[-1] == (len(OLD), len(OLD))
    assert (data(catalog), begun(catalog)) == ({"q", "r"}, [])


def test_who_looks_while_something_is_left_out_looks_again(catalog: TransactionalCatalog) -> None:
    """What it has listed is gone when it reads that, for the rest is written down by another name by then."""
    found, outcomes = planned(catalog), list[Outcome]()
    bring_back(again(catalog), "p0")  # so it is left out of the first batch
    run, beside = FaultyStorage(catalog.lake.storage), FaultyStorage(catalog.lake.storage)
    has_listed, is_left_out = Event(), Event()
    comes_back = bringing_back(open_catalog(beside, clock=catalog.lake.clock), "p1")
    thread = Thread(target=lambda: outcomes.append(comes_back()))

    def begin_beside() -> None:
        thread.start()
        has_listed.wait(60)

    def list_and_wait() -> None:
        has_listed.set()
        is_left_out.wait(60)

    def go_on() -> None:
        is_left_out.set()
        thread.join(60)

    beside.interrupt("get", list_and_wait, path="-0.json")
    run.interrupt("put_if_absent", begin_beside, path="-0-rest.json")
    run.interrupt("delete", go_on, path="-0.json", when="after")
    carry_out(open_catalog(run, clock=catalog.lake.clock).lake, found, grace=timedelta())
    [outcome] = outcomes
    assert isinstance(outcome, Gone)
    assert data(catalog) == {"p0", "q", "r"}


def test_each_batch_looks_who_has_come_to_need_something_since_the_plan(catalog: TransactionalCatalog) -> None:
    """Between two batches nothing is written down of the later one, so a commit passes, and the batch sees it."""
    found, outcomes = planned(catalog), dict[str, Outcome]()
    first, last = (bringing_back(again(catalog), f"p{n}") for n in (0, 5))

    def come_between(*_: int) -> None:
        if not outcomes:
            outcomes["gone"], outcomes["later"] = first(), last()

    done = carry_out(catalog.lake, found, grace=timedelta(), progress=come_between)
    assert isinstance(outcomes["gone"], Gone)
    assert isinstance(outcomes["later"], Committed)
    assert [each.path.rpartition("/")[2] for each in done.spared] == ["p5"]
    assert len(done.gone) == len(OLD) - 1
    assert data(catalog) >= {"p5", "q", "r"}


def test_logs_go_behind_data_and_from_their_oldest_file_on_over_batches(
    catalog: TransactionalCatalog, clock: Ticking
) -> None:
    """A log that a killed run leaves has no gap, however its files are spread over batches."""
    found = planned(catalog)
    place = location(catalog, "a")
    log = [f"{place}/_delta_log/{n:020d}.{kind}" for n in range(3) for kind in ("crc", "json")]
    some = found.doomed[0]
    doomed = [replace(some, path=path, kind="log") for path in log]
    doomed = [*doomed[:1], replace(some, path=place, kind="folder"), *found.doomed, *doomed[1:]]
    batches = [[each.path for each in batch] for batch in deleting._batches(doomed)]
    assert {len(batch) for batch in batches[:-1]} == {2}
    assert [path for batch in batches for path in batch] == [*(each.path for each in found.doomed), *log, place]


# --- out of time ------------------------------------------------------------------------------------------------------


def test_what_there_was_no_time_for_is_not_told_as_deleted_and_keeps_its_marks(
    catalog: TransactionalCatalog, clock: Ticking
) -> None:
    retention = replace(AT_ONCE, grace=DAY)
    assert maintain(catalog.lake, retention).swept.waiting_files == len(OLD)
    clock.now += DAY

    def take_long(*_: int) -> None:
        clock.now += deleting.LONGEST / 1.5

    done = maintain(catalog.lake, retention, progress=take_long).swept
    assert (done.deleted_files, done.waiting_files) == (4, 2)
    assert len(data(catalog) & {*OLD}) == 2
    assert begun(catalog) == []
    done = maintain(again(catalog).lake, retention).swept
    assert (done.deleted_files, done.waiting_files) == (2, 0)
    assert catalog.lake.storage.list(deletions.FOLDER) == []


# --- killed, or stopped -----------------------------------------------------------------------------------------------


def test_a_run_that_is_killed_at_any_call_is_taken_over_by_the_next(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nothing that it began is left behind that, which says what it would have said without the one before."""
    monkeypatch.setattr(deleting, "BATCH", 3)
    calls: list[tuple[str, str]] = []

    def run_killed(number: int | None) -> None:
        clock = Ticking()
        catalog = lake(AgedStorage(open_storage(str(tmp_path / f"lake-{number}"), create=True), clock), clock)
        found = planned(catalog)
        killed = KilledStorage(catalog.lake.storage, at=number)
        with suppress(Killed):
            carry_out(open_catalog(killed, clock=clock).lake, found, grace=timedelta())
        calls[:] = killed.calls
        done = carry_out(again(catalog).lake, found, grace=timedelta())
        assert (len(done.gone), done.waiting, done.spared) == (len(OLD), [], [])
        assert (data(catalog), begun(catalog)) == ({"q", "r"}, [])

    run_killed(None)
    first = next(number for number, (call, _) in enumerate(calls) if call.startswith("put"))
    assert len(calls) - first > 20
    for number in range(first, len(calls)):
        run_killed(number)


def test_what_a_run_began_long_ago_is_not_forgotten_but_done(catalog: TransactionalCatalog, clock: Ticking) -> None:
    """Whoever was stopped may go on at any time: nothing that he is about to delete can be brought back."""
    stop_at(catalog, "p0", replace(planned(catalog), doomed=planned(catalog).doomed[:2]))
    [left] = begun(catalog)
    assert [path.rpartition("/")[2] for path in left.files] == ["p0", "p1"]
    clock.now += 3 * DAY
    late = bringing_back(again(catalog), "p0")
    outcome = bring_back(again(catalog), "p0")
    assert isinstance(outcome, Gone)
    assert "is being deleted" in outcome.message
    maintain(again(catalog).lake, AT_ONCE)
    assert (data(catalog), begun(catalog)) == ({"q", "r"}, [])
    outcome = late()
    assert isinstance(outcome, Gone)
    assert "are gone" in outcome.message


def test_who_was_taken_over_stops_once_what_it_wrote_down_is_forgotten(
    catalog: TransactionalCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on beside, and a promotion that is begun again puts a file to where an earlier attempt had it."""
    monkeypatch.setattr(deleting, "BATCH", len(OLD))
    monkeypatch.setattr(removing, "CHUNK", 1)
    faulty = FaultyStorage(catalog.lake.storage)

    def another_run() -> None:
        maintain(again(catalog).lake, AT_ONCE)
        append(again(catalog), "a", "p3")

    faulty.interrupt("delete", another_run, path="/p0")
    done = carry_out(open_catalog(faulty, clock=catalog.lake.clock).lake, planned(catalog), grace=timedelta())
    assert data(catalog) == {"p3", "q", "r"}
    assert [each.path.rpartition("/")[2] for each in done.gone] == ["p0"], "what was under way"
    assert len(done.waiting) == len(OLD) - 1
    assert begun(catalog) == []


def test_who_was_taken_over_before_it_began_deletes_nothing(catalog: TransactionalCatalog) -> None:
    """Behind its look who has come to need something, and what it was about to spare is all that is left then."""
    found = replace(planned(catalog), doomed=planned(catalog).doomed[:2])
    assert isinstance(bring_back(again(catalog), "p1"), Committed)
    faulty = FaultyStorage(catalog.lake.storage)

    def another_run() -> None:
        maintain(again(catalog).lake, AT_ONCE)
        append(again(catalog), "a", "p0")

    faulty.interrupt("put_if_absent", another_run, path="-rest.json")
    done = carry_out(open_catalog(faulty, clock=catalog.lake.clock).lake, found, grace=timedelta())
    assert data(catalog) == {"p0", "p1", "q", "r"}
    assert (done.gone, begun(catalog)) == ([], [])


@pytest.mark.parametrize("kind", ["data", "log", "folder"])
def test_nothing_goes_that_is_not_written_down(catalog: TransactionalCatalog, kind: str) -> None:
    place, storage = location(catalog, "a"), catalog.lake.storage
    before = tree(storage)
    files = {"data": [f"{place}/p0"], "log": [f"{place}/_delta_log/{0:020d}.json"], "folder": []}[kind]
    remover = removing.Remover(catalog.lake, catalog.lake.clock() + DAY)
    assert not remover.remove(files, [place] if kind == "folder" else [], deletions.path_of("x"))
    assert (tree(storage), remover.gone) == (before, set())


@pytest.mark.parametrize("has_expired", [False, True])
def test_who_takes_over_spares_what_was_named_since(
    catalog: TransactionalCatalog, clock: Ticking, has_expired: bool
) -> None:
    """By a plain Delta writer, for one: he asks nobody. Entries that have expired are in the history."""
    stop_at(catalog, "p0", replace(planned(catalog), doomed=planned(catalog).doomed[:2]))
    foreign(catalog, "a", 3, add("p1", modificationTime=1))
    append(again(catalog), "a", "s")
    clock.now += 3 * DAY
    if has_expired:
        append(again(catalog), "a", "t")
        expire_snapshots(again(catalog).lake, older_than=clock(), retain_last=1, grace=timedelta())
        assert again(catalog).timeline.head.expired.first_kept > begun(catalog)[0].head + 1
    found = replace(planned(again(catalog)), doomed=[])
    carry_out(again(catalog).lake, found, grace=timedelta())
    assert data(catalog) >= {"p1", "q", "r"}
    assert "p0" not in data(catalog)
    assert begun(catalog) == []


def test_what_is_spared_is_not_written_down_any_more(catalog: TransactionalCatalog) -> None:
    """Else nobody could change that file's rows until the run has ended."""
    found = replace(planned(catalog), doomed=planned(catalog).doomed[:2])
    assert isinstance(bring_back(again(catalog), "p1"), Committed)
    stop_at(catalog, "p0", found)
    assert [path.rpartition("/")[2] for each in begun(catalog) for path in each.files] == ["p0"]


def test_a_run_that_cannot_look_leaves_nothing_begun(catalog: TransactionalCatalog, clock: Ticking) -> None:
    found = planned(catalog)
    faulty = FaultyStorage(catalog.lake.storage)
    other = open_catalog(faulty, clock=clock)

    def break_down() -> None:
        faulty.fail("list", times=100)
        faulty.fail("get", times=100)

    faulty.interrupt("put_if_absent", break_down, path="-0.json", when="after")
    with pytest.raises(UnavailableError):
        carry_out(other.lake, found, grace=timedelta())
    assert begun(catalog) == []
    assert data(catalog) == {*OLD, "q", "r"}


def test_who_cannot_take_over_leaves_what_others_began_as_it_was(catalog: TransactionalCatalog, clock: Ticking) -> None:
    """Each run that failed so left as many records again, and the next one took over twice as many."""
    stop_at(catalog, "/p1")
    left = begun(catalog)
    faulty = FaultyStorage(catalog.lake.storage)
    other = open_catalog(faulty, clock=clock)
    found = planned(other)

    def break_down() -> None:
        faulty.fail("list", times=100)
        faulty.fail("get", times=100)

    faulty.interrupt("put_if_absent", break_down, path="-over-0.json", when="after")
    with pytest.raises(UnavailableError):
        carry_out(other.lake, found, grace=timedelta())
    assert begun(catalog) == left


def test_what_an_older_lockstep_began_stays_until_it_is_gone(catalog: TransactionalCatalog, clock: Ticking) -> None:
    """It did not say by which version nobody needed it, so nobody can tell what was needed since."""
    place = location(catalog, "a")
    content = b'{"format":1,"id":"x","began_at":"2030-01-10T00:00:00Z","files":["%s/p0"]}' % place.encode()
    catalog.lake.storage.put(deletions.path_of("x"), content)
    clock.now += 30 * DAY
    carry_out(again(catalog).lake, replace(planned(catalog), doomed=[]), grace=timedelta())
    assert [each.id for each in begun(catalog)] == ["x"]
    assert "p0" in data(catalog)
    maintain(again(catalog).lake, AT_ONCE)
    maintain(again(catalog).lake, AT_ONCE)
    assert begun(catalog) == []


def test_who_takes_over_has_written_down_what_goes_when_its_owner_forgets_it(catalog: TransactionalCatalog) -> None:
    """A run that goes on beside another ends what it wrote down; the other still deletes, and nothing comes back."""
    stop_at(catalog, "/p1")
    [left] = begun(catalog)
    faulty = FaultyStorage(catalog.lake.storage)
    outcomes: list[Outcome] = []

    def owner_ends() -> None:
        deletions.end(catalog.lake.storage, left.id)
        outcomes.append(bring_back(again(catalog), "p1"))

    faulty.interrupt("delete", owner_ends, path=left.files[0])
    other = open_catalog(faulty, clock=catalog.lake.clock)
    carry_out(other.lake, planned(other), grace=timedelta())
    [outcome] = outcomes
    assert isinstance(outcome, Gone)
    assert begun(catalog) == []


@pytest.mark.parametrize(("head", "head_id"), [(500, ""), (0, "another"), (-1, "another")])
def test_what_was_written_down_by_another_timeline_deletes_nothing(
    catalog: TransactionalCatalog, head: int, head_id: str
) -> None:
    """As where the lake was set back to a backup while its records stayed, also once that is as long again."""
    stop_at(catalog, "/p1")
    [left] = begun(catalog)
    assert left.head_id == catalog.timeline.entries(left.head - 1)[0].transaction.id
    changed = structs.replace(left, head=catalog.timeline.head.version + head, head_id=head_id)
    catalog.lake.storage.put(deletions.path_of(left.id), msgspec.json.encode(changed))
    before = data(catalog)
    with suppress(LockstepError):
        maintain(again(catalog).lake, Retention(age=100 * DAY, last=1000, grace=DAY, orphan_age=7 * DAY))
    assert data(catalog) == before
    [kept] = begun(catalog)
    assert kept.id == left.id


def test_one_that_cannot_be_finished_keeps_nobody_from_the_others(catalog: TransactionalCatalog) -> None:
    stop_at(catalog, "/p1")
    faulty = FaultyStorage(catalog.lake.storage)
    faulty.fail("delete", path="/p1", times=100)
    other = open_catalog(faulty, clock=catalog.lake.clock)
    found = planned(other)
    kept_back = replace(found, doomed=[each for each in found.doomed if not each.path.endswith("/p1")])
    carry_out(other.lake, kept_back, grace=timedelta())
    assert data(catalog) == {"p1", "q", "r"}
    [left] = begun(catalog)
    assert any(path.endswith("/p1") for path in left.files)
    faulty.heal()
    maintain(again(catalog).lake, AT_ONCE)
    assert (data(catalog), begun(catalog)) == ({"q", "r"}, [])


def test_runs_that_are_killed_as_they_take_over_do_not_multiply_what_is_written_down(
    catalog: TransactionalCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each finds what all before it have written down of the same: were each of that taken over, it would double."""

    def die(_: Lake) -> None:
        raise Killed

    stop_at(catalog, "/p1")
    with monkeypatch.context() as patches:
        patches.setattr(Lake, "fence", die)
        for _ in range(6):
            with suppress(Killed):
                carry_out(again(catalog).lake, replace(planned(catalog), doomed=[]), grace=timedelta())
    assert len(begun(catalog)) == 7
    maintain(again(catalog).lake, AT_ONCE)
    assert (data(catalog), begun(catalog)) == ({"q", "r"}, [])


def test_nothing_is_deleted_for_a_stopped_run_in_a_table_that_was_given_back_since(
    catalog: TransactionalCatalog,
) -> None:
    stop_at(catalog, "p0")
    note_guests(catalog.lake.storage, "x", [location(catalog, "a")])
    carry_out(again(catalog).lake, replace(planned(catalog), doomed=[]), grace=timedelta())
    assert data(catalog) == {*OLD, "q", "r"}
    assert begun(catalog) == []


CLAIMED = b'{"format":1,"root":"file:///other","transaction":"x","claimed_at":"2030-01-01T00:00:00Z"}'


def dropping(catalog: TransactionalCatalog, clock: Ticking) -> tuple[str, Plan]:
    """Return the folder of a table that no version has any more, and a plan by which that goes, and file p0 of a."""
    create(catalog, "t", files=["p"])
    place = location(catalog, "t")
    catalog.run(lambda tx: tx.changing().drop_table(named("t")))
    clock.now += 9 * DAY
    expire_snapshots(catalog.lake, older_than=clock(), retain_last=1, grace=timedelta())
    found = planned(catalog)
    doomed = [each for each in found.doomed if each.path in (place, f"{location(catalog, 'a')}/p0")]
    assert len(doomed) == 2
    return place, replace(found, doomed=doomed)


@pytest.mark.parametrize("is_killed", [True, False])
def test_a_folder_stays_that_another_lake_has_adopted_since_the_plan(
    catalog: TransactionalCatalog, clock: Ticking, is_killed: bool
) -> None:
    """A run that is killed has written down that the folder goes, and the next one finds that days later."""
    place, found = dropping(catalog, clock)
    if is_killed:
        stop_at(catalog, place, found)
    catalog.lake.storage.put(claim_path(place), CLAIMED)
    carry_out(again(catalog).lake, replace(found, doomed=[]) if is_killed else found, grace=timedelta())
    assert catalog.lake.storage.exists(f"{place}/p")
    assert (data(catalog), begun(catalog)) == ({*OLD[1:], "q", "r"}, [])


def test_a_folder_stays_into_which_somebody_has_written_since_a_run_was_killed(
    catalog: TransactionalCatalog, clock: Ticking
) -> None:
    """Each plan lets a folder be in which something is young, and who takes over does, too."""
    place, found = dropping(catalog, clock)
    stop_at(catalog, place, found)
    clock.now += DAY
    catalog.lake.storage.put(f"{place}/new", b"rows")
    carry_out(again(catalog).lake, replace(found, doomed=[]), grace=timedelta())
    assert catalog.lake.storage.exists(f"{place}/p")
    assert begun(catalog) == []
    clock.now += 9 * DAY
    maintain(again(catalog).lake, AT_ONCE)
    assert not catalog.lake.storage.exists(f"{place}/p")


def test_who_was_stopped_in_the_middle_finds_nothing_left(catalog: TransactionalCatalog, clock: Ticking) -> None:
    """He goes on once another has taken over, and a commit has tried to bring back what he is about to delete."""
    faulty = FaultyStorage(catalog.lake.storage)
    found = replace(planned(catalog), doomed=planned(catalog).doomed[:2])
    outcomes: list[Outcome] = []
    restores = [bringing_back(again(catalog), path) for path in ("p0", "p1")]

    def sleep() -> None:
        clock.now += 3 * DAY
        maintain(again(catalog).lake, AT_ONCE)
        assert (data(catalog), begun(catalog)) == ({"q", "r"}, [])
        outcomes.extend(restore() for restore in restores)

    faulty.interrupt("delete", sleep, path="p0")
    done = carry_out(open_catalog(faulty, clock=clock).lake, found, grace=timedelta())
    assert [type(each) for each in outcomes] == [Gone, Gone]
    assert (len(done.gone), done.waiting) == (2, [])
    table = again(catalog).database().tables[named("a")]
    assert table.version == 2
