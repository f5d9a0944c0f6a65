"""The rows about what a database version has: tables, views and tags; and whose files are listed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from lockstep.storage.urls import url_below
from lockstep.system.query import Batch, Filter, Query, Row, matches, paged, wanted
from lockstep.system.scope import Scope
from lockstep.timeline.entry import Name, Table, Tag, TagDdl, View, names_in
from lockstep.timeline.functions import is_function
from lockstep.transactions.names import tags_in

MOST_TABLES = 1_000
"""Of so many tables the files are listed at a time."""


@dataclass(frozen=True, slots=True)
class Listed:
    """Some tables whose files are to be listed, and where the next ones begin, if there are more."""

    tables: list[Table]
    next: int | None = None


def tables(scope: Scope, query: Query) -> Batch:
    """Return tables, views and functions, by name."""
    return paged(map(partial(_row, scope), _things(scope, query.filters)), query)


def tags(scope: Scope, query: Query) -> Batch:
    """Return tags, by name."""
    return paged(map(_tag, tags_in(scope.database if scope.tx is None else scope.tx.names)), query)


def listed(scope: Scope, filters: Sequence[Filter], cursor: int | None) -> Listed:
    """Return the tables whose files conditions on the table leave, by name; `cursor` says where to go on."""
    begin = cursor or 0
    them = [thing for thing in _things(scope, filters) if isinstance(thing, Table) and matches(_named(thing), filters)]
    end = begin + MOST_TABLES
    return Listed(them[begin:end], end if end < len(them) else None)


def seen_version(scope: Scope, table: Table) -> int:
    """Return which version of its log a table has, with what the transaction itself has staged."""
    staged = [] if scope.tx is None else scope.tx.staged.get(table.id, [])
    return staged[-1] if staged else table.version


def _things(scope: Scope, filters: Sequence[Filter]) -> Iterator[Table | View]:
    """Yield tables and views by name: those of one name, or of one namespace, without a look at all others."""
    names = scope.database if scope.tx is None else scope.tx.names
    namespaces, lasts = wanted(filters, "namespace"), wanted(filters, "name")
    if namespaces is None:
        found: Iterable[Name] = (*names.tables, *names.views)
    else:
        # A namespace as it is shown may stand for several, if a part has a dot in it.
        spaces = [space for space in names.namespaces if ".".join(space) in namespaces]
        if lasts is not None:
            found = {Name(namespace=space, table=last) for space in spaces for last in lasts if isinstance(last, str)}
        else:
            found = [each for space in spaces for map_ in (names.tables, names.views) for each in names_in(map_, space)]
    for name in sorted(found):
        if (thing := names.tables.get(name) or names.views.get(name)) is not None:
            yield thing


def _named(thing: Table | View) -> dict[str, object]:
    return {"namespace": ".".join(thing.name.namespace), "name": thing.name.table}


def _row(scope: Scope, thing: Table | View) -> Row:
    table = thing if isinstance(thing, Table) else None
    return {
        **_named(thing),
        "kind": "TABLE" if isinstance(thing, Table) else "FUNCTION" if is_function(thing) else "VIEW",
        "id": None if table is None else table.id,
        "location": None if table is None else url_below(scope.lake.storage.url, table.location),
        "table_version": None if table is None else seen_version(scope, table),
        "changed_in": thing.since,
    }


def _tag(tag: Tag | TagDdl) -> Row:
    return {
        "tag": tag.name,
        "database_version": tag.version,
        "created_at": tag.created_at if isinstance(tag, Tag) else None,
        "created_in": tag.since if isinstance(tag, Tag) else None,
        "retain_until": tag.retain_until,
        "comment": tag.comment,
    }
