"""What is kept for tags: of a table at a version, the files of its log that tell of it, in a place of the lake's own.

    <root>/_lockstep/kept/<table id>/<version>.json                     one `KeptState`: what is kept; written last
    <root>/_lockstep/kept/<table id>/<version>-<attempt>/_delta_log/…   copies of the log's files, byte for byte

Delta's clean-up of logs, by whichever writer, looks at tables' folders alone. So what is here tells of the version for
as long as a tag needs it, whatever became of the table's log. It is a checkpoint, with its sidecars, and the commits
since: read as the log is, by the same code, so that nothing Delta knows of a table can get lost on the way.

A state is there if its `<version>.json` is, which is put if it is absent: of two processes that keep the same at once
one has it, and the folder of the other is litter, as is that of one that was killed. It never changes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

import msgspec

from lockstep.delta.checkpoint_files import sidecars_of
from lockstep.delta.log import LOG, commit_path, log_files, log_files_of
from lockstep.delta.snapshot import SIDECARS, Snapshot, checkpoint_names, read_snapshot
from lockstep.errors import CorruptTimelineError, MissingFilesError
from lockstep.lake.deletions import OLD
from lockstep.lake.lake import Lake
from lockstep.storage import Found, Mine, Storage
from lockstep.timeline.entry import Table, Value
from lockstep.timeline.files import UNREADABLE
from lockstep.timeline.settlements import refusal

FOLDER = "_lockstep/kept"
FORMAT = 1

AT_ONCE = 64
"""So many tables are copied before it is said that they are kept: what is not said for long is taken for litter."""

_PATH = re.compile(rf"{FOLDER}/([^/]+)/(\d{{20}})(\.json|-[^/]+)(?:/.*)?")


class KeptFile(Value, frozen=True):
    """A file of a log that was copied: its path in the log's folder, its bytes, and their SHA-256."""

    name: str
    size: Annotated[int, msgspec.Meta(ge=0)]
    sha256: str


class KeptState(Value, frozen=True):
    """What is kept of a table at a version.

    Attributes:
        format: 1.
        table: its id.
        version: of its log.
        folder: in which its `_delta_log` is, relative to the lake's root.
        files: all that the version needs.
    """

    format: int
    table: str
    version: Annotated[int, msgspec.Meta(ge=0)]
    folder: str
    files: tuple[KeptFile, ...]


_decode = msgspec.json.Decoder(KeptState).decode


def state_path(id: str, version: int) -> str:
    """Return where it is said what is kept of a table at a version."""
    return f"{FOLDER}/{id}/{version:020d}.json"


def kept_state(storage: Storage, id: str, version: int) -> KeptState | None:
    """Return what is kept of a table at a version; None if nothing is.

    Raises:
        CorruptTimelineError: what says so cannot be read.
        UnavailableError: the store failed.
    """
    path = state_path(id, version)
    if (data := storage.get(path)) is None:
        return None
    try:
        state = _decode(data)
    except UNREADABLE as error:
        raise CorruptTimelineError(
            f"{path}: expected what is kept of a table for tags: {error}. Restore it from a backup; or delete it if "
            "the table's log tells of that version yet, and `lockstep maintain` keeps it again"
        ) from error
    if not state.folder.startswith(f"{FOLDER}/{id}/{version:020d}-"):
        raise CorruptTimelineError(f"{path}: names the folder {state.folder!r}, expected one beside it")
    if state.format != FORMAT:
        raise CorruptTimelineError(
            f"{path}: format {state.format}, expected {FORMAT}. If a newer Lockstep wrote it, upgrade this one"
        )
    return state


def told_at(storage: Storage, table: Table) -> str:
    """Return the folder whose `_delta_log` tells of a table at its version: its own, or that of what is kept for tags.

    This is the one place where that is decided. The table's own log is read as long as it tells; where neither does, it
    is the one that whoever reads it will complain of.

    Raises:
        UnavailableError, CorruptTimelineError: the store failed; what is kept cannot be read.
    """
    if not storage.exists(state_path(table.id, table.version)):
        return table.location
    tells = _log_tells(storage, table)
    try:
        state = kept_state(storage, table.id, table.version)
    except CorruptTimelineError:
        if tells:  # it is not needed
            return table.location
        raise
    return table.location if state is None or (tells and _is_as_kept(storage, table, state)) else state.folder


def snapshot_of(storage: Storage, table: Table) -> Snapshot:
    """Return the state of a table at its version, by whatever tells of it.

    Raises:
        LockstepError: see `told_at` and `read_snapshot`.
    """
    return read_snapshot(storage, told_at(storage, table), table.version)


