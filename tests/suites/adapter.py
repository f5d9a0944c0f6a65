"""Runs the cases of a suite in a Spark with Lockstep, each on a lake of its own.

The suites' own base classes make a Spark for each class; here all share one, and each case has a session and a lake.
What makes tables at paths goes to named tables instead (`translation.py` says how); a link at the path leads to the
table's folder, for cases that look into it.
"""

from __future__ import annotations

import contextlib
import importlib
import shutil
import tempfile
import time
import unittest
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch
from urllib.parse import urlparse

from tests.suites.expected import Outcome, Setting
from tests.suites.translation import table_of, translated_source, translated_sql
from tests.support.sessions import CATALOG

NOT_THEIRS = {"test_assert_classic_mode"}
"""Cases that the installed pyspark brings along with its base classes."""


@dataclass(frozen=True, slots=True)
class Module:
    """A file of a suite: its path below the suite's folder, and which of its cases are run, all if none is named."""

    path: str
    only: frozenset[str] = frozenset()


SUITES: dict[str, tuple[Module, ...]] = {
    "delta": (Module("test_deltatable.py"), Module("test_sql.py"), Module("test_exceptions.py")),
    "spark": (
        Module("test_catalog.py"),
        Module("test_readwriter.py"),
        Module("test_sql.py"),
        Module(
            "streaming/test_streaming.py",
            frozenset({"test_streaming_read_from_table", "test_streaming_with_temporary_view"}),
        ),
    ),
}
"""The files that use tables or SQL; docs/suites.md says what is left out."""


@dataclass
class Paths:
    """The paths of a case that stand for named tables, for as long as it runs.

    Attributes:
        namespace: what Delta needs in front of a table's name: it looks for a short one in `spark_catalog` alone.
        names: the tables' names by their paths.
    """

    session: Any
    namespace: str
    names: dict[str, str] = field(default_factory=dict)

    def take(self, path: str) -> str:
        """Let a path stand for a table from now on, and return the table's name."""
        return self.names.setdefault(path, table_of(path, self.namespace))

    def whole(self, name: str) -> str:
        """Return a name as Delta finds it."""
        return name if "." in name else self.namespace + name

    def link(self, path: str) -> None:
        """Let the path lead to its table's folder."""
        if not Path(path).exists():
            detail = self.session.sql(f"DESCRIBE DETAIL {self.names[path]}").first()
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).symlink_to(urlparse(detail.location).path)


@contextlib.contextmanager
def named_tables(paths: Paths) -> Iterator[None]:
    """Send to named tables whatever PySpark and Delta are asked to do with Delta tables at paths."""
    from delta.tables import DeltaTable, DeltaTableBuilder
    from pyspark.sql import SparkSession
    from pyspark.sql.readwriter import DataFrameReader, DataFrameWriter

    with contextlib.ExitStack() as stack:

        def replace(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
            stack.enter_context(patch.object(owner, name, make(getattr(owner, name))))

        replace(DataFrameWriter, "format", _format)
        replace(DataFrameWriter, "save", lambda original: _save(original, paths))
        replace(DataFrameReader, "load", lambda original: _load(original, paths))
        replace(SparkSession, "sql", lambda original: _sql(original, paths))
        replace(DeltaTable, "forPath", lambda original: _for_path(original, paths))
        replace(DeltaTable, "forName", lambda original: _for_name(original, paths))
        replace(DeltaTableBuilder, "tableName", lambda original: _table_name(original, paths))
        replace(DeltaTableBuilder, "location", lambda original: _location(original, paths))
        replace(DeltaTableBuilder, "execute", lambda original: _execute(original, paths))
        yield


def _format(original: Any) -> Any:
    def format(self: Any, source: str) -> Any:
        self._named_format = source
        return original(self, source)

    return format


def _save(original: Any, paths: Paths) -> Any:
    def save(self: Any, path: Any = None, format: Any = None, mode: Any = None, **options: Any) -> Any:
        if path is None or (format or getattr(self, "_named_format", None)) != "delta":
            return original(self, path, format, mode, **options)
        self.saveAsTable(paths.take(path), format="delta", mode=mode, **options)
        paths.link(path)
        return None

    return save


def _load(original: Any, paths: Paths) -> Any:
    def load(self: Any, path: Any = None, *args: Any, **options: Any) -> Any:
        name = paths.names.get(path)
        return original(self, path, *args, **options) if name is None else self.options(**options).table(name)

    return load


def _sql(original: Any, paths: Paths) -> Any:
    def sql(self: Any, statement: str, *args: Any, **values: Any) -> Any:
        return original(self, translated_sql(statement, paths.names), *args, **values)

    return sql


def _for_path(original: Any, paths: Paths) -> Any:
    def for_path(cls: Any, session: Any, path: str, *options: Any) -> Any:
        name = paths.names.get(path)
        return original(session, path, *options) if name is None else cls.forName(session, name)

    return classmethod(for_path)


def _for_name(original: Any, paths: Paths) -> Any:
    def for_name(cls: Any, session: Any, name: str) -> Any:
        return original(session, paths.whole(name))

    return classmethod(for_name)


def _table_name(original: Any, paths: Paths) -> Any:
    def table_name(self: Any, name: Any) -> Any:
        self._has_name = True
        return original(self, paths.whole(name) if isinstance(name, str) else name)

    return table_name


def _location(original: Any, paths: Paths) -> Any:
    def location(self: Any, path: Any) -> Any:
        if not isinstance(path, str) or hasattr(self, "_has_name"):
            return original(self, path)
        self._named_path = path
        return self.tableName(paths.take(path))

    return location


def _execute(original: Any, paths: Paths) -> Any:
    def execute(self: Any) -> Any:
        table = original(self)
        if (path := getattr(self, "_named_path", None)) is not None:
            paths.link(path)
        return table

    return execute


# --- cases ------------------------------------------------------------------------------------------------------------


def load(suite: str, folder: Path, module: Module, setting: Setting) -> ModuleType:
    """Execute a file of a suite, translated.

    Raises:
        FileNotFoundError: the folder has no such file.
    """
    path = folder / module.path
    source = translated_source(path.read_text(encoding="utf-8"), catalog_of(setting))
    found = ModuleType(f"{suite}.{path.stem}")
    exec(compile(source, str(path), "exec"), found.__dict__)
    return found


def catalog_of(setting: Setting) -> str:
    """Return the name of the catalog that cases use in a setting."""
    return "spark_catalog" if setting == "plain" else CATALOG


def classes(module: ModuleType) -> list[type[unittest.TestCase]]:
    """Return the classes with cases that a module defines, not those that it imports."""
    return [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, unittest.TestCase) and value.__module__ == module.__name__
    ]


