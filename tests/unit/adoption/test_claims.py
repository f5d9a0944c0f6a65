"""Claims: of two lakes that would have one table, one has it, whoever ends first, and however late."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from click.testing import CliRunner

from lockstep.adoption.adopt import Found, Wanted, adopt, look, look_at_claims, refuse_unadoptable
from lockstep.catalog import TransactionalCatalog
from lockstep.cli.main import main
from lockstep.delta.log import LOG
from lockstep.errors import ConflictError, DuplicateError, InvalidError, UnavailableError, UnsupportedError
from lockstep.lake.claims import (
    OVER,
    SETTLED_AFTER,
    Claim,
    check_claimable,
    claim,
    claim_new,
    claim_path,
    confirm,
    remove_traces,
)
from lockstep.lake.identity import PATH as IDENTITY
from lockstep.recovery.changes import undrop
from lockstep.storage import Storage, open_storage
from lockstep.storage.locations import Location, Locations
from lockstep.storage.outside import OutsideStorage, open_reaching
from lockstep.timeline.clock import utc_now
from lockstep.transactions.transaction import Transaction
from tests.support.adopting import adopted, files_of, plain_table, released
from tests.support.faulty import FaultyStorage, Operation
from tests.support.killed import Killed
from tests.support.lakes import create, named, open_catalog
from tests.support.retained import AgedStorage, Ticking

CLAIM = claim_path(".").removeprefix("./")


@pytest.fixture
def folder(warehouse: Path) -> Path:
    return plain_table(warehouse / "orders", 1)


@pytest.fixture
def rival(tmp_path: Path) -> TransactionalCatalog:
    return TransactionalCatalog.open(str(tmp_path / "rival"), create=True)


def adopting(catalog: TransactionalCatalog, folder: Path, name: str = "orders") -> Transaction:
    """Return a transaction that is about to adopt a table."""
    tx = catalog.begin()
    adopt(catalog.lake, tx, look(catalog.lake, tx.names, [Wanted(named(name), str(folder))]))
    return tx


def rewrite(folder: Path, **changed: Any) -> None:
    """Change what a table's claim says."""
    said = msgspec.json.decode((folder / CLAIM).read_bytes())
    (folder / CLAIM).write_bytes(msgspec.json.encode(said | changed))


def age(folder: Path, catalog: TransactionalCatalog) -> None:
    """Have a table's claim be older than a transaction lasts."""
    rewrite(folder, claimed_at=(catalog.lake.clock() - SETTLED_AFTER - timedelta(minutes=1)).isoformat())


def root_in(folder: Path) -> str:
    root: str = msgspec.json.decode((folder / CLAIM).read_bytes())["root"]
    return root


def test_a_lake_does_not_take_a_table_below_its_root_that_another_has_from_outside(
    catalog: TransactionalCatalog, tmp_path: Path
) -> None:
    folder = plain_table(tmp_path / "data" / "sales" / "orders", 1)
    adopted(catalog, "orders", folder)
    around = TransactionalCatalog.open(str(tmp_path / "data"), create=True)
    with pytest.raises(DuplicateError, match=r"is table default\.orders of the lake file://.*/lake"):
        adopted(around, "mine", folder)
    released(catalog, "orders")
    assert adopted(around, "mine", folder).location == "sales/orders"
    assert root_in(folder) == around.lake.storage.url


def test_of_two_lakes_that_take_over_one_old_claim_one_has_the_table(tmp_path: Path, folder: Path) -> None:
    """Both found that nobody has the table, and one is about to remove that claim when the other one makes its own."""

    def lake(name: str) -> FaultyStorage:
        return FaultyStorage(open_reaching(str(tmp_path / name), create=True))

    def take(store: Storage) -> None:
        claim(store, f"file://{folder}", store.url, clock=clock, name_in=lambda *_: None)

    def taken_from() -> None:
        with pytest.raises(DuplicateError, match="is just taking over"):
            take(second)

    clock = Ticking()
    take(lake("gone"))
    clock.now += SETTLED_AFTER + timedelta(minutes=1)
    first, second = lake("first"), lake("second")
    first.interrupt("delete", taken_from, path="lake.json")
    take(first)
    assert root_in(folder) == first.url
    assert [*files_of(folder / LOG / "_lockstep")] == ["lake.json"], "nothing is left of the taking over"
    clock.now += SETTLED_AFTER + timedelta(minutes=1)
    third = lake("third")
    third.interrupt("put_if_absent", lambda: take(second), path=OVER)
    with pytest.raises(DuplicateError, match="has just claimed"):
        take(third)
    assert root_in(folder) == second.url


