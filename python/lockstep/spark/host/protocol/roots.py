"""What the host wants to know of a lake's root as Spark sees it, before it answers about the lake for the first time.

{"op": "resolve", …}    {"look": {"root": "…", "uri": "lockstep://head.file/lake/_lockstep/timeline/….json", …}}
{"op": "saw_root", …}   {"ok": {}}
{"op": "resolve", …}    {"ok": {…}}
"""

from __future__ import annotations

import msgspec

from lockstep.spark.host.protocol.base import RequestBase, Settings


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """The third kind of answer to a request: nothing was done, and it is to be sent again after `SawRoot`."""

    root: str
    """What `SawRoot` is to say."""

    uri: str
    """The file to read, as the overlay has it."""

    size: int
    """The bytes that it has."""

    length: int
    """So many of them are to be read, the first ones."""

    settings: list[str]
    """Settings of Hadoop's that say which store it is; none has a key in it."""


class SawRoot(RequestBase, frozen=True, kw_only=True, tag="saw_root"):
    """Tell what Spark's side saw of the file that it was to look at. What that means, the host says."""

    root: str
    """As in `Look`."""

    settings: Settings
    """Those of `Look.settings` that are set."""

    file_system: str | None
    """The class of Hadoop's file system; None: it has none for this root."""

    length: int | None
    """How many bytes were read; None: the file could not be read."""

    digest: str | None
    """Their SHA-256, in hex; None: as above."""

    failures: list[str]
    """Where it could not be read, the classes of what was thrown, with those that they are kinds of, the outermost
    first."""

    message: str | None
    """What was thrown, and its causes, as a text; None: nothing was."""


Request = SawRoot
