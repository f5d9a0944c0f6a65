"""A commit to an object store over a wire that loses, cuts, delays and resets: before or after, never between.

What the client was told must be true: "committed" is there for everybody, an error that says that nothing was changed
left nothing, and only "unknown" (40003) may be either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.errors import CommitUnknownError, LockstepError, UnavailableError
from lockstep.lake.verify import verify
from lockstep.storage import Mine, Theirs, open_storage
from lockstep.storage.object import ObjectStorage
from tests.support import servers
from tests.support.gcs import TOKEN, Gcs
from tests.support.lakes import add, create, files, named, open_catalog, stage
from tests.support.s3 import KEYS, moto, serving
from tests.support.wire import DONE, FAULTS, Fault, Wire

pytestmark = pytest.mark.long

NUMBERS = count()


AZURE = pytest.param("azure", marks=pytest.mark.skipif(not servers.ARE_WANTED, reason="make test-stores"))
EACH = pytest.mark.parametrize("kind", ["s3", "gs", AZURE], indirect=True)
"""Of a test that is run on Google's protocol (`tests.support.gcs`) and Azure's, which have other requests and answers.

Azure's server is Azurite, where that is fetched.
"""


@pytest.fixture(scope="module")
def endpoints() -> Iterator[dict[str, str]]:
    with serving(moto()) as s3, serving(Gcs(), threaded=True) as gs, ExitStack() as stack:
        found = {"s3": s3, "gs": gs}
        if servers.ARE_WANTED:
            found["azure"] = stack.enter_context(servers.azurite()).options["endpoint"]
        yield found


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> str:
    """Which protocol is spoken: S3's, unless a test says otherwise."""
    return str(getattr(request, "param", "s3"))


@pytest.fixture
def endpoint(endpoints: dict[str, str], kind: str) -> str:
    return endpoints[kind]


@pytest.fixture
def wire(endpoint: str) -> Iterator[Wire]:
    with Wire(endpoint) as wire:
        yield wire


@pytest.fixture
def root(kind: str, tmp_path: Path) -> str:
    if kind == "azure":
        return f"abfss://lake@{servers.ACCOUNT}.dfs.core.windows.net/{tmp_path.name}"
    return f"{kind}://lake/{tmp_path.name}"


def opened(root: str, endpoint: str) -> ObjectStorage:
    """Open a store that waits for nothing."""
    match root.partition(":")[0]:
        case "gs":
            keys = {"bearer_token": TOKEN}
        case "abfss":
            keys = {"account_key": servers.ACCOUNT_KEY}
            endpoint = endpoint.removesuffix(f"/{servers.ACCOUNT}") + f"/{servers.ACCOUNT}"  # a wire has no path
        case _:
            keys = KEYS
    store = open_storage(root, options={**keys, "endpoint": endpoint})
    assert isinstance(store, ObjectStorage)
    store.repeat = replace(store.repeat, sleep=lambda seconds: None)
    store.claim = replace(store.claim, sleep=lambda seconds: None)
    return store


@EACH
@pytest.mark.parametrize("fault", FAULTS)
def test_a_write_is_settled_through_each_fault(wire: Wire, endpoint: str, root: str, fault: Fault) -> None:
    """One fault: the write is sent again, and what it says is what is there; only a 403 is final."""
    store, plain = opened(root, wire.endpoint), opened(root, endpoint)
    wire.next("PUT", "f/a", fault)
    if fault == "403":
        with pytest.raises(UnavailableError, match="AccessDenied") as caught:
            store.put_if_absent("f/a", b"x" * 1000)
        assert caught.value.definite
        assert plain.get("f/a") is None
    else:
        assert store.put_if_absent("f/a", b"x" * 1000) == Mine()
        assert plain.get("f/a") == b"x" * 1000
    wire.deliver()  # of the late one, which comes second
    wire.next("PUT", "f/b", fault)
    plain.put("f/b", b"another's")
    if fault != "403":
        assert store.put_if_absent("f/b", b"y") == Theirs(b"another's")
    wire.deliver()
    assert plain.get("f/b") == b"another's"


