"""`lockstep log` and `lockstep show`: which database versions, and how much of them a terminal is shown."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import termios
from datetime import UTC, datetime, timedelta
from fcntl import ioctl
from pathlib import Path

import click
import pytest
from msgspec import structs

from lockstep.catalog import TransactionalCatalog
from lockstep.cli.arguments import time_option_value
from lockstep.cli.log import find, log
from lockstep.display import BRIEF_COLUMNS, LOG_COLUMNS, brief_row, log_row
from lockstep.errors import InvalidError
from lockstep.storage import open_storage
from lockstep.timeline.entry import Batch, Name, ViewDefinition
from lockstep.timeline.files import encode, entry_path
from lockstep.timeline.log import Timeline
from tests.support.commands import lockstep, make_orders, read
from tests.support.entries import entry


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def orders(root: Path) -> str:
    return make_orders(root)


def test_log_lists_the_newest_versions_first(root: Path, orders: str) -> None:
    assert [entry["version"] for entry in read("log", root)] == [3, 2, 1, 0]
    assert [entry["version"] for entry in read("log", root, "-n", 2)] == [3, 2]
    newest = read("log", root, "-n", 1)[0]
    assert (newest["tables"], newest["rows_added"], newest["author"]) == (["sales.orders"], 2, "ada")
    assert "INSERT INTO orders" in lockstep("log", root).stdout.splitlines()[1]


def test_show_tells_everything_an_entry_says(root: Path, orders: str) -> None:
    shown = lockstep("show", root, 2).stdout
    for expected in (
        "transaction",
        "ada",
        "CREATE TABLE orders",
        "create  sales.orders",
        "-1 → 0",
        "inline, 4 actions",
    ):
        assert expected in shown
    assert read("show", root, 2)["writes"][0]["location"] == orders
    assert "[bold]ada" in lockstep("show", root, 1).stdout  # what users wrote is no markup


def test_a_batch_is_shown_and_logged(root: Path) -> None:
    catalog = TransactionalCatalog.open(str(root), create=True)
    catalog.commit(catalog.begin(batch=Batch(application="orders", number=7)))
    assert "batch 7 of application orders" in lockstep("show", root, 1).stdout
    assert "batch" not in lockstep("show", root, 0).stdout
    assert [entry["batch"] for entry in read("log", root)] == [{"application": "orders", "number": 7}, None]


def test_show_of_version_0_is_the_empty_database(root: Path, orders: str) -> None:
    assert read("show", root, 0)["kind"] == "create"


# --- which versions ---------------------------------------------------------------------------------------------------


def versions(*args: object) -> list[int]:
    return [entry["version"] for entry in read("log", *args)]


@pytest.fixture
def changed(root: Path, orders: str) -> None:
    """Let grace rename the table in database version 4, and ada make a view in 5."""
    catalog = TransactionalCatalog.open(str(root), author="Grace Hopper")
    old, new = (Name(namespace=("sales",), table=table) for table in ("orders", "Purchases"))
    catalog.run(lambda tx: tx.changing().rename_table(old, new))
    catalog.author = "ada"
    view = Name(namespace=("sales",), table="totals")
    catalog.run(lambda tx: tx.changing().create_view(view, ViewDefinition(text="SELECT 1", schema="{}"), replace=False))


def test_log_of_a_table_has_what_changed_or_renamed_it(root: Path, changed: None) -> None:
    assert versions(root, "--table", "sales.orders") == [4, 3, 2]
    assert versions(root, "--table", "SALES.purchases") == [4]
    assert versions(root, "--table", "sales.totals") == [5]
    assert versions(root, "--table", "orders") == []


def test_filters_of_log_come_before_its_count(root: Path, changed: None) -> None:
    assert versions(root, "--author", "ADA", "-n", 2) == [5, 3]
    assert versions(root, "--author", "hopper") == [4]
    assert versions(root, "--author", "ada", "--table", "sales.orders") == [3, 2]
    ids = {entry["version"]: entry["transaction"] for entry in read("log", root)}
    assert versions(root, "--id", ids[2].upper()) == [2]
    assert versions(root, "--id", "no hex") == []


def test_log_since_a_time_has_what_was_committed_then_and_later(root: Path, changed: None) -> None:
    times = {entry["version"]: datetime.fromisoformat(entry["committed_at"]) for entry in read("log", root)}
    third = times[3].isoformat()
    wanted = [version for version in (5, 4, 3, 2, 1, 0) if times[version] >= times[3]]
    assert versions(root, "--since", third) == wanted
    assert versions(root, "--since", third.removesuffix("+00:00")) == wanted  # UTC where no zone is said
    east = timedelta(hours=1)
    assert versions(root, "--since", (times[3] + east).isoformat().replace("+00:00", "+01:00")) == wanted
    assert versions(root, "--since", "2020-01-01") == [5, 4, 3, 2, 1, 0]
    assert versions(root, "--since", (times[5] + timedelta(days=2)).date()) == []


@pytest.mark.parametrize("time", ["yesterday", "2026-13-01", "", "0001-01-01T00:00+01:00"])
def test_a_time_that_is_none_is_a_wrong_command_line(root: Path, time: str) -> None:
    done = lockstep("log", root, "--since", time)
    assert done.exit_code == 2
    assert "is no date and no time: write 2026-03-01" in done.stderr


@pytest.fixture
def timeline(tmp_path: Path) -> Timeline:
    """Five versions, whose transactions have these ids."""
    store = open_storage(str(tmp_path))
    for version, id_ in enumerate(["11111111-28dc", "abc1", "abc2", "3333333344", "0"]):
        made = entry(version)
        made = structs.replace(made, transaction=structs.replace(made.transaction, id=id_))
        store.put(entry_path(version), encode(made))
    return Timeline.open(store)


@pytest.mark.parametrize(
    ("wanted", "version"),
    [("0", 0), ("04", 4), ("latest", 4), ("abc1", 1), ("ABC2", 2), ("11111111", 0), ("33333333", 3), ("1", 1)],
)
def test_a_version_is_found_by_its_number_its_id_or_as_the_latest(
    timeline: Timeline, wanted: str, version: int
) -> None:
    assert find(timeline, wanted).version == version


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ("abc", r"2 transactions' ids begin with abc: abc1 \(version 1\), abc2 \(version 2\) "),
        ("333", "database version 333 does not exist: there are 0 to 4"),  # a mistyped number, and no id
        ("99999999", "'99999999' is no database version, and no transaction's id begins so"),
        ("9" * 5000, "9' is no database version, and no transaction's id begins so"),
        ("", "'' is no database version"),
        ("newest", "'newest' is no database version, .* 0 to 4, and latest"),
    ],
)
def test_a_version_that_is_not_there_or_not_the_only_one_is_refused(timeline: Timeline, wanted: str, said: str) -> None:
    with pytest.raises(InvalidError, match=said):
        find(timeline, wanted)


def test_show_takes_what_log_prints(root: Path, orders: str) -> None:
    whole = read("show", root, 2)
    assert read("show", root, whole["transaction"]["id"]) == whole
    assert read("show", root, "latest")["version"] == 3
    assert whole["transaction"]["id"] in lockstep("log", root).stdout


def test_a_time_that_is_shown_means_its_version_when_it_is_given_back(root: Path) -> None:
    """Narrow or wide; two versions of one second are two moments."""
    at = datetime(2026, 3, 1, 12, 0, 0, 123_000, tzinfo=UTC)
    ticks = (at + timedelta(milliseconds=n) for n in range(100))
    catalog = TransactionalCatalog.open(str(root), create=True, clock=lambda: next(ticks))
    for name in ("a", "b"):
        catalog.run(lambda tx, name=name: tx.changing().create_namespace((name,), {}))  # type: ignore[misc]
    for each in catalog.timeline.entries(-1):
        for columns, row in ((BRIEF_COLUMNS, brief_row(each)), (LOG_COLUMNS, log_row(each))):
            shown = str(row[columns.index("committed at")])
            moment = time_option_value(click.Context(log), log.params[0], shown)
            assert moment is not None
            assert catalog.timeline.at_time(moment).version == each.version, shown


# --- how much of them -------------------------------------------------------------------------------------------------


def seen_in_terminal(columns: int, *args: object) -> list[str]:
    """Return the lines that a command prints on a terminal of this width."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")}
    command = [sys.executable, "-m", "lockstep", *map(str, args)]
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env={**environment, "TERM": "xterm", "NO_COLOR": "1"}
    ) as process:
        os.close(theirs)
        said = b""
        try:
            while more := os.read(ours, 4096):
                said += more
        except OSError:  # what Linux says at the end of a terminal
            pass
        finally:
            os.close(ours)
    assert process.returncode == 0, said
    plain = re.sub(r"\x1b\[[0-9;]*m", "", said.decode())
    return [line.rstrip() for line in plain.splitlines()]


