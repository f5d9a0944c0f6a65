"""The map that stands on a checkpoint's parts: it is the dictionary that took the same steps, and reads little."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from immutables import Map

from lockstep.errors import CorruptTimelineError, UnavailableError
from lockstep.timeline.layered_map import LayeredMap, fetch
from lockstep.timeline.manifest import KINDS
from lockstep.timeline.parts import NewPart, Part, PartCache, SortedParts, cut, digest_of, part_path
from tests.support.faulty import FaultyStorage
from tests.support.memory import MemoryStorage

pytestmark = pytest.mark.long

KIND = KINDS["batches"]
"""Strings with numbers."""

WORDS = st.text("abc", min_size=1, max_size=3)
STEPS = st.lists(
    st.tuples(st.sampled_from(["set", "delete", "set at once", "delete at once"]), WORDS, st.integers(0, 9)),
    max_size=30,
)


@pytest.fixture(autouse=True, params=[1, 4, 256])
def part_items(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part ends after each key, after a few, or after all of them."""
    monkeypatch.setattr("lockstep.timeline.parts.PART_ITEMS", request.param)


def no_entries() -> Any:
    raise CorruptTimelineError("the entries are gone")


def written(
    store: FaultyStorage,
    values: Mapping[str, int],
    *,
    share: bool = True,
    whole: Any = no_entries,
    size: int = 1_000_000,
) -> LayeredMap[str, int]:
    """Write a map's parts as a checkpoint does, and stand on them; `share` says whether parts may be named again."""
    parts: list[Part[str]] = []
    for part in cut(KIND, values, lambda *_: share):
        if isinstance(part, NewPart):
            store.inner.put(part_path(part.part.digest), part.data)
        parts.append(part.part if isinstance(part, NewPart) else part)
    return LayeredMap(SortedParts(KIND, parts, PartCache(store, size), 0, whole))


def empty_store() -> FaultyStorage:
    return FaultyStorage(MemoryStorage())


def changed(values: LayeredMap[str, int], model: dict[str, int], steps: Any) -> Iterator[LayeredMap[str, int]]:
    """Take steps with a map and its model; yield the map after each, which leaves the one before as it was."""
    for step, key, number in steps:
        before, then = values, dict(model)
        if step.startswith("set"):
            model[key] = number
            if step == "set":
                values = values.set(key, number)
            else:
                mutation = values.mutate()
                mutation[key] = number
                assert (mutation[key], mutation.get(key), key in mutation, len(mutation)) == (
                    number,
                    number,
                    True,
                    len(model),
                )
                values = mutation.finish()
        elif key not in model:
            with pytest.raises(KeyError):
                values.delete(key)
        else:
            del model[key]
            if step == "delete":
                values = values.delete(key)
            else:
                mutation = values.mutate()
                del mutation[key]
                assert (mutation.get(key), key in mutation, len(mutation)) == (None, False, len(model))
                values = mutation.finish()
        assert before == then
        yield values


def assert_same(values: LayeredMap[str, int], model: dict[str, int]) -> None:
    assert len(values) == len(model)
    assert dict(values) == dict(values.items()) == model
    assert sorted(values) == sorted(values.keys()) == sorted(model)
    assert sorted(values.values()) == sorted(model.values())
    assert values == model
    assert values == Map(model)
    assert Map(model) == values
    assert values != {**model, "other": 1}
    for key in ["a", "b", "ccc", *model]:
        assert values.get(key) == model.get(key)
        assert (key in values) == (key in model)


@given(st.dictionaries(WORDS, st.integers(0, 9)), STEPS, st.sampled_from([0, 100, 10_000]))
def test_it_is_the_dictionary_that_took_the_same_steps(start: dict[str, int], steps: Any, cached: int) -> None:
    """Whatever the size of its parts, and however few of them stay in memory."""
    model = dict(start)
    values = written(empty_store(), Map(start), size=cached)
    assert_same(values, model)
    for after in changed(values, model, steps):
        assert_same(after, model)
    with pytest.raises(KeyError):
        values["none"]


@given(st.dictionaries(WORDS, st.integers(0, 9)), st.lists(STEPS, max_size=3))
def test_parts_are_the_same_whatever_they_come_from(start: dict[str, int], rounds: list[Any]) -> None:
    """Those of a map that stands on parts, some named again unread, and those of a map that was written whole."""
    store, model = empty_store(), dict(start)
    values = written(store, Map(start))
    for steps in rounds:
        values = written(store, [values, *changed(values, model, steps)][-1])
        assert_same(values, model)
        whole = written(empty_store(), Map(model), share=False)
        assert isinstance(whole.base, SortedParts)
        assert isinstance(values.base, SortedParts)
        assert values.base.parts == whole.base.parts


