"""What a catalog's options mean to Hadoop, and which of a user's own settings keep them out: pure functions."""

from __future__ import annotations

import pytest

from lockstep.storage.options import Place, hadoop_settings, place_of
from lockstep.storage.told import names_told_to_hadoop, told_to_hadoop

S3 = place_of("s3://b/lake")
GS = place_of("gs://b/lake")
AZURE = place_of("abfss://c@account.dfs.core.windows.net/lake")

OWN = "fs.s3a.bucket.b."
KEYS = {"access_key_id": "i", "secret_access_key": "s"}
ALL = [
    pytest.param(S3, {**KEYS, "session_token": "t", "endpoint": "http://h", "region": "r"}, id="s3 by keys"),
    pytest.param(S3, {"profile": "p", "virtual_hosted_style_request": "true"}, id="s3 by a profile"),
    pytest.param(S3, {"skip_signature": "true", "proxy_url": "https://ada:p@h:1"}, id="s3 through a proxy"),
    pytest.param(S3, {}, id="s3 by nothing"),
    pytest.param(GS, {"service_account": "/f", "endpoint": "http://h"}, id="gs by a file"),
    pytest.param(GS, {"skip_signature": "true"}, id="gs by nobody"),
    pytest.param(AZURE, {"account_key": "k"}, id="azure by a key"),
    pytest.param(AZURE, {"account_key": "k", "endpoint": "http://h:1/account"}, id="azure at an address"),
    pytest.param(AZURE, {"sas_key": "k"}, id="azure by SAS"),
    pytest.param(AZURE, {"client_id": "i", "client_secret": "s", "tenant_id": "t"}, id="azure by a principal"),
]


@pytest.mark.parametrize(("place", "options"), ALL)
def test_it_is_what_options_of_configure_say(place: Place, options: dict[str, str]) -> None:
    """One function translates for both, and each setting is in one group."""
    told = [pair for each in told_to_hadoop(place, options, {}) for pair in each.settings.items()]
    assert dict(told) == hadoop_settings(place, options, {})
    assert len(told) == len(dict(told))
    assert {name for name, _ in told} <= {*names_told_to_hadoop(place)}


@pytest.mark.parametrize(("place", "options"), ALL)
def test_what_is_set_keeps_out_what_says_the_same(place: Place, options: dict[str, str]) -> None:
    for each in told_to_hadoop(place, options, {}):
        assert {*each.settings} <= {*each.unless}


@pytest.mark.parametrize(
    ("place", "options", "is_set", "kept"),
    [
        pytest.param(S3, KEYS, f"{OWN}access.key", "secret.key", id="half of a bucket's keys"),
        pytest.param(S3, KEYS, "fs.s3a.access.key", "secret.key", id="keys of all buckets"),
        pytest.param(S3, KEYS, "fs.s3a.aws.credentials.provider", "access.key", id="who says the keys"),
        pytest.param(S3, KEYS, "hadoop.security.credential.provider.path", "access.key", id="a file of keys"),
        pytest.param(S3, KEYS, f"{OWN}security.credential.provider.path", "access.key", id="a bucket's file of keys"),
        pytest.param(S3, KEYS, "fs.s3a.auth.profile.name", "access.key", id="a profile"),
        pytest.param(S3, {"proxy_url": "http://a:p@h:1"}, "fs.s3a.proxy.host", "proxy.password", id="a proxy"),
        pytest.param(S3, {"endpoint": "http://h"}, "fs.s3a.endpoint", "path.style.access", id="an endpoint"),
        pytest.param(S3, {"endpoint": "http://h", "region": "r"}, f"{OWN}endpoint", "endpoint.region", id="its region"),
        pytest.param(
            S3, {"endpoint": "http://h"}, "fs.s3a.endpoint", "connection.ssl.enabled", id="and whether by TLS"
        ),
        pytest.param(GS, {"service_account": "/f"}, "fs.gs.auth.type", "json.keyfile", id="gs"),
        pytest.param(GS, {"service_account": "/f"}, "google.cloud.auth.type", "json.keyfile", id="gs, of old"),
        pytest.param(AZURE, {"sas_key": "k"}, "fs.azure.account.auth.type", "fixed.token", id="of all accounts"),
        pytest.param(AZURE, {"sas_key": "k"}, f"fs.azure.account.key.{AZURE.host}", "fixed.token", id="of the account"),
        pytest.param(
            AZURE, {"endpoint": "http://h:1/account"}, "fs.azure.abfs.endpoint", "service.type", id="azure's address"
        ),
    ],
)
def test_what_belongs_together_is_told_together(place: Place, options: dict[str, str], is_set: str, kept: str) -> None:
    """Of two users' keys, one half each is nobody's."""
    told = told_to_hadoop(place, options, {})
    out = [name for each in told if is_set in each.unless for name in each.settings]
    assert any(kept in name for name in out)


