"""A stand-in for Google Cloud Storage: the requests that obstore sends there, answered as Google's reference has it.

There is no emulator that takes these requests (docs/storage.md says which were looked at), so this is a server of our
own, in this process, over HTTP. With it the tests show that what obstore sends is what the reference describes, and
that Lockstep makes the right thing of the answers. That Google's own store answers so it cannot show, and nothing of
how fast or how busy that is.

It follows https://cloud.google.com/storage/docs/xml-api/reference-methods, and of that only what obstore asks for; all
else is 501. What differs from S3 there:

    PUT Object          `x-goog-if-generation-match: 0` writes only where there is no object, else 412
                        (reference-headers#xgoogifgenerationmatch, put-object-upload)
    DELETE Object       404 where there is none, where S3 says 204 (delete-object); there is no request for several
    Authorization       a token of OAuth, and no signature: 401 without
    multipart uploads   as S3's (post-object-multipart, put-object-multipart, post-object-complete)
    GET Bucket          list-type=2, as S3's: at most 1,000 objects and prefixes a page (get-bucket-list)
    errors              reference-status
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from xml.etree import ElementTree as ET

from werkzeug.wrappers import Request, Response

TOKEN = "a token"
CONDITION = "x-goog-if-generation-match"
PAGE = 1_000
LEAST_PART = 5 * 1024 * 1024
"""Of each part but the last (https://cloud.google.com/storage/docs/multipart-uploads)."""


@dataclass(frozen=True, slots=True)
class Object:
    """One generation of an object."""

    data: bytes
    generation: int
    modified: datetime

    @property
    def etag(self) -> str:
        """What S3 has for one, too: the digest of the data."""
        return _digest(self.data)


@dataclass(slots=True)
class Upload:
    """A multipart upload that is not complete."""

    name: str
    parts: dict[int, bytes] = field(default_factory=dict)


class Refused(Exception):  # noqa: N818 (an answer)
    """What is answered instead."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(status, code)
        self.answer = _xml("Error", [("Code", code), ("Message", "said the stand-in")], status)


class Gcs:
    """One bucket, for as many clients at once as there are.

    Attributes:
        heeds_conditions: whether a condition is looked at; a server that does not must be refused.
    """

    def __init__(self, bucket: str = "lake", *, heeds_conditions: bool = True) -> None:
        self.heeds_conditions = heeds_conditions
        self._bucket = bucket
        self._lock = threading.Lock()
        self._objects: dict[str, Object] = {}
        self._uploads: dict[str, Upload] = {}
        self._generation = 0

    def __call__(self, environ: Any, start_response: Any) -> Iterable[bytes]:
        request = Request(environ)
        data = request.get_data()
        try:
            with self._lock:
                response = self._answer(request, data)
        except Refused as refused:
            response = refused.answer
        return response(environ, start_response)

    def _answer(self, request: Request, data: bytes) -> Response:
        bucket, _, name = request.path.removeprefix("/").partition("/")
        if request.method == "PUT" and not name:
            return Response()  # who makes the bucket is the test
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            raise Refused(401, "AuthenticationRequired")
        if bucket != self._bucket:
            raise Refused(404, "NoSuchBucket")
        asked = request.args
        if "uploads" in asked or "uploadId" in asked:
            return self._upload(request, name, data)
        match request.method:
            case "GET" if not name and asked.get("list-type") == "2":
                return self._list(asked)
            case "GET" | "HEAD" if name:
                return self._read(request, name)
            case "PUT":
                self._check_condition(request, name)
                return _told(self._write(name, data))
            case "DELETE" if name:
                if self._objects.pop(name, None) is None:
                    raise Refused(404, "NoSuchKey")
                return Response(status=204)
        raise Refused(501, "NotImplemented")

    def _upload(self, request: Request, name: str, data: bytes) -> Response:
        """Answer what belongs to an upload in parts."""
        asked = request.args
        match request.method:
            case "POST" if "uploads" in asked:
                self._generation += 1
                self._uploads[upload := f"upload-{self._generation}"] = Upload(name)
                told = [("Bucket", self._bucket), ("Key", name), ("UploadId", upload)]
                return _xml("InitiateMultipartUploadResult", told)
            case "POST":
                return self._complete(asked["uploadId"], data)
            case "PUT":
                self._uploads[asked["uploadId"]].parts[int(asked["partNumber"])] = data
                return Response(headers={"ETag": f'"{_digest(data)}"'})
            case "DELETE":
                del self._uploads[asked["uploadId"]]
                return Response(status=204)
        raise Refused(501, "NotImplemented")

    def _check_condition(self, request: Request, name: str) -> None:
        wanted = request.headers.get(CONDITION)
        if wanted is None or not self.heeds_conditions:
            return
        there = self._objects.get(name)
        if int(wanted) != (there.generation if there else 0):
            raise Refused(412, "PreconditionFailed")

    def _write(self, name: str, data: bytes) -> Object:
        self._generation += 1
        self._objects[name] = Object(data, self._generation, datetime.now(UTC).replace(microsecond=0))
        return self._objects[name]

    def _complete(self, upload: str, data: bytes) -> Response:
        """Make an object of an upload's parts, in the order of the numbers that are told."""
        numbers = [int(each.text or "") for each in ET.fromstring(data).iterfind("{*}Part/{*}PartNumber")]
        parts = [self._uploads[upload].parts[number] for number in sorted(numbers)]
        if not parts:
            raise Refused(400, "MalformedCompleteMultipartUploadRequest")
        if any(len(part) < LEAST_PART for part in parts[:-1]):
            raise Refused(400, "EntityTooSmall")
        name = self._uploads.pop(upload).name
        made = self._write(name, b"".join(parts))
        told = [("Bucket", self._bucket), ("Key", name), ("ETag", f'"{made.etag}"')]
        response = _xml("CompleteMultipartUploadResult", told)
        response.headers["x-goog-generation"] = str(made.generation)
        return response

    def _read(self, request: Request, name: str) -> Response:
        if (there := self._objects.get(name)) is None:
            raise Refused(404, "NoSuchKey")
        response = _told(there, there.data)
        response.last_modified = there.modified
        return response.make_conditional(request, accept_ranges=True, complete_length=len(there.data))

    def _list(self, asked: Mapping[str, str]) -> Response:
        """Answer with one page: names in the order of their bytes, and prefixes as if they were names."""
        prefix, delimiter = asked.get("prefix", ""), asked.get("delimiter", "")
        after = max(asked.get("continuation-token", ""), asked.get("start-after", ""), key=str.encode)
        room = min(int(asked.get("max-keys", PAGE)), PAGE)
        contents: list[ET.Element] = []
        prefixes: list[ET.Element] = []
        last, is_more = "", False
        for name in sorted(self._objects, key=str.encode):
            head, found, _ = name.removeprefix(prefix).partition(delimiter) if delimiter else ("", "", "")
            told = f"{prefix}{head}{found}" if found else name
            if not name.startswith(prefix) or told.encode() <= after.encode() or told == last:
                continue
            if is_more := len(contents) + len(prefixes) == room:
                break
            last = told
            if found:
                prefixes.append(_element("CommonPrefixes", [("Prefix", told)]))
            else:
                contents.append(_element("Contents", _listed(name, self._objects[name])))
        told_of = [("Name", self._bucket), ("Prefix", prefix), ("IsTruncated", str(is_more).lower())]
        more = [("NextContinuationToken", last)] if is_more else []
        page = _element("ListBucketResult", [*told_of, *more, ("KeyCount", str(len(contents) + len(prefixes)))])
        page.extend([*contents, *prefixes])
        return _answer_of(page)


def _digest(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def _listed(name: str, there: Object) -> list[tuple[str, str]]:
    modified = there.modified.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    size, generation = str(len(there.data)), str(there.generation)
    told = [("Key", name), ("Generation", generation), ("LastModified", modified), ("ETag", f'"{there.etag}"')]
    return [*told, ("Size", size)]


def _told(there: Object, data: bytes = b"") -> Response:
    response = Response(data, content_type="application/octet-stream")
    response.set_etag(there.etag)
    response.headers["x-goog-generation"] = str(there.generation)
    return response


def _element(name: str, children: Iterable[tuple[str, str]]) -> ET.Element:
    element = ET.Element(name)
    for child, text in children:
        ET.SubElement(element, child).text = text
    return element


def _xml(name: str, children: Iterable[tuple[str, str]], status: int = 200) -> Response:
    return _answer_of(_element(name, children), status)


def _answer_of(element: ET.Element, status: int = 200) -> Response:
    return Response(ET.tostring(element, "utf-8", xml_declaration=True), status, content_type="application/xml")
