"""What gives a machine its keys: an instance's metadata service (IMDSv2), a container's, and AWS's token service.

Each gives what `Signed` accepts at that moment, so keys that were given before, and changed since, are refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from urllib.parse import parse_qs

from tests.support.signed import Keys

ROLE = "lake-writer"
IDENTITY = "the token of a web identity"
AUTHORIZATION = "the token of a container"


class Metadata:
    """Serves keys; an application.

    Attributes:
        lasts: how long they last, as far as it says.
        version: of the instance's service; the first has no tokens.
        given: which keys were given, oldest first.
    """

    def __init__(self, keys: Callable[[], Keys], *, version: Literal[1, 2] = 2) -> None:
        self._keys = keys
        self.lasts = timedelta(hours=1)
        self.version = version
        self.given: list[str] = []
        self._tokens: set[str] = set()

    def __call__(self, environ: Any, start_response: Any) -> Any:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)).decode()
        status, text = self._answer(environ, f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}", body)
        start_response(f"{status} -", [("Content-Type", "text/plain"), ("Content-Length", str(len(text.encode())))])
        return [text.encode()]

    def _answer(self, environ: Any, asked: str, body: str) -> tuple[int, str]:
        roles = "/latest/meta-data/iam/security-credentials"
        match asked:
            case "PUT /latest/api/token":
                if self.version == 1:
                    return 403, ""
                if not re.fullmatch(r"\d+", environ.get("HTTP_X_AWS_EC2_METADATA_TOKEN_TTL_SECONDS", "")):
                    return 400, ""
                self._tokens.add(f"token-{len(self._tokens)}")
                return 200, f"token-{len(self._tokens) - 1}"
            case "GET /container":
                is_ours = environ.get("HTTP_AUTHORIZATION") == AUTHORIZATION
                return (200, self._given()) if is_ours else (401, "")
            case "POST /sts" | "POST /sts/":
                said = {name: value for name, [value] in parse_qs(body or environ["QUERY_STRING"]).items()}
                assert said["Action"] == "AssumeRoleWithWebIdentity", said
                is_ours = (said["WebIdentityToken"], said["RoleArn"].rpartition("/")[2]) == (IDENTITY, ROLE)
                return (200, self._assumed()) if is_ours else (403, "")
            case _ if asked in {f"GET {roles}", f"GET {roles}/", f"GET {roles}/{ROLE}"}:
                if self.version == 2 and environ.get("HTTP_X_AWS_EC2_METADATA_TOKEN") not in self._tokens:
                    return 401, ""
                return 200, self._given() if asked.endswith(ROLE) else ROLE
        return 404, ""

    def _until(self) -> str:
        return (datetime.now(UTC) + self.lasts).strftime("%Y-%m-%dT%H:%M:%SZ")

    def _given(self) -> str:
        keys = self._keys()
        self.given.append(keys.access_key_id)
        said = {"AccessKeyId": keys.access_key_id, "SecretAccessKey": keys.secret_access_key}
        return json.dumps({"Code": "Success", **said, "Token": keys.session_token, "Expiration": self._until()})

    def _assumed(self) -> str:
        keys = self._keys()
        self.given.append(keys.access_key_id)
        said = (
            f"<SessionToken>{keys.session_token}</SessionToken><SecretAccessKey>{keys.secret_access_key}"
            f"</SecretAccessKey><Expiration>{self._until()}</Expiration><AccessKeyId>{keys.access_key_id}</AccessKeyId>"
        )
        return (
            '<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">'
            f"<AssumeRoleWithWebIdentityResult><Credentials>{said}</Credentials></AssumeRoleWithWebIdentityResult>"
            "</AssumeRoleWithWebIdentityResponse>"
        )
