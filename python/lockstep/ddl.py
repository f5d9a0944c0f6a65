"""What changed in a list of tables: the difference between what a transaction began with and what it sees now."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from lockstep.model import Name, Table, TableDdl


def net_ddl(before: Iterable[Table], after: Iterable[Table], unique: str) -> list[TableDdl]:
    """Return the changes between two lists of tables, in an order in which each finds its name free.

    A name that was held in between is nobody's business, and its namespace may be gone.

    Args:
        unique: a text that no name has in it, for detours.
    """
    old, new = {table.id: table for table in before}, {table.id: table for table in after}
    renames = [
        TableDdl(action="rename", id=id, name=table.name, new_name=new[id].name)
        for id, table in old.items()
        if id in new and table.name != new[id].name
    ]
    return [
        *(TableDdl(action="drop", id=id, name=table.name) for id, table in old.items() if id not in new),
        *_without_collisions(renames, unique),
        *(
            TableDdl(action="create", id=id, name=table.name, location=table.location)
            for id, table in new.items()
            if id not in old
        ),
    ]


def _without_collisions(renames: Sequence[TableDdl], unique: str) -> list[TableDdl]:
    """Order renames so that each finds its new name free; in a circle (a swap) one table takes a detour."""
    waiting = {rename.name: rename for rename in renames}
    ordered = []
    while waiting:
        name, rename = next(
            ((name, rename) for name, rename in waiting.items() if rename.new_name not in waiting),
            next(iter(waiting.items())),
        )
        del waiting[name]
        if rename.new_name in waiting:
            detour = Name(namespace=rename.new_name.namespace, table=f"{rename.new_name.table}-{unique}")
            waiting[detour] = msgspec.structs.replace(rename, name=detour)
            rename = msgspec.structs.replace(rename, new_name=detour)
        ordered.append(rename)
    return ordered
