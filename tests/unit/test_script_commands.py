"""`lockstep plan`, and of `lockstep run` what happens before Spark starts: everything that is refused."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from lockstep.cli.main import main
from lockstep.errors import UnsupportedError
from lockstep.scripts.script import BYTES_AT_MOST, Step, read
from lockstep.scripts.splitting import Statement
from lockstep.spark.script import CHARACTERS_AT_MOST, message_and_place, run_script

SCRIPT = """-- ${comment}
CREATE TABLE lake.bank.t (a INT);
INSERT INTO lake.bank.t SELECT a FROM s VERSION AS OF 3 WHERE day = '${day}';

SHOW TABLES;
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "load.sql"
    path.write_text(SCRIPT)
    return path


def lockstep(*args: object, input: str | None = None) -> Result:
    return CliRunner().invoke(main, [str(arg) for arg in args], input=input)


def test_a_plan_is_a_table(script: Path) -> None:
    done = lockstep("plan", script, "--var", "day=2026-03-01")
    assert done.exit_code == 0, done.output
    assert [line.strip() for line in re.sub(" {2,}", "  ", done.stdout).splitlines()] == [
        "line  stage  after  reads  writes  statement",
        "1  2  1  lake.bank.t  CREATE TABLE lake.bank.t (a INT)",
        "2  3  2  1  (s)  lake.bank.t  INSERT INTO lake.bank.t SELECT a FROM s VERSION AS OF 3 WHE…",
        "3  5  3  2  everything  everything  SHOW TABLES",
        "",
        "these wait for all before them, and all after them wait for these",
        "because",
        "3  sqlglot cannot parse it",
        "",
        "3 statements in 3 stages",
    ]


@pytest.mark.parametrize("options", [["--output", "json"], ["--json"]])
@pytest.mark.parametrize("command", [["plan"], ["run", "--dry-run", "--atomic", "--root", "/nowhere"]], ids=" ".join)
def test_a_plan_is_json(command: list[str], options: list[str], script: Path) -> None:
    done = lockstep(*command, script, "--var", "day=x", *options)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found[1] == {
        "statement": 2,
        "line": 3,
        "column": 1,
        "stage": 2,
        "after": [1],
        "reads": [],
        "mentions": ["s"],
        "writes": ["lake.bank.t"],
        "defines": [],
        "everything": None,
        "text": "INSERT INTO lake.bank.t SELECT a FROM s VERSION AS OF 3 WHERE day = 'x'",
    }
    assert found[2]["everything"] == "sqlglot cannot parse it"


def test_a_dry_run_shows_the_statements_as_spark_would_get_them(script: Path) -> None:
    script.write_text("SELECT 1;\n\n  SELECT '${day}'\n  AS \x1b[31mday")
    shown = lockstep("run", script, "--dry-run", "--var", "day=2026-03-01").stdout
    assert shown.startswith(
        "-- line 1\nSELECT 1;\n\n-- line 3\nSELECT '2026-03-01'\n  AS \N{REPLACEMENT CHARACTER}[31mday;\n\n"
    )
    assert shown.endswith("2 statements in 2 stages\n")


def test_a_script_comes_from_standard_input_too() -> None:
    assert json.loads(lockstep("plan", "-", "--json", input="SELECT * FROM t").stdout)[0]["reads"] == ["t"]
    assert "the script, line 1: this has no end" in lockstep("plan", "-", input="SELECT '").stderr


