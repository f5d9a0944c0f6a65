"""What a lake keeps at least: whoever says most raises it, only who asks for that by name lowers it, all obey it."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.cli import arguments, upkeep
from lockstep.errors import CorruptTimelineError, InvalidError, StoreRefusedError, UnavailableError
from lockstep.retention.ages import Retention
from lockstep.retention.floor import (
    FOLDER,
    Floor,
    asked,
    at_least,
    look,
    raise_floor,
    read_floor,
    retention_of,
    set_floor,
    tell,
)
from lockstep.spark.host.host import Host
from lockstep.spark.host.times import micros_of
from lockstep.storage import open_storage
from tests.support.client import Client
from tests.support.commands import lockstep, read
from tests.support.faulty import FaultyStorage
from tests.support.lakes import append, create, open_catalog
from tests.support.retained import AgedStorage, Ticking
from tests.unit.test_read_only_root import reading_only

DAY = timedelta(days=1)
YEAR = {"retention-age": "365d"}


@pytest.fixture
def catalog(aged: AgedStorage, clock: Ticking) -> TransactionalCatalog:
    """A lake with the table a."""
    catalog = open_catalog(aged, clock=clock)
    create(catalog, "a", files=["p"])
    return catalog


@pytest.fixture
def at_cli(aged: AgedStorage, clock: Ticking, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands look after that lake."""
    monkeypatch.setattr(upkeep, "_lake", lambda _: open_catalog(aged, clock=clock).lake)


def kept(lake_or_storage: Any) -> dict[str, str]:
    storage = getattr(lake_or_storage, "storage", lake_or_storage)
    return {name: each.value for name, each in read_floor(storage).said.items()}


def said(catalog: TransactionalCatalog, how: str, settings: Mapping[str, str]) -> None:
    change = {"raise": raise_floor, "set": set_floor}[how]
    change(catalog.lake, settings, author="ada", statement=f"{how} {settings}")


@pytest.mark.parametrize("value", ["many", "", "-1"])
def test_what_is_no_amount_is_refused_whatever_the_lake_keeps(catalog: TransactionalCatalog, value: str) -> None:
    said(catalog, "set", {"retention-versions": "5"})
    with pytest.raises(InvalidError, match="expected a number, 1 or more"):
        retention_of(catalog.lake.storage, {"retention-versions": value})


# --- nobody loses history by doing as the documentation says ------------------------------------------------------


@pytest.mark.usefixtures("at_cli")
@pytest.mark.parametrize("command", ["expire", "maintain"])
def test_a_nights_run_keeps_what_a_catalog_of_sparks_is_set_to_keep(
    catalog: TransactionalCatalog, clock: Ticking, command: str
) -> None:
    """Of two hundred versions the older half is a hundred days old: the options' defaults would let them go."""
    for n in range(202):
        append(catalog, "a", f"x{n}")
        clock.now += 100 * DAY if n == 100 else timedelta()
    newest = catalog.timeline.head.version
    dry = read(command, "the lake", "--dry-run")
    assert dry.get("expired", dry)["versions"] > 90, "without the setting they would go"
    tell(catalog.lake, YEAR, author="ada", statement="spark.sql.catalog.lake.retention-age = 365d")
    done = lockstep(command, "the lake", "--yes")
    assert (done.exit_code, done.stdout.startswith("0 versions expired")) == (0, True), done.output
    assert read("status", "the lake")["oldest_version"] == 0
    assert catalog.lake.refresh().version <= newest + 1


@pytest.mark.parametrize(
    ("settings", "raised"),
    [
        ({}, {}),
        (YEAR, YEAR),
        ({"retention-age": "30d"}, {}),  # as is kept by who says nothing
        ({"retention-age": "7d", "retention-versions": "100"}, {}),
        ({"retention-versions": "1000", "deletion-grace": "1h"}, {"retention-versions": "1000"}),
        ({"deletion-grace": "3d", "orphan-age": "30d"}, {"deletion-grace": "3d", "orphan-age": "30d"}),
        ({"isolation": "SNAPSHOT"}, {}),
    ],
)
def test_a_catalog_that_a_session_uses_raises_what_the_lake_keeps(
    host: Host, tmp_path: Path, settings: dict[str, str], raised: dict[str, str]
) -> None:
    one = Client(host, tmp_path / "lake")
    create(one.lake(), "a")
    for _ in range(2):  # another driver with the same settings says nothing new
        session = Client(Host("another driver"), tmp_path / "lake")
        session.options |= settings
        session.ok("call", procedure="tags", arguments={}, text="CALL …")
        assert kept(open_storage(str(tmp_path / "lake"))) == raised
        names = open_storage(str(tmp_path / "lake")).list(FOLDER)
        assert len(names) == (1 if raised else 0)
    for name, each in read_floor(open_storage(str(tmp_path / "lake"))).said.items():
        assert f"spark.sql.catalog.lake.{name} = {raised[name]}" in each.statement


