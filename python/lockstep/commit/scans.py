"""What an autocommitted statement read from other tables than the one it writes: judged as it commits.

Delta checks such a statement's own table, at its `Serializable` level, and only that. The others were read at the
versions that the scans name. So the statement is a transaction whose snapshot is as old as the first change that it did
not see; where it saw all of them, and that is nearly always, there is nothing to judge.

One query reads at one database version. But DataFrames that were made at different times, or are from a cache, may meet
in one statement, and then it may come before one change and after another (`torn-read`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from lockstep.conflict.serializable import Antidependency, antidependency, judge
from lockstep.conflict.writes import Changes, Conflict, Hit
from lockstep.delta.footprint import Footprint
from lockstep.delta.pruning.row_sets import EVERY_ROW, NO_ROW, Rows, either, predicates_of, with_older
from lockstep.errors import UnsupportedError
from lockstep.lake.lake import Lake
from lockstep.timeline.database import Database
from lockstep.timeline.entry import Entry, Name, TableRead
from lockstep.timeline.log import Timeline

NO_VIEWS: Mapping[Name, int] = MappingProxyType({})
"""A statement that used no view's definition."""


@dataclass(frozen=True, slots=True)
class Scan:
    """One scan of a table.

    Attributes:
        table: its id.
        version: its version then; None is not known, or that of a transaction's own view.
        where: the rows it was after; None is any.
        head: whether it was not seen through a transaction.
        cached: whether its rows came from what Spark keeps of an earlier query.
    """

    table: str
    version: int | None
    where: str | None
    head: bool = True
    cached: bool = False


def rows_read(scans: Iterable[Scan]) -> dict[str, Rows]:
    """Return which rows were read, by table id."""
    rows: dict[str, Rows] = {}
    for scan in scans:
        rows[scan.table] = either(rows.get(scan.table, frozenset()), scan.where)
    return rows


def table_reads(
    scans: Sequence[Scan], head: Database, writes: Mapping[str, Footprint], *, older: bool = False
) -> list[TableRead]:
    """Return the reads as an entry says them, of the tables that are still there.

    Args:
        writes: by table id, what the statement changes. Rows that it removes without having looked for them (INSERT
            OVERWRITE, replaceWhere) are rows that it depends on, so any row of that table counts as read.
        older: whether it read what it writes, perhaps as it had been before; see `Transaction.read_older`.
    """
    rows = rows_read(scans)
    for id_, footprint in writes.items():
        if footprint.overwrites or (footprint.rows_removed and id_ not in rows):
            rows[id_] = EVERY_ROW
        if older:
            rows[id_] = with_older(rows.get(id_, NO_ROW))
    oldest = _oldest(scans)
    tables = sorted((t for t in map(head.table_by_id, rows) if t is not None), key=lambda t: t.name)
    return [
        TableRead(id=t.id, name=t.name, version=oldest.get(t.id, t.version), predicates=predicates_of(rows[t.id]))
        for t in tables
    ]


def judge_statement(
    lake: Lake,
    head: Database,
    mine: Changes,
    scans: Sequence[Scan],
    read_version: int,
    *,
    views: Mapping[Name, int] = NO_VIEWS,
) -> Conflict | Antidependency | None:
    """Judge a statement that is about to commit behind `head`, as `lockstep.conflict.serializable` does a transaction.

    Args:
        mine: what it changes: one table. Its `reads` are not looked at.
        scans: what it read. Delta judges what it read of its own table, but for what came from a cache.
        read_version: the version of its own table that it began from; `NEW` for a table that it makes.
        views: the views whose definitions it used, and in which database version each had it.
    """
    [target] = mine.writes
    if mine.isolation == "SERIALIZABLE":
        _check_known(head, scans)
    others = [scan for scan in scans if scan.version is not None and (scan.cached or scan.table != target)]
    unseen = [first_unseen(lake.timeline, head, _oldest(others)), _first_redefined(lake.timeline, head, views)]
    first = min((version for version in unseen if version is not None), default=None)
    if first is None:
        return None
    reads = rows_read(others)
    if target in reads:  # from a cache; what is removed is bounded by all that was looked for, and not by the cache's
        reads[target] = EVERY_ROW if mine.writes[target].overwrites else rows_read(scans)[target]
    mine = replace(mine, reads=reads, view_reads=frozenset(views), base=first - 1)
    entries = lake.timeline.entries(first - 1, head.version)
    if (conflict := _half_read(lake, entries, _oldest(others))) is not None:
        return conflict
    winners = [lake.past.of(entry) for entry in entries]
    if any(scan.table == target and not scan.cached for scan in scans):
        database_version = _made_in(lake.timeline, entries, target, read_version)
        for winner in winners:
            if (winner.database_version or 0) <= database_version and (hit := antidependency(mine, winner)) is not None:
                return _torn(winner, hit)
    if mine.isolation != "SERIALIZABLE":
        return None
    pairs = list(zip(entries, winners, strict=True))
    return _of_two_times(lake.timeline, pairs, mine, others, views) or judge(mine, winners)


