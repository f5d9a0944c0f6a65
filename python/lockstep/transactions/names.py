"""What names mean to a transaction, of tables, views, namespaces, tags: its snapshot's, its own changes on top."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from typing import TypeVar, cast

import msgspec
from immutables import Map

from lockstep.errors import DuplicateError, InvalidError, UndefinedError
from lockstep.timeline.database import Database, tag_key
from lockstep.timeline.entry import (
    Name,
    Namespace,
    NamespaceDdl,
    Table,
    TableDdl,
    Tag,
    TagDdl,
    View,
    ViewDdl,
    ViewDefinition,
    folded,
    names_in,
)
from lockstep.transactions.ddl import check_name, check_size, check_tag, holder, net_ddl, net_views

NOT_EMPTY = "2BP01"
NO_TAG = "42704"
TAG_EXISTS = "42710"
NO_NAMESPACE = "3F000"
NAMESPACE_EXISTS = "42P06"

K = TypeVar("K")
V = TypeVar("V")


class Names:
    """What names mean to one transaction, and how it changes that; not for use by two threads at once.

    It costs what the transaction changes, whatever the lake holds: the maps are the snapshot's, with what was changed.

    Attributes:
        base: the snapshot.
        case_sensitive: whether a new name may differ from another in case alone.
        dropped: the tables that were dropped, in order.
        defined: the views that were made, in order, those among them that others have replaced since.
    """

    def __init__(self, base: Database, *, case_sensitive: bool) -> None:
        """Begin with the names of a snapshot."""
        self.case_sensitive = case_sensitive
        self.dropped: list[Table] = []
        self.defined: list[View] = []
        # The names of tables and views that were changed, in order: what they mean may not be what they meant at first.
        self._changed_tables: dict[Name, None] = {}
        self._changed_views: dict[Name, None] = {}
        self._namespace_ddl: list[NamespaceDdl] = []
        self._changed_tags: dict[str, TagDdl | None] = {}
        self._returned: dict[str, Table] = {}
        self._kept_by: dict[str, int] = {}
        self._adopted: dict[str, None] = {}
        self._settled: dict[str, int] = {}
        self._released: dict[str, None] = {}
        self._take(base)

    def _take(self, base: Database) -> None:
        self.base = base
        self._tables = _persistent(base.tables)
        self._views = _persistent(base.views)
        self._namespaces = _persistent(base.namespaces)
        self._ids = _persistent(base.index.ids)
        self._locations = _persistent(base.index.locations)

    def copied(self) -> Names:
        """Return the same names, which change no more when these do."""
        other = copy(self)
        vars(other).update({key: copy(value) for key, value in vars(self).items() if isinstance(value, dict | list)})
        return other

    @property
    def is_changed(self) -> bool:
        """Whether anything was made, dropped or renamed, if only for a time."""
        return bool(self._changed_tables or self._changed_views or self._namespace_ddl or self._changed_tags)

    def move_to(self, base: Database, written: Iterable[str]) -> None:
        """Go on with a later snapshot.

        Args:
            base: the snapshot. If `is_changed`, it has the same names of all things as the one before.
            written: the ids of the tables that are at another version in it.
        """
        if not self.is_changed:
            self._take(base)
            return
        self.base = base
        for id_ in written:
            name, table = self._ids.get(id_), base.table_by_id(id_)
            if name is not None and table is not None:
                self._tables = self._tables.set(name, msgspec.structs.replace(table, name=name))

    # --- what they mean -----------------------------------------------------------------------------------------------

    @property
    def tables(self) -> Mapping[Name, Table]:
        """The tables. A table's `version` is its pin: the snapshot's, `NEW` for one of the transaction's own."""
        return self._tables

    @property
    def views(self) -> Mapping[Name, View]:
        """The views; of one that the transaction made itself, `since` is the snapshot's version then."""
        return self._views

    @property
    def namespaces(self) -> Mapping[Namespace, Mapping[str, str]]:
        """The namespaces, with their properties."""
        return self._namespaces

    def table(self, name: Name) -> Table:
        """Return the table of this name.

        Raises:
            UndefinedError: there is none.
        """
        if (table := self._tables.get(name)) is None:
            raise UndefinedError(
                f"no table {name} in database version {self.base.version} or made by this transaction: `lockstep "
                f"tables ROOT --at {self.base.version}` lists those of its snapshot"
            )
        return table

    def view(self, name: Name) -> View:
        """Return the view of this name.

        Raises:
            UndefinedError: there is none.
        """
        if (view := self._views.get(name)) is None:
            raise UndefinedError(
                f"no view {name} in database version {self.base.version} or made by this transaction: `lockstep views "
                f"ROOT --at {self.base.version}` lists those of its snapshot"
            )
        return view

    def table_by_id(self, id: str) -> Table | None:
        """Return the table with this id, whatever it is called now."""
        return None if (name := self._ids.get(id)) is None else self._tables[name]

    def table_at(self, location: str) -> Table | None:
        """Return the table whose data lies in this folder."""
        return None if (name := self._locations.get(location)) is None else self._tables[name]

    def like(self, key: Name) -> list[Name]:
        """Return the names of tables and views that are `key` where case does not count, as `folded` has it."""
        changed = (name for name in (*self._changed_tables, *self._changed_views) if folded(name) == key)
        found = {*self.base.like(key), *changed}
        return [name for name in found if name in self._tables or name in self._views]

    # --- changes ------------------------------------------------------------------------------------------------------

    def put(self, table: Table) -> None:
        """Have a table under its name."""
        if self._tables.get(table.name) != table:
            self._changed_tables[table.name] = None
            self._tables = self._tables.set(table.name, table)
            self._ids = self._ids.set(table.id, table.name)
            self._locations = self._locations.set(table.location, table.name)

    def _take_out(self, table: Table) -> None:
        self._changed_tables[table.name] = None
        self._tables = self._tables.delete(table.name)
        self._ids = self._ids.delete(table.id)
        self._locations = self._locations.delete(table.location)

    def drop_table(self, name: Name, *, right_through: int | None = None) -> None:
        """Take a table out of the catalog; its files stay for the database versions that have it.

        Args:
            right_through: of one that has diverged, after which version its log is not what the timeline says.
        """
        table = self.table(name)
        if right_through is not None:
            self._settled[table.id] = right_through
        self.dropped.append(table)
        self._take_out(table)

    def release_table(self, name: Name) -> None:
        """Take a table out of the catalog whose folder is not the lake's any more, whoever made it."""
        self._released[self.table(name).id] = None
        self.drop_table(name)

    def gone(self) -> list[Table]:
        """Return the tables that the transaction dropped and has not brought back."""
        return [table for table in self.dropped if self.table_by_id(table.id) is None]

    def is_released(self, table: Table) -> bool:
        """Whether the transaction gives the table back."""
        return table.id in self._released

    def released(self) -> list[Table]:
        """Return the tables that the transaction gives back."""
        return [table for table in self.dropped if self.is_released(table)]

    def rename_table(self, name: Name, new_name: Name) -> None:
        """Give a table another name, in another namespace if asked."""
        table = self.table(name)
        self.check_free(new_name, before=name)
        self._take_out(table)
        self.put(msgspec.structs.replace(table, name=new_name))

    def undrop_table(self, table: Table, name: Name, *, kept_by: int) -> None:
        """Bring back a table that another transaction dropped, under a name, as it was at its version.

        Args:
            kept_by: the database version for whose sake what is to come back is there: COMMIT needs it to be kept yet.

        Raises:
            UndefinedError (3F000), DuplicateError (42P07): no such namespace; the name is taken, or the table is there,
                be it that somebody has adopted its folder since, under this name or another.
            InvalidError: this transaction itself dropped it, or did so with what it had brought back.
        """
        if (other := self.table_by_id(table.id)) is not None:
            raise DuplicateError(
                f"table {table.name} with id {table.id} is there, as {other.name}, and need not be brought back"
            )
        if (other := self.table_at(table.location)) is not None:
            raise DuplicateError(
                f"table {table.name} cannot come back: its folder {table.location} was adopted since, and is table "
                f"{other.name} of this lake. Rename that one, or release it first"
            )
        if self.base.table_by_id(table.id) is not None or table.id in self._returned:
            raise own_drop(table.name)
        self.check_free(name)
        self._kept_by[table.id] = kept_by
        self._returned[table.id] = back = msgspec.structs.replace(table, name=name, since=self.base.version)
        self.put(back)

    def adopt_table(self, table: Table) -> None:
        """Take in a table that is there already, as it is at its version; the lake did not make it.

        Raises:
            UndefinedError (3F000), DuplicateError (42P07): no such namespace; the name is taken, or the lake has the
                table under another one.
        """
        if (other := self.table_at(table.location)) is not None:
            raise DuplicateError(f"{table.location} is table {other.name} of this lake already")
        self.check_free(table.name)
        self._returned[table.id] = table
        self._adopted[table.id] = None
        self.put(table)

    def create_elsewhere(self, table: Table) -> None:
        """Have a new table in a folder that is not the lake's to delete, for a statement has said which it is."""
        self._adopted[table.id] = None
        self.put(table)

    def is_adopted(self, table: Table) -> bool:
        """Whether the transaction itself took the table in, or made it where a statement said."""
        return table.id in self._adopted

    def is_returned(self, table: Table) -> bool:
        """Whether a table is in no snapshot: the transaction brought it back, or took it in."""
        return table.id in self._returned

    def returned(self) -> list[Table]:
        """Return the tables that it brought back, or took in, and that are there, as it calls them."""
        return [table for id_ in self._returned if (table := self.table_by_id(id_)) is not None]

    def kept_by(self) -> Mapping[str, int]:
        """Return, by table id, which database versions keep what it brought back: `undrop_table` was told."""
        return self._kept_by

    def brought_back(self) -> list[Table]:
        """Return those of them that it brought back: whoever gives rows back looks for their files."""
        return [table for table in self.returned() if not self.is_adopted(table)]

    def put_tables(self, tables: Iterable[Table]) -> None:
        """Give tables, which are all there, these names, in whatever order they become free.

        Raises:
            DuplicateError (42P07): a name is that of something else.
        """
        renamed = [(old, table) for table in tables if (old := self.table_by_id(table.id)) and old.name != table.name]
        for old, _ in renamed:
            self._take_out(old)
        for _, table in renamed:
            self.check_free(table.name)
            self.put(table)

    def create_view(self, name: Name, definition: ViewDefinition, *, replace: bool) -> None:
        """Make a view, in the place of the one of that name if `replace`.

        Raises:
            UndefinedError (3F000): no such namespace.
            DuplicateError (42P07): the name is a table's, or a view's that is not to be replaced.
            InvalidError (54000): the definition is larger than `MAX_VIEW_BYTES`.
        """
        check_size(name, definition)
        if not (replace and name in self._views):
            self.check_free(name)
        self._changed_views[name] = None
        self.defined.append(View(name=name, definition=definition, since=self.base.version))
        self._views = self._views.set(name, self.defined[-1])

    def drop_view(self, name: Name) -> None:
        """Take a view out of the catalog."""
        name = self.view(name).name
        self._changed_views[name] = None
        self._views = self._views.delete(name)

    def rename_view(self, name: Name, new_name: Name) -> None:
        """Give a view another name, in another namespace if asked: a drop and a create to all others."""
        definition = self.view(name).definition
        self.check_free(new_name, before=name)
        self.drop_view(name)
        self.create_view(new_name, definition, replace=False)

    def create_namespace(self, name: Namespace, properties: Mapping[str, str]) -> None:
        """Make a namespace.

        Raises:
            DuplicateError (42P06): there is one. UndefinedError (3F000): its parent does not exist.
        """
        check_name(*name)
        if name in self._namespaces:
            raise DuplicateError(
                f"namespace {'.'.join(name)} exists: choose another name, DROP it first, or CREATE NAMESPACE IF NOT "
                "EXISTS",
                sqlstate=NAMESPACE_EXISTS,
            )
        if len(name) > 1:
            self.check_namespace(name[:-1])
        self._namespaces = self._namespaces.set(name, dict(properties))
        self._namespace_ddl.append(NamespaceDdl(action="create", name=name, properties=dict(properties)))

    def alter_namespace(self, name: Namespace, properties: Mapping[str, str]) -> None:
        """Replace a namespace's properties."""
        self.check_namespace(name)
        self._namespaces = self._namespaces.set(name, dict(properties))
        self._namespace_ddl.append(NamespaceDdl(action="alter", name=name, properties=dict(properties)))

    def drop_namespace(self, name: Namespace, *, cascade: bool) -> None:
        """Remove a namespace, with all that is in it if `cascade`.

        Raises:
            InvalidError (2BP01): it is not empty, and `cascade` was not asked for.
        """
        self.check_namespace(name)
        within = [n for n in self._namespaces if n[: len(name)] == name]
        inside = sorted(n for values in (self._tables, self._views) for each in within for n in names_in(values, each))
        below = sorted((n for n in self._namespaces if n[: len(name)] == name and n != name), key=len, reverse=True)
        if (inside or below) and not cascade:
            what = inside[0] if inside else ".".join(below[0])
            raise InvalidError(f"namespace {'.'.join(name)} is not empty ({what}); use CASCADE", sqlstate=NOT_EMPTY)
        for each in inside:
            (self.drop_view if each in self._views else self.drop_table)(each)
        for namespace in (*below, name):
            self._namespaces = self._namespaces.delete(namespace)
            self._namespace_ddl.append(NamespaceDdl(action="drop", name=namespace))

    # --- tags ---------------------------------------------------------------------------------------------------------

    def tag(self, name: str) -> Tag | TagDdl | None:
        """Return the tag of a name, in whatever case; one of its own as it is going to be."""
        key = tag_key(name)
        return self._changed_tags[key] if key in self._changed_tags else self.base.tag(name)

    def tag_keys(self) -> set[str]:
        """Return how the names are told from one another of all tags that there may be; some may be gone."""
        return {*self.base.tags, *self._changed_tags}

    def create_tag(self, ddl: TagDdl) -> None:
        """Give a database version a name.

        Raises:
            InvalidError (42602, 42622): it can be none. DuplicateError (42710): there is such a tag.
        """
        check_tag(ddl)
        if (tag := self.tag(ddl.name)) is not None:
            raise DuplicateError(
                f"tag {tag.name} exists: choose another name, DROP TAG first, or CREATE TAG IF NOT EXISTS",
                sqlstate=TAG_EXISTS,
            )
        self._changed_tags[tag_key(ddl.name)] = ddl

    def drop_tag(self, name: str) -> None:
        """Take a name from a database version, which stays as long as anything else keeps it.

        Raises:
            UndefinedError (42704): there is no such tag.
        """
        if self.tag(name) is None:
            raise UndefinedError(f"no tag {name}; SHOW TAGS lists those that there are", sqlstate=NO_TAG)
        self._changed_tags[tag_key(name)] = None

    def check_namespace(self, name: Namespace) -> None:
        """Raise UndefinedError (3F000) unless it sees this namespace."""
        if name not in self._namespaces:
            raise UndefinedError(f"no namespace {'.'.join(name)}; CREATE NAMESPACE makes one", sqlstate=NO_NAMESPACE)

    def check_free(self, name: Name, *, before: Name | None = None) -> None:
        """Raise unless a new table or view may have this name, which the one called `before` is to get.

        Raises:
            UndefinedError (3F000), DuplicateError (42P07): no such namespace; the name is taken.
        """
        check_name(name.table)
        if not self.case_sensitive and before != name and [before] == self.like(folded(name)):
            return  # nothing but itself, in another case
        self.check_namespace(name.namespace)
        if kind := holder(name, self, case_sensitive=self.case_sensitive):
            raise DuplicateError(f"{kind} {name} exists: choose another name, DROP it first, or CREATE … IF NOT EXISTS")

    # --- what changed -------------------------------------------------------------------------------------------------

    def table_ddl(self, unique: str) -> list[TableDdl]:
        """Return the net changes of the list of tables, see `net_ddl`."""
        before = [table for name in self._changed_tables if (table := self.base.tables.get(name)) is not None]
        after = [table for name in self._changed_tables if (table := self._tables.get(name)) is not None]
        return net_ddl(before, after, unique, returned=self._returned, adopted=self._adopted, settled=self._settled)

    def view_ddl(self) -> list[ViewDdl]:
        """Return the net changes of the list of views, see `net_views`."""
        names = self._changed_views
        return net_views(_those(self.base.views, names), _those(self._views, names))

    def tag_ddl(self) -> list[TagDdl]:
        """Return the net changes of the list of tags, drops first."""
        gone = [tag for key in self._changed_tags if (tag := self.base.tag(key)) is not None]
        drops = [TagDdl(action="drop", name=tag.name) for tag in gone]
        return [*drops, *(ddl for ddl in self._changed_tags.values() if ddl is not None)]

    def namespace_ddl(self) -> list[NamespaceDdl]:
        """Return the changes of the list of namespaces, in order, without those both made and dropped."""
        names = {ddl.name for ddl in self._namespace_ddl}
        transient = {name for name in names if name not in self._namespaces and name not in self.base.namespaces}
        return [ddl for ddl in self._namespace_ddl if ddl.name not in transient]


def tags_in(scope: Names | Database) -> list[Tag | TagDdl]:
    """Return the tags of a database version, or those that a transaction sees, by name."""
    keys = scope.tags if isinstance(scope, Database) else scope.tag_keys()
    return [tag for key in sorted(keys) if (tag := scope.tag(key)) is not None]


def own_drop(name: Name) -> InvalidError:
    """Return what it means that a transaction is to bring back a table which it has dropped itself."""
    return InvalidError(
        f"table {name} was dropped by this transaction itself: ROLLBACK, or ROLLBACK TO a savepoint from before that"
    )


def _persistent(values: Mapping[K, V]) -> Map[K, V]:
    return cast("Map[K, V]", values)  # what a `Database` has, or a `LayeredMap`, which is like it


def _those(values: Mapping[K, V], keys: Iterable[K]) -> dict[K, V]:
    return {key: values[key] for key in keys if key in values}
