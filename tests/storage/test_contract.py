"""One contract, over every store (docs/storage.md): local, in memory with faults, and servers over HTTP.

`make test-stores` adds those that must be fetched first (`LOCKSTEP_TEST_STORES`).
"""

from __future__ import annotations

import os
import threading
from array import array
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import obstore.store
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.errors import CorruptTimelineError, InvalidError, UnavailableError, UnsupportedError
from lockstep.exports.export import Asked, Exporter
from lockstep.storage import Mine, Storage, Theirs, checked, open_storage, url_of
from lockstep.storage.hadoop import HadoopStorage
from lockstep.storage.object import ObjectStorage
from lockstep.tables.opened import OpenLake
from tests.support import on_hdfs, servers
from tests.support.faulty import FaultyStorage
from tests.support.gcs import TOKEN, Gcs
from tests.support.lakes import add, files, named, open_catalog, stage_new
from tests.support.s3 import KEYS, Contended, moto, serving
from tests.support.sessions import ROOTS

FETCHED = ["s3proxy", "versitygw", "azurite"] if servers.ARE_WANTED else []


class Doubting(FaultyStorage):
    """Answers the first write of an object that there is one, though there is none, and loses the next answer."""

    def try_put(self, path: str, data: bytes) -> bool:
        first = not self.count("put_if_absent", path)
        if first:
            self.claim_taken(path)
        return super().try_put(path, data) and first


@pytest.fixture(scope="session")
def server() -> Contended:
    """What answers S3's requests: moto's own application, but for the conflicts that a test asks for."""
    return Contended(moto())


@pytest.fixture(scope="session")
def s3(server: Contended) -> Iterator[str]:
    """The endpoint of a moto S3 server with a bucket `lake`."""
    with serving(server) as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def gcs() -> Iterator[servers.Server]:
    """A stand-in for Google's store: what it shows, and what not, says its module."""
    with serving(Gcs(), threaded=True) as endpoint:
        yield servers.Server("gs://lake", {"bearer_token": TOKEN, "endpoint": endpoint})


@pytest.fixture(scope="session")
def s3proxy() -> Iterator[servers.Server]:
    with servers.s3proxy() as server:
        yield server


@pytest.fixture(scope="session")
def versitygw() -> Iterator[servers.Server]:
    with servers.versitygw() as server:
        yield server


@pytest.fixture(scope="session")
def azurite() -> Iterator[servers.Server]:
    with servers.azurite() as server:
        yield server


@pytest.fixture(params=["local", "doubting", "s3", "gcs", *FETCHED, *(["hdfs"] if on_hdfs.IS_WANTED else [])])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Mapping[str, str] | None]:
    """The URL of an empty store of each kind, and with which options it is opened."""
    folder = tmp_path.name + tmp_path.parent.name
    match request.param:
        case "local" | "doubting":
            return str(tmp_path / "lake"), None
        case "s3":
            return f"s3://lake/{folder}", {**KEYS, "endpoint": request.getfixturevalue("s3")}
        case "hdfs":
            on_hdfs.connected()
            return f"{ROOTS}/contract/{folder}", None
        case name:
            server: servers.Server = request.getfixturevalue(name)
            return server.url(folder), server.options


@pytest.fixture
def store(request: pytest.FixtureRequest, place: tuple[str, Mapping[str, str] | None]) -> Storage:
    """An empty store of each kind."""
    url, options = place
    store = open_storage(url, create=True, options=options)
    return Doubting(store) if request.node.callspec.params["place"] == "doubting" else store


def test_what_was_put_is_got(store: Storage) -> None:
    """An object comes back byte for byte, from any depth, and an empty one is not an absent one."""
    for path, data in [("a", b"x"), ("f/g/h.json", bytes(range(256))), ("f/empty", b""), ("f/big", b"z" * 6_000_000)]:
        assert store.get(path) is None
        assert store.put_if_absent(path, data) == Mine()
        assert store.get(path) == data


def test_only_the_first_put_if_absent_writes(store: Storage) -> None:
    """The second is told what is there and changes nothing, also over what `put` wrote."""
    assert store.put_if_absent("f/a", b"first") == Mine()
    assert store.put_if_absent("f/a", b"second") == Theirs(b"first")
    store.put("f/b", b"first")
    assert store.put_if_absent("f/b", b"second") == Theirs(b"first")
    assert (store.get("f/a"), store.get("f/b")) == (b"first", b"first")


