"""A lake in an object store, over obstore: S3 and what speaks its protocol, Google Cloud Storage, Azure's blobs."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from lockstep.errors import InvalidError, UnsupportedError
from lockstep.retry import REQUEST, Backoff
from lockstep.storage import Found, Names, Storage, checked
from lockstep.storage.failures import Meaning, cause_of, error_of, is_panic, meaning_of, panic_of, without_keys
from lockstep.storage.options import Obstore, Place
from lockstep.workers import Threads

if TYPE_CHECKING:
    from obstore.store import ObjectStore

T = TypeVar("T")

CHUNK_BYTES = 8 * 1024 * 1024
"""The least size of a piece of an object that is read in pieces, but for its last."""

SMALL_BYTES = 5 * 1024 * 1024
"""What comes in pieces and is smaller is put at once: a part of an upload in parts has no less, but the last."""

_FOLDER = "hdi_isfolder"
"""What Hadoop says, in a blob's metadata, of one that it has put for a folder."""

_RETRIES: Any = {"max_retries": 5, "retry_timeout": timedelta(seconds=30)}
"""Of what may be repeated, inside one call. obstore's own bound is three minutes, too long for a session that waits."""

_PATIENT = {"timeout": "1day", "read_timeout": "30s"}
"""Of the same, where nobody says a timeout: what goes on coming is waited for, as of a large object, or of one that is
copied to somewhere slow. The client's own bound, half a minute, is for a request with all of its answer."""

_ONCE: Any = {"max_retries": 0}
"""Of conditional writes: what the last of several requests was told says nothing about those before it."""


