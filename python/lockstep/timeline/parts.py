"""Parts: the files that a checkpoint's maps are in, sorted by key and cut where the keys say, and how they are read.

    <root>/_lockstep/checkpoints/parts/<digest>.jsonl        one pair a line, in the order of the keys

A part ends after a key whose hash says so. So where parts end follows from the keys, and what changed in one place
leaves the others as they are: checkpoints share parts, which are called by the digests of their bytes.

A part is read when somebody asks for a key in its range, and the manifest says which range that is. What was used last
stays in memory. A part that is gone or damaged is made of the timeline's entries instead: nobody sees a difference.
"""

from __future__ import annotations

import hashlib
import logging
import zlib
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from operator import attrgetter, itemgetter
from typing import Any, Generic, TypeVar

import msgspec

from lockstep.caches import MIB, Cache
from lockstep.storage import Storage
from lockstep.timeline.entry import Value
from lockstep.timeline.files import UNREADABLE
from lockstep.timeline.hint import CHECKPOINTS
from lockstep.timeline.layered_map import READERS, Base, LayeredMap, side_by_side

FOLDER = f"{CHECKPOINTS}/parts"

PART_ITEMS = 128
"""How many pairs a part has on average."""

PART_BYTES = 1024 * 1024
"""A part that has as many bytes ends, whatever the keys say."""

KEPT_BYTES = 128 * MIB
"""What is kept in memory of one timeline's parts: files of 32 MiB, and all that may be looked up in them."""

MANIFEST_BYTES = 500
"""What a manifest takes in memory of each part: its first key, and its digest."""

DECODED = 3
"""What a pair takes in memory that was looked up, for each byte of its line."""

K = TypeVar("K")
V = TypeVar("V")

_log = logging.getLogger(__name__)
_encode = msgspec.json.encode


class Part(Value, Generic[K], frozen=True, array_like=True):
    """What a manifest says of a part: its first key, how many pairs it has, and the SHA-256 of its file."""

    first: K
    count: int
    digest: str


@dataclass(frozen=True)
class Kind(Generic[K, V]):
    """How the pairs of one map are written.

    Attributes:
        decoder: reads a line.
        line: makes a line of a pair.
        pair: makes a pair of a line.
    """

    decoder: msgspec.json.Decoder[Any]
    line: Callable[[K, V], Any]
    pair: Callable[[Any], tuple[K, V]]

    def encode(self, key: K, value: V) -> bytes:
        """Return a pair's line."""
        return _encode(self.line(key, value)) + b"\n"


class UnusableError(Exception):
    """A checkpoint, or a part of one, cannot be believed; the text says why."""


def part_path(digest: str) -> str:
    """Return where a part lies, relative to the lake's root."""
    return f"{FOLDER}/{digest}.jsonl"


def digest_of(data: bytes) -> str:
    """Return the SHA-256 of bytes, in hex."""
    return hashlib.sha256(data).hexdigest()


# --- what is read -----------------------------------------------------------------------------------------------------


class Pairs(Generic[K, V]):
    """What a part has, as its file has it: decoded, all of it would take several times the memory."""

    def __init__(self, kind: Kind[K, V], data: bytes) -> None:
        """Take a file that is as it was written."""
        self._kind = kind
        self._data = data
        self._ends = array("I", accumulate(map(len, data.splitlines(keepends=True))))
        self._found: dict[K, V] = {}

    @property
    def size(self) -> int:
        """The bytes that it takes once all that is in it was looked up."""
        return (1 + DECODED) * len(self._data) + self._ends.itemsize * len(self._ends)

    def __iter__(self) -> Iterator[tuple[K, V]]:
        return map(self._kind.pair, self._kind.decoder.decode_lines(self._data))

    def get(self, key: K) -> V | None:
        """Return the value of a key; None if it has none."""
        if (found := self._found.get(key)) is not None:
            return found
        wanted: Any = key
        at = bisect_left(range(len(self._ends)), wanted, key=self._key)
        if at == len(self._ends):
            return None
        other, value = self._pair(at)
        return self._found.setdefault(key, value) if other == key else None

    def _pair(self, number: int) -> tuple[K, V]:
        begin = self._ends[number - 1] if number else 0
        return self._kind.pair(self._kind.decoder.decode(self._data[begin : self._ends[number]]))

    def _key(self, number: int) -> Any:
        return self._pair(number)[0]


