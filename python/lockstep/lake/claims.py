"""Whose a table is that a lake did not make: no two lakes may have one table.

Each would take the other's commits for a plain Delta writer's, and publish its own against them.

    <table>/_delta_log/_lockstep/lake.json      one `Claim`, put if absent by whoever adopts the table

It is made while a table is adopted, below the lake's root too, for that may be inside of what another lake calls
outside. COMMIT looks again that it names the lake. It is removed when the transaction that made it rolls back, or a
later one lets the table go, and never if the lake has the table. One that stays behind keeps nobody from adopting the
table: whoever finds it asks the lake that it names, and takes its place if that has not the table. A new table it keeps
away until a person deletes it: that the transaction which claimed the folder has ended, no lake can say of a process
that died, and one that is open yet would go on behind another's claim. Likewise for tables inside of a folder that was
claimed for a new one: an old claim keeps nobody from adopting these, but new ones. A transaction whose claim has become
old looks, before it makes its table, that none came inside of it. Of several who take its place, one does:

    <table>/_delta_log/_lockstep/lake-over.json     one `Claim`, put if absent by whoever removes another's claim

No store removes a file only if it is what somebody has read, so without that the second would remove the first one's.
For the same reason nobody removes such a file that a dead process of his lake left, and goes on: of several who find
it, the one does who puts a file whose name follows from what it says, and finds it unchanged behind that:

    <table>/_delta_log/_lockstep/<digest>-lake-over.json    one `Claim` of who goes on behind a dead one
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TypeAlias

import msgspec

from lockstep.conflict.lock_policy import Time
from lockstep.delta.log import LOG
from lockstep.errors import DuplicateError, InvalidError, LockstepError, UnavailableError, UnsupportedError
from lockstep.lake.identity import identity_for, is_identity
from lockstep.storage import Mine, Storage, Theirs, url_of
from lockstep.storage.locations import NOT_REGISTERED
from lockstep.storage.outside import is_apart
from lockstep.storage.urls import comparable, is_outside, url_below
from lockstep.timeline.clock import Clock
from lockstep.timeline.entry import Name, Value
from lockstep.timeline.files import UNREADABLE

FORMAT = 1
OVER = "lake-over.json"
SETTLED_AFTER = timedelta(days=1)
"""The transaction that made an older claim has ended, one way or the other."""

NameIn: TypeAlias = Callable[[str, str], Name | None]
"""Tells how the lake of a root calls the table at a whole URL, None if it has none there; raises LockstepError."""

_NO_PARTS = frozenset({"", ".", ".."})

_log = logging.getLogger(__name__)


class Claim(Value, frozen=True):
    """Which lake a table is, or is about to be, of.

    Attributes:
        format: 1.
        root: the lake's root as a URL.
        transaction: the id of the one that adopted, or is about to adopt, the table.
        claimed_at: when, UTC.
        lake: which lake it is, where the root alone does not say that, see `lockstep.lake.identity`.
    """

    format: int
    root: str
    transaction: str
    claimed_at: Time
    lake: str = ""


_decode = msgspec.json.Decoder(Claim).decode


def claim_path(location: str) -> str:
    """Return where a table's claim lies."""
    return f"{location}/{LOG}/_lockstep/lake.json"


def read_claim(storage: Storage, location: str) -> Claim | None:
    """Return the claim of a table, or of a place for one; None if nobody has claimed it.

    Raises:
        InvalidError: it cannot be read.
        UnavailableError: the store failed.
    """
    path = claim_path(location)
    data = storage.get(path)
    return None if data is None else _read(data, path)


def is_left_behind(found: Claim, storage: Storage, location: str, *, clock: Clock, name_in: NameIn) -> bool:
    """Tell whether a claim is nobody's any more, as far as who adopts a table is concerned; not if nobody can tell.

    Raises:
        UnavailableError: the store failed.
    """
    if clock() - found.claimed_at <= SETTLED_AFTER:
        return False
    try:
        _refuse_if_taken(found, storage, location, name_in, is_settled=True)
    except InvalidError:
        return False
    return True


