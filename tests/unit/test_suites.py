"""The suites of others: what is changed of their cases, and how a run is compared with its list."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.suites import dbt
from tests.suites.expected import Outcome, disagreements, numbers, parse, summary
from tests.suites.translation import table_of, translated_source, translated_sql

LIST = Path(__file__).parents[1] / "suites" / "expected.txt"


@pytest.mark.parametrize(
    ("source", "translated"),
    [
        ('spark.sql("CREATE TABLE t (a INT) USING parquet")', 'spark.sql("CREATE TABLE t (a INT) USING delta")'),
        ('df.writeTo("t").using("parquet")', 'df.writeTo("t").using("delta")'),
        ('writer.toTable("t", format="parquet")', 'writer.toTable("t", format="delta")'),
        ('df.write.format("parquet").save(path)', 'df.write.format("parquet").save(path)'),
        ("USING parquetish", "USING parquetish"),
        ('listColumns("spark_catalog.default.t")', 'listColumns("lake.default.t")'),
        ("my_spark_catalog", "my_spark_catalog"),
    ],
    ids=["SQL", "writeTo", "stream", "files", "another word", "catalog", "another name"],
)
def test_the_source_is_translated(source: str, translated: str) -> None:
    assert translated_source(source, "lake") == translated


@pytest.mark.parametrize(
    ("statement", "translated"),
    [
        ("SELECT * FROM delta.`/tmp/x/a`", "SELECT * FROM lake.default.a"),
        ("VACUUM '/tmp/x/a' RETAIN 0 HOURS", "VACUUM lake.default.a RETAIN 0 HOURS"),
        ("SELECT * FROM delta.`/tmp/x/a_2`", "SELECT * FROM delta.`/tmp/x/a_2`"),
        ("ALTER TABLE t SET LOCATION '/tmp/x/a'", "ALTER TABLE t SET LOCATION '/tmp/x/a'"),
        ("CONVERT TO DELTA parquet.`/tmp/x/a`", "CONVERT TO DELTA parquet.`/tmp/x/a`"),
    ],
    ids=["table", "VACUUM", "another path", "a place", "not Delta"],
)
def test_paths_in_sql_become_names(statement: str, translated: str) -> None:
    assert translated_sql(statement, {"/tmp/x/a": "lake.default.a"}) == translated


def test_two_paths_have_two_names() -> None:
    assert table_of("/tmp/x/a", "") != table_of("/tmp/x/a_2", "")


LINE = "delta.m.C.test_a | design | statements transaction | 0A000 | it is refused"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a case without fields", "expected `case"),
        (LINE.replace("0A000", ""), "expected `case"),
        (LINE.replace("design", "whim"), "kinds are"),
        (LINE.replace("transaction", "sometimes"), "settings are"),
        (LINE.replace("design", "translation"), "without Lockstep too"),
        (LINE.replace("design", "dbt"), "without Lockstep too"),
        (f"# why\n\n{LINE}\n{LINE}", "line 4: delta.m.C.test_a in statements has a line already"),
    ],
    ids=["no fields", "empty field", "kind", "setting", "translation that plain does not see", "dbt alike", "twice"],
)
def test_a_line_that_is_not_of_the_form_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse(text)


@pytest.mark.parametrize(
    ("outcomes", "said"),
    [
        ([Outcome("delta.m.C.test_a", "statements", "… 0A000 …"), Outcome("delta.m.C.test_b", "statements")], []),
        ([Outcome("delta.m.C.test_a", "statements")], ["passes: take its line out"]),
        ([Outcome("delta.m.C.test_a", "statements", "… 42P01 …")], ["without '0A000'"]),
        (
            [Outcome("delta.m.C.test_a", "statements", "0A000"), Outcome("x", "plain", "boom")],
            ["not in the list: boom"],
        ),
        ([Outcome("x", "statements")], ["delta.m.C.test_a (statements) is in the list, but there is no such case"]),
        ([Outcome("x", "plain")], []),
    ],
    ids=["as listed", "passes", "fails otherwise", "not listed", "no such case", "its settings were not run"],
)
def test_a_run_is_compared_with_the_list(outcomes: list[Outcome], said: list[str]) -> None:
    found = disagreements(outcomes, parse(LINE), complete=True)
    assert len(found) == len(said)
    assert all(what in line for what, line in zip(said, found, strict=True))


def test_a_part_of_a_run_misses_no_case() -> None:
    assert disagreements([Outcome("x", "statements")], parse(LINE), complete=False) == []


def test_a_failure_is_told_by_its_last_error() -> None:
    trace = "Traceback (most recent call last):\n  File …\npyspark.errors.X: a\n\npy4j.Y.SomeError: b\n  at java"
    assert summary(trace) == "py4j.Y.SomeError: b"
    assert summary("boom") == "boom"


def test_cases_are_counted_by_file_and_setting() -> None:
    found = numbers(
        [Outcome("d.m.C.a", "plain"), Outcome("d.m.C.b", "plain", "x"), Outcome("d.m.D.c", "plain", None, "y")]
    )
    assert found == {("d.m", "plain"): {"passed": 1, "failed": 1, "skipped": 1}}


def test_the_list_itself_is_of_the_form() -> None:
    assert parse(LIST.read_text(encoding="utf-8"))


JUNIT = """<testsuites><testsuite>
<testcase classname="tests.functional.adapter.test_basic.TestEmpty" name="test_empty" time="1.5" />
<testcase classname="tests.functional.adapter.utils.test_utils.TestHash" name="test_build" time="2">
<failure message="short">all of it</failure><system-out>dbt's words
</system-out></testcase>
<testcase classname="tests.functional.adapter.utils.test_utils.TestSplit" name="test_build" time="0">
<error message="in its fixture" /></testcase>
<testcase classname="tests.functional.adapter.test_python_model.TestPython" name="test_it" time="0">
<skipped message="not here" /></testcase>
</testsuite></testsuites>"""


def test_what_became_of_dbts_tests_is_read_from_pytests_results() -> None:
    assert list(dbt.read(JUNIT, "statements")) == [
        Outcome("dbt.test_basic.TestEmpty.test_empty", "statements", seconds=1.5),
        Outcome("dbt.utils.test_utils.TestHash.test_build", "statements", "dbt's words\nall of it", seconds=2.0),
        Outcome("dbt.utils.test_utils.TestSplit.test_build", "statements", "in its fixture"),
        Outcome("dbt.test_python_model.TestPython.test_it", "statements", skipped="not here"),
    ]


def test_plain_delta_of_dbts_tests_knows_nothing_of_lockstep(tmp_path: Path) -> None:
    lake, plain = (dbt.spark_settings(tmp_path, setting) for setting in ("statements", "plain"))
    assert lake["spark.sql.defaultCatalog"] == "lake"
    assert lake["spark.sql.extensions"] == "lockstep.spark.Extensions"
    assert plain["spark.sql.extensions"] == "io.delta.sql.DeltaSparkSessionExtension"
    assert not [key for key in plain if "lake" in key or "lockstep" in key or "defaultCatalog" in key]
    assert "lockstep-spark" in lake["spark.jars"]
    assert "lockstep-spark" not in plain["spark.jars"]
