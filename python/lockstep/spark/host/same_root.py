"""Whether both sides of a session see the same root of a lake: the shim observes, and this side judges.

Lockstep keeps the timeline by requests of its own, and Spark reads and writes the tables by Hadoop's file systems. If
the two are set up differently, a commit names files that are not where readers look. So before the first answer about a
lake the host wants to know what Spark sees of the newest entry of its timeline (`LookFirst`). An entry has the id of
its transaction in it, so no other lake has the same; and the newest is the last to expire.

A lake is looked at once, for as long as this process has it in memory: Spark opens one file for that, and this side
reads it once.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias
from weakref import WeakSet

from cachetools import FIFOCache

from lockstep.errors import ConfigurationError, LockstepError, UnavailableError
from lockstep.lake.lake import Lake
from lockstep.spark.host.protocol.roots import Look, SawRoot
from lockstep.spark.host.uris import Uris
from lockstep.storage import is_hdfs, is_local
from lockstep.storage.failures import cause_of
from lockstep.storage.options import hadoop_addresses, place_of, without_keys
from lockstep.timeline.files import entry_path, gone

MOST_READ = 64 * 1024
"""So many bytes of an entry are compared: what tells it from others stands before that."""

PENDING_LOOKS = 100
"""Looks that were asked for and not yet told of: a driver that is interrupted tells of none."""

NOT_ALLOWED = "42501"
"""PostgreSQL's SQLSTATE of what one has no permission for."""

MOST_SHOWN = 1000
"""So many characters of what was thrown on Spark's side are shown."""

_TRIES = 3
"""So often the newest entry is read that expires meanwhile."""

Verdict: TypeAlias = Literal["same", "other", "absent", "denied", "no file system", "failed"]


@dataclass(frozen=True, slots=True)
class Expected:
    """A file of the timeline as this side sees it.

    Attributes:
        path: relative to the root.
        size: its bytes.
        length: how many of them are compared.
        digest: their SHA-256, in hex.
        is_first: whether it is the entry that a lake is made with, and there is none after it.
    """

    path: str
    size: int
    length: int
    digest: str
    is_first: bool


class LookFirst(Exception):  # noqa: N818 (no error: an answer, from wherever in a request it turns out to be due)
    """The request is to be sent again when Spark has looked."""

    def __init__(self, look: Look) -> None:
        super().__init__(look)
        self.look = look


class SameRoots:
    """The lakes of which it is known that Spark sees them, too; safe to call from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._same: WeakSet[Lake] = WeakSet()
        self._pending: FIFOCache[str, tuple[Lake, Expected]] = FIFOCache(PENDING_LOOKS)

    def require(self, lake: Lake) -> None:
        """Go on if Spark sees this root.

        Raises:
            LookFirst: it is not known.
            UnavailableError, CorruptTimelineError: the newest entry cannot be read.
        """
        with self._lock:
            if lake in self._same:
                return
        url, expected, root = lake.storage.url, _newest_entry(lake), secrets.token_hex(8)
        with self._lock:
            self._pending[root] = lake, expected
        raise LookFirst(
            Look(
                root=root,
                uri=Uris(url).head(expected.path),
                size=expected.size,
                length=expected.length,
                settings=_addresses(url),
            )
        )

    def saw(self, seen: SawRoot) -> None:
        """Judge what Spark saw, and remember the lake if it is this one.

        Raises:
            ConfigurationError (F0000): Spark sees another root; (42501) it may not read it.
            UnavailableError: Spark could not read it for another reason.
        """
        with self._lock:
            lake, expected = self._pending.pop(seen.root, (None, None))
        if lake is None or expected is None:
            return  # asked for by a host that died, say: nothing is known, and the request that comes again is told so
        verdict = verdict_of(expected, seen)
        if verdict == "same":
            with self._lock:
                self._same.add(lake)
        elif verdict in ("denied", "no file system", "failed") or _reads(lake, expected.path) == expected:
            url = lake.storage.url
            theirs = spark_side(Uris(url).real(""), seen.file_system, seen.settings)
            raise refusal_of(verdict, expected, lake.storage.address, theirs, seen.message or "")
        # Else the entry has expired meanwhile, for this side, too: the request comes again, and a newer is looked at.


def _newest_entry(lake: Lake) -> Expected:
    for _ in range(_TRIES):
        path = entry_path(lake.timeline.head_file)
        if (found := _reads(lake, path)) is not None:
            return found
        lake.timeline.refresh()
    newest = lake.timeline.head.version
    raise gone(lake.storage, newest, newest)


def _reads(lake: Lake, path: str) -> Expected | None:
    """Return a file as this side sees it now; None if it does not."""
    if (data := lake.storage.get(path)) is None:
        return None
    first = data[:MOST_READ]
    return Expected(path, len(data), len(first), hashlib.sha256(first).hexdigest(), path == entry_path(0))


def _addresses(url: str) -> list[str]:
    if is_hdfs(url):
        return ["fs.hdfs.impl", "dfs.nameservices"]
    return ["fs.file.impl"] if is_local(url) else hadoop_addresses(place_of(url))


# --- the judgement ----------------------------------------------------------------------------------------------------

_DENIED = {"java.nio.file.AccessDeniedException", "org.apache.hadoop.security.AccessControlException"}
_ABSENT = {
    "java.io.FileNotFoundException",
    "java.nio.file.NoSuchFileException",
    "org.apache.hadoop.fs.s3a.UnknownStoreException",  # no such bucket
}
_NO_FILE_SYSTEM = {
    "java.lang.ClassNotFoundException",
    "java.lang.NoClassDefFoundError",
    "org.apache.hadoop.fs.UnsupportedFileSystemException",
}
_PERMISSION = re.compile(r"\(Permission denied\)(;|$)|\bStatus Code: 40[013]\b")
"""What is said of a local file that may not be read, and by Amazon's client where s3a translates nothing.

