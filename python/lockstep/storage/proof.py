"""Whether a store lets exactly one of several writers of one name win: tried before a lake trusts it.

Servers that ignore the condition of a conditional write, or look first and write then, look like any other store until
two commits meet, and then one of them is lost and nobody is told. So writers race before the first entry of a lake is
written, and the first time that a store is used under another address. What came of it is kept in the root:

    <root>/_lockstep/store/<digest of the address>.json     one `Proof`

Of a store outside of the root, in which adopted tables lie, it is kept in the lake's root, too.

A race is a sample. It finds a store that ignores the condition at once, and one that looks and then writes if the
moment in between is as long as it takes to write a few kilobytes. docs/storage.md says what it cannot find.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from lockstep.errors import CorruptTimelineError, UnavailableError, UnsupportedError
from lockstep.storage import Mine, Storage, Theirs
from lockstep.storage.failures import refuses_conditions

FOLDER = "_lockstep/store"
PROBES = "_lockstep/race"
"""Below it lies what the writers write; removed after each race."""

WRITERS = 8
SIZES = (100, 100, 64 * 1024, 100, 64 * 1024, 100, 64 * 1024, 100)
"""Bytes of the objects of each round. Large ones find a store that looks before it has read what it is to write."""

START_SECONDS = 30
"""So long the writers of a round wait for each other."""

_log = logging.getLogger(__name__)


class Proof(msgspec.Struct, frozen=True, omit_defaults=True):
    """What came of the race, as it is kept.

    Attributes:
        store: the address that was raced against, in words.
        wrong: what was wrong; empty if nothing was.
    """

    store: str
    wrong: str = ""


def judge(written: Sequence[bytes], answers: Sequence[Mine | Theirs], found: bytes | None) -> str:
    """Return what is wrong with what the writers of one name were told; nothing, if all is well.

    Args:
        written: what each of them wrote, all different.
        answers: what each was told.
        found: what the name holds afterwards.
    """
    winners = [data for data, answer in zip(written, answers, strict=True) if isinstance(answer, Mine)]
    if len(winners) != 1:
        return f"{len(winners)} of {len(written)} writers of one new object were told that it is theirs"
    if found != winners[0]:
        return f"of {len(written)} writers of one new object one was told that it is its own, and it is not"
    if any(isinstance(answer, Theirs) and answer.data != winners[0] for answer in answers):
        return "a writer that came second was shown an object that is not there"
    return ""


def race(storage: Storage, *, sizes: Iterable[int] = SIZES, folder: str | None = None) -> str:
    """Let writers race for new objects, and return what was wrong; nothing, if all was well.

    Args:
        sizes: of the objects, in bytes: one a round.
        folder: what they are written to, which is removed; nobody else may use it.

    Raises:
        UnavailableError: the store failed, or cannot be written, or the writers' threads cannot be started.
    """
    folder = folder or f"{PROBES}/{secrets.token_hex(8)}"
    start = threading.Barrier(WRITERS, timeout=START_SECONDS)

    def write(path: str, data: bytes) -> Mine | Theirs:
        start.wait()
        return storage.put_if_absent(path, data)

    def answers_of(pool: ThreadPoolExecutor, path: str, written: Sequence[bytes]) -> list[Mine | Theirs]:
        try:
            return [*pool.map(write, [path] * WRITERS, written)]
        except RuntimeError as error:  # a broken barrier, too
            start.abort()  # those that wait for a thread that never comes
            raise UnavailableError(
                f"{storage.address} cannot be raced: {WRITERS} threads were not running within {START_SECONDS} seconds "
                f"({str(error) or 'some did not start'}). Allow this process more threads, and try again"
            ) from error

    def rounds() -> str:
        with ThreadPoolExecutor(WRITERS, thread_name_prefix="lockstep-race") as pool:
            for number, size in enumerate(sizes):
                path = f"{folder}/{number}"
                written = [bytes([writer]) * size for writer in range(WRITERS)]
                answers = answers_of(pool, path, written)
                if wrong := judge(written, answers, storage.get(path)):
                    return wrong
                if str(number) not in storage.list(folder):
                    return "an object that was just written is not in the listing of its folder"
        return ""

    try:
        return rounds()
    except UnavailableError as error:
        if not refuses_conditions(error.message):
            raise
        storage.put(f"{folder}/plain", b"")  # else it is not this that keeps writers out
        return "it knows no conditional writes (501)"
    finally:
        try:
            storage.delete_folder(folder)
        except UnavailableError as error:  # litter of some kilobytes, which must not hide what the race showed
            _log.warning("what a race wrote is still there: %s", error)


def prove(storage: Storage, *, kept_in: Storage | None = None, folder: str = PROBES) -> None:
    """Race, unless the operating system vouches for the store or a race is remembered; remember it then.

    Args:
        storage: the store that is to be raced.
        kept_in: the store of the lake's root, if that is another one: the answer is kept there.
        folder: below it the writers write.

    Raises:
        UnsupportedError: the store does not keep its promise, now or when it was raced. Nothing else was written.
        UnavailableError: the store failed, or cannot be written.
        CorruptTimelineError: what is remembered cannot be read.
    """
    if storage.is_proven_by_use:
        return
    root = kept_in or storage
    path = path_of(storage.address)
    if (known := root.get(path)) is None:
        known = _raced(storage, root, path, folder)
    if wrong := _decoded(path, known).wrong:
        raise UnsupportedError(
            f"{storage.address} cannot hold a lake: {wrong}. Commits would be lost there without a word. Use a "
            "store whose conditional writes (If-None-Match: *) are atomic, or make the lake with an arbiter "
            f"(docs/storage.md); if the store has been mended, delete {path} in {root.url} and try again"
        )


def prove_or_look(storage: Storage, *, is_arbitrated: bool) -> None:
    """Race, and where an arbiter decides what matters, do without conditional writes in a store that has none.

    Raises:
        UnsupportedError, UnavailableError, CorruptTimelineError: see `prove`; the first only if there is no arbiter.
    """
    try:
        prove(storage)
    except UnsupportedError as error:
        if not is_arbitrated:
            raise
        _log.info("looks first, and then writes: %s", error)
        storage.look_first()


def _raced(storage: Storage, root: Storage, path: str, folder: str) -> bytes:
    """Race, and return what is remembered of the store then.

    Two processes may race at once, and one of them by luck find nothing in a store that the other found wrong. So what
    is wrong is put over anything, and that all is well only where nothing is.
    """
    wrong = race(storage, folder=f"{folder}/{secrets.token_hex(8)}")
    proof = msgspec.json.encode(Proof(store=storage.address, wrong=wrong))
    _log.info("raced for new objects in %s: %s", storage.address, wrong or "each had one winner")
    if wrong:
        root.put(path, proof)
        return proof
    if (theirs := root.get(path)) is not None:  # whoever ignores conditions would write over it
        return theirs
    match root.put_if_absent(path, proof):
        case Mine():
            return proof
        case Theirs(theirs):
            return theirs


def path_of(address: str) -> str:
    """Return where the answer of the store at an address is kept."""
    return f"{FOLDER}/{hashlib.sha256(address.encode()).hexdigest()[:16]}.json"


_DECODER = msgspec.json.Decoder(Proof)


def _decoded(path: str, data: bytes) -> Proof:
    try:
        return _DECODER.decode(data)
    except msgspec.MsgspecError as error:
        raise CorruptTimelineError(
            f"{path} cannot be read ({error}): delete it, and the store is raced again"
        ) from error
