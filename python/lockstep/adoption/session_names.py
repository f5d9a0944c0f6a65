"""Names of Spark's session catalog that mean what a lake has, where a catalog's `session-names` says so. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from lockstep.adoption.schemas import IMPLEMENTATIONS, SESSION_CATALOG, Listed, adopted_from, why_left
from lockstep.errors import InvalidError, LockstepError, UnsupportedError
from lockstep.storage import url_of
from lockstep.storage.urls import comparable, url_below
from lockstep.timeline.entry import Name, Table

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
        adopted: of a view that was adopted, what it says of where it comes from; None of others.
    """

    url: str | None
    adopted: str | None = None


def means_lakes(said: Said, held: Held | None, *, has_namespace: bool) -> bool:
    """Tell whether a name means what the lake has, or is to have; else it is Spark's session catalog's.

    What nobody has is made in the lake if it is Delta's, and dropped there, each in a namespace that the lake has.

    Args:
        said: the name.
        held: what the lake has under it; None is nothing.
        has_namespace: whether the lake has the namespace.

    Raises:
        InvalidError (42702): both have something, and not the same table.
        UnsupportedError: both have the table, and one of them is to lose it.
    """
    if held is None:
        if said.there is not None or not has_namespace:
            return False
        # To drop what nobody has is nobody's loss, and a transaction may do it only in its lake.
        return said.use == "dropped" or (said.use == "made" and said.is_delta)
    if said.there is None:
        return True
    origin = adopted_from(".".join(said.name.namespace), said.name.table)
    if said.there.kind == "VIEW" and (held.adopted or "").lower() == origin.lower():
        return False  # both say the same; a job's old name goes on meaning the one whose text may still change
    if (reason := differs(held, said.there)) is not None:
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


def check_implementation(implementation: str) -> None:
    """Raise UnsupportedError if what a session calls `spark_catalog` may have other tables than its metastore has."""
    if implementation not in IMPLEMENTATIONS:
        raise UnsupportedError(
            f"{SESSION_CATALOG} is set to be a {implementation} here, which may have other tables than Spark's "
            "metastore, so session-names cannot tell what a name means. Nothing was done. Write the lake's names, and "
            "set session-names to false"
        )


def folders_of(root: str, tables: Iterable[Table]) -> dict[str, Name]:
    """Return which table of a lake lies in which folder, as `comparable` has it.

    Args:
        root: the lake's, as `Storage.url` gives it.
        tables: those of the lake.
    """
    return {comparable(url_below(root, table.location)): table.name for table in tables}


def check_dropped(said: Said, folders: Mapping[str, Name]) -> None:
    """Refuse what would have Spark delete or move files of the lake, under whatever name the session catalog has them.

    Args:
        said: a name that is not the lake's.
        folders: as `folders_of` gives them.

    Raises:
        UnsupportedError: the session catalog owns the table's folder, in which one of the lake's tables lies.
    """
    if said.use == "dropped" or (said.use == "made" and not said.is_delta):
        _check_folder(str(said.name), _owned(said.there), folders)


def check_schema_dropped(
    schema: str, folder: str | None, listed: Iterable[Listed], folders: Mapping[str, Name]
) -> None:
    """Refuse to have Spark delete files of the lake with a schema: those of its tables, and all below its own folder.

    Args:
        schema: its name.
        folder: the schema's own folder, a whole URL; None if the session catalog does not say.
        listed: what the session catalog has in it.
        folders: as `folders_of` gives them.

    Raises:
        UnsupportedError: a table of the lake lies there.
    """
    _check_folder(f"schema {schema}", folder, folders)
    for each in listed:
        _check_folder(f"{schema}.{each.name}", _owned(each), folders)


def _owned(there: Listed | None) -> str | None:
    """Return the folder that goes with a table of the session catalog; None if it is not the catalog's to delete."""
    return None if there is None or there.kind.endswith(("EXTERNAL", "VIEW")) else there.location


def _check_folder(what: str, folder: str | None, folders: Mapping[str, Name]) -> None:
    if folder is None:
        return
    place = _comparable(folder)
    for url, name in folders.items():
        if f"{url}/".startswith(f"{place}/") or f"{place}/".startswith(f"{url}/"):
            raise UnsupportedError(
                f"{what} of {SESSION_CATALOG} has the files of the lake's table {name}, which would go with it: "
                f"nothing was done. CALL <lake>.system.release(table => '{name}') first gives the table back, "
                f"then this is {SESSION_CATALOG}'s alone"
            )


def _comparable(location: str) -> str:
    try:
        return comparable(url_of(location))
    except LockstepError:  # in a kind of store that no lake is in
        return location


def differs(held: Held, there: Listed) -> str | None:
    """Return why what both have is not one table; None if it is."""
    if held.url is None:
        return "the lake has a view"
    if (reason := why_left(there)) is not None:
        return f"of {SESSION_CATALOG}'s, {reason}"
    if there.location is None:
        return f"{SESSION_CATALOG} does not say where its table lies"
    if _comparable(there.location) != comparable(held.url):
        return f"one lies in {held.url}, the other in {there.location}"
    return None
