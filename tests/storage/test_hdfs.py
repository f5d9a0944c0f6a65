"""HDFS beyond the contract of every store: what its renames, its hidden files and its failures mean.

`make test-hdfs` runs these, and the contract, beside a name node and a data node. What needs neither is in
`test_hadoop.py`.
"""

from __future__ import annotations

import contextlib
import json
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.errors import InvalidError, StoreRefusedError, UnavailableError, UnsupportedError
from lockstep.exports.export import Asked, Exporter
from lockstep.spark.files import OverPy4J
from lockstep.storage import Mine, Theirs, open_storage
from lockstep.storage.hadoop import PIECE_BYTES, HadoopStorage, Transport, connect
from lockstep.storage.proof import prove, race
from tests.support import on_hdfs
from tests.support.rpc_line import FAULTS, Fault, RpcLine
from tests.support.sessions import ROOTS

pytestmark = pytest.mark.skipif(not on_hdfs.IS_WANTED, reason="needs HDFS: make test-hdfs")

DAY_MILLIS = 24 * 3600 * 1000


@pytest.fixture
def transport() -> Iterator[Transport]:
    found = on_hdfs.transport()
    connect(found)
    yield found
    connect(found)


@pytest.fixture
def store(transport: Transport, tmp_path: Path) -> HadoopStorage:
    opened = open_storage(f"{ROOTS}/hdfs/{tmp_path.parent.name}/{tmp_path.name}")
    assert isinstance(opened, HadoopStorage)
    return opened


@pytest.fixture
def hadoop(store: HadoopStorage) -> Any:
    """Hadoop's own file system, as another program has it."""
    jvm = on_hdfs.gateway().jvm
    return jvm.org.apache.hadoop.fs.Path(store.url).getFileSystem(jvm.org.apache.hadoop.conf.Configuration())


def path_of(store: HadoopStorage, path: str) -> Any:
    return on_hdfs.gateway().jvm.org.apache.hadoop.fs.Path(f"{store.url}/{path}")


def names(store: HadoopStorage, hadoop: Any, folder: str) -> list[str]:
    """Return all that lies in a folder, hidden files too."""
    return sorted(each.getPath().getName() for each in hadoop.listStatus(path_of(store, folder)))


def asked(request: bytes) -> str:
    return str(json.loads(request.partition(b"\n")[0])["op"])


def losing(transport: Transport, op: str, *, before: bool = False) -> Transport:
    """Return the same way to HDFS, which loses the next answer, or request, of a kind."""
    left = [op]

    def call(request: bytes) -> bytes:
        if asked(request) not in left:
            return transport(request)
        left.clear()
        if not before:
            transport(request)
        raise UnavailableError("lost", definite=before)

    return call


def test_a_store_in_hdfs_passes_the_race(store: HadoopStorage) -> None:
    assert race(store) == ""
    prove(store)
    assert len(store.list("_lockstep/store")) == 1, "what came of it is remembered, as of any store that is asked"


def test_nothing_hidden_stays_of_writes_that_won_or_lost(store: HadoopStorage, hadoop: Any) -> None:
    with ThreadPoolExecutor(8) as pool:
        told = [*pool.map(lambda n: store.put_if_absent("f/a", b"%d" % n * 1000), range(16))]
    assert told.count(Mine()) == 1
    store.put("f/a", b"over")
    store.put_chunks("f/b", [b"x" * (PIECE_BYTES + 1)])
    assert names(store, hadoop, "f") == ["a", "b"]


def test_a_file_is_never_seen_before_it_is_whole(store: HadoopStorage, hadoop: Any) -> None:
    """While it comes in pieces it has another name; a writer that gives up leaves nothing."""

    def pieces() -> Iterator[bytes]:
        yield b"x" * 1000
        assert store.get("f/a") is None
        assert store.list("f") == []
        assert [*store.walk("f")] == []
        assert len(names(store, hadoop, "f")) == 1
        raise UnavailableError("the other store failed")

    with pytest.raises(UnavailableError, match="the other store failed"):
        store.put_chunks("f/a", pieces())
    assert names(store, hadoop, "f") == []


def synced(hadoop: Any) -> tuple[int, int]:
    """Return how often blocks were synced so far, and how many files and directories of the data node were."""
    time.sleep(on_hdfs.COUNTED_SECONDS + 0.2)
    [node] = hadoop.getDataNodeStats()
    with urlopen(f"http://127.0.0.1:{node.getInfoPort()}/jmx") as answer:
        beans = json.load(answer)["beans"]
    return (
        sum(bean.get("FsyncCount", 0) for bean in beans),
        sum(bean.get("SyncIoRateNumOps", 0) for bean in beans),
    )


