"""A lake's store reaches what lies outside of its root, by whole URLs, and nothing else by accident."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

import lockstep
from lockstep.adoption.adopt import Wanted, adopt, look
from lockstep.delta.actions import render
from lockstep.errors import InvalidError, UnsupportedError
from lockstep.retry import CLAIM
from lockstep.storage import Mine, Storage, Theirs, open_storage
from lockstep.storage.outside import OutsideStorage, open_reaching
from lockstep.storage.proof import FOLDER, path_of
from lockstep.storage.urls import is_outside, url_below
from tests.support.faulty import FaultyStorage
from tests.support.lakes import NEW_TABLE, add, append, files, named, open_catalog
from tests.support.memory import MemoryStorage
from tests.support.s3 import KEYS, Ignoring, LookingFirst, moto, put, serving

pytestmark = pytest.mark.long


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return open_reaching(str(tmp_path / "lake"), create=True)


@pytest.fixture
def out(tmp_path: Path) -> str:
    return f"file://{tmp_path}/else where"


class Marked(MemoryStorage):
    """A store none of whose attributes is what stores have by default."""

    claim = replace(CLAIM, attempts=CLAIM.attempts + 1)
    quick = True
    is_proven_by_use = False
    address = "memory at a server"


def test_each_attribute_of_a_store_is_handed_on_by_what_is_around_it() -> None:
    """And each method: `Storage` has defaults, which would be wrong of another store without a word."""
    inner = Marked()
    outer = OutsideStorage(inner)
    public = {name for name in dir(Storage) if not name.startswith("_")}
    methods = {name for name in public if callable(getattr(Storage, name))}
    for name in public - methods:
        assert getattr(outer, name) == getattr(inner, name), name
    assert methods - vars(OutsideStorage).keys() == {"put_durably", "put_once"}, "which are made of others"


def test_the_stores_are_known_and_one_of_them_is_around_others() -> None:
    """A new one that hands calls on belongs into the test above."""
    found = {
        name
        for file in Path(lockstep.__file__).parent.rglob("*.py")
        for name in re.findall(r"^class (\w+)\(\w*Storage\b", file.read_text(), re.MULTILINE)
    }
    assert found == {"AzureStorage", "HadoopStorage", "LocalStorage", "ObjectStorage", "OutsideStorage"}


@pytest.fixture(params=[Ignoring, LookingFirst])
def racy(request: pytest.FixtureRequest) -> Iterator[str]:
    """The endpoint of an S3 server that ignores conditions, or looks first and then writes."""
    with serving(request.param(moto()), threaded=True) as endpoint:
        yield endpoint


def test_a_bucket_outside_of_the_root_is_raced_before_anything_is_written_there(racy: str, tmp_path: Path) -> None:
    """The lake's own root is right; what the other store is found to be is kept there, and litters nobody else's."""
    options = {**KEYS, "endpoint": racy}
    other = f"s3://lake/{tmp_path.name}"
    root = open_storage(str(tmp_path / "lake"), create=True)
    for _ in range(2):
        storage = OutsideStorage(root, options)
        with pytest.raises(UnsupportedError, match=rf"s3://lake at {racy} cannot hold a lake"):
            storage.put_if_absent(f"{other}/t/_delta_log/1.json", b"1")
    assert [*open_storage(other, options=options).walk("")] == []
    assert root.list(FOLDER) == [path_of(f"s3://lake at {racy}").rpartition("/")[2]]


def test_a_bucket_outside_of_the_root_is_raced_once(tmp_path: Path) -> None:
    with serving(moto()) as endpoint:
        options = {**KEYS, "endpoint": endpoint}
        root = FaultyStorage(open_storage(str(tmp_path / "lake"), create=True))
        for number in range(2):
            storage = OutsideStorage(root, options)
            for path in ("a", "b"):
                assert storage.put_if_absent(f"s3://lake/x/{number}{path}", b"1") == Mine()
        assert root.count("put_if_absent", path_of(f"s3://lake at {endpoint}")) == 1
        assert {found.path for found in open_storage("s3://lake/x", options=options).walk("")} == {
            "0a",
            "0b",
            "1a",
            "1b",
        }


def test_a_path_is_below_the_root_or_a_whole_url() -> None:
    assert not is_outside("sales/orders-1")
    assert is_outside("file:///data/orders")
    assert url_below("s3://bucket/lake", "a") == "s3://bucket/lake/a"
    assert url_below("s3://bucket/lake", "s3://other/a") == "s3://other/a"


def test_every_operation_reaches_it(storage: Storage, tmp_path: Path, out: str) -> None:
    assert isinstance(storage.put_if_absent(f"{out}/a", b"1"), Mine)
    assert storage.put_if_absent(f"{out}/a", b"2") == Theirs(b"1")
    assert not storage.try_put(f"{out}/a", b"2")
    storage.put(f"{out}/a", b"3")
    assert storage.get(f"{out}/a") == b"3"
    assert storage.put_advice(f"{out}/deep/b", b"4")
    storage.put_chunks(f"{out}/c", iter([b"5", b"6"]))
    assert b"".join(storage.chunks(f"{out}/c") or ()) == b"56"
    assert storage.list(out) == ["a", "c"]
    assert storage.list(out, after="a") == ["c"]
    assert {found.path for found in storage.walk(out)} == {f"{out}/{name}" for name in ("a", "c", "deep/b")}
    assert storage.exists(f"{out}/a")
    storage.delete(f"{out}/a")
    storage.delete_all(["inside", f"{out}/c"])
    assert not storage.exists(f"{out}/c")
    storage.delete_folder(out)
    assert not (tmp_path / "else where").exists()


def test_what_is_below_the_root_is_the_stores_own(storage: Storage, tmp_path: Path) -> None:
    assert storage.url == f"file://{tmp_path}/lake"
    assert storage.quick
    storage.put_once("a/b", b"1")
    assert [found.path for found in storage.walk("a")] == ["a/b"]
    storage.delete_all(["a/b"])
    assert (tmp_path / "lake" / "a").is_dir()
    assert storage.list("a") == []


@pytest.mark.parametrize("kind", ["local", "s3"])
def test_a_table_beside_a_lake_is_adopted_in_each_kind_of_store(kind: str, tmp_path: Path) -> None:
    """What lies outside of the root is reached with the settings of the lake's own store."""
    if kind == "local":
        is_adopted_and_written(f"file://{tmp_path}", None)
    else:
        with serving(moto()) as endpoint:
            is_adopted_and_written("s3://lake/one", {**KEYS, "endpoint": endpoint})


