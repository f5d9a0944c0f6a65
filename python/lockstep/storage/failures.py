"""What an object store's refusal means: a pure function over what obstore raises (docs/storage.md has the table).

    meaning_of("GenericError", str(error))      # Meaning.BUSY

One question matters most: may a write that failed have been done all the same? Only an answer of the store itself, or
proof that no request went out, says no. Whatever this does not know may have been done.
"""

from __future__ import annotations

import re
from enum import Enum


class Meaning(Enum):
    """What became of one request.

    Attributes:
        may_be_done: whether a write may have been carried out all the same, or be carried out later.
        is_passing: whether the same request may succeed in a moment.
    """

    TAKEN = "something is there, says the store; only a look tells what, if anything", False, False
    ABSENT = "nothing is there", False, False
    NO_BUCKET = "the bucket or container is not there", False, False
    REFUSED = "the store said no: credentials, permissions, a quota, or a request that it does not know", False, False
    THROTTLED = "too many requests; this one was not carried out", False, True
    UNREACHED = "there was no connection, so no request went out", False, True
    BUSY = "the store, or what stands before it, failed on its side", True, True
    UNKNOWN = "no answer, or one that cannot be read", True, True

    def __init__(self, text: str, may_be_done: bool, is_passing: bool) -> None:
        self.text = text
        self.may_be_done = may_be_done
        self.is_passing = is_passing


_STATUS = re.compile(r"non-2xx status code: (\d{3})")
_NO_CONNECTION = re.compile(r"kind: Connect,|client::legacy::Error\(\s*Connect,")
"""How obstore's dump of Rust values says that it never had a connection; its message alone does not tell."""

_NOT_FOUND = re.compile(r".* - Server returned non-2xx status code: 404 [^:]*: ", re.DOTALL)
"""What comes before the body of a 404. Before it stand the key and the address, which anybody may have named."""

_NO_BUCKET = re.compile(r"\ufeff?\s*(?:<\?xml[^>]*>)?\s*<Error>\s*<Code>(?:NoSuchBucket|ContainerNotFound)</Code>")
"""How such a body begins. What else is in it may be the key again, or a page of a proxy's."""

_IN_THE_WAY = re.compile(r"<Code>RequestTimeout</Code>")
"""S3's 400 for a request whose body came too slowly: no bad request, but a bad connection."""

_KINDS = {
    "AlreadyExistsError": Meaning.TAKEN,
    "PreconditionError": Meaning.TAKEN,
    "NotModifiedError": Meaning.TAKEN,
    "PermissionDeniedError": Meaning.REFUSED,
    "UnauthenticatedError": Meaning.REFUSED,
    "InvalidPathError": Meaning.REFUSED,
    "NotSupportedError": Meaning.REFUSED,
    "UnknownConfigurationKeyError": Meaning.REFUSED,
}

_DUMP = "\n\nDebug source"
_REDIRECTED = "Received redirect without LOCATION"


def meaning_of(kind: str, text: str) -> Meaning:
    """Return what an error of obstore means.

    Args:
        kind: the name of its class.
        text: all of its text, with the dump of Rust values at its end.
    """
    if kind in _KINDS:
        return _KINDS[kind]
    if kind in {"FileNotFoundError", "NotFoundError"}:
        return _absence(text)
    if (status := _STATUS.search(text)) is not None:
        return _meaning_of_status(int(status[1]), text)
    if _NO_CONNECTION.search(text):
        return Meaning.UNREACHED
    if _REDIRECTED in text:
        return Meaning.REFUSED
    return Meaning.UNKNOWN


def _absence(text: str) -> Meaning:
    message, _, _ = text.partition(_DUMP)
    head = _NOT_FOUND.match(message)
    return Meaning.NO_BUCKET if head and _NO_BUCKET.match(message, head.end()) else Meaning.ABSENT


def _meaning_of_status(status: int, text: str) -> Meaning:
    match status:
        case 304 | 409 | 412:
            return Meaning.TAKEN
        case 404:
            return _absence(text)
        case 408:
            return Meaning.UNKNOWN
        case 429:
            return Meaning.THROTTLED
        case 501:
            return Meaning.REFUSED
        case 400 if _IN_THE_WAY.search(text):
            return Meaning.UNKNOWN
        case _ if 400 <= status < 500:
            return Meaning.REFUSED
        case _ if status >= 500:
            return Meaning.BUSY
        case _:
            return Meaning.UNKNOWN


def refuses_conditions(text: str) -> bool:
    """Tell whether an error of a conditional write says that the store has none: it does not know the header."""
    return (status := _STATUS.search(text)) is not None and status[1] == "501"


_QUERY = re.compile(r"(https?://[^\s?]*)\?\S*")
_REASONS = (
    (re.compile(r"kind: Timeout,"), "no answer in time"),
    (re.compile(r"kind: ConnectionRefused,"), "connection refused"),
    (re.compile(r"kind: ConnectionReset,"), "connection reset"),
    (re.compile(r"IncompleteMessage"), "the connection was closed before the answer"),
    (re.compile(r"dns error"), "no such host"),
    (re.compile(r"invalid peer certificate"), "its certificate is not trusted"),
)


def cause_of(text: str) -> str:
    """Return obstore's message for a person.

    Left out: the dump of Rust values, of which the reason is kept, and the query of an address, in which the
    signature of an Azure SAS token may stand.
    """
    message, _, dump = text.partition(_DUMP)
    message = _QUERY.sub(r"\1?…", message.strip())
    reason = next((words for sign, words in _REASONS if sign.search(dump)), "")
    return f"{message} ({reason})" if reason else message
