"""What is done behind a commit's answer, done before it: nothing of it is under way when a test looks, or is over."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future

from lockstep.lake import upkeep
from lockstep.lake.upkeep import Upkeep


def at_once(_: Upkeep, *tasks: Callable[[], object], keys: Iterable[str] = (), **_more: object) -> Future[None]:
    """Stand in for `Upkeep.add`."""
    done = Future[None]()
    upkeep.do(tasks)
    done.set_result(None)
    return done
