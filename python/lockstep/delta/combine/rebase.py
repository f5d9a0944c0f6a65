"""Give the commits of a transaction the version they land in; nothing that a data file holds ever changes.

Commits that `copies_own_rows` (`delta.combine.row_tracking`) are not renumbered: the rule `row-tracking` refuses it.

Delta wrote them on top of the pin. Others (the winners) may have committed since, without a conflict. So these follow
the place where the commits land, and no others:

    add, remove  defaultRowCommitVersion   of files new in the transaction: the version of their first add
    add, remove  baseRowId                 of those files: behind the winners' row ids
    domain       delta.rowTracking         its high-water mark, likewise, never below the winners'
    commitInfo   inCommitTimestamp         strictly after the one before
    commitInfo   readVersion               where it is a staged version
    metaData     delta.inCommitTimestampEnablementVersion, …Timestamp   where this transaction enabled the feature

Protocol: "Writer Requirements for Row Tracking", "Writer Requirements for In-Commit Timestamps". Delta does the same
for one commit and one winner at a time in ConflictChecker.scala (reassignOverlappingRowIds and what follows it).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from lockstep.delta.actions import ROW_TRACKING, Action, bodies, row_id_mark, split
from lockstep.delta.combine.row_tracking import is_new
from lockstep.delta.footprint import Footprint
from lockstep.errors import InvalidError

_ICT_VERSION = "delta.inCommitTimestampEnablementVersion"
_ICT_TIMESTAMP = "delta.inCommitTimestampEnablementTimestamp"


def rebase(
    commits: Sequence[Sequence[Action]],
    *,
    pin: int,
    first_version: int,
    winners: Sequence[Footprint],
) -> list[list[Action]]:
    """Renumber `commits` to the versions `first_version`, `first_version + 1`, ….

    What is rebased can be rebased again, from the version before the one it landed in: the result is that of doing it
    once, behind all winners. So a commit displaced after it was ratified needs nothing that Delta staged.

    Args:
        commits: as `collapse` returns them; left as they are.
        pin: the table version that the transaction began from, `NEW` (-1) for a new table.
        first_version: the version of the first commit; above the pin.
        winners: what landed in the versions between, already checked to be without conflict.

    Raises:
        InvalidError: `first_version` is not above the pin, or a number in the actions is none.
    """
    if first_version <= pin:
        raise InvalidError(f"a transaction that began from table version {pin} cannot land in version {first_version}")
    stamps = [winner.timestamp_ms for winner in winners if winner.timestamp_ms is not None]
    marks = [winner.row_id_mark for winner in winners if winner.row_id_mark is not None]
    landing = _Landing(
        pin=pin,
        first_version=first_version,
        shift=_shift(commits, pin, max(marks, default=None)),
        mark=max(marks, default=-1),
        clock=max(stamps, default=0),
        born=_first_adds(commits, pin, first_version),
    )
    return [landing.commit(commit, version) for version, commit in enumerate(commits, first_version)]


def _first_adds(commits: Sequence[Sequence[Action]], pin: int, first_version: int) -> dict[str, int]:
    """Map the path of each new file to the version that its first add lands in."""
    born: dict[str, int] = {}
    for version, commit in enumerate(commits, first_version):
        for add in bodies(commit, "add"):
            if is_new(add, pin):
                born.setdefault(add["path"], version)
    return born


def _shift(commits: Sequence[Sequence[Action]], pin: int, mark: int | None) -> int:
    """Return by how much our row ids must rise to lie above the winners' mark; 0 if they do.

    Our ids start one above the mark at the pin, or higher where the first files are gone again; only the lowest that
    is left matters.
    """
    new = [add for commit in commits for add in bodies(commit, "add") if is_new(add, pin)]
    ids = [add["baseRowId"] for add in new if add.get("baseRowId") is not None]
    return 0 if mark is None or not ids else max(0, mark + 1 - min(ids))


@dataclass(slots=True)
class _Landing:
    """Where the commits land; `clock` and `enabled` move on from commit to commit."""

    pin: int
    first_version: int
    shift: int
    mark: int
    clock: int
    born: dict[str, int]
    enabled: dict[str, tuple[int, int | None]] = field(default_factory=dict)

    def commit(self, commit: Sequence[Action], version: int) -> list[Action]:
        stamp = self._stamp(commit)
        return [self._action(action, version, stamp) for action in commit]

    def _stamp(self, commit: Sequence[Action]) -> int | None:
        timestamp = next((info.get("inCommitTimestamp") for info in bodies(commit, "commitInfo")), None)
        if timestamp is None:
            return None
        self.clock = max(int(timestamp), self.clock + 1)
        return self.clock

    def _action(self, action: Action, version: int, stamp: int | None) -> Action:
        kind, body = split(action)
        if kind in ("add", "remove"):
            return {kind: self._file(body, version)} if is_new(body, self.pin) else action
        if kind == "domainMetadata" and body["domain"] == ROW_TRACKING and not body.get("removed"):
            mark = max(row_id_mark(body) + self.shift, self.mark)
            return {kind: {**body, "configuration": msgspec.json.encode({"rowIdHighWaterMark": mark}).decode()}}
        if kind == "metaData":
            return {kind: self._metadata(body, version, stamp)}
        if kind == "commitInfo":
            return {kind: self._info(body, version, stamp)}
        return action

    def _file(self, file: dict[str, Any], version: int) -> dict[str, Any]:
        new = {**file, "defaultRowCommitVersion": self.born.get(file["path"], version)}
        if new.get("baseRowId") is not None:
            new["baseRowId"] += self.shift
        return new

    def _metadata(self, metadata: dict[str, Any], version: int, stamp: int | None) -> dict[str, Any]:
        configuration = metadata.get("configuration") or {}
        version_text = configuration.get(_ICT_VERSION)
        if version_text is None or _number(version_text) <= self.pin:
            return metadata
        # Later commits repeat the properties: they follow the commit that first said so.
        since, at = self.enabled.setdefault(version_text, (version, stamp))
        new = {**configuration, _ICT_VERSION: str(since)}
        if at is not None:
            new[_ICT_TIMESTAMP] = str(at)
        if since == 0:  # the properties tell older commits without timestamps apart, and here there are none
            new = {key: value for key, value in new.items() if key not in (_ICT_VERSION, _ICT_TIMESTAMP)}
        return {**metadata, "configuration": new}

    def _info(self, info: dict[str, Any], version: int, stamp: int | None) -> dict[str, Any]:
        """Keep `readVersion` where it is a real version: it says what was read, as Delta's own stays after a retry.

        A staged version is known to nobody: the statement read the commit before its own, or the pin if that is gone.
        """
        new = dict(info)
        if stamp is not None:
            new["inCommitTimestamp"] = stamp
        read_version = info.get("readVersion")
        if read_version is not None and read_version > self.pin:
            new["readVersion"] = self.pin if version == self.first_version else version - 1
        return new


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidError(f"{_ICT_VERSION} is not a number: {text!r}") from None
