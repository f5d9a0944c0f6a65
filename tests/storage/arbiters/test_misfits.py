"""Arbiters that do not fit the store: one that forgot, another one, a copy or an old backup of either."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import boto3
import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.errors import (
    ArbiterError,
    CommitUnknownError,
    UnsupportedError,
)
from lockstep.storage import Theirs
from lockstep.storage.urls import comparable
from lockstep.timeline import arbitration
from lockstep.timeline.files import entry_path
from lockstep.timeline.standing import reseed
from tests.support.arbiters import dynamodb, faulty, history, make_table, opened
from tests.support.arbitrated import make_namespace
from tests.support.commands import lockstep
from tests.support.s3 import KEYS, Application, moto, serving
from tests.support.valkey import DURABLE, Server, running


def refused(catalog: TransactionalCatalog, why: str) -> None:
    """See that nothing is committed, in two ways: by whom it was, and as the store has it."""
    before = history(Path(catalog.lake.storage.url.removeprefix("file://")))
    with pytest.raises(ArbiterError, match=why):
        make_namespace(catalog, "refused")
    assert history(Path(catalog.lake.storage.url.removeprefix("file://"))) == before


def test_an_arbiter_that_lost_its_memory_is_found_out(server: Server, root: Path) -> None:
    catalog = opened(root, server.address(), create=True)
    make_namespace(catalog, "a")
    server.client.delete(f"lockstep:file://{root}")
    for each in (catalog, opened(root, server.address())):
        refused(each, "holds nothing of this lake")
    assert catalog.database().version == 1, "it can be read"
    reseeded(root, server.address())
    assert make_namespace(catalog, "b") == 2


def test_an_arbiter_that_lost_all_that_it_had_counts_as_another_one(server: Server, root: Path) -> None:
    """What is empty may be the wrong server as well, so it takes another word than --yes."""
    catalog = opened(root, server.address(), create=True)
    make_namespace(catalog, "a")
    server.client.flushall()
    refused(catalog, "holds nothing of this lake")  # over a connection that was checked before
    refused(opened(root, server.address()), "is another server than the one that decides")
    said = lockstep_arbiter(root, server.address(), "--reseed", "--yes", exit_code=1)
    assert "--another-server" in said
    assert "55000" in said
    refused(opened(root, server.address()), "is another server")
    reseeded(root, server.address(), "--another-server")
    assert make_namespace(opened(root, server.address()), "b") == 2


def test_two_servers_of_one_prefix_never_both_decide(server: Server, root: Path, tmp_path: Path) -> None:
    """A wrong address, and a --reseed of what is there: the lake knows its server."""
    catalog = opened(root, server.address(), create=True)
    make_namespace(catalog, "a")
    with running(tmp_path / "valkey") as other:
        refused(opened(root, other.address()), "is another server than the one that decides")
        lockstep_arbiter(root, other.address(), "--reseed", "--yes", exit_code=1)
        refused(opened(root, other.address()), "is another server")
        assert make_namespace(catalog, "b") == 2
        assert lockstep("arbiter", root, "--another-server").exit_code == 2, "it says what to do with it"
        reseeded(root, other.address(), "--another-server")
        assert make_namespace(opened(root, other.address()), "c") == 3
        refused(opened(root, server.address()), "is another server")
    assert history(root) == ["a", "b", "c"]


def test_a_table_of_dynamodb_that_was_made_anew_counts_as_another_one(emulated: str, root: Path) -> None:
    make_table(emulated, name="remade")
    make_namespace(opened(root, dynamodb(emulated, "remade"), create=True), "a")
    boto3.client("dynamodb", region_name="eu-west-1", endpoint_url=emulated).delete_table(TableName="remade")
    make_table(emulated, name="remade")
    refused(opened(root, dynamodb(emulated, "remade")), "is another server")


@pytest.mark.parametrize("changed", [{"appendfsync": "everysec"}, {"maxmemory-policy": "allkeys-lru"}])
def test_after_a_reconnect_a_server_is_checked_before_it_decides(
    changed: dict[str, str], root: Path, tmp_path: Path
) -> None:
    """It went and came back between two commits, so no request failed; a minute has not passed."""
    with running(tmp_path / "valkey") as server:
        catalog = opened(root, server.address(), create=True)
        make_namespace(catalog, "a")
        server.kill()
        again = Server(server.folder, {**DURABLE, **changed})
        again.port = server.port
        again.start()
        try:
            with pytest.raises(UnsupportedError, match="may forget what it decides"):
                make_namespace(catalog, "b")
        finally:
            again.kill()
    assert history(root) == ["a"]


def test_after_a_reconnect_another_server_does_not_decide(root: Path, tmp_path: Path) -> None:
    with running(tmp_path / "valkey") as server:
        catalog = opened(root, server.address(), create=True)
        make_namespace(catalog, "a")
        server.kill()
        (tmp_path / "other").mkdir()
        other = Server(tmp_path / "other")
        other.port = server.port
        other.start()
        try:
            refused(catalog, "is another server than the one that decides")
        finally:
            other.kill()


def test_an_arbiter_from_an_old_backup_is_found_out(root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "valkey"
    with running(folder) as server:
        stale = opened(root, server.address(), create=True)
        make_namespace(stale, "a")
        server.kill()
        shutil.copytree(folder, tmp_path / "backup")
        server.start()
        make_namespace(opened(root, server.address()), "b")
        server.kill()
        shutil.rmtree(folder)
        shutil.copytree(tmp_path / "backup", folder)
        server.start()
        refused(opened(root, server.address()), "stands at database version 1, behind the store, which has 2")
        # Who knows of no more than the backup does is told what it asks for, and meets the store then.
        assert stale.timeline.head.version == 1
        arbiter = stale.timeline.arbitration
        assert arbiter is not None
        answer = arbiter.put(2, 2, b"fork")
        assert answer == Theirs((root / entry_path(2)).read_bytes())
        assert history(root) == ["a", "b"]
        refused(opened(root, server.address()), "decided another database version 2")
        reseeded(root, server.address())
        assert make_namespace(stale, "c") == 3
    assert history(root) == ["a", "b", "c"]


def test_a_lake_that_is_made_anew_at_the_same_root_is_not_the_old_one(server: Server, root: Path) -> None:
    """And the message says what to delete first: this does."""
    for name in ("", "a"):
        catalog = opened(root, server.address(), create=True)
        if name:
            make_namespace(catalog, name)
        catalog.lake.upkeep.settle()
        shutil.rmtree(root)
        version = 1 if name else 0
        why = rf"knows a lake at {re.escape(comparable(f'file://{root}'))} already, at database version {version}"
        with pytest.raises(ArbiterError, match=why) as refused_:
            opened(root, server.address(), create=True)
        assert not (root / entry_path(0)).exists()
        [key] = re.findall(r"delete the key (\S+) there", refused_.value.message)
        assert server.client.delete(key) == 1
    assert make_namespace(opened(root, server.address(), create=True), "b") == 1
    assert history(root) == ["b"]


def test_dynamodbs_record_of_a_lake_that_is_gone_can_be_deleted(emulated: str, root: Path) -> None:
    opened(root, dynamodb(emulated), create=True)
    shutil.rmtree(root)
    with pytest.raises(ArbiterError, match=r"delete the item whose lake_root is (\S+) there"):
        opened(root, dynamodb(emulated), create=True)


@pytest.mark.parametrize("inline", [arbitration.INLINE_BYTES, 0])
def test_lakes_of_one_url_in_two_stores_never_share_a_record(
    server: Server, tmp_path: Path, inline: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The URL does not say which server a bucket is of: each lake's first file has to lie in its own store."""
    monkeypatch.setattr(arbitration, "INLINE_BYTES", inline)
    url = f"s3://lake/{tmp_path.name}"
    with serving(moto()) as one, serving(Elsewhere(moto())) as other:
        first = TransactionalCatalog.open(url, create=True, options={**KEYS, "endpoint": one}, arbiter=server.address())
        elsewhere = {**KEYS, "endpoint": other}
        for version in (0, 1):
            with pytest.raises(ArbiterError, match=f"database version {version}, which this store does not have"):
                TransactionalCatalog.open(url, create=True, options=elsewhere, arbiter=server.address())
            make_namespace(first, f"n{version}")
        second = TransactionalCatalog.open(
            url, create=True, options=elsewhere, arbiter=server.address(more="?prefix=other")
        )
        assert make_namespace(second, "a") == 1
        assert make_namespace(first, "b") == 3


