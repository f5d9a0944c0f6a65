"""Whether a Delta table may become a lake's, by what its log says of it. Pure."""

from __future__ import annotations

from lockstep.delta.features import FEATURES, MANAGED_ELSEWHERE, MAX_READER_VERSION, MAX_WRITER_VERSION
from lockstep.delta.snapshot import Snapshot


def refusal(header: Snapshot) -> str | None:
    """Return why a table of this protocol and metadata cannot be adopted, None if it can.

    Args:
        header: of its newest version.
    """
    if managed := sorted(header.features & MANAGED_ELSEWHERE):
        return (
            f"it has the table feature {managed[0]}: a catalog decides which commit is its next, and Lockstep would "
            "be a second one. DROP FEATURE with that catalog first, if it allows that"
        )
    if unknown := sorted(header.features - FEATURES):
        return (
            f"it has the table feature{'' if len(unknown) == 1 else 's'} {', '.join(unknown)}, of which this Lockstep "
            "does not know what a commit must keep. DROP FEATURE, or copy the table with CTAS"
        )
    reader, writer = header.protocol.get("minReaderVersion", 1), header.protocol.get("minWriterVersion", 1)
    if reader > MAX_READER_VERSION or writer > MAX_WRITER_VERSION:
        return (
            f"its protocol ({reader}, {writer}) is newer than this Lockstep knows "
            f"({MAX_READER_VERSION}, {MAX_WRITER_VERSION})"
        )
    provider = (header.metadata.get("format") or {}).get("provider", "parquet")
    return None if provider == "parquet" else f"its data files are {provider}: expected parquet"
