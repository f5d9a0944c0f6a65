"""`CALL lake.system.adopt` and `release`, and `lockstep adopt` and `release`: what is asked, and what comes back."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.errors import LockstepError
from lockstep.spark.host.host import Host
from tests.support.adopting import adopted, plain_table
from tests.support.client import Client, content
from tests.support.commands import run
from tests.support.lakes import NEW_TABLE, add, create, files, named


def called(client: Client, procedure: str, **arguments: Any) -> list[list[Any]]:
    rows: list[list[Any]] = client.ok("call", procedure=procedure, arguments=arguments, text="CALL …")["rows"]
    return rows


def test_a_table_is_adopted_written_by_its_uri_and_released(client: Client, warehouse: Path) -> None:
    folder = plain_table(warehouse / "orders", 1)
    where = f"file://{folder}"
    assert called(client, "adopt", table="lake.default.orders", location=str(folder)) == [
        ["default", "orders", where, 0, None, 1]
    ]
    answer = client.resolve("orders", use="target")
    assert (answer["uri"], answer["location"]) == (f"lockstep://head.file{folder}", where)
    assert client.ok("write", uri=answer["uri"], version=1, actions=content(add("p")))["outcome"] == "committed"
    client.begin()
    uri = client.resolve("orders", use="target")["uri"]
    client.stage(uri, 2, add("q"))
    assert client.ok("commit")["database_version"] == 3
    assert called(client, "release", table="orders") == [["default", "orders", where, 2, 4]]
    assert not client.lake().database().tables


def test_inside_a_transaction_it_is_the_transactions(client: Client, warehouse: Path) -> None:
    folder = plain_table(warehouse / "orders", 1)
    client.begin()
    assert called(client, "adopt", table="orders", location=str(folder))[0][-1] is None
    uri = client.resolve("orders", use="target")["uri"]
    client.stage(uri, 1, add("p"))
    client.ok("rollback")
    assert [path.name for path in folder.glob("_delta_log/*.json")] == [f"{0:020d}.json"]
    assert not client.lake().database().tables


def test_a_write_of_an_adopted_table_asks_no_lake_of_another_session(
    client: Client, host: Host, warehouse: Path, tmp_path: Path
) -> None:
    """Another session may have another lake under the same name: that its files are gone is nothing to this write."""
    theirs = TransactionalCatalog.open(str(tmp_path / "theirs"), create=True, checkpoint_interval=1)
    create(theirs, "a", "b")
    theirs.lake.upkeep.settle()
    other = Client(host, tmp_path / "theirs", "s2")
    assert other.lake().timeline.head.version == 1
    shutil.rmtree(tmp_path / "theirs" / "_lockstep")
    with pytest.raises(LockstepError):
        other.lake().timeline.head.table_at("file:///data/orders")

    called(client, "adopt", table="orders", location=str(plain_table(warehouse / "orders", 1)))
    uri = client.resolve("orders", use="target")["uri"]
    assert client.ok("write", uri=uri, version=1, actions=content(add("p")))["outcome"] == "committed"


def test_a_uri_of_a_table_that_no_catalog_has_is_refused(client: Client, warehouse: Path) -> None:
    folder = plain_table(warehouse / "orders", 1)
    state, _, message = client.refused("write", uri=f"lockstep://head.file{folder}", version=1, actions=content())
    assert state == "22023"
    assert "no Lockstep catalog of this session holds" in message


def test_a_whole_folder_and_a_dry_run_of_it(client: Client, warehouse: Path) -> None:
    plain_table(warehouse / "sales.db" / "orders", 1)
    plain_table(warehouse / "sales.db" / "totals", 1)
    (warehouse / "sales.db" / "totals" / "_delta_log" / f"{0:020d}.json").write_text("{")
    found = called(client, "adopt", folder=str(warehouse), dry_run=True)
    assert [row[1] for row in found] == ["orders", "totals"]
    assert found[0][4] is None
    assert found[1][4] is not None
    assert not client.lake().database().tables
    plain_table(warehouse / "more" / "totals", 1)
    assert len(called(client, "adopt", folder=str(warehouse / "more"), namespace="sales.more")) == 1
    assert [row[:2] for row in called(client, "release", namespace="sales.more")] == [["sales.more", "totals"]]


def test_a_dry_run_says_of_which_tables_the_names_are_taken(
    client: Client, catalog: TransactionalCatalog, root: Path, warehouse: Path
) -> None:
    """By a table of the lake, or by another one of the same call; in another case, too, where that does not count."""
    for name in ("sales.db/orders", "sales.db/totals", "sales/totals", "sales/Totals"):
        plain_table(warehouse / name, 1)
    adopted(catalog, "sales.orders", plain_table(warehouse / "x" / "orders", 1))
    asked = {"procedure": "adopt", "arguments": {"folder": str(warehouse), "dry_run": True}, "text": "CALL …"}
    for case_sensitive, free in ((True, 2), (False, 1)):
        found = client.ok("call", **asked, case_sensitive=case_sensitive)["rows"]
        refused = {row[2].removeprefix(f"file://{warehouse}/"): row[4] or "" for row in found}
        assert "is table sales.orders of this lake already" in refused.pop("x/orders")
        assert "the lake has a table sales.orders already" in refused.pop("sales.db/orders")
        assert [*refused.values()].count("") == free
        assert sum("as well: adopt this one by itself" in reason for reason in refused.values()) == 3 - free
    said = json.loads(run("adopt", root, warehouse, "--dry-run", "--json", code=1))
    assert sum(table["reason"] is None for table in said["tables"]) == 2  # `totals` and `Totals` are two to it
    for way in (["--yes"], []):
        assert "42P07" in run("adopt", root, warehouse / "sales.db", "--namespace", "sales", *way, code=1)
    shutil.rmtree(warehouse / "sales")
    plain_table(warehouse / "system" / "t", 1)
    assert "42939" in run("adopt", root, warehouse, "--dry-run", code=1)


@pytest.mark.parametrize(
    ("procedure", "arguments"),
    [
        ("adopt", {}),
        ("adopt", {"table": "t"}),
        ("adopt", {"location": "/t"}),
        ("adopt", {"table": "t", "location": "/t", "folder": "/f"}),
        ("adopt", {"folder": "/f", "table": "t"}),
        ("adopt", {"namespace": "n"}),
        ("adopt", {"schema": "spark_catalog.s", "folder": "/f"}),
        ("release", {}),
        ("release", {"table": "t", "namespace": "n"}),
    ],
)
def test_what_says_too_little_or_too_much(client: Client, procedure: str, arguments: dict[str, Any]) -> None:
    assert client.refused("call", procedure=procedure, arguments=arguments, text="CALL …")[0] == "22023"


def test_the_command_line(catalog: TransactionalCatalog, root: Path, warehouse: Path) -> None:
    plain_table(warehouse / "sales.db" / "orders", 1)
    folder = plain_table(warehouse / "one", 1)
    assert "sales.orders" in run("adopt", root, warehouse, "--dry-run")
    assert not catalog.database().tables
    said = json.loads(run("adopt", root, warehouse / "sales.db", "--namespace", "s", "--yes", "--json"))
    assert said["database_version"] == 1
    [table] = said["tables"]
    assert table == {
        "name": {"namespace": ["s"], "table": "orders"},
        "location": table["location"],
        "version": 0,
        "reason": None,
    }
    assert named("s.orders") in catalog.database().tables
    assert "2" in run("adopt", root, folder, "--table", "one", "--yes")
    assert f"file://{folder}" in run("tables", root, "--json")
    assert "adopted at version 0" in run("show", root, 2)
    assert "already" in run("adopt", root, folder, "--table", "two", "--dry-run", code=1)
    assert "already" in run("adopt", root, folder, "--table", "two", code=1)
    assert "one" in run("release", root, "one", "s.orders", "--yes")
    assert not catalog.database().tables
    assert run("verify", root)


def test_the_command_line_changes_nothing_where_nobody_can_be_asked(
    catalog: TransactionalCatalog, root: Path, warehouse: Path, tmp_path: Path
) -> None:
    folder = plain_table(warehouse / "one", 1)
    assert "nothing was adopted: give --yes" in run("adopt", root, folder, "--table", "one", code=1)
    assert "nothing was adopted: give --yes" in run("adopt", root, folder, "--table", "one", "--json", code=1)
    assert not catalog.database().tables
    run("adopt", root, folder, "--table", "one", "--yes")
    assert "nothing was released: give --yes" in run("release", root, "one", code=1)
    assert named("one") in catalog.database().tables
    rival = tmp_path / "rival"
    run("init", rival)
    for dry_run in ("--dry-run", "--json"):
        assert "is table default.one of the lake" in run("adopt", rival, folder, "--table", "two", dry_run, code=1)


# --- CREATE TABLE … LOCATION ------------------------------------------------------------------------------------------


def created(client: Client, name: str, location: object, **said: Any) -> dict[str, Any]:
    """Return what a statement asks that has a LOCATION."""
    nothing = {"provider": "delta", "schema": '{"type": "struct", "fields": []}', "partitions": [], "properties": {}}
    return {"namespace": ["default"], "table": name, "location": f"file:{location}", **nothing, **said}


def test_create_table_with_a_location_takes_in_what_is_there(client: Client, warehouse: Path) -> None:
    """Also in a transaction, whose it is then; and what the statement says of it has to be so."""
    folder = plain_table(warehouse / "orders", 1)
    columns = '{"type": "struct", "fields": [{"name": "id", "type": "%s", "nullable": true, "metadata": {}}]}'
    state, _, message = client.refused("create_at", **created(client, "orders", folder, schema=columns % "integer"))
    assert (state, "its columns are id long, not id integer" in message) == ("22023", True)
    assert not client.lake().database().tables
    client.begin()
    client.ok("create_at", **created(client, "orders", folder, schema=columns % "long"))
    client.stage(client.resolve("orders", use="target")["uri"], 1, add("p"))
    client.ok("rollback")
    assert [path.name for path in folder.glob("_delta_log/*.json")] == [f"{0:020d}.json"]
    client.ok("create_at", **created(client, "orders", folder))
    assert client.lake().database().tables[named("orders")].version == 0
    assert client.refused("create_at", **created(client, "orders", folder))[0] == "42P07"
    assert client.refused("create_at", **created(client, "again", folder))[0] == "22023"


def test_a_comment_is_compared_and_no_location_is_none(client: Client, warehouse: Path) -> None:
    folder = plain_table(warehouse / "orders", 1)
    said = created(client, "orders", folder, properties={"comment": "all"})
    state, _, message = client.refused("create_at", **said)
    assert (state, "its comment is None, not 'all'" in message) == ("22023", True)
    for nowhere in ("", " "):
        state, _, message = client.refused("create_at", **created(client, "orders", nowhere))
        assert (state, "its LOCATION is empty, or '.', and names no folder" in message) == ("22023", True)
    assert not client.lake().database().tables


def at(client: Client, table: str, location: object, mode: str = "create") -> dict[str, Any]:
    """Return what a statement asks that fills, or replaces, what it makes at a location."""
    return {"namespace": ["default"], "table": table, "mode": mode, "provider": "delta", "location": f"file:{location}"}


def rows_in(client: Client, uri: str, *files: str, creation: str | None = None) -> dict[str, Any]:
    """Return the first commit of a table, made by a statement on its own."""
    return {"uri": uri, "version": 0, "actions": content(*NEW_TABLE, *map(add, files)), "creation": creation}


def test_where_no_table_is_one_is_made(client: Client, warehouse: Path) -> None:
    """By a statement on its own, and in a transaction; the lake has it where it is."""
    inside = client.lake().lake.storage.url.removeprefix("file://") + "/inside"
    for table, location in (("a", warehouse / "a"), ("b", inside)):
        asked = client.ok("create_at", **created(client, table, location))
        client.ok("write", **rows_in(client, asked["uri"], "p", creation=asked["creation"]))
        found = client.resolve(table, use="live")
        assert (found["location"], found["external"]) == (f"file://{location}", True)
    client.begin()
    asked = client.ok("create_at", **created(client, "c", warehouse / "c"))
    assert "creation" not in asked
    client.stage(asked["uri"], 0, *NEW_TABLE, add("p"))
    client.stage(client.resolve("c", use="target")["uri"], 1, add("q"))
    client.ok("commit")
    assert files(client.lake(), "c") == {"p", "q"}
    assert not client.resolve("a")["external"] or client.lake().database().tables[named("a")].version == 0


def test_what_is_no_place_for_a_new_table_is_refused(client: Client, warehouse: Path) -> None:
    assert client.refused("create_at", **created(client, "t", warehouse, provider="csv"))[0] == "0A000"
    for nowhere in ("", " "):
        for mode in ("create", "create_or_replace"):
            assert client.refused("create", **at(client, "t", nowhere, mode))[0] == "22023"
    plain_table(warehouse / "plain", 1)
    for mode in ("create", "create_or_replace"):
        state, _, message = client.refused("create", **at(client, "t", warehouse / "plain", mode))
        assert (state, "a Delta table is there already" in message) == ("22023", True)
    (warehouse / "csv").mkdir()
    (warehouse / "csv" / "x.csv").write_text("1")
    state, _, message = client.refused("create_at", **created(client, "t", warehouse / "csv"))
    assert (state, "the folder is not empty" in message) == ("22023", True)
    assert not client.lake().database().tables


def test_what_replaces_a_table_stays_where_it_is(client: Client, warehouse: Path) -> None:
    asked = client.ok("create", **at(client, "t", warehouse / "t", "create_or_replace"))
    client.ok("write", **rows_in(client, asked["uri"], "p", creation=asked["creation"]))
    for mode in ("replace", "create_or_replace"):
        assert client.ok("create", **at(client, "t", warehouse / "t", mode))["uri"] == asked["uri"]
        state, _, message = client.refused("create", **at(client, "t", warehouse / "u", mode))
        assert (state, "what replaces a table stays where it is" in message) == ("42613", True)
    assert client.refused("create", **at(client, "u", warehouse / "u", "replace"))[0] == "42P01"
    assert client.refused("create", **at(client, "t", warehouse / "u"))[0] == "42P07"


def test_statements_of_one_driver_that_name_one_folder_are_told_apart(client: Client, warehouse: Path) -> None:
    """The URI is the same: what is written is the table of the statement that wrote it, or of none."""
    rival = Client(client.host, warehouse.parent / "rival", "s2", catalog="other")
    folder = warehouse / "t"
    first, second = (client.ok("create", **at(client, table, folder)) for table in ("first", "second"))
    third = rival.ok("create", **at(rival, "third", folder))
    unknown = rows_in(client, first["uri"], "p")
    state, _, message = client.refused("write", **unknown)
    assert (state, "which of them has written this is not known" in message) == ("22023", True)
    assert first["uri"] == second["uri"] == third["uri"]
    both = {"lake": client.options, "other": rival.options}
    assert client.refused("write", **unknown, catalogs=both)[0] == "22023"
    client.ok("write", **rows_in(client, first["uri"], "p", creation=second["creation"]), catalogs=both)
    for asked, who in ((first, client), (third, rival)):
        late = rows_in(who, asked["uri"], "q", creation=asked["creation"])
        assert who.refused("write", **late, catalogs=both)[0] == "42P07"
    assert [str(name) for name in client.lake().database().tables] == ["default.second"]
    assert not rival.lake().database().tables
    assert files(client.lake(), "second") == {"p"}
    assert not (folder / "q").exists()


def test_a_namespace_has_no_location(client: Client) -> None:
    place = {"location": "file:/data"}
    state, _, message = client.refused("create_namespace", namespace=["s"], properties=place)
    assert (state, "have no folder" in message) == ("0A000", True)
    client.ok("create_namespace", namespace=["s"], properties={})
    assert client.refused("alter_namespace", namespace=["s"], set=place, unset=[])[0] == "0A000"
