"""What lies in a folder of a local lake and is no file: nobody waits for it, and no listing fails for it."""

from __future__ import annotations

import os
from pathlib import Path

from lockstep.storage import open_storage
from tests.unit.test_forks import ends_well


def test_a_pipe_is_no_object_and_nobody_waits_for_it(tmp_path: Path) -> None:
    """Who opens one to read it waits until somebody writes, which may be never."""
    os.mkfifo(tmp_path / "a")
    store = open_storage(str(tmp_path))
    ends_well(lambda: store.get("a") is None and not store.exists("a") and store.list("") == [])


def test_a_link_that_leads_to_itself_is_no_object_of_a_listing(tmp_path: Path) -> None:
    """Upkeep of the whole lake, and reads of a table in whose log one lay, failed for it."""
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "a").write_bytes(b"x")
    (tmp_path / "t" / "loop").symlink_to("loop")
    store = open_storage(str(tmp_path))
    assert store.list("t") == ["a"]
    assert [found.path for found in store.walk("")] == ["t/a"]