def test_a_copy_of_a_lake_does_not_use_its_arbiters_record(server: Server, root: Path) -> None:
    catalog = opened(root, server.address(), create=True)
    make_namespace(catalog, "a")
    copy = root.with_name("copy")
    catalog.lake.upkeep.settle()
    shutil.copytree(root, copy)
    refused(opened(copy, server.address()), "or the lake was copied or moved")
    reseeded(copy, server.address())
    assert make_namespace(opened(copy, server.address()), "of the copy") == 2
    assert make_namespace(catalog, "b") == 2
    assert (history(root), history(copy)) == (["a", "b"], ["a", "of the copy"])


def test_a_store_from_an_old_backup_is_found_out(server: Server, root: Path) -> None:
    catalog = opened(root, server.address(), create=True)
    for name in "abc":
        make_namespace(catalog, name)
    catalog.lake.upkeep.settle()  # the hint is written behind the answer
    for path in (root / "_lockstep").rglob("*"):
        if path.is_file() and path.name not in {Path(entry_path(n)).name for n in (0, 1)}:
            path.unlink()
    refused(opened(root, server.address()), "which the store lacks")
    said = lockstep_arbiter(root, server.address(), exit_code=1)
    assert "has decided database version 3, and the store ends with 1: entries are lost" in said
    reseeded(root, server.address())
    assert make_namespace(opened(root, server.address()), "d") == 2