def _check_known(head: Database, scans: Sequence[Scan]) -> None:
    for scan in scans:
        if scan.cached and scan.version is None and scan.head:
            table = head.table_by_id(scan.table)
            raise UnsupportedError(
                f"this statement reads table {scan.table if table is None else table.name} from a cache of which Spark "
                "does not say how old it is, so nothing was written: UNCACHE TABLE it, or unpersist() the DataFrame, "
                "and run this again"
            )


def first_unseen(timeline: Timeline, head: Database, versions: dict[str, int]) -> int | None:
    """Return the first database version that changed one of these tables after the table version that was read."""
    head_versions = {t.id: t.version for t in map(head.table_by_id, versions) if t is not None}
    read_versions = {id_: version for id_, version in versions.items() if head_versions.get(id_, version + 1) > version}
    first = None
    for entry in timeline.newest_first(0, head.version) if read_versions else ():
        for id_ in [id_ for id_ in read_versions if _touches(entry, id_)]:
            if _end(timeline, entry, id_) <= read_versions[id_]:
                del read_versions[id_]
            else:
                first = entry.version
        if not read_versions:
            break
    return first


def _first_redefined(timeline: Timeline, head: Database, views: Mapping[Name, int]) -> int | None:
    """Return the first database version that replaced, dropped or renamed one of these views after it was used."""
    if not views:
        return None
    for entry in timeline.entries(min(views.values()), head.version):
        if any(entry.version > views.get(ddl.name, head.version) for ddl in entry.views):
            return entry.version
    return None


def _touches(entry: Entry, table: str) -> bool:
    return table in {w.id for w in entry.writes} | {d.id for d in entry.tables} | {m.id for m in entry.moved}


def _end(timeline: Timeline, entry: Entry, table: str) -> float:
    """Return the table version that an entry leaves behind; one that drops or renames the table is past them all."""
    ends = [timeline.moves.get((w.id, entry.version), w.to_version) for w in entry.writes if w.id == table]
    ends += [move.to_version for move in entry.moved if move.id == table]
    return max(ends, default=float("inf"))


def _made_in(timeline: Timeline, entries: Sequence[Entry], table: str, version: int) -> int:
    """Return the last of these entries that a table version has in it; 0 for none of them."""
    return max((e.version for e in entries if _touches(e, table) and _end(timeline, e, table) <= version), default=0)


def _oldest(scans: Iterable[Scan]) -> dict[str, int]:
    oldest: dict[str, int] = {}
    for scan in scans:
        if scan.version is not None:
            oldest[scan.table] = min(scan.version, oldest.get(scan.table, scan.version))
    return oldest


def _half_read(lake: Lake, entries: Iterable[Entry], versions: Mapping[str, int]) -> Conflict | None:
    """Find an entry of whose commits of one table a statement has read the first, and not the last.

    They are published one after the other, and whoever reads the table in between has seen half of a transaction.
    """
    for entry in entries:
        for write in entry.writes:
            if versions.get(write.id) in lake.timeline.versions(write, entry.version)[:-1]:
                what = f"wrote table {write.name} in several commits, of which this statement has read the first alone"
                return Conflict.of("torn-read", lake.past.of(entry), Hit(what, about=str(write.name)))
    return None


