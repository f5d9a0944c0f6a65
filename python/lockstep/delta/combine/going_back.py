"""The commit that makes a table what it was, or was to be, behind commits that made it something else. Pure.

It is absolute: it adds each file that the table is to have and has not, and removes each that it has and should not.
So whoever finds the same files added twice has them once.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import msgspec

from lockstep.delta.actions import CLUSTERING, ROW_TRACKING, Action, LogicalFile, row_id_mark
from lockstep.delta.combine.evolution import supported
from lockstep.delta.snapshot import Snapshot

_ONE_FILE = (
    *("path", "partitionValues", "size", "deletionVector", "stats", "tags"),
    *("baseRowId", "defaultRowCommitVersion"),
)

_MODE, _LAST_ID = "delta.columnMapping.mode", "delta.columnMapping.maxColumnId"
_COMMIT_TIMES = ("delta.enableInCommitTimestamps", "delta.inCommitTimestampEnablement")
"""How the properties begin that say from which version on each commit has its time."""


def why_not(wanted: Snapshot, there: Snapshot) -> str | None:
    """Return why no commit makes a table at `there` what it is at `wanted`; None if one does."""
    if said(wanted.protocol) != said(there.protocol):
        return "its protocol was changed, which no commit takes back"
    properties = (wanted.metadata.get("configuration") or {}) | (there.metadata.get("configuration") or {})
    if said(wanted.metadata) != said(there.metadata):
        if properties.get(_MODE, "none") != "none":
            return "its columns or properties were changed, and ids of columns must not be given out twice"
        if wanted.metadata.get("partitionColumns") != there.metadata.get("partitionColumns"):
            return "its partition columns were changed"
        if _commit_times(wanted) != _commit_times(there):
            return "in-commit timestamps were switched on or off, which no commit does for those before it"
    if properties.get("delta.appendOnly", "").lower() == "true" and there.files.keys() - wanted.files.keys():
        return "it takes appends only (delta.appendOnly), and files would have to be removed"
    return None


def why_not_restored(wanted: Snapshot, there: Snapshot) -> str | None:
    """Return why no commit that is known here makes a table what it was at `wanted`, in its own log; None if one does.

    It is said of tables whose features are all known, see `lockstep.tables.layout`.
    """
    if (needed := supported(wanted.protocol)) is None or (have := supported(there.protocol)) is None:
        return "its protocol is not known here"
    if dropped := sorted(needed - have):
        return f"it was dropped since what that version needs, {', '.join(dropped)}"
    if any(there.protocol[key] < wanted.protocol[key] for key in ("minReaderVersion", "minWriterVersion")):
        return "its protocol was lowered since"
    if _commit_times(wanted) != _commit_times(there):
        return "in-commit timestamps were switched on or off since"
    if _clustering(wanted) != _clustering(there):
        return "what it is clustered by was changed since"
    if not all(str(_configuration(each).get(_LAST_ID, "0")).isdecimal() for each in (wanted, there)):
        return f"no number is in {_LAST_ID}"
    return None


def _clustering(snapshot: Snapshot) -> str | None:
    domain = snapshot.domains.get(CLUSTERING, {})
    return None if domain.get("removed") else domain.get("configuration")


def _commit_times(snapshot: Snapshot) -> dict[str, str]:
    return {key: value for key, value in _configuration(snapshot).items() if key.startswith(_COMMIT_TIMES)}


def _configuration(snapshot: Snapshot) -> dict[str, str]:
    return snapshot.metadata.get("configuration") or {}


def restored(wanted: Snapshot, there: Snapshot) -> Snapshot:
    """Return what a restore to `wanted`, an older version of the same log, makes of a table at `there`.

    It is for those of which `why_not_restored` has no reason.

    As with Delta's `RESTORE TABLE`, its protocol stays, and so do its domains and what streaming applications have
    recorded; and ids of columns go on behind the last that was given out, so that none is given out twice.
    """
    metadata, configuration = wanted.metadata, _configuration(wanted)
    if configuration.get(_MODE, "none") != "none":
        last = max(int(_configuration(each).get(_LAST_ID, 0)) for each in (wanted, there))
        metadata = {**metadata, "configuration": {**configuration, _LAST_ID: str(last)}}
    return replace(
        wanted,
        protocol=there.protocol,
        metadata=metadata,
        transactions=there.transactions,
        domains=there.domains,
    )


def why_not_taken_out(before: Snapshot, made: Snapshot, there: Snapshot) -> str | None:
    """Return why a table at `there` cannot lose what it became from `before` to `made`; None if it can.

    What came behind `made` is to stay. So it may only have added files, by the same columns, properties and features.
    """
    for older, newer, when in ((before, made, "by it"), (made, there, "since")):
        if said(older.protocol) != said(newer.protocol):
            return f"its protocol was changed {when}"
        if said(older.metadata) != said(newer.metadata):
            return f"its columns or properties were changed {when}"
        if _features_domains(older) != _features_domains(newer):
            return f"what its features keep in metadata domains was changed {when}"
    if lost := made.files.keys() - there.files.keys():
        added = lost - before.files.keys()
        what = "that it added" if added else "that it left as it was"
        return f"{_first(added or lost)}, {what}, was removed since, or rows of it"
    removed = before.files.keys() - made.files.keys()
    if again := {path for path, _ in removed} & {path for path, _ in there.files.keys() - made.files.keys()}:
        return f"{min(again)}, which it removed, was added again since"
    return None


Same: TypeAlias = Literal["all", "files", "none"]
"""What of a table is what it was: all that a reader sees and a writer keeps to; its files alone; not even these."""


def what_is_same(made: Snapshot, there: Snapshot) -> Same:
    """Return what of a table at `there` is as it was at `made`, whatever its log says in between.

    Files are the same if their deletion vectors are. What is counted on, so that nothing is given out twice, may have
    grown: ids of rows and of columns. What streaming applications have recorded is no part of it.
    """
    if made.files.keys() != there.files.keys():
        return "none"
    kept = (
        said(made.protocol) == said(there.protocol),
        _described(made) == _described(there),
        _features_domains(made) == _features_domains(there),
    )
    return "all" if all(kept) else "files"


def _described(snapshot: Snapshot) -> dict[str, Any]:
    """Return what metadata say, but for the last id of a column that was given out."""
    properties = {key: value for key, value in _configuration(snapshot).items() if key != _LAST_ID}
    return {**said(snapshot.metadata), "configuration": properties}


def taken_out(before: Snapshot, made: Snapshot, there: Snapshot) -> Snapshot:
    """Return a table at `there` without what it became from `before` to `made`, see `why_not_taken_out`."""
    added = made.files.keys() - before.files.keys()
    kept = {file: add for file, add in there.files.items() if file not in added}
    return replace(there, files=kept | {file: add for file, add in before.files.items() if file not in made.files})


def _features_domains(snapshot: Snapshot) -> dict[str, Any]:
    """Return what of metadata domains says more than how many row ids were given out."""
    return {
        name: domain.get("configuration")
        for name, domain in snapshot.domains.items()
        if name != ROW_TRACKING and not domain.get("removed")
    }


def _first(files: Collection[LogicalFile]) -> str:
    return min(path for path, _ in files)


def said(body: dict[str, Any]) -> dict[str, Any]:
    """Return what an action says, whether it was read of a commit or of a checkpoint: features are in no order."""
    said = {key: value for key, value in body.items() if value is not None}
    return said | {key: sorted(said[key]) for key in ("readerFeatures", "writerFeatures") if key in said}


def going_back(wanted: Snapshot, there: Snapshot, now_ms: int) -> list[Action]:
    """Return what makes a table at `there` what it is at `wanted`, for which `why_not` has no reason.

    What streaming applications have recorded stays, so that none repeats a batch; and so does the mark up to which row
    ids were given out, so that none is given out twice.
    """
    actions: list[Action] = []
    if said(wanted.metadata) != said(there.metadata):
        actions.append({"metaData": wanted.metadata})
    domains = sorted(wanted.domains.keys() | there.domains.keys())
    changed = (_domain(wanted.domains.get(domain), there.domains.get(domain)) for domain in domains)
    actions += ({"domainMetadata": domain} for domain in changed if domain is not None)
    actions += (
        {"txn": transaction}
        for application, transaction in sorted(wanted.transactions.items())
        if transaction["version"] > there.transactions.get(application, {"version": -1})["version"]
    )
    removed = [add for file, add in there.files.items() if file not in wanted.files]
    added = [add for file, add in wanted.files.items() if file not in there.files]
    return [
        *actions,
        *({"remove": removal(add, now_ms)} for add in removed),
        *({"add": {**add, "dataChange": True}} for add in added),
    ]


def removal(add: dict[str, Any], now_ms: int) -> dict[str, Any]:
    """Return the fields of the action that removes a file, as it was added; rows go with it."""
    kept = {key: add[key] for key in _ONE_FILE if add.get(key) is not None}
    return {**kept, "deletionTimestamp": now_ms, "dataChange": True, "extendedFileMetadata": True}


def _domain(wanted: dict[str, Any] | None, there: dict[str, Any] | None) -> dict[str, Any] | None:
    if wanted == there:
        return None
    if wanted is None:
        assert there is not None
        return None if there["domain"] == ROW_TRACKING else {**there, "removed": True}
    if wanted["domain"] == ROW_TRACKING and there is not None:
        mark = max(row_id_mark(wanted), row_id_mark(there))
        if mark == row_id_mark(there):
            return None
        return {**wanted, "configuration": msgspec.json.encode({"rowIdHighWaterMark": mark}).decode()}
    return wanted
