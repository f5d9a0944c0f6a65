"""What answers in DynamoDB's place, and what its client raises: none of it says anything of a decision."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import (
    ChecksumError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    MetadataRetrievalError,
    NoCredentialsError,
    ParamValidationError,
    ReadTimeoutError,
)
from botocore.parsers import ResponseParserError
from redis.exceptions import AuthenticationError, ClusterDownError, OutOfMemoryError, ReadOnlyError, ResponseError

from lockstep.arbiters.dynamodb import identity_of, meaning_of
from lockstep.arbiters.valkey import meaning_of as meaning_of_valkeys
from lockstep.errors import UnavailableError
from lockstep.storage.failures import Meaning
from tests.support.arbiters import decision, dynamodb, make_table, of
from tests.support.s3 import Application, moto, serving


class Odd:
    """A DynamoDB whose answers to one kind of request are something else's: a proxy's, or half a server's."""

    def __init__(self, app: Application) -> None:
        self._app = app
        self.answers: list[tuple[str, str, bytes]] = []
        self.operation = ""

    def __call__(self, environ: Any, start_response: Any) -> Any:
        if not self.answers or not environ.get("HTTP_X_AMZ_TARGET", "").endswith(self.operation):
            return self._app(environ, start_response)
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        status, content_type, body = self.answers[0]
        start_response(status, [("Content-Type", content_type)])
        return [body]


JSON = "application/x-amz-json-1.0"
CHECK_FAILED = b'{"__type": "com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException", "message": "no"}'


@pytest.mark.parametrize(
    "answer",
    [
        ("200 OK", "text/html", b"<html>log in</html>"),
        ("200 OK", "application/json", b"{}"),
        ("200 OK", JSON, b"{"),
        ("200 OK", JSON, b"[]"),
        ("200 OK", JSON, b""),
        ("200 OK", JSON, b'{"Item": {"lake_root": 5}}'),
        ("200 OK", JSON, CHECK_FAILED),
        ("500 Internal Server Error", JSON, CHECK_FAILED),
        ("302 Found", "text/html", b"elsewhere"),
        ("404 Not Found", "text/html", b"<html>nothing here</html>"),
        ("408 Request Timeout", "text/html", b"too slow"),
        ("400 Bad Request", "text/html", b"<html>bad</html>"),
    ],
    ids=lambda answer: f"{answer[0]} {answer[1]} {answer[2].decode()[:20]}",
)
def test_odd_answers_say_nothing_of_a_decision(answer: tuple[str, str, bytes], tmp_path: Path) -> None:
    """Neither that it is recorded, nor that another one is, nor that there is none."""
    app = Odd(moto())
    with serving(app) as endpoint:
        table = f"odd-{uuid.uuid4()}"  # moto has one memory in a process
        make_table(endpoint, name=table)
        arbiter = of(dynamodb(endpoint, table), f"file://{tmp_path}")
        assert arbiter.swap(None, decision(0))
        app.answers, app.operation = [answer], "PutItem"
        with pytest.raises(UnavailableError) as failed:
            arbiter.swap(decision(0).mark, decision(1))
        assert not failed.value.definite
        app.operation = "GetItem"
        with pytest.raises(UnavailableError):
            arbiter.read()
        app.operation = "DescribeTable"
        with pytest.raises(UnavailableError) as failed:
            arbiter.swap(decision(0).mark, decision(1))
        assert failed.value.definite, "nothing was asked to be decided"
        app.answers = []
        assert arbiter.swap(decision(0).mark, decision(1))


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        (NoCredentialsError(), Meaning.REFUSED),
        (CredentialRetrievalError(provider="x", error_msg="x"), Meaning.UNREACHED),
        (MetadataRetrievalError(error_msg="x"), Meaning.UNREACHED),
        (ParamValidationError(report="x"), Meaning.REFUSED),
        (EndpointConnectionError(endpoint_url="x"), Meaning.UNREACHED),
        (ConnectTimeoutError(endpoint_url="x"), Meaning.UNREACHED),
        (ReadTimeoutError(endpoint_url="x"), Meaning.UNKNOWN),
        (ResponseParserError("x"), Meaning.UNKNOWN),
        (ChecksumError(checksum_type="crc32", expected_checksum=1, actual_checksum=2), Meaning.UNKNOWN),
        (AttributeError("'list' object has no attribute 'get'"), Meaning.UNKNOWN),
    ],
    ids=lambda each: type(each).__name__,
)
def test_what_a_failure_of_dynamodbs_client_means(error: Exception, meaning: Meaning) -> None:
    assert meaning_of(error) is meaning


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        (OutOfMemoryError("command not allowed"), Meaning.THROTTLED),
        (ClusterDownError("The cluster is down"), Meaning.THROTTLED),
        (ResponseError("NOREPLICAS Not enough good replicas to write."), Meaning.THROTTLED),
        (ResponseError("MISCONF Errors writing to the AOF file"), Meaning.THROTTLED),
        (ResponseError("BUSY Valkey is busy running a script."), Meaning.THROTTLED),
        (ResponseError("WRONGTYPE Operation against a key"), Meaning.REFUSED),
        (AuthenticationError("invalid password"), Meaning.REFUSED),
        (ReadOnlyError("You can't write against a read only replica."), Meaning.REFUSED),
    ],
    ids=str,
)
def test_what_a_failure_of_valkeys_client_means(error: Exception, meaning: Meaning) -> None:
    assert meaning_of_valkeys(error, is_connected=True) is meaning


def test_a_table_of_dynamodb_is_the_same_one_in_each_time_zone() -> None:
    """A server that gives tables no ids tells them apart by their time, which boto3 gives in the machine's zone."""
    made = datetime(2026, 1, 1, tzinfo=UTC)
    elsewhere = made.astimezone(timezone(timedelta(hours=5)))
    told = [identity_of({"TableArn": "arn", "CreationDateTime": at}) for at in (made, elsewhere)]
    assert told[0] == told[1] == "arn of 2026-01-01 00:00:00+00:00"
    assert identity_of({"TableArn": "arn", "TableId": "7", "CreationDateTime": made}) == "7"
    assert identity_of({"TableArn": "arn", "TableId": "7", "Replicas": [{"RegionName": "eu-west-1"}]}) == ""
