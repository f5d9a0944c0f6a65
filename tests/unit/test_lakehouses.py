"""Catalogs of many sessions: which lake each has, which of them a write is in, and which are remembered."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import lockstep.catalog
from lockstep.delta.actions import render
from lockstep.errors import InvalidError
from lockstep.spark.host.host import Host
from lockstep.storage import Storage, open_storage
from tests.support.client import Client
from tests.support.faulty import FaultyStorage
from tests.support.lakes import NEW_TABLE, add, create

PATIENCE_S = 60
"""How long a test waits for what happens at once unless something is broken."""


def content(*actions: dict[str, Any]) -> str:
    return render([{"commitInfo": {"operation": "WRITE"}}, *actions]).decode()


def opening(monkeypatch: pytest.MonkeyPatch, opened: Callable[..., Storage]) -> None:
    """Have lakes that are opened from now on lie in stores of the test's making."""
    monkeypatch.setattr(lockstep.catalog, "open_storage", opened)


# --- which catalog a write is in --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({}, id="no root"),
        pytest.param({"root": "/nowhere/at/all"}, id="no folder"),
        pytest.param({"root": "ftp://host/lake"}, id="no such store"),
        pytest.param({"root": "file://host/lake"}, id="another host"),
        pytest.param({"root": "s3://bucket/lake", "store.no_such_option": "x"}, id="an unknown option"),
        pytest.param({"root": "/nowhere/at/all", "isolation": "hope"}, id="no such level"),
    ],
)
def test_a_write_needs_no_catalog_of_its_session_but_its_own(one: Client, other: dict[str, str]) -> None:
    """It asks when Spark has written all its files: a refusal then is dear, and has nothing to do with this table."""
    uri = one.resolve("a", "append", writes=True)["uri"]
    catalogs = {"other": other, "lake": one.options}
    assert one.ok("write", uri=uri, version=1, actions=content(add("x")), catalogs=catalogs) == {"outcome": "committed"}


