"""Where a lake's own files live: a small protocol, and the stores that keep it.

Everything that Lockstep promises rests on one operation, `put_if_absent`: of any number of writers of different objects
under one name, on any number of machines, exactly one is told that its object is there, and whoever reads it sees all
of it or nothing.

    '/abs/path', 'relative/path', 'file:///abs/path'   LocalStorage
    's3://bucket/prefix', 's3a://bucket/prefix'        ObjectStorage
    'gs://bucket/prefix'                               ObjectStorage
    'abfss://container@account.dfs.core.windows.net/prefix'   ObjectStorage
    'hdfs://name:8020/path', 'hdfs://nameservice/path'   HadoopStorage, in a process with a Spark driver

docs/storage.md is the contract, and what each kind of error means.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias

from lockstep.arguments import takes
from lockstep.errors import CorruptTimelineError, InvalidError, UnavailableError, UnsupportedError
from lockstep.retry import CLAIM, Backoff

Names: TypeAlias = list[str]
"""A list of names; spelled out because inside a class that has a method `list`, `list[str]` is that method."""


LATEST = datetime.max.replace(tzinfo=UTC)


def time_of(seconds: float) -> datetime:
    """Return a time since 1970, UTC; the latest that there is for one that no calendar has: what is young stays."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return LATEST


@dataclass(frozen=True, slots=True)
class Mine:
    """The object at the path is ours, byte for byte: this call wrote it, or an earlier one whose answer was lost."""


@dataclass(frozen=True, slots=True)
class Theirs:
    """Another object is at the path, and ours is not and will not be.

    Attributes:
        data: what is there.
    """

    data: bytes


@dataclass(frozen=True, slots=True)
class Found:
    """An object as a listing tells of it.

    Attributes:
        path: relative to the root.
        size: in bytes.
        modified_at: when it was written last, UTC, by the store's clock.
    """

    path: str
    size: int
    modified_at: datetime


