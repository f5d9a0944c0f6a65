"""The lake between timeline and logs: who publishes, what becomes of foreign commits, and what if the two collide."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from threading import Barrier, Thread

import pytest

from lockstep.catalog import TransactionalCatalog, new_id
from lockstep.delta.log import commit_path
from lockstep.errors import ConflictError, ForeignCommitError, UnavailableError
from lockstep.lake import publisher
from lockstep.lake.lake import Lake
from lockstep.retry import RACE
from lockstep.timeline.clock import utc_now
from lockstep.timeline.database import Database
from lockstep.timeline.entry import INLINE_BYTES, Isolation
from lockstep.timeline.files import entry_path
from tests.support.faulty import FaultyStorage
from tests.support.lakes import (
    CONSTRAINT,
    add,
    append,
    files,
    foreign,
    location,
    log_file,
    named,
    open_catalog,
    remove,
    replay,
    stage,
    stage_new,
)


def kinds(catalog: TransactionalCatalog, after: int = 1) -> list[str]:
    return [entry.kind for entry in catalog.timeline.entries(after)]


# --- foreign commits that are found -----------------------------------------------------------------------------------


def test_a_foreign_commit_is_absorbed_when_its_table_is_touched(catalog: TransactionalCatalog) -> None:
    foreign(catalog, "a", 1, add("f"))
    foreign(catalog, "a", 2, remove("p"))
    assert catalog.database([named("b")]).version == 1, "only the table that is touched is looked at"
    database = catalog.database([named("a")])
    assert (database.version, database.tables[named("a")].version) == (2, 2)
    [entry] = catalog.timeline.entries(1)
    assert (entry.kind, entry.writes[0].from_version, entry.writes[0].to_version) == ("external", 0, 2)
    assert entry.writes[0].commits == []
    assert files(catalog, "a") == {"f"}
    assert catalog.database([named("a")]).version == 2, "and once is enough"


def test_what_another_thread_has_just_ratified_is_published_before_it_is_read_by_its_number(
    catalog: TransactionalCatalog, store: FaultyStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It commits behind the look at the timeline, and has not come to publish it."""
    refresh, published = catalog.lake.refresh, commit_path(location(catalog, "a"), 1)
    looked: list[int] = []

    def look_and_commit() -> Database:
        head = refresh()
        looked.append(head.version)
        if len(looked) == 1:
            store.fail("put_if_absent", path=published)
            append(catalog, "a", "x")
            assert not store.exists(published)
        return head

    monkeypatch.setattr(catalog.lake, "refresh", look_and_commit)
    assert catalog.as_of(2).version == 2
    assert store.exists(published)