LONG = "INSERT INTO lake.sales.orders SELECT * FROM staged.orders WHERE day = DATE '2026-03-01'"


@pytest.fixture
def wide(root: Path, orders: str) -> str:
    """Add a version of which every text is long; return its transaction's id."""
    catalog = TransactionalCatalog.open(str(root), author="ada.lovelace@example.org")
    view = Name(namespace=("sales",), table="a_view_of_a_rather_long_name")
    definition = ViewDefinition(text="SELECT 1", schema="{}")
    catalog.run(lambda tx: tx.changing().create_view(view, definition, replace=False), LONG)
    return catalog.timeline.entries(3)[0].transaction.id


def test_log_fits_a_terminal(root: Path, wide: str) -> None:
    header, newest, *others = seen_in_terminal(80, "log", root)
    assert header.split() == ["version", "id", "committed", "at", "author", "rows", "tables", "what"]
    moment = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}Z"
    assert re.fullmatch(rf"4 +{wide[:8]} {moment} ada\S*… +sales\S*… INSERT .*…", newest)
    assert [line[0] for line in others] == ["3", "2", "1", "0"]
    assert others[-1].endswith(" create")
    assert max(map(len, [header, newest, *others])) <= 80
    assert LONG in seen_in_terminal(210, "log", root)[1]


