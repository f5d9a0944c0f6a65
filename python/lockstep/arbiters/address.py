"""How a setting names an arbiter: a pure function over its text.

address_of("valkey://host:6379/0?prefix=lockstep")
address_of("dynamodb://table?region=eu-west-1")
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias
from urllib.parse import parse_qsl, urlsplit

from lockstep.errors import InvalidError

Kind: TypeAlias = Literal["valkey", "dynamodb"]

PORT = 6379
PREFIX = "lockstep"

_KINDS: Mapping[str, Kind] = {
    "valkey": "valkey",
    "valkeys": "valkey",
    "redis": "valkey",
    "rediss": "valkey",
    "dynamodb": "dynamodb",
}
_WITH_TLS = ("valkeys", "rediss")
_PARAMETERS: Mapping[Kind, frozenset[str]] = {
    "valkey": frozenset({"prefix"}),
    "dynamodb": frozenset({"region", "endpoint"}),
}
_SHAPE = "valkey://host:6379/0?prefix=lockstep or dynamodb://table?region=eu-west-1"


@dataclass(frozen=True, slots=True)
class Address:
    """Where an arbiter is.

    Attributes:
        kind: which service.
        name: the prefix of Valkey's keys, or DynamoDB's table: what a lake remembers.
        host, port, database: of Valkey.
        is_encrypted: whether Valkey is spoken to over TLS.
        region, endpoint: of DynamoDB; None: what the environment says.
    """

    kind: Kind
    name: str
    host: str = ""
    port: int = PORT
    database: int = 0
    is_encrypted: bool = False
    region: str | None = None
    endpoint: str | None = None


def address_of(text: str) -> Address:
    """Read the setting that names an arbiter.

    Raises:
        InvalidError: it names none, or has a user or a password in it. The message says nothing of what it has.
    """
    try:
        parts = urlsplit(text)
        kind, port = _KINDS.get(parts.scheme), parts.port
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise InvalidError(f"the arbiter is no address: expected {_SHAPE}") from None
    if kind is None or not parts.hostname or parts.fragment:
        raise InvalidError(f"the arbiter is no address: expected {_SHAPE}")
    if "@" in parts.netloc:
        raise InvalidError(
            "the arbiter's address has a user or a password in it, and settings are shown in many places. Give them in "
            "LOCKSTEP_ARBITER_USERNAME and LOCKSTEP_ARBITER_PASSWORD"
        )
    said = dict(pairs)
    if len(said) != len(pairs) or not said.keys() <= _PARAMETERS[kind] or not all(said.values()):
        raise InvalidError(f"the arbiter's address has other parameters than {', '.join(sorted(_PARAMETERS[kind]))}")
    if kind == "dynamodb":
        if any("@" in value for value in said.values()):
            raise InvalidError(
                "the arbiter's endpoint has a user or a password in it, and settings are shown in many places. "
                "DynamoDB's keys come from the AWS_* variables, profiles and roles"
            )
        if parts.path.strip("/") or port is not None:
            raise InvalidError(f"the arbiter's address names no table alone: expected {_SHAPE}")
        # Of the netloc, for a table's name has capital letters, which a host has not.
        return Address(kind, parts.netloc, region=said.get("region"), endpoint=said.get("endpoint"))
    database = parts.path.strip("/") or "0"
    if not (database.isascii() and database.isdecimal()):
        raise InvalidError(f"the arbiter's address has a database that is no number: expected {_SHAPE}")
    return Address(
        kind,
        said.get("prefix", PREFIX),
        host=parts.hostname,
        port=PORT if port is None else port,
        database=int(database),
        is_encrypted=parts.scheme in _WITH_TLS,
    )
