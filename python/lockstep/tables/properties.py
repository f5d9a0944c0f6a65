"""Properties of tables: which may be set without Spark, when, and to what; judged before anything is written.

delta.*       of Delta's own, those of the table here, with the values that Delta's `DeltaConfig` takes for each; others
              of Delta's are for Spark to set (0A000), and what Delta does not know is refused (22023)
lockstep.*    what `lockstep.lake.policy` says of foreign commits, and nothing else
what names a part of the table to Spark (`comment`, `location`, `owner`, …) is said in other ways
all else      is its user's
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

from lockstep.delta.combine.evolution import INERT
from lockstep.errors import InvalidError, UnsupportedError
from lockstep.lake.policy import POLICIES
from lockstep.lake.policy import PROPERTY as EXTERNAL_COMMITS

When: TypeAlias = Literal["at any time", "when a table is made"]


class Property(NamedTuple):
    """One of Delta's: how it is spelled, when it may be set here, what is a value of it, and how that is said."""

    key: str
    is_value: Callable[[str], bool]
    expected: str
    when: When = "at any time"


_UNITS = {
    "microsecond": 1,
    "millisecond": 10**3,
    "second": 10**6,
    "minute": 60 * 10**6,
    "hour": 3600 * 10**6,
    "day": 86400 * 10**6,
    "week": 7 * 86400 * 10**6,
}
_PART = re.compile(rf"([+-]?)\s*([0-9]{{1,15}}|[0-9]{{0,9}}\.[0-9]{{1,9}})\s+({'|'.join(_UNITS)})s?(?:\s+|\Z)")
_DIGITS_OF_DAYS = 8
"""Of days and weeks; what Delta has room for is more by little."""
_WHOLE = re.compile(r"[+-]?[0-9]{1,10}")


def interval(text: str) -> int | None:
    """Return how many microseconds a text says as Delta reads it, as `interval 1 week 2 days`; None if it is none.

    Months and years are of no certain length, and are none to Delta either.
    """
    said = text.strip().lower()
    said = said[len("interval ") :].lstrip() if said.startswith("interval ") else said
    micros, at = 0, 0
    while at < len(said):
        if (part := _PART.match(said, at)) is None:
            return None
        sign, number, unit = part.groups()
        if ("." in number and unit != "second") or (len(number) > _DIGITS_OF_DAYS and unit in ("day", "week")):
            return None
        whole, _, fraction = number.partition(".")
        count = int(whole or 0) * _UNITS[unit] + int((fraction + "0" * 6)[:6])
        micros += -count if sign == "-" else count
        at = part.end()
        if abs(micros) >= 2**63:
            return None
    return micros if at and micros >= 0 else None


def _integer(text: str) -> int | None:
    number = int(text) if _WHOLE.fullmatch(text) else None
    return number if number is not None and -(2**31) <= number < 2**31 else None


def _at_least(least: int) -> Callable[[str], bool]:
    return lambda text: (number := _integer(text)) is not None and number >= least


def _boolean(key: str, when: When = "at any time") -> Property:
    return Property(f"delta.{key}", lambda text: text.lower() in ("true", "false"), "true or false", when)


def _interval(key: str) -> Property:
    expected = "an interval as '30 days' or 'interval 1 week 12 hours', without months and years, and not below zero"
    return Property(f"delta.{key}", lambda text: interval(text) is not None, expected)


PROPERTIES: Mapping[str, Property] = {
    each.key.lower(): each
    for each in (
        _boolean("appendOnly"),
        _boolean("autoOptimize"),
        _boolean("autoOptimize.autoCompact"),
        _boolean("autoOptimize.optimizeWrite"),
        _boolean("checkpoint.writeStatsAsJson"),
        _boolean("checkpoint.writeStatsAsStruct"),
        _boolean("enableDeletionVectors"),
        _boolean("enableExpiredLogCleanup"),
        _boolean("enableFullRetentionRollback"),
        _boolean("randomizeFilePrefixes"),
        _boolean("enableChangeDataFeed", "when a table is made"),
        _boolean("enableInCommitTimestamps", "when a table is made"),
        _interval("checkpointRetentionDuration"),
        _interval("deletedFileRetentionDuration"),
        _interval("logRetentionDuration"),
        _interval("sampleRetentionDuration"),
        _interval("setTransactionRetentionDuration"),
        Property("delta.checkpointInterval", _at_least(1), "a whole number above 0"),
        Property("delta.randomPrefixLength", _at_least(1), "a whole number above 0"),
        Property("delta.dataSkippingNumIndexedCols", _at_least(-1), "a whole number, or -1 for all columns"),
        Property("delta.isolationLevel", lambda text: text.lower() == "serializable", "Serializable"),
        Property(
            "delta.columnMapping.mode", lambda text: text in ("none", "name"), "none or name", "when a table is made"
        ),
    )
}
"""By key in lower case, those of Delta's that are set here, with the values that Delta takes."""

_OF_SPARK = frozenset(
    {"casticebergtimetype", "checkpointpolicy", "columnmapping.maxcolumnid",
     "compatibility.symlinkformatmanifest.enabled", "dataskippingstatscolumns",
     "dataskippingstringprefixlength", "dropfeaturetruncatehistory.retentionduration",
     "enablechangedatacapture", "enableicebergcompatv1", "enableicebergcompatv2", "enableicebergcompatv3",
     "enablematerializepartitioncolumnsfeature", "enablerowtracking", "enabletypewidening",
     "enablevariantshredding", "ignoreicebergbucketpartition", "ignoreprotocoldefaults",
     "incommittimestampenablementtimestamp", "incommittimestampenablementversion", "minreaderversion",
     "minwriterversion", "parquet.format.version", "redirectreaderwriter-preview",
     "redirectwriteronly-preview", "requirecheckpointprotectionbeforeversion", "rowtrackingsuspended",
     "writepartitioncolumnstoparquet"}
)  # fmt: skip
"""What else Delta has, after `delta.`, in lower case."""
_OF_SPARK_BEGIN = ("constraints.", "coordinatedcommits.", "universalformat.")
_FEATURE = "delta.feature."
_FEATURE_VALUES = ("supported", "enabled")