def test_who_dies_while_it_takes_a_claim_over_goes_on_with_that_a_day_later(tmp_path: Path, folder: Path) -> None:
    """For another lake it stays a person's to decide: that process may only be slow."""

    def take(lake: str) -> None:
        storage = open_reaching(str(tmp_path / lake), create=True)
        claim(storage, f"file://{folder}", storage.url, clock=clock, name_in=lambda *_: None)

    def left_behind() -> None:
        said = msgspec.json.decode((folder / CLAIM).read_bytes())
        root = open_reaching(str(tmp_path / "first"), create=True).url
        (folder / LOG / "_lockstep" / OVER).write_bytes(
            msgspec.json.encode(said | {"root": root, "claimed_at": clock.now})
        )

    clock = Ticking()
    take("gone")
    clock.now += SETTLED_AFTER + timedelta(minutes=1)
    left_behind()
    with pytest.raises(DuplicateError, match="is just taking over"):
        take("first")
    clock.now += SETTLED_AFTER + timedelta(minutes=1)
    with pytest.raises(DuplicateError, match=f"delete .*{OVER}"):
        take("second")
    take("first")
    assert root_in(folder).endswith("/first")
    assert [*files_of(folder / LOG / "_lockstep")] == ["lake.json"]


@pytest.mark.parametrize("at", [("delete", "lake.json", "before"), ("put_if_absent", f"-{OVER}", "before")])
@pytest.mark.parametrize("deaths", [1, 2])
def test_of_two_processes_of_a_lake_that_find_what_a_dead_one_left_one_goes_on(
    tmp_path: Path, folder: Path, at: tuple[Operation, str, Literal["before", "after"]], deaths: int
) -> None:
    """One is about to remove the claim, or has just found what was left, when the other one comes to the same."""

    def process(name: str) -> FaultyStorage:
        return FaultyStorage(open_reaching(str(tmp_path / name), create=True))

    def take(store: Storage, transaction: str) -> None:
        claim(store, f"file://{folder}", transaction, clock=clock, name_in=lambda *_: None)

    def die() -> None:
        raise Killed

    clock = Ticking()
    take(process("gone"), "old")
    for number in range(deaths):
        clock.now += SETTLED_AFTER + timedelta(minutes=1)
        dead = process("lake")
        dead.interrupt("delete", die, path="lake.json")
        dead.interrupt("delete", die, path=OVER)  # nothing is cleared up behind it
        with pytest.raises(Killed):
            take(dead, f"dead{number}")
    clock.now += SETTLED_AFTER + timedelta(minutes=1)
    one, other = process("lake"), process("lake")
    refused: list[str] = []

    def meanwhile() -> None:
        try:
            take(other, "other")
        except DuplicateError as error:
            refused.append(error.message)

    operation, path, when = at
    one.interrupt(operation, meanwhile, path=path, when=when)
    try:
        take(one, "one")
    except DuplicateError as error:
        refused.append(error.message)
    [said] = refused
    assert "is just taking over" in said
    has = msgspec.json.decode((folder / CLAIM).read_bytes())["transaction"]
    assert has == ("one" if operation == "delete" else "other"), "who went on has not lost it to the one who did not"
    assert [*files_of(folder / LOG / "_lockstep")] == ["lake.json"]


def test_what_a_lake_has_below_its_root_is_found_by_its_whole_url(
    catalog: TransactionalCatalog, rival: TransactionalCatalog, inside: Path, tmp_path: Path
) -> None:
    """A table that was moved away from under its lake's claim, and a claim that was not: the URL tells them apart."""
    table = adopted(catalog, "orders", plain_table(inside / "orders", 1))
    folder = plain_table(tmp_path / "warehouse" / "t", 1)
    (folder / CLAIM).parent.mkdir()
    (folder / CLAIM).write_bytes((inside / "orders" / CLAIM).read_bytes())
    age(folder, rival)
    assert table.location == "plain/orders"
    assert adopted(rival, "mine", folder).location == f"file://{folder}"