def test_a_write_opens_no_catalog_of_its_session_but_its_own(
    one: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[str] = []

    def opened(root: str, **_: Any) -> Storage:
        asked.append(root)
        raise AssertionError(root)

    opening(monkeypatch, opened)
    uri = one.resolve("a", "append", writes=True)["uri"]
    catalogs = {"other": {"root": str(tmp_path / "other"), "create": "true"}, "lake": one.options}
    assert one.ok("write", uri=uri, version=1, actions=content(add("x")), catalogs=catalogs) == {"outcome": "committed"}
    assert not asked


def test_of_two_catalogs_on_the_lake_of_a_write_both_must_be_sound(one: Client) -> None:
    """Nobody knows which of them the statement named: the stricter of the two decides, and neither is passed over."""
    uri = one.resolve("a", "append", writes=True)["uri"]
    catalogs = {"strict": one.options | {"isolation": "hope"}, "lake": one.options}
    write = {"uri": uri, "version": 1, "actions": content(add("x"))}
    state, _, message = one.refused("write", **write, catalogs=catalogs)
    assert (state, "'hope'" in message) == ("22023", True)


def test_a_write_into_no_catalog_of_the_session_is_refused(one: Client, tmp_path: Path) -> None:
    uri = one.resolve("a", "append", writes=True)["uri"]
    catalogs = {"pond": {"root": str(tmp_path / "pond"), "create": "true"}}
    state, _, message = one.refused("write", uri=uri, version=1, actions="", catalogs=catalogs)
    assert (state, "no Lockstep catalog of this session holds" in message) == ("22023", True)


def test_a_uri_belongs_to_the_lake_with_the_longest_root(host: Host, tmp_path: Path) -> None:
    """A lake may be made above lakes that there are, as one of all tables of a bucket; the other order is refused."""
    inner = Client(host, tmp_path / "all" / "inner", catalog="inner")
    outer = Client(host, tmp_path / "all", catalog="outer")
    for client in (inner, outer):
        create(client.lake(), "a")
    catalogs = {"inner": inner.options, "outer": outer.options}
    assert host.lakehouses.writer(inner.resolve("a")["uri"], catalogs).name == "inner"
    assert host.lakehouses.writer(outer.resolve("a")["uri"], catalogs).name == "outer"


# --- one lake under several roots -------------------------------------------------------------------------------------


@pytest.mark.parametrize("spelled", ["file://{}", "file:{}", "file://localhost{}", "{}/", "{}//.", "file://{}/"])
def test_one_lake_may_have_two_catalogs_whose_roots_are_written_differently(
    host: Host, one: Client, tmp_path: Path, spelled: str
) -> None:
    """The table is announced through one of them, and the URI does not say through which."""
    second = Client(host, tmp_path / "lake", one.session, "second")
    second.options = {"root": spelled.format(tmp_path / "lake")}
    catalogs = {"lake": one.options, "second": second.options}
    for client, name in ((one, "x"), (second, "y")):
        uri = client.ok("create", namespace=[], table=name, mode="create")["uri"]
        write = {"uri": uri, "version": 0, "actions": content(*NEW_TABLE), "catalogs": catalogs}
        assert client.ok("write", **write) == {"outcome": "committed"}
    assert second.lake().lake is one.lake().lake, "one timeline in memory for both"


def test_a_new_table_may_be_announced_under_one_key_of_the_store_and_written_under_the_next(
    host: Host, one: Client, tmp_path: Path
) -> None:
    """A key that lasts an hour is replaced while a statement of two hours runs."""
    uri = one.ok("create", namespace=[], table="x", mode="create")["uri"]
    one.options |= {"store.session_token": "the next"}
    assert one.ok("write", uri=uri, version=0, actions=content(*NEW_TABLE)) == {"outcome": "committed"}


def test_a_relative_root_stays_where_it_was_at_first(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A notebook goes to another folder in the middle."""
    monkeypatch.chdir(tmp_path)
    client = Client(host, Path("lake"))
    create(client.lake(), "a")
    uri = client.resolve("a", "append", writes=True)["uri"]
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert client.ok("write", uri=uri, version=1, actions=content(add("x"))) == {"outcome": "committed"}
    client.options |= {"isolation": "SNAPSHOT"}
    assert client.resolve("a")["version"] == 1


# --- lakes that are slow to open --------------------------------------------------------------------------------------


def test_while_a_lake_is_opened_all_other_lakes_have_answers(
    host: Host, one: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, goes_on = threading.Event(), threading.Event()

    def slow(root: str, **how: Any) -> Storage:
        begun.set()
        assert goes_on.wait(PATIENCE_S)
        return open_storage(root, **how)

    opening(monkeypatch, slow)
    far = Client(host, tmp_path / "far", "s2", "far")
    with ThreadPoolExecutor(2) as threads:
        try:
            waiting = threads.submit(far.ok, "tables", namespace=["default"])
            assert begun.wait(PATIENCE_S)
            assert threads.submit(one.resolve, "a").result(timeout=PATIENCE_S)["version"] == 0
            assert not waiting.done()
        finally:
            goes_on.set()
        assert waiting.result(timeout=PATIENCE_S)["names"] == []


def test_who_asks_for_a_lake_while_it_is_opened_waits_for_it(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    goes_on = threading.Event()

    def slow(root: str, **how: Any) -> Storage:
        asked.append(root)
        assert goes_on.wait(PATIENCE_S)
        return open_storage(root, **how)

    opening(monkeypatch, slow)
    clients = [Client(host, tmp_path / "far", f"s{number}") for number in range(4)]
    with ThreadPoolExecutor(len(clients)) as threads:
        waiting = [threads.submit(client.lake) for client in clients]
        goes_on.set()
        lakes = {id(each.result(timeout=PATIENCE_S).lake) for each in waiting}
    assert (len(lakes), len(asked)) == (1, 1)


def test_a_lake_that_could_not_be_opened_is_tried_again(host: Host, tmp_path: Path) -> None:
    client = Client(host, tmp_path / "lake")
    client.options["create"] = "false"
    assert client.refused("tables", namespace=["default"])[0] == "22023"
    create(Client(host, tmp_path / "lake", "s2").lake(), "a")
    assert client.resolve("a")["version"] == 0


# --- keys that change -------------------------------------------------------------------------------------------------


def test_a_transaction_is_answered_through_the_store_of_its_begin(
    host: Host, one: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another session has the lake under a key that has expired, or with other privileges."""
    broken = FaultyStorage(one.lake().lake.storage)
    one.lake().lake.storage = one.lake().timeline.storage = broken
    two = Client(host, tmp_path / "lake", "s2")
    two.options |= {"store.session_token": "new"}
    two.begin()
    uri = two.resolve("a", "append", writes=True)["uri"]
    broken.calls.clear()
    for operation in ("get", "list", "exists"):
        broken.fail(operation, times=99)
    assert [two.ok("staging", uri=uri, version=version)["outcome"] for version in (0, 1)] == ["taken", "free"]
    assert not broken.calls


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    """How many catalogs a host remembers that is made after this: less than a test uses."""
    monkeypatch.setattr("lockstep.spark.host.lakehouses.REMEMBERED_CATALOGS", 3)
    return 3


def test_lakes_under_old_keys_are_forgotten(few: int, host: Host, one: Client) -> None:
    for number in range(10):
        one.options |= {"store.session_token": f"token {number}"}
        assert one.resolve("a")["version"] == 0
    gc.collect()
    assert host.lakehouses.remembered == (few, few)


def test_a_catalog_in_a_transaction_is_the_same_to_its_end(
    few: int, host: Host, one: Client, elsewhere: Any, tmp_path: Path
) -> None:
    one.begin()
    lake = one.lake().lake
    for number in range(10):
        other = Client(host, tmp_path / "lake", "s2")
        other.options |= {"store.session_token": f"token {number}"}
        other.resolve("a")
    gc.collect()
    one.stage(one.resolve("a", "append", writes=True)["uri"], 1, add("x"))
    assert one.lake().lake is lake
    assert one.ok("commit")["database_version"] == 2


def test_nothing_is_kept_under_a_secret(host: Host, one: Client) -> None:
    one.options |= {"store.secret_access_key": "wJalrXUtnFEMI"}
    one.resolve("a")
    assert "wJalrXUtnFEMI" not in repr(vars(host.lakehouses))


def test_a_misspelt_option_of_a_catalog_is_refused_by_name(host: Host, tmp_path: Path) -> None:
    options = {"root": str(tmp_path / "lake"), "create": "true"}
    for wrong, expected in (
        ({"isolaton": "SNAPSHOT"}, r"catalog lake .*: isolaton is no setting of a catalog: did you mean isolation\?"),
        ({"isolation": "FOO"}, r"catalog lake .*: isolation is 'FOO': expected SNAPSHOT or SERIALIZABLE"),
        ({"commit-timeout": "soon"}, r"catalog lake .*: commit-timeout is 'soon': expected a duration"),
        ({"create": "yes please"}, r"catalog lake .*: create is 'yes please': expected true or false"),
        ({"checkpoint-interval": "-1"}, r"catalog lake .*: checkpoint-interval is '-1'"),
    ):
        with pytest.raises(InvalidError, match=expected):
            host.lakehouses.get("lake", options | wrong)
    assert not (tmp_path / "lake").exists(), "nothing was made"
    host.lakehouses.opened("lake", options | {"store.region": "eu-west-1"})