def test_each_block_is_on_disk_before_the_rename(store: HadoopStorage, hadoop: Any) -> None:
    """With the directory that the data node moves it to; but for advice, unless it is written over what is read."""
    configuration = on_hdfs.gateway().jvm.org.apache.hadoop.conf.Configuration()
    configuration.set("dfs.blocksize", "1048576")
    connect(OverPy4J(on_hdfs.gateway(), lambda: configuration))
    calls: list[tuple[int, Callable[[], object]]] = [
        (1, lambda: store.put_if_absent("f/a", b"x")),
        (3, lambda: store.put("f/a", bytes(3 * 1048576))),
        (5, lambda: store.put_chunks("f/a", [bytes(5 * 1048576 - 1)])),
        (0, lambda: store.put_advice("f/b", b"x")),
        (1, lambda: store.put_advice("f/b", b"y", over=True)),
    ]
    before = synced(hadoop)
    for blocks, call in calls:
        call()
        after = synced(hadoop)
        assert after[0] - before[0] == blocks
        # Its data, its checksums and the directory it is written in are three; the rest is where it is moved to.
        assert after[1] - before[1] >= 4 * blocks
        assert blocks or after == before
        before = after


def test_a_lost_answer_is_settled_by_trying_again(store: HadoopStorage, transport: Transport) -> None:
    """The error says that it may have been written, and whoever writes the same again finds its own."""
    connect(losing(transport, "put"))
    with pytest.raises(UnavailableError, match=r"cannot write f/a in hdfs://.*: lost") as caught:
        store.put_if_absent("f/a", b"x")
    assert not caught.value.definite
    assert store.put_if_absent("f/a", b"x") == Mine()
    assert store.put_if_absent("f/a", b"y") == Theirs(b"x")
    connect(losing(transport, "put", before=True))
    with pytest.raises(UnavailableError) as caught:
        store.put_if_absent("f/b", b"x")
    assert caught.value.definite


@pytest.fixture
def line(transport: Transport) -> Iterator[RpcLine]:
    """The way to the name node, on which renames get lost, and whoever loses one does not try for long."""
    configuration = on_hdfs.gateway().jvm.org.apache.hadoop.conf.Configuration()
    configuration.set("ipc.client.connect.max.retries", "0")
    connect(OverPy4J(on_hdfs.gateway(), lambda: configuration))
    parts = urlsplit(ROOTS)
    with RpcLine(parts.hostname or "", parts.port or 0) as line:
        yield line


@pytest.mark.parametrize("fault", FAULTS)
def test_a_write_whose_rename_is_lost_on_the_way_says_what_is_known(
    line: RpcLine, store: HadoopStorage, hadoop: Any, fault: Fault
) -> None:
    """Who deletes the hidden file knows that it was not renamed, nor will be; where it is gone, a look tells."""
    through = open_storage(store.url.replace(urlsplit(ROOTS).netloc, line.address))
    assert through.put_if_absent("f/before", b"x") == Mine()
    line.next = fault
    if fault == "lost answer":
        assert through.put_if_absent("f/a", b"x") == Mine()
    else:
        with pytest.raises(UnavailableError, match=r"cannot write f/a in hdfs://") as caught:
            through.put_if_absent("f/a", b"x")
        assert caught.value.definite == (fault != "lost answer, and dead")
        line.revive()
        answer = line.deliver()
        assert (b"FileNotFoundException" in answer) == (fault == "late"), "it did reach the name node"
        is_there = fault == "lost answer, and dead"
        assert store.get("f/a") == (b"x" if is_there else None), "what was definite stays so"
    assert through.put_if_absent("f/a", b"x") == Mine()
    assert through.put_if_absent("f/a", b"y") == Theirs(b"x")
    assert names(store, hadoop, "f") == ["a", "before"]


def test_an_interrupt_leaves_no_answer_to_the_next_request(line: RpcLine, store: HadoopStorage) -> None:
    """Ctrl-C is raised in the main thread; Py4J would take an answer that is late for that to the next call."""
    store.put("f/a", b"a")
    store.put("f/b", b"b")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupted)
    try:
        for delay in (0.0005, 0.001, 0.002, 0.004, 0.008) * 4:
            with contextlib.suppress(KeyboardInterrupt):
                signal.setitimer(signal.ITIMER_REAL, delay)
                while True:
                    assert store.get("f/a") == b"a"
            assert store.get("f/b") == b"b"
            assert store.get("f/a") == b"a"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_no_lake_is_made_inside_another_lake_or_a_table(store: HadoopStorage) -> None:
    """As on a local disk: VACUUM of the table would delete the lake."""
    TransactionalCatalog.open(f"{store.url}/lake", create=True)
    store.put("table/_delta_log/00000000000000000000.json", b"")
    for root in (f"{store.url}/lake/sales/other", f"{store.url}/table/other"):
        with pytest.raises(InvalidError, match="is inside the"):
            TransactionalCatalog.open(root, create=True)
    assert not store.list("table/other/_lockstep/timeline")
    assert TransactionalCatalog.open(f"{store.url}/lake", create=True).database().version == 0