def test_another_catalog_of_the_lake_obeys_the_longest(host: Host, tmp_path: Path) -> None:
    short, long = (Client(host, tmp_path / "lake", catalog=name) for name in ("short", "long"))
    create(short.lake(), "a")
    short.options["retention-age"] = "1s"
    assert short.house().retention().age == timedelta(seconds=1)
    long.options["retention-age"] = "365d"
    assert long.house().retention().age == 365 * DAY
    assert short.house().retention().age == 365 * DAY
    long.options |= {"retention-age": "366d"}
    assert long.house().retention().age == short.house().retention().age == 366 * DAY


# --- who says nothing, more, or less ------------------------------------------------------------------------------

SHORT = {"retention-age": "7d", "retention-versions": "10", "deletion-grace": "1h", "orphan-age": "2h"}
LONG = {"retention-age": "365d", "retention-versions": "1000", "deletion-grace": "3d", "orphan-age": "30d"}
ATTRIBUTES = {
    "retention-age": "age",
    "retention-versions": "last",
    "deletion-grace": "grace",
    "orphan-age": "orphan_age",
}


@pytest.mark.parametrize("setting", SHORT)
@pytest.mark.parametrize(
    ("lake", "catalog_says", "applies"),
    [
        (None, None, {}),  # the default
        (None, SHORT, SHORT),
        (None, LONG, LONG),
        (SHORT, None, SHORT),
        (LONG, None, LONG),
        (SHORT, LONG, LONG),
        (LONG, SHORT, LONG),
        (LONG, LONG, LONG),
    ],
)
def test_of_what_lake_and_catalog_say_the_longer_holds(
    catalog: TransactionalCatalog,
    setting: str,
    lake: Mapping[str, str] | None,
    catalog_says: Mapping[str, str] | None,
    applies: Mapping[str, str],
) -> None:
    if lake is not None:
        said(catalog, "set", {setting: lake[setting]})
    mine = {} if catalog_says is None else {setting: catalog_says[setting]}
    found = retention_of(catalog.lake.storage, mine)
    wanted = Retention.of({setting: applies[setting]} if applies else {})
    assert getattr(found, ATTRIBUTES[setting]) == getattr(wanted, ATTRIBUTES[setting])


@pytest.mark.parametrize("setting", SHORT)
@pytest.mark.parametrize(
    ("lake", "asks", "is_refused"),
    [
        (None, SHORT, False),
        (None, LONG, False),
        (SHORT, SHORT, False),
        (SHORT, LONG, False),
        (LONG, LONG, False),
        (LONG, SHORT, True),
    ],
)
def test_who_asks_for_less_than_the_lake_keeps_is_refused(
    catalog: TransactionalCatalog,
    setting: str,
    lake: Mapping[str, str] | None,
    asks: Mapping[str, str],
    is_refused: bool,
) -> None:
    if lake is not None:
        said(catalog, "set", {setting: lake[setting]})
    mine = {setting: asks[setting]}
    if not is_refused:
        assert asked(catalog.lake.storage, mine) == Retention.of(mine)
        return
    expected = f"{setting} of {asks[setting]} is .*keeps {LONG[setting]} .ada said so.*Nothing was deleted.*lockstep"
    with pytest.raises(InvalidError, match=expected):
        asked(catalog.lake.storage, mine)


@pytest.mark.usefixtures("at_cli")
@pytest.mark.parametrize("more", [("--yes",), ("--dry-run",), ("--yes", "--json")])
@pytest.mark.parametrize(
    ("command", "option", "setting"),
    [
        ("expire", "--older-than", "retention-age"),
        ("expire", "--retain-last", "retention-versions"),
        ("expire", "--grace", "deletion-grace"),
        ("vacuum", "--grace", "deletion-grace"),
        ("gc", "--older-than", "orphan-age"),
        ("gc", "--grace", "deletion-grace"),
        ("maintain", "--older-than", "retention-age"),
        ("maintain", "--retain-last", "retention-versions"),
        ("maintain", "--grace", "deletion-grace"),
        ("maintain", "--orphan-age", "orphan-age"),
    ],
)
def test_an_option_that_is_shorter_is_refused_before_anything_is_done(
    catalog: TransactionalCatalog, command: str, option: str, setting: str, more: tuple[str, ...]
) -> None:
    said(catalog, "raise", LONG)
    before = {found.path for found in catalog.lake.storage.walk("")}
    refused = lockstep(command, "the lake", option, SHORT[setting], *more)
    assert (refused.exit_code, "22023" in refused.stderr, f"keeps {LONG[setting]}" in refused.stderr) == (1, True, True)
    assert {found.path for found in catalog.lake.storage.walk("")} == before
    longer = lockstep(command, "the lake", option, LONG[setting], "--dry-run")
    assert longer.exit_code == 0, longer.output


