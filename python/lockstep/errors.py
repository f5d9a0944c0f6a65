"""Every error a user of Lockstep can meet, by what the caller must do about it.

    LockstepError
    ├── ConflictError            40001  another transaction won; run yours again (retryable)
    ├── StaleCloneError          55000  a clone to be promoted collides with what came since; make a new one
    ├── CommitUnknownError       40003  the store did not say whether the commit landed; look before you retry
    ├── TransactionStateError    25xxx  the statement does not fit the state of the session's transaction
    │   ├── ActiveTransactionError     25001  BEGIN inside a transaction, or a statement not allowed in one
    │   ├── ReadOnlyError              25006  a write in a READ ONLY transaction
    │   ├── NoTransactionError         25P01  COMMIT or ROLLBACK with nothing open
    │   └── FailedTransactionError     25P02  a write failed earlier; only ROLLBACK helps
    ├── InvalidError             22023  bad input, refused before anything was written
    │   ├── UndefinedError             42P01 / 3F000 / 42704  no such table, view, namespace, tag or setting
    │   ├── DuplicateError             42P07 / 42P06 / 42723  the name is taken
    │   ├── ExpiredError               72000  a database version that is not kept any more
    │   │   └── SnapshotTooOldError    72000  what ours stands on is not kept any more; run it again (retryable)
    │   ├── ConfigurationError         F0000 / 42501  Spark's side is set up otherwise than Lockstep's, or not at all
    │   ├── ArbiterError               55000  the lake's arbiter does not fit what its store has; needs a person
    │   └── UnsupportedError           0A000  Lockstep cannot do that; the message says what to do instead
    ├── StatementError           XX000  a statement of a script failed, with that statement's own SQLSTATE if it has one
    ├── CancelledError           57014  a user stopped a script
    ├── ForeignCommitError       40002  another Delta writer wrote what conflicts with ours, or is refused
    ├── MissingFilesError        58P01  files that are needed are gone; the message names them
    │   └── StagedFilesMissingError    58P01  those that a COMMIT needs; run it again (retryable)
    ├── UnavailableError         58030  the store failed; nothing was changed (retryable)
    │   └── StoreRefusedError      42501 / 22023  the store said no, and would again; nothing was changed
    └── CorruptTimelineError     XX001  a stored file is damaged or missing; needs a person

The SQLSTATEs are PostgreSQL's (Appendix A, "PostgreSQL Error Codes") where it has one for the case. The same object
crosses the bridge to SQL, so a message reads the same from Python and from `spark.sql`.
"""

from __future__ import annotations

from typing import ClassVar


class LockstepError(Exception):
    """Something Lockstep refused or could not do.

    Attributes:
        sqlstate: five characters, from the class unless given.
        retryable: whether running the whole transaction again can succeed without any other change.
    """

    default_sqlstate: ClassVar[str] = "XX000"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, sqlstate: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.sqlstate = sqlstate or self.default_sqlstate

    def __str__(self) -> str:
        return f"{self.message} (SQLSTATE {self.sqlstate})"

    def again(self, more: str = "") -> LockstepError:
        """Return the same error, to be raised once more: one that is raised twice keeps the traces of both."""
        return type(self)(self.message + more, sqlstate=self.sqlstate)


class ConflictError(LockstepError):
    """Another transaction collides with ours and goes first, or too many go first; nothing of ours is visible."""

    default_sqlstate = "40001"
    retryable = True


class StaleCloneError(LockstepError):
    """What was changed in a clone collides with what its origin committed since; a new clone helps, no other run."""

    default_sqlstate = "55000"  # not 40001, after which clients run the same again that know SQLSTATEs alone


class CommitUnknownError(LockstepError):
    """The store neither confirmed nor denied the commit, and could not be read back; look at the timeline first."""

    default_sqlstate = "40003"


class TransactionStateError(LockstepError):
    """The statement does not fit the state of the session's transaction."""

    default_sqlstate = "25000"


