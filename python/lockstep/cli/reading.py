"""What other engines read of a lake: `lockstep sql` and `lockstep manifest`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

from lockstep.cli.arguments import any_version_option, json_option, root_argument, version_of
from lockstep.cli.printing import print_json, print_table
from lockstep.errors import InvalidError

if TYPE_CHECKING:
    from lockstep.tables.version import LakeVersion

DUPLICATE_COLUMN = "42701"
"""PostgreSQL's duplicate_column."""


@click.command()
@root_argument
@click.argument("query")
@any_version_option
@json_option
def sql(root: str, query: str, when: str | None, as_json: bool) -> None:
    """Answer a query of DuckDB's SQL over the tables of a database version.

    Example: lockstep sql /data/lake "SELECT count(*) FROM sales.orders" --at 42
    """
    answer = _version(root, when).sql(query)
    names = answer.column_names
    try:
        columns = [column.to_pylist() for column in answer.columns]
    except OverflowError as error:
        raise InvalidError(
            f"the answer has a date or time that cannot be printed ({error}): CAST it to VARCHAR", sqlstate="22008"
        ) from error
    if as_json:
        if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
            raise InvalidError(
                f"two columns of the answer are called {twice[0]}, and an object of JSON has a name once: give one "
                "another name (AS)",
                sqlstate=DUPLICATE_COLUMN,
            )
        print_json([_of_json(dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)])
    else:
        rows = zip(*columns, strict=True)
        print_table(names, [["NULL" if value is None else value for value in row] for row in rows])


def _of_json(value: Any) -> Any:
    """Return a value with numbers that JSON has not, NaN and the infinities, as the texts that Spark's to_json has."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: _of_json(each) for key, each in value.items()}
    return [_of_json(each) for each in value] if isinstance(value, list | tuple) else value


@click.command()
@root_argument
@any_version_option
@json_option
def manifest(root: str, when: str | None, as_json: bool) -> None:  # noqa: ARG001 (as every command; it is JSON always)
    """Print which tables a database version has, each with its location and table version, as JSON: one moment of all.

    Example: lockstep manifest /data/lake --at 42
    """
    version = _version(root, when)
    tables = [version[name] for name in version.tables]
    print_json(
        {
            "database_version": version.version,
            "tables": [{"table": str(table.name), "version": table.version, "location": table.uri} for table in tables],
        }
    )


def _version(root: str, when: str | None) -> LakeVersion:
    from lockstep.tables import opened

    lake = opened.open(root)
    return lake.at() if when is None else lake.at(version_of(lake.catalog.timeline, when))
