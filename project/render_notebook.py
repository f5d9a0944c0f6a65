"""The tutorial as a notebook: docs/tutorial.ipynb, out of docs/tutorial.md and its outputs, which the tests compare.

The format is nbformat 4.5 (https://nbformat.readthedocs.io/en/latest/format_description.html).
"""

from __future__ import annotations

import json
import re
from typing import Any

BLOCK = re.compile(
    r"(?:^<!-- not run: .*? -->\n)?^```(?P<language>sql|python)\n(?P<code>.*?)^```\n"
    r"(?:\n<!-- output -->\n```text\n(?P<output>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)
HELPER = '''

from lockstep.scripts.splitting import split


def sql(script):
    """Run the statements of a script, and return the rows of the last one."""
    for statement in split(script):
        rows = spark.sql(statement.text)
    return rows
'''
"""What the cells of SQL call; it stands with the session."""


def notebook(page: str) -> str:
    """Return a page as a notebook: a cell for each block, with what it prints, and one for the text between two.

    Raises:
        ValueError: the page has no Python block that makes the session.
    """
    cells: list[dict[str, Any]] = []
    at, is_session_made = 0, False
    for block in BLOCK.finditer(page):
        cells += _text(page[at : block.start()])
        at, code = block.end(), block["code"]
        if block["language"] == "sql":
            code = f'sql("""\n{code}""")' + (".show()" if block["output"] else ";")
        elif "getOrCreate" in code:
            code, is_session_made = code.rstrip() + HELPER, True
        cells.append(_code(code.strip(), block["output"]))
    if not is_session_made:
        raise ValueError("the page has no block that makes the session")
    cells += _text(page[at:])
    content = {
        "cells": [{**cell, "id": f"cell-{number}"} for number, cell in enumerate(cells, 1)],
        "metadata": {"language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _text(text: str) -> list[dict[str, Any]]:
    """Return a cell of text, whose links lead to pages beside the notebook; none if there is no text."""
    text = re.sub(r"^<!--.*?-->\n?", "", text, flags=re.MULTILINE).strip()
    return [{"cell_type": "markdown", "metadata": {}, "source": text.splitlines(keepends=True)}] if text else []


def _code(code: str, output: str | None) -> dict[str, Any]:
    printed = [{"output_type": "stream", "name": "stdout", "text": output.splitlines(keepends=True)}] if output else []
    return {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {},
        "source": code.splitlines(keepends=True),
        "outputs": printed,
    }