@pytest.mark.parametrize(
    ("procedure", "given"),
    [
        ("expire_snapshots", {"older_than": 300 * DAY}),
        ("expire_snapshots", {"retain_last": 999}),
        ("remove_orphan_files", {"older_than": 29 * DAY}),
    ],
)
def test_a_call_that_says_less_is_refused(one: Client, procedure: str, given: dict[str, Any]) -> None:
    catalog = one.lake()
    now = catalog.lake.clock()
    arguments = {name: micros_of(now - each) if isinstance(each, timedelta) else each for name, each in given.items()}
    call = {"procedure": procedure, "arguments": arguments | {"dry_run": True}, "text": "CALL …"}
    one.ok("call", **call)
    raise_floor(catalog.lake, LONG, author="ada", statement="the catalog")
    assert one.refused("call", **call)[0] == "22023"
    more = {name: micros_of(now - 400 * DAY) if name == "older_than" else 1000 for name in given}
    one.ok("call", **call | {"arguments": more})


def test_a_time_exactly_as_long_ago_as_the_lake_keeps_is_not_less(one: Client) -> None:
    catalog = one.lake()
    raise_floor(catalog.lake, YEAR, author="ada", statement="the catalog")
    then = micros_of(catalog.lake.clock() - 365 * DAY)
    one.ok("call", procedure="expire_snapshots", arguments={"older_than": then}, text="CALL …")


# --- what is written down -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "left"),
    [
        ([("raise", {"retention-age": "365d"}), ("raise", {"retention-age": "90d"})], {"retention-age": "365d"}),
        ([("raise", {"retention-age": "90d"}), ("raise", {"retention-age": "8760h"})], {"retention-age": "8760h"}),
        ([("raise", YEAR), ("set", {"retention-age": "7d"})], {"retention-age": "7d"}),
        ([("set", {"retention-age": "7d"}), ("raise", {"retention-age": "8d"})], {"retention-age": "8d"}),
        ([("set", {"retention-age": "7d"}), ("raise", {"retention-age": "7d"})], {"retention-age": "7d"}),
        (
            [("raise", LONG), ("set", {"retention-age": "7d"}), ("raise", {"orphan-age": "90d"})],
            {**LONG, "retention-age": "7d", "orphan-age": "90d"},
        ),
        ([("set", {"retention-versions": "9"}), ("raise", {"retention-versions": "10"})], {"retention-versions": "10"}),
    ],
)
def test_only_who_sets_it_lowers_it(
    catalog: TransactionalCatalog, steps: list[tuple[str, dict[str, str]]], left: dict[str, str]
) -> None:
    for how, settings in steps:
        said(catalog, how, settings)
    assert kept(catalog.lake) == left


def test_what_changes_nothing_writes_nothing(catalog: TransactionalCatalog) -> None:
    for how, settings in (("raise", YEAR), ("raise", YEAR), ("set", YEAR), ("set", {}), ("raise", {})):
        said(catalog, how, settings)
    assert len(catalog.lake.storage.list(FOLDER)) == 1


def test_of_two_at_once_the_longer_holds_and_who_is_raised_over_is_told(store: FaultyStorage) -> None:
    """Both have looked before either wrote."""
    one, other = open_catalog(store), open_catalog(store.inner)
    store.interrupt("put_if_absent", lambda: said(other, "raise", {"retention-age": "90d"}), path=".json")
    said(one, "raise", YEAR)
    assert kept(store) == YEAR
    store.interrupt("put_if_absent", lambda: said(other, "set", {"retention-age": "400d"}), path=".json")
    with pytest.raises(UnavailableError, match="retention-age is 400d, which ada said: somebody else"):
        said(one, "set", {"retention-age": "7d"})
    assert kept(store) == {"retention-age": "400d"}


