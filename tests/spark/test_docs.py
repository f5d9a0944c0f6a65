"""Every SQL and Python block of the documentation runs, page by page, in the order of the page.

Where the page says what a block prints (`tests/support/markdown.py`), it prints that: of SQL it is the rows of the last
statement, as Spark's `show` puts them.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lockstep.scripts.splitting import split
from tests.support.markdown import Block, blocks
from tests.support.sessions import SMALL
from tests.support.sparks import since

pytestmark = pytest.mark.long

REPOSITORY = Path(__file__).parents[2]
PAGES = [
    "README.md",
    "docs/dataframes.md",
    "docs/errors.md",
    "docs/exports.md",
    "docs/hosts.md",
    "docs/install.md",
    "docs/isolation.md",
    "docs/limits.md",
    "docs/migration.md",
    "docs/operating.md",
    "docs/settings.md",
    "docs/sql.md",
    "docs/storage.md",
    "docs/streaming.md",
    "docs/system-tables.md",
    "docs/tutorial.md",
    "sql/grammar.md",
]
FOLDERS = ("/backup/", "/data/warehouse")
"""Where the pages have copies of a lake, and tables of others; the tests have them in their own folder."""

ELSEWHERE = {"docs/scripts.md", "docs/python.md"}
"""Pages whose blocks are files and command lines: test_scripts.py runs them, and packaging/test_wheel.py the last; and
one without Spark: tests/unit/tables/test_guide.py."""


@since("4.2", "all that the pages show")
@pytest.mark.parametrize("page", PAGES)
def test_the_blocks_of_a_page_run(page: str, connect: Callable[[], Any], tmp_path: Path) -> None:
    """One session and one namespace of names for a page; nothing may be left open at its end."""
    spark = connect()
    spark.newSession = connect  # the page's other sessions are on the test's lake, too
    names: dict[str, Any] = {"spark": spark, "checkpoints": str(tmp_path / "checkpoints")}
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    for folder in FOLDERS:
        text = text.replace(f"'{folder}", f"'{tmp_path}{folder}")
    for block in blocks(text):
        if block.language in ("sql", "python") and not block.not_run:
            try:
                printed = run(block, spark, names)
                assert block.output is None or block.prints(printed), f"it printed:\n{printed}"
            except Exception as error:
                error.add_note(f"in {page}, line {block.line}:\n{block.text}")
                raise
    assert spark.sparkContext._gateway.jvm.lockstep.spark.Bridge.current(spark._jsparkSession) is None


def run(block: Block, spark: Any, names: dict[str, Any]) -> str:
    """Run a block and return what it prints."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        if block.language == "python":
            exec(compile(block.text, "<documentation>", "exec"), names)
        else:
            found = None
            for statement in split(block.text):
                found = spark.sql(statement.text)
                found.collect()
            if found is not None and block.output is not None:
                found.show()
    return printed.getvalue()


@since("4.2", "what the front page shows is the newest")
def test_the_quickstart_runs_as_it_stands(tmp_path: Path) -> None:
    [block] = [b for b in blocks((REPOSITORY / "README.md").read_text(encoding="utf-8")) if "# quickstart.py" in b.text]
    (tmp_path / "quickstart.py").write_text(block.text, encoding="utf-8")
    few = "".join(f"{name} {value}\n" for name, value in SMALL.items())
    (tmp_path / "spark-defaults.conf").write_text(few, encoding="utf-8")  # what a test must not wait for
    done = subprocess.run(
        [sys.executable, "quickstart.py"],
        cwd=tmp_path,
        env={**os.environ, "SPARK_CONF_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert block.output is not None
    assert block.prints(done.stdout), f"it printed:\n{done.stdout}"
    assert not alarms(done.stderr), done.stderr


def alarms(log: str) -> list[str]:
    """Return what a log warns of on our account: of our files and our errors, and any stack trace."""
    return [line for line in log.splitlines() if re.search(r"lockstep:|LOCKSTEP_|^\tat ", line)]


def test_every_page_with_such_blocks_is_run() -> None:
    found = [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/*.md"), *REPOSITORY.glob("sql/*.md")]
    with_blocks = {
        path.relative_to(REPOSITORY).as_posix()
        for path in found
        if any(block.language in ("sql", "python") for block in blocks(path.read_text(encoding="utf-8")))
    }
    assert with_blocks <= {*PAGES, *ELSEWHERE}
