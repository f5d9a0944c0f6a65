"""Whether the files are there of tables that come back: looked for before anything says that they are back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lockstep.exports.copying import Stores, check_there
from lockstep.exports.export import AT_ONCE
from lockstep.exports.files import places_of
from lockstep.lake.kept_states import snapshot_of
from lockstep.lake.lake import Lake
from lockstep.storage.outside import opener_of
from lockstep.timeline.entry import Table
from lockstep.workers import Workers

NEEDED = (
    "what is to come back",
    "Nothing was changed. Bring them back from a copy, or restore another version",
)
"""Who needs the files that are looked for, and what to do if they are gone."""


def check_files(lake: Lake, needed: Iterable[tuple[Table, Iterable[dict[str, Any]]]]) -> None:
    """Look for files of tables, and their deletion vectors, by one listing of each folder.

    Args:
        needed: tables, with the `add` of each file.

    Raises:
        MissingFilesError: some are gone; it names them.
        LockstepError: they cannot be looked for.
    """
    storage = lake.storage
    places = {
        place for table, files in needed for file in files for place in places_of(file, table.location, storage.url)
    }
    check_there(Stores(storage, opener_of(storage)), places, Workers(AT_ONCE, "lockstep-restore"), needed=NEEDED)


def check_whole(lake: Lake, table: Table) -> None:
    """Look for all files of a table at its version.

    Raises:
        MissingFilesError: some are gone; it names them. Or its log does not tell of that version any more.
        LockstepError: its log cannot be read, or the files cannot be looked for.
    """
    check_files(lake, [(table, snapshot_of(lake.storage, table).files.values())])
