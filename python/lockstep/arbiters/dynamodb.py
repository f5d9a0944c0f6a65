"""DynamoDB as an arbiter: an item for each lake, which one conditional PutItem changes.

    lake_root (the table's key), lake, first, last, digest, data

The table's key is one attribute, the text `lake_root`. A table with replicas in other regions whose writes do not wait
for each other (a global table that is not strongly consistent) lets two regions win, and is refused.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from lockstep.arbiters import ANSWER_SECONDS, CHECKED_SECONDS, Accept, Arbiter, Decision, FailedError, Mark
from lockstep.arbiters.address import Address
from lockstep.errors import ArbiterError, UnsupportedError
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


class DynamoDb(Arbiter):
    """A record in a table of DynamoDB."""

    kind = "dynamodb"
    alternative = "another table"

    def __init__(self, address: Address, root: str, *, is_default: bool = False) -> None:
        """Make no request, and no client."""
        super().__init__(address.name, root, is_default=is_default)
        self._address = address
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
            table = self._client.describe_table(TableName=self.name)["Table"]
        keys = {key["AttributeName"]: key["KeyType"] for key in table["KeySchema"]}
        types = {each["AttributeName"]: each["AttributeType"] for each in table["AttributeDefinitions"]}
        if keys != {KEY: "HASH"} or types.get(KEY) != "S":
            raise UnsupportedError(f"the arbiter ({self}) is no table of an arbiter: its key must be {KEY}, of type S")
        if table.get("Replicas") and table.get("MultiRegionConsistency") != "STRONG":
            raise UnsupportedError(
                f"the arbiter ({self}) is a global table whose regions do not wait for each other, so two of them may "
                "decide one database version: use a table of one region, or one with strong consistency"
            )
        if table.get("Replicas"):
            return ""  # each region has a table of its own, with an id of its own
        return str(table.get("TableId") or f"{table.get('TableArn')} of {table.get('CreationDateTime')}")

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
                self._client.put_item(TableName=self.name, Item=item, **condition)
            except self._client.exceptions.ConditionalCheckFailedException:
                return False
        return True

    def _read(self) -> Decision | None:
        with self._reporting():
            answer = self._client.get_item(TableName=self.name, Key={KEY: {"S": self.key}}, ConsistentRead=True)
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
        except (KeyError, ValueError) as error:
            raise ArbiterError(f"the item {self.key} of the arbiter ({self}) is none of its records") from error

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """Raise what goes wrong as `FailedError`."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except (BotoCoreError, ClientError) as error:
            self._checked_at = float("-inf")  # another server may answer next, or another table of the name
            raise FailedError(_meaning(error), str(error)) from error


def _meaning(error: Exception) -> Meaning:
    """Return what a failure means: whatever DynamoDB itself says no to was not done, unless it failed on its side."""
    from botocore import exceptions

    match error:
        case exceptions.ClientError():
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            otherwise = Meaning.BUSY if not 400 <= status < 500 else Meaning.REFUSED
            return _PASSING.get(error.response.get("Error", {}).get("Code", ""), otherwise)
        case exceptions.ConnectTimeoutError() | exceptions.EndpointConnectionError():
            return Meaning.UNREACHED
        case exceptions.HTTPClientError():
            return Meaning.UNKNOWN
        case _:  # no credentials, no region, a parameter: found before anything was sent
            return Meaning.REFUSED


def _client(address: Address) -> Any:
    try:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import NoRegionError
    except ImportError as error:
        raise UnsupportedError("an arbiter in DynamoDB needs boto3: pip install 'lockstep[dynamodb]'") from error
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
