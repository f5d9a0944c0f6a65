"""Names of tables and namespaces, as callers write them."""

from __future__ import annotations

from typing import TypeAlias

from lockstep.arguments import check_text
from lockstep.errors import InvalidError
from lockstep.timeline.entry import Name, Namespace
from lockstep.timeline.fold import DEFAULT_NAMESPACE

AName: TypeAlias = str | tuple[str, ...] | Name
"""A table's name: 'sales.orders', or its parts, where a part has a dot in it."""


def name_of(name: AName) -> Name:
    """Return a table's name: `orders` is in the namespace `default`, and parts with dots in them stand in a tuple.

    Raises:
        InvalidError: it is none.
    """
    if isinstance(name, Name):
        return name
    *namespace, table = _parts(name)
    return Name(namespace=tuple(namespace) or DEFAULT_NAMESPACE, table=table)


def namespace_of(name: str | tuple[str, ...]) -> Namespace:
    """Return a namespace's name, see `name_of`."""
    return _parts(name)


def _parts(name: object) -> tuple[str, ...]:
    parts = tuple(name.split(".")) if isinstance(name, str) else name
    if not isinstance(parts, tuple) or not parts or not all(isinstance(part, str) and part for part in parts):
        raise InvalidError(f"{name!r:.100} is no name: write 'sales.orders', or a tuple of its parts")
    for part in parts:
        check_text(part, "a name")
    return parts
