"""Names of Spark's session catalog: which of them mean what the lake has, and which are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.adoption.schemas import Listed
from lockstep.adoption.session_names import AMBIGUOUS, Held, Said, Use, means_lakes
from lockstep.errors import InvalidError, LockstepError, UnsupportedError
from lockstep.timeline.entry import Name

NAME = Name(namespace=("shop",), table="orders")
TABLE = Held("file:///shop/orders")
VIEW = Held(None)
ADOPTED_VIEW = Held(None, "spark_catalog.Shop.orders")
SAME = Listed("orders", "MANAGED", "delta", "file:/shop/orders")


def means(use: Use, held: Held | None, there: Listed | None, *, is_delta: bool = False, inside: bool = False) -> bool:
    return means_lakes(Said(NAME, use, is_delta, there), held, has_namespace=inside)


@pytest.mark.parametrize("use", ["used", "dropped", "made"])
def test_what_only_the_lake_has_is_meant_whatever_is_done_with_it(use: Use) -> None:
    assert means(use, TABLE, None)
    assert means(use, VIEW, None)


@pytest.mark.parametrize("use", ["used", "dropped", "made"])
def test_what_only_spark_has_is_not_touched(use: Use) -> None:
    for inside in (False, True):
        assert not means(use, None, SAME, is_delta=True, inside=inside)


@pytest.mark.parametrize("use", ["used", "made"])
def test_of_one_table_under_both_names_the_lakes_is_meant(use: Use, tmp_path: Path) -> None:
    assert means(use, TABLE, SAME)
    (tmp_path / "link").symlink_to("/shop")
    assert means(use, TABLE, Listed("orders", "EXTERNAL", "delta", f"file:{tmp_path}/link/orders/"))
    assert means(use, Held("s3a://bucket/orders"), Listed("orders", "EXTERNAL", "delta", "s3://bucket/orders"))


def test_what_nobody_has_is_made_in_the_lake_where_that_has_the_namespace_and_it_is_deltas() -> None:
    for is_delta, inside in ((False, False), (False, True), (True, False), (True, True)):
        assert means("made", None, None, is_delta=is_delta, inside=inside) == (is_delta and inside)
        assert not means("used", None, None, is_delta=is_delta, inside=inside)
        assert means("dropped", None, None, is_delta=is_delta, inside=inside) == inside, "it is nobody's loss"


@pytest.mark.parametrize("use", ["used", "dropped", "made"])
@pytest.mark.parametrize(
    ("held", "there", "reason"),
    [
        (VIEW, SAME, "the lake has a view"),
        (VIEW, Listed("orders", "VIEW"), "the lake has a view"),
        (Held(None, "spark_catalog.shop.other"), Listed("orders", "VIEW"), "the lake has a view"),
        (ADOPTED_VIEW, SAME, "the lake has a view"),
        (TABLE, Listed("orders", "VIEW"), "it is a view"),
        (TABLE, Listed("orders", "MANAGED", "parquet", "file:/shop/orders"), "it is a table of parquet"),
        (TABLE, Listed("orders", "MANAGED", "delta", "file:/shop/others"), "file:/shop/others"),
        (TABLE, Listed("orders", "MANAGED", "delta", "s3://shop/orders"), "s3://shop/orders"),
        (TABLE, Listed("orders", "MANAGED", "delta"), "does not say where"),
        (TABLE, Listed("orders", "MANAGED", "delta", "unheard-of://shop/orders"), "unheard-of://shop/orders"),
    ],
)
def test_two_things_of_one_name_are_refused(use: Use, held: Held, there: Listed, reason: str) -> None:
    with pytest.raises(InvalidError, match=reason) as refused:
        means(use, held, there)
    assert refused.value.sqlstate == AMBIGUOUS


@pytest.mark.parametrize("use", ["used", "dropped", "made"])
def test_of_a_view_and_the_adopted_one_a_job_goes_on_with_its_own(use: Use) -> None:
    assert not means(use, ADOPTED_VIEW, Listed("orders", "VIEW"))
    assert means(use, ADOPTED_VIEW, None), "where nobody has it any more, it is the lake's"


def test_one_table_is_not_taken_from_one_of_two_catalogs() -> None:
    with pytest.raises(UnsupportedError, match="release") as refused:
        means("dropped", TABLE, SAME)
    assert isinstance(refused.value, LockstepError)
