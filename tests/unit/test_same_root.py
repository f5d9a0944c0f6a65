"""Whether Spark sees the root that Lockstep sees: what is asked, when, and what the answer means."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

import lockstep.catalog
from lockstep.errors import ConfigurationError, LockstepError, UnavailableError
from lockstep.spark.host.host import Host
from lockstep.spark.host.protocol.roots import SawBeside, SawRoot
from lockstep.spark.host.same_root import (
    MOST_READ,
    Expected,
    LookFirst,
    SameRoots,
    Verdict,
    _check_beside,
    refusal_of,
    spark_side,
    verdict_of,
    why_untold,
)
from lockstep.storage import open_storage
from lockstep.storage.options import hadoop_addresses, hadoop_settings, place_of
from lockstep.timeline.entry import Batch
from lockstep.timeline.expiry import expire
from lockstep.timeline.files import entry_path
from tests.support.client import Client, saw, usual
from tests.support.faulty import FaultyStorage
from tests.support.lakes import append, create
from tests.support.s3 import KEYS, moto, serving

EXPECTED = Expected(entry_path(7), 700, 700, "ab" * 32, is_first=False)
NOTHING: dict[str, Any] = {"session": "s1", "root": "r", "settings": {}, "file_system": None, "length": None}
NOTHING |= {"kept": [], "others": {}, "untold": None, "beside": []}
SEEN = SawRoot(**NOTHING | {"length": 700}, digest="ab" * 32, failures=[], message=None)
IO = ["java.io.IOException", "java.lang.Exception"]
S3A = "org.apache.hadoop.fs.s3a"


def thrown(*kinds: str, message: str = "…") -> SawRoot:
    return SawRoot(**NOTHING, digest=None, failures=[*kinds], message=message)


# --- the judgement ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seen", "verdict"),
    [
        pytest.param(SEEN, "same", id="the same bytes"),
        pytest.param(structs.replace(SEEN, digest="ac" * 32), "other", id="other bytes"),
        pytest.param(structs.replace(SEEN, length=699), "other", id="fewer bytes"),
        pytest.param(structs.replace(SEEN, length=0, digest=hashlib.sha256().hexdigest()), "other", id="an empty file"),
        pytest.param(thrown("java.io.FileNotFoundException", *IO), "absent", id="no file"),
        pytest.param(thrown("java.nio.file.NoSuchFileException", *IO), "absent", id="no file, by java.nio"),
        pytest.param(thrown(f"{S3A}.UnknownStoreException", *IO), "absent", id="no bucket"),
        pytest.param(thrown("java.nio.file.AccessDeniedException", *IO), "denied", id="403, by s3a"),
        pytest.param(thrown("org.apache.hadoop.security.AccessControlException", *IO), "denied", id="no permission"),
        pytest.param(
            thrown(
                "java.io.FileNotFoundException", *IO, message="java.io.FileNotFoundException: /a (Permission denied)"
            ),
            "denied",
            id="no permission, which Java says of a local file as if it were missing",
        ),
        pytest.param(
            thrown(*IO, message="java.io.IOException: …; S3Exception: Forbidden (Service: S3, Status Code: 403, …)"),
            "denied",
            id="403, by the SDK's own stream",
        ),
        pytest.param(
            thrown(*IO, message="java.io.IOException: …; S3Exception: Bad Request (Service: S3, Status Code: 400, …)"),
            "denied",
            id="400: a token that has expired",
        ),
        pytest.param(
            thrown(*IO, message="java.io.IOException: …; S3Exception: Slow down (Service: S3, Status Code: 503, …)"),
            "failed",
            id="503, by the SDK's own stream",
        ),
        pytest.param(
            thrown("java.lang.RuntimeException", "java.lang.Exception", "java.lang.ClassNotFoundException"),
            "no file system",
            id="no jar of s3a",
        ),
        pytest.param(thrown("java.lang.NoClassDefFoundError"), "no file system", id="half of the jars"),
        pytest.param(
            thrown("org.apache.hadoop.fs.UnsupportedFileSystemException", *IO), "no file system", id="no scheme"
        ),
        pytest.param(thrown("java.net.SocketTimeoutException", *IO), "failed", id="no answer"),
        pytest.param(thrown("of.somebody.Exception"), "failed", id="what nobody knows"),
        pytest.param(thrown(), "failed", id="nothing at all"),
    ],
)
def test_what_spark_saw_is_one_of_these(seen: SawRoot, verdict: Verdict) -> None:
    assert verdict_of(EXPECTED, seen) == verdict


@pytest.mark.parametrize(
    ("verdict", "kind", "state", "says"),
    [
        ("other", ConfigurationError, "F0000", "Spark sees another file of this name at"),
        ("absent", ConfigurationError, "F0000", "Spark sees no such file at"),
        ("denied", ConfigurationError, "42501", "Give both the same keys"),
        ("no file system", ConfigurationError, "F0000", "Start Spark with --packages a:b:1"),
        ("failed", UnavailableError, "58030", "Run the statement again"),
    ],
)
def test_a_refusal_says_who_saw_what_where_and_what_to_do(
    verdict: Verdict, kind: type[LockstepError], state: str, says: str
) -> None:
    error = refusal_of(
        verdict, EXPECTED, "s3://b/lake at http://one", "s3a://b/lake (http://two)", "it broke", jars="--packages a:b:1"
    )
    assert (type(error), error.sqlstate) == (kind, state)
    needed = [says, "s3a://b/lake (http://two)", "othing was read or written"]
    if verdict != "no file system":
        needed += [EXPECTED.path, "s3://b/lake at http://one"]
    if verdict not in ("other", "absent"):
        needed.append("it broke")
    assert not [text for text in needed if text not in error.message]


@pytest.mark.parametrize("verdict", ["other", "absent", "denied", "failed"])
@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({"untold": "session"}, "was set by this session, and is not told to Spark"),
        ({"untold": "opened"}, "Spark had opened this store before catalog lake was used"),
        ({"kept": ["fs.s3a.access.key"]}, "Spark keeps what is set: fs.s3a.access.key;"),
        ({}, "role_arn: Hadoop has nothing for that"),
    ],
)
def test_a_refusal_says_what_spark_was_not_told(verdict: Verdict, told: dict[str, Any], says: str) -> None:
    """Of what the catalog's options say: the name of what is in the way, and what to do."""
    why = why_untold("lake", structs.replace(SEEN, **told), () if told else ("role_arn",))
    assert says in refusal_of(verdict, EXPECTED, "", "", "it broke", why=why).message
    assert why_untold("lake", SEEN) == ""


