"""Row ids that a statement gives out (Protocol, "Row Tracking"): each row of a new file has its own, above all others.

A file's rows are numbered from its `baseRowId` on, and came with the commit of its `defaultRowCommitVersion`; both stay
with the file as long as it is there. They are given as the statement is staged. Where others come first, COMMIT moves
them behind theirs (`lockstep.delta.combine.rebase`).

A row that moves to another file takes its id along: it stands there in a column that the table's properties name, and
the version that the row came with in another one, if the row is as it was. Both are null of rows that are new, and of a
row that is changed the version is: it comes with this commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from lockstep.delta.actions import ROW_TRACKING, Action, row_id_mark

FEATURE = "rowTracking"
ENABLED = "delta.enableRowTracking"
SUSPENDED = "delta.rowTrackingSuspended"

COLUMNS = ("delta.rowTracking.materializedRowIdColumnName", "delta.rowTracking.materializedRowCommitVersionColumnName")
"""The properties that say in which columns of files rows have their ids, and the versions that they came with."""

PRESERVED: Mapping[str, str] = {"delta.rowTracking.preserved": "true"}
"""The tag of a commit in which no row has lost its id."""


def have_ids(add: Mapping[str, Any]) -> bool:
    """Tell whether the rows of a file have ids, and a version that they came with."""
    return add.get("baseRowId") is not None and add.get("defaultRowCommitVersion") is not None


class RowIds:
    """The row ids of one statement."""

    def __init__(self, domains: Mapping[str, Mapping[str, Any]], version: int) -> None:
        """Begin above those that were given out.

        Args:
            domains: the table's metadata domains.
            version: which table version the statement is staged as.

        Raises:
            InvalidError: the domain does not say which is the highest.
        """
        domain = domains.get(ROW_TRACKING)
        self._first = self._next = 0 if domain is None or domain.get("removed") else row_id_mark(dict(domain)) + 1
        self._version = version

    def given(self, add: Mapping[str, Any], rows: int) -> dict[str, Any]:
        """Return the `add` of a new file, with the ids of so many rows."""
        said = {**add, "baseRowId": self._next, "defaultRowCommitVersion": self._version}
        self._next += rows
        return said

    def domain(self) -> list[Action]:
        """Return the action that says which id is the highest now; none where none was given."""
        if self._next == self._first:
            return []
        said = msgspec.json.encode({"rowIdHighWaterMark": self._next - 1}).decode()
        return [{"domainMetadata": {"domain": ROW_TRACKING, "configuration": said, "removed": False}}]
