"""One query in two dialects: as Spark is asked, and as the model (SQLite, of Python's standard library) answers it.

>>> where = sql("{t}.day = {day}", t="a", day=Sql("DATE '2026-01-02'", "'2026-01-02'"))
>>> where.spark, where.lite
("a.day = DATE '2026-01-02'", "a.day = '2026-01-02'")
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sql:
    """The same expression, query or statement, for Spark and for SQLite."""

    spark: str
    lite: str


def sql(template: str, **parts: Sql | str | int) -> Sql:
    """Put parts into a template that both dialects share."""
    return Sql(
        template.format(**{name: part.spark if isinstance(part, Sql) else part for name, part in parts.items()}),
        template.format(**{name: part.lite if isinstance(part, Sql) else part for name, part in parts.items()}),
    )


def joined(separator: str, parts: list[Sql]) -> Sql:
    """Join parts, as `str.join` does."""
    return Sql(separator.join(p.spark for p in parts), separator.join(p.lite for p in parts))
