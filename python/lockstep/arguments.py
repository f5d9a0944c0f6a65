"""What callers of the public functions give: a wrong type is refused first, with the argument's name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from lockstep.errors import InvalidError

P = ParamSpec("P")
R = TypeVar("R")

_SHOWN = 100
"""Characters of a wrong argument that a message shows."""


def takes(**kinds: Any) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator of a function some of whose arguments must be of these types, defaults aside.

    The types are what `isinstance` takes; a bool is no int here. The decorated function raises InvalidError, with the
    argument's name, for any other.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        assert kinds.keys() <= signature.parameters.keys(), f"{function.__name__} has no such argument"

        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            for name, value in signature.bind(*args, **kwargs).arguments.items():
                kind = kinds.get(name, object)
                if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
                    expected = kind.__name__ if isinstance(kind, type) else str(kind)
                    raise InvalidError(
                        f"{function.__name__}: {name} is {value!r:.{_SHOWN}}, of type {type(value).__name__}: expected "
                        f"{expected}"
                    )
            return function(*args, **kwargs)

        return checked

    return decorate
