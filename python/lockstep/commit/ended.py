"""Records of transactions that were rolled back: which, whose, when, and why, for people who look later.

    <root>/_lockstep/ended/<ended at, milliseconds, 13 digits>-<transaction id>.json      one `EndedRecord`

What is committed, its entry says, and nothing here repeats it. A record is kept of what COMMIT refused for a conflict,
of a statement on its own too, and of what others could see while it was open (`lockstep.commit.records`). It is advice:
it is written behind the answer, at best effort, and nothing is decided by it. Names are in the order of time, so
whoever writes one removes what is too much without reading it, and expiry what is older than the versions that it lets
go: how long versions are kept, so long are these.
"""

from __future__ import annotations

import logging
import os
import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Annotated, TypeAlias, TypeVar

import msgspec

from lockstep.conflict.lock_policy import Time
from lockstep.conflict.writes import Conflict
from lockstep.lake.lake import Lake
from lockstep.storage import Storage
from lockstep.timeline.entry import Isolation, Name, TransactionInfo, Value
from lockstep.timeline.files import UNREADABLE
from lockstep.transactions.transaction import Transaction

FOLDER = "_lockstep/ended"
FORMAT = 1
MAX_KEPT = 1_000
"""A record is removed when there are so many newer ones, whatever its age."""
MAX_TABLES = 100
MAX_REASON_CHARACTERS = 1_000

Text: TypeAlias = Annotated[str, msgspec.Meta(max_length=MAX_REASON_CHARACTERS)]

R = TypeVar("R")

_NAME = re.compile(r"(\d{13})-[A-Za-z0-9_-]{1,64}\.json")
_log = logging.getLogger(__name__)


class Refusal(Value, frozen=True):
    """The conflict for which a COMMIT, or a statement on its own, was refused: what `Conflict` says without its text.

    Attributes:
        rule: the name of the rule, see docs/isolation.md.
        about: the table, view, namespace, tag or application that both are about.
        winner, winner_version: the other transaction, and as which database version it is committed.
    """

    rule: str
    about: str = ""
    winner: str = ""
    winner_version: int | None = None


class EndedRecord(Value, frozen=True):
    """A transaction that was rolled back.

    Attributes:
        format: 1; others are passed over.
        reason: why, for people.
        began_at, ended_at: UTC, by the clock of the process that had it open.
        base_version: the database version that it saw.
        process: the machine's name and the number of the process there; nothing, if that is not known.
        tables: those that it had written, `MAX_TABLES` at most.
        bytes_staged: how large the data files were that it had written, as far as that is known.
        conflict: what COMMIT refused it for; None, if it was ended by something else.
    """

    format: int
    transaction: str
    reason: Text
    began_at: Time
    ended_at: Time
    base_version: int
    isolation: Isolation
    process: str = ""
    author: str = ""
    application: str = ""
    message: str = ""
    tables: Annotated[tuple[Name, ...], msgspec.Meta(max_length=MAX_TABLES)] = ()
    bytes_staged: int = 0
    conflict: Refusal | None = None


_decode = msgspec.json.Decoder(EndedRecord).decode


def this_process() -> str:
    """Return the machine's name and the number of the process there, for records."""
    return f"{socket.gethostname()}:{os.getpid()}"


def note_conflict(lake: Lake, tx: Transaction, conflict: Conflict) -> None:
    """Keep why a transaction was rolled back that lost to another one, as `note` does."""
    tx.is_noted = True
    tables = [table.name for table in tx.written_tables()]
    note(lake, ended_by_conflict(tx.info(), conflict, lake.clock(), tables=tables, bytes_staged=tx.staged_bytes()))


