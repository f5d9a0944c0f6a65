"""What an arbiter's record means, who may write to which lake, and how an arbiter is named: tables of cases."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lockstep.arbiters import Arbiter, Decision, Mark, arbiter_of
from lockstep.arbiters.address import Address, address_of
from lockstep.catalog import TransactionalCatalog
from lockstep.errors import CorruptTimelineError, InvalidError, LockstepError, UnsupportedError
from lockstep.spark.configuration import conf
from lockstep.storage import open_storage
from lockstep.timeline.arbitration import judge, refusal
from lockstep.timeline.entry import ARBITER_FORMAT, Arbitrated
from lockstep.timeline.files import decode, encode, entry_path
from lockstep.timeline.fold import apply
from tests.support.arbitrated import make_namespace
from tests.support.entries import entry
from tests.support.lakes import open_catalog
from tests.support.recorded import Recorded, Server

BEFORE = Mark("lake", 7, "seven")
WANTED = Decision("lake", 8, 9, "ours")


@pytest.mark.parametrize(
    ("found", "means"),
    [
        pytest.param(Decision("lake", 8, 9, "ours"), "ours", id="an earlier request was carried out"),
        pytest.param(Decision("lake", 8, 8, "other"), "theirs", id="another client was first"),
        pytest.param(Decision("lake", 12, 12, "later"), "passed", id="others went on"),
        pytest.param(Decision("lake", 7, 7, "seven"), "again", id="an operator has set it back meanwhile"),
        pytest.param(Decision("lake", 5, 7, "seven"), "again", id="a file of several, which ends there"),
        pytest.param(None, "lost what it had", id="flushed"),
        pytest.param(Decision("lake", 3, 3, "three"), "behind the store, which has 7", id="an old backup"),
        pytest.param(Decision("lake", 7, 7, "another"), "another database version 7", id="a fork"),
        pytest.param(Decision("lake", 7, 8, "another"), "another database version 8", id="a fork of a group"),
        pytest.param(Decision("other", 8, 9, "x"), "another lake", id="another lake, where ours is"),
        pytest.param(Decision("other", 7, 7, "seven"), "another lake", id="another lake, as far as ours"),
    ],
)
def test_what_an_arbiter_has_instead_of_a_decision(found: Decision | None, means: str) -> None:
    assert means in judge(found, BEFORE, WANTED)


@pytest.mark.parametrize(
    ("found", "means"),
    [
        pytest.param(Decision("new", 0, 0, "ours"), "ours", id="an earlier request"),
        pytest.param(Decision("rival", 0, 0, "other"), "theirs", id="another one makes the lake at once"),
        pytest.param(Decision("old", 5, 5, "five"), "elsewhere", id="a lake that was lost, or lies in another store"),
        pytest.param(None, "lost what it had", id="flushed between two requests"),
    ],
)
def test_what_an_arbiter_has_when_a_lake_is_made(found: Decision | None, means: str) -> None:
    assert means in judge(found, None, Decision("new", 0, 0, "ours"))


def given(text: str | None, monkeypatch: pytest.MonkeyPatch, *, by_environment: bool = False) -> Arbiter | None:
    monkeypatch.delenv("LOCKSTEP_ARBITER", raising=False)
    if by_environment and text is not None:
        monkeypatch.setenv("LOCKSTEP_ARBITER", text)
        return arbiter_of(None, "file:///lake")
    return arbiter_of(text, "file:///lake")


VALKEY = "valkey://host/0?prefix=lockstep"


@pytest.mark.parametrize(
    ("of_lake", "told", "by_environment", "why"),
    [
        (None, None, False, ""),
        (None, VALKEY, False, "has no arbiter"),
        (None, VALKEY, True, ""),
        (("valkey", "lockstep"), VALKEY, False, ""),
        (("valkey", "lockstep"), VALKEY, True, ""),
        (("valkey", "lockstep"), "rediss://elsewhere:1/3", False, ""),
        (("valkey", "lockstep"), None, False, "is told to use none"),
        (("valkey", "lockstep"), "valkey://host?prefix=other", False, "is told to use another one"),
        (("valkey", "lockstep"), "dynamodb://lockstep?region=eu-west-1", False, "is told to use another one"),
        (("raft", "lockstep"), VALKEY, False, "is told to use another one"),
    ],
)
def test_who_may_write_to_a_lake(
    of_lake: tuple[str, str] | None, told: str | None, by_environment: bool, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = None if of_lake is None else Arbitrated(kind=of_lake[0], name=of_lake[1])
    said = refusal(name, given(told, monkeypatch, by_environment=by_environment), "file:///lake")
    assert (why in said) if why else not said


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("valkey://host", Address("valkey", "lockstep", host="host")),
        ("redis://host:1/2?prefix=x", Address("valkey", "x", host="host", port=1, database=2)),
        ("rediss://host:1", Address("valkey", "lockstep", host="host", port=1, is_encrypted=True)),
        ("dynamodb://My_Table.1-x", Address("dynamodb", "My_Table.1-x")),
        (
            "dynamodb://t?region=eu-west-1&endpoint=http://127.0.0.1:8000",
            Address("dynamodb", "t", region="eu-west-1", endpoint="http://127.0.0.1:8000"),
        ),
    ],
)
def test_how_an_arbiter_is_named(text: str, address: Address) -> None:
    assert address_of(text) == address


@pytest.mark.parametrize(
    "text",
    [
        "",
        "host:6379",
        "http://host",
        "valkey://",
        "valkey:///0",
        "valkey://host:port",
        "valkey://host/x",
        "valkey://host?prefix=",
        "valkey://host?region=x",
        "valkey://host?prefix=a&prefix=b",
        "valkey://host#x",
        "dynamodb://table/x",
        "dynamodb://table:1",
        "dynamodb://",
        "valkey://ada:hunter2@host",
        "valkey://:hunter2@host/0?prefix=x",
        "dynamodb://hunter2@table",
        "dynamodb://table?endpoint=http://ada:hunter2@host",
        "dynamodb://table?endpoint=http://ada:hunter2%40host:8000/",
        "dynamodb://table?region=hunter2@x",
        "valkey://host?password=hunter2",
        "valkey://host:hunter2",
        "hunter2",
    ],
)
def test_what_names_no_arbiter_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(InvalidError) as refused:
        address_of(text)
    assert "hunter2" not in str(refused.value)


ARBITER = Arbitrated(kind="valkey", name="lockstep")


def test_entry_0_says_who_decides_and_older_locksteps_are_told_so_by_its_format() -> None:
    first = entry(0, format=ARBITER_FORMAT, arbiter=ARBITER)
    assert decode(encode(first), 0) == first
    with pytest.raises(CorruptTimelineError, match="format 1, expected 6"):
        decode(encode(entry(0, arbiter=ARBITER)), 0)


def test_no_later_entry_names_an_arbiter() -> None:
    later = entry(1, format=ARBITER_FORMAT, arbiter=ARBITER)
    with pytest.raises(CorruptTimelineError, match="names an arbiter"):
        apply(apply(None, entry(0)), later)


def test_a_sessions_settings_name_an_arbiter_and_no_password() -> None:
    settings = conf(root="/lake", catalog="bank", arbiter=VALKEY, jars=False)
    assert settings["spark.sql.catalog.bank.arbiter"] == VALKEY
    assert not [key for key in conf(root="/lake", jars=False) if "arbiter" in key]
    with pytest.raises(InvalidError, match="LOCKSTEP_ARBITER_PASSWORD"):
        conf(root="/lake", arbiter="valkey://:hunter2@host", jars=False)


@pytest.mark.parametrize(
    ("text", "module", "extra"), [(VALKEY, "redis", "redis"), ("dynamodb://t", "boto3", "dynamodb")]
)
def test_without_its_client_an_arbiter_is_refused(
    text: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, module, None)
    with pytest.raises(UnsupportedError, match=rf"pip install 'lockstep-delta\[{extra}\]'"):
        arbiter_of(text, str(Path("/lake")))


@pytest.mark.parametrize(
    ("text", "without", "why"),
    [
        ("nonsense", None, "is no address"),
        ("valkey://:hunter2@host", None, "LOCKSTEP_ARBITER_PASSWORD"),
        (VALKEY, "redis", r"pip install 'lockstep-delta\[redis\]'"),
        ("dynamodb://t?region=eu-west-1", "boto3", r"pip install 'lockstep-delta\[dynamodb\]'"),
        ("dynamodb://t", None, "has no region"),
    ],
)
def test_what_the_environment_says_stops_no_lake_that_has_no_arbiter(
    text: str, without: str | None, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, arbitrated = str(tmp_path / "lake"), str(tmp_path / "arbitrated")
    TransactionalCatalog.open(root, create=True)
    named = arbiter_named(text)
    open_catalog(open_storage(arbitrated, create=True), arbiter=Recorded(Server(), kind=named[0], name=named[1]))
    for variable in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("LOCKSTEP_ARBITER", text)
    if without is not None:  # nor what other tests have imported of it
        for module in [each for each in sys.modules if each.startswith(f"{without}.")]:
            monkeypatch.delitem(sys.modules, module)
        monkeypatch.setitem(sys.modules, without, None)
    assert make_namespace(TransactionalCatalog.open(root), "a") == 1
    reader = TransactionalCatalog.open(arbitrated)
    assert reader.database().version == 0
    with pytest.raises(LockstepError, match=why) as refused:
        make_namespace(reader, "b")
    with pytest.raises(LockstepError, match=why):
        TransactionalCatalog.open(str(tmp_path / "new"), create=True)
    assert not (tmp_path / "new" / entry_path(0)).exists()
    assert "hunter2" not in str(refused.value)


def arbiter_named(text: str) -> tuple[str, str]:
    """Return the kind and the name of what a setting names; any, if that is none."""
    try:
        address = address_of(text)
    except InvalidError:
        return "valkey", "lockstep"
    return address.kind, address.name


def test_no_client_is_made_for_a_lake_that_has_no_arbiter(tmp_path: Path) -> None:
    """boto3 takes half a second to import."""
    program = (
        "import sys; from lockstep.catalog import TransactionalCatalog as Catalog;"
        f"Catalog.open({str(tmp_path / 'lake')!r});"
        "assert not {'boto3', 'redis'} & sys.modules.keys(), 'imported'"
    )
    TransactionalCatalog.open(str(tmp_path / "lake"), create=True)
    for text in (VALKEY, "dynamodb://t?region=eu-west-1"):
        environment = {**os.environ, "LOCKSTEP_ARBITER": text, "PYTHONPATH": os.pathsep.join(sys.path)}
        subprocess.run([sys.executable, "-c", program], check=True, env=environment)
