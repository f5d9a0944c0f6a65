"""What somebody put into a lake leads nobody out of its root, nor into memory without end (docs/security.md)."""

from __future__ import annotations

import gzip
import os
import traceback
from pathlib import Path

import pytest

from lockstep.adoption.places import place
from lockstep.delta.actions import parse
from lockstep.errors import CorruptTimelineError, InvalidError, UnavailableError
from lockstep.storage import open_storage, url_of
from lockstep.storage.locations import registered
from lockstep.storage.outside import OutsideStorage
from lockstep.timeline.entry import MAX_ENTRY_BYTES, Commit, TableDdl, TableWrite
from lockstep.timeline.files import decode, entry_path
from lockstep.timeline.fold import apply
from lockstep.timeline.packed import unpack
from lockstep.timeline.parts import UnusableError
from lockstep.timeline.places import is_below, is_folder_outside, is_table_folder
from lockstep.timeline.segment import FOLDER as SEGMENTS
from lockstep.timeline.segment import list_segments, read_lines
from tests.support.entries import entry
from tests.support.histories import name
from tests.support.lakes import append, files, location, open_catalog
from tests.support.lakes import create as create_tables

OUTSIDE = [
    "..",
    "../other",
    "t/../../other",
    "t/..",
    "./t",
    "/etc",
    "/",
    "",
    "t//u",
    "t/",
    "file:///etc",
    "file:/etc",
    "file:t",
    "s3://bucket/t",
    "lockstep://tx.file/t",
    "C:\\t",
    "t\\..\\..\\u",
    "t\x00u",
    "t\nu",
    "t\x1b[31m",
    "x" * 5000,
]
"""What a path in an entry may not be, of a table or of a staged commit."""

RESERVED = [
    "_lockstep",
    "_lockstep/timeline",
    "t/_delta_log",
    "t/_delta_log/u",
    "n/_LOCKSTEP/t",
    "_symlink_format_manifest",
]
"""Folders below the root in which a table would write over something else."""

INSIDE = ["t", "default/t-id", "a/b/c", "t..u", "..t", "t u", "ü", "_t", "t.lockstep"]


@pytest.mark.parametrize("path", OUTSIDE)
def test_an_entry_that_names_a_folder_elsewhere_is_corrupt(path: str) -> None:
    """A table's folder, and where its staged commit waits: refused before anybody looks there."""
    first = apply(None, entry(0))
    ddl = TableDdl(action="create", id="id", name=name("t"), location=path)
    with pytest.raises(CorruptTimelineError, match="expected a folder of its own, below the root"):
        apply(first, entry(1, tables=[ddl]))
    ddl = TableDdl(action="create", id="id", name=name("t"), location="t")
    write = TableWrite(
        id="id", name=name("t"), location="t", from_version=-1, to_version=0, commits=[Commit(staged=path)]
    )
    with pytest.raises(CorruptTimelineError, match="expected staged commits below its folder"):
        apply(first, entry(1, tables=[ddl], writes=[write]))


@pytest.mark.parametrize("path", RESERVED)
def test_no_table_lies_where_something_else_is_kept(path: str) -> None:
    assert not is_table_folder(path)
    assert is_below(path)


@pytest.mark.parametrize("path", INSIDE)
def test_what_is_below_the_root_is_a_folder(path: str) -> None:
    assert is_table_folder(path)


def test_a_link_leads_nobody_out_of_the_root(tmp_path: Path) -> None:
    """Neither a linked folder nor a linked file is read, written, listed or deleted through the store."""
    outside, root = tmp_path / "outside", tmp_path / "root"
    outside.mkdir()
    root.mkdir()
    (outside / "secret").write_bytes(b"secret")
    (root / "folder").symlink_to(outside)
    (root / "file").symlink_to(outside / "secret")
    store = open_storage(str(root))
    for act in (
        lambda: store.get("folder/secret"),
        lambda: store.put("folder/new", b""),
        lambda: store.put_if_absent("folder/deep/new", b""),
        lambda: store.list("folder"),
        lambda: store.list("folder/deep"),
        lambda: list(store.walk("folder")),
        lambda: store.delete("folder/secret"),
        lambda: store.exists("folder/secret"),
        lambda: store.delete_folder("folder/deep"),
    ):
        with pytest.raises(InvalidError, match="leads out of"):
            act()
    with pytest.raises(UnavailableError, match="cannot read file"):
        store.get("file")
    store.put("file", b"ours")
    assert store.get("file") == b"ours"
    store.delete_folder("folder")
    assert not (root / "folder").is_symlink(), "the link is removed, and what it leads to stays"
    assert (outside / "secret").read_bytes() == b"secret"
    assert sorted(each.name for each in outside.iterdir()) == ["secret"]


