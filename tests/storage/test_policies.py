"""What docs/security.md says of objects that are overwritten and deleted, and the bucket policy that it recommends.

Both are read from there: the table is compared with what a server has noted while everything was done that can be, and
the policy is enforced by that server (`tests.support.policies`) while the same is done again.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends

from lockstep.errors import StoreRefusedError
from lockstep.lake.verify import verify
from lockstep.storage import open_storage
from lockstep.timeline import fence
from lockstep.timeline.files import entry_path, version_in
from lockstep.timeline.hint import HINT
from tests.support.policed_lakes import BUCKET, KEEPER, KEEPING, ROOT, WRITER, WRITING, PolicedLake, expire, make
from tests.support.policies import Done, Policed
from tests.support.s3 import client, moto, serving

pytestmark = pytest.mark.long

DOCUMENT = Path(__file__).parents[2] / "docs" / "security.md"
HEADING = "| below the root |"

UNSEEN = {
    ("_lockstep/history/….jsonl.gz", "written over"),
    ("_lockstep/bases/<version>.jsonl.gz", "written over"),
    ("_lockstep/checkpoints/<version>.json", "written over"),
    ("_lockstep/checkpoints/parts/<digest>.jsonl", "written over"),
    ("_lockstep/checkpoints/parts/<digest>.jsonl", "deleted"),
    ("_lockstep/checkpoints/_unnamed.json", "written over"),
    ("_lockstep/guests/<id>.json", "written over"),
    ("_lockstep/guests/<id>.json", "deleted"),
    ("_lockstep/store/<digest>.json", "written over"),
    ("_lockstep/decided/…", "written over"),
    ("_lockstep/decided/…", "deleted"),
    ("_lockstep/arbiter.json", "written over"),
    ("<table>/_delta_log/_lockstep/…lake-over.json", "deleted"),
    ("<table>/_delta_log/…checkpoint…", "written over"),
    ("<table>/_delta_log/…checkpoint…", "deleted"),
    ("<table>/_delta_log/_sidecars/…", "deleted"),
}
"""What the table says, and nothing here does: what is damaged, late, an arbiter's, or Delta's."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table, of one kind of object: how it is made, and by whom overwritten and deleted, if by anybody."""

    kind: str
    made: str
    over: str
    deleted: str

    def allows(self, how: str) -> bool:
        """Tell whether that may become of such an object."""
        match how:
            case "written over":
                return not self.over.startswith("nobody")
            case "deleted":
                return self.deleted != "nobody"
            case "made if absent":
                return "if absent" in self.made or "either way" in self.made
            case _:
                return "plainly" in self.made or "either way" in self.made

    @property
    def said(self) -> int:
        """How many characters of a path are said: of two kinds that an object may be of, that with more holds."""
        return len(re.sub(r"<[^>]*>|…", "", self.kind))

    def is_of(self, path: str) -> bool:
        """Tell whether an object is of this kind."""
        parts = re.split(r"(<table>|<[^>]*>|…)", self.kind)
        signs = {"<table>": ".+", "…": ".*"}
        pattern = "".join(signs.get(part, "[^/]+" if part.startswith("<") else re.escape(part)) for part in parts)
        return re.fullmatch(pattern, path) is not None


def rows() -> list[Row]:
    lines = DOCUMENT.read_text(encoding="utf-8").partition(HEADING)[2].partition("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [Row(kind, *rest) for first, *rest in cells for kind in re.findall(r"`([^`]+)`", first)]


def policy() -> Mapping[str, Any]:
    """Return the policy as docs/security.md has it."""
    [text] = re.findall(r"```json\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    return json.loads(text)


@contextmanager
def served(said: Mapping[str, Any] | None = None) -> Iterator[PolicedLake]:
    """Serve an empty bucket that has a policy."""
    app = Policed(moto(), {WRITER: WRITER, KEEPER: KEEPER})
    app.policy = said or app.policy
    with serving(app, bucket=BUCKET) as endpoint:
        try:
            yield PolicedLake(app, endpoint)
        finally:
            s3_backends[DEFAULT_ACCOUNT_ID]["aws"].buckets[
                BUCKET
            ].keys.clear()  # all servers of a process have the same


@pytest.fixture(autouse=True)
def _nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """No process but this one may rely on what it has seen, so an expiry need not wait for others."""
    monkeypatch.setattr(fence, "GRACE_SECONDS", 0.0)


def test_what_is_overwritten_and_deleted_is_what_the_table_says() -> None:
    seen: dict[str, set[str]] = defaultdict(set)
    known = rows()
    with served() as world:
        for operation in {**WRITING, **KEEPING, "expire again": expire}.values():
            operation(world, KEEPER)
        for done in world.served.done:
            root, _, path = done.key.partition("/")
            if root == "plain" or path.startswith("below/_delta_log/0"):
                continue  # what somebody else has written
            path = path.replace("_lockstep/_lockstep_race/", "_lockstep_race/")
            if "/_lockstep_race/" in path:
                continue  # beside the root, as docs/storage.md says
            row = max((row for row in known if row.is_of(path)), key=lambda row: row.said, default=None)
            assert row is not None, f"{done}: the table does not have it"
            assert row.allows(done.how), f"{done}: the table says otherwise: {row}"
            seen[row.kind].add(done.how)
            if row.kind.endswith("timeline/<version>.json") and done.how == "written over":
                assert path == entry_path(0)
    said = {(row.kind, how) for row in known for how in ("written over", "deleted") if row.allows(how)}
    assert {each for each in said if each[1] not in seen[each[0]]} == UNSEEN


