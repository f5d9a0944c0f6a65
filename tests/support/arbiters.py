"""Arbiters as tests ask them, and lakes that have one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3

from lockstep.arbiters import Arbiter, Decision, arbiter_of
from lockstep.catalog import TransactionalCatalog
from lockstep.retry import REQUEST
from lockstep.storage import open_storage
from lockstep.storage.urls import comparable
from lockstep.timeline.log import Timeline
from tests.support.faulty import FaultyStorage
from tests.support.lakes import open_catalog

QUICKLY = replace(REQUEST, base_seconds=0.001, cap_seconds=0.01)


def make_table(endpoint: str, *, key: str = "lake_root", name: str = "lakes") -> None:
    _client(endpoint).create_table(
        TableName=name,
        KeySchema=[{"AttributeName": key, "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )


def remove_table(endpoint: str, *, name: str = "lakes") -> None:
    _client(endpoint).delete_table(TableName=name)


def _client(endpoint: str) -> Any:
    return boto3.client("dynamodb", region_name="eu-west-1", endpoint_url=endpoint)


def dynamodb(endpoint: str, table: str = "lakes") -> str:
    return f"dynamodb://{table}?region=eu-west-1&endpoint={endpoint}"


def of(address: str, root: str) -> Arbiter:
    arbiter = arbiter_of(address, root)
    assert arbiter is not None
    arbiter.repeat = QUICKLY
    return arbiter


def decision(version: int, text: str = "x", *, lake: str = "lake", data: bytes | None = b"x") -> Decision:
    return Decision(lake, version, version, f"{version}-{text}", data)


def opened(root: Path, address: str | None, *, create: bool = False) -> TransactionalCatalog:
    catalog = TransactionalCatalog.open(str(root), create=create, arbiter=address)
    if catalog.timeline.arbitration is not None:
        catalog.timeline.arbitration.arbiter.repeat = QUICKLY
    return catalog


def faulty(root: Path, address: str) -> tuple[FaultyStorage, TransactionalCatalog]:
    store = FaultyStorage(open_storage(str(root), create=True))
    return store, open_catalog(store, arbiter=of(address, comparable(store.url)))


def history(root: Path) -> list[str]:
    """Return the namespaces that were made, by database version, as a client without the arbiter reads them."""
    timeline = Timeline.open(open_storage(str(root)))
    return [".".join(entry.namespaces[0].name) for entry in timeline.entries(0)]
