"""What errors of an object store mean: a table of what obstore raised, and the same raised again by real sockets."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import obstore
import pytest
from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, S3Store

from lockstep.storage.failures import Meaning, cause_of, meaning_of, refuses_conditions
from tests.support.answering import answering, http
from tests.support.servers import ACCOUNT, ACCOUNT_KEY

STATUS = "Generic S3 error: Error performing PUT http://h/k in 1ms - Server returned non-2xx status code: {}: {}"
SENDING = (
    "Generic S3 error: Error performing PUT http://h/k in 1ms - HTTP error: error sending request\n\nDebug source:\n"
)
DELETING = "Generic S3 error: DeleteObjects request failed for key {}: … (code: {})"
NOT_FOUND = "Object at location k not found: … - Server returned non-2xx status code: 404 Not Found: "


def error(code: str) -> str:
    """Return the body of a refusal."""
    return f'<?xml version="1.0" encoding="utf-8"?>\n<Error><Code>{code}</Code></Error>'


TABLE = [
    # kind of error, its text, what it means: of s3proxy, Azurite, moto and sockets, shortened
    ("AlreadyExistsError", "… already exists: …412 Precondition Failed: PreconditionFailed", Meaning.TAKEN),
    ("AlreadyExistsError", "…409 Conflict: <Code>ConditionalRequestConflict</Code>", Meaning.TAKEN),
    ("AlreadyExistsError", "…409 Conflict: <Code>BlobAlreadyExists</Code>", Meaning.TAKEN),
    ("PreconditionError", "Request precondition failure for path k: …412 Precondition Failed", Meaning.TAKEN),
    ("NotModifiedError", "Object at location k not modified: …304 Not Modified", Meaning.TAKEN),
    ("GenericError", STATUS.format("409 Conflict", "<Code>OperationAborted</Code>"), Meaning.TAKEN),
    ("FileNotFoundError", f"{NOT_FOUND}{error('NoSuchKey')}", Meaning.ABSENT),
    ("FileNotFoundError", f"{NOT_FOUND}\ufeff{error('BlobNotFound')}", Meaning.ABSENT),
    ("FileNotFoundError", f"{NOT_FOUND}{error('XAdminUserNotFound')}", Meaning.REFUSED),  # versitygw: no such user
    ("FileNotFoundError", f"{NOT_FOUND}{error('XNobody').replace('<Error>', '<Error a=b>')}", Meaning.REFUSED),
    ("FileNotFoundError", NOT_FOUND, Meaning.ABSENT),
    ("FileNotFoundError", "Bulk delete request failed for key k: The specified blob does not exist.", Meaning.ABSENT),
    ("FileNotFoundError", f"{NOT_FOUND}{error('NoSuchBucket')}", Meaning.NO_BUCKET),
    ("FileNotFoundError", f"{NOT_FOUND}\ufeff{error('ContainerNotFound')}", Meaning.NO_BUCKET),
    ("GenericError", STATUS.format("404 Not Found", error("NoSuchBucket")), Meaning.NO_BUCKET),
    # where anybody may have put the words: a key, which is in the text as it stands, and a page of a proxy's
    ("AlreadyExistsError", "Object at location NoSuchBucket/a already exists: …412 Precondition Failed", Meaning.TAKEN),
    ("AlreadyExistsError", f"Object at location {error('NoSuchBucket')} already exists: …409", Meaning.TAKEN),
    ("FileNotFoundError", NOT_FOUND.replace("k", "ContainerNotFound"), Meaning.ABSENT),
    ("FileNotFoundError", f"{NOT_FOUND.replace('k', error('NoSuchBucket'))}{error('NoSuchKey')}", Meaning.ABSENT),
    ("FileNotFoundError", f"{NOT_FOUND.replace('k', NOT_FOUND + error('NoSuchBucket'))}", Meaning.ABSENT),
    ("FileNotFoundError", f"{NOT_FOUND}{error('NoSuchKey')}\n\nDebug source:\n{error('NoSuchBucket')}", Meaning.ABSENT),
    ("FileNotFoundError", f"{NOT_FOUND}<html><Code>NoSuchBucket</Code></html>", Meaning.UNKNOWN),
    ("FileNotFoundError", f"{NOT_FOUND}\n<!DOCTYPE html><html>no such page</html>", Meaning.UNKNOWN),
    ("FileNotFoundError", f"{NOT_FOUND}The specified bucket does not exist", Meaning.ABSENT),
    ("GenericError", STATUS.format("502 Bad Gateway", error("NoSuchBucket")), Meaning.BUSY),
    ("GenericError", STATUS.format("503 Service Unavailable", "The specified bucket does not exist"), Meaning.BUSY),
    ("GenericError", f"{SENDING.replace('/k', '/NoSuchBucket')}kind: Timeout,", Meaning.UNKNOWN),
    ("PermissionDeniedError", f"…403 Forbidden: {error('NoSuchBucket')}", Meaning.REFUSED),
    ("GenericError", DELETING.format("k", "NoSuchBucket"), Meaning.NO_BUCKET),
    ("GenericError", DELETING.format("k", "AccessDenied"), Meaning.REFUSED),
    ("GenericError", DELETING.format("k", "InternalError"), Meaning.UNKNOWN),
    ("GenericError", DELETING.format("k: … (code: AccessDenied)", "SlowDown"), Meaning.UNKNOWN),
    ("GenericError", f"{DELETING.format('k', 'SlowDown')}\n\nDebug source:\n(code: AccessDenied)", Meaning.UNKNOWN),
    ("PermissionDeniedError", "…403 Forbidden: <Code>AccessDenied</Code>", Meaning.REFUSED),
    ("PermissionDeniedError", "…403 Forbidden: <Code>QuotaExceeded</Code>", Meaning.REFUSED),
    ("PermissionDeniedError", "…403 Forbidden: <Code>RequestTimeTooSkewed</Code>", Meaning.REFUSED),
    ("UnauthenticatedError", "…401 Unauthorized", Meaning.REFUSED),
    ("GenericError", STATUS.format("400 Bad Request", "<Code>ExpiredToken</Code>"), Meaning.REFUSED),
    ("GenericError", STATUS.format("400 Bad Request", "<Code>RequestTimeout</Code>"), Meaning.UNKNOWN),
    ("GenericError", STATUS.format("408 Request Timeout", ""), Meaning.UNKNOWN),
    ("GenericError", STATUS.format("413 Payload Too Large", ""), Meaning.REFUSED),
    ("GenericError", STATUS.format("501 Not Implemented", "<Code>NotImplemented</Code>"), Meaning.REFUSED),
    ("GenericError", STATUS.format("429 Too Many Requests", "<Code>SlowDown</Code>"), Meaning.THROTTLED),
    ("GenericError", STATUS.format("500 Internal Server Error", "<Code>InternalError</Code>"), Meaning.BUSY),
    ("GenericError", STATUS.format("502 Bad Gateway", ""), Meaning.BUSY),
    ("GenericError", STATUS.format("503 Service Unavailable", "<Code>SlowDown</Code>"), Meaning.BUSY),
    ("GenericError", STATUS.format("507 Insufficient Storage", "<Code>XMinioStorageFull</Code>"), Meaning.BUSY),
    ("GenericError", STATUS.format("307 Temporary Redirect", ""), Meaning.UNKNOWN),
    ("GenericError", "… - Received redirect without LOCATION, this normally indicates …", Meaning.REFUSED),
    ("GenericError", f"{SENDING}HttpError {{\n kind: Connect,\n", Meaning.UNREACHED),
    ("GenericError", f"{SENDING}kind: Timeout,\n hyper_util::client::legacy::Error(\n  Connect,\n", Meaning.UNREACHED),
    ("GenericError", f"{SENDING}HttpError {{\n kind: Timeout,\n source: TimedOut", Meaning.UNKNOWN),
    ("GenericError", f"{SENDING}HttpError {{\n kind: Interrupted,\n kind: ConnectionReset,", Meaning.UNKNOWN),
    ("GenericError", f"{SENDING}HttpError {{\n kind: Request,\n SendRequest,\n IncompleteMessage", Meaning.UNKNOWN),
    ("GenericError", "Generic S3 error: HTTP error: request or response body error", Meaning.UNKNOWN),
    ("GenericError", "Unable to extract metadata from headers: ETag Header missing from response", Meaning.UNKNOWN),
    ("NotSupportedError", "Operation not supported", Meaning.REFUSED),
    ("JoinError", "something new", Meaning.UNKNOWN),
    ("OSError", "", Meaning.UNKNOWN),
    ("PanicError", "called `Result::unwrap()` on an `Err` value: InvalidHeaderValue", Meaning.REFUSED),
    ("PanicError", "Unable to build Tokio runtime: Too many open files", Meaning.BROKEN),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "text", "meaning"), TABLE)
def test_what_an_error_means(kind: str, text: str, meaning: Meaning) -> None:
    assert meaning_of(kind, text) is meaning


def test_what_says_that_a_store_has_no_conditional_writes() -> None:
    refusing = [text for _, text, _ in TABLE if refuses_conditions(text)]
    assert refusing == [STATUS.format("501 Not Implemented", "<Code>NotImplemented</Code>")]


def test_only_an_answer_or_no_connection_says_that_nothing_was_done() -> None:
    """And whatever is final is an answer."""
    assert {each for each in Meaning if each.may_be_done} == {Meaning.BUSY, Meaning.UNKNOWN, Meaning.BROKEN}
    assert {each for each in Meaning if each.is_passing} == {
        Meaning.THROTTLED,
        Meaning.UNREACHED,
        Meaning.BUSY,
        Meaning.UNKNOWN,
    }


def test_a_message_names_the_reason_and_no_signature() -> None:
    """The dump of Rust values goes, the query of an address too: a SAS token's signature stands in it."""
    text = f"{SENDING.replace('http://h/k', 'https://h/k?sv=1&sig=SECRET')}kind: ConnectionRefused,"
    assert cause_of(text) == (
        "Generic S3 error: Error performing PUT https://h/k?… in 1ms - HTTP error: error sending request "
        "(connection refused)"
    )