def test_who_raises_while_somebody_sets_raises_what_was_set(store: FaultyStorage) -> None:
    one, other = open_catalog(store), open_catalog(store.inner)
    said(one, "raise", {"retention-age": "90d"})
    store.interrupt("put_if_absent", lambda: said(other, "set", {"retention-age": "7d"}), path=".json")
    said(one, "raise", YEAR)
    assert kept(store) == YEAR


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "expected what the lake keeps"),
        (b"{", "expected what the lake keeps"),
        (b'{"format":1}', "expected what the lake keeps"),
        (b'{"format":1,"settings":{"retention-age":{"value":"soon","at":"2030-01-01T00:00:00Z"}}}', "'soon'"),
        (b'{"format":2,"settings":{}}', "upgrade"),
        (b'{"format":1,"settings":{"retention-mood":{"value":"good","at":"2030-01-01T00:00:00Z"}}}', "upgrade"),
    ],
)
@pytest.mark.usefixtures("at_cli")
def test_while_nobody_can_read_what_is_kept_nothing_goes(
    catalog: TransactionalCatalog, content: bytes, says: str
) -> None:
    path = f"{FOLDER}/00000001-x.json"
    catalog.lake.storage.put(path, content)
    with pytest.raises(CorruptTimelineError, match=says):
        read_floor(catalog.lake.storage)
    for command in ("expire", "vacuum", "gc", "maintain", "status"):
        done = lockstep(command, "the lake", *(() if command == "status" else ("--yes",)))
        assert (done.exit_code, "XX001" in done.stderr, path in done.stderr) == (1, True, True), done.output
    catalog.lake.storage.put(f"{FOLDER}/notes.txt", content)
    catalog.lake.storage.delete(path)
    assert read_floor(catalog.lake.storage) == Floor(0, {})


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """A lake in a folder that other users may look into: pytest's own are closed to them."""
    folder = Path(tempfile.mkdtemp(prefix="lockstep-read-only-"))
    folder.chmod(0o755)
    TransactionalCatalog.open(str(folder), create=True)
    yield folder
    shutil.rmtree(folder)


