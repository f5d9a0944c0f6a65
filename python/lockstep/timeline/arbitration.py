"""Arbitration: an entry of a lake that has an arbiter is decided there, and then copied into the timeline.

The arbiter holds the newest decision (`lockstep.arbiters`). To become version n, a client asks it to replace the
decision that version n - 1 is of, as the *store* has that, by its own. Then it copies its file to its name in the
store, and only then it answers. So

- what anybody reads, and what anybody was told is committed, is in the store: who only reads needs no arbiter;
- an entry is decided at most once, whatever the store does with conditions: two decisions about n replace the same
  record, and only the first of them finds it;
- what was decided and not copied, for its client died in between, is copied by whoever wants the same version next. It
  is never lost to a later decision, for that would have to follow it, and to follow it is to have read it in the store;
- an arbiter that forgot, or stands where it stood earlier, is not what the store says, and decides nothing.

A file of more than `INLINE_BYTES` does not fit into the record. It is written to the store first, under a name that its
digest tells, and whoever copies it finds it there:

    <root>/_lockstep/decided/00000000000000000007-<digest>.json

So it is with the lake's first file, whatever its size. A root's URL does not say which server a bucket is of, nor which
machine a folder: the arbiter may know a lake of the same URL in another store. Who makes a lake and finds that has
neither of the two files, and makes none. Later files are told apart by the lake's id, which is in its first.
"""

from __future__ import annotations

import hashlib
import logging
from typing import Literal, TypeAlias

import msgspec

from lockstep.arbiters import Arbiter, Decision, Mark
from lockstep.errors import ArbiterError, LockstepError, SnapshotTooOldError, UnavailableError
from lockstep.storage import Mine, Storage, Theirs
from lockstep.timeline.entry import NEW, Arbitrated
from lockstep.timeline.fence import fence, left_behind
from lockstep.timeline.files import UNREADABLE, entry_path, find, gone

INLINE_BYTES = 256 * 1024
"""So large a file is kept by the arbiter itself; an item of DynamoDB has 400 kB at most."""

FOLDER = "_lockstep/decided"

SERVER = "_lockstep/arbiter.json"
"""Which server decides, if it is another one than that which the lake was made with: {"server": identity}."""

RESEED = "lockstep arbiter --reseed"
ANOTHER = "--another-server"

Verdict: TypeAlias = Literal["ours", "theirs", "passed", "again", "elsewhere"]

_log = logging.getLogger(__name__)


def refusal(of_lake: Arbitrated | None, arbiter: Arbiter | None, root: str) -> str:
    """Return why a client may not write to a lake, given the arbiter that it is told to use; empty if it may.

    Args:
        of_lake: what the lake's entry 0 says.
        arbiter: what the client is told.
        root: the lake's, for the message.
    """
    if of_lake is None:
        if arbiter is None or arbiter.is_default:
            return ""
        return (
            f"the lake {root} has no arbiter, and this client is told to use one ({arbiter}): a lake has the arbiter "
            "that it was made with, or none. Take the setting out"
        )
    is_same = arbiter is not None and (arbiter.kind, arbiter.name) == (of_lake.kind, of_lake.name)
    if is_same:
        return ""
    told = f"another one ({arbiter})" if arbiter is not None else "none"
    return (
        f"the database versions of the lake {root} are decided by an arbiter ({of_lake.kind} {of_lake.name}), and this "
        f"client is told to use {told}: it may only read. Nothing was written; set `arbiter`, or LOCKSTEP_ARBITER"
    )


class _Server(msgspec.Struct):
    server: str


_decode_server = msgspec.json.Decoder(_Server).decode


def chosen_server(storage: Storage) -> str:
    """Return the identity of the server that somebody has chosen for a lake since it was made; empty if nobody has.

    Raises:
        UnavailableError: the store failed.
        ArbiterError: what says so cannot be read.
    """
    if (data := storage.get(SERVER)) is None:
        return ""
    try:
        return _decode_server(data).server
    except UNREADABLE as error:
        raise ArbiterError(
            f"{SERVER} in {storage.url}, which says what server decides the lake's versions, cannot be read: {error}. "
            f"Run `{RESEED} {ANOTHER} ROOT` with the right one"
        ) from error