# --- the same, from real sockets --------------------------------------------------------------------------------------


ONCE: Any = {"max_retries": 0}
PATIENCE = timedelta(seconds=60)
"""How long an answer is waited for that comes: a busy machine must not make silence of it."""


def client(timeout: timedelta) -> Any:
    return {"allow_http": True, "timeout": timeout, "connect_timeout": PATIENCE}


def s3(endpoint: str, timeout: timedelta = PATIENCE) -> S3Store:
    config: Any = {"access_key_id": "a", "secret_access_key": "b", "region": "us-east-1", "endpoint": endpoint}
    return S3Store("lake", config=config, client_options=client(timeout), retry_config=ONCE)


def azure(endpoint: str, timeout: timedelta = PATIENCE) -> AzureStore:
    config: Any = {"account_name": ACCOUNT, "account_key": ACCOUNT_KEY, "endpoint": endpoint}
    return AzureStore("lake", config=config, client_options=client(timeout), retry_config=ONCE)


def google(endpoint: str, timeout: timedelta = PATIENCE) -> GCSStore:
    config: Any = {"base_url": endpoint, "bearer_token": "x"}
    return GCSStore("lake", config=config, client_options=client(timeout), retry_config=ONCE)


def raised(store: Any) -> Meaning:
    """Return what the error of a conditional write means."""
    with pytest.raises((BaseError, OSError)) as caught:
        obstore.put(store, "k", b"x", mode="create", use_multipart=False)
    return meaning_of(type(caught.value).__name__, str(caught.value))


