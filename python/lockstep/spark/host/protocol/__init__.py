"""The protocol of the shim and the host: every request and every answer, each with all that can be said in it.

Both are JSON objects. A request says what it asks, `op`, and whose it is, `session`; the host answers `{"ok": …}` or
`{"error": …}`:

    {"op": "resolve", "session": "…", "catalog": "lake", "options": "6f0a…", "namespace": ["sales"], …}
    {"ok": {"missing": false, "uri": "lockstep://head.file/…", "version": 7, …}}
    {"error": {"condition": "LOCKSTEP_CONFLICT", "message": "…", "sqlstate": "40001"}}

There is one class for each `op`, in `transactions`, `tables`, `row_changes`, `views`, `functions`, `procedures`,
`retention`, `roots`, `options`, `session_names` and `system`; `base` has what several share. Where it is not known yet
whether both sides see the same root, a request is answered `{"look": …}` instead, and is to be sent again: see `roots`.
So it is where the host has not been told what a catalog is set to, or has forgotten it, by `{"unsaid": …}`: see
`options`.
What the shim sends is what the class says and nothing else: a field that is not known, is missing or is of another type
is refused, for what one side does not know of the other it would get wrong silently. A field has
a default where the shim leaves it out at times, and nowhere else; null is the shim's `None`. Fields are named alike on
both sides, so a search for one finds who sends it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeAlias, get_args

import msgspec

from lockstep.errors import LockstepError
from lockstep.spark.host.protocol import (
    functions,
    options,
    procedures,
    retention,
    roots,
    row_changes,
    session_names,
    system,
    tables,
    transactions,
    views,
)
from lockstep.spark.host.protocol.base import RequestBase

Request: TypeAlias = (
    transactions.Request
    | tables.Request
    | row_changes.Request
    | session_names.Request
    | views.Request
    | functions.Request
    | procedures.Request
    | retention.Request
    | roots.Request
    | options.Request
    | system.Request
)

OPERATIONS: Mapping[str, type[RequestBase]] = {kind.__struct_config__.tag: kind for kind in get_args(Request)}
"""The class of each `op`."""

_MOST_SHOWN = 100
"""Characters of what is not known that a message shows."""


class _Head(msgspec.Struct):
    """What a message about a request that cannot be read may say of it, where it is a text."""

    op: object = None
    session: object = None
    catalog: object = None


_requests: msgspec.json.Decoder[Request] = msgspec.json.Decoder(Request)
_heads = msgspec.json.Decoder(_Head)


def decode(request: str | bytes) -> Request:
    """Read a request.

    Raises:
        LockstepError: it is none, which is an error of Lockstep's own. The message names the operation and the field,
            and never a value: keys of stores are among them.
    """
    try:
        return _requests.decode(request)
    except msgspec.ValidationError as error:
        op = _text(_head(request).op)
        raise LockstepError(
            f"internal error, nothing was done: the request {op} is malformed: {_reason(error)}. Please report it"
        ) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise LockstepError(
            f"internal error, nothing was done: a request is no JSON ({type(error).__name__}). Please report it"
        ) from None


def description_of(request: str | bytes) -> str:
    """Return which request it is, readable or not, for the log: the rest of one has keys of stores in it, and data."""
    head = _head(request)
    return f"the request {_text(head.op)} of session {_text(head.session)} about catalog {_text(head.catalog)}"


def _head(request: str | bytes) -> _Head:
    try:
        return _heads.decode(request)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return _Head()


def _text(value: object) -> str:
    return f"{value!r:.{_MOST_SHOWN}}" if isinstance(value, str) else "?"


def _reason(error: msgspec.ValidationError) -> str:
    """Return what is wrong with which field. Of a value that is none of a few, msgspec would show which it was."""
    what, separator, path = str(error).rpartition(" - at ")
    if not separator:
        what, path = path, ""
    if what.startswith("Invalid "):
        what = "Not one of the known values"
    return re.sub(r"`([^`]*)`", lambda name: f"`{name[1]:.{_MOST_SHOWN}}`", f"{what}{separator}{path}")
