"""What a lake takes in of a schema of Spark's session catalog, and what it leaves where it is. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lockstep.adoption.adopt import MAX_NAMED, Found, Wanted
from lockstep.adoption.finding import MAX_TABLES
from lockstep.errors import InvalidError, UnsupportedError
from lockstep.timeline.entry import Name, Namespace, ViewDefinition

SESSION_CATALOG = "spark_catalog"

ADOPTED = "lockstep.adopted"
"""Under this key among the properties of a view that was adopted is its name in Spark's session catalog."""

IMPLEMENTATIONS = frozenset(
    {
        "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "org.apache.spark.sql.execution.datasources.v2.V2SessionCatalog",
    }
)
"""The classes of `spark_catalog` that show what Spark's session catalog has, and nothing else."""

_OTHERWISE = (
    "adopt the folder in which its tables lie (folder => …), or one table after the other (table => …, location => …)"
)


@dataclass(frozen=True, slots=True)
class Listed:
    """A table or a view, as the session catalog tells it.

    Attributes:
        name: its last part.
        kind: MANAGED, EXTERNAL, VIEW, or whatever else there may be.
        provider: its format; None if the catalog does not say.
        location: a whole URL of its folder; None if it has none.
    """

    name: str
    kind: str
    provider: str | None = None
    location: str | None = None


@dataclass(frozen=True, slots=True)
class Sorted:
    """What a schema has.

    Attributes:
        wanted: its Delta tables.
        left: all else that is listed in it, each with the reason.
        views: those of its views and functions that the lake makes as well, as it keeps them.
    """

    wanted: list[Wanted]
    left: list[Found]
    views: Sequence[tuple[Name, ViewDefinition]] = ()


def adopted_from(schema: str, view: str) -> str:
    """Return what a view that was adopted says of where it comes from."""
    return f"{SESSION_CATALOG}.{schema}.{view}"


def schema_said(parts: Sequence[str]) -> str:
    """Return which schema of the session catalog a name says.

    Raises:
        InvalidError: it has another number of parts than two.
        UnsupportedError: it is another catalog's.
    """
    name = ".".join(parts)
    if len(parts) == 1:
        raise InvalidError(f"adopt: in which catalog is the schema {name}? Write {SESSION_CATALOG}.{name}")
    if parts[0].lower() != SESSION_CATALOG:
        raise UnsupportedError(
            f"adopt: {name} is a schema of the catalog {parts[0]}, and only those of Spark's session catalog, "
            f"{SESSION_CATALOG}, can be adopted as a whole: {_OTHERWISE}"
        )
    if len(parts) > 2:
        raise InvalidError(f"adopt: {name} is no schema: those of {SESSION_CATALOG} have a name of one part")
    return parts[1]


def definition_said(parts: Sequence[str], kind: str) -> tuple[str, str]:
    """Return which schema of the session catalog a name of a view or a function says, and its last part.

    Args:
        kind: what it is the name of.

    Raises:
        InvalidError: it is no whole name of one in the session catalog.
    """
    if len(parts) != 3 or parts[0].lower() != SESSION_CATALOG:
        raise InvalidError(
            f"adopt: {'.'.join(parts)} is no whole name of a {kind} of Spark's session catalog: write "
            f"{SESSION_CATALOG}.<schema>.<{kind}>"
        )
    return parts[1], parts[2]


def check_implementation(implementation: str) -> None:
    """Raise UnsupportedError if what a session calls `spark_catalog` may show other tables than its metastore has."""
    if implementation not in IMPLEMENTATIONS:
        raise UnsupportedError(
            f"adopt: {SESSION_CATALOG} is set to be a {implementation} here, which may have other tables than Spark's "
            f"metastore: {_OTHERWISE}"
        )


def sort_out(listed: Iterable[Listed], schema: str, namespace: Namespace) -> Sorted:
    """Part the Delta tables of a schema from all else that is listed in it, in the order of their names.

    Args:
        listed: what the session catalog lists.
        schema: its name.
        namespace: where the lake is to have the tables.

    Raises:
        InvalidError: there are more than `MAX_TABLES`.
    """
    found = Sorted([], [])
    for each in sorted(listed, key=lambda each: each.name):
        name = Name(namespace=namespace, table=each.name)
        if (reason := why_left(each)) is None:
            found.wanted.append(Wanted(name, each.location or ""))
        else:
            found.left.append(Found(name, each.location or "", reason=reason))
    if len(found.wanted) > MAX_TABLES:
        raise InvalidError(
            f"schema {SESSION_CATALOG}.{schema} has more than {MAX_TABLES} Delta tables, which are too many for one "
            f"transaction: {_OTHERWISE}"
        )
    return found


def why_left(listed: Listed) -> str | None:
    """Return why something is not adopted with its schema; None if it is a Delta table."""
    match listed.kind:
        case "MANAGED" | "EXTERNAL":
            if listed.provider is not None and listed.provider.lower() == "delta":
                return None
            made = "another format, which is not known" if listed.provider is None else listed.provider
            return f"it is a table of {made}: expected delta. CONVERT TO DELTA makes a table of parquet one"
        case "VIEW":
            return "it is a view, which has no files of its own: CREATE VIEW makes one like it in the lake"
        case "TEMPORARY VIEW":
            return "it is a temporary view of this session, which is in no schema"
        case other:
            return f"it is a {other}: expected a table of delta"


def nothing_in(schema: str, left: Sequence[Found]) -> InvalidError:
    """Return the error that a schema has nothing that a lake takes, which names what it has."""
    more = f"; and {len(left) - MAX_NAMED} more" if len(left) > MAX_NAMED else ""
    what = "; ".join(f"{each.name.table}: {each.reason}" for each in left[:MAX_NAMED])
    has = f" ({what}{more})" if left else ""
    return InvalidError(f"schema {SESSION_CATALOG}.{schema} has no Delta tables{has}. Nothing was changed")
