"""Scripts that really run: `lockstep run` in this process's Spark, `%%lockstep` in a real IPython, and their page."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from IPython.core.interactiveshell import InteractiveShell
from pyspark.sql import SparkSession
from traitlets.config import Config

import lockstep
from lockstep.cli.main import main
from lockstep.errors import ActiveTransactionError, InvalidError, StatementError
from lockstep.spark.bridge import is_open
from lockstep.spark.magic import CellResult
from tests.support.markdown import blocks
from tests.support.sessions import CATALOG

pytestmark = pytest.mark.long

Run = Callable[..., Result]


@pytest.fixture
def command(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Return a function that runs a command line where the test's lake is, in the test's session."""
    monkeypatch.setattr(SparkSession, "_instantiatedSession", spark)
    monkeypatch.chdir(tmp_path)
    return lambda *args: CliRunner().invoke(main, [*args])


@pytest.fixture
def run(command: Run, tmp_path: Path) -> Run:
    """Return a function that runs a script on the test's lake."""

    def run(script: str, *options: str) -> Result:
        (tmp_path / "x.sql").write_text(script)
        return command("run", "x.sql", "--root", str(tmp_path / CATALOG), *options)

    return run


def entries(root: Path) -> list[tuple[int, str]]:
    """Return the version and the comment of each entry of the timeline."""
    timeline = lockstep.TransactionalCatalog.open(str(root)).timeline
    return [(entry.version, entry.transaction.message) for entry in timeline.entries(0)]


def test_an_atomic_script_is_one_database_version(run: Run, root: Path) -> None:
    create = "CREATE TABLE lake.default.a (x INT);\nINSERT INTO lake.default.a VALUES (${x}), (NULL);\n"
    done = run(f"{create}TABLE lake.default.a ORDER BY x", "--atomic", "--var", "x=1")
    assert done.exit_code == 0, done.output
    assert [line.rstrip() for line in done.stdout.splitlines()] == [
        "line 3: TABLE lake.default.a ORDER BY x",
        *("x", "NULL", "1", ""),
        "x.sql: 3 statements done, committed as database version 1",
    ]
    assert done.stderr == "", "nobody watches"
    assert entries(root) == [(1, "x.sql")]


def test_of_an_atomic_script_that_fails_nothing_stays(run: Run, spark: Any, root: Path) -> None:
    done = run(
        "CREATE TABLE lake.default.a (x INT);\n\n  SELECT x,\n nope FROM lake.default.a; SELECT 3", "--atomic", "--json"
    )
    assert done.exit_code == 1
    assert "lockstep: x.sql, line 4, column 2: statement 2 of 3 failed: [UNRESOLVED_COLUMN" in done.stderr
    assert "Nothing of the script was kept. (SQLSTATE 42703)" in done.stderr
    said = json.loads(done.stdout)
    assert (said["status"], [each["line"] for each in said["statements"]]) == ("failed", [1])
    assert {key: said["error"][key] for key in ("sqlstate", "statement", "line", "column")} == {
        "sqlstate": "42703",
        "statement": 2,
        "line": 4,
        "column": 2,
    }
    assert not is_open(spark)
    assert entries(root) == []


def test_a_script_with_transactions_of_its_own(run: Run, spark: Any, root: Path) -> None:
    """What it committed stays; what was open when a statement failed does not."""
    spark.sql("CREATE TABLE lake.default.a (x INT)")
    insert = "INSERT INTO lake.default.a VALUES"
    done = run(f"BEGIN; {insert} (1); COMMIT;\n{insert} (2);\nBEGIN; {insert} (3);\nSELECT raise_error('no')")
    assert done.exit_code == 1
    assert "x.sql, line 4, column 1: statement 7 of 7 failed: [USER_RAISED_EXCEPTION] no" in done.stderr
    assert "What is committed stays; the transaction that was open is rolled back. (SQLSTATE P0001)" in done.stderr
    assert not is_open(spark)
    rows = json.loads(run("SELECT x FROM lake.default.a ORDER BY x", "--json").stdout)["statements"][0]["rows"]
    assert rows == [[1], [2]]


def test_a_transaction_that_a_script_leaves_open_is_rolled_back(run: Run, spark: Any, root: Path) -> None:
    done = run("BEGIN; CREATE TABLE lake.default.a (x INT)")
    assert (done.exit_code, is_open(spark), entries(root)) == (1, False, [])
    assert (
        "x.sql ended with a transaction open, which was rolled back: COMMIT is missing (SQLSTATE 25000)" in done.stderr
    )


