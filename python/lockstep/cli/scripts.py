"""The commands about scripts: `lockstep run` and `lockstep plan`.

Only `run` starts Spark, and only when it really runs. Standard output has the results, standard error what people
watch: progress, if it is a terminal, and why a script failed.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from lockstep.cli.arguments import INTERRUPTED, absolute
from lockstep.cli.printing import print_json, print_section, print_table, printable, say
from lockstep.display import counted
from lockstep.errors import CancelledError, InvalidError, LockstepError, StatementError
from lockstep.scripts.script import BYTES_AT_MOST, Script, Step, read, refuse_transactions

if TYPE_CHECKING:
    from rich.status import Status

    from lockstep.scripts.plan import Planned, Relation
    from lockstep.spark.script import Done

STATEMENT_WIDTH = 60
"""Characters of a statement where it stands beside others."""


# --- arguments and options --------------------------------------------------------------------------------------------


def _pairs(_: click.Context, param: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    pairs = dict(value.partition("=")[::2] for value in values if value.partition("=")[0].strip() and "=" in value)
    if len(pairs) != len(values):
        raise click.BadParameter("expected each as NAME=VALUE, and each name once", param=param)
    return pairs


_script = click.argument("script", type=click.File("rb"))
_variables = click.option(
    "--var",
    "variables",
    multiple=True,
    callback=_pairs,
    metavar="NAME=VALUE",
    help="What ${NAME} stands for, as spark-sql's --hivevar.",
)
_output = click.option(
    "--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="How to print results."
)
_json = click.option("--json", "output", flag_value="json", help="The same as --output json.")


def _read(file: IO[bytes], variables: dict[str, str], settings: Sequence[str] = ()) -> Script:
    name = "the script" if getattr(file, "name", "<stdin>") == "<stdin>" else Path(file.name).name
    data = file.read(BYTES_AT_MOST + 1)
    if len(data) > BYTES_AT_MOST:  # it may be cut within a character
        raise InvalidError(f"{name} has more than {BYTES_AT_MOST} bytes")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidError(f"{name} is not UTF-8: byte {error.start} cannot be read") from error
    return read(name, text, variables, frozenset(settings))


# --- lockstep plan ----------------------------------------------------------------------------------------------------


@click.command()
@_script
@_variables
@_output
@_json
def plan(script: IO[bytes], variables: dict[str, str], output: str) -> None:
    """Show which tables each statement of SCRIPT reads and writes, and which must wait for which, without Spark.

    Example: lockstep plan load.sql --var day=2026-03-01
    """
    _print_plan(_read(script, variables), output)


def _print_plan(script: Script, output: str) -> None:
    from lockstep.scripts.plan import plan as plan_of

    statements = plan_of(script.steps)
    if output == "json":
        print_json([_as_json(each) for each in statements])
        return
    columns = ["", "line", "stage", "after", "reads", "writes", "statement"]
    print_table(columns, [_row(each) for each in statements])
    everything = [[each.step.number, each.uses.everything] for each in statements if each.uses.everything]
    print_section("these wait for all before them, and all after them wait for these", ["", "because"], everything)
    stages = max((each.stage for each in statements), default=0)
    click.echo(f"\n{counted(len(statements), 'statement')} in {counted(stages, 'stage')}")


def _row(statement: Planned) -> list[object]:
    uses = statement.uses
    reads = [*_names(uses.reads), *(f"({name})" for name in _names(uses.mentions))]
    writes = _names(uses.writes | uses.defines)
    cells = ["everything", "everything"] if uses.everything else [", ".join(reads), ", ".join(writes)]
    after = ", ".join(map(str, statement.after))
    return [statement.step.number, statement.step.source.line, statement.stage, after, *cells, _short(statement.step)]


def _as_json(statement: Planned) -> dict[str, Any]:
    uses, source = statement.uses, statement.step.source
    return {
        "statement": statement.step.number,
        "line": source.line,
        "column": source.column,
        "stage": statement.stage,
        "after": statement.after,
        "reads": _names(uses.reads),
        "mentions": _names(uses.mentions),
        "writes": _names(uses.writes),
        "defines": _names(uses.defines),
        "everything": uses.everything or None,
        "text": statement.step.text,
    }


def _names(relations: frozenset[Relation]) -> list[str]:
    return sorted(map(str, relations))


def _short(step: Step) -> str:
    text = " ".join(step.text.split())
    return text if len(text) <= STATEMENT_WIDTH else f"{text[: STATEMENT_WIDTH - 1]}…"


# --- lockstep run -----------------------------------------------------------------------------------------------------


@click.command()
@_script
@click.option("--atomic", is_flag=True, help="Run all of it in one transaction.")
@_variables
@click.option("--dry-run", is_flag=True, help="Run nothing: show the statements, and their plan as `lockstep plan`.")
@click.option("--root", help="The lake's path or URL. Without it Spark's own defaults configure Lockstep.")
@click.option("--catalog", help="What SQL calls the lake at --root.  [default: lake]")
@click.option("--conf", "settings", multiple=True, callback=_pairs, metavar="NAME=VALUE", help="A setting of Spark's.")
@_output
@_json
@click.pass_context
def run(
    ctx: click.Context,
    *,
    script: IO[bytes],
    atomic: bool,
    variables: dict[str, str],
    dry_run: bool,
    root: str | None,
    catalog: str | None,
    settings: dict[str, str],
    output: str,
) -> None:
    """Run the statements of SCRIPT on Spark, in order, up to the first that fails; - is standard input.

    Example: lockstep run load.sql --root /data/lake --atomic --var day=2026-03-01
    """
    if catalog is not None and root is None:
        raise click.UsageError("--catalog names the lake at --root, which is missing")
    parsed_script = _read(script, variables, list(settings))
    if atomic:
        refuse_transactions(parsed_script)
    if dry_run:
        if output == "text":
            _print_statements(parsed_script)
        _print_plan(parsed_script, output)
        return
    from lockstep.spark.script import open_session, quiet_failures, run_script

    report = _Report(parsed_script, output)
    interrupted = signal.getsignal(signal.SIGINT)
    try:
        with quiet_failures():
            spark = open_session(
                application=f"lockstep run {parsed_script.name}",
                root=None if root is None else absolute(root),
                catalog=catalog or "lake",
                settings=settings,
            )
            # PySpark's own handler cancels all jobs at once, and the JVM would log each with its stack.
            signal.signal(signal.SIGINT, interrupted)
            comment = parsed_script.name if atomic else ""
            tx = run_script(
                spark,
                parsed_script,
                atomic=atomic,
                comment=comment,
                on_begin=report.begin,
                on_done=report.add_result,
                on_interrupt=lambda: spark.sparkContext.setLogLevel("OFF"),
            )
    except CancelledError as error:
        report.fail(error)
        ctx.exit(INTERRUPTED)
    except LockstepError as error:
        report.fail(error)
        ctx.exit(1)
    except KeyboardInterrupt:  # while Spark starts, or once more while it stops
        report.fail(CancelledError(f"{parsed_script.name} was interrupted. Nothing is kept but what is committed."))
        ctx.exit(INTERRUPTED)
    report.end(None if tx is None else tx.result)


def _print_statements(script: Script) -> None:
    """Print each statement as Spark would be given it: with the values of variables."""
    for step in script.steps:
        text = "\n".join(map(printable, step.text.split("\n")))
        click.echo(f"-- line {step.source.line}\n{text};\n")


class _Report:
    """What a run says: results on standard output, as they come or as JSON at the end; progress on standard error."""

    def __init__(self, script: Script, output: str) -> None:
        from rich.console import Console

        self._script = script
        self._output = output
        self._results: list[dict[str, Any]] = []
        self._console = Console(stderr=True, markup=False, highlight=False, emoji=False)
        self._is_watched = sys.stderr.isatty()
        self._status: Status | None = None

    def begin(self, step: Step) -> None:
        if self._is_watched:
            self._status = self._console.status(f"{self._place(step)}  {printable(_short(step))}")
            self._status.start()

    def add_result(self, result: Done) -> None:
        self._stop()
        if self._is_watched:
            self._console.print(f"{self._place(result.step)}  {result.seconds:.1f} s  {printable(_short(result.step))}")
        if self._output == "json":
            self._results.append(
                {
                    "statement": result.step.number,
                    "line": result.step.source.line,
                    "seconds": round(result.seconds, 3),
                    "columns": result.columns,
                    "rows": [list(row) for row in result.rows],
                    "truncated": result.is_cut,
                }
            )
        elif result.columns:
            click.echo(f"line {result.step.source.line}: {printable(_short(result.step))}")
            print_table(result.columns, [["NULL" if value is None else value for value in row] for row in result.rows])
            click.echo(f"… only the first {len(result.rows)} rows\n" if result.is_cut else "")

    def fail(self, error: LockstepError) -> None:
        """Say why on standard error; as JSON also on standard output, beside what was done."""
        self._stop()
        notes = "".join(f"\n{note}" for note in getattr(error, "__notes__", ()))
        say(f"lockstep: {error}{notes}", err=True)
        if self._output == "json":
            fields: dict[str, Any] = {"sqlstate": error.sqlstate, "message": error.message + notes}
            if isinstance(error, StatementError):
                fields |= {"statement": error.number, "line": error.line, "column": error.column}
            self._print_json({"status": "failed", "error": fields})

    def end(self, commit: dict[str, Any] | None) -> None:
        if self._output == "json":
            self._print_json({"status": "done", "committed": commit})
            return
        at = "" if commit is None else f", committed as database version {commit['database_version']}"
        click.echo(f"{self._script.name}: {counted(len(self._script.steps), 'statement')} done{at}")

    def _stop(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None

    def _print_json(self, fields: dict[str, Any]) -> None:
        print_json({"script": self._script.name, **fields, "statements": self._results})

    def _place(self, step: Step) -> str:
        return f"[{step.number}/{len(self._script.steps)}] line {step.source.line}"
