"""What Lockstep needs of a machine and of a store, each tried for real: `lockstep doctor`."""

from __future__ import annotations

import platform
import re
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from importlib import metadata

from lockstep.arbiters import arbiter_of
from lockstep.display import counted
from lockstep.errors import LockstepError, UnavailableError, UnsupportedError
from lockstep.spark import connectors
from lockstep.spark.jars import delta_jars, java, shim_jar
from lockstep.storage import Storage, has_options
from lockstep.storage.outside import open_reaching
from lockstep.storage.proof import race
from lockstep.storage.urls import comparable, is_outside
from lockstep.timeline.clock import far_ahead, utc_now
from lockstep.timeline.entry import Table
from lockstep.timeline.log import Timeline
from lockstep.timeline.standing import standing
from lockstep.workers import Workers

OLDEST_PYTHON = (3, 11)
OLDEST_JAVA = 17
JAVA_TIMEOUT_SECONDS = 30

PROBE = "_lockstep/doctor-"
"""How folders begin in which something is written to see whether the store keeps its promises; they are removed."""

MOST_TABLES = 100
"""So many tables are tried at most, `AT_ONCE` at a time, and so many of those named that are not well."""
AT_ONCE = 16
MOST_SHOWN = 5

_JAVA_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


@dataclass(frozen=True, slots=True)
class Finding:
    """What came of one check.

    Attributes:
        what: what was looked at.
        is_well: whether it is as it has to be.
        detail: what there is; where it is not well, what is wrong and what to do.
    """

    what: str
    is_well: bool
    detail: str


def examine(root: str | None, *, now: Callable[[], datetime] = utc_now) -> Iterator[Finding]:
    """Yield what comes of each check: of this machine, and of a lake's store if a root is given.

    A check that fails is a finding and no error. Delta's jars are fetched if they are nowhere, as a session would.
    """
    yield _found("python", lambda: _python(sys.version_info[:2]))
    yield _found("pyspark", lambda: f"{metadata.version('pyspark')}, shim {shim_jar().name}")
    yield _found("java", lambda: _java(java()))
    yield _found("delta", lambda: ", ".join(jar.name for jar in delta_jars()) or "among Spark's own jars")
    if root is None:
        return
    if has_options(root):
        yield _found("connector", lambda: connectors.told(root))
    timelines: list[Timeline] = []
    yield _found("lake", lambda: _lake(root, timelines))
    if timelines:
        if timelines[0].arbiter_name is None:
            yield _found("store", lambda: conditional_writes(timelines[0].storage))
        else:
            yield _found("arbiter", lambda: _arbiter(timelines[0]))
        yield _found("tables", lambda: _tables(timelines[0]))
        yield _found("clock", lambda: _clock(timelines[0], now()))


def _found(what: str, look: Callable[[], str]) -> Finding:
    try:
        return Finding(what, True, look())
    except LockstepError as error:
        return Finding(what, False, error.message)
    except metadata.PackageNotFoundError as error:
        return Finding(what, False, f"{error.name} is not installed: pip install {error.name}")
    except ImportError as error:
        package = (error.name or "lockstep").partition(".")[0]
        return Finding(what, False, f"{package} cannot be imported ({error}): pip install {package}")
    except OSError as error:  # of this machine: a store's are Lockstep's own
        return Finding(what, False, f"{error}: give who runs this leave to read and write there")


def _python(version: tuple[int, ...]) -> str:
    if version < OLDEST_PYTHON:
        least = ".".join(map(str, OLDEST_PYTHON))
        raise UnsupportedError(f"{platform.python_version()}: Lockstep needs {least} or newer; install it")
    return platform.python_version()


