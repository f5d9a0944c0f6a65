"""The reader of the contract's files: what it understands, what it refuses, and how it compares."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.contract import ContractError, Record, difference, find, parse, substitute

FILE = """\
# The rule,
# in two lines.
# core

statement ok con2
CREATE TABLE t
  AS SELECT 1

# why
statement error 40001
COMMIT
----
run it again
${catalog}

query con1 rowsort header
SELECT a, b FROM t
----
a | b
1 | NULL


let con3 then
SELECT now()
"""


def test_a_file_is_its_records_and_tags() -> None:
    contract = parse(FILE)
    assert contract.tags == {"core"}
    assert contract.records == (
        Record("ok", "CREATE TABLE t\n  AS SELECT 1", 5, "con2"),
        Record("error", "COMMIT", 10, "con1", sqlstates=("40001",), expected=("run it again", "${catalog}")),
        Record("query", "SELECT a, b FROM t", 16, "con1", (), ("a | b", "1 | NULL"), True, True),
        Record("let", "SELECT now()", 23, "con3", name="then"),
    )


@pytest.mark.parametrize(
    ("comments", "since"),
    [
        ("# Since Spark 4.2: views.", "4.2"),
        ("# The rule.\n# Since Spark 4.10 only", "4.10"),
        ("# Not since Spark 4.2", ""),
        ("# Since Spark came", ""),
    ],
)
def test_a_file_may_need_a_spark(comments: str, since: str, tmp_path: Path) -> None:
    (tmp_path / "one.test").write_text(f"{comments}\nstatement ok\nBEGIN", encoding="utf-8")
    assert [case.since for case in find(tmp_path)] == [since]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("# nothing but words", "no records"),
        ("\n\nSELECT 1", "line 3: 'SELECT 1' is none of"),
        ("statement\nSELECT 1", "line 1"),
        ("statement maybe\nSELECT 1", "line 1"),
        ("statement ok\nSELECT 1\n----\n1", "line 1"),
        ("statement error\nSELECT 1", "line 1"),
        ("statement error 4000\nSELECT 1", "line 1"),
        ("statement error 40001 40002\nSELECT 1", "line 1"),
        ("query\nSELECT 1", "line 1"),
        ("query sorted\nSELECT 1\n----\n1", "line 1"),
        ("let\nSELECT 1", "line 1"),
        ("# why\nquery\n----\n1", "line 2: no SQL"),
    ],
)
def test_what_is_no_record_is_refused_with_its_line(text: str, says: str) -> None:
    with pytest.raises(ContractError, match=says):
        parse(text)


def query(*expected: str, options: str = "") -> Record:
    (record,) = parse("\n".join([f"query {options}", "SELECT", "----", *expected])).records
    return record


@pytest.mark.parametrize(
    ("record", "rows"),
    [
        (query(), []),
        (query("1 | a"), [(1, "a")]),
        (query("NULL | true | (empty)"), [(None, True, "")]),
        (query("* | 2"), [("whatever", 2)]),
        (query("1", "2", options="rowsort"), [(2,), (1,)]),
        (query("b", "2", "1", options="header rowsort"), [(9, 1), (9, 2)]),
    ],
)
def test_rows_as_expected_make_no_difference(record: Record, rows: list[tuple[object, ...]]) -> None:
    assert difference(record, ["a", "b", "c"][: len(rows[0]) if rows else 1], rows) == ""


@pytest.mark.parametrize(
    ("record", "rows"),
    [
        (query("1"), []),
        (query(), [(1,)]),
        (query("1", "2"), [(2,), (1,)]),
        (query("1", options="rowsort"), [(1,), (1,)]),
        (query("1"), [(1, 2)]),
        (query("NULL"), [("",)]),
        (query("a", "2", options="header"), [(1,)]),
        (query("z", "1", options="header"), [(1,)]),
    ],
)
def test_other_rows_are_a_difference_that_is_told(record: Record, rows: list[tuple[object, ...]]) -> None:
    assert difference(record, ["a", "b"][: len(rows[0]) if rows else 1], rows)


def test_variables_are_put_in_and_unknown_ones_refused() -> None:
    assert substitute("${a}.t ${a}", {"a": "lake"}) == "lake.t lake"
    with pytest.raises(ContractError, match=r"\$\{b\} has no value; known are a"):
        substitute("${b}", {"a": "lake"})


def test_every_file_of_the_contract_can_be_read(repository: Path) -> None:
    everything, core = find(repository / "sql"), find(repository / "sql", tag="core")
    assert len(everything) > len(core) > 5
    ids = [case.id for case in everything]
    assert len(set(ids)) == len(ids)
    assert {"begin_commit.test", "isolation/g0.test-SNAPSHOT", "isolation/g0.test-SERIALIZABLE"} <= set(ids)


def test_a_file_that_uses_level_is_run_with_each(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "each.test").write_text(
        "# core\nstatement ok\nBEGIN ISOLATION LEVEL ${level}", encoding="utf-8"
    )
    (tmp_path / "once.test").write_text("# about ${level}\nstatement ok\nBEGIN", encoding="utf-8")
    each = [("folder/each.test-SNAPSHOT", "SNAPSHOT"), ("folder/each.test-SERIALIZABLE", "SERIALIZABLE")]
    assert [(case.id, case.level) for case in find(tmp_path)] == [*each, ("once.test", "")]
    assert [(case.id, case.level) for case in find(tmp_path, tag="core")] == each