def test_what_hdfs_refuses_was_not_written(store: HadoopStorage, hadoop: Any) -> None:
    """Safe mode, a quota: the error has the name node's words in one line, and is definite."""
    jvm = on_hdfs.gateway().jvm
    hadoop.mkdirs(path_of(store, "f"))
    hadoop.setQuota(path_of(store, "f"), 1, jvm.java.lang.Long.MAX_VALUE)
    with pytest.raises(UnavailableError, match=r"cannot write f/a in hdfs://.*NSQuotaExceededException") as caught:
        store.put_if_absent("f/a", b"x")
    assert caught.value.definite
    assert "\n" not in caught.value.message
    assert store.get("f/a") is None


def test_a_rename_that_is_refused_was_not_done_and_leaves_nothing(store: HadoopStorage, hadoop: Any) -> None:
    """A folder is not replaced by a file."""
    store.put("f/d/a", b"x")
    for write in (lambda: store.put("f/d", b"y"), lambda: store.put_chunks("f/d", [b"y"])):
        with pytest.raises(UnavailableError, match=r"cannot write f/d in hdfs://") as caught:
            write()
        assert caught.value.definite
    assert names(store, hadoop, "f") == ["d"]
    assert store.get("f/d/a") == b"x"


def test_hidden_files_of_the_dead_go_when_their_folder_is_listed_a_day_later(store: HadoopStorage, hadoop: Any) -> None:
    """Only those that Lockstep names so, and none that somebody may still be writing."""
    jvm = on_hdfs.gateway().jvm
    now = jvm.java.lang.System.currentTimeMillis()
    dead, young, delta = f".{'a' * 32}.tmp", f".{'b' * 32}.tmp", ".00000000000000000001.json.tmp"
    for name, age in ((dead, DAY_MILLIS + 60_000), (young, DAY_MILLIS - 600_000), (delta, 10 * DAY_MILLIS)):
        hadoop.create(path_of(store, f"f/{name}")).close()
        hadoop.setTimes(path_of(store, f"f/{name}"), now - age, -1)
    written = f".{'c' * 32}.tmp"
    with contextlib.closing(hadoop.create(path_of(store, f"f/{written}"))):
        hadoop.setTimes(path_of(store, f"f/{written}"), now - 10 * DAY_MILLIS, -1)
        assert store.list("f") == [delta]
        assert names(store, hadoop, "f") == sorted([delta, young, written])


def test_files_have_the_permissions_that_hadoop_is_set_to(store: HadoopStorage, hadoop: Any) -> None:
    jvm = on_hdfs.gateway().jvm
    configuration = jvm.org.apache.hadoop.conf.Configuration()
    configuration.set("fs.permissions.umask-mode", "007")
    connect(OverPy4J(on_hdfs.gateway(), lambda: configuration))
    hadoop.mkdirs(path_of(store, "f"))
    hadoop.setPermission(path_of(store, "f"), jvm.org.apache.hadoop.fs.permission.FsPermission("770"))
    store.put("f/g/a", b"x")
    assert hadoop.getFileStatus(path_of(store, "f/g/a")).getPermission().toString() == "rw-rw----"
    assert hadoop.getFileStatus(path_of(store, "f/g")).getPermission().toString() == "rwxrwx---", "as the one above"


def test_who_may_only_read_is_known_before_a_write_and_refused_by_one(store: HadoopStorage) -> None:
    """HDFS asks who it is: here, another user than the one who started it, who may do anything."""
    jvm = on_hdfs.gateway().jvm
    users = jvm.org.apache.hadoop.security.UserGroupInformation
    store.put("f/a", b"x")
    assert store.is_writable("f")
    assert store.is_writable("f/absent/deeper")
    assert not store.is_writable("f/a/below")
    owner = users.getLoginUser()
    users.setLoginUser(users.createRemoteUser("reader"))
    configuration = jvm.org.apache.hadoop.conf.Configuration()
    connect(OverPy4J(on_hdfs.gateway(), lambda: configuration))
    try:
        assert not store.is_writable("f")
        assert not store.is_writable("f/absent/deeper")
        assert not store.is_writable("f/a/below")
        assert (store.get("f/a"), store.list("f")) == (b"x", ["a"])
        with pytest.raises(StoreRefusedError, match=r"cannot write f/b in .*: AccessControlException") as caught:
            store.put_if_absent("f/b", b"x")
        assert (caught.value.definite, caught.value.sqlstate) == (True, "42501")
    finally:
        users.setLoginUser(owner)


