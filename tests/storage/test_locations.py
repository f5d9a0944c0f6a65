"""Registered locations: which of them a place is in, what each is reached with, and that nothing else is used.

What a lake does with tables there is in `tests/unit/adoption/test_locations.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from lockstep.errors import ConfigurationError, InvalidError, UnsupportedError
from lockstep.settings import LOCATIONS_FILE
from lockstep.storage import open_storage
from lockstep.storage.locations import Location, Locations, registered, said_in, said_in_file
from lockstep.storage.outside import (
    OutsideStorage,
    around,
    check_reach,
    is_apart,
    locations_of,
    open_reaching,
    options_at,
    reaches,
)
from lockstep.storage.told import stores_of
from lockstep.storage.urls import comparable

OWN = {"region": "own"}
"""Options of the lake's own store."""

A, B = {"region": "a"}, {"region": "b", "secret_access_key": "planted"}
OUTER, INNER, LOCAL = "s3://b/warehouse", "s3://b/warehouse/deep/er", "file:///data/warehouse"
ALL = Locations((Location(OUTER, A), Location(INNER, B), Location(LOCAL)))


# --- which one a place is in ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("s3://b/warehouse", OUTER),
        ("s3://b/warehouse/t/_delta_log/0.json", OUTER),
        ("s3://b/warehouse/deep", OUTER),
        ("s3://b/warehouse/deep/er", INNER),
        ("s3://b/warehouse/deep/er/t", INNER),
        ("s3://b/warehouse/deep/erosion", OUTER),
        ("s3://b/warehouse2/t", None),
        ("s3://b", None),
        ("s3://b/", None),
        ("s3://c/warehouse/t", None),
        ("gs://b/warehouse/t", None),
        ("s3://b/Warehouse/t", None),
        ("file:///data/warehouse/t", LOCAL),
        ("file:///data/warehouses", None),
        ("file:///data", None),
    ],
)
def test_the_innermost_location_counts_by_whole_names(url: str, found: str | None) -> None:
    location = ALL.of(url)
    assert (location.url if location else None) == found
    assert Locations(ALL.places[::-1]).of(url) == location, "in whatever order they are said"


def test_a_location_shows_no_options() -> None:
    assert "planted" not in repr(ALL)
    assert "planted" not in repr(open_reaching("s3://x/lake", options=OWN, locations=ALL))


# --- what a person says -----------------------------------------------------------------------------------------------

SETTINGS = {
    "root": "/data/lake",
    "locations.archive.url": "s3://archive/warehouse",
    "locations.archive.store.endpoint": "https://h",
    "locations.archive.store.secret_access_key": "planted",
    "locations.raw_2.url": "/data/raw",
}


def test_settings_of_a_catalog_say_locations() -> None:
    said = {
        "s3://archive/warehouse": {"endpoint": "https://h", "secret_access_key": "planted"},
        "/data/raw": {},
    }
    assert said_in(SETTINGS) == (said, False)
    assert said_in(SETTINGS | {"locations-only": "TRUE"}) == (said, True)
    assert said_in({"root": "x"}) == ({}, False)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"locations.a.urls": "planted"}, r"locations\.a\.urls is no setting of a location: there are locations"),
        ({"locations.a.secret_access_key": "planted"}, r"locations\.a\.secret_access_key is no setting"),
        ({"locations.a.store.": "planted"}, r"locations\.a\.store\. is no setting"),
        ({"locations.a": "planted"}, r"locations\.a is no setting"),
        ({"locations..url": "planted"}, r"locations\.\.url is no setting"),
        ({"locations.a b.url": "planted"}, r"locations\.a b\.url is no setting"),
        ({"locations.a.store.region": "planted"}, r"location a has no folder: set locations\.a\.url"),
        ({"locations.a.url": "", "locations.a.store.region": "planted"}, "location a has no folder"),
        ({"locations.a.url": "/x", "locations.b.url": "/x"}, "location b is at the same folder as another one"),
        ({"locations-only": "yes"}, "locations-only is 'yes': expected true or false"),
    ],
)
def test_what_is_no_location_is_refused_by_name(settings: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidError, match=message) as caught:
        said_in(settings)
    assert "planted" not in caught.value.message