def is_adopted_and_written(base: str, options: Mapping[str, str] | None) -> None:
    warehouse = open_storage(f"{base}/warehouse", create=True, options=options)
    warehouse.put("t/_delta_log/00000000000000000000.json", render([*NEW_TABLE, add("p")]))
    table = f"{base}/warehouse/t"
    catalog, rival = (
        open_catalog(open_reaching(f"{base}/{name}", create=True, options=options)) for name in ("lake", "rival")
    )
    tx = catalog.begin()
    [found] = look(catalog.lake, tx.names, [Wanted(named("t"), table.replace("s3://", "s3a://"))])
    assert (found.reason, found.location) == (None, table)
    adopt(catalog.lake, tx, [found])
    catalog.commit(tx)
    append(catalog, "t", "q")
    assert warehouse.get("t/q") == b"rows"
    assert files(catalog, "t") == {"p", "q"}
    tx = rival.begin()
    [found] = look(rival.lake, tx.names, [Wanted(named("t"), table)])
    with pytest.raises(InvalidError, match=r"is table default\.t of the lake"):
        adopt(rival.lake, tx, [found])


MARKED = [
    ("", True),
    ("_delta_log/", True),
    ("_delta_log/_lockstep/", True),
    ("_delta_log/_lockstep/0a1b/", True),
    ("_delta_log/_staged_commits/", True),
    ("_delta_log/_sidecars/", True),
    ("day=1/", False),
    ("_delta_log/other/", False),
    ("x.csv", False),
]


def test_markers_of_folders_do_not_fill_the_folder_of_a_new_table() -> None:
    """Hadoop makes them, objects of no size whose keys end in a slash, before Delta writes into a folder.

    All servers of a process have the same objects, so the names are this test's own.
    """
    with serving(moto()) as endpoint:
        catalog = open_catalog(
            open_reaching("s3://lake/marked/one", create=True, options={**KEYS, "endpoint": endpoint})
        )
        for number, (marker, is_free) in enumerate(MARKED):
            for data in (b"", b"1"):
                folder = f"marked/{number}{len(data)}"
                put(endpoint, "lake", f"{folder}/{marker}", data)
                said = None
                try:
                    catalog.reserve(named("t"), location=f"s3://lake/{folder}")
                except InvalidError as error:
                    said = error.message
                is_marker = is_free and not data
                assert said is None if is_marker else "the folder is not empty" in (said or ""), (marker, data)


@pytest.mark.parametrize("path", ["file:///", "file://", "s3://bucket", "s3://bucket/"])
def test_a_store_as_a_whole_is_no_path(storage: Storage, path: str) -> None:
    with pytest.raises(InvalidError):
        storage.delete_folder(path)
    with pytest.raises(InvalidError):
        storage.walk(path)


@pytest.mark.parametrize("path", ["file:///a/../b", "file:///a//b", "file:///./a"])
def test_parts_that_lead_elsewhere_are_refused(storage: Storage, path: str) -> None:
    with pytest.raises(InvalidError, match="not a path in this store"):
        storage.get(path)
