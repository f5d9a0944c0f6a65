"""Names of Spark's session catalog that mean what a lake has, where a catalog's `session-names` says so. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from lockstep.adoption.schemas import SESSION_CATALOG, Listed, why_left
from lockstep.errors import InvalidError, LockstepError, UnsupportedError
from lockstep.storage import url_of
from lockstep.storage.outside import comparable
from lockstep.timeline.entry import Name

AMBIGUOUS = "42702"

Use: TypeAlias = Literal["used", "dropped", "made"]
"""What a statement does with what has a name.

- `used`: anything that leaves the name where it is.
- `dropped`: the name is taken away, as by DROP and RENAME.
- `made`: something new is to have it, if nothing has.
"""


@dataclass(frozen=True, slots=True)
class Said:
    """A name that a statement says.

    Attributes:
        name: as the lake would have it.
        use: what the statement does with what has the name.
        is_delta: whether what is made, if anything is, is a Delta table.
        there: what Spark's session catalog has under the name; None is nothing.
    """

    name: Name
    use: Use
    is_delta: bool
    there: Listed | None


@dataclass(frozen=True, slots=True)
class Held:
    """What a lake has under a name.

    Attributes:
        url: of a table, that of its folder; None of a view.
    """

    url: str | None


def means_lakes(said: Said, held: Held | None, *, has_namespace: bool) -> bool:
    """Tell whether a name means what the lake has, or is to have; else it is Spark's session catalog's.

    Args:
        said: the name.
        held: what the lake has under it; None is nothing.
        has_namespace: whether the lake has the namespace.

    Raises:
        InvalidError (42702): both have something, and not the same table.
        UnsupportedError: both have the table, and one of them is to lose it.
    """
    if held is None:
        return said.use == "made" and said.is_delta and has_namespace and said.there is None
    if said.there is None:
        return True
    if (reason := _differs(held, said.there)) is not None:
        raise InvalidError(
            f"{said.name} may be what the lake has or what {SESSION_CATALOG} has, and these are two: {reason}. "
            "Nothing was done. Rename one of them, in a session whose lake does not say session-names",
            sqlstate=AMBIGUOUS,
        )
    if said.use == "dropped":
        raise UnsupportedError(
            f"{said.name} is a table of the lake and of {SESSION_CATALOG}, which is the same one, and this takes the "
            "name from only one of them: nothing was done. CALL <lake>.system.release(table => …) first gives the "
            f"table back, then this is {SESSION_CATALOG}'s alone"
        )
    return True


def _differs(held: Held, there: Listed) -> str | None:
    """Return why what both have is not one table; None if it is."""
    if held.url is None:
        return "the lake has a view"
    if (reason := why_left(there)) is not None:
        return f"of {SESSION_CATALOG}'s, {reason}"
    if there.location is None:
        return f"{SESSION_CATALOG} does not say where its table lies"
    try:
        place = comparable(url_of(there.location))
    except LockstepError:  # in a kind of store that no lake is in
        place = there.location
    if place != comparable(held.url):
        return f"one lies in {held.url}, the other in {there.location}"
    return None
