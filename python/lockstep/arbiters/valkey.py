"""Valkey, or Redis, as an arbiter: a hash for each lake, which one script changes.

    <prefix>:<root>     lake, first, last, digest, data
    <prefix>:server     which server this is: a random text, made when it is first asked

A script runs alone, so what it compares is what it replaces. The server must keep what it has answered: with an
append-only file that reaches the disk before each answer, and without throwing keys out for want of memory. It is
asked, and one that says otherwise, or does not say, is refused (docs/storage.md has the reasons). Who answers next may
be another server: one that took over, or the same one as somebody started it anew. So what is checked is a connection,
and a decision goes over one that was.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from lockstep.arbiters import ANSWER_SECONDS, CHECKED_SECONDS, Accept, Arbiter, Decision, FailedError, Mark
from lockstep.arbiters.address import Address
from lockstep.errors import ArbiterError, UnsupportedError
from lockstep.settings import ARBITER_PASSWORD, ARBITER_USERNAME
from lockstep.storage.failures import Meaning

if TYPE_CHECKING:
    from redis import Redis
    from redis.connection import ConnectionInterface

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
        """Make no request, and no client."""
        super().__init__(address.name, f"{address.name}:{root}", is_default=is_default)
        self._address = address
        self._checked_at: WeakKeyDictionary[ConnectionInterface, float] = WeakKeyDictionary()

    @cached_property
    def _client(self) -> Redis:
        return _client(self._address, self._connected)

    def prepare(self) -> None:
        """Import redis; nothing is asked."""
        _ = self._client

    @property
    def place(self) -> str:
        """The key."""
        return f"the key {self.key}"

    def _check(self) -> str:
        with self._connection() as connection:
            return self._checked(connection)

    def _checked(self, connection: ConnectionInterface) -> str:
        """Check the server that a connection leads to, and return its identity."""
        from redis.exceptions import NoPermissionError, RedisError, ResponseError

        try:
            found = {key: self._setting(connection, key) for key in NEEDED}
            self._refuse(found, _field(_ask(connection, "INFO", "replication"), "role"))
            _ask(connection, "SET", self._server_key, secrets.token_hex(16), "NX")
            return bytes(_ask(connection, "GET", self._server_key) or b"").decode(errors="replace")
        except (NoPermissionError, ResponseError) as error:
            raise UnsupportedError(
                f"the arbiter ({self}) does not say whether it keeps what it decides ({error}). Allow CONFIG GET, "
                "INFO, GET and SET to its user; a service that allows them to nobody is no arbiter"
            ) from error
        except RedisError as error:
            raise FailedError(meaning_of(error, is_connected=True), _cause(error)).before_deciding() from error

    def _refuse(self, found: Mapping[str, str | None], role: str | None) -> None:
        """Raise `UnsupportedError` if a server that is set like this may forget what it decides."""
        if wrong := [f"{key} is {found[key]}" for key, value in NEEDED.items() if found[key] != value]:
            needed = ", ".join(f"{key} {value}" for key, value in NEEDED.items())
            raise UnsupportedError(
                f"the arbiter ({self}) may forget what it decides: {', '.join(wrong)}. Set {needed} there, in its "
                "configuration file too, and try again"
            )
        if role != "master":
            raise UnsupportedError(f"the arbiter ({self}) is a replica: name the server that it follows")

    @property
    def _server_key(self) -> str:
        return f"{self.name}:server"

    def _setting(self, connection: ConnectionInterface, key: str) -> str | None:
        match _ask(connection, "CONFIG", "GET", key):
            case [_, bytes() as value]:
                return value.decode(errors="replace")
            case _:
                return None

    def _swap(self, before: Mark | None, decision: Decision, accept: Accept) -> bool:
        expected = ("", "", "") if before is None else (before.lake, before.last, before.digest)
        data = _ABSENT if decision.data is None else decision.data
        new = (decision.lake, decision.first, decision.last, decision.digest, data)
        with self._connection() as connection:
            now = time.monotonic()
            if now - self._checked_at.get(connection, float("-inf")) >= CHECKED_SECONDS:
                accept(self._checked(connection))
                self._checked_at[connection] = now
            return bool(_ask(connection, "EVAL", _SWAP, 1, self.key, *expected, *new))

    def _read(self) -> Decision | None:
        with self._connection() as connection:
            answer = _ask(connection, "HGETALL", self.key)
        found: dict[bytes, bytes] = dict(zip(answer[::2], answer[1::2], strict=True))
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

    def _connected(self, connection: Any) -> None:
        """Begin to speak over a connection, which may lead to another server than it did."""
        self._checked_at.pop(connection, None)
        connection.on_connect()

    @contextmanager
    def _connection(self) -> Iterator[ConnectionInterface]:
        """Lend a connection, and raise what goes wrong as `FailedError`; what fails before there is one was never sent.

        It is not made anew while it is lent: what is asked over it is asked one server.
        """
        pool = self._client.connection_pool  # without redis there is none, and who asks is told so

        from redis.exceptions import RedisError

        try:
            connection = pool.get_connection()
        except RedisError as error:
            raise FailedError(meaning_of(error, is_connected=False), _cause(error)) from error
        try:
            yield connection
        except RedisError as error:
            raise FailedError(meaning_of(error, is_connected=True), _cause(error)) from error
        except BaseException:  # an answer may still come, and whoever has the connection next would take it
            connection.disconnect()  # type: ignore[no-untyped-call]
            raise
        finally:
            pool.release(connection)


def _ask(connection: ConnectionInterface, *command: str | bytes | int) -> Any:
    """Send a command and return its answer; what goes wrong with the connection ends that."""
    connection.send_command(*command)  # type: ignore[no-untyped-call]
    return connection.read_response()


def _field(info: bytes, name: str) -> str | None:
    """Return what the answer to INFO says of a name."""
    lines = (line.partition(":") for line in info.decode(errors="replace").splitlines())
    return next((value for key, _, value in lines if key == name), None)


_PASSING = ("NOREPLICAS", "MISCONF", "BUSY ", "MASTERDOWN")
"""How answers begin that refuse for now: too few replicas, a full disk, a script that runs, a server that starts."""


def meaning_of(error: Exception, *, is_connected: bool) -> Meaning:
    """Return what a failure means: whatever the server itself says no to was not done."""
    from redis import exceptions

    match error:
        case (
            exceptions.BusyLoadingError()
            | exceptions.OutOfMemoryError()
            | exceptions.ClusterDownError()
            | exceptions.TryAgainError()
        ):
            return Meaning.THROTTLED
        case exceptions.ResponseError() if str(error).startswith(_PASSING):
            return Meaning.THROTTLED
        case exceptions.AuthenticationError() | exceptions.AuthorizationError() | exceptions.ResponseError():
            return Meaning.REFUSED
        case exceptions.MaxConnectionsError():
            return Meaning.UNREACHED
        case _:
            return Meaning.UNKNOWN if is_connected else Meaning.UNREACHED


def _cause(error: Exception) -> str:
    return str(error) or type(error).__name__


def _client(address: Address, connected: Callable[[Any], None]) -> Redis:
    try:
        from redis import Redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry
    except ImportError as error:
        raise UnsupportedError(
            "an arbiter in Valkey or Redis needs redis: pip install 'lockstep-delta[redis]'"
        ) from error
    more: dict[str, Any] = {"redis_connect_func": connected}  # of which redis says that it takes no argument
    if address.is_encrypted:
        more |= {"ssl": True, "ssl_check_hostname": True}  # which releases of redis before 6 do not do by themselves
    return Redis(
        host=address.host,
        port=address.port,
        db=address.database,
        username=os.environ.get(ARBITER_USERNAME.name) or None,
        password=os.environ.get(ARBITER_PASSWORD.name) or None,
        socket_timeout=ANSWER_SECONDS,
        socket_connect_timeout=ANSWER_SECONDS,
        protocol=2,  # answers are lists and bytes, and the server is asked for no notices
        retry=Retry(NoBackoff(), 0),  # what was answered to the last of several requests says nothing of the others
        **more,
    )
