"""What a catalog's options mean to Hadoop is put where Spark has it, as far as nobody has set anything else there.

Hadoop's own local file system stands for one of a store: a mark in its settings is one like any other.
`test_told_same_root.py` has a store's, on a server.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lockstep.spark import configuration
from tests.support.sessions import CATALOG

ONE, TWO, GENERIC = "fs.mark.bucket.b.key", "fs.mark.bucket.b.secret", "fs.mark.key"
TELLS = [{"settings": {ONE: "1", TWO: "2"}, "unless": [ONE, TWO, GENERIC]}]
FRESH = "fs.file.impl.disable.cache"


class Shim:
    """What there is to tell, told to a session's Hadoop."""

    def __init__(self, spark: Any) -> None:
        self.spark, self.jvm = spark, spark._jvm
        self.conf = spark._jsc.hadoopConfiguration()

    def tell(
        self,
        tells: list[dict[str, Any]] = TELLS,
        *,
        catalog: str = "lake",
        is_of_driver: bool = True,
        names: tuple[str, ...] = (ONE, TWO),
    ) -> tuple[list[str], dict[str, str], str | None]:
        """Return what was kept, what is another catalog's, and why nothing was told."""
        look = json.dumps({"catalog": catalog, "tells": tells, "names": names})
        node = self.jvm.com.fasterxml.jackson.databind.ObjectMapper().readTree(look)
        root = self.jvm.org.apache.hadoop.fs.Path("file:/")
        told = self.jvm.lockstep.spark.host.StoreSettings.open(node, root, self.spark._jsparkSession, is_of_driver)
        to_java = self.jvm.scala.jdk.javaapi.CollectionConverters
        untold = told.untold()
        others = {each: to_java.asJava(told.others())[each] for each in to_java.asJava(told.others())}
        return [*to_java.asJava(told.kept())], others, None if untold.isEmpty() else untold.get()

    def found(self) -> tuple[str | None, str | None]:
        return self.conf.get(ONE), self.conf.get(TWO)


@pytest.fixture
def shim(spark_session: Any) -> Iterator[Shim]:
    shim = Shim(spark_session.newSession())
    shim.conf.set(FRESH, "true")
    yield shim
    for name in (ONE, TWO, GENERIC, FRESH):
        shim.conf.unset(name)


def test_what_nobody_has_set_is_put_and_every_session_has_it(shim: Shim) -> None:
    assert shim.tell() == ([], {}, None)
    assert shim.found() == ("1", "2")
    for each in (shim.spark, shim.spark.newSession()):
        assert each._jsparkSession.sessionState().newHadoopConf().get(TWO) == "2"
    assert shim.tell() == ([], {}, None), "and once more"


@pytest.mark.parametrize("name", [ONE, GENERIC])
def test_what_somebody_has_set_is_kept_with_all_that_belongs_to_it(shim: Shim, name: str) -> None:
    shim.conf.set(name, "mine")
    assert shim.tell() == ([name], {}, None)
    assert shim.conf.get(name) == "mine"
    assert shim.conf.get(TWO) is None


def test_what_somebody_has_set_to_the_same_is_in_nobodys_way(shim: Shim) -> None:
    """As `options=` of `lockstep.configure` does from the start; what is missing beside it is put."""
    shim.conf.set(ONE, "1")
    assert shim.tell() == ([], {}, None)
    assert shim.found() == ("1", "2")


@pytest.mark.parametrize(
    ("source", "is_kept"),
    [
        ("core-default.xml", False),
        ("Set by Spark on host/127.0.0.1 from AWS_ACCESS_KEY_ID", False),
        ("core-site.xml", True),
        ("Set by Spark from keys starting with 'spark.hadoop'", True),
        (None, True),
    ],
)
def test_defaults_and_the_environment_are_nobodys_word(shim: Shim, source: str | None, is_kept: bool) -> None:
    """Spark takes keys from AWS's variables, and options of a catalog come before these for Lockstep's side, too."""
    shim.conf.set(GENERIC, "there", source)
    assert shim.tell() == ([GENERIC] if is_kept else [], {}, None)
    assert shim.found() == ((None, None) if is_kept else ("1", "2"))