def _is_as_kept(storage: Storage, table: Table, state: KeptState) -> bool:
    """Tell whether the commit of a table's version is the one that was kept, and not one written over it."""
    path = commit_path(table.location, table.version)
    kept = {file.name: file.sha256 for file in state.files}.get(path.rpartition("/")[2])
    data = None if kept is None else storage.get(path)
    return data is None or hashlib.sha256(data).hexdigest() == kept


def is_told(storage: Storage, table: Table) -> bool:
    """Tell whether a table's log, or what is kept for tags, tells of it at its version.

    Raises:
        UnavailableError, CorruptTimelineError: the store failed; what is kept cannot be read.
    """
    return _log_tells(storage, table) or kept_state(storage, table.id, table.version) is not None


def _log_tells(storage: Storage, table: Table) -> bool:
    return log_files(storage, table.location).missing_for(table.version) is None


# --- keeping ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Telling:
    """A table, and the files of its log that tell of its version, by their paths in that folder."""

    table: Table
    folder: str
    names: Sequence[str]


def keep(lake: Lake, tables: Iterable[Table]) -> frozenset[str]:
    """Keep what tells of tables at their versions; those that are kept already cost one look each.

    Returns:
        What says of each that it is kept: paths that may not go from here on.

    Raises:
        MissingFilesError: a table's log does not tell of its version any more.
        ForeignCommitError: a table was settled since, or a plain writer wrote over its version: its log is another's.
        UnavailableError: the store failed. Whatever it is, some may be kept by then, and a later attempt goes on.
    """
    storage, wanted = lake.storage, {(table.id, table.version): table for table in tables}
    paths = {key: state_path(*key) for key in wanted}
    there = lake.side_by_side(storage.exists, paths.values())
    new = [wanted[key] for key, is_there in zip(paths, there, strict=True) if not is_there]
    for place in range(0, len(new), AT_ONCE):
        _keep(lake, new[place : place + AT_ONCE])
    return frozenset(paths.values())


def _keep(lake: Lake, new: Sequence[Table]) -> None:
    storage = lake.storage
    for table in new:
        if (error := refusal(lake.timeline.head, table)) is not None:
            raise error
    tellings = lake.side_by_side(lambda table: _telling(storage, table, lake.new_id()), new)
    pairs = [(number, name) for number, telling in enumerate(tellings) for name in telling.names]

    def copy(pair: tuple[int, str]) -> KeptFile:
        telling, name = tellings[pair[0]], pair[1]
        return _copied(storage, f"{telling.table.location}/{LOG}", f"{telling.folder}/{LOG}", name, telling.table)

    copies: dict[int, list[KeptFile]] = {}
    for (number, _), file in zip(pairs, lake.side_by_side(copy, pairs), strict=True):
        copies.setdefault(number, []).append(file)
    states = [
        KeptState(
            format=FORMAT,
            table=telling.table.id,
            version=telling.table.version,
            folder=telling.folder,
            files=tuple(copies[number]),
        )
        for number, telling in enumerate(tellings)
    ]
    lake.check_past(new)  # behind the copying: what was written over meanwhile is not what was ratified
    lake.side_by_side(lambda state: _say(lake, state), states)


def _telling(storage: Storage, table: Table, attempt: str) -> _Telling:
    folder = f"{table.location}/{LOG}"
    names = storage.list(folder)
    log = log_files_of(names)
    if (missing := log.missing_for(table.version)) is not None:
        raise MissingFilesError(
            f"table {table.name} cannot be kept as it was: its log does not tell of version {table.version} any more, "
            f"for {commit_path(table.location, missing)} is gone. A clean-up of logs took it that did not go through "
            "Lockstep (delta.logRetentionDuration says for how long those keep them). Nothing was changed"
        )
    first = max((each for each in log.checkpoints if each <= table.version), default=-1)
    checkpoint = checkpoint_names(names, first) if first >= 0 else []
    sidecars = _sidecars(storage, folder, checkpoint)
    # The commit of the checkpoint's own version says when that was, and Delta takes no log for whole without it.
    versions = sorted(log.commits & {*range(max(first, 0), table.version + 1)})
    commits = [f"{version:020d}.json" for version in versions]
    return _Telling(table, f"{FOLDER}/{table.id}/{table.version:020d}-{attempt}", [*sidecars, *checkpoint, *commits])


def _sidecars(storage: Storage, folder: str, checkpoint: Sequence[str]) -> list[str]:
    """Return the sidecars of a checkpoint; all that the log has where nobody here can read which they are."""
    if not checkpoint or not (there := storage.list(f"{folder}/{SIDECARS}")):
        return []
    named = [sidecars_of(storage, f"{folder}/{name}") for name in checkpoint]
    if any(each is None for each in named):
        return [f"{SIDECARS}/{name}" for name in there]
    sidecars = (next((name for name in each if name in there), each[0]) for some in named for each in some or ())
    return [f"{SIDECARS}/{name}" for name in sidecars]