ANSWERS = [
    (http("403 Forbidden", "AccessDenied"), Meaning.REFUSED),
    (http("401 Unauthorized"), Meaning.REFUSED),
    (http("400 Bad Request", "ExpiredToken"), Meaning.REFUSED),
    (http("501 Not Implemented", "NotImplemented"), Meaning.REFUSED),
    (http("301 Moved Permanently", "PermanentRedirect"), Meaning.REFUSED),
    (http("404 Not Found", "NoSuchBucket"), Meaning.NO_BUCKET),
    (http("409 Conflict", "ConditionalRequestConflict"), Meaning.TAKEN),
    (http("412 Precondition Failed", "PreconditionFailed"), Meaning.TAKEN),
    (http("304 Not Modified"), Meaning.TAKEN),
    (http("429 Too Many Requests", "SlowDown"), Meaning.THROTTLED),
    (http("408 Request Timeout"), Meaning.UNKNOWN),
    (http("500 Internal Server Error", "InternalError"), Meaning.BUSY),
    (http("503 Service Unavailable", "SlowDown"), Meaning.BUSY),
    (http("507 Insufficient Storage"), Meaning.BUSY),
    (http("200 OK"), Meaning.UNKNOWN),  # without what a write answers with
    (b"HTTP/1.1 2", Meaning.UNKNOWN),
    (b"", Meaning.UNKNOWN),
    (None, Meaning.UNKNOWN),
]


@pytest.mark.parametrize("store", [s3, azure, google])
@pytest.mark.parametrize(("answer", "meaning"), ANSWERS)
def test_what_obstore_raises_of_an_answer(store: Callable[..., Any], answer: bytes | None, meaning: Meaning) -> None:
    with answering(answer) as endpoint:
        asked = store(endpoint) if answer is not None else store(endpoint, timedelta(seconds=0.3))
        assert raised(asked) is meaning


@pytest.mark.parametrize("store", [s3, azure, google])
def test_what_obstore_raises_of_a_reset_and_of_nobody(store: Callable[[str], Any]) -> None:
    """After a reset the request may have been carried out; where nobody listens, none was sent."""
    with answering(b"", is_reset=True) as endpoint:
        assert raised(store(endpoint)) is Meaning.UNKNOWN
    assert raised(store(endpoint)) is Meaning.UNREACHED
