"""What a catalog's locations mean to a session: what Spark's side is told, how that is judged, and what is shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import lockstep
from lockstep.errors import ConfigurationError, InvalidError
from lockstep.settings import LOCATIONS_FILE, REDACTION
from lockstep.spark.host.host import Host
from lockstep.system.configured import HIDDEN, settings
from lockstep.system.query import Query
from lockstep.system.scope import Configured, Scope
from tests.support.client import Client, saw, usual
from tests.support.commands import lockstep as run

KEYS = {"access_key_id": "planted-id", "secret_access_key": "planted", "endpoint": "http://127.0.0.1:9"}
ARCHIVE = {"locations.archive.url": "s3://archive/warehouse"}
ARCHIVE |= {f"locations.archive.store.{key}": value for key, value in KEYS.items()}
TOLD = "fs.s3a.bucket.archive."


@pytest.fixture
def client(tmp_path: Path) -> Client:
    return Client(Host(), tmp_path / "lake")


def look(client: Client, **options: str) -> dict[str, Any]:
    """Return what the host answers first about a catalog with these options, and nothing has been looked at."""
    client.options |= options
    request = {
        "op": "tables",
        "session": "s1",
        **usual("tables", client.catalog, client.options),
        "namespace": ["default"],
    }
    answer: dict[str, Any] = json.loads(client.host.call(json.dumps(request)))
    return answer


def test_spark_is_told_of_the_stores_of_locations(client: Client, tmp_path: Path) -> None:
    """Of a local folder there is nothing to tell, and of one bucket once."""
    more = {"locations.raw.url": str(tmp_path / "raw"), "locations.too.url": "s3a://archive/more"}
    more |= {f"locations.too.store.{key}": value for key, value in KEYS.items()}
    asked = look(client, **ARCHIVE, **more)["look"]
    [beside] = asked["beside"]
    assert (beside["uri"], beside["catalog"]) == ("lockstep://head.s3a.archive/warehouse/", "lake")
    told = {name: value for group in beside["tells"] for name, value in group["settings"].items()}
    assert told[f"{TOLD}secret.key"] == "planted"
    assert told[f"{TOLD}endpoint"] == "http://127.0.0.1:9"
    assert set(told) <= set(beside["names"])
    assert (asked["tells"], asked["names"]) == ([], []), "the root is a folder"


SEEN: dict[str, Any] = {"others": {}, "untold": None, "failures": [], "message": None}


@pytest.mark.parametrize(
    ("seen", "message"),
    [
        ({"others": {f"{TOLD}endpoint": "first"}}, r"catalog lake says other options of s3a://archive/warehouse than"),
        ({"untold": "session"}, r"Spark may reach s3a://archive/warehouse.*was set by this session"),
        ({"untold": "opened"}, "Spark had opened this store before catalog lake was used"),
        (
            {"failures": ["java.lang.ClassNotFoundException"], "message": "ClassNotFoundException: S3AFileSystem"},
            "Spark has no file system for s3a://archive/warehouse.*S3AFileSystem.*with --packages org.*:hadoop-aws",
        ),
        ({}, None),
    ],
)
def test_what_came_of_it_is_judged(client: Client, seen: dict[str, Any], message: str | None) -> None:
    """Nothing is looked at in a location, so what is not known to be the same is refused."""
    asked = look(client, **ARCHIVE)["look"]
    told = saw(client.host.lakehouses, asked["root"]) | {"beside": [SEEN | seen]}
    answer = client.ask("saw_root", **told)
    if message is None:
        assert answer == {"ok": {}}
        assert "ok" in look(client)
        return
    error = answer["error"]
    assert (error["sqlstate"], error["condition"]) == ("F0000", "LOCKSTEP_CONFIGURATION")
    with pytest.raises(ConfigurationError, match=message):
        raise ConfigurationError(error["message"])
    assert "planted" not in error["message"]
    assert "look" in look(client), "it is asked again"


@pytest.mark.parametrize(
    ("options", "sqlstate", "message"),
    [
        (
            {**ARCHIVE, "locations.b.url": "s3://archive/b", "locations.b.store.region": "x"},
            "F0000",
            "s3://archive/warehouse and s3://archive/b say other options of one store",
        ),
        ({"locations.a.path": "planted"}, "22023", r"catalog lake .*locations\.a\.path is no setting of a location"),
        ({"locations.a.store.region": "planted"}, "22023", "location a has no folder"),
        ({"locations-only": "planted?"}, "22023", "locations-only is"),
        ({"location.a.url": "/planted"}, "22023", r"location\.a\.url is no setting of a catalog"),
        ({"locations.a.url": "hdfs://n/planted"}, "0A000", "whose root names the same name node"),
    ],
)
def test_locations_that_cannot_be_are_refused(
    client: Client, options: dict[str, str], sqlstate: str, message: str
) -> None:
    error = look(client, **options)["error"]
    with pytest.raises(InvalidError, match=message):
        raise InvalidError(error["message"])
    assert error["sqlstate"] == sqlstate


def test_catalogs_of_one_root_with_other_locations_share_no_lake(client: Client, tmp_path: Path) -> None:
    """Each goes by its own; else the first one's would count for all."""
    houses = client.host.lakehouses
    own = client.options
    one, same, other, only = (
        houses.opened(name, own | said).catalog.lake
        for name, said in (
            ("a", {"locations.x.url": str(tmp_path / "x")}),
            ("b", {"locations.x.url": str(tmp_path / "x")}),
            ("c", {"locations.x.url": str(tmp_path / "y")}),
            ("d", {"locations.x.url": str(tmp_path / "x"), "locations-only": "true"}),
        )
    )
    assert one is same
    assert len({one, other, only}) == 3