def test_a_file_says_the_same_by_the_names_of_the_settings(tmp_path: Path) -> None:
    file = tmp_path / "locations.toml"
    file.write_text(
        """
        locations-only = true
        locations.raw_2.url = "/data/raw"

        [locations.archive]
        url = "s3://archive/warehouse"
        store.endpoint = "https://h"
        store.secret_access_key = "planted"
        """
    )
    assert said_in_file(str(file)) == said_in(SETTINGS | {"locations-only": "true"})
    assert said_in_file("") == ({}, False)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("locations-only = tru planted", "which cannot be read: it is no TOML"),
        ("location.a.url = 'planted'", r"location\.a\.url is none of locations\.<name>\.… and locations-only"),
        ("root = 'planted'", "root is none of"),
        ("locations.a.store.secret_access_key = 'planted'", "location a has no folder"),
        (None, "which cannot be read: No such file"),
    ],
)
def test_a_file_that_says_anything_else_is_refused(text: str | None, message: str, tmp_path: Path) -> None:
    file = tmp_path / "locations.toml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(InvalidError, match=message) as caught:
        said_in_file(str(file))
    assert str(file) in caught.value.message
    assert "planted" not in caught.value.message


# --- what is registered -----------------------------------------------------------------------------------------------

S3_LAKE, LOCAL_LAKE = "s3://b/lake", "file:///data/lake"


@pytest.mark.parametrize(
    ("root", "said", "places"),
    [
        pytest.param(S3_LAKE, {"s3a://b/w/": None}, {"s3://b/w": (OWN, False)}, id="with nothing of its own"),
        pytest.param(S3_LAKE, {"s3://c/w": {}}, {"s3://c/w": (OWN, False)}, id="another bucket"),
        pytest.param(S3_LAKE, {"s3://c/w": A}, {"s3://c/w": (A, True)}, id="its own are not added to the lake's"),
        pytest.param(S3_LAKE, {"s3://c/w": OWN}, {"s3://c/w": (OWN, False)}, id="the same as the lake's"),
        pytest.param(S3_LAKE, {"gs://c/w": {}}, {"gs://c/w": ({}, True)}, id="the lake's are of another kind"),
        pytest.param(S3_LAKE, {"/data/w": {}}, {"file:///data/w": ({}, True)}, id="a disk"),
        pytest.param(LOCAL_LAKE, {"/data/w": {}}, {"file:///data/w": ({}, False)}, id="of a lake on a disk"),
        pytest.param(LOCAL_LAKE, {"file:///data/w/": {}}, {"file:///data/w": ({}, False)}, id="as a URL"),
        pytest.param(LOCAL_LAKE, {"s3://c": A}, {"s3://c": (A, True)}, id="a whole bucket"),
        pytest.param(LOCAL_LAKE, {"/data": {}}, {"file:///data": ({}, False)}, id="around the root"),
        pytest.param("hdfs://n/lake", {"hdfs://n:8020/w": {}}, {"hdfs://n/w": ({}, False)}, id="hdfs"),
        pytest.param("hdfs://n/lake", {"s3://c/w": A}, {"s3://c/w": (A, True)}, id="of a lake in hdfs"),
    ],
)
def test_what_is_registered_and_how_it_is_reached(
    root: str, said: dict[str, Any], places: dict[str, tuple[Mapping[str, str], bool]]
) -> None:
    found = registered(root, OWN if root.startswith("s3") else None, said)
    assert {each.url: (each.options, each.is_apart) for each in found.places} == places