@pytest.mark.parametrize("is_first", [True, False])
def test_who_has_just_made_a_lake_is_told_where_it_is(is_first: bool) -> None:
    expected = Expected(EXPECTED.path, 1, 1, "", is_first=is_first)
    assert ("If this session made the lake" in refusal_of("absent", expected, "", "", "").message) == is_first


def test_no_refusal_shows_a_key() -> None:
    settings = {"fs.s3a.endpoint": "http://ada:SECRET@one:9000", "fs.s3a.endpoint.region": "eu?sig=SECRET"}
    theirs = spark_side("s3a://b/lake", f"{S3A}.S3AFileSystem", {**settings, "fs.s3a.impl": f"{S3A}.S3AFileSystem"})
    assert theirs.count("(not shown: it is no address)") == 2
    message = "GET https://one/a?sig=SECRET: refused by proxy http://ada:SECRET@two:80"
    assert "SECRET" not in refusal_of("failed", EXPECTED, "", theirs, message).message


@pytest.mark.parametrize(
    ("endpoint", "shown"),
    [("http://one:9000/path", True), ("one.example:9000", True), ("eu-west-1", True), ("https://k@one", False)],
)
def test_addresses_are_shown(endpoint: str, shown: bool) -> None:
    assert (f"fs.s3a.endpoint={endpoint}" in spark_side("", None, {"fs.s3a.endpoint": endpoint})) == shown


