"""What a transaction staged, collapsed: what its COMMIT tries to land, and what conflicts are judged by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from msgspec import structs

from lockstep import __version__
from lockstep.commit.files import added_files
from lockstep.conflict.writes import Changes
from lockstep.delta.actions import Action, bodies, grouped, parse, participants
from lockstep.delta.combine.collapse import collapse
from lockstep.delta.counts import total
from lockstep.delta.footprint import Footprint, overwrites
from lockstep.delta.log import read_staged
from lockstep.delta.pruning.row_sets import EVERY_ROW, NO_ROW
from lockstep.delta.real_paths import assert_real, real_paths
from lockstep.lake.changes import rows_by_table
from lockstep.lake.lake import Lake
from lockstep.lake.policy import check_policy
from lockstep.timeline.entry import Counts, Table
from lockstep.transactions.transaction import Transaction


@dataclass(frozen=True, slots=True)
class Draft:
    """One table's part of the commit before it is placed: its collapsed commits, what they touch, and add."""

    table: Table
    commits: list[list[Action]]
    footprint: Footprint
    counts: Counts
    files: set[str]


def collect(lake: Lake, tx: Transaction) -> list[Draft]:
    """Read each written table's staged commits, and collapse them into those that are to land.

    Raises:
        UnavailableError, CorruptTimelineError: they cannot be read.
    """
    places = [(table, version) for table in tx.written_tables() for version in tx.staged[table.id]]
    by_table: dict[str, list[list[Action]]] = {}
    for (table, _), actions in zip(places, lake.side_by_side(partial(staged_commit, lake, tx), places), strict=True):
        by_table.setdefault(table.id, []).append(real_paths(actions))
    found = (draft_of(lake, tx, table, by_table[table.id]) for table in tx.written_tables())
    return together([draft for draft in found if draft is not None])


def together(drafts: list[Draft]) -> list[Draft]:
    """Return drafts whose commits say which tables the transaction wrote, if it wrote several."""
    if (told := participants([draft.table.id for draft in drafts])) is None:
        return drafts
    return [replace(draft, commits=[grouped(commit, told) for commit in draft.commits]) for draft in drafts]


def draft_of(lake: Lake, tx: Transaction, table: Table, staged_commits: Sequence[list[Action]]) -> Draft | None:
    """Collapse the staged commits of one table; None if they change nothing.

    Args:
        table: as the transaction began from it.
        staged_commits: with real paths.

    Raises:
        InvalidError: a property of Lockstep's has a value that it cannot have.
        UnavailableError, CorruptTimelineError: what the table was before cannot be read.
    """
    commits = collapse(
        staged_commits,
        pin=table.version,
        transaction_id=tx.id,
        statements=[info.get("operation", "?") for actions in staged_commits for info in bodies(actions, "commitInfo")],
        timestamp_ms=int(lake.clock().timestamp() * 1000),
        engine=f"Lockstep/{__version__}",
    )
    if not commits:
        return None
    check_policy(table.name, commits)
    actions = [action for commit in commits for action in commit]
    assert_real(actions)
    rows = total(staged_commits)  # a statement knows its rows, which the files of all together do not tell
    counts = structs.replace(total(commits), rows_added=rows.rows_added, rows_removed=rows.rows_removed)
    footprint = lake.past.footprint(actions, table.location, before=table.version)
    footprint = replace(footprint, overwrites=any(map(overwrites, staged_commits)))
    return Draft(table, commits, footprint, counts, added_files(commits, table.location, lake.storage.url))


def staged_commit(lake: Lake, tx: Transaction, place: tuple[Table, int]) -> list[Action]:
    """Return what one staged commit says, a table's version."""
    table, version = place
    if (content := tx.staged_content(table, version)) is not None:
        return parse(content)
    return read_staged(lake.storage, table.location, tx.id, version)


def changes_of(tx: Transaction, drafts: list[Draft]) -> Changes:
    """Return what a transaction changed and read; what it removed without looking for it is noted as read."""
    reads = rows_by_table(tx.reads())
    for draft in drafts:
        # It must have looked for what it removed, or have replaced whatever was there.
        if draft.footprint.overwrites or (draft.footprint.rows_removed and draft.table.id not in reads):
            tx.read(draft.table)
            reads[draft.table.id] = EVERY_ROW
    return Changes(
        transaction=tx.id,
        namespaces=tuple(tx.names.namespace_ddl()),
        tables=tuple(tx.names.table_ddl(tx.id)),
        views=tuple(tx.names.view_ddl()),
        writes={draft.table.id: draft.footprint for draft in drafts},
        reads={draft.table.id: NO_ROW for draft in drafts} | reads,
        view_reads=frozenset(tx.view_reads()),
        names={id: table.name for id in reads if (table := tx.names.table_by_id(id)) is not None}
        | {draft.table.id: draft.table.name for draft in drafts},
        isolation=tx.isolation,
        base=tx.base.version,
        batch=tx.batch,
        tags=tuple(tx.names.tag_ddl()),
        case_sensitive=tx.case_sensitive,
    )