400 is what S3 answers to a token of a session that has expired, or is none.
"""


def verdict_of(expected: Expected, seen: SawRoot) -> Verdict:
    """Say what it means that Spark saw this where a certain file was expected."""
    if seen.digest is not None:
        is_same = (seen.length, seen.digest) == (expected.length, expected.digest)
        return "same" if is_same else "other"
    thrown = set(seen.failures)
    if thrown & _DENIED or _PERMISSION.search(seen.message or ""):
        return "denied"
    if thrown & _ABSENT:
        return "absent"
    return "no file system" if thrown & _NO_FILE_SYSTEM else "failed"


def spark_side(root: str, file_system: str | None, settings: Mapping[str, str]) -> str:
    """Return where Spark looks, for a message: no value that might have a key in it."""
    by = [file_system] if file_system else []
    by += [f"{name}={without_keys(value)}" for name, value in sorted(settings.items())]
    return f"{root} ({', '.join(by) or 'no address is set'})"


def refusal_of(verdict: Verdict, expected: Expected, ours: str, theirs: str, message: str) -> LockstepError:
    """Return why nothing is read or written.

    Args:
        verdict: any but that it is the same.
        ours: where Lockstep looks.
        theirs: where Spark looks.
        message: what was thrown on Spark's side.
    """
    said = _without_password(cause_of(message))[:MOST_SHOWN]
    match verdict:
        case "denied":
            return ConfigurationError(
                f"Spark may not read {expected.path}, which Lockstep reads, so whether both see the same root is not "
                f"known, and nothing was read or written. Lockstep looks at {ours}, Spark at {theirs}: {said}. Give "
                "both the same keys, or the permission to read the root, and start Spark again",
                sqlstate=NOT_ALLOWED,
            )
        case "no file system":
            return ConfigurationError(
                f"Spark has no file system for {theirs}: {said}. Nothing was read or written. Start Spark with the "
                "jars that docs/storage.md names for this kind of store"
            )
        case "failed":
            return UnavailableError(
                f"Spark could not read {expected.path}, which Lockstep reads, so whether both see the same root is not "
                f"known, and nothing was read or written. Lockstep looks at {ours}, Spark at {theirs}: {said}. Run the "
                "statement again; if this stays so, compare the two addresses"
            )
        case _:
            what = "no such file" if verdict == "absent" else "another file of this name"
            made = (
                " If this session made the lake, it lies where Lockstep sees it, and is empty."
                if expected.is_first
                else ""
            )
            return ConfigurationError(
                f"Spark and Lockstep see different roots, so nothing was read or written: at {ours} Lockstep sees "
                f"{expected.path} ({expected.size} bytes), and Spark sees {what} at {theirs}.{made} {_ADVICE}"
            )


_ADVICE = (
    "Have both look at the same place, and start Spark again. Of an object store, say where it is by `options=` of "
    "lockstep.configure, which tells both sides, or by store.* of the catalog and Hadoop's settings alike "
    "(docs/storage.md). Of a folder, run both with the same mounts and root directory, and leave fs.file.impl and "
    "fs.hdfs.impl as Hadoop has them"
)

_PASSWORD = re.compile(r"//[^\s/@:]*:[^\s/@]*@")


def _without_password(text: str) -> str:
    return _PASSWORD.sub("//…@", text)
