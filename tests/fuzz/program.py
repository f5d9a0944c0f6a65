"""Random programs: a seed gives one, the same each time.

What a statement would be refused for is avoided, not ruled out. Rows have a key `k` that no statement changes and that
hardly two rows share, so that a row can be followed from version to version.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.fuzz.steps import Block, Program, Step

PARTS = ("x", "y", "z")
BESIDE = "w"
"""The part of a table in which the statements beside a transaction write: mostly without a conflict."""


@dataclass
class Shape:
    """What a table looks like, as far as the next statement must know."""

    columns: dict[str, str]
    partitioned: bool = False
    clustered: bool = False
    properties: dict[str, str] = field(default_factory=dict)
    constraint: bool = False
    written: frozenset[str] = frozenset()

    def has(self, name: str) -> bool:
        """Tell whether one of Delta's features is on."""
        return self.properties.get(f"delta.{name}") == "true"

    @property
    def mapped(self) -> bool:
        """Whether columns may be renamed and dropped."""
        return self.properties.get("delta.columnMapping.mode") == "name"


class Writer:
    """Writes one program."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.name = f"p{seed}"
        self.tables: dict[str, Shape] = {}
        self.key = 0
        self.number = 0
        self.blocks: list[Block] = []

    # --- programs -----------------------------------------------------------------------------------------------------

    def program(self, blocks: int) -> Program:
        """Write a program of so many blocks behind the one that makes its tables."""
        steps = [self.create("t0"), self.insert("t0"), self.insert("t0")]
        if self.chance(0.5):
            steps += [self.create("t1"), self.insert("t1")]
        self.blocks.append(self._block("alone", steps))
        for _ in range(blocks):
            self.blocks.append(self._transaction() if self.chance(0.75) else self._block("alone", self.statements(2)))
        return {"name": self.name, "blocks": self.blocks}

    def _block(self, kind: str, steps: list[Step], **more: Any) -> Block:
        return {"id": len(self.blocks), "kind": kind, "steps": steps, **more}

    def _transaction(self) -> Block:
        before = deepcopy(self.tables)
        beside: list[Step] = []
        if self.chance(0.35) and (names := [name for name in self.tables if self.can_insert(name)]):
            beside = [self.beside(self.random.choice(names)) for _ in range(self.random.randint(1, 2))]
        steps: list[Step] = []
        at = self.random.randint(0, 3)
        for part in range(self.random.randint(1, 3)):
            if part and self.chance(0.3):
                saved, shapes = f"s{part}", deepcopy(self.tables)
                steps.append(self.sql(f"SAVEPOINT {saved}"))
                steps += self.statements(self.random.randint(1, 2))
                if self.chance(0.8):
                    steps.append(self.sql(f"ROLLBACK TO {saved}"))
                    self.tables = shapes
            else:
                steps += self.statements(self.random.randint(1, 3))
                if not beside and self.chance(0.2):
                    steps.append(self.look())
        end = "ROLLBACK" if self.chance(0.07) else "COMMIT"
        if end == "ROLLBACK":
            self.tables = before
        return self._block("transaction", steps, other=beside, at=min(at, len(steps)), end=end)

    def statements(self, most: int) -> list[Step]:
        return [self.statement() for _ in range(self.random.randint(1, most))]

    def statement(self) -> Step:
        """Write a statement, and note what becomes of the tables."""
        if not self.tables:
            return self.create("t0")
        name = self.random.choice(list(self.tables))
        choices: list[tuple[int, Callable[[str], Step | None]]] = [
            (6, self.insert), (5, self.update), (4, self.delete), (5, self.merge), (2, self.overwrite),
            (2, self.replace_where), (4, self.optimize), (1, self.reorg), (2, self.restore), (3, self.alter),
            (3, self.frame), (2, self.set_feature), (1, self.insert_select), (1, self.create_other),
        ]  # fmt: skip
        for _ in range(20):
            (make,) = self.random.choices([make for _, make in choices], [weight for weight, _ in choices])
            if (step := make(name)) is not None:
                return step
        return self.insert(name)

    # --- helpers ------------------------------------------------------------------------------------------------------

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def sql(self, text: str) -> Step:
        self.number += 1
        return {"id": self.number, "sql": text}

    def look(self) -> Step:
        self.number += 1
        return {"id": self.number, "look": f"SELECT * FROM {self.random.choice(list(self.tables) or ['t0'])}"}

    def can_insert(self, name: str) -> bool:
        return "p" in self.tables[name].columns and "v" in self.tables[name].columns

    def written(self, name: str) -> dict[str, str]:
        """Return the columns that an INSERT gives values to, with their types."""
        generated = ("i", "g")
        return {column: kind for column, kind in self.tables[name].columns.items() if column not in generated}

    def value(self, column: str, kind: str, part: str | None = None) -> Any:
        if column == "k":
            self.key += 1
            return self.key
        if column == "p":
            return part or self.random.choice(PARTS)
        if kind == "STRING":
            return self.random.choice((None, "a", "b", "ä", "long " * 3))
        return self.random.choice((None, *range(6))) if column != "v" else self.random.randint(0, 9)

    def rows(self, name: str, count: int, part: str | None = None) -> list[dict[str, Any]]:
        columns = self.written(name)
        return [{c: self.value(c, kind, part) for c, kind in columns.items()} for _ in range(count)]

    def values(self, rows: list[dict[str, Any]]) -> str:
        def cell(value: Any) -> str:
            return "NULL" if value is None else f"'{value}'" if isinstance(value, str) else str(value)

        return ", ".join("(" + ", ".join(map(cell, row.values())) + ")" for row in rows)

    def names(self, name: str) -> str:
        return ", ".join(self.written(name))

    def where(self, name: str) -> str:
        low = self.random.randint(0, self.key)
        found = [f"k BETWEEN {low} AND {low + self.random.randint(0, 5)}", f"k % 3 = {self.random.randint(0, 2)}"]
        if "v" in self.tables[name].columns:
            found += [f"v > {self.random.randint(0, 9)}"]
        if "p" in self.tables[name].columns:
            part = self.random.choice(PARTS)
            found += [f"p = '{part}'", f"p = '{part}' AND k % 2 = 0"]
        if "s" in self.tables[name].columns:
            found += ["s IS NULL", "s = 'a'"]
        return self.random.choice(found)

    # --- tables -------------------------------------------------------------------------------------------------------

    def create(self, name: str) -> Step:
        shape = Shape({"k": "BIGINT", "p": "STRING", "v": "INT", "s": "STRING"})
        layout = self.random.choice(("", "", "PARTITIONED BY (p)", "PARTITIONED BY (p)", "CLUSTER BY (k)"))
        shape.partitioned, shape.clustered = "PART" in layout, "CLUS" in layout
        columns = [f"{column} {kind}" for column, kind in shape.columns.items()]
        if self.chance(0.2):
            columns.append("g INT GENERATED ALWAYS AS (v * 2)")
            shape.columns["g"] = "INT"
        elif self.chance(0.2):
            columns.append("i BIGINT GENERATED BY DEFAULT AS IDENTITY")
            shape.columns["i"] = "BIGINT"
        for key, share in (
            ("delta.enableDeletionVectors", 0.6),
            ("delta.enableRowTracking", 0.5),
            ("delta.enableChangeDataFeed", 0.4),
            ("delta.enableInCommitTimestamps", 0.3),
            ("delta.enableTypeWidening", 0.4),
        ):
            if self.chance(share):
                shape.properties[key] = "true"
        if self.chance(0.4):
            shape.properties["delta.columnMapping.mode"] = "name"
        if "delta.enableDeletionVectors" not in shape.properties:
            shape.properties["delta.enableDeletionVectors"] = "false"
        said = ", ".join(f"'{key}' = '{value}'" for key, value in shape.properties.items())
        self.tables[name] = shape
        return self.sql(f"CREATE TABLE {name} ({', '.join(columns)}) USING delta {layout} TBLPROPERTIES ({said})")

    def create_other(self, name: str) -> Step | None:
        """CREATE TABLE … AS SELECT, CREATE OR REPLACE, DROP."""
        if "t1" not in self.tables:
            self.tables["t1"] = Shape(dict(self.tables[name].columns))
            return self.sql(f"CREATE TABLE t1 USING delta AS SELECT * FROM {name} WHERE {self.where(name)}")
        if self.chance(0.3):
            del self.tables["t1"]
            return self.sql("DROP TABLE t1")
        if "t0" not in self.tables:
            return None
        tracked = self.chance(0.4)
        said = "TBLPROPERTIES ('delta.enableRowTracking' = 'true')" if tracked else ""
        query = f"SELECT * FROM t0 WHERE {self.where('t0')}"
        self.tables["t1"] = Shape(dict(self.tables["t0"].columns))
        return self.sql(f"CREATE OR REPLACE TABLE t1 USING delta {said} AS {query}")

    def alter(self, name: str) -> Step | None:
        shape = self.tables[name]
        changes: list[Callable[[], str | None]] = [
            lambda: self._add_column(shape),
            lambda: self._rename_column(shape),
            lambda: self._drop_column(shape),
            lambda: self._widen(shape),
            lambda: f"SET TBLPROPERTIES ('user.x' = '{self.random.randint(0, 9)}')",
            lambda: "UNSET TBLPROPERTIES IF EXISTS ('user.x')",
            lambda: self._constraint(shape),
            lambda: "ALTER COLUMN s COMMENT 'a note'" if "s" in shape.columns else None,
            lambda: "CLUSTER BY (v)" if shape.clustered and "v" in shape.columns else None,
        ]
        change = self.random.choice(changes)()
        return None if change is None else self.sql(f"ALTER TABLE {name} {change}")

    def _add_column(self, shape: Shape) -> str | None:
        self.number += 1
        new, kind = f"c{self.number}", self.random.choice(("INT", "STRING"))
        if len(shape.columns) > 8:
            return None
        shape.columns[new] = kind
        return f"ADD COLUMNS ({new} {kind})"

    def _rename_column(self, shape: Shape) -> str | None:
        old = self._droppable(shape)
        if old is None or not shape.mapped:
            return None
        self.number += 1
        new = f"r{self.number}"
        shape.columns = {new if column == old else column: kind for column, kind in shape.columns.items()}
        return f"RENAME COLUMN {old} TO {new}"

    def _drop_column(self, shape: Shape) -> str | None:
        old = self._droppable(shape)
        if old is None or not shape.mapped:
            return None
        del shape.columns[old]
        return f"DROP COLUMN {old}"

    def _droppable(self, shape: Shape) -> str | None:
        found = [column for column in shape.columns if column[0] in "csr" and column != "k"]
        return self.random.choice(found) if found else None

    def _widen(self, shape: Shape) -> str | None:
        if not shape.has("enableTypeWidening") or "g" in shape.columns or shape.columns.get("v") != "INT":
            return None
        shape.columns["v"] = "BIGINT"
        return "ALTER COLUMN v TYPE BIGINT"

    def _constraint(self, shape: Shape) -> str | None:
        if "v" not in shape.columns:
            return None
        shape.constraint = not shape.constraint
        return "ADD CONSTRAINT low CHECK (v > -1000)" if shape.constraint else "DROP CONSTRAINT low"

    def set_feature(self, name: str) -> Step | None:
        shape = self.tables[name]
        found = [
            (key, "true")
            for key in (
                "delta.enableRowTracking",
                "delta.enableDeletionVectors",
                "delta.enableInCommitTimestamps",
                "delta.enableTypeWidening",
            )
            if shape.properties.get(key) != "true"
        ]
        found += [] if shape.mapped else [("delta.columnMapping.mode", "name")]
        if not found:
            return None
        key, value = self.random.choice(found)
        shape.properties[key] = value
        return self.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('{key}' = '{value}')")

    # --- rows ---------------------------------------------------------------------------------------------------------

    def insert(self, name: str) -> Step:
        rows = self.rows(name, self.random.randint(1, 4))
        return self.sql(f"INSERT INTO {name} ({self.names(name)}) VALUES {self.values(rows)}")

    def insert_select(self, name: str) -> Step | None:
        source = self.random.choice(list(self.tables))
        shared = [c for c, kind in self.written(name).items() if self.tables[source].columns.get(c) == kind]
        if "k" not in shared:
            return None
        self.key += 1000
        columns = [f"k + {self.key} AS k" if column == "k" else column for column in shared]
        query = f"SELECT {', '.join(columns)} FROM {source} WHERE {self.where(source)}"
        return self.sql(f"INSERT INTO {name} ({', '.join(shared)}) {query}")

    def beside(self, name: str) -> Step:
        """Write a statement on rows that nobody else has."""
        kind = self.random.randint(0, 5)
        if kind <= 3:
            rows = self.rows(name, self.random.randint(1, 2), BESIDE)
            return self.sql(f"INSERT INTO {name} ({self.names(name)}) VALUES {self.values(rows)}")
        if kind == 4:
            return self.sql(f"UPDATE {name} SET v = v + 100 WHERE p = '{BESIDE}'")
        return self.sql(f"DELETE FROM {name} WHERE p = '{BESIDE}' AND k % 2 = 0")

    def overwrite(self, name: str) -> Step:
        rows = self.rows(name, self.random.randint(0, 3) or 1)
        return self.sql(f"INSERT OVERWRITE {name} ({self.names(name)}) VALUES {self.values(rows)}")

    def replace_where(self, name: str) -> Step | None:
        if "p" not in self.tables[name].columns:
            return None
        part = self.random.choice(PARTS)
        rows = self.rows(name, self.random.randint(1, 3), part)
        names = self.names(name)
        query = f"SELECT * FROM VALUES {self.values(rows)} AS r({names})"
        return self.sql(f"INSERT INTO {name} REPLACE WHERE p = '{part}' {self._by_position(name, query)}")

    def _by_position(self, name: str, query: str) -> str | None:
        # INSERT … REPLACE WHERE takes columns by position: all of them must be there.
        return query if self.written(name) == self.tables[name].columns else f"{query} LIMIT 0"

    def update(self, name: str) -> Step | None:
        columns = self.tables[name].columns
        found = []
        if "v" in columns:
            found += ["v = v + 1", "v = k % 7", "v = NULL"]
        if "s" in columns:
            found += ["s = concat(coalesce(s, ''), '!')", "s = NULL"]
        if "p" in columns:
            found += [f"p = '{self.random.choice(PARTS)}'"]
        if not found:
            return None
        where = f" WHERE {self.where(name)}" if self.chance(0.9) else ""
        return self.sql(f"UPDATE {name} SET {self.random.choice(found)}{where}")

    def delete(self, name: str) -> Step:
        others = [other for other in self.tables if other != name]
        if others and self.chance(0.2):
            other = self.random.choice(others)
            return self.sql(f"DELETE FROM {name} WHERE k IN (SELECT k FROM {other} WHERE {self.where(other)})")
        return self.sql(f"DELETE FROM {name}" + ("" if self.chance(0.07) else f" WHERE {self.where(name)}"))

    def merge(self, name: str) -> Step | None:
        columns = self.written(name)
        if not {"p", "v"} <= columns.keys():
            return None
        known = self.random.sample(range(1, self.key + 1), min(self.key, self.random.randint(1, 4)))
        rows = [{**row, "k": k} for row, k in zip(self.rows(name, len(known)), known, strict=True)]
        rows += self.rows(name, self.random.randint(0, 2))
        source = f"(SELECT * FROM VALUES {self.values(rows)} AS r({self.names(name)}))"
        matched = ("UPDATE SET v = n.v", "UPDATE SET v = t.v + 1, p = n.p", "DELETE")
        clauses = []
        if self.chance(0.4):
            clauses.append(f"WHEN MATCHED AND n.v > 4 THEN {self.random.choice(matched)}")
        if self.chance(0.8):
            clauses.append(f"WHEN MATCHED THEN {self.random.choice(matched)}")
        if self.chance(0.7) or not clauses:
            given = ", ".join(columns)
            values = ", ".join(f"n.{column}" for column in columns)
            clauses.append(f"WHEN NOT MATCHED THEN INSERT ({given}) VALUES ({values})")
        if self.chance(0.2):
            action = self.random.choice(("DELETE", "UPDATE SET v = -1"))
            clauses.append(f"WHEN NOT MATCHED BY SOURCE AND t.v > 6 THEN {action}")
        return self.sql(f"MERGE INTO {name} AS t USING {source} AS n ON t.k = n.k {' '.join(clauses)}")

    # --- files --------------------------------------------------------------------------------------------------------

    def optimize(self, name: str) -> Step:
        shape = self.tables[name]
        text = f"OPTIMIZE {name}"
        if shape.partitioned and "p" in shape.columns and self.chance(0.5):
            text += f" WHERE p = '{self.random.choice(PARTS)}'"
        elif shape.clustered and self.chance(0.3):
            text += " FULL"
        elif not shape.clustered and self.chance(0.2):
            text += " ZORDER BY (k)"
        return self.sql(text)

    def reorg(self, name: str) -> Step:
        return self.sql(f"REORG TABLE {name} APPLY (PURGE)")

    def restore(self, name: str) -> Step | None:
        if name != "t0" or not self.blocks:
            return None
        block = self.random.choice(self.blocks)["id"]
        # What the table looked like then is not kept: some statements behind it are refused.
        return self.sql(f"RESTORE TABLE {name} TO VERSION AS OF {{{name}@{block}}}")

    # --- DataFrames ---------------------------------------------------------------------------------------------------

    def frame(self, name: str) -> Step | None:
        shape, columns = self.tables[name], self.written(name)
        if columns != shape.columns or not {"p", "v"} <= columns.keys():
            return None
        self.number += 1
        made: dict[str, Any] = {"table": name, "how": "saveAsTable", "mode": "append", "options": {}}
        kinds = ["append", "overwrite", "replaceWhere", "mergeSchema", "overwriteSchema", "writeTo"]
        kinds += ["dynamic", "overwritePartitions"] if shape.partitioned else []
        kind, part = self.random.choice(kinds), None
        if kind in ("overwrite", "replaceWhere", "dynamic", "overwriteSchema"):
            made["mode"] = "overwrite"
        if kind == "replaceWhere":
            part = self.random.choice(PARTS)
            made["options"] = {"replaceWhere": f"p = '{part}'"}
        elif kind == "dynamic":
            made["options"] = {"partitionOverwriteMode": "dynamic"}
        elif kind in ("mergeSchema", "overwriteSchema"):
            made["options"] = {kind: "true"}
            columns = {**columns, f"c{self.number}": "INT"}
            shape.columns = columns
        elif kind == "writeTo":
            made["how"] = "append"
        elif kind == "overwritePartitions":
            made["how"] = kind
        rows = self.rows(name, self.random.randint(1, 3), part)
        if part is not None:
            rows = [{**row, "p": part} for row in rows]
        made["rows"] = [list(row.values()) for row in rows]
        made["schema"] = ", ".join(f"{column} {kind}" for column, kind in self.written(name).items())
        return {"id": self.number, "frame": made}


def write(seed: int, blocks: int = 3) -> Program:
    """Write the program of a seed."""
    return Writer(seed).program(blocks)
