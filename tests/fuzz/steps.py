"""A program's statements, run in a session, and what a table of it is: the same in both processes.

Imports nothing of Lockstep, for the process of plain Delta imports it.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, TypeAlias

Step: TypeAlias = dict[str, Any]
"""`{"id": n, "sql": text}`, `{"id": n, "frame": {…}}` or, if it only looks, `{"id": n, "look": query}`."""

Block: TypeAlias = dict[str, Any]
"""`{"id": n, "kind": "alone" | "transaction", "steps": […], "other": […], "at": n, "end": "COMMIT" | "ROLLBACK"}`"""

Program: TypeAlias = dict[str, Any]
"""`{"name": text, "blocks": […]}`"""

OPERATIONS = ("SAVEPOINT", "ROLLBACK TO", "RELEASE")


def other_id(block: Block) -> str:
    """Return what the statements beside a transaction are called, where versions are told apart by block."""
    return f"{block['id']}, beside"


def title(step: Step) -> str:
    """Return a step as a person would write it."""
    if "frame" not in step:
        return str(step.get("sql") or step["look"])
    frame = step["frame"]
    options = "".join(f".option({key!r}, {value!r})" for key, value in frame.get("options", {}).items())
    source = f"spark.createDataFrame({[tuple(row) for row in frame['rows']]}, {frame['schema']!r})"
    if frame["how"] == "saveAsTable":
        return f"{source}.write.format('delta').mode({frame['mode']!r}){options}.saveAsTable({frame['table']!r})"
    return f"{source}.writeTo({frame['table']!r}).{frame['how']}()"


def run(session: Any, step: Step, versions: dict[str, int]) -> list[str] | None:
    """Run a step to its end; return the rows that it answers, if it is a look.

    Args:
        session: where.
        step: what.
        versions: by `table@block`, the table version at the end of that block.
    """
    if "frame" in step:
        _write(session, step["frame"])
        return None
    text = step.get("sql") or step["look"]
    for name, version in versions.items():
        text = text.replace("{" + name + "}", str(version))
    rows = session.sql(text).collect()
    return sorted(map(str, rows)) if "look" in step else None


def _write(session: Any, frame: dict[str, Any]) -> None:
    rows = session.createDataFrame([tuple(row) for row in frame["rows"]], frame["schema"]).coalesce(1)
    if frame["how"] == "saveAsTable":
        writer = rows.write.format("delta").mode(frame["mode"])
        for key, value in frame.get("options", {}).items():
            writer = writer.option(key, value)
        writer.saveAsTable(frame["table"])
        return
    writer = rows.writeTo(frame["table"])
    if frame["how"] == "append":
        writer.append()
    elif frame["how"] == "overwritePartitions":
        writer.overwritePartitions()
    else:
        writer.using("delta").createOrReplace()


def effective(block: Block) -> list[Step]:
    """Return what of a block's statements is left at its end."""
    if block.get("end") == "ROLLBACK":
        return []
    left: list[Step] = []
    saved: dict[str, int] = {}
    for step in block["steps"]:
        text = step.get("sql", "")
        if text.startswith("SAVEPOINT "):
            saved[text.split()[-1]] = len(left)
        elif text.startswith("ROLLBACK TO "):
            left = left[: saved[text.split()[-1]]]
        elif not text.startswith("RELEASE "):
            left.append(step)
    return left


def failure(error: Exception) -> str:
    """Return the SQLSTATE and the first line of an error."""
    state = error.getSqlState() if hasattr(error, "getSqlState") else None
    lines = str(error).splitlines() or [""]
    # What Py4J raises begins with what it called; the exception stands in the next line.
    said = lines[1] if lines[0].startswith("An error occurred") and len(lines) > 1 else lines[0]
    return f"{state}: {said[:300]}"


def last_version(path: str) -> int:
    """Return the newest version in a table's log."""
    return max(int(file.stem) for file in Path(path, "_delta_log").glob("*.json") if file.stem.isdigit())


# --- what a table is --------------------------------------------------------------------------------------------------

_ONCE = (
    "delta.rowTracking.materialized",  # random names
    "delta.columnMapping.maxColumnId",  # compared by the columns' own
    "delta.inCommitTimestampEnablement",
)
_EACH = ("delta.columnMapping.physicalName",)