class ObjectStorage(Storage):
    """Objects are keys under a prefix; `try_put` is a PUT with `If-None-Match: *`, or what the store has for that.

    A PUT that timed out, or that got a 5xx after the store had taken it, may have written the object. It is sent again:
    only one of the two can be the first, so the second settles it. Where it cannot be settled in time, the
    `UnavailableError` is not `definite`. One that was sent again may be told that the first is in the way, and one
    beside another (409) that something is there when nothing is: it returns False. Only reading the object back tells.

    Attributes:
        repeat: how often, and how soon, a conditional write is sent again, and what obstore does not repeat itself.
    """

    is_proven_by_use = False

    def __init__(
        self,
        store: ObjectStore,
        url: str,
        *,
        once: ObjectStore | None = None,
        repeat: Backoff = REQUEST,
        address: str = "",
    ) -> None:
        """Use an obstore store whose prefix is the root.

        Args:
            store: for all that may be repeated.
            url: what to call it.
            once: the same store, which repeats nothing by itself; for conditional writes.
            repeat: see above.
            address: what tells this store from another one with the same URL: its endpoint.
        """
        self._store = store
        self._once = once or store
        self._url = url.rstrip("/")
        self.repeat = repeat
        self._address = address
        self._knows_bucket = False

    @property
    def url(self) -> str:
        """The root as it was given: s3:// stays s3://, and s3a:// s3a://."""
        return self._url

    @property
    def address(self) -> str:
        """The root, and where requests for it go."""
        return f"{self._url.replace('s3a://', 's3://', 1)} at {self._address or 'the address of its cloud'}"

    def get(self, path: str) -> bytes | None:
        import obstore
        from obstore.exceptions import BaseError

        def read() -> bytes | None:
            try:
                data = obstore.get(self._store, _key(path)).bytes().to_bytes()
            except (BaseError, OSError) as error:
                # Where an answer broke off obstore asks for the rest: of what is gone by then, that is another error.
                _check_absent(error)
                data = None
            self._knows_bucket = True
            return data

        return self._repeating("read", path, read)

    def try_put(self, path: str, data: bytes) -> bool:
        import obstore
        from obstore.exceptions import BaseError

        key, failure, meaning, may_be_done = _key(path), None, Meaning.UNKNOWN, False
        for _ in self.repeat.tries():
            try:
                with _no_panic():
                    obstore.put(self._once, key, data, mode="create", use_multipart=False)
            except (BaseError, OSError) as error:
                if (meaning := _meaning(error)) is Meaning.TAKEN:
                    return False
                failure, may_be_done = error, may_be_done or meaning.may_be_done
                if not meaning.is_passing:
                    break
            else:
                return True
        assert failure is not None
        message = f"cannot write {path} in {self.url}: {cause_of(str(failure))}"
        raise error_of(meaning, message, definite=not may_be_done) from _for_logs(failure)

    def put(self, path: str, data: bytes) -> None:
        import obstore

        with self._reporting("write", path):
            obstore.put(self._store, _key(path), data, use_multipart=False)

    def chunks(self, path: str) -> Iterator[bytes] | None:
        import obstore

        with self._reporting("read", path):
            try:
                stream = obstore.get(self._store, _key(path)).stream(min_chunk_size=CHUNK_BYTES)
            except FileNotFoundError as error:
                _check_absent(error)
                return None

        def pieces() -> Iterator[bytes]:
            # Who asks for them may be obstore, for `put_chunks`, in a thread in which it must not wait for itself.
            with self._reporting("read", path), Threads(1, thread_name_prefix="lockstep-pieces") as reader:
                while (piece := reader.submit(next, stream, None).result()) is not None:
                    yield bytes(piece)

        return pieces()

    def put_chunks(self, path: str, chunks: Iterable[bytes | memoryview]) -> None:
        import obstore

        with self._reporting("write", path):
            first, rest = _until(SMALL_BYTES, map(_plain, chunks))
            if rest is None:  # in parts it would be three requests, one after the other
                obstore.put(self._store, _key(path), b"".join(first), use_multipart=False)
            else:
                obstore.put(self._store, _key(path), itertools.chain(first, rest))

    def list(self, folder: str, after: str | None = None) -> Names:
        import obstore

        prefix = f"{_key(folder)}/" if folder else ""

        def paths() -> Names:
            if after is None:
                # With a delimiter the store itself leaves out what lies deeper.
                return [meta["path"] for meta in obstore.list_with_delimiter(self._store, prefix)["objects"]]
            # Only the plain listing can start in the middle, which is what spares a long folder's first pages.
            chunks = obstore.list(self._store, prefix, offset=prefix + after)
            return [meta["path"] for chunk in chunks for meta in chunk]

        found = self._repeating("list", folder, paths)
        names = (path.removeprefix(prefix) for path in found if _is_below(path, prefix))
        return sorted(name for name in names if "/" not in name)

    def walk(self, folder: str) -> Iterator[Found]:
        import obstore
        from obstore.exceptions import BaseError

        prefix, told = f"{_key(folder)}/" if folder else "", set[str]()
        with self._reporting("list", folder):
            for failed in self._tries():
                try:
                    for chunk in obstore.list(self._store, prefix or None):
                        for meta in chunk:
                            path = meta["path"]
                            # Not told by one that broke off; not all stores have an order. One with data is no folder.
                            if path not in told and (meta["size"] or _is_below(path, prefix)):
                                told.add(path)
                                yield Found(path, meta["size"], meta["last_modified"])
                except (BaseError, OSError) as error:
                    failed(error)
                else:
                    return

    def exists(self, path: str) -> bool:
        """See `Storage.exists`; whether the bucket is there is looked at once.

        The answer to a HEAD has no body, so a missing object looks like a missing bucket. A bucket that was there once
        goes only when it is empty, and then the object is absent indeed.
        """
        import obstore

        with self._reporting("look at", path):
            try:
                obstore.head(self._store, _key(path))
                return True
            except FileNotFoundError as error:
                _check_absent(error)
            # Not while that is handled: what fails here would have it, keys and all, among its causes.
            return False if self._knows_bucket else self._read_to_look(path)

    def _read_to_look(self, path: str) -> bool:
        """Tell whether an object is there by a GET, which says so if it is the bucket that is missing."""
        import obstore

        try:
            obstore.get(self._store, _key(path))
            is_there = True
        except FileNotFoundError as error:
            _check_absent(error)
            is_there = False
        self._knows_bucket = True
        return is_there

    def delete(self, path: str) -> None:
        key = _key(path)
        self._repeating("delete", path, lambda: self._remove(key))

    def delete_all(self, paths: Iterable[str]) -> None:
        keys = [_key(path) for path in paths]
        self._repeating("delete", keys[0] if keys else "", lambda: self._remove_all(keys))

    def delete_folder(self, path: str) -> None:
        import obstore

        def remove() -> None:
            prefix = f"{_key(path)}/"
            for chunk in obstore.list(self._store, prefix):
                self._remove_all([meta["path"] for meta in chunk if _is_below(meta["path"], prefix)])

        self._repeating("delete", path, remove)

    def _remove(self, key: str) -> None:
        import obstore

        try:
            obstore.delete(self._store, key)
        except FileNotFoundError as error:
            _check_absent(error)

    def _remove_all(self, keys: Sequence[str]) -> None:
        """Delete objects, of which any may be gone: by another one, or by a request of ours whose answer was lost.

        S3 says of such a one what it says of others; Google's store and Azure's say that it is not there.
        """
        import obstore

        try:
            obstore.delete(self._store, keys)  # of S3, a request for every thousand
            return
        except FileNotFoundError as error:
            _check_absent(error)
        for key in keys:  # those behind the absent one may still be there
            self._repeating("delete", key, partial(self._remove, key))

    def _repeating(self, verb: str, path: str, call: Callable[[], T]) -> T:
        """Do what may be repeated without harm, and again if its answer breaks off."""
        from obstore.exceptions import BaseError

        with self._reporting(verb, path):
            for failed in self._tries():
                try:
                    return call()
                except (BaseError, OSError) as error:
                    failed(error)
        raise AssertionError("the last failure is raised")

    def _tries(self) -> Iterator[Callable[[Exception], None]]:
        """Yield, for each time that a request is sent, what its failure is told: it raises that if it is final.

        obstore itself repeats what got no answer, or one of 5xx, but neither a request whose answer's body broke off,
        as that of a listing may, nor a POST, by which S3 deletes.
        """
        failures: list[Exception] = []

        def failed(error: Exception) -> None:
            if _meaning(error) is not Meaning.UNKNOWN:
                raise error
            failures.append(error)

        for _ in self.repeat.tries():
            yield failed
        raise failures[-1]

    @contextlib.contextmanager
    def _reporting(self, verb: str, path: str) -> Iterator[None]:
        """Raise what obstore says as `UnavailableError`, or as the kind of it that tells that the store said no."""
        from obstore.exceptions import BaseError

        try:
            with _no_panic():
                yield
        except (BaseError, OSError) as error:
            message = f"cannot {verb} {path or '/'} in {self.url}: {cause_of(str(error))}"
            raise error_of(_meaning(error), message) from _for_logs(error)