def test_putting_the_same_object_again_finds_it(store: Storage) -> None:
    """A client that repeats a request meets its own object: equal bytes are ours, whoever wrote them."""
    assert store.put_if_absent("f/a", b"x") == Mine()
    assert store.put_if_absent("f/a", b"x") == Mine()
    store.put_once("f/a", b"x")
    with pytest.raises(CorruptTimelineError, match="f/a holds something else than its name says"):
        store.put_once("f/a", b"y")
    assert store.get("f/a") == b"x"


def test_a_deleted_name_is_free_again(store: Storage) -> None:
    """After a delete the object is absent and put_if_absent writes."""
    store.put("f/a", b"1")
    store.delete("f/a")
    assert (store.get("f/a"), store.exists("f/a"), store.list("f")) == (None, False, [])
    assert store.put_if_absent("f/a", b"2") == Mine()


def test_put_overwrites(store: Storage) -> None:
    """`put` replaces the whole object, longer or shorter."""
    for data in (b"long" * 100, b"short", b""):
        store.put("f/a", data)
        assert store.get("f/a") == data


def test_an_object_may_be_put_and_got_in_pieces(store: Storage) -> None:
    """It is the same whole, over what was there; one whose pieces end with an error is not there."""
    pieces = [bytes([n]) * 3_000_000 for n in range(3)]
    assert store.chunks("f/big") is None
    store.put("f/big", b"older")
    store.put_chunks("f/big", iter(pieces))
    assert store.get("f/big") == b"".join(pieces)
    got = [*(store.chunks("f/big") or ())]
    assert len(got) > 1
    assert b"".join(got) == b"".join(pieces)
    store.put_chunks("f/empty", [])
    assert [*(store.chunks("f/empty") or ())] == []
    assert store.get("f/empty") == b""

    def broken() -> Iterator[bytes]:
        yield pieces[0]
        raise UnavailableError("the other store failed")

    with pytest.raises(UnavailableError):
        store.put_chunks("f/none", broken())
    assert store.get("f/none") is None


def test_an_object_is_copied_in_pieces_while_it_is_read(store: Storage) -> None:
    """As an export does, from one store into another of its kind: neither waits for the other."""
    data = bytes(range(256)) * 100  # a server with one thread has said all of it before it is asked to take it
    store.put("f/from", data)
    pieces = store.chunks("f/from")
    assert pieces is not None
    store.put_chunks("f/to", pieces)
    assert store.get("f/to") == data


def buffers() -> Iterator[tuple[str, memoryview]]:
    """Yield memory as others lend it, by what is unusual about it: pyarrow's is of signed bytes."""
    yield "pyarrow's", memoryview(pa.py_buffer(b"abcdef"))
    sink = pa.BufferOutputStream()
    sink.write(b"abcdef")
    yield "pyarrow's stream", memoryview(sink.getvalue())
    yield "a part of pyarrow's", memoryview(pa.py_buffer(b"-abcdef-"))[1:-1]
    yield "of two dimensions", memoryview(b"abcdef").cast("B", (2, 3))
    yield "of numbers", memoryview(array("H", b"abcdef"))


@pytest.mark.parametrize(("what", "piece"), [*buffers()], ids=[what for what, _ in buffers()])
def test_a_piece_is_any_memory(store: Storage, what: str, piece: memoryview) -> None:
    store.put_chunks("f/a", iter([piece, memoryview(pa.py_buffer(b"")), piece]))
    assert store.get("f/a") == b"abcdef" * 2, what


def test_rows_are_appended_from_python_in_each_kind_of_store(store: Storage) -> None:
    lake = OpenLake(open_catalog(store), {})
    with lake.transaction() as tx:
        tx.create("t", pa.schema([("id", pa.int64())]))
        tx["t"].append({"id": [1, 2]})
    [table] = lake.catalog.timeline.head.tables.values()
    files = [found.path for found in store.walk(table.location) if found.path.endswith(".parquet")]
    data = store.get(files[0])
    assert data is not None
    assert pq.read_table(pa.BufferReader(data)).to_pylist() == [{"id": 1}, {"id": 2}]


def test_a_lake_is_exported_to_each_kind_of_store(store: Storage, tmp_path: Path) -> None:
    """A full export is a lake there, and a full export of that is the same one here again."""
    catalog = open_catalog(open_storage(str(tmp_path / "source"), create=True))
    tx = catalog.begin()
    stage_new(catalog, tx, "t", add("p"), data=b"x")
    catalog.commit(tx)

    def opened(url: str, create: bool) -> Storage:
        return store if url == store.url else open_storage(url, create=create)

    Exporter(catalog.lake, opened).run(Asked(to=store.url, mode="full"))
    there = open_catalog(store)
    Exporter(there.lake, opened).run(Asked(to=str(tmp_path / "back"), mode="full"))
    back = open_catalog(open_storage(str(tmp_path / "back")))
    assert files(back, "t") == files(there, "t") == {"p"}
    assert (tmp_path / "back" / back.database().tables[named("t")].location / "p").read_bytes() == b"x"


