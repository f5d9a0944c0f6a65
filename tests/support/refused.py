"""A statement that a transaction without Spark refuses, in the middle of what it does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from lockstep.errors import LockstepError
from lockstep.tables.transaction import LakeTransaction


@contextmanager
def refused_in(
    tx: LakeTransaction, kind: type[LockstepError], match: str | None = None
) -> Iterator[pytest.ExceptionInfo[LockstepError]]:
    """Expect an error of the block, after which the transaction goes back to before it, and goes on."""
    tx.savepoint("before what is refused")
    with pytest.raises(kind, match=match) as refused:
        yield refused
    tx.rollback_to("before what is refused")
    tx.release("before what is refused")