def test_what_hadoop_and_spark_set_themselves_has_the_sources_that_are_known(shim: Shim) -> None:
    """Else every setting would be taken for somebody's, and nothing would ever be told."""
    assert [*shim.conf.getPropertySources("fs.s3a.aws.credentials.provider")] == ["core-default.xml"]
    [source] = shim.conf.getPropertySources("fs.lockstep.impl")
    assert source == "Set by Spark from keys starting with 'spark.hadoop'"


def test_another_catalog_that_says_otherwise_is_told_apart(shim: Shim) -> None:
    """Other keys, and none: Spark has one of each for a store."""
    shim.tell()
    other = [{"settings": {ONE: "1", TWO: "other"}, "unless": [ONE, TWO, GENERIC]}]
    assert shim.tell(other, catalog="second") == ([], {TWO: "lake"}, None)
    assert shim.tell([], catalog="third") == ([], {ONE: "lake", TWO: "lake"}, None)
    assert shim.tell(catalog="fourth") == ([], {}, None), "one that says the same"
    assert shim.found() == ("1", "2")


def test_a_catalog_of_a_session_alone_tells_nothing(shim: Shim) -> None:
    assert shim.tell(is_of_driver=False) == ([], {}, "session")
    assert shim.found() == (None, None)


def test_what_a_session_says_otherwise_for_itself_keeps_nothing_from_the_others(shim: Shim) -> None:
    shim.spark.conf.set(TWO, "own")
    assert shim.tell() == ([], {}, None)
    assert shim.found() == ("1", "2")
    assert shim.spark._jsparkSession.sessionState().newHadoopConf().get(TWO) == "own"


def test_a_file_system_that_was_opened_before_is_told_nothing(shim: Shim) -> None:
    """It goes on by what it knows, here and in executors: what was told would hold in some places alone."""
    shim.conf.unset(FRESH)
    assert shim.tell() == ([], {}, "opened")
    assert shim.found() == (None, None)


@pytest.mark.parametrize(
    ("of_driver", "of_catalog", "is_same"),
    [
        ({"store.region": "r"}, {"store.region": "r", "root": "s3://b/lake"}, True),
        ({}, {"root": "s3://b/lake"}, True),
        ({}, {"store.region": "r"}, False),
        ({"store.region": "r"}, {}, False),
        ({"store.region": "r"}, {"store.region": "of the session"}, False),
    ],
)
def test_options_are_the_drivers_where_it_says_the_same(
    spark_session: Any, of_driver: dict[str, str], of_catalog: dict[str, str], is_same: bool
) -> None:
    host, scala = spark_session._jvm.lockstep.spark.host, spark_session._jvm.scala.jdk.javaapi.CollectionConverters
    context = spark_session._jsparkSession.sparkContext()
    names = [f"spark.sql.catalog.told.{name}" for name in of_driver]
    for name, value in zip(names, of_driver.values(), strict=True):
        context.conf().set(name, value)
    empty = spark_session._jvm.scala.collection.immutable.HashMap()
    catalog = host.CatalogOptions("told", empty.concat(scala.asScala(of_catalog)))
    try:
        assert host.StoreSettings.isOfDriver(context, catalog) == is_same
    finally:
        for name in names:
            context.conf().remove(name)


# --- what Spark hides -------------------------------------------------------------------------------------------------


def test_both_sides_hide_the_same_names(repository: Path) -> None:
    source = (repository / "jvm-shim/src/main/scala/lockstep/spark/ImpliedSettings.scala").read_text(encoding="utf-8")
    text = re.search(r'Keys =\s+"(.*?)" \+\s+"(.*?)"', source)
    assert text is not None
    assert text[1] + text[2] == configuration._KEYS


def test_every_spark_with_lockstep_hides_what_stores_have_for_keys(spark_session: Any) -> None:
    """The tests' Spark was started with no word of it: so it is where settings stand in spark-defaults.conf."""
    name = f"spark.sql.catalog.{CATALOG}.store.account_key"
    fresh = spark_session.newSession()
    fresh.conf.set(name, "planted")
    assert configuration._KEYS in spark_session._jsparkSession.sparkContext().conf().get("spark.redaction.regex")
    shown = {row.key: row.value for row in fresh.sql("SET").collect()}
    assert shown[name] == "*********(redacted)"
