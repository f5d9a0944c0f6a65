"""Announcements of open transactions, and what a statement does about those of others: wait, die, or wound.

    <root>/_lockstep/announced/<table id>/<transaction id>.json      one `Announcement`, written over as it grows

A statement that staged a commit first says what it replaced and then looks what others said, so of two that race at
least one sees the other. `lockstep.conflict.lock_policy` decides; here is the storage, the waiting and the killing.

Killing is an `abort` entry of the timeline (`lockstep.commit.killing`). Announcements themselves are advice. One that
is lost, late, or expired by a wrong clock costs an early answer, and the check at COMMIT gives it later; so a store
that fails here is logged, and the statement goes on.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import timedelta

import msgspec

from lockstep.commit.ended import note_conflict
from lockstep.commit.killing import Asker, end
from lockstep.conflict.lock_policy import (
    FORMAT,
    Announcement,
    Claim,
    Die,
    Go,
    Resolution,
    Verdict,
    Wait,
    Wound,
    resolve,
)
from lockstep.conflict.writes import ABORTED, Changes, Conflict, first_conflict
from lockstep.delta.footprint import Footprint
from lockstep.delta.log import read_staged
from lockstep.delta.real_paths import real_paths
from lockstep.errors import ConflictError, CorruptTimelineError, NoTransactionError, UnavailableError
from lockstep.lake.lake import Lake
from lockstep.retry import POLL, RACE, Backoff
from lockstep.timeline.entry import NEW, Entry, Table
from lockstep.timeline.files import UNREADABLE
from lockstep.transactions.state import State
from lockstep.transactions.transaction import Transaction

FOLDER = "_lockstep/announced"
MAX_OTHERS = 256
"""How many announcements of one table are read at a look; of more, the rest is left to the check at COMMIT."""

GIVES_WAY = "wait-die"
WAITED = "lock-timeout"
"""The rules by which a statement is refused for one that is still open."""

_decode = msgspec.json.Decoder(Announcement).decode
_log = logging.getLogger(__name__)


class Announcer:
    """Announces the transactions of one catalog; safe to share between threads, as the catalog is."""

    def __init__(self, lake: Lake, resolution: Resolution, *, poll: Backoff = POLL, backoff: Backoff = RACE) -> None:
        """Use this policy.

        Args:
            poll: how often a waiting statement looks; its timeout comes from the policy.
            backoff: how often a kill that lost a race for the timeline is tried again.
        """
        self._backoff = backoff
        self._lake = lake
        self._resolution = resolution
        self._poll = replace(poll, timeout_seconds=resolution.lock_timeout_seconds)
        self._announcements: dict[str, _Announced] = {}
        self._refused: dict[str, Conflict] = {}

    @property
    def is_needed(self) -> bool:
        """Whether the policy is one that announces anything."""
        return self._resolution.policy != "first-committer-wins"

    def claim(self, tx: Transaction, table: Table, version: int, *, lock: AbstractContextManager[object]) -> None:
        """Announce a commit that was staged, and wait until nobody older (or younger) is in its way.

        Args:
            lock: what every other change of the transaction holds. It is not held while this waits, so the transaction
                may be committed, rolled back, or taken back to a savepoint meanwhile: then there is nothing to refuse.

        Raises:
            ConflictError: this transaction has to give way, was killed, waited too long, or has lost already: another
                committed first. It can only be rolled back now, and what it announced is gone.
            FailedTransactionError: another statement of it was told so while this one waited.
            NoTransactionError: it was rolled back while this waited.
        """
        if not self.is_needed or table.version == NEW:  # nobody else knows a new table
            return
        staged = _Staged(tx, table, version, tx.epoch)
        try:
            actions = real_paths(read_staged(self._lake.storage, table.location, tx.id, version))
            footprint = self._lake.past.footprint(actions, table.location, before=table.version)
            conflict = self._refusal(staged, footprint)
        except UnavailableError as error:
            _log.warning("table %s: conflicts are left to COMMIT of transaction %s: %s", table.name, tx.id, error)
            return
        except CorruptTimelineError:
            if staged.is_undecided():
                raise
            conflict = None  # it is gone because another thread has taken it back
        with lock:  # a COMMIT that is under way ends first
            if tx.state is State.ROLLED_BACK:
                raise NoTransactionError(
                    f"transaction {tx.id} was rolled back while this statement waited for another transaction; nothing "
                    "of it is in any table. Run it again in a new transaction"
                )
            if not staged.is_undecided():
                return
            tx.check_sound()
            if conflict is None:
                return
            tx.failure = conflict.message
            self._refused[tx.id] = conflict
        self.withdraw(tx)
        raise ConflictError(conflict.message)

    def withdraw(self, tx: Transaction) -> None:
        """Take back all that a transaction announced, at best effort: what stays expires.

        Of one that was refused here, and is rolled back now, it is kept why.
        """
        if (announcements := self._announcements.pop(tx.id, None)) is not None:
            for table in announcements.close():
                self._remove(table, tx.id)
        if tx.is_open or (conflict := self._refused.pop(tx.id, None)) is None:
            return
        if tx.state is State.ROLLED_BACK and not tx.is_noted:
            note_conflict(self._lake, tx, conflict)

    # --- one statement ------------------------------------------------------------------------------------------------

    def _refusal(self, staged: _Staged, footprint: Footprint) -> Conflict | None:
        """Return None once the statement may go on, or why it may not."""
        tx, table = staged.tx, staged.table
        announcements = self._announcements.setdefault(tx.id, _Announced())
        claim = Claim.of(footprint)
        with announcements.lock:
            if announcements.is_closed or not staged.is_undecided() or tx.failure is not None:
                return None  # who ended it looks for announcements after that
            earlier_claim = announcements.claim(table.id)
            new_claim = claim.beyond(earlier_claim)
            mine = announcements.by_table[table.id] = self._announcement(tx, table, claim.both(earlier_claim))
            self._write(table.id, mine)
        version = tx.base.version
        verdict: Verdict = Go()
        for _ in self._poll.tries():
            if not staged.is_undecided() or tx.failure is not None:
                return None
            self._renew(announcements)
            if new_claim is not None:
                verdict = self._verdict(tx, mine, new_claim, table.id)
            else:
                self._lake.timeline.refresh()
            head = self._lake.timeline.head.version
            winners = self._lake.timeline.scan(version, head)
            if (conflict := self._conflict(tx, table, footprint, winners)) is not None:
                return conflict
            version = head
            match verdict:
                case Go():
                    return None
                case Die(other):
                    why = (
                        f"{_description(other)}, has changed the same files of table {table.name}, or its schema, and "
                        "is older, so this transaction gives way (wait-die). Nothing of it was committed; run it again."
                    )
                    return Conflict(GIVES_WAY, why, str(table.name), other.transaction)
        waited_for = verdict.on[0] if isinstance(verdict, Wait) else mine
        why = (
            f"{_description(waited_for)}, has changed the same files of table {table.name}, or its schema, and did not "
            f"end within lock-timeout ({self._resolution.lock_timeout_seconds} s). Nothing of this transaction was "
            "committed; run it again."
        )
        return Conflict(WAITED, why, str(table.name), waited_for.transaction)

    def _verdict(self, tx: Transaction, mine: Announcement, new_claim: Claim, table: str) -> Verdict:
        """Look at the others, kill those that are to be wounded, and return what is left to do: no Wound."""
        others, now = self._others(table, tx.id), self._lake.clock()
        verdict = resolve(mine, new_claim, others, self._resolution.policy, now=now)
        if not isinstance(verdict, Wound):
            return verdict
        for victim in verdict.whom:
            self._wound(tx, victim)
            self._remove(table, victim.transaction)
        survivors = [other for other in others if other not in verdict.whom]
        return resolve(mine, new_claim, survivors, self._resolution.policy, now=now)

    def _conflict(
        self, tx: Transaction, table: Table, footprint: Footprint, winners: Iterable[Entry]
    ) -> Conflict | None:
        """Return why COMMIT could only fail, because of what this statement did; None as far as these winners go."""
        mine = Changes(tx.id, writes={table.id: footprint}, names={table.id: table.name})
        for entry in winners:
            if entry.transaction.id == tx.id:  # another thread commits it while this statement waits
                return None
            # Whether rows of one file are the same is read from deletion vectors, at COMMIT.
            conflict = first_conflict(mine, self._lake.past.of(entry), same_rows=lambda *_: None)
            if conflict is not None and conflict.rule != ABORTED:  # what a person asked for is no race: COMMIT says it
                return conflict
        return None

    def _wound(self, tx: Transaction, victim: Announcement) -> None:
        """See that a younger transaction has ended, committed or not, see `lockstep.commit.killing.end`."""
        asker = Asker(tx.id, tx.author, f"wounded by transaction {tx.id}, which is older")
        entry = end(self._lake, victim.transaction, victim.base_version, asker, backoff=self._backoff)
        _log.info("database version %d: the end of transaction %s", entry.version, victim.transaction)

    def _has_ended(self, other: Announcement, through: int) -> bool:
        """Tell whether the timeline has the commit or the end of a transaction, up to this database version."""
        base = max(0, min(other.base_version, through))
        if base + 1 < self._lake.timeline.head.expired.first_kept:
            return True  # nobody can judge what was committed since, so it can never commit
        since = self._lake.timeline.scan(base, through)
        return any(other.transaction in (entry.transaction.id, *entry.aborts) for entry in since)

    # --- the files ----------------------------------------------------------------------------------------------------

    def _announcement(self, tx: Transaction, table: Table, claim: Claim) -> Announcement:
        now = self._lake.clock()
        return Announcement(
            format=FORMAT,
            transaction=tx.id,
            base_version=tx.base.version,
            began_at=tx.began_at,
            announced_at=now,
            expires_at=now + timedelta(seconds=self._resolution.expiry_seconds),
            table=table.name,
            whole=claim.whole,
            files=claim.files,
        )

    def _renew(self, announcements: _Announced) -> None:
        """Write those again that a third of their time has gone by of, so that two renewals may fail."""
        now, lasts = self._lake.clock(), timedelta(seconds=self._resolution.expiry_seconds)
        with announcements.lock:
            if announcements.is_closed:
                return
            for table, mine in announcements.by_table.items():
                if now - mine.announced_at > lasts / 3:
                    renewal = msgspec.structs.replace(mine, announced_at=now, expires_at=now + lasts)
                    announcements.by_table[table] = renewal
                    self._write(table, renewal)

    def _others(self, table: str, transaction_id: str) -> list[Announcement]:
        """Read the others' announcements; those of the ended and the expired are removed and left out."""
        names = self._lake.storage.list(f"{FOLDER}/{table}")[:MAX_OTHERS]
        announcements = [self._read(table, name) for name in names if name != f"{transaction_id}.json"]
        self._lake.timeline.refresh()  # after the look: who is not announced any more may have committed
        others, now, version = [], self._lake.clock(), self._lake.timeline.head.version
        for other in announcements:
            if other is None:
                continue
            if other.expires_at <= now or self._has_ended(other, version):
                self._remove(table, other.transaction)
            else:
                others.append(other)
        return others

    def _read(self, table: str, name: str) -> Announcement | None:
        """Read an announcement; None unless it is one as it must be, of the transaction that its name says."""
        path = f"{FOLDER}/{table}/{name}"
        data = self._lake.storage.get(path)
        try:
            announcement = None if data is None else _decode(data)
        except UNREADABLE as error:
            _log.info("no use of the announcement %s: %s", path, error)
            return None
        is_sound = (
            announcement is not None and announcement.format == FORMAT and name == f"{announcement.transaction}.json"
        )
        return announcement if is_sound else None

    def _write(self, table: str, mine: Announcement) -> None:
        self._lake.storage.put(_path(table, mine.transaction), msgspec.json.encode(mine))

    def _remove(self, table: str, transaction: str) -> None:
        try:
            self._lake.storage.delete(_path(table, transaction))
        except UnavailableError as error:
            _log.info("an announcement stays until it expires: %s", error)
        except Exception:  # noqa: BLE001 (logged; also asked for after a commit, which may not fail for it)
            _log.exception("the announcement of transaction %s stays until it expires", transaction)


