"""The contract on lakes whose entries an arbiter decides: a Valkey with an append-only file, as users set it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lockstep.storage import open_storage
from lockstep.storage.urls import comparable
from lockstep.timeline.files import version_in
from tests.spark import test_contract as contract
from tests.support.contract import Case, find
from tests.support.valkey import Server, running

EVERYTHING = os.environ.get("LOCKSTEP_TEST_ARBITERS") == "all"
SAMPLE = ("begin_commit.test", "conflict_write_skew.test", "rfc73_three_tables.test")
"""What is run without it, for `make test-arbiter` sets it."""

WITHOUT = ("resolution_wait_die.test", "resolution_wound_wait.test")
"""They make the lake by a catalog of their own, which is told of no arbiter."""


def cases() -> list[Case]:
    return [case for case in find(contract.SQL) if case.id not in WITHOUT and (EVERYTHING or case.id in SAMPLE)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("valkey")) as started:
        yield started


@pytest.fixture
def arbiter(server: Server) -> str:
    return server.address()


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.id)
def test_the_contract_holds_with_an_arbiter(
    case: Case, connect: Callable[[], Any], root: Path | str, server: Server
) -> None:
    """And it was the arbiter that decided: the last version that it knows is the last that the store has."""
    contract.test_contract(case, connect, root)
    store = open_storage(str(root))
    decided = server.client.hget(f"lockstep:{comparable(store.url)}", "last")
    there = [version for name in store.list("_lockstep/timeline") if (version := version_in(name)) is not None]
    assert decided is not None
    assert int(decided) >= max(there), "an entry file may hold several versions"
