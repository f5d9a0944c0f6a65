"""Who asks, and by which way: sessions' tokens, roles, profiles, proxies, TLS; of Lockstep's own requests to S3.

The server looks at keys, tokens and signatures (`tests.support.signed`), so what is refused here would be at Amazon's.
What only Spark's side does is elsewhere, or in docs/limits.md.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from werkzeug.serving import make_server

from lockstep.catalog import TransactionalCatalog
from lockstep.errors import StoreRefusedError, UnavailableError
from lockstep.storage import Mine, Storage, Theirs, open_storage
from tests.support.authority import Authority
from tests.support.lakes import append, create, files
from tests.support.metadata import AUTHORIZATION, IDENTITY, ROLE, Metadata
from tests.support.proxy import Proxy
from tests.support.s3 import Application, moto, serving
from tests.support.signed import Keys, Signed

pytestmark = pytest.mark.long

FIRST = Keys("AKIAFIRST", "a secret/that+is=signed with", "the first session's token")
SECOND = Keys("AKIASECOND", "another secret", "the second session's token")
REGION = {"region": "us-east-1"}
SOON = timedelta(minutes=2)
"""So shortly before keys end obstore gets new ones."""


@pytest.fixture(autouse=True)
def _no_keys_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "NO_PROXY", "no_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))


@pytest.fixture
def signed() -> Signed:
    return Signed(moto(), FIRST)


@pytest.fixture
def endpoint(signed: Signed) -> Iterator[str]:
    """A store that accepts `signed.keys` alone."""
    with serving(signed) as endpoint:
        yield endpoint


@contextmanager
def listening(app: Application, **how: Any) -> Iterator[str]:
    """Serve an application that is no store; its address."""
    server = make_server("127.0.0.1", 0, app, threaded=True, **how)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def opened(options: Mapping[str, str], root: str = "s3://lake/store") -> Storage:
    return open_storage(root, options={**REGION, **options})


def said(keys: Keys) -> dict[str, str]:
    """Return keys as options."""
    both = {"access_key_id": keys.access_key_id, "secret_access_key": keys.secret_access_key}
    return both | ({"session_token": keys.session_token} if keys.session_token else {})


def check(store: Storage, name: str) -> None:
    """See that a store answers: each kind of request that is signed another way."""
    assert store.put_if_absent(f"{name}/a b+c=d", b"x") == Mine()
    assert store.put_if_absent(f"{name}/a b+c=d", b"y") == Theirs(b"x")
    store.put_chunks(f"{name}/large", [b"z" * 5_500_000, b"z"])
    assert store.list(name) == ["a b+c=d", "large"]
    assert store.list(name, after="a b+c=d") == ["large"]
    assert store.exists(f"{name}/large")
    store.delete_all([f"{name}/a b+c=d", f"{name}/large"])
    assert store.get(f"{name}/large") is None


# --- sessions' tokens -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["options", "environment", "profile"])
def test_a_sessions_token_is_sent_and_signed(
    by: str, endpoint: str, signed: Signed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    options = {"endpoint": endpoint}
    match by:
        case "options":
            options |= said(FIRST)
        case "environment":
            for name, value in said(FIRST).items():
                monkeypatch.setenv(f"AWS_{name.upper()}", value)
        case _:
            lines = [f"aws_{name} = {value}" for name, value in said(FIRST).items()]
            (tmp_path / "credentials").write_text("\n".join(["[lake]", *lines]))
            options |= {"profile": "lake"}
    check(opened(options), by)
    assert not signed.refused


def test_a_lake_in_a_session(endpoint: str, signed: Signed) -> None:
    options = {**REGION, **said(FIRST), "endpoint": endpoint}
    catalog = TransactionalCatalog.open("s3://lake/session", create=True, options=options)
    create(catalog, "t", files=["p"])
    append(catalog, "t", "q")
    assert files(TransactionalCatalog.open("s3://lake/session", options=options), "t") == {"p", "q"}
    assert not signed.refused


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        (Keys(FIRST.access_key_id, FIRST.secret_access_key), "InvalidToken"),
        (Keys(FIRST.access_key_id, FIRST.secret_access_key, "an old one"), "InvalidToken"),
        (Keys(FIRST.access_key_id, "a wrong one", FIRST.session_token), "SignatureDoesNotMatch"),
        (SECOND, "InvalidAccessKeyId"),
    ],
)
def test_wrong_keys_are_refused_and_not_repeated(keys: Keys, why: str, endpoint: str, signed: Signed) -> None:
    """The message has the store's reason, and none of the keys."""
    with pytest.raises(StoreRefusedError, match=why) as caught:
        opened({**said(keys), "endpoint": endpoint}).put_if_absent("a", b"x")
    assert caught.value.definite
    assert caught.value.sqlstate == "42501"
    assert signed.refused == [why]
    assert not any(each in str(caught.value) for each in (keys.secret_access_key, keys.session_token) if each)


# --- keys that a machine is given -------------------------------------------------------------------------------------

WAYS = ("instance", "container", "web identity")


