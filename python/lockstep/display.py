"""Values as rows: what the command line prints of them, and what notebooks show of them as HTML.

>>> html([Section("", ("a", "b"), [[1, "<2>"]])])
'<table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>&lt;2&gt;</td></tr></table>'
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from lockstep.errors import LockstepError
from lockstep.timeline.entry import Commit, Entry, Table, TableDdl, TagDdl

if TYPE_CHECKING:
    from lockstep.timeline.log import Timeline

CHARACTERS_AT_MOST = 1_000
"""Of a cell of HTML; a view's definition may have a million."""

ROWS_AT_MOST = 1_000
"""Of a table of HTML, and of a query's result wherever it is shown."""


@dataclass(frozen=True, slots=True)
class Section:
    """One table: its title, its columns' names (none: it has no header), its rows."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]


def html(sections: Sequence[Section]) -> str:
    """Return tables of HTML, of those sections that have rows; whatever is in them is text and no markup."""
    return "".join(_table(section) for section in sections if section.rows)


def _table(section: Section) -> str:
    from html import escape

    def line(cells: Sequence[object], tag: str) -> str:
        return f"<tr>{''.join(f'<{tag}>{escape(_short(str(cell)))}</{tag}>' for cell in cells)}</tr>"

    caption = f"<caption>{escape(section.title)}</caption>" if section.title else ""
    head = line(section.columns, "th") if section.columns else ""
    body = "".join(line(row, "td") for row in section.rows[:ROWS_AT_MOST])
    return f"<table>{caption}{head}{body}</table>"


def _short(text: str) -> str:
    return text if len(text) <= CHARACTERS_AT_MOST else f"{text[:CHARACTERS_AT_MOST]}…"


# --- entries of the timeline ------------------------------------------------------------------------------------------


def sections(entry: Entry) -> list[Section]:
    """Return all that an entry says; sections without rows are left out."""
    info = entry.transaction
    facts: dict[str, object] = {
        "version": entry.version,
        "kind": entry.kind,
        "committed at": time(entry),
        "transaction": info.id,
        "began at": info.began_at.isoformat(timespec="milliseconds"),
        "base version": info.base_version,
        "isolation": info.isolation,
        "author": info.author,
        "application": info.application,
        "message": info.message,
        "batch": "" if entry.batch is None else entry.batch,
    }
    namespaces = [[ddl.action, ".".join(ddl.name), _properties(ddl.properties)] for ddl in entry.namespaces]
    views = [[ddl.action, ddl.name, "" if ddl.definition is None else ddl.definition.text] for ddl in entry.views]
    writes = [
        [
            *(write.name, f"{write.from_version} → {write.to_version}"),
            *(write.counts.files_added, write.counts.files_removed),
            *(_signed(write.counts.rows_added, "+"), _signed(write.counts.rows_removed, "-")),
            *(", ".join(map(_where, write.commits)) or "published before", write.location),
        ]
        for write in entry.writes
    ]
    moves = [[move.id, move.entry, move.to_version] for move in entry.moved]
    columns = ("table", "version", "files +", "files -", "rows +", "rows -", "commits", "location")
    all_sections = [
        Section("", (), [[key, value] for key, value in facts.items() if value != ""]),
        Section("statements", (), [[text] for text in info.statements]),
        Section("namespaces", ("action", "namespace", "properties"), namespaces),
        Section("tables", ("action", "table", "detail", "id"), [_ddl(ddl) for ddl in entry.tables]),
        Section("views", ("action", "view", "definition"), views),
        Section("writes", columns, writes),
        Section("reads", ("table", "version"), [[read.name, read.version] for read in entry.reads]),
        Section("views used", (), [[name] for name in entry.view_reads]),
        Section(
            "tags", ("action", "tag", "of version", "retain until", "comment"), [_tag(entry, ddl) for ddl in entry.tags]
        ),
        Section("moved", ("table id", "committed by", "is now version"), moves),
    ]
    return [section for section in all_sections if section.rows]


LOG_COLUMNS = ("version", "committed at", "kind", "author", "tables", "rows +", "rows -", "what", "transaction")
BRIEF_COLUMNS = ("version", "id", "committed at", "author", "rows", "tables", "what")

ID_CHARACTERS = 8
"""Of a transaction's id, where there is little room; they are random, so few others begin so."""


def log_row(entry: Entry) -> list[object]:
    """Return an entry as one row of `LOG_COLUMNS`."""
    fields = summary(entry)
    counts = [_signed(fields["rows_added"], "+"), _signed(fields["rows_removed"], "-")]
    info = entry.transaction
    return [entry.version, time(entry), entry.kind, info.author, _names(fields), *counts, _what(entry), info.id]


def brief_row(entry: Entry) -> list[object]:
    """Return an entry as one row of `BRIEF_COLUMNS`; of its kind only that it is no transaction."""
    fields = summary(entry)
    counts = f"{_signed(fields['rows_added'], '+')} {_signed(fields['rows_removed'], '-')}".strip()
    kind = "" if entry.kind == "transaction" else entry.kind
    what = ": ".join(filter(None, (kind, _what(entry))))
    info = entry.transaction
    return [entry.version, info.id[:ID_CHARACTERS], time(entry), info.author, counts, _names(fields), what]