def look_at(session: Any, path: str, versions: list[int]) -> dict[str, Any]:
    """Return what plain Delta finds at a path: its rows at these versions, and what else must be the same or fit."""
    session._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    head = last_version(path)
    detail = session.sql(f"DESCRIBE DETAIL delta.`{path}`").first()
    metadata = _metadata(path)
    at = {str(version): _rows(session, path, version, metadata[version]) for version in sorted({*versions, head})}
    history = session.sql(f"DESCRIBE HISTORY delta.`{path}`").select("version", "timestamp", "operation").collect()
    return {
        "head": head,
        "schema": _schema(session.read.format("delta").load(path).schema.json()),
        "partitioned": list(detail.partitionColumns),
        "clustered": list(detail.clusteringColumns),
        "properties": {k: v for k, v in sorted(detail.properties.items()) if not k.startswith(_ONCE)},
        "features": sorted(detail.tableFeatures),
        "description": detail.description,
        "at": at,
        "feed": _feed(session, path, head, metadata),
        "history": [[row.version, row.timestamp.isoformat(), row.operation] for row in sorted(history)],
        "checkpoint": _checkpoint(session, path, head, at[str(head)]["rows"]),
    }


def rows_at(session: Any, path: str) -> list[str]:
    """Return the rows of the newest version of a table."""
    frame = session.read.format("delta").load(path)
    return sorted(row[0] for row in frame.selectExpr("to_json(struct(*))").collect())


def _schema(text: str) -> Any:
    fields = json.loads(text)["fields"]
    for field in fields:
        field["metadata"] = {key: value for key, value in field["metadata"].items() if key not in _EACH}
    return fields


def _metadata(path: str) -> dict[int, dict[str, str]]:
    """Return a table's properties at each version."""
    found: dict[int, dict[str, str]] = {}
    now: dict[str, str] = {}
    for version in range(last_version(path) + 1):
        with Path(path, "_delta_log", f"{version:020d}.json").open(encoding="utf-8") as lines:
            for action in map(json.loads, lines):
                now = action["metaData"].get("configuration", {}) if "metaData" in action else now
        found[version] = now
    return found


def _rows(session: Any, path: str, version: int, properties: dict[str, str]) -> dict[str, Any]:
    frame = session.read.format("delta").option("versionAsOf", version).load(path)
    columns = ["to_json(struct(*))", "k"]
    if properties.get("delta.enableRowTracking") == "true":
        columns += ["_metadata.row_id", "_metadata.row_commit_version"]
    rows = sorted((list(row) for row in frame.selectExpr(*columns).collect()), key=str)
    found: dict[str, Any] = {"rows": [row[0] for row in rows]}
    if len(columns) > 2:
        found["ids"] = [row[1:] for row in rows]
    return found


def _feed(session: Any, path: str, head: int, metadata: dict[int, dict[str, str]]) -> dict[str, Any] | str | None:
    """Return each version's net changes, an error's name, or None where the table has not had a feed from the start."""
    if any(properties.get("delta.enableChangeDataFeed") != "true" for properties in metadata.values()):
        return None
    reader = session.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 0)
    try:
        frame = reader.option("endingVersion", head).load(path)
        own = [f"`{name}`" for name in frame.columns if not name.startswith(("_change_type", "_commit_"))]
        query = (f"to_json(struct({', '.join(own)})) AS row", "_change_type AS kind", "_commit_version AS version")
        changes = frame.selectExpr(*query).collect()
    except Exception as error:  # noqa: BLE001 - compared with what plain Delta says of its own table
        return failure(error).split(" ")[0]
    net: dict[str, Counter[str]] = {}
    for change in changes:
        sign = 1 if change.kind in ("insert", "update_postimage") else -1
        net.setdefault(str(change.version), Counter())[change.row] += sign
    return {version: {row: n for row, n in rows.items() if n} for version, rows in net.items()}


def _checkpoint(session: Any, path: str, head: int, rows: list[str]) -> str:
    """Have Delta write a checkpoint, as it does now and then, and read the table from it; return what is wrong."""
    log = session._jvm.org.apache.spark.sql.delta.DeltaLog
    log.forTable(session._jsparkSession, path).checkpoint()
    folder = Path(path, "_delta_log")
    if not list(folder.glob(f"{head:020d}.checkpoint*.parquet")):
        return "Delta wrote no checkpoint"
    log.clearCache()
    found = rows_at(session, path)
    return "" if found == sorted(rows) else f"read from the checkpoint: {found}, from the log: {sorted(rows)}"
