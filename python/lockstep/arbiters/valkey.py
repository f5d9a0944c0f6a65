"""Valkey, or Redis, as an arbiter: a hash for each lake, which one script changes.

    <prefix>:<root>     lake, first, last, digest, data

A script runs alone, so what it compares is what it replaces. The server must keep what it has answered: with an
append-only file that reaches the disk before each answer, and without throwing keys out for want of memory. It is
asked, and one that says otherwise, or does not say, is refused (docs/storage.md has the reasons).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lockstep.arbiters import ANSWER_SECONDS, Arbiter, Decision, FailedError, Mark
from lockstep.arbiters.address import Address
from lockstep.errors import ArbiterError, UnsupportedError
from lockstep.settings import ARBITER_PASSWORD, ARBITER_USERNAME
from lockstep.storage.failures import Meaning

if TYPE_CHECKING:
    from redis import Redis

NEEDED: Mapping[str, str] = {
    "appendonly": "yes",
    "appendfsync": "always",
    "no-appendfsync-on-rewrite": "no",
    "maxmemory-policy": "noeviction",
}
"""What a server has to be set to."""

_ABSENT = b""

_SWAP = """
local found = redis.call('HMGET', KEYS[1], 'lake', 'last', 'digest')
local is_there = found[1] or found[2] or found[3] or redis.call('EXISTS', KEYS[1]) == 1
if ARGV[1] == '' then
  if is_there then return 0 end
elseif found[1] ~= ARGV[1] or found[2] ~= ARGV[2] or found[3] ~= ARGV[3] then
  return 0
end
redis.call('HSET', KEYS[1], 'lake', ARGV[4], 'first', ARGV[5], 'last', ARGV[6], 'digest', ARGV[7], 'data', ARGV[8])
return 1
"""
"""Compares three fields with what is expected (nothing at all, if the first is empty), and replaces all of them."""


class Valkey(Arbiter):
    """A record in a Valkey or Redis server."""

    kind = "valkey"
    alternative = "another prefix (?prefix=…)"

    def __init__(self, address: Address, root: str, *, is_default: bool = False) -> None:
        """Make no request.

        Raises:
            UnsupportedError: the client library is not installed.
        """
        super().__init__(address.name, f"{address.name}:{root}", is_default=is_default)
        self._client = _client(address)

    @property
    def place(self) -> str:
        """The key."""
        return f"the key {self.key}"

    def _check(self) -> None:
        from redis.exceptions import NoPermissionError, ResponseError

        with self._reporting():
            try:
                found = {key: self._client.config_get(key).get(key) for key in NEEDED}
                role = self._client.info("replication").get("role")
            except (NoPermissionError, ResponseError) as error:
                raise UnsupportedError(
                    f"the arbiter ({self}) does not say whether it keeps what it decides ({error}). Allow "
                    "CONFIG GET and INFO to its user; a service that allows them to nobody is no arbiter"
                ) from error
        if wrong := [f"{key} is {found[key]}" for key, value in NEEDED.items() if found[key] != value]:
            needed = ", ".join(f"{key} {value}" for key, value in NEEDED.items())
            raise UnsupportedError(
                f"the arbiter ({self}) may forget what it decides: {', '.join(wrong)}. Set {needed} "
                f"there, in its configuration file too, and try again"
            )
        if role != "master":
            raise UnsupportedError(f"the arbiter ({self}) is a replica: name the server that it follows")

    def _swap(self, before: Mark | None, decision: Decision) -> bool:
        expected = ("", "", "") if before is None else (before.lake, before.last, before.digest)
        data = _ABSENT if decision.data is None else decision.data
        new = (decision.lake, decision.first, decision.last, decision.digest, data)
        with self._reporting():
            return bool(self._client.eval(_SWAP, 1, self.key, *expected, *new))

    def _read(self) -> Decision | None:
        with self._reporting():
            found: dict[bytes, bytes] = self._client.hgetall(self.key)  # type: ignore[assignment]
        if not found:
            return None
        try:
            return Decision(
                lake=found[b"lake"].decode(),
                first=int(found[b"first"]),
                last=int(found[b"last"]),
                digest=found[b"digest"].decode(),
                data=found[b"data"] or None,
            )
        except (KeyError, ValueError) as error:
            raise ArbiterError(f"the key {self.key} of the arbiter ({self}) holds none of its records") from error

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """Raise what goes wrong as `FailedError`. What fails before there is a connection was never sent."""
        from redis.exceptions import RedisError

        try:
            pool = self._client.connection_pool
            pool.release(pool.get_connection())
        except RedisError as error:
            raise FailedError(_meaning(error, is_connected=False), _cause(error)) from error
        try:
            yield
        except RedisError as error:
            raise FailedError(_meaning(error, is_connected=True), _cause(error)) from error


def _meaning(error: Exception, *, is_connected: bool) -> Meaning:
    """Return what a failure means: whatever the server itself says no to was not done."""
    from redis import exceptions

    match error:
        case exceptions.BusyLoadingError():
            return Meaning.THROTTLED
        case exceptions.AuthenticationError() | exceptions.AuthorizationError() | exceptions.ResponseError():
            return Meaning.REFUSED
        case exceptions.MaxConnectionsError():
            return Meaning.UNREACHED
        case _:
            return Meaning.UNKNOWN if is_connected else Meaning.UNREACHED


def _cause(error: Exception) -> str:
    return str(error) or type(error).__name__


def _client(address: Address) -> Redis:
    try:
        from redis import Redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry
    except ImportError as error:
        raise UnsupportedError("an arbiter in Valkey or Redis needs redis: pip install 'lockstep[redis]'") from error
    encrypted: dict[str, Any] = {"ssl": True} if address.is_encrypted else {}
    return Redis(
        host=address.host,
        port=address.port,
        db=address.database,
        username=os.environ.get(ARBITER_USERNAME.name) or None,
        password=os.environ.get(ARBITER_PASSWORD.name) or None,
        socket_timeout=ANSWER_SECONDS,
        socket_connect_timeout=ANSWER_SECONDS,
        retry=Retry(NoBackoff(), 0),  # what was answered to the last of several requests says nothing of the others
        **encrypted,
    )
