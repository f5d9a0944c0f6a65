"""Where the statements of a SQL script end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.errors import InvalidError
from lockstep.scripts.splitting import Control, Statement, code, controls, split

NOT_ENDS = [
    "SELECT ';'",
    'SELECT ";"',
    "SELECT 'it''s;'",
    r"SELECT 'it\';s'",
    r"SELECT r'\', 1",
    'SELECT R"a;b"',
    "SELECT `a;b`, `c``;`",
    "SELECT 1 -- ; not yet\n + 1",
    "SELECT 1 /* ; /* nested; */ ; */ + 1",
    "SELECT /*+ BROADCAST(t); */ 1 FROM t",
    "SELECT $$ a;b $$",
    "SELECT $x$ ; $$ $x$",
    "SELECT '${a;b}', ${c}",
    "SELECT * FROM lake.${a}.t_${b}_${c}, `${d;}`",
    "SELECT $$ ${a} ; $$, $${b};$$",
    "SELECT '😀;', 'ü;', `;ß`",
    "SELECT 'two\n;lines'",
    "SHOW TABLES LIKE ';'",
    "EXPLAIN SELECT ';'",
    "EXECUTE IMMEDIATE 'SELECT 1;'",
    "CALL lake.system.snapshot(name => ';')",
    "SET x.y = ';'",
    "SELECT 1e3L, 0x, :p, ?, a:b.c, d::int, {{",
]

BLOCKS = [
    "BEGIN END",
    "BEGIN SELECT 1; END",
    "begin select 1; end",
    "BEGIN ATOMIC INSERT INTO t VALUES (1); DELETE FROM u; END",
    "BEGIN COMMENT ON TABLE t IS 'x'; SELECT 1; END",
    "BEGIN BEGIN SELECT 1; END; BEGIN END; SELECT 2; END",
    "BEGIN outer_one: BEGIN SELECT 1; END outer_one; SELECT 2; END",
    "BEGIN `a;b`: LOOP LEAVE `a;b`; END LOOP `a;b`; END",
    "BEGIN IF a THEN SELECT 1; END IF; SELECT 2; END",
    "BEGIN IF a THEN SELECT 1; ELSEIF b THEN SELECT 2; ELSE SELECT 3; END IF; SELECT 4; END",
    "BEGIN IF a THEN SELECT 1; ELSE IF b THEN SELECT 2; END IF; END IF; SELECT 3; END",
    "BEGIN IF CASE WHEN a THEN b ELSE c END THEN SELECT 1; END IF; SELECT 2; END",
    "BEGIN IF a THEN IF b THEN BEGIN SELECT 1; END; END IF; END IF; END",
    "BEGIN SELECT CASE WHEN a THEN 1 ELSE 2 END FROM t; SELECT 2; END",
    "BEGIN SELECT CASE x WHEN CASE y WHEN 1 THEN 2 END THEN 1 END, if(a, b, c) FROM t; SELECT 2; END",
    "BEGIN CASE x WHEN 1 THEN SELECT 1; SELECT 2; ELSE SELECT 3; END CASE; SELECT 4; END",
    "BEGIN CASE WHEN x THEN CASE WHEN y THEN SELECT 1; END CASE; END CASE; SELECT 4; END",
    "BEGIN LOOP SELECT 1; LEAVE x; END LOOP; SELECT 2; END",
    "BEGIN WHILE a DO SELECT 1; SELECT CASE WHEN b THEN 1 END; END WHILE; SELECT 2; END",
    "BEGIN WHILE CASE WHEN a THEN b END DO SELECT 1; END WHILE; SELECT 2; END",
    "BEGIN FOR r AS SELECT CASE WHEN a THEN 1 END FROM t DO SELECT 1; END FOR; SELECT 2; END",
    "BEGIN REPEAT SELECT 1; UNTIL CASE WHEN a THEN b END END REPEAT; SELECT 2; END",
    "BEGIN REPEAT REPEAT SELECT 1; UNTIL a END REPEAT; UNTIL b END REPEAT; SELECT 2; END",
    "BEGIN DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN SELECT 1; SELECT 2; END; SELECT 3; END",
    "BEGIN DECLARE CONTINUE HANDLER FOR SQLSTATE '22012', NOT FOUND BEGIN END; SELECT 3; END",
    "BEGIN DECLARE EXIT HANDLER FOR SQLEXCEPTION SET x = 1; SELECT 3; END",
    "BEGIN SELECT end, t.end, begin, loop, t.case, repeat('x', 2) FROM t; SELECT 1 AS end; SELECT 2; END",
    "BEGIN SELECT case FROM t; SELECT 2; END",
    "BEGIN SELECT 'END; END', `end` -- END;\n; END",
    "BEGIN MERGE INTO t USING u ON c WHEN MATCHED THEN DELETE; DROP TABLE IF EXISTS u; END",
    "BEGIN IF a THEN MERGE INTO t USING u ON a WHEN MATCHED THEN UPDATE SET b = CASE WHEN c THEN d END; END IF; END",
    "BEGIN SELECT * FROM t FOR SYSTEM_VERSION AS OF 3; END",
    "nonsense: BEGIN SELECT 1; END",
    "BEGIN BEGIN TRANSACTION; INSERT INTO t VALUES (1); COMMIT; END",
    "BEGIN BEGIN; SELECT 1; BEGIN WORK READ ONLY; BEGIN SELECT 2; END; ROLLBACK; END",
    "BEGIN IF a THEN BEGIN ISOLATION LEVEL SNAPSHOT; ELSE BEGIN COMMENT 'END'; END IF; COMMIT; END",
]

TRANSACTIONS = [
    "BEGIN",
    "begin",
    "BEGIN TRANSACTION",
    "BEGIN WORK",
    "BEGIN ISOLATION LEVEL SNAPSHOT",
    "BEGIN READ ONLY",
    "BEGIN READ WRITE, ISOLATION LEVEL SERIALIZABLE",
    "BEGIN AS OF SYSTEM VERSION 3",
    "BEGIN COMMENT 'why;'",
    'BEGIN COMMENT "why;"',
    "BEGIN /* ; */ TRANSACTION",
    "BEGIN TRANSACTION COMMENT 'END; END'",
    "START TRANSACTION READ ONLY",
]


@pytest.mark.parametrize("statement", [*NOT_ENDS, *BLOCKS, *TRANSACTIONS])
@pytest.mark.parametrize("end", [";", " ;", ";\n", "; -- x;\n", ";;"])
def test_a_statement_ends_at_its_own_semicolon(statement: str, end: str) -> None:
    script = f"SELECT 0; {statement}{end} INSERT INTO t VALUES (1); COMMIT"
    assert [found.text for found in split(script)] == ["SELECT 0", statement, "INSERT INTO t VALUES (1)", "COMMIT"]


@pytest.mark.parametrize("statement", [*NOT_ENDS, *BLOCKS, *TRANSACTIONS])
def test_the_last_semicolon_may_be_missing(statement: str) -> None:
    assert split(f"\n{statement}") == [Statement(text=statement, line=2)]


@pytest.mark.parametrize("script", ["", " \n", ";", " ; ;; ", "-- nothing", "/* nothing; */", "-- one;\n;\n-- two"])
def test_nothing_is_no_statement(script: str) -> None:
    assert split(script) == []


def test_lines_and_columns_are_those_of_first_tokens() -> None:
    script = "-- why\nBEGIN;\n\n/* two\nlines */ SELECT\n 'a\nb' ; SELECT\r\n2;\n\n  COMMIT\n;"
    assert split(script) == [
        Statement("BEGIN", line=2, column=1),
        Statement("SELECT\n 'a\nb'", line=5, column=10),
        Statement("SELECT\r\n2", line=7, column=6),
        Statement("COMMIT", line=10, column=3),
    ]


def test_comments_around_a_statement_are_left_out_and_those_inside_are_kept() -> None:
    assert split("/* a */ SELECT /* b */ 1 -- c\n;") == [Statement("SELECT /* b */ 1", line=1, column=9)]


def test_an_unfinished_block_is_one_statement_for_spark_to_refuse() -> None:
    assert split("SELECT 0; BEGIN SELECT 1; IF a THEN SELECT 2; END; SELECT 3") == [
        Statement(text="SELECT 0", line=1),
        Statement(text="BEGIN SELECT 1; IF a THEN SELECT 2; END; SELECT 3", line=1, column=11),
    ]


@pytest.mark.parametrize(
    ("script", "line", "shown"),
    [
        ("SELECT 1;\n\nSELECT 'abc\n\n;", 3, "'abc"),
        ('SELECT 1;\nSELECT "abc', 2, '"abc'),
        ("SELECT `abc;\n\n", 1, "`abc;"),
        ("SELECT 1;\n\n\n/* abc\n", 4, "/* abc"),
        ("/* abc /* */", 1, "/* abc"),
        ("\nSELECT $$ abc", 2, "$$ abc"),
        ("SELECT 1;\nSELECT X'0g'", 2, "X'0g'"),
    ],
)
def test_what_has_no_end_is_refused_with_its_line(script: str, line: int, shown: str) -> None:
    with pytest.raises(InvalidError) as refused:
        split(script)
    assert refused.value.message.startswith(f"line {line}: ")
    assert shown in refused.value.message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("BEGIN", [Control("BEGIN", 1)]),
        ("begin transaction read only", [Control("BEGIN", 1)]),
        ("BEGIN COMMENT 'why'", [Control("BEGIN", 1)]),
        ("START TRANSACTION", [Control("START TRANSACTION", 1)]),
        ("COMMIT", [Control("COMMIT", 1)]),
        ("COMMIT /* all */ WORK", [Control("COMMIT", 1)]),
        ("ROLLBACK TRANSACTION", [Control("ROLLBACK", 1)]),
        ("ROLLBACK TO s", []),
        ("ROLLBACK WORK TO SAVEPOINT s", []),
        ("SAVEPOINT s", []),
        ("RELEASE s", []),
        ("SELECT commit FROM begin", []),
        ("COMMENT ON TABLE t IS 'COMMIT'", []),
        ("START LOGGING", []),
        ("-- nothing", []),
        ("BEGIN SELECT 1; END", []),
        ("BEGIN ATOMIC SELECT 1; END", [Control("BEGIN ATOMIC", 1)]),
        ("BEGIN\nIF a THEN\nCOMMIT; END IF; SELECT commit; END", [Control("COMMIT", 3)]),
        ("BEGIN\n BEGIN TRANSACTION;\n SELECT 1;\n COMMIT;\nEND", [Control("BEGIN", 2), Control("COMMIT", 4)]),
        ("BEGIN DECLARE EXIT HANDLER FOR SQLEXCEPTION\nBEGIN ROLLBACK; END; END", [Control("ROLLBACK", 2)]),
        ("BEGIN SAVEPOINT s; ROLLBACK TO s; EXECUTE IMMEDIATE 'COMMIT'; END", []),
    ],
)
def test_what_begins_or_ends_a_transaction_is_found_in_blocks_too(text: str, expected: list[Control]) -> None:
    assert controls(text) == expected


def test_code_is_what_is_no_comment() -> None:
    text = "SELECT /*+ a */ /* b */ ${c} -- d\n, '${e}'"
    found = [text[start:end] for start, end in code(text)]
    assert found == ["SELECT", "/*+ a */", "$", "{", "c", "}", ",", "'${e}'"]


@pytest.mark.parametrize(
    ("script", "statements"),
    [
        ("-- C:\\data\\\nDELETE FROM t;\nSELECT 1", ["SELECT 1"]),
        ("SELECT 1; -- a \\\n b \\\n; DELETE FROM t\n;SELECT 2", ["SELECT 1", "SELECT 2"]),
        ("DELETE FROM t -- a \\\n; DROP TABLE t\nWHERE a = 1", ["DELETE FROM t -- a \\\n; DROP TABLE t\nWHERE a = 1"]),
        ("/* -- a \\\n*/ SELECT 1", ["SELECT 1"]),
        ("/* /* */ -- a \\\n*/ SELECT 1", ["SELECT 1"]),
        ("SELECT '-- a \\\n'; SELECT 2", ["SELECT '-- a \\\n'", "SELECT 2"]),
        ("-- a \\\r\nSELECT 1", ["SELECT 1"]),
        ("-- a \\", []),
    ],
)
def test_a_comment_goes_on_behind_a_backslash_as_in_spark(script: str, statements: list[str]) -> None:
    """What spark-sql takes for a comment must not be run."""
    assert [statement.text for statement in split(script)] == statements


@given(st.lists(st.sampled_from([*NOT_ENDS, *BLOCKS, *TRANSACTIONS]), max_size=6))
def test_joining_and_splitting_are_inverse(statements: list[str]) -> None:
    assert [found.text for found in split(";\n".join(statements))] == statements