def test_an_export_goes_into_no_lake_and_no_table_and_nowhere_where_something_is(
    store: Storage, place: tuple[str, Mapping[str, str] | None], tmp_path: Path
) -> None:
    """Whose folder that is may delete it. This is looked at in the store, which may have several names."""
    catalog = open_catalog(open_storage(str(tmp_path / "source"), create=True))
    for path in ("a/lake/_lockstep/timeline/x", "a/table/_delta_log/x", "a/taken/x/y"):
        store.put(path, b"")

    def opened(url: str, create: bool) -> Storage:
        return open_storage(url, create=create, options=None if url.startswith("file:") else place[1])

    before = sorted(found.path for found in store.walk(""))
    for mode, to, refused in [
        ("partial", "a/lake/x", "is inside the lake .*/a/lake: a lake cannot be in another one"),
        ("full", "a/table/x/y", "is inside the Delta table .*/a/table: VACUUM of that"),
        ("full", "a/table", "is the folder of a Delta table"),
        ("full", "a/taken", "is not empty"),
        ("full", "a", "is not empty"),
        ("minimal", "a/lake/eod.json", "is inside the lake .*/a/lake, whose upkeep may delete it"),
        ("minimal", "a/table/x/eod.json", "is inside the Delta table .*/a/table, whose upkeep may delete it"),
    ]:
        with pytest.raises(InvalidError, match=refused):
            Exporter(catalog.lake, opened).run(Asked(to=f"{store.url}/{to}", mode=mode))  # type: ignore[arg-type]
    assert sorted(found.path for found in store.walk("")) == before
    for mode, to in [("partial", "a/free"), ("minimal", "a/taken/eod.json")]:
        assert Exporter(catalog.lake, opened).run(Asked(to=f"{store.url}/{to}", mode=mode)).is_done  # type: ignore[arg-type]


def test_list_gives_the_objects_directly_in_a_folder_sorted(store: Storage) -> None:
    """Names only, in order, without folders or what lies in them, or in folders whose names begin alike."""
    for path in ("f/b", "f/a", "f/c/deep", "f/ä", "f/Z", "fa", "f2/x", "top"):
        store.put(path, b"")
    assert store.list("f") == ["Z", "a", "b", "ä"]
    assert store.list("f/c") == ["deep"]
    assert store.list("") == ["fa", "top"]
    assert store.list("absent") == store.list("absent/deeper") == store.list("fa") == []


def test_walk_gives_all_objects_below_a_folder_with_their_sizes_and_times(store: Storage) -> None:
    for path in ("f/b", "f/c/deep", "f/c/d/deeper", "fa", "top"):
        store.put(path, b"four")
    found = {each.path: each for each in store.walk("f")}
    assert sorted(found) == ["f/b", "f/c/d/deeper", "f/c/deep"]
    assert {each.size for each in found.values()} == {4}
    assert all(each.modified_at.utcoffset() is not None for each in found.values())
    assert len([*store.walk("")]) == 5
    assert [*store.walk("absent")] == []
    store.delete_all(["f/b", "f/nothing", "f/c/deep"])
    assert [each.path for each in store.walk("f")] == ["f/c/d/deeper"]


def test_names_that_look_odd_are_names_like_others(store: Storage) -> None:
    """They are keys as they stand, for Spark writes them as they stand: nothing is encoded, decoded or folded."""
    names = [
        *"&=+#?'\"*~^`:;,@$!()[]{}<>|",
        "%20",
        "%2F",
        " ",
        "ä",
        "a\u0308",
        "日本",
        "😀",
        "...",
        ".x",
        "-",
        "A",
        "a",
    ]
    if isinstance(store, HadoopStorage):
        names.remove(":")
        with pytest.raises(InvalidError, match="has a colon, which no name in HDFS can have"):
            store.put("p=1/x:y.parquet", b"")
    paths = [f"p=1/x{name}y.parquet" for name in names]
    for path in paths:
        assert store.put_if_absent(path, path.encode()) == Mine()
    assert [store.get(path) for path in paths] == [path.encode() for path in paths]
    assert store.list("p=1") == sorted(path.removeprefix("p=1/") for path in paths)
    assert sorted(found.path for found in store.walk("p=1")) == sorted(paths)
    store.delete_all(paths)
    assert store.list("p=1") == []