def claim(storage: Storage, location: str, transaction: str, *, clock: Clock, name_in: NameIn) -> None:
    """Make a table this lake's, unless it is already: then the claim stays that of the transaction which made it.

    Args:
        storage: the lake's.
        location: the table's, as the lake calls it.
        transaction: the one that adopts it, which has looked that its own lake does not have the table.
        name_in: asks another lake.

    Raises:
        DuplicateError: another lake has the table, or may be about to.
        InvalidError: nobody can tell, for that lake cannot be read, or may not be (42501).
        UnsupportedError: the store knows no conditional writes, so two lakes may both be told that the table is theirs.
        UnavailableError: the store failed.
    """
    path = claim_path(location)
    if storage.looks_first and not is_outside(location):
        raise UnsupportedError(
            f"{location} cannot be adopted where it is: {storage.url} is in a store that knows no conditional writes, "
            "and nothing there keeps two lakes, or a plain Delta writer, from the table. Copy its rows into a new table"
        )
    now = clock()
    ours = _encoded(storage, location, transaction, now)
    outcome = storage.put_if_absent(path, ours)
    if isinstance(outcome, Mine) or _is_told_ours(other := _read(outcome.data, path), storage, location, transaction):
        return
    _refuse_if_taken(other, storage, location, name_in, is_settled=now - other.claimed_at > SETTLED_AFTER)
    _clear(storage, path, outcome.data, ours, now)
    outcome = storage.put_if_absent(path, ours)
    if isinstance(outcome, Theirs) and not _is_told_ours(_read(outcome.data, path), storage, location, transaction):
        raise DuplicateError(f"another lake has just claimed {location}, see {path}: look there who has the table")


def claim_new(storage: Storage, location: str, transaction: str, *, clock: Clock) -> None:
    """Claim a folder for a new table that a transaction is about to make there; it may have done so before.

    Unlike `claim` it gives way to other transactions of this lake, too, for only one of them can make the table; and to
    a claim of any age.

    Raises:
        DuplicateError (42P07): another transaction, of this lake or another, has claimed it.
        InvalidError: the claim that is there cannot be read.
        UnsupportedError, UnavailableError: see `claim`.
    """
    _refuse_looks_first(storage, location)
    path = claim_path(location)
    outcome = storage.put_if_absent(path, _encoded(storage, location, transaction, clock()))
    if isinstance(outcome, Mine):
        return
    found = _read(outcome.data, path)
    if not (_is_ours(found, storage) and found.transaction == transaction):
        raise _claimed(found, location)


def check_unclaimed(storage: Storage, location: str) -> None:
    """Raise unless nobody has claimed a folder for a new table, or could; nothing is written.

    Raises:
        DuplicateError, InvalidError, UnsupportedError, UnavailableError: see `claim_new`.
    """
    _refuse_looks_first(storage, location)
    if (found := read_claim(storage, location)) is not None:
        raise _claimed(found, location)


def _claimed(found: Claim, location: str) -> DuplicateError:
    return DuplicateError(
        f"{location} was claimed by the lake {found.root} at {found.claimed_at:%Y-%m-%d %H:%M} UTC: transaction "
        f"{found.transaction} there has made a table in it, or is about to. Choose another folder, or wait for that "
        f"transaction to end; if its process died, nothing takes the claim back: once you know that, and no lake has a "
        f"table there, delete {claim_path(location)}"
    )


def _refuse_looks_first(storage: Storage, location: str) -> None:
    if storage.looks_first and not is_outside(location):
        raise UnsupportedError(
            f"a new table cannot be made at {location}: {storage.url} is in a store that knows no conditional writes, "
            "and nothing there keeps two lakes, or a plain Delta writer, from one folder. Leave LOCATION out"
        )


