"""What OPTIMIZE would put together, told by a table's log. `tests/spark/test_upkeep.py` has Delta do it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.delta.actions import Action
from lockstep.retention.compacting import LARGEST, Compactable, compactable, shown
from tests.support.lakes import NEW_TABLE, add, metadata, named, open_catalog, stage_new
from tests.support.retained import AgedStorage, Ticking

MB = 1 << 20
VECTOR: dict[str, Any] = {
    "storageType": "i",
    "pathOrInlineDv": "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
    "sizeInBytes": 40,
}


def file(
    path: str, size: int, *, part: str | None = None, deleted: int = 0, stats: str = '{"numRecords":100}'
) -> Action:
    more: dict[str, Any] = {} if not deleted else {"deletionVector": VECTOR | {"cardinality": deleted}}
    values = {} if part is None else {"p": part}
    return add(path, size=size, partitionValues=values, stats=stats, **more)


CASES: dict[str, tuple[list[Action], tuple[int, int] | None]] = {
    "no file": ([], None),
    "one small file": ([file("a", 1)], None),
    "two small files": ([file("a", 1), file("b", 2)], (2, 3)),
    "large ones": ([file("a", LARGEST), file("b", LARGEST)], None),
    "a small one beside a large one": ([file("a", 1), file("b", LARGEST)], None),
    "more than one large one has room for": ([file(each, 400 * MB) for each in "abc"], (2, 800 * MB)),
    "a file of each partition": ([file("a", 1, part="1"), file("b", 1, part="2")], None),
    "by partition": ([file("a", 1, part="1"), file("b", 2, part="1"), file("c", 4, part="2")], (2, 3)),
    "none of a partition by null alone": ([file("a", 1, part="1"), add("b", partitionValues={"p": None})], None),
    "large ones that have lost few rows": ([file(each, LARGEST, deleted=5) for each in "ab"], None),
    "large ones that have lost more, of which no two have room": ([file(e, LARGEST, deleted=6) for e in "ab"], None),
    "a large one that has lost rows, and an empty one": ([file("a", LARGEST, deleted=6), file("b", 0)], (2, LARGEST)),
    "its statistics are broken": ([file("a", LARGEST, deleted=1, stats="{"), file("b", 0)], (2, LARGEST)),
    "nobody knows how many": ([file("a", LARGEST, deleted=1, stats="{}"), file("b", 0)], (2, LARGEST)),
}


@pytest.mark.parametrize("case", CASES)
def test_what_would_be_compacted(aged: AgedStorage, clock: Ticking, case: str) -> None:
    actions, expected = CASES[case]
    catalog = open_catalog(aged, clock=clock)
    make(catalog, actions, NEW_TABLE)
    found = [] if expected is None else [Compactable(named("a"), *expected)]
    assert compactable(catalog.lake) == found
    assert shown(found) == ("" if expected is None else f"default.a ({expected[0]} files, {expected[1]} bytes)")


def make(catalog: TransactionalCatalog, actions: list[Action], start: Sequence[Action]) -> None:
    tx = catalog.begin()
    stage_new(catalog, tx, "a", *actions, start=start)
    catalog.commit(tx)


CLUSTERED: dict[str, tuple[list[str | None], bool]] = {
    "empty": ([], False),
    "new": ([None], True),
    "clustered": (["one", "one"], False),
    "clustered, and new": (["one", None], True),
    "clustered by two runs": (["one", "two"], True),
}


@pytest.mark.parametrize("case", CLUSTERED)
def test_of_a_clustered_table_it_is_told_whether_there_is_anything_to_do(
    aged: AgedStorage, clock: Ticking, case: str
) -> None:
    cubes, is_any = CLUSTERED[case]
    files = [add(f"f{at}", tags={} if cube is None else {"ZCUBE_ID": cube}) for at, cube in enumerate(cubes)]
    said = json.dumps({"clusteringColumns": [["id"]], "domainName": "delta.clustering"})
    domain: Action = {"domainMetadata": {"domain": "delta.clustering", "configuration": said, "removed": False}}
    protocol: Action = {
        "protocol": {
            "minReaderVersion": 1,
            "minWriterVersion": 7,
            "writerFeatures": ["clustering", "domainMetadata"],
        }
    }
    catalog = open_catalog(aged, clock=clock)
    make(catalog, [domain, *files], [protocol, metadata()])
    assert compactable(catalog.lake) == ([Compactable(named("a"), None, None)] if is_any else [])