@pytest.mark.parametrize("url", ["s3://b/lake", "gs://b/lake", "abfss://c@a.dfs.core.windows.net/lake"])
def test_spark_is_asked_for_no_setting_that_is_a_key(url: str) -> None:
    names = hadoop_addresses(place_of(url))
    said = [name.removesuffix(".a.dfs.core.windows.net").rpartition(".")[2] for name in names]
    assert {*said} <= {"impl", "endpoint", "region", "url"}
    told = hadoop_settings(place_of(url), {"endpoint": "http://one", "region": "r"}, {})
    assert {name for name in told if "endpoint" in name or "root" in name} <= {*names}


# --- when it is asked -------------------------------------------------------------------------------------------------


class Shim:
    """A shim of which each answer can be looked at."""

    def __init__(self, host: Host, root: Path | str, **options: str) -> None:
        self.host, self.options = host, {"root": str(root), "create": "true", **options}

    def ask(self, op: str, **args: Any) -> dict[str, Any]:
        request = {"op": op, "session": "s1", **usual(op, "lake", self.options), **args}
        answer: dict[str, Any] = json.loads(self.host.call(json.dumps(request)))
        return answer

    def tell(self, look: dict[str, Any], **other: Any) -> dict[str, Any]:
        return self.ask("saw_root", **saw(self.host.lakehouses, look["root"]) | other)


ABSENT = {"digest": None, "length": None, "failures": ["java.io.FileNotFoundException"], "message": "no"}


@pytest.fixture
def shim(host: Host, tmp_path: Path) -> Shim:
    return Shim(host, tmp_path / "lake")


@pytest.mark.parametrize("op", ["begin", "tables", "create_namespace", "kept_log"])
def test_before_the_first_answer_about_a_lake_spark_looks(shim: Shim, tmp_path: Path, op: str) -> None:
    """The session makes the lake, and has to see its entry 0."""
    asked: dict[str, dict[str, Any]] = {
        "tables": {"namespace": ["default"]},
        "create_namespace": {"namespace": ["sales"], "properties": {}},
        "kept_log": {"uri": f"lockstep://head.file{tmp_path}/lake/t"},
    }
    args = asked.get(op, {})
    look = shim.ask(op, **args)["look"]
    file = tmp_path / "lake" / entry_path(0)
    assert look["uri"] == f"lockstep://head.file{file}"
    assert look["size"] == look["length"] == file.stat().st_size
    assert shim.tell(look) == {"ok": {}}
    assert "look" not in shim.ask(op, **args)


def test_a_lake_is_looked_at_once(shim: Shim, host: Host, tmp_path: Path) -> None:
    """Whatever session asks, and by whatever name it calls the lake."""
    shim.tell(shim.ask("begin")["look"])
    other = Shim(host, tmp_path / "." / "lake")
    for each in (shim, other):
        assert "ok" in each.ask("tables", namespace=["default"], catalog="another")


def test_another_store_of_the_same_url_is_looked_at_again(shim: Shim, host: Host, tmp_path: Path) -> None:
    """One with other keys may be another account's."""
    shim.tell(shim.ask("begin")["look"])
    assert "look" in Shim(host, tmp_path / "lake", **{"store.region": "eu-west-1"}).ask("tables", namespace=[])


def test_nothing_is_done_before_it_is_known(shim: Shim, tmp_path: Path) -> None:
    """A refusal is asked for again each time: nothing is remembered of it, for somebody may put the root right."""
    for _ in range(2):
        look = shim.ask("create_namespace", namespace=["sales"], properties={})["look"]
        error = shim.tell(look, **ABSENT)["error"]
        assert (error["condition"], error["sqlstate"]) == ("LOCKSTEP_CONFIGURATION", "F0000")
    assert lockstep.catalog.TransactionalCatalog.open(str(tmp_path / "lake")).timeline.head.version == 0
    shim.tell(shim.ask("create_namespace", namespace=["sales"], properties={})["look"])
    assert "ok" in shim.ask("create_namespace", namespace=["sales"], properties={})


