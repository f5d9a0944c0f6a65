"""The local store: what is on the disk when, what fails, roots, and what importing it costs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lockstep.errors import InvalidError, UnavailableError
from lockstep.storage import Mine, Theirs, open_storage, url_of
from lockstep.storage.local import LocalStorage
from tests.support.unsynced import UnsyncedFolder


def python(code: str, *args: str) -> subprocess.Popen[str]:
    """Start a process that runs the code, with pipes."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code, *args]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)


RACER = """
import sys
from lockstep.storage import open_storage
store, me = open_storage(sys.argv[1]), sys.argv[2]
print("ready", flush=True)
for key in sys.stdin:
    print(type(store.put_if_absent(f"race/{key.strip()}", me.encode() * 1000)).__name__, flush=True)
"""


def test_of_racing_processes_one_writes(tmp_path: Path) -> None:
    """For each key exactly one process is told that it wrote, and the object is that process's."""
    racers = [python(RACER, str(tmp_path), str(me)) for me in range(3)]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    keys = "".join(f"{key}\n" for key in range(50))
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write(keys)
        racer.stdin.flush()
    answers = [racer.communicate()[0].split() for racer in racers]
    store = open_storage(str(tmp_path))
    for key in range(50):
        winners = [me for me, answer in enumerate(answers) if answer[key] == "Mine"]
        assert len(winners) == 1
        assert store.get(f"race/{key}") == str(winners[0]).encode() * 1000


WRITER = """
import sys
from lockstep.storage import Mine, open_storage
store = open_storage(sys.argv[1])
n = 0
while True:
    assert store.put_if_absent(f"f/{n}", str(n).encode() * 50_000) == Mine()
    store.put("hint", str(n).encode() * 50_000)
    print(n, flush=True)
    n += 1
"""


def test_a_killed_writer_leaves_only_whole_objects(tmp_path: Path) -> None:
    """After kill -9 every listed object is complete, all that were acknowledged are there, and one more at most."""
    for lines in (1, 7, 20):
        root = tmp_path / str(lines)
        store = open_storage(str(root), create=True)
        with python(WRITER, str(root)) as writer:
            assert writer.stdout is not None
            acknowledged = [writer.stdout.readline().strip() for _ in range(lines)]
            writer.send_signal(signal.SIGKILL)
            acknowledged += writer.stdout.read().split()  # `communicate` would lose lines that were read ahead
        names = store.list("f")
        assert set(acknowledged) <= set(names)
        assert len(names) <= len(acknowledged) + 1
        for name in names:
            assert store.get(f"f/{name}") == name.encode() * 50_000
        hint = store.get("hint")
        assert hint in {name.encode() * 50_000 for name in names}


def test_local_data_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Order of put_if_absent: new folders' names synced, file synced, named, its folder synced."""
    store = open_storage(str(tmp_path))
    events: list[str] = []
    fsync, link = os.fsync, os.link

    def synced(handle: int) -> None:
        where = Path(f"/proc/self/fd/{handle}").readlink().relative_to(tmp_path)
        events.append("sync file" if where.name.endswith(".tmp") else f"sync {where}")
        assert not where.name.endswith(".tmp") or (tmp_path / where).read_bytes() == b"data"
        fsync(handle)

    def linked(source: Any, target: Any, **kwargs: Any) -> None:
        events.append("name")
        link(source, target, **kwargs)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "link", linked)
    store.put_if_absent("f/g/a", b"data")
    assert events == ["sync .", "sync f", "sync file", "name", "sync f/g"]
    assert store.put_if_absent("f/g/a", b"late") == Theirs(b"data")
    assert events[5:] == ["sync f/g"], "who comes late writes nothing, and believes no name that is not on the disk"


