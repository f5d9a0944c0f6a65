"""Transactions that were rolled back behind their sessions' backs: their rest must not commit without the beginning."""

from __future__ import annotations

from pathlib import Path

from lockstep.spark.host import KEPT_SECONDS
from tests.support.client import Client
from tests.support.lakes import staged_commits


def test_a_lost_transaction_can_only_be_ended(one: Client, two: Client) -> None:
    """The host before this one died with it: what follows must not commit as if there had been no BEGIN."""
    one.ok("lost", transaction="t1")
    sqlstate, _, message = one.refused("resolve", namespace=[], table="a", use="live")
    assert (sqlstate, "t1" in message) == ("25P02", True)
    assert one.refused("begin", catalogs={}, current=None)[0] == "25P02"
    assert one.ok("rollback") == {"transaction_id": "t1"}
    assert one.ok("ended") == {"open": False, "uris": [], "tables": []}
    assert one.resolve("a")["version"] == two.resolve("a")["version"] == 0


def test_a_lost_transaction_does_not_commit(one: Client) -> None:
    one.ok("lost", transaction="t1")
    assert one.refused("commit")[0] == "25P02"
    assert one.ok("ended") == {"open": False, "uris": [], "tables": []}
    assert one.begin()


def test_who_comes_back_after_a_shared_transaction_lapsed_is_refused(one: Client, two: Client, tmp_path: Path) -> None:
    id = one.begin()
    one.stage(one.resolve("a", "target")["uri"], 1)
    assert one.ok("lapse")["tables"] == [["lake", "default", "a"]], "caches of it are dropped"
    assert not staged_commits(tmp_path / "lake")
    for op in ("resolve", "commit"):
        state, _, message = one.refused(op, namespace=[], table="a", use="live")
        assert state == "25P02"
        assert f"{id} was rolled back: all connections" in message
    assert one.ok("rollback") == {"transaction_id": id}
    assert one.ok("ended") == {"open": False, "uris": [], "tables": []}
    assert one.resolve("a")["version"] == two.resolve("a")["version"] == 0
    assert one.begin() != id


def test_what_has_lapsed_lapses_once(one: Client) -> None:
    id = one.begin()
    one.ok("lapse")
    assert one.ok("lapse") == {"uris": [], "tables": []}
    assert one.ok("rollback") == {"transaction_id": id}


def test_begin_says_how_long_a_shared_transaction_is_kept(one: Client) -> None:
    begin = {"catalogs": {"lake": one.options}, "current": "lake"}
    for said, kept in [({}, KEPT_SECONDS), ({"shared_transaction_timeout": "0"}, 0)]:
        assert one.ok("begin", **begin, **said)["kept_seconds"] == kept
        one.ok("rollback")
        one.ok("ended")
    for wrong in ("soon", "-1", "1.5", ""):
        state, condition, _ = one.refused("begin", **begin, shared_transaction_timeout=wrong)
        assert (state, condition) == ("22023", "LOCKSTEP_INVALID")
    assert one.begin(), "a BEGIN that was refused has begun nothing"
