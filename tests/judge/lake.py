"""The lakes that programs run on: made once for each layout, then copied."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lockstep
from lockstep.timeline.entry import Entry, Name
from lockstep.timeline.files import decode_all, entry_path
from tests.judge.model import Bag, State
from tests.judge.queries import inserting
from tests.judge.tables import LAYOUTS, VIEWS, Layout, Row, random_row

ROWS = 3
"""Rows of a file; each table but `ids` has two files."""

COPIES = 20
"""So often a copy of a lake is begun; one transaction's upkeep removes a few folders."""


@dataclass(frozen=True, slots=True)
class Template:
    """A lake to copy: its folder, what it holds, and the number of its newest database version."""

    root: Path
    layout: int
    start: State
    version: int


def make(root: Path, layout: int, run: Callable[[str], Any]) -> Template:
    """Make a lake by running SQL on a session of it."""
    rng = random.Random(layout)
    tables = LAYOUTS[layout]
    for namespace in ("lake.n", "lake.n.m"):
        run(f"CREATE NAMESPACE IF NOT EXISTS {namespace}")
    run("BEGIN")
    start: dict[str, Bag] = {}
    for table in tables:
        for statement in table.ddl():
            run(statement)
        start[table.name] = Counter()
        for seq in range(2):
            rows: list[Row] = [random_row(rng, "start", seq * ROWS + n) for n in range(ROWS)]
            if table.name == "ids":
                rows = [(seq + 1,)]
            run(inserting(table, rows).spark)
            start[table.name].update(rows)
    names = {table.name: table.spark for table in tables}
    for view, text in VIEWS.values():
        run(f"CREATE VIEW {view} AS {text.format(**names)}")
    run("COMMIT")
    return Template(root, layout, start, head(root))


def copy(template: Template, root: Path) -> None:
    """Copy it whole. Behind its last COMMIT files that nobody needs go; where one went meanwhile, begin anew."""
    for _ in range(COPIES):
        try:
            shutil.copytree(template.root, root)
            return
        except shutil.Error as error:
            if any(Path(source).exists() for source, *_ in error.args[0]):
                raise
            shutil.rmtree(root)
    raise TimeoutError(f"files go away below {template.root} without end")


# --- what is there ----------------------------------------------------------------------------------------------------


def head(root: Path, known: int = 0) -> int:
    """Return the newest database version."""
    return max([known, *(entry.version for entry in entries(root, known))])


def entries(root: Path, after: int) -> list[Entry]:
    """Return the entries behind a version."""
    found: list[Entry] = []
    while (path := root / entry_path(after + len(found) + 1)).exists():
        found += decode_all(path.read_bytes(), after + len(found) + 1)
    return found


def locations(root: Path, tables: tuple[Layout, ...]) -> Mapping[str, tuple[str, Path]]:
    """Return each table's id and folder, by its short name."""
    found = lockstep.TransactionalCatalog.open(str(root)).database().tables
    named = {table.name: found[_name(table)] for table in tables}
    return {name: (table.id, root / table.location) for name, table in named.items()}


def _name(table: Layout) -> Name:
    _, *namespace, last = table.spark.split(".")
    return Name(namespace=tuple(namespace), table=last)


def physical_names(folder: Path) -> dict[str, str]:
    """Return the names that a table's files use, by those that users know; `st.f` is the field of a struct."""
    schema: dict[str, Any] = {}
    for log in sorted((folder / "_delta_log").glob("*.json")):
        for line in log.read_text(encoding="utf-8").splitlines():
            if "metaData" in (action := json.loads(line)):
                schema = json.loads(action["metaData"]["schemaString"])
    found: dict[str, str] = {}
    for field in schema["fields"]:
        found[field["name"]] = _physical(field)
        if isinstance(field["type"], dict):
            found |= {f"{field['name']}.{inner['name']}": _physical(inner) for inner in field["type"]["fields"]}
    return found


def _physical(field: dict[str, Any]) -> str:
    return str(field["metadata"].get("delta.columnMapping.physicalName", field["name"]))


READ_ALL = {
    "ts": "date_format(to_utc_timestamp(ts, current_timezone()), 'yyyy-MM-dd HH:mm:ss')",
    "d": "CAST(d AS STRING)",
    "b": "CAST(b AS INT)",
    "st": "st.f",
}


def select_all(table: Layout) -> str:
    """Return a query for all of a table, as the model writes its values."""
    return f"SELECT {', '.join(READ_ALL.get(c, c) + f' AS {c}' for c in table.columns)} FROM {table.spark}"