@contextmanager
def given(way: str, metadata: Metadata, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Serve keys in one way; the options that say where. obstore asks for web identities' by TLS alone."""
    authority = Authority(tmp_path, "aws")
    how = {"ssl_context": authority.context()} if way == "web identity" else {}
    with listening(metadata, **how) as address:
        (tmp_path / "token").write_text(AUTHORIZATION if way == "container" else IDENTITY)
        yield {
            "instance": {"metadata_endpoint": f"http://{address}"},
            "container": {
                "container_credentials_full_uri": f"http://{address}/container",
                "container_authorization_token_file": str(tmp_path / "token"),
            },
            "web identity": {
                "web_identity_token_file": str(tmp_path / "token"),
                "role_arn": f"arn:aws:iam::111122223333:role/{ROLE}",
                "role_session_name": "lockstep",
                "endpoint_url_sts": f"https://{address}/sts",
                "ca_certificate": str(authority.file),
            },
        }[way]


@pytest.mark.parametrize("way", WAYS)
def test_a_role_is_asked_for_once_as_long_as_its_keys_last(
    way: str, endpoint: str, signed: Signed, tmp_path: Path
) -> None:
    metadata = Metadata(lambda: signed.keys)
    with given(way, metadata, tmp_path) as options:
        store = opened({**options, "endpoint": endpoint})
        for _ in range(3):
            check(store, f"once {way}")
    # Conditional writes have a client of their own, which repeats nothing.
    assert metadata.given == [FIRST.access_key_id] * 2
    assert not signed.refused


@pytest.mark.parametrize("way", WAYS)
def test_keys_of_a_role_are_renewed_before_they_end(way: str, endpoint: str, signed: Signed, tmp_path: Path) -> None:
    """In the middle of a lake's life: what is committed before and after is there, and nothing is refused."""
    metadata = Metadata(lambda: signed.keys)
    metadata.lasts = SOON
    with given(way, metadata, tmp_path) as options:
        all_options = {**REGION, **options, "endpoint": endpoint}
        root = f"s3://lake/{tmp_path.name}"
        catalog = TransactionalCatalog.open(root, create=True, options=all_options)
        create(catalog, "t", files=["p"])
        catalog.lake.upkeep.settle()
        signed.keys, signed.old = SECOND, FIRST  # both are good, as Amazon's are until the old ones end
        begun, names = len(signed.asked), {"p"}
        while not {("GET", SECOND.access_key_id), ("PUT if absent", SECOND.access_key_id)} <= {*signed.asked[begun:]}:
            append(catalog, "t", f"q{len(names)}")
            names.add(f"q{len(names)}")
        catalog.lake.upkeep.settle()
        signed.old = None
        append(catalog, "t", "last")
        catalog.lake.upkeep.settle()
        assert files(TransactionalCatalog.open(root, options=all_options), "t") == {*names, "last"}
    assert not signed.refused


@pytest.mark.parametrize("way", WAYS)
def test_a_role_that_cannot_be_had_is_an_error_that_says_so(
    way: str, endpoint: str, signed: Signed, tmp_path: Path
) -> None:
    with given(way, Metadata(lambda: signed.keys), tmp_path) as options:
        pass
    with pytest.raises(UnavailableError, match="cannot write a in s3://lake/store") as caught:
        opened({**options, "endpoint": endpoint}).put_if_absent("a", b"x")
    assert caught.value.definite, "no request was made"
    assert not signed.asked


def test_the_first_version_of_an_instances_service_is_asked_only_if_that_is_said(
    endpoint: str, signed: Signed, tmp_path: Path
) -> None:
    with given("instance", Metadata(lambda: signed.keys, version=1), tmp_path) as options:
        with pytest.raises(UnavailableError):
            opened({**options, "endpoint": endpoint}).get("a")
        check(opened({**options, "endpoint": endpoint, "imdsv1_fallback": "true"}), "v1")


# --- proxies ----------------------------------------------------------------------------------------------------------


def test_requests_go_through_a_proxy(endpoint: str) -> None:
    """Nobody but the proxy knows the store's name."""
    with Proxy(endpoint) as proxy:
        options = {**said(FIRST), "endpoint": "http://store.invalid:9000", "proxy_url": proxy.url}
        check(opened(options), "proxied")
        assert proxy.requests
        assert all(target.startswith("http://store.invalid:9000/lake") for _, target in proxy.requests)


def test_a_proxys_user_and_password(endpoint: str) -> None:
    with Proxy(endpoint, user="ada", password="s3cret") as proxy:
        options = {**said(FIRST), "endpoint": "http://store.invalid:9000"}
        check(opened({**options, "proxy_url": f"http://ada:s3cret@{proxy.address}"}), "user")
        with pytest.raises(UnavailableError, match="407") as caught:
            opened({**options, "proxy_url": f"http://ada:wr0ng@{proxy.address}"}).put_if_absent("a", b"x")
        assert caught.value.definite
        assert "wr0ng" not in str(caught.value)


def test_a_proxy_that_is_not_there(endpoint: str, signed: Signed) -> None:
    """Nothing goes past it, though the store could be reached."""
    with Proxy(endpoint) as proxy:
        url = proxy.url
    with pytest.raises(UnavailableError, match="connection refused") as caught:
        opened({**said(FIRST), "endpoint": endpoint, "proxy_url": url}).put_if_absent("a", b"x")
    assert caught.value.definite
    assert not signed.asked


# --- TLS, and the cloud's own addresses -------------------------------------------------------------------------------


@pytest.mark.parametrize("style", ["path", "virtual-hosted"])
def test_amazons_own_address_by_tls_through_a_tunnel(style: str, tmp_path: Path, signed: Signed, endpoint: str) -> None:
    """Without an endpoint: S3's own host of the region, which the proxy leads here, with a certificate for it."""
    authority, amazon = Authority(tmp_path, "ours"), "s3.us-east-1.amazonaws.com"
    host = amazon if style == "path" else f"lake.{amazon}"
    with (
        listening(signed, ssl_context=authority.context(amazon, f"lake.{amazon}")) as address,
        Proxy(f"https://{address}") as proxy,
    ):
        options = {**said(FIRST), "proxy_url": proxy.url, "ca_certificate": str(authority.file)}
        check(opened({**options, "virtual_hosted_style_request": str(style != "path").lower()}), style)
    assert {*proxy.requests} == {("CONNECT", f"{host}:443")}
    assert not signed.refused
