"""Whether both sides of a session see the same root of a lake: the shim observes, and this side judges.

Lockstep keeps the timeline by requests of its own, and Spark reads and writes the tables by Hadoop's file systems. If
the two are set up differently, a commit names files that are not where readers look. So before the first answer about a
lake the host wants to know what Spark sees of the newest entry of its timeline (`LookFirst`). An entry has the id of
its transaction in it, so no other lake has the same; and the newest is the last to expire.

A lake is looked at once, for as long as this process has it in memory: Spark opens one file for that, and this side
reads it once. In an object store it is once for each name that a catalog of it has, for with the look Spark's side is
told what the catalog's options mean to Hadoop (`lockstep.storage.told`), and whether they are everybody's may differ by
the name. It is told so of the stores of registered locations, too, in which nothing is looked at.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias
from weakref import WeakKeyDictionary

from cachetools import FIFOCache

from lockstep.errors import ConfigurationError, LockstepError, UnavailableError
from lockstep.lake.lake import Lake
from lockstep.settings import store_options
from lockstep.spark.connectors import connector_of
from lockstep.spark.host.protocol.roots import Beside, Look, SawBeside, SawRoot, Told
from lockstep.spark.host.uris import Uris
from lockstep.storage import is_hdfs, is_local
from lockstep.storage.failures import cause_of
from lockstep.storage.options import hadoop_addresses, keys_of_lockstep_alone, of_environment, place_of, without_keys
from lockstep.storage.outside import locations_of
from lockstep.storage.told import names_no_server, names_told_to_hadoop, other_server, stores_of, told_to_hadoop
from lockstep.storage.urls import without_password
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

_ANY = ""
"""Stands for all catalogs of a lake whose root Hadoop reaches without options."""

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


@dataclass(frozen=True, slots=True)
class _Pending:
    """A look that was asked for.

    Attributes:
        lake: the lake.
        catalog: the name of the catalog that it was asked for, or `_ANY`.
        expected: what Spark is to see.
        alone: the catalog's options that say who asks, and that Hadoop has nothing for.
        beside: places in other stores that Spark's side is told of.
        unsaid: those of them of which it is not told which server they are asked of.
    """

    lake: Lake
    catalog: str
    expected: Expected
    alone: tuple[str, ...]
    beside: tuple[str, ...]
    unsaid: tuple[str, ...]


class SameRoots:
    """The lakes of which it is known that Spark sees them, too; safe to call from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._same: WeakKeyDictionary[Lake, set[str]] = WeakKeyDictionary()
        self._pending: FIFOCache[str, _Pending] = FIFOCache(PENDING_LOOKS)

    def require(self, lake: Lake, catalog: str, settings: Mapping[str, str]) -> None:
        """Go on if Spark sees this root, by what a catalog's options mean to it.

        Args:
            lake: the lake.
            catalog: the catalog's name.
            settings: what is set for it.

        Raises:
            LookFirst: it is not known.
            UnavailableError, CorruptTimelineError: the newest entry cannot be read.
        """
        with self._lock:
            known = self._same.get(lake, ())
        if catalog in known or _ANY in known:
            return
        url, expected, root = lake.storage.url, _newest_entry(lake), secrets.token_hex(8)
        environment = of_environment()
        stores = stores_of(url, store_options(settings), locations_of(lake.storage), environment)
        own, beside = stores.get(url), [each for each in stores if each != url]
        unsaid = [each for each in beside if names_no_server(place_of(each), stores[each], environment)]
        tells, names = _told(url, own)
        alone = () if own is None else tuple(keys_of_lockstep_alone(place_of(url), own))
        with self._lock:
            self._pending[root] = _Pending(
                lake, catalog if stores else _ANY, expected, alone, tuple(beside), tuple(unsaid)
            )
        raise LookFirst(
            Look(
                root=root,
                uri=Uris(url).head(expected.path),
                size=expected.size,
                length=expected.length,
                settings=list(dict.fromkeys(name for each in (url, *unsaid) for name in _addresses(each))),
                catalog=catalog,
                tells=tells,
                names=names,
                beside=[_beside(catalog, each, stores[each]) for each in beside],
            )
        )

    def saw(self, seen: SawRoot) -> None:
        """Judge what Spark saw, and remember the lake if it is this one.

        Raises:
            ConfigurationError (F0000): Spark sees another root; (42501) it may not read it; another catalog says other
                options of the same store.
            UnavailableError: Spark could not read it for another reason.
        """
        with self._lock:
            pending = self._pending.pop(seen.root, None)
        if pending is None:
            return  # asked for by a host that died, say: nothing is known, and the request that comes again is told so
        lake, expected = pending.lake, pending.expected
        if seen.others:
            raise _told_otherwise(lake.storage.url, pending.catalog, seen.others)
        verdict = verdict_of(expected, seen)
        if verdict == "same":
            for url, told in zip(pending.beside, seen.beside, strict=True):
                _check_beside(pending.catalog, url, told)
            for url in pending.unsaid:
                _check_server(pending.catalog, url, seen.settings)
            with self._lock:
                self._same.setdefault(lake, set()).add(pending.catalog)
        elif verdict in ("denied", "no file system", "failed") or _reads(lake, expected.path) == expected:
            url = lake.storage.url
            settings = {name: seen.settings[name] for name in _addresses(url) if name in seen.settings}
            theirs = spark_side(Uris(url).real(""), seen.file_system, settings)
            why = why_untold(pending.catalog, seen, pending.alone)
            raise refusal_of(
                verdict, expected, lake.storage.address, theirs, seen.message or "", why=why, jars=_jars_for(url)
            )
        # Else the entry has expired meanwhile, for this side, too: the request comes again, and a newer is looked at.

    def forget(self) -> None:
        """Have each lake looked at again: it is another Spark that asks, and it was told nothing yet."""
        with self._lock:
            self._same.clear()
            self._pending.clear()


