"""What a log says in short, its checkpoints and compacted files, of a table that has diverged; reads only.

Whoever reads the table believes them without the commits that they were made of, and those may have been written over
since. So each that comes after where the two sides differ has to say what the commits of the log say: of the files, and
of all else that makes a table. The log's commits stay as they are whichever side is kept, so that is one question for
both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from lockstep.delta.combine.going_back import said
from lockstep.delta.log import LOG, log_files_of
from lockstep.delta.snapshot import Snapshot, checkpoint_names, read_snapshot
from lockstep.errors import InvalidError
from lockstep.lake.lake import Lake
from lockstep.recovery.divergence import Divergence

MOST_CHECKPOINTS = 100
"""So many checkpoints are compared: each is read whole."""

_COMPACTED = re.compile(r"\d{20}\.(\d{20})\.compacted\.json")
_OF_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\..*(?:parquet|json)")

_ASIDE = "Put it aside, with _last_checkpoint, and settle the table then: the commits of the log say the same and more"


def check_condensed(lake: Lake, found: Divergence) -> None:
    """See that a log's checkpoints and compacted files say what its commits say, from where the two sides differ.

    Raises:
        InvalidError: one does not, or nobody can tell; so readers may see one side or the other.
        LockstepError: the log cannot be read.
    """
    if found.is_ahead:
        return
    folder = f"{found.table.location}/{LOG}"
    names = [*lake.storage.list(folder)]
    _refuse_compacted(found, folder, names)
    log = log_files_of(names)
    late = sorted({version for name in names if (version := _checkpoint_of(name)) > found.common})
    if len(late) > MOST_CHECKPOINTS:
        raise _refusal(
            found,
            f"{len(late)} checkpoints in {folder} come after version {found.common}, up to which the two sides are the "
            f"same, and at most {MOST_CHECKPOINTS} are compared. Put the older ones aside",
        )
    proven = {version for version in log.checkpoints if version <= found.common}
    for version in late:
        whole = checkpoint_names(names, version)
        path = f"{folder}/{whole[0] if whole else f'{version:020d}.checkpoint…'}"
        if {name for name in names if _checkpoint_of(name) == version} != {*whole}:
            what = f"there are several checkpoints of version {version}, or parts of one, beside {path}"
            raise _refusal(found, f"{what}, and readers may take any. Put them aside, with _last_checkpoint")
        before = replace(log, checkpoints=frozenset(proven))
        if before.missing_for(version) is not None:
            what = f"commits before the checkpoint {path} are gone, so nobody can tell whether it was made of"
            raise _refusal(
                found,
                f"{what} ours or of theirs. Put the commits back; or, if all that lies in the folder is another "
                "table, DROP TABLE, and adopt the folder",
            )
        by_commits = read_snapshot(lake.storage, found.table.location, version, log=before)
        by_checkpoint = read_snapshot(lake.storage, found.table.location, version)
        if what := difference(by_commits, by_checkpoint):
            raise _refusal(
                found,
                f"the checkpoint {path} says something else than the commits of the log ({what}), for it was made of "
                f"a commit that was written over. {_ASIDE}",
            )
        proven.add(version)


def difference(one: Snapshot, other: Snapshot) -> str:
    """Return in what two snapshots of a version differ, in words; empty if they say the same of the table."""
    found = [(kind, _said(one), _said(other)) for kind, _said in _KINDS.items()]
    return ", ".join(kind for kind, ours, theirs in found if ours != theirs)


def _metadata(of: Snapshot) -> dict[str, Any]:
    """Return what metadata says, whether it was read of a commit or of a checkpoint."""
    body = said(of.metadata)
    provider = (body.pop("format", None) or {}).get("provider", "parquet")
    return {key: value for key, value in body.items() if value not in ({}, [])} | {"format": provider}


_OF_FILE = ("size", "partitionValues", "baseRowId", "defaultRowCommitVersion")

_KINDS: Mapping[str, Callable[[Snapshot], Any]] = {
    "files": lambda of: {key: [add.get(name) for name in _OF_FILE] for key, add in of.files.items()},
    "protocol": lambda of: {key: value for key, value in said(of.protocol).items() if value != []},
    "metadata": _metadata,
    "txn": lambda of: {key: body["version"] for key, body in of.transactions.items()},
    "domain metadata": lambda of: {
        key: body["configuration"] for key, body in of.domains.items() if not body.get("removed")
    },
}


def _checkpoint_of(name: str) -> int:
    """Return the version that a file of a checkpoint is of, or a part of it; -2 for another file."""
    match = _OF_CHECKPOINT.fullmatch(name)
    return -2 if match is None else int(match[1])


def _refuse_compacted(found: Divergence, folder: str, names: Iterable[str]) -> None:
    for name in names:
        match = _COMPACTED.fullmatch(name)
        if match is not None and int(match[1]) > found.common:
            raise _refusal(
                found,
                f"{folder}/{name} stands for commits one of which was written over, and may have been made of that "
                "one. Put it aside, and settle the table then: the commits of the log say the same",
            )


def _refusal(found: Divergence, why: str) -> InvalidError:
    return InvalidError(f"table {found.table.name} cannot be settled: {why}. Nothing was changed")