@pytest.mark.parametrize("name", ["a\tb", "a\nb", "\x7f"])
def test_object_stores_take_no_control_characters(s3: str, name: str) -> None:
    store = open_storage("s3://lake/control", options={**KEYS, "endpoint": s3})
    for call in (lambda: store.put_if_absent(name, b""), lambda: store.get(name), lambda: store.list(name)):
        with pytest.raises(InvalidError, match="control character"):
            call()


def test_a_folder_of_more_than_a_thousand_objects_is_listed_whole(store: Storage) -> None:
    """Stores give a thousand names or five at a time; what comes after them is asked for too, and deleted too."""
    names = [f"{number:04}" for number in range(1005)]
    with ThreadPoolExecutor(8) as pool:
        [*pool.map(lambda name: store.put(f"f/{name}", b""), names)]
    assert store.list("f") == names
    assert store.list("f", after="0001") == names[2:]
    assert sorted(found.path for found in store.walk("f")) == [f"f/{name}" for name in names]
    store.delete_all([f"f/{name}" for name in names[:1002]])
    assert store.list("f") == names[1002:]
    store.delete_folder("f")
    assert store.list("f") == []


def test_list_after_a_name(store: Storage, request: pytest.FixtureRequest) -> None:
    """`after` is exclusive, need not exist, and leaves folders out as well."""
    # Of what keeps its objects as files none can have the name of a folder.
    has_files = any(name in request.node.name for name in ("s3proxy", "versitygw"))
    is_flat = isinstance(store, ObjectStorage) and not has_files
    for path in ("f/1", "f/2", "f/3", "f/2/deep" if is_flat else "f/4/d"):
        store.put(path, b"")
    assert store.list("f", after="1") == ["2", "3"]
    assert store.list("f", after="11") == ["2", "3"]
    assert store.list("f", after="") == ["1", "2", "3"]
    assert store.list("f", after="3") == store.list("absent", after="1") == []
    store.put("z", b"")
    store.put("y", b"")
    assert store.list("", after="y") == ["z"]


def test_exists_is_about_objects(store: Storage) -> None:
    """True for an object alone: not for a folder, nor below an object."""
    store.put("f/a", b"")
    assert store.exists("f/a")
    assert not any(store.exists(path) for path in ("f", "f/b", "f/a/b", "g/a"))
    assert store.get("f") is None
    assert store.get("f/a/b") is None


def test_deleting_what_is_not_there_is_fine(store: Storage) -> None:
    """`delete` and `delete_folder` are idempotent, and neither mistakes a folder for an object or back."""
    store.put("f/g/a", b"")
    store.delete("absent")
    store.delete("absent/a")
    store.delete("f/g")
    store.delete_folder("absent")
    store.delete_folder("f/g/a")
    assert store.list("f/g") == ["a"]


def test_delete_empty_folder_takes_no_object(store: Storage) -> None:
    """Neither one inside, nor an empty one in the folder's place; a folder that is not there is fine."""
    store.put("f/g/a", b"")
    store.put("e", b"")
    for path in ("absent", "f", "f/g", "f/g/a", "e"):
        store.delete_empty_folder(path)
    assert [store.exists(path) for path in ("f/g/a", "e")] == [True, True]


