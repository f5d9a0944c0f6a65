"""The settings of a session with a Lockstep catalog: as a dict, or put into a builder.

spark = lockstep.configure(SparkSession.builder, root="/data/lake", catalog="lake").getOrCreate()
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from lockstep.arbiters.address import address_of
from lockstep.arguments import takes
from lockstep.errors import (
    InvalidError,
)
from lockstep.settings import (
    ARBITER,
    CREATE,
    EXTENSIONS,
    FILE_CONTEXT,
    FILE_SYSTEM,
    FILE_SYSTEM_CACHE,
    ISOLATION,
    LOCATIONS,
    LOCATIONS_ONLY,
    LOG_STORE,
    PREFIX_OF_CATALOG,
    REDACTION,
    ROOT,
    SPARK_CATALOG,
    STORE,
)
from lockstep.spark.bridge import EXTENSION, attach
from lockstep.spark.connectors import EXCLUDES, PACKAGES, fetched
from lockstep.spark.defaults import is_of_connect
from lockstep.spark.jars import session_jars
from lockstep.storage import is_hdfs, is_local, refuse_options, url_of
from lockstep.storage.hadoop import check_url
from lockstep.storage.locations import Said, registered
from lockstep.storage.options import hadoop_settings, of_environment, place_of
from lockstep.storage.told import stores_of
from lockstep.timeline.entry import Isolation

DELTA_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
DELTA_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"

_TYPES: dict[str, Any] = {
    "root": str,
    "catalog": str,
    "isolation": str,
    "options": Mapping | None,
    "arbiter": str | None,
    "locations": Mapping | None,
    "locations_only": bool,
}
"""What `conf` and `configure` both take."""


@takes(**_TYPES)
def conf(
    *,
    root: str,
    catalog: str = "lake",
    create: bool | None = None,
    isolation: Isolation = "SERIALIZABLE",
    options: dict[str, str] | None = None,
    arbiter: str | None = None,
    locations: Said | None = None,
    locations_only: bool = False,
    jars: bool = True,
    packages: bool = False,
) -> dict[str, str]:
    """Return the Spark settings that Lockstep needs, for a `spark-defaults.conf` or `--conf`.

    Args:
        root: the lake's path or URL.
        catalog: what SQL calls it: `catalog.namespace.table`.
        create: make the lake if there is none; by default for local paths only.
        isolation: the level of transactions that do not ask for one.
        options: for object stores: `endpoint`, `region`, `access_key_id`, …; Hadoop's file system of the store is set
            to the same from the start, as far as it has that (docs/storage.md).
        arbiter: who decides the entries of a lake whose store cannot (docs/storage.md).
        locations: where tables may lie beside the root: by the URL or the path of each folder the options of its store,
            `{}` for those of the lake's own. Hadoop's file systems are set to the same, as for `options`.
        locations_only: refuse to read, write or delete anywhere else (42501).
        jars: include `spark.jars`, which fetches Delta's jars if they are nowhere on this machine.
        packages: for object stores: include `spark.jars.packages`, by which Spark fetches Hadoop's connectors for the
            root and the locations as it starts, unless it has them among its own jars (docs/storage.md).

    Raises:
        InvalidError: the catalog's name cannot be one, or the arbiter or a location none.
        ConfigurationError (F0000): two places say other options of one bucket.
        UnavailableError, UnsupportedError: see `lockstep.spark.jars` and `lockstep.spark.connectors`.
    """
    if not catalog.isidentifier():
        raise InvalidError(f"{catalog!r} cannot be a catalog's name: use letters, digits and _")
    if f"{PREFIX_OF_CATALOG}{catalog.lower()}" == SPARK_CATALOG.name:
        raise InvalidError(
            f"{catalog!r} cannot be the lake's catalog, for it is Spark's own, which Delta needs. Choose another name; "
            "`USE <catalog>` makes names without a catalog the lake's"
        )
    if arbiter:
        address_of(arbiter)  # one with a password in it must not become a setting
    settings = {
        EXTENSIONS.name: f"{DELTA_EXTENSION},{EXTENSION}",
        SPARK_CATALOG.name: DELTA_CATALOG,
        f"{PREFIX_OF_CATALOG}{catalog}": "lockstep.spark.LockstepCatalog",
        ROOT.of(catalog): root,
        CREATE.of(catalog): str(is_local(root) if create is None else create).lower(),
        ISOLATION.of(catalog): isolation,
        **({ARBITER.of(catalog): arbiter} if arbiter else {}),
        **{STORE.of(catalog).replace("*", key): value for key, value in (options or {}).items()},
        **_of_locations(catalog, locations or {}),
        **({LOCATIONS_ONLY.of(catalog): "true"} if locations_only else {}),
        **_of_hadoop(root, options or {}, locations or {}),
        FILE_SYSTEM.name: "lockstep.spark.LockstepFileSystem",
        FILE_CONTEXT.name: "lockstep.spark.LockstepFileContext",
        # Each transaction has an authority of its own: a cache of file systems would grow with every one.
        FILE_SYSTEM_CACHE.name: "true",
        LOG_STORE.name: "lockstep.spark.LockstepLogStore",
    }
    if options or any((locations or {}).values()):
        settings[REDACTION.name] = _KEYS
    if jars:
        settings["spark.jars"] = ",".join(map(str, session_jars()))
    if packages:
        settings |= fetched([*_stores(root, options or {}, locations or {})])
    return settings


def _of_locations(catalog: str, locations: Said) -> dict[str, str]:
    """Return the settings of a catalog that register locations."""
    settings: dict[str, str] = {}
    for number, (url, options) in enumerate(locations.items(), 1):
        parts = {"url": url, **{f"store.{key}": value for key, value in (options or {}).items()}}
        settings |= {LOCATIONS.of(catalog).replace("*", f"{number}.{key}"): value for key, value in parts.items()}
    return settings


def _of_hadoop(root: str, options: Mapping[str, str], locations: Said) -> dict[str, str]:
    """Return what Spark's side must be told to reach the same stores in the same way; nothing for local folders."""
    if is_hdfs(root):
        check_url(root)
        refuse_options(root, options)
    stores = _stores(root, options, locations)
    found = [hadoop_settings(place_of(each), own, of_environment()) for each, own in stores.items()]
    return {f"spark.hadoop.{key}": value for settings in found for key, value in settings.items()}


