"""What changed in the lists of tables and views: from what a transaction began with to what it sees now."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from types import MappingProxyType
from typing import Protocol, TypeVar

import msgspec

from lockstep.errors import InvalidError
from lockstep.timeline.entry import (
    MAX_TAG_CHARACTERS,
    MAX_TAG_COMMENT_CHARACTERS,
    MAX_VIEW_BYTES,
    Name,
    Namespace,
    Table,
    TableDdl,
    TagDdl,
    View,
    ViewDdl,
    ViewDefinition,
    folded,
)
from lockstep.timeline.functions import said

T = TypeVar("T")

TOO_LARGE = "54000"
TOO_LONG = "42622"
NO_NAME = "42602"
AMBIGUOUS = "42702"
MAX_NAME_CHARACTERS = 255
"""Of one part of a new name, as other catalogs of Spark have it."""


def check_name(*parts: str) -> None:
    """Raise InvalidError if a part of the name of a new table, view or namespace is empty (42602) or long (42622)."""
    for part in parts:
        if not part:
            raise InvalidError("a name is empty: give the table, view or namespace a name", sqlstate=NO_NAME)
        if len(part) > MAX_NAME_CHARACTERS:
            raise InvalidError(
                f"the name {part[:40]}… has {len(part)} characters, at most {MAX_NAME_CHARACTERS} fit",
                sqlstate=TOO_LONG,
            )


def check_tag(ddl: TagDdl) -> None:
    """Raise InvalidError unless a tag may be called so: its name is empty or a number (42602), or too long (42622)."""
    if not ddl.name.strip() or not ddl.name.isprintable():
        raise InvalidError("the name of a tag is empty, or has characters that nobody sees", sqlstate=NO_NAME)
    if ddl.name.isdigit() or ddl.name.startswith("@"):
        raise InvalidError(
            f"a tag cannot be called {ddl.name}: that would be taken for a version's number", sqlstate=NO_NAME
        )
    for what, text, most in (
        ("name", ddl.name, MAX_TAG_CHARACTERS),
        ("comment", ddl.comment, MAX_TAG_COMMENT_CHARACTERS),
    ):
        if len(text) > most:
            raise InvalidError(f"the {what} of a tag has {len(text)} characters, at most {most} fit", sqlstate=TOO_LONG)


class HasNames(Protocol):
    """What has tables, views and namespaces: a database version, or a transaction's view of one."""

    def like(self, key: Name) -> list[Name]:
        """Return the names of tables and views that are `key` where case does not count."""
        ...

    @property
    def tables(self) -> Mapping[Name, Table]: ...  # those of `Database` and `Transaction`
    @property
    def views(self) -> Mapping[Name, View]: ...
    @property
    def namespaces(self) -> Mapping[Namespace, Mapping[str, str]]: ...


def spellings(name: Name, scope: HasNames) -> list[Name]:
    """Return the stored names that one whose case does not count may mean: itself alone, if that is one."""
    if name in scope.tables or name in scope.views:
        return [name]
    return sorted(scope.like(folded(name)))


def spelled(name: Name, scope: HasNames) -> Name:
    """Return how a name is stored whose case does not count; one that nothing has as it is, in its stored namespace.

    Raises:
        InvalidError (42702): several fit, and none of them exactly; they were made where case counts.
    """
    if name in scope.tables or name in scope.views:
        return name
    inside = Name(namespace=spelled_namespace(name.namespace, scope), table=name.table)
    matches = spellings(inside, scope)
    return _only(matches, str(name)) if matches else inside


def spelled_namespace(namespace: Namespace, scope: HasNames) -> Namespace:
    """Return how a namespace is stored whose case does not count, as far as there is one."""
    for length in range(len(namespace), 0, -1):
        if namespace[:length] in scope.namespaces:
            return namespace
        key = tuple(part.lower() for part in namespace[:length])
        if matches := sorted(each for each in scope.namespaces if tuple(part.lower() for part in each) == key):
            return _only(matches, ".".join(namespace)) + namespace[length:]
    return namespace


