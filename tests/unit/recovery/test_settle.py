"""Settling a table that has diverged: one entry, which keeps one side and loses no file of either."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.delta.actions import Action, bodies, logical_file, render
from lockstep.delta.combine.going_back import going_back, why_not
from lockstep.delta.log import LOG, commit_path, log_files, staging_folder
from lockstep.delta.snapshot import Snapshot, read_snapshot
from lockstep.errors import ConflictError, DuplicateError, ForeignCommitError, InvalidError
from lockstep.lake.verify import verify
from lockstep.recovery.changes import undrop
from lockstep.recovery.choices import choices
from lockstep.recovery.divergence import divergence
from lockstep.recovery.settle import Side, settle, side_of
from lockstep.storage.outside import open_reaching
from lockstep.timeline.expiry import expire
from lockstep.timeline.files import entry_path
from lockstep.timeline.hint import HINT
from tests.support.adopting import adopted, released
from tests.support.diverged import (
    CASES,
    HELD,
    SIDES,
    diverged,
    killed_at_each_call,
    overtaken,
    put_foreign,
    settled,
    write_checkpoint,
)
from tests.support.faulty import FaultyStorage
from tests.support.lakes import (
    PROTOCOL,
    add,
    append,
    create,
    files,
    foreign,
    large,
    location,
    metadata,
    named,
    open_catalog,
    remove,
    replay,
    stage,
)


@pytest.fixture
def store(tmp_path: Path) -> FaultyStorage:
    return FaultyStorage(open_reaching(str(tmp_path / "lake"), create=True))


def contents_of(store: FaultyStorage, folder: str) -> dict[str, bytes]:
    """Return all files of a table but checksums, what says whose it is, and what transactions stage."""
    found = {each.path: store.inner.get(each.path) or b"" for each in store.inner.walk(folder)}
    return {path: data for path, data in found.items() if "/_lockstep/" not in path and not path.endswith(".crc")}


@pytest.mark.parametrize("keep", SIDES)
@pytest.mark.parametrize("case", CASES)
def test_one_side_is_kept_and_no_file_is_lost(store: FaultyStorage, case: str, keep: Side) -> None:
    """To everybody: this process, another, and a plain reader; and the table is written as any other from then on."""
    catalog = diverged(store, case)
    late = open_catalog(store.inner)  # it knows what was before, and comes later
    where, before = location(catalog, "t"), contents_of(store, location(catalog, "t"))
    with pytest.raises(ForeignCommitError):
        files(catalog, "t")
    version = settled(catalog, keep)
    assert version == catalog.timeline.head.version
    for user in (catalog, late, open_catalog(store.inner)):
        assert files(user, "t") == HELD[keep]
        assert files(user, "u") == {"p"}
        assert location(user, "t") == where
    append(late, "t", "more")
    newest = late.timeline.head.tables[named("t")].version
    assert replay(store, where, newest) == HELD[keep] | {"more"}
    assert max(log_files(store, where).commits) == newest
    assert verify(store, open_catalog(store).timeline).differences == ()
    after = contents_of(store, where)
    assert {path: after.get(path) for path in before} == before


@pytest.mark.parametrize(
    ("case", "keep"), [("in conflict", "ours"), ("written over", "theirs"), ("refused", "theirs"), ("refused", "ours")]
)
def test_who_dies_anywhere_has_settled_it_or_not(tmp_path: Path, case: str, keep: Side) -> None:
    """Whoever comes after that settles it, or finds it settled."""
    for number, after, is_settled in killed_at_each_call(tmp_path, lambda store: diverged(store, case), keep):
        if is_settled:
            with pytest.raises(InvalidError, match="has not diverged") as nothing:
                settled(after, keep)
            assert nothing.value.sqlstate == "55000"
        else:
            settled(after, keep)
        assert files(after, "t") == HELD[keep], number
        newest = after.timeline.head.tables[named("t")].version
        assert replay(after.lake.storage, location(after, "t"), newest) == HELD[keep]


@pytest.mark.parametrize("keep", SIDES)
@pytest.mark.parametrize("case", ["in conflict", "written over"])
def test_a_table_that_was_set_aside_for_long_is_settled_as_any_other(
    store: FaultyStorage, case: str, keep: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lake goes on meanwhile: so many versions are looked through from the table's own newest on."""
    monkeypatch.setattr("lockstep.recovery.divergence.COMPARED", 6)
    catalog = diverged(store, case)
    for number in range(8):
        append(catalog, "u", f"later {number}")
    assert settled(catalog, keep) == catalog.timeline.head.version
    assert files(open_catalog(store.inner), "t") == HELD[keep]


