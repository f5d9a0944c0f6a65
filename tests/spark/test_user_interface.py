"""What Spark's own interface says of a table and of a transaction: EXPLAIN, and the descriptions of jobs."""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.scripts.splitting import split
from project.render_screens import EXPLAINED
from tests.support.sessions import INTERPRETED
from tests.support.sparks import since

pytestmark = pytest.mark.long

T = "lake.default.t"


def descriptions(session: Any) -> Counter[str]:
    """Return the descriptions of all jobs that ran so far, as the UI has them: how many jobs have each."""
    context = session.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty()
    jobs = context.statusStore().jobsList(None)
    found = [jobs.apply(at).description() for at in range(jobs.size())]
    return Counter(str(each.get()) if each.isDefined() else "" for each in found)


def test_jobs_of_a_transaction_say_which_it_is(spark: Any) -> None:
    spark.sql(f"CREATE TABLE {T} AS SELECT 1 AS id")
    before = descriptions(spark)
    (begun,) = spark.sql("BEGIN").collect()
    spark.sql(f"INSERT INTO {T} VALUES (2)")
    spark.table(T).collect()
    spark.sql("COMMIT")
    inside = descriptions(spark) - before
    assert inside
    assert all(begun.transaction_id in said for said in inside)
    assert f"Lockstep transaction {begun.transaction_id}" in inside
    spark.table(T).collect()
    after = descriptions(spark) - before - inside
    assert not [said for said in after if begun.transaction_id in said]


def test_the_history_of_a_table_leads_to_its_transactions(spark: Any, root: Path) -> None:
    spark.sql(f"CREATE TABLE {T} AS SELECT 1 AS id")
    spark.sql(f"INSERT INTO {T} VALUES (2)")
    spark.sql("BEGIN")
    spark.sql(f"INSERT INTO {T} VALUES (3)")
    spark.sql(f"DELETE FROM {T} WHERE id = 1")
    (committed,) = spark.sql("COMMIT").collect()
    spark.sql(f"INSERT INTO {T} VALUES (4)")
    history = spark.sql(f"DESCRIBE HISTORY {T}").orderBy("version").collect()
    timeline = TransactionalCatalog.open(str(root)).timeline
    known = [entry.transaction.id for entry in timeline.entries(0)]
    assert [row.operationParameters["lockstepTransaction"] for row in history] == known
    assert known[2] == committed.transaction_id
    assert [row.operation for row in history] == ["CREATE TABLE AS SELECT", "WRITE", "TRANSACTION", "WRITE"]


def test_a_description_of_the_users_stays(spark: Any) -> None:
    spark.sql(f"CREATE TABLE {T} AS SELECT 1 AS id")
    before = descriptions(spark)
    context = spark.sparkContext
    try:
        context.setJobDescription("mine, from before")
        spark.sql("BEGIN")
        spark.sql(f"INSERT INTO {T} VALUES (2)")
        context.setJobDescription("mine, from inside")
        spark.sql(f"INSERT INTO {T} VALUES (3)")
        spark.sql("COMMIT")
        assert context.getLocalProperty("spark.job.description") == "mine, from inside"
    finally:
        context.setLocalProperty("spark.job.description", None)
    said = descriptions(spark) - before
    assert {"mine, from before", "mine, from inside"} <= said.keys()
    assert not [each for each in said if "Lockstep" in each]


def test_explain_names_the_table(spark: Any) -> None:
    spark.sql(f"CREATE TABLE {T} AS SELECT 1 AS id")
    for statement in (f"SELECT * FROM {T} WHERE id = 1", f"INSERT INTO {T} SELECT id FROM {T}"):
        ((plan,),) = spark.sql(f"EXPLAIN {statement}").collect()
        named = T in plan or all(part in plan for part in ("Catalog: lake", "Database: default", "Table: t"))
        assert named, plan


