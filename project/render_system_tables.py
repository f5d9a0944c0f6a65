"""The tables of docs/system-tables.md, from `lockstep.system.tables`."""

from __future__ import annotations

from lockstep.system.tables import TABLES, SystemTable


def table(found: SystemTable) -> str:
    """Return what a system table is, and its columns."""
    lines = [
        found.says,
        *(["", found.read_by] if found.read_by else []),
        "",
        "| column | type | what it says |",
        "|---|---|---|",
    ]
    lines += [f"| `{name}` | `{column.type}` | {column.says} |" for name, column in found.columns.items()]
    return "\n".join(lines)


def parts() -> dict[str, str]:
    """Return what stands between the marks of the page, by the marks' names."""
    return {f"system-{name}": table(found) for name, found in TABLES.items()}
