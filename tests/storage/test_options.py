"""What both sides of a session make of one set of options: tables of cases, and a session's settings."""

from __future__ import annotations

import os
import re
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from werkzeug.serving import make_server

import lockstep
from lockstep.errors import InvalidError, UnavailableError, UnsupportedError
from lockstep.storage import Mine, open_storage
from lockstep.storage.options import (
    Obstore,
    Place,
    endpoint_of,
    hadoop_settings,
    obstore_settings,
    of_environment,
    place_of,
)
from lockstep.tables.by_deltalake import options_of
from tests.support.proxy import Proxy
from tests.support.s3 import moto, serving

S3 = Place("s3", "b", "lake")
GS = Place("gs", "b", "lake")
HOST = "acc.dfs.core.windows.net"
AZURE = Place("azure", "c", "lake", HOST)

KEY = "aws_endpoint_url_s3"
"""The option that goes before all other endpoints, in obstore's order."""

VIRTUAL = "aws_virtual_hosted_style_request"

ACCOUNT = {"account_name": "acc", "use_emulator": "false"}
BLOBS = "https://acc.blob.core.windows.net"


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("s3://b/lake", S3),
        ("s3a://b/lake/", S3),
        ("s3://b", Place("s3", "b", "")),
        ("gs://b//lake", GS),
        (f"abfss://c@{HOST}/lake", AZURE),
        (f"abfs://c@{HOST}", Place("azure", "c", "", HOST)),
    ],
)
def test_where_a_url_is(url: str, place: Place) -> None:
    assert place_of(url) == place


