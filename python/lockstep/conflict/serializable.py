"""Serializable snapshot isolation: which transactions, each right by its snapshot, are wrong together.

A *rw-antidependency* goes from a reader to a concurrent writer that changed what the reader read: the reader did not
see the change, so in every serial order it comes first. Under snapshot isolation each circle of dependencies has two of
them in a row, `in → pivot → out`, where `out` committed first of the three [1]. So no other transaction need be aborted
than one that would complete such a pair; as in PostgreSQL [2], not each pair is in a circle, and some are aborted for
nothing.

Winners are taken in the order in which they committed, and ours commits last. Hence ours is never `out`, and two rules
are left (`RULES`). A committed pivot is known by what its entry says: `precedes`, the version of the first winner that
it has an antidependency to.

[1] Fekete, Liarokapis, O'Neil, O'Neil, Shasha: Making Snapshot Isolation Serializable. TODS 30(2), 2005.
    Cahill, Röhm, Fekete: Serializable Isolation for Snapshot Databases. SIGMOD 2008.
[2] Ports, Grittner: Serializable Snapshot Isolation in PostgreSQL. VLDB 2012 (also for read-only transactions).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lockstep.conflict.writes import Changes, Conflict, Hit, did, did_view, name_of
from lockstep.delta.combine.evolution import COLUMNS, OTHER
from lockstep.delta.footprint import Footprint
from lockstep.delta.pruning.predicates import FileValues, may_any_both_match, may_any_match, may_both_match
from lockstep.delta.pruning.row_sets import EVERY_ROW, Rows

RULES = (
    ("pivot", "a winner changed what we read, and it or a later winner read what we change"),
    ("overtaken", "a winner changed what we read, and an earlier one had changed what that winner read"),
)
"""Name and meaning of each rule, as conflicts report them; both hold at SERIALIZABLE only."""


@dataclass(frozen=True, slots=True)
class Antidependency:
    """The first winner that changed what we read: ours comes before it in every serial order."""

    winner: Changes
    hit: Hit


def judge(
    mine: Changes, winners: Iterable[Changes], first: Antidependency | None = None
) -> Conflict | Antidependency | None:
    """Judge a SERIALIZABLE transaction that is about to commit behind these winners.

    Args:
        mine: what it read and changed.
        winners: what committed since its snapshot, in order, at whatever level.
        first: what an earlier call, on the winners before these, returned.

    Returns:
        A conflict; else the first antidependency, which its entry has to say; else None.
    """
    for winner in winners:
        if (hit := antidependency(mine, winner)) is not None:
            if _is_pivot(winner, mine):
                return _overtaken(winner, hit)
            first = first or Antidependency(winner, hit)
        if first is None or winner.isolation != "SERIALIZABLE" or not _is_concurrent(winner, first.winner):
            continue
        if (reverse_hit := antidependency(winner, mine)) is not None:
            return _pivot(first, winner, reverse_hit)
    return first


def antidependency(reader: Changes, writer: Changes) -> Hit | None:
    """Return what the writer changed of what the reader read, if anything; neither saw the other's changes.

    Files rearranged (OPTIMIZE, `dataChange` false), a new protocol, properties and marks of identity columns are no
    change: every query returns the same rows before and after. Columns are read by whoever reads or writes the table.
    """
    for id, ddl in writer.moved_tables().items():
        if id in reader.reads:
            return Hit(did(ddl), about=str(ddl.name))
    for view in writer.views:
        if view.name in reader.view_reads:
            return Hit(did_view(view), about=str(view.name))
    for id in sorted(reader.reads.keys() & writer.writes.keys()):
        footprint = writer.writes[id]
        if footprint.metadata & {COLUMNS, OTHER} or rows_changed(
            reader.reads[id], footprint, writer.reads.get(id, EVERY_ROW)
        ):
            name = name_of(id, reader, writer)
            return Hit(f"changed table {name or id}", about=str(name or id))
    return None


def rows_changed(rows: Rows, commit: Footprint, writer_rows: Rows = EVERY_ROW) -> bool:
    """Tell whether a commit may have changed one of the rows that were read.

    Args:
        rows: the rows in question.
        commit: the commit.
        writer_rows: the rows of the table that the writer itself read: it cannot have removed any others, so that an
            UPDATE of one row of a file does not count as a change of all of them, whatever the log says of the removed
            file.
    """
    if rows is None:
        return commit.data_change
    if _may_hold(rows, commit.rows_added, commit.covers_added):
        return True
    return bool(commit.rows_removed) and _may_hold(
        _shared(rows, writer_rows), commit.rows_removed, commit.covers_removed
    )


def _shared(conditions: frozenset[str], rows: Rows) -> frozenset[str]:
    """Return those conditions that a row which a writer found may satisfy."""
    if rows is None:
        return conditions
    near = [other for other in rows if may_any_both_match(conditions, other)]
    return frozenset(one for one in conditions if any(may_both_match(one, other) for other in near))


def _may_hold(
    conditions: frozenset[str], files: tuple[FileValues, ...], covers: tuple[tuple[FileValues, ...], ...]
) -> bool:
    """Tell whether some of the files may hold a row that was read; their covers, if any, tell sooner."""
    return bool(conditions) and all(
        any(may_any_match(conditions, file) for file in level) for level in (*covers, files)
    )


def _is_pivot(winner: Changes, mine: Changes) -> bool:
    """Tell whether the winner, which we come before, itself comes before one that committed earlier.

    Where ours changes nothing, that matters only if our snapshot has the earlier one in it.
    """
    if winner.precedes is None:
        return False
    return mine.changes_something() or mine.base is None or winner.precedes <= mine.base


def _is_concurrent(winner: Changes, first: Changes) -> bool:
    """Tell whether the winner, as `in`, makes a dangerous pair with `first` as `out`."""
    if winner.changes_something() or winner.base is None or first.database_version is None:
        return True
    return first.database_version <= winner.base


def _overtaken(winner: Changes, hit: Hit) -> Conflict:
    what = (
        f"{hit.what}, which this transaction read, and had itself read what database version {winner.precedes} changed "
        "before it"
    )
    return _conflict("overtaken", winner, what, hit.about)


def _pivot(first: Antidependency, winner: Changes, hit: Hit) -> Conflict:
    if winner is first.winner:
        what = f"{first.hit.what}, which this transaction read, and read what this transaction changed (it {hit.what})"
    else:
        what = (
            f"read what this transaction changed (it {hit.what}), after database version "
            f"{first.winner.database_version} {first.hit.what}, which this transaction read"
        )
    return _conflict("pivot", winner, what, first.hit.about)


def _conflict(rule: str, winner: Changes, what: str, about: str) -> Conflict:
    return Conflict.of(rule, winner, Hit(f"{what}: no order of these transactions gives the same", about=about))