@pytest.mark.parametrize(
    ("root", "said", "error", "message"),
    [
        (S3_LAKE, {"w": {}}, InvalidError, "it is a relative path"),
        (LOCAL_LAKE, {"/": {}}, InvalidError, "it is the whole disk"),
        (S3_LAKE, {"s3://b/lake/w": A}, InvalidError, "it is below the root s3://b/lake"),
        (S3_LAKE, {"s3://b/lake": A}, InvalidError, "it is below the root"),
        (S3_LAKE, {"s3a://c/w": A, "s3://c/w": B}, InvalidError, "it is registered twice"),
        (S3_LAKE, {"/data/w": A}, InvalidError, "only object stores have any"),
        (S3_LAKE, {"ftp://h/w": {}}, UnsupportedError, "no store for"),
        (S3_LAKE, {"s3://": {}}, InvalidError, "names no bucket"),
        (S3_LAKE, {"s3://c/a/../w": {}}, InvalidError, "not a path in this store"),
        (S3_LAKE, {"hdfs://n/w": {}}, UnsupportedError, "whose root names the same name node"),
        ("hdfs://n/lake", {"hdfs://m/w": {}}, UnsupportedError, "whose root names the same name node"),
        (S3_LAKE, {"s3://c/w": "planted"}, InvalidError, "no mapping of names to texts"),
        (S3_LAKE, {"s3://c/w": {"access_key_id": b"planted"}}, InvalidError, "no mapping of names to texts"),
    ],
)
def test_what_cannot_be_a_location_is_refused_by_name(
    root: str, said: dict[str, Any], error: type[InvalidError], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        registered(root, None, said)
    assert caught.value.message.startswith("location ")
    assert "planted" not in caught.value.message


@pytest.mark.parametrize("url", ["s3://key:planted@b/w", "s3://planted@b/w", "abfss://c:planted@a.dfs.x.net/w"])
def test_a_key_in_a_location_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(InvalidError, match="has a user or a key before its bucket") as caught:
        registered(S3_LAKE, None, {url: {}})
    assert "planted" not in caught.value.message


def test_links_of_a_location_are_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    [place] = registered(f"file://{tmp_path}/lake", None, {str(tmp_path / "link"): {}}).places
    assert place.url == f"file://{tmp_path}/real"


def test_the_environment_counts_where_nothing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be about several lakes: what is below the root of one is passed over there."""
    file = tmp_path / "locations.toml"
    file.write_text("locations-only = true\nlocations.a.url = '/data/w'\nlocations.b.url = '/data/lake/w'\n")
    monkeypatch.setenv(LOCATIONS_FILE.name, str(file))
    found = registered(LOCAL_LAKE, None)
    assert ([each.url for each in found.places], found.only) == (["file:///data/w"], True)
    assert registered(LOCAL_LAKE, None, {}) == Locations()
    assert registered(LOCAL_LAKE, None, only=True) == Locations(only=True)


# --- what a lake's store does with them -------------------------------------------------------------------------------


@pytest.fixture
def storage(tmp_path: Path) -> OutsideStorage:
    """The store of a lake that may lie nowhere but below its root and in a warehouse."""
    for name in ("lake", "warehouse", "elsewhere"):
        (tmp_path / name).mkdir()
    root = f"file://{tmp_path}/lake"
    places = registered(root, None, {f"{tmp_path}/warehouse": {}}, only=True)
    return OutsideStorage(open_storage(root), None, places)


@pytest.mark.parametrize(
    ("path", "is_reached"),
    [
        ("t/_delta_log/0.json", True),
        ("file://{}/lake/t", True),
        ("file://{}/warehouse/t", True),
        ("file://{}/warehouse2/t", False),
        ("file://{}/elsewhere/t", False),
        ("file://{}/t", False),
        ("s3://b/warehouse/t", False),
    ],
)
def test_nothing_but_the_root_and_locations_is_reached(
    path: str, is_reached: bool, storage: OutsideStorage, tmp_path: Path
) -> None:
    path = path.format(tmp_path)
    assert reaches(storage, path) == is_reached
    calls = (
        lambda: check_reach(storage, path),
        lambda: storage.get(path),
        lambda: storage.put_if_absent(f"{path}/a", b"1"),
        lambda: storage.put(f"{path}/b", b"1"),
        lambda: storage.list(path),
        lambda: [*storage.walk(path)],
        lambda: storage.delete(f"{path}/a"),
        lambda: storage.delete_all([f"{path}/b"]),
        lambda: storage.delete_folder(path),
    )
    for call in calls:
        if is_reached:
            call()
            continue
        with pytest.raises(InvalidError, match="lies neither below the lake's root") as caught:
            call()
        assert caught.value.sqlstate == "42501"
        assert path in caught.value.message


def test_what_is_in_a_location_has_its_whole_url(storage: OutsideStorage, tmp_path: Path) -> None:
    for folder in (f"file://{tmp_path}/warehouse", f"file://{tmp_path}/lake"):
        storage.put(f"{folder}/t/a", b"1")
        assert [each.path for each in storage.walk(folder)] == [f"{folder}/t/a"]
        assert storage.get(f"{folder}/t/a") == b"1"
    assert storage.get("t/a") == b"1"


@pytest.mark.parametrize("is_only", [True, False])
def test_no_link_leads_out_of_a_location(is_only: bool, tmp_path: Path) -> None:
    """Who may write there leads nobody elsewhere, as below the root; without `locations-only` neither."""
    for name in ("lake", "warehouse", "elsewhere"):
        (tmp_path / name).mkdir()
    (tmp_path / "elsewhere" / "a").write_text("secret")
    (tmp_path / "warehouse" / "t").symlink_to(tmp_path / "elsewhere")
    root = f"file://{tmp_path}/lake"
    storage = OutsideStorage(
        open_storage(root), None, registered(root, None, {f"{tmp_path}/warehouse": {}}, only=is_only)
    )
    with pytest.raises(InvalidError, match="leads out"):
        storage.get(f"file://{tmp_path}/warehouse/t/a")


@pytest.mark.parametrize("path", ["warehouse/../elsewhere/a", "warehouse//../elsewhere/a", "warehouse/./t"])
def test_parts_that_lead_out_of_a_location_are_refused(path: str, storage: OutsideStorage, tmp_path: Path) -> None:
    with pytest.raises(InvalidError):
        storage.get(f"file://{tmp_path}/{path}")


def test_other_lakes_are_opened_in_locations_alone(storage: OutsideStorage, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("elsewhere")
    other = storage.beside(f"file://{tmp_path}/warehouse")
    assert locations_of(other) == Locations(only=True), "below that root, which was the location, its own store counts"
    for name in ("elsewhere", "link"):
        with pytest.raises(InvalidError, match="lies neither below"):
            storage.beside(f"file://{tmp_path}/{name}")


def test_what_is_above_a_place_is_looked_at_all_the_same(storage: OutsideStorage, tmp_path: Path) -> None:
    """A table must not lie inside of another one, and that is told by folders that may be no location's."""
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / "_delta_log" / "0.json").touch()
    assert around(storage, f"file://{tmp_path}/warehouse/t").list(f"file://{tmp_path}/_delta_log") == ["0.json"]


