"""Random conditions, queries and changes, each in both dialects."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.judge.sql import Sql, joined, sql
from tests.judge.tables import COLUMNS, DOMAINS, SHOWN, Layout, Row, literal, random_row, values


@dataclass(frozen=True, slots=True)
class Query:
    """A query for rows; with `limit`, for so many of them, whichever these are."""

    text: Sql
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """A statement that changes a table: Spark's text, and what the model runs, one after the other."""

    table: str
    spark: str
    lite: tuple[str, ...]


@dataclass
class Writing:
    """Random texts over some relations (tables and views); `keys` are names of one column, `k`.

    Attributes:
        relations: what a query can read, as both dialects call it.
        zone: of the session, in which it writes some of its timestamps.
    """

    rng: random.Random
    relations: Sequence[Sql]
    keys: Sequence[Sql]
    zone: str
    has_udf: bool = False
    plain: bool = False
    """Whether conditions are about one row alone: without subqueries."""
    target: bool = False
    """Whether they are of a statement that changes rows: in Delta's MERGE no CHAR column can be compared."""

    # --- conditions ---------------------------------------------------------------------------------------------------

    def condition(self, alias: str, depth: int = 2) -> Sql:
        """Return a condition on a row of one relation."""
        if depth and self.rng.random() < 0.35:
            operator = self.rng.choice((" AND ", " AND ", " OR "))
            return sql("({both})", both=joined(operator, [self.condition(alias, depth - 1) for _ in range(2)]))
        if depth and self.rng.random() < 0.12:
            return sql("(NOT {one})", one=self.condition(alias, depth - 1))
        if not self.plain and self.rng.random() < 0.35:
            return self._subquery(alias)
        return self._simple(alias)

    def _simple(self, alias: str) -> Sql:
        column = self.rng.choice(("id", "id", "k", "k", "k", "s", "c", "d", "ts", "x", "b", "st", "p"))
        if self.target and column == "c":
            column = "k"
        name = Sql(f"{alias}.st.f", f"{alias}.st") if column == "st" else Sql(f"{alias}.{column}", f"{alias}.{column}")
        kinds: list[Callable[[str, Sql], Sql]] = [*[self._compared] * 5, self._among, self._null]
        if column != "c":  # Spark 4.2 does not pad the sides of BETWEEN
            kinds.append(self._between)
        if column == "s":
            kinds += [self._like, self._like]
        if column == "k":
            kinds += [self._computed, self._computed]
        return self.rng.choice(kinds)(column, name)

    def _value(self, column: str) -> Sql:
        value = self.rng.choice([value for value in DOMAINS[column] if value is not None])
        return literal(column, value, self.zone if self.rng.random() < 0.5 else None)

    def _compared(self, column: str, name: Sql) -> Sql:
        operators = [Sql(o, o) for o in ("=", "=", "=", "<", "<=", ">", ">=", "<>")] + [Sql("<=>", "IS")]
        if column == "b":
            return self.rng.choice([name, sql("(NOT {name})", name=name), sql("{name} = true", name=name)])
        operator, value = self.rng.choice(operators), self._value(column)
        if self.rng.random() < 0.15 and operator.spark == "=":
            return sql("{value} = {name}", name=name, value=value)
        return sql("{name} {operator} {value}", name=name, operator=operator, value=value)

    def _among(self, column: str, name: Sql) -> Sql:
        members = joined(", ", [self._value(column) for _ in range(self.rng.randint(1, 3))])
        return sql("{name} {no}IN ({members})", name=name, members=members, no=self.rng.choice(("", "", "NOT ")))

    def _between(self, column: str, name: Sql) -> Sql:
        return sql("{name} BETWEEN {low} AND {high}", name=name, low=self._value(column), high=self._value(column))

    def _null(self, column: str, name: Sql) -> Sql:
        return sql("{name} IS {no}NULL", name=name, no=self.rng.choice(("", "NOT ")))

    def _like(self, column: str, name: Sql) -> Sql:
        return sql("{name} LIKE '{text}'", name=name, text=self.rng.choice(("a%", "%b", "ab", "_", "a_%")))

    def _computed(self, column: str, name: Sql) -> Sql:
        ways = ["{name} + 1 = 2", "abs({name}) < 2", "{name} % 2 = 0", "coalesce({name}, 1) = 1"]
        ways += ["CASE WHEN {name} = 1 THEN 1 ELSE 0 END = 0"]
        if self.has_udf:
            ways += ["is_odd({name})"] * 2
        return sql(self.rng.choice(ways), name=name)

    def _subquery(self, alias: str) -> Sql:
        other = self.rng.choice(self.relations)
        name = f"{alias}i"
        where = Writing(self.rng, self.relations, self.keys, self.zone, plain=True).condition(name, 1)
        parts: dict[str, Sql | str] = {"t": alias, "o": other, "u": name, "where": where}
        ways = [
            "EXISTS (SELECT 1 FROM {o} {u} WHERE {u}.k = {t}.k AND {where})",
            "NOT EXISTS (SELECT 1 FROM {o} {u} WHERE {u}.k = {t}.k AND {where})",
            "EXISTS (SELECT 1 FROM {o} {u} WHERE {where})",
            "{t}.k IN (SELECT {u}.k FROM {o} {u} WHERE {where})",
            "{t}.k NOT IN (SELECT {u}.k FROM {o} {u} WHERE {where})",
            "{t}.k = (SELECT max({u}.k) FROM {o} {u} WHERE {where})",
            "{t}.id > (SELECT count(*) FROM {o} {u} WHERE {u}.k = {t}.k AND {where})",
        ]
        if self.keys and self.rng.random() < 0.3:
            key = self.rng.choice(self.keys)
            return sql("{t}.k IN ({key})", t=alias, key=Sql(f"TABLE {key.spark}", f"SELECT k FROM {key.lite}"))
        return sql(self.rng.choice(ways), **parts)

    # --- queries ------------------------------------------------------------------------------------------------------

    def query(self) -> Query:
        """Return a query of any shape."""
        shapes = (self.rows, self.rows, self.rows, self.top, self.some, self.join, self.join, self.half_join)
        return self.rng.choice((*shapes, self.aggregate, self.aggregate, self.together, self.shared, self.wide))()

    def _from(self) -> Sql:
        return self.rng.choice(self.relations)

    def rows(self) -> Query:
        where = self.condition("t")
        return Query(sql("SELECT {shown} FROM {r} t WHERE {where}", shown=shown("t"), r=self._from(), where=where))

    def top(self) -> Query:
        """Return the first rows: of all columns in order, so that equal rows are all that is left to chance."""
        order = ", ".join(f"{column} {self.rng.choice(('ASC', 'DESC'))}" for column in SHOWN)
        limit = self.rng.randint(1, 3)
        return Query(sql("{rows} ORDER BY {order} LIMIT {limit}", rows=self.rows().text, order=order, limit=limit))

    def some(self) -> Query:
        text, limit = self.rows().text, self.rng.randint(1, 3)
        return Query(Sql(f"{text.spark} LIMIT {limit}", text.lite), limit)

    def join(self) -> Query:
        how = self.rng.choice(("JOIN", "JOIN", "LEFT JOIN", "CROSS JOIN"))
        on = Sql("", "")
        if how != "CROSS JOIN":
            on = sql("ON t.{key} = u.{key}", key=self.rng.choice(("k", "k", "id", "d")))
            if self.rng.random() < 0.5:
                on = sql("{on} AND {more}", on=on, more=self._row_condition("u"))
        where = sql("WHERE {one}", one=self.condition("t")) if self.rng.random() < 0.8 else Sql("", "")
        columns = "t.id, t.writer, t.seq, u.id AS uid, u.writer AS uw, u.seq AS useq"
        text = f"SELECT {columns} FROM {{r}} t {{how}} {{q}} u {{on}} {{where}}"
        return Query(sql(text, r=self._from(), q=self._from(), how=how, on=on, where=where))

    def _row_condition(self, alias: str) -> Sql:
        return Writing(self.rng, self.relations, self.keys, self.zone, self.has_udf, plain=True).condition(alias, 1)

    def half_join(self) -> Query:
        """Return a SEMI or ANTI join, which the model knows as EXISTS."""
        no = self.rng.choice(("", "NOT "))
        key, r, q = self.rng.choice(("k", "id")), self._from(), self._from()
        more, where = self._row_condition("u"), self._row_condition("t")
        kind = "ANTI" if no else "SEMI"
        return Query(
            Sql(
                f"SELECT {shown('t')} FROM {r.spark} t LEFT {kind} JOIN {q.spark} u "
                f"ON t.{key} = u.{key} AND {more.spark} WHERE {where.spark}",
                f"SELECT {shown('t')} FROM {r.lite} t WHERE {no}EXISTS "
                f"(SELECT 1 FROM {q.lite} u WHERE t.{key} = u.{key} AND {more.lite}) AND {where.lite}",
            )
        )

    def aggregate(self) -> Query:
        column = self.rng.choice(("k", "k", "id", "s", "seq"))
        what = self.rng.choice(
            (
                "count(*) AS n",
                "min({c}) AS l",
                "max({c}) AS m",
                "count({c}) AS n, max({c}) AS m",
                "count(DISTINCT {c}) AS n",
            )
        ).format(c=f"t.{column}")
        where = sql("WHERE {one}", one=self.condition("t")) if self.rng.random() < 0.6 else Sql("", "")
        text = sql("SELECT {what} FROM {r} t {where}", what=what, r=self._from(), where=where)
        if self.rng.random() < 0.3:
            text = sql("{text} GROUP BY t.p", text=text)
        return Query(text)

    def together(self) -> Query:
        how = self.rng.choice(("UNION ALL", "UNION ALL", "UNION", "EXCEPT", "INTERSECT"))
        return Query(sql("{one} {how} {two}", one=self.rows().text, two=self.rows().text, how=how))

    def shared(self) -> Query:
        """Return a query that uses a common table expression twice."""
        text = (
            "WITH once AS (SELECT * FROM {r} t WHERE {where}) "
            "SELECT t.id, t.writer, t.seq, u.id AS uid, u.seq AS useq FROM once t JOIN once u ON t.k = u.k WHERE {more}"
        )
        return Query(sql(text, r=self._from(), where=self.condition("t"), more=self._row_condition("u")))

    def wide(self) -> Query:
        """Return counts of all relations, so that one query has many of them."""
        parts = [
            sql("SELECT '{n}' AS name, count(*) AS n, max(t.writer) AS w FROM {r} t", n=n, r=relation)
            for n, relation in enumerate(self.relations)
        ]
        return Query(joined(" UNION ALL ", parts))

    # --- changes ------------------------------------------------------------------------------------------------------

    def change(self, table: Layout, writer: str, seq: int) -> Change:
        """Return a statement that changes a table, whose rows say who did it."""
        if table.name == "ids":
            return self._change_ids()
        ways = (self.insert, self.insert, self.insert_from, self.insert_from, self.update, self.update, self.delete)
        return self.rng.choice((*ways, self.merge, self.merge, self.overwrite))(table, writer, seq)

    def _change_ids(self) -> Change:
        key = self.rng.choice((0, 1, 2, 3))
        if self.rng.random() < 0.7:
            return Change("ids", f"INSERT INTO lake.default.ids VALUES ({key})", (f"INSERT INTO ids VALUES ({key})",))
        return Change("ids", f"DELETE FROM lake.default.ids WHERE k = {key}", (f"DELETE FROM ids WHERE k = {key}",))

    def insert(self, table: Layout, writer: str, seq: int) -> Change:
        rows = [random_row(self.rng, writer, seq) for _ in range(self.rng.randint(1, 2))]
        return inserting(table, rows)

    def _source(self, writer: str, seq: int) -> Sql:
        columns = ", ".join(
            {"id": "t.id + 1 AS id", "writer": f"'{writer}' AS writer", "seq": f"{seq} AS seq"}.get(c, f"t.{c}")
            for c in COLUMNS
        )
        return sql(
            "SELECT {columns} FROM {r} t WHERE {where}", columns=columns, r=self._from(), where=self.condition("t")
        )

    def insert_from(self, table: Layout, writer: str, seq: int) -> Change:
        source = self._source(writer, seq)
        return Change(
            table.name, f"INSERT INTO {table.spark} {source.spark}", (f"INSERT INTO {table.name} {source.lite}",)
        )

    def overwrite(self, table: Layout, writer: str, seq: int) -> Change:
        source = self._source(writer, seq)
        steps = (
            f"CREATE TEMP TABLE fresh AS {source.lite}",
            f"DELETE FROM {table.name}",
            f"INSERT INTO {table.name} SELECT * FROM fresh",
            "DROP TABLE fresh",
        )
        return Change(table.name, f"INSERT OVERWRITE {table.spark} {source.spark}", steps)

    def _assigned(self, writer: str, seq: int) -> tuple[str, str]:
        way = self.rng.choice((("k = k + 1",) * 2, ("k = 2",) * 2, ("s = 'a'",) * 2, ("p = 'q'",) * 2))
        return way[0] + f", writer = '{writer}', seq = {seq}", way[1] + f", writer = '{writer}', seq = {seq}"

    def update(self, table: Layout, writer: str, seq: int) -> Change:
        where, (spark, lite) = self._target_condition("t"), self._assigned(writer, seq)
        return Change(
            table.name,
            f"UPDATE {table.spark} AS t SET {spark} WHERE {where.spark}",
            (f"UPDATE {table.name} AS t SET {lite} WHERE {where.lite}",),
        )

    def _target_condition(self, alias: str) -> Sql:
        return Writing(self.rng, (), (), self.zone, plain=True, target=True).condition(alias, 1)

    def delete(self, table: Layout, writer: str, seq: int) -> Change:
        where = self._target_condition("t")
        return Change(
            table.name,
            f"DELETE FROM {table.spark} AS t WHERE {where.spark}",
            (f"DELETE FROM {table.name} AS t WHERE {where.lite}",),
        )

    def merge(self, table: Layout, writer: str, seq: int) -> Change:
        """Merge at most one row for each id into a table."""
        source = sql(
            "SELECT t.id AS id, max(t.k) AS k FROM {r} t WHERE {where} GROUP BY t.id",
            r=self._from(),
            where=self.condition("t"),
        )
        on = (
            sql("t.id = m.id AND {more}", more=self._target_condition("t"))
            if self.rng.random() < 0.5
            else sql("t.id = m.id")
        )
        inserts, by_source = self.rng.random() < 0.6, self.rng.random() < 0.2
        deletes = self.rng.random() < 0.3
        fresh = f"m.id, m.k, 'a', 'x  ', '2026-01-01', NULL, 0.5, 1, 0, 'p', '{writer}', {seq}"
        matched = "DELETE" if deletes else f"UPDATE SET t.k = m.k, t.writer = '{writer}', t.seq = {seq}"
        spark = f"MERGE INTO {table.spark} t USING ({source.spark}) m ON {on.spark} WHEN MATCHED THEN {matched}"
        if inserts:
            typed = "m.id, m.k, 'a', 'x', DATE '2026-01-01', NULL, 0.5D, true, named_struct('f', 0), 'p'"
            spark += f" WHEN NOT MATCHED THEN INSERT ({', '.join(COLUMNS)}) VALUES ({typed}, '{writer}', {seq})"
        if by_source:
            spark += " WHEN NOT MATCHED BY SOURCE AND t.k = 3 THEN DELETE"
        unmatched = f"NOT EXISTS (SELECT 1 FROM {table.name} t WHERE {on.lite})"
        lite = [
            f"CREATE TEMP TABLE m AS {source.lite}",
            f"CREATE TEMP TABLE fresh AS SELECT {fresh} FROM m WHERE {unmatched}",
        ]
        if by_source:
            lite.append(f"DELETE FROM {table.name} AS t WHERE t.k = 3 AND NOT EXISTS (SELECT 1 FROM m WHERE {on.lite})")
        exists = f"EXISTS (SELECT 1 FROM m WHERE {on.lite})"
        if deletes:
            lite.append(f"DELETE FROM {table.name} AS t WHERE {exists}")
        else:
            news = f"k = (SELECT m.k FROM m WHERE t.id = m.id), writer = '{writer}', seq = {seq}"
            lite.append(f"UPDATE {table.name} AS t SET {news} WHERE {exists}")
        if inserts:
            lite.append(f"INSERT INTO {table.name} SELECT * FROM fresh")
        return Change(table.name, spark, (*lite, "DROP TABLE fresh", "DROP TABLE m"))


def inserting(table: Layout, rows: list[Row]) -> Change:
    """Return the INSERT of some rows."""
    new = values(table.columns, rows)
    return Change(table.name, f"INSERT INTO {table.spark} {new.spark}", (f"INSERT INTO {table.name} {new.lite}",))


def shown(alias: str) -> str:
    return ", ".join(f"{alias}.{column}" for column in SHOWN)
