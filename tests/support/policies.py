"""A bucket policy, enforced before moto as S3 enforces it, and what was written and deleted in the bucket.

moto answers who may do what by itself in no way that a test could use: it takes a bucket's policy, and asks it nothing
of the conditions that S3 has. So this reads each request, and evaluates what docs/security.md has as JSON.

Only what such a policy says is known, and all else is an error of the test: statements that deny, one resource each or
several, with `*` and `?` in them, and the conditions `Null` and `ArnNotLike`.
"""

from __future__ import annotations

import base64
import hashlib
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias
from urllib.parse import parse_qs
from xml.etree import ElementTree as ET

from tests.support.s3 import Application

ACCOUNT = "arn:aws:iam::111122223333:role/"
NAMESPACE = "{http://s3.amazonaws.com/doc/2006-03-01/}"

How: TypeAlias = Literal["made if absent", "made", "written over", "deleted", "refused"]
"""What became of an object by one request.

    made if absent   by a request that asks that nothing is there
    made             by one that does not, where nothing was
    written over     by one that does not, where something was
    deleted          it was there, and is not
    refused          the policy said no
"""


@dataclass(frozen=True, slots=True)
class Done:
    """One thing that was done to an object, or refused: by whom, to which key, and how."""

    who: str
    key: str
    how: How
    action: str


