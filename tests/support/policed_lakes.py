"""Lakes in a bucket with a policy, and what people do with them: what of it a policy refuses, and what it does.

Everything here is done by requests that `Policed` sees: by the requests of one who writes, or of one who looks after
the lake, told apart by their keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta

import pyarrow as pa
import pytest
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends

from lockstep.adoption.adopt import Wanted, adopt, look
from lockstep.adoption.release import release
from lockstep.catalog import TransactionalCatalog
from lockstep.commit.keeping import Keeper
from lockstep.conflict.lock_policy import Resolution
from lockstep.delta.actions import render
from lockstep.delta.log import commit_path
from lockstep.errors import ConflictError
from lockstep.exports.export import Asked, Exporter
from lockstep.lake.exports import forget_export
from lockstep.recovery.tags import new_tag
from lockstep.retention.ages import Retention
from lockstep.retention.expiring import expire_snapshots
from lockstep.retention.floor import set_floor
from lockstep.retention.upkeep import maintain, vacuum
from lockstep.storage import Storage, open_storage
from lockstep.storage.proof import race
from lockstep.tables.opened import OpenLake
from lockstep.tables.transaction import LakeTransaction
from lockstep.timeline.clock import utc_now
from tests.support.lakes import CREATED, add, named, stage
from tests.support.policies import Policed

WRITER, KEEPER = "lake-writer", "lake-maintenance"
"""The roles of who writes, and of who looks after the lake; docs/security.md has the second."""

BUCKET, ROOT = "bucket", "lake"
"""As docs/security.md calls them."""

SCHEMA = pa.schema([("id", pa.int64())])
LONG_AGO = timedelta(days=60)
AT_ONCE = {"retention-age": "1d", "retention-versions": "1", "deletion-grace": "0s", "orphan-age": "2h"}


class PolicedLake:
    """A lake in a bucket that is served by a `Policed`.

    Attributes:
        served: what serves it.
        endpoint: where.
    """

    def __init__(self, served: Policed, endpoint: str) -> None:
        self.served = served
        self.endpoint = endpoint

    def options(self, who: str) -> Mapping[str, str]:
        """Return what opens a store for one of them."""
        keys = {"access_key_id": who, "secret_access_key": "secret", "region": "us-east-1"}
        return {**keys, "endpoint": self.endpoint}

    def store(self, who: str, root: str = ROOT) -> Storage:
        """Open the store as one of them."""
        return open_storage(f"s3://{BUCKET}/{root}", create=True, options=self.options(who))

    def opened(
        self, who: str, *, clock: Callable[[], datetime] = utc_now, resolution: Resolution | None = None
    ) -> OpenLake:
        """Open the lake as one of them, or make it."""
        catalog = TransactionalCatalog.open(
            f"s3://{BUCKET}/{ROOT}",
            create=True,
            options=self.options(who),
            checkpoint_interval=3,
            clock=clock,
            resolution=resolution or Resolution(),
        )
        return OpenLake(catalog, self.options(who))

    def grow_old(self) -> None:
        """Have all that is in the bucket be as if it had been stored long ago."""
        for key in s3_backends[DEFAULT_ACCOUNT_ID]["aws"].buckets[BUCKET].keys.values():
            key.last_modified -= LONG_AGO


def settled(lake: OpenLake) -> None:
    """Wait for what a lake does behind its answers."""
    lake.catalog.lake.upkeep.settle()


def make(world: PolicedLake, who: str) -> None:
    """Make the lake, with a table whose history is old."""
    lake = world.opened(who, clock=lambda: utc_now() - LONG_AGO)
    with lake.transaction() as tx:
        for name in ("t", "u", "dropped"):
            tx.create(name, SCHEMA, properties={"delta.enableDeletionVectors": "true"})
            tx[name].append({"id": [1, 2, 3]})
    for name in ("t", "t", "u"):
        with lake.transaction() as tx:
            tx[name].append({"id": [4]})
            tx[name].overwrite({"id": [5, 6]})
    with lake.transaction() as tx:
        tx.drop("dropped")
    settled(lake)
    world.grow_old()


def write(world: PolicedLake, who: str) -> None:
    """Commit, take back, and leave open for a while what others can see."""
    lake = world.opened(who, resolution=Resolution("wait-die", 1))
    with lake.transaction() as tx:
        tx["t"].append({"id": [7, 8]})
        tx.savepoint("s")
        tx["t"].delete("id = 7")
        tx.create("v", SCHEMA)
        tx["v"].append({"id": [1]})
        tx.rollback_to("s")
        tx["t"].delete("id = 8")
        tx["u"].update({"id": "id + 1"})
    with suppress(_GivenUpError), lake.transaction() as tx:
        tx["t"].append({"id": [9]})
        tx.create("w", SCHEMA)
        tx["w"].append({"id": [1]})
        _be_seen(lake, tx)
        raise _GivenUpError
    with pytest.raises(ConflictError):
        _be_overtaken(lake, world.opened(who))
    settled(lake)


class _GivenUpError(Exception):
    """A transaction is given up."""


def _be_seen(lake: OpenLake, tx: LakeTransaction) -> None:
    """Have a transaction be open for as long as it takes until others are told of it, twice."""
    now = [0.0]
    keeper = Keeper(seconds=lambda: now[0])
    keeper.watch(lake.catalog.lake, tx.core)
    for seconds in (10.0, 20.0):
        now[0] = seconds
        keeper.look()
    keeper.ended(tx.core)


def _be_overtaken(lake: OpenLake, other: OpenLake) -> None:
    """Replace what somebody else has replaced in the meantime."""
    with lake.transaction(isolation="SNAPSHOT") as tx:
        tx["u"].delete("id = 6")
        with other.transaction(isolation="SNAPSHOT") as first:
            first["u"].delete("id = 6")


def announce(world: PolicedLake, who: str) -> None:
    """Replace files of a table in two statements, as one who waits for others."""
    catalog = world.opened(who, resolution=Resolution("wait-die", 1)).catalog
    tx = catalog.begin(isolation="SNAPSHOT")
    for path in ("x", "y"):
        stage(catalog, tx, "u", add(path))
    catalog.rollback(tx)
    catalog.lake.upkeep.settle()


def recover(world: PolicedLake, who: str) -> None:
    """Tag, restore, and take a tag back."""
    lake = world.opened(who)
    version = lake.catalog.timeline.head.version
    tag = new_tag("eod", version=None, days=None, comment="", now=utc_now())
    lake.catalog.run(lambda tx: tx.changing().create_tag(tag))
    settled(lake)
    with lake.transaction() as tx:
        tx["t"].append({"id": [10]})
    lake.restore(version)
    lake.revert(lake.catalog.timeline.head.version)
    settled(lake)


def take_in(world: PolicedLake, who: str) -> None:
    """Adopt a plain table beside the lake, and one below its root, and let them go."""
    catalog = world.opened(who).catalog
    world.store(who, "plain").put(commit_path("orders", 0), render(CREATED))
    catalog.lake.storage.put(commit_path("below", 0), render(CREATED))
    for name, where in (("orders", f"s3://{BUCKET}/plain/orders"), ("below", f"s3://{BUCKET}/{ROOT}/below")):
        tx = catalog.begin()
        adopt(catalog.lake, tx, look(catalog.lake, tx.names, [Wanted(named(name), where)]))
        catalog.commit(tx)
        tx = catalog.begin()
        release(catalog.lake, tx, [named(name)])
        catalog.commit(tx)
    catalog.lake.upkeep.settle()


def hand_out(world: PolicedLake, who: str) -> None:
    """Export, and drop an export."""
    lake = world.opened(who).catalog.lake
    exporter = Exporter(lake, lambda url, create: open_storage(url, create=create, options=world.options(who)))
    exporter.run(Asked(to=f"s3://{BUCKET}/full", mode="full", version=lake.timeline.head.version))
    part = exporter.run(Asked(to=f"s3://{BUCKET}/part", mode="partial", version=lake.timeline.head.version))
    forget_export(lake.storage, part.id)


def clean(world: PolicedLake, who: str) -> None:
    """Delete files that no version needs, and race for new objects, as `lockstep doctor` does."""
    lake = world.opened(who).catalog.lake
    lake.storage.put("default/litter-1/part.parquet", b"")
    for _ in range(3):  # what is marked, what went, and what is forgotten
        vacuum(lake, Retention.of(AT_ONCE))
    lake.upkeep.settle()
    race(lake.storage, folder="_lockstep/doctor-1")


def expire(world: PolicedLake, who: str) -> None:
    """Have versions expire."""
    lake = world.opened(who).catalog.lake
    expire_snapshots(lake, older_than=lake.clock(), retain_last=1, grace=timedelta())
    lake.upkeep.settle()


def look_after(world: PolicedLake, who: str) -> None:
    """Do all that `lockstep maintain` does, twice: what the first one marks, as what a tag kept, the second deletes."""
    catalog = world.opened(who).catalog
    lake = catalog.lake
    catalog.run(lambda tx: tx.changing().drop_tag("eod"))
    world.grow_old()
    for _ in range(2):
        maintain(lake, Retention.of(AT_ONCE))
    lake.upkeep.settle()


def keep(world: PolicedLake, who: str) -> None:
    """Say what the lake keeps at least."""
    set_floor(world.opened(who).catalog.lake, {"retention-age": "1d"}, author=who, statement="a test")


WRITING: Mapping[str, Callable[[PolicedLake, str], None]] = {
    "make": make,
    "keep": keep,
    "write": write,
    "announce": announce,
    "recover": recover,
    "take in": take_in,
    "hand out": hand_out,
    "clean": clean,
}
"""What the policy refuses to nobody."""

KEEPING: Mapping[str, Callable[[PolicedLake, str], None]] = {"expire": expire, "look after": look_after}
"""What it refuses to all but one role."""