@dataclass(frozen=True, slots=True)
class _Staged:
    """A commit that was staged, and is waiting to be told whether it may stay.

    Attributes:
        epoch: the transaction's when it was staged: a savepoint that it goes back to begins another.
    """

    tx: Transaction
    table: Table
    version: int
    epoch: int

    def is_undecided(self) -> bool:
        """Whether it is part of the transaction still, and no COMMIT has taken it over."""
        tx = self.tx
        is_staged = tx.epoch == self.epoch and self.version in tx.staged.get(self.table.id, ())
        return tx.is_open and tx.in_doubt is None and is_staged


@dataclass(slots=True)
class _Announced:
    """What one transaction has announced, by table id. Statements of several threads may wait at once."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    by_table: dict[str, Announcement] = field(default_factory=dict)
    is_closed: bool = False

    def claim(self, table: str) -> Claim | None:
        """Return what it holds of a table."""
        announcement = self.by_table.get(table)
        return None if announcement is None else Claim(announcement.files, announcement.whole)

    def close(self) -> list[str]:
        """Have nothing announced any more, and return the tables that something was announced of."""
        with self.lock:
            self.is_closed = True
            return list(self.by_table)


def _path(table: str, transaction: str) -> str:
    return f"{FOLDER}/{table}/{transaction}.json"


def _description(other: Announcement) -> str:
    return f"transaction {other.transaction}, begun at {other.began_at.isoformat()}"