def test_show_fits_a_terminal_and_wraps_statements(root: Path, wide: str) -> None:
    shown = seen_in_terminal(80, "show", root, wide[:8])
    assert max(map(len, shown)) <= 80
    assert LONG in " ".join(line.strip() for line in shown)
    tables = seen_in_terminal(60, "show", root, 2)
    [write] = [line for line in tables if "-1 → 0" in line]
    assert write.startswith("sales.")
    assert "…" in write
    assert len(write) <= 60


def test_a_terminal_is_told_how_a_table_of_that_version_is_read(root: Path, orders: str) -> None:
    """By `lockstep tables`, `show` and `diff`, in one line that works as it stands; a pipe is not, nor --json."""
    for command in (("tables", root, "--at", 2), ("show", root, 2), ("diff", root, 1, 2)):
        [line] = [line for line in seen_in_terminal(60, *command) if "lockstep sql" in line]
        *_, query, at, version = shlex.split(line)
        assert (query, at, version) == ('FROM "sales"."orders"', "--at", "2"), command
        assert "lockstep sql" not in lockstep(*command).output
        assert not [line for line in seen_in_terminal(60, *command, "--json") if "lockstep sql" in line]
    assert not [line for line in seen_in_terminal(60, "tables", root, "--at", 0) if "lockstep sql" in line]


def test_what_goes_into_a_pipe_is_never_cut(root: Path, wide: str) -> None:
    newest = lockstep("log", root).stdout.splitlines()[1]
    for whole in (wide, LONG, "ada.lovelace@example.org", "sales.a_view_of_a_rather_long_name", "transaction"):
        assert whole in newest
    assert re.search(r":\d\d\.\d{3}Z", newest)
    assert LONG in lockstep("show", root, "latest").stdout.splitlines()
    terminal = json.loads("\n".join(seen_in_terminal(40, "log", root, "-n", 1, "--json")))
    assert terminal[0]["statements"] == [LONG]