class Storage(ABC):
    """A folder in a file system or an object store.

    Paths are relative to the root, with '/' between their parts; empty parts, '.', '..' and absolute paths are refused
    with `InvalidError`. Any failure of the store itself raises `UnavailableError`, which names the path and the cause:
    a `StoreRefusedError`, which nobody tries again, if the store would say so again, for keys or permissions say.
    All methods are safe to call from many threads.

    Attributes:
        claim: how often, and how soon, a write is tried again that the store refused for an object that is not there.
        quick: whether a look usually takes some microseconds, less than to have a thread do it; a write takes long.
    """

    claim: Backoff = CLAIM
    quick: bool = False
    _looks_first: bool = False

    @property
    @abstractmethod
    def is_proven_by_use(self) -> bool:
        """Whether nobody has to try that conditional writes are atomic here, since the operating system says so.

        Of a store that is asked over a network only a race does (`lockstep.storage.proof`). There is no default: a
        store around another one that forgot to hand this on would be trusted unseen.
        """
        ...

    @property
    @abstractmethod
    def url(self) -> str:
        """The root as a URL, without a slash at its end: 'file:///data/lake', 's3://bucket/lake'."""
        ...

    @property
    def address(self) -> str:
        """The root, and which server it is asked of, where a URL alone does not say."""
        return self.url

    def look_first(self) -> None:
        """Do without conditional writes from now on: look, and write what is not there.

        For a store that has none, of a lake whose versions an arbiter decides. Of two writers at once both may be told
        that an object is theirs, so whoever asks must not depend on it: all of them write the same, or a name of their
        own, or refuse to work here.
        """
        self._looks_first = True

    @property
    def looks_first(self) -> bool:
        """Whether conditional writes are a look and then a write."""
        return self._looks_first

    @abstractmethod
    def get(self, path: str) -> bytes | None:
        """Return the whole object, or None when there is none at this path."""
        ...

    def put_if_absent(self, path: str, data: bytes) -> Mine | Theirs:
        """Write the object unless something is there; atomic, and what is there is durable when it returns.

        That something is there is never believed unread. S3 answers 409 to one of two writes at once, which means
        "nothing was written, try again", and object_store says that as it says "already exists"
        (apache/arrow-rs-object-store#852); and a client that repeats a request on its own meets its own object.

        Raises:
            UnavailableError: the store failed. Unless it is `definite`, the object may have been written all the same
                (a lost response), or be written later: read it back. What is there is complete: a crash never leaves
                a part of an object under its name.
        """
        if self.looks_first:
            if (content := self.get(path)) is None:
                self.put(path, data)
            return Mine() if content in (None, data) else Theirs(content)
        for attempt in self.claim.tries():
            try:
                if self.try_put(path, data):
                    return Mine()
            except UnavailableError as error:
                if error.definite and attempt > 1:  # one of the writes before this one might still arrive
                    raise error.saying(error.message) from error
                raise
            if (content := self.get(path)) is not None:
                return Mine() if content == data else Theirs(content)
        raise UnavailableError(
            f"cannot write {path} in {self.url}: the store says it is there, and it is not ({attempt} times). "
            "Try again; if it stays so, see whether the store supports conditional writes (If-None-Match)"
        )

    def is_writable(self, folder: str) -> bool:  # noqa: ARG002 (of a store that only tells when it is tried)
        """Tell whether objects can be made in a folder, as far as that is known without trying: True where it is not.

        Args:
            folder: the folder; of an absent one, the nearest folder above it that is there is looked at.
        """
        return True

    def flush(self, paths: Iterable[str]) -> None:  # noqa: ARG002 (a store that stores before it answers)
        """See that objects which others wrote outlive a power cut, if this store was opened for that (`fsync_data`).

        Object stores have nothing to do here: they answer when an object is stored.

        Args:
            paths: the objects; what is not there is passed over, whoever asks has looked for it.

        Raises:
            UnavailableError: the store failed; any of them may be lost in a power cut.
        """
        return

    def sync_names(self, folder: str) -> None:  # noqa: ARG002 (a store that stores before it answers)
        """See that the objects in a folder outlive a power cut, whoever wrote them: they are read before that is sure.

        Object stores have nothing to do here, as with `flush`; what is written by `put_if_absent` needs only its name.

        Raises:
            UnavailableError: the store failed; any of them may be gone after a power cut.
        """
        return

    def put_once(self, path: str, data: bytes) -> None:
        """Write an object whose name says what is in it; fine when it is there already.

        Raises:
            UnavailableError: as `put_if_absent`.
            CorruptTimelineError: another object has the name.
        """
        if isinstance(self.put_if_absent(path, data), Theirs):
            raise CorruptTimelineError(
                f"{path} holds something else than its name says; nothing was written over it. Move that file away "
                "and run the same again"
            )

    @abstractmethod
    def try_put(self, path: str, data: bytes) -> bool:
        """Ask the store once to write the object unless something is there; for `put_if_absent` alone.

        Returns:
            True when this call wrote it; False when the store says that something is there, which may be ours, or
            another's, or nothing at all.
            What is there is durable either way.
        """
        ...

    @abstractmethod
    def put(self, path: str, data: bytes) -> None:
        """Write the object over whatever is there; atomic, but after a crash of the machine the old one may be back."""
        ...

    def put_durably(self, path: str, data: bytes) -> None:
        """Write the object over whatever is there; atomic, and durable when it returns.

        For what must be there before something else is, as `put_if_absent` is for what nobody may write over.
        """
        self.put(path, data)
        self.sync_names(path.rpartition("/")[0])

    def put_advice(self, path: str, data: bytes, *, over: bool = False) -> bool:
        """Write an object on which nothing depends, unless one is there, or over it; tell whether it is there now.

        After a crash of the machine it may be gone or broken, so whoever reads it decodes it strictly.
        """
        if not over:
            return isinstance(self.put_if_absent(path, data), Mine)
        self.put(path, data)
        return True

    def chunks(self, path: str) -> Iterator[bytes] | None:
        """Return the object in pieces, for one that memory may not have room for; None when there is none."""
        data = self.get(path)
        return None if data is None else iter([data])

    def put_chunks(self, path: str, chunks: Iterable[bytes | memoryview]) -> None:
        """Write an object from its pieces, over whatever is there; atomic, and durable when it returns."""
        self.put(path, b"".join(chunks))

    @abstractmethod
    def list(self, folder: str, after: str | None = None) -> Names:
        """Return the names of the objects directly in a folder ('' is the root), sorted; folders in it are left out.

        Args:
            folder: the folder; an absent one has no names.
            after: only names that sort after this one.
        """
        ...

    def walk(self, folder: str) -> Iterator[Found]:
        """Yield all objects below a folder ('' is the root), at whatever depth and in no order; links lead nowhere.

        What comes or goes meanwhile may be among them or not. Only what looks after a lake needs it.

        Raises:
            UnsupportedError: this store has no such listing.
        """
        raise UnsupportedError(f"{self.url} cannot list what is below {folder or '/'}")

    @abstractmethod
    def exists(self, path: str) -> bool:
        """Tell whether an object (not a folder) is at this path."""
        ...

    @abstractmethod
    def delete(self, path: str) -> None:
        """Remove the object; fine when there is none."""
        ...

    def delete_all(self, paths: Iterable[str]) -> None:
        """Remove objects, in this order where the store does one at a time; fine when some are not there.

        Raises:
            UnavailableError: the store failed; some of them may be gone.
        """
        for path in paths:
            self.delete(path)

    @abstractmethod
    def delete_folder(self, path: str) -> None:
        """Remove everything under a folder, never the root itself; fine when there is none."""
        ...

    def delete_empty_folder(self, path: str) -> None:  # noqa: B027 (of a store that has folders)
        """Remove a folder if nothing at all is in it, where the store has folders, or Hadoop puts objects for them."""