@pytest.mark.parametrize(
    ("url", "error", "message"),
    [
        ("gs:///lake", InvalidError, "names no bucket: write gs://bucket/prefix"),
        ("abfss://c/lake", InvalidError, "names no container of an account: write abfss://container@account.dfs"),
        (f"abfss://@{HOST}/lake", InvalidError, "names no container"),
        ("s3://b/../lake", InvalidError, "is not a path"),
        ("az://c/lake", UnsupportedError, "does not say which account: write abfss://"),
        ("viewfs://host/lake", UnsupportedError, "the hdfs:// URL that the mount leads to"),
        ("wasb://c@acc/lake", UnsupportedError, "use a local path, file://, s3://, s3a://, gs://, abfss:// or hdfs://"),
    ],
)
def test_urls_that_are_none(url: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        place_of(url)


@pytest.mark.parametrize(
    ("place", "options", "environment", "settings"),
    [
        pytest.param(S3, {}, {}, Obstore({}, "", ""), id="nothing"),
        pytest.param(S3, {"REGION": "x"}, {}, Obstore({"region": "x"}, "", ""), id="capitals"),
        pytest.param(
            S3,
            {},
            {"AWS_ENDPOINT_URL": "http://h/", "AWS_ENDPOINT": "http://other"},
            Obstore({KEY: "http://h", "allow_http": "true"}, "", "http://h"),
            id="environment",
        ),
        pytest.param(
            S3, {}, {"AWS_ENDPOINT": "https://h"}, Obstore({KEY: "https://h"}, "", "https://h"), id="an old variable"
        ),
        pytest.param(
            S3,
            {"endpoint": "https://h", "aws_endpoint_url": "https://h/"},
            {},
            Obstore({KEY: "https://h"}, "", "https://h"),
            id="said twice",
        ),
        pytest.param(S3, {"aws_bucket": "b"}, {}, Obstore({}, "", ""), id="what the URL says"),
        pytest.param(
            GS, {}, {"GOOGLE_BASE_URL": "https://h"}, Obstore({"base_url": "https://h"}, "", "https://h"), id="gs's own"
        ),
        pytest.param(
            S3,
            {"aws_endpoint": "https://h"},
            {"AWS_ENDPOINT_URL_S3": "http://other"},
            Obstore({KEY: "https://h"}, "", "https://h"),
            id="an option goes before the environment",
        ),
        pytest.param(
            S3,
            {"endpoint": "HTTP://H:9000/"},
            {},
            Obstore({KEY: "http://H:9000", "allow_http": "true"}, "", "http://H:9000"),
            id="a scheme in capitals",
        ),
        pytest.param(S3, {"profile": "p"}, {}, Obstore({}, "", "", "p"), id="profile"),
        pytest.param(S3, {"ca_certificate": "/c.pem"}, {}, Obstore({}, "/c.pem", ""), id="certificate"),
        pytest.param(
            GS,
            {"endpoint": "http://h"},
            {},
            Obstore({"base_url": "http://h", "allow_http": "true"}, "", "http://h"),
            id="gs",
        ),
        pytest.param(GS, {}, {"AWS_ENDPOINT_URL": "http://h"}, Obstore({}, "", ""), id="gs is not aws"),
        pytest.param(
            AZURE,
            {"account_key": "k", "azure_storage_account_name": "acc"},
            {},
            Obstore({"account_key": "k", **ACCOUNT, "endpoint": BLOBS}, "", BLOBS),
            id="azure",
        ),
        pytest.param(
            AZURE,
            {},
            {"AZURE_ENDPOINT": "https://other", "AZURE_STORAGE_ENDPOINT": "https://h"},
            Obstore({**ACCOUNT, "endpoint": "https://h"}, "", "https://h"),
            id="azure's own",
        ),
        pytest.param(
            Place("azure", "c", "", "acc.dfs.core.chinacloudapi.cn"),
            {},
            {},
            Obstore(
                {**ACCOUNT, "endpoint": "https://acc.blob.core.chinacloudapi.cn"},
                "",
                "https://acc.blob.core.chinacloudapi.cn",
            ),
            id="another azure",
        ),
        *(
            pytest.param(
                Place("azure", "c", "", host),
                {},
                {},
                Obstore({**ACCOUNT, "endpoint": f"https://{blobs}"}, "", f"https://{blobs}"),
                id=host,
            )
            for host, blobs in [
                ("acc.z01.dfs.storage.azure.net", "acc.z01.blob.storage.azure.net"),
                ("acc.blob.core.windows.net", "acc.blob.core.windows.net"),
                ("acc", "acc.blob.core.windows.net"),
                ("acc.example.org", "acc.blob.example.org"),
            ]
        ),
        pytest.param(
            S3,
            {"aws_virtual_hosted_style_request": "on", "endpoint": "http://10.0.0.1:9000"},
            {},
            Obstore({KEY: "http://10.0.0.1:9000", VIRTUAL: "false", "allow_http": "true"}, "", "http://10.0.0.1:9000"),
            id="a host that is a number has no buckets below it",
        ),
        pytest.param(
            S3,
            {"virtual_hosted_style_request": "true"},
            {},
            Obstore({VIRTUAL: "true"}, "", ""),
            id="Amazon's own hosts",
        ),
        pytest.param(
            S3,
            {"virtual_hosted_style_request": "no", "endpoint": "https://b.h"},
            {"AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true"},
            Obstore({KEY: "https://b.h", VIRTUAL: "false"}, "", "https://b.h"),
            id="an option goes before the variable: the bucket in the path",
        ),
    ],
)
def test_what_obstore_is_told(
    place: Place, options: dict[str, str], environment: dict[str, str], settings: Obstore
) -> None:
    assert obstore_settings(place, options, environment) == settings
    assert endpoint_of(place, options, environment) in {settings.endpoint, ""}


@pytest.mark.parametrize(
    ("place", "options", "message"),
    [
        (S3, {"endpoint": "http://one", "aws_endpoint": "http://two"}, "more than one endpoint"),
        (S3, {"bucket": "other"}, "another one than the URL says"),
        (AZURE, {"azure_storage_account_name": "other"}, "another one than the URL says"),
        (AZURE, {"container_name": "other"}, "another one than the URL says"),
        (AZURE, {"use_emulator": "true"}, "give its address as `endpoint`"),
        (S3, {"endpoint": "https://user:planted@h"}, "is no address"),
        (S3, {"virtual_hosted_style_request": "planted"}, "is neither true nor false"),
    ],
)
def test_options_that_say_two_things(place: Place, options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidError, match=message) as caught:
        obstore_settings(place, options, {})
    assert "planted" not in caught.value.message


@contextmanager
def listening() -> Iterator[tuple[str, list[str]]]:
    """Answer every request by 403; the endpoint, and the paths that were asked for."""
    asked: list[str] = []

    def refusing(environ: Any, start_response: Any) -> Any:
        asked.append(environ["PATH_INFO"])
        start_response("403 Forbidden", [])
        return [b""]

    http = make_server("127.0.0.1", 0, refusing)
    thread = threading.Thread(target=http.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{http.server_port}", asked
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


S3_URL, AZURE_URL = "s3://b/lake", f"abfss://c@{HOST}/lake"
S3_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
AZURE_VARIABLES = ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT", "AZURE_STORAGE_USE_EMULATOR")


@pytest.mark.parametrize(
    ("url", "options", "variables"),
    [
        *((S3_URL, (option,), S3_VARIABLES) for option in ("endpoint", "aws_endpoint_url", "AWS_ENDPOINT_URL_S3")),
        *((S3_URL, (), S3_VARIABLES[first:]) for first in range(3)),
        (S3_URL, ("endpoint",), ("AWS_BUCKET",)),
        (AZURE_URL, ("endpoint",), AZURE_VARIABLES),
        *((AZURE_URL, (), AZURE_VARIABLES[first:]) for first in range(2)),
        ("gs://b/lake", ("endpoint",), ("GOOGLE_BASE_URL",)),
        ("gs://b/lake", (), ("GOOGLE_BASE_URL",)),
    ],
)
def test_requests_go_where_the_address_says(
    url: str, options: tuple[str, ...], variables: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And where Spark's side is sent: the first that says something, of options and then of variables, in this order.

    All others name a port where nobody answers.
    """
    for name in [name for name in os.environ if name.startswith(("AWS_", "AZURE_", "GOOGLE_"))]:
        monkeypatch.delenv(name)
    keys = {"s3": {"access_key_id": "a", "secret_access_key": "b"}, "gs": {"bearer_token": "t"}}
    with listening() as (endpoint, asked):
        for number, name in enumerate(variables):
            heeded = endpoint if number == 0 and not options else "http://127.0.0.1:1"
            monkeypatch.setenv(name, "true" if "EMULATOR" in name else heeded)
        addresses = dict.fromkeys(options, endpoint)
        all_options = addresses | keys.get(url[:2], {"account_key": "a2V5"})
        store = open_storage(url, options=all_options)
        with pytest.raises(UnavailableError, match="403"):
            store.put_if_absent("x", b"1")
        assert asked
        assert store.address == f"{url} at {endpoint}"
        of_hadoop = hadoop_settings(place_of(url), addresses, of_environment())
        told = {value.rstrip("/") for key, value in of_hadoop.items() if key.endswith((".endpoint", "root.url"))}
        assert told == (set() if url == AZURE_URL else {endpoint})


B = "fs.s3a.bucket.b."
SIMPLE = "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"
CLIENT_CREDENTIALS = "org.apache.hadoop.fs.azurebfs.oauth2.ClientCredsTokenProvider"
KEYS = {f"{B}access.key": "id", f"{B}secret.key": "s", f"{B}aws.credentials.provider": SIMPLE}


@pytest.mark.parametrize(
    ("place", "options", "environment", "settings"),
    [
        pytest.param(S3, {}, {"AWS_REGION": "eu-west-1"}, {}, id="all from the environment, as S3A does itself"),
        pytest.param(S3, {"access_key_id": "id", "secret_access_key": "s"}, {}, KEYS, id="keys"),
        pytest.param(S3, {"AWS_ACCESS_KEY_ID": "id", "aws_secret_access_key": "s"}, {}, KEYS, id="with prefixes"),
        pytest.param(
            S3,
            {"access_key_id": "id", "secret_access_key": "s", "session_token": "t"},
            {},
            {
                **KEYS,
                f"{B}session.token": "t",
                f"{B}aws.credentials.provider": "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider",
            },
            id="session token",
        ),
        pytest.param(
            S3,
            {"endpoint": "http://h:9000", "region": "us-east-1"},
            {},
            {
                f"{B}endpoint": "http://h:9000",
                f"{B}endpoint.region": "us-east-1",
                f"{B}path.style.access": "true",
                f"{B}connection.ssl.enabled": "false",
            },
            id="endpoint",
        ),
        pytest.param(
            S3,
            {"virtual_hosted_style_request": "true"},
            {"AWS_ENDPOINT_URL": "https://h", "AWS_DEFAULT_REGION": "r"},
            {f"{B}endpoint": "https://h", f"{B}endpoint.region": "r", f"{B}path.style.access": "false"},
            id="endpoint of the environment, virtual hosts",
        ),
        pytest.param(
            S3,
            {"proxy_url": "http://u:p@proxy:3128"},
            {},
            {
                f"{B}proxy.host": "proxy",
                f"{B}proxy.port": "3128",
                f"{B}proxy.ssl.enabled": "false",
                f"{B}proxy.username": "u",
                f"{B}proxy.password": "p",
            },
            id="proxy",
        ),
        pytest.param(
            S3,
            {"proxy_url": "https://a%40b:p%2F%25@proxy"},
            {},
            {
                f"{B}proxy.host": "proxy",
                f"{B}proxy.port": "443",
                f"{B}proxy.ssl.enabled": "true",
                f"{B}proxy.username": "a@b",
                f"{B}proxy.password": "p/%",
            },
            id="a proxy whose user and password are encoded, as in all URLs",
        ),
        pytest.param(
            S3,
            {"proxy_url": "proxy:3128"},
            {},
            {f"{B}proxy.host": "proxy", f"{B}proxy.port": "3128", f"{B}proxy.ssl.enabled": "false"},
            id="a proxy without a scheme, as obstore takes it",
        ),
        pytest.param(
            S3,
            {"profile": "p"},
            {},
            {
                f"{B}auth.profile.name": "p",
                f"{B}aws.credentials.provider": "org.apache.hadoop.fs.s3a.auth.ProfileAWSCredentialsProvider",
            },
            id="profile",
        ),
        pytest.param(
            S3,
            {"skip_signature": "true"},
            {},
            {f"{B}aws.credentials.provider": "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"},
            id="no signature",
        ),
        pytest.param(
            GS, {"skip_signature": "YES"}, {}, {"fs.gs.auth.type": "UNAUTHENTICATED"}, id="yes in other words"
        ),
        pytest.param(S3, {"timeout": "10s", "ca_certificate": "/c"}, {}, {}, id="what Hadoop has nothing for"),
        pytest.param(
            GS,
            {"service_account": "/key.json", "endpoint": "http://h"},
            {},
            {
                "fs.gs.storage.root.url": "http://h/",
                "fs.gs.auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE",
                "fs.gs.auth.service.account.json.keyfile": "/key.json",
            },
            id="gs",
        ),
        pytest.param(
            AZURE,
            {"account_key": "k"},
            {},
            {f"fs.azure.account.auth.type.{HOST}": "SharedKey", f"fs.azure.account.key.{HOST}": "k"},
            id="azure by key",
        ),
        pytest.param(
            AZURE,
            {"azure_storage_sas_key": "sig"},
            {},
            {f"fs.azure.account.auth.type.{HOST}": "SAS", f"fs.azure.sas.fixed.token.{HOST}": "sig"},
            id="azure by SAS",
        ),
        pytest.param(
            AZURE,
            {"client_id": "i", "client_secret": "s", "tenant_id": "t"},
            {},
            {
                f"fs.azure.account.auth.type.{HOST}": "OAuth",
                f"fs.azure.account.oauth.provider.type.{HOST}": CLIENT_CREDENTIALS,
                f"fs.azure.account.oauth2.client.id.{HOST}": "i",
                f"fs.azure.account.oauth2.client.secret.{HOST}": "s",
                f"fs.azure.account.oauth2.client.endpoint.{HOST}": "https://login.microsoftonline.com/t/oauth2/token",
            },
            id="azure by a principal",
        ),
        pytest.param(
            AZURE,
            {"master_key": "k"},
            {},
            {f"fs.azure.account.auth.type.{HOST}": "SharedKey", f"fs.azure.account.key.{HOST}": "k"},
            id="azure by a key of another name",
        ),
        pytest.param(AZURE, {}, {}, {}, id="azure by nothing"),
        pytest.param(
            AZURE,
            {"endpoint": "http://127.0.0.1:10000/acc/"},
            {},
            {
                f"fs.azure.abfs.endpoint.{HOST}": "127.0.0.1:10000",
                f"fs.azure.account.hns.enabled.{HOST}": "false",
                f"fs.azure.fns.account.service.type.{HOST}": "BLOB",
                f"fs.azure.networking.library.{HOST}": "JDK_HTTP_URL_CONNECTION",
            },
            id="azure's emulator",
        ),
        pytest.param(
            AZURE,
            {},
            {"AZURE_STORAGE_ENDPOINT": "https://azure.example/acc"},
            {
                f"fs.azure.abfs.endpoint.{HOST}": "azure.example:443",
                f"fs.azure.account.hns.enabled.{HOST}": "false",
                f"fs.azure.fns.account.service.type.{HOST}": "BLOB",
            },
            id="azure's emulator, of the environment and by TLS",
        ),
        *(
            pytest.param(
                place, {"endpoint": endpoint}, {}, {}, id=f"an address that abfs has no setting for: {endpoint}"
            )
            for place, endpoint in [
                (AZURE, "https://acc.blob.core.windows.net"),
                (AZURE, "http://127.0.0.1:10000/other"),
                (AZURE, "http://127.0.0.1:10000/acc/c"),
                (AZURE, "http://[::1]:10000/acc"),
                (Place("azure", "c", "lake", "acc.blob.core.windows.net"), "http://127.0.0.1:10000/acc"),
            ]
        ),
    ],
)
def test_what_hadoop_is_told(
    place: Place, options: dict[str, str], environment: dict[str, str], settings: dict[str, str]
) -> None:
    assert hadoop_settings(place, options, environment) == settings


@pytest.mark.parametrize("url", ["http://user:planted/x@proxy:3128", "http://[planted", "http://planted:x", "http://"])
def test_a_proxy_that_is_no_address(url: str) -> None:
    """In the address may be a password, of which neither the message nor its causes tell a part."""
    with pytest.raises(InvalidError, match="proxy_url is no address") as caught:
        hadoop_settings(S3, {"proxy_url": url}, {})
    assert "planted" not in "".join(traceback.format_exception(caught.value, chain=True)).partition("InvalidError")[2]
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None or caught.value.__suppress_context__


@pytest.mark.parametrize("endpoint", ["http://store.invalid:9000", "http://b.store.invalid:9000/"])
@pytest.mark.parametrize("how", ["option", "variable"])
def test_where_the_bucket_is_in_the_hosts_name(endpoint: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """To both sides; obstore adds it to no endpoint: `lake`, which is a folder, was taken for the bucket."""
    name, keys = "AWS_VIRTUAL_HOSTED_STYLE_REQUEST", {"access_key_id": "i", "secret_access_key": "s", "region": "r"}
    monkeypatch.delenv(name, raising=False)
    options = {**keys, "endpoint": endpoint}
    if how == "option":
        options["virtual_hosted_style_request"] = "Yes"
    else:
        monkeypatch.setenv(name, "true")
    with listening() as (address, _), Proxy(address) as proxy:
        store = open_storage(S3_URL, options={**options, "proxy_url": proxy.url})
        with pytest.raises(UnavailableError):
            store.get("a")
        with pytest.raises(OSError, match="403"):
            DeltaTable(f"{S3_URL}/t", storage_options=options_of(S3_URL, {**options, "proxy_url": proxy.url}))
        asked = {target.partition("?")[0].rstrip("/") for _, target in proxy.requests}
    assert "http://b.store.invalid:9000/lake/a" in asked
    assert all(each.startswith("http://b.store.invalid:9000") for each in asked)
    told = hadoop_settings(S3, options, of_environment())
    assert told[f"{B}endpoint"] == "http://store.invalid:9000"
    assert told[f"{B}path.style.access"] == "false"


@pytest.mark.parametrize(
    ("url", "options", "named"),
    [
        (
            S3_URL,
            {"AWS_ACCESS_KEY_ID": "i", "aws_secret_access_key": "s", "region": "r", "endpoint_url_s3": "http://h/"},
            {
                "aws_access_key_id": "i",
                "aws_secret_access_key": "s",
                "aws_region": "r",
                "aws_endpoint": "http://h",
                "aws_allow_http": "true",
            },
        ),
        (S3_URL, {"profile": "p"}, {"aws_profile": "p"}),
        (
            "gs://b/lake",
            {"endpoint": "https://h", "skip_signature": "true"},
            {"base_url": "https://h", "skip_signature": "true"},
        ),
        ("file:///lake", {}, None),
    ],
)
def test_options_by_any_of_their_names_reach_delta_rs(
    url: str, options: dict[str, str], named: dict[str, str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It passes over names that it does not know, and asks with the keys of the environment then, or another server."""
    for name in (*S3_VARIABLES, "GOOGLE_BASE_URL", "AWS_VIRTUAL_HOSTED_STYLE_REQUEST"):
        monkeypatch.delenv(name, raising=False)
    assert options_of(url, options) == named


@pytest.mark.parametrize(
    ("place", "options"),
    [
        (S3, {"web_identity_token_file": "planted", "aws_role_arn": "planted"}),
        (S3, {"container_credentials_relative_uri": "planted"}),
        (GS, {"bearer_token": "planted"}),
        (GS, {"google_service_account_key": "planted", "endpoint": "http://h"}),
        (AZURE, {"msi_endpoint": "planted"}),
        (AZURE, {"azure_client_id": "planted"}),
        (AZURE, {"azure_storage_token": "planted"}),
        (AZURE, {"use_azure_cli": "true"}),
        (AZURE, {"federated_token_file": "planted", "client_id": "i", "tenant_id": "t"}),
    ],
)
def test_keys_that_only_lockstep_would_have_are_refused_by_name(place: Place, options: dict[str, str]) -> None:
    """Spark would ask with other keys, or none: the first statement would fail, or meet another account's objects."""
    with pytest.raises(InvalidError, match="so Spark would ask the store with other keys") as caught:
        hadoop_settings(place, options, {})
    assert all(name in caught.value.message for name in options if name not in ("tenant_id", "endpoint"))
    assert "planted" not in caught.value.message
    both = {"s3": {"access_key_id": "i"}, "gs": {"service_account": "/f"}, "azure": {"sas_token": "t"}}[place.kind]
    assert hadoop_settings(place, options | both, {}), "with keys for both, the others may be there, too"


def test_a_session_tells_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    """`lockstep.conf` writes each option twice: for Lockstep's requests and for Spark's."""
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    options = {"endpoint": "http://h", "access_key_id": "id", "secret_access_key": "s"}
    settings = lockstep.conf(root="s3://b/lake", options=options, jars=False)
    assert settings["spark.sql.catalog.lake.store.endpoint"] == "http://h"
    assert settings["spark.hadoop.fs.s3a.bucket.b.endpoint"] == "http://h"
    assert settings["spark.hadoop.fs.s3a.bucket.b.access.key"] == "id"
    assert not any(key.startswith("spark.hadoop.fs.s3a") for key in lockstep.conf(root="/lake", jars=False))


@pytest.mark.parametrize(
    ("url", "options"),
    [
        (S3_URL, {"access_key_id": "planted", "secret_access_key": "planted", "session_token": "planted"}),
        (S3_URL, {"proxy_url": "http://user:planted@h"}),
        (AZURE_URL, {"account_key": "planted"}),
        (AZURE_URL, {"azure_storage_sas_key": "planted"}),
        (AZURE_URL, {"client_id": "i", "client_secret": "planted", "tenant_id": "t"}),
        ("gs://b/lake", {"service_account": "planted"}),
    ],
)
def test_spark_is_told_to_hide_each_setting_with_a_key(url: str, options: dict[str, str]) -> None:
    settings = lockstep.conf(root=url, options=options, jars=False)
    hidden = re.compile(settings.pop("spark.redaction.regex"))
    shown = {key: value for key, value in settings.items() if not hidden.search(key)}
    assert "planted" not in str(shown)
    assert "spark.redaction.regex" not in lockstep.conf(root=url, jars=False), "Spark's own is for Spark to choose"


def test_what_the_user_has_hidden_stays_hidden() -> None:
    builder = SparkSession.builder.config("spark.redaction.regex", "mine|yours")
    builder = lockstep.configure(builder, root=S3_URL, options={"access_key_id": "i"})
    said = builder._options["spark.redaction.regex"]
    assert all(re.search(said, name) for name in ("is.mine", "is.yours", "store.sas_key", "A.Password"))
    assert not re.search(said, "spark.app.name")


def test_keys_of_options_alone_are_kept_from_the_command_line_of_java() -> None:
    """PySpark starts the JVM with all else: what its start needs is there, and what a user says is the user's."""
    builder = SparkSession.builder.config("spark.ssl.keyPassword", "mine").config(
        "spark.hadoop.fs.s3a.secret.key", "mine"
    )
    for number in (1, 2):
        options = {"access_key_id": "i", "secret_access_key": "s", "region": "r"}
        builder = lockstep.configure(builder, root=f"s3://b{number}/lake", catalog=f"lake{number}", options=options)
    assert {*builder._keys} == {
        f"{prefix}.{name}"
        for number in (1, 2)
        for prefix, names in (
            (f"spark.sql.catalog.lake{number}.store", ("access_key_id", "secret_access_key")),
            (f"spark.hadoop.fs.s3a.bucket.b{number}", ("access.key", "secret.key")),
        )
        for name in names
    }
    assert not lockstep.configure(SparkSession.builder, root="/lake")._keys


def test_a_certificate_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match=r"cannot read ca_certificate .*none.pem: No such file"):
        open_storage("s3://b/lake", options={"ca_certificate": str(tmp_path / "none.pem")})


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A profile of this machine's user, with keys."""
    file = tmp_path / "credentials"
    file.write_text("[lakes]\naws_access_key_id = OF_THE_PROFILE\naws_secret_access_key = s\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    return "lakes"


def test_a_profile_signs_requests(profile: str, tmp_path: Path) -> None:
    """The server is told the profile's key, by reads and by conditional writes."""
    signatures = []
    app = moto()

    def noting(environ: Any, start_response: Any) -> Any:
        signatures.append(environ.get("HTTP_AUTHORIZATION", ""))
        return app(environ, start_response)

    with serving(noting) as endpoint:
        signatures.clear()
        options = {"endpoint": endpoint, "region": "us-east-1", "profile": profile}
        store = open_storage(f"s3://lake/{tmp_path.name}", options=options)
        assert store.put_if_absent("a", b"x") == Mine()
        assert store.get("a") == b"x"
    assert len(signatures) == 2
    assert all("Credential=OF_THE_PROFILE/" in signature for signature in signatures)


def test_a_profile_that_is_not_there_is_told(profile: str) -> None:
    with pytest.raises(InvalidError, match="cannot use the profile 'other'"):
        open_storage("s3://lake/x", options={"profile": "other", "region": "us-east-1"})


def test_without_boto3_a_profile_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(UnsupportedError, match=r"pip install 'lockstep-delta\[s3\]'"):
        open_storage("s3://lake/x", options={"profile": "lakes"})
