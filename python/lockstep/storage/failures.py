"""What an object store's refusal means: a pure function over what obstore raises (docs/storage.md has the table).

    meaning_of("GenericError", str(error))      # Meaning.BUSY
    error_of(Meaning.REFUSED, "cannot read a")  # StoreRefusedError: whoever runs it again is told the same

One question matters most: may a write that failed have been done all the same? Only an answer of the store itself, or
proof that no request went out, says no. Whatever this does not know may have been done.
"""

from __future__ import annotations

import re
from enum import Enum

from lockstep.errors import StoreRefusedError, UnavailableError


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
    BROKEN = "obstore ended the request in the middle, for what it did not expect", True, False

    def __init__(self, text: str, may_be_done: bool, is_passing: bool) -> None:
        self.text = text
        self.may_be_done = may_be_done
        self.is_passing = is_passing


_STATUS = re.compile(r"non-2xx status code: (\d{3})")
_NO_CONNECTION = re.compile(r"kind: Connect,|client::legacy::Error\(\s*Connect,")
"""How obstore's dump of Rust values says that it never had a connection; its message alone does not tell."""

_NOT_FOUND = re.compile(r".* - Server returned non-2xx status code: 404 [^:]*: ", re.DOTALL)
"""What comes before the body of a 404. Before it stand the key and the address, which anybody may have named."""

_CODE = re.compile(r"\ufeff?\s*(?:<\?xml[^>]*>)?\s*<Error(?:\s[^>]*)?>\s*<Code>(\w+)</Code>")
"""How a store's own body begins. What else is in it may be the key again."""

_ABSENCES = {
    "NoSuchKey": Meaning.ABSENT,
    "NoSuchVersion": Meaning.ABSENT,
    "BlobNotFound": Meaning.ABSENT,
    "ResourceNotFound": Meaning.ABSENT,
    "NoSuchBucket": Meaning.NO_BUCKET,
    "ContainerNotFound": Meaning.NO_BUCKET,
}
"""What stores say with 404. versitygw says so of users, too, so what is not here is a refusal, and no absent object."""

_MARKUP = re.compile(r"\s*<")
"""How a page of a proxy's begins, and other bodies that are no store's."""

_OF_ONE_KEY = re.compile(r".*DeleteObjects request failed for key .*\(code: (\w+)\)\s*", re.DOTALL)
"""What is said of one of the keys that S3 was asked to delete together; the key, as it is, before what S3 says."""

_CODES = {
    "AccessDenied": Meaning.REFUSED,
    "AllAccessDisabled": Meaning.REFUSED,
    "NoSuchBucket": Meaning.NO_BUCKET,
}
"""What S3 says of one such key in an answer of 200; all else may pass."""

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
    if kind == "PanicError":
        return Meaning.REFUSED if _ODD_HEADER in text else Meaning.BROKEN
    if kind in {"FileNotFoundError", "NotFoundError"}:
        return _absence(text)
    if (status := _STATUS.search(text)) is not None:
        return _meaning_of_status(int(status[1]), text)
    if (code := _OF_ONE_KEY.fullmatch(text.partition(_DUMP)[0])) is not None:
        return _CODES.get(code[1], Meaning.UNKNOWN)
    if _NO_CONNECTION.search(text):
        return Meaning.UNREACHED
    if _REDIRECTED in text:
        return Meaning.REFUSED
    return Meaning.UNKNOWN


def _absence(text: str) -> Meaning:
    message, _, _ = text.partition(_DUMP)
    if (head := _NOT_FOUND.match(message)) is None:
        return Meaning.ABSENT
    if (code := _CODE.match(message, head.end())) is not None:
        return _ABSENCES.get(code[1], Meaning.REFUSED)
    return Meaning.UNKNOWN if _MARKUP.match(message, head.end()) else Meaning.ABSENT


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


_ODD_HEADER = "InvalidHeaderValue"
"""By what obstore panics before it sends a request with a key, or a token, that no header can have in it."""


def is_panic(error: BaseException) -> bool:
    """Tell whether what is made in Rust, obstore or deltalake, ended a call: by what pyo3 raises, no `Exception`."""
    return type(error).__name__ == "PanicException"  # of pyo3, where nobody can import it


def panic_of(text: str) -> str:
    """Return what to say of a panic of obstore's."""
    if _ODD_HEADER in text:
        return f"a key or a token has a character that cannot be sent, as the end of a line ({_ODD_HEADER})"
    return f"obstore cannot go on ({text})"


def error_of(meaning: Meaning, message: str, *, definite: bool = False) -> UnavailableError:
    """Return what Lockstep raises of a failure.

    Args:
        meaning: of the failure, the last one if there were several.
        message: what could not be done, and what was said of it.
        definite: see `UnavailableError`.
    """
    again = f"{message}. It would be refused again"
    match meaning:
        case Meaning.REFUSED:
            said = f"{again}: see that keys, permissions, quotas, address and region are right"
            return StoreRefusedError(said, definite=definite)
        case Meaning.NO_BUCKET:
            said = f"{again}: correct the root, or make the bucket or container"
            return StoreRefusedError(said, sqlstate=_NO_SUCH_PLACE, definite=definite)
        case _:
            return UnavailableError(message, definite=definite)


_NO_SUCH_PLACE = "22023"


def refuses_conditions(text: str) -> bool:
    """Tell whether an error of a conditional write says that the store has none: it does not know the header."""
    return (status := _STATUS.search(text)) is not None and status[1] == "501"


_QUERY = re.compile(r"(https?://[^\s?]*)\?\S*")
_ECHOES = re.compile(
    r"<((?:CanonicalRequest|StringToSign)(?:Bytes)?|SignatureProvided|AuthenticationErrorDetail|Token-\d+)>.*?(?:</\1>|\Z)",
    re.DOTALL,
)
"""What stores repeat of a request that they refuse: S3 all that was signed, or a session's token."""

_REASONS = (
    (re.compile(r"kind: Timeout,"), "no answer in time"),
    (re.compile(r"kind: ConnectionRefused,"), "connection refused"),
    (re.compile(r"kind: ConnectionReset,"), "connection reset"),
    (re.compile(r"IncompleteMessage"), "the connection was closed before the answer"),
    (re.compile(r"dns error"), "no such host"),
    (re.compile(r"InvalidCertificate|invalid peer certificate"), "its certificate is not trusted: see ca_certificate"),
)


def cause_of(text: str) -> str:
    """Return obstore's message for a person: without keys, and of the dump of Rust values nothing but the reason."""
    message, _, dump = without_keys(text).partition(_DUMP)
    message = message.strip()
    reason = next((words for sign, words in _REASONS if sign.search(dump)), "")
    return f"{message} ({reason})" if reason else message


def without_keys(text: str) -> str:
    """Return what obstore says without what may have a key in it.

    That is the query of an address, in which the signature of an Azure SAS token may stand, and what stores repeat of
    a request whose signature is wrong.
    """
    return _ECHOES.sub(r"<\1>…</\1>", _QUERY.sub(r"\1?…", text))