def test_what_only_the_arbiter_has_is_copied_and_not_forgotten_when_it_is_set_anew(server: Server, root: Path) -> None:
    opened(root, server.address(), create=True)
    store, catalog = faulty(root, server.address())
    store.fail("put_if_absent", path=entry_path(1), times=100)
    with pytest.raises(CommitUnknownError):
        make_namespace(catalog, "decided")
    assert not reseed(opened(root, server.address()).timeline).wrong
    assert history(root) == ["decided"]


def lockstep_arbiter(root: Path, address: str, *more: str, exit_code: int = 0) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCKSTEP_ARBITER", address)
        done = lockstep("arbiter", root, *more)
    assert done.exit_code == exit_code, done.output
    return done.output


def reseeded(root: Path, address: str, *more: str) -> None:
    """Set an arbiter anew, as its operator does: not unless that is confirmed."""
    before = lockstep_arbiter(root, address, exit_code=1)
    assert "WRONG" in before
    lockstep_arbiter(root, address, "--reseed", exit_code=1)
    assert lockstep_arbiter(root, address, exit_code=1) == before, "nothing was changed without --yes"
    lockstep_arbiter(root, address, "--reseed", "--yes", *more)
    assert "well" in lockstep_arbiter(root, address)


class Elsewhere:
    """An S3 server whose bucket is another one than moto's of that name: all of moto's in a process have one memory."""

    def __init__(self, app: Application) -> None:
        self._app = app

    def __call__(self, environ: Any, start_response: Any) -> Any:
        for name in {"PATH_INFO", "RAW_URI", "REQUEST_URI"} & environ.keys():
            environ[name] = re.sub(r"^/lake(?![^/?])", "/elsewhere", environ[name])
        return self._app(environ, start_response)