def choose_server(storage: Storage, identity: str) -> None:
    """Have a server decide from now on; who knows another one finds out when that is checked next."""
    storage.put(SERVER, msgspec.json.encode(_Server(identity)))


def wrong_server(identity: str, known: str) -> str:
    """Return why a server may not decide for a lake, as a clause; empty if it may, or if nobody can tell.

    Args:
        identity: which server it is.
        known: which one the lake has.
    """
    if identity == known or not (identity and known):
        return ""
    return "is another server than the one that decides this lake's versions, or lost all that it had"


def digest_of(data: bytes) -> str:
    """Return by which digest a file is decided."""
    return hashlib.sha256(data).hexdigest()


def staged_path(decision: Decision) -> str:
    """Return where a file lies that was, or is to be, decided and does not fit into the record."""
    return f"{FOLDER}/{decision.first:020d}-{decision.digest}.json"


def judge(found: Decision | None, before: Mark | None, wanted: Decision) -> Verdict | str:
    """Return what it means that an arbiter did not take a decision, given what it has instead.

    Args:
        found: what it has.
        before: what the decision was to follow, as the store has that; None for a lake that is being made.
        wanted: the decision.

    Returns:
        ours: it has this very decision, from an earlier request.
        theirs: it has another one about the same version, which may not be in the store yet.
        passed: it has a later one, so the store has the version.
        again: it has now what the decision was to follow.
        elsewhere: it knows a lake, and the decision was to make one.
        Else what is wrong, as a clause: nothing can be decided until a person has looked.
    """
    if found is None:
        return "holds nothing of this lake: it lost what it had, or is another one, or the lake was copied or moved"
    if (found.first, found.digest) == (wanted.first, wanted.digest):
        return "ours"
    if before is None:
        return "theirs" if found.first == 0 else "elsewhere"
    if found.lake != before.lake:
        return "holds the record of another lake, which had this root before"
    if found.mark == before:
        return "again"
    if found.first == wanted.first:
        return "theirs"
    if found.first > wanted.first:
        return "passed"
    if found.last < before.last:
        return f"stands at database version {found.last}, behind the store, which has {before.last}: it forgot"
    return f"decided another database version {found.last} than the store has"


def after_failure(
    error: LockstepError, there: bytes | UnavailableError | None, data: bytes, *, may_be_decided: bool
) -> Mine | Theirs | LockstepError:
    """Return what a failure says of a file of the timeline; what is committed must never be said not to be.

    Args:
        error: the failure.
        there: what the store has under the file's name; the failure to find out; None for nothing.
        data: the file.
        may_be_decided: whether a request to decide it, now or earlier, may have been carried out. An arbiter that knows
            nothing of it proves nothing then: another process may have copied it, and the arbiter forgotten it since.
    """
    if not may_be_decided:
        return error.saying(error.message, definite=True) if isinstance(error, UnavailableError) else error
    if isinstance(there, bytes):
        return Mine() if there == data else Theirs(there)
    if there is None and isinstance(error, SnapshotTooOldError):
        return error  # it has expired, or never was: the history tells
    return UnavailableError(
        f"whether this was committed is not known: a request to the lake's arbiter may have been carried out. After "
        f"that, {error.message}"
    )