def _only(candidates: Sequence[T], name: str) -> T:
    if len(candidates) > 1:
        raise InvalidError(
            f"{name} may be any of {', '.join(map(str, candidates))}, which differ in case alone: say it as it is "
            "stored, or SET spark.sql.caseSensitive = true",
            sqlstate=AMBIGUOUS,
        )
    return candidates[0]


def holder(name: Name, scope: HasNames, *, case_sensitive: bool = True) -> str | None:
    """Return what has this name, a "table" or a "view", which share their names; None if it is free."""
    if not case_sensitive:
        name = next(iter(scope.like(folded(name))), name)
    if name in scope.tables:
        return "table"
    return "view" if name in scope.views else None


def check_size(name: Name, definition: ViewDefinition) -> None:
    """Raise InvalidError (54000) if the definition of a view is larger than `MAX_VIEW_BYTES`."""
    if (size := len(msgspec.json.encode(definition))) > MAX_VIEW_BYTES:
        raise InvalidError(
            f"the definition of {said(name)} has {size} bytes, at most {MAX_VIEW_BYTES} fit: make it of several views",
            sqlstate=TOO_LARGE,
        )


def net_ddl(
    before: Iterable[Table],
    after: Iterable[Table],
    unique: str,
    *,
    returned: Mapping[str, Table] = MappingProxyType({}),
    adopted: Collection[str] = (),
    settled: Mapping[str, int] = MappingProxyType({}),
) -> list[TableDdl]:
    """Return the changes between two lists of tables, in an order in which each finds its name free.

    A name that was held in between is nobody's business, and its namespace may be gone.

    Args:
        unique: a text that no name has in it, for detours.
        returned: by id, the tables among those that had been dropped, at the versions at which they come back.
        adopted: the ids of those among `returned` that the lake did not have before.
        settled: by id, up to which version the logs are right of tables that had diverged and are dropped for that.
    """
    old, new = {table.id: table for table in before}, {table.id: table for table in after}
    renames = [
        TableDdl(action="rename", id=id, name=table.name, new_name=new[id].name)
        for id, table in old.items()
        if id in new and table.name != new[id].name
    ]
    drops = [
        TableDdl(action="drop", id=id, name=table.name, right_through=settled.get(id))
        for id, table in old.items()
        if id not in new
    ]
    renames.sort(key=attrgetter("name"))  # a snapshot's tables are in no order
    drops.sort(key=attrgetter("name"))
    return [
        *drops,
        *_without_collisions(renames, unique),
        *(
            TableDdl(
                action="create",
                id=id,
                name=table.name,
                location=table.location,
                version=returned[id].version if id in returned else None,
                adopted=id in adopted,
                digest=returned[id].digest if id in returned else "",
            )
            for id, table in new.items()
            if id not in old
        ),
    ]


def net_views(before: Mapping[Name, View], after: Mapping[Name, View]) -> list[ViewDdl]:
    """Return the changes between two mappings of views, drops first, each in the order of names.

    A view is its name and definition: one that was dropped and made again as it was has not changed.
    """
    drops = [ViewDdl(action="drop", name=name) for name in sorted(set(before) - set(after))]
    return drops + [
        ViewDdl(action="replace" if name in before else "create", name=name, definition=view.definition)
        for name, view in sorted(after.items())
        if name not in before or before[name].definition != view.definition
    ]


def _without_collisions(renames: Sequence[TableDdl], unique: str) -> list[TableDdl]:
    """Order renames so that each finds its new name free; in a circle (a swap) one table takes a detour."""
    by_name = {rename.name: rename for rename in renames}
    order = []
    while by_name:
        name, rename = next(
            ((name, rename) for name, rename in by_name.items() if rename.new_name not in by_name),
            next(iter(by_name.items())),
        )
        del by_name[name]
        if rename.new_name in by_name:
            detour = Name(namespace=rename.new_name.namespace, table=f"{rename.new_name.table}-{unique}")
            by_name[detour] = msgspec.structs.replace(rename, name=detour)
            rename = msgspec.structs.replace(rename, new_name=detour)
        order.append(rename)
    return order