@pytest.mark.parametrize("add_file", [add, large])
def test_a_commit_that_was_moved_long_ago_is_the_same_on_both_sides(
    store: FaultyStorage, add_file: Callable[..., Action]
) -> None:
    """Of a large one nobody has what it says, once it is published: with row ids, that is not what was ratified."""

    def with_row_ids(action: Action) -> tuple[Action, Action]:
        mark = {"domain": "delta.rowTracking", "configuration": json.dumps({"rowIdHighWaterMark": 0}), "removed": False}
        return {"add": {**action["add"], "baseRowId": 0, "defaultRowCommitVersion": 1}}, {"domainMetadata": mark}

    catalog = open_catalog(store)
    create(catalog, "t", files=["p"])
    path = commit_path(location(catalog, "t"), 1)
    store.interrupt("put_if_absent", lambda: put_foreign(catalog, 1, *with_row_ids(add("theirs"))), path=path)
    tx = catalog.begin()
    stage(catalog, tx, "t", *with_row_ids(add_file("ours")))
    catalog.commit(tx)
    assert [*catalog.timeline.moves.values()] == [2]
    catalog.lake.upkeep.settle()
    store.delete_folder(staging_folder(location(catalog, "t"), tx.id))
    append(catalog, "t", "later")
    catalog.lake.upkeep.settle()
    store.put(commit_path(location(catalog, "t"), 3), render([add("over")]))
    found = divergence(open_catalog(store).lake, named("t"))
    assert (found.common, [*found.ours], found.gone) == (2, [3], "")


@pytest.mark.parametrize("has_expired", [True, False], ids=["expired", "long ago"])
def test_a_log_that_was_set_back_is_compared_with_what_the_history_says_of_long_ago(
    store: FaultyStorage, monkeypatch: pytest.MonkeyPatch, *, has_expired: bool
) -> None:
    """What has expired is nowhere else, so nobody can keep ours: a commit of theirs is not taken for one of them."""
    if not has_expired:
        monkeypatch.setattr("lockstep.recovery.divergence.COMPARED", 2)
    catalog = open_catalog(store)
    create(catalog, "t", "u", files=["p"])
    append(catalog, "t", "expired")
    second = append(catalog, "t", "second")
    append(catalog, "t", "third")
    catalog.lake.upkeep.settle()
    if has_expired:
        expire(catalog.timeline, first_kept=second, wait=lambda: None)
    for version in (1, 2, 3):
        store.inner.delete(commit_path(location(catalog, "t"), version))
    put_foreign(catalog, 1, add("theirs"))
    other = open_catalog(store.inner)
    with pytest.raises(ForeignCommitError, match="wrote over version 1"):
        files(other, "t")
    found = divergence(other.lake, named("t"))
    assert (found.common, [*found.ours], found.same) == (0, [2, 3], frozenset())
    assert found.gone.startswith("version 1, which was too large for its entry, is too old or has expired")
    ours, theirs, _ = choices(other.lake, found)
    assert (ours.lost_versions, theirs.lost_versions) == ((1,), (1, 2, 3))
    with pytest.raises(InvalidError, match="ours cannot be kept, for version 1"):
        settled(other, "ours")
    for number in (2, 3):
        put_foreign(catalog, number, add(f"theirs{number}"))
    settled(other, "theirs")
    assert files(other, "t") == {"p", "theirs", "theirs2", "theirs3"}


