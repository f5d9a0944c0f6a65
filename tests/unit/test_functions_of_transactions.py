"""What `lockstep.run` and `lockstep.foreach_batch` refuse to call: a function that would silently do nothing."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import lockstep
from lockstep.arguments import check_result
from lockstep.errors import InvalidError


async def coroutine(*_: Any) -> None: ...


def generator(*_: Any) -> Iterator[int]:
    yield 1


async def async_generator(*_: Any) -> AsyncIterator[int]:
    yield 1


class Called:
    async def __call__(self, *_: Any) -> None: ...


LATE = [coroutine, generator, async_generator, functools.partial(coroutine), Called()]


@pytest.mark.parametrize("fn", LATE, ids=["coroutine", "generator", "async generator", "partial", "object"])
def test_a_function_that_does_nothing_when_called_is_refused_before_anything_begins(fn: Callable[..., Any]) -> None:
    spark: Any = None  # is not asked for anything
    with pytest.raises(InvalidError, match="does nothing when called"):
        lockstep.run(spark, fn)
    with pytest.raises(InvalidError, match="does nothing when called"):
        lockstep.foreach_batch(fn, application="orders")


@pytest.mark.parametrize("fn", [coroutine, generator, async_generator])
def test_work_that_nobody_has_done_is_no_result(fn: Callable[..., Any]) -> None:
    """A lambda does not show what it returns before it is called."""
    with pytest.raises(InvalidError, match="which nobody has run"):
        check_result(fn())


@pytest.mark.parametrize("result", [None, 7, [], iter([1]), print])
def test_any_other_result_is_returned(result: object) -> None:
    assert check_result(result) is result