def test_who_may_only_read_the_lake_opens_it_and_the_log_says_what_is_not_known(
    open_to_all: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = open_to_all
    with reading_only(root):
        catalog = TransactionalCatalog.open(str(root))
        tell(catalog.lake, {"retention-age": "1d"}, author="ada", statement="a day")
        assert caplog.text == "", "that is kept anyway"
        tell(catalog.lake, YEAR, author="ada", statement="a year")
        assert "does not know of a year" in caplog.text
        assert kept(catalog.lake) == {}


@pytest.mark.parametrize("is_refused", [True, False])
def test_a_store_that_refuses_the_record_is_told_of_and_one_that_fails_is_asked_again(
    store: FaultyStorage, caplog: pytest.LogCaptureFixture, is_refused: bool
) -> None:
    catalog = open_catalog(store)
    error = StoreRefusedError("no") if is_refused else UnavailableError("gone")

    def failure() -> None:
        raise error

    store.interrupt("put_if_absent", failure, path=".json")
    assert tell(catalog.lake, YEAR, author="ada", statement="a year") == is_refused
    assert "does not know of a year" in caplog.text
    assert ("Say it with lockstep retention" if is_refused else "The next session tries again") in caplog.text
    assert tell(catalog.lake, YEAR, author="ada", statement="a year")
    assert kept(store) == YEAR


def test_what_nobody_has_said_is_looked_at_as_the_default(catalog: TransactionalCatalog) -> None:
    said(catalog, "raise", YEAR)
    found = {each.name: each for each in look(catalog.lake.storage, {"retention-age": "7d", "orphan-age": "8d"})}
    assert [(name, each.value, each.wanted, each.is_lower) for name, each in found.items()] == [
        ("retention-age", "365d", "7d", True),
        ("retention-versions", "100", None, False),
        ("deletion-grace", "24h", None, False),
        ("orphan-age", "7d", "8d", False),
    ]
    assert at_least(Floor(0, {}), {}) == {}


# --- the command and the procedure --------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path) -> Path:
    catalog = TransactionalCatalog.open(str(tmp_path / "place"), create=True, author="ada")
    create(catalog, "a")
    return tmp_path / "place"


def test_the_command_says_what_is_kept_and_raises_it_without_asking(place: Path) -> None:
    lines = lockstep("retention", place).stdout.splitlines()
    assert lines[0].split() == ["setting", "the", "lake", "keeps", "said", "by", "at", "by", "what"]
    assert lines[1].split() == ["retention-age", "30d"]
    planned = lockstep("retention", place, "--age", "365d", "--orphan-age", "7d", "--dry-run")
    assert planned.stdout == "retention-age would become 365d instead of 30d\n"
    assert lockstep("retention", place, "--age", "30d", "--dry-run").stdout == "nothing would change\n"
    assert read("retention", place, "--age", "365d", "--dry-run")[0]["wanted"] == "365d"
    assert kept(open_storage(str(place))) == {}
    done = lockstep("retention", place, "--age", "365d", "--versions", "500")
    assert done.exit_code == 0, done.output
    assert "lockstep retention --age 365d --versions 500" in done.stdout.splitlines()[1]
    assert kept(open_storage(str(place))) == {"retention-age": "365d", "retention-versions": "500"}


def test_the_command_asks_before_it_lowers(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lockstep("retention", place, "--age", "365d", "--grace", "3d").exit_code == 0
    for more in ((), ("--json",)):
        refused = lockstep("retention", place, "--age", "7d", *more)
        assert (refused.exit_code, "nothing was changed: give --yes" in refused.stderr) == (1, True), refused.output
    monkeypatch.setattr(arguments, "can_ask", lambda: True)
    for no in ("n\n", "\n"):
        done = lockstep("retention", place, "--age", "7d", answer=no)
        assert (done.exit_code, "retention-age would become 7d instead of 365d" in done.stdout) == (0, True)
        assert "Go on? [y/N]" in done.stdout
    assert kept(open_storage(str(place)))["retention-age"] == "365d"
    assert lockstep("retention", place, "--age", "7d", answer="y\n").exit_code == 0
    assert kept(open_storage(str(place))) == {"retention-age": "7d", "deletion-grace": "3d"}
    assert read("retention", place, "--grace", "1h", "--yes")[2]["value"] == "1h"
    assert kept(open_storage(str(place))) == {"retention-age": "7d", "deletion-grace": "1h"}


def test_what_is_raised_while_the_command_asks_is_not_lowered_by_the_answer(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lockstep("retention", place, "--age", "60d").exit_code == 0

    def asked() -> bool:
        assert lockstep("retention", place, "--age", "365d").exit_code == 0
        return True

    monkeypatch.setattr(arguments, "can_ask", asked)
    done = lockstep("retention", place, "--age", "30d", answer="y\n")
    assert (done.exit_code, "retention-age 365d" in done.stderr) == (1, True), done.output
    assert "retention-age would become 30d instead of 60d" in done.stdout
    assert kept(open_storage(str(place)))["retention-age"] == "365d"
    monkeypatch.setattr(arguments, "can_ask", lambda: True)
    assert lockstep("retention", place, "--age", "30d", answer="y\n").exit_code == 0


@pytest.mark.parametrize(
    ("option", "value"), [("--age", "soon"), ("--versions", "0"), ("--orphan-age", "5min"), ("--grace", "-1d")]
)
def test_the_command_refuses_what_makes_no_sense(place: Path, option: str, value: str) -> None:
    refused = lockstep("retention", place, option, value, "--yes")
    assert (refused.exit_code, "22023" in refused.stderr) == (1, True), refused.output
    assert open_storage(str(place)).list(FOLDER) == []


def test_the_procedure_says_and_sets_the_same(one: Client) -> None:
    def called(**arguments: Any) -> dict[str, list[Any]]:
        rows = one.ok("call", procedure="retention", arguments=arguments, text="CALL lake.system.retention(…)")["rows"]
        return {row[0]: row[1:] for row in rows}

    assert called()["retention-age"] == ["30d", None, None, None, None]
    assert called(age="365d", dry_run=True)["retention-age"][:2] == ["30d", "365d"]
    assert kept(one.lake().lake) == {}
    row = called(age="365d", versions=500)["retention-age"]
    assert (row[0], row[1], row[4]) == ("365d", None, "CALL lake.system.retention(…)")
    assert kept(one.lake().lake) == {"retention-age": "365d", "retention-versions": "500"}
    assert called(age="7d")["retention-age"][0] == "7d"
    one.begin()
    assert called()["retention-age"][0] == "7d"
    call = {"procedure": "retention", "arguments": {"age": "8d"}, "text": "CALL …"}
    assert one.refused("call", **call)[0] == "25001"


def test_a_record_is_plain_json_that_people_can_read(catalog: TransactionalCatalog) -> None:
    said(catalog, "set", YEAR)
    [name] = catalog.lake.storage.list(FOLDER)
    record = json.loads(catalog.lake.storage.get(f"{FOLDER}/{name}") or b"")
    assert name.startswith("00000001-")
    assert (record["format"], record["settings"]["retention-age"]["value"]) == (1, "365d")
    assert record["settings"]["retention-age"]["author"] == "ada"
