"""Where a lake's own files live: a small protocol, and the stores that keep it.

Everything that Lockstep promises rests on one operation, `put_if_absent`: of any number of writers of different objects
under one name, on any number of machines, exactly one is told that its object is there, and whoever reads it sees all
of it or nothing.

    '/abs/path', 'relative/path', 'file:///abs/path'   LocalStorage
    's3://bucket/prefix', 's3a://bucket/prefix'        ObjectStorage
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from lockstep.arguments import takes
from lockstep.errors import CorruptTimelineError, InvalidError, UnavailableError, UnsupportedError
from lockstep.retry import CLAIM, Backoff

Names: TypeAlias = list[str]
"""A list of names; spelled out because inside a class that has a method `list`, `list[str]` is that method."""


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


class Storage(ABC):
    """A folder in a file system or an object store.

    Paths are relative to the root, with '/' between their parts; empty parts, '.', '..' and absolute paths are refused
    with `InvalidError`. Any failure of the store itself raises `UnavailableError`, which names the path and the cause.
    All methods are safe to call from many threads.

    Attributes:
        claim: how often, and how soon, a write is tried again that the store refused for an object that is not there.
    """

    claim: Backoff = CLAIM

    @property
    @abstractmethod
    def url(self) -> str:
        """The root as a URL, without a slash at its end: 'file:///data/lake', 's3://bucket/lake'."""
        ...

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
        for attempt in self.claim.tries():
            try:
                if self.try_put(path, data):
                    return Mine()
            except UnavailableError as error:
                if error.definite and attempt > 1:  # one of the writes before this one might still arrive
                    raise UnavailableError(error.message) from error
                raise
            if (content := self.get(path)) is not None:
                return Mine() if content == data else Theirs(content)
        raise UnavailableError(
            f"cannot write {path} in {self.url}: the store says it is there, and it is not ({attempt} times). "
            "Try again; if it stays so, see whether the store supports conditional writes (If-None-Match)"
        )

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

    @abstractmethod
    def list(self, folder: str, after: str | None = None) -> Names:
        """Return the names of the objects directly in a folder ('' is the root), sorted; folders in it are left out.

        Args:
            folder: the folder; an absent one has no names.
            after: only names that sort after this one.
        """
        ...

    @abstractmethod
    def exists(self, path: str) -> bool:
        """Tell whether an object (not a folder) is at this path."""
        ...

    @abstractmethod
    def delete(self, path: str) -> None:
        """Remove the object; fine when there is none."""
        ...

    @abstractmethod
    def delete_folder(self, path: str) -> None:
        """Remove everything under a folder, never the root itself; fine when there is none."""
        ...


@takes(url=str, options=Mapping | None)
def open_storage(url: str, *, create: bool = False, options: Mapping[str, str] | None = None) -> Storage:
    """Open the store that a URL or a path names.

    Args:
        url: see the module's docstring. A `file:` URL's path is taken as written, without percent-decoding, as Hadoop
            does, so that Spark and Lockstep mean the same folder.
        create: make a local root that does not exist yet. Object stores have no folders; their bucket must exist.
        options: for object stores: `endpoint`, `region`, `access_key_id`, `secret_access_key`, `session_token`, …
            (obstore's `S3Config`); what is not given comes from the standard AWS_* environment variables.

    Raises:
        InvalidError: no such local folder, a file in its place, an unknown option, or a malformed URL.
        UnsupportedError: a scheme that Lockstep has no store for.
        UnavailableError: the root cannot be made or read.
    """
    if _is_local(url):
        from lockstep.storage.local import open_local

        return open_local(url, create=create)
    from lockstep.storage.object import open_s3

    return open_s3(url, options or {})


def url_of(url: str) -> str:
    """Return what the `url` of the store is that a URL or a path names, without a look at the store.

    Raises:
        InvalidError, UnsupportedError: no store can be opened there.
    """
    if not _is_local(url):
        if not url.partition("://")[2].partition("/")[0]:
            raise InvalidError(f"{url!r} names no bucket: write s3://bucket/prefix")
        return url.rstrip("/")
    from lockstep.storage.local import root_of

    return f"file://{root_of(url)}"


def _is_local(url: str) -> bool:
    """Tell whether a URL or a path names a local folder, and not an object store.

    Raises:
        UnsupportedError: it has a scheme that Lockstep has no store for.
    """
    scheme = url.partition("://")[0] if "://" in url else url.partition(":")[0] if url.startswith("file:") else ""
    if scheme not in {"", "file", "s3", "s3a"}:
        raise UnsupportedError(f"no store for {url!r}: use a local path, file://, s3:// or s3a://")
    return scheme in {"", "file"}


def checked(path: str) -> str:
    """Return the path of an object if it is one of ours to use.

    Raises:
        InvalidError: it is empty, absolute, or has an empty, '.' or '..' part.
    """
    if "\0" in path or any(part in {"", ".", ".."} for part in path.split("/")):
        raise InvalidError(f"{path!r} is not a path in this store: give one relative to its root, without '.' or '..'")
    return path