@pytest.mark.skipif(not servers.ARE_WANTED, reason="Azurite is fetched by make test-stores")
def test_what_hadoop_puts_for_a_folder_goes_when_nothing_is_in_it(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """In Azure's store, where Hadoop leaves an empty blob for each folder, and says in its metadata what it is."""
    server: servers.Server = request.getfixturevalue("azurite")
    url = server.url(tmp_path.name)
    store = open_storage(url, options=server.options)
    settings: Any = {**server.options, "account_name": servers.ACCOUNT}
    blobs = obstore.store.AzureStore("lake", prefix=tmp_path.name, config=settings, client_options={"allow_http": True})
    for folder in ("t", "t/day=1"):
        obstore.put(blobs, folder, b"", attributes={"hdi_isfolder": "true"}, use_multipart=False)
    store.put("t/day=1/a", b"rows")
    store.delete_empty_folder("t/day=1")
    assert [found.path for found in store.walk("t")] == ["t/day=1", "t/day=1/a"]
    store.delete("t/day=1/a")
    store.delete_empty_folder("t/day=1")
    assert list(store.walk("t")) == []
    assert store.exists("t")
    store.delete_empty_folder("t")
    assert not store.exists("t")


def test_delete_folder_takes_everything_under_it_and_no_more(store: Storage) -> None:
    """Objects at every depth go; a folder whose name begins alike stays."""
    kept = ["f", "f2/a", "g/b"]
    for path in ["d/a", "d/e/f/g", *kept, "d2/x", "d.x"]:
        store.put(path, b"")
    store.delete_folder("d")
    store.delete_folder("d")
    assert store.list("d") == store.list("d/e/f") == []
    assert all(store.exists(path) for path in [*kept, "d2/x", "d.x"])


@pytest.mark.parametrize("path", ["", "/a", "../a", "a/../../b", "a//b", "a/", ".", "./a", "a/.", "a\0b"])
def test_paths_outside_the_root_are_refused(store: Storage, path: str) -> None:
    """Absolute paths, '.', '..' and empty parts are InvalidError in every method."""
    calls: list[Callable[[], object]] = [
        lambda: store.get(path),
        lambda: store.put_if_absent(path, b""),
        lambda: store.put(path, b""),
        lambda: store.exists(path),
        lambda: store.delete(path),
        lambda: store.delete_folder(path),
        lambda: store.list(path or ".."),
    ]
    for call in calls:
        with pytest.raises(InvalidError, match="is not a path in this store"):
            call()


@given(st.lists(st.sampled_from(["a", "..", ".", "", "b.json", "_x"]), min_size=1, max_size=5))
def test_a_checked_path_stays_under_any_root(parts: list[str]) -> None:
    """Whatever `checked` lets through stays below the root when it is normalised, unchanged."""
    path = "/".join(parts)
    try:
        checked(path)
    except InvalidError:
        assert {"..", ".", ""} & set(parts)
    else:
        assert os.path.normpath(f"/root/{path}") == f"/root/{path}"


def test_of_eight_racing_threads_one_writes(store: Storage) -> None:
    """For each key exactly one thread is told that it wrote; the object is its, and all others are told that."""
    barrier = threading.Barrier(8)

    def race(me: int) -> list[Mine | Theirs]:
        told = []
        for key in range(10):
            barrier.wait()
            told.append(store.put_if_absent(f"race/{key}", b"%d" % me * 1000))
        return told

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(race, range(8)))
    for key in range(10):
        [winner] = [me for me in range(8) if answers[me][key] == Mine()]
        assert store.get(f"race/{key}") == (data := b"%d" % winner * 1000)
        assert {answers[me][key] for me in range(8) if me != winner} == {Theirs(data)}


@pytest.mark.parametrize(
    ("url", "error", "message"),
    [
        ("", InvalidError, "names no folder"),
        ("a\0b", InvalidError, "names no folder"),
        ("file:", InvalidError, "names no folder"),
        ("file:relative", InvalidError, "names no folder"),
        ("file://host/lake", InvalidError, "names the host 'host'"),
        ("s3:/bucket/lake", InvalidError, "begins with 's3:', as a URL does"),
        ("FILE:/data/lake", InvalidError, "write file:///"),
        ("s3://", InvalidError, "names no bucket"),
        ("s3:///prefix", InvalidError, "names no bucket"),
        ("s3://bucket/../x", InvalidError, "is not a path"),
        ("ftp://host/lake", UnsupportedError, "no store for 'ftp://host/lake': use a local path"),
    ],
)
def test_urls_that_name_no_store_are_refused(url: str, error: type[Exception], message: str) -> None:
    """A malformed URL is InvalidError and an unknown scheme UnsupportedError, each saying what to write."""
    with pytest.raises(error, match=message):
        open_storage(url, create=True)


@pytest.mark.parametrize(
    "url", ["", "a\0b", "file:relative", "file://host/lake", "s3://", "s3:///prefix", "ftp://host/lake"]
)
def test_where_no_store_can_be_has_no_url(url: str) -> None:
    with pytest.raises((InvalidError, UnsupportedError)):
        url_of(url)


