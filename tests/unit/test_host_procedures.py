"""The host's answers to CALL: what is no argument, which name is meant, and what a transaction may see."""

from __future__ import annotations

import re
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from lockstep.commit.records import record_of, write
from lockstep.recovery.tags import new_tag
from lockstep.spark.host.procedures import PROCEDURES
from lockstep.spark.host.times import micros_of
from tests.support.client import Client
from tests.support.lakes import add, append, create, foreign, named, stage


def called(client: Client, procedure: str, **arguments: Any) -> list[list[Any]]:
    rows: list[list[Any]] = client.ok("call", procedure=procedure, arguments=arguments, text="CALL …")["rows"]
    return rows


def refused(client: Client, procedure: str, **arguments: Any) -> str:
    return client.refused("call", procedure=procedure, arguments=arguments, text="CALL …")[0]


@pytest.mark.parametrize(
    ("procedure", "arguments"),
    [
        ("create_tag", {"tag": None}),
        ("create_tag", {}),
        ("drop_tag", {"tag": None}),
        ("undrop", {"table": None}),
        ("diff", {"from": None}),
        ("revert", {"version": None}),
        ("restore", {"version": 0, "tables": ["a", None]}),
        ("restore", {"version": 0, "namespaces": [None]}),
    ],
)
def test_null_is_no_argument(one: Client, procedure: str, arguments: dict[str, Any]) -> None:
    one.begin()
    assert refused(one, procedure, **arguments) == "22023"
    assert called(one, "tags") == []


@pytest.mark.parametrize(
    ("setting", "said", "compacts"),
    [
        (None, {}, True),
        ("true", {}, True),
        ("false", {}, False),
        ("false", {"optimize": True}, True),
        ("true", {"optimize": False}, False),
        ("true", {"dry_run": True}, False),
    ],
)
def test_maintain_compacts_as_the_call_says_or_else_the_setting(
    one: Client, setting: str | None, said: dict[str, Any], compacts: bool
) -> None:
    if setting is not None:
        one.options["maintain-optimize"] = setting
    answer = one.ok("call", procedure="maintain", arguments=said, text="CALL …")
    assert answer["compacts"] == ([["default", "a"], ["default", "b"]] if compacts else [])


def test_a_namespace_may_be_called_like_the_catalog(one: Client) -> None:
    catalog = one.lake()
    catalog.run(lambda tx: tx.changing().create_namespace(("lake",), {}))
    create(catalog, "lake.a", files=["inner"])
    catalog.run(lambda tx: tx.changing().drop_table(named("a")))
    catalog.run(lambda tx: tx.changing().drop_table(named("lake.a")))
    assert refused(one, "undrop", table="lake.a") == "42702"
    assert called(one, "undrop", table="`lake`.`lake`.`a`")[0][:2] == ["lake", "a"]
    assert called(one, "undrop", table="lake.default.a")[0][:2] == ["default", "a"]
    one.begin()
    assert refused(one, "restore", version=0, tables=["lake.a"]) == "42702"


def test_vacuum_takes_a_namespace_as_sql_writes_it(one: Client) -> None:
    catalog = one.lake()
    for namespace in ("sales.eu", "Shop"):
        one.ok("create_namespace", namespace=[namespace], properties={})
    create(catalog, "Shop.t")
    assert called(one, "vacuum", namespace="lake.default")[0][0] == 2
    assert called(one, "vacuum", namespace="`sales.eu`")[0][0] == 0
    assert called(one, "vacuum", namespace="lake.`Shop`")[0][0] == 1
    assert refused(one, "vacuum", namespace="sales.eu") == refused(one, "vacuum", namespace="shop") == "3F000"
    assert refused(one, "vacuum", namespace="") == "22023"
    anyhow = one.ok("call", procedure="vacuum", arguments={"namespace": "SHOP"}, text="CALL …", case_sensitive=False)
    assert anyhow["rows"][0][0] == 1
    one.ok("create_namespace", namespace=["lake"], properties={})
    assert refused(one, "vacuum", namespace="lake.Shop") == "42702", "of the catalog, or of the namespace called alike"


