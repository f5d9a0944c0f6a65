"""S3 servers in this process, over HTTP: moto's, and moto's behind something that breaks one of S3's promises."""

from __future__ import annotations

import logging
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import boto3
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

KEYS = {"access_key_id": "test", "secret_access_key": "test", "region": "us-east-1"}
CONDITION = "HTTP_IF_NONE_MATCH"

Application = Callable[[Any, Any], Any]


def moto() -> Application:
    """Return moto's own application. What is in its buckets all of them in this process share."""
    return DomainDispatcherApplication(create_backend_app)


class Contended:
    """Answers 409 to some conditional writes, as S3 does to one of two."""

    BODY = (
        b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>ConditionalRequestConflict</Code><Message>The conditional '
        b"request cannot succeed due to a conflicting operation against this resource.</Message></Error>"
    )

    def __init__(self, app: Application) -> None:
        self._app = app
        self.left = 0

    def __call__(self, environ: Any, start_response: Any) -> Any:
        if self.left and _is_conditional(environ):
            self.left -= 1
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start_response("409 Conflict", [("Content-Type", "application/xml")])
            return [self.BODY]
        return self._app(environ, start_response)


class Ignoring:
    """Knows no conditions, and says nothing of it."""

    def __init__(self, app: Application) -> None:
        self._app = app

    def __call__(self, environ: Any, start_response: Any) -> Any:
        environ.pop(CONDITION, None)
        return self._app(environ, start_response)


class LookingFirst:
    """Looks whether something is there, and writes a moment later what was not: as good as right, until two meet.

    Alone it refuses what is there, so a check with one writer finds nothing wrong.
    """

    def __init__(self, app: Application) -> None:
        self._app = app
        self._there: set[str] = set()
        self._room = threading.Barrier(2)

    def __call__(self, environ: Any, start_response: Any) -> Any:
        if not _is_conditional(environ):
            return self._app(environ, start_response)
        path = environ["PATH_INFO"]
        if path in self._there:
            return self._app(environ, start_response)  # which refuses
        try:
            self._room.wait(timeout=0.1)  # for another one who has looked, too
        except threading.BrokenBarrierError:
            self._room.reset()
        self._there.add(path)
        del environ[CONDITION]
        return self._app(environ, start_response)


class Guarded:
    """Serves one bucket, to who signs with one key alone: all servers of a process have the same buckets."""

    BODY = b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>AccessDenied</Code><Message>no</Message></Error>'

    def __init__(self, app: Application, bucket: str, key: str) -> None:
        self._app = app
        self._bucket = bucket
        self._key = key

    def __call__(self, environ: Any, start_response: Any) -> Any:
        path, method = environ["PATH_INFO"].strip("/"), environ["REQUEST_METHOD"]
        is_signed = f"Credential={self._key}/" in environ.get("HTTP_AUTHORIZATION", "")
        if (is_signed and path.partition("/")[0] == self._bucket) or (method, path) == ("PUT", self._bucket):
            return self._app(environ, start_response)
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        start_response("403 Forbidden", [("Content-Type", "application/xml")])
        return [self.BODY]


def _is_conditional(environ: Any) -> bool:
    return bool(environ["REQUEST_METHOD"] == "PUT" and environ.get(CONDITION) == "*")


@contextmanager
def serving(app: Application, *, threaded: bool = False, bucket: str = "lake") -> Iterator[str]:
    """Serve an application and make a bucket there; the endpoint. With more than one thread moto itself races."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    http = make_server("127.0.0.1", 0, app, threaded=threaded)
    thread = threading.Thread(target=http.serve_forever)
    thread.start()
    endpoint = f"http://127.0.0.1:{http.server_port}"
    try:
        make_bucket(endpoint, bucket)
        yield endpoint
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


def make_bucket(endpoint: str, bucket: str) -> None:
    """Make a bucket in a server that asks for no signature."""
    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{bucket}", method="PUT")).close()


def make_own_bucket(endpoint: str, bucket: str, keys: Mapping[str, str]) -> None:
    """Make a bucket in a server that asks for a signature."""
    client(endpoint, keys).create_bucket(Bucket=bucket)


def put(endpoint: str, bucket: str, key: str, data: bytes, keys: Mapping[str, str] = KEYS) -> None:
    """Put an object under a key as it stands, one that ends in a slash too, which Lockstep's client would not do."""
    client(endpoint, keys).put_object(Bucket=bucket, Key=key, Body=data)


def client(endpoint: str, keys: Mapping[str, str]) -> Any:
    """Return Amazon's own client of a server."""
    own = {"aws_access_key_id": keys["access_key_id"], "aws_secret_access_key": keys["secret_access_key"]}
    return boto3.client("s3", region_name=keys["region"], endpoint_url=endpoint, **own)