def _clear(storage: Storage, path: str, found: bytes, ours: bytes, now: datetime) -> None:
    """Remove a claim that is nobody's any more, unless it is another one by now; nobody else does meanwhile.

    Raises:
        DuplicateError: see `_take_over`.
    """
    held = _take_over(storage, path, ours, now)
    try:
        if storage.get(path) == found:
            storage.delete(path)
    finally:
        for over in held:  # ours is the last one: whoever puts that now finds one before it gone
            storage.delete(over)


def _take_over(storage: Storage, path: str, ours: bytes, now: datetime) -> list[str]:
    """Be the only one who may remove a claim; return what says so, ours behind what dead processes left.

    What a process of this lake left behind that died while it did so is gone on with, once it is old.

    Raises:
        DuplicateError: another lake is about to do so, or was when its process died; or this one, a short time ago.
    """
    folder = path.rpartition("/")[0]
    over, left = f"{folder}/{OVER}", dict[str, bytes]()
    while isinstance(outcome := storage.put_if_absent(over, ours), Theirs) and outcome.data != ours:
        by = _read(outcome.data, over)
        if not (_is_ours(by, storage) and now - by.claimed_at > SETTLED_AFTER):
            raise _taking_over(by, path, over)
        left[over] = outcome.data
        over = f"{folder}/{hashlib.sha256(outcome.data).hexdigest()[:32]}-{OVER}"
    try:
        is_as_found = all(storage.get(each) == data for each, data in left.items())
    except UnavailableError:
        storage.delete(over)
        raise
    if not is_as_found:  # somebody has gone on with one, and ended
        storage.delete(over)
        raise _taking_over(_read(ours, over), path, over)
    return [*left, over]


def _taking_over(by: Claim, path: str, over: str) -> DuplicateError:
    return DuplicateError(
        f"the lake {by.root} is just taking over what {path} claims, since {by.claimed_at:%Y-%m-%d %H:%M} UTC. "
        f"Try again in a moment; if it stays so, and nobody is adopting the table, delete {over}"
    )


def check_claimable(storage: Storage, location: str, *, clock: Clock, name_in: NameIn) -> None:
    """Raise unless `claim` would make a table this lake's just now; nothing is written.

    Raises:
        DuplicateError, InvalidError, UnavailableError: see `claim`.
    """
    if (other := read_claim(storage, location)) is not None and not _is_told_ours(other, storage, location):
        is_settled = clock() - other.claimed_at > SETTLED_AFTER
        _refuse_if_taken(other, storage, location, name_in, is_settled=is_settled)


def confirm(storage: Storage, location: str, transaction: str, *, clock: Clock) -> Claim | None:
    """Make sure that a table which was claimed is still this lake's; a claim that is gone is made again.

    Returns:
        None if it is; the claim of the lake that has taken it over else.

    Raises:
        InvalidError: the claim cannot be read.
        UnavailableError: the store failed.
    """
    path = claim_path(location)
    data = storage.get(path)
    if data is None:
        outcome = storage.put_if_absent(path, _encoded(storage, location, transaction, clock()))
        if isinstance(outcome, Mine):
            return None
        data = outcome.data
    found = _read(data, path)
    return None if _is_ours(found, storage) else found


