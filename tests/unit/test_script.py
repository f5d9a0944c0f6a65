"""What a script is before it runs: the values of its variables, the places in it, whether it can be one transaction."""

from __future__ import annotations

import pytest

from lockstep.errors import InvalidError
from lockstep.scripts.script import BYTES_AT_MOST, read, refuse_transactions

VALUES = {"day": "2026-03-01", "t": "lake.bank.t", "n": "", "two": "a;\nb"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT '${day}', ${day}", "SELECT '2026-03-01', 2026-03-01"),
        ("SELECT * FROM ${t}", "SELECT * FROM lake.bank.t"),
        ("SELECT * FROM ${hivevar:t}_${day}", "SELECT * FROM lake.bank.t_2026-03-01"),
        ("SELECT * FROM `${t}`", "SELECT * FROM `lake.bank.t`"),
        (
            "SELECT 1 /* ${day} ${nobody} */ -- ${nobody}\n+ ${day}",
            "SELECT 1 /* ${day} ${nobody} */ -- ${nobody}\n+ 2026-03-01",
        ),
        ("SELECT ${n}1", "SELECT 1"),
        ("SELECT '${two}'", "SELECT 'a;\nb'"),
        (
            "SELECT '${env:HOME}', ${system:x}, ${spark.x}, ${spark:x.y}",
            "SELECT '${env:HOME}', ${system:x}, ${spark.x}, ${spark:x.y}",
        ),
        ("SELECT '${not one}', '${}', '$day', '{day}'", "SELECT '${not one}', '${}', '$day', '{day}'"),
        ("SELECT ${set.by.conf}", "SELECT ${set.by.conf}"),
    ],
)
def test_variables_have_their_values(text: str, expected: str) -> None:
    [step] = read("x.sql", text, VALUES, {"set.by.conf"}).steps
    assert step.text == expected


def test_a_value_makes_no_second_statement() -> None:
    assert [step.text for step in read("x.sql", "SELECT ${two}; SELECT 2", VALUES).steps] == [
        "SELECT a;\nb",
        "SELECT 2",
    ]


def test_what_a_script_sets_is_defined_below_and_not_above() -> None:
    read("x.sql", "SET my.path = /x;\nSELECT * FROM parquet.`${my.path}/y`")
    with pytest.raises(InvalidError, match=r"\$\{my.path\} \(line 1\)"):
        read("x.sql", "SELECT '${my.path}';\nSET my.path = /x")


@pytest.mark.parametrize(
    ("text", "values", "message"),
    [
        (
            "SELECT 1;\n\nSELECT '${day}' -- ${other}\n, ${month}",
            {},
            "x.sql: no value for ${day} (line 3), ${month} (line 4)",
        ),
        ("SELECT ${hivevar:day}", {}, "${day} (line 1): give one with --var name=value"),
        ("SELECT " + ", ".join(f"${{v{n}}}" for n in range(11)), {}, "${v9} (line 1), …: give"),
        ("SELECT 1", {"a": "${b}"}, "the value of the variable a has a variable in it: ${b}"),
        ("SELECT 1;\nSELECT 'a", {}, "x.sql, line 2: this has no end"),
        ("-" * (BYTES_AT_MOST + 1), {}, "x.sql has more than 16777216 bytes"),
    ],
    ids=["undefined", "undefined with a prefix", "eleven undefined", "variable in a value", "no end", "too long"],
)
def test_what_cannot_run_is_refused(text: str, values: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidError) as refused:
        read("x.sql", text, values)
    assert message in refused.value.message


@pytest.mark.parametrize(
    ("script", "number", "place", "expected"),
    [
        ("SELECT x", 1, (1, 8), (1, 8)),
        ("SELECT 1;  SELECT x", 2, (1, 8), (1, 19)),
        ("-- a\n\n  SELECT\n   x", 1, (1, 1), (3, 3)),
        ("-- a\n\n  SELECT\n   x", 1, (2, 4), (4, 4)),
        ("SELECT '${day}', x", 1, (1, 22), (1, 18)),
        ("SELECT '${day}', x", 1, (1, 12), (1, 9)),
        ("SELECT '${day}', x", 1, (1, 9), (1, 9)),
        ("SELECT ${n}x", 1, (1, 8), (1, 12)),
        ("SELECT 1; SELECT '${day}', '${n}', ${t}, x", 2, (1, 39), (1, 42)),
        ("SELECT '${two}', x", 1, (2, 5), (1, 18)),
        ("SELECT x", 1, (9, 9), (1, 9)),
    ],
)
def test_a_place_in_a_statement_is_one_in_the_script(
    script: str, number: int, place: tuple[int, int], expected: tuple[int, int]
) -> None:
    assert read("x.sql", script, VALUES).steps[number - 1].place(*place) == expected


@pytest.mark.parametrize("text", ["SELECT 1; SAVEPOINT s;\nROLLBACK TO s; RELEASE s", "BEGIN SELECT 1; END"])
def test_a_script_that_ends_no_transaction_may_be_one(text: str) -> None:
    refuse_transactions(read("x.sql", text))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT 1;\nBEGIN", "line 2: BEGIN in"),
        ("SELECT 1;\n\n COMMIT WORK", "line 3: COMMIT in"),
        ("ROLLBACK", "line 1: ROLLBACK in"),
        ("START TRANSACTION", "line 1: START TRANSACTION in"),
        ("BEGIN ATOMIC SELECT 1; END", "line 1: BEGIN ATOMIC in"),
        ("SELECT 1;\nBEGIN\n IF a THEN\n  COMMIT; END IF; END", "line 4: COMMIT in"),
        ("SELECT 1; ${verb}", "line 1: COMMIT in"),
    ],
)
def test_a_script_that_begins_or_ends_transactions_cannot_be_one(text: str, said: str) -> None:
    with pytest.raises(InvalidError, match=f"x.sql, {said} a script that is to be one transaction"):
        refuse_transactions(read("x.sql", text, {"verb": "COMMIT"}))