def _copied(storage: Storage, source: str, target: str, name: str, table: Table) -> KeptFile:
    """Copy a file of a log, and return what was written."""
    pieces = storage.chunks(f"{source}/{name}")
    if pieces is None:
        raise MissingFilesError(
            f"table {table.name} cannot be kept at version {table.version} of its log: {source}/{name} is gone, by a "
            "clean-up of logs just now or a loss. Nothing was changed; run the same again"
        )
    sha256, size = hashlib.sha256(), 0

    def passing() -> Iterator[bytes]:
        nonlocal size
        for piece in pieces:
            sha256.update(piece)
            size += len(piece)
            yield piece

    storage.put_chunks(f"{target}/{name}", passing())
    return KeptFile(name=name, size=size, sha256=sha256.hexdigest())


def _say(lake: Lake, state: KeptState) -> None:
    """Say that a state is kept; if another process was faster, its copies are the ones."""
    said = lake.storage.put_if_absent(state_path(state.table, state.version), msgspec.json.encode(state))
    if not isinstance(said, Mine):
        lake.delete([state.folder], [])


# --- looking after what is kept ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Kept:
    """What there is of states, by what a listing says.

    Attributes:
        states: the file that says that one is kept, by table id and version.
        folders: the files of each folder of copies, by the folder, with whose state it is, or was to be.
    """

    states: Mapping[tuple[str, int], Found]
    folders: Mapping[str, tuple[tuple[str, int], list[Found]]]

    @property
    def sure(self) -> frozenset[tuple[str, int]]:
        """The states that count: their copies are there, and no upkeep can have taken these for litter.

        It takes them for litter once they are an hour old and nothing says that they are kept. So what was said of
        copies that were much younger then is sure. Who stood still between the two may have said it of copies that are
        going: then the table's log is needed, as if nothing were kept. Both times are the store's.
        """
        made: dict[tuple[str, int], datetime] = {}
        for key, files in self.folders.values():
            newest = max(found.modified_at for found in files)
            made[key] = min(newest, made.get(key, newest))
        return frozenset(
            key for key, said in self.states.items() if key in made and said.modified_at - made[key] <= OLD
        )

    @property
    def hollow(self) -> frozenset[tuple[str, int]]:
        """The states of which nothing is there but what says that they are kept."""
        return frozenset(self.states) - {key for key, _ in self.folders.values()}


def kept_states(storage: Storage) -> Kept:
    """List what is kept, and what is left of attempts to keep something.

    Raises:
        UnavailableError: the store failed.
    """
    states: dict[tuple[str, int], Found] = {}
    folders: dict[str, tuple[tuple[str, int], list[Found]]] = {}
    for found in storage.walk(FOLDER):
        if (match := _PATH.fullmatch(found.path)) is None:
            continue
        key = match[1], int(match[2])
        if match[3] == ".json":
            states[key] = found
        else:
            folders.setdefault(f"{FOLDER}/{match[1]}/{match[2]}{match[3]}", (key, []))[1].append(found)
    return Kept(states, folders)


def kept_versions(storage: Storage, id: str) -> frozenset[int]:
    """Return the versions of a table that are kept.

    Raises:
        UnavailableError: the store failed.
    """
    names = storage.list(f"{FOLDER}/{id}")
    return frozenset(int(name[:20]) for name in names if _PATH.fullmatch(f"{FOLDER}/{id}/{name}"))


def is_whole(storage: Storage, id: str, version: int) -> bool:
    """Tell whether all is there, by its size, that is said to be kept of a table at a version.

    Raises:
        UnavailableError: the store failed.
    """
    try:
        state = kept_state(storage, id, version)
    except CorruptTimelineError:
        return False
    if state is None:
        return False
    there = {found.path: found.size for found in storage.walk(state.folder)}
    return all(there.get(f"{state.folder}/{LOG}/{file.name}") == file.size for file in state.files)


def damaged(storage: Storage, state: KeptState) -> Iterator[str]:
    """Yield the path of each copy that is gone, or is not what was written.

    Raises:
        UnavailableError: the store failed.
    """
    for file in state.files:
        path = f"{state.folder}/{LOG}/{file.name}"
        sha256 = hashlib.sha256()
        for piece in storage.chunks(path) or ():
            sha256.update(piece)
        if sha256.hexdigest() != file.sha256:
            yield path