@takes(url=str, options=Mapping | None)
def open_storage(
    url: str, *, create: bool = False, options: Mapping[str, str] | None = None, fsync_data: bool = False
) -> Storage:
    """Open the store that a URL or a path names.

    Args:
        url: see the module's docstring. A `file:` URL's path is taken as written, without percent-decoding, as Hadoop
            does, so that Spark and Lockstep mean the same folder.
        create: make a local root that does not exist yet. Object stores have no folders; their bucket must exist.
        options: for object stores: `endpoint`, `region`, `access_key_id`, … (docs/storage.md); what is not given comes
            from the standard variables of the environment (`AWS_*`, `GOOGLE_*`, `AZURE_*`). HDFS has none.
        fsync_data: for local roots: whether `flush` does anything.

    Raises:
        InvalidError: no such local folder, a file in its place, an unknown option, or a malformed URL.
        UnsupportedError: a scheme that Lockstep has no store for, or HDFS in a process without a Spark driver.
        UnavailableError: the root cannot be made or read.
    """
    if is_local(url):
        from lockstep.storage.local import open_local

        return open_local(url, create=create, fsync_data=fsync_data)
    if is_hdfs(url):
        from lockstep.storage.hadoop import open_hadoop

        refuse_options(url, options)
        return open_hadoop(url)
    from lockstep.storage.object import open_object
    from lockstep.storage.options import obstore_settings, of_environment, place_of

    place = place_of(url)
    return open_object(url, place, obstore_settings(place, options or {}, of_environment()))


def url_of(url: str) -> str:
    """Return what the `url` of the store is that a URL or a path names, without a look at the store.

    Raises:
        InvalidError, UnsupportedError: no store can be opened there.
    """
    if is_hdfs(url):
        from lockstep.storage.hadoop import check_url

        check_url(url)
        return url.rstrip("/")
    if not is_local(url):
        from lockstep.storage.options import place_of

        place_of(url)
        return url.rstrip("/")
    from lockstep.storage.local import root_of

    return f"file://{root_of(url)}"


def is_local(url: str) -> bool:
    """Tell whether a URL or a path names a local folder, and not something in a store."""
    return url.startswith("file:") or "://" not in url


HDFS = "hdfs://"
"""What the URL of a folder of HDFS begins with."""


def is_hdfs(url: str) -> bool:
    """Tell whether a URL names a folder of HDFS."""
    return url.startswith(HDFS)


def has_options(url: str) -> bool:
    """Tell whether what a URL or a path names is opened with options: an object store is, and nothing else."""
    return not is_local(url) and not is_hdfs(url)


def refuse_options(url: str, options: Mapping[str, str] | None) -> None:
    """Refuse options for HDFS.

    Raises:
        InvalidError: there are some.
    """
    if options:
        raise InvalidError(
            f"{url} takes no options of a store ({', '.join(sorted(options))}): both sides reach HDFS by Hadoop's "
            "settings, which Spark is given as spark.hadoop.*"
        )


_NO_PARTS = frozenset({"", ".", ".."})


def checked(path: str) -> str:
    """Return the path of an object if it is one of ours to use.

    Raises:
        InvalidError: it is empty, absolute, or has an empty, '.' or '..' part.
    """
    if "\0" in path or not _NO_PARTS.isdisjoint(path.split("/")):
        raise InvalidError(f"{path!r} is not a path in this store: give one relative to its root, without '.' or '..'")
    return path
