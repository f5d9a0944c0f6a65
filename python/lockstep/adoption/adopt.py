"""Adopting tables: a lake takes Delta tables in where they are, in one transaction, whoever made them.

Nothing is copied and nothing rewritten: the timeline's entry says that the table of an id is at this location, at the
version that its log had when it was looked at. A plain Delta writer's commit is before that version, or it is found
behind it when the table is first used, as any other one is later; so it can be neither lost nor taken twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from lockstep.adoption.judging import refusal
from lockstep.adoption.places import Place, Surroundings, place
from lockstep.delta.log import LogFiles, commit_path, log_files, read_digest
from lockstep.delta.snapshot import Snapshot, read_header
from lockstep.errors import DuplicateError, InvalidError, LockstepError
from lockstep.lake.claims import Claim, NameIn, check_claimable, claim, is_left_behind
from lockstep.lake.lake import Lake
from lockstep.storage import Storage
from lockstep.storage.locations import NOT_REGISTERED
from lockstep.storage.outside import locations_of, opener_of
from lockstep.storage.urls import comparable, url_below
from lockstep.timeline.entry import Name, Namespace, Table, ViewDefinition, folded
from lockstep.timeline.log import Timeline
from lockstep.transactions.ddl import HasNames, holder
from lockstep.transactions.folders import is_own
from lockstep.transactions.names import Names
from lockstep.transactions.transaction import Transaction

MAX_NAMED = 10
"""So many of the tables that are refused does a message name."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A table that is to be adopted.

    Attributes:
        name: what it is to be called.
        where: an absolute path or URL of its folder.
    """

    name: Name
    where: str


@dataclass(frozen=True, slots=True)
class Found:
    """A table as it was looked at.

    Attributes:
        name: what it is to be called.
        location: where it lies, as the lake calls it; what was asked for, if that names no place.
        version: the newest of its log; -1 if it is refused before that is known.
        reason: why it cannot be adopted; None if it can.
        digest: of the newest commit, see `Table`.
        header: its protocol and metadata, if they were read.
        is_nothing: whether there is no Delta table at all.
        is_claimed: whether it is refused for a claim around it, which may be given up.
        is_out_of_reach: whether it is refused since it, or the lake that claimed it, is in no location.
    """

    name: Name
    location: str
    version: int = -1
    reason: str | None = None
    digest: str = ""
    header: Snapshot | None = None
    is_nothing: bool = False
    is_claimed: bool = False
    is_out_of_reach: bool = False


def look(lake: Lake, names: HasNames, wanted: Sequence[Wanted]) -> list[Found]:
    """Look at tables, and say of each whether it can be adopted, in their order; nothing is changed.

    Args:
        names: what the lake has, to whoever asks.

    Raises:
        UnavailableError: the store failed.
    """
    ask = _asking(lake)

    def passes_over(claim: Claim, folder: str) -> bool:
        return is_left_behind(claim, lake.storage, folder, clock=lake.clock, name_in=ask)

    surroundings = Surroundings(lake.storage, names.tables.values(), passes_over)
    places: list[Place | LockstepError] = []
    for each in wanted:
        try:
            places.append(place(lake.storage.url, each.where, locations_of(lake.storage)))
        except InvalidError as error:
            places.append(error)
    found = [
        Found(each.name, at.location if isinstance(at, Place) else each.where)
        for each, at in zip(wanted, places, strict=True)
    ]
    surroundings.look((at for at in places if isinstance(at, Place)), lake.side_by_side)
    looks = zip(found, places, strict=True)
    return _without_twins(lake.side_by_side(lambda look: _looked_at(lake.storage, surroundings, *look), looks))


def look_at_claims(lake: Lake, found: Sequence[Found]) -> list[Found]:
    """Say of tables that were looked at, too, whether another lake has them: for who only looks, since `adopt` asks.

    Raises:
        UnavailableError: the store failed.
    """
    ask = _asking(lake)

    def claimable(each: Found) -> Found:
        if each.reason is not None:
            return each
        try:
            check_claimable(lake.storage, each.location, clock=lake.clock, name_in=ask)
        except (DuplicateError, InvalidError) as error:
            return replace(each, reason=error.message, is_out_of_reach=error.sqlstate == NOT_REGISTERED)
        return each

    return lake.side_by_side(claimable, found)


def look_at_names(found: Sequence[Found], names: HasNames, *, case_sensitive: bool = True) -> list[Found]:
    """Say of tables that were looked at, too, whether their names are free: for who only looks, since `adopt` asks.

    Args:
        names: what the lake has, to whoever asks.
        case_sensitive: whether names that differ in case alone are two.
    """
    given: set[Name] = set()
    checked = []
    for each in found:
        key = each.name if case_sensitive else folded(each.name)
        reason = each.reason
        if reason is None and (kind := holder(each.name, names, case_sensitive=case_sensitive)) is not None:
            reason = f"the lake has a {kind} {each.name} already: adopt this one by itself, under another name"
        elif reason is None and key in given:
            reason = f"another one is to be {each.name} as well: adopt this one by itself, under another name"
        if reason is None:
            given.add(key)
        checked.append(replace(each, reason=reason))
    return checked


def refuse_unadoptable(found: Sequence[Found]) -> None:
    """Raise unless all of some tables can be adopted.

    Raises:
        DuplicateError (42P07): what keeps them from that are claims.
        InvalidError: something else does; (42501) that only registered locations may be used.
    """
    if refused := [each for each in found if each.reason is not None]:
        more = f"; and {len(refused) - MAX_NAMED} more" if len(refused) > MAX_NAMED else ""
        what = "; ".join(f"{each.location} (as {each.name}): {each.reason}" for each in refused[:MAX_NAMED])
        said = f"cannot adopt {what}{more}. Nothing was changed"
        if all(each.is_claimed for each in refused):
            raise DuplicateError(said)
        raise InvalidError(said, sqlstate=NOT_REGISTERED if all(each.is_out_of_reach for each in refused) else None)


def adopt(
    lake: Lake,
    tx: Transaction,
    found: Sequence[Found],
    *,
    make_namespaces: bool = False,
    views: Sequence[tuple[Name, ViewDefinition]] = (),
) -> list[Table]:
    """Take tables in that were looked at, in a transaction: all of them, or none.

    Args:
        make_namespaces: whether to make the namespaces that are missing.
        views: views, and functions as such, to make beside the tables.

    Returns:
        The tables as the transaction has them, in the order of `found`.

    Raises:
        InvalidError: one of them cannot be adopted; the message says why.
        DuplicateError, UndefinedError: a name is taken, another lake has a table; or there is no such namespace.
        LockstepError: the store failed, or the transaction may not change anything.
    """
    refuse_unadoptable(found)
    tables = [
        Table(
            id=lake.new_id(),
            name=each.name,
            location=each.location,
            version=each.version,
            since=tx.base.version,
            digest=each.digest,
        )
        for each in found
    ]

    def take_in(names: Names) -> None:
        spaces = {name.namespace for name in (*(table.name for table in tables), *(name for name, _ in views))}
        for namespace in _missing(names, spaces) if make_namespaces else ():
            names.create_namespace(namespace, {})
        for table in tables:
            names.adopt_table(table)
        for name, definition in views:
            names.create_view(name, definition, replace=False)
        hold(lake, tx, tables)

    tx.change_names(take_in)
    return tables


def hold(lake: Lake, tx: Transaction, tables: Iterable[Table]) -> None:
    """Make sure that no other lake has tables, nor takes them while a transaction brings them in.

    Of a table that the lake made itself the folder says so, and nobody claims it.

    Raises:
        DuplicateError, InvalidError: another lake has one of them, or nobody can tell.
        UnavailableError: the store failed.
    """
    ask = _asking(lake)

    def claim_one(location: str) -> None:
        tx.claimed.add(location)  # first, for what failed may have been written: whoever gives it up looks whose it is
        claim(lake.storage, location, tx.id, clock=lake.clock, name_in=ask)

    lake.side_by_side(claim_one, _claimed(tables))


def check_held(lake: Lake, tables: Iterable[Table]) -> None:
    """Raise unless `hold` would let a transaction bring tables in just now; nothing is written.

    Raises:
        DuplicateError, InvalidError, UnavailableError: see `hold`.
    """
    ask = _asking(lake)

    def check_one(location: str) -> None:
        check_claimable(lake.storage, location, clock=lake.clock, name_in=ask)

    lake.side_by_side(check_one, _claimed(tables))


def _claimed(tables: Iterable[Table]) -> list[str]:
    """Return where the tables are that a lake did not make, and has by a claim."""
    return [table.location for table in tables if not is_own(table.location, table.id)]


def _asking(lake: Lake) -> NameIn:
    """Return what asks another lake how it calls a table."""
    return partial(name_in, opener_of(lake.storage))


def name_in(opened: Callable[[str], Storage], root: str, url: str) -> Name | None:
    """Return what the lake of a root calls the table at a whole URL; None if it has none there.

    Args:
        opened: opens the store of a root.

    Raises:
        LockstepError: that lake cannot be read.
    """
    place = comparable(url)
    tables = Timeline.open(opened(root)).head.tables.values()
    return next((each.name for each in tables if comparable(url_below(root, each.location)) == place), None)


def _missing(names: Names, spaces: Iterable[Namespace]) -> list[Namespace]:
    """Return those of the namespaces that there are not, with those above them, the outer ones first."""
    whole = {space[:length] for space in spaces for length in range(1, len(space) + 1)}
    return sorted(whole - {*names.namespaces}, key=lambda space: (len(space), space))


def _looked_at(storage: Storage, surroundings: Surroundings, found: Found, at: Place | LockstepError) -> Found:
    """Return what is found of a table where it lies."""
    if isinstance(at, LockstepError):
        return replace(found, reason=at.message, is_out_of_reach=at.sqlstate == NOT_REGISTERED)
    if (refused := surroundings.refusal(at)) is not None:
        return replace(found, reason=refused.text, is_claimed=refused.is_claimed)
    log = _log(storage, at.location)
    if log.is_empty:
        reason = "it is no Delta table: there is no commit in its _delta_log"
        return replace(found, reason=reason, is_nothing=True)
    found = replace(found, version=max(log.commits | log.checkpoints))
    if (missing := log.missing_for(found.version)) is not None:
        gap = f"its log has a gap: {commit_path(at.location, missing)} is missing, and nobody can read it"
        return replace(found, reason=gap)
    try:
        header = read_header(storage, at.location, found.version, log)
        digest = read_digest(storage, at.location, found.version)
        return replace(found, reason=refusal(header), digest=digest, header=header)
    except LockstepError as error:
        return replace(found, reason=error.message)


def _log(storage: Storage, location: str) -> LogFiles:
    """Return what is in a log; a listing beside a writer may have a commit and not the one before: look once more."""
    log = log_files(storage, location)
    if not log.is_empty and log.missing_for(max(log.commits | log.checkpoints)) is not None:
        log = log_files(storage, location)
    return log


def _without_twins(found: Sequence[Found]) -> list[Found]:
    """Refuse what would take the place, or lie inside, of another of the same call."""
    places: dict[str, Name] = {}
    checked = []
    for each in found:
        reason = each.reason
        if reason is None and (other := places.get(each.location)) is not None:
            reason = f"it is to be {other} as well"
        places.setdefault(each.location, each.name)
        checked.append(replace(each, reason=reason))
    return checked
