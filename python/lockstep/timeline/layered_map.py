"""A persistent map in two layers: a base that is read when somebody asks for it, and the changes since, in memory.

It has what `immutables.Map` has and the database uses: lookups, `set`, `delete`, and `mutate` … `finish` for many
changes at once, each of which leaves the map as it was. A lookup, and with it each change, may ask the base, and raises
what that raises. The length is known without a look at anything.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, ValuesView
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from immutables import Map

from lockstep.workers import Threads

if TYPE_CHECKING:
    from immutables._protocols import MapMutation

K = TypeVar("K")
V = TypeVar("V")

READERS = 64
"""Threads that read parts of bases when many are needed."""


class Base(ABC, Generic[K, V]):
    """What a layered map stands on: pairs that never change. No value is None."""

    @property
    def quick(self) -> bool:
        """Whether to have a thread read what is not in memory takes longer than to read it."""
        return False

    @property
    def size(self) -> int:
        """About how many bytes it takes in memory, before anything of it is read."""
        return 0

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of pairs; it costs nothing."""
        ...

    @abstractmethod
    def get(self, key: K) -> V | None:
        """Return the value of a key, which may have to be read; None if it has none."""
        ...

    @abstractmethod
    def items(self) -> Iterator[tuple[K, V]]:
        """Yield all pairs, in the order of the keys."""
        ...

    @abstractmethod
    def between(self, low: K, high: K) -> Iterator[tuple[K, V]]:
        """Yield the pairs whose keys are `low` or later, and before `high`, in order; only their range is read."""
        ...

    @abstractmethod
    def reads(self, keys: Iterable[K]) -> list[Callable[[], object]]:
        """Return what to call, each in a thread of its own if need be, to have these keys in memory."""
        ...


class LayeredMap(Mapping[K, V]):
    """See above. `changes` has None for what is in the base and here no more."""

    __slots__ = ("_length", "base", "changes")

    def __init__(self, base: Base[K, V], changes: Map[K, V | None] | None = None, length: int | None = None) -> None:
        """Stand on a base; with changes, `length` is how many pairs there are then."""
        self.base = base
        self.changes: Map[K, V | None] = Map() if changes is None else changes
        self._length = len(base) if length is None else length

    def __getitem__(self, key: K) -> V:
        if (value := _find(self.base, self.changes, key)) is None:
            raise KeyError(key)
        return value

    def __contains__(self, key: object) -> bool:
        return _find(self.base, self.changes, key) is not None

    def __iter__(self) -> Iterator[K]:
        return (key for key, _ in self.pairs())

    def __len__(self) -> int:
        return self._length

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self)}, {len(self.changes)} of them changed>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        if isinstance(other, LayeredMap) and self.base is other.base and self.changes == other.changes:
            return True
        return len(self) == len(other) and all(key in other and other[key] == value for key, value in self.pairs())

    __hash__ = None  # type: ignore[assignment]  # it equals dictionaries

    def items(self) -> ItemsView[K, V]:
        """Return the pairs; to go through them reads the base from its beginning to its end, and each part once."""
        return _Items(self)

    def values(self) -> ValuesView[V]:
        """Return the values, see `items`."""
        return _Values(self)

    def pairs(self) -> Iterator[tuple[K, V]]:
        """Yield what `items` has."""
        for key, old in self.base.items():
            if key not in self.changes:
                yield key, old
        for key, value in self.changes.items():
            if value is not None:
                yield key, value

    def between(self, low: K, high: K) -> Iterator[tuple[K, V]]:
        """Yield those of `items` whose keys are `low` or later, and before `high`; only their range is read."""
        for key, old in self.base.between(low, high):
            if key not in self.changes:
                yield key, old
        for key, value in self.changes.items():
            if value is not None and _is_between(low, key, high):
                yield key, value

    def set(self, key: K, value: V) -> LayeredMap[K, V]:
        """Return a map with this value."""
        mutation = self.mutate()
        mutation[key] = value
        return mutation.finish()

    def delete(self, key: K) -> LayeredMap[K, V]:
        """Return a map without this key.

        Raises:
            KeyError: it is not there.
        """
        mutation = self.mutate()
        del mutation[key]
        return mutation.finish()

    def mutate(self) -> Mutation[K, V]:
        """Return a copy that can be changed; it costs nothing."""
        return Mutation(self.base, self.changes, self._length)


