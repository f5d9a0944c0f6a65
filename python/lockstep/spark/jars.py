"""The jars that a Spark session needs for Lockstep: our shim, and Delta's.

    >>> builder.config("spark.jars", ",".join(map(str, session_jars())))

The shim travels inside this package, one jar per Spark minor. Delta's jars do not (pip's delta-spark holds none): they
are looked for by their exact names, in this order,

    1. the folder given
    2. $LOCKSTEP_JARS
    3. the jars folder of the Spark in use: Delta is then on the class path already, and no jar needs adding
    4. $XDG_CACHE_HOME/lockstep/jars, or ~/.cache/lockstep/jars

and fetched into the last one when they are nowhere, by the Ivy that Spark ships: it knows where published jars are and
needs nothing but Java. What is in the cache has a pinned SHA-256; the other folders are their owner's affair.

Errors: UnsupportedError for a Spark without a shim, UnavailableError when a jar is missing and cannot be fetched.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from lockstep._version import __version__
from lockstep.errors import UnavailableError, UnsupportedError
from lockstep.settings import CACHE_HOME, JARS, JAVA_HOME, SPARK_HOME

FETCH_TIMEOUT_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Artifact:
    """One published jar: its Maven coordinates, and the only content that is accepted under them.

    Attributes:
        classifier: which of several jars of one module; empty for the main one.
    """

    organisation: str
    module: str
    revision: str
    sha256: str
    classifier: str = ""

    @property
    def file_name(self) -> str:
        """The name it has in every folder here."""
        return f"{self.module}-{self.revision}{f'-{self.classifier}' if self.classifier else ''}.jar"

    def __str__(self) -> str:
        return f"{self.organisation}:{self.module}:{self.revision}"


@dataclass(frozen=True, slots=True)
class SparkSupport:
    """What goes with one minor version of Spark."""

    scala: str
    delta: tuple[Artifact, ...]


_DELTA = "4.4.0"
_DELTA_STORAGE = Artifact(
    "io.delta", "delta-storage", _DELTA, "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc"
)
_DELTA_SPARK = {
    "4.0": "49e899667168b9412f83cbe894ce264107d7b896d6c5e12edca4e216845c1104",
    "4.1": "75a9400986853c061f5109f012547de2545a5759e5e752e5ef633dabe16a4f10",
    "4.2": "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead",
}

SUPPORTED: dict[str, SparkSupport] = {
    minor: SparkSupport(
        scala="2.13",
        delta=(Artifact("io.delta", f"delta-spark_{minor}_2.13", _DELTA, sha256), _DELTA_STORAGE),
    )
    for minor, sha256 in _DELTA_SPARK.items()
}
"""By Spark minor. A new one needs its line here and in the Makefile, and perhaps a `scala-spark-<minor>+` folder."""


def session_jars(folder: Path | None = None) -> list[Path]:
    """Return every jar to add to a session: the shim, then Delta's unless Spark has it already."""
    return [shim_jar(), *delta_jars(folder)]


def shim_jar() -> Path:
    """Return the shim for the installed pyspark."""
    minor, support = _support()
    jar = Path(__file__).parents[1] / "jars" / f"lockstep-spark_{minor}_{support.scala}-{__version__}.jar"
    if not jar.is_file():
        raise UnsupportedError(
            f"this installation of Lockstep has no {jar.name}; run `make jar SPARK={minor}` in its source tree, "
            "or install a wheel of `make wheel`, which has one for each Spark"
        )
    return jar


def delta_jars(folder: Path | None = None) -> list[Path]:
    """Return Delta's jars for the installed pyspark, fetched if need be; none where Spark's own folder has Delta."""
    _, support = _support()
    explicit = [folder] if folder else []
    if from_environment := os.environ.get(JARS.name):
        explicit.append(Path(from_environment))
    for candidate in explicit:
        if all((candidate / artifact.file_name).is_file() for artifact in support.delta):
            return [candidate / artifact.file_name for artifact in support.delta]
    spark = spark_jars_folder()
    if any(spark.glob("delta-spark_*.jar")):
        return []
    return cached_files(support.delta, cache_folder(), ivy_jar(spark))


def compatible() -> str:
    """Return which versions work together, a line for each Spark."""
    return "\n".join(
        f"  Spark {minor} with {' and '.join(f'{delta.module} {delta.revision}' for delta in support.delta)}"
        for minor, support in sorted(SUPPORTED.items())
    )


def spark_jars_folder() -> Path:
    """Return the folder of the jars that pyspark will start: $SPARK_HOME's, or pip's."""
    if home := os.environ.get(SPARK_HOME.name):
        return Path(home, "jars")
    import pyspark

    return Path(pyspark.__file__).parent / "jars"


def cache_folder() -> Path:
    """Return the folder where fetched jars are kept for this user."""
    return Path(os.environ.get(CACHE_HOME.name) or Path.home() / ".cache") / "lockstep" / "jars"


def ivy_jar(spark_jars: Path) -> Path:
    """Return the Ivy among Spark's jars."""
    paths = sorted(spark_jars.glob("ivy-*.jar"))
    if not paths:
        raise UnavailableError(
            f"no ivy-*.jar in {spark_jars} to fetch other jars with: install all of pyspark, or put Delta's jars into "
            f"a folder and name it in {JARS.name}"
        )
    return paths[-1]