class Arbitration:
    """How the entries of one lake are decided, by one process; `put` is called by one thread at a time.

    Attributes:
        arbiter: what decides.
        lake: the id of the transaction that made the lake, by which the arbiter knows it.
        server: the identity of the server that the lake was made with; empty if it is not known.
    """

    def __init__(self, storage: Storage, arbiter: Arbiter, lake: str, server: str = "") -> None:
        self.arbiter = arbiter
        self.lake = lake
        self.server = server
        self._storage = storage
        self._newest: Mark | None = None  # of what this process has put, or copied, last
        self._in_doubt = NEW  # the first version of a file of which nobody knew whether it was decided

    def put(self, first: int, last: int, data: bytes) -> Mine | Theirs:
        """Make a file the one of its versions, unless another one is; as `Storage.put_if_absent`.

        Raises:
            UnsupportedError: the arbiter may forget; nothing was decided.
            UnavailableError: the store or the arbiter failed. Unless it is `definite`, the file may have been decided
                all the same, or be decided later: put it again.
            SnapshotTooOldError: what has the version has expired.
            ArbiterError: the arbiter and the store disagree; nothing of this file is committed, or will be.
        """
        # Of a lake's first file the arbiter never has more than the digest: see the module.
        is_inline = first > 0 and len(data) <= INLINE_BYTES
        wanted = Decision(self.lake, first, last, digest_of(data), data if is_inline else None)
        try:
            answer = self._put(wanted, data)
        except LockstepError as error:
            may_be_decided = self._in_doubt == first
            there = self._there(wanted, data) if may_be_decided else None
            match after_failure(error, there, data, may_be_decided=may_be_decided):
                case LockstepError() as said:
                    raise said from error
                case answer:
                    _log.warning("the store tells what became of %s: %s", entry_path(first), error)
        self._in_doubt = NEW
        return answer

    def accept(self, identity: str) -> None:
        """Raise unless a server may decide for the lake, see `Arbiter.check`.

        Raises:
            ArbiterError: it is another one.
            UnavailableError: the store failed.
        """
        if wrong := wrong_server(identity, chosen_server(self._storage) or self.server):
            raise ArbiterError(
                f"the arbiter ({self.arbiter}) {wrong}. Two servers that decide would lose commits, so nothing can be "
                "committed here. Name the lake's own server; if nobody reaches that any more, see that the store has "
                f"all that was committed and that nobody writes, then run `{RESEED} {ANOTHER} ROOT`"
            )

    def _put(self, wanted: Decision, data: bytes) -> Mine | Theirs:
        """Do what `put` says; from when a file may be decided until its fate is known, its version is in doubt."""
        before = self._before(wanted.first)
        if wanted.data is None:
            self._storage.put_durably(staged_path(wanted), data)
        was, self._in_doubt = self._in_doubt, wanted.first  # also for who is interrupted
        try:
            swapped = self.arbiter.swap(before, wanted, self.accept)
        except LockstepError as error:
            if not isinstance(error, UnavailableError) or error.definite:
                self._in_doubt = was
            raise
        if not (swapped.is_recorded or swapped.may_have_been):
            self._in_doubt = was
        return self._copied(wanted, data) if swapped.is_recorded else self._settled(before, wanted, data)

    def _there(self, wanted: Decision, data: bytes) -> bytes | UnavailableError | None:
        """Return what the store has under a file's name, durably if it is that file."""
        path = entry_path(wanted.first)
        try:
            if (there := self._storage.get(path)) != data:
                return there
            answer = self._storage.put_if_absent(path, data)  # who copied it may have failed before it was durable
        except UnavailableError as error:
            return error
        if isinstance(answer, Theirs):
            return answer.data
        self._newest = wanted.mark
        return data

    def _before(self, first: int) -> Mark | None:
        """Return what a file is to follow, as the store has it; None before the first."""
        if first == 0:
            return None
        if self._newest is None or self._newest.last != first - 1:
            if (file := find(self._storage, first - 1)) is None:
                raise gone(self._storage, first - 1, first - 1)
            self._newest = Mark(self.lake, file.last, digest_of(file.data))
        return self._newest

    def _settled(self, before: Mark | None, wanted: Decision, data: bytes) -> Mine | Theirs:
        """Tell what has the versions of a file that the arbiter did not take."""
        found = self.arbiter.read()
        match judge(found, before, wanted):
            case "ours":
                self._in_doubt = wanted.first
                return self._copied(wanted, data)
            case "theirs" if found is not None:
                return self._of_others(wanted, copy_decided(self._storage, self.arbiter, found))
            case "passed":
                there = self._storage.get(entry_path(wanted.first))
                if there == data:
                    self._in_doubt = wanted.first
                    return self._copied(wanted, data)
                if there is not None:
                    return self._of_others(wanted, there)
                if first_kept := fence(self._storage, wanted.first):
                    raise left_behind(wanted.first - 1, first_kept)
                raise disagreement(self.arbiter, f"has decided {entry_path(wanted.first)}, which the store lacks")
            case "again":
                raise UnavailableError(f"the arbiter ({self.arbiter}) was set anew meanwhile")
            case "elsewhere" if found is not None:
                raise known_elsewhere(self._storage, self.arbiter, found)
            case wrong:
                raise disagreement(self.arbiter, wrong)

    def _copied(self, decision: Decision, data: bytes) -> Mine:
        copy(self._storage, self.arbiter, decision, data)
        self._newest = decision.mark
        return Mine()

    def _of_others(self, wanted: Decision, there: bytes) -> Theirs:
        if wanted.data is None:
            remove_staged(self._storage, wanted)
        return Theirs(there)


