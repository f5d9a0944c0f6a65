"""What Delta does for a table after its own commits and is left to do after a transaction's: checkpoints."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeAlias

from lockstep.caches import LEAST, size_of
from lockstep.commit.drafts import Draft
from lockstep.commit.outcomes import DueCheckpoint
from lockstep.delta.actions import Action, bodies, parse
from lockstep.delta.checkpoint_interval import due_checkpoint, without_others
from lockstep.delta.log import state_at
from lockstep.delta.publish import contents
from lockstep.errors import LockstepError
from lockstep.lake.lake import Lake
from lockstep.timeline.entry import Entry, TableWrite
from lockstep.timeline.placements import as_ratified
from lockstep.workers import begin

Properties: TypeAlias = Mapping[str, Mapping[str, Any]]
"""By table id, of the fields of its `metaData` action those that matter; none where nobody knows them."""

_log = logging.getLogger(__name__)


def begin_to_read(lake: Lake, drafts: Sequence[Draft]) -> Future[Properties]:
    """Begin to find out what the tables say that a transaction writes, and return without waiting.

    It is asked beside what COMMIT asks for anyway, so that it costs no time of its own.
    """
    return begin(partial(_of_drafts, lake, drafts), "lockstep-maintenance", now=lake.storage.quick)


def due_checkpoints(lake: Lake, entry: Entry, properties: Callable[[], Properties]) -> tuple[DueCheckpoint, ...]:
    """Return which of the versions that a transaction made Delta would write a checkpoint of. It raises nothing.

    Args:
        entry: a ratified entry. What is not in its table's log has no version yet, and nothing due.
        properties: what the tables say; one that is not among them has Delta's default.
    """
    try:
        known = properties()
        due = []
        for write in entry.writes:
            if lake.publisher.is_published(entry, write):
                versions = lake.timeline.versions(write, entry.version)
                metadata = known.get(write.id, {})
                if (version := due_checkpoint(versions, metadata)) is not None:
                    due.append(DueCheckpoint(write.location, version))
                if metadata and versions == as_ratified(write):
                    _kept(lake, write.id, versions[-1], metadata)
        return tuple(due)
    except Exception:  # noqa: BLE001 (logged; advice about a commit, which may not fail for it)
        _log.exception("of database version %d nobody knows which checkpoints are due", entry.version)
        return ()


def of_entry(lake: Lake, entry: Entry) -> Properties:
    """Return what the tables say that an entry wrote, some time after that."""

    def read(write: TableWrite) -> Mapping[str, Any]:
        versions = lake.timeline.versions(write, entry.version)
        files = contents(lake.storage, write, versions)
        actions = [action for data in files if data is not None for action in parse(data)]
        return _metadata(lake, write.id, write.location, actions, before=versions[0] - 1)

    return _read(lake, {write.id: partial(read, write) for write in entry.writes})


def _of_drafts(lake: Lake, drafts: Sequence[Draft]) -> Properties:
    def read(draft: Draft) -> Mapping[str, Any]:
        actions = [action for commit in draft.commits for action in commit]
        return _metadata(lake, draft.table.id, draft.table.location, actions, before=draft.table.version)

    return _read(lake, {draft.table.id: partial(read, draft) for draft in drafts})


def _read(lake: Lake, by_id: Mapping[str, Callable[[], Mapping[str, Any]]]) -> Properties:
    """Read of all tables side by side; of one that cannot be read nothing is known."""

    def read(read_one: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
        try:
            return read_one()
        except LockstepError as error:
            _log.info("a table's checkpoints come at Delta's default interval this time: %s", error)
            return {}

    return dict(zip(by_id, lake.side_by_side(read, by_id.values()), strict=True))


def _metadata(lake: Lake, id: str, location: str, actions: Iterable[Action], *, before: int) -> Mapping[str, Any]:
    """Return a table's metadata after some actions, which follow one of its versions; empty if that takes long.

    It is kept of the versions that this process committed last: their checksums are written behind the answers.
    """
    if changed := bodies(actions, "metaData"):
        return without_others(changed[-1])
    if (kept := lake.checkpoint_properties.get((id, before))) is not None:
        return kept
    state = state_at(lake.storage, location, before)
    return {} if state is None else without_others(state.metadata)


def _kept(lake: Lake, id: str, version: int, metadata: Mapping[str, Any]) -> None:
    lake.checkpoint_properties.keep((id, version), metadata, size=LEAST + size_of(metadata))
