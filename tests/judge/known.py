"""Small programs that once showed something wrong, written by hand; each has the name of what was.

A line is `<session> <what>`, where what is one of

    f = TABLE a [WHERE …]      a DataFrame           plain a         a plain Delta writer appends a row
    f = QUERY SELECT …         a DataFrame           cold            Delta forgets the tables
    SHOW f [WHERE …]           collected             add a k=2       INSERT of a row
    CACHE f; VIEW f v          f.cache(), …          cacheTable a    spark.catalog.cacheTable
    USES CACHE SELECT …        whether a query reads what is cached
    BEGIN; COMMIT; ROLLBACK

or a statement of SQL. Tables and views stand in braces, `{counts}` is a query for the numbers of rows of all tables.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping

from tests.judge.program import PLAIN, Begin, End, Meaning, Plain, Prepare, Program, Read, Step, Write
from tests.judge.queries import inserting
from tests.judge.sql import Sql, sql
from tests.judge.tables import LAYOUTS, SHOWN, VIEWS

TEXTS: Mapping[str, str] = {
    "filtered-twice": """
        0 BEGIN
        0 f = TABLE a
        0 SHOW f WHERE k = 2
        0 SHOW f WHERE k = 1
        0 INSERT INTO {ids} VALUES (7)
        0 COMMIT
    """,
    "cached-query": """
        0 f = QUERY SELECT * FROM {a} t WHERE t.k >= 1
        0 CACHE f
        0 SHOW f
        0 BEGIN
        0 SHOW f WHERE k = 2
        0 INSERT INTO {ids} VALUES (7)
        0 COMMIT
    """,
    "cached-table": """
        0 CACHE TABLE {a}
        0 BEGIN
        0 SELECT id, k FROM {a} t WHERE t.k = 2
        0 INSERT INTO {ids} VALUES (7)
        0 COMMIT
    """,
    "cached-view": """
        0 CREATE TEMPORARY VIEW tv AS SELECT * FROM {a} t WHERE t.k >= 1
        0 CACHE TABLE tv
        0 BEGIN
        0 SELECT id, k FROM tv t WHERE t.k = 2
        0 INSERT INTO {ids} VALUES (7)
        0 COMMIT
    """,
    "cache-as-select": """
        0 CACHE TABLE tv AS SELECT * FROM {a} t WHERE t.k >= 1
        0 BEGIN
        0 SELECT id, k FROM tv t WHERE t.k = 2
        0 INSERT INTO {ids} VALUES (7)
        0 COMMIT
    """,
    "cached-frame": """
        0 f = TABLE a
        0 CACHE f
        0 SHOW f
        0 BEGIN
        0 SHOW f WHERE k = 2
        0 INSERT INTO {ids} VALUES (7)
        0 COMMIT
    """,
    "cached-inside": """
        0 BEGIN
        0 f = QUERY SELECT * FROM {a} t WHERE t.k >= 1
        0 CACHE f
        0 SHOW f WHERE k = 2
        0 SHOW f WHERE k = 1
        0 INSERT INTO {ids} VALUES (7)
        0 COMMIT
    """,
    "cached-insert-select": """
        0 CREATE TEMPORARY VIEW tv AS SELECT k FROM {a} t WHERE t.k >= 1
        0 CACHE TABLE tv
        0 INSERT INTO {ids} SELECT k FROM tv
    """,
    "view-twice": """
        0 CREATE TEMPORARY VIEW tv AS SELECT * FROM {a}
        0 BEGIN
        0 SELECT id, k FROM tv t WHERE t.k = 2
        0 SELECT id, k FROM tv t WHERE t.k = 1
        0 INSERT INTO {ids} VALUES (7)
        0 COMMIT
    """,
    "frame-view-twice": """
        0 BEGIN
        0 f = TABLE a
        0 VIEW f tv
        0 SELECT id, k FROM tv t WHERE t.k = 2
        0 SELECT id, k FROM tv t WHERE t.k = 1
        0 INSERT INTO {ids} VALUES (7)
        0 COMMIT
    """,
    "frame-before-begin": """
        0 f = TABLE a WHERE k = 2
        0 BEGIN
        1 add a k=2
        0 SHOW f
        0 COMMIT
    """,
    "frame-older-than-begin": """
        0 f = QUERY SELECT * FROM {a} t WHERE t.k = 2
        1 add a k=2
        0 BEGIN
        0 SHOW f
        0 ROLLBACK
    """,
    "planned-before-begin": """
        0 f = QUERY SELECT * FROM {a} t WHERE t.k = 2
        0 SHOW f
        0 BEGIN
        0 SHOW f
        0 INSERT INTO {ids} VALUES (7)
        0 COMMIT
    """,
    "live-in-subquery": """
        0 f = QUERY SELECT * FROM {a} t WHERE t.k IN ({TABLE} {ids})
        1 BEGIN
        1 INSERT INTO {ids} VALUES (0), (3)
        1 DELETE FROM {a} WHERE k = 2
        1 add a k=3
        1 COMMIT
        0 SHOW f
    """,
    "many-cold-tables": """
        0 cold
        0 f = QUERY {counts}
        1 BEGIN
        1 add a k=2
        1 add b k=2
        1 add c k=2
        1 add e k=2
        1 INSERT INTO {ids} VALUES (7)
        1 COMMIT
        0 SHOW f
    """,
    "plain-below-view": """
        0 SELECT id, k, writer FROM {v} t
        plain a
        0 SELECT id, k, writer FROM {v} t
    """,
    "plain-below-join": """
        0 CREATE TEMPORARY VIEW tv AS SELECT * FROM {c}
        0 SELECT t.id, u.id AS uid, t.writer, u.writer AS uw FROM {a} t CROSS JOIN tv u
        plain a
        plain c
        0 SELECT t.id, u.id AS uid, t.writer, u.writer AS uw FROM {a} t CROSS JOIN tv u
    """,
    "char-in-view": """
        0 SELECT id, k FROM {v} t WHERE t.c = 'x  '
        0 f = QUERY SELECT * FROM {v} t
        0 SHOW f WHERE k > 0
    """,
    "cache-unused": """
        0 cacheTable a
        0 USES CACHE SELECT id FROM {a} t WHERE t.k = 2
    """,
    "cache-stale": """
        0 cacheTable c
        0 f = TABLE c
        0 SHOW f
        0 BEGIN
        0 add c k=2
        0 COMMIT
        0 SELECT id, k, writer FROM {c} t
        0 g = TABLE c
        0 SHOW g WHERE id > 0
    """,
}


def program(name: str, layout: int = 0) -> Program:
    """Return the program of a name; its sessions record what they read."""
    return told(TEXTS[name], layout)


def told(text: str, layout: int = 0) -> Program:
    """Return the program that lines tell."""
    steps = tuple(_steps(text, layout))
    sessions = max((step.session for step in steps), default=0) + 1
    return Program(-1, "SERIALIZABLE", layout, ("UTC",) * sessions, record_reads=True, steps=steps)


def _steps(text: str, layout: int) -> Iterator[Step]:
    names = {table.name: Sql(table.spark, table.name) for table in LAYOUTS[layout]}
    counts = [
        f"SELECT count(*) AS id, {n} AS k, '' AS s, '' AS p, max(t.{column}) AS writer, 0 AS seq FROM {{{table}}} t"
        for n, (table, column) in enumerate([("ids", "k"), *((table, "id") for table in "abce"), ("ids", "k")])
    ]
    names["counts"] = sql(" UNION ALL ".join(counts), **names)
    names["TABLE"] = Sql("TABLE", "SELECT k FROM")
    names |= {view: Sql(spark, view) for view, (spark, _) in VIEWS.items()}
    made = _Made(names, layout)
    for line in filter(None, map(str.strip, text.strip().splitlines())):
        who, _, what = line.partition(" ")
        yield made.plain(what) if who == "plain" else made.step(int(who), what)


class _Made:
    """Makes steps of lines, and remembers what frames and views stand for."""

    def __init__(self, names: Mapping[str, Sql], layout: int) -> None:
        self._names = names
        self._layouts = {table.name: table for table in LAYOUTS[layout]}
        self._frames: dict[str, str] = {}
        self._texts: dict[str, str] = {}
        self._views: dict[str, str] = {}
        self._rng = random.Random(0)
        self._rows = 0

    def _insert(self, table: str, writer: str, k: int) -> tuple[str, tuple[str, ...]]:
        self._rows += 1
        row = (1, k, "a", "x  ", "2026-01-01", "2026-01-01 00:00:00", 1.5, 1, 1, "p", writer, self._rows)
        made = inserting(self._layouts[table], [row])
        return made.spark, made.lite

    def plain(self, table: str) -> Step:
        spark, lite = self._insert(table, "plain", 2)
        columns = ",".join(self._layouts[table].columns)
        do = {"do": "plain", "table": self._names[table].spark, "rows": "VALUES" + spark.partition("VALUES")[2]}
        return Step(PLAIN, {**do, "columns": columns}, Plain(table, lite))

    def step(self, session: int, what: str) -> Step:
        do, means = self._made(what)
        return Step(session, do, means)

    def _made(self, what: str) -> tuple[dict[str, str], Meaning]:
        word, _, rest = what.partition(" ")
        match word:
            case "BEGIN":
                return {"do": "sql", "sql": "BEGIN ISOLATION LEVEL SERIALIZABLE"}, Begin("SERIALIZABLE")
            case "COMMIT" | "ROLLBACK":
                return {"do": "sql", "sql": word}, End(commits=word == "COMMIT")
            case "cold":
                return {"do": "cold"}, Prepare()
            case "add":
                table, _, k = rest.partition(" k=")
                spark, lite = self._insert(table, "other", int(k))
                return {"do": "sql", "sql": spark}, Write(table, lite)
            case "cacheTable":
                return {"do": "cache table", "table": self._names[rest].spark}, Prepare()
            case "SHOW":
                return self._shown(*rest.partition(" WHERE ")[::2])
            case "VIEW":
                frame, _, view = rest.partition(" ")
                self._views[view] = self._frames[frame]
                return {"do": "view", "frame": frame, "view": view}, Prepare(view)
            case "CACHE" if not rest.startswith("TABLE"):
                return {"do": "cache", "frame": rest}, Prepare()
            case "USES":
                text = sql(rest.removeprefix("CACHE "), **self._names)
                return {"do": "uses cache", "sql": text.spark}, Read("SELECT 1")
        if rest.startswith("= "):
            return self._frame(word, rest.removeprefix("= "))
        return self._sql(what)

    def _shown(self, frame: str, where: str) -> tuple[dict[str, str], Meaning]:
        text = f"SELECT {', '.join(SHOWN)} FROM ({self._frames[frame]}) f" + f" WHERE {where}" * bool(where)
        how = "rows" if where else "as is"
        return {"do": "collect", "frame": frame, "how": how, "where": where}, Read(text, frame=frame)

    def _frame(self, name: str, made: str) -> tuple[dict[str, str], Meaning]:
        kind, _, rest = made.partition(" ")
        if kind == "QUERY":
            text = sql(rest, **self._names)
            self._frames[name] = text.lite
            return {"do": "query", "frame": name, "sql": text.spark}, Prepare(name)
        table, _, where = rest.partition(" WHERE ")
        self._frames[name] = f"SELECT * FROM {table}" + f" WHERE {where}" * bool(where)
        return {"do": "table", "frame": name, "table": self._names[table].spark, "where": where}, Prepare(name)

    def _sql(self, what: str) -> tuple[dict[str, str], Meaning]:
        text = sql(what, **self._names)
        do = {"do": "sql", "sql": text.spark}
        if what.startswith("CREATE TEMPORARY VIEW"):
            head, _, query = text.lite.partition(" AS ")
            self._texts[head.split()[-1]] = query
            return do, Prepare()
        if what.startswith("CACHE"):
            head, _, query = text.lite.partition(" AS ")
            if query:
                self._texts[head.split()[-1]] = query
            return do, Prepare()
        lite = text.lite
        for view, query in {**self._texts, **self._views}.items():
            lite = lite.replace(f" {view}", f" ({query})")
        if what.startswith(("SELECT", "WITH")):
            frame = next((view for view in self._views if f" {view}" in what), "")
            return do, Read(lite, frame=frame)
        return do, Write(what.partition("{")[2].partition("}")[0], (lite,))
