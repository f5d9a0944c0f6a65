"""What obstore did not expect ends a request by a panic, which is no `Exception`: it is told as a store's failure."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from lockstep.errors import LockstepError, StoreRefusedError, UnavailableError
from lockstep.retry import Backoff
from lockstep.storage import Storage, open_storage
from lockstep.storage.object import ObjectStorage
from tests.storage.test_refusals import ACTS
from tests.support.child import REPOSITORY

NOWHERE = "http://127.0.0.1:1"
"""A port on which nobody answers."""

S3 = {"access_key_id": "a", "secret_access_key": "b", "region": "us-east-1", "endpoint": NOWHERE}

WITH_A_LINES_END = {
    "a key of S3": ("s3://lake/root", {**S3, "access_key_id": "planted\n"}),
    "a session's token": ("s3://lake/root", {**S3, "session_token": "planted\n"}),
    "a token of Google's": ("gs://lake/root", {"bearer_token": "planted\n", "endpoint": NOWHERE}),
}
"""As a key has it that was read from a file."""


class Never(Backoff):
    """Nothing is tried again."""

    def tries(self, *_: object) -> Iterator[int]:
        yield 1
        pytest.fail("the same would be said again")


def opened(root: str, options: dict[str, str]) -> Storage:
    store = open_storage(root, options=options)
    assert isinstance(store, ObjectStorage)
    known = store.repeat
    store.repeat = Never(**{name: getattr(known, name) for name in Backoff.__slots__})
    return store


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
@pytest.mark.parametrize("kind", WITH_A_LINES_END)
def test_a_key_with_a_lines_end_is_refused(kind: str, act: Callable[[Storage], object]) -> None:
    store = opened(*WITH_A_LINES_END[kind])
    with pytest.raises(StoreRefusedError, match="a key or a token has a character that cannot be sent") as caught:
        act(store)
    assert caught.value.sqlstate == "42501"
    assert "planted" not in str(caught.value)


def test_a_write_with_such_a_key_was_not_sent() -> None:
    with pytest.raises(LockstepError) as caught:
        opened("s3://lake/root", {**S3, "access_key_id": "planted\n"}).put_if_absent("a", b"x")
    assert isinstance(caught.value, UnavailableError)
    assert caught.value.definite


FULL_OF_FILES = """
import sys
import obstore.exceptions
from lockstep.errors import UnavailableError
from lockstep.storage import open_storage
from tests.support.handles import hold_all_but
store = open_storage("s3://lake/root", options={"endpoint": "http://127.0.0.1:1", "region": "us-east-1"})
hold_all_but(int(sys.argv[1]), 100)
try:
    store.put_if_absent("a", b"x")
except UnavailableError as error:
    print(error.sqlstate, error.definite)
"""


@pytest.mark.parametrize("free", [0, 1, 2])
def test_a_process_with_too_many_files_open_is_told_so(free: int) -> None:
    """Of obstore, which makes its threads at its first request. Whether a write was sent it does not say."""
    command = [sys.executable, "-c", FULL_OF_FILES, str(free)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, cwd=REPOSITORY)
    assert (done.returncode, done.stdout.splitlines()) == (0, ["58030 False"]), done.stderr[-4000:]
