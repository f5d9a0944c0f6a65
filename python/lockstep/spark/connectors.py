"""Which of Hadoop's connectors Spark needs to read and write a lake in an object store.

    >>> connector_of("s3://bucket/lake").arguments
    '--packages org.apache.hadoop:hadoop-aws:3.5.0,… --exclude-packages software.amazon.awssdk:bundle'

Spark brings none of them, and neither does Lockstep: Spark fetches them as it starts, if it is told their coordinates.
They must be of the same release as the Hadoop in Spark, so the coordinates follow from the jars that Spark has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from lockstep.errors import UnavailableError, UnsupportedError
from lockstep.spark.jars import spark_jars_folder
from lockstep.storage.options import Kind, place_of

PACKAGES = "spark.jars.packages"
EXCLUDES = "spark.jars.excludes"

_HADOOP = "hadoop-client-api-"
"""How the jar is called by which Spark's release of Hadoop is known."""

_MODULES: Mapping[Kind, str] = {"s3": "hadoop-aws", "azure": "hadoop-azure", "gs": "hadoop-gcp"}

_OLDEST: Mapping[str, tuple[int, ...]] = {"hadoop-gcp": (3, 5)}
"""The release of Hadoop in which a connector came, where that is newer than the oldest that Spark 4 has."""

_AWS_SDK = {"3.4.1": "2.24.6", "3.4.2": "2.29.52", "3.5.0": "2.35.4"}
"""By Hadoop's release: of Amazon's SDK the one that its hadoop-aws is made for."""

_AWS_PARTS = ("s3", "s3-transfer-manager", "sts")
"""What s3a uses of Amazon's SDK: with what they need, 20 MB. Its bundle, which hadoop-aws asks for, has 600."""

_AWS_BUNDLE = "software.amazon.awssdk:bundle"


@dataclass(frozen=True, slots=True)
class Connector:
    """What Spark is told so that it has a file system for a kind of store.

    Attributes:
        module: the connector's name, with which its jar's begins.
        release: Hadoop's.
        packages: coordinates that Spark fetches, with what they need.
        excludes: of that, what it does not.
    """

    module: str
    release: str
    packages: tuple[str, ...]
    excludes: tuple[str, ...] = ()

    @property
    def arguments(self) -> str:
        """What to give spark-submit, pyspark or spark-sql."""
        excludes = f" --exclude-packages {','.join(self.excludes)}" if self.excludes else ""
        return f"--packages {','.join(self.packages)}{excludes}"


def fetched(urls: Iterable[str]) -> dict[str, str]:
    """Return the settings by which Spark fetches the connectors of some stores, but for those that it has.

    Raises:
        UnsupportedError, InvalidError, UnavailableError: see `connector_of`.
    """
    found = [each for each in dict.fromkeys(map(connector_of, urls)) if not own_jar(each)]
    packages = [each for connector in found for each in connector.packages]
    excludes = [each for connector in found for each in connector.excludes]
    return {name: ",".join(each) for name, each in ((PACKAGES, packages), (EXCLUDES, excludes)) if each}


def connector_of(root: str, spark_jars: Path | None = None) -> Connector:
    """Return the connector for a root in an object store.

    Args:
        root: the URL of a lake.
        spark_jars: the folder of Spark's own jars; by default of the Spark that pyspark will start.

    Raises:
        UnsupportedError: there is none that Spark can be told so for this release of Hadoop, or no store for the URL.
        InvalidError: the URL names no bucket.
        UnavailableError: which Hadoop Spark has cannot be told.
    """
    module, release = _MODULES[place_of(root).kind], hadoop_release(spark_jars or spark_jars_folder())
    if _numbers(release) < _OLDEST.get(module, ()):
        raise UnsupportedError(
            f"Hadoop {release}, which this Spark has, has no connector for {root.partition('://')[0]}:// of its own, "
            f"as {'.'.join(map(str, _OLDEST[module]))} and newer do: give Spark Google's by --jars, the jar that ends "
            "in -shaded (com.google.cloud.bigdataoss:gcs-connector)"
        )
    packages = (f"org.apache.hadoop:{module}:{release}",)
    if module != "hadoop-aws" or release not in _AWS_SDK:
        return Connector(module, release, packages)
    parts = (f"software.amazon.awssdk:{part}:{_AWS_SDK[release]}" for part in _AWS_PARTS)
    return Connector(module, release, (*packages, *parts), (_AWS_BUNDLE,))


def told(root: str, spark_jars: Path | None = None) -> str:
    """Return which jar Spark has for a root in an object store, or what to start it with; for a person.

    Raises:
        UnsupportedError: the jar is of another release than Spark's Hadoop; and see `connector_of`.
        InvalidError, UnavailableError: see `connector_of`.
    """
    folder = spark_jars or spark_jars_folder()
    connector = connector_of(root, folder)
    if (jar := own_jar(connector, folder)) is None:
        return f"not among Spark's own jars, so start Spark with {connector.arguments}"
    if jar != (needed := f"{connector.module}-{connector.release}.jar"):
        raise UnsupportedError(f"{folder} has {jar}, and its Hadoop is {connector.release}: put {needed} in its place")
    return f"{jar}, among Spark's own jars"


def own_jar(connector: Connector, spark_jars: Path | None = None) -> str | None:
    """Return the name of a connector's jar that Spark has already, of whatever release; None if it has none."""
    found = sorted((spark_jars or spark_jars_folder()).glob(f"{connector.module}-[0-9]*.jar"))
    return found[-1].name if found else None


def hadoop_release(spark_jars: Path) -> str:
    """Return which Hadoop a Spark has, by its jars.

    Raises:
        UnavailableError: there is no such jar, as in a Spark that is built without Hadoop.
    """
    for jar in sorted(spark_jars.glob(f"{_HADOOP}[0-9]*.jar")):
        return jar.name.removeprefix(_HADOOP).removesuffix(".jar")
    raise UnavailableError(
        f"no {_HADOOP}*.jar in {spark_jars}, so which Hadoop this Spark has is not known: give it the connector of its "
        "release (docs/storage.md)"
    )


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split(".")[:2] if part.isdigit())