class Policed:
    """Serves one bucket of an application, and refuses what the bucket's policy denies.

    Attributes:
        policy: the policy, as JSON has it; without one nothing is refused.
        done: what came of requests that change something, oldest first.
    """

    def __init__(self, app: Application, who: Mapping[str, str]) -> None:
        """Serve an application to these: by the id of an access key the name of a role."""
        self._app = app
        self._who = who
        self._there: set[str] = set()
        self.policy: Mapping[str, Any] = {"Statement": []}
        self.done: list[Done] = []

    def __call__(self, environ: Any, start_response: Any) -> Any:
        method, (bucket, _, key) = environ["REQUEST_METHOD"], environ["PATH_INFO"].lstrip("/").partition("/")
        asked = parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True)
        signed = re.search(r"Credential=([^/]+)/", environ.get("HTTP_AUTHORIZATION", ""))
        who = self._who[signed[1]] if signed else ""
        if method == "POST" and "delete" in asked:
            return self._delete_objects(environ, start_response, bucket, who)
        if (method == "PUT" and key) or (method == "POST" and ("uploads" in asked or "uploadId" in asked)):
            return self._put(environ, start_response, who, f"{bucket}/{key}", is_part="partNumber" in asked)
        if method == "DELETE" and key:
            return self._delete(environ, start_response, who, f"{bucket}/{key}", is_version="versionId" in asked)
        assert method in {"GET", "HEAD"} or not key, f"{method} {key} is not known here"
        return self._app(environ, start_response)

    def _put(self, environ: Any, start_response: Any, who: str, path: str, *, is_part: bool) -> Any:
        condition = environ.get("HTTP_IF_NONE_MATCH")
        key = path.partition("/")[2]
        if self._is_denied("s3:PutObject", who, path, {"s3:if-none-match": condition}):
            return self._refuse(environ, start_response, Done(who, key, "refused", "s3:PutObject"))

        def answered(status: str, headers: Any, *more: Any) -> Any:
            is_upload = environ["REQUEST_METHOD"] == "POST" and "uploads" in environ.get("QUERY_STRING", "")
            if status.startswith("200") and not is_part and not is_upload:
                how: How = "made if absent" if condition else "written over" if key in self._there else "made"
                self._note(who, key, how, "s3:PutObject")
                self._there.add(key)
            return start_response(status, headers, *more)

        return self._app(environ, answered)

    def _delete(self, environ: Any, start_response: Any, who: str, path: str, *, is_version: bool) -> Any:
        action, key = f"s3:DeleteObject{'Version' if is_version else ''}", path.partition("/")[2]
        if self._is_denied(action, who, path, {}):
            return self._refuse(environ, start_response, Done(who, key, "refused", action))
        self._note(who, key, "deleted", action)
        self._there.discard(key)
        return self._app(environ, start_response)

    def _refuse(self, environ: Any, start_response: Any, refused: Done) -> Any:
        self.done.append(refused)
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        start_response("403 Forbidden", [("Content-Type", "application/xml")])
        return [b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>AccessDenied</Code><Message/></Error>']

    def _delete_objects(self, environ: Any, start_response: Any, bucket: str, who: str) -> Any:
        """Delete those of some objects that the policy lets go; S3 answers 200, and says of each of the others no."""
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        keys = [each.text or "" for each in ET.fromstring(body).iter() if each.tag.endswith("Key")]
        denied = [key for key in keys if self._is_denied("s3:DeleteObject", who, f"{bucket}/{key}", {})]
        for key in keys:
            if key in denied:
                self._note(who, key, "refused", "s3:DeleteObject")
            elif key in self._there:
                self._note(who, key, "deleted", "s3:DeleteObject")
                self._there.remove(key)
        allowed = [key for key in keys if key not in denied]
        answer = self._deleted(environ, allowed) if allowed else _xml("DeleteResult")
        for key in denied:
            error = ET.SubElement(answer, f"{NAMESPACE}Error")
            for name, text in (("Key", key), ("Code", "AccessDenied"), ("Message", "Access Denied")):
                ET.SubElement(error, f"{NAMESPACE}{name}").text = text
        start_response("200 OK", [("Content-Type", "application/xml")])
        return [ET.tostring(answer, default_namespace=NAMESPACE.strip("{}"))]

    def _deleted(self, environ: Any, keys: Sequence[str]) -> ET.Element:
        """Have moto delete objects, and return its answer."""
        request = _xml("Delete")
        for key in keys:
            each = ET.SubElement(request, f"{NAMESPACE}Object")
            ET.SubElement(each, f"{NAMESPACE}Key").text = key
        body = ET.tostring(request, default_namespace=NAMESPACE.strip("{}"))
        environ["wsgi.input"], environ["CONTENT_LENGTH"] = io.BytesIO(body), str(len(body))
        environ["HTTP_CONTENT_MD5"] = base64.b64encode(hashlib.md5(body).digest()).decode()
        for name in [name for name in environ if name.startswith("HTTP_X_AMZ_CHECKSUM")]:
            del environ[name]
        statuses = list[str]()
        pieces: Iterable[bytes] = self._app(environ, lambda status, *_: statuses.append(status))
        answer = b"".join(pieces)
        assert statuses[0].startswith("200"), (statuses, answer)
        return ET.fromstring(answer)

    def _note(self, who: str, key: str, how: How, action: str) -> None:
        self.done.append(Done(who, key, how, action))

    def _is_denied(self, action: str, who: str, path: str, said: Mapping[str, str | None]) -> bool:
        context = {"aws:PrincipalArn": f"{ACCOUNT}{who}", **said}
        return any(
            action in _several(statement["Action"])
            and any(_matches(each, f"arn:aws:s3:::{path}") for each in _several(statement["Resource"]))
            and all(
                _holds(kind, context.get(name), wanted)
                for kind, conditions in statement.get("Condition", {}).items()
                for name, wanted in conditions.items()
            )
            for statement in self.policy["Statement"]
            if _is_known(statement)
        )


def _is_known(statement: Mapping[str, Any]) -> bool:
    assert (statement["Effect"], statement["Principal"]) == ("Deny", "*"), statement
    return True


def _holds(kind: str, value: str | None, wanted: str | Sequence[str]) -> bool:
    match kind:
        case "Null":
            return (value is None) == (wanted == "true")
        case "ArnNotLike":
            return not any(_matches(each, value or "") for each in _several(wanted))
    raise AssertionError(f"{kind} is no condition that is known here")


def _several(said: str | Sequence[str]) -> Sequence[str]:
    return [said] if isinstance(said, str) else said


def _matches(pattern: str, text: str) -> bool:
    """Tell whether a text is what a policy's pattern says: `*` is any characters, slashes too, and `?` is one."""
    parts = {"*": ".*", "?": "."}
    return re.fullmatch("".join(parts.get(each, re.escape(each)) for each in pattern), text, re.DOTALL) is not None


def _xml(name: str) -> ET.Element:
    return ET.Element(f"{NAMESPACE}{name}")
