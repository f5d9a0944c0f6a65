"""An S3 that looks at who asks: at the key, at the session's token, and at the signature, as Amazon's does.

moto answers whoever asks. In front of it this computes each request's signature anew, by the published rules of version
4, from what came over the wire; so a token that is not sent, not signed, or old, is refused as S3 refuses it.
"""

from __future__ import annotations

import hashlib
import hmac
import io
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, quote

from tests.support.s3 import Application

TOKEN_HEADER = "x-amz-security-token"


@dataclass(frozen=True, slots=True)
class Keys:
    """What one signs with; the token only while there is a session."""

    access_key_id: str
    secret_access_key: str
    session_token: str = ""


class Signed:
    """Serves an application to those who sign with the right keys, and nothing to others.

    Attributes:
        keys: the right ones, now.
        old: those before, for as long as they are good, too.
        asked: of each request what it was, and with which key it was signed, oldest first.
        refused: why requests were refused, oldest first.
    """

    def __init__(self, app: Application, keys: Keys) -> None:
        self._app = app
        self.keys = keys
        self.old: Keys | None = None
        self.asked: list[tuple[str, str]] = []
        self.refused: list[str] = []

    def __call__(self, environ: Any, start_response: Any) -> Any:
        bucket, _, key = environ["PATH_INFO"].strip("/").partition("/")
        if environ["REQUEST_METHOD"] == "PUT" and bucket and not key and "HTTP_AUTHORIZATION" not in environ:
            return self._app(environ, start_response)  # the test makes its bucket
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        why = self._refusal(environ, body)
        if why is None:
            if environ["HTTP_HOST"].partition(":")[0].endswith(".invalid"):
                environ["HTTP_HOST"] = "localhost"  # else moto would look for a bucket in it
            return self._app(environ, start_response)
        self.refused.append(why)
        start_response("403 Forbidden", [("Content-Type", "application/xml")])
        return [
            f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{why}</Code><Message>no</Message></Error>'.encode()
        ]

    def _refusal(self, environ: Any, body: bytes) -> str | None:
        said = re.fullmatch(
            r"AWS4-HMAC-SHA256 Credential=([^/]+)/([^,]+), SignedHeaders=([^,]+), Signature=([0-9a-f]+)",
            environ.get("HTTP_AUTHORIZATION", ""),
        )
        if said is None:
            return "AccessDenied"
        key, scope, signed, signature = said.groups()
        method = environ["REQUEST_METHOD"]
        self.asked.append((f"{method} if absent" if environ.get("HTTP_IF_NONE_MATCH") else method, key))
        keys = next((each for each in (self.keys, self.old) if each is not None and each.access_key_id == key), None)
        if keys is None:
            return "InvalidAccessKeyId"
        if environ.get("HTTP_X_AMZ_SECURITY_TOKEN", "") != keys.session_token:
            return "InvalidToken"
        if keys.session_token and TOKEN_HEADER not in signed.split(";"):
            return "SignatureDoesNotMatch"
        digest = environ["HTTP_X_AMZ_CONTENT_SHA256"]
        if digest not in ("UNSIGNED-PAYLOAD", hashlib.sha256(body).hexdigest()):
            return "XAmzContentSHA256Mismatch"
        wanted = _signature(environ, keys.secret_access_key, scope, signed, digest)
        return None if wanted == signature else "SignatureDoesNotMatch"


def _signature(environ: Any, key: str, scope: str, signed: str, digest: str) -> str:
    asked = parse_qsl(environ.get("QUERY_STRING", ""), keep_blank_values=True)
    query = sorted((quote(name, safe="-_.~"), quote(value, safe="-_.~")) for name, value in asked)
    headers = "".join(f"{name}:{_header(environ, name)}\n" for name in signed.split(";"))
    request = "\n".join([
        environ["REQUEST_METHOD"],
        quote(environ["PATH_INFO"].encode("latin-1"), safe="/-_.~"),
        "&".join(f"{name}={value}" for name, value in query),
        headers,
        signed,
        digest,
    ])  # fmt: skip
    hashed = hashlib.sha256(request.encode()).hexdigest()
    text = "\n".join(["AWS4-HMAC-SHA256", environ["HTTP_X_AMZ_DATE"], scope, hashed])
    secret = f"AWS4{key}".encode()
    for part in scope.split("/"):
        secret = hmac.digest(secret, part.encode(), "sha256")
    return hmac.digest(secret, text.encode(), "sha256").hex()


def _header(environ: Any, name: str) -> str:
    key = name.upper().replace("-", "_")
    return " ".join(str(environ.get(f"HTTP_{key}", environ.get(key, ""))).split())