@pytest.mark.parametrize("keep", SIDES)
def test_what_has_not_diverged_is_not_settled(store: FaultyStorage, keep: Side) -> None:
    catalog = open_catalog(store)
    create(catalog, "t", files=["p"])
    with pytest.raises(InvalidError, match="has not diverged"):
        settled(catalog, keep)
    foreign(catalog, "t", 1, add("theirs"))
    with pytest.raises(InvalidError, match="has not diverged"):
        settled(catalog, keep)
    assert files(catalog, "t") == {"p", "theirs"}
    with pytest.raises(InvalidError, match=r"no table default\.none") as missing:
        divergence(catalog.lake, named("none"))
    assert missing.value.sqlstate == "42P01"


@pytest.mark.parametrize("first", SIDES)
@pytest.mark.parametrize("second", SIDES)
@pytest.mark.parametrize("case", ["in conflict", "refused"])
def test_of_two_who_settle_it_at_once_one_does(store: FaultyStorage, case: str, first: Side, second: Side) -> None:
    catalog = diverged(store, case)
    other = open_catalog(store.inner)
    found = divergence(other.lake, named("t"))
    settled(catalog, first)
    version = catalog.timeline.head.version
    with pytest.raises((ConflictError, InvalidError)):
        settle(other.lake, found, second, lambda do: other.run(do).version)
    assert open_catalog(store.inner).timeline.head.version == version
    assert files(other, "t") == HELD[first]


@pytest.mark.parametrize("keep", SIDES)
@pytest.mark.parametrize("case", ["in conflict", "refused"])
def test_a_plain_writer_that_goes_on_meanwhile_is_noticed(store: FaultyStorage, case: str, keep: Side) -> None:
    """What it wrote was not looked at, so it is neither lost nor taken in without a word."""
    catalog = diverged(store, case)
    found = divergence(catalog.lake, named("t"))
    put_foreign(catalog, found.newest + 1, add("later"))
    with pytest.raises(InvalidError, match="has just written"):
        settle(catalog.lake, found, keep, lambda do: catalog.run(do).version)
    settled(catalog, keep)
    assert files(catalog, "t") == ({"ours"} if keep == "ours" else HELD["theirs"] | {"later"})


def test_a_process_that_does_not_know_that_ours_was_published_publishes_nothing_behind_it(
    store: FaultyStorage,
) -> None:
    """Without the hint a new one would move ours behind theirs, see docs/limits.md; the folder is another table's."""
    catalog = open_catalog(store)
    create(catalog, "t", "u", files=["p"])
    append(catalog, "t", "ours")
    catalog.lake.upkeep.settle()
    put_foreign(catalog, 1, add("theirs"))
    settled(catalog, "theirs")
    catalog.lake.upkeep.settle()
    store.inner.delete(HINT)
    late = open_catalog(store.inner)
    assert files(late, "t") == {"p", "theirs"}
    assert log_files(store.inner, location(late, "t")).commits == {0, 1, 2}
    assert late.timeline.moves == {}


def test_who_is_about_to_move_ours_behind_theirs_does_not_once_it_is_settled(store: FaultyStorage) -> None:
    """It does not know that ours was published, and somebody who does settles the table at that moment."""
    knowing = open_catalog(store.inner)
    create(knowing, "t", "u", files=["p"])
    version = append(knowing, "t", "ours")
    knowing.lake.upkeep.settle()
    store.inner.delete(HINT)
    put_foreign(knowing, 1, add("theirs"))
    late = open_catalog(store)
    settlements: list[int] = []
    store.interrupt(
        "put_if_absent", lambda: settlements.append(settled(knowing, "theirs")), path=entry_path(version + 1)
    )
    with pytest.raises(ForeignCommitError):  # at the database version that it had read by then
        files(late, "t")
    assert files(late, "t") == {"p", "theirs"}
    assert settlements == [version + 1]
    assert log_files(store.inner, location(late, "t")).commits == {0, 1, 2}
    assert late.timeline.moves == {}


