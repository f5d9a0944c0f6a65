"""The tables of docs/settings.md, from `lockstep.settings`, and of docs/errors.md, from `lockstep.errors`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import get_args

from lockstep.errors import LockstepError
from lockstep.settings import Place, Setting, at


def settings(place: Place) -> str:
    """Return the table of the settings of one place."""
    lines = ["| setting | value | default | what it does | since |", "|---|---|---|---|---|"]
    return "\n".join([*lines, *map(_setting, at(place))])


def _setting(setting: Setting) -> str:
    value = ", ".join(f"`{choice}`" for choice in setting.choices) or setting.kind
    default = f"`{setting.default}`" if setting.default is not None else setting.otherwise or "none"
    return f"| `{setting.name}` | {value} | {default} | {setting.meaning} | {setting.since} |"


def classes() -> str:
    """Return the table of the classes of errors, each below the one that it is a kind of."""
    lines = ["| class | a kind of | SQLSTATE | retryable | what happened |", "|---|---|---|---|---|"]
    return "\n".join([*lines, *map(_class, _kinds(LockstepError))])


def _kinds(kind: type[LockstepError]) -> Iterator[type[LockstepError]]:
    for child in kind.__subclasses__():
        yield child
        yield from _kinds(child)


def _class(kind: type[LockstepError]) -> str:
    meaning = inspect.getdoc(kind) or ""
    base = kind.__mro__[1].__name__
    says = meaning.partition("\n\n")[0].replace("\n", " ")
    retryable = "yes" if kind.retryable else "no"
    return f"| `{kind.__name__}` | `{base}` | {kind.default_sqlstate} | {retryable} | {says} |"


def parts() -> dict[str, str]:
    """Return what stands between the marks of the pages, by the marks' names."""
    return {**{f"settings-of-{place}": settings(place) for place in get_args(Place)}, "classes": classes()}
