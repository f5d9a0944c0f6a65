"""A store behind TLS whose certificate an authority of one's own has signed: `ca_certificate` says which."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from werkzeug.serving import make_server

from lockstep.catalog import TransactionalCatalog
from lockstep.errors import UnavailableError
from lockstep.storage import Mine, Theirs, open_storage
from tests.support.authority import Authority
from tests.support.gcs import TOKEN, Gcs
from tests.support.lakes import append, create, files
from tests.support.s3 import KEYS, moto, serving

pytestmark = pytest.mark.long

KINDS = pytest.mark.parametrize("kind", ["s3", "gs"])


@contextmanager
def served(kind: str, authority: Authority) -> Iterator[dict[str, str]]:
    """Serve a store that speaks TLS alone; the options for it, but for whom it is trusted."""
    with serving(moto()):  # where the bucket is made, of which every moto of this process knows
        context = authority.context()
        server = make_server("127.0.0.1", 0, Gcs() if kind == "gs" else moto(), threaded=True, ssl_context=context)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        endpoint = f"https://127.0.0.1:{server.server_port}"
        try:
            yield {"endpoint": endpoint, **({"bearer_token": TOKEN} if kind == "gs" else KEYS)}
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ours")


@KINDS
def test_a_lake_behind_tls_of_ones_own(kind: str, authority: Authority, tmp_path: Path) -> None:
    with served(kind, authority) as options:
        options |= {"ca_certificate": str(authority.file)}
        store = open_storage(f"{kind}://lake/{tmp_path.name}-store", options=options)
        assert store.put_if_absent("a", b"x") == Mine()
        assert store.put_if_absent("a", b"y") == Theirs(b"x")
        root = f"{kind}://lake/{tmp_path.name}"
        catalog = TransactionalCatalog.open(root, create=True, options=options)
        create(catalog, "t", files=["p"])
        append(catalog, "t", "q")
        assert files(TransactionalCatalog.open(root, options=options), "t") == {"p", "q"}


@KINDS
@pytest.mark.parametrize("is_another", [False, True])
def test_who_signed_it_must_be_known(kind: str, authority: Authority, tmp_path: Path, is_another: bool) -> None:
    """Nothing is sent to a server that nobody vouches for, and that it was not is certain."""
    known = {"ca_certificate": str(Authority(tmp_path, "another").file)} if is_another else {}
    with served(kind, authority) as options:
        store = open_storage(f"{kind}://lake/store", options={**options, **known})
        with pytest.raises(UnavailableError, match=r"(?i)certificate") as caught:
            store.put_if_absent("a", b"x")
    assert caught.value.definite
