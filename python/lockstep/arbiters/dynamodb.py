"""DynamoDB as an arbiter: an item for each lake, which one conditional PutItem changes.

    lake_root (the table's key), lake, first, last, digest, data

The table's key is one attribute, the text `lake_root`. A table with replicas in other regions whose writes do not wait
for each other (a global table that is not strongly consistent) lets two regions win, and is refused. That a table is a
global one of the legacy version DescribeTable does not say, and nobody here asks for a permission to look further.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC
from functools import cached_property
from typing import Any

from lockstep.arbiters import ANSWER_SECONDS, CHECKED_SECONDS, Accept, Arbiter, Decision, FailedError, Mark
from lockstep.arbiters.address import Address
from lockstep.errors import ArbiterError, LockstepError, UnsupportedError
from lockstep.forks import anew_in_forks
from lockstep.storage.failures import Meaning

KEY = "lake_root"
"""The table's only key, of type S."""

_IS = "lake = :lake AND #last = :last AND digest = :digest"

_PASSING: Mapping[str, Meaning] = {
    "ProvisionedThroughputExceededException": Meaning.THROTTLED,
    "RequestLimitExceeded": Meaning.THROTTLED,
    "ThrottlingException": Meaning.THROTTLED,
    "InternalServerError": Meaning.BUSY,
    "ServiceUnavailable": Meaning.BUSY,
    "TransactionConflictException": Meaning.THROTTLED,
}
"""Answers after which the same request may succeed in a moment."""


_NOT_LET_IN = (401, 403, 407)
"""What also a proxy answers only in place of handing the request on."""