@pytest.mark.parametrize(
    ("is_set", "told"),
    [
        ("fs.s3a.access.key", {"endpoint", "endpoint.region", "path.style.access", "connection.ssl.enabled"}),
        ("fs.s3a.path.style.access", {"access.key", "secret.key", "aws.credentials.provider", "endpoint"}),
        ("fs.s3a.endpoint.region", {"access.key", "endpoint", "path.style.access"}),
        ("fs.s3a.bucket.another.endpoint", {"access.key", "endpoint"}),
    ],
)
def test_what_is_about_something_else_is_told_all_the_same(is_set: str, told: set[str]) -> None:
    options = {**KEYS, "endpoint": "http://h", "region": "r"}
    found = {name for each in told_to_hadoop(S3, options, {}) if is_set not in each.unless for name in each.settings}
    assert {f"{OWN}{name}" for name in told} <= found


@pytest.mark.parametrize(
    ("place", "options"),
    [(S3, {"role_arn": "r"}), (GS, {"bearer_token": "t"}), (AZURE, {"msi_endpoint": "m"})],
)
def test_of_what_only_lockstep_has_nothing_is_told_nor_refused(place: Place, options: dict[str, str]) -> None:
    """A catalog's are set by hand on both sides, and Spark may find keys in its environment."""
    assert told_to_hadoop(place, options, {}) == []


@pytest.mark.parametrize(
    ("place", "options", "is_set", "name", "is_told"),
    [
        pytest.param(S3, KEYS, "fs.s3a.access.key", "access.key", True, id="keys of all buckets"),
        pytest.param(S3, KEYS, "fs.s3a.aws.credentials.provider", "access.key", True, id="who says the keys of all"),
        pytest.param(S3, {"endpoint": "http://h"}, "fs.s3a.endpoint", "endpoint", True, id="an endpoint of all"),
        pytest.param(S3, {"endpoint": "http://h"}, "fs.s3a.path.style.access", "path.style.access", True, id="paths"),
        pytest.param(S3, {"endpoint": "http://h"}, f"{OWN}endpoint", "endpoint", False, id="the bucket's own"),
        pytest.param(S3, KEYS, f"{OWN}secret.key", "access.key", False, id="the bucket's own key"),
        pytest.param(S3, KEYS, "hadoop.security.credential.provider.path", "access.key", False, id="a file of keys"),
        pytest.param(AZURE, {"sas_key": "k"}, "fs.azure.account.auth.type", "fixed.token", True, id="of all accounts"),
        pytest.param(AZURE, {"sas_key": "k"}, f"fs.azure.account.key.{AZURE.host}", "fixed.token", False, id="of it"),
    ],
)
def test_what_is_set_of_all_keeps_nothing_from_a_location(
    place: Place, options: dict[str, str], is_set: str, name: str, is_told: bool
) -> None:
    """Hadoop would ask the one server for what Lockstep asks the other for, and no look there would show it."""
    groups = told_to_hadoop(place, options, {}, is_location=True)
    told = [each for group in groups if is_set not in group.unless for each in group.settings]
    assert any(each.removesuffix(f".{AZURE.host}").endswith(name) for each in told) is is_told