def _java(path: str) -> str:
    """Return which Java a path is; how a version is printed is the same since Java 1.0."""
    try:
        done = subprocess.run(
            [path, "-version"], capture_output=True, text=True, timeout=JAVA_TIMEOUT_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise UnavailableError(f"{path} does not run ({error}): install Java {OLDEST_JAVA} or newer") from error
    said = next((line for line in done.stderr.splitlines() if "version" in line), done.stderr.strip())
    return java_of(path, said)


def java_of(path: str, said: str) -> str:
    """Return what a Java said of its version, unless that is none that Spark runs on.

    Raises:
        UnsupportedError: it is too old, or nobody can tell.
    """
    match = _JAVA_VERSION.search(said)
    if match is None or int(match[1]) < OLDEST_JAVA:
        raise UnsupportedError(
            f"{path} is {said or 'silent about its version'}: Spark needs Java {OLDEST_JAVA} or newer; install it, and "
            "set JAVA_HOME"
        )
    return f"{said} ({path})"


def _lake(root: str, timelines: list[Timeline]) -> str:
    storage = open_reaching(root)
    timeline = Timeline.open(storage, arbiter=arbiter_of(None, comparable(storage.url)))
    timelines.append(timeline)
    return f"{timeline.storage.url}, database version {timeline.head.version}"


def _arbiter(timeline: Timeline) -> str:
    """Tell how the lake's arbiter stands to its store, which need not know conditional writes then."""
    found = standing(timeline)
    if found.wrong:
        raise UnavailableError(f"{found.arbiter} {found.wrong}: see `lockstep arbiter`")
    return f"{found.arbiter}, which decided database version {found.decided}"


def conditional_writes(storage: Storage) -> str:
    """Try what a COMMIT relies on: of several who write one new object at once, exactly one wins, and is read back.

    Raises:
        UnavailableError: the store cannot be written, or does not keep that promise, or does not delete.
    """
    folder = f"{PROBE}{secrets.token_hex(8)}"
    if wrong := race(storage, folder=folder):
        raise UnavailableError(
            f"{storage.url} does not write an object only if it is absent (If-None-Match: *): {wrong}. Commits would "
            "be lost there. Use a store whose conditional writes are atomic"
        )
    if any(True for _ in storage.walk(folder)):
        raise UnavailableError(
            f"what was written below {folder} in {storage.url} was deleted and is still there: allow deletions, and "
            "remove it"
        )
    return "reads, writes only what is absent, deletes"


def _tables(timeline: Timeline) -> str:
    """Read and write in each table's log, those first that lie outside of the lake: each may have owners of its own.

    Raises:
        UnavailableError: one of them cannot be read, or written.
    """
    tables = sorted(timeline.head.tables.values(), key=lambda table: (not is_outside(table.location), table.name))
    some = tables[:MOST_TABLES]
    found = Workers(AT_ONCE, "lockstep-doctor").map(lambda table: _why_not(timeline.storage, table), some)
    wrong = [f"{table.name} at {table.location}: {why}" for table, why in zip(some, found, strict=True) if why]
    if wrong:
        more = f"; and {len(wrong) - MOST_SHOWN} more" if len(wrong) > MOST_SHOWN else ""
        raise UnavailableError(
            f"of {len(some)} tables {len(wrong)} cannot be used: {'; '.join(wrong[:MOST_SHOWN])}{more}. Give who runs "
            "this leave to read, write and delete there"
        )
    left = f"; the other {len(tables) - len(some)} were not looked at" if len(tables) > len(some) else ""
    return f"the logs of {counted(len(some), 'table')}: read, written and deleted in{left}"


def _why_not(storage: Storage, table: Table) -> str:
    """Return why a table's log cannot be read, or written; nothing, if it can."""
    log = f"{table.location}/_delta_log"
    try:
        newest = max(storage.list(log), default=None)
        if newest is None or storage.get(f"{log}/{newest}") is None:
            return "there is no log, or it may not be read"
    except LockstepError as error:
        return f"it cannot be read: {error.message}"
    probe = f"{log}/.lockstep-doctor-{secrets.token_hex(8)}"
    try:
        storage.put(probe, b"")
        storage.delete(probe)
    except LockstepError as error:
        return f"it cannot be written: {error.message}"
    return "what is written there cannot be deleted" if storage.exists(probe) else ""


def _clock(timeline: Timeline, now: datetime) -> str:
    if (wrong := far_ahead(timeline.head, now)) is not None:
        raise UnavailableError(wrong)
    return f"{now.isoformat(timespec='seconds')}, behind which the newest version is"
