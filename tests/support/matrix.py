"""What one line of docs/statements.md says, and how it is found out: a statement beside the same one on plain Delta.

Plain Delta is a process of its own (`tests.support.plain_statements`), which never loads Lockstep.

In a case `$t`, `$u` and `$new` are tables of its own: `$t` and `$u` are there before it, `$new` is not. `$ns` is
their namespace, `$space` one that is not there. In Python `$rows` and `$others` are DataFrames of `$t` and `$u`, and
`$table` is the `DeltaTable` of `$t`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from string import Template
from typing import Any, Literal, TypeAlias, get_args

from tests.support.runner import Failure, Result
from tests.support.sessions import CATALOG, SparkConnection

Setting: TypeAlias = Literal["plain", "alone", "transaction"]
"""On plain Delta; on a Lockstep catalog as a statement of its own; there in a transaction."""

NAMESPACE = "m"

ROWS = "SELECT * FROM VALUES (1, 'x', 10), (2, 'x', 20), (3, 'y', 30) AS r(id, p, v)"
T = (f"CREATE TABLE $t USING delta PARTITIONED BY (p) AS {ROWS}",)
U = ("CREATE TABLE $u USING delta AS SELECT * FROM VALUES (2, 'two'), (4, 'four') AS r(id, name)",)
TU = (*T, *U)
EMPTY = ("CREATE TABLE $t (id INT, p STRING, v INT) USING delta PARTITIONED BY (p)",)
ALL = ("SELECT * FROM $t",)
NEW = ("SELECT * FROM $new",)
COLUMNS = "DESCRIBE $t"
CHANGES = (
    "CREATE TABLE $t (id INT) USING delta TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')",
    "INSERT INTO $t VALUES (1)",
    "DELETE FROM $t",
)
TWICE = (*T, "INSERT INTO $t VALUES (5, 'x', 50)")


class Py(str):
    """An expression of Python, in which `spark`, `DeltaTable` and `F` (pyspark.sql.functions) are known."""

    __slots__ = ()


@dataclass(frozen=True)
class Case:
    """A statement, and what must be the same on plain Delta and here.

    Attributes:
        run: statements of SQL or Python, in one transaction if in any; the page shows them.
        before: what is run before it, outside.
        look: queries whose rows must be the same afterwards, in any order.
        answer: columns of its own answer that must be the same, `*` for the whole of it; none are compared by default.
        settings: of the session, for this case.
        refused: SQLSTATEs, for the settings in which it is refused.
        core: whether every test run has it; the others are for `make statements`.
        why: a remark for the page.
        group: its heading there.
    """

    run: tuple[str, ...]
    before: tuple[str, ...] = T
    look: tuple[str, ...] = ALL
    answer: tuple[str, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)
    refused: dict[Setting, str] = field(default_factory=dict)
    core: bool = False
    why: str = ""
    group: str = ""

    @property
    def changes_nothing(self) -> bool:
        """Whether it is a question, or refused wherever it is asked."""
        return bool(self.answer) or len(self.refused) == len(get_args(Setting))

    @property
    def title(self) -> str:
        """The statements as the page shows them."""
        return "; ".join(self.run).replace("$", "")


def group(name: str, *cases: Case) -> tuple[Case, ...]:
    """Put cases under a heading."""
    return tuple(replace(case, group=name) for case in cases)


def one(text: str, *look: str, **more: Any) -> Case:
    """Return a case of one statement, that looks at the table `$t` if at nothing else."""
    return Case((text,), **{"look": look or ALL, **more})


def new(*texts: str, **more: Any) -> Case:
    """Return a case that makes the table `$new`, out of nothing if nothing else is said, and looks at it."""
    return Case(texts, **{"before": (), "look": NEW, **more})


def tells(text: str, *columns: str, **more: Any) -> Case:
    """Return a case whose answer counts, or these columns of it."""
    return Case((text,), **{"look": (), "answer": columns or ("*",), **more})


def everywhere(sqlstate: str) -> dict[Setting, str]:
    """Return what a case says that is refused in every setting: it is Spark's or Delta's refusal."""
    return {"plain": sqlstate, "alone": sqlstate, "transaction": sqlstate}


def here(sqlstate: str) -> dict[Setting, str]:
    """Return what a case says that plain Delta does and Lockstep refuses."""
    return {"alone": sqlstate, "transaction": sqlstate}


@contextmanager
def with_settings(session: Any, case: Case) -> Iterator[None]:
    """Have a session set as a case asks for it."""
    for key, value in case.settings.items():
        session.conf.set(key, value)
    try:
        yield
    finally:
        for key in case.settings:
            session.conf.unset(key)


@dataclass(frozen=True, slots=True)
class Found:
    """What became of a case: its SQLSTATE if it was refused, what it answered, and what was there afterwards."""

    refused: str | None
    answered: list[list[str]]
    left: list[list[str]]


_numbers = count(1)


class Place:
    """Tables of their own for a case, in one of the two catalogs."""

    def __init__(self, session: Any, before: tuple[str, ...], catalog: str) -> None:
        self._session, self._catalog = session, catalog
        number = next(_numbers)
        self._own = {name: f"{name}{number}" for name in ("t", "u", "new", "space")}
        self._names = {name: f"{NAMESPACE}.{own}" for name, own in self._own.items() if name != "space"}
        self._sql = SparkConnection(session)
        self._elsewhere = f"{tempfile.mkdtemp()}/elsewhere"
        session.sql(f"USE {catalog}")
        for text in before:
            self.ok(text)

    def ok(self, text: str) -> None:
        found = self.run(text)
        assert not isinstance(found, Failure), f"{text}: {found}"

    def run(self, text: str, columns: tuple[str, ...] = ("*",)) -> list[list[str]] | Failure:
        """Run a statement; return its rows as text, sorted, without what is each place's own."""
        own = {**self._names, "space": self._own["space"], "ns": NAMESPACE, "catalog": self._catalog}
        own |= {f"{name}_name": self._own[name] for name in self._names}
        own["elsewhere"] = self._elsewhere
        own |= {"rows": f"spark.table('{self._names['t']}')", "others": f"spark.table('{self._names['u']}')"}
        own |= {"table": f"DeltaTable.forName(spark, '{self._catalog}.{self._names['t']}')"}
        statement = Template(text).substitute(own)
        found = run_python(self._session, statement) if isinstance(text, Py) else self._sql.run(statement)
        if isinstance(found, Failure):
            return found
        picked = found.columns if columns == ("*",) else columns
        places = [list(found.columns).index(column) for column in picked]
        return sorted([self._plain(str(row[place])) for place in places] for row in found.rows)

    def _plain(self, text: str) -> str:
        for name, own in self._own.items():
            text = text.replace(own, name)
        return text.replace(self._catalog, "catalog")

    def look(self, case: Case) -> list[list[str]]:
        """Return what the case looks at; a look at what is not there says so."""
        seen = [self.run(query) for query in case.look]
        return [row for found in seen for row in ([[str(found.sqlstate)]] if isinstance(found, Failure) else found)]

    def attempt(self, case: Case, end: str | None = None) -> Found:
        """Run the case's statements, in a transaction that ends so or each on its own."""
        self.ok(f"USE {self._catalog}")
        if end:
            self.ok("BEGIN")
        refused, answered = None, []
        for text in case.run:
            rows = self.run(text, case.answer or ("*",))
            if isinstance(rows, Failure):
                refused = rows.sqlstate or "no SQLSTATE"
                break
            answered += rows if case.answer else []
        if end:
            self.ok("ROLLBACK" if refused else end)
        return Found(refused, answered, self.look(case))


