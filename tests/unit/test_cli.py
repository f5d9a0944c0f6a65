"""The command line: what each command prints, and the exit codes that scripts rely on."""

from __future__ import annotations

import inspect
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pyarrow as pa
import pytest

from lockstep._version import __version__
from lockstep.catalog import TransactionalCatalog
from lockstep.cli.main import main
from lockstep.delta.log import commit_path
from lockstep.errors import InvalidError, UnavailableError
from lockstep.lake import roots
from lockstep.spark import configuration
from lockstep.storage import Storage, open_storage
from lockstep.timeline.entry import Name, TagDdl, ViewDefinition
from lockstep.timeline.files import entry_path
from lockstep.timeline.hint import HINT
from tests.support.commands import added, commit_info, lockstep, make_orders, read


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def orders(root: Path) -> str:
    return make_orders(root)


def test_init_makes_a_lake_and_leaves_one_that_is_there(root: Path) -> None:
    assert read("init", root) == {"root": f"file://{root}", "database_version": 0, "created": True}
    assert read("init", root)["created"] is False
    assert "there is a lake already, at database version 0" in lockstep("init", root).stdout


@pytest.mark.parametrize("is_there", [False, True])
def test_init_with_locations_that_cannot_be_read_is_refused(
    root: Path, is_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It said that a lake was made, also where there was one."""
    if is_there:
        lockstep("init", root)
    monkeypatch.setenv("LOCKSTEP_LOCATIONS", str(root.parent / "absent.toml"))
    done = lockstep("init", root)
    assert (done.exit_code, done.stdout) == (1, "")
    assert "LOCKSTEP_LOCATIONS is" in done.stderr
    assert root.exists() == is_there


def lake_at(folder: Path) -> str:
    """Make a lake with an entry in it; return its path."""
    assert lockstep("init", folder).exit_code == 0
    return str(folder)


@pytest.mark.parametrize("below", ["inner", "sales/orders-1", "_lockstep/timeline", "_delta_log"])
def test_init_inside_a_lake_is_refused(root: Path, below: str) -> None:
    done = lockstep("init", f"{lake_at(root)}/{below}")
    assert done.exit_code == 1
    assert "SQLSTATE 22023" in done.stderr
    assert below.startswith("_") or f"is inside the lake file://{root}: " in done.stderr
    assert not (root / "inner").exists()


def test_init_inside_a_lake_that_a_link_leads_to_is_refused(root: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(lake_at(root))
    assert f"is inside the lake file://{tmp_path}/link" in lockstep("init", tmp_path / "link" / "inner").stderr
    (tmp_path / "deep").symlink_to(root / "sub")
    (root / "sub").mkdir()
    assert f"is inside the lake file://{root}" in lockstep("init", tmp_path / "deep" / "inner").stderr


@pytest.mark.parametrize(("below", "said"), [(".", "is the folder of a Delta table"), ("a/b", "is inside the Delta")])
def test_init_in_a_delta_table_is_refused(below: str, said: str, tmp_path: Path) -> None:
    log = tmp_path / "table" / "_delta_log"
    log.mkdir(parents=True)
    log.joinpath(f"{0:020}.json").touch()
    done = lockstep("init", tmp_path / "table" / below)
    assert done.exit_code == 1
    assert said in done.stderr
    assert [path.name for path in (tmp_path / "table").iterdir()] == ["_delta_log"]


def test_init_inside_a_lake_of_a_bucket_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A local lake plays the one that is at the top of a bucket; every prefix above the new root is looked at."""
    lake, looked = open_storage(lake_at(root)), list[str]()

    def opened(url: str) -> Storage:
        looked.append(url)
        if url == "s3://bucket":
            return lake
        raise UnavailableError("this prefix is not yours to list")

    monkeypatch.setattr(roots, "open_storage", opened)
    with pytest.raises(InvalidError, match="s3://bucket/a/b is inside the lake s3://bucket: "):
        roots.refuse_unless_free("s3://bucket/a/b")
    assert list(dict.fromkeys(looked)) == ["s3://bucket/a/b", "s3://bucket/a", "s3://bucket"]


def test_no_other_way_to_make_a_lake_makes_one_inside_a_lake(root: Path) -> None:
    """As a session's catalog does, with `create`; also where the lake around it cannot be listed."""
    lake_at(root)
    with pytest.raises(InvalidError, match=f"is inside the lake file://{root}"):
        TransactionalCatalog.open(str(root / "bank" / "inner"), create=True)
    assert not (root / "bank").exists()
    assert TransactionalCatalog.open(str(root), create=True).timeline.head.version == 0, "what is there is opened"


def test_a_lake_that_cannot_be_listed_is_one(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake_at(root)

    def opened(url: str) -> Storage:
        raise UnavailableError(f"{url} is not yours to list")

    monkeypatch.setattr(roots, "open_storage", opened)
    with pytest.raises(InvalidError, match=f"is inside the lake file://{root}"):
        roots.refuse_unless_free(f"file://{root}/bank/inner")


@pytest.mark.parametrize("lost", ["_lockstep", "_lockstep/timeline"])
def test_init_where_a_lake_lost_its_timeline_is_refused(root: Path, orders: str, lost: str) -> None:
    """Nothing is written: the backup of the timeline belongs there. Nor does a session's catalog make a lake there."""
    shutil.move(root / lost, root.parent / "backup")
    before = sorted(root.rglob("*"))
    done = lockstep("init", root)
    assert done.exit_code == 1
    assert f"file://{root} was a lake whose timeline is gone: {orders} is a table of it" in done.stderr
    assert "Restore the folder _lockstep from a backup." in done.stderr
    assert "(SQLSTATE 22023)" in done.stderr
    with pytest.raises(InvalidError, match="whose timeline is gone"):
        TransactionalCatalog.open(str(root), create=True)
    assert sorted(root.rglob("*")) == before
    shutil.move(root.parent / "backup", root / lost)
    assert read("init", root)["database_version"] == 3


def test_init_above_plain_tables_and_other_lakes_is_fine(root: Path, orders: str, tmp_path: Path) -> None:
    tmp_path.joinpath("plain", "_delta_log").mkdir(parents=True)
    tmp_path.joinpath(f"no_table-{orders[-24:]}").mkdir()
    assert read("init", tmp_path)["created"] is True


def test_init_beside_and_above_a_lake_is_fine(root: Path, tmp_path: Path) -> None:
    lake_at(root)
    assert lockstep("init", tmp_path / "lake2").exit_code == 0
    assert lockstep("init", tmp_path).exit_code == 0
    assert "there is a lake already" in lockstep("init", root).stdout  # and stays one


def test_the_module_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "lockstep", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"lockstep, version {__version__}\n"


def test_tables_lists_an_older_version_too(root: Path, orders: str) -> None:
    [table] = read("tables", root)
    assert (table["name"], table["version"], table["since"]) == ({"namespace": ["sales"], "table": "orders"}, 1, 3)
    assert [table["version"] for table in read("tables", root, "--at", 2)] == [0]
    assert read("tables", root, "--at", 1) == []
    assert "sales.orders" in lockstep("tables", root).stdout


@pytest.fixture
def totals(root: Path, orders: str) -> Name:
    """The view totals, made in database version 4, used and replaced by a transaction in 5."""
    catalog = TransactionalCatalog.open(str(root))
    name = Name(namespace=("sales",), table="totals")
    first, then = (ViewDefinition(text=text, schema="{}") for text in ("SELECT [bold]1", "SELECT 2"))
    catalog.run(lambda tx: tx.changing().create_view(name, first, replace=False))
    tx = catalog.begin()
    tx.read_view(name)
    tx.changing().create_view(name, then, replace=True)
    catalog.commit(tx)
    return name


def test_views_lists_an_older_version_too(root: Path, totals: Name) -> None:
    [view] = read("views", root)
    assert (view["name"], view["definition"]["text"], view["since"]) == (
        {"namespace": ["sales"], "table": "totals"},
        "SELECT 2",
        5,
    )
    assert [view["since"] for view in read("views", root, "--at", 4)] == [4]
    assert read("views", root, "--at", 3) == []
    assert lockstep("views", root).stdout.splitlines()[1].split() == ["sales.totals", "5", "SELECT", "2"]
    assert [table["name"]["table"] for table in read("tables", root)] == ["orders"]


def test_changes_of_views_are_shown_and_logged(root: Path, totals: Name) -> None:
    assert "create  sales.totals  SELECT [bold]1" in lockstep("show", root, 4).stdout
    shown = lockstep("show", root, 5).stdout
    assert "replace  sales.totals  SELECT 2" in shown
    assert shown.split("views used\n")[1].split() == ["sales.totals"]
    assert [entry["views"] for entry in read("log", root, "-n", 3)] == [["sales.totals"], ["sales.totals"], []]
    assert "sales.totals (view)" in lockstep("log", root, "-n", 1).stdout


def test_verify_finds_nothing_in_a_whole_lake(root: Path, orders: str) -> None:
    done = lockstep("verify", root)
    assert done.exit_code == 0
    assert "database version 3: 1 table, 2 table versions, 0 differences" in done.stdout


def problems(root: Path) -> list[tuple[str, int]]:
    done = lockstep("verify", root, "--json")
    assert done.exit_code == 1
    return [(found["problem"], found["table_version"]) for found in json.loads(done.stdout)["differences"]]


def test_verify_finds_a_changed_commit(root: Path, orders: str) -> None:
    (root / commit_path(orders, 1)).write_text("{}\n")
    assert problems(root) == [("different", 1)]
    assert commit_path(orders, 1) in lockstep("verify", root).stdout


def test_verify_finds_an_unpublished_commit(root: Path, orders: str) -> None:
    (root / commit_path(orders, 1)).unlink()
    assert problems(root) == [("unpublished", 1)]


def test_verify_says_of_a_folder_that_is_gone_that_it_is_missing(root: Path, orders: str) -> None:
    """Nobody will publish into it: the next statement is refused."""
    shutil.rmtree(root / orders)
    assert problems(root) == [("missing", 0), ("missing", 1)]


def test_log_says_when_nothing_is_like_what_was_asked_for(root: Path, orders: str) -> None:
    done = lockstep("log", root, "--table", "nope.nope")
    assert (done.exit_code, "no database version is like that" in done.stderr) == (0, True)
    assert json.loads(lockstep("log", root, "--table", "nope.nope", "--json").stdout) == []


def test_verify_finds_a_missing_commit(root: Path, orders: str) -> None:
    (root / commit_path(orders, 0)).unlink()
    assert problems(root) == [("missing", 0)]


def test_verify_counts_what_deltas_clean_up_deleted(root: Path, orders: str) -> None:
    (root / commit_path(orders, 0)).unlink()
    (root / commit_path(orders, 1)).with_suffix(".checkpoint.parquet").touch()
    done = lockstep("verify", root)
    assert done.exit_code == 0
    assert "1 of them no more in a log" in done.stdout


def test_verify_looks_for_a_moved_commit_where_it_is_now(root: Path, orders: str) -> None:
    published = root / commit_path(orders, 1)
    ours = published.read_text()
    published.write_text(f"{commit_info('WRITE')}\n{added('foreign.parquet')}\n")
    (root / HINT).unlink()  # nobody knows any more that ours was published
    TransactionalCatalog.open(str(root)).database()
    assert (root / commit_path(orders, 2)).read_text() == ours
    assert lockstep("verify", root).exit_code == 0
    (root / commit_path(orders, 2)).write_text("{}\n")
    assert problems(root) == [("different", 2)]


def test_verify_reads_only(root: Path, orders: str) -> None:
    """It must not publish what it reports as unpublished: the person who looks decides."""
    (root / commit_path(orders, 1)).unlink()
    before = sorted(root.rglob("*"))
    lockstep("verify", root)
    assert sorted(root.rglob("*")) == before


@pytest.mark.parametrize("command", ["log", "show", "tables", "views", "verify"])
def test_a_corrupt_entry_is_named_with_its_sqlstate(command: str, root: Path, orders: str) -> None:
    (root / entry_path(2)).write_bytes(b'{"format": 1}')
    done = lockstep(command, root, *(["1"] if command == "show" else []))
    assert done.exit_code == 1
    assert not done.stdout
    assert entry_path(2) in done.stderr
    assert "SQLSTATE XX001" in done.stderr


@pytest.mark.parametrize("args", [["log"], ["show", "1"], ["tables"], ["views"], ["verify"]])
def test_a_folder_without_a_lake_is_refused(args: list[str], tmp_path: Path) -> None:
    done = lockstep(args[0], tmp_path, *args[1:])
    assert done.exit_code == 1
    assert done.stderr.startswith(f"lockstep: no Lockstep timeline at file://{tmp_path}")
    assert "SQLSTATE 22023" in done.stderr


def test_a_version_that_does_not_exist_is_refused(root: Path, orders: str) -> None:
    for args in (("show", root, 9), ("tables", root, "--at", 9), ("views", root, "--at", 9)):
        done = lockstep(*args)
        assert done.exit_code == 1
        assert "database version 9 does not exist: there are 0 to 3" in done.stderr


@pytest.mark.parametrize(
    "args", [["show", "x"], ["log", "x", "-n", "0"], ["tables"], ["nothing"], ["log", "x", "--no"]]
)
def test_a_wrong_command_line_is_exit_code_2(args: list[str]) -> None:
    assert lockstep(*args).exit_code == 2


def test_conf_prints_spark_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configuration, "session_jars", lambda: [Path("/jars/a.jar"), Path("/jars/b.jar")])
    monkeypatch.chdir(tmp_path)
    lines = dict(line.split(" ", 1) for line in lockstep("conf", "lake", "--catalog", "prod").stdout.splitlines())
    assert lines["spark.sql.catalog.prod.root"] == str(tmp_path / "lake")
    assert lines["spark.jars"] == "/jars/a.jar,/jars/b.jar"
    assert read("conf", "s3://bucket/lake")["spark.sql.catalog.lake.root"] == "s3://bucket/lake"


def test_conf_refuses_a_catalog_that_sql_cannot_name(monkeypatch: pytest.MonkeyPatch) -> None:
    done = lockstep("conf", "/lake", "--catalog", "my lake")
    assert done.exit_code == 1
    assert "SQLSTATE 22023" in done.stderr


def test_jars_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lockstep.spark.jars.session_jars", lambda: [Path("/a.jar"), Path("/b.jar")])
    assert lockstep("jars").stdout == "/a.jar,/b.jar\n"
    assert read("jars") == ["/a.jar", "/b.jar"]


def test_a_missing_jar_is_an_error_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> list[Path]:
        raise UnavailableError("could not fetch a.jar")

    monkeypatch.setattr("lockstep.spark.jars.session_jars", fail)
    done = lockstep("jars")
    assert (done.exit_code, done.stderr) == (1, "lockstep: could not fetch a.jar (SQLSTATE 58030)\n")


@pytest.mark.parametrize("name", sorted(main.commands))
def test_every_command_has_a_sentence_an_example_and_json(name: str) -> None:
    command = main.commands[name]
    sentence, blank, example = inspect.cleandoc(command.help or "").splitlines()
    assert sentence.endswith(".")
    assert not blank
    assert example.startswith("Example: ")
    assert f"lockstep {name}" in example
    assert "--json" in {option for param in command.params for option in param.opts}
    assert isinstance(command, click.Command)


def test_looking_at_a_lake_imports_no_spark(root: Path, orders: str) -> None:
    code = (
        "import sys; from lockstep.cli import main; main.main(sys.argv[1:], standalone_mode=False); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, "log", root], capture_output=True, text=True, check=True)
    assert not {"pyspark", "py4j", "obstore", "sqlglot"} & set(done.stdout.split())


def test_sql_and_manifest_tell_of_one_version(root: Path) -> None:
    import lockstep as ours

    lake = ours.open(str(root), create=True)
    with lake.transaction() as tx:
        tx.create("t", pa.schema([("id", pa.int64()), ("v", pa.string())])).append({"id": [1, 2], "v": ["a", None]})
    with lake.transaction() as tx:
        tx["t"].delete("id = 1")
    lake.catalog.run(lambda tx: tx.changing().create_tag(TagDdl(action="create", name="eod", version=1)))
    assert read("sql", root, "SELECT count(*) AS n FROM t") == [{"n": 1}]
    assert read("sql", root, "SELECT count(*) AS n FROM t", "--at", 1) == [{"n": 2}]
    assert read("sql", root, "SELECT count(*) AS n FROM t", "--at", "eod") == [{"n": 2}]
    then = lake.catalog.timeline.at(1).committed_at.isoformat()
    assert read("sql", root, "SELECT count(*) AS n FROM t", "--at", then) == [{"n": 2}]
    assert "42704" in lockstep("sql", root, "FROM t", "--at", "2026-13-01").stderr
    assert "NULL" in lockstep("sql", root, "FROM t").stdout
    [table] = json.loads(lockstep("manifest", root, "--at", 1).stdout)["tables"]
    assert (table["table"], table["version"]) == ("default.t", 0)
    assert table["location"].startswith(f"file://{root}/default/t-")
    assert read("manifest", root) == {"database_version": 3, "tables": [table | {"version": 1}]}
    refused = lockstep("sql", root, "SELECT id, v AS id FROM t", "--json")
    assert (refused.exit_code, "SQLSTATE 42701" in refused.stderr) == (1, True)
    for format in ((), ("--json",)):
        refused = lockstep("sql", root, "SELECT '290000-01-01'::DATE AS d", *format)
        assert (refused.exit_code, "SQLSTATE 22008" in refused.stderr) == (1, True)
    refused = lockstep("sql", root, "DELETE FROM t")
    assert (refused.exit_code, "SQLSTATE 0A000" in refused.stderr) == (1, True)


def test_sql_writes_numbers_that_json_has_not_as_texts(root: Path) -> None:
    import lockstep as ours

    ours.open(str(root), create=True)
    query = (
        "SELECT 'nan'::DOUBLE AS n, ['inf'::FLOAT, 1.5] AS l, {'a': '-inf'::DOUBLE, 'b': NULL} AS s, "
        "MAP {'k': 'nan'::DOUBLE} AS m"
    )
    strictly = json.loads(lockstep("sql", root, query, "--json").stdout, parse_constant=pytest.fail)
    assert strictly == [{"n": "NaN", "l": ["Infinity", 1.5], "s": {"a": "-Infinity", "b": None}, "m": [["k", "NaN"]]}]


ODD = "a\x1b[2J\u009b31m\u202eb"
"""Ends a line of what a terminal shows, colours the rest, and turns letters round."""


def test_names_that_anybody_has_given_do_nothing_to_a_terminal(root: Path, orders: str) -> None:
    """Those of files that are to go, and what a message says of a tag."""
    [table] = [path.parent for path in root.glob("**/_delta_log")]
    (table / f"{ODD}.parquet").write_bytes(b"x")
    os.utime(table / f"{ODD}.parquet", (1e9, 1e9))
    shown = lockstep("gc", root, "--dry-run", "--grace", "0s")
    refused = lockstep("untag", root, ODD, "--yes")
    assert (shown.exit_code, refused.exit_code) == (0, 1)
    assert "31m" in shown.stdout
    assert "31m" in refused.stderr
    assert not set(ODD[1:-1]) & set(shown.stdout + refused.stderr) - set("[2J31m")