@pytest.mark.parametrize(
    ("root", "url", "options"),
    [
        (S3_LAKE, "s3://b/warehouse/t", A),
        (S3_LAKE, "s3a://b/warehouse/deep/er/t", B),
        (S3_LAKE, "s3://b/lake/t", OWN),
        (S3_LAKE, "s3://c/t", OWN),
        (S3_LAKE, "gs://c/t", {}),
        (S3_LAKE, "file:///data/warehouse/t", {}),
        (LOCAL_LAKE, "s3://b/warehouse/t", A),
        (LOCAL_LAKE, "s3://c/t", {}),
    ],
)
def test_options_of_a_place_are_those_of_its_location(root: str, url: str, options: dict[str, str]) -> None:
    """No option of the lake's own store, whose keys are among them, goes to another kind of store."""
    own = OWN if root.startswith("s3") else None
    inner = open_storage(root if root.startswith("s3") else str(Path.cwd()), options=own)
    storage = OutsideStorage(inner, own, ALL)
    assert options_at(storage, url, own) == options


def test_below_the_root_its_own_store_counts_though_a_location_is_around_it(tmp_path: Path) -> None:
    root, url = f"file://{tmp_path}/lake", f"file://{tmp_path}/lake/t"
    (tmp_path / "lake").mkdir()
    local = OutsideStorage(open_storage(root), None, registered(root, None, {f"{tmp_path}": {}}))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "lake" / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidError, match="leads out"):
        local.put(f"{root}/link/a", b"1")  # by the location's store it would be inside
    local.put(f"{url}/a", b"1")
    assert local.get("t/a") == b"1"

    inner = open_storage(S3_LAKE, options=OWN)
    for places in (registered(S3_LAKE, OWN, {"s3://b": A}), registered(S3_LAKE, OWN, {"s3://b": A}, only=True)):
        storage = OutsideStorage(inner, OWN, places)
        for place, options, apart in (
            ("s3://b/lake/t", OWN, False),
            ("s3a://b/lake", OWN, False),
            ("s3://b/lakes/t", A, True),
        ):
            assert options_at(storage, place, OWN) == options
            assert is_apart(storage, place) is apart
            assert options_at(around(storage, place), "s3://b/_delta_log", OWN) == options
        assert storage._at("s3://b/lake/t/a") == (inner, "t/a", "s3://b/lake/")
        assert storage._at("s3://b/lakes/t/a")[0] is not inner