def test_a_reader_of_an_older_version_is_told_of_nothing_newer(one: Client) -> None:
    catalog = one.lake()
    then = catalog.database().version
    append(catalog, "a", "x")
    catalog.run(lambda tx: tx.changing().drop_table(named("b")))
    newer = called(one, "diff", **{"from": then})
    assert len(newer) == 2
    assert len(called(one, "dropped_tables")) == 1
    assert called(one, "dropped_tables", most=0) == []
    one.begin(read_only=True, as_of_version=then)
    assert called(one, "diff", **{"from": then}) == []
    assert called(one, "dropped_tables") == []
    assert refused(one, "diff", **{"from": then, "to": then + 1}) == "22023"
    assert refused(one, "diff", **{"from": then + 1}) == "22023"


def test_a_difference_is_between_versions_tags_and_times(one: Client) -> None:
    catalog = one.lake()
    then, at = catalog.database().version, micros_of(catalog.database().committed_at)
    called(one, "create_tag", tag="2026eod", version=then)
    append(catalog, "a", "x")
    newest = catalog.database()
    expected = called(one, "diff", **{"from": then, "to": newest.version})
    assert [row[1:3] for row in expected] == [["default.a", "written"]]
    for older in ({"from": str(then)}, {"from": "2026EOD"}, {"from_timestamp": at}):
        assert called(one, "diff", **older) == expected
        assert called(one, "diff", **older, to_timestamp=micros_of(newest.committed_at)) == expected
        assert called(one, "diff", **older, to="2026eod") == []
    assert refused(one, "diff", to=then) == "22023"
    assert refused(one, "diff", **{"from": then, "from_timestamp": at}) == "22023"
    assert refused(one, "diff", **{"from": "none"}) == "42704"
    assert refused(one, "diff", from_timestamp=0) == "22023"
    assert refused(one, "diff", **{"from": "9" * 5000}) == "22023"
    one.begin(read_only=True, as_of_version=then)
    assert called(one, "diff", **{"from": "2026eod"}) == []
    assert refused(one, "diff", **{"from": then, "to": newest.version}) == "22023"


def test_a_reader_of_an_older_version_knows_the_tags_of_when_it_began(one: Client, two: Client) -> None:
    catalog = one.lake()
    then = catalog.database().version
    append(catalog, "a", "x")
    called(one, "create_tag", tag="Before", version=then)
    one.begin(read_only=True, as_of_tag="before")
    assert [row[:2] for row in called(one, "tags")] == [["Before", then]]
    called(two, "drop_tag", tag="before")
    called(two, "create_tag", tag="later")
    assert [row[:2] for row in called(one, "tags")] == [["Before", then]]
    assert catalog.as_of("later").version == then + 4
    assert one.resolve("a", version="@BEFORE")["version"] == one.resolve("a", version=f"@{then}")["version"] == 0


def test_the_tags_that_a_transaction_was_told_stay_what_they_are(one: Client, two: Client) -> None:
    """What a plain writer did is seen at the first use of a table, unless what was told would change with it."""
    catalog = one.lake()
    one.begin()
    assert called(one, "tags") == []
    called(two, "create_tag", tag="eod")
    foreign(catalog, "a", 1, add("theirs"))
    one.resolve("a")
    assert called(one, "tags") == []


@pytest.mark.parametrize(("days", "told"), [(None, "there"), (2, "there"), (1, "42710")])
def test_a_tag_that_keeps_nothing_any_more_is_not_there_already(one: Client, days: int | None, told: str) -> None:
    """Who asks for it if there is none would go on without anything kept."""
    catalog = one.lake()
    yesterday = catalog.lake.clock() - timedelta(days=1)
    made = new_tag("eod", version=1, days=days, comment="", now=yesterday)
    catalog.run(lambda tx: tx.changing().create_tag(made))
    arguments = {"tag": "EOD", "if_not_exists": True}
    if told == "there":
        assert [row[:2] for row in called(one, "create_tag", **arguments)] == [["eod", 1]]
    else:
        assert refused(one, "create_tag", **arguments) == told
        called(one, "drop_tag", tag="eod")
        called(one, "create_tag", **arguments)


# --- dry runs ---------------------------------------------------------------------------------------------------------


def everything(client: Client) -> dict[str, bytes | None]:
    storage = client.lake().lake.storage
    return {found.path: storage.get(found.path) for found in storage.walk("")}