def read_part(storage: Storage, kind: Kind[K, V], part: Part[K]) -> Pairs[K, V]:
    """Read a part, and see that it is as it was written.

    Raises:
        UnusableError: it is missing or damaged.
        UnavailableError: the store failed.
    """
    data = storage.get(part_path(part.digest))
    if data is None or digest_of(data) != part.digest:
        raise UnusableError(f"part {part.digest} is {'missing' if data is None else 'damaged'}")
    pairs = Pairs(kind, data)
    try:
        keys: list[Any] = [key for key, _ in pairs]
    except UNREADABLE as error:
        raise UnusableError(f"part {part.digest}: {error}") from error
    if (keys[:1], len(keys)) != ([part.first], part.count) or any(one >= other for one, other in pairwise(keys)):
        raise UnusableError(f"part {part.digest} has other keys than its manifest says")
    return pairs


class PartCache:
    """The parts of one timeline that were used last, for all its versions; safe to share between threads.

    Attributes:
        bad: the digests of parts that were found missing or damaged, and were not written again since.
        quick: whether to have a thread read one takes longer than to read it.
    """

    def __init__(self, storage: Storage, size: int = KEPT_BYTES) -> None:
        """Keep so many bytes of parts at most."""
        self.bad: set[str] = set()
        self._storage = storage
        self.quick = storage.quick
        self._kept = Cache[str, Pairs[Any, Any]](size)

    def __contains__(self, digest: str) -> bool:
        return digest in self._kept

    def keep(self, digest: str, pairs: Pairs[Any, Any], *, evict: bool = True) -> None:
        """Keep a part in memory, instead of those that nobody has asked for the longest, or if there is room."""
        if evict or pairs.size <= self._kept.free:
            self._kept.keep(digest, pairs, size=pairs.size)

    def read(
        self, kind: Kind[K, V], part: Part[K], instead: Callable[[], Iterable[tuple[K, V]]], *, evict: bool = True
    ) -> Pairs[K, V]:
        """Return the pairs of a part.

        Args:
            instead: returns what is in it, in order, where the part is missing or damaged.
            evict: whether others give way in memory. They do not to who goes through all parts, and comes to each once.

        Raises:
            UnavailableError: the store failed; asking again may help.
            UnavailableError, CorruptTimelineError: see `instead`.
        """
        if (kept := self._kept.get(part.digest)) is not None:
            return kept
        try:
            if part.digest in self.bad:
                raise UnusableError(f"part {part.digest} was missing or damaged before")
            pairs = read_part(self._storage, kind, part)
        except UnusableError as error:
            if part.digest not in self.bad:
                self.bad.add(part.digest)
                _log.warning(
                    "a checkpoint's %s (%s): the timeline's entries are read instead, and nothing is lost. The next "
                    "checkpoint that is written has it again",
                    error,
                    part_path(part.digest),
                )
            pairs = Pairs(kind, b"".join(kind.encode(key, value) for key, value in instead()))
        self.keep(part.digest, pairs, evict=evict)
        return pairs


class SortedParts(Base[K, V]):
    """What the parts of one map in a checkpoint say together.

    Attributes:
        kind: how its pairs are written.
        parts: as the manifest says, in order.
        origin: the version that the checkpoint is of.
    """

    def __init__(
        self,
        kind: Kind[K, V],
        parts: Sequence[Part[K]],
        cache: PartCache,
        origin: int,
        whole: Callable[[], Sequence[tuple[K, V]]],
    ) -> None:
        """Read parts when they are asked for; `whole` gives all pairs in order, of the entries, where one cannot be."""
        self.kind = kind
        self.parts = parts
        self.origin = origin
        self._cache = cache
        self._whole = whole
        self._length = sum(part.count for part in parts)

    @property
    def quick(self) -> bool:
        """Whether the store's files are read at once."""
        return self._cache.quick

    @property
    def size(self) -> int:
        """What the manifest says of the parts, in bytes."""
        return MANIFEST_BYTES * len(self.parts)

    def __len__(self) -> int:
        return self._length

    def get(self, key: K) -> V | None:
        """Return the value of a key; None if it has none.

        Raises:
            UnavailableError, CorruptTimelineError: see `PartCache.read`.
        """
        return self.pairs(self.find(key)).get(key) if self.parts else None

    def find(self, key: K) -> int:
        """Return the number of the part that a key would be in."""
        wanted: Any = key
        return max(0, bisect_right(self.parts, wanted, key=_first) - 1)

    def pairs(self, number: int, *, evict: bool = True) -> Pairs[K, V]:
        """Return what a part has."""
        return self._cache.read(self.kind, self.parts[number], partial(self._from_entries, number), evict=evict)

    def items(self) -> Iterator[tuple[K, V]]:
        """Yield all pairs in order; some parts are read at a time."""
        for pairs in self._ranged(range(len(self.parts))):
            yield from pairs

    def _ranged(self, wanted: range) -> Iterator[Pairs[K, V]]:
        for begin in range(0, len(wanted), READERS):
            numbers = wanted[begin : begin + READERS]
            if all(self.parts[number].digest in self._cache for number in numbers):
                for number in numbers:
                    yield self.pairs(number, evict=False)
            else:
                yield from side_by_side([partial(self.pairs, number, evict=False) for number in numbers])

    def between(self, low: K, high: K) -> Iterator[tuple[K, V]]:
        """Yield the pairs in a range of keys, in order; some parts are read at a time."""
        if not self.parts:
            return
        begin, end = self.find(low), self.find(high) + 1
        wanted: Any = low, high
        for pairs in self._ranged(range(begin, end)):
            yield from ((key, value) for key, value in pairs if wanted[0] <= key < wanted[1])

    def reads(self, keys: Iterable[K]) -> list[Callable[[], object]]:
        """Return what reads the parts that these keys would be in, of those that are not in memory."""
        numbers = sorted({self.find(key) for key in keys}) if self.parts else []
        return [partial(self.pairs, number) for number in numbers if self.parts[number].digest not in self._cache]

    def _from_entries(self, number: int) -> Sequence[tuple[K, V]]:
        """Return what a part should have."""
        whole = self._whole()
        low: Any = self.parts[number].first
        begin, end = bisect_left(whole, low, key=_key), len(whole)
        if number + 1 < len(self.parts):
            high: Any = self.parts[number + 1].first
            end = bisect_left(whole, high, key=_key)
        return whole[begin:end]