def _of_two_times(
    timeline: Timeline,
    winners: Sequence[tuple[Entry, Changes]],
    mine: Changes,
    scans: Sequence[Scan],
    views: Mapping[Name, int],
) -> Conflict | None:
    """Find a change that a statement has seen, while it has not seen all of that change, or one which that depends on.

    It would come after the one, and before the other.

    Args:
        winners: what was committed since the first change that it did not see, and what that changed.
        scans: what it read; of its own table only what came from a cache.
    """
    missed: tuple[Changes, Hit] | None = None
    since: dict[str, float] = {}  # the table versions that have in them what it missed, or what comes after that
    behind = replace(mine, reads={}, view_reads=frozenset())  # what those have read that it comes before
    redefined: set[Name] = set()
    last_seen = winners[0][0].version - 1
    for entry, winner in winners:
        ends = {id_: _end(timeline, entry, id_) for id_ in winner.writes.keys() | winner.moved_tables().keys()}
        older = frozenset(name for name, version in views.items() if version < entry.version)
        before = [scan for scan in scans if _is_before(scan, ends)]
        hit = antidependency(replace(mine, reads=rows_read(before), view_reads=older), winner)
        after = replace(mine, reads=rows_read(s for s in scans if s not in before), view_reads=frozenset(views) - older)
        seen = antidependency(after, winner)
        last_seen = last_seen if seen is None else entry.version
        missed = missed if hit is None else (winner, hit)
        comes_after = hit is not None or _follows(entry, winner, since) or not redefined.isdisjoint(entry.view_reads)
        if missed is None or not (comes_after or antidependency(behind, winner) is not None):
            continue
        if seen is not None:
            return _of_both(*missed, f"read {seen.about}")
        if hit is None and winner.precedes is not None and winner.precedes <= last_seen:
            return _of_both(*missed, f"seen database version {winner.precedes}, or a later one,")
        since |= {id_: min(end, since.get(id_, end)) for id_, end in ends.items()}
        redefined |= {ddl.name for ddl in winner.views}
        if winner.isolation == "SERIALIZABLE":
            behind = replace(
                behind, reads=_together(behind.reads, winner.reads), view_reads=behind.view_reads | winner.view_reads
            )
    return None


def _together(one: Mapping[str, Rows], other: Mapping[str, Rows]) -> dict[str, Rows]:
    """Return what two have read."""
    together = dict(one)
    for id_, rows in other.items():
        merged = together.get(id_, NO_ROW)
        for condition in (None,) if rows is None else rows:
            merged = either(merged, condition)
        together[id_] = merged
    return together


def _is_before(scan: Scan, ends: Mapping[str, float]) -> bool:
    """Tell whether a scan is older than what an entry made of its table; of another table it is as good as newer."""
    return scan.version is not None and scan.version < ends.get(scan.table, 0)


def _follows(entry: Entry, winner: Changes, since: Mapping[str, float]) -> bool:
    """Tell whether an entry's transaction read rows of one of these tables, at this version of it or a later one."""
    versions = {write.id: write.from_version for write in entry.writes} | {
        read.id: read.version for read in entry.reads
    }
    return any(
        version >= since[id_] and winner.reads.get(id_, NO_ROW) != NO_ROW
        for id_, version in versions.items()
        if id_ in since
    )


def _of_both(missed: Changes, hit: Hit, seen: str) -> Conflict:
    what = f"{hit.what}, which this statement had read before, while it has {seen} as it was after that"
    advice = "make the DataFrames that it reads anew, UNCACHE TABLE what it reads from a cache, and run it again"
    return Conflict.of("torn-read", missed, Hit(what, advice, hit.about))


def _torn(winner: Changes, hit: Hit) -> Conflict:
    what = f"{hit.what}, which this statement had read before, while its own table is read after that"
    return Conflict.of("torn-read", winner, Hit(what, about=hit.about))
