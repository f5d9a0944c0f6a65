"""Random programs: what some sessions do, step by step, and what each step means.

A program is made of a seed alone. Each session has a script of its own (transactions, statements on their own, frames
that are made in one place and used in another); the scripts are interleaved at random, and plain Delta writers come in
between. Steps are carried out one at a time, so what must come out is known exactly.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from lockstep.timeline.entry import Isolation
from tests.judge.queries import Query, Writing, inserting
from tests.judge.sql import Sql, sql
from tests.judge.tables import LAYOUTS, SHOWN, VIEWS, ZONES, Layout, random_row

Do: TypeAlias = dict[str, str]
"""What a driver is told: `do` is the kind, see `tests.judge.actor`."""


@dataclass(frozen=True, slots=True)
class Begin:
    """BEGIN at a level."""

    isolation: Isolation


@dataclass(frozen=True, slots=True)
class End:
    """COMMIT or ROLLBACK."""

    commits: bool


@dataclass(frozen=True, slots=True)
class Read:
    """A query, and what it means to the model.

    Attributes:
        lite: the query for SQLite.
        limit: it may return any so many of the rows.
        frame: what is read was made in an earlier step, under this name; it may show any state since then.
        by_plan: the frame is a query whose tables are read at one database version, that of its making.
    """

    lite: str
    limit: int | None = None
    frame: str = ""
    by_plan: bool = False


@dataclass(frozen=True, slots=True)
class Write:
    """A statement that changes a table, as the model runs it."""

    table: str
    lite: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plain:
    """A commit of a plain Delta writer, who appends rows."""

    table: str
    lite: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Prepare:
    """A step that shows nothing by itself: a frame, a view, a cache. `frame` is what it makes or fills, if anything."""

    frame: str = ""


Meaning: TypeAlias = Begin | End | Read | Write | Plain | Prepare


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a session."""

    session: int
    do: Do
    means: Meaning


PLAIN = -1
"""The session of plain writers, which is in no transaction."""


@dataclass(frozen=True, slots=True)
class Program:
    """What is run: sessions are numbered, session `n` runs in process `n % processes`."""

    seed: int
    isolation: Isolation
    layout: int
    zones: tuple[str, ...]
    record_reads: bool
    steps: tuple[Step, ...]

    @property
    def tables(self) -> tuple[Layout, ...]:
        return LAYOUTS[self.layout]


