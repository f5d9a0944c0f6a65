"""What a writer of `lockstep.open` does: the same to several tables of the lake, or all, in one transaction."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TypeAlias

import pyarrow as pa

import lockstep
from lockstep.errors import CommitUnknownError, LockstepError
from lockstep.tables.table import TransactionTable
from lockstep.tables.transaction import LakeTransaction
from tests.beside.journal import MADE, OWN, SHARED, TRACKED, Journal
from tests.beside.rows import CHANGES, SCHEMA, column_of, property_of, row

TABLES = (*SHARED, *TRACKED, OWN)
"""All that there are to begin with."""

OF_MADE = ("rename", "rename and overwrite", "drop")
"""What is done about a table that one has made; its row in the other tables goes with it."""

Mine: TypeAlias = dict[str, list[tuple[str, list[str]]]]
"""What a writer has left of each kind of thing: the id, and the tables in which it is."""

BATCH = 4
"""So many rows half of the appends have, in one file, of which they then go by vectors."""

SET, UNSET, ADD = "set a property", "unset a property", "add a column"

GATHER = "gather"
"""All rows are written anew as they are, into one file, of which others then mark theirs as gone at the same time."""


def through_python(
    root: str, journal: Journal, ids: Iterator[str], chance: random.Random, *, adds_columns: bool
) -> Iterator[None]:
    """Do the same to all tables of the lake in one transaction, by each kind of write that the Python API has.

    Args:
        adds_columns: whether there may be columns that not all rows have.
    """
    lake = lockstep.open(root)
    mine: Mine = defaultdict(list)
    for id in ids:
        kind = choose(mine, chance, adds_columns=adds_columns)
        taken, tables = None, _tables(kind, chance)
        if kind in (*CHANGES, *OF_MADE, UNSET):
            mine_of_kind = mine[_about(kind)]
            taken, tables = mine_of_kind.pop(chance.randrange(len(mine_of_kind)))
        adds = kind not in ("delete", "drop", UNSET, GATHER)
        all_ids = [id, *islice(ids, BATCH - 1)] if kind == "append" and chance.random() < 0.5 else [id]
        for each in all_ids:
            journal.begin(each, kind, tables, takes_back=taken, adds=adds)
        answer, why = "done", None
        try:
            with lake.transaction(comment=kind) as tx:
                for table in tables:
                    _do(tx, table, kind, all_ids, taken)
        except LockstepError as error:
            answer, why = "unknown" if isinstance(error, CommitUnknownError) else "refused", error
        for each in all_ids:
            journal.end(each, answer, why)
        if answer == "done" and adds and kind != ADD:
            mine[_about(kind)] += [(each, tables) for each in all_ids]
        yield


def choose(mine: Mine, chance: random.Random, *, adds_columns: bool) -> str:
    """Say what is done next, of what can be done about what a writer has left."""
    share = chance.random()
    if share < 0.02:
        return UNSET if mine[SET] and share < 0.01 else SET
    if share < 0.025 and adds_columns:
        return ADD
    if share < 0.1:
        return GATHER
    if share < 0.16:
        return chance.choice(OF_MADE) if mine[MADE] and share < 0.13 else "make"
    return chance.choice(CHANGES) if mine["row"] and share < 0.6 else "append"


def _about(kind: str) -> str:
    """Return what it is that a kind of operation is about."""
    return {SET: SET, UNSET: SET, **dict.fromkeys(("make", *OF_MADE), MADE)}.get(kind, "row")


def _tables(kind: str, chance: random.Random) -> list[str]:
    """Return in which tables something new is done."""
    if kind == ADD:  # delta-rs reads no feed from before a column was added to after
        return [*SHARED, OWN]
    some = [*TABLES] if chance.random() < 0.4 else chance.sample(TABLES, 2)
    return [*some, MADE] if kind == "make" else some


def _do(tx: LakeTransaction, table: str, kind: str, ids: Sequence[str], taken: str | None) -> None:
    """Do to one table what a transaction does to all."""
    id = ids[0]
    if table == MADE:
        _make(tx, kind, id, taken)
    elif kind == SET:
        tx[f"default.{table}"].alter.set_table_properties({property_of(id): "set"})
    elif kind == UNSET:
        tx[f"default.{table}"].alter.unset_table_properties([property_of(str(taken))])
    elif len(ids) > 1:
        tx[f"default.{table}"].append(pa.concat_tables([row(each) for each in ids]))
    elif kind == GATHER:
        tx[f"default.{table}"].update({"was": "was"})
    elif kind == ADD:
        tx[f"default.{table}"].alter.add_columns(pa.field(column_of(id), pa.string()))
    else:
        in_others = {"make": "append", "rename": "update", "rename and overwrite": "update", "drop": "delete"}
        write(tx[f"default.{table}"], in_others.get(kind, kind), id, taken)


def _make(tx: LakeTransaction, kind: str, id: str, taken: str | None) -> None:
    """Make a table of one row, give one another name and row, or drop it."""
    before, after = f"default.{MADE}-{taken}", f"default.{MADE}-{id}"
    if kind == "drop":
        tx.drop(before)
    elif kind == "make":
        tx.create(after, SCHEMA)
        tx[after].append(row(id))
    else:
        tx.rename(before, after)
        if kind == "rename":
            write(tx[after], "update", id, taken)
        else:
            tx[after].overwrite(row(id, taken))


def write(table: TransactionTable, kind: str, id: str, taken: str | None) -> None:
    """Add a row, or put it in the place of another, or only take that one back."""
    if kind == "append":
        table.append(row(id))
    elif kind == "delete":
        table.delete(f"id = '{taken}'")
    elif kind == "update":
        table.update({"id": f"'{id}'", "was": "id"}, where=f"id = '{taken}'")
    elif kind == "overwrite":
        table.overwrite(row(id, taken), where=f"id IN ('{taken}', '{id}')")
    elif kind == "merge":
        rows = pa.table({"id": [taken], "was": [id]})
        table.merge(rows, on="id").when_matched_update({"id": "source.was", "was": "source.id"}).execute()
    else:
        rows = pa.table({"id": [taken, id], "was": [None, taken]}, schema=SCHEMA)
        merge = table.merge(rows, on="id").when_matched_delete()
        merge.when_not_matched_insert({"id": "source.id", "was": "source.was"}).execute()
