"""What a transaction lets happen: every command class of Spark and Delta is known, and what is not known is refused."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.errors import PySparkException

from tests.support.java import compiled

pytestmark = pytest.mark.long

COMMAND = "org.apache.spark.sql.catalyst.plans.logical.Command"
OF_PLANS = ("org/apache/spark/sql/", "io/delta/", "lockstep/")
ABSTRACT = 0x0600
"""An interface, or an abstract class."""


class JavaClass(NamedTuple):
    """What a class file says of itself."""

    name: str
    parents: tuple[str, ...]
    is_abstract: bool
    members: frozenset[str]


def class_of(data: bytes) -> JavaClass:
    """Read a class file (The Java Virtual Machine Specification, chapter 4) up to its attributes."""
    pool: dict[int, Any] = {}
    (count,), at, index = struct.unpack_from(">H", data, 8), 10, 1
    sizes = {3: 5, 4: 5, 5: 9, 6: 9, 9: 5, 10: 5, 11: 5, 12: 5, 15: 4, 17: 5, 18: 5}
    while index < count:
        tag = data[at]
        (number,) = struct.unpack_from(">H", data, at + 1)
        if tag == 1:
            pool[index] = data[at + 3 : at + 3 + number]
            at += 3 + number
        else:
            pool[index] = number
            at += sizes.get(tag, 3)
        index += 2 if tag in (5, 6) else 1
    flags, this, parent, interfaces = struct.unpack_from(">4H", data, at)
    parents = struct.unpack_from(f">{interfaces}H", data, at + 8)

    def named(reference: int) -> str:
        return pool[pool[reference]].decode().replace("/", ".")

    at += 8 + 2 * interfaces
    (fields,), members = struct.unpack_from(">H", data, at), set()
    at += 2
    for _ in range(fields):
        _, name, _, attributes = struct.unpack_from(">4H", data, at)
        members.add(pool[name].decode())
        at += 8
        for _ in range(attributes):
            at += 6 + struct.unpack_from(">I", data, at + 2)[0]
    return JavaClass(
        named(this),
        tuple(named(c) for c in (*([parent] if parent else []), *parents)),
        bool(flags & ABSTRACT),
        frozenset(members),
    )


def classes(jars: list[Path]) -> Iterator[JavaClass]:
    for jar in jars:
        with zipfile.ZipFile(jar) as archive:
            for name in archive.namelist():
                if name.startswith(OF_PLANS) and name.endswith(".class"):
                    yield class_of(archive.read(name))


def jars_of(spark: Any) -> list[Path]:
    """Return the jars of this Spark that may hold commands: its own, Delta's and Lockstep's."""
    import pyspark

    own = sorted((Path(pyspark.__file__).parent / "jars").glob("spark-*.jar"))
    added = spark.sparkContext.getConf().get("spark.jars", "").split(",")
    return own + [Path(jar.removeprefix("file://").removeprefix("file:")) for jar in added if jar]


def commands(spark: Any) -> list[JavaClass]:
    """Return every class of a command that there may be an object of."""
    found = {each.name: each for each in classes(jars_of(spark))}

    @cache
    def is_command(name: str) -> bool:
        return name == COMMAND or (name in found and any(is_command(parent) for parent in found[name].parents))

    return sorted(each for each in found.values() if is_command(each.name) and not each.is_abstract)


def test_every_command_on_the_class_path_has_a_verdict(spark: Any) -> None:
    said = spark._jvm.lockstep.spark.transactions.Commands.described
    found = commands(spark)
    names = {each.name for each in found}
    assert len(found) > 200
    # One of each of the jars: none of them was overlooked.
    assert names >= {
        "org.apache.spark.sql.catalyst.plans.logical.AppendData",
        "org.apache.spark.sql.execution.command.SetCommand",
        "org.apache.spark.sql.hive.execution.InsertIntoHiveTable",
        "org.apache.spark.sql.delta.commands.WriteIntoDelta",
        "lockstep.spark.execution.AtomicBlock",
    }
    verdicts = {each.name: said(each.name) for each in found}
    assert [name for name, verdict in verdicts.items() if verdict == "Unknown"] == []
    missing = {
        each.name: field
        for each in found
        if verdicts[each.name] not in ("Harmless", "Outside")
        for field in verdicts[each.name].split()
        if field not in each.members
    }
    assert missing == {}


def test_a_command_that_nobody_knows_is_refused(spark: Any) -> None:
    """A subclass of a harmless command is none of the known: a third party's extension may do anything."""
    kind = compiled(
        spark._jvm,
        "test.Foreign",
        """
        package test;
        public class Foreign extends org.apache.spark.sql.execution.command.ListJarsCommand {
          public Foreign(scala.collection.immutable.Seq jars) { super(jars); }
        }
        """,
    )
    none = spark._jvm.PythonUtils.toSeq(spark._jvm.java.util.ArrayList())
    arguments = spark._jvm.java.util.List.of(none).toArray()

    def run() -> None:
        command = kind.getDeclaredConstructors()[0].newInstance(arguments)
        spark._jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, command)

    run()
    spark.sql("CREATE TABLE t (id INT)")
    spark.sql("BEGIN")
    spark.sql("INSERT INTO t VALUES (1)")
    with pytest.raises(Exception, match=r"test\.Foreign.*does not know.*outside-writes=allow"):
        run()
    spark.sql("COMMIT")
    assert spark.table("t").count() == 1