def copy_decided(storage: Storage, arbiter: Arbiter, found: Decision) -> bytes:
    """Copy a decision into the timeline, for a client that has not done it, and return the file.

    Raises:
        UnavailableError: the store failed.
        ArbiterError: the store has another file there, or the file is lost.
    """
    path = entry_path(found.first)
    data = found.data
    if data is None:
        # Whoever copies it removes it then, so it is at one of the two places, looked at in this order.
        data = storage.get(staged_path(found)) or storage.get(path)
    if data is None and found.first == 0:
        raise known_elsewhere(storage, arbiter, found)
    if data is None or digest_of(data) != found.digest:
        raise disagreement(arbiter, f"has decided {path}, and what it decided is lost")
    copy(storage, arbiter, found, data)
    return data


def copy(storage: Storage, arbiter: Arbiter, decision: Decision, data: bytes) -> None:
    """Write what was decided into the timeline, unless it is there.

    Raises:
        UnavailableError: the store failed; whoever comes next does it.
        ArbiterError: the store has another file there.
    """
    path = entry_path(decision.first)
    if isinstance(storage.put_if_absent(path, data), Theirs):
        raise disagreement(arbiter, f"has decided another {path} than the store has")
    if decision.data is None:
        remove_staged(storage, decision)


def remove_staged(storage: Storage, decision: Decision) -> None:
    """Remove what nobody needs any more, at best effort."""
    try:
        storage.delete(staged_path(decision))
    except UnavailableError as error:
        _log.warning("%s stays, which does no harm: %s", staged_path(decision), error)


def sweep_staged(storage: Storage, first_kept: int) -> None:
    """Delete what killed clients staged for versions that have expired, and so are in the timeline or were others'.

    Raises:
        UnavailableError: the store failed.
    """
    for name in storage.list(FOLDER):
        if name[:20].isdecimal() and int(name[:20]) < first_kept:
            storage.delete(f"{FOLDER}/{name}")


def known_elsewhere(storage: Storage, arbiter: Arbiter, found: Decision) -> ArbiterError:
    """Return what to say to who wants to make a lake where an arbiter knows one that the store does not have."""
    return ArbiterError(
        f"the arbiter ({arbiter}) knows a lake at {storage.url} already, at database version {found.last}, which this "
        f"store does not have. It was deleted, or it lies in another store, or on another machine, that has the same "
        f"URL. No lake was made here. If there is such a lake, give this one {arbiter.alternative}; if it is gone for "
        f"good, delete {arbiter.place} there, and try again"
    )


def disagreement(arbiter: Arbiter, what: str) -> ArbiterError:
    """Return what to say of an arbiter that does not fit the store."""
    return ArbiterError(
        f"the arbiter ({arbiter}) {what}. Nothing can be committed until that is settled. See that the store has all "
        f"that was committed and that nobody writes, then run `{RESEED} ROOT`"
    )