def _told(url: str, options: Mapping[str, str] | None, *, is_location: bool = False) -> tuple[list[Told], list[str]]:
    """Return what the options of a place's store mean to Hadoop, and what they could; nothing where it has none."""
    if options is None:
        return [], []
    place = place_of(url)
    found = told_to_hadoop(place, options, of_environment(), is_location=is_location)
    return [Told(settings=dict(each.settings), unless=[*each.unless]) for each in found], names_told_to_hadoop(place)


def _beside(catalog: str, url: str, options: Mapping[str, str]) -> Beside:
    tells, names = _told(url, options, is_location=True)
    return Beside(uri=Uris(url).head(""), catalog=catalog, tells=tells, names=names)


def _check_beside(catalog: str, url: str, told: SawBeside) -> None:
    """Raise unless Spark reaches a location as its settings say: nothing is looked at there that would show it.

    Where somebody has made Hadoop's settings of the very store himself, that is his word for it.
    """
    if told.others:
        raise _told_otherwise(url, catalog, told.others)
    if told.message is not None:
        raise _not_opened(catalog, url, told.failures, told.message)
    if told.untold is not None:
        why = (
            "What the catalog says was set by this session, and Spark's file systems are those of all sessions: "
            "register the location where Spark starts."
            if told.untold == "session"
            else _OPENED.format(catalog)
        )
        raise ConfigurationError(
            f"Spark may reach {Uris(url).real('')}, a location of catalog {catalog}, otherwise than Lockstep, and "
            f"nothing was read or written. {why} See docs/storage.md#locations"
        )


def _not_opened(catalog: str, url: str, failures: Sequence[str], message: str) -> LockstepError:
    where = f"{Uris(url).real('')}, a location of catalog {catalog}"
    said = f"{without_password(cause_of(message))[:MOST_SHOWN]}. Nothing was read or written"
    match _meaning_of(failures, message):
        case "denied":
            return ConfigurationError(
                f"Spark may not open {where}: {said}. Give it keys that may (docs/storage.md#locations), and start "
                "Spark again",
                sqlstate=NOT_ALLOWED,
            )
        case "no file system":
            return ConfigurationError(
                f"Spark has no file system for {where}: {said}. Start Spark with {_jars_for(url)}, or leave the "
                "location out"
            )
        case "absent":
            return ConfigurationError(f"Spark finds no store at {where}: {said}. Correct its URL, or its endpoint")
        case _:
            return UnavailableError(f"Spark could not open {where}: {said}. Run the statement again")


def _check_server(catalog: str, url: str, settings: Mapping[str, str]) -> None:
    """Raise if Spark asks another server for a location than the cloud's, which Lockstep asks for it.

    Args:
        settings: those of Hadoop's that say so.
    """
    if (name := other_server(place_of(url), settings)) is not None:
        own, whole = ("account", "accounts") if place_of(url).kind == "azure" else ("bucket", "buckets")
        raise ConfigurationError(
            f"Spark asks another server for {Uris(url).real('')}, a location of catalog {catalog}, than Lockstep does: "
            f"{name} is set for all {whole}, and the location's options have no endpoint. Nothing was read or written. "
            f"Say the endpoint among the location's options, or set Hadoop's for its {own} (docs/storage.md#locations)"
        )


def _jars_for(url: str) -> str:
    """Return what to start Spark with so that it has a file system for a root, for a message."""
    try:
        return connector_of(url).arguments
    except LockstepError:  # a local root, or HDFS; or one of which nothing is known here
        return "the jars that docs/storage.md names for this kind of store"


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
    return _meaning_of(seen.failures, seen.message or "")