@pytest.mark.parametrize("keep", SIDES)
def test_a_checkpoint_that_says_something_else_than_the_commits_is_a_persons_to_remove(
    store: FaultyStorage, keep: Side
) -> None:
    """It was made of ours, before theirs was written over it: readers would see ours or theirs, as they come."""
    catalog = diverged(store, "written over")
    where = location(catalog, "t")
    ours = [PROTOCOL, metadata(), add("ours")]
    write_checkpoint(store, where, 1, ours)
    with pytest.raises(InvalidError, match=r"checkpoint .* says something else than the commits"):
        settled(catalog, keep)
    store.inner.delete(f"{where}/_delta_log/{1:020d}.checkpoint.parquet")
    write_checkpoint(store, where, 2, [PROTOCOL, metadata(), add("theirs"), add("theirs2")])
    settled(catalog, keep)
    assert set(read_snapshot(store, where, 2).files) == {("theirs", None), ("theirs2", None)}
    newest = catalog.timeline.head.tables[named("t")].version
    assert {path for path, _ in read_snapshot(store, where, newest).files} == HELD[keep]


def test_another_table_in_the_folder_can_only_be_kept(store: FaultyStorage) -> None:
    catalog = open_catalog(store)
    create(catalog, "t", "u", files=["p"])
    foreign(catalog, "t", 1, add("before"))
    assert files(catalog, "t") == {"p", "before"}
    put_foreign(catalog, 1, add("theirs"))
    with pytest.raises(InvalidError, match="is nowhere else"):
        settled(catalog, "ours")
    assert files_after(catalog, "theirs") == {"p", "theirs"}


def files_after(catalog: TransactionalCatalog, keep: Side) -> set[str]:
    settled(catalog, keep)
    return files(catalog, "t")


def test_ours_that_nobody_has_any_more_cannot_be_kept(store: FaultyStorage) -> None:
    """A large commit is in no entry."""
    catalog = open_catalog(store)
    create(catalog, "t", files=["p"])
    tx = catalog.begin()
    stage(catalog, tx, "t", large("ours"))
    catalog.commit(tx)
    catalog.lake.upkeep.settle()
    put_foreign(catalog, 1, add("theirs"))
    other = open_catalog(store)
    with pytest.raises(InvalidError, match="too large for its entry"):
        settled(other, "ours")
    assert files_after(other, "theirs") == {"p", "theirs"}


def test_a_large_commit_that_is_still_staged_is_kept(store: FaultyStorage) -> None:
    catalog = open_catalog(store)
    create(catalog, "t", files=["p"])
    tx = catalog.begin()
    stage(catalog, tx, "t", remove("p"), large("ours"))
    where = location(catalog, "t")
    store.interrupt(
        "put_if_absent",
        lambda: put_foreign(open_catalog(store.inner), 1, remove("p"), add("theirs")),
        path=commit_path(where, 1),
    )
    catalog.commit(tx)
    assert files_after(catalog, "ours") == {"ours"}


@pytest.mark.parametrize("case", CASES)
def test_files_that_are_gone_refuse_ours(store: FaultyStorage, case: str) -> None:
    """A plain writer's VACUUM took them: the table would name what nobody can read. A dry run says so."""
    catalog = diverged(store, case)
    store.inner.delete(f"{location(catalog, 't')}/ours")
    ours, *_ = choices(catalog.lake, divergence(catalog.lake, named("t")))
    assert "/ours is gone, a file that it had" in (ours.refused or "")
    with pytest.raises(InvalidError, match=r"ours cannot be kept, for .*/ours is gone"):
        settled(catalog, "ours")
    assert files_after(catalog, "theirs") == HELD["theirs"]


