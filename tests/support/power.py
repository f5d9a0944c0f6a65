"""Power cuts without a power switch: what a local store asks of the operating system, and every disk it may leave.

`RecordedDisk` stands in for the module `os` where the local store looks for it, and writes down each call that changes
anything. `cuts` replays them up to each point, and yields what may be on the disk if the power is cut there. Nothing is
assumed that POSIX does not say:

    what a file holds    is on the disk once the file was fsync'ed; before that it may be there, or the file be empty
    a name in a folder   made, replaced or removed, is on the disk once the folder was fsync'ed; before that each change
                         may have got there or not, whatever became of others; a rename is one change
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

Change: TypeAlias = Mapping[tuple[str, str], "int | None"]
"""What one call does to names, by folder and name: the number of a file, `FOLDER`, or None where the name goes."""

FOLDER = -1
"""What stands for a folder where a file has its number."""

SUBSETS = 4
"""So many arbitrary choices of the changes that are not on the disk for sure are tried at each point."""


@dataclass(frozen=True, slots=True)
class Step:
    """One call.

    Attributes:
        text: the call in words.
        change: what it does to names.
        file: the file that it writes or syncs, by number.
        data: what it adds to the file.
        folder: the folder that it syncs.
        is_answer: whether it is none, but the moment at which a client was told that its commit is there.
    """

    text: str
    change: Change = field(default_factory=dict)
    file: int | None = None
    data: bytes | None = None
    folder: str | None = None
    is_answer: bool = False


class RecordedDisk:
    """The module `os`, as far as one folder is concerned; all else is passed on. Safe for many threads."""

    def __init__(self, root: Path) -> None:
        """Begin with what is in the folder, all of which counts as being on the disk."""
        self.root = str(root)
        self.names: dict[tuple[str, str], int] = {}
        self.contents: dict[int, bytes] = {}
        self.steps: list[Step] = []
        self._open: dict[int, int | str] = {}
        self._lock = threading.RLock()
        for folder, folders, files in os.walk(root):
            self.names |= {(folder, name): FOLDER for name in folders}
            for name in files:
                self.names[folder, name] = len(self.contents)
                self.contents[len(self.contents)] = Path(folder, name).read_bytes()
        self._current = dict(self.names)
        self._count = len(self.contents)

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def answered(self) -> None:
        """Note that a client has been told that its commit is there."""
        self._note(Step("the client is answered", is_answer=True))

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:
        with self._lock:
            handle = os.open(path, flags, mode)
            if flags & os.O_CREAT:
                self._open[handle] = number = self._count
                self._count += 1
                self._note(Step(f"create {self._short(path)}", {self._place(path): number}, file=number, data=b""))
            else:
                known = self._current.get(self._place(path))
                self._open[handle] = str(path) if known in (None, FOLDER) else known
            return handle

    def write(self, handle: int, data: bytes) -> int:
        with self._lock:
            count = os.write(handle, data)
            number = self._open[handle]
            assert isinstance(number, int)
            self._note(Step(f"write {count} bytes", file=number, data=bytes(data[:count])))
            return count

    def fsync(self, handle: int) -> None:
        with self._lock:
            opened = self._open[handle]
            if isinstance(opened, int):
                self._note(Step(f"fsync file {self._name_of(opened)}", file=opened))
            else:
                self._note(Step(f"fsync folder {self._short(opened)}", folder=opened))

    def close(self, handle: int) -> None:
        with self._lock:
            self._open.pop(handle, None)
            os.close(handle)

    def link(self, source: str, target: str) -> None:
        with self._lock:
            os.link(source, target)
            number = self._current[self._place(source)]
            self._note(Step(f"link {self._short(target)}", {self._place(target): number}))

    def replace(self, source: str, target: str) -> None:
        with self._lock:
            os.replace(source, target)  # noqa: PTH105 (the call that is recorded)
            number = self._current[self._place(source)]
            change = {self._place(target): number, self._place(source): None}
            self._note(Step(f"rename to {self._short(target)}", change))

    def unlink(self, path: str) -> None:
        with self._lock:
            os.unlink(path)  # noqa: PTH108 (the call that is recorded)
            self._note(Step(f"unlink {self._short(path)}", {self._place(path): None}))

    def rmdir(self, path: str) -> None:
        with self._lock:
            os.rmdir(path)  # noqa: PTH106 (the call that is recorded)
            self._note(Step(f"rmdir {self._short(path)}", {self._place(path): None}))

    def mkdir(self, path: str | Path) -> None:
        with self._lock:
            os.mkdir(path)  # noqa: PTH102 (the call that is recorded)
            self._note(Step(f"mkdir {self._short(path)}", {self._place(path): FOLDER}))

    def _note(self, step: Step) -> None:
        with self._lock:
            self.steps.append(step)
            for place, target in step.change.items():
                if target is None:
                    self._current.pop(place, None)
                else:
                    self._current[place] = target

    def _place(self, path: str | Path) -> tuple[str, str]:
        folder, _, name = str(path).rpartition("/")
        return folder, name

    def _short(self, path: str | Path) -> str:
        return str(path).removeprefix(self.root).removeprefix("/") or "the root"

    def _name_of(self, number: int) -> str:
        return next((self._short("/".join(place)) for place, n in self._current.items() if n == number), str(number))


def spark_writes(disk: RecordedDisk, path: Path, data: bytes) -> None:
    """Write a file as Spark does: nothing is synced, neither the file nor the folders that are made for it."""
    for folder in [folder for folder in reversed(path.parents) if not folder.exists()]:
        disk.mkdir(folder)
    handle = disk.open(str(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    disk.write(handle, data)
    disk.close(handle)


# --- what is left -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cut:
    """What a power cut may leave.

    Attributes:
        after: how many calls there were before it, and the last of them.
        answered: whether the client had been told by then.
        files: what is there, by path below the root; without hidden files, which nobody reads.
    """

    after: str
    answered: bool
    files: Mapping[str, bytes]


def cuts(disk: RecordedDisk, *, seed: int = 0) -> Iterator[Cut]:
    """Yield what may be left after each call, none twice for the same answer."""
    chance = random.Random(seed)
    names, durable, written = dict(disk.names), dict(disk.contents), dict(disk.contents)
    pending: list[Change] = []
    answered = False
    seen: set[tuple[bool, frozenset[tuple[str, bytes]]]] = set()
    for number, step in enumerate(disk.steps, 1):
        answered = answered or step.is_answer
        if step.change:
            pending.append(step.change)
        if step.folder is not None:
            names, pending = _synced(names, pending, step.folder)
        if step.file is not None:
            if step.data is None:
                durable[step.file] = written[step.file]
            else:
                written[step.file] = written.get(step.file, b"") + step.data
        for kept in _choices(pending, chance):
            for contents in (durable, written):
                files = _files(disk.root, _applied(names, kept), contents)
                key = (answered, frozenset(files.items()))
                if key not in seen:
                    seen.add(key)
                    yield Cut(f"call {number}, {step.text}", answered, files)


def _choices(pending: Sequence[Change], chance: random.Random) -> Iterator[Sequence[Change]]:
    """Yield which of the changes that are not on the disk for sure are there: none, all, one, all but one, any."""
    yield ()
    yield pending
    for at in range(len(pending)):
        yield pending[at : at + 1]
        yield [*pending[:at], *pending[at + 1 :]]
    for _ in range(SUBSETS):
        yield [change for change in pending if chance.random() < 0.5]


def _synced(names: dict[tuple[str, str], int], pending: Sequence[Change], folder: str) -> tuple[Any, list[Change]]:
    """Return the names that are on the disk once a folder is synced, and the changes that are still not."""
    done = [change for change in pending if any(place[0] == folder for place in change)]
    left = [change for change in pending if change not in done]
    return _applied(names, done), left


def _applied(names: Mapping[tuple[str, str], int], changes: Sequence[Change]) -> dict[tuple[str, str], int]:
    result = dict(names)
    for change in changes:
        for place, target in change.items():
            if target is None:
                result.pop(place, None)
            else:
                result[place] = target
    return result


def _files(root: str, names: Mapping[tuple[str, str], int], contents: Mapping[int, bytes]) -> dict[str, bytes]:
    """Return the files that can be found: of each, all folders above are there."""

    def is_there(folder: str) -> bool:
        return folder == root or (names.get(_split(folder)) == FOLDER and is_there(_split(folder)[0]))

    return {
        f"{folder}/{name}".removeprefix(f"{root}/"): contents.get(number, b"")
        for (folder, name), number in names.items()
        if number != FOLDER and not (name.startswith(".") and name.endswith(".tmp")) and is_there(folder)
    }


def _split(path: str) -> tuple[str, str]:
    folder, _, name = path.rpartition("/")
    return folder, name