def test_who_writes_is_refused_nothing_but_expiry() -> None:
    with served(policy()) as world:
        for operation in WRITING.values():
            operation(world, WRITER)
        assert refused(world) == []
        before = world.opened(WRITER).at()["t"].to_arrow().num_rows
        with pytest.raises(StoreRefusedError, match=r"AccessDenied") as caught:
            expire(world, WRITER)
        assert caught.value.sqlstate == "42501"
        assert [(done.key, done.action) for done in refused(world)] == [
            (f"{ROOT}/{entry_path(0)}", "s3:PutObject"),
        ]
        check_goes_on(world, before)
        for operation in KEEPING.values():
            operation(world, KEEPER)
        with pytest.raises(StoreRefusedError, match=r"AccessDenied") as caught:  # entry 0 is wrapped by now
            expire(world, WRITER)
        assert caught.value.sqlstate == "42501"
        assert {done.action for done in refused(world)[1:]} == {"s3:DeleteObject"}
        check_goes_on(world, before + 1)
        expire(world, KEEPER)
        names = world.store(KEEPER).list("_lockstep/timeline")
        assert [version_in(name) for name in names][:2] != [0, 1], "the entries are gone"


def refused(world: PolicedLake) -> list[Done]:
    """Return what was refused so far."""
    return [done for done in world.served.done if done.how == "refused"]


def check_goes_on(world: PolicedLake, rows: int) -> None:
    """See that others read the lake, and commit to it, and that nothing of it is wrong."""
    lake = world.opened(WRITER)
    assert lake.at()["t"].to_arrow().num_rows == rows
    with lake.transaction() as tx:
        tx["t"].append({"id": [99]})
    lake.catalog.lake.upkeep.settle()
    assert not verify(lake.catalog.lake.storage, lake.catalog.timeline).differences


@pytest.mark.parametrize("who", [WRITER, KEEPER])
def test_the_history_is_overwritten_and_deleted_by_one_role_alone(who: str) -> None:
    """Also by a tool that has nothing to do with Lockstep."""
    with served(policy()) as world:
        make(world, WRITER)
        expire(world, KEEPER)
        tool = client(world.endpoint, world.options(who))
        store = world.store(who)
        last = max(filter(None, map(version_in, store.list("_lockstep/timeline"))))
        paths = [entry_path(0), entry_path(last)]
        paths += [f"_lockstep/{name}/{store.list(f'_lockstep/{name}')[0]}" for name in ("history", "bases", "expired")]
        for path in paths:
            where = {"Bucket": BUCKET, "Key": f"{ROOT}/{path}"}
            content = store.get(path)
            for change in (lambda at: tool.put_object(Body=b"{}", **at), lambda at: tool.delete_object(**at)):
                if who == KEEPER:
                    change(where)
                    continue
                with pytest.raises(ClientError, match="AccessDenied"):
                    change(where)
                assert store.get(path) == content
        tool.put_object(Bucket=BUCKET, Key=f"{ROOT}/{HINT}", Body=b"{}")  # each commit does


class Locked:
    """Takes either header by which S3 is told a checksum of what is put; moto takes one of the two alone."""

    def __init__(self) -> None:
        self._app = moto()

    def __call__(self, environ: Any, start_response: Any) -> Any:
        if any(name.startswith("HTTP_X_AMZ_CHECKSUM_") for name in environ):
            environ["HTTP_X_AMZ_SDK_CHECKSUM_ALGORITHM"] = "SHA256"
        return self._app(environ, start_response)


@dataclass
class Lock:
    """A bucket whose objects are locked for a day."""

    endpoint: str
    options: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        keys = {"access_key_id": "test", "secret_access_key": "test", "region": "us-east-1"}
        self.options = {**keys, "endpoint": self.endpoint}
        self.tool = client(self.endpoint, keys)
        self.tool.create_bucket(Bucket="locked", ObjectLockEnabledForBucket=True)
        rule = {"DefaultRetention": {"Mode": "GOVERNANCE", "Days": 1}}
        said = {"ObjectLockEnabled": "Enabled", "Rule": rule}
        self.tool.put_object_lock_configuration(Bucket="locked", ObjectLockConfiguration=said)


def test_a_locked_bucket_takes_what_has_a_checksum_and_keeps_what_was() -> None:
    """A lock is of versions: what is put on top, and deletions, go on; what is below stays."""
    with serving(Locked()) as endpoint:
        lock = Lock(endpoint)
        without = open_storage("s3://locked/lake", options=lock.options)
        with pytest.raises(StoreRefusedError, match="checksum"):
            without.put_if_absent("a", b"x")
        store = open_storage("s3://locked/lake", options={**lock.options, "checksum_algorithm": "SHA256"})
        store.put_if_absent("a", b"x")
        store.put("a", b"y")
        store.put_chunks("b", [b"z" * 6_000_000, b"z" * 6_000_000])
        store.delete_all(["a", "b"])
        assert store.list("") == []
        versions = lock.tool.list_object_versions(Bucket="locked")["Versions"]
        assert [each["Key"] for each in versions] == ["lake/a", "lake/a", "lake/b"]
        for each in versions[:2]:  # moto locks nothing that was put in parts
            with pytest.raises(ClientError, match="AccessDenied"):
                lock.tool.delete_object(Bucket="locked", Key=each["Key"], VersionId=each["VersionId"])