def test_a_look_says_that_another_lake_has_a_table_and_writes_nothing(
    catalog: TransactionalCatalog, rival: TransactionalCatalog, folder: Path, warehouse: Path
) -> None:
    free = plain_table(warehouse / "free", 1)
    adopted(rival, "theirs", folder)
    before = files_of(warehouse)

    def reasons() -> list[str | None]:
        wanted = [Wanted(named("a"), str(folder)), Wanted(named("b"), str(free)), Wanted(named("c"), str(warehouse))]
        found = look_at_claims(catalog.lake, look(catalog.lake, catalog.begin().names, wanted))
        return [each.reason for each in found]

    taken, fine, none = reasons()
    assert "is table default.theirs of the lake" in (taken or "")
    assert fine is None
    assert "it is no Delta table" in (none or "")
    assert files_of(warehouse) == before
    rewrite(folder, root="s3://elsewhere/lake")
    assert "names no lake in the same kind of store" in (reasons()[0] or "")
    released(rival, "theirs")
    (folder / CLAIM).unlink()
    assert reasons()[0] is None


@pytest.mark.parametrize("first", ["committed", "rolled back"])
def test_the_loser_of_two_transactions_leaves_the_winners_claim(
    catalog: TransactionalCatalog, rival: TransactionalCatalog, folder: Path, root: Path, first: str
) -> None:
    other = TransactionalCatalog.open(str(root))
    one, two = adopting(catalog, folder), adopting(other, folder)
    if first == "committed":
        catalog.commit(one)
        other.rollback(two)  # its process has not looked at the timeline since
    else:
        catalog.rollback(one)
        other.commit(two)
    assert root_in(folder) == catalog.lake.storage.url
    with pytest.raises(DuplicateError, match=r"is table default\.orders of the lake"):
        adopted(rival, "mine", folder)


def test_a_claim_that_another_transaction_takes_back_while_one_commits_is_made_again(
    catalog: TransactionalCatalog, folder: Path
) -> None:
    tx = adopting(catalog, folder)
    catalog.lake.publisher.try_publish = _then(catalog.lake.publisher.try_publish, (folder / CLAIM).unlink)  # type: ignore[method-assign]
    catalog.commit(tx)
    assert root_in(folder) == catalog.lake.storage.url


def _then(call: Callable[..., bool], also: Callable[[], None]) -> Callable[..., bool]:
    def both(*given: Any, **named: Any) -> bool:
        also()
        return call(*given, **named)

    return both


class Unreachable(AgedStorage):
    """A store in which the timeline cannot be read, once that is asked for."""

    is_down = False

    def list(self, folder: str, after: str | None = None) -> list[str]:
        if self.is_down:
            raise UnavailableError("the store is away")
        return super().list(folder, after)

    def get(self, path: str) -> bytes | None:
        if self.is_down and path.startswith("_lockstep/"):
            raise UnavailableError("the store is away")
        return super().get(path)


def test_a_rollback_that_cannot_look_at_the_timeline_keeps_the_claim(root: Path, folder: Path) -> None:
    storage = Unreachable(open_reaching(str(root), create=True), Ticking())
    catalog = open_catalog(storage)
    tx = adopting(catalog, folder)
    storage.is_down = True
    catalog.rollback(tx)
    assert (folder / CLAIM).exists()


def test_a_commit_loses_if_another_lake_has_taken_its_old_claim_over(
    catalog: TransactionalCatalog, rival: TransactionalCatalog, folder: Path
) -> None:
    tx = adopting(catalog, folder)
    age(folder, rival)
    adopted(rival, "mine", folder)
    with pytest.raises(ConflictError, match=r"the lake file://.*/rival has claimed"):
        catalog.commit(tx)
    assert root_in(folder) == rival.lake.storage.url
    assert not catalog.database().tables


def test_so_does_one_that_brings_a_table_back(
    catalog: TransactionalCatalog, rival: TransactionalCatalog, folder: Path
) -> None:
    adopted(catalog, "orders", folder)
    catalog.run(lambda tx: tx.changing().drop_table(named("orders")))
    tx = catalog.begin()
    undrop(catalog.lake, tx, named("orders"))
    age(folder, rival)
    adopted(rival, "mine", folder)
    with pytest.raises(ConflictError, match=r"the lake file://.*/rival has claimed"):
        catalog.commit(tx)


def test_an_undrop_that_is_refused_changes_nothing(
    catalog: TransactionalCatalog, rival: TransactionalCatalog, folder: Path
) -> None:
    adopted(catalog, "orders", folder)
    catalog.run(lambda tx: tx.changing().drop_table(named("orders")))
    adopted(rival, "mine", folder)
    tx = catalog.begin()
    with pytest.raises(DuplicateError, match="of the lake"):
        undrop(catalog.lake, tx, named("orders"))
    assert not tx.names.is_changed


