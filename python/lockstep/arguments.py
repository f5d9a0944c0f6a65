"""What callers of the public functions give: a wrong type is refused first, with the argument's name; who they are."""

from __future__ import annotations

import getpass
import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from types import UnionType
from typing import Any, ParamSpec, TypeVar

from lockstep.errors import InvalidError

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

NOT_IN_REPERTOIRE = "22021"
"""PostgreSQL's character_not_in_repertoire."""

_SHOWN = 100
"""Characters of a wrong argument that a message shows."""


def takes(**kinds: Any) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator of a function some of whose arguments must be of these types, defaults aside.

    The types are what `isinstance` takes; a bool is no int here. The decorated function raises InvalidError, with the
    argument's name, for any other, and for texts that no UTF-8 has (22021), in mappings too.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        parameters = inspect.signature(function).parameters
        assert kinds.keys() <= parameters.keys(), f"{function.__name__} has no such argument"
        names = [*parameters]
        by_name = {
            name: kinds[name] for name in kinds if parameters[name].kind is not inspect.Parameter.POSITIONAL_ONLY
        }

        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            # What there are too many or too few of, the function itself refuses, as any does.
            given = [(name, value, kinds) for name, value in zip(names, args, strict=False)]
            given += [(name, value, by_name) for name, value in kwargs.items()]
            for name, value, expected_kinds in given:
                kind = expected_kinds.get(name, object)
                if not _is_one(value, kind):
                    expected = kind.__name__ if isinstance(kind, type) else str(kind)
                    raise InvalidError(
                        f"{function.__name__}: {name} is {value!r:.{_SHOWN}}, of type {type(value).__name__}: expected "
                        f"{expected}"
                    )
                if name in expected_kinds:
                    _check_texts_of(value, f"{function.__name__}: {name}")
            return function(*args, **kwargs)

        return checked

    return decorate


def _is_one(value: object, kind: Any) -> bool:
    kinds = kind.__args__ if isinstance(kind, UnionType) else (kind,)
    return any(isinstance(value, each) and not (each is int and isinstance(value, bool)) for each in kinds)


def check_text(text: str, argument: str) -> None:
    """Raise InvalidError (22021) for a text that no UTF-8 has, as of a file's name that is none; it is not shown."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidError(
            f"{argument} has U+{ord(text[error.start]):04X} as character {error.start + 1}, half of a pair: no UTF-8 "
            "has that",
            sqlstate=NOT_IN_REPERTOIRE,
        ) from None


def _check_texts_of(value: object, argument: str) -> None:
    if isinstance(value, str):
        check_text(value, argument)
    elif isinstance(value, Mapping):
        for key, each in value.items():
            for text in (key, each):
                if isinstance(text, str):
                    check_text(text, f"{argument}, {key!a:.{_SHOWN}},")


def list_of_names(names: Iterable[Any], argument: str) -> list[str]:
    """Return names that a caller gives as a list of them.

    Raises:
        InvalidError: one text, whose letters would be taken for names, or what is no text in it.
    """
    found = [] if isinstance(names, str | bytes) else list(names)
    if isinstance(names, str | bytes) or not all(isinstance(name, str) for name in found):
        raise InvalidError(f"{argument} is {names!r:.{_SHOWN}}, of type {type(names).__name__}: expected a list of str")
    for name in found:
        check_text(name, argument)
    return found


def check_texts(texts: Mapping[Any, Any], argument: str) -> None:
    """Raise InvalidError unless all keys and values of what a caller gives are texts."""
    for key, value in texts.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise InvalidError(f"{argument} has {key!r:.{_SHOWN}}: {value!r:.{_SHOWN}}, expected texts")


def check_runs_when_called(fn: Callable[..., object]) -> None:
    """Raise InvalidError for a function whose body does not run when it is called: its transaction would be empty."""
    is_late = (inspect.iscoroutinefunction, inspect.isasyncgenfunction, inspect.isgeneratorfunction)
    if any(tells(each) for tells in is_late for each in (fn, getattr(fn, "__call__", None))):  # noqa: B004 (its own)
        raise InvalidError(f"{fn!r} is an async or a generator function, and does nothing when called: {_PLAIN}")


def check_result(result: T) -> T:
    """Return what a transaction's function returned, unless that is work which nobody has done yet."""
    if inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result):
        if inspect.iscoroutine(result) or inspect.isgenerator(result):
            result.close()  # or Python warns of it when it is collected
        raise InvalidError(f"the transaction's function returned {result!r}, which nobody has run: {_PLAIN}")
    return result


_PLAIN = "give a plain function, which has done all its work when it returns"


def current_user() -> str:
    """Return who runs this process; nothing, if the operating system has no name for that."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may run under a user id that has no name
        return ""