def test_a_conflict_of_s3_is_no_object(s3: str, server: Contended) -> None:
    """409 means that nothing was written: it is tried again, and where that does not help, nobody is told that it is.

    The first assertion is why: object_store takes 409 for "already exists" (apache/arrow-rs-object-store#852).
    """
    store = open_storage("s3://lake/conflicts", options={**KEYS, "endpoint": s3})
    store.claim = replace(store.claim, sleep=lambda seconds: None)
    server.left = 1
    assert store.try_put("f/a", b"x") is False
    assert not store.exists("f/a")
    server.left = 2
    assert store.put_if_absent("f/a", b"x") == Mine()
    assert store.get("f/a") == b"x"
    server.left = 1
    assert store.put_if_absent("f/a", b"y") == Theirs(b"x")
    server.left = 1000
    with pytest.raises(UnavailableError, match=r"cannot write f/b in .*: the store says it is there, and it is not"):
        store.put_if_absent("f/b", b"x")
    assert 1000 - server.left == store.claim.attempts
    server.left = 0


def test_s3_and_s3a_are_one_store(s3: str) -> None:
    """Both schemes read the same objects; each keeps its own URL, without a slash at the end."""
    one = open_storage("s3://lake/both/", options={**KEYS, "endpoint": s3})
    other = open_storage("s3a://lake/both", options={**KEYS, "aws_endpoint": s3})
    assert (one.url, other.url) == ("s3://lake/both", "s3a://lake/both")
    assert (url_of("s3://lake/both/"), url_of("s3a://lake/both")) == (one.url, other.url)
    assert one.put_if_absent("a", b"x") == Mine()
    assert other.put_if_absent("a", b"y") == Theirs(b"x")


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_s3_takes_its_settings_from_the_environment(s3: str, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    """The standard AWS_* variables give endpoint, region and credentials, with no option at all."""
    monkeypatch.setenv(variable, s3)
    for key, value in KEYS.items():
        monkeypatch.setenv(f"AWS_{key.upper()}", value)
    store = open_storage("s3://lake/env")
    store.put("a", variable.encode())
    assert store.get("a") == variable.encode()


def test_an_unknown_s3_option_is_refused() -> None:
    """A mistyped option is InvalidError that names it, not something to ignore."""
    with pytest.raises(InvalidError, match=r"cannot open s3://lake: Configuration key: 'endpont' is not valid"):
        open_storage("s3://lake", options={"endpont": "x"})


def test_a_missing_bucket_is_not_an_empty_lake(s3: str) -> None:
    """Reading, listing and writing in a bucket that does not exist is UnavailableError."""
    store = open_storage("s3://mistyped/lake", options={**KEYS, "endpoint": s3})
    for call in (
        lambda: store.get("a"),
        lambda: store.list("a"),
        lambda: store.put_if_absent("a", b""),
        lambda: store.delete_folder("a"),
    ):
        with pytest.raises(UnavailableError, match="NoSuchBucket"):
            call()


def test_an_unreachable_object_store_names_path_and_cause() -> None:
    """Every operation reports a dead endpoint as UnavailableError, without obstore's dump of Rust values."""
    dead: Any = {**KEYS, "endpoint": "http://127.0.0.1:1"}
    inner = obstore.store.S3Store(
        "lake", config=dead, client_options={"allow_http": True}, retry_config={"max_retries": 0}
    )
    store = ObjectStorage(inner, "s3://lake")
    for call in (
        lambda: store.get("f/a"),
        lambda: store.put_if_absent("f/a", b""),
        lambda: store.put("f/a", b""),
        lambda: store.exists("f/a"),
        lambda: store.list("f/a"),
        lambda: store.list("f/a", "x"),
        lambda: [*store.walk("f/a")],
        lambda: store.delete_all(["f/a"]),
        lambda: store.delete("f/a"),
        lambda: store.delete_folder("f/a"),
    ):
        with pytest.raises(UnavailableError, match=r"cannot [a-z ]+ f/a in s3://lake: Generic S3 error") as caught:
            call()
        assert "Debug source" not in caught.value.message
        assert caught.value.__cause__ is not None


def test_the_faulty_store_fails_as_told(tmp_path: Path) -> None:
    """Before: nothing happened; after: it happened and the caller is told otherwise; then all is well again."""
    store = FaultyStorage(open_storage(str(tmp_path)))
    store.fail("put_if_absent", path="a", times=2)
    for _ in range(2):
        with pytest.raises(UnavailableError, match="before"):
            store.put_if_absent("f/a", b"1")
    assert store.get("f/a") is None
    store.fail("put_if_absent", when="after")
    with pytest.raises(UnavailableError, match="after"):
        store.put_if_absent("f/a", b"1")
    assert store.put_if_absent("f/a", b"2") == Theirs(b"1")
    assert store.get("f/a") == b"1"
    assert store.count("put_if_absent", "f/a") == 4