def test_a_late_release_leaves_another_lakes_claim_and_what_lies_beside_it(
    catalog: TransactionalCatalog, rival: TransactionalCatalog, folder: Path
) -> None:
    adopted(rival, "mine", folder)
    remove_traces(catalog.lake.storage, f"file://{folder}")
    assert root_in(folder) == rival.lake.storage.url
    hidden = folder / LOG / "_lockstep" / f".{'0' * 32}.tmp"  # as a file is called that is being written
    hidden.write_bytes(b"a commit")
    released(rival, "mine")
    assert hidden.exists()
    assert not (folder / CLAIM).exists()


def test_of_two_that_take_over_one_old_claim_the_second_is_refused(
    catalog: TransactionalCatalog, rival: TransactionalCatalog, folder: Path, tmp_path: Path
) -> None:
    """The third lake claims the table between the second one's look and its write."""
    third = TransactionalCatalog.open(str(tmp_path / "third"), create=True)
    adopting(catalog, folder)
    age(folder, rival)
    tx = rival.begin()
    found = look(rival.lake, tx.names, [Wanted(named("mine"), str(folder))])
    rival.lake.storage.beside = _meanwhile(rival.lake.storage, lambda: adopted(third, "t", folder))  # type: ignore[attr-defined]
    with pytest.raises(DuplicateError, match="another lake has just claimed"):
        adopt(rival.lake, tx, found)
    assert root_in(folder) == third.lake.storage.url


def _meanwhile(storage: Storage, other: Callable[[], object]) -> Callable[[str], Storage]:
    beside = storage.beside  # type: ignore[attr-defined]

    def opened(root: str) -> Storage:
        store: Storage = beside(root)
        other()
        return store

    return opened


@pytest.mark.parametrize("said", ["s3://secrets/lake", "/etc", "file:/etc", "file:///a/../b", "file://host/a", ""])
def test_a_claim_that_names_another_kind_of_place_is_not_followed(
    rival: TransactionalCatalog, catalog: TransactionalCatalog, folder: Path, said: str
) -> None:
    adopted(catalog, "orders", folder)
    rewrite(folder, root=said)
    with pytest.raises(InvalidError, match="names no lake in the same kind of store"):
        adopted(rival, "mine", folder)


def test_what_opening_the_other_root_said_is_not_repeated(
    rival: TransactionalCatalog, catalog: TransactionalCatalog, folder: Path, tmp_path: Path
) -> None:
    adopted(catalog, "orders", folder)
    (tmp_path / "file").write_text("secret")
    rewrite(folder, root=f"file://{tmp_path}/file")
    with pytest.raises(InvalidError, match=r"which cannot be read\. If"):
        adopted(rival, "mine", folder)


def test_one_root_under_two_names_is_one_lake(catalog: TransactionalCatalog, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "lake")
    tx = adopting(catalog, folder)
    rewrite(folder, root=f"file://{tmp_path}/link")
    assert confirm(catalog.lake.storage, f"file://{folder}", tx.id, clock=catalog.lake.clock) is None
    catalog.rollback(tx)
    assert not (folder / CLAIM).exists()


def test_an_adoption_of_its_own_that_fails_leaves_no_claim(
    catalog: TransactionalCatalog, rival: TransactionalCatalog, warehouse: Path
) -> None:
    """Another lake would be refused the first table for a day."""
    first, second = (plain_table(warehouse / name, 1) for name in ("a", "b"))
    adopted(rival, "b", second)

    def both(tx: Transaction) -> None:
        wanted = [Wanted(named(folder.name), str(folder)) for folder in (first, second)]
        adopt(catalog.lake, tx, look(catalog.lake, tx.names, wanted))

    with pytest.raises(DuplicateError, match=r"is table default\.b of the lake"):
        catalog.run(both)
    assert not (first / CLAIM).exists()
    done = CliRunner().invoke(main, ["adopt", catalog.lake.storage.url, str(warehouse), "--yes"])
    assert (done.exit_code, "DuplicateError" in done.output or "42P07" in done.output) == (1, True), done.output
    assert not (first / CLAIM).exists()
    adopted(rival, "a", first)


def test_an_adoption_of_its_own_that_is_beaten_leaves_no_claim(catalog: TransactionalCatalog, folder: Path) -> None:
    """Somebody takes the name between the statement and its COMMIT."""

    def late(tx: Transaction) -> None:
        adopt(catalog.lake, tx, look(catalog.lake, tx.names, [Wanted(named("orders"), str(folder))]))
        create(TransactionalCatalog.open(catalog.lake.storage.url), "orders")

    with pytest.raises(ConflictError):
        catalog.run(late)
    assert not (folder / CLAIM).exists()


