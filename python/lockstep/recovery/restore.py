"""What takes a transaction's view of the database back to an older version: pure, over names and versions.

Names come back here: tables, views and namespaces that are gone, that were renamed, or that were not there. What rows a
table has is Delta's: what is to be restored in its log is returned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec import structs

from lockstep.recovery.dropped import LastState
from lockstep.timeline.database import Database
from lockstep.timeline.entry import Name, Namespace, Table
from lockstep.transactions.names import Names, own_drop


@dataclass(frozen=True, slots=True)
class Selection:
    """What of a database is meant.

    Attributes:
        everything: all of it, whatever else is said.
        namespaces: some namespaces, each with all that is in it.
        bare: some namespaces, and not what is in them.
        names: tables and views by name.
        views: views by name, and no tables that are called so.
        ids: tables by id.
    """

    everything: bool = False
    namespaces: frozenset[Namespace] = frozenset()
    bare: frozenset[Namespace] = frozenset()
    names: frozenset[Name] = frozenset()
    views: frozenset[Name] = frozenset()
    ids: frozenset[str] = frozenset()

    def has_namespace(self, name: Namespace) -> bool:
        """Whether a namespace itself is meant."""
        return name in self.bare or self._has_inside(name)

    def has(self, name: Name) -> bool:
        """Whether a table or view of this name is meant, whichever it is."""
        return name in self.names or self._has_inside(name.namespace)

    def has_view(self, name: Name) -> bool:
        """Whether a view of this name is meant."""
        return name in self.views or self.has(name)

    def _has_inside(self, name: Namespace) -> bool:
        return self.everything or any(name[:length] in self.namespaces for length in range(1, len(name) + 1))

    def has_table(self, table: Table) -> bool:
        """Whether a table is meant, by its id or by its name."""
        return table.id in self.ids or self.has(table.name)


@dataclass(frozen=True, slots=True)
class TableRestore:
    """A table whose log is to be restored: its name as it is now, and the version of its log that it had.

    Attributes:
        through: None if it becomes what it was at `version`. Else it loses only what it became from there to this
            version, and keeps what was appended behind it.
    """

    name: Name
    version: int
    through: int | None = None


def gone(names: Names, then: Database, selection: Selection) -> list[Table]:
    """Return the tables that are to come back: they are in the older version, and dropped by now."""
    wanted = _tables(names, then, selection)
    return [table for id_, table in wanted.items() if names.table_by_id(id_) is None]


def restore(
    names: Names,
    then: Database,
    last_states: Mapping[str, LastState],
    written: Mapping[str, object],
    selection: Selection,
) -> list[TableRestore]:
    """Give names the meaning that they had in an older database version; return what is left to do in tables' logs.

    Args:
        names: changed in place; after an error they are of no use.
        then: the older version.
        last_states: by id, how the tables that are `gone` were last.
        written: by id, the tables that the transaction itself wrote.
        selection: what is restored; the rest stays as it is.

    Raises:
        DuplicateError, UndefinedError, InvalidError: something that stays as it is has the name of what comes back, or
            lies in a namespace that goes; or the transaction itself dropped what is to come back.
    """
    tables = _tables(names, then, selection)
    _make_namespaces(names, then, selection, [table.name for table in tables.values()])
    for name, view in list(names.views.items()):
        if selection.has_view(name) and (name not in then.views or then.views[name].definition != view.definition):
            names.drop_view(name)
    for each in list(names.tables.values()):
        if selection.has_table(each) and each.id not in tables:
            names.drop_table(each.name)
    there = {id_: table for id_ in tables if (table := names.table_by_id(id_)) is not None}
    names.put_tables(structs.replace(table, name=tables[id_].name) for id_, table in there.items())
    for id_ in tables.keys() - there.keys():
        if id_ not in last_states:
            raise own_drop(tables[id_].name)
        names.undrop_table(last_states[id_].table, tables[id_].name, kept_by=last_states[id_].kept_by)
    for name, view in sorted(then.views.items()):
        if selection.has_view(name) and name not in names.views:
            names.create_view(name, view.definition, replace=False)
    _drop_namespaces(names, then, selection)
    last = {id_: state.table for id_, state in last_states.items()}
    versions = {id_: table.version for id_, table in (last | there).items() if id_ not in written}
    return [
        TableRestore(old.name, old.version)
        for id_, old in sorted(tables.items(), key=lambda pair: pair[1].name)
        if versions.get(id_) != old.version
    ]


def _tables(names: Names, then: Database, selection: Selection) -> dict[str, Table]:
    """Return the tables of the older version that are meant by their name then or now, by id."""
    return {
        old.id: old
        for old in then.tables.values()
        if selection.has_table(old) or ((table := names.table_by_id(old.id)) is not None and selection.has_table(table))
    }


def _make_namespaces(names: Names, then: Database, selection: Selection, tables: list[Name]) -> None:
    """Make and alter the namespaces that are meant, and those that tables and views need which come back."""
    views = [name for name in then.views if selection.has_view(name)]
    needed = {name.namespace[:length] for name in (*tables, *views) for length in range(1, len(name.namespace) + 1)}
    for name, properties in sorted(then.namespaces.items()):
        if name not in names.namespaces:
            if name in needed or selection.has_namespace(name):
                names.create_namespace(name, properties)
        elif selection.has_namespace(name) and names.namespaces[name] != properties:
            names.alter_namespace(name, properties)


def _drop_namespaces(names: Names, then: Database, selection: Selection) -> None:
    """Drop the namespaces that were not there, the innermost first; one with something in it that stays is refused."""
    added = [name for name in names.namespaces if name not in then.namespaces and selection.has_namespace(name)]
    for name in sorted(added, key=len, reverse=True):
        names.drop_namespace(name, cascade=False)