def run_python(session: Any, code: str) -> Result | Failure:
    """Evaluate an expression; what is no DataFrame is one row of one column."""
    from delta.tables import DeltaTable
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame, functions

    try:
        # The code is the page's, so that what the page shows is what was run.
        value = eval(code, {"spark": session, "DeltaTable": DeltaTable, "F": functions})
        if isinstance(value, DataFrame):
            return Result(value.columns, [tuple(row) for row in value.collect()])
        return Result(["value"], [(each,) for each in value] if isinstance(value, list) else [(value,)])
    except PySparkException as error:
        return Failure(error.getSqlState(), str(error))
    except Py4JJavaError as error:
        return Failure(None, str(error))


class Places:
    """The places of a session: of its own for a case that changes something, else shared by all that begin alike."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._shared: dict[tuple[str, tuple[str, ...]], Place] = {}

    def of(self, case: Case, catalog: str) -> Place:
        """Return where a case is to be run."""
        key = (catalog, case.before)
        if not case.changes_nothing:
            return Place(self._session, case.before, catalog)
        if key not in self._shared:
            self._shared[key] = Place(self._session, case.before, catalog)
        return self._shared[key]


def differences(places: Places, case: Case, plain: Found) -> Iterator[str]:
    """Yield what a case does otherwise than it says, or than it did on plain Delta."""
    alone = places.of(case, CATALOG).attempt(case)
    place = places.of(case, CATALOG)
    before = place.look(case)
    rolled_back, committed = place.attempt(case, "ROLLBACK"), place.attempt(case, "COMMIT")
    every: list[tuple[Setting, Found]] = [("plain", plain), ("alone", alone), ("transaction", committed)]
    for setting, found in [*every, ("transaction", rolled_back)]:
        if found.refused != case.refused.get(setting):
            yield f"{setting}: refused with {found.refused}, expected {case.refused.get(setting)}"
    done = [(setting, found) for setting, found in every if found.refused is None]
    for setting, found in done[1:]:
        if found != done[0][1]:
            yield f"{setting}: {found}\n{done[0][0]}: {done[0][1]}"
    if rolled_back.left != before:
        yield f"rolled back: {rolled_back.left}\nbefore: {before}"
