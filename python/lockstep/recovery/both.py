"""Both sides of a table that has diverged, in one commit behind theirs; or why there is no such commit. Pure.

Where the log has commits of a plain Delta writer in the place of ours, and goes on behind them, what ours did can be
done again there if the two do not conflict. Whether they do is judged by the rules by which a ratified commit is moved
behind a foreign one that took its version (`lockstep.conflict.writes`): then no data file was touched by both, nor its
deletion vector, no streaming application and no domain recorded by both, and metadata and protocol are one side's, if
anybody's. So of each of these the table is as the side has it that touched it, and what neither touched is the same.

    the table at `common`    p q
    ours                     remove p, add o           missing in the log
    the log                  remove q, add f           theirs
    behind it                remove p, add o           the table is o f

Files of ours get their row ids and commit versions anew, behind those of the log, as any commit that lands behind
others (`lockstep.delta.combine.rebase`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from lockstep.conflict.writes import Changes, first_conflict
from lockstep.delta.actions import ROW_TRACKING, Action, LogicalFile, split
from lockstep.delta.combine.collapse import KINDS
from lockstep.delta.combine.evolution import TableState
from lockstep.delta.combine.going_back import removal, said
from lockstep.delta.combine.rebase import rebase
from lockstep.delta.combine.row_tracking import copies_own_rows
from lockstep.delta.footprint import Footprint, footprint
from lockstep.delta.snapshot import Snapshot
from lockstep.timeline.entry import NEW

Commits = Mapping[int, Sequence[Action]]

_FILES = ("remove", "add", "cdc")

_ID = "the table"
"""What the rules are asked about is one table."""


@dataclass(frozen=True)
class TwoSides:
    """A table whose timeline and log say different things of some versions.

    Attributes:
        common: the newest version up to which they say the same; -1 if there is none.
        base: the table at that version.
        ours, log: all commits after it, by version, as the timeline and as the log have them.
    """

    common: int
    base: Snapshot
    ours: Commits
    log: Commits

    @cached_property
    def missing(self) -> Commits:
        """The commits of ours that the log has not."""
        return {version: commit for version, commit in self.ours.items() if self.log.get(version) != commit}

    @cached_property
    def foreign(self) -> Commits:
        """The commits of the log that are not ours."""
        return {version: commit for version, commit in self.log.items() if self.ours.get(version) != commit}

    @cached_property
    def shared(self) -> Commits:
        """The commits that the log has at the version at which the timeline has them."""
        return {version: commit for version, commit in self.log.items() if version not in self.foreign}

    @cached_property
    def our_changes(self) -> Footprint:
        """What ours touched, those commits too that the log has: a plain writer need not have seen them."""
        found = self._touched(self.ours)
        return replace(found, fixed=copies_own_rows(self.ours.values(), self.common))

    @cached_property
    def their_changes(self) -> Footprint:
        """What the log's other commits touched."""
        return self._touched(self.foreign)

    def _touched(self, commits: Commits) -> Footprint:
        before = None if self.common == NEW else TableState(self.base.metadata, self.base.protocol)
        return footprint(_actions(commits), lambda: before)

    @cached_property
    def wanted(self) -> Snapshot:
        """The table as the timeline has it."""
        return _after(self.base, self.ours)

    @cached_property
    def there(self) -> Snapshot:
        """The table as its log has it."""
        return _after(self.base, self.log)

    @cached_property
    def target(self) -> dict[LogicalFile, dict[str, Any]]:
        """The files that the table has with both sides: each as the side has it that touched it."""
        touched = self.our_changes.paths
        kept = {file: add for file, add in self.there.files.items() if file[0] not in touched}
        return kept | {file: add for file, add in self.wanted.files.items() if file[0] in touched}

    @cached_property
    def must_be_told_anew(self) -> bool:
        """Whether what ours did cannot be said as it was.

        That is so of several commits, of which one could not say what each changed and moved, and where a later commit
        of ours that the log has took back a part of it.
        """
        if len(self.missing) != 1:
            return True
        return _after(self.there, {0: self.own_files}).files.keys() != self.target.keys()

    @cached_property
    def own_files(self) -> list[Action]:
        """What the commits of ours that the log has not say of files and change files."""
        return [action for action in _actions(self.missing) if split(action)[0] in _FILES]


def _actions(commits: Commits) -> list[Action]:
    return [action for version in sorted(commits) for action in commits[version]]


def _after(base: Snapshot, commits: Commits) -> Snapshot:
    found = replace(base, transactions={**base.transactions}, domains={**base.domains}, files={**base.files})
    for version in sorted(commits):
        found.take(commits[version])
    return found


# --- whether there is such a commit -----------------------------------------------------------------------------------


