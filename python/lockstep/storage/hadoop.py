"""A lake in HDFS, through the Hadoop client of a Spark driver's JVM: this package has none, and does without Spark.

Whoever has a JVM at hand hands in a `Transport` (`connect`): a request goes over as bytes, and an answer comes back.

    {"op": "read", "store": "hdfs://name:8020", "path": "/lake/a", "offset": 0, "length": 4194304}
    {"found": true, "size": 3, "file": 1073741825}⏎abc

Both are a line of JSON, and behind it the bytes of a file, or of a part that is no longer than `PIECE_BYTES`. On the
other side is the shim's `host/HadoopFiles.scala`, which says how a file comes to be there whole or not at all.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, TypeAlias

import msgspec

from lockstep.errors import InvalidError, UnavailableError, UnsupportedError
from lockstep.storage import HDFS, Found, Names, Storage, checked, time_of
from lockstep.storage.failures import Meaning, error_of

Transport: TypeAlias = Callable[[bytes], bytes]
"""Carries a request to Hadoop's client, and its answer back; from any thread. Where there is no answer it raises
`UnavailableError`, which is `definite` if the request did not go out."""

_Op: TypeAlias = Literal[
    "read", "list", "look", "put", "begin", "piece", "finish", "abort", "delete", "delete_folder", "is_writable"
]

_WRITES: frozenset[_Op] = frozenset({"put", "begin", "piece", "finish"})
"""What makes a file, and says of a failure whether it may be there all the same."""

_HDFS = "org.apache.hadoop.hdfs.protocol"
_REFUSALS = frozenset({
    "org.apache.hadoop.security.AccessControlException",
    "org.apache.hadoop.security.authorize.AuthorizationException",
    "org.apache.hadoop.security.token.SecretManager$InvalidToken",
    f"{_HDFS}.DSQuotaExceededException",
    f"{_HDFS}.NSQuotaExceededException",
    f"{_HDFS}.QuotaByStorageTypeExceededException",
    f"{_HDFS}.QuotaExceededException",
})  # fmt: skip
"""What a name node throws where it says no, and would again; not where it is in safe mode, or stands by."""

PIECE_BYTES = 4 * 1024 * 1024
"""The most bytes of a file in one request or answer: Py4J and pipes carry a third more, and hold several copies."""

READS = 5
"""So often a long file is read that another one takes the place of meanwhile."""

DELETED_AT_ONCE = 1000
"""The most files that one request deletes."""


class _Request(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked; each `op` has its fields of these, and the others are not heeded."""

    op: _Op
    store: str
    path: str
    offset: int = 0
    length: int = PIECE_BYTES
    after: str = ""
    replace: bool = False
    sync: bool = True
    stream: str = ""
    paths: tuple[str, ...] = ()
    only_if_empty: bool = False


class _Failure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What Hadoop threw: its class, what it said, and whether a write may have been done, or be done yet."""

    kind: str
    message: str
    may_be_done: bool


class _Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is answered; each `op` has its fields of these."""

    error: _Failure | None = None
    found: bool = False
    size: int = 0
    file: int = -1
    files: tuple[tuple[str, int, int], ...] = ()
    folders: tuple[str, ...] = ()
    more: str | None = None
    kind: Literal["file", "folder", "none"] = "none"
    written: bool = False
    allowed: bool = False


_answers = msgspec.json.Decoder(_Answer)
_connected: list[Transport] = []


def connect(transport: Transport | None) -> None:
    """Have HDFS asked by this transport from now on, by stores that are open, too; None: by none."""
    _connected[:] = [transport] if transport is not None else []


