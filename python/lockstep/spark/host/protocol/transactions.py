"""Requests about sessions' transactions, and their answers."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from lockstep.spark.host.protocol.base import Answer, Options, Read, RequestBase, Settings
from lockstep.timeline.entry import Batch, Isolation

# --- beginning --------------------------------------------------------------------------------------------------------


class CheckSetting(RequestBase, frozen=True, kw_only=True, tag="check_setting"):
    """Ask whether a session may set one of Lockstep's settings so: `SET lockstep.<name> = <value>`."""

    name: str
    """The setting's whole name, as it was said."""

    value: str
    """What it is to be."""


class NextBatch(RequestBase, frozen=True, kw_only=True, tag="batch"):
    """Say which micro-batch the session's next BEGIN carries out.

    It is said beside BEGIN, and for one BEGIN only: a setting of the session that outlived its transaction would make
    replays, whose work is dropped, of all that follow.
    """

    batch: Batch | None = None
    """The micro-batch; None takes back what was said."""


class Begin(RequestBase, frozen=True, kw_only=True, tag="begin"):
    """BEGIN, or START TRANSACTION."""

    catalogs: dict[str, Options]
    """What is set for each Lockstep catalog of the session, by its name: nothing of it may be logged or shown."""

    current: str | None
    """The session's current catalog, if it is one of these."""

    case_sensitive: bool
    """Whether names that differ in case alone are two to this session."""

    settings: Settings
    """All that the session sets as `lockstep.<key>`, by the key, known or not."""

    isolation: Isolation | None = None
    """The level that the statement asks for; None: what the settings say."""

    read_only: bool = False
    """Whether it said READ ONLY."""

    comment: str = ""
    """What it said as COMMENT."""

    as_of_version: int | None = None
    """The database version that it said AS OF VERSION; of the three at most one is said."""

    as_of_micros: int | None = None
    """The time that it said AS OF TIMESTAMP: microseconds since 1970, UTC."""

    as_of_tag: str | None = None
    """The tag that it said AS OF TAG."""


class BeginAnswer(Answer, frozen=True, kw_only=True):
    """The transaction that has begun."""

    database_version: int
    """Its snapshot."""

    transaction_id: str
    """Its id, unique for ever."""

    catalog: str
    """The name of its catalog in the session."""

    root: str
    """The URL of its lake's root."""

    kept_seconds: int
    """How long it waits for another client, if it is shared and the last one has gone."""

    idle_millis: int
    """How long it may be open without a statement being executed, in milliseconds; 0 is for ever."""

    statement_millis: int
    """How long a statement of it may run, in milliseconds; 0 is for ever."""


class Begun(RequestBase, frozen=True, kw_only=True, tag="begun"):
    """Ask what BEGIN found of its micro-batch's application."""


class BegunAnswer(Answer, frozen=True, kw_only=True):
    """How a transaction's micro-batch stands."""

    batch: Batch | None
    """What the transaction carries out. None: no batch, or one of which a host was told that has ended since."""

    last_batch: int | None
    """The application's last recorded batch in the snapshot; None: there is none, or the transaction is no batch."""

    is_replay: bool
    """Whether the transaction's batch is recorded already, so that all it does is dropped."""


# --- ending -----------------------------------------------------------------------------------------------------------


class Commit(RequestBase, frozen=True, kw_only=True, tag="commit"):
    """COMMIT."""

    failure: str | None
    """What the first write that failed said, since BEGIN or the savepoint that was gone back to; None: none failed."""

    reads: tuple[Read, ...]
    """What its statements have read."""

    settled: tuple[int, ...]
    """The loadings of tables of which `reads` has all; the others, see `Resolve.touch`, may have read any row."""

    unused: tuple[int, ...]
    """The loadings that were asked for ahead, see `Resolve.ahead`, and of which there were none: they read nothing."""


class Used(Answer, frozen=True, kw_only=True):
    """What nobody may use any more: Delta and Spark keep logs and rows of it. It is told once."""

    uris: list[str]
    """The URIs that the transaction was given, sorted."""

    tables: list[list[str]]
    """The names of their tables in parts, the catalog first, sorted."""


class Ended(RequestBase, frozen=True, kw_only=True, tag="ended"):
    """Ask whether the transaction is over, where no answer says so: a refused COMMIT may leave it open."""


