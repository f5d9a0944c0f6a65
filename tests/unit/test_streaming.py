"""`lockstep.foreach_batch`, as far as it needs no Spark: what it refuses before a query starts, and what it logs."""

from __future__ import annotations

import logging
from typing import Any

import pytest

import lockstep
from lockstep.errors import InvalidError
from lockstep.spark import streaming
from lockstep.timeline.entry import MAX_APPLICATION_CHARACTERS


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param({"application": ""}, "length >= 1", id="no name"),
        pytest.param({"application": "x" * (MAX_APPLICATION_CHARACTERS + 1)}, "length <= 256", id="a name too long"),
        pytest.param({"application": 7}, "application is 7, of type int: expected str", id="a name that is none"),
        pytest.param({"application": "orders", "attempts": 0}, "attempts=0", id="no attempt"),
    ],
)
def test_what_no_batch_could_be_is_refused_at_once(arguments: dict[str, Any], expected: str) -> None:
    """And not in the query's own thread, when the first batch comes."""
    with pytest.raises(InvalidError, match=expected):
        lockstep.foreach_batch(lambda *_: None, **arguments)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param({"batch": ("", 0)}, "length >= 1", id="no name"),
        pytest.param({"batch": ("orders", -1)}, ">= 0", id="below 0"),
        pytest.param({"batch": ("orders", 2**63)}, "<= 9223372036854775807", id="beyond Delta's numbers"),
        pytest.param({"batch": ("orders", "7")}, "Expected `int`", id="a text for a number"),
    ],
)
def test_a_transaction_refuses_such_a_batch_before_it_begins(arguments: dict[str, Any], expected: str) -> None:
    with pytest.raises(InvalidError, match=expected):
        lockstep.transaction(None, **arguments)  # refused before the session is used


@pytest.mark.parametrize(
    ("number", "last", "level"),
    [
        pytest.param(7, 7, logging.INFO, id="the last one again: a crash after COMMIT"),
        pytest.param(0, 7, logging.WARNING, id="an older one: a new checkpoint, or an old copy of it"),
    ],
)
def test_a_batch_that_is_passed_over_is_logged(
    number: int, last: int, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, streaming.__name__):
        streaming._pass_over("orders", number, last)
    [record] = caplog.records
    assert record.levelno == level
    assert f"batch {number} of application orders" in record.getMessage()