def test_a_session_has_no_locations_from_the_environment(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LOCATIONS_FILE.name, str(tmp_path / "none.toml"))
    assert "look" in look(client)


def test_settings_show_folders_and_no_options(client: Client) -> None:
    house = client.host.lakehouses.opened("lake", client.options | ARCHIVE)
    lake = house.catalog.lake
    configured = Configured("lake", {}, client.options | ARCHIVE, {}, {})
    rows = settings(Scope(lake, lake.refresh(), configured=configured), Query(("name", "value"))).rows
    shown = {str(name): value for name, value in rows}
    prefix = "spark.sql.catalog.lake.locations.archive."
    assert shown[f"{prefix}url"] == "s3://archive/warehouse"
    assert {shown[f"{prefix}store.{key}"] for key in KEYS} == {HIDDEN}
    assert shown["spark.sql.catalog.lake.locations-only"] == "false"


# --- from Python ------------------------------------------------------------------------------------------------------


def test_conf_sets_both_sides() -> None:
    said = {"s3://archive/warehouse": KEYS, "/data/raw": {}}
    made = lockstep.conf(root="/data/lake", locations=said, locations_only=True, jars=False)
    prefix = "spark.sql.catalog.lake.locations"
    assert made[f"{prefix}.1.url"] == "s3://archive/warehouse"
    assert made[f"{prefix}.1.store.secret_access_key"] == "planted"
    assert made[f"{prefix}.2.url"] == "/data/raw"
    assert made[f"{prefix}-only"] == "true"
    assert made[f"spark.hadoop.{TOLD}secret.key"] == "planted"
    assert REDACTION.name in made
    plain = lockstep.conf(root="/data/lake", jars=False)
    assert not [key for key in plain if "locations" in key or key == REDACTION.name]


def test_conf_refuses_two_places_of_one_bucket_that_differ() -> None:
    with pytest.raises(ConfigurationError, match=f"{TOLD}access.key"):
        lockstep.conf(root="s3://archive/lake", locations={"s3://archive/w": KEYS}, jars=False)
    with pytest.raises(InvalidError, match="role_arn: Hadoop has no such option"):
        lockstep.conf(root="/data/lake", locations={"s3://archive/w": {"role_arn": "r"}}, jars=False)


# --- the command line -------------------------------------------------------------------------------------------------


def test_the_command_line_has_locations_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, table = tmp_path / "lake", tmp_path / "warehouse" / "t"
    table.mkdir(parents=True)
    file = tmp_path / "locations.toml"
    file.write_text("locations-only = true\n")
    run("init", root)
    monkeypatch.setenv(LOCATIONS_FILE.name, str(file))
    adopt = ("adopt", root, table, "--table", "t", "--yes")
    assert "nor in a location that is registered" in run(*adopt).output
    file.write_text(f"locations-only = true\nlocations.w.url = '{table.parent}'\n")
    assert "it is no Delta table" in run(*adopt).output