class AzureStorage(ObjectStorage):
    """Azure's blobs, among which Hadoop's `abfs` puts an empty one for each folder, with the folder's name."""

    def delete_empty_folder(self, path: str) -> None:
        """Remove what Hadoop has put for a folder, if nothing is in it; an empty blob of somebody else's stays.

        What comes into the folder meanwhile is not lost: it is found without that. Of an account with a hierarchical
        namespace it is the folder itself, which the store keeps if something is in it.
        """
        import obstore

        def is_empty_folder() -> bool:
            try:
                found = obstore.get(self._store, _key(path))
            except FileNotFoundError as error:
                _check_absent(error)
                return False
            marks = {str(name).lower(): value for name, value in found.attributes.items()}
            return marks.get(_FOLDER) == "true" and not any(obstore.list(self._store, f"{_key(path)}/", chunk_size=1))

        if self._repeating("look at", path, is_empty_folder):
            self.delete(path)


def open_object(url: str, place: Place, settings: Obstore) -> ObjectStorage:
    """Open a lake's root in an object store; makes no request.

    Raises:
        InvalidError: an option that obstore does not know, a file of certificates that cannot be read, or no such
            profile.
        UnsupportedError: a profile needs boto3, which is not installed.
    """
    from obstore.exceptions import BaseError

    try:
        client: Any = {"root_certificate": Path(settings.certificate).read_bytes()} if settings.certificate else None
        provider = _provider(settings.profile) if settings.profile else None
        patient = settings.config if "timeout" in settings.config else {**_PATIENT, **settings.config}
        store = _store(place, patient, client, _RETRIES, provider)
        once = _store(place, settings.config, client, _ONCE, provider)
    except OSError as error:
        raise InvalidError(f"cannot read ca_certificate {settings.certificate}: {error.strerror}") from error
    except BaseError as error:  # it is no cause of ours: it has the values, and a key may stand where it should not
        raise InvalidError(f"cannot open {url}: {_hidden(cause_of(str(error)), settings.config)}") from None
    kind = AzureStorage if place.kind == "azure" else ObjectStorage
    return kind(store, url, once=once, address=settings.endpoint)


