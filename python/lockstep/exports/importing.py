"""Opening a minimal export: a lake is made of the one file, against the lake that it was made of."""

from __future__ import annotations

from dataclasses import replace

from lockstep.errors import InvalidError
from lockstep.exports.export import Asked, Exported, Exporter
from lockstep.exports.target import read_minimal
from lockstep.storage import url_of
from lockstep.timeline.fold import apply


def import_minimal(exporter: Exporter, file: str, asked: Asked) -> Exported:
    """Make a lake of a minimal export: a partial or a full export of the version that the file tells of.

    Its tables are read from the lake of the exporter, which need not know that version any more.

    Args:
        exporter: of the lake that the file was exported from.
        file: its URL or path.
        asked: where the lake is to be, and what it takes along; its version and database are those of the file.

    Raises:
        InvalidError: there is no such file, or it is no minimal export; or a minimal export is asked for.
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
    return exporter.run(replace(asked, version=entry.origin.version, database=apply(None, entry)))
