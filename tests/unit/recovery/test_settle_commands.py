"""`CALL lake.system.settle` and `lockstep settle`: what is asked, and what comes back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from deltalake import DeltaTable

from lockstep.catalog import TransactionalCatalog
from lockstep.cli.main import main
from lockstep.delta.actions import render
from lockstep.spark.host.host import Host
from tests.support.adopting import adopted, files_of, ids, plain_table
from tests.support.client import Client
from tests.support.lakes import named


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An adopted table of the rows 1 and 2, whose last commit a plain writer wrote over: now it is 1 and 3."""
    catalog = TransactionalCatalog.open(str(tmp_path / "lake"), create=True)
    place = plain_table(tmp_path / "warehouse" / "orders", 1, 2)
    adopted(catalog, "orders", place)
    other = plain_table(tmp_path / "warehouse" / "other", 1, 3)
    log = f"_delta_log/{1:020d}.json"
    (place / log).write_bytes((other / log).read_bytes())
    for path in other.glob("*.parquet"):
        (place / path.name).write_bytes(path.read_bytes())
    return place


@pytest.fixture
def client(host: Host, tmp_path: Path, folder: Path) -> Client:
    client = Client(host, tmp_path / "lake")
    client.lake()
    return client


def call(client: Client, **arguments: Any) -> list[list[Any]]:
    rows: list[list[Any]] = client.ok("call", procedure="settle", arguments=arguments, text="CALL …")["rows"]
    return rows


def test_a_dry_run_shows_both_choices_and_changes_nothing(client: Client, folder: Path) -> None:
    before = files_of(folder)
    ours, theirs, both = call(client, table="orders", dry_run=True)
    assert (both[2], both[3]) == ("both", "")
    assert "is nowhere else" in both[8]
    assert ours[:7] == ["default", "orders", "ours", "0, 1", 2, 0, 2]
    assert "is nowhere else" in ours[8]
    assert theirs == ["default", "orders", "theirs", "0, 1", None, None, None, None, None, None]
    assert call(client, table="orders", keep="theirs", dry_run=True) == [theirs]
    assert files_of(folder) == before


def test_theirs_is_kept_by_a_call(client: Client, folder: Path) -> None:
    [[*_, version]] = call(client, table="lake.default.orders", keep="THEIRS")
    assert version == client.lake().timeline.head.version
    assert client.lake().database([named("orders")]).tables[named("orders")].version == 2
    assert ids(folder) == [1, 3]
    state, _, message = client.refused(
        "call", procedure="settle", arguments={"table": "orders", "keep": "theirs"}, text=""
    )
    assert (state, "has not diverged" in message) == ("55000", True)


def test_a_checkpoint_that_a_plain_writer_made_of_its_own_commits_is_believed(client: Client, folder: Path) -> None:
    """And not one that it made before of what is written over now."""
    DeltaTable(str(folder)).create_checkpoint()
    log = folder / "_delta_log" / f"{1:020d}.json"
    theirs = log.read_bytes()
    log.write_bytes(theirs.replace(b".parquet", b"-x.parquet"))
    arguments = {"table": "orders", "keep": "theirs"}
    state, _, message = client.refused("call", procedure="settle", arguments=arguments, text="")
    assert (state, "something else than the commits of the log (files)" in message) == ("22023", True)
    [[*_, refused, version]] = call(client, table="orders", keep="theirs", dry_run=True)
    assert (refused, version) == (message, None)
    log.write_bytes(theirs)
    assert call(client, table="orders", keep="theirs")[0][-1] == client.lake().timeline.head.version


def test_what_cannot_be_is_refused(client: Client) -> None:
    for arguments, expected in (
        ({"table": "orders"}, "22023"),
        ({"table": "orders", "keep": "mine"}, "22023"),
        ({"table": "orders", "keep": "ours"}, "22023"),
        ({"table": "orders", "keep": "both"}, "22023"),
        ({"table": "nothing", "keep": "ours"}, "42P01"),
    ):
        assert client.refused("call", procedure="settle", arguments=arguments, text="")[0] == expected
    client.begin()
    assert (
        client.refused("call", procedure="settle", arguments={"table": "orders", "keep": "ours"}, text="")[0] == "25001"
    )


def run(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(main, ["settle", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result.output


def test_the_command_asks_for_a_side_and_for_a_yes(tmp_path: Path, folder: Path) -> None:
    root = tmp_path / "lake"
    run(root, "orders", code=2)
    assert "database_version" in run(root, "orders", "--dry-run", "--json")
    shown = run(root, "orders", "--dry-run")
    assert "another table lies in this folder now" in shown
    assert "theirs" in shown
    run(root, "orders", "--theirs", code=1)
    run(root, "orders", "--ours", "--yes", code=1)
    run(root, "orders", "--both", "--yes", code=1)
    assert "settled, as of database version 2" in run(root, "orders", "--theirs", "--yes")
    assert ids(folder) == [1, 3]
    run(root, "orders", "--theirs", "--yes", code=1)


@pytest.mark.parametrize(("side", "lost", "left"), [("ours", [4], [1, 3]), ("both", [], [1, 3, 9])])
def test_a_side_or_both_are_kept_by_the_command(
    tmp_path: Path, folder: Path, side: str, lost: list[int], left: list[int]
) -> None:
    """Of commits that the table refuses."""
    root = tmp_path / "lake"
    run(root, "orders", "--theirs", "--yes")
    catalog = TransactionalCatalog.open(str(root))
    log = folder / "_delta_log"
    [metadata] = [
        line
        for line in (log / f"{0:020d}.json").read_text(encoding="utf-8").splitlines()
        if "metaData" in json.loads(line)
    ]
    body = json.loads(metadata)
    body["metaData"]["configuration"] = {"lockstep.external_commits": "refuse"}
    (log / f"{3:020d}.json").write_bytes(render([{"commitInfo": {"operation": "SET TBLPROPERTIES"}}, body]))
    assert catalog.database([named("orders")]).tables[named("orders")].version == 3
    plain_table(folder, 9)
    shown = json.loads(run(root, "orders", f"--{side}", "--yes", "--json"))
    assert [(each["keep"], each["lost_versions"]) for each in shown["choices"]] == [(side, lost)]
    assert shown["database_version"] == 4
    assert ids(folder) == left
    assert ids(folder, 4) == [1, 3, 9]


@pytest.mark.parametrize("said", [("--ours", "--theirs"), ("--theirs", "--both"), ("--ours", "--theirs", "--both")])
@pytest.mark.parametrize("way", ["--yes", "--dry-run"])
def test_the_command_takes_one_side_and_settles_nothing_by_two(
    tmp_path: Path, folder: Path, said: tuple[str, ...], way: str
) -> None:
    before = files_of(folder)
    done = CliRunner().invoke(main, ["settle", str(tmp_path / "lake"), "orders", *said, way])
    assert done.exit_code == 2
    assert "give one of them" in done.output
    assert files_of(folder) == before