_RESERVED: Mapping[str, str] = {
    "comment": "alter.set_table_description says it",
    **dict.fromkeys(("location", "provider", "external", "is_managed_location", "table_type"), "the lake decides it"),
    "owner": "no table of a lake has one",
    "collation": "it is said in Spark",
}
"""What Spark keeps for parts of a table that it knows itself; how each is said."""


def spelling(key: Any) -> Any:
    """Return how Delta spells a key of its own: it finds them by their very spelling, and takes any."""
    known = PROPERTIES.get(key.lower()) if isinstance(key, str) else None
    return known.key if known else key


def spelled(properties: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return properties with those of Delta's, as far as anything goes by them here, spelled as Delta does.

    Raises:
        InvalidError: one is there twice, in two spellings.
    """
    found: dict[Any, Any] = {}
    for key, value in properties.items():
        if (name := spelling(key)) in found:
            raise InvalidError(f"the property {name} is given twice, as {key}, too: once is enough")
        found[name] = value
    return found


def check_set(properties: Mapping[Any, Any], table: str, *, is_new: bool) -> None:
    """Raise unless properties may be set, to these values.

    Args:
        properties: as `spelled` returns them.
        table: its name, for messages.
        is_new: whether the table is made with them.

    Raises:
        InvalidError: a key that is none, a value that is none of its property's, or a property of Delta's or Lockstep's
            that there is not (22023).
        UnsupportedError: one that only Spark sets.
    """
    for key, value in properties.items():
        what = f"the property {key!r:.100} of table {table}"
        if not isinstance(key, str) or not key.strip():
            raise InvalidError(f"{what} has no name: give it one")
        if not isinstance(value, str):
            raise InvalidError(f"{what} is {value!r:.100}: expected a text")
        lower = key.lower()
        if (instead := _RESERVED.get(lower)) is not None:
            raise InvalidError(f"{what} is no property of yours: {instead}. Nothing was written")
        if lower.startswith("lockstep."):
            _check_own(what, key, value)
        elif lower.startswith("delta."):
            _check_of_delta(what, lower, value, is_new=is_new)


def _check_own(what: str, key: str, value: str) -> None:
    if key != EXTERNAL_COMMITS:
        raise InvalidError(
            f"{what} is none of Lockstep's, which has {EXTERNAL_COMMITS}, spelled so. Nothing was written"
        )
    if value.lower() not in POLICIES:
        raise InvalidError(f"{what} is {value!r:.100}, expected one of {', '.join(POLICIES)}. Nothing was written")


def _check_of_delta(what: str, key: str, value: str, *, is_new: bool) -> None:
    known = PROPERTIES.get(key)
    if key == "delta.columnmapping.mode" and value.lower() == "id":
        raise UnsupportedError(f"{what} is not set to id without Spark: create the table in Spark")
    if known is not None and not known.is_value(value):
        raise InvalidError(f"{what} is {value!r:.100}: expected {known.expected}. Nothing was written")
    if known is not None and (is_new or known.when == "at any time"):
        return
    if key.startswith(_FEATURE) and value.lower() not in _FEATURE_VALUES:
        raise InvalidError(f"{what} is {value!r:.100}: expected supported. Nothing was written")
    name = key.removeprefix("delta.")
    if known is not None or name in _OF_SPARK or key.startswith(_FEATURE) or name.startswith(_OF_SPARK_BEGIN):
        hint = "; alter.add_constraint adds one" if name.startswith("constraints.") else ""
        when = "when the table is made alone" if known is not None else "not without Spark"
        raise UnsupportedError(f"{what} is set {when}{hint}: use Spark with Lockstep for it. Nothing was written")
    raise InvalidError(f"{what} is none that Delta knows: see its spelling. Nothing was written")


def check_unset(keys: Iterable[Any], table: str) -> None:
    """Raise unless properties may be unset; one that nobody has set may be.

    Raises:
        InvalidError: a key that is no text. UnsupportedError: one that only Spark sets, or that stays what it is.
    """
    for key in keys:
        if not isinstance(key, str):
            raise InvalidError(f"the property {key!r:.100} of table {table} is no text")
        known = PROPERTIES.get(key.lower())
        may_be = key.lower() in INERT or (known is not None and known.when == "at any time")
        if key.lower().startswith("delta.") and not may_be:
            raise UnsupportedError(
                f"the property {key} of table {table} is not unset without Spark: use Spark with Lockstep for it"
            )


_LOG, _FILES = "delta.logRetentionDuration", "delta.deletedFileRetentionDuration"
_DEFAULTS = {_LOG: "30 days", _FILES: "7 days"}


def check_retention(configuration: Mapping[str, str], changed: Iterable[str], table: str) -> None:
    """Raise if files that are gone would be kept longer than the log that names them, which Delta refuses, too.

    Args:
        configuration: all of a table's properties, as they will be.
        changed: which of them are set now; what others have set is not judged.
    """
    if not {_LOG, _FILES} & set(changed):
        return
    said = {key: configuration.get(key, default) for key, default in _DEFAULTS.items()}
    log, files = interval(said[_LOG]), interval(said[_FILES])
    if log is not None and files is not None and log < files:
        raise InvalidError(
            f"table {table}: {_LOG} ({said[_LOG]}) is shorter than {_FILES} ({said[_FILES]}), which it names: set "
            "both. Nothing was written"
        )
