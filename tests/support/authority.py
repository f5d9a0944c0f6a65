"""An authority of one's own, which signs the certificates of servers that tests start."""

from __future__ import annotations

import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


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

    def context(self, *names: str) -> ssl.SSLContext:
        """Return what a server of this machine needs, with a certificate of its own, also for these names."""
        key = ec.generate_private_key(ec.SECP256R1())
        here = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        hosts = x509.SubjectAlternativeName([here, *map(x509.DNSName, names)])
        made = self._signed(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "store")]), key.public_key(), hosts)
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
