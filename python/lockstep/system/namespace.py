"""The namespace of the system tables, which no lake can make."""

from __future__ import annotations

from collections.abc import Iterable

from lockstep.errors import UnsupportedError
from lockstep.timeline.entry import Namespace

NAMESPACE = "system"
RESERVED = "42939"
"""PostgreSQL's SQLSTATE of a reserved name."""


def is_of_system(namespace: Namespace) -> bool:
    """Tell whether a namespace is called as that of the system tables, in whatever case, or lies in one that is."""
    return namespace[:1] != () and namespace[0].lower() == NAMESPACE


def is_reserved(namespace: Namespace, known: Iterable[Namespace]) -> bool:
    """Tell whether a namespace is that of the system tables, or one below it.

    A lake from before there were any may have a namespace called so: that goes on being the lake's own.

    Args:
        known: the lake's namespaces; they are looked through only where the name is that one.
    """
    return is_of_system(namespace) and not any(map(is_of_system, known))


def refuse_reserved(namespace: Namespace, known: Iterable[Namespace]) -> None:
    """Refuse to change what is in the namespace of the system tables, or the namespace itself.

    Raises:
        UnsupportedError (42939): it is that one.
    """
    if is_reserved(namespace, known):
        raise UnsupportedError(
            f"namespace {'.'.join(namespace)} is Lockstep's own: its tables show what the lake says of itself, and "
            "nothing in it is made, changed or dropped. Choose another name",
            sqlstate=RESERVED,
        )
