"""Records of open transactions: who has had what open for how long, for people and for other processes.

    REQUESTED ── first write ──▶ INFLIGHT ──▶ COMPLETED      its entry in the timeline says so
        no record                a record  └─▶ ROLLED_BACK   `lockstep.commit.ended` keeps why

    <root>/_lockstep/open/<transaction id>.json      one `OpenRecord`, written over while the transaction lives

A record is advice, and no part of the timeline: whether a transaction is committed the timeline says alone. A process
that is killed leaves its records behind, which `OpenRecord.is_alive` tells from the others.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Annotated, NamedTuple

import msgspec

from lockstep.commit import ended as ended_records
from lockstep.commit.ended import EndedRecord, note, read_advice
from lockstep.commit.killing import Asker, end, ended_by
from lockstep.conflict.lock_policy import Time
from lockstep.errors import InvalidError, LockstepError, TransactionStateError, UnavailableError, UndefinedError
from lockstep.lake.lake import Lake
from lockstep.retry import RACE, Backoff
from lockstep.timeline.entry import Entry, Isolation, Name, Value
from lockstep.transactions.state import State
from lockstep.transactions.transaction import Transaction

FOLDER = "_lockstep/open"
FORMAT = 1
ALIVE = timedelta(seconds=60)
"""A transaction whose record is older than this is that of a process which is gone, or cannot reach the store."""
MAX_RECORDS = 10_000
"""So many records at most are read at a look."""
MAX_TABLES = 100
"""A record names so many tables at most."""
MAX_LOOK = 1_000
"""In so many entries behind its snapshot it is looked whether a transaction has ended whose process left a record."""
NO_TRANSACTION = "42704"

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_log = logging.getLogger(__name__)


class OpenRecord(Value, frozen=True):
    """What others are told of an open transaction.

    Attributes:
        format: 1; others are passed over.
        transaction: its id.
        state: REQUESTED until its first write, INFLIGHT then.
        base_version: the database version that it sees.
        began_at, seen_at: when it began, and when its process last wrote this, UTC, by that process' clock.
        process: the machine's name and the number of the process there.
        tables: those that it has written, `MAX_TABLES` at most. One that it makes under the name of another that it
            drops or renames is there twice: others, who know the other's folder by that name, do not know this one's.
        message: its comment.
        bytes_staged: how large the data files are that it has written, as far as that is known.
    """

    format: int
    transaction: str
    state: State
    base_version: int
    began_at: Time
    seen_at: Time
    isolation: Isolation
    process: str
    author: str = ""
    application: str = ""
    message: str = ""
    tables: Annotated[tuple[Name, ...], msgspec.Meta(max_length=MAX_TABLES)] = ()
    bytes_staged: int = 0

    @property
    def names(self) -> tuple[Name, ...]:
        """The names in `tables`, each once: what people are shown."""
        return tuple(dict.fromkeys(self.tables))

    def is_alive(self, now: datetime) -> bool:
        """Whether its process has been seen lately."""
        return now - self.seen_at < ALIVE

    def age_seconds(self, now: datetime) -> int:
        """For how long it has been open; nothing, where its process' clock is ahead of this one."""
        return max(0, int((now - self.began_at).total_seconds()))


_decode = msgspec.json.Decoder(OpenRecord).decode


def record_of(tx: Transaction, *, now: datetime, process: str, is_busy: bool = False) -> OpenRecord:
    """Return what others are to know of an open transaction, which nobody may change meanwhile.

    Args:
        is_busy: whether somebody may: then what it has written is left out.
    """
    return OpenRecord(
        format=FORMAT,
        transaction=tx.id,
        state=tx.state,
        base_version=tx.base.version,
        began_at=tx.began_at,
        seen_at=now,
        isolation=tx.isolation,
        process=process,
        author=tx.author,
        application=tx.application,
        message=tx.comment,
        tables=() if is_busy else _written(tx),
        bytes_staged=0 if is_busy else tx.staged_bytes(),
    )


