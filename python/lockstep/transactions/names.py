"""The names that a transaction sees, of tables, views and namespaces: its snapshot's, with its own changes on top."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy

import msgspec

from lockstep.errors import DuplicateError, InvalidError, UndefinedError
from lockstep.timeline.entry import (
    Database,
    Name,
    Namespace,
    NamespaceDdl,
    Table,
    TableDdl,
    View,
    ViewDdl,
    ViewDefinition,
)
from lockstep.transactions.ddl import check_name, check_size, folded, holder, net_ddl, net_views

NOT_EMPTY = "2BP01"
NO_NAMESPACE = "3F000"
NAMESPACE_EXISTS = "42P06"


class Names:
    """What names mean to one transaction, and how it changes that; not for use by two threads at once.

    Attributes:
        base: the snapshot.
        case_sensitive: whether a new name may differ from another in case alone.
        gone: the tables that were dropped, in order.
    """

    def __init__(self, base: Database, *, case_sensitive: bool) -> None:
        """Begin with the names of a snapshot."""
        self.base = base
        self.case_sensitive = case_sensitive
        self.dropped: list[Table] = []
        self._tables = dict(base.tables)
        self._views = dict(base.views)
        self._namespaces = dict(base.namespaces)
        self._namespace_ddl: list[NamespaceDdl] = []

    def copied(self) -> Names:
        """Return the same names, which change no more when these do."""
        other = copy(self)
        vars(other).update({key: copy(value) for key, value in vars(self).items() if isinstance(value, dict | list)})
        return other

    # --- what they mean -----------------------------------------------------------------------------------------------

    @property
    def tables(self) -> Mapping[Name, Table]:
        """The tables. A table's `version` is its pin: the version at BEGIN, `NEW` for one of the transaction's own."""
        return self._tables

    @property
    def views(self) -> Mapping[Name, View]:
        """The views; of one that the transaction made itself, `since` is the database version at BEGIN."""
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
                f"tables ROOT --at {self.base.version}` lists those that there were at BEGIN"
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
                f"ROOT --at {self.base.version}` lists those that there were at BEGIN"
            )
        return view

    # --- changes ------------------------------------------------------------------------------------------------------

    def put(self, table: Table) -> None:
        """Have a table under its name."""
        self._tables[table.name] = table

    def drop_table(self, name: Name) -> None:
        """Take a table out of the catalog; its files stay for the database versions that have it."""
        self.dropped.append(self.table(name))
        del self._tables[name]

    def rename_table(self, name: Name, new_name: Name) -> None:
        """Give a table another name, in another namespace if asked."""
        table = self.table(name)
        self.check_free(new_name, before=name)
        del self._tables[name]
        self.put(msgspec.structs.replace(table, name=new_name))

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
        self._views[name] = View(name=name, definition=definition, since=self.base.version)

    def drop_view(self, name: Name) -> None:
        """Take a view out of the catalog."""
        del self._views[self.view(name).name]

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
        self._namespaces[name] = dict(properties)
        self._namespace_ddl.append(NamespaceDdl(action="create", name=name, properties=dict(properties)))

    def alter_namespace(self, name: Namespace, properties: Mapping[str, str]) -> None:
        """Replace a namespace's properties."""
        self.check_namespace(name)
        self._namespaces[name] = dict(properties)
        self._namespace_ddl.append(NamespaceDdl(action="alter", name=name, properties=dict(properties)))

    def drop_namespace(self, name: Namespace, *, cascade: bool) -> None:
        """Remove a namespace, with all that is in it if `cascade`.

        Raises:
            InvalidError (2BP01): it is not empty, and `cascade` was not asked for.
        """
        self.check_namespace(name)
        inside = [n for n in (*self._tables, *self._views) if n.namespace[: len(name)] == name]
        below = sorted((n for n in self._namespaces if n[: len(name)] == name and n != name), key=len, reverse=True)
        if (inside or below) and not cascade:
            what = inside[0] if inside else ".".join(below[0])
            raise InvalidError(f"namespace {'.'.join(name)} is not empty ({what}); use CASCADE", sqlstate=NOT_EMPTY)
        for each in inside:
            (self.drop_view if each in self._views else self.drop_table)(each)
        for namespace in (*below, name):
            del self._namespaces[namespace]
            self._namespace_ddl.append(NamespaceDdl(action="drop", name=namespace))

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
        if not self.case_sensitive and before is not None and before != name and folded(before) == folded(name):
            return  # nothing but itself, in another case
        self.check_namespace(name.namespace)
        if kind := holder(name, self, case_sensitive=self.case_sensitive):
            raise DuplicateError(f"{kind} {name} exists: choose another name, DROP it first, or CREATE … IF NOT EXISTS")

    # --- what changed -------------------------------------------------------------------------------------------------

    def table_ddl(self, unique: str) -> list[TableDdl]:
        """Return the net changes of the list of tables, see `net_ddl`."""
        return net_ddl(self.base.tables.values(), self._tables.values(), unique)

    def view_ddl(self) -> list[ViewDdl]:
        """Return the net changes of the list of views, see `net_views`."""
        return net_views(self.base.views, self._views)

    def namespace_ddl(self) -> list[NamespaceDdl]:
        """Return the changes of the list of namespaces, in order, without those both made and dropped."""
        transient = {n.name for n in self._namespace_ddl} - set(self._namespaces) - set(self.base.namespaces)
        return [ddl for ddl in self._namespace_ddl if ddl.name not in transient]