_first: Callable[[Any], Any] = attrgetter("first")
_key: Callable[[Any], Any] = itemgetter(0)


# --- what is written --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NewPart(Generic[K, V]):
    """A part that may have to be written: what its manifest says of it, how its pairs are written, and its bytes."""

    part: Part[K]
    kind: Kind[K, V]
    data: bytes


def cut(
    kind: Kind[K, V], values: Mapping[K, V], may_share: Callable[[SortedParts[K, V], Part[K]], bool]
) -> Iterator[Part[K] | NewPart[K, V]]:
    """Yield the parts of a map, in order: those in which nothing changed as they are, without being read.

    Args:
        may_share: tells whether a part of the map's base is there for another checkpoint to name.

    Raises:
        UnavailableError, CorruptTimelineError: a part in which something changed cannot be read.
    """
    cutter = _Cutter(kind)
    for old, pairs in _ranges(values, may_share):
        # What begins in the range before goes on: where a part that changed ends may be another place than before.
        if old is not None and not cutter.has_begun:
            yield old
            continue
        for key, value in pairs():
            if (new := cutter.add(key, value)) is not None:
                yield new
    if cutter.has_begun:
        yield cutter.end()


def _ranges(
    values: Mapping[K, V], may_share: Callable[[SortedParts[K, V], Part[K]], bool]
) -> Iterator[tuple[Part[K] | None, Callable[[], Iterable[tuple[K, V]]]]]:
    """Yield what a map has in the range of each part of its base, and that part if nothing changed in it."""
    base = values.base if isinstance(values, LayeredMap) else None
    if not isinstance(values, LayeredMap) or not isinstance(base, SortedParts) or not base.parts:
        yield None, lambda: sorted(values.items(), key=_key)
        return
    changes: dict[int, dict[K, V | None]] = {}
    for key, value in values.changes.items():
        changes.setdefault(base.find(key), {})[key] = value
    for number, part in enumerate(base.parts):
        changed = changes.get(number)
        shared = part if changed is None and may_share(base, part) else None
        yield shared, partial(_merged, base, number, changed or {})


def _merged(base: SortedParts[K, V], number: int, changed: Mapping[K, V | None]) -> list[tuple[K, V]]:
    """Return the pairs of a part after changes, in order."""
    pairs = {**dict(base.pairs(number, evict=False)), **changed}
    return sorted(((key, value) for key, value in pairs.items() if value is not None), key=_key)


class _Cutter(Generic[K, V]):
    """Cuts sorted pairs into parts."""

    def __init__(self, kind: Kind[K, V]) -> None:
        self._kind = kind
        self._lines: list[bytes] = []
        self._first: K
        self._size = 0

    @property
    def has_begun(self) -> bool:
        """Whether there is a part that did not end yet."""
        return bool(self._lines)

    def add(self, key: K, value: V) -> NewPart[K, V] | None:
        """Add a pair; return the part that ends with it, if one does."""
        line = self._kind.encode(key, value)
        if not self._lines:
            self._first = key
        self._lines.append(line)
        self._size += len(line)
        return self.end() if self._size >= PART_BYTES or zlib.crc32(_encode(key)) % PART_ITEMS == 0 else None

    def end(self) -> NewPart[K, V]:
        """Return the part that has begun; the next pair begins another."""
        data = b"".join(self._lines)
        part = Part(first=self._first, count=len(self._lines), digest=digest_of(data))
        self._lines, self._size = [], 0
        return NewPart(part, self._kind, data)
