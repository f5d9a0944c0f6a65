"""The command line: what each command prints, and the exit codes that scripts rely on."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from lockstep._version import __version__
from lockstep.catalog import TransactionalCatalog
from lockstep.cli.main import main
from lockstep.delta.log import commit_path
from lockstep.errors import UnavailableError
from lockstep.spark import session
from lockstep.timeline.entry import Batch, Name, ViewDefinition
from lockstep.timeline.log import HINT, entry_path

ORDERS = Name(namespace=("sales",), table="orders")


def add(path: str) -> str:
    stats = json.dumps({"numRecords": 2})
    return json.dumps({"add": {"path": path, "partitionValues": {}, "size": 1, "dataChange": True, "stats": stats}})


def commit_info(operation: str) -> str:
    return json.dumps({"commitInfo": {"operation": operation}})


def lockstep(*args: object) -> Result:
    return CliRunner().invoke(main, [str(arg) for arg in args])


def read(*args: object) -> Any:
    """What a command prints with --json."""
    done = lockstep(*args, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def orders(root: Path) -> str:
    """Make a lake whose database version 2 creates a table, and 3 appends to it; return the table's location."""
    catalog = TransactionalCatalog.open(str(root), create=True, author="ada")
    catalog.run(lambda tx: tx.changing().create_namespace(("sales",), {"owner": "[bold]ada"}), "CREATE NAMESPACE sales")
    creation = catalog.reserve(ORDERS)
    content = f"{commit_info('CREATE TABLE')}\n{add('a.parquet')}\n"
    for file in ("a.parquet", "b.parquet"):
        catalog.lake.storage.put(f"{creation.location}/{file}", b"rows")
    catalog.write(creation.location, 0, content, creation=creation, text="CREATE TABLE orders")
    catalog.write(creation.location, 1, f"{commit_info('WRITE')}\n{add('b.parquet')}\n", text="INSERT INTO orders")
    return creation.location


def test_init_makes_a_lake_and_leaves_one_that_is_there(root: Path) -> None:
    assert read("init", root) == {"root": f"file://{root}", "database_version": 0, "created": True}
    assert read("init", root)["created"] is False
    assert "there is a lake already, at database version 0" in lockstep("init", root).stdout


def test_the_module_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "lockstep", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"lockstep, version {__version__}\n"


def test_log_lists_the_newest_versions_first(root: Path, orders: str) -> None:
    assert [entry["version"] for entry in read("log", root)] == [3, 2, 1, 0]
    assert [entry["version"] for entry in read("log", root, "-n", 2)] == [3, 2]
    newest = read("log", root, "-n", 1)[0]
    assert (newest["tables"], newest["rows_added"], newest["author"]) == (["sales.orders"], 2, "ada")
    assert "INSERT INTO orders" in lockstep("log", root).stdout.splitlines()[1]


def test_show_tells_everything_an_entry_says(root: Path, orders: str) -> None:
    shown = lockstep("show", root, 2).stdout
    for expected in (
        "transaction",
        "ada",
        "CREATE TABLE orders",
        "create  sales.orders",
        "-1 → 0",
        "inline, 2 actions",
    ):
        assert expected in shown
    assert read("show", root, 2)["writes"][0]["location"] == orders
    assert "[bold]ada" in lockstep("show", root, 1).stdout  # what users wrote is no markup


def test_a_batch_is_shown_and_logged(root: Path) -> None:
    catalog = TransactionalCatalog.open(str(root), create=True)
    catalog.commit(catalog.begin(batch=Batch(application="orders", number=7)))
    assert "batch 7 of application orders" in lockstep("show", root, 1).stdout
    assert "batch" not in lockstep("show", root, 0).stdout
    assert [entry["batch"] for entry in read("log", root)] == [{"application": "orders", "number": 7}, None]


def test_show_of_version_0_is_the_empty_database(root: Path, orders: str) -> None:
    assert read("show", root, 0)["kind"] == "create"


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


def test_verify_finds_a_missing_commit(root: Path, orders: str) -> None:
    (root / commit_path(orders, 0)).unlink()
    assert problems(root) == [("missing", 0)]


def test_verify_takes_what_deltas_clean_up_deleted_for_expired(root: Path, orders: str) -> None:
    (root / commit_path(orders, 0)).unlink()
    (root / commit_path(orders, 1)).with_suffix(".checkpoint.parquet").touch()
    done = lockstep("verify", root)
    assert done.exit_code == 0
    assert "1 of them expired" in done.stdout


def test_verify_looks_for_a_moved_commit_where_it_is_now(root: Path, orders: str) -> None:
    published = root / commit_path(orders, 1)
    ours = published.read_text()
    published.write_text(f"{commit_info('WRITE')}\n{add('foreign.parquet')}\n")
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
    monkeypatch.setattr(session, "session_jars", lambda: [Path("/jars/a.jar"), Path("/jars/b.jar")])
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
