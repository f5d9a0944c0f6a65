"""What others put into S3 for a folder: an empty object with the folder's name and a slash."""

from __future__ import annotations

import urllib.request

from lockstep.storage import open_storage
from tests.support.s3 import KEYS, moto, serving


def test_what_is_put_for_a_folder_is_not_in_that_folder() -> None:
    """S3's console and Hadoop's s3a put such an object, and obstore tells of it without the slash."""
    with serving(moto(), bucket="marked") as endpoint:
        for name in ("", "t/", "t/u/"):
            request = urllib.request.Request(f"{endpoint}/marked/lake/{name}", data=b"", method="PUT")
            urllib.request.urlopen(request).close()
        store = open_storage("s3://marked/lake", options={**KEYS, "endpoint": endpoint})
        for path in ("t", "t/a", "t/u/b"):
            store.put(path, b"x")
        assert [store.list(""), store.list("t"), store.list("t/u"), store.list("t/u", "a")] == [
            ["t"],
            ["a"],
            ["b"],
            ["b"],
        ]
        assert {found.path for found in store.walk("t/u")} == {"t/u/b"}
        assert {found.path for found in store.walk("t")} == {"t/a", "t/u", "t/u/b"}
        assert {found.path for found in store.walk("")} == {"t", "t/a", "t/u", "t/u/b"}
        store.delete_folder("t")
        assert store.get("t") == b"x", "an object beside the folder that has its name"