PROCEDURES = """
package test;

import java.util.*;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.catalog.*;
import org.apache.spark.sql.connector.catalog.procedures.*;
import org.apache.spark.sql.types.StructType;

public class Procedures implements ProcedureCatalog, UnboundProcedure, BoundProcedure {
  public void initialize(String name, org.apache.spark.sql.util.CaseInsensitiveStringMap options) {}
  public String name() { return "elsewhere"; }
  public String description() { return "counts its calls"; }
  public UnboundProcedure loadProcedure(Identifier ident) { return this; }
  public Identifier[] listProcedures(String[] namespace) { return new Identifier[0]; }
  public BoundProcedure bind(StructType types) { return this; }
  public ProcedureParameter[] parameters() { return new ProcedureParameter[0]; }
  public boolean isDeterministic() { return false; }
  public Iterator call(InternalRow input) {
    System.setProperty("test.procedures", System.getProperty("test.procedures", "") + "called ");
    return Collections.emptyIterator();
  }
}
"""


def test_a_procedure_of_another_catalog_is_not_called(spark: Any) -> None:
    jvm = spark._jvm
    loader = compiled(jvm, "test.Procedures", PROCEDURES).getClassLoader()
    thread = jvm.java.lang.Thread.currentThread()
    before = thread.getContextClassLoader()

    def calls() -> int:
        return len((jvm.java.lang.System.getProperty("test.procedures") or "").split())

    spark.conf.set("spark.sql.catalog.elsewhere", "test.Procedures")
    thread.setContextClassLoader(loader)
    try:
        spark.sql("CALL elsewhere.ns.it()")
        called = calls()
        assert called > 0
        spark.sql("BEGIN")
        with pytest.raises(PySparkException, match=r"25001") as caught:
            spark.sql("CALL elsewhere.ns.it()")
        assert "elsewhere.ns.it" in str(caught.value)
        assert calls() == called
        spark.sql("EXPLAIN CALL elsewhere.ns.it()")
        assert calls() == called
    finally:
        thread.setContextClassLoader(before)


def test_a_delta_table_elsewhere_is_known_by_where_it_lies(spark: Any, other: Any, tmp_path: Path) -> None:
    """`DeltaTable.forPath(…).optimize()` says the current catalog's name of any table."""
    from delta.tables import DeltaTable

    outside = tmp_path / "lockstep:files"
    for _ in range(2):
        other.range(1).write.format("delta").mode("append").save(str(outside))
    spark.sql("CREATE TABLE t AS SELECT 1L AS id")
    spark.sql("BEGIN")
    table = DeltaTable.forPath(spark, str(outside))
    writes = [
        lambda: table.optimize().executeCompaction(),
        lambda: table.delete("id = 1"),
        lambda: table.update("id = 1", {"id": "2"}),
        lambda: table.restoreToVersion(0),
        lambda: table.upgradeTableProtocol(1, 5),
        lambda: table.addFeatureSupport("typeWidening"),
        lambda: table.alias("t").merge(spark.range(1).alias("s"), "t.id = s.id").whenMatchedDelete().execute(),
        lambda: spark.range(1).write.format("delta").mode("append").save(str(outside)),
        lambda: spark.range(1).write.mode("overwrite").parquet(str(outside)),
        lambda: spark.range(1).write.jdbc("jdbc:derby:memory:guard;create=true", "lockstep:t"),
        lambda: spark.range(1).write.format("delta").saveAsTable("spark_catalog.default.guarded"),
        lambda: spark.range(1).writeTo("spark_catalog.default.guarded").using("delta").createOrReplace(),
        lambda: spark.sql(f"CREATE TABLE spark_catalog.default.guarded USING delta LOCATION '{outside}'"),
        lambda: spark.sql(f"CREATE TABLE spark_catalog.default.guarded SHALLOW CLONE t LOCATION '{outside}-clone'"),
        lambda: spark.sql(f"CONVERT TO DELTA parquet.`{outside}`"),
        lambda: spark.sql(f"ALTER TABLE delta.`{outside}` SET TBLPROPERTIES ('a' = 'b')"),
    ]
    passed = []
    for number, write in enumerate(writes):
        try:
            write()
            passed.append((number, "ran"))
        except PySparkException as error:
            if error.getSqlState() != "25001":
                passed.append((number, str(error)[:200]))
    assert passed == []
    spark.sql("COMMIT")
    assert DeltaTable.forPath(other, str(outside)).history().count() == 2


def test_a_query_may_be_executed_for_nothing_but_its_reads(spark: Any, other: Any) -> None:
    """The `noop` format writes nothing that a ROLLBACK could not take back; what it read counts."""
    spark.sql("CREATE TABLE a AS SELECT 1 AS id")
    spark.sql("CREATE TABLE b AS SELECT 1 AS id")
    spark.sql("BEGIN")
    spark.table("a").write.format("noop").mode("overwrite").save()
    other.sql("INSERT INTO a SELECT count(*) FROM b")
    spark.sql("INSERT INTO b VALUES (2)")
    with pytest.raises(PySparkException) as caught:
        spark.sql("COMMIT")
    assert caught.value.getSqlState() == "40001"
