"""Opening a minimal export: a lake is made of the one file, against the lake that it was made of."""

from __future__ import annotations

from dataclasses import replace

from lockstep.errors import InvalidError, UndefinedError
from lockstep.exports.export import Asked, Exported, Exporter
from lockstep.exports.target import read_minimal
from lockstep.lake.exports import find_export
from lockstep.storage import Storage, url_of
from lockstep.storage.urls import comparable
from lockstep.timeline.entry import Origin
from lockstep.timeline.fold import apply


def import_minimal(exporter: Exporter, file: str, asked: Asked) -> Exported:
    """Make a lake of a minimal export: a partial or a full export of the version that the file tells of.

    Its tables are read from the lake of the exporter, which need not know that version any more. That has to be the
    lake which the file was exported from: a full export of it has the same folders, and other rows in them.

    Args:
        exporter: of the lake that the file was exported from, wherever that, or a copy of it, is now.
        file: its URL or path.
        asked: where the lake is to be, and what it takes along; its version and database are those of the file.

    Raises:
        InvalidError: there is no such file, or it is no minimal export, or one of another lake; or a minimal export is
            asked for.
        LockstepError: see `Exporter.run`.
    """
    if asked.mode == "minimal":
        raise InvalidError("an import makes a lake, so its mode is partial or full")
    url = url_of(file)
    folder, _, name = url.rpartition("/")
    data = exporter.open_target(folder, False).get(name)
    if data is None:
        raise InvalidError(f"no file {url}: expected a minimal export")
    entry = read_minimal(data, url)
    assert entry.origin is not None, "read_minimal has seen to that"
    _check_source(exporter.lake.storage, entry.origin, url)
    return exporter.run(replace(asked, version=entry.origin.version, database=apply(None, entry)))


def _check_source(lake: Storage, origin: Origin, file: str) -> None:
    """Refuse a file that was exported from another lake: this one is where it says, or has the export's record."""
    if comparable(origin.root) == comparable(lake.url):
        return
    try:
        find_export(lake, origin.export)
    except UndefinedError as error:
        raise InvalidError(
            f"{file} was exported from {origin.root}, and {lake.url} does not know of that export ({origin.export}): "
            "it may be another lake, with other rows in its tables. Nothing was written. Import the file with the root "
            "of the lake that it was exported from"
        ) from error
