"""What notebooks show of the library's values: small tables of HTML, in which nothing is markup but ours."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from IPython.core.formatters import HTMLFormatter

from lockstep.catalog import TransactionalCatalog
from lockstep.display import CHARACTERS_AT_MOST, HTML_OF, ROWS_AT_MOST, Section, entry_html, error_html, html, sections
from lockstep.errors import ConflictError, InvalidError
from lockstep.spark.session import SessionTransaction
from lockstep.timeline.entry import FORMAT, Entry, Name, TableDdl, TransactionInfo
from tests.support.lakes import create


def entry(message: str) -> Entry:
    return Entry(
        format=FORMAT,
        version=7,
        committed_at=datetime(2026, 3, 1, 12, tzinfo=UTC),
        kind="transaction",
        transaction=TransactionInfo(
            id="x", began_at=datetime(2026, 3, 1, 11, tzinfo=UTC), base_version=6, isolation="SNAPSHOT", message=message
        ),
        tables=[TableDdl(action="create", id="i", name=Name(namespace=("bank",), table="<t>"), location="t-i")],
    )


def rows(shown: str) -> list[list[str]]:
    """Return the cells of each row of what is shown."""
    return [
        re.findall(r"<t[dh]>(.*?)</t[dh]>", row, re.DOTALL) for row in re.findall(r"<tr>(.*?)</tr>", shown, re.DOTALL)
    ]


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        (Section("", (), []), ""),
        (Section("no rows", ("a",), []), ""),
        (Section("", (), [["a", 1]]), "<table><tr><td>a</td><td>1</td></tr></table>"),
        (
            Section("a <b>", ("c&d",), [["\"e'"]]),
            "<table><caption>a &lt;b&gt;</caption><tr><th>c&amp;d</th></tr><tr><td>&quot;e&#x27;</td></tr></table>",
        ),
        (Section("", (), [["x" * 1001]]), f"<table><tr><td>{'x' * CHARACTERS_AT_MOST}…</td></tr></table>"),
        (Section("", (), [["x"]] * 1001), f"<table>{'<tr><td>x</td></tr>' * ROWS_AT_MOST}</table>"),
    ],
    ids=["nothing", "no rows", "no header", "escaped", "long cell", "many rows"],
)
def test_a_section_is_a_table(section: Section, expected: str) -> None:
    assert html([section]) == expected


def test_an_entry_shows_what_the_command_line_prints() -> None:
    one = entry("<script>alert(1)</script>")
    shown = entry_html(one)
    assert "<script>" not in shown
    assert ["message", "&lt;script&gt;alert(1)&lt;/script&gt;"] in rows(shown)
    assert ["create", "bank.&lt;t&gt;", "at t-i", "i"] in rows(shown)
    assert len(rows(shown)) == sum(len(section.rows) + bool(section.columns) for section in sections(one))


@pytest.mark.parametrize(
    ("error", "help_"),
    [(ConflictError("<b> went first"), "may help"), (InvalidError("<b> went first"), "does not help")],
    ids=["retryable", "not retryable"],
)
def test_an_error_says_whether_to_run_again(error: ConflictError, help_: str) -> None:
    assert rows(error_html(error)) == [
        [type(error).__name__, "&lt;b&gt; went first"],
        ["SQLSTATE", error.sqlstate],
        ["running it again", help_],
    ]


def test_a_transaction_shows_how_it_stands() -> None:
    tx = SessionTransaction(None, "BEGIN")  # never begun, so it asks no session
    assert rows(tx._repr_html_()) == [["transaction", "(not begun)"], ["status", "NEW"]]
    tx.id, tx.snapshot, tx.version, tx.status = "x", 6, 7, "COMMITTED"
    tx.result = {"database_version": 7, "transaction_id": "x", "tables_changed": 2, "rows_added": None}
    assert rows(tx._repr_html_()) == [
        ["transaction", "x"],
        ["status", "COMMITTED"],
        ["snapshot", "6"],
        ["database version", "7"],
        ["tables changed", "2"],
    ]


def test_a_lake_is_one_line_and_its_tables_in_a_notebook(tmp_path: Path) -> None:
    catalog = TransactionalCatalog.open(str(tmp_path / "lake"), create=True)
    where = f"file://{tmp_path}/lake at database version"
    assert repr(catalog) == f"<lockstep.TransactionalCatalog {where} 0, 0 tables>"
    create(catalog, "b")
    assert repr(catalog.timeline) == f"<lockstep.Timeline {where} 1, 1 table>"
    create(catalog, "<a>")
    [b] = [table for name, table in catalog.timeline.head.tables.items() if name.table == "b"]
    formatter = HTMLFormatter()
    for kind, drawn in HTML_OF.items():
        formatter.for_type(kind, drawn)
    for value in (catalog, catalog.timeline):
        shown = rows(str(formatter(value)))
        assert ["root", f"file://{tmp_path}/lake"] in shown
        assert ["database version", "2"] in shown
        assert ["tables", "2"] in shown
        assert [row[0] for row in shown[-3:]] == ["table", "default.&lt;a&gt;", "default.b"]
        assert shown[-1] == ["default.b", "0", "1", b.location]
