"""A store behind TLS whose certificate an authority of one's own has signed: `ca_certificate` says which."""

from __future__ import annotations

import ipaddress
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from werkzeug.serving import make_server

from lockstep.catalog import TransactionalCatalog
from lockstep.errors import UnavailableError
from lockstep.storage import Mine, Theirs, open_storage
from tests.support.gcs import TOKEN, Gcs
from tests.support.lakes import append, create, files


class Authority:
    """Signs certificates.

    Attributes:
        file: its own certificate.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._key = folder, ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        made = self._signed(self._name, self._key.public_key(), x509.BasicConstraints(ca=True, path_length=0))
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(made.public_bytes(serialization.Encoding.PEM))

    def context(self) -> ssl.SSLContext:
        """Return what a server of this machine needs, with a certificate of its own."""
        key = ec.generate_private_key(ec.SECP256R1())
        here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        made = self._signed(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "store")]), key.public_key(), here)
        file = self._folder / "server.pem"
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        file.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context

    def _signed(self, name: x509.Name, key: ec.EllipticCurvePublicKey, more: x509.ExtensionType) -> x509.Certificate:
        now = datetime.now(UTC)
        made = x509.CertificateBuilder().subject_name(name).issuer_name(self._name).public_key(key)
        made = made.serial_number(x509.random_serial_number()).not_valid_before(now - timedelta(hours=1))
        made = made.not_valid_after(now + timedelta(hours=1)).add_extension(more, critical=False)
        return made.sign(self._key, hashes.SHA256())


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ours")


@pytest.fixture
def endpoint(authority: Authority) -> Iterator[str]:
    """The address of a store that speaks TLS alone."""
    server = make_server("127.0.0.1", 0, Gcs(), threaded=True, ssl_context=authority.context())
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"https://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_lake_behind_tls_of_ones_own(endpoint: str, authority: Authority) -> None:
    options = {"endpoint": endpoint, "bearer_token": TOKEN, "ca_certificate": str(authority.file)}
    store = open_storage("gs://lake/store", options=options)
    assert store.put_if_absent("a", b"x") == Mine()
    assert store.put_if_absent("a", b"y") == Theirs(b"x")
    catalog = TransactionalCatalog.open("gs://lake/root", create=True, options=options)
    create(catalog, "t", files=["p"])
    append(catalog, "t", "q")
    assert files(TransactionalCatalog.open("gs://lake/root", options=options), "t") == {"p", "q"}


@pytest.mark.parametrize("is_another", [False, True])
def test_who_signed_it_must_be_known(endpoint: str, tmp_path: Path, is_another: bool) -> None:
    """Nothing is sent to a server that nobody vouches for, and that it was not is certain."""
    known = {"ca_certificate": str(Authority(tmp_path, "another").file)} if is_another else {}
    store = open_storage("gs://lake/store", options={"endpoint": endpoint, "bearer_token": TOKEN, **known})
    with pytest.raises(UnavailableError, match=r"(?i)certificate") as caught:
        store.put_if_absent("a", b"x")
    assert caught.value.definite