@pytest.mark.parametrize("which", ["t", "t/_delta_log"])
def test_a_folder_that_becomes_a_link_later_leads_nobody_out_either(which: str, tmp_path: Path) -> None:
    """Whoever may write the root may replace what a process, which runs for long, has looked at already."""
    outside = tmp_path / "outside"
    (outside / "_delta_log").mkdir(parents=True)
    (outside / "_delta_log" / "a").write_bytes(b"secret")
    (outside / "a").write_bytes(b"secret")
    store = open_storage(str(tmp_path / "root"), create=True)
    store.put("t/_delta_log/a", b"ours")
    assert store.get("t/_delta_log/a") == b"ours"
    (tmp_path / "root" / which).rename(tmp_path / "was")
    (tmp_path / "root" / which).symlink_to(outside)
    for act in (
        lambda: store.get("t/_delta_log/a"),
        lambda: store.put("t/_delta_log/b", b""),
        lambda: store.put_if_absent("t/_delta_log/b", b""),
        lambda: store.list("t/_delta_log"),
        lambda: store.delete("t/_delta_log/a"),
    ):
        with pytest.raises(InvalidError, match="leads out of"):
            act()
    (tmp_path / "root" / which).unlink()
    (tmp_path / "was").rename(tmp_path / "root" / which)
    assert store.get("t/_delta_log/a") == b"ours"


def test_a_root_that_is_a_link_and_links_inside_of_it_are_fine(tmp_path: Path) -> None:
    (tmp_path / "real" / "t").mkdir(parents=True)
    (tmp_path / "root").symlink_to(tmp_path / "real")
    (tmp_path / "real" / "u").symlink_to(tmp_path / "real" / "t")
    store = open_storage(str(tmp_path / "root"))
    store.put("u/a", b"x")
    assert store.get("t/a") == b"x"


def test_what_is_nested_without_end_or_too_large_is_refused_before_it_is_parsed() -> None:
    """Entries and Delta commits: brackets that are never closed end no process."""
    deep = b'{"format":1,"x":' + b"[" * 1_000_000
    with pytest.raises(CorruptTimelineError, match="expected a timeline entry"):
        decode(deep, 1)
    with pytest.raises(CorruptTimelineError, match=f"expected at most {MAX_ENTRY_BYTES}"):
        decode(b" " * (MAX_ENTRY_BYTES + 1), 1)
    with pytest.raises(InvalidError, match="not a JSON object"):
        parse(b'{"add":' + b'{"a":' * 1_000_000)


def test_a_file_that_unpacks_to_too_much_is_damaged(tmp_path: Path) -> None:
    data = gzip.compress(b"x" * 100)
    assert unpack(data) == b"x" * 100
    with pytest.raises(ValueError, match="more than 99 bytes"):
        unpack(data, at_most=99)
    for broken in (data[:-1], data + b"x", data + data):
        with pytest.raises(ValueError, match="one whole gzip file"):
            unpack(broken)
    store = open_storage(str(tmp_path))
    store.put(f"{SEGMENTS}/{0:020d}-{999:020d}-{0:020d}.jsonl.gz", data[:-1])
    [segment] = list_segments(store)
    with pytest.raises(UnusableError, match="one whole gzip file"):
        read_lines(store, segment)


