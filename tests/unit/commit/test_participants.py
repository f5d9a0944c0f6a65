"""What each commit of a transaction says of the tables that it wrote, for who reads one table's log alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lockstep
from lockstep.delta.actions import NAMED_TABLES, bodies, parse
from lockstep.delta.log import commit_path
from lockstep.tables.opened import OpenLake
from tests.support.lakes import named

IDS = pa.schema([("id", pa.int64())])


@pytest.fixture
def lake(tmp_path: Path) -> OpenLake:
    """A lake with the tables a, b and c."""
    lake = lockstep.open(str(tmp_path / "lake"), create=True)
    for name in "abc":
        with lake.transaction() as tx:
            tx.create(name, IDS)
    return lake


def told(lake: OpenLake, name: str) -> dict[str, Any]:
    """Return the parameters that the newest commit of a table has."""
    table = lake.catalog.database().tables[named(name)]
    content = lake.catalog.lake.storage.get(commit_path(table.location, table.version))
    assert content is not None
    [info] = bodies(parse(content), "commitInfo")
    return dict(info["operationParameters"])


def ids(lake: OpenLake, names: str) -> list[str]:
    return [lake.catalog.database().tables[named(name)].id for name in names]


def test_each_commit_names_the_tables_that_the_transaction_wrote(lake: OpenLake) -> None:
    with lake.transaction() as tx:
        tx["a"].append({"id": [1]})
        tx["b"].append({"id": [1]})
        tx["b"].append({"id": [2]})
        tx["c"].to_arrow()
    for name in "ab":
        assert json.loads(told(lake, name)["lockstepTables"]) == {"count": 2, "ids": ids(lake, "ab")}
        assert told(lake, name)["lockstepTransaction"] == tx.id
    [newest, *_] = lake.at()["a"].delta().history(1)
    assert "lockstepTables" in newest["operationParameters"], "deltalake's history has it"
    assert told(lake, "a")["mode"] == "Append", "beside what the statement said"


def test_a_transaction_of_one_table_names_none(lake: OpenLake) -> None:
    """Nor does it name one of which nothing is left to commit."""
    with lake.transaction() as tx:
        tx["a"].append({"id": [1]})
        tx["b"].append({"id": [1]})
        tx["b"].delete()
    assert "lockstepTables" not in told(lake, "a")


def test_what_is_named_stays_when_another_was_first(lake: OpenLake) -> None:
    with lake.transaction() as tx:
        tx["a"].append({"id": [1]})
        tx["b"].append({"id": [1]})
        with lake.transaction() as other:
            other["a"].append({"id": [2]})
    assert json.loads(told(lake, "a")["lockstepTables"])["ids"] == ids(lake, "ab")


def test_of_many_tables_some_are_named(lake: OpenLake) -> None:
    with lake.transaction() as tx:
        for number in range(NAMED_TABLES + 5):
            tx.create(f"t{number}", IDS)
    said = json.loads(told(lake, "t0")["lockstepTables"])
    assert (said["count"], len(said["ids"])) == (NAMED_TABLES + 5, NAMED_TABLES)