def test_advice_is_not_synced_and_replaces_only_what_it_is_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing depends on it, and a sync takes longer than all else."""
    store = open_storage(str(tmp_path))
    store.put("f/other", b"")

    def synced(_: int) -> None:
        raise AssertionError("synced")

    monkeypatch.setattr(os, "fsync", synced)
    assert store.put_advice("f/a", b"one")
    assert not store.put_advice("f/a", b"two")
    assert store.get("f/a") == b"one"
    assert store.put_advice("f/a", b"two", over=True)
    assert store.get("f/a") == b"two"
    assert store.list("f") == ["a", "other"]


@pytest.mark.parametrize("data", [b"data", b"other"])
def test_who_finds_a_local_name_taken_syncs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    """Whoever linked it may have failed to: then nobody else would, and what is there could vanish."""
    store = open_storage(str(tmp_path))
    store.put("f/other", b"")
    folder = UnsyncedFolder(tmp_path / "f", failures=2)
    monkeypatch.setattr(os, "fsync", folder.fsync)
    for _ in range(2):
        with pytest.raises(UnavailableError, match="cannot write f/a"):
            store.put_if_absent("f/a", b"data")
    assert store.get("f/a") == b"data"
    assert store.put_if_absent("f/a", data) == (Mine() if data == b"data" else Theirs(b"data"))
    assert folder.is_synced


@pytest.mark.parametrize("broken", ["fsync", "link", "open"])
def test_a_local_failure_names_path_and_cause_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    """Disk full at any step before the name is UnavailableError; no object and no hidden file stays."""

    def full(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device")

    store = open_storage(str(tmp_path))
    store.put("f/other", b"")
    monkeypatch.setattr(os, broken, full)
    with pytest.raises(UnavailableError, match=r"cannot write f/a in file:///.*: No space left on device") as caught:
        store.put_if_absent("f/a", b"data")
    assert caught.value.definite is (broken != "link"), "only before the link is it sure that nothing was written"
    monkeypatch.undo()
    assert [path.name for path in (tmp_path / "f").iterdir()] == ["other"]


def test_every_local_operation_reports_failures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An I/O error in any operation is UnavailableError with the path and the cause."""
    store = open_storage(str(tmp_path))
    store.put("f/a", b"")

    def broken(*args: Any, **kwargs: Any) -> None:
        raise OSError(5, "Input/output error")

    cases: list[tuple[Any, str, Callable[[], object]]] = [
        (os, "open", lambda: store.get("f/a")),
        (os, "read", lambda: store.get("f/a")),
        (os, "replace", lambda: store.put("f/a", b"")),
        (os, "scandir", lambda: store.list("f")),
        (os, "stat", lambda: store.exists("f/a")),
        (os, "unlink", lambda: store.delete("f/a")),
        (os, "unlink", lambda: store.delete_folder("f")),
    ]
    for owner, attribute, call in cases:
        with monkeypatch.context() as patch:
            patch.setattr(owner, attribute, broken)
            with pytest.raises(UnavailableError, match=r"cannot [a-z ]+ f(/a)? in file:///.*: Input/output error"):
                call()


def test_hidden_files_of_unfinished_writes_are_not_listed(tmp_path: Path) -> None:
    """What a crashed writer leaves has no name in the store, and goes with its folder."""
    store = open_storage(str(tmp_path))
    store.put("f/.hidden.json", b"")
    (tmp_path / "f" / ".0123456789abcdef.tmp").write_bytes(b"half")
    assert store.list("f") == [".hidden.json"]
    store.delete_folder("f")
    assert list(tmp_path.iterdir()) == []


def test_local_files_follow_the_umask(tmp_path: Path) -> None:
    """A lake is shared: its files are as readable as the process's umask lets new files be."""
    old = os.umask(0o027)
    try:
        open_storage(str(tmp_path)).put_if_absent("a", b"")
    finally:
        os.umask(old)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


def test_a_root_removed_under_a_store_is_unavailable(tmp_path: Path) -> None:
    """A lake that vanished is never made anew by a write, nor listed as an empty one."""
    store = open_storage(str(tmp_path / "lake"), create=True)
    (tmp_path / "lake").rmdir()
    for call in (lambda: store.put_if_absent("f/a", b""), lambda: store.put("a", b""), lambda: store.list("f")):
        with pytest.raises(UnavailableError, match="No such file or directory"):
            call()
    assert not (tmp_path / "lake").exists()


def test_a_root_that_is_made_is_found_again_after_a_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each folder above it that had to be made, too: without one of their names all that was committed is gone."""
    fsync, synced = os.fsync, list[Path]()

    def noted(handle: int) -> None:
        synced.append(Path(f"/proc/self/fd/{handle}").readlink())
        fsync(handle)

    monkeypatch.setattr(os, "fsync", noted)
    open_storage(str(tmp_path / "a" / "b" / "lake"), create=True)
    assert synced == [tmp_path, tmp_path / "a", tmp_path / "a" / "b"]
    open_storage(str(tmp_path / "a" / "b" / "lake"), create=True)
    assert len(synced) == 3


def test_a_local_root_by_each_of_its_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Path, relative path and file URLs open the same folder, under one URL; a % in it is a %."""
    root = tmp_path / "my lake%20"
    monkeypatch.chdir(tmp_path)
    names = [str(root), "my lake%20", "./my lake%20/", f"file://{root}", f"file:{root}", f"file://localhost{root}"]
    open_storage(names[0], create=True).put("a", b"x")
    for name in names:
        store = open_storage(name, create=True)
        assert isinstance(store, LocalStorage)
        assert store.url == url_of(name) == f"file://{root}"
        assert store.get("a") == b"x"