def on_a_lake(original: Any, spark: Any, setting: Setting) -> Any:
    """Return a suite's class whose cases have a session of `spark`, on a lake of their own."""
    namespace = "" if setting == "plain" else f"{CATALOG}.default."

    class OnALake(original):  # type: ignore[misc]
        @classmethod
        def setUpClass(cls) -> None:
            cls.sc = cls._legacy_sc = spark.sparkContext

        @classmethod
        def tearDownClass(cls) -> None: ...

        def setUp(self) -> None:
            from pyspark.sql import Row

            self._folder = Path(tempfile.mkdtemp(prefix="lockstep-suites-"))
            self.addCleanup(shutil.rmtree, self._folder, ignore_errors=True)
            self.spark = _session(spark, self._folder, setting)
            self.addCleanup(_leave, self.spark, setting)
            self.testData = [Row(key=number, value=str(number)) for number in range(100)]
            self.df = self.spark.createDataFrame(self.testData)  # makes it the active session, too
            stack = contextlib.ExitStack()
            stack.enter_context(named_tables(Paths(self.spark, namespace)))
            self.addCleanup(stack.close)
            if setting == "transaction":
                self.spark.sql("BEGIN")
                setattr(self, self._testMethodName, self._committing(getattr(self, self._testMethodName)))
            super().setUp()

        def _committing(self, body: Callable[[], None]) -> Callable[[], None]:
            def committed() -> None:
                body()
                self.spark.sql("COMMIT")

            return committed

    OnALake.__name__ = original.__name__
    return OnALake


def _session(spark: Any, folder: Path, setting: Setting) -> Any:
    session = spark.newSession()
    session.conf.set("spark.sql.defaultCatalog", catalog_of(setting))
    if setting == "plain":
        session.conf.set("spark.sql.sources.default", "delta")  # a lake's tables are Delta's, whatever this says
    else:
        session.conf.set(f"spark.sql.catalog.{CATALOG}.root", str(folder / CATALOG))
        # Cases see to it that statements fail, and go on.
        session.conf.set("lockstep.on_statement_error", "continue")
    return session


def _leave(session: Any, setting: Setting) -> None:
    """End what is open, and take out of Spark's own catalog what a case has left there: other cases find it there."""
    if setting == "plain":
        for table in session.sql("SHOW TABLES IN spark_catalog.default").collect():
            session.sql(f"DROP TABLE IF EXISTS spark_catalog.default.{table.tableName}")
    else:
        from lockstep.spark.bridge import is_open  # not above: the process of plain Delta never loads Lockstep

        if is_open(session):
            session.sql("ROLLBACK")


def run(
    spark: Any, suite: str, folder: Path, settings: Sequence[Setting], wanted: Callable[[str], bool]
) -> Iterator[Outcome]:
    """Run the wanted cases of a suite, and yield what became of each.

    Args:
        spark: a session with Lockstep's catalog, or one of plain Delta.
        suite: one of `SUITES`.
        folder: where the user has its sources.
        settings: in which to run each case.
        wanted: which cases, by their names.
    """
    packages = {"delta": "delta", "spark": "pyspark.sql"}
    package = importlib.import_module(packages[suite])
    package.__path__.append(str(folder.parent))  # for what their files import from beside themselves
    for module in SUITES[suite]:
        for setting in settings:
            for original in classes(load(suite, folder, module, setting)):
                case = on_a_lake(original, spark, setting)
                for name in unittest.TestLoader().getTestCaseNames(case):
                    full = f"{suite}.{Path(module.path).stem}.{original.__name__}.{name}"
                    if name not in NOT_THEIRS and (not module.only or name in module.only) and wanted(full):
                        yield _run(case(name), full, setting)


def _run(case: unittest.TestCase, name: str, setting: Setting) -> Outcome:
    result = unittest.TestResult()
    started = time.monotonic()
    unittest.TestSuite([case]).run(result)
    seconds = time.monotonic() - started
    wrong = [text for _, text in (*result.errors, *result.failures)]
    skipped = " ".join(reason for _, reason in result.skipped)
    return Outcome(name, setting, "\n".join(wrong) or None, skipped, seconds)