def test_a_dry_run_says_what_readers_lose(store: FaultyStorage) -> None:
    catalog = diverged(store, "in conflict")
    version = catalog.timeline.head.version
    ours, theirs, _ = choices(catalog.lake, divergence(catalog.lake, named("t")))
    assert (ours.keep, ours.lost_versions, ours.refused) == ("ours", (1, 2), None)
    assert (ours.counts.files_added, ours.counts.files_removed) == (2, 1)
    assert (theirs.keep, theirs.lost_versions, theirs.refused) == ("theirs", (1,), None)
    assert (theirs.counts.files_added, theirs.counts.files_removed) == (1, 1)
    assert open_catalog(store).timeline.head.version == version


def test_a_dry_run_says_why_ours_cannot_be_kept(store: FaultyStorage) -> None:
    catalog = open_catalog(store)
    create(catalog, "t", files=["p"])
    overtaken(catalog, store, {"protocol": {"minReaderVersion": 1, "minWriterVersion": 4}}, remove("p"))
    ours, _, _ = choices(catalog.lake, divergence(catalog.lake, named("t")))
    assert "its protocol was changed" in (ours.refused or "")


def test_a_table_that_was_settled_is_not_brought_back_beside_itself(store: FaultyStorage) -> None:
    catalog = diverged(store, "in conflict")
    old = catalog.timeline.head.tables[named("t")]
    settled(catalog, "theirs")
    tx = catalog.begin()
    with pytest.raises((DuplicateError, ForeignCommitError)):
        undrop(catalog.lake, tx, named("back"), id=old.id)
    catalog.rollback(tx)
    assert files(catalog, "t") == HELD["theirs"]


@pytest.mark.parametrize(("text", "side"), [("ours", "ours"), ("THEIRS", "theirs"), ("Ours", "ours"), ("both", "both")])
def test_a_side_is_said_in_any_case(text: str, side: str) -> None:
    assert side_of(text) == side


def test_what_is_no_side_is_refused() -> None:
    with pytest.raises(InvalidError, match="expected ours"):
        side_of("mine")


# --- the commit that goes back ----------------------------------------------------------------------------------------


def snapshot(*actions: Action, **configuration: str) -> Snapshot:
    found = Snapshot()
    found.take([PROTOCOL, metadata(**configuration), *actions])
    return found


def mark(number: int) -> Action:
    text = json.dumps({"rowIdHighWaterMark": number})
    return {"domainMetadata": {"domain": "delta.rowTracking", "configuration": text, "removed": False}}


def domain(text: str) -> Action:
    return {"domainMetadata": {"domain": "mine", "configuration": text, "removed": False}}


def txn(number: int) -> Action:
    return {"txn": {"appId": "a", "version": number}}


VECTOR = {"storageType": "u", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1}

DIFFERENCES: dict[str, tuple[tuple[Action, ...], tuple[Action, ...]]] = {
    "nothing": ((add("p"),), (add("p"),)),
    "files": ((add("p"), add("q")), (add("p"), add("r"))),
    "a vector that they wrote": ((add("p"),), (add("p", deletionVector=VECTOR),)),
    "a vector that we wrote": ((add("p", deletionVector=VECTOR),), (add("p"),)),
    "all": ((), (add("p"), add("q"))),
    "metadata": ((metadata("more"), add("p")), (add("p"),)),
    "their metadata": ((add("p"),), (metadata("theirs"), add("p"))),
    "a domain of ours": ((domain("1"),), ()),
    "a domain of theirs": ((), (domain("2"),)),
    "a domain of both": ((domain("1"),), (domain("2"),)),
    "a batch of ours": ((txn(7),), (txn(6),)),
}