@EACH
@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault != "slow"])
def test_a_write_that_fails_every_time_says_whether_it_can_be_there(
    wire: Wire, endpoint: str, root: str, fault: Fault
) -> None:
    """`definite` is said only where no request can have been carried out, nor can be later."""
    store, plain = opened(root, wire.endpoint), opened(root, endpoint)
    wire.next("PUT", "f/a", fault, times=100)
    with pytest.raises(UnavailableError, match="cannot write f/a") as caught:
        store.put_if_absent("f/a", b"x")
    assert caught.value.definite == (fault in {"403", "429"})
    wire.number({})
    wire.deliver()
    assert plain.exists("f/a") == (fault in DONE or fault == "late")


@EACH
@pytest.mark.parametrize("first", ["lost answer", "503 after", "late"])
def test_a_refusal_after_a_write_without_an_answer_is_not_final(
    wire: Wire, endpoint: str, root: str, first: Fault
) -> None:
    """What the last request was told says nothing of the first one, which is there, or will be."""
    store, plain = opened(root, wire.endpoint), opened(root, endpoint)
    wire.next("PUT", "f/a", first)
    wire.next("PUT", "f/a", "403")
    with pytest.raises(UnavailableError, match="AccessDenied") as caught:
        store.put_if_absent("f/a", b"x")
    assert not caught.value.definite
    wire.deliver()
    assert plain.get("f/a") == b"x"


REPEATED: dict[str, tuple[str, Callable[[ObjectStorage], object], object]] = {
    "get": ("GET", lambda store: store.get("f/a"), b"x" * 1000),
    "list": ("GET", lambda store: store.list("f"), ["a", "b"]),
    "list after": ("GET", lambda store: store.list("f", after="a"), ["b"]),
    "walk": ("GET", lambda store: sorted(each.path for each in store.walk("f")), ["f/a", "f/b"]),
    "exists": ("HEAD", lambda store: store.exists("f/a"), True),
    "put": ("PUT", lambda store: store.put("f/b", b"y"), None),
    "delete": ("POST", lambda store: store.delete("f/a"), None),
    "delete_all": ("POST", lambda store: store.delete_all(["f/a", "f/b"]), None),
    "delete_folder": ("POST", lambda store: store.delete_folder("f"), None),
}
"""What may be repeated without harm: its requests' method, how it is asked, and what it answers."""


@EACH
@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault not in {"403", "late"}])
@pytest.mark.parametrize("name", REPEATED)
def test_what_may_be_repeated_is_answered_through_each_fault(
    wire: Wire, endpoint: str, root: str, name: str, fault: Fault
) -> None:
    """By obstore, if there was no answer; by us, if the answer ends early, and of a POST, which obstore repeats not."""
    store, plain = opened(root, wire.endpoint), opened(root, endpoint)
    for path in ("f/a", "f/b"):
        plain.put(path, b"x" * 1000)
    method, ask, answer = REPEATED[name]
    if root.startswith("gs:") and method == "POST":  # by which S3 and Azure delete
        method = "DELETE"
    wire.next(method, "", fault, times=2)
    assert ask(store) == answer
    assert plain.exists("f/a") == (not name.startswith("delete"))
    assert method in {asked for asked, _ in wire.requests}, "it met the fault"


@pytest.mark.parametrize("kind", ["s3", pytest.param("gs", marks=pytest.mark.deep), AZURE], indirect=True)
def test_a_walk_that_breaks_off_tells_of_each_object_once(wire: Wire, endpoint: str, root: str) -> None:
    """It has told of the first thousand when its second page breaks off."""
    store, plain = opened(root, wire.endpoint), opened(root, endpoint)
    names = [f"f/{number:04}" for number in range(1_010)]
    for name in names:
        plain.put(name, b"")
    found = store.walk("f")
    first = next(found).path
    wire.next("GET", "", "cut answer", times=2)
    assert sorted([first, *(each.path for each in found)]) == names


def test_what_fails_every_time_is_told_in_the_end(wire: Wire, root: str) -> None:
    store = opened(root, wire.endpoint)
    wire.next("GET", "f/a", "lost answer", times=1_000)
    with pytest.raises(UnavailableError, match="cannot read f/a"):
        store.get("f/a")


def test_a_store_that_was_never_reached_has_written_nothing(endpoint: str, root: str) -> None:
    with Wire(endpoint) as gone:
        address = gone.endpoint
    store = opened(root, address)
    with pytest.raises(UnavailableError, match="connection refused") as caught:
        store.put_if_absent("f/a", b"x")
    assert caught.value.definite