@pytest.mark.parametrize("command", ["plan", "run"])
@pytest.mark.parametrize(
    ("content", "options", "said"),
    [
        (SCRIPT, [], "load.sql: no value for ${day} (line 3): give one with --var name=value (SQLSTATE 22023)"),
        (SCRIPT, ["--var", "day=${x}"], "the value of the variable day has a variable in it: ${x}"),
        ("SELECT 1;\nSELECT `a", [], "load.sql, line 2: this has no end, or is none of Spark's: `a"),
        (b"SELECT '\xff'", [], "load.sql is not UTF-8: byte 8 cannot be read"),
        ("ü" * (BYTES_AT_MOST // 2 + 1), [], f"load.sql has more than {BYTES_AT_MOST} bytes"),
    ],
    ids=["undefined", "variable in a value", "no end", "not UTF-8", "too long, and cut within a character"],
)
def test_what_no_script_is_is_refused(
    command: str, content: str | bytes, options: list[str], said: str, script: Path
) -> None:
    script.write_bytes(content.encode() if isinstance(content, str) else content)
    done = lockstep(command, script, *options)
    assert (done.exit_code, done.stdout) == (1, "")
    assert said in done.stderr


@pytest.mark.parametrize(
    "args",
    [
        ["plan"],
        ["plan", "nosuch.sql"],
        ["plan", "-", "--var", "day"],
        ["plan", "-", "--var", "=x"],
        ["plan", "-", "--var", "a=1", "--var", "a=2"],
        ["plan", "-", "--output", "xml"],
        ["run", "nosuch.sql"],
        ["run", "-", "--conf", "spark.master"],
        ["run", "-", "--catalog", "lake"],
    ],
    ids=" ".join,
)
def test_a_wrong_command_line_is_exit_code_2(args: list[str]) -> None:
    assert lockstep(*args, input="SELECT 1").exit_code == 2


def test_a_byte_order_mark_is_none_of_the_script(script: Path) -> None:
    script.write_bytes(b"\xef\xbb\xbfSELECT 1")
    assert json.loads(lockstep("plan", script, "--json").stdout)[0]["text"] == "SELECT 1"


def test_settings_of_the_command_line_are_defined(script: Path) -> None:
    script.write_text("SELECT '${day}'")
    assert lockstep("run", script, "--dry-run").exit_code == 1
    assert lockstep("run", script, "--dry-run", "--conf", "day=x").exit_code == 0


@pytest.mark.parametrize(
    ("content", "options", "exit_code", "said"),
    [
        (
            "INSERT INTO t VALUES (1);\nCOMMIT",
            ["--atomic"],
            1,
            "load.sql, line 2: COMMIT in a script that is to be one",
        ),
        ("SELECT '${day}'", [], 1, "${day} (line 1)"),
        ("SELECT 1", ["--dry-run"], 0, ""),
    ],
    ids=["transactions in one", "undefined", "dry run"],
)
def test_nothing_of_spark_is_loaded_before_a_script_runs(
    content: str, options: list[str], exit_code: int, said: str, script: Path
) -> None:
    script.write_text(content)
    code = (
        "import atexit, sys; atexit.register(lambda: print(*sys.modules)); from lockstep.cli import main; main.main()"
    )
    command = [sys.executable, "-c", code, "run", str(script), "--root", str(script.parent / "lake"), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == exit_code
    assert said in done.stderr
    assert not {"pyspark", "py4j"} & set(done.stdout.split())
    assert not (script.parent / "lake").exists()


def test_a_spark_that_does_not_start_is_no_traceback(script: Path) -> None:
    script.write_text("SELECT 1")
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from lockstep.cli import main; main.main()",
            "run",
            str(script),
            "--root",
            f"{script}-lake",
        ],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "JAVA_HOME": "/nowhere"},
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "lockstep: Spark does not start: [JAVA_GATEWAY_EXITED]" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_interrupt_while_spark_starts_is_one_line(
    script: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What Py4J logs of it, with a trace, on the root logger, is not shown."""

    def interrupted(**_: object) -> object:
        logging.exception("KeyboardInterrupt while sending command.")  # noqa: LOG015, LOG004 (as Py4J does)
        logging.error("another error")  # noqa: LOG015 (one that is shown)
        raise KeyboardInterrupt

    monkeypatch.setattr("lockstep.spark.script.open_session", interrupted)
    done = lockstep("run", script, "--root", "/nowhere", "--var", "day=x", "--var", "comment=x")
    said = "lockstep: load.sql was interrupted. Nothing is kept but what is committed. (SQLSTATE 57014)\n"
    assert (done.exit_code, done.stdout, done.stderr) == (130, "", said)
    assert caplog.messages == ["another error"]


def test_an_interrupt_of_any_command_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(root: str) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr("lockstep.cli.lake.open_timeline", interrupted)
    done = lockstep("tables", "/nowhere")
    assert (done.exit_code, done.stdout, done.stderr) == (130, "", "lockstep: interrupted\n")


def test_a_client_of_spark_connect_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"inside of lockstep.transaction\(spark\)"):
        run_script(object(), read("x.sql", "SELECT 1"))


# --- where Spark's messages point to ----------------------------------------------------------------------------------

STEP = Step(2, "SELECT a,\n  1/0", Statement("SELECT a,\n  1/0", line=10, column=4))


MESSAGES = {
    "none": ("[X] no place", "[X] no place", None),
    "parser": ("[X] at '/'. (line 2, pos 3)\n\n== SQL ==\nSELECT a,\n  1/0\n---^^^\n", "[X] at '/'.", (11, 4)),
    "rewritten": ("[X] at 'a'. (line 1, pos 6)\n\n== SQL ==\nSELECT b,\n", "[X] at 'a'.", (10, 10)),
    "other text": ("[X] at 't'. (line 1, pos 6)\n\n== SQL ==\nFORM t\n", "[X] at 't'. (line 1, pos 6)", None),
    "analysis": ("[X] no a; line 1 pos 7;\n'Project ['a]\n+- Relation", "[X] no a", (10, 11)),
    "analysis, no plan": ("[X] no a; line 2 pos 0", "[X] no a", (11, 1)),
    "execution": ("[X] by zero.\n== SQL (line 2, position 3) ==\n  1/0\n  ^^^\n", "[X] by zero.", (11, 3)),
    "view": ("[X] by zero.\n== SQL of VIEW lake.v (line 2, position 3) ==\n  1/0\n", "[X] by zero.", None),
    "Lockstep": ("[X] no `a` (line 1, pos 7); it", "[X] no `a` (line 10, pos 10); it", (10, 11)),
    "stack": ("Job aborted: Task 0\n\tat a.b(C.scala:1)\n\tat d", "Job aborted: Task 0", None),
    "long": ("x" * (CHARACTERS_AT_MOST + 1), "x" * CHARACTERS_AT_MOST, None),
}


@pytest.mark.parametrize(("message", "expected", "place"), MESSAGES.values(), ids=MESSAGES)
def test_places_are_shifted_into_the_script(message: str, expected: str, place: tuple[int, int] | None) -> None:
    assert message_and_place(STEP, message) == (expected, place)


def test_a_place_in_a_script_with_variables_is_where_the_script_has_it() -> None:
    [step] = read("x.sql", "SELECT '${day}', nope", {"day": "2026-03-01"}).steps
    assert message_and_place(step, "[X] nope; line 1 pos 21;\n")[1] == (1, 18)