def why_not_both(sides: TwoSides) -> str | None:
    """Return why no commit behind the log has both sides; None if one does."""
    for of, commits in (("ours", sides.missing), ("the log", sides.foreign)):
        for version in sorted(commits):
            if unknown := sorted({split(action)[0] for action in commits[version]} - KINDS):
                return f"version {version} of {of} has an action that is not known here ({unknown[0]})"
    ours, theirs = sides.our_changes, sides.their_changes
    mine, winner = (Changes(who, writes={_ID: touched}) for who, touched in (("ours", ours), ("theirs", theirs)))
    if (conflict := first_conflict(mine, winner)) is not None:
        return _said_of(conflict.rule, ours, theirs)
    if sides.shared and footprint(_actions(sides.shared)).row_id_mark is not None:
        return (
            f"version {min(sides.shared)} is the same on both sides, and gave out row ids which a commit that was "
            "written over, or its successor, may have given out as well"
        )
    if sides.must_be_told_anew and _takes_appends_only(sides):
        return "it takes appends only (delta.appendOnly), and files would have to be removed"
    return None


def _said_of(rule: str, ours: Footprint, theirs: Footprint) -> str:
    """Say what a rule found."""
    match rule:
        case "metadata":
            return "both changed its schema or properties, or one did so that it matters to what the other wrote"
        case "protocol":
            return "both changed its protocol, or one did so that it matters to what the other wrote"
        case "file" | "row":
            return f"both changed data file {_first(ours.paths & theirs.paths)}, or which of its rows are deleted"
        case "application":
            return f"both recorded progress of the streaming application {_first(ours.apps & theirs.apps)}"
        case "domain":
            return f"both set the metadata domain {_first(ours.domains & theirs.domains)}"
        case "row-tracking":
            return "ours updated or moved rows that it had written itself, and their row ids stand in its data files"
        case _:
            return f"the two conflict ({rule})"


def _first(names: AbstractSet[str]) -> str:
    return f"{min(names)}{f' and {len(names) - 1} more' if len(names) > 1 else ''}"


def _takes_appends_only(sides: TwoSides) -> bool:
    configuration = sides.wanted.metadata.get("configuration") or {}
    return str(configuration.get("delta.appendOnly", "")).lower() == "true" and bool(
        sides.there.files.keys() - sides.target.keys()
    )


# --- the commit -------------------------------------------------------------------------------------------------------


def both(sides: TwoSides, version: int, now_ms: int) -> list[Action]:
    """Return the commit that adds to the log what ours did, all but its `commitInfo`.

    It is absolute, so whoever has it twice has nothing twice; and it tells the metadata in any case.

    Args:
        sides: of which `why_not_both` has nothing to say.
        version: that of the commit, behind the log.
        now_ms: when files are removed that no commit of ours removes as it was.
    """
    ours, wanted, there = sides.our_changes, sides.wanted, sides.there
    protocol = [wanted.protocol] if ours.protocol and said(wanted.protocol) != said(there.protocol) else []
    applications = {name: wanted.transactions[name] for name in sorted(ours.apps)}
    domains = {name: wanted.domains[name] for name in sorted(ours.domains)}
    marks = [wanted.domains[ROW_TRACKING]] if ours.row_id_mark is not None else []
    files = _retold(sides, now_ms) if sides.must_be_told_anew else sides.own_files
    [landing] = rebase(
        [[*({"domainMetadata": mark} for mark in marks), *(action for action in files if "add" in action)]],
        pin=sides.common,
        first_version=version,
        winners=[footprint(_actions(sides.log))],
    )
    return [
        *({"protocol": body} for body in protocol),
        {"metaData": (wanted if ours.metadata else there).metadata},
        *({"txn": body} for name, body in applications.items() if body != there.transactions.get(name)),
        *({"domainMetadata": body} for name, body in domains.items() if body != there.domains.get(name)),
        # Gone from now on, not since ours: until now the log has had them, and somebody may be reading them.
        *({"remove": {**action["remove"], "deletionTimestamp": now_ms}} for action in files if "remove" in action),
        *landing,
        *(action for action in files if "cdc" in action),
    ]


def new_files(sides: TwoSides) -> list[dict[str, Any]]:
    """Return the files that the table has with both sides, and had not before they parted."""
    return [add for file, add in sides.target.items() if file not in sides.base.files]


def change_files(sides: TwoSides) -> list[Action]:
    """Return the change files that the commit with both sides names."""
    return [] if sides.must_be_told_anew else [action for action in sides.own_files if "cdc" in action]


def _retold(sides: TwoSides, now_ms: int) -> list[Action]:
    """Return the difference to what the log has, as one change of rows; whoever reads changes finds them so."""
    there, target = sides.there.files, sides.target
    return [
        *({"remove": removal(add, now_ms)} for file, add in there.items() if file not in target),
        *({"add": {**add, "dataChange": file not in there}} for file, add in _added(sides)),
    ]


def _added(sides: TwoSides) -> Iterable[tuple[LogicalFile, dict[str, Any]]]:
    return ((file, add) for file, add in sides.target.items() if sides.there.files.get(file) != add)