def _what(entry: Entry) -> str:
    if entry.expires is not None and not entry.transaction.message:
        return f"versions below {entry.expires.first_kept} have expired"
    return entry.transaction.message or "; ".join(entry.transaction.statements)


def summary(entry: Entry) -> dict[str, Any]:
    """Return what `log` says of an entry; rows are None where a file does not tell how many it has."""
    counts = {"rows_added": [w.counts.rows_added for w in entry.writes]}
    counts["rows_removed"] = [w.counts.rows_removed for w in entry.writes]
    unknown = entry.kind == "external"  # its commits are not read, so nothing was counted
    return {
        "version": entry.version,
        "committed_at": entry.committed_at,
        "kind": entry.kind,
        "transaction": entry.transaction.id,
        "author": entry.transaction.author,
        "isolation": entry.transaction.isolation,
        "message": entry.transaction.message,
        "batch": entry.batch,
        "statements": entry.transaction.statements,
        "tables": sorted({str(w.name) for w in entry.writes} | {str(d.new_name or d.name) for d in entry.tables}),
        "views": sorted({str(ddl.name) for ddl in entry.views}),
        "namespaces": [".".join(ddl.name) for ddl in entry.namespaces],
        **{key: None if unknown or -1 in values else sum(values) for key, values in counts.items()},
    }


def _names(summary: dict[str, Any]) -> str:
    kinds = {"views": "view", "namespaces": "namespace"}
    others = [f"{name} ({kind})" for key, kind in kinds.items() for name in summary[key]]
    return ", ".join([*summary["tables"], *others])


def time(entry: Entry) -> str:
    """Return when an entry was committed, for people: all of it, so that who gives it back means this version."""
    return _time_text(entry.committed_at)


def _time_text(at: datetime) -> str:
    return at.isoformat(sep=" ", timespec="milliseconds").replace("+00:00", "Z")


def _signed(count: int | None, sign: str) -> str:
    if count is None or count < 0:
        return "?"
    return f"{sign}{count}" if count else ""


def counted(number: int, what: str) -> str:
    """Return a number with its noun."""
    return f"{number} {what}{'' if number == 1 else 's'}"


TABLE_COLUMNS = ("table", "version", "changed in", "location")


def table_row(table: Table) -> list[object]:
    """Return a table of a database version as one row of `TABLE_COLUMNS`."""
    return [table.name, table.version, table.since, table.location]


def _properties(properties: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(properties.items()))


def _ddl(ddl: TableDdl) -> list[object]:
    detail = f"to {ddl.new_name}" if ddl.new_name is not None else f"at {ddl.location}" if ddl.location else ""
    if ddl.version is not None:
        detail += f", {'adopted' if ddl.adopted else 'back'} at version {ddl.version}"
    return [ddl.action, ddl.name, detail, ddl.id]


def _tag(entry: Entry, ddl: TagDdl) -> list[object]:
    if ddl.action == "drop":
        return [ddl.action, ddl.name, "", "", ""]
    until = "" if ddl.retain_until is None else ddl.retain_until.isoformat(timespec="seconds")
    return [ddl.action, ddl.name, entry.version if ddl.version is None else ddl.version, until, ddl.comment]


def _where(commit: Commit) -> str:
    return commit.staged or f"inline, {counted(len(commit.inline or []), 'action')}"


# --- what notebooks show ----------------------------------------------------------------------------------------------


def error_html(error: LockstepError) -> str:
    """Return an error that was kept as HTML: what happened, and whether running it again can help."""
    help_ = "may help" if error.retryable else "does not help"
    rows = [[type(error).__name__, error.message], ["SQLSTATE", error.sqlstate], ["running it again", help_]]
    return html([Section("", (), rows)])


def entry_html(entry: Entry) -> str:
    """Return an entry as HTML: the tables of `lockstep show`."""
    return html(sections(entry))


def timeline_html(timeline: Timeline) -> str:
    """Return a lake as HTML: where it is, its newest database version as last read, and that version's tables."""
    head = timeline.head
    facts = {
        "root": timeline.storage.url,
        "database version": head.version,
        "committed at": _time_text(head.committed_at),
        "namespaces": len(head.namespaces),
        "tables": len(head.tables),
        "views": len(head.views),
    }
    tables = sorted(head.tables.values(), key=lambda table: table.name)
    rows = list(map(table_row, tables))
    return html([Section("", (), list(facts.items())), Section("tables", TABLE_COLUMNS, rows)])


HTML_OF: dict[type | str, Callable[[Any], str]] = {
    Entry: entry_html,
    LockstepError: error_html,
    "lockstep.timeline.log.Timeline": timeline_html,
    "lockstep.catalog.TransactionalCatalog": lambda catalog: timeline_html(catalog.timeline),
}
"""How values of the core are drawn; those know nothing of HTML. The notebook extension registers these with IPython,
which takes a type or its whole name: a name imports nothing, and what is built on this module has one too."""