def _provider(profile: str) -> Any:
    """Return what gives the credentials of a profile of ~/.aws, and new ones when they expire.

    Raises:
        InvalidError: there is no such profile, or none of its credentials.
        UnsupportedError: boto3, which reads profiles, is not installed.
    """
    try:
        from boto3 import Session
        from botocore.exceptions import BotoCoreError
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError as error:
        raise UnsupportedError("the option profile needs boto3: pip install 'lockstep-delta[s3]'") from error
    try:
        return Boto3CredentialProvider(Session(profile_name=profile))
    except (BotoCoreError, ValueError) as error:
        raise InvalidError(f"cannot use the profile {profile!r}: {error}") from error


def _hidden(text: str, options: Mapping[str, str]) -> str:
    """Return a text without the values of options."""
    for value in sorted(options.values(), key=len, reverse=True):
        text = text.replace(value, "…") if value else text
    return text


def _store(place: Place, config: Any, client: Any, retries: Any, provider: Any) -> ObjectStore:
    from obstore.store import AzureStore, GCSStore, S3Store

    prefix = place.prefix or None
    more = {"prefix": prefix, "config": config, "client_options": client, "retry_config": retries}
    match place.kind:
        case "s3":
            return S3Store(place.bucket, credential_provider=provider, **more)
        case "gs":
            return GCSStore(place.bucket, **more)
        case "azure":
            return AzureStore(place.bucket, **more)


def _until(
    size: int, pieces: Iterator[bytes | memoryview]
) -> tuple[list[bytes | memoryview], Iterator[bytes | memoryview] | None]:
    """Take pieces until they have so many bytes; return them, and those behind them: None, if there are not so many."""
    taken, left = list[bytes | memoryview](), size
    for piece in pieces:
        taken.append(piece)
        left -= memoryview(piece).nbytes
        if left <= 0:
            return taken, pieces
    return taken, None


def _plain(chunk: bytes | memoryview) -> bytes | memoryview:
    """Return a piece as the unsigned bytes that obstore takes; pyarrow's memory says that its bytes are signed."""
    view = memoryview(chunk)
    return view.cast("B") if view.nbytes else b""


def _key(path: str) -> str:
    """Return the key of an object below the prefix, which is its path as it stands.

    Raises:
        InvalidError: it is no path, or has a character that object_store refuses.
    """
    if not checked(path).isprintable() and any(ord(each) < 32 or ord(each) == 127 for each in path):
        raise InvalidError(f"{path!r} has a control character, which no name in an object store can have here")
    return path


class PanicError(OSError):
    """What obstore, or what it is made of, did not expect, and ended a request for."""


@contextlib.contextmanager
def _no_panic() -> Iterator[None]:
    """Raise a panic of obstore's as an error: what it raises is no `Exception`, and would pass all that catch these."""
    try:
        yield
    except BaseException as error:
        if not is_panic(error):
            raise
        raise PanicError(panic_of(str(error))) from error


def _is_below(path: str, prefix: str) -> bool:
    """Tell whether what is listed below a prefix lies there.

    S3's console and Hadoop's s3a make an empty object for a folder, with its name and a slash. obstore leaves out the
    slash, so that the listing of the folder has the folder itself, and that of the root a name that is empty.
    """
    return len(path) > len(prefix) and path.startswith(prefix)


def _meaning(error: Exception) -> Meaning:
    return meaning_of(type(error).__name__, str(error))


def _for_logs(error: Exception) -> Exception:
    """Return an error of obstore such that whoever logs its text logs no key."""
    error.args = (without_keys(str(error)),)
    return error


def _check_absent(error: Exception) -> None:
    """Raise the error again unless it says that the object is absent: without its bucket there is no lake at all."""
    if _meaning(error) is not Meaning.ABSENT:
        raise error
