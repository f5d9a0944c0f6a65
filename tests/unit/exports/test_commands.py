"""Exports by the command line and by CALL: each is asked for, listed, taken up again and dropped."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.lake.exports import read_exports
from lockstep.retention.expiring import expire_snapshots
from lockstep.timeline import fence
from tests.support.client import Client
from tests.support.commands import lockstep, read
from tests.support.lakes import add, append, create, location, stage, stage_new

BYTE = b"x"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A lake whose database version 1 has a table with one file of one byte, and 2 a file more."""
    catalog = TransactionalCatalog.open(str(tmp_path / "lake"), create=True)
    tx = catalog.begin()
    stage_new(catalog, tx, "t", add("p"), data=BYTE)
    catalog.commit(tx)
    tx = catalog.begin()
    stage(catalog, tx, "t", add("q"), data=BYTE)
    catalog.commit(tx)
    read("tag", tmp_path / "lake", "first", "--at", 1)
    return tmp_path / "lake"


@pytest.mark.parametrize(("at", "files"), [([], 2), (["--at", "1"], 1), (["--at", "First"], 1)])
def test_a_full_export_by_the_command_line(root: Path, tmp_path: Path, at: list[str], files: int) -> None:
    planned = read("export", root, tmp_path / "to", *at, "--dry-run")
    assert (planned["is_done"], planned["files"], (tmp_path / "to").exists()) == (False, files, False)
    done = read("export", root, tmp_path / "to", *at)
    assert (done["mode"], done["files"], done["size"], done["is_done"]) == ("full", files, files, True)
    assert [table["version"] for table in read("tables", tmp_path / "to")] == [0]
    assert lockstep("verify", tmp_path / "to").exit_code == 0
    assert read("exports", root) == []
    assert (
        f"exported, full, database version {done['database_version']}"
        in lockstep(*("export", root, tmp_path / "again", *at)).stdout
    )


def test_a_clone_is_listed_until_it_is_dropped(root: Path, tmp_path: Path) -> None:
    done = read("clone", root, tmp_path / "to")
    [listed] = read("exports", root)
    assert (listed["id"], listed["mode"], listed["target"]) == (done["id"], "partial", f"file://{tmp_path}/to")
    assert done["id"] in lockstep("exports", root).stdout
    refused = lockstep("drop-export", root, done["id"])
    assert refused.exit_code == 1
    assert "nothing was dropped: give --yes" in refused.output
    assert read("exports", root) == [listed]
    assert read("drop-export", root, done["id"], "--yes")["id"] == done["id"]
    assert read("exports", root) == []
    again = lockstep("drop-export", root, done["id"])
    assert again.exit_code == 1
    assert "42704" in again.output


def test_a_minimal_export_is_imported(root: Path, tmp_path: Path) -> None:
    read("export", root, tmp_path / "eod.json", "--mode", "minimal", "--at", "first")
    done = read("import", root, tmp_path / "eod.json", tmp_path / "to", "--mode", "full")
    assert (done["mode"], done["files"], done["database_version"]) == ("full", 1, 1)
    assert [tag["name"] for tag in read("tags", tmp_path / "to")] == ["first"]


@pytest.mark.parametrize(
    ("args", "state"),
    [
        (["--at", "nosuch"], "42704"),
        (["--at", "99"], "22023"),
    ],
)
def test_what_is_not_there_is_refused(root: Path, tmp_path: Path, args: list[str], state: str) -> None:
    refused = lockstep("export", root, tmp_path / "to", *args)
    assert refused.exit_code == 1
    assert state in refused.output
    assert lockstep("export", root, root / "inside").exit_code == 1
    assert read_exports(open_catalog_of(root).lake.storage) == []


def open_catalog_of(root: Path) -> TransactionalCatalog:
    return TransactionalCatalog.open(str(root))


# --- CALL -------------------------------------------------------------------------------------------------------------


def called(client: Client, procedure: str, **arguments: Any) -> list[list[Any]]:
    rows: list[list[Any]] = client.ok("call", procedure=procedure, arguments=arguments, text="CALL …")["rows"]
    return rows


def refused(client: Client, procedure: str, **arguments: Any) -> str:
    return client.refused("call", procedure=procedure, arguments=arguments, text="CALL …")[0]


def test_procedures_export_list_and_drop(one: Client, tmp_path: Path) -> None:
    to = f"file://{tmp_path}/to"
    [[id_, *export]] = called(one, "clone", to=to)
    assert export == ["partial", to, 1, 2, 0, 0, True]
    [[listed, mode, version, _, author, target]] = called(one, "exports")
    assert (listed, mode, version, target) == (id_, "partial", 1, to)
    assert author
    assert called(one, "drop_export", export=id_) == [[id_, to]]
    assert refused(one, "drop_export", export=id_) == "42704"
    assert called(one, "export", to=f"{tmp_path}/full", mode="FULL", version=0)[0][3:5] == [0, 0]
    called(one, "create_tag", tag="eod", version=1)
    assert called(one, "export", to=f"{tmp_path}/eod.json", tag="EOD", mode="minimal")[0][3] == 1
    arguments = {"from": f"{tmp_path}/eod.json", "to": f"{tmp_path}/imported"}
    assert called(one, "import", **arguments, dry_run=True)[0][-1] is False
    assert called(one, "import", **arguments)[0][1:4] == ["partial", f"file://{tmp_path}/imported", 1]