class HadoopStorage(Storage):
    """Objects are files. One is written under a hidden name, closed when it is on the disks, and then renamed.

    The rename is one step of the name node, and refuses a name that is taken: that makes `try_put` atomic. A rename
    whose answer is missing is settled by the hidden name: who can delete that file knows that it was not renamed and
    never will be. Where neither could be had, the `UnavailableError` is not `definite`.

    A writer that is killed leaves a hidden file (`.<32 hex digits>.tmp`), which `list` and `walk` leave out, and which
    whoever lists its folder a day later removes.
    """

    is_proven_by_use = False

    def __init__(self, url: str) -> None:
        """Use a folder of HDFS, which need not be there yet.

        Raises:
            InvalidError: see `check_url`.
        """
        check_url(url)
        self._url = url.rstrip("/")
        authority, _, path = self._url.removeprefix(HDFS).partition("/")
        self._store = f"{HDFS}{authority}"
        self._root = f"/{path}" if path else ""

    @property
    def url(self) -> str:
        """The root as it was given."""
        return self._url

    def get(self, path: str) -> bytes | None:
        for _ in range(READS):
            pieces = self._pieces(path)
            with contextlib.suppress(_Changed):
                return None if pieces is None else b"".join(pieces)
        raise self._changed(path)

    def chunks(self, path: str) -> Iterator[bytes] | None:
        if (pieces := self._pieces(path)) is None:
            return None

        def unchanged() -> Iterator[bytes]:
            try:
                yield from pieces
            except _Changed:
                raise self._changed(path) from None

        return unchanged()

    def _changed(self, path: str) -> UnavailableError:
        return UnavailableError(f"cannot read {path} in {self.url}: it was replaced or deleted. Try again")

    def _pieces(self, path: str) -> Iterator[bytes] | None:
        """Return the pieces of one file, of which the first has been read; None if there is none.

        Raises:
            _Changed: from the iterator, another file has its name by now, or none.
        """
        first, data = self._ask("read", path, "read")

        def pieces(data: bytes) -> Iterator[bytes]:
            offset = 0
            while data:
                yield data
                offset += len(data)
                if offset >= first.size:
                    return
                answer, data = self._ask("read", path, "read", offset=offset)
                if (answer.found, answer.file, answer.size) != (True, first.file, first.size) or not data:
                    raise _Changed

        return pieces(data) if first.found else None

    def try_put(self, path: str, data: bytes) -> bool:
        return self._write(path, data, replace=False)

    def put(self, path: str, data: bytes) -> None:
        self._write(path, data, replace=True)

    def put_advice(self, path: str, data: bytes, *, over: bool = False) -> bool:
        # What is written over is the hint, which each opening reads: after a power cut its block might be gone.
        return self._write(path, data, replace=over, sync=over)

    def put_chunks(self, path: str, chunks: Iterable[bytes | memoryview]) -> None:
        self._write_pieces(path, chunks, replace=True)

    def _write(self, path: str, data: bytes, *, replace: bool, sync: bool = True) -> bool:
        """Write a file, and tell whether it was written, rather than that something has its name."""
        if len(data) > PIECE_BYTES:
            return self._write_pieces(path, [data], replace=replace)
        return self._ask("put", path, "write", data, replace=replace, sync=sync)[0].written

    def _write_pieces(self, path: str, chunks: Iterable[bytes | memoryview], *, replace: bool) -> bool:
        stream = secrets.token_hex(16)
        try:
            self._ask("begin", path, "write", stream=stream)
            for chunk in chunks:
                view = memoryview(chunk)
                view = view.cast("B") if view.nbytes else view
                for start in range(0, view.nbytes, PIECE_BYTES):
                    self._ask("piece", path, "write", bytes(view[start : start + PIECE_BYTES]), stream=stream)
        except BaseException as error:
            with contextlib.suppress(UnavailableError):  # it is given up there after an hour
                self._ask("abort", path, "write", stream=stream)
            if isinstance(error, UnavailableError):
                error.definite = True  # whatever became of the request: who does not finish renames nothing
            raise
        return self._ask("finish", path, "write", stream=stream, replace=replace)[0].written

    def list(self, folder: str, after: str | None = None) -> Names:
        """See `Storage.list`; with `after`, names that are not ASCII may be left out.

        Name nodes compare signed bytes, so that such names come before others. Listed in parts is nothing but the
        timeline, tables' logs and what waits for deletion, of which each name that counts is ASCII.
        """
        found = (name for answer in self._listed(folder, after or "") for name, _, _ in answer.files)
        return sorted(name for name in found if after is None or name > after)

    def walk(self, folder: str) -> Iterator[Found]:
        waiting = [folder]
        while waiting:
            current = waiting.pop()
            before = f"{current}/" if current else ""
            for answer in self._listed(current):
                for name, size, milliseconds in answer.files:
                    yield Found(f"{before}{name}", size, time_of(milliseconds / 1000))
                waiting += [f"{before}{name}" for name in answer.folders]

    def _listed(self, folder: str, after: str | None = "") -> Iterator[_Answer]:
        while after is not None:
            answer, _ = self._ask("list", folder, "list", after=after)
            yield answer
            after = answer.more

    def exists(self, path: str) -> bool:
        return self._ask("look", path, "look at")[0].kind == "file"

    def is_writable(self, folder: str) -> bool:
        return self._ask("is_writable", folder, "look at")[0].allowed

    def delete(self, path: str) -> None:
        self.delete_all([path])

    def delete_all(self, paths: Iterable[str]) -> None:
        full = [(path, self._full(path)) for path in paths]
        for start in range(0, len(full), DELETED_AT_ONCE):
            some = full[start : start + DELETED_AT_ONCE]
            self._ask("delete", some[0][0], "delete", paths=tuple(each for _, each in some))

    def delete_folder(self, path: str) -> None:
        self._ask("delete_folder", checked(path), "delete")

    def delete_empty_folder(self, path: str) -> None:
        self._ask("delete_folder", checked(path), "delete", only_if_empty=True)

    def _full(self, path: str) -> str:
        """Return the path in the name node's tree of one that is relative to the root; '' is the root.

        Raises:
            InvalidError: it is none of ours to use, or one that HDFS cannot have.
        """
        if path and ":" in checked(path):
            raise InvalidError(f"{path!r} has a colon, which no name in HDFS can have")
        return f"{self._root}/{path}" if path else self._root or "/"

    def _ask(self, op: _Op, path: str, verb: str, data: bytes = b"", **fields: Any) -> tuple[_Answer, bytes]:
        """Ask one request, and return its answer and the bytes behind it.

        Raises:
            UnavailableError: Hadoop failed, or did not answer; or the name node said no (`StoreRefusedError`).
            UnsupportedError: it has another client for HDFS or asks observers, or this process has no driver.
        """
        if not path and op not in ("list", "is_writable"):
            checked(path)
        request = _Request(op=op, store=self._store, path=self._full(path), **fields)
        where = f"cannot {verb} {path or '/'} in {self.url}"
        try:
            head, _, rest = _only(self.url)(msgspec.json.encode(request) + b"\n" + data).partition(b"\n")
        except UnavailableError as error:
            raise error.saying(f"{where}: {error.message}", definite=error.definite) from error
        answer = _answers.decode(head)
        if (failure := answer.error) is not None:
            if failure.kind == "java.lang.UnsupportedOperationException":
                raise UnsupportedError(f"{where}: {failure.message}")
            is_not_done = op in _WRITES and not failure.may_be_done
            meaning = Meaning.REFUSED if failure.kind in _REFUSALS else Meaning.UNKNOWN
            raise error_of(meaning, f"{where}: {failure.message}", definite=is_not_done)
        return answer, rest