def _refuse_if_taken(other: Claim, storage: Storage, location: str, name_in: NameIn, *, is_settled: bool) -> None:
    path = claim_path(location)
    if other.lake or is_apart(storage, location):
        # What the root's URL means to us it may not have meant to whoever claimed: none can be asked.
        raise InvalidError(
            f"{location} was claimed by the lake {other.root} at {other.claimed_at:%Y-%m-%d %H:%M} UTC (transaction "
            f"{other.transaction}), and which lake that is its root does not say here, so nobody can ask it. Release "
            f"the table there; or, if you know that no lake has it, or is about to, delete {path} and adopt it again"
        )
    if not _is_root_beside(other.root, storage.url):
        raise InvalidError(
            f"{path} names no lake in the same kind of store, so nobody can tell whose {location} is. If no lake has "
            "the table, delete that file and adopt it again"
        )
    try:
        name = name_in(other.root, url_below(storage.url, location))
    except LockstepError as error:
        if isinstance(error, InvalidError) and error.sqlstate == NOT_REGISTERED:
            raise InvalidError(
                f"{location} is claimed by the lake {other.root}, which may not be asked: {error.message}",
                sqlstate=error.sqlstate,
            ) from error
        # What it says is about a place that a file named which anybody may have written.
        raise InvalidError(
            f"{location} is claimed by the lake {other.root}, which cannot be read. If that lake is gone for good, "
            f"delete {path} and adopt the table again"
        ) from error
    if name is not None:
        raise DuplicateError(
            f"{location} is table {name} of the lake {other.root}: two lakes cannot have one table. Release it there "
            f"first: lockstep release {other.root} {name}"
        )
    if not is_settled:
        raise DuplicateError(
            f"{location} was claimed by the lake {other.root} at {other.claimed_at:%Y-%m-%d %H:%M} UTC, and "
            f"transaction {other.transaction} there may be about to adopt it. Look in a day, or, if you know that it "
            f"has ended, delete {path}"
        )


def give_up(storage: Storage, location: str, transaction: str) -> bool:
    """Take a claim back that a transaction made, at best effort, and tell whether it has none; that of another stays.

    Whoever calls this has looked, after the transaction ended, that the lake does not have the table.
    """
    try:
        _remove(storage, location, transaction)
    except (InvalidError, UnavailableError) as error:
        _log.warning("the claim %s stays, which keeps only new tables from there: %s", claim_path(location), error)
        return False
    return True


def remove_traces(storage: Storage, location: str) -> None:
    """Remove from a table's log what shows that this lake had the table, once it has not; another's claim stays.

    What transactions have staged stays, that of one that is open yet may be among it. Delta's readers and writers look
    at none of it.

    Raises:
        InvalidError: the claim cannot be read.
        UnavailableError: the store failed; what is left does no harm.
    """
    _remove(storage, location)


def _remove(storage: Storage, location: str, transaction: str | None = None) -> None:
    path = claim_path(location)
    if (data := storage.get(path)) is not None:
        found = _read(data, path)
        if not _is_ours(found, storage) or transaction not in (None, found.transaction):
            return
        storage.delete(path)
    storage.delete_empty_folder(path.rpartition("/")[0])


def _encoded(storage: Storage, location: str, transaction: str, now: datetime) -> bytes:
    lake = identity_for(storage, location)
    return msgspec.json.encode(
        Claim(format=FORMAT, root=storage.url, transaction=transaction, claimed_at=now, lake=lake)
    )


def _is_ours(found: Claim, storage: Storage) -> bool:
    is_of_root = comparable(found.root) == comparable(storage.url)
    return is_of_root and (not found.lake or is_identity(storage, found.lake))


def _is_told_ours(found: Claim, storage: Storage, location: str, transaction: str | None = None) -> bool:
    """Tell whether a claim is surely ours: an equal root alone is not enough where it does not say which lake it is.

    To another lake of the same URL, at the server of what is a location apart to us, that place is beside its root, and
    it claims tables there without an identity. What the lake has already needs no more than `_is_ours`.
    """
    is_told = bool(found.lake) or found.transaction == transaction or not is_apart(storage, location)
    return is_told and _is_ours(found, storage)


def _is_root_beside(root: str, ours: str) -> bool:
    """Tell whether a text is the URL of a root in the same kind of store as ours."""
    if comparable(root).partition("://")[:2] != comparable(ours).partition("://")[:2]:
        return False
    try:
        return url_of(root) == root and _NO_PARTS.isdisjoint(root.split("/")[3:])
    except LockstepError:
        return False


def _read(data: bytes, path: str) -> Claim:
    try:
        found = _decode(data)
    except UNREADABLE as error:
        raise InvalidError(
            f"{path}: expected which lake the table is of: {error}. If no lake has it, delete that file"
        ) from error
    if found.format != FORMAT:
        raise InvalidError(f"{path}: format {found.format}, expected {FORMAT}: a newer Lockstep's, upgrade this one")
    return found