def ended_by_conflict(
    info: TransactionInfo, conflict: Conflict, now: datetime, *, tables: Sequence[Name], bytes_staged: int
) -> EndedRecord:
    """Return the record of a transaction of this process, or of a statement on its own, that lost to another one."""
    return EndedRecord(
        format=FORMAT,
        transaction=info.id,
        reason=conflict.message[:MAX_REASON_CHARACTERS],
        began_at=info.began_at,
        ended_at=now,
        base_version=info.base_version,
        isolation=info.isolation,
        process=this_process(),
        author=info.author,
        application=info.application,
        message=info.message,
        tables=tuple(tables[:MAX_TABLES]),
        bytes_staged=bytes_staged,
        conflict=Refusal(
            rule=conflict.rule,
            about=conflict.about,
            winner=conflict.winner,
            winner_version=conflict.winner_version,
        ),
    )


def note(lake: Lake, record: EndedRecord) -> None:
    """Keep a record, behind the answer and at best effort; older ones go that there are too many of."""
    lake.upkeep.add(partial(_write, lake, record), partial(prune, lake), keys=[FOLDER])


def keep(lake: Lake, record: EndedRecord) -> None:
    """Keep a record, now; older ones go that there are too many of.

    Raises:
        UnavailableError: the store failed.
    """
    _write(lake, record)
    prune(lake)


def ended_transactions(lake: Lake) -> list[EndedRecord]:
    """Return what is kept of transactions that were rolled back, the newest first, and each once.

    Raises:
        UnavailableError: the store failed.
    """
    return [*read_ended(lake, ended_names(lake))]


def ended_names(lake: Lake) -> dict[str, list[str]]:
    """Return the names of the records that are kept, by transaction, the newest first; none of them is read.

    One that a person ended may have two: of who ended it, and of the process that had it open.

    Raises:
        UnavailableError: the store failed.
    """
    lake.upkeep.settle()  # what this process has just ended is seen by whoever looks next
    names: dict[str, list[str]] = {}
    for name in [name for name in lake.storage.list(FOLDER) if _NAME.fullmatch(name)][: -MAX_KEPT - 1 : -1]:
        names.setdefault(name[14:].removesuffix(".json"), []).append(name)
    return names


def read_ended(lake: Lake, names: Mapping[str, Sequence[str]], *, step: int = MAX_KEPT) -> Iterator[EndedRecord]:
    """Read the records of transactions, in their order; of each the oldest that is as it must be.

    Args:
        names: as `ended_names` has them, or some of these.
        step: so many transactions are read at a time at first, and then more and more: of whom a few may be enough.

    Raises:
        UnavailableError: the store failed.
    """
    left = [*names.values()]
    while left:
        some, left, step = left[:step], left[step:], min(2 * step, MAX_KEPT)
        found = iter(lake.side_by_side(partial(_read, lake), [name for each in some for name in each]))
        for each in some:
            records = [record for _ in each if (record := next(found)) is not None]
            if records:
                yield records[-1]


def prune(lake: Lake, older_than: datetime | None = None) -> None:
    """Remove the oldest of too many records, and those of what ended before a time.

    Raises:
        UnavailableError: the store failed.
    """
    names = [name for name in lake.storage.list(FOLDER) if _NAME.fullmatch(name)]
    oldest = 0 if older_than is None else _milliseconds(older_than)
    gone = [name for at, name in enumerate(names) if at < len(names) - MAX_KEPT or int(name[:13]) < oldest]
    lake.storage.delete_all(f"{FOLDER}/{name}" for name in gone)


def _write(lake: Lake, record: EndedRecord) -> None:
    name = f"{_milliseconds(record.ended_at):013d}-{record.transaction}.json"
    lake.storage.put(f"{FOLDER}/{name}", msgspec.json.encode(record))


def _read(lake: Lake, name: str) -> EndedRecord | None:
    """Return a record; None unless it is one as it must be."""
    record = read_advice(lake.storage, f"{FOLDER}/{name}", _decode)
    return record if record is not None and record.format == FORMAT else None


def read_advice(storage: Storage, path: str, decode: Callable[[bytes], R]) -> R | None:
    """Return what a file says that is advice; None if it is not there, or is not as it must be.

    Raises:
        UnavailableError: the store failed.
    """
    data = storage.get(path)
    try:
        return None if data is None else decode(data)
    except UNREADABLE as error:
        _log.info("no use of the record %s: %s", path, error)
        return None


def _milliseconds(time: datetime) -> int:
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