def generate(seed: int, *, isolation: Isolation | None = None, length: int = 40) -> Program:
    """Return the program of a seed, of about so many steps."""
    rng = random.Random(seed)
    levels: tuple[Isolation, ...] = ("SERIALIZABLE", "SERIALIZABLE", "SERIALIZABLE", "SNAPSHOT")
    chosen = rng.choice(levels)
    level = isolation or chosen
    layout = rng.randrange(len(LAYOUTS))
    sessions = rng.choice((2, 2, 3, 4))
    zones = tuple(rng.choice(ZONES) for _ in range(sessions))
    scripts = [
        list(_Script(random.Random(rng.random()), number, LAYOUTS[layout], level, zone, length // sessions).steps())
        for number, zone in enumerate(zones)
    ]
    record_reads = rng.random() < 0.5
    return Program(seed, level, layout, zones, record_reads, tuple(_interleaved(rng, LAYOUTS[layout], scripts)))


def _interleaved(rng: random.Random, tables: Sequence[Layout], scripts: list[list[Step]]) -> Iterator[Step]:
    while any(scripts):
        if rng.random() < 0.05:
            yield _plain(rng, tables)
        if rng.random() < 0.03:
            yield Step(0, {"do": "cold"}, Prepare())
        one = rng.choice([script for script in scripts if script])
        # Mostly one step each: what matters happens between the steps of others.
        for _ in range(min(len(one), rng.choice((1, 1, 1, 2, 3)))):
            yield one.pop(0)


def _plain(rng: random.Random, tables: Sequence[Layout]) -> Step:
    table = rng.choice([table for table in tables if table.name != "ids"])
    change = inserting(table, [random_row(rng, "plain", rng.randrange(10**6))])
    rows = change.spark.partition("VALUES")[2]
    do = {"do": "plain", "table": table.spark, "rows": f"VALUES{rows}", "columns": ",".join(table.columns)}
    return Step(PLAIN, do, Plain(table.name, change.lite))


@dataclass
class _Script:
    """What one session does, in order."""

    rng: random.Random
    session: int
    tables: Sequence[Layout]
    isolation: Isolation
    zone: str
    length: int
    made: int = 0
    frames: dict[str, tuple[Sql, bool, bool]] = field(default_factory=dict)
    """Frames by name: what they mean, whether they are plans of one version, and whether made in the transaction."""
    views: dict[str, tuple[Sql, bool, bool]] = field(default_factory=dict)
    """Temporary views of frames, likewise."""
    texts: dict[str, Sql] = field(default_factory=dict)
    """Temporary views by their text."""
    has_udf: bool = False

    def steps(self) -> Iterator[Step]:
        done = 0
        self.has_udf = self.rng.random() < 0.1  # each run of one starts a Python, which takes its time
        while done < self.length:
            part = self.rng.choices((self._transaction, self._alone, self._prepared), (6, 3, 3))[0]
            for step in part():
                done += 1
                yield step

    # --- parts --------------------------------------------------------------------------------------------------------

    def _transaction(self) -> Iterator[Step]:
        tag = f"s{self.session}t{self._number()}"
        yield self._sql(f"BEGIN ISOLATION LEVEL {self.isolation}", Begin(self.isolation))
        for number in range(self.rng.randint(1, 4)):
            kind = self.rng.choices(("read", "frame", "use", "twice", "write"), (5, 2, 3, 2, 4))[0]
            match kind:
                case "read":
                    yield self._read()
                case "frame":
                    yield from self._make(inside=True)
                case "use":
                    yield from self._use()
                case "twice":
                    yield from self._twice()
                case _:
                    yield self._write(tag, number)
        if self.rng.random() < 0.8:  # what wrote nothing cannot be in anybody's way
            yield self._write(tag, 9)
        commits = self.rng.random() < 0.9
        yield self._sql("COMMIT" if commits else "ROLLBACK", End(commits))
        for kept in (self.frames, self.views):
            for name in [name for name, (_, _, inside) in kept.items() if inside]:
                del kept[name]

    def _alone(self) -> Iterator[Step]:
        yield self._read() if self.rng.random() < 0.6 else self._write(f"s{self.session}a{self._number()}", 0)

    def _prepared(self) -> Iterator[Step]:
        ways = (lambda: self._make(inside=False), self._text_view, self._use, self._use, self._cache_table)
        yield from self.rng.choice(ways)()

    def _make(self, *, inside: bool) -> Iterator[Step]:
        """Make a DataFrame, and perhaps cache it or give it a name."""
        name = f"f{self.session}_{self._number()}"
        if self.rng.random() < 0.4:
            table = self.rng.choice([table for table in self.tables if table.name != "ids"])
            source, by_plan = Sql(table.spark, f"SELECT * FROM {table.name}"), False
            do = {"do": "table", "frame": name, "table": table.spark}
            if self.rng.random() < 0.5:
                where = self._narrow("f")
                do["where"], source = where.spark, Sql(table.spark, f"{source.lite} f WHERE {where.lite}")
            yield Step(self.session, do, Prepare(name))
        else:
            where = self._writing().condition("t")
            source, by_plan = sql("SELECT * FROM {r} t WHERE {where}", r=self._relation(), where=where), True
            yield Step(self.session, {"do": "query", "frame": name, "sql": source.spark}, Prepare(name))
        self.frames[name] = source, by_plan, inside
        if self.rng.random() < 0.35:
            yield Step(self.session, {"do": "cache", "frame": name}, Prepare())
            if self.rng.random() < 0.5:
                yield from self._used(name)
        if self.rng.random() < 0.25:
            view = f"tv{self.session}_{self._number()}"
            yield Step(self.session, {"do": "view", "frame": name, "view": view}, Prepare(view))
            self.views[view] = source, by_plan, inside
            yield from self._queried(view)
            if self.rng.random() < 0.5:
                yield from self._queried(view)

    def _twice(self) -> Iterator[Step]:
        """Use a frame of a table twice, with two conditions."""
        name = f"f{self.session}_{self._number()}"
        table = self.rng.choice([table for table in self.tables if table.name != "ids"])
        yield Step(self.session, {"do": "table", "frame": name, "table": table.spark}, Prepare(name))
        self.frames[name] = Sql(table.spark, f"SELECT * FROM {table.name}"), False, True
        yield from self._used(name)
        yield from self._used(name)

    def _use(self) -> Iterator[Step]:
        if self.views and self.rng.random() < 0.4:
            yield from self._queried(self.rng.choice(sorted(self.views)))
        elif self.frames:
            yield from self._used(self.rng.choice(sorted(self.frames)))

    def _used(self, name: str) -> Iterator[Step]:
        source, by_plan, _ = self.frames[name]
        how = self.rng.choice(("as is", "as is", "rows", "rows", "rows", "count", "max"))
        where = self._narrow("f") if self.rng.random() < 0.85 and how != "as is" else Sql("", "")
        lite = {"count": "count(*)", "max": "max(k)"}.get(how, ", ".join(SHOWN))
        text = f"SELECT {lite} FROM ({source.lite}) f" + f" WHERE {where.lite}" * bool(where.lite)
        do = {"do": "collect", "frame": name, "how": how, "where": where.spark}
        yield Step(self.session, do, Read(text, frame=name, by_plan=by_plan))

    def _queried(self, view: str) -> Iterator[Step]:
        """Query the temporary view of a DataFrame, with itself at most: other tables may be read at other versions."""
        source, by_plan, _ = self.views[view]
        relation = Sql(view, f"({source.lite})")
        query = Writing(self.rng, (relation,), (), self.zone).query()
        yield self._sql(query.text.spark, Read(query.text.lite, query.limit, frame=view, by_plan=by_plan))

    def _text_view(self) -> Iterator[Step]:
        name = f"sv{self.session}_{self._number()}"
        where = self._writing().condition("t")
        text = sql("SELECT * FROM {r} t WHERE {where}", r=self._relation(), where=where)
        yield self._sql(f"CREATE TEMPORARY VIEW {name} AS {text.spark}", Prepare())
        self.texts[name] = text
        if self.rng.random() < 0.4:
            yield self._sql(f"CACHE {self.rng.choice(('', 'LAZY '))}TABLE {name}", Prepare())

    def _cache_table(self) -> Iterator[Step]:
        """Cache a table by either way, and read it."""
        table = self.rng.choice([table for table in self.tables if table.name != "ids"])
        name = f"f{self.session}_{self._number()}"
        if self.rng.random() < 0.5:
            yield self._sql(f"CACHE TABLE {table.spark}", Prepare(name))
        else:
            yield Step(self.session, {"do": "cache table", "table": table.spark}, Prepare(name))
        yield self._read()

    # --- single steps -------------------------------------------------------------------------------------------------

    def _read(self) -> Step:
        query: Query = self._writing().query()
        return self._sql(query.text.spark, Read(query.text.lite, query.limit))

    def _write(self, tag: str, number: int) -> Step:
        table = self.rng.choice(self.tables)
        change = self._writing().change(table, tag, number)
        return self._sql(change.spark, Write(change.table, change.lite))

    def _sql(self, text: str, means: Meaning) -> Step:
        return Step(self.session, {"do": "sql", "sql": text}, means)

    def _writing(self) -> Writing:
        return Writing(self.rng, self._relations(), (Sql("lake.default.ids", "ids"),), self.zone, self.has_udf)

    def _narrow(self, alias: str) -> Sql:
        """Return a condition on a row alone."""
        return Writing(self.rng, (), (), self.zone, plain=True).condition(alias, 1)

    def _relation(self) -> Sql:
        return self.rng.choice(self._relations())

    def _relations(self) -> list[Sql]:
        """Return what a query can read that is resolved anew each time; views by text count less than tables."""
        tables = [Sql(table.spark, table.name) for table in self.tables if table.name != "ids"]
        views = [Sql(spark, name) for name, (spark, _) in VIEWS.items()]
        past = Sql(f"{tables[0].spark} FOR SYSTEM_VERSION AS OF ${{start}}", f"{tables[0].lite}_at_start")
        texts = [Sql(name, f"({text.lite})") for name, text in self.texts.items()]
        return [*tables, *self.rng.sample(views, 1), *([past] if self.rng.random() < 0.2 else []), *texts[-2:]]

    def _number(self) -> int:
        self.made += 1
        return self.made
