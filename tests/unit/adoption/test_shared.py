"""A shallow clone is given back only where nobody of the lake deletes the files that it shares."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from lockstep.adoption.release import release
from lockstep.catalog import TransactionalCatalog
from lockstep.delta.actions import Action
from lockstep.delta.log import commit_path
from lockstep.errors import InvalidError, LockstepError
from lockstep.lake.guests import guests
from lockstep.retention.ages import Retention
from lockstep.retention.upkeep import maintain, remove_orphan_files
from lockstep.storage.outside import open_reaching
from lockstep.timeline import fence
from tests.support.adopting import adopted, files_of, plain_table, released, written_log
from tests.support.client import Client
from tests.support.commands import run
from tests.support.lakes import add, append, create, location, named, open_catalog, remove, stage
from tests.support.retained import AgedStorage, Ticking

AT_ONCE = Retention(age=timedelta(), last=1, grace=timedelta(), orphan_age=timedelta(days=7))
VECTOR = {"storageType": "p", "offset": 1, "sizeInBytes": 34, "cardinality": 1}


def source_of(catalog: TransactionalCatalog, root: Path, name: str = "t") -> Callable[[str], str]:
    """Make a table, and return what calls its files as the logs of clones do."""
    create(catalog, name, files=["p"])
    return lambda file: f"file:{root}/{location(catalog, name)}/{file}"


def cloned(catalog: TransactionalCatalog, *actions: Action) -> None:
    """Make a table `c` whose log names files of others."""
    create(catalog, "c")
    written(catalog, *actions)


def written(catalog: TransactionalCatalog, *actions: Action) -> None:
    tx = catalog.begin()
    stage(catalog, tx, "c", *actions)
    catalog.commit(tx)


def test_a_clone_is_refused_with_its_source_and_the_ways_out(catalog: TransactionalCatalog, root: Path) -> None:
    source = source_of(catalog, root)
    cloned(catalog, add(source("p")), add("own"))
    head = catalog.database().version
    where = location(catalog, "t")
    with pytest.raises(InvalidError) as refused:
        released(catalog, "c")
    assert refused.value.sqlstate == "22023"
    for said in (
        "default.c cannot be released",
        "1 file of table default.t",
        f"{where}/p",
        "Release default.t",
        "CREATE TABLE",
    ):
        assert said in refused.value.message
    assert catalog.database().version == head
    assert guests(catalog.lake.storage) == frozenset()
    released(catalog, "t")  # which names none of the clone's


@pytest.mark.parametrize("names", [("c", "t"), ("t", "c")])
def test_it_is_given_back_with_its_source(catalog: TransactionalCatalog, root: Path, names: tuple[str, str]) -> None:
    source = source_of(catalog, root)
    cloned(catalog, add(source("p")))
    released(catalog, *names)
    assert not catalog.database().tables


def test_in_a_transaction_the_source_goes_first(catalog: TransactionalCatalog, root: Path) -> None:
    source = source_of(catalog, root)
    cloned(catalog, add(source("p")))
    tx = catalog.begin()
    with pytest.raises(InvalidError, match=r"Release default\.t in the same transaction, before it or with it"):
        release(catalog.lake, tx, [named("c")])
    release(catalog.lake, tx, [named("t")])
    release(catalog.lake, tx, [named("c")])
    catalog.commit(tx)
    assert not catalog.database().tables


def dropped(catalog: TransactionalCatalog) -> None:
    catalog.run(lambda tx: tx.changing().drop_table(named("t")))


AFTER: dict[str, tuple[Callable[[TransactionalCatalog], object], str | None]] = {
    # what became of the source, and why the clone is refused then
    "it was dropped": (dropped, "a table that was dropped"),
    "it was released": (lambda catalog: released(catalog, "t"), None),
    "the clone has been rewritten": (
        lambda catalog: written(catalog, remove(f"file:{root_of(catalog)}/{location(catalog, 't')}/p"), add("own")),
        None,
    ),
}


def root_of(catalog: TransactionalCatalog) -> str:
    return catalog.lake.storage.url.removeprefix("file://")


@pytest.mark.parametrize("case", AFTER)
def test_what_became_of_the_source_decides(catalog: TransactionalCatalog, root: Path, case: str) -> None:
    after, why = AFTER[case]
    source = source_of(catalog, root)
    cloned(catalog, add(source("p")))
    after(catalog)
    if why is None:
        released(catalog, "c")
    else:
        with pytest.raises(InvalidError, match=why) as refused:
            released(catalog, "c")
        assert "Release default" not in refused.value.message


@pytest.mark.parametrize(("where", "is_refused"), [("inside", True), ("warehouse", False)])
def test_a_source_that_was_adopted_is_the_lakes_to_vacuum_while_it_is_below_its_root(
    catalog: TransactionalCatalog, request: pytest.FixtureRequest, where: str, is_refused: bool
) -> None:
    folder: Path = request.getfixturevalue(where) / "orders"
    adopted(catalog, "t", plain_table(folder, 1))
    [file] = [name for name in files_of(folder) if name.endswith(".parquet")]
    cloned(catalog, add(f"file:{folder}/{file}"))
    if is_refused:
        with pytest.raises(InvalidError, match=r"of table default\.t"):
            released(catalog, "c")
        catalog.run(lambda tx: tx.changing().drop_table(named("t")))
    released(catalog, "c")


def test_a_clone_from_elsewhere_that_was_adopted_is_refused_too(
    catalog: TransactionalCatalog, root: Path, warehouse: Path
) -> None:
    source = source_of(catalog, root)
    adopted(catalog, "c", written_log(warehouse / "clone", add(source("p"))))
    with pytest.raises(InvalidError, match=r"1 file of table default\.t"):
        released(catalog, "c")


def test_a_deletion_vector_may_be_the_sources(catalog: TransactionalCatalog, root: Path) -> None:
    source = source_of(catalog, root)
    cloned(catalog, add("own", deletionVector={**VECTOR, "pathOrInlineDv": source("v.bin")}))
    with pytest.raises(InvalidError, match=r"v\.bin for one"):
        released(catalog, "c")


def test_where_nobody_knows_what_it_shares_it_is_not_given_back(catalog: TransactionalCatalog) -> None:
    create(catalog, "c", files=["p"])
    catalog.lake.storage.put(commit_path(location(catalog, "c"), 0), b"{torn")
    with pytest.raises(LockstepError, match=r"nobody knows whether table default\.c shares files"):
        released(catalog, "c")


def test_the_command_line_says_so_before_it_asks(catalog: TransactionalCatalog, root: Path) -> None:
    source = source_of(catalog, root)
    cloned(catalog, add(source("p")))
    for options in (["--dry-run"], ["--dry-run", "--yes"], ["--yes"], ["--json"], []):
        assert "default.c cannot be released" in run("release", root, "c", *options, code=1)
    shown = run("release", root, "c", "t", "--dry-run")
    assert ("default.c" in shown, "default.t" in shown) == (True, True)
    assert '"database_version":null' in run("release", root, "c", "t", "--dry-run", "--json").replace(" ", "")
    assert len(catalog.database().tables) == 2
    run("release", root, "c", "t", "--yes")
    assert not catalog.database().tables


def test_what_was_given_back_together_keeps_all_that_it_shares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though no version of the source has that file any more: its folder is nobody's to clean up."""
    monkeypatch.setattr(fence, "GRACE_SECONDS", 0.0)  # nobody has read the timeline before an entry went
    clock, root = Ticking(), tmp_path / "lake"
    aged = AgedStorage(open_reaching(str(root), create=True), clock)
    catalog = open_catalog(aged, clock=clock)
    source = source_of(catalog, root)
    cloned(catalog, add(source("p")))
    tx = catalog.begin()
    stage(catalog, tx, "t", remove("p", deletionTimestamp=clock.ms), add("q"))
    catalog.commit(tx)
    shared = root / location(catalog, "t") / "p"
    released(catalog, "t", "c")
    create(catalog, "own")
    for _ in range(3):
        clock.now += timedelta(days=1000)
        append(catalog, "own", f"day-{clock.ms}")
        maintain(catalog.lake, AT_ONCE)
        remove_orphan_files(catalog.lake, AT_ONCE)
    assert shared.exists()


def test_a_procedure_says_so_too(catalog: TransactionalCatalog, root: Path, client: Client) -> None:
    source = source_of(catalog, root)
    cloned(catalog, add(source("p")))
    said = {"procedure": "release", "text": "CALL …"}
    state, _, message = client.refused("call", arguments={"table": "c"}, **said)
    assert (state, "Release default.t" in message) == ("22023", True)
    assert len(client.ok("call", arguments={"namespace": "default"}, **said)["rows"]) == 2