@pytest.mark.parametrize("at_once", [10, 600])
def test_parts_that_are_large_are_cut_the_same_too(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a part ends because of its size, those behind it begin elsewhere after a change, up to where a key says."""
    monkeypatch.setattr("lockstep.timeline.parts.PART_BYTES", 300)
    store = empty_store()
    model = {f"t{n:03}": n for n in range(0, 1_000, 2)}
    values = written(store, Map(model))
    for begin in range(1, 1_000, at_once):
        for n in range(begin, begin + at_once, 7):
            values = values.set(f"t{n:03}", n)
            model[f"t{n:03}"] = n
        values = written(store, values)
        whole = written(empty_store(), Map(model), share=False)
        assert values.base.parts == whole.base.parts  # type: ignore[attr-defined]


def test_only_the_part_of_a_key_is_read_and_only_once() -> None:
    store = empty_store()
    model = {f"t{n:03}": n for n in range(1_000)}
    values = written(store, Map(model))
    assert len(values) == 1_000
    assert store.calls == []
    assert values["t007"] == 7
    assert store.count("get") == 1
    assert values.set("t007", 8)["t007"] == values["t007"] + 1
    assert values.delete("t007").get("t007") is None
    assert len(values.set("t0071", 1).delete("t0071").changes) == 0
    assert store.count("get") == 1
    assert sum(values.values()) == sum(model.values())
    parts = values.base.parts  # type: ignore[attr-defined]
    assert store.count("get") == len(parts)
    store.calls.clear()
    again = written(store, values.set("t007", 8).set("t800", 9))
    assert store.count("get") == 0
    new = {part.digest for part in again.base.parts} - {part.digest for part in parts}  # type: ignore[attr-defined]
    assert 0 < len(new) <= 2


def test_parts_in_which_nothing_changed_are_named_again_unread() -> None:
    store = empty_store()
    model = {f"t{n:04}": n for n in range(5_000)}
    again = written(store, written(store, Map(model)).set("t0007", 8))
    assert store.count("get") == 1
    assert again["t0007"] == 8


def test_several_keys_are_read_at_once() -> None:
    store = empty_store()
    values = written(store, Map({f"t{n:03}": n for n in range(1_000)}))
    keys = [f"t{n:03}" for n in range(0, 1_000, 50)]
    fetch((values, [*keys, "t001", "other"]), (Map({"a": 1}), ["a"]))
    read = store.count("get")
    assert read <= min(len(keys) + 2, len(values.base.parts))  # type: ignore[attr-defined]
    assert [values[key] for key in keys] == [*range(0, 1_000, 50)]
    assert store.count("get") == read


def test_what_stays_in_memory_is_bounded() -> None:
    """In bytes of files; who goes through all parts takes nobody's place."""
    store = empty_store()
    values = written(store, Map({f"t{n:04}": n for n in range(2_000)}), size=2_000)
    parts = values.base.parts  # type: ignore[attr-defined]
    values.get("t0000")
    first = store.count("get")
    assert len([*values.items()]) == 2_000
    assert store.count("get") >= len(parts)
    store.calls.clear()
    values.get("t0000")
    if max(part.count for part in parts) < 50:
        assert (first, store.count("get")) == (1, 0)
    cache: PartCache = values.base._cache  # type: ignore[attr-defined]
    assert cache._kept.size <= 2_000


@pytest.mark.parametrize("damage", [None, b"?", b"", b"[" * 100_000])
def test_a_part_that_cannot_be_read_is_made_of_the_entries(
    damage: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Each of them, found late: what is asked for is right, the log says it once, and each part is mended once."""
    model = {f"t{n:03}": n for n in range(300)}
    store = empty_store()
    made: list[int] = []

    def whole() -> list[tuple[str, int]]:
        made.append(1)
        return sorted(model.items())

    values = written(store, Map(model), whole=whole)
    for part in (parts := values.base.parts):  # type: ignore[attr-defined]
        store.inner.delete(part_path(part.digest))
        if damage is not None:
            store.inner.put(part_path(part.digest), damage)
    with caplog.at_level(logging.WARNING):
        assert_same(values.set("t007", 9), {**model, "t007": 9})
        assert dict(values.items()) == model
    assert len(made) == len(parts)
    assert caplog.text.count("the timeline's entries are read instead") == len(parts)
    again = written(store, values.set("t007", 9), share=False)
    assert dict(again.items()) == {**model, "t007": 9}


def test_where_neither_the_part_nor_the_entries_can_be_read_that_is_said() -> None:
    """A store that fails says so, and is asked again; nothing is ever missing without a word."""
    store = empty_store()
    values = written(store, Map({"a": 1}))
    [part] = values.base.parts  # type: ignore[attr-defined]
    store.fail("get", times=5)
    for ask in (lambda: values["a"], lambda: "a" in values, lambda: [*values], lambda: values.set("a", 2)):
        with pytest.raises(UnavailableError):
            ask()
    with pytest.raises(UnavailableError):
        fetch((values, ["a"]))
    assert values["a"] == 1
    fresh = written(store, Map({"a": 1}))
    store.inner.put(part_path(part.digest), b"")
    with pytest.raises(CorruptTimelineError, match="the entries are gone"):
        fresh.get("a")


def test_a_part_of_other_bytes_is_not_believed() -> None:
    """The digest is that of the bytes, so a part that says something else is as good as gone."""
    store = empty_store()
    values = written(store, Map({"a": 1}), whole=lambda: [("a", 1)])
    [part] = values.base.parts  # type: ignore[attr-defined]
    other = KIND.encode("a", 2)
    assert digest_of(other) != part.digest
    store.inner.put(part_path(part.digest), other)
    assert values["a"] == 1