class EndedAnswer(Used, frozen=True, kw_only=True):
    """Whether it is, and then what nobody may use any more."""

    open: bool
    """Whether the transaction is still open; then nothing is listed."""


class DueCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint that Delta would have written, had it committed this itself."""

    uri: str
    """The table's."""

    version: int
    """The table version that it is to be of."""


class CommitAnswer(Answer, frozen=True, kw_only=True):
    """What COMMIT tells its user, and what is left to do for the shim."""

    database_version: int
    """The version that it made, or its snapshot if it changed nothing."""

    transaction_id: str
    """The transaction's id."""

    tables_changed: int
    """Tables that were written, made, renamed or dropped."""

    files_added: int
    """Data files that the tables have now and had not."""

    files_removed: int
    """Data files that the tables had and have no more."""

    rows_added: int | None
    """Rows in the files that were added; None is not known."""

    rows_removed: int | None
    """Rows that are gone with the files that were removed; None is not known."""

    milliseconds: int
    """What COMMIT took, in milliseconds."""

    checkpoints: list[DueCheckpoint]
    """What Delta is to write, at most one of each table."""

    ended: EndedAnswer | None = None
    """What `Ended` would answer; None where it has to be asked: of a transaction that another host had open."""


class Rollback(RequestBase, frozen=True, kw_only=True, tag="rollback"):
    """ROLLBACK."""


class Named(Answer, frozen=True, kw_only=True):
    """The transaction that a statement was about."""

    database_version: int | UnsetType = UNSET
    """Its snapshot; not said of a transaction that ended without its session's doing."""

    transaction_id: str
    """Its id."""


class RollbackAnswer(Named, frozen=True, kw_only=True):
    """The transaction that this host had open, and has rolled back."""

    ended: EndedAnswer
    """As in `CommitAnswer`."""


class Sent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a COMMIT that a host was sent would be seen."""

    catalog: str
    """The name of the transaction's catalog in the session."""

    options: Settings
    """What is set for that catalog: nothing of it may be logged or shown."""

    snapshot: int
    """The database version that the transaction began at."""


class HostLost(RequestBase, frozen=True, kw_only=True, tag="lost"):
    """Take over a session from a host that died: what it had open is gone, and its user must notice.

    A COMMIT that the other had been sent may have been carried out: then that is found out first.
    """

    transaction: str
    """The id of the transaction that was open."""

    sent: Sent | None
    """Where its COMMIT would be seen; None: none was sent."""


class Lapse(RequestBase, frozen=True, kw_only=True, tag="lapse"):
    """Roll back a transaction that nobody goes on with; a client that comes back must notice."""

    why: Literal["deserted", "left", "idle"]
    """It is shared, and its clients are gone; one of a session's clients is; or it was idle for too long."""


# --- savepoints -------------------------------------------------------------------------------------------------------


class Savepoint(RequestBase, frozen=True, kw_only=True, tag="savepoint"):
    """SAVEPOINT."""

    name: str
    """The savepoint's name."""

    failure: str | None
    """As in `Commit`: after a write that failed none can be set."""


class RollbackTo(RequestBase, frozen=True, kw_only=True, tag="rollback_to"):
    """ROLLBACK TO."""

    name: str
    """The savepoint's name."""


class RollbackToAnswer(Used, frozen=True, kw_only=True):
    """The transaction that goes on, and what of it nobody may use any more."""

    database_version: int
    """Its snapshot."""

    transaction_id: str
    """Its id."""


class Release(RequestBase, frozen=True, kw_only=True, tag="release"):
    """RELEASE."""

    name: str
    """The savepoint's name."""


# --- what may be done inside ------------------------------------------------------------------------------------------


class Outside(RequestBase, frozen=True, kw_only=True, tag="outside"):
    """Ask leave for a command inside a transaction that a ROLLBACK could not take back."""

    what: str
    """The command as its refusal names it: VACUUM, GENERATE, STREAM, or any other with its target."""

    known: bool
    """Whether Lockstep knows the command, and so that it changes something outside."""


Request: TypeAlias = (
    CheckSetting
    | NextBatch
    | Begin
    | Begun
    | Commit
    | Rollback
    | Ended
    | HostLost
    | Lapse
    | Savepoint
    | RollbackTo
    | Release
    | Outside
)
