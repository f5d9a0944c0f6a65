"""What the host wants to know of a lake's root as Spark sees it, before it answers about the lake for the first time.

Before the shim looks, it puts what the catalog's options mean to Hadoop into the driver's configuration, as far as
nobody has set anything else there.

{"op": "resolve", …}    {"look": {"root": "…", "uri": "lockstep://head.file/lake/_lockstep/timeline/….json", …}}
{"op": "saw_root", …}   {"ok": {}}
{"op": "resolve", …}    {"ok": {…}}
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from lockstep.spark.host.protocol.base import RequestBase, Settings


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of Hadoop's that are put together, or not at all."""

    settings: Settings
    """What they are to be, keys of the store too: nothing of it may be logged or shown."""

    unless: list[str]
    """Where somebody has set one of these, none is put."""


class Beside(msgspec.Struct, frozen=True, kw_only=True):
    """A store beside that of the root, which Spark's side is told of, too."""

    uri: str
    """A folder in it, as the overlay has it."""

    catalog: str
    """As in `Look`."""

    tells: list[Told]
    """As in `Look`."""

    names: list[str]
    """As in `Look`."""


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

    catalog: str
    """The catalog that it is about. What a session has set for it itself is put nowhere: all sessions share Hadoop."""

    tells: list[Told]
    """What its options mean to Hadoop."""

    names: list[str]
    """All that they could have meant: what another catalog has had put under one of these must be the same."""

    beside: list[Beside]
    """Other stores that tables of the lake may lie in. Nothing is read there."""


class SawBeside(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it that Spark's side was told of another store."""

    others: dict[str, str]
    """As in `SawRoot`."""

    untold: Literal["session", "opened"] | None
    """As in `SawRoot`."""

    failures: list[str]
    """Where Hadoop has no file system there, as in `SawRoot`."""

    message: str | None
    """As in `SawRoot`."""


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

    kept: list[str]
    """The settings that somebody has made, and for which something of `Look.tells` was not put."""

    others: dict[str, str]
    """Those of `Look.names` that another catalog has had put, and otherwise, with its name; then there was no look."""

    untold: Literal["session", "opened"] | None
    """Why nothing was put, though there was something to put: the catalog's options are this session's own, or Hadoop
    had opened the file system before, and keeps it. None: it was, or there was nothing."""

    beside: list[SawBeside]
    """What came of each of `Look.beside`; nothing of any, if there was no look."""


class SparkStarted(RequestBase, frozen=True, kw_only=True, tag="spark_started"):
    """Have each lake looked at again: from now on another Spark of the same JVM asks, and that was told nothing."""


Request: TypeAlias = SawRoot | SparkStarted
