"""Keys of a store are in nothing that Lockstep says or writes: errors, their causes, representations, logs."""

from __future__ import annotations

import base64
import logging
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from urllib.parse import quote

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.errors import LockstepError
from lockstep.spark.host.lakehouses import Lakehouses
from lockstep.storage import Storage, open_storage
from lockstep.storage.failures import without_keys
from lockstep.storage.object import ObjectStorage
from tests.support.answering import answering, http

SECRET, TOKEN = "planted/SECRET+key", "planted-session-TOKEN"
NOWHERE = "http://127.0.0.1:1"
"""A port on which nobody answers."""

KEYS = {
    "access_key_id": "AKIAPLANTED",
    "secret_access_key": SECRET,
    "session_token": TOKEN,
    "region": "us-east-1",
    "endpoint": NOWHERE,
}


AZURE = "abfss://lake@account.dfs.core.windows.net/lake"


def said_by(act: Callable[[], object]) -> str:
    """Return all that an error says, with its causes, as a log has it."""
    with pytest.raises(LockstepError) as caught:
        act()
    return "\n".join(traceback.format_exception(caught.value)) + repr(caught.value)


def assert_silent(text: str) -> None:
    for planted in (SECRET, TOKEN, "planted%2FSECRET"):
        assert planted not in text


ACTS: dict[str, Callable[[Storage], object]] = {
    "get": lambda store: store.get("a"),
    "put": lambda store: store.put("a", b""),
    "put_if_absent": lambda store: store.put_if_absent("a", b""),
    "list": lambda store: store.list("f"),
    "delete": lambda store: store.delete("a"),
}


@pytest.mark.parametrize("act", ACTS)
def test_a_store_that_does_not_answer_says_nothing_of_its_keys(act: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    store = open_storage("s3://bucket/lake", options=KEYS)
    said = said_by(lambda: ACTS[act](store))
    assert "s3://bucket/lake" in said
    assert_silent(said + repr(store) + str(store) + caplog.text)


@pytest.mark.parametrize(
    "options",
    [
        {"secret_acess_key": SECRET},
        {**KEYS, "conditional_put": SECRET},
        {**KEYS, "endpoint": f"{SECRET} is no address"},
        {**KEYS, "virtual_hosted_style_request": TOKEN},
    ],
    ids=["a misspelt name", "a key for another option", "a key for the address", "a key for a flag"],
)
def test_an_option_that_is_refused_is_not_repeated(options: dict[str, str]) -> None:
    """A value that was put under the wrong name may be a key."""
    assert_silent(said_by(lambda: open_storage("s3://bucket/lake", options=options).get("a")))


OTHERS: dict[str, tuple[str, dict[str, str]]] = {
    "a signature of Azure": (AZURE, {"sas_token": f"sv=2022-11-02&ss=b&sig={quote(SECRET, safe='')}"}),
    "a key of Azure": (AZURE, {"account_key": base64.b64encode(SECRET.encode()).decode()}),
    "a secret of Azure's": (
        AZURE,
        {"tenant_id": "t", "client_id": "i", "client_secret": SECRET, "authority_host": NOWHERE},
    ),
    "a token of Google's": ("gs://bucket/lake", {"bearer_token": TOKEN}),
    "a password of a proxy": ("s3://bucket/lake", {**KEYS, "proxy_url": f"http://user:{TOKEN}@127.0.0.1:1"}),
}
"""What there is of secrets for other stores: a root, and options."""

ECHO = f"""<Error><Code>SignatureDoesNotMatch</Code><Message>it does not match</Message><SignatureProvided>{SECRET}
</SignatureProvided><StringToSign>{SECRET}</StringToSign><CanonicalRequest>GET
x-amz-security-token:{TOKEN}

</CanonicalRequest><Token-0>{TOKEN}</Token-0></Error>"""
"""What S3 answers to who signs with the wrong key."""


def impatient(root: str, options: dict[str, str]) -> Storage:
    store = open_storage(root, options=options)
    assert isinstance(store, ObjectStorage)
    store.repeat = replace(store.repeat, sleep=lambda seconds: None)
    return store


@pytest.mark.parametrize("kind", OTHERS)
def test_no_store_says_anything_of_its_keys(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """Neither where nobody answers nor where somebody says no; what is logged with its causes is looked at, too."""
    caplog.set_level(logging.DEBUG)
    root, options = OTHERS[kind]
    store = impatient(root, {**options, "endpoint": NOWHERE})
    said = said_by(lambda: store.put_if_absent("a", b"")) + repr(store)
    with answering(http("403 Forbidden", "AccessDenied")) as endpoint:
        refusing = impatient(root, {**options, "endpoint": endpoint})
        asks_elsewhere_first = {"proxy_url", "client_secret"} & set(options)
        for act in () if asks_elsewhere_first else ACTS.values():
            said += said_by(partial(act, refusing))
    assert "Error performing" in said
    assert_silent(said + caplog.text)
    assert base64.b64encode(SECRET.encode()).decode() not in said + caplog.text


def test_what_a_store_repeats_of_a_request_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    """Of one that is signed with a wrong key S3 repeats all that was signed, and whoever reads logs could use that."""
    answer = f"HTTP/1.1 403 Forbidden\r\nContent-Length: {len(ECHO)}\r\nConnection: close\r\n\r\n{ECHO}".encode()
    with answering(answer) as endpoint:
        store = impatient("s3://bucket/lake", {**KEYS, "endpoint": endpoint})
        for act in ACTS.values():
            said = said_by(partial(act, store))
            assert "SignatureDoesNotMatch" in said
            assert_silent(said + caplog.text)
    assert_silent(without_keys(ECHO[: ECHO.index("</CanonicalRequest>")]))


def test_a_catalog_that_cannot_be_opened_says_nothing_of_its_keys(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    options = {"root": "s3://bucket/lake", **{f"store.{key}": value for key, value in KEYS.items()}}
    houses = Lakehouses("test")
    said = said_by(lambda: houses.get("lake", options))
    said += said_by(lambda: TransactionalCatalog.open("s3://bucket/lake", options=KEYS))
    assert_silent(said + repr(houses) + repr(vars(houses)) + caplog.text)
