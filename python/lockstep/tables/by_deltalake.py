"""How deltalake is asked for a table, and how it says that it does not read one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from lockstep.errors import UnsupportedError
from lockstep.storage.failures import is_panic
from lockstep.storage.options import KINDS, obstore_settings, of_environment, place_of

if TYPE_CHECKING:
    from deltalake import DeltaTable


@contextmanager
def refusing(refusal: Callable[[BaseException], UnsupportedError]) -> Iterator[None]:
    """Raise what is made of an error by which deltalake, or Arrow for it, does not read a table in a block.

    deltalake panics if a process has too many files open to make its threads. What it raises then is no `Exception`.
    """
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (DeltaError, OSError, pa.ArrowException) as error:
        raise refusal(error) from error
    except BaseException as error:
        if not is_panic(error):
            raise
        raise refusal(error) from error


def open_table(place: str, version: int, options: Mapping[str, str] | None) -> DeltaTable:
    """Return a table at a version, so that the files are found that lie elsewhere in its store.

    Raises:
        DeltaError, OSError: deltalake does not read it.
    """
    from deltalake import DeltaTable

    stated = None if options is None else dict(options)
    table = DeltaTable(place, version=version, storage_options=stated)
    if (other := _other_name(place)) is not None and _names_files(table, other):
        table = DeltaTable(other, version=version, storage_options=stated)
    return table


_READ = frozenset({"columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint"})
"""The features of readers with which deltalake reads all tables."""


def check_features(table: DeltaTable) -> None:
    """See that a table has no feature of readers for which deltalake would refuse to read it, without reading a file.

    Raises:
        DeltaError: it has.
    """
    if not _READ.issuperset(table.protocol().reader_features or ()):
        scan_nothing(table)


def scan_nothing(table: DeltaTable) -> None:
    """Have deltalake say whether it reads a table, without reading a file.

    Raises:
        DeltaError, ArrowException: it does not.
    """
    table.scan(columns=columns_of(table)[:1], predicate="false")


def columns_of(table: DeltaTable) -> list[str]:
    """Return the names of a table's columns."""
    return [field.name for field in table.schema().fields]


def options_of(uri: str, options: Mapping[str, str]) -> dict[str, str] | None:
    """Return a store's options as delta-rs calls them; what is not said comes from the environment, as everywhere."""
    if uri.partition("://")[0] not in KINDS:
        return dict(options) or None
    place = place_of(uri)
    settings = obstore_settings(place, options, of_environment())
    if place.kind != "s3":
        return dict(settings.config) or None
    # With the prefix of the cloud, each of them once: it passes over names that it does not know.
    named = {f"aws_{key.removeprefix('aws_')}": value for key, value in settings.config.items()}
    if named.pop("aws_endpoint_url_s3", ""):
        named["aws_endpoint"] = settings.endpoint
    if settings.profile:
        named["aws_profile"] = settings.profile
    return named or None


def _other_name(place: str) -> str | None:
    """Return what else a place in S3 is called: Spark says `s3a`, and most others `s3`; None for any other place."""
    scheme, mark, rest = place.partition("://")
    other = {"s3": "s3a", "s3a": "s3"}.get(scheme)
    return None if other is None else f"{other}{mark}{rest}"


def _names_files(table: DeltaTable, place: str) -> bool:
    """Tell whether a table names files that lie elsewhere, as a clone does, by the scheme of a place.

    deltalake finds them if the table itself was opened by that.
    """
    scheme = place.partition("://")[0]
    # Of a file elsewhere it shows the URI behind the table's own place, and with one slash.
    return any(f"{scheme}:/" in uri for uri in table.file_uris())
