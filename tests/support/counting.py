"""An S3 server in this process that counts what is read of data files: who reads a little must not read it all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.s3 import KEYS, Application, moto, serving


class Counting:
    """Counts the bytes that are answered of each Parquet file.

    Attributes:
        read: by path, how many.
    """

    def __init__(self, app: Application) -> None:
        self._app = app
        self.read: Counter[str] = Counter()

    def __call__(self, environ: Any, start_response: Callable[..., Any]) -> Iterable[bytes]:
        answer = list(self._app(environ, start_response))
        path = environ["PATH_INFO"]
        if environ["REQUEST_METHOD"] == "GET" and path.endswith(".parquet"):
            self.read[path] += sum(map(len, answer))
        return answer


@contextmanager
def counting() -> Iterator[tuple[Counting, dict[str, str]]]:
    """Serve S3 with a bucket `lake`; what counts, and the options of who reads there."""
    app = Counting(moto())
    with serving(app) as endpoint:
        yield app, {**KEYS, "endpoint": endpoint}