@pytest.mark.parametrize("mode", ["", "EXTENDED", "FORMATTED"])
def test_explain_shows_where_the_table_lies(spark: Any, root: Path, mode: str) -> None:
    spark.sql("SET spark.sql.maxMetadataStringLength = 1000")
    spark.sql(f"CREATE TABLE {T} AS SELECT 1 AS id")
    spark.sql("BEGIN")
    ((plan,),) = spark.sql(f"EXPLAIN {mode} SELECT * FROM {T} WHERE id = 1").collect()
    spark.sql("ROLLBACK")
    assert f"[file:{root}/default/t-" in plan, plan
    assert "lockstep:" not in plan


@pytest.mark.parametrize(
    ("cut", "shown"),
    [
        ("... 618b89eeded5f3f-0.file/lake/t-1]", "... file:/lake/t-1]"),
        ("... -12.s3a.bucket.of.mine/lake/t-1]", "... s3a://bucket.of.mine/lake/t-1]"),
        (
            "... -12.abfss.lakes@account.dfs.core.windows.net/t-1]",
            "... abfss://lakes@account.dfs.core.windows.net/t-1]",
        ),
        ("... 3-0.hdfs.namenode:8020/lake/t-1]", "... hdfs://namenode:8020/lake/t-1]"),
        ("... ead.gs.bucket/lake/t-1]", "... gs://bucket/lake/t-1]"),
        ("... ead.file/lake/t-1]", "... file:/lake/t-1]"),
        ("... older-0/default/t-1]", "... older-0/default/t-1]"),
        ("... older.txt/default/t-1]", "... older.txt/default/t-1]"),
    ],
)
def test_a_path_that_delta_cut_off_shows_nothing_of_ours(spark: Any, cut: str, shown: str) -> None:
    """Of a long path Delta's plans show the last 97 characters, which may begin in the middle of a transaction's id."""
    real_paths = spark._jvm.lockstep.spark.overlay.RealPaths
    plan = "UpdateCommand Delta[version=0, {}, `lake`.`default`.`t`, [id#1, 3]"
    assert getattr(real_paths, "in")(plan.format(cut)) == plan.format(shown)


@pytest.mark.parametrize("mode", ["", "EXTENDED", "FORMATTED"])
def test_explain_of_a_write_names_the_table(spark: Any, mode: str) -> None:
    spark.sql(f"CREATE TABLE {T} AS SELECT 1 AS id")
    spark.sql("BEGIN")
    for statement in (
        f"UPDATE {T} SET id = 2",
        f"MERGE INTO {T} a USING {T} b ON a.id = b.id WHEN MATCHED THEN DELETE",
    ):
        ((plan,),) = spark.sql(f"EXPLAIN {mode} {statement}").collect()
        assert "`lake`.`default`.`t`" in plan, plan
        assert "lockstep:" not in plan
    spark.sql("ROLLBACK")


def alike(plan: str, root: Path) -> str:
    """Return a plan as it is each time: the lake's root as `/data/lake`, `…` for tables' ids, columns' from 1 on."""
    numbers = defaultdict[str, int](itertools.count(1).__next__)
    plan = plan.replace(f"file:{root}/", "file:/data/lake/")
    plan = re.sub(r"-[0-9a-f]{24}(?=[\]/])", "-…", plan)
    return re.sub(r"#\d+", lambda match: f"#{numbers[match[0]]}", plan)


@since("4.2", "the plan that the picture shows")
def test_the_picture_of_explain_shows_what_spark_answers(spark: Any, root: Path) -> None:
    for setting in INTERPRETED:  # users' plans are compiled
        spark.conf.unset(setting)
    spark.conf.set("spark.sql.maxMetadataStringLength", "1000")  # the path of a test's lake is long
    spark.sql("CREATE NAMESPACE lake.shop")
    spark.sql("CREATE TABLE lake.shop.stock AS SELECT 'bolt' AS item, 7 AS pieces")
    statements, plan = EXPLAINED.read_text(encoding="utf-8").split("\n\n", 1)
    *earlier, explain = split(statements)
    for statement in earlier:
        spark.sql(statement.text)
    ((answer,),) = spark.sql(explain.text).collect()
    spark.sql("ROLLBACK")
    assert alike(answer, root).strip() == plan.strip()
