"""Several lakes in one simulated store: a lake, and what was made of it, each below a root of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from lockstep.exports.files import Place
from lockstep.storage import Names
from tests.sim.scheduler import Process, Scheduler
from tests.sim.store import URL, Disk, Faults, SimulatedStorage

T = TypeVar("T")


class Watched(Disk):
    """Objects of whose deletion somebody is told: `gone` is called with the path."""

    gone: Callable[[str], None] = staticmethod(lambda _: None)

    def delete(self, path: str) -> None:
        if self.get(path) is not None:
            self.gone(path)
        super().delete(path)


class Bucket:
    """The objects below each root, by its URL."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self.disks: dict[str, Watched] = {}
        self.lake = self.disk(URL)

    def disk(self, root: str) -> Watched:
        """Return what is below a root, which need not have been there before."""
        if root not in self.disks:
            self.disks[root] = Watched(seconds=self._seconds)
        return self.disks[root]

    def remove(self, root: str) -> None:
        """Remove all that is below a root, at once."""
        self.disks.pop(root, None)

    def find(self, url: str) -> tuple[Disk, str]:
        """Return where a URL leads: the objects below some root, and the path there."""
        for root, disk in self.disks.items():
            if f"{url}/".startswith(f"{root}/"):
                return disk, url[len(root) + 1 :]
        return Disk(), ""

    def lost(self, places: Iterable[Place]) -> list[str]:
        """Return the URLs of those that are not there."""
        urls = sorted(f"{place.root}/{place.path}" for place in places)
        found = ((url, *self.find(url)) for url in urls)
        return [url for url, disk, path in found if disk.get(path) is None]


class BucketStorage(SimulatedStorage):
    """What is below one root, or in a folder below one, as a process reaches it."""

    def __init__(self, bucket: Bucket, url: str, scheduler: Scheduler, process: Process, faults: Faults) -> None:
        self.bucket = bucket
        self._url = url
        disk, folder = bucket.find(url)
        self._folder = f"{folder}/" if folder else ""
        super().__init__(disk, scheduler, process, faults)

    @property
    def url(self) -> str:
        return self._url

    def get(self, path: str) -> bytes | None:
        return super().get(f"{self._folder}{path}")

    def exists(self, path: str) -> bool:
        return super().exists(f"{self._folder}{path}")

    def list(self, folder: str, after: str | None = None) -> Names:
        return super().list(f"{self._folder}{folder}".rstrip("/"), after)

    def open(self, url: str) -> BucketStorage:
        """Return another part of the store, as the same process reaches it."""
        return BucketStorage(self.bucket, url, self.scheduler, self.process, self.faults)


class Quiet(BucketStorage):
    """The same as somebody reaches it who only looks: nobody goes on meanwhile, and nothing goes wrong."""

    def read(self, operation: str, path: str, look: Callable[[], T]) -> T:
        return look()