@pytest.fixture
def lived(one: Client) -> Client:
    """A lake with a tag of version 1, where a went on since, b was renamed and c dropped."""
    catalog = one.lake()
    create(catalog, "c", files=["p"])
    called(one, "create_tag", tag="then", version=catalog.timeline.head.version)
    append(catalog, "a", "x")
    catalog.run(lambda tx: tx.changing().rename_table(named("b"), named("d")))
    catalog.run(lambda tx: tx.changing().drop_table(named("c")))
    return one


DRY: dict[str, dict[str, Any]] = {
    "restore": {"tag": "THEN"},
    "revert": {"version": 4},
    "undrop": {"table": "c"},
    "drop_tag": {"tag": "THEN"},
    "drop_export": {},
    "abort": {},
}


def about(client: Client, procedure: str, tmp_path: Path) -> dict[str, Any]:
    """The arguments of a call, and what they are about."""
    if procedure == "drop_export":
        return {"export": called(client, "clone", to=f"{tmp_path}/to", version=0)[0][0]}
    if procedure == "abort":
        other = client.lake()
        tx = other.begin()
        stage(other, tx, "a", add("never"))
        write(other.lake, record_of(tx, now=other.lake.clock(), process="there:1"))
        return {"transaction": tx.id}
    return DRY[procedure]


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("procedure", DRY)
def test_a_dry_run_gives_the_rows_of_the_call_and_writes_nothing(
    lived: Client, tmp_path: Path, procedure: str, inside: bool
) -> None:
    """But for the database version that the call makes, which nobody knows before it is made."""
    arguments = about(lived, procedure, tmp_path)
    if inside:
        if procedure == "drop_export":
            lived.begin()
            assert refused(lived, procedure, **arguments, dry_run=True) == "25001"
            return
        lived.begin()
    before = everything(lived)
    [planned] = called(lived, procedure, **arguments, dry_run=True)
    assert everything(lived) == before
    assert called(lived, procedure, **arguments, dry_run=True) == [planned]
    if procedure in ("restore", "revert") and not inside:
        lived.begin()  # as the shim does for them
    [done] = called(lived, procedure, **arguments)
    assert [cell for cell in planned if cell is not None] == done[: sum(cell is not None for cell in planned)]
    assert planned[-1] is None or planned == done


@pytest.mark.parametrize("inside", [False, True])
def test_a_dry_run_is_refused_for_what_the_call_is_refused_for(lived: Client, tmp_path: Path, inside: bool) -> None:
    if inside:
        lived.begin()
    for procedure, arguments, why in (
        ("restore", {}, "22023"),
        ("restore", {"version": 99}, "22023"),
        ("restore", {"tag": "none"}, "42704"),
        ("restore", {"version": 1, "tables": ["nowhere"]}, "42P01"),
        ("revert", {"version": 1}, "22023"),
        ("undrop", {"table": "nowhere"}, "42P01"),
        ("drop_tag", {"tag": "none"}, "42704"),
        ("abort", {"transaction": "0" * 24}, "42704"),
    ):
        assert refused(lived, procedure, **arguments, dry_run=True) == why, procedure
    assert called(lived, "drop_tag", tag="none", if_exists=True, dry_run=True) == [["none", False]]


@pytest.mark.parametrize(("procedure", "arguments"), [("undrop", {"table": "c"}), ("restore", {"tag": "then"})])
def test_a_dry_run_looks_for_files(lived: Client, procedure: str, arguments: dict[str, Any]) -> None:
    storage = lived.lake().lake.storage
    [gone] = [each.path for each in storage.walk("default") if "/c-" in each.path and each.path.endswith("/p")]
    storage.delete(gone)
    state, _, message = lived.refused("call", procedure=procedure, arguments={**arguments, "dry_run": True}, text="")
    assert (state, gone in message, "Nothing was changed" in message) == ("58P01", True, True)