def _written(tx: Transaction) -> tuple[Name, ...]:
    """Return the tables that a transaction has written, see `OpenRecord.tables`."""
    names: list[Name] = []
    for table in tx.written_tables():
        is_another = tx.base.table_by_id(table.id) is None and table.name in tx.base.tables
        names += [table.name] * (2 if is_another else 1)
    return tuple(names[:MAX_TABLES])


def ended(record: OpenRecord, reason: str, now: datetime) -> EndedRecord:
    """Return what is kept of a transaction that had a record, and was rolled back."""
    return EndedRecord(
        format=ended_records.FORMAT,
        transaction=record.transaction,
        reason=reason[: ended_records.MAX_REASON_CHARACTERS],
        began_at=record.began_at,
        ended_at=now,
        base_version=record.base_version,
        isolation=record.isolation,
        process=record.process,
        author=record.author,
        application=record.application,
        message=record.message,
        tables=record.names,
        bytes_staged=record.bytes_staged,
    )


def keep_ended(lake: Lake, record: OpenRecord, reason: str) -> None:
    """Keep what is known of a transaction that was ended for its process, which is gone; it is open no more.

    Raises:
        UnavailableError: the store failed.
    """
    ended_records.keep(lake, ended(record, reason, lake.clock()))
    remove(lake, record.transaction)


def write(lake: Lake, record: OpenRecord) -> None:
    """Write a transaction's record, over the one that there is.

    Raises:
        UnavailableError: the store failed.
    """
    lake.storage.put(_path(record.transaction), msgspec.json.encode(record))


def remove(lake: Lake, transaction: str) -> None:
    """Remove a transaction's record, at best effort: what stays is litter."""
    try:
        lake.storage.delete(_path(transaction))
    except UnavailableError as error:
        _log.info("the record of transaction %s stays: %s", transaction, error)


class Look(NamedTuple):
    """What a look at the records found.

    Attributes:
        still_open: the records of transactions that have not ended, as far as that is known, the oldest first.
        ended: the ids of those that have, whose records their processes left behind.
        is_all: whether these are all; there may be more records than are read at a look.
    """

    still_open: list[OpenRecord]
    ended: frozenset[str]
    is_all: bool


def look(lake: Lake) -> Look:
    """Look which transactions are open; nothing is changed.

    Raises:
        UnavailableError: the store failed.
    """
    listed = lake.storage.list(FOLDER)
    names = listed[:MAX_RECORDS]
    found = [record for record in lake.side_by_side(lambda name: _read(lake, name), names) if record is not None]
    lake.timeline.refresh()  # after the look: who ended since has an entry now
    ended = frozenset(record.transaction for record in found if _has_ended(lake, record))
    still = sorted((r for r in found if r.transaction not in ended), key=lambda record: record.began_at)
    return Look(still, ended, len(names) == len(listed))


def open_transactions(lake: Lake) -> list[OpenRecord]:
    """Return the records of transactions that have not ended, as far as that is known, the oldest first.

    Raises:
        UnavailableError: the store failed.
    """
    return look(lake).still_open


def remove_ended(lake: Lake) -> None:
    """Remove the records that processes left behind whose transactions have ended, at best effort."""
    try:
        ended = look(lake).ended
    except LockstepError as error:
        _log.info("records of ended transactions stay: %s", error)
        return
    for transaction in ended:
        remove(lake, transaction)


def with_own(lake: Lake, own: Iterable[OpenRecord]) -> list[OpenRecord]:
    """Return what is open, the oldest first: what others are told of, and all of this process, which knows better.

    Raises:
        UnavailableError: the store failed.
    """
    found = {record.transaction: record for record in open_transactions(lake)}
    # Of one that is busy this process says less than it has told others.
    found |= {record.transaction: record for record in own if record.tables or record.transaction not in found}
    return sorted(found.values(), key=lambda record: (record.began_at, record.transaction))


