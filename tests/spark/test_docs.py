"""Every SQL and Python block of the documentation runs, page by page, in the order of the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lockstep.scripts.splitting import split
from tests.support.markdown import Block, blocks
from tests.support.sparks import since

REPOSITORY = Path(__file__).parents[2]
PAGES = ["README.md", "docs/hosts.md", "docs/isolation.md", "docs/limits.md", "docs/streaming.md", "sql/grammar.md"]
ELSEWHERE = {"docs/scripts.md"}
"""Pages whose blocks are files and command lines: test_scripts.py runs them, and packaging/test_wheel.py the last."""


@since("4.2", "all that the pages show")
@pytest.mark.parametrize("page", PAGES)
def test_the_blocks_of_a_page_run(page: str, spark: Any, tmp_path: Path) -> None:
    """One session and one namespace of names for a page; nothing may be left open at its end."""
    names: dict[str, Any] = {"spark": spark, "checkpoints": str(tmp_path / "checkpoints")}
    for block in blocks((REPOSITORY / page).read_text(encoding="utf-8")):
        if block.language in ("sql", "python") and not block.not_run:
            try:
                run(block, spark, names)
            except Exception as error:
                error.add_note(f"in {page}, line {block.line}:\n{block.text}")
                raise
    assert spark.sparkContext._gateway.jvm.lockstep.spark.Bridge.current(spark._jsparkSession) is None


def run(block: Block, spark: Any, names: dict[str, Any]) -> None:
    if block.language == "python":
        exec(compile(block.text, "<documentation>", "exec"), names)
        return
    for statement in split(block.text):
        spark.sql(statement.text).collect()


def test_every_page_with_such_blocks_is_run() -> None:
    found = [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/*.md"), *REPOSITORY.glob("sql/*.md")]
    with_blocks = {
        path.relative_to(REPOSITORY).as_posix()
        for path in found
        if any(block.language in ("sql", "python") for block in blocks(path.read_text(encoding="utf-8")))
    }
    assert with_blocks <= {*PAGES, *ELSEWHERE}