def test_a_statement_that_ends_the_transaction_of_its_script_is_the_last(run: Run) -> None:
    """EXECUTE IMMEDIATE hides it from the look at the text."""
    done = run("EXECUTE IMMEDIATE 'ROLLBACK';\nSELECT 1", "--atomic")
    assert done.exit_code == 1
    assert "x.sql, line 1: the statement ended the transaction that the script runs in" in done.stderr
    assert "SQLSTATE 25000" in done.stderr


def test_of_a_large_result_the_first_rows_are_kept(run: Run, command: Run) -> None:
    assert run("SELECT id FROM range(1001)").stdout.splitlines()[-3:-1] == ["… only the first 1000 rows", ""]
    # Without --root: the settings that the session has already are enough.
    [found] = json.loads(command("run", "x.sql", "--json").stdout)["statements"]
    assert (len(found["rows"]), found["truncated"]) == (1000, True)


@pytest.fixture
def shell(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    """Return a real IPython, in which the session is called `spark`."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    config = Config()
    config.HistoryManager.enabled = False
    shell = InteractiveShell(config=config)
    shell.user_ns["spark"] = spark
    yield shell
    shell.restore_sys_module_state()


def cell(shell: InteractiveShell, text: str) -> Any:
    """Run a cell as a notebook does; return what it shows, or raise why it failed."""
    done = shell.run_cell(text)
    done.raise_error()
    return done.result


def test_a_cell_is_a_transaction(
    shell: InteractiveShell, spark: Any, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spark.sql("CREATE TABLE lake.default.a (x INT)")
    cell(shell, "%load_ext lockstep.spark.magic")
    shown = cell(
        shell,
        "%%lockstep --comment 'two words' --isolation snapshot\nINSERT INTO lake.default.a VALUES (1), (NULL);\n"
        "SELECT x, '<b>' AS y FROM lake.default.a ORDER BY x;\nINSERT INTO lake.default.a VALUES (2)",
    )
    assert isinstance(shown, CellResult)
    assert repr(shown).splitlines() == ["x | y", "NULL | <b>", "1 | <b>", repr(shown.transaction)]
    assert "<td>1</td><td>&lt;b&gt;</td>" in shown._repr_html_()
    assert "<td>COMMITTED</td>" in shown._repr_html_()
    assert entries(root)[-1] == (shown.transaction.version, "two words")
    assert shell.display_formatter is not None
    drawn, _ = shell.display_formatter.format(InvalidError("<b> is no name"))
    assert "<td>&lt;b&gt; is no name</td>" in drawn["text/html"]
    capsys.readouterr()
    with pytest.raises(StatementError, match="the cell, line 2, column 7: statement 2 of 2 failed"):
        cell(shell, "%%lockstep\nINSERT INTO lake.default.a VALUES (3);\nTABLE lake.default.nope")
    said = capsys.readouterr()
    assert len((said.out + said.err).splitlines()) < 10  # no stack, neither Python's nor the JVM's
    spark.sql("BEGIN")
    with pytest.raises(ActiveTransactionError):
        cell(shell, "%%lockstep\nINSERT INTO lake.default.a VALUES (3)")
    spark.sql("ROLLBACK")
    assert spark.table("lake.default.a").count() == 3


def test_the_page_of_scripts(command: Run, shell: InteractiveShell, tmp_path: Path, repository: Path) -> None:
    """Its blocks are files, command lines and cells; each command line and each cell succeeds, in their order."""
    page, ends = (repository / "docs/scripts.md").read_text(encoding="utf-8"), list[str]()
    for block in blocks(page):
        name = block.text.partition("\n")[0].removeprefix("-- ").removeprefix("# ")
        if block.not_run:
            continue
        if block.language in ("sql", "python"):
            (tmp_path / name).write_text(block.text)
        elif block.language == "ipython":
            cell(shell, block.text)
        elif block.text.startswith("lockstep "):
            done = command(*shlex.split(block.text)[1:])
            assert done.exit_code == 0, f"line {block.line}: {done.output}"
            ends.append(done.stdout.splitlines()[-1])
        else:
            assert block.text.startswith("spark-submit "), "which packaging/test_wheel.py runs"
    assert f"`{ends[0]}`" in page