def _meaning_of(failures: Sequence[str], message: str) -> Verdict:
    """Say what it means that this was thrown on Spark's side."""
    thrown = set(failures)
    if thrown & _DENIED or _PERMISSION.search(message):
        return "denied"
    if thrown & _ABSENT:
        return "absent"
    return "no file system" if thrown & _NO_FILE_SYSTEM else "failed"


def spark_side(root: str, file_system: str | None, settings: Mapping[str, str]) -> str:
    """Return where Spark looks, for a message: no value that might have a key in it."""
    by = [file_system] if file_system else []
    by += [f"{name}={without_keys(value)}" for name, value in sorted(settings.items())]
    return f"{root} ({', '.join(by) or 'no address is set'})"


def refusal_of(
    verdict: Verdict, expected: Expected, ours: str, theirs: str, message: str, *, why: str = "", jars: str = ""
) -> LockstepError:
    """Return why nothing is read or written.

    Args:
        verdict: any but that it is the same.
        ours: where Lockstep looks.
        theirs: where Spark looks.
        message: what was thrown on Spark's side.
        why: a sentence on why Spark's side was not told all that the catalog's options say, with a blank before it.
        jars: what Spark must be started with so that it has a file system for the root.
    """
    said = without_password(cause_of(message))[:MOST_SHOWN]
    match verdict:
        case "denied":
            return ConfigurationError(
                f"Spark may not read {expected.path}, which Lockstep reads, so whether both see the same root is not "
                f"known, and nothing was read or written. Lockstep looks at {ours}, Spark at {theirs}: {said}.{why} "
                "Give both the same keys, or the permission to read the root, and start Spark again",
                sqlstate=NOT_ALLOWED,
            )
        case "no file system":
            return ConfigurationError(
                f"Spark has no file system for {theirs}: {said}. Nothing was read or written. Start Spark with {jars}"
            )
        case "failed":
            return UnavailableError(
                f"Spark could not read {expected.path}, which Lockstep reads, so whether both see the same root is not "
                f"known, and nothing was read or written. Lockstep looks at {ours}, Spark at {theirs}: {said}.{why} "
                "Run the statement again; if this stays so, compare the two addresses"
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
                f"{expected.path} ({expected.size} bytes), and Spark sees {what} at {theirs}.{made}{why} {_ADVICE}"
            )


def why_untold(catalog: str, seen: SawRoot, alone: Sequence[str] = ()) -> str:
    """Return why Spark's side was not told all that a catalog's options say, with a blank before it; mostly nothing.

    Args:
        catalog: the catalog's name.
        seen: what the shim told.
        alone: options that Hadoop has nothing for.
    """
    said = []
    if seen.untold == "session":
        said.append(
            f"What catalog {catalog}'s store.* says was set by this session, and is not told to Spark, whose file "
            "systems are those of all sessions: set it where Spark starts, or set Hadoop's settings in this session as "
            "well."
        )
    if seen.untold == "opened":
        said.append(_OPENED.format(catalog))
    if seen.kept:
        said.append(
            f"Spark keeps what is set: {', '.join(sorted(seen.kept))}; what the catalog's store.* says of the same is "
            "not told to it."
        )
    if alone:
        said.append(f"{', '.join(alone)}: Hadoop has nothing for that, so Spark asks with what keys it finds itself.")
    return "".join(f" {each}" for each in said)


_OPENED = (
    "Spark had opened this store before catalog {} was used for the first time, and goes on as it did: use the catalog "
    "first, or set Hadoop's settings where Spark starts, as spark.hadoop.…, too."
)


def _told_otherwise(url: str, catalog: str, others: Mapping[str, str]) -> ConfigurationError:
    """Return why a catalog is not used that says something else of a store than one that was used before."""
    place = Uris(url).real("").rstrip("/")
    first = ", ".join(sorted({*others.values()}))
    return ConfigurationError(
        f"catalog {catalog} says other options of {place} than catalog {first}, which was used first "
        f"({', '.join(sorted(others))}), and Spark has one of each for a store; nothing was read or written. Give both "
        "the same store.*, or set Hadoop's settings yourself, as spark.hadoop.…, which are kept then; and start "
        "Spark again (docs/storage.md#options)"
    )


_ADVICE = (
    "Have both look at the same place, and start Spark again. Of an object store, say where it is by store.* of the "
    "catalog, or by `options=` of lockstep.configure, which tell both sides, and leave Hadoop's settings of it out "
    "(docs/storage.md#options). Of a folder, run both with the same mounts and root directory, and leave fs.file.impl "
    "and fs.hdfs.impl as Hadoop has them"
)