class Commit:
    """A commit of two tables over the wire, and what there is of it afterwards."""

    def __init__(self, wire: Wire, endpoint: str, root: str) -> None:
        self._wire = wire
        self._root, self._endpoint = root, endpoint
        create(open_catalog(opened(root, endpoint)), "a", "b", files=["old"])

    def run(self, faults: dict[int, Fault], *, late: bool = False) -> str:
        """Commit while these requests fail, and return what the client was told; True to what there is, or it fails."""
        catalog = open_catalog(opened(self._root, self._wire.endpoint))
        tx = catalog.begin()
        new = f"new{next(NUMBERS)}"
        for name in ("a", "b"):
            stage(catalog, tx, name, add(new))
        catalog.lake.upkeep.settle()
        self._wire.number(faults)
        try:
            catalog.commit(tx)
            told = "committed"
        except CommitUnknownError:
            told = "unknown"
        except LockstepError as error:
            told = error.sqlstate
        finally:
            catalog.lake.upkeep.settle()
            self.requests = list(self._wire.requests)
            self._wire.number({})
        self._check(new, told)
        self._wire.deliver()
        self._check(new, told, is_settled=True)
        return told

    def deciding(self) -> int:
        """Return the number of the request that decides a commit through which nothing fails."""
        assert self.run({}) == "committed"
        puts = [n for n, (method, path) in enumerate(self.requests) if method == "PUT" and "/timeline/0" in path]
        assert len(puts) == 1
        return puts[0]

    def _check(self, new: str, told: str, *, is_settled: bool = False) -> None:
        reader: TransactionalCatalog = open_catalog(opened(self._root, self._endpoint))
        names = [named("a"), named("b")]
        reader.database(names)
        seen = {name: new in files(reader, name) for name in ("a", "b")}
        assert len(set(seen.values())) == 1, f"{told}: {seen}"
        if told != "unknown":
            assert seen["a"] == (told == "committed"), f"told {told}, and there is {seen}"
        if is_settled:
            report = verify(reader.lake.storage, reader.timeline)
            assert not report.differences, report.differences


@pytest.mark.parametrize("kind", ["s3", pytest.param("gs", marks=pytest.mark.deep), AZURE], indirect=True)
def test_a_commit_through_each_fault_of_its_deciding_write(wire: Wire, endpoint: str, root: str) -> None:
    """The PUT of its entry is sent again; only a 403 ends it, and then nothing is there."""
    commit = Commit(wire, endpoint, root)
    deciding = commit.deciding()
    told = {fault: commit.run({deciding: fault}) for fault in FAULTS}
    assert told == dict.fromkeys(FAULTS, "committed") | {"403": "42501"}


def test_keys_that_expire_before_a_commit_is_answered_leave_it_in_doubt(wire: Wire, endpoint: str, root: str) -> None:
    """The entry is there, and the noes after it are of requests that neither tell that nor undo it."""
    commit = Commit(wire, endpoint, root)
    deciding = commit.deciding()
    unanswered: tuple[Fault, ...] = ("lost answer", "503 after", "late")
    for first in unanswered:
        faults: dict[int, Fault] = {deciding: first, **{deciding + more: "403" for more in range(1, 50)}}
        assert commit.run(faults) == "unknown"


AT_LENGTH = pytest.mark.skipif(not servers.ARE_WANTED, reason="some minutes: `make test-stores`")


@AT_LENGTH
@pytest.mark.slow
@pytest.mark.parametrize("first", FAULTS)
def test_a_commit_through_two_faults(wire: Wire, endpoint: str, root: str, first: Fault) -> None:
    """Of the PUT of its entry, and of the request after it: a look, or the same PUT again."""
    commit = Commit(wire, endpoint, root)
    deciding = commit.deciding()
    for second in FAULTS:
        commit.run({deciding: first, deciding + 1: second})


@AT_LENGTH
@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_commit_through_each_fault_of_each_request(wire: Wire, endpoint: str, root: str, fault: Fault) -> None:
    commit = Commit(wire, endpoint, root)
    commit.run({})
    for number in range(len(commit.requests)):
        if number % 10 == 0:  # a longer history makes the checks longer
            commit = Commit(wire, endpoint, f"{root}-{number}")
        commit.run({number: fault})
