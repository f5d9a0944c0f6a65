"""What a Trino that tests start says: of its Java, and in its answers."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.support.maven import MissingError
from tests.support.trino import java, major, value_of


def signature(kind: str, *arguments: Any) -> dict[str, Any]:
    return {"rawType": kind, "arguments": [{"kind": "TYPE", "value": each} for each in arguments]}


def named(name: str, of: dict[str, Any]) -> dict[str, Any]:
    return {"fieldName": {"name": name}, "typeSignature": of}


BIGINT, VARCHAR, DOUBLE = signature("bigint"), signature("varchar", 2147483647), signature("double")
NOON = dt.datetime(2024, 2, 29, 12, 0, 0, 250_000, dt.UTC)


@pytest.mark.parametrize(
    ("of", "said", "meant"),
    [
        (BIGINT, 1, 1),
        (BIGINT, None, None),
        (VARCHAR, "a", "a"),
        (DOUBLE, -0.5, -0.5),
        (DOUBLE, "Infinity", math.inf),
        (signature("decimal", 20, 2), "0.01", Decimal("0.01")),
        (signature("varbinary"), "/wA=", b"\xff\x00"),
        (signature("date"), "2024-02-29", dt.date(2024, 2, 29)),
        (signature("timestamp", 6), "2024-02-29 12:00:00.250000", NOON.replace(tzinfo=None)),
        (signature("timestamp with time zone", 3), "2024-02-29 12:00:00.250 UTC", NOON),
        (signature("array", BIGINT), [1, None], [1, None]),
        (signature("map", VARCHAR, signature("decimal", 5, 2)), {"k": "0.01"}, [("k", Decimal("0.01"))]),
        (signature("row", named("a", BIGINT), named("b", signature("date"))), [1, None], {"a": 1, "b": None}),
    ],
)
def test_what_a_value_means(of: dict[str, Any], said: Any, meant: Any) -> None:
    assert value_of(of, said) == meant


@pytest.mark.parametrize(
    ("said", "meant"),
    [("openjdk 25.0.1 2025-10-21 LTS\nOpenJDK …", 25), ("java 24 2025-03-18", 24), ("openjdk 17.0.16", 17), ("", 0)],
)
def test_which_java_it_is(said: str, meant: int) -> None:
    assert major(said) == meant


def test_a_java_that_is_missing_or_too_old_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRINO_JAVA_HOME", raising=False)
    with pytest.raises(MissingError, match=r"needs Java 24 or newer: set TRINO_JAVA_HOME to the folder of one$"):
        java()
    monkeypatch.setenv("TRINO_JAVA_HOME", str(tmp_path))
    with pytest.raises(MissingError, match="has no bin/java"):
        java()
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho openjdk 17.0.16 2025-07-15\n")
    old.chmod(0o755)
    with pytest.raises(MissingError, match=r"is openjdk 17\.0\.16"):
        java()