class Mutation(Generic[K, V]):
    """A layered map in the making; `finish` returns it."""

    def __init__(self, base: Base[K, V], changes: Map[K, V | None], length: int) -> None:
        """Begin with what a map has."""
        self._base = base
        self._changes = changes.mutate()
        self._length = length

    def get(self, key: K, default: Any = None) -> Any:
        """Return the value of a key, or the default."""
        return default if (value := _find(self._base, self._changes, key)) is None else value

    def __getitem__(self, key: K) -> V:
        if (value := _find(self._base, self._changes, key)) is None:
            raise KeyError(key)
        return value

    def __contains__(self, key: object) -> bool:
        return _find(self._base, self._changes, key) is not None

    def __len__(self) -> int:
        return self._length

    def __setitem__(self, key: K, value: V) -> None:
        self._length += key not in self
        self._changes[key] = value

    def __delitem__(self, key: K) -> None:
        if key not in self:
            raise KeyError(key)
        if self._base.get(key) is None:
            del self._changes[key]
        else:
            self._changes[key] = None
        self._length -= 1

    def finish(self) -> LayeredMap[K, V]:
        """Return the map; the mutation is of no use after that."""
        return LayeredMap(self._base, self._changes.finish(), self._length)


class Changing(Generic[K, V]):
    """A map of either kind in the making, which is copied with its first change: who changes none pays for none.

    A copy shares with the map all that is not changed.
    """

    __slots__ = ("_copy", "_values")

    def __init__(self, values: Mapping[K, V]) -> None:
        """Begin with what a map has."""
        self._values: Map[K, V] | LayeredMap[K, V] = values if isinstance(values, Map | LayeredMap) else Map(values)
        self._copy: MapMutation[K, V] | Mutation[K, V] | None = None

    def get(self, key: K, default: Any = None) -> Any:
        """Return the value of a key, or the default."""
        return (self._values if self._copy is None else self._copy).get(key, default)

    def __getitem__(self, key: K) -> V:
        return (self._values if self._copy is None else self._copy)[key]

    def __contains__(self, key: object) -> bool:
        return key in (self._values if self._copy is None else self._copy)

    def __len__(self) -> int:
        return len(self._values if self._copy is None else self._copy)

    def __setitem__(self, key: K, value: V) -> None:
        self._changed()[key] = value

    def __delitem__(self, key: K) -> None:
        del self._changed()[key]

    def _changed(self) -> MapMutation[K, V] | Mutation[K, V]:
        if self._copy is None:
            self._copy = self._values.mutate()
        return self._copy

    def finish(self) -> Map[K, V] | LayeredMap[K, V]:
        """Return the map, the very one that this began with if nothing changed; this is of no use after that."""
        return self._values if self._copy is None else self._copy.finish()


class _Items(ItemsView[K, V]):
    _mapping: LayeredMap[K, V]

    def __iter__(self) -> Iterator[tuple[K, V]]:
        return self._mapping.pairs()


class _Values(ValuesView[V]):
    _mapping: LayeredMap[Any, V]

    def __iter__(self) -> Iterator[V]:
        return (value for _, value in self._mapping.pairs())


_NOT_CHANGED: Any = object()


def _find(base: Base[Any, V], changes: Any, key: object) -> V | None:
    value: V | None = changes.get(key, _NOT_CHANGED)
    return base.get(key) if value is _NOT_CHANGED else value


def between(values: Mapping[K, V], low: K, high: K) -> Iterator[tuple[K, V]]:
    """Yield the pairs of a map whose keys are `low` or later, and before `high`, in no order.

    Raises:
        UnavailableError, CorruptTimelineError: what a lookup would raise.
    """
    if isinstance(values, LayeredMap):
        return values.between(low, high)
    return ((key, value) for key, value in values.items() if _is_between(low, key, high))


def _is_between(low: Any, key: Any, high: Any) -> bool:
    return bool(low <= key < high)


def fetch(*wanted: tuple[Mapping[Any, Any], Iterable[Any]]) -> None:
    """Have these keys of these maps in memory, reading side by side what is not.

    Raises:
        UnavailableError, CorruptTimelineError: what a lookup would raise.
    """
    bases = [(values.base, keys) for values, keys in wanted if isinstance(values, LayeredMap)]
    side_by_side(
        (read for base, keys in bases for read in base.reads(keys)), quick=all(base.quick for base, _ in bases)
    )


def side_by_side(calls: Iterable[Callable[[], V]], *, quick: bool = False) -> list[V]:
    """Return what each call returns, in order; `READERS` of them are made at a time, and of quick ones less."""
    wanted = list(calls)
    if len(wanted) < 2:
        return [call() for call in wanted]
    with Threads(min(READERS, len(wanted)), thread_name_prefix="lockstep-parts", quick=quick) as pool:
        return list(pool.map(lambda call: call(), wanted))
