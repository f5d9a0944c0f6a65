"""The tutorial's notebook: its cells are those of the page, and Python."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from project.render_notebook import notebook
from tests.support.markdown import blocks

PAGE = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text(encoding="utf-8")


def test_each_block_of_the_page_is_a_cell_with_what_it_prints() -> None:
    cells = [cell for cell in json.loads(notebook(PAGE))["cells"] if cell["cell_type"] == "code"]
    shown = ["".join(line for output in cell["outputs"] for line in output["text"]).strip() for cell in cells]
    page = [block for block in blocks(PAGE) if block.language in ("sql", "python")]
    assert [block.output.strip() if block.output else "" for block in page] == shown
    for block, cell in zip(page, cells, strict=True):
        source = "".join(cell["source"])
        compile(source, "<cell>", "exec")
        assert block.text.strip() in source
        assert source.endswith(".show()") or block.language == "python" or not block.output


def test_all_of_the_pages_text_is_there() -> None:
    cells = json.loads(notebook(PAGE))["cells"]
    text = "".join(line for cell in cells if cell["cell_type"] == "markdown" for line in cell["source"])
    headings = [line for line in PAGE.splitlines() if line.startswith("## ")]
    assert headings
    assert all(heading in text for heading in headings)


def test_a_page_without_a_session_makes_no_notebook() -> None:
    with pytest.raises(ValueError, match="no block that makes the session"):
        notebook("# A page\n\n```sql\nSELECT 1\n```\n")