def abort(
    lake: Lake,
    transaction: str,
    *,
    author: str,
    statement: str,
    reason: str = "",
    snapshot: int | None = None,
    backoff: Backoff = RACE,
) -> Entry:
    """End an open transaction of any process: it can never commit from here on, and is told so.

    Args:
        author: who asks for it.
        statement: in which words, for the entry.
        reason: what its owner is told.
        snapshot: the database version that it began at, where somebody knows; its record says it otherwise.
        backoff: how often it is tried again while others win the race for the timeline.

    Returns:
        The entry that ended it, of this call or of an earlier one.

    Raises:
        InvalidError: that is no id of a transaction.
        UndefinedError (42704): no open transaction of that id is known.
        TransactionStateError (2D000): too late, it is committed.
        UnavailableError: nobody knows whether it is ended; asking again is safe.
    """
    record = _known(lake, transaction) if snapshot is None else _recorded(lake, transaction)
    if snapshot is None:
        assert record is not None, "else nobody knows of it"
        snapshot = record.base_version
    entry = end(lake, transaction, snapshot, Asker(lake.new_id(), author, reason, statement), backoff=backoff)
    if transaction not in entry.aborts:
        if entry.version >= lake.timeline.head.expired.first_kept:
            lake.timeline.secure(entry)
    elif record is not None and not record.is_alive(lake.clock()):  # else its own process, which knows more, notes it
        why = f"{author or 'somebody'} asked for that, and its process was gone{reason and f': {reason}'}"
        note(lake, ended(record, why, lake.clock()))
    remove(lake, transaction)
    if transaction not in entry.aborts:
        raise _too_late(transaction, entry)
    return entry


def look_at_abort(lake: Lake, transaction: str, *, own: OpenRecord | None = None) -> tuple[OpenRecord, Entry | None]:
    """Return what `abort` would end, and the entry that did so before; nothing is written.

    Args:
        own: the record of a transaction of this process, of which the store may have none.

    Raises:
        InvalidError, UndefinedError, TransactionStateError, UnavailableError: what `abort` would be refused for.
    """
    record = _known(lake, transaction) if own is None else own
    entry = ended_by(lake, transaction, record.base_version)
    if entry is not None and transaction not in entry.aborts:
        raise _too_late(transaction, entry)
    return record, entry


def _known(lake: Lake, transaction: str) -> OpenRecord:
    """Return the record of an open transaction.

    Raises:
        InvalidError, UndefinedError: that is no id; or none of it is known.
    """
    if (record := _recorded(lake, transaction)) is None:
        raise UndefinedError(
            f"no open transaction {transaction} is known: SHOW TRANSACTIONS lists those that there are, and one "
            "of another process only when it has written something and has been open for a second",
            sqlstate=NO_TRANSACTION,
        )
    return record


def _recorded(lake: Lake, transaction: str) -> OpenRecord | None:
    if not _ID.fullmatch(transaction):
        raise InvalidError(f"{transaction!r} is no id of a transaction: SHOW TRANSACTIONS lists those that are open")
    return _read(lake, f"{transaction}.json")


def _too_late(transaction: str, entry: Entry) -> TransactionStateError:
    return TransactionStateError(
        f"too late to abort: transaction {transaction} is committed as database version {entry.version}; "
        f"CALL system.revert({entry.version}) takes back what it did",
        sqlstate="2D000",
    )


def _has_ended(lake: Lake, record: OpenRecord) -> bool:
    head, first_kept = lake.timeline.head.version, lake.timeline.head.expired.first_kept
    # Nobody can judge what was committed since its snapshot if that has expired: it can never commit, but may read.
    if record.base_version + 1 < first_kept and not record.is_alive(lake.clock()):
        return True
    # What ended in entries that have expired passes for open: then more is kept, not less.
    since = min(max(record.base_version, first_kept - 1), head)
    entries = lake.timeline.entries(since, min(head, since + MAX_LOOK))
    return any(record.transaction in (entry.transaction.id, *entry.aborts) for entry in entries)


def _read(lake: Lake, name: str) -> OpenRecord | None:
    """Return a record; None unless it is one as it must be, of the transaction that its name says."""
    record = read_advice(lake.storage, f"{FOLDER}/{name}", _decode)
    is_sound = record is not None and record.format == FORMAT and name == f"{record.transaction}.json"
    return record if is_sound else None


def _path(transaction: str) -> str:
    return f"{FOLDER}/{transaction}.json"