class _Changed(Exception):  # noqa: N818 (no error of anybody's: it is read again, or told in words)
    """A file that is read in pieces is another one by now, or gone."""


def open_hadoop(url: str) -> HadoopStorage:
    """Open a folder of HDFS; makes no request.

    Raises:
        InvalidError: see `check_url`.
        UnsupportedError: this process has no Spark driver.
    """
    storage = HadoopStorage(url)
    _only(url)
    return storage


def _only(url: str) -> Transport:
    if not _connected:
        raise UnsupportedError(
            f"no store for {url!r} in this process: HDFS is asked through the JVM of a Spark driver, and there is none "
            "here. Use the lake in a Spark session: a catalog with this root, which with create=true makes it. What "
            "the command line does is `CALL <catalog>.system.…` there (docs/storage.md)"
        )
    return _connected[0]


def check_url(url: str) -> None:
    """Refuse a URL of HDFS that no lake can have its root at.

    Raises:
        InvalidError: it names no name node, has a user in it, or a path that HDFS cannot have.
    """
    authority, _, path = url.removeprefix(HDFS).partition("/")
    if not authority:
        raise InvalidError(f"{url!r} names no name node: write {HDFS}name:8020/path, or {HDFS}nameservice/path")
    if "@" in authority:
        raise InvalidError(f"the root ({HDFS}…) has a user before its name node: Hadoop's settings say who asks")
    if (path := path.rstrip("/")) and ":" in checked(path):
        raise InvalidError(f"{url!r} has a colon in its path, which no name in HDFS can have")
