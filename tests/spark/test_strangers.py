"""Who else is on this machine can reach the port of Py4J's callback server, and learns and does nothing there."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from py4j.protocol import get_command_part

from lockstep.spark.bridge import _Callback
from tests.support.sessions import CATALOG

Call: TypeAlias = Callable[..., str]


@pytest.fixture
def call(spark: Any) -> Call:
    """Return how a raw socket calls a method of the host, as Py4J's Java side does, and what it is answered."""
    gateway = spark.sparkContext._gateway
    [served] = [id_ for id_, each in gateway.gateway_property.pool.dict.items() if type(each) is _Callback]
    port = gateway._callback_server.server_socket.getsockname()[1]

    def called(method: str, *arguments: object) -> str:
        parts = ["c", served, method, *(get_command_part(each).rstrip("\n") for each in arguments), "e"]
        with socket.create_connection(("127.0.0.1", port), timeout=20) as stranger:
            stranger.sendall("".join(f"{part}\n" for part in parts).encode())
            with stranger.makefile("r", encoding="utf-8") as answers:
                return answers.readline()

    return called


@pytest.fixture
def request_(spark: Any, root: Path) -> str:
    """A request that would make a namespace in the test's lake."""
    spark.sql(f"SHOW TABLES IN {CATALOG}.default").collect()
    options = {"root": str(root)}
    asked = {"op": "create_namespace", "session": "stranger", "catalog": CATALOG, "options": options}
    return json.dumps(asked | {"case_sensitive": False, "namespace": ["stolen"], "properties": {}})


@pytest.mark.parametrize("secret", ["", "0" * 64, "ü", None, b"0" * 64, 7])
def test_a_stranger_without_the_secret_is_refused(call: Call, spark: Any, request_: str, secret: object) -> None:
    assert "28000" in call("call", secret, request_)
    assert spark.sql(f"SHOW NAMESPACES IN {CATALOG}").count() == 1


def test_a_stranger_who_shows_no_secret_at_all_is_refused(call: Call, spark: Any, request_: str) -> None:
    answer = call("call", request_)
    assert "missing 1 required positional argument" in answer
    assert spark.sql(f"SHOW NAMESPACES IN {CATALOG}").count() == 1


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("__getattribute__", ("_secret",)),
        ("__setattr__", ("_secret", b"known")),
        ("__init__", ("host", "known")),
        ("__reduce_ex__", (2,)),
        ("__dir__", ()),
        ("_host", ()),
    ],
)
def test_a_stranger_neither_learns_the_secret_nor_sets_another(
    call: Call, spark: Any, request_: str, method: str, arguments: tuple[object, ...]
) -> None:
    assert "AttributeError" in call(method, *arguments)
    assert "28000" in call("call", "known", request_)
    assert spark.sql(f"SHOW NAMESPACES IN {CATALOG}").count() == 1


def test_a_stranger_makes_no_host_whose_secret_he_knows(call: Call) -> None:
    assert "AttributeError" in call("__class__")
    assert "TypeError" in call("__class__", "host", "known")


def test_the_same_request_with_the_secret_is_answered(call: Call, spark: Any, request_: str) -> None:
    """So what is refused above is refused for its secret."""
    pool = spark.sparkContext._gateway.gateway_property.pool.dict
    [host] = [each for each in pool.values() if type(each) is _Callback]
    secret = object.__getattribute__(host, "_secret").decode()
    assert "ok" in call("call", secret, request_)
    assert spark.sql(f"SHOW NAMESPACES IN {CATALOG}").count() == 2