@pytest.mark.parametrize("case", DIFFERENCES)
def test_behind_theirs_it_makes_the_table_ours(case: str) -> None:
    wanted, there = (snapshot(*actions) for actions in DIFFERENCES[case])
    assert why_not(wanted, there) is None
    actions = going_back(wanted, there, 0)
    assert bool(actions) == (case != "nothing")
    for _ in range(2):  # it is absolute
        there.take(actions)
        assert there.files.keys() == wanted.files.keys()
        assert {k: v for k, v in there.domains.items() if not v.get("removed")} == wanted.domains
        assert (there.metadata, there.transactions) == (wanted.metadata, wanted.transactions)
    removes = {logical_file(body) for body in bodies(actions, "remove")}
    assert removes.isdisjoint(wanted.files)


@pytest.mark.parametrize(("ours", "theirs", "expected"), [(5, 9, None), (9, 5, 9), (5, 5, None)])
def test_no_row_id_is_given_out_twice(ours: int, theirs: int, expected: int | None) -> None:
    actions = going_back(snapshot(mark(ours)), snapshot(mark(theirs)), 0)
    marks = [json.loads(body["configuration"])["rowIdHighWaterMark"] for body in bodies(actions, "domainMetadata")]
    assert marks == ([] if expected is None else [expected])


def test_a_batch_that_they_recorded_is_not_forgotten() -> None:
    """Their application would do it again, and nobody has said that it should."""
    assert going_back(snapshot(txn(6)), snapshot(txn(7)), 0) == []
    assert going_back(snapshot(), snapshot(txn(7)), 0) == []


@pytest.mark.parametrize(
    ("wanted", "there", "reason"),
    [
        (snapshot(), snapshot({"protocol": {"minReaderVersion": 1, "minWriterVersion": 3}}), "protocol"),
        (snapshot(), snapshot(metadata("c")), None),
        (snapshot(**{"delta.columnMapping.mode": "name"}), snapshot(metadata("c")), "ids of columns"),
        (snapshot(**{"delta.appendOnly": "true"}), snapshot(add("p"), **{"delta.appendOnly": "true"}), "appends only"),
        (snapshot(add("p"), **{"delta.appendOnly": "true"}), snapshot(**{"delta.appendOnly": "true"}), None),
    ],
)
def test_what_no_commit_takes_back_is_refused(wanted: Snapshot, there: Snapshot, reason: str | None) -> None:
    found = why_not(wanted, there)
    assert (reason in (found or "")) if reason else found is None


@pytest.mark.parametrize("keep", SIDES)
@pytest.mark.parametrize("case", CASES)
def test_a_release_takes_along_what_the_side_that_was_not_kept_had_staged(
    store: FaultyStorage, case: str, keep: Side
) -> None:
    """That was all there was of it until a person decided; from then on nobody can publish it."""
    catalog = diverged(store, case)
    settled(catalog, keep)
    where = location(catalog, "t")
    is_open = catalog.begin()
    stage(catalog, is_open, "t", add("other"))
    before = contents_of(store, where)
    released(catalog, "t")
    assert {each.path.split("/")[-2] for each in store.walk(f"{where}/{LOG}/_lockstep")} == {is_open.id}
    with pytest.raises(ConflictError):
        catalog.commit(is_open)
    assert [*store.walk(f"{where}/{LOG}/_lockstep")] == []
    assert contents_of(store, where) == {path: data for path, data in before.items() if not path.endswith("/other")}


def test_the_release_of_a_table_that_was_dropped_before_it_was_settled_leaves_what_may_bring_it_back(
    store: FaultyStorage,
) -> None:
    catalog = diverged(store, "in conflict")
    where = location(catalog, "t")
    staged = [each.path for each in store.walk(f"{where}/{LOG}/_lockstep")]
    catalog.run(lambda tx: tx.change_names(lambda names: names.drop_table(named("t"))))
    adopted(catalog, "t", Path(store.url.removeprefix("file://")) / where)
    released(catalog, "t")
    assert [each.path for each in store.walk(f"{where}/{LOG}/_lockstep")] == staged