def java() -> str:
    """Return the Java to run, the one Spark would take: $JAVA_HOME's, or the first of the PATH."""
    home = os.environ.get(JAVA_HOME.name)
    path = shutil.which("java", path=str(Path(home, "bin"))) if home else shutil.which("java")
    if not path:
        where = f"in JAVA_HOME ({home})" if home else "on the PATH"
        raise UnavailableError(f"no java {where}; Spark needs Java 17 or newer: install it, or set {JAVA_HOME.name}")
    return path


def cached_files(artifacts: Sequence[Artifact], folder: Path, ivy: Path) -> list[Path]:
    """Return the artifacts' files in the folder, after fetching those that are missing or damaged."""
    missing_artifacts = [artifact for artifact in artifacts if not _is_whole(folder / artifact.file_name, artifact)]
    if missing_artifacts:
        fetch(missing_artifacts, folder, ivy)
    return [folder / artifact.file_name for artifact in artifacts]


def fetch(artifacts: Sequence[Artifact], folder: Path, ivy: Path) -> None:
    """Fetch exactly these artifacts, without what they depend on, into the folder.

    Ivy works in a temporary folder of its own, so neither a half-filled ~/.ivy2 or ~/.m2 nor another process can spoil
    it; each file is checked and then renamed into place, so whoever looks sees a whole file or none.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Inside the target folder: a rename is atomic only within one file system.
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as scratch:
            report = _run_ivy(artifacts, Path(scratch), ivy)
            arrived = [Path(scratch, "out", artifact.file_name) for artifact in artifacts]
            if not all(path.is_file() for path in arrived):
                raise _unavailable(artifacts, folder, report)
            for artifact, path in zip(artifacts, arrived, strict=True):
                if not _is_whole(path, artifact):
                    raise _unavailable(artifacts, folder, f"{artifact} came with the wrong content: {_sha256(path)}")
                path.replace(folder / artifact.file_name)
    except OSError as error:
        raise _unavailable(artifacts, folder, str(error)) from error


def _run_ivy(artifacts: Iterable[Artifact], scratch: Path, ivy: Path) -> str:
    """Let Ivy put the artifacts into `<scratch>/out`; return what it had to complain about."""
    module = scratch / "ivy.xml"
    module.write_text(_ivy_module(artifacts), encoding="utf-8")
    # Relative names, except where Ivy insists: a bracket in the path would be read as one of its patterns.
    command = [
        *(java(), f"-Divy.default.ivy.user.dir={scratch}", "-jar", str(ivy), "-warn"),
        *("-ivy", module.name, "-cache", str(scratch / "cache"), "-confs", "default", "-types", "jar"),
        *("-retrieve", "out/[artifact]-[revision](-[classifier]).[ext]"),
    ]
    try:
        process = subprocess.run(
            command,
            cwd=scratch,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=FETCH_TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {FETCH_TIMEOUT_SECONDS} seconds"
    return _complaint(process.stdout)


def _ivy_module(artifacts: Iterable[Artifact]) -> str:
    """Return an Ivy file that asks for these artifacts; the configuration `master` is an artifact without the rest."""
    dependencies = "".join(
        f"<dependency org={quoteattr(artifact.organisation)} name={quoteattr(artifact.module)} "
        f'rev={quoteattr(artifact.revision)} conf="default->master">{_classified(artifact)}</dependency>'
        for artifact in artifacts
    )
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="lockstep" module="fetch"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )


def _classified(artifact: Artifact) -> str:
    """Return which jar of a module is meant, where it is not the main one."""
    if not artifact.classifier:
        return ""
    name, classifier = quoteattr(artifact.module), quoteattr(artifact.classifier)
    return f'<artifact name={name} type="jar" ext="jar" m:classifier={classifier} conf="default"/>'


def _complaint(output: str) -> str:
    """Return the line of Ivy's long report that says why: an error if there is one, else what was not found."""
    lines = [line.strip(": \t") for line in output.splitlines()]
    for sign in ("exception", "error at", ": not found"):
        for line in lines:
            if sign in line.lower():
                return line
    return next((line for line in reversed(lines) if line), "Ivy said nothing")


def _unavailable(artifacts: Sequence[Artifact], folder: Path, why: str) -> UnavailableError:
    names = ", ".join(artifact.file_name for artifact in artifacts)
    coordinates = ", ".join(map(str, artifacts))
    return UnavailableError(
        f"could not fetch {coordinates} ({why}); without network, put {names} into {folder}, "
        "or into a folder named by LOCKSTEP_JARS"
    )


def _support() -> tuple[str, SparkSupport]:
    """Return the minor version of the installed pyspark, and what goes with it."""
    import pyspark

    minor = ".".join(pyspark.__version__.split(".")[:2])
    if minor not in SUPPORTED:
        raise UnsupportedError(
            f"pyspark is {pyspark.__version__}, and this Lockstep works with\n{compatible()}\nInstall one of these."
        )
    return minor, SUPPORTED[minor]


def _is_whole(path: Path, artifact: Artifact) -> bool:
    return path.is_file() and _sha256(path) == artifact.sha256


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
