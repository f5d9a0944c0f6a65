"""The guide runs as it stands, and its table of what is refused is what is refused."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

from lockstep.errors import LockstepError, UnsupportedError
from lockstep.tables.layout import Layout
from lockstep.tables.opened import OpenLake
from tests.support.lakes import metadata
from tests.support.markdown import blocks, table_of
from tests.support.refused import refused_in
from tests.unit.tables.test_refusals import field, layout

REPOSITORY = Path(__file__).parents[3]
GUIDE = (REPOSITORY / "docs" / "python.md").read_text(encoding="utf-8")


def test_the_blocks_of_the_guide_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    found = [block for block in blocks(GUIDE) if block.language == "python" and not block.not_run]
    assert found
    for block in found:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(block.text, f"docs/python.md, line {block.line}", "exec"), names)
        assert block.output is None or block.prints(printed.getvalue()), f"it printed:\n{printed.getvalue()}"


def two_columns(expression: str) -> Layout:
    """Return the layout of a table with the columns `id` and `g`, which is generated."""
    known = layout(["generatedColumns"], field())
    said = {"delta.generationExpression": expression}
    return replace(known, fields=(*known.fields, {**known.fields[0], "name": "g", "metadata": said}))


IDENTITY = {"delta.identity.start": 1, "delta.identity.step": 1, "delta.identity.allowExplicitInsert": False}
MAPPED = {"delta.columnMapping.mode": "name"}
LAYOUTS = {
    "deletion vectors": layout(["deletionVectors"], metadata(), ["deletionVectors"]),
    "appends alone": layout(["appendOnly"], metadata(**{"delta.appendOnly": "true"})),
    "a change data feed": layout(["changeDataFeed"], metadata(**{"delta.enableChangeDataFeed": "true"})),
    "CHECK constraints that compare": layout(["checkConstraints"], metadata(**{"delta.constraints.c": "id > 0"})),
    "other CHECK constraints": layout(["checkConstraints"], metadata(**{"delta.constraints.c": "id % 2 = 0"})),
    "defaults of columns": layout(["allowColumnDefaults"], field(CURRENT_DEFAULT="1")),
    "in-commit timestamps": layout(["inCommitTimestamp"], metadata(**{"delta.enableInCommitTimestamps": "true"})),
    "generated columns of": two_columns("id + 1"),
    "other generated columns": two_columns("hash(id)"),
    "column mapping by name": layout(["columnMapping"], metadata(**MAPPED), ["columnMapping"]),
    "column mapping by id": layout(
        ["columnMapping"], metadata(**{"delta.columnMapping.mode": "id"}), ["columnMapping"]
    ),
    "clustering": replace(layout(["clustering", "domainMetadata"], metadata()), domains={}),
    "identity columns": layout(["identityColumns"], field(**IDENTITY)),
    "row tracking": replace(layout(["rowTracking", "domainMetadata"], metadata()), domains={}),
    "Iceberg compatibility": layout(["icebergCompatV2"], metadata()),
    "CHAR, VARCHAR": layout([], field(__CHAR_VARCHAR_TYPE_STRING="char(3)")),
    "widened types": layout(["typeWidening"], field(**{"delta.typeChanges": []}), ["typeWidening"]),
    "variants": layout(["variantType"], metadata(), ["variantType"]),
}


def taken(check: Any, **more: Any) -> bool:
    try:
        check(**more)
    except LockstepError:
        return False
    return True


@pytest.mark.parametrize("words", LAYOUTS)
def test_the_table_says_what_is_refused(words: str) -> None:
    [row] = [line for line in GUIDE.splitlines() if line.startswith(f"| {words}")]
    reads, writes = (cell.strip() for cell in row.split("|")[5:7])
    table = LAYOUTS[words]
    assert taken(table.check_readable) == (reads == "yes")
    said = (
        "yes"
        if taken(table.check_writable, only_appends=False)
        else "appends"
        if taken(table.check_writable, only_appends=True)
        else "no"
    )
    assert writes.split(",")[0] == said


READERS: dict[str, Callable[[OpenLake], object]] = {
    "Arrow": lambda lake: lake.at()["t"].to_arrow(),
    "DuckDB": lambda lake: lake.at().duckdb(duckdb.connect()),
    "Polars": lambda lake: lake.at()["t"].polars(),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("feature", ["catalogManaged", "fromTomorrow"])
def test_no_reader_reads_what_nobody_here_knows(table: OpenLake, tmp_path: Path, feature: str, reader: str) -> None:
    """Of all other rows of the table tests/spark/test_readers_without_spark.py asks the readers."""
    log = next((tmp_path / "lake").glob("*/*/_delta_log"))
    named = {"readerFeatures": [feature], "writerFeatures": [feature]}
    protocol = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **named}}
    upgrade = {"commitInfo": {"timestamp": 1, "operation": "UPGRADE PROTOCOL", "operationParameters": {}}}
    (log / f"{1:020}.json").write_text(f"{json.dumps(upgrade)}\n{json.dumps(protocol)}\n")
    cells = table_of(GUIDE, "a table with")["`catalogManaged`, features of readers that nobody here knows"]
    assert set(cells.values()) == {"no"}
    with pytest.raises(UnsupportedError):
        READERS[reader](table)
    with table.transaction() as tx, refused_in(tx, UnsupportedError, match=feature):
        tx["t"].append({"id": [2]})
