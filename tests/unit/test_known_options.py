"""What a catalog is set to is told to the host once; requests say it by an id."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lockstep.spark.host import known_options
from lockstep.spark.host.host import Host
from tests.support.client import Client, usual
from tests.support.lakes import create

ID, OTHER = "0a" * 32, "0b" * 32


class Shim(Client):
    """Says an id where a client would say settings, and tells what it stands for when it is asked."""

    def __init__(self, host: Host, root: Path, id: str, session: str = "s1") -> None:
        super().__init__(host, root, session)
        self.id, self.told = id, 0

    def sent(self, op: str, **more: Any) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.host.call(json.dumps({"op": op, "session": self.session, **more})))
        return answer

    def tell(self) -> None:
        self.told += 1
        assert self.sent("options", id=self.id, settings=self.options) == {"ok": {}}

    def ask(self, op: str, **args: Any) -> dict[str, Any]:
        said = {"options": self.id, "catalogs": {self.catalog: self.id}}
        fields = {**args, **{name: value for name, value in said.items() if name in usual(op, self.catalog, {})}}
        while (answer := super().ask(op, **fields)).keys() == {"unsaid"}:
            assert answer == {"unsaid": [self.id]}
            self.tell()
        return answer


@pytest.fixture
def shim(host: Host, tmp_path: Path) -> Shim:
    shim = Shim(host, tmp_path / "lake", ID)
    create(shim.lake(), "a")
    return shim


def test_settings_are_told_once_for_all_sessions_and_all_kinds_of_requests(host: Host, shim: Shim) -> None:
    assert shim.resolve("a")["version"] == 0
    assert shim.resolve("a")["version"] == 0
    shim.begin()
    shim.ok("rollback")
    other = Shim(host, Path(shim.options["root"]), ID, session="s2")
    assert other.resolve("a")["version"] == 0
    assert (shim.told, other.told) == (1, 0)


def test_a_request_with_an_id_that_was_not_told_has_done_nothing(shim: Shim) -> None:
    name = {"catalog": "lake", "options": ID, "case_sensitive": True, "namespace": ["n"]}
    assert shim.sent("create_namespace", **name, properties={}) == {"unsaid": [ID]}
    assert not shim.ok("namespace", namespace=["n"])["exists"]


def test_an_id_stands_for_its_own_settings(host: Host, shim: Shim, tmp_path: Path) -> None:
    other = Shim(host, tmp_path / "other", OTHER)
    create(other.lake(), "b")
    has = [[not one.resolve(table)["missing"] for table in ("a", "b")] for one in (shim, other)]
    assert has == [[True, False], [False, True]]
    assert (shim.told, other.told) == (1, 1)


def test_of_several_catalogs_those_are_asked_for_that_are_not_known(shim: Shim) -> None:
    catalogs = {"lake": ID, "in full": shim.options, "other": OTHER}
    rest = {"current": "lake", "case_sensitive": True, "settings": {}}
    assert shim.sent("begin", catalogs=catalogs, **rest) == {"unsaid": [ID, OTHER]}
    shim.tell()
    assert shim.sent("begin", catalogs=catalogs, **rest) == {"unsaid": [OTHER]}


def test_settings_that_were_forgotten_are_asked_for_again(
    shim: Shim, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_options, "REMEMBERED_OPTIONS", 1)
    small = Host("a host that remembers little")
    one, other = Shim(small, Path(shim.options["root"]), ID), Shim(small, tmp_path / "other", OTHER)
    create(other.lake(), "b")
    for _ in range(2):
        assert one.resolve("a")["version"] == 0
        assert other.resolve("b")["version"] == 0
    assert (one.told, other.told) == (2, 2)
    small.close()


def test_a_host_that_took_over_is_told_before_it_says_what_was_lost(shim: Shim) -> None:
    """The first request that it answers about a session may say an id, too."""
    shim.ok("lost", transaction="t1", sent=None)
    assert shim.sent("options", id=ID, settings=shim.options) == {"ok": {}}
    assert shim.refused("resolve", namespace=["default"], table="a", use="pinned")[0] == "25P02"