def test_calls_that_make_no_sense_are_refused(one: Client, tmp_path: Path) -> None:
    assert refused(one, "export", to=f"{tmp_path}/to", mode="half") == "22023"
    assert refused(one, "export", to=f"{tmp_path}/to", version=1, tag="eod") == "22023"
    assert refused(one, "export", to=f"{tmp_path}/to", tag="eod") == "42704"
    assert refused(one, "export", to=None) == "22023"
    assert refused(one, "import", **{"from": f"{tmp_path}/none", "to": f"{tmp_path}/to"}) == "22023"
    one.begin()
    for procedure, arguments in {
        "export": {"to": f"{tmp_path}/to"},
        "clone": {"to": f"{tmp_path}/to"},
        "import": {"from": f"{tmp_path}/a", "to": f"{tmp_path}/to"},
        "drop_export": {"export": "x"},
    }.items():
        assert refused(one, procedure, **arguments) == "25001"


def test_a_clone_goes_to_the_root_of_a_catalog_that_is_named(one: Client, tmp_path: Path) -> None:
    catalogs = {"lake": one.options, "lake2": {"root": str(tmp_path / "second")}, "none": {}}

    def ask(procedure: str, **arguments: Any) -> dict[str, Any]:
        return {"procedure": procedure, "arguments": arguments, "text": "CALL …", "catalogs": catalogs}

    [planned] = one.ok("call", **ask("clone", to="lake2", dry_run=True))["rows"]
    assert (planned[2], (tmp_path / "second").exists()) == (f"file://{tmp_path}/second", False)
    [[id_, mode, target, *_]] = one.ok("call", **ask("clone", to="lake2"))["rows"]
    assert (mode, target) == ("partial", f"file://{tmp_path}/second")
    assert len(read("tables", tmp_path / "second")) == 2
    assert [row[0] for row in called(one, "exports")] == [id_]
    for to, why in (
        ("lake", "is the lake itself"),
        ("none", "catalog none, which has no root: set spark.sql.catalog.none.root"),
        ("LAKE2", "or the name of a Lockstep catalog of this session (lake2, none)"),
    ):
        state, _, message = one.refused("call", **ask("clone", to=to))
        assert (state, why in message) == ("22023", True), message
    state, _, message = one.refused("call", **ask("export", to="lake2", mode="minimal"))
    assert (state, "a minimal export is a file" in message) == ("22023", True)


def test_a_relative_path_is_refused_before_anything_is_written(
    one: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be below the driver's working directory: nobody meant that who wrote the name of a catalog."""
    monkeypatch.chdir(tmp_path)
    called(one, "export", to=f"{tmp_path}/eod.json", mode="minimal")
    called(one, "drop_export", export=called(one, "exports")[0][0])
    before = sorted(tmp_path.rglob("*"))
    for to in ("lake2", "./lake2", "../lake2", "sub/lake2", "~/lake2", ""):
        for procedure in ("export", "clone"):
            state, _, message = one.refused("call", procedure=procedure, arguments={"to": to}, text="CALL …")
            assert (state, "a path below whatever folder the driver runs in" in message) == ("22023", True), message
    for arguments in ({"from": "eod.json", "to": f"{tmp_path}/to"}, {"from": f"{tmp_path}/eod.json", "to": "to"}):
        assert refused(one, "import", **arguments) == "22023"
    assert sorted(tmp_path.rglob("*")) == before


def test_what_an_export_needs_is_kept_as_what_a_tag_names(
    one: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a table that changed since: versions expire but for the one that the export holds, until that is dropped."""
    monkeypatch.setattr(fence, "GRACE_SECONDS", 0.0)  # no process but this one
    one.options["deletion-grace"] = "0"  # no reader has begun before
    house = one.house()
    catalog = house.catalog
    create(catalog, "c", files=["p"])
    request = {"uri": house.uris.head(location(catalog, "c")), "catalogs": {"lake": one.options}}

    def kept() -> tuple[int, list[int]]:
        now = catalog.lake.clock()
        expire_snapshots(catalog.lake, older_than=now, retain_last=1, grace=timedelta())
        answer = one.ok("kept_versions", **request)
        return answer["first"], answer["alone"]

    [[id_, *_]] = called(one, "clone", to=f"{tmp_path}/to")
    for path in ("q", "r"):
        append(catalog, "c", path)
    assert kept() == (2, [0])
    called(one, "drop_export", export=id_)
    append(catalog, "c", "s")
    assert kept() == (3, [])


def test_a_clone_is_promoted_with_the_options_of_the_sessions_catalog_of_its_lake(
    one: Client, two: Client, root: Path, tmp_path: Path
) -> None:
    """One session has a catalog of the clone, and one of the lake: that one's lake is used, with what it knows."""
    to = tmp_path / "to"
    called(one, "clone", to=str(to))
    clone = TransactionalCatalog.open(str(to))
    clone.run(lambda tx: tx.changing().create_namespace(("made",), {}))
    two.options = {"root": str(to)}
    catalogs = {"broken": {"root": ""}, "lake": two.options, "source": one.options}
    asked = {"procedure": "promote", "arguments": {}, "text": "CALL …", "catalogs": catalogs}
    [row] = two.ok("call", **asked)["rows"]
    assert row[-1] is True
    [house] = [house for house in two.host.lakehouses if house.name == "source"]
    assert house.catalog.timeline.head.version == row[3]
    assert ("made",) in house.catalog.timeline.head.namespaces
