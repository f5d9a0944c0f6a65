"""The overlay's URIs, as the shim's `LockstepFileSystem` reads them.

    lockstep://head.<scheme>[.<authority>]/<path>                  a table as published
    lockstep://<transaction>-<pin>.<scheme>[.<authority>]/<path>   as a transaction sees it; pin `new`: its own creation
    lockstep://<transaction>x<epoch>-<pin>.…                       the same after that many ROLLBACK TO
    lockstep://headk<folder>-<version>.…                           a version as it is kept for tags
    lockstep://<transaction>x<epoch>k<folder>-<pin>.…              a table as a transaction sees it, and what is kept

`<folder>` is the URL, in hexadecimal, of the folder in which what is kept has its `_delta_log`.
The URI carries everything, so executors need no other word from the driver.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from lockstep.errors import InvalidError
from lockstep.spark.host.versions import is_number
from lockstep.storage.urls import is_outside
from lockstep.timeline.entry import NEW

SCHEME = "lockstep"
HEAD = "head"
EPOCH = "x"
KEPT = "k"
"""What no transaction's id has in it, for those are hexadecimal."""
_HADOOP = {"s3": "s3a"}
"""Where Hadoop has another name for a store than everybody else."""
_OF_HADOOP = {theirs: ours for ours, theirs in _HADOOP.items()}


@dataclass(frozen=True, slots=True)
class OverlayView:
    """What a URI says: whose view of which folder. `transaction` is None at the head; `epoch` is the transaction's."""

    transaction: str | None
    location: str
    epoch: int = 0


class Uris:
    """The URIs of one lake."""

    def __init__(self, root_url: str, check: Callable[[str], object] = lambda _: None) -> None:
        """Take the lake's root as its storage names it, `file:///data/lake`.

        Args:
            check: raises if Spark may not use a location, of which it asks for a URI.
        """
        self._check = check
        parts = urlsplit(root_url)
        scheme = _HADOOP.get(parts.scheme, parts.scheme)
        self._base = f"{scheme}.{parts.netloc}" if parts.netloc else scheme
        self._path = root_url.split("://", 1)[1][len(parts.netloc) :].rstrip("/")

    def head(self, location: str) -> str:
        """Return the URI of a table as published."""
        self._check(location)
        return f"{SCHEME}://{HEAD}.{self._place(location)}"

    def kept(self, location: str, version: int, folder: str) -> str:
        """Return the URI of a table at a version that is kept for tags, with its `_delta_log` in this folder."""
        self._check(location)
        return f"{SCHEME}://{HEAD}{KEPT}{self._encoded(folder)}-{version}.{self._place(location)}"

    def own(self, location: str, transaction: str, pin: int, epoch: int = 0, kept: str | None = None) -> str:
        """Return the URI of a table as a transaction sees it that pinned this version of it.

        Args:
            kept: the folder of what is kept for tags, which it sees, too.
        """
        self._check(location)
        view = f"{transaction}{EPOCH}{epoch}" if epoch or kept is not None else transaction
        if kept is not None:
            view += f"{KEPT}{self._encoded(kept)}"
        return f"{SCHEME}://{view}-{'new' if pin == NEW else pin}.{self._place(location)}"

    def real(self, location: str) -> str:
        """Return where a folder really is, for messages."""
        base, slash, path = self._place(location).partition("/")
        scheme, _, authority = base.partition(".")
        return f"{scheme}://{authority}{slash}{path}"

    def _encoded(self, folder: str) -> str:
        return self.real(folder).encode().hex()

    def _place(self, location: str) -> str:
        """Return what the URIs of a folder have behind the view: its store, and its path there."""
        if is_outside(location):
            other = Uris(location)
            return f"{other._base}{other._path}"
        return f"{self._base}{self._path}/{location}"

    def holds(self, uri: str) -> bool:
        """Tell whether a URI lies in this lake."""
        authority, path = _split(uri)
        return authority.partition(".")[2] == self._base and path.startswith(f"{self._path}/")

    def parse(self, uri: str) -> OverlayView:
        """Read a URI of this lake: of a folder below its root, or of a table outside of it, which it may have adopted.

        Raises:
            InvalidError: it is no overlay URI.
        """
        authority, path = _split(uri)
        transaction, epoch = _viewer(authority)
        location = path.removeprefix(f"{self._path}/") if self.holds(uri) else outside_location(uri)
        return OverlayView(transaction, location, epoch)


def transaction_in(uri: str) -> str | None:
    """Return the id of the transaction as which a URI of any lake shows a folder, None at the head.

    Raises:
        InvalidError: it is no overlay URI.
    """
    return _viewer(_split(uri)[0])[0]


def outside_location(uri: str) -> str:
    """Return the location that a lake has for the folder of an overlay URI, if the folder is outside of its root.

    Raises:
        InvalidError: it is no overlay URI.
    """
    authority, path = _split(uri)
    scheme, _, store = authority.partition(".")[2].partition(".")
    return f"{_OF_HADOOP.get(scheme, scheme)}://{store}{path}"


def _viewer(authority: str) -> tuple[str | None, int]:
    """Return the transaction, and its epoch, that the authority of a URI names.

    Raises:
        InvalidError: what stands for an epoch is no number.
    """
    view = authority.partition(".")[0]
    if view == HEAD or view.startswith(f"{HEAD}{KEPT}"):
        return None, 0
    transaction, _, epoch = view.rpartition("-")[0].partition(KEPT)[0].partition(EPOCH)
    if epoch and not is_number(epoch):
        raise InvalidError(
            f"{SCHEME}://{authority}/… is of no transaction: use the table by its name, as lake.namespace.table"
        )
    return transaction, int(epoch or 0)


def _split(uri: str) -> tuple[str, str]:
    scheme, separator, rest = uri.partition("://")
    if not separator or scheme != SCHEME:
        raise InvalidError(f"{uri} is not a {SCHEME}:// URI: use the table by its name, as lake.namespace.table")
    authority, _, path = rest.partition("/")
    return authority, f"/{path}"