def _stores(root: str, options: Mapping[str, str], locations: Said) -> Mapping[str, Mapping[str, str]]:
    url = url_of(root)
    return stores_of(url, options, registered(url, options, locations), of_environment())


_KEYS = (
    "(?i:secret|password|token|access[._]?key|account[._]?key|master[._]?key|sas[._]?key|service[._]account|"
    "private[._]?key|proxy_url)"
)
"""Names of settings whose values Spark hides in its UI: its own default, and what stores have besides."""

_LISTS = (EXTENSIONS.name, "spark.jars", PACKAGES, EXCLUDES)
"""Settings that are lists: ours are added to the user's, never put in their place."""


@takes(**_TYPES)
def configure(
    builder: SparkSession.Builder,
    *,
    root: str,
    catalog: str = "lake",
    create: bool | None = None,
    isolation: Isolation = "SERIALIZABLE",
    options: dict[str, str] | None = None,
    arbiter: str | None = None,
    locations: Said | None = None,
    locations_only: bool = False,
    packages: bool = False,
) -> SparkSession.Builder:
    """Return a builder whose `getOrCreate()` gives a session with a Lockstep catalog; arguments as in `conf`.

    What the builder already says is kept: lists are added to, and a setting with another value is an error.

    Raises:
        InvalidError: the builder's settings contradict Lockstep's.
        UnsupportedError: from `getOrCreate()`: a session without Lockstep runs in this process already.
    """
    ours = conf(
        root=root,
        catalog=catalog,
        create=create,
        isolation=isolation,
        options=options,
        arbiter=arbiter,
        locations=locations,
        locations_only=locations_only,
        packages=packages,
    )
    theirs: dict[str, Any] = builder._options
    new_builder = _Builder()
    new_builder._options = {**theirs, **{key: _merged(key, theirs.get(key), value) for key, value in ours.items()}}
    of_stores = (*(each.of(catalog).removesuffix("*") for each in (STORE, LOCATIONS)), "spark.hadoop.fs.")
    keys = {key for key in ours if key.startswith(of_stores) and re.search(_KEYS, key)}
    new_builder._keys = keys | getattr(builder, "_keys", set())
    return new_builder


def _merged(key: str, theirs: Any, ours: str) -> str:
    if theirs is None or str(theirs) == ours:
        return ours
    if key == REDACTION.name:  # Spark's default is part of ours; the user's is kept, whatever it is
        return str(theirs) if ours in str(theirs) else f"(?:{theirs})|{ours}"
    if key not in _LISTS:
        raise InvalidError(f"{key} is set to {theirs}, but Lockstep needs {ours}; take that setting out")
    items = [item for item in str(theirs).split(",") if item]
    return ",".join([*items, *(item for item in ours.split(",") if item not in items)])


class _Builder(SparkSession.Builder):
    """Spark's builder, whose sessions are attached to this process's host.

    Attributes:
        _keys: the settings that have a key of a store, or may have one.
    """

    _keys: set[str]

    def getOrCreate(self) -> SparkSession:
        if self._keys and not is_of_connect(self._options):
            # Else PySpark starts the JVM with all settings on its command line, which every user of the machine can
            # read. If there is a JVM, this does nothing, and a SparkContext gets its settings from here.
            shown = {key: value for key, value in self._options.items() if key not in self._keys}
            SparkContext._ensure_initialized(conf=SparkConf().setAll(list(shown.items())))
        spark = super().getOrCreate()
        attach(spark)
        return spark