def test_a_missing_root_says_how_to_make_it(tmp_path: Path) -> None:
    """Opening what is not there is InvalidError that names `lockstep init` and create=True, and makes nothing."""
    root = tmp_path / "a" / "lake"
    with pytest.raises(InvalidError, match=rf"no folder {root}: .*`lockstep init {root}`.*create=True"):
        open_storage(str(root))
    assert not root.parent.exists()
    open_storage(str(root), create=True)
    open_storage(str(root))


@pytest.mark.parametrize("create", [True, False])
def test_a_root_that_is_a_file_is_refused(tmp_path: Path, create: bool) -> None:
    """A file cannot be a root, with create or without; a folder below a file cannot be made."""
    file = tmp_path / "lake"
    file.write_bytes(b"")
    with pytest.raises(InvalidError, match="is a file"):
        open_storage(str(file), create=create)
    with pytest.raises(UnavailableError if create else InvalidError, match=r"Not a directory|no folder"):
        open_storage(str(file / "below"), create=create)


def test_an_unreadable_root_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A root that cannot be listed is refused when it is opened, with the cause."""

    def denied(self: Path) -> Iterator[Path]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", denied)
    with pytest.raises(UnavailableError, match=r"cannot open the lake's root .*: Permission denied"):
        open_storage(str(tmp_path))


def test_importing_storage_does_not_import_obstore(tmp_path: Path) -> None:
    """A local lake never pays for obstore's import."""
    code = "import sys, lockstep.storage as s; s.open_storage(sys.argv[1]); print('obstore' in sys.modules)"
    assert python(code, str(tmp_path)).communicate()[0] == "False\n"


def test_flush_syncs_each_file_and_each_folder_above_it_once(tmp_path: Path) -> None:
    """A file outlives a power cut if it was synced, and each folder up to the root: the names on the way to it."""
    synced: list[str] = []

    def fsync(handle: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{handle}").readlink().relative_to(tmp_path)))

    for path in ("t/p=1/a", "t/p=2/b", "t/p=2/c"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(b"rows")
    LocalStorage(tmp_path, fsync_data=True, fsync=fsync).flush(
        ["t/p=1/a", "t/p=2/b", "t/p=2/c", "t/p=2/gone", "t/no/d"]
    )
    files, folders = ["t/p=1/a", "t/p=2/b", "t/p=2/c"], ["t/p=1", "t/p=2", "t", "."]
    assert sorted(synced[: len(files)]) == files, "what is gone is passed over: whoever asks has looked"
    assert sorted(synced[len(files) :]) == sorted(folders)
    assert synced[-2:] == ["t", "."], "from the files upwards"
    synced.clear()
    LocalStorage(tmp_path, fsync=fsync).flush(["t/p=1/a"])
    assert synced == [], "only where it is asked for"


def test_a_name_in_a_folder_that_others_made_is_synced_all_the_way_up_the_first_time(tmp_path: Path) -> None:
    """Spark makes the folders of tables and of their logs, and syncs none of them."""
    synced: list[str] = []

    def fsync(handle: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{handle}").readlink().relative_to(tmp_path)))

    (tmp_path / "t" / "log").mkdir(parents=True)
    store = LocalStorage(tmp_path, fsync=fsync)
    store.put_if_absent("t/log/0", b"")
    assert synced[1:] == ["t/log", "t", "."], "behind the file's own"
    store.put_if_absent("t/log/1", b"")
    assert synced[5:] == ["t/log"]


def test_a_file_that_cannot_be_flushed_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")

    def fsync(handle: int) -> None:
        raise OSError(5, "Input/output error")

    with pytest.raises(UnavailableError, match=r"cannot flush a in file:///.*: Input/output error"):
        LocalStorage(tmp_path, fsync_data=True, fsync=fsync).flush(["a"])


def test_a_folder_that_somebody_removes_before_a_file_is_in_it_is_made_again(tmp_path: Path) -> None:
    """As who rolls back does with folders that are empty then, while another begins to fill them."""
    removed: list[str] = []

    def fsync(handle: int) -> None:
        if not removed and (tmp_path / "t" / "log").exists():
            removed.extend(["log", "t"])
            (tmp_path / "t" / "log").rmdir()
            (tmp_path / "t").rmdir()

    LocalStorage(tmp_path, fsync=fsync).put_if_absent("t/log/0", b"0")
    assert removed
    assert (tmp_path / "t" / "log" / "0").read_bytes() == b"0"