# --- what Hadoop is told ----------------------------------------------------------------------------------------------


def stores(root: str, own: Mapping[str, str], said: dict[str, Any]) -> dict[str, Mapping[str, str]]:
    return stores_of(comparable(root), own, registered(root, own, said), {})


def test_hadoop_is_told_of_each_bucket_once() -> None:
    said = {"s3://b/w": None, "s3://c/w": A, "s3://c/v": A, "/data/w": None, "s3://d/w": None}
    assert stores(S3_LAKE, OWN, said) == {S3_LAKE: OWN, "s3://c/w": A, "s3://d/w": OWN}
    assert stores(LOCAL_LAKE, {}, {"s3://c/w": A, "/data/w": None}) == {"s3://c/w": A}


ONE, OTHER = "abfss://one@acc.dfs.core.windows.net/w", "abfss://other@acc.dfs.core.windows.net/w"


@pytest.mark.parametrize(
    ("said", "names"),
    [
        ({"s3://b/w": {"region": "x"}}, "fs.s3a.bucket.b.endpoint.region"),
        ({"s3://c/w": A, "s3://c/v": B}, "fs.s3a.bucket.c.endpoint.region"),
        ({"s3://c/w": A, "s3a://c/v": A | {"access_key_id": "planted"}}, "fs.s3a.bucket.c.access.key"),
        ({"gs://c/w": {"service_account": "/planted"}, "gs://d/w": {}}, "fs.gs.auth.service.account.json.keyfile"),
        ({ONE: {"account_key": "planted"}, OTHER: {"account_key": "p"}}, "fs.azure.account.key.acc.dfs"),
    ],
)
def test_two_places_of_one_store_say_the_same_to_hadoop(said: dict[str, Any], names: str) -> None:
    with pytest.raises(ConfigurationError, match=names) as caught:
        stores(S3_LAKE, OWN, said)
    assert caught.value.sqlstate == "F0000"
    assert "planted" not in caught.value.message


def test_what_hadoop_has_nothing_for_makes_no_difference_to_it() -> None:
    assert stores(S3_LAKE, OWN, {"s3://c/w": A, "s3://c/v": A | {"timeout": "5s"}}) == {S3_LAKE: OWN, "s3://c/w": A}