def test_an_adoption_of_its_own_that_cannot_be_committed_leaves_no_claim(tmp_path: Path, folder: Path) -> None:
    """Nothing was ratified, so its transaction is open, and nobody has it to roll it back."""
    store = FaultyStorage(open_reaching(str(tmp_path / "lake"), create=True))
    catalog = open_catalog(store)

    def late(tx: Transaction) -> None:
        adopt(catalog.lake, tx, look(catalog.lake, tx.names, [Wanted(named("orders"), str(folder))]))
        store.fail("list", path="_lockstep/deletions")

    with pytest.raises(UnavailableError):
        catalog.run(late)
    assert not (folder / CLAIM).exists()
    assert not catalog.database().tables


def test_a_claim_without_an_identity_is_not_taken_for_ours_where_the_root_does_not_tell(tmp_path: Path) -> None:
    """A lake of the same URL to which the location is not apart, being at its own server, claims without one."""
    folder = plain_table(tmp_path / "warehouse" / "orders", 1)
    root, orders = f"file://{tmp_path}/lake", f"file://{folder}"
    places = Locations((Location(f"file://{tmp_path}/warehouse", is_apart=True),))
    storage = OutsideStorage(open_storage(root, create=True), None, places)
    now = datetime(2026, 11, 1, tzinfo=UTC)
    later = now + timedelta(days=30)
    ask: dict[str, Any] = {"clock": lambda: later, "name_in": lambda *_: None}
    theirs = msgspec.json.encode(Claim(format=1, root=root, transaction="theirs", claimed_at=now))
    storage.put(claim_path(orders), theirs)
    calls: tuple[Callable[[], None], ...] = (
        lambda: claim(storage, orders, "ours", **ask),
        lambda: check_claimable(storage, orders, **ask),
    )
    for call in calls:
        with pytest.raises(InvalidError, match="which lake that is its root does not say here"):
            call()
    assert storage.get(claim_path(orders)) == theirs
    claim(storage, orders, "theirs", **ask)  # the same transaction, sent again
    assert confirm(storage, orders, "any", clock=lambda: later) is None, "what a lake has by now stays its own"


def test_no_claim_is_made_apart_by_a_lake_whose_store_cannot_keep_one_identity(tmp_path: Path) -> None:
    """Of two processes that draw one at once, both would be told that theirs is the lake's."""
    folder = plain_table(tmp_path / "warehouse" / "orders", 1)
    places = Locations((Location(f"file://{tmp_path}/warehouse", is_apart=True),))
    storage = OutsideStorage(open_storage(f"file://{tmp_path}/lake", create=True), None, places)
    storage.look_first()
    with pytest.raises(UnsupportedError, match="knows no conditional writes"):
        claim_new(storage, f"file://{folder}", "ours", clock=utc_now)
    assert storage.get(claim_path(f"file://{folder}")) is None
    assert storage.get(IDENTITY) is None


def test_a_lake_that_may_not_be_asked_is_not_said_to_be_gone(tmp_path: Path) -> None:
    """Whoever deleted its claim then would give its table to two lakes."""
    folder = plain_table(tmp_path / "warehouse" / "orders", 1)
    other = TransactionalCatalog.open(str(tmp_path / "other"), create=True)
    other.commit(adopting(other, folder))
    said: dict[str, Any] = {str(tmp_path / "warehouse"): {}}
    catalog = TransactionalCatalog.open(str(tmp_path / "lake"), create=True, locations=said, locations_only=True)
    calls = (
        lambda: adopting(catalog, folder),
        lambda: refuse_unadoptable(look_at_claims(catalog.lake, looked(catalog, folder))),
    )
    for call in calls:
        with pytest.raises(InvalidError, match="lies neither below the lake's root") as caught:
            call()
        assert caught.value.sqlstate == "42501"
        assert "gone for good" not in caught.value.message


def looked(catalog: TransactionalCatalog, folder: Path) -> list[Found]:
    return look(catalog.lake, catalog.begin().names, [Wanted(named("orders"), str(folder))])


def test_a_table_out_of_reach_is_refused_by_that_sqlstate(tmp_path: Path) -> None:
    folder = plain_table(tmp_path / "elsewhere" / "orders", 1)
    catalog = TransactionalCatalog.open(str(tmp_path / "lake"), create=True, locations_only=True)
    found = looked(catalog, folder)
    none = looked(catalog, tmp_path / "lake" / "t")  # for another reason
    for refused, sqlstate in ((found, "42501"), (found + none, "22023")):
        with pytest.raises(InvalidError, match="cannot adopt") as caught:
            refuse_unadoptable(refused)
        assert caught.value.sqlstate == sqlstate
