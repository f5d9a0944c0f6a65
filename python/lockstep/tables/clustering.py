"""Columns that a table is clustered by (Protocol, "Clustered Table"): of each, every new file must have statistics.

Which they are stands in a metadata domain of the table's, by their names in files. Files are clustered by Spark's
OPTIMIZE alone: what is written here is not clustered yet, and says nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import msgspec

from lockstep.delta.actions import CLUSTERING
from lockstep.errors import CorruptTimelineError
from lockstep.tables.mapping import physical_name

Path: TypeAlias = tuple[str, ...]
"""A column by its name in files, a field of a struct by the names on the way to it."""


class _Domain(msgspec.Struct):
    columns: list[str | list[str]] = msgspec.field(name="clusteringColumns")


_decode = msgspec.json.Decoder(_Domain).decode


def clustered_by(table: str, domains: Mapping[str, Mapping[str, Any]]) -> tuple[Path, ...]:
    """Return the columns that a table is clustered by, by its metadata domains.

    Args:
        table: its name, for messages.

    Raises:
        CorruptTimelineError: the domain does not say it.
    """
    domain = domains.get(CLUSTERING)
    if domain is None or domain.get("removed"):
        return ()
    try:
        columns = _decode(domain["configuration"]).columns
    except (KeyError, TypeError, msgspec.MsgspecError) as error:
        raise CorruptTimelineError(f"table {table} has a domain {CLUSTERING} that cannot be read: {error}") from error
    return tuple((column,) if isinstance(column, str) else tuple(column) for column in columns)


def with_statistics(fields: Iterable[Mapping[str, Any]], count: int, *, is_mapped: bool) -> set[Path]:
    """Return the columns that files have statistics of; see `lockstep.tables.statistics`.

    Args:
        fields: the table's, without those that it is partitioned by.
        count: how many are looked at, fields of structs counted one by one; -1 for all.
    """
    leaves = list(_leaves(fields, (), is_mapped))
    return {path for path, is_flat in (leaves if count < 0 else leaves[:count]) if is_flat}


def _leaves(fields: Iterable[Mapping[str, Any]], within: Path, is_mapped: bool) -> Iterator[tuple[Path, bool]]:
    for field in fields:
        path = (*within, physical_name(field, is_mapped=is_mapped))
        if isinstance(field["type"], str):
            yield path, True
        elif field["type"]["type"] == "struct":
            yield from _leaves(field["type"]["fields"], path, is_mapped)
        else:
            yield path, False