class DynamoDb(Arbiter):
    """A record in a table of DynamoDB."""

    kind = "dynamodb"
    alternative = "another table"

    def __init__(self, address: Address, root: str, *, is_default: bool = False) -> None:
        """Make no request, and no client."""
        super().__init__(address.name, root, is_default=is_default)
        self._address = address
        self._checked_at = float("-inf")
        anew_in_forks(self)

    def begin_anew(self) -> None:
        """Have no client in a process that was forked: its parent would read answers to it, and it those to its parent.

        boto3 keeps connections open, and a fork has the same ones. (redis looks itself whether it was forked.)
        """
        self.__dict__.pop("_client", None)
        self._checked_at = float("-inf")

    @cached_property
    def _client(self) -> Any:
        return _client(self._address)

    def prepare(self) -> None:
        """Import boto3, and find out the region; nothing is asked."""
        _ = self._client

    @property
    def place(self) -> str:
        """The item."""
        return f"the item whose {KEY} is {self.key}"

    def _check(self) -> str:
        with self._reporting():
            table = self._ask("describe_table")["Table"]
        keys = {key["AttributeName"]: key["KeyType"] for key in table["KeySchema"]}
        types = {each["AttributeName"]: each["AttributeType"] for each in table["AttributeDefinitions"]}
        if keys != {KEY: "HASH"} or types.get(KEY) != "S":
            raise UnsupportedError(f"the arbiter ({self}) is no table of an arbiter: its key must be {KEY}, of type S")
        if table.get("Replicas") and table.get("MultiRegionConsistency") != "STRONG":
            raise UnsupportedError(
                f"the arbiter ({self}) is a global table whose regions do not wait for each other, so two of them may "
                "decide one database version: use a table of one region, or one with strong consistency"
            )
        return identity_of(table)

    def _swap(self, before: Mark | None, decision: Decision, accept: Accept) -> bool:
        if time.monotonic() - self._checked_at >= CHECKED_SECONDS:
            try:
                accept(self._check())
            except FailedError as error:
                raise error.before_deciding() from error
            self._checked_at = time.monotonic()
        item: dict[str, Any] = {
            KEY: {"S": self.key},
            "lake": {"S": decision.lake},
            "first": {"N": str(decision.first)},
            "last": {"N": str(decision.last)},
            "digest": {"S": decision.digest},
        }
        if decision.data is not None:
            item["data"] = {"B": decision.data}
        condition: dict[str, Any] = {"ConditionExpression": f"attribute_not_exists({KEY})"}
        if before is not None:
            condition = {
                "ConditionExpression": _IS,
                "ExpressionAttributeNames": {"#last": "last"},
                "ExpressionAttributeValues": {
                    ":lake": {"S": before.lake},
                    ":last": {"N": str(before.last)},
                    ":digest": {"S": before.digest},
                },
            }
        with self._reporting():
            try:
                self._ask("put_item", Item=item, **condition)
            except self._client.exceptions.ConditionalCheckFailedException as error:
                if is_of_dynamodb(error.response, status=400):
                    return False
                raise FailedError(Meaning.UNKNOWN, f"an odd answer: {error}") from error
        return True

    def _read(self) -> Decision | None:
        with self._reporting():
            answer = self._ask("get_item", Key={KEY: {"S": self.key}}, ConsistentRead=True)
        if (item := answer.get("Item")) is None:
            return None
        try:
            return Decision(
                lake=item["lake"]["S"],
                first=int(item["first"]["N"]),
                last=int(item["last"]["N"]),
                digest=item["digest"]["S"],
                data=item["data"]["B"] if "data" in item else None,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ArbiterError(f"the item {self.key} of the arbiter ({self}) is none of its records") from error

    def _ask(self, operation: str, **arguments: object) -> dict[str, Any]:
        """Return DynamoDB's answer to a request; boto3 takes any 200, with whatever in it, for one that says nothing.

        Raises:
            FailedError: something else answered.
        """
        answer: dict[str, Any] = getattr(self._client, operation)(TableName=self.name, **arguments)
        if not is_of_dynamodb(answer, status=200):
            raise FailedError(Meaning.UNKNOWN, f"the answer to {operation} is none of DynamoDB's")
        return answer

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """Raise what goes wrong as `FailedError`."""
        try:
            yield
        except Exception as error:  # boto3 raises anything for an answer that it does not understand
            self._checked_at = float("-inf")  # another server may answer next, or another table of the name
            if isinstance(error, FailedError | LockstepError):
                raise
            raise FailedError(meaning_of(error), str(error)) from error


def identity_of(table: Mapping[str, Any]) -> str:
    """Return which table it is that DescribeTable describes, by whichever client; empty if nobody can tell.

    The replicas of a global table are one, and each region has an id of its own for it: what DescribeTable says is the
    same in all of them is its name. Two such tables are told apart by what is in them, as an item that is not there.
    """
    if table.get("Replicas"):
        return ""
    if table_id := table.get("TableId"):
        return str(table_id)
    made = table.get("CreationDateTime")  # boto3 gives it in the time zone of the machine
    return f"{table.get('TableArn')} of {made and made.astimezone(UTC)}"


def is_of_dynamodb(answer: Mapping[str, Any], *, status: int) -> bool:
    """Tell whether an answer, of that status, came from DynamoDB, and not from a proxy, or from half a server."""
    about = answer.get("ResponseMetadata", {})
    content_type = about.get("HTTPHeaders", {}).get("content-type", "")
    return "RequestId" in about and "json" in content_type and about.get("HTTPStatusCode") == status


def meaning_of(error: Exception) -> Meaning:
    """Return what a failure means: whatever DynamoDB itself says no to was not done, unless it failed on its side.

    What is not known to have been found before anything was sent may have been sent.
    """
    from botocore import exceptions

    match error:
        case exceptions.ClientError():
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            known = _PASSING.get(error.response.get("Error", {}).get("Code", ""))
            if known is not None:
                return known
            if status in _NOT_LET_IN or (400 <= status < 500 and is_of_dynamodb(error.response, status=status)):
                return Meaning.REFUSED
            return Meaning.BUSY if status >= 500 else Meaning.UNKNOWN
        case (
            exceptions.ConnectTimeoutError()
            | exceptions.EndpointConnectionError()
            | exceptions.CredentialRetrievalError()  # whoever gives the keys did not answer
            | exceptions.MetadataRetrievalError()
        ):
            return Meaning.UNREACHED
        case (
            exceptions.NoCredentialsError()
            | exceptions.PartialCredentialsError()
            | exceptions.TokenRetrievalError()
            | exceptions.SSOError()
            | exceptions.ParamValidationError()
        ):
            return Meaning.REFUSED
        case _:
            return Meaning.UNKNOWN


def _client(address: Address) -> Any:
    try:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import NoRegionError
    except ImportError as error:
        raise UnsupportedError("an arbiter in DynamoDB needs boto3: pip install 'lockstep-delta[dynamodb]'") from error
    config = Config(
        connect_timeout=ANSWER_SECONDS,
        read_timeout=ANSWER_SECONDS,
        retries={"total_max_attempts": 1},  # what was answered to the last of several requests says nothing of others
    )
    try:
        return boto3.client("dynamodb", region_name=address.region, endpoint_url=address.endpoint, config=config)
    except NoRegionError as error:
        raise UnsupportedError(
            "the arbiter in DynamoDB has no region: say ?region=… behind the table, or set AWS_REGION"
        ) from error