@pytest.mark.parametrize("procedure", [name for name, each in PROCEDURES.items() if "dry_run" in each.parameters])
def test_a_dry_run_that_is_null_is_none_that_changes_something(one: Client, procedure: str) -> None:
    """A parameter of a job that was not set would make a look a deletion."""
    before = one.lake().database().version
    needed = dict.fromkeys(islice(PROCEDURES[procedure].parameters, PROCEDURES[procedure].required), "1")
    state, _, message = one.refused("call", procedure=procedure, arguments={**needed, "dry_run": None}, text="")
    assert (state, "dry_run is NULL" in message) == ("22023", True)
    assert one.lake().database().version == before


@pytest.mark.parametrize("inside", [False, True])
def test_a_tag_is_not_made_where_data_files_are_gone_unless_that_is_said(lived: Client, inside: bool) -> None:
    storage = lived.lake().lake.storage
    [gone] = [each.path for each in storage.walk("default") if "/a-" in each.path and each.path.endswith("/x")]
    storage.delete(gone)
    if inside:
        lived.begin()
    arguments = {"tag": "eod", "version": 4}
    state, _, message = lived.refused("call", procedure="create_tag", arguments=arguments, text="")
    assert (state, gone in message, "check => false" in message) == ("58P01", True, True)
    assert refused(lived, "create_tag", tag="eod", check=True) == "58P01"
    assert [row[0] for row in called(lived, "tags")] == ["then"]
    assert called(lived, "create_tag", **arguments, check=False) == [["eod", 4, None]]
    assert called(lived, "create_tag", tag="first", version=1) == [["first", 1, None]]


def test_a_dry_run_in_a_transaction_leaves_it_as_it_was(lived: Client) -> None:
    """It sees what the transaction did, and COMMIT has nothing of what was planned."""
    lived.begin()
    called(lived, "drop_tag", tag="then")
    assert refused(lived, "restore", tag="then", dry_run=True) == "42704"
    assert called(lived, "restore", version=2, dry_run=True)[0][1] == 1
    assert called(lived, "undrop", table="c", dry_run=True)[0][:2] == ["default", "c"]
    lived.ok("commit")
    [entry] = lived.lake().timeline.entries(lived.lake().timeline.head.version - 1)
    assert ([ddl.name for ddl in entry.tags], entry.tables, entry.writes) == (["then"], [], [])


def test_a_dry_run_needs_no_leave_to_write(lived: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = lived.house().catalog.lake
    monkeypatch.setattr(type(lake), "refusal", "this process may only read the lake")
    assert called(lived, "restore", tag="then", dry_run=True)[0][1] == 1
    assert refused(lived, "drop_tag", tag="then") == "25006"


# --- what the grammar says ----------------------------------------------------------------------------------------

GRAMMAR = Path(__file__).parents[2] / "sql" / "grammar.md"


def documented() -> dict[str, tuple[set[str], str]]:
    """Return which parameters the table of the grammar gives each procedure, and the text of what it returns."""
    table = GRAMMAR.read_text(encoding="utf-8").split("| `CALL lake.system.` | returns |\n|---|---|\n")[1]
    found: dict[str, tuple[set[str], str]] = {}
    for line in table.split("\n\n")[0].splitlines():
        _, calls, returns, _ = (cell.strip() for cell in re.split(r"(?<!\\)\|", line))
        parameters = set[str]()
        names = set[str]()
        for name, within in re.findall(r"`(\w+)\(([^`]*)\)`", calls):
            names.add(name)
            parameters |= {each.partition("=>")[0].strip() for each in within.split(",") if each.strip()}
        parameters |= {*re.findall(r"`(\w+)`", calls)}  # in the place of another
        [name] = names
        assert name not in found, f"{name} is there twice"
        found[name] = (parameters, returns)
    return found


def test_the_grammar_has_every_procedure_and_no_other() -> None:
    assert sorted(documented()) == sorted(PROCEDURES)


@pytest.mark.parametrize("name", sorted(PROCEDURES))
def test_the_grammar_has_the_parameters_and_the_columns_of_a_procedure(name: str) -> None:
    parameters, returns = documented()[name]
    assert parameters == {*PROCEDURES[name].parameters}
    if re.search(r"as `vacuum`$|^the same|the columns of both", returns):
        returns += " ".join(documented()[each][1] for each in ("export", "expire_snapshots", "vacuum"))
    words = {*re.findall(r"\w+", returns)}
    assert {*PROCEDURES[name].columns} <= words