def test_a_file_that_takes_the_place_of_one_that_is_read_is_read_whole(
    store: HadoopStorage, transport: Transport
) -> None:
    """One answer holds a part; of two files no mixture comes back, and nobody who reads in pieces goes on."""
    old, new = b"o" * (2 * PIECE_BYTES), b"n" * (2 * PIECE_BYTES)
    store.put("f/a", old)
    replacing = [True]

    def call(request: bytes) -> bytes:
        if asked(request) == "read" and b'"offset":0' not in request and replacing:
            replacing.clear()
            connect(transport)
            store.put("f/a", new)
        return transport(request)

    connect(call)
    assert store.get("f/a") == new
    pieces = store.chunks("f/a")
    assert pieces is not None
    next(pieces)
    store.put("f/a", old)
    with pytest.raises(UnavailableError, match="was replaced or deleted"):
        next(pieces)


def test_another_client_in_place_of_hadoops_own_is_refused(store: HadoopStorage) -> None:
    """Whether its rename is atomic nobody has said."""
    jvm = on_hdfs.gateway().jvm
    configuration = jvm.org.apache.hadoop.conf.Configuration()
    configuration.set("fs.hdfs.impl", "org.apache.hadoop.hdfs.ViewDistributedFileSystem")
    connect(OverPy4J(on_hdfs.gateway(), lambda: configuration))
    with pytest.raises(UnsupportedError, match=r"ViewDistributedFileSystem is set for hdfs://.* \(fs.hdfs.impl\)"):
        store.put_if_absent("a", b"x")


@pytest.mark.parametrize(
    ("key", "value", "of"),
    [
        ("failover.proxy.provider.", "ObserverReadProxyProvider", "ha."),
        ("failover.proxy.provider.", "ObserverReadProxyProviderWithIPFailover", "ha."),
        ("failover.proxy.provider.", "RouterObserverReadConfiguredFailoverProxyProvider", "ha."),
        ("rbf.observer.read.enable", "true", ""),
    ],
)
def test_name_nodes_that_only_observe_are_refused(store: HadoopStorage, key: str, value: str, of: str) -> None:
    """What one client wrote, another would not find yet."""
    configuration = on_hdfs.gateway().jvm.org.apache.hadoop.conf.Configuration()
    host = urlsplit(ROOTS).hostname if of else ""
    configuration.set(f"dfs.client.{key}{host}", f"org.apache.hadoop.hdfs.server.namenode.{of}{value}" if of else value)
    connect(OverPy4J(on_hdfs.gateway(), lambda: configuration))
    with pytest.raises(UnsupportedError, match=f"{value}, and what observers answer may be old"):
        store.get("a")


def test_a_client_that_somebody_closes_is_replaced(store: HadoopStorage) -> None:
    """Programs close all of Hadoop's file systems at times."""
    store.put("a", b"x")
    on_hdfs.gateway().jvm.org.apache.hadoop.fs.FileSystem.closeAll()
    assert store.get("a") == b"x"


def test_a_name_node_that_is_not_there_is_an_error_that_says_so(transport: Transport) -> None:
    jvm = on_hdfs.gateway().jvm
    configuration = jvm.org.apache.hadoop.conf.Configuration()
    configuration.set("ipc.client.connect.max.retries", "0")
    connect(OverPy4J(on_hdfs.gateway(), lambda: configuration))
    store = open_storage("hdfs://127.0.0.1:1/lake")
    calls: list[Callable[[], object]] = [
        lambda: store.get("f/a"),
        lambda: store.exists("f/a"),
        lambda: store.list("f/a"),
        lambda: [*store.walk("f/a")],
        lambda: store.put("f/a", b""),
        lambda: store.put_if_absent("f/a", b""),
        lambda: store.put_chunks("f/a", []),
        lambda: store.delete("f/a"),
        lambda: store.delete_folder("f/a"),
    ]
    for call in calls:
        with pytest.raises(UnavailableError, match=r"cannot [a-z ]+ f/a in hdfs://127.0.0.1:1/lake: ConnectException"):
            call()


def test_an_export_is_refused_in_its_own_lake_by_another_name_of_the_name_node(store: HadoopStorage) -> None:
    """That the two names are of one nobody can tell from them; so it is looked what lies there."""
    catalog = TransactionalCatalog.open(store.url, create=True)
    assert "//127.0.0.1:" in store.url
    there = store.url.replace("//127.0.0.1:", "//localhost:")
    above, _, name = there.rpartition("/")
    for mode, to, refused in [
        ("full", there, "there is a lake"),
        ("full", f"{there}/export", "is inside the lake"),
        ("full", above, "is not empty"),
        ("minimal", f"{above}/{name}/eod.json", "is inside the lake"),
    ]:
        with pytest.raises(InvalidError, match=refused):
            Exporter(catalog.lake).run(Asked(to=to, mode=mode))  # type: ignore[arg-type]  # a mode