class ActiveTransactionError(TransactionStateError):
    """The statement cannot run inside a transaction, and one is open."""

    default_sqlstate = "25001"


class ReadOnlyError(TransactionStateError):
    """A write inside a READ ONLY transaction."""

    default_sqlstate = "25006"


class NoTransactionError(TransactionStateError):
    """COMMIT or ROLLBACK with no transaction open."""

    default_sqlstate = "25P01"


class FailedTransactionError(TransactionStateError):
    """A write of this transaction failed, so it was rolled back instead of being committed by half."""

    default_sqlstate = "25P02"


class InvalidError(LockstepError):
    """Bad input, refused before anything was written."""

    default_sqlstate = "22023"


class UndefinedError(InvalidError):
    """No such table or view (42P01), namespace (3F000), setting or tag (42704), or version."""

    default_sqlstate = "42P01"


class DuplicateError(InvalidError):
    """The name of a table or view (42P07), of a namespace (42P06), or of a function (42723), is taken."""

    default_sqlstate = "42P07"


class ExpiredError(InvalidError):
    """A database version is asked for that expired: nobody kept it, and nobody can read it any more."""

    default_sqlstate = "72000"


class SnapshotTooOldError(ExpiredError):
    """What was committed since ours began, or since this process last looked, expired; nothing of ours is committed."""

    retryable = True


class ConfigurationError(InvalidError):
    """Spark's side of a session is not set up as Lockstep's is, or not at all; nothing was read or written."""

    default_sqlstate = "F0000"


class ArbiterError(InvalidError):
    """A lake's arbiter lost what it had decided, or is another one, or another lake's; nothing of ours is committed."""

    default_sqlstate = "55000"


class UnsupportedError(InvalidError):
    """Lockstep does not do that; the message says what to do instead."""

    default_sqlstate = "0A000"


class StatementError(LockstepError):
    """A statement of a script failed; its own error is the cause of this one.

    Attributes:
        number: which statement; the first is 1.
        line, column: where in the script, each from 1: where Spark points to, else where the statement begins.
    """

    def __init__(self, message: str, *, number: int, line: int, column: int, sqlstate: str | None = None) -> None:
        super().__init__(message, sqlstate=sqlstate)
        self.number = number
        self.line = line
        self.column = column


class CancelledError(LockstepError):
    """A user stopped a script before its end, or had a transaction ended."""

    default_sqlstate = "57014"


class ForeignCommitError(LockstepError):
    """A Delta writer outside Lockstep wrote what is not taken in: it conflicts with ours, or the table refuses it."""

    default_sqlstate = "40002"


class UnavailableError(LockstepError):
    """The store failed; nothing was changed.

    Attributes:
        definite: whether a write that failed is known not to have happened, and not to happen later. Only storage
            sets it, and only `Timeline.append` needs to know.
    """

    default_sqlstate = "58030"
    retryable = True

    def __init__(self, message: str, *, sqlstate: str | None = None, definite: bool = False) -> None:
        super().__init__(message, sqlstate=sqlstate)
        self.definite = definite

    def saying(self, message: str, *, definite: bool = False) -> UnavailableError:
        """Return an error of the same kind, in other words: whether running again can help stays as it is."""
        return type(self)(message, sqlstate=self.sqlstate, definite=definite)


class StoreRefusedError(UnavailableError):
    """The store said no: keys, permissions, a quota (42501), or there is no such bucket (22023); nothing changed."""

    default_sqlstate = "42501"
    retryable = False


class MissingFilesError(LockstepError):
    """Files that are needed are gone: a table's data or its log. The message names them, and nothing was changed."""

    default_sqlstate = "58P01"


class StagedFilesMissingError(MissingFilesError):
    """Files that the transaction wrote or needs were deleted before its COMMIT; nothing was committed."""

    retryable = True


class CorruptTimelineError(LockstepError):
    """A stored file is damaged or missing; the message names it and what was expected."""

    default_sqlstate = "XX001"
