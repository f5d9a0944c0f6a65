"""What becomes of a plain Delta writer's commit to a table: a property of the table, `PROPERTY`, says it.

    absorb    it becomes an `external` entry of the timeline; so it is where nothing is said
    warn      the same, and the entry's message and the log say so
    refuse    it does not, and the table is refused until a person decides; a value that nobody knows refuses, too

The property counts as it stands at the table version before the foreign commits: none of them decides about itself. It
is read when foreign commits are found, and not otherwise, so that it costs nothing where there are none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from cachetools import LRUCache

from lockstep.delta.actions import Action, bodies, parse
from lockstep.delta.log import commit_path, log_files, state_at
from lockstep.delta.snapshot import read_header
from lockstep.errors import CorruptTimelineError, ForeignCommitError, InvalidError, MissingFilesError
from lockstep.forks import Lock
from lockstep.storage import Storage
from lockstep.timeline.entry import NEW, Name

PROPERTY = "lockstep.external_commits"

SETTLED = "settle"
"""The parameter of a commit's operation that says that it settles a table (`lockstep.recovery.settle`)."""

Policy: TypeAlias = Literal["absorb", "warn", "refuse"]
POLICIES: tuple[Policy, ...] = ("absorb", "warn", "refuse")
DEFAULT: Policy = "absorb"

KEPT = 10_000
"""Of so many tables the last answer is kept."""

FOLLOWED = 100
"""So many commits after the last answer are looked through for another one, before the table is looked at anew."""


def policy_of(metadata: Mapping[str, Any]) -> Policy:
    """Return what a table's metadata says, as the fields of its `metaData` action."""
    values = [_value(value).lower() for _, value in _said(metadata)]
    strictest = max((POLICIES.index(v) if v in POLICIES else len(POLICIES) - 1 for v in values), default=0)
    return POLICIES[strictest]


def _said(metadata: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return how a table's metadata spells the property, and what it says; a plain writer may spell it in any case."""
    configuration = metadata.get("configuration") or {}
    return [(key, value) for key, value in configuration.items() if key.lower() == PROPERTY]


def _value(value: Any) -> str:
    return DEFAULT if value is None else str(value)


def check_policy(table: Name, commits: Iterable[Sequence[Action]]) -> None:
    """See that commits give a table no policy that there is not, and that they spell the property as it is.

    A commit that settles a table says what one side said, and may not be kept from it.

    Raises:
        InvalidError: one does.
    """
    asked = [
        metadata
        for actions in commits
        if not any(SETTLED in (info.get("operationParameters") or {}) for info in bodies(actions, "commitInfo"))
        for metadata in bodies(actions, "metaData")
    ]
    for key, value in (said for metadata in asked for said in _said(metadata)):
        if key != PROPERTY:
            raise InvalidError(
                f"table {table}: the property {key} is spelled {PROPERTY}: UNSET the other. Nothing was written"
            )
        if _value(value).lower() not in POLICIES:
            raise InvalidError(
                f"table {table}: {PROPERTY} = {value!r}, expected one of {', '.join(POLICIES)}. Nothing was written"
            )


def settled_policy(commit: Sequence[Action]) -> Policy | None:
    """Return the policy of the side that a commit which settles a table keeps; None for any other commit.

    The log before it has the other side's, too.
    """
    infos = bodies(commit, "commitInfo")
    metadata = bodies(commit, "metaData")
    is_settling = any(SETTLED in (info.get("operationParameters") or {}) for info in infos)
    return policy_of(metadata[-1]) if is_settling and metadata else None


class Policies:
    """The policies of tables, as their logs say; safe to share between threads."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._known: LRUCache[str, tuple[int, Policy]] = LRUCache(KEPT)
        self._lock = Lock()

    def at(self, id: str, location: str, version: int, newest: int) -> Policy:
        """Return a table's policy at a version of its log; before the first it is the default.

        Args:
            id: the table's.
            newest: the newest version of the log, which is asked where the clean-up of logs has taken that one. Where
                nobody can read this, either, nobody reads the table, and it does not matter.

        Raises:
            UnsupportedError: it stands in a checkpoint, and pyarrow is not installed.
            UnavailableError: the store failed.
        """
        if version == NEW:
            return DEFAULT
        with self._lock:
            known = self._known.get(id)
        policy = None if known is None else self._since(location, *known, version)
        policy = policy or self._read(location, version)
        if policy is None:
            return self._read(location, newest) or DEFAULT  # of another version: that one may be back some day
        with self._lock:
            self._known[id] = version, policy
        return policy

    def _read(self, location: str, version: int) -> Policy | None:
        try:
            if (state := state_at(self._storage, location, version)) is not None:
                return policy_of(state.metadata)
            return policy_of(read_header(self._storage, location, version, log_files(self._storage, location)).metadata)
        except (MissingFilesError, CorruptTimelineError):
            return None

    def _since(self, location: str, known_version: int, policy: Policy, version: int) -> Policy | None:
        """Return the policy at a version, from an earlier one and the commits since; None if they do not tell."""
        if not known_version <= version <= known_version + FOLLOWED:
            return None
        for each in range(version, known_version, -1):
            if (data := self._storage.get(commit_path(location, each))) is None:
                return None
            if changed := bodies(parse(data), "metaData"):
                return policy_of(changed[-1])
        return policy


def refused(table: Name, path: str, more: str = "") -> ForeignCommitError:
    """Return the refusal of a table whose plain writers' commits are not to be taken in.

    Args:
        path: of the first foreign commit.
        more: where a commit of ours is whose version it took.
    """
    return ForeignCommitError(
        f"table {table}: a plain Delta writer committed {path}, and {PROPERTY} of the table is 'refuse'. Nothing was "
        f"changed{more}. {undecided(table)}"
    )


def undecided(table: Name) -> str:
    """Return what there is to do about a table that has diverged."""
    return (
        f"The table cannot be used until a person decides: `lockstep settle ROOT {table} --ours` keeps what the "
        "timeline has, `--theirs` what the log has, `--both` both where they do not conflict, and --dry-run says what "
        "each takes from readers"
    )


def warning(table: Name, path: str) -> str:
    """Return what is said where a plain writer's commit is taken in that is to be warned of."""
    return f"warning: a plain Delta writer committed {path} to table {table}, whose {PROPERTY} is 'warn'"
