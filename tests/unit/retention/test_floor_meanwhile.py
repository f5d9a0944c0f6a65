"""What a lake keeps at least, while others say something, or while what they said cannot be read."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

import lockstep.catalog
from lockstep.catalog import TransactionalCatalog
from lockstep.cli import upkeep
from lockstep.errors import UnavailableError
from lockstep.retention.floor import FOLDER, Record, Said, raise_floor, read_floor, set_floor
from lockstep.spark.host.host import Host
from lockstep.storage import Storage, open_storage
from tests.support.client import Client
from tests.support.commands import lockstep as command
from tests.support.entries import T0
from tests.support.faulty import FaultyStorage
from tests.support.lakes import append, create, open_catalog
from tests.support.retained import AgedStorage, Ticking

DAY = timedelta(days=1)
YEAR = {"retention-age": "365d"}
LONG = {"retention-age": "365d", "retention-versions": "1000", "deletion-grace": "3d", "orphan-age": "30d"}
GRACE = {"deletion-grace": "3d"}


def kept(storage: Storage) -> dict[str, str]:
    return {name: each.value for name, each in read_floor(storage).said.items()}


def said(catalog: TransactionalCatalog, how: str, settings: Mapping[str, str]) -> None:
    change = {"raise": raise_floor, "set": set_floor}[how]
    change(catalog.lake, settings, author="ada", statement=f"{how} {settings}")


# --- two at once ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [GRACE, GRACE | {"orphan-age": "8d"}])
@pytest.mark.parametrize("raised", [{"orphan-age": "90d"}, {"orphan-age": "90d", "retention-versions": "500"}])
def test_what_is_raised_while_somebody_sets_another_setting_stays(
    store: FaultyStorage, first: dict[str, str], raised: dict[str, str]
) -> None:
    """It has the number that the write hides, and who raised it has read it back, and never tells again."""
    one, other = open_catalog(store), open_catalog(store.inner)
    said(one, "set", first)
    store.interrupt("put_if_absent", lambda: said(other, "raise", raised), path=".json")
    said(one, "set", {"retention-age": "7d"})
    assert kept(store) == first | raised | {"retention-age": "7d"}
    assert read_floor(store).said["orphan-age"].statement == f"raise {raised}", "it says who wanted it"


def test_a_raise_that_is_written_behind_the_set_whose_read_it_had_not_seen_stays(store: FaultyStorage) -> None:
    one, other = open_catalog(store), open_catalog(store.inner)
    said(one, "set", GRACE)
    store.interrupt("put_if_absent", lambda: said(other, "set", {"retention-age": "7d"}), path=".json")
    said(one, "raise", {"orphan-age": "90d"})
    assert kept(store) == GRACE | {"retention-age": "7d", "orphan-age": "90d"}


def test_so_does_one_that_is_written_between_the_sets_write_and_its_look(store: FaultyStorage) -> None:
    """Both see the other: that whose write comes second finds it done."""
    catalog = open_catalog(store)
    said(catalog, "set", GRACE)
    late = Record(format=1, settings={"orphan-age": Said(value="90d", at=T0, author="bob")})
    path = f"{FOLDER}/00000001-late.json"
    store.interrupt("put_if_absent", lambda: store.put(path, msgspec.json.encode(late)), path=".json", when="after")
    said(catalog, "set", {"retention-age": "7d"})
    assert kept(store) == GRACE | {"retention-age": "7d", "orphan-age": "90d"}
    before = store.list(FOLDER)
    said(catalog, "raise", {"orphan-age": "90d"})
    assert store.list(FOLDER) == before


def test_what_is_set_by_name_lowers_what_was_raised_just_before(store: FaultyStorage) -> None:
    one, other = open_catalog(store), open_catalog(store.inner)
    said(one, "set", GRACE)
    store.interrupt("put_if_absent", lambda: said(other, "raise", YEAR), path=".json")
    said(one, "set", {"retention-age": "7d"})
    assert kept(store) == GRACE | {"retention-age": "7d"}


def test_what_is_set_by_name_is_not_raised_again_by_what_was_there_before(store: FaultyStorage) -> None:
    catalog = open_catalog(store)
    said(catalog, "raise", LONG)
    said(catalog, "set", {"retention-age": "7d"})
    said(catalog, "set", {"deletion-grace": "2d"})
    assert kept(store) == LONG | {"retention-age": "7d", "deletion-grace": "2d"}


def test_who_sets_slowly_is_told_that_what_he_said_is_not_kept(store: FaultyStorage) -> None:
    one, other = open_catalog(store), open_catalog(store.inner)
    said(one, "set", GRACE)

    def twice() -> None:
        said(other, "set", {"orphan-age": "8d"})
        said(other, "set", {"orphan-age": "9d"})

    store.interrupt("put_if_absent", twice, path=".json")
    with pytest.raises(UnavailableError, match="retention-age is not set: somebody else said"):
        said(one, "set", {"retention-age": "7d"})
    assert kept(store) == GRACE | {"orphan-age": "9d"}


# --- readers go on ----------------------------------------------------------------------------------------------------

UNREADABLE = {
    "a newer format": b'{"format":2,"settings":{}}',
    "an unknown setting": b'{"format":1,"settings":{"retention-mood":{"value":"good","at":"2030-01-01T00:00:00Z"}}}',
    "an unknown field": b'{"format":1,"settings":{"orphan-age":{"value":"9d","at":"2030-01-01T00:00:00Z","why":"x"}}}',
    "truncated": b'{"format":1,"settings":{"orp',
}


@pytest.mark.parametrize("what", UNREADABLE)
def test_where_nobody_can_read_what_is_kept_tables_are_read_and_nothing_goes(
    host: Host, one: Client, tmp_path: Path, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    storage = open_storage(str(tmp_path / "lake"))
    path = f"{FOLDER}/00000001-x.json"
    storage.put(path, UNREADABLE[what])
    one.options |= YEAR
    assert one.resolve("a")["version"] == 0
    assert ("retention-age = 365d" in caplog.text, path in caplog.text) == (True, True), caplog.text
    for procedure in ("expire_snapshots", "vacuum", "remove_orphan_files", "maintain"):
        state, _, message = one.refused("call", procedure=procedure, arguments={}, text="CALL …")
        assert (state, path in message) == ("XX001", True)
    storage.delete(path)
    assert one.resolve("b")["version"] == 0
    assert kept(storage) == {}, "it is tried again with the next session, and not with each statement"
    again = Client(host, tmp_path / "lake", "s2")
    again.options |= YEAR
    assert again.resolve("a")["version"] == 0
    assert kept(storage) == YEAR


@pytest.mark.parametrize("operation", ["list", "put_if_absent"])
def test_where_the_store_fails_as_the_lake_is_told_tables_are_read_and_the_next_session_tells_it(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, operation: Any
) -> None:
    create(open_catalog(open_storage(str(tmp_path / "lake"), create=True)), "a")
    stores: list[FaultyStorage] = []

    def opened(root: str, **how: Any) -> Storage:
        stores.append(FaultyStorage(open_storage(root, **how)))
        stores[-1].fail(operation, path=FOLDER if operation == "list" else ".json", times=100)
        return stores[-1]

    monkeypatch.setattr(lockstep.catalog, "open_storage", opened)
    for session, told in (("s1", {}), ("s1", {}), ("s2", YEAR), ("s3", YEAR)):
        if session == "s2":
            stores[0].heal()
        client = Client(host, tmp_path / "lake", session)
        client.options |= YEAR
        assert client.resolve("a")["version"] == 0
        assert kept(stores[0].inner) == told
    assert caplog.text.count("The next session tries again") == 1
    assert len(stores[0].inner.list(FOLDER)) == 1


# --- while somebody is asked ------------------------------------------------------------------------------------------


@pytest.fixture
def catalog(aged: AgedStorage, clock: Ticking, monkeypatch: pytest.MonkeyPatch) -> TransactionalCatalog:
    """A lake of many old versions, which the commands look after."""
    catalog = open_catalog(aged, clock=clock)
    create(catalog, "a", files=["p"])
    for n in range(5):
        append(catalog, "a", f"x{n}")
    clock.now += 100 * DAY
    monkeypatch.setattr(upkeep, "_lake", lambda _: open_catalog(aged, clock=clock).lake)
    return catalog


def raising(monkeypatch: pytest.MonkeyPatch, catalog: TransactionalCatalog, settings: Mapping[str, str]) -> None:
    """Have somebody raise what the lake keeps while whoever runs a command is asked, and says yes."""

    def yes(*_: Any, **__: Any) -> bool:
        said(catalog, "raise", settings)
        return True

    monkeypatch.setattr(upkeep, "goes_on", yes)


@pytest.mark.parametrize("name", ["expire", "maintain"])
def test_what_is_raised_while_a_command_asks_is_kept(
    catalog: TransactionalCatalog, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    said(catalog, "set", {"retention-versions": "1", "deletion-grace": "0s"})
    raising(monkeypatch, catalog, YEAR)
    done = command(name, "the lake")
    assert done.exit_code == 0, done.output
    lines = [line for line in done.stdout.splitlines() if "expire" in line]
    assert [line.split(" expire")[0].split()[0] for line in lines] != ["0", "0"], "without it some would"
    assert lines[-1].startswith("0 versions expired"), lines


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("expire", "--older-than", "30d"),
        ("expire", "--retain-last", "1"),
        ("expire", "--grace", "1h"),
        ("vacuum", "--grace", "1h"),
        ("gc", "--older-than", "7d"),
        ("gc", "--grace", "1h"),
        ("maintain", "--older-than", "30d"),
        ("maintain", "--orphan-age", "7d"),
    ],
)
def test_a_command_that_asks_for_less_than_was_raised_meanwhile_is_refused(
    catalog: TransactionalCatalog, monkeypatch: pytest.MonkeyPatch, name: str, option: str, value: str
) -> None:
    raising(monkeypatch, catalog, LONG)
    before = {found.path for found in catalog.lake.storage.walk("")}
    refused = command(name, "the lake", option, value)
    assert (refused.exit_code, "22023" in refused.stderr) == (1, True), refused.output
    after = {found.path for found in catalog.lake.storage.walk("") if not found.path.startswith(FOLDER)}
    assert after == before
