"""Keys of a store are in nothing that Lockstep says or writes: errors, their causes, representations, logs."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.errors import LockstepError
from lockstep.spark.host.lakehouses import Lakehouses
from lockstep.storage import Storage, open_storage

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


def test_a_catalog_that_cannot_be_opened_says_nothing_of_its_keys(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    options = {"root": "s3://bucket/lake", **{f"store.{key}": value for key, value in KEYS.items()}}
    houses = Lakehouses("test")
    said = said_by(lambda: houses.get("lake", options))
    said += said_by(lambda: TransactionalCatalog.open("s3://bucket/lake", options=KEYS))
    assert_silent(said + repr(houses) + repr(vars(houses)) + caplog.text)