@pytest.mark.parametrize("name", ["a", "c"])
def test_what_another_thread_is_about_to_publish_is_not_lost(
    catalog: TransactionalCatalog,
    store: FaultyStorage,
    name: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is in the timeline, and not in the table's log: a new table has no log at all then."""
    monkeypatch.setattr(publisher, "OWNER_SECONDS", 0.1)  # here the thread that waits is the one that publishes
    tx = catalog.begin()
    where = location(catalog, "a") if name == "a" else stage_new(catalog, tx, "c")
    if name == "a":
        stage(catalog, tx, "a", add("x"))

    def meanwhile() -> None:
        catalog.lake.caught_up(lambda database: [database.tables[named(name)]], for_write=True)

    store.interrupt("put_if_absent", meanwhile, path=commit_path(where, 1 if name == "a" else 0))
    assert catalog.commit(tx).version == 2
    assert "gone" not in caplog.text


def test_a_renamed_tables_foreign_commit_is_absorbed_under_its_new_name(
    catalog: TransactionalCatalog, store: FaultyStorage, other: TransactionalCatalog
) -> None:
    """The entry is judged against the version it follows, though another process renamed the table meanwhile."""
    foreign(catalog, "a", 1, add("f"))
    store.interrupt(
        "put_if_absent",
        lambda: other.run(lambda tx: tx.changing().rename_table(named("a"), named("c"))),
        path=entry_path(2),
    )
    catalog.database([named("a")])
    assert files(catalog, "c") == {"p", "f"}
    assert kinds(catalog) == ["transaction", "external"]


def test_a_table_dropped_meanwhile_needs_no_absorbing(
    catalog: TransactionalCatalog, store: FaultyStorage, other: TransactionalCatalog
) -> None:
    foreign(catalog, "a", 1, add("f"))
    store.interrupt(
        "put_if_absent", lambda: other.run(lambda tx: tx.changing().drop_table(named("a"))), path=entry_path(2)
    )
    assert named("a") not in catalog.database([named("a")]).tables
    assert kinds(catalog) == ["transaction"]


def test_two_processes_absorb_a_foreign_commit_once(
    catalog: TransactionalCatalog, store: FaultyStorage, other: TransactionalCatalog
) -> None:
    foreign(catalog, "a", 1, add("f"))
    store.interrupt("put_if_absent", lambda: other.database([named("a")]), path=entry_path(2))
    assert catalog.database([named("a")]).tables[named("a")].version == 1
    assert kinds(catalog) == ["external"]


def test_threads_absorb_a_foreign_commit_once(catalog: TransactionalCatalog) -> None:
    foreign(catalog, "a", 1, add("f"))
    start = Barrier(8)
    failures: list[BaseException] = []

    def touch() -> None:
        start.wait()
        try:
            assert catalog.database([named("a")]).tables[named("a")].version == 1
        except BaseException as error:  # noqa: BLE001 (told by the assertion below)
            failures.append(error)

    threads = [Thread(target=touch) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert kinds(catalog) == ["external"]


def test_a_thread_that_is_overtaken_while_it_looks_absorbs_nothing(
    catalog: TransactionalCatalog, store: FaultyStorage
) -> None:
    """What it found was judged against a head that another thread has moved on from."""
    foreign(catalog, "a", 1, add("f"))
    store.interrupt("exists", lambda: None, path=log_file(catalog, "a", 1))
    store.interrupt("exists", lambda: catalog.database([named("a")]), path=log_file(catalog, "a", 1))
    assert catalog.database([named("a")]).tables[named("a")].version == 1
    assert kinds(catalog) == ["external"]


def test_an_absorb_that_loses_the_timeline_again_and_again_gives_up(
    catalog: TransactionalCatalog, store: FaultyStorage
) -> None:
    """With pauses, as COMMIT has them, and no oftener; the next statement looks again."""
    rival = open_catalog(store.inner, isolation="SNAPSHOT")
    rivals = [rival.begin() for _ in range(5)]
    foreign(catalog, "a", 1, add("f"))
    for version, tx in enumerate(rivals, 2):
        stage(rival, tx, "b", add(tx.id))
        store.interrupt("put_if_absent", partial(rival.commit, tx), path=entry_path(version))
    pauses: list[float] = []
    backoff = replace(RACE, attempts=5, sleep=pauses.append)
    lake = Lake(store, catalog.timeline, clock=utc_now, new_id=new_id, backoff=backoff)
    with pytest.raises(UnavailableError, match="lost the timeline to other transactions 5 times"):
        lake.caught_up(lambda database: [database.tables[named("a")]])
    assert len(pauses) == 4
    assert kinds(catalog) == ["transaction"] * 5
    assert catalog.database([named("a")]).tables[named("a")].version == 1


def test_a_commit_of_ours_is_never_taken_for_a_foreign_one(
    catalog: TransactionalCatalog, store: FaultyStorage, other: TransactionalCatalog
) -> None:
    """Its file is seen before its entry was read: reading on tells that it is ours."""
    store.interrupt("exists", lambda: append(other, "a", "y"), path=log_file(catalog, "a", 1))
    catalog.database([named("a")])
    assert files(catalog, "a") == {"p", "y"}
    assert kinds(catalog) == ["transaction"]


def test_an_absorb_that_gets_no_answer_changes_nothing_and_is_done_again(
    catalog: TransactionalCatalog, store: FaultyStorage
) -> None:
    foreign(catalog, "a", 1, add("f"))

    def down() -> None:
        store.fail("get", path=entry_path(2), times=10)

    store.interrupt("put_if_absent", down, path=entry_path(2))
    store.fail("put_if_absent", path=entry_path(2), when="after")
    with pytest.raises(UnavailableError, match="the next statement looks again"):  # nobody's COMMIT is in doubt
        catalog.database([named("a")])
    store.heal()
    assert files(catalog, "a") == {"p", "f"}
    assert kinds(catalog) == ["external"]


# --- foreign commits during a transaction -----------------------------------------------------------------------------


def test_an_append_lands_behind_a_foreign_append(catalog: TransactionalCatalog) -> None:
    tx = catalog.begin(isolation="SNAPSHOT")
    stage(catalog, tx, "a", add("x"))
    foreign(catalog, "a", 1, add("f"))
    catalog.commit(tx)
    assert files(catalog, "a") == {"p", "f", "x"}
    assert kinds(catalog) == ["external", "transaction"]


@pytest.mark.parametrize(
    ("theirs", "message"),
    [
        (remove("p"), "changed file p of table default.a"),
        (CONSTRAINT, "changed the schema or properties of table default.a"),
    ],
)
def test_a_foreign_commit_conflicts_like_any_other(
    catalog: TransactionalCatalog, theirs: dict[str, object], message: str
) -> None:
    tx = catalog.begin(isolation="SNAPSHOT")
    stage(catalog, tx, "a", remove("p"), add("p2"), operation="UPDATE")
    foreign(catalog, "a", 1, theirs)
    with pytest.raises(ConflictError, match=message):
        catalog.commit(tx)
    assert replay(catalog.lake.storage, catalog.database().tables[named("a")].location, 1) == (
        {"p"} - {"p" if "remove" in theirs else ""}
    )


@pytest.mark.parametrize("blind", [False, True])
def test_a_plain_writer_read_the_table_that_it_wrote_unless_it_says_not(
    catalog: TransactionalCatalog, blind: bool
) -> None:
    tx = catalog.begin()
    tx.read(tx.table(named("a")))
    stage(catalog, tx, "a", add("x"))
    foreign(catalog, "a", 1, add("f"), isBlindAppend=blind)
    if blind:
        assert catalog.commit(tx).version == 3
        assert catalog.timeline.entries(2)[0].precedes == 2
        return
    with pytest.raises(ConflictError, match=r"changed table default\.a, which this transaction read, and read what"):
        catalog.commit(tx)


# --- foreign commits between ratify and publish -----------------------------------------------------------------------


def collide(
    catalog: TransactionalCatalog, store: FaultyStorage, *theirs: dict[str, object], large: bool = False
) -> str:
    """Commit an update of a's file p and an append to b, while a plain Delta writer takes a's version 1."""
    tx = catalog.begin(isolation="SNAPSHOT")
    more = {"tags": {"why": "x" * INLINE_BYTES}} if large else {}
    stage(catalog, tx, "a", remove("p"), add("x", **more), operation="UPDATE")
    stage(catalog, tx, "b", add("y"))
    store.interrupt("put_if_absent", lambda: foreign(catalog, "a", 1, *theirs), path=log_file(catalog, "a", 1))
    assert catalog.commit(tx).version == 2, "ratified is committed, whatever happens after that"
    return log_file(catalog, "a", 1)


@pytest.mark.parametrize("large", [False, True])
def test_a_ratified_commit_moves_behind_a_foreign_one(
    catalog: TransactionalCatalog, store: FaultyStorage, other: TransactionalCatalog, large: bool
) -> None:
    taken = collide(catalog, store, add("f"), large=large)
    assert b"plain" in (store.get(taken) or b""), "nothing was overwritten"
    assert kinds(catalog) == ["transaction", "external"]
    for each in (catalog, other, open_catalog(store.inner)):
        assert (files(each, "a"), files(each, "b")) == ({"f", "x"}, {"p", "y"})
        assert each.timeline.head.tables[named("a")].version == 2
        assert each.as_of(2).tables[named("a")].version == 2, "as of our commit, the table is where our commit is"
        assert each.as_of(1).tables[named("a")].version == 0
    append(catalog, "a", "z")
    assert files(other, "a") == {"f", "x", "z"}


@pytest.mark.parametrize(
    ("isolation", "reads", "blind", "is_told"),
    [
        pytest.param("SERIALIZABLE", True, False, True, id="each read what the other wrote"),
        pytest.param("SERIALIZABLE", True, True, False, id="theirs read nothing"),
        pytest.param("SERIALIZABLE", False, False, False, id="ours read nothing"),
        pytest.param("SNAPSHOT", True, False, False, id="nobody asked for an order"),
    ],
)
def test_write_skew_with_a_plain_writer_after_ratification_is_told_and_both_stay(  # noqa: PLR0917 (pytest calls it by name)
    catalog: TransactionalCatalog,
    store: FaultyStorage,
    caplog: pytest.LogCaptureFixture,
    isolation: Isolation,
    reads: bool,
    blind: bool,
    is_told: bool,
) -> None:
    """Ours is committed and nobody can refuse theirs: the table goes on with both, as docs/isolation.md says."""
    tx = catalog.begin(isolation=isolation)
    if reads:
        tx.read(tx.table(named("a")))
    stage(catalog, tx, "a", add("x"))
    store.interrupt(
        "put_if_absent",
        lambda: foreign(catalog, "a", 1, add("f"), isBlindAppend=blind),
        path=log_file(catalog, "a", 1),
    )
    assert catalog.commit(tx).version == 2
    assert files(catalog, "a") == {"p", "f", "x"}
    told = [record for record in caplog.records if "no order of the two" in record.getMessage()]
    assert [(record.levelname, tx.id in record.getMessage()) for record in told] == [("WARNING", True)] * is_told


def test_whoever_moves_a_commit_sees_where_it_is(catalog: TransactionalCatalog, store: FaultyStorage) -> None:
    """At the version that was ratified for it there is a foreign commit: a database that said so would be wrong."""
    tx = catalog.begin()
    stage(catalog, tx, "a", add("x"))
    store.fail("put_if_absent", path=log_file(catalog, "a", 1))
    catalog.commit(tx)
    foreign(catalog, "a", 1, add("f"))
    assert catalog.lake.refresh().tables[named("a")].version == 2


def test_another_process_may_be_the_one_that_moves_it(
    catalog: TransactionalCatalog, store: FaultyStorage, other: TransactionalCatalog
) -> None:
    def meanwhile() -> None:
        foreign(catalog, "a", 1, add("f"))
        other.database([named("a")])

    tx = catalog.begin()
    stage(catalog, tx, "a", add("x"))
    store.interrupt("put_if_absent", meanwhile, path=log_file(catalog, "a", 1))
    catalog.commit(tx)
    assert files(catalog, "a") == {"p", "f", "x"}
    assert kinds(catalog) == ["transaction", "external"]


def test_a_commit_may_be_moved_more_than_once(catalog: TransactionalCatalog, store: FaultyStorage) -> None:
    tx = catalog.begin()
    stage(catalog, tx, "a", add("x"))
    for version in (1, 2):
        store.interrupt(
            "put_if_absent",
            lambda v=version: foreign(catalog, "a", v, add(f"f{v}")),  # type: ignore[misc]
            path=log_file(catalog, "a", version),
        )
    catalog.commit(tx)
    assert files(catalog, "a") == {"p", "f1", "f2", "x"}
    assert catalog.timeline.head.tables[named("a")].version == 3


def test_one_that_loses_again_and_again_waits_for_the_next_statement(
    catalog: TransactionalCatalog, store: FaultyStorage
) -> None:
    tx = catalog.begin()
    stage(catalog, tx, "a", add("x"))
    for version in (1, 2, 3):
        store.interrupt(
            "put_if_absent",
            lambda v=version: foreign(catalog, "a", v, add(f"f{v}")),  # type: ignore[misc]
            path=log_file(catalog, "a", version),
        )
    assert catalog.commit(tx).version == 2
    assert files(catalog, "a") == {"p", "f1", "f2", "f3", "x"}


def test_two_that_conflict_set_the_table_aside_and_no_other(
    catalog: TransactionalCatalog, store: FaultyStorage, other: TransactionalCatalog
) -> None:
    taken = collide(catalog, store, remove("p"), add("p2"))
    assert b"plain" in (store.get(taken) or b"")
    before = open_catalog(store.inner)
    for each in (catalog, other, before):
        with pytest.raises(ForeignCommitError) as caught:
            each.database([named("a")])
        assert caught.value.sqlstate == "40002"
        for said in (taken, "default.a", "(file)", "timeline entry 2", "Neither is lost"):
            assert said in caught.value.message
        append(each, "b", f"z{each.database().version}")
    assert files(catalog, "b") == {"p", "y", "z2", "z3", "z4"}
    assert not store.exists(log_file(catalog, "a", 2))

    tx = catalog.begin()
    with pytest.raises(ForeignCommitError, match="begin again"):
        tx.table(named("a"))
    catalog.rollback(tx)


def test_dropping_a_table_that_was_set_aside_is_a_way_out(catalog: TransactionalCatalog, store: FaultyStorage) -> None:
    collide(catalog, store, remove("p"))
    catalog.run(lambda tx: tx.changing().drop_table(named("a")))
    assert catalog.database([named("a")]).version == 3
    assert catalog.timeline.published_through == 3, "nobody tries to publish it for ever"
    assert open_catalog(store.inner).database().version == 3


def test_a_table_that_is_set_aside_makes_the_others_no_slower(
    catalog: TransactionalCatalog, store: FaultyStorage
) -> None:
    """What this process has published since needs no other look; the table itself is tried again each time."""
    collide(catalog, store, remove("p"), add("p2"))
    other = open_catalog(store)
    for each in (catalog, other):
        costs = []
        for n in range(12):
            before = len(store.calls)
            append(each, "b", f"{n}-{each.begin().id}")
            costs.append(len(store.calls) - before)
        assert costs[11] == costs[2], costs
        with pytest.raises(ForeignCommitError):
            each.database([named("a")])
    assert catalog.timeline.published_through == 1, "whoever opens the lake tries it again"
    store.delete(log_file(catalog, "a", 1))
    for each in (catalog, other, open_catalog(store.inner)):
        assert each.database([named("a")]).tables[named("a")].version == 1
        assert each.timeline.published_through == each.timeline.head.version
