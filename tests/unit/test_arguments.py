"""What the public functions are given: a wrong type is InvalidError, which names the argument."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lockstep
from lockstep.arguments import takes
from lockstep.catalog import TransactionalCatalog
from lockstep.errors import InvalidError
from lockstep.storage import open_storage
from lockstep.timeline.log import Timeline

ANY: Any = object()
"""What stands for a session or a builder: nobody gets as far as to look at it."""

NOT_NONE: dict[Any, Any] = {None: 0}
"""What stands for None where that is right."""

WRONG: list[tuple[str, Callable[[Any], object], str]] = [
    ("root", TransactionalCatalog.open, "expected str"),
    ("root", lambda wrong: TransactionalCatalog.open(wrong, create=True), "expected str"),
    ("application", lambda wrong: TransactionalCatalog.open("/nowhere", application=wrong), "expected str"),
    ("url", open_storage, "expected str"),
    ("storage", Timeline.open, "expected Storage"),
    ("storage", Timeline.create, "expected Storage"),
    ("root", lambda wrong: lockstep.conf(root=wrong, jars=False), "expected str"),
    ("catalog", lambda wrong: lockstep.conf(root="/lake", catalog=wrong, jars=False), "expected str"),
    ("root", lambda wrong: lockstep.configure(ANY, root=wrong), "expected str"),
    ("comment", lambda wrong: lockstep.transaction(ANY, comment=wrong), "expected str"),
    (
        "batch",
        lambda wrong: lockstep.transaction(ANY, batch=NOT_NONE.get(wrong, wrong)),
        "expected tuple | list | None",
    ),
    ("fn", lambda wrong: lockstep.run(ANY, wrong), "expected Callable"),
    ("attempts", lambda wrong: lockstep.run(ANY, print, attempts=wrong == 7 or wrong), "expected int"),
    ("application", lambda wrong: lockstep.foreach_batch(print, application=wrong), "expected str"),
]


@pytest.mark.parametrize("wrong", [None, 7, b"/lake"], ids=repr)
@pytest.mark.parametrize(("argument", "call", "expected"), WRONG)
def test_a_wrong_type_is_refused_by_the_arguments_name(
    argument: str, call: Callable[[Any], object], expected: str, wrong: object
) -> None:
    with pytest.raises(
        InvalidError, match=rf": {argument} is .*, of type \w+: {expected.replace('|', '[|]')}"
    ) as error:
        call(wrong)
    assert error.value.sqlstate == "22023"


@pytest.mark.parametrize("wrong", [None, 7, b"a", "default.a"], ids=repr)
def test_a_catalog_refuses_what_is_no_name_and_no_version(tmp_path: Path, wrong: Any) -> None:
    catalog = TransactionalCatalog.open(str(tmp_path), create=True)
    tx = catalog.begin()
    for call in (lambda: catalog.table(tx, wrong), lambda: catalog.reserve(wrong)):
        with pytest.raises(InvalidError, match=r"name is .*: expected Name"):
            call()
    for ended in (lambda: catalog.commit(wrong), lambda: catalog.rollback(wrong)):
        with pytest.raises(InvalidError, match=r"tx is .*: expected Transaction"):
            ended()
    with pytest.raises(InvalidError, match=r"change is .*: expected Callable"):
        catalog.run(wrong)
    if not isinstance(wrong, int | str):  # a text is a tag's name
        with pytest.raises(InvalidError, match=r"when is .*: expected int"):
            catalog.as_of(wrong)
    if not isinstance(wrong, int):
        with pytest.raises(InvalidError, match=r"version is .*: expected int"):
            catalog.timeline.at(wrong)


def test_a_batch_is_a_name_and_a_number() -> None:
    batch: Any = ("orders",)
    with pytest.raises(InvalidError, match=r"batch \('orders',\): expected the name of an application and the number"):
        lockstep.transaction(ANY, batch=batch)


def test_what_else_is_taken_may_have_the_name_of_an_argument_without_one() -> None:
    @takes(query=str)
    def f(query: str, /, **relations: object) -> dict[str, object]:
        return relations

    assert f("FROM query", query=5) == {"query": 5}
    with pytest.raises(InvalidError, match="f: query is 5, of type int: expected str"):
        f(5)  # type: ignore[arg-type]


@pytest.mark.parametrize(("kind", "is_one"), [(int, False), (int | str, False), (bool, True), (bool | None, True)])
def test_a_bool_is_no_int(kind: Any, is_one: bool) -> None:
    @takes(a=kind)
    def f(a: object) -> object:
        return a

    if is_one:
        assert f(True) is True
    else:
        with pytest.raises(InvalidError, match="f: a is True, of type bool"):
            f(True)


def test_a_checked_function_is_as_it_was() -> None:
    @takes(a=int)
    def f(a: int, *, b: int | None = None) -> tuple[int, int | None]:
        """Say both."""
        return a, b

    assert f(1, b=2) == (1, 2)
    assert f.__doc__ == "Say both."
    assert list(inspect.signature(f).parameters) == ["a", "b"]
    with pytest.raises(InvalidError, match="f: a is True, of type bool: expected int"):
        f(True)
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        f()  # type: ignore[call-arg]  # what Python says of its own calls
    with pytest.raises(AssertionError):
        takes(c=int)(f)
