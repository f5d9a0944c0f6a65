"""A lake in an object store, over obstore: S3 and whatever speaks its protocol with conditional writes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from lockstep.errors import InvalidError, UnavailableError
from lockstep.settings import ENDPOINT, ENDPOINT_OF_S3
from lockstep.storage import Names, Storage, checked

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_RETRIES: Any = {"max_retries": 5, "retry_timeout": timedelta(seconds=30)}
"""Inside one call. obstore's own bound is three minutes, too long for a session that waits for its COMMIT."""


class ObjectStorage(Storage):
    """Objects are keys under a prefix; `try_put` is a PUT with `If-None-Match: *`.

    A PUT that timed out, or that got a 5xx after the store had taken it, may have written the object: it raises
    `UnavailableError`. One that obstore repeated on its own may be told that its own first try is in the way, and one
    beside another (409) that something is there when nothing is: it returns False. Only reading the object back tells.
    """

    def __init__(self, store: ObjectStore, url: str) -> None:
        """Use an obstore store whose prefix is the root; `url` is what to call it."""
        self._store = store
        self._url = url.rstrip("/")

    @property
    def url(self) -> str:
        """The root as it was given: s3:// stays s3://, and s3a:// s3a://."""
        return self._url

    def get(self, path: str) -> bytes | None:
        import obstore

        with self._reporting("read", path):
            try:
                return obstore.get(self._store, checked(path)).bytes().to_bytes()
            except FileNotFoundError as error:
                _check_bucket(error)
                return None

    def try_put(self, path: str, data: bytes) -> bool:
        import obstore
        from obstore.exceptions import AlreadyExistsError

        with self._reporting("write", path):
            try:
                obstore.put(self._store, checked(path), data, mode="create", use_multipart=False)
            except AlreadyExistsError:
                return False
            return True

    def put(self, path: str, data: bytes) -> None:
        import obstore

        with self._reporting("write", path):
            obstore.put(self._store, checked(path), data, use_multipart=False)

    def list(self, folder: str, after: str | None = None) -> Names:
        import obstore

        prefix = f"{checked(folder)}/" if folder else ""
        with self._reporting("list", folder):
            if after is None:
                # With a delimiter the store itself leaves out what lies deeper.
                metas = obstore.list_with_delimiter(self._store, prefix)["objects"]
                paths = [meta["path"] for meta in metas]
            else:
                # Only the plain listing can start in the middle, which is what spares a long folder's first pages.
                chunks = obstore.list(self._store, prefix, offset=prefix + after)
                paths = [meta["path"] for chunk in chunks for meta in chunk]
        names = (path.removeprefix(prefix) for path in paths)
        return sorted(name for name in names if name and "/" not in name)

    def exists(self, path: str) -> bool:
        import obstore

        with self._reporting("look at", path):
            try:
                obstore.head(self._store, checked(path))
            except FileNotFoundError as error:
                _check_bucket(error)
                return False
            return True

    def delete(self, path: str) -> None:
        import obstore

        with self._reporting("delete", path):
            try:
                obstore.delete(self._store, checked(path))
            except FileNotFoundError as error:
                _check_bucket(error)

    def delete_folder(self, path: str) -> None:
        import obstore

        with self._reporting("delete", path):
            for chunk in obstore.list(self._store, f"{checked(path)}/"):
                obstore.delete(self._store, [meta["path"] for meta in chunk])

    @contextlib.contextmanager
    def _reporting(self, verb: str, path: str) -> Iterator[None]:
        """Raise what obstore says as `UnavailableError`."""
        from obstore.exceptions import BaseError

        try:
            yield
        except (BaseError, OSError) as error:
            raise UnavailableError(f"cannot {verb} {path or '/'} in {self.url}: {_cause(error)}") from error


def open_s3(url: str, options: Mapping[str, str]) -> ObjectStorage:
    """Open 's3://bucket/prefix' or 's3a://bucket/prefix'; makes no request.

    Raises:
        InvalidError: no bucket in the URL, or an option that obstore does not know.
    """
    from obstore.exceptions import BaseError
    from obstore.store import S3Store

    bucket, _, prefix = url.partition("://")[2].partition("/")
    prefix = prefix.strip("/")
    if not bucket:
        raise InvalidError(f"{url!r} names no bucket: write s3://bucket/prefix")
    config: Any = dict(options)
    endpoint = next(
        (v for k, v in config.items() if k.lower().removeprefix("aws_") in {"endpoint", "endpoint_url"}), None
    )
    endpoint = endpoint or os.environ.get(ENDPOINT_OF_S3.name) or os.environ.get(ENDPOINT.name) or ""
    try:
        store = S3Store(
            bucket,
            prefix=checked(prefix) if prefix else None,
            config=config,
            # Whoever writes http:// in an endpoint means it; obstore would refuse at the first request.
            client_options={"allow_http": True} if endpoint.startswith("http://") else None,
            retry_config=_RETRIES,
        )
    except BaseError as error:
        raise InvalidError(f"cannot open {url}: {_cause(error)}") from error
    return ObjectStorage(store, url)


def _check_bucket(error: FileNotFoundError) -> None:
    """Raise the error again if it is the bucket that is missing: that is no empty lake but a mistyped one."""
    if "NoSuchBucket" in str(error):
        raise error


def _cause(error: Exception) -> str:
    """Return obstore's message without the dump of Rust values that follows it."""
    return str(error).partition("\n\nDebug source")[0].strip()
