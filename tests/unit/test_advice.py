"""Advice (checksums, the hint, announcements) may say anything at all: a commit lands, and the lake stays usable."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.commit.announce import FOLDER as ANNOUNCED
from lockstep.conflict.lock_policy import Resolution
from lockstep.delta.log import checksum_path, read_checksum
from lockstep.errors import CorruptTimelineError, UnavailableError
from lockstep.timeline.files import entry_path
from lockstep.timeline.hint import HINT
from tests.support.faulty import FaultyStorage
from tests.support.lakes import add, append, files, location, named, open_catalog, remove, stage

NOT_VALUES: list[Any] = [
    None,
    True,
    -1,
    1.5,
    2**63,
    10**400,
    "",
    "x",
    "\ud800",
    [],
    {},
    [[]],
    [None],
    {"a": None},
    [{}],
]


def mutilated(sound: bytes, seed: int = 0) -> Iterator[bytes]:
    """Yield what becomes of a file: other bytes, a part of it, and its JSON with one value changed, or one gone."""
    chance = random.Random(seed)
    yield from (b"", b"null", b"[]", b"{}", b"0", b'"', b"\x00" * 64, b"\xff\xfe", b"[" * 100_000, b'{"a":' * 100_000)
    yield from (chance.randbytes(n) for n in (1, 16, 500))
    yield from (sound[:n] for n in range(0, len(sound), max(len(sound) // 20, 1)))
    for _ in range(40):
        at = chance.randrange(len(sound))
        yield sound[:at] + chance.randbytes(1) + sound[at + 1 :]
    whole = json.loads(sound)
    for path in places(whole):
        for value in (*NOT_VALUES, ...):
            yield json.dumps(changed(whole, path, value)).encode()


def places(value: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each value in a JSON value; of a list's only the first and the last."""
    inside = value.items() if isinstance(value, dict) else [*enumerate(value)] if isinstance(value, list) else []
    for key, each in [*inside][:1] + [*inside][-1:] if isinstance(value, list) else inside:
        yield (key,)
        yield from ((key, *path) for path in places(each))


def changed(whole: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Return the JSON value with another value at a path, `...` for none."""
    copy = json.loads(json.dumps(whole))
    inner = copy
    for key in path[:-1]:
        inner = inner[key]
    if value is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return copy


CHECKSUM: dict[str, Any] = {
    "tableSizeBytes": 1,
    "numFiles": 1,
    "setTransactions": [{"appId": "s", "version": 3, "lastUpdated": 1}],
    "domainMetadata": [{"domain": "d", "configuration": "{}", "removed": False}],
    "metadata": {"id": "m", "schemaString": "{}", "partitionColumns": [], "configuration": {"k": "v"}},
    "protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [], "writerFeatures": ["x"]},
    "fileSizeHistogram": {"sortedBinBoundaries": [0, 8], "fileCounts": [1, 0], "totalBytes": [1, 0]},
    "allFiles": [
        {"path": "p", "size": 1, "deletionVector": {"storageType": "u", "pathOrInlineDv": "v", "cardinality": 1}}
    ],
}


def test_whatever_a_checksum_says_the_commit_behind_it_is_published(
    catalog: TransactionalCatalog, store: FaultyStorage
) -> None:
    version = 0
    for n, found in enumerate(mutilated(json.dumps(CHECKSUM).encode())):
        store.inner.put(checksum_path(location(catalog, "a"), version), found)
        if n % 16 and read_checksum(store, location(catalog, "a"), version) is None:
            continue  # it counts as absent: a commit for some of them is enough
        tx = catalog.begin()
        stage(catalog, tx, "a", remove(f"x{version}" if version else "p"), add(f"x{version + 1}"))
        catalog.commit(tx)
        version += 1
        assert catalog.timeline.published_through == catalog.timeline.head.version, found[:200]
    assert version > 30
    assert files(catalog, "a") == {f"x{version}"}


def test_a_checksum_that_is_half_right_counts_as_absent(catalog: TransactionalCatalog, store: FaultyStorage) -> None:
    where = checksum_path(location(catalog, "a"), 0)
    for field in ("tableSizeBytes", "numFiles", "metadata", "protocol"):
        store.put(where, json.dumps({key: value for key, value in CHECKSUM.items() if key != field}).encode())
        assert read_checksum(store, location(catalog, "a"), 0) is None, field
    store.put(where, json.dumps(CHECKSUM | {"more": [1]}).encode())
    assert read_checksum(store, location(catalog, "a"), 0) == CHECKSUM | {"more": [1]}, "what is not known is kept"


def test_whatever_the_hint_says_the_lake_opens(catalog: TransactionalCatalog, store: FaultyStorage) -> None:
    """But for one that names a version after the newest, which looks as if that had been lost."""
    append(catalog, "a", "x")
    for found in mutilated(b'{"version": 2, "published_through": 2}'):
        store.inner.put(HINT, found)
        if claims_more(found):
            with pytest.raises(CorruptTimelineError, match=f"delete {HINT}"):
                open_catalog(store.inner)
        else:
            assert files(open_catalog(store.inner), "a") == {"p", "x"}, found[:200]


def test_a_hint_that_cannot_be_read_is_not_one_that_is_not_there(
    catalog: TransactionalCatalog, store: FaultyStorage
) -> None:
    """It is all that tells of the lost entry: a lake that opens without it goes on before that."""
    append(catalog, "a", "x")
    store.delete(entry_path(catalog.timeline.head.version))
    store.fail("get", path=HINT)
    with pytest.raises(UnavailableError):
        open_catalog(store)
    with pytest.raises(CorruptTimelineError, match=f"delete {HINT}"):
        open_catalog(store)


def claims_more(hint: bytes) -> bool:
    try:
        said = json.loads(hint)
        return bool(said["version"] > 2 and 0 <= said.get("published_through", 0) <= said["version"] < 10**20)
    except (ValueError, TypeError, KeyError, RecursionError):
        return False


def test_whatever_an_announcement_says_statements_and_commits_go_on(
    catalog: TransactionalCatalog, store: FaultyStorage
) -> None:
    """At worst somebody waits for a transaction that is not there, until its announcement expires."""
    policy = Resolution(policy="wait-die", lock_timeout_seconds=0.0)
    one, other = (open_catalog(store.inner, resolution=policy) for _ in range(2))
    folder = f"{ANNOUNCED}/{catalog.timeline.head.tables[named('a')].id}"
    mine = one.begin()
    announced = other.begin()
    stage(other, announced, "a", remove("claimed"), add("new"))
    [name] = store.list(folder)
    sound = store.get(f"{folder}/{name}")
    assert sound is not None
    other.rollback(announced)
    for n, found in enumerate(mutilated(sound)):
        if n % 2 == 0 or n < 12:
            store.inner.put(f"{folder}/{name}", found)
            stage(one, mine, "a", remove(f"x{n}"))
    assert n > 200
    one.commit(mine)
