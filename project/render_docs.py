"""Write the parts of the documentation that follow from the code: `python -m project.render_docs`.

    docs/timeline.schema.json   JSON Schema of a timeline entry, from `lockstep.timeline.entry.Entry`
    docs/isolation.md           the table of conflict rules, between its two comments, from the two `RULES`, and
    docs/comparison.md          the tables of pairs, from `tests.support.pairs`
    docs/statements.md          the statements and what becomes of each, from `tests.support.statement_cases`
    docs/settings.md            every setting, from `lockstep.settings`
    docs/system-tables.md       the columns of the system tables, from `lockstep.system.tables`
    docs/requests.md            requests to the store of each operation, from `tests.support.request_counts`
    docs/errors.md              the classes of errors, from `lockstep.errors`
    README.md                   what it costs, from docs/benchmarks.md, which `make bench` writes, and
    docs/images/cost.svg        the same, drawn
    docs/images/peers.svg       commits a second beside other systems, from the same page
    docs/images/scale.svg       simulated commits a second, from docs/scale.md
    docs/images/log.svg, …      what a terminal shows, from `project.render_screens`
    docs/tutorial.ipynb         the tutorial as a notebook, from docs/tutorial.md

`tests/unit/test_rendered_docs.py` fails when what is checked in is not what this would write.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from lockstep.conflict import serializable
from lockstep.conflict import writes as conflicts
from lockstep.timeline.entry import FORMAT, MAX_ENTRY_BYTES, Entry
from project import (
    render_costs,
    render_notebook,
    render_pairs,
    render_peers,
    render_requests,
    render_scale,
    render_screens,
    render_settings,
    render_statements,
    render_system_tables,
)

REPOSITORY = Path(__file__).parents[1]


def schema() -> str:
    """Return the JSON Schema of one timeline entry."""
    [found], definitions = msgspec.json.schema_components([Entry], ref_template="#/$defs/{name}")
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Lockstep timeline entry, format {FORMAT}",
        "$comment": f"one file of _lockstep/timeline, UTF-8, at most {MAX_ENTRY_BYTES} bytes; see docs/timeline.md",
        **found,
        "$defs": {name: _definition(body) for name, body in sorted(definitions.items())},
    }
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


UNTYPED: dict[str, dict[str, Any]] = {
    "format": {"type": "integer", "const": FORMAT},
    "committed_at": {"type": "string", "format": "date-time"},
    "began_at": {"type": "string", "format": "date-time"},
}
"""What the decoder checks on its own, so that no type of the model says it."""


def _definition(body: Mapping[str, Any]) -> dict[str, Any]:
    properties = {key: UNTYPED.get(key, value) for key, value in body["properties"].items()}
    # Python 3.13 takes the indentation out of docstrings, older ones leave it.
    return {**body, "description": inspect.cleandoc(body["description"]), "properties": properties}


def rules() -> str:
    """Return the conflict rules as a Markdown table, in the order in which they are tried."""
    lines = ["| rule | conflict, if | checked at |", "|---|---|---|"]
    lines += [f"| `{rule.name}` | {rule.says} | both levels |" for rule in conflicts.RULES]
    lines += [f"| `{name}` | {says} | SERIALIZABLE |" for name, says in serializable.RULES]
    return "\n".join(lines)


def between(text: str, name: str, content: str) -> str:
    """Return a text with what stands between the comments `<!-- name -->` and `<!-- /name -->` replaced."""
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f"no <!-- {name} --> … <!-- /{name} -->")
    return pattern.sub(lambda match: f"{match[1]}{content}\n{match[2]}", text)


_OF_DOCS = ("isolation", "comparison", "statements", "settings", "errors", "system-tables", "requests")
PAGES = ("README.md", *(f"docs/{name}.md" for name in _OF_DOCS))
"""Those that have parts."""


def rendered() -> dict[Path, str]:
    """Return what each file should hold."""
    docs = REPOSITORY / "docs"
    measured = (docs / "benchmarks.md").read_text(encoding="utf-8")
    pages = {REPOSITORY / name: (REPOSITORY / name).read_text(encoding="utf-8") for name in PAGES}
    parts = {
        "rules": rules(),
        "costs": render_costs.table(measured),
        **render_pairs.parts(),
        **render_statements.parts(),
        **render_settings.parts(),
        **render_system_tables.parts(),
        **render_requests.parts(),
    }
    for name, content in parts.items():
        [page] = [path for path, text in pages.items() if f"<!-- {name} -->" in text]
        pages[page] = between(pages[page], name, content)
    drawn = {
        "cost.svg": render_costs.svg(measured),
        "peers.svg": render_peers.svg(measured),
        "scale.svg": render_scale.svg((docs / "scale.md").read_text(encoding="utf-8")),
        **render_screens.screens(),
    }
    return {
        docs / "timeline.schema.json": schema(),
        docs / "tutorial.ipynb": render_notebook.notebook((docs / "tutorial.md").read_text(encoding="utf-8")),
        **{docs / "images" / name: picture for name, picture in drawn.items()},
        **pages,
    }


def write() -> None:
    """Write each file as it should be, and print its name."""
    for path, text in rendered().items():
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(REPOSITORY))


if __name__ == "__main__":
    write()