def test_begin_carries_its_micro_batch_out_though_it_comes_twice(shim: Shim) -> None:
    shim.ask("batch", batch={"application": "orders", "number": 7})
    shim.tell(shim.ask("begin")["look"])
    batches = []
    for _ in range(2):
        assert "ok" in shim.ask("begin")
        tx = shim.host._sessions["s1"].transaction
        assert tx is not None
        batches.append(tx.batch)
        shim.ask("rollback")
    assert batches == [Batch(application="orders", number=7), None], "and no other BEGIN does"


def test_the_newest_entry_is_what_spark_looks_at(host: Host, tmp_path: Path) -> None:
    """A copy that was made of the lake some time ago has all but that."""
    create(lockstep.catalog.TransactionalCatalog.open(str(tmp_path / "lake"), create=True), "a")
    assert Shim(host, tmp_path / "lake").ask("begin")["look"]["uri"].endswith(entry_path(1))


def test_an_entry_that_expires_before_spark_looks_is_no_other_root(
    shim: Shim, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = lockstep.catalog.TransactionalCatalog.open(str(tmp_path / "lake"), create=True)
    create(elsewhere, "a")
    look = shim.ask("begin")["look"]
    assert look["uri"].endswith(entry_path(1))
    append(elsewhere, "a", "x")
    monkeypatch.setattr("lockstep.timeline.fence.GRACE_SECONDS", 0.0)
    expire(elsewhere.timeline, first_kept=2, keep={}, wait=lambda: None)
    assert not (tmp_path / "lake" / entry_path(1)).exists()
    assert shim.tell(look, **ABSENT) == {"ok": {}}, "nothing is known"
    look = shim.ask("begin")["look"]
    assert not look["uri"].endswith(entry_path(1))
    assert shim.tell(look, **ABSENT)["error"]["sqlstate"] == "F0000"


def test_of_a_large_entry_its_beginning_is_compared(shim: Shim, tmp_path: Path) -> None:
    elsewhere = lockstep.catalog.TransactionalCatalog.open(str(tmp_path / "lake"), create=True)
    create(elsewhere, *(f"t{number:0250}" for number in range(200)))
    file = tmp_path / "lake" / entry_path(elsewhere.timeline.head.version)
    look = shim.ask("begin")["look"]
    assert (look["size"], look["length"]) == (file.stat().st_size, MOST_READ)
    told = {"length": MOST_READ, "digest": hashlib.sha256(file.read_bytes()[:MOST_READ]).hexdigest()}
    assert shim.tell(look, **told) == {"ok": {}}


def test_a_look_that_another_host_asked_for_proves_nothing(shim: Shim, tmp_path: Path) -> None:
    """The one that asked died: its successor asks once more, and the statement goes on."""
    told = saw(shim.host.lakehouses, shim.ask("begin")["look"]["root"])
    successor = Shim(Host(), tmp_path / "lake")
    assert successor.ask("saw_root", **told) == {"ok": {}}
    assert "look" in successor.ask("begin")


def test_it_costs_one_request_for_each_lake(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Besides that of Spark's own: this side reads the same entry, once."""
    store = FaultyStorage(open_storage(str(tmp_path / "lake"), create=True))
    monkeypatch.setattr(lockstep.catalog, "open_storage", lambda *_, **__: store)
    host.lakehouses.opened("lake", {"root": str(tmp_path / "lake"), "create": "true"})
    store.calls.clear()
    shim = Shim(host, tmp_path / "lake")
    look = shim.ask("begin")["look"]
    shim.tell(look)
    assert store.calls == [("get", entry_path(0))]
    for _ in range(2):
        assert "ok" in Client(host, tmp_path / "lake", "s2").ask("tables", namespace=["default"])
    assert store.calls.count(("get", entry_path(0))) == 1


def test_a_root_that_lockstep_does_not_read_any_more_is_asked_of_nobody(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FaultyStorage(open_storage(str(tmp_path / "lake"), create=True))
    monkeypatch.setattr(lockstep.catalog, "open_storage", lambda *_, **__: store)
    host.lakehouses.opened("lake", {"root": str(tmp_path / "lake"), "create": "true"})
    store.fail("get", times=1)
    assert Shim(host, tmp_path / "lake").ask("begin")["error"]["sqlstate"] == "58030"


# --- what Spark's side is told with it --------------------------------------------------------------------------------


@pytest.fixture
def in_a_bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """Return the settings of a catalog whose lake is in a bucket of a server."""
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    with serving(moto(), bucket="told") as endpoint:
        store = {**KEYS, "endpoint": endpoint}
        yield {f"store.{name}": value for name, value in store.items()}


def test_the_options_of_a_catalog_are_told_before_spark_looks(host: Host, in_a_bucket: dict[str, str]) -> None:
    shim = Shim(host, "s3://told/lake", **in_a_bucket)
    look = shim.ask("begin")["look"]
    told = {name: value for each in look["tells"] for name, value in each["settings"].items()}
    assert told["fs.s3a.bucket.told.endpoint"] == in_a_bucket["store.endpoint"]
    assert told["fs.s3a.bucket.told.secret.key"] == KEYS["secret_access_key"]
    assert (look["catalog"], {*told} <= {*look["names"]}) == ("lake", True)
    shim.tell(look)
    assert "ok" in shim.ask("begin")


def test_spark_is_told_once_for_each_name_of_a_lake(host: Host, in_a_bucket: dict[str, str]) -> None:
    """A session's own catalog is told nothing, and may have looked first."""
    shim = Shim(host, "s3://told/lake", **in_a_bucket)
    shim.tell(shim.ask("tables", namespace=["default"])["look"])
    assert shim.ask("tables", namespace=["default"], catalog="another")["look"]["catalog"] == "another"
    assert "ok" in shim.ask("tables", namespace=["default"])


def test_another_spark_of_the_driver_is_told_again(host: Host, in_a_bucket: dict[str, str]) -> None:
    shim = Shim(host, "s3://told/lake", **in_a_bucket)
    shim.tell(shim.ask("tables", namespace=["default"])["look"])
    assert shim.ask("spark_started") == {"ok": {}}
    assert "look" in shim.ask("tables", namespace=["default"])


def test_a_catalog_that_says_otherwise_than_another_is_refused_by_name(host: Host, in_a_bucket: dict[str, str]) -> None:
    shim = Shim(host, "s3://told/lake", **in_a_bucket)
    look = shim.ask("tables", namespace=["default"])["look"]
    error = shim.tell(look, others={"fs.s3a.bucket.told.secret.key": "first"}, **ABSENT)["error"]
    assert error["sqlstate"] == "F0000"
    for said in (
        "catalog lake says other options of s3a://told/lake than catalog first",
        "fs.s3a.bucket.told.secret.key",
    ):
        assert said in error["message"]
    assert KEYS["secret_access_key"] not in error["message"]


def test_a_local_root_is_told_nothing(shim: Shim) -> None:
    look = shim.ask("begin")["look"]
    assert (look["tells"], look["names"]) == ([], [])


IN_S3, IN_AZURE = "s3://c/w", "abfss://c@acc.dfs.core.windows.net/w"
ACCOUNT, ABFS_ENDPOINT = "acc.dfs.core.windows.net", "fs.azure.abfs.endpoint"
OF_ONE = re.compile(rf"^fs\.s3a\.bucket\.c\.|\.{re.escape(ACCOUNT)}$")
"""The names of settings of one store alone."""


@pytest.mark.parametrize(
    ("url", "options", "settings", "is_refused"),
    [
        (IN_S3, {"region": "r"}, {"fs.s3a.endpoint": "http://one"}, True),
        (IN_S3, {"region": "r"}, {"fs.s3a.endpoint": "http://one", "fs.s3a.bucket.c.endpoint": "http://two"}, False),
        (IN_S3, {"region": "r"}, {"fs.s3a.endpoint": "https://s3.eu-west-1.amazonaws.com"}, False),
        (IN_S3, {"region": "r"}, {"fs.s3a.endpoint": "s3.amazonaws.com"}, False),
        (IN_S3, {"region": "r"}, {}, False),
        (IN_S3, {"region": "r", "endpoint": "http://two"}, {"fs.s3a.endpoint": "http://one"}, False),
        (IN_AZURE, {"account_key": "k"}, {ABFS_ENDPOINT: "one:1"}, True),
        (IN_AZURE, {"account_key": "k"}, {ABFS_ENDPOINT: "one:1", f"{ABFS_ENDPOINT}.{ACCOUNT}": "two:1"}, False),
        (IN_AZURE, {"account_key": "k"}, {}, False),
        (IN_AZURE, {"account_key": "k", "endpoint": "http://two:1/acc"}, {ABFS_ENDPOINT: "one:1"}, False),
    ],
)
def test_a_server_for_all_stores_is_not_asked_for_a_location_of_the_clouds(
    url: str, options: dict[str, str], settings: dict[str, str], is_refused: bool, tmp_path: Path
) -> None:
    """Spark would write files to the one server, and the log would go to the other."""
    house = lockstep.catalog.TransactionalCatalog.open(str(tmp_path / "lake"), create=True, locations={url: options})
    roots = SameRoots()
    with pytest.raises(LookFirst) as first:
        roots.require(house.lake, "lake", {"root": str(tmp_path / "lake")})
    look = first.value.look
    of_all = "fs.s3a.endpoint" if url == IN_S3 else ABFS_ENDPOINT
    assert (of_all in look.settings) is ("endpoint" not in options)
    [beside] = look.beside
    of_others = [name for told in beside.tells for name in told.unless if not OF_ONE.search(name)]
    assert set(of_others) <= {"hadoop.security.credential.provider.path"}
    expected = roots._pending[look.root].expected
    seen = structs.replace(
        SEEN,
        root=look.root,
        settings={name: value for name, value in settings.items() if name in look.settings},
        length=expected.length,
        digest=expected.digest,
        beside=[SawBeside(others={}, untold=None, failures=[], message=None)],
    )
    if is_refused:
        with pytest.raises(
            ConfigurationError, match=rf"{re.escape(of_all)} is set for all (buckets|accounts),"
        ) as caught:
            roots.saw(seen)
        assert caught.value.sqlstate == "F0000"
        return
    roots.saw(seen)
    roots.require(house.lake, "lake", {"root": str(tmp_path / "lake")})


@pytest.mark.parametrize(
    ("failures", "message", "error", "sqlstate", "says"),
    [
        (["java.nio.file.AccessDeniedException", *IO], "403", ConfigurationError, "42501", "may not open"),
        (IO, "connection reset", UnavailableError, "58030", "could not open"),
        ([f"{S3A}.UnknownStoreException", *IO], "no bucket", ConfigurationError, "F0000", "finds no store"),
        (["java.lang.ClassNotFoundException"], "S3AFileSystem", ConfigurationError, "F0000", "hadoop-aws"),
    ],
)
def test_what_spark_cannot_open_of_a_location_is_refused_by_what_was_thrown(
    failures: list[str], message: str, error: type[LockstepError], sqlstate: str, says: str
) -> None:
    with pytest.raises(error, match=says) as caught:
        _check_beside("lake", "s3://c/w", SawBeside(others={}, untold=None, failures=failures, message=message))
    assert caught.value.sqlstate == sqlstate
    assert message in caught.value.message
    assert "a location of catalog lake" in caught.value.message