def test_a_crafted_entry_stops_the_lake_and_nothing_outside_is_touched(tmp_path: Path) -> None:
    """As a whole: who opens the lake after somebody put such an entry is told, with the file's name."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    catalog = open_catalog(open_storage(str(root), create=True))
    create_tables(catalog, "t", files=["a"])
    append(catalog, "t", "b")
    catalog.lake.upkeep.settle()
    data = catalog.lake.storage.get(entry_path(1))
    assert data is not None
    crafted = data.replace(location(catalog, "t").encode(), b"../outside/t")
    os.unlink(root / entry_path(1))  # noqa: PTH108
    (root / entry_path(1)).write_bytes(crafted)
    with pytest.raises(CorruptTimelineError, match="expected a folder of its own, below the root"):
        files(open_catalog(open_storage(str(root))), "t")
    assert not outside.exists()


@pytest.mark.parametrize(
    "url",
    [
        "s3://AKIAKEY:planted@bucket/lake",
        "s3a://planted@bucket",
        "s3://AKIAKEY:pl/planted+x@bucket/lake",
        "abfss://c:pl/planted==@account.dfs.core.windows.net/lake",
    ],
)
def test_a_root_with_a_key_in_it_is_refused_without_the_key(url: str) -> None:
    """A root is in entries of exports, in messages, plans and the UI."""
    for use in (open_storage, url_of):
        with pytest.raises(InvalidError, match="has a user or a key") as caught:
            use(url)
        assert "planted" not in str(caught.value)
        assert "AKIAKEY" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("abfss://c@a.dfs.core.windows.net/lake?sv=2022-11-02&SIG=planted", "has a signature behind its path"),
        ("abfss://c@a.dfs.core.windows.net?sv=2022-11-02&sig=planted", "has a signature behind its path"),
        ("s3://b/lake?X-Amz-Signature=planted", "has a signature behind its path"),
        ("s3://b?X-Amz-Credential=A/1/eu/s3&X-Amz-Security-Token=planted", "has a signature behind its path"),
        ("gs://b/lake?GoogleAccessId=a&Expires=1&Signature=planted", "has a signature behind its path"),
        ("https://a.blob.core.windows.net/c/lake?sv=2022-11-02&sig=planted", "no store for 'https://a.blob"),
        ("https://ada:planted@host/lake", "no store for 'https://…@host/lake'"),
        ("viewfs://planted@host/lake", "no store for 'viewfs://…@host/lake'"),
        ("az://c:planted@a/lake", "'az://…@a/lake' does not say which account"),
        ("s3:/b/lake?sig=planted", "begins with 's3:'"),
    ],
)
def test_a_root_that_is_none_is_refused_without_what_may_be_a_key_in_it(url: str, said: str) -> None:
    """As with an address that was copied from a portal; it was shown, or a folder of that name was made."""
    for use in (open_storage, url_of, lambda url: registered("file:///lake", None, {url: {}})):
        with pytest.raises(InvalidError) as caught:
            use(url)
        assert said in caught.value.message or "relative path" in caught.value.message
        assert "planted" not in "".join(traceback.format_exception_only(caught.value))
    assert url_of("s3://b/what?/sig=1") == "s3://b/what?/sig=1", "an odd name is a name"


@pytest.mark.parametrize("folder", ["raw:2024/t", "a\\b/t", "n/_Delta_Log/t", "n\n/t"])
def test_a_folder_that_no_entry_may_name_is_refused_with_the_reason(folder: str) -> None:
    with pytest.raises(InvalidError, match=r"cannot be adopted as|holds other things"):
        place("file:///data/lake", f"/data/lake/{folder}")


@pytest.mark.parametrize(
    ("url", "may"),
    [
        ("file:///data/t", True),
        ("s3://bucket/a b/t", True),
        ("s3://bucket", False),
        ("s3://bucket/../t", False),
        ("s3://bucket/a//t", False),
        ("file://host/t", False),
        ("file:///a/_DELTA_LOG/t", False),
        ("file:///a/\x01", False),
        ("://a/b", False),
    ],
)
def test_what_an_entry_may_say_of_an_adopted_table(url: str, may: bool) -> None:
    assert is_folder_outside(url) is may


def test_fsync_data_reaches_tables_outside_of_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "f").write_bytes(b"rows")
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(str(Path(f"/proc/self/fd/{handle}").readlink())))
    for fsync_data in (False, True):
        inner = open_storage(str(tmp_path / "root"), fsync_data=fsync_data)
        OutsideStorage(inner, fsync_data=fsync_data).flush([f"file://{tmp_path}/t/f"])
        assert (str(tmp_path / "t" / "f") in synced) is fsync_data
        assert (str(tmp_path / "t") in synced) is fsync_data
