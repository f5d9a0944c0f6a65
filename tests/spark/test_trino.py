"""What docs/python.md says of Trino, tried on a real one: `make test-trino`.

Not part of `make test`: its server has 821 MB, and needs a newer Java than Spark.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lockstep
from lockstep.tables.opened import OpenLake
from tests.spark.test_readers_without_spark import MADE, name_of
from tests.support.markdown import blocks, table_of
from tests.support.python_tables import widen
from tests.support.s3 import KEYS, moto, serving
from tests.support.trino import RefusedError, Row, Trino, trino
from tests.unit.tables.test_lazy_reads import FILES, KINDS, comparable, fill

PYTHON = os.environ.get("LOCKSTEP_TEST_TRINO", "")
"""Of the environment that has Trino's client."""

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not PYTHON, reason="needs a Trino: make test-trino")]

GUIDE = (Path(__file__).parents[2] / "docs" / "python.md").read_text(encoding="utf-8")
BLOCKS = blocks(GUIDE)
FEATURES = "features that Trino does not know, `catalogManaged` among them"
NOT_READ = {
    row.removeprefix("a table with "): re.findall("`([A-Z_]+)`", cells["what it says"])[0]
    for row, cells in table_of(GUIDE, "what Trino 476 does not read").items()
}
"""By rows of the guide's table, the name of Trino's error."""

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """The endpoint of a moto S3 server with a bucket `lake`."""
    with serving(moto()) as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, s3: str) -> Iterator[Trino]:
    """Start Trino with the catalog of the guide, which is told what is said there of another server than Amazon's."""
    folder = tmp_path_factory.mktemp("trino")
    on_disk, in_s3 = (block.text for block in BLOCKS if block.language == "properties")
    others = {
        "s3.endpoint": s3,
        "s3.path-style-access": "true",
        "s3.aws-access-key": KEYS["access_key_id"],
        "s3.aws-secret-key": KEYS["secret_access_key"],
    }
    catalog = [on_disk.replace("/data/trino", str(folder / "metastore")), in_s3, *map("=".join, others.items())]
    with trino(folder, {"delta": "\n".join(catalog)}) as running:
        yield running


@pytest.fixture
def lake(root: Path) -> OpenLake:
    return lockstep.open(str(root), create=True)


def manifest(root: str | Path, version: int, **environment: str) -> str:
    command = [sys.executable, "-m", "lockstep", "manifest", str(root), "--at", str(version)]
    environment = {**os.environ, **environment}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout


class Views:
    """What Trino has of a lake: by the guide's program, a schema of views for each manifest that it is given."""

    def __init__(self, server: Trino, root: Path, folder: Path) -> None:
        [program] = [block.text for block in BLOCKS if block.text.startswith("# views_in_trino.py")]
        self._server, self._root = server, root
        self._program = folder / "views_in_trino.py"
        self._program.write_text(program.replace("port=8080", f"port={server.port}"))
        self._schemas = count()

    def made(self, text: str) -> str:
        """Make the views of a manifest; their schema."""
        schema = f"{self._root.parent.name}_{next(self._schemas)}".replace("-", "_").lower()
        subprocess.run([PYTHON, str(self._program), schema], input=text, check=True, text=True)
        return schema

    def rows(self, schema: str, table: str) -> list[Any]:
        """Return the rows of a table of such a schema, in an order."""
        name = table.replace(".", "_") if "." in table else f"default_{table}"
        return in_order(self._server.ask(f'SELECT * FROM delta.{schema}."{name}"'))


@pytest.fixture
def views(server: Trino, root: Path, tmp_path: Path) -> Views:
    return Views(server, root, tmp_path)


def in_order(rows: list[Row]) -> list[Any]:
    return sorted(map(comparable, rows), key=repr)


def to_the_millisecond(value: Any) -> Any:
    """Return a value as Trino has it, which rounds times that have a zone."""
    if isinstance(value, dict):
        return {name: to_the_millisecond(each) for name, each in value.items()}
    if isinstance(value, dt.datetime) and value.tzinfo:
        rounded = value + dt.timedelta(microseconds=500)
        return rounded.replace(microsecond=rounded.microsecond // 1000 * 1000)
    return value


def by_lockstep(lake: OpenLake, version: int, table: str) -> list[Any]:
    """Return the rows that Lockstep reads of a table of a database version, in an order."""
    return in_order([to_the_millisecond(row) for row in lake.at(version)[table].to_arrow().to_pylist()])


def read_by_trino(server: Trino, schema: str, said: Mapping[str, Any], columns: str = "*") -> list[Any] | str:
    """Return the rows of one table of a manifest, in an order, or by which name Trino refuses it."""
    name = f"{schema}.{said['table'].replace('.', '_')}"
    try:
        if not server.ask(f"SHOW TABLES FROM delta.{schema} LIKE '{name.partition('.')[2]}'"):
            values = f"'{schema}', '{name.partition('.')[2]}', '{said['location']}'"
            server.ask(f"CALL delta.system.register_table({values})")
        return in_order(server.ask(f"SELECT {columns} FROM delta.{name} FOR VERSION AS OF {said['version']}"))
    except RefusedError as error:
        return str(error).partition(":")[0]


@pytest.mark.parametrize("kind", KINDS)
def test_trino_reads_each_version_by_the_manifest(lake: OpenLake, root: Path, views: Views, kind: str) -> None:
    """The rows that the lake has at that version, before its DELETE and after it."""
    fill(lake, FILES, **KINDS[kind])
    newest = lake.at().version
    for version in (2, newest - 1, newest):
        assert views.rows(views.made(manifest(root, version)), "t") == by_lockstep(lake, version, "t"), version


def test_tables_of_a_transaction_are_seen_together_and_later_ones_are_not(
    lake: OpenLake, root: Path, views: Views
) -> None:
    with lake.transaction() as tx:
        tx.create_namespace("sales")
        for name in ("sales.orders", "sales.totals"):
            tx.create(name, SCHEMA).append({"id": [1], "v": ["first"]})
    first = lake.at().version
    early = views.made(manifest(root, first))

    def seen(schema: str) -> list[list[Any]]:
        return [[row["id"] for row in views.rows(schema, name)] for name in ("sales.orders", "sales.totals")]

    assert seen(early) == [[1], [1]]
    with lake.transaction() as tx:
        tx["sales.orders"].append({"id": [2], "v": ["second"]})
        tx["sales.totals"].append({"id": [2], "v": ["second"]})
        while_open = views.made(manifest(root, lake.at().version))
        assert seen(while_open) == [[1], [1]], "rows of a transaction that is not committed"
    assert seen(while_open) == seen(early) == [[1], [1]], "a COMMIT changed what is read at a version"
    assert seen(views.made(manifest(root, lake.at().version))) == [[1, 2], [1, 2]]
    with lake.transaction() as tx:
        tx["sales.orders"].delete("id = 1")
        tx["sales.totals"].overwrite({"id": [3], "v": ["third"]})
    assert seen(views.made(manifest(root, lake.at().version))) == [[2], [3]]
    assert seen(early) == [[1], [1]]
    assert seen(views.made(manifest(root, first))) == [[1], [1]], "registered once more, after later commits"


def test_names_are_those_of_the_version(lake: OpenLake, root: Path, views: Views) -> None:
    with lake.transaction() as tx:
        tx.create("t", SCHEMA).append({"id": [1], "v": ["t"]})
        tx.create("dropped", SCHEMA).append({"id": [2], "v": ["dropped"]})
    before = lake.at().version
    with lake.transaction() as tx:
        tx.rename("t", "renamed")
        tx["renamed"].append({"id": [3], "v": ["renamed"]})
        tx.drop("dropped")
        tx.create("dropped", SCHEMA).append({"id": [4], "v": ["made anew"]})
    old, new = (views.made(manifest(root, version)) for version in (before, lake.at().version))
    assert views.rows(old, "t") == by_lockstep(lake, before, "t")
    assert views.rows(old, "dropped") == by_lockstep(lake, before, "dropped")
    assert views.rows(new, "renamed") == by_lockstep(lake, lake.at().version, "renamed")
    assert views.rows(new, "dropped") == by_lockstep(lake, lake.at().version, "dropped")
    with pytest.raises(RefusedError, match="TABLE_NOT_FOUND"):
        views.rows(new, "t")


@pytest.mark.parametrize("policy", ["classic", "v2"])
def test_versions_before_and_behind_checkpoints(spark: Any, root: Path, views: Views, policy: str) -> None:
    """And those whose earlier commits Delta's clean-up of the log has taken away."""
    said = f"'delta.checkpointInterval' = '5', 'delta.checkpointPolicy' = '{policy}'"
    spark.sql(f"CREATE TABLE lake.default.t (id BIGINT, v STRING) TBLPROPERTIES ({said})")
    for number in range(8):
        spark.sql(f"INSERT INTO lake.default.t VALUES ({number}, 'x')")
    lake = lockstep.open(str(root))
    made = {lake.at(version)["t"].version: version for version in range(1, lake.at().version + 1)}
    log = Path(lake.at()["t"].uri.removeprefix("file://"), "_delta_log")
    assert {path.name[:20] for path in log.glob("*.checkpoint.*parquet")} | {
        path.name[:20] for path in log.glob("*.checkpoint.*.json")
    } == {f"{5:020}"}

    def is_read(version: int) -> bool:
        schema = views.made(manifest(root, made[version]))
        return views.rows(schema, "t") == by_lockstep(lake, made[version], "t")

    assert all(map(is_read, (0, 4, 5, 8)))
    for number in range(5):
        (log / f"{number:020}.json").unlink()
    assert all(map(is_read, (5, 8)))


def test_a_lake_in_s3(server: Trino, s3: str, views: Views) -> None:
    lake = lockstep.open("s3://lake/in-trino", create=True, options={**KEYS, "endpoint": s3})
    fill(lake, FILES, **KINDS["mapped, partitions and vectors"])
    newest = lake.at().version
    said = {
        "AWS_ENDPOINT_URL": s3,
        "AWS_ACCESS_KEY_ID": KEYS["access_key_id"],
        "AWS_SECRET_ACCESS_KEY": KEYS["secret_access_key"],
        "AWS_REGION": KEYS["region"],
    }
    for version in (newest - 1, newest):
        schema = views.made(manifest("s3://lake/in-trino", version, **said))
        assert views.rows(schema, "t") == by_lockstep(lake, version, "t"), version


@pytest.mark.parametrize("feature", ["catalogManaged", "fromTomorrow"])
def test_trino_reads_no_table_of_features_that_it_does_not_know(
    lake: OpenLake, root: Path, server: Trino, feature: str
) -> None:
    with lake.transaction() as tx:
        tx.create("t", SCHEMA)
    [said] = json.loads(manifest(root, lake.at().version))["tables"]
    named = {"readerFeatures": [feature], "writerFeatures": [feature]}
    protocol = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **named}}
    Path(said["location"].removeprefix("file://"), "_delta_log", f"{1:020}.json").write_text(json.dumps(protocol))
    schema = f"of_features_{feature.lower()}"
    server.ask(f"CREATE SCHEMA delta.{schema}")
    assert read_by_trino(server, schema, said) == [], "a version from before the feature"
    assert read_by_trino(server, schema, {**said, "version": 1}) == NOT_READ[FEATURES]


def test_trino_leaves_out_columns_that_were_widened(lake: OpenLake, root: Path, views: Views, server: Trino) -> None:
    """But for bytes and shorts that became shorts and integers."""
    columns = {"id": pa.int64(), "b": pa.int8(), "s": pa.int16(), "i": pa.int32(), "f": pa.float32()}
    row = {"id": 7, "b": 1, "s": 2, "i": 3, "f": 1.5}
    schema = pa.schema(list(columns.items()))
    with lake.transaction() as tx:
        tx.create("t", schema).append(pa.Table.from_pylist([row], schema=schema))
    before = views.made(manifest(root, lake.at().version))
    widen(lake, "t", b=("byte", "short"), s=("short", "integer"), i=("integer", "long"), f=("float", "double"))
    after = views.made(manifest(root, lake.at().version))
    assert views.rows(before, "t") == in_order([row])
    assert views.rows(after, "t") == in_order([{"id": 7, "b": 1, "s": 2}])
    with pytest.raises(RefusedError, match="COLUMN_NOT_FOUND"):
        server.ask(f"SELECT i FROM delta.{after}.default_t")


def test_a_table_that_is_dropped_in_trino_stays_in_the_lake(
    lake: OpenLake, root: Path, views: Views, server: Trino
) -> None:
    with lake.transaction() as tx:
        tx.create("t", SCHEMA).append({"id": [1], "v": ["x"]})
    schemas = [views.made(manifest(root, lake.at().version)) for _ in range(2)]
    before = sorted(root.rglob("*"))
    server.ask(f"DROP TABLE delta.{schemas[0]}.default_t_at_any_version")
    server.ask(f"DROP SCHEMA delta.{schemas[1]} CASCADE")
    assert sorted(root.rglob("*")) == before
    assert by_lockstep(lake, lake.at().version, "t")


def test_trino_reads_each_kind_of_table_that_spark_makes(spark: Any, root: Path, server: Trino) -> None:
    """But for what the guide says, in which Lockstep's own readers are not asked either."""
    assert set(NOT_READ) - set(MADE) == {FEATURES}
    spark.sql("CREATE NAMESPACE lake.py")
    for words, statements in MADE.items():
        for statement in statements:
            spark.sql(statement.format(t=f"lake.py.{name_of(words)}"))
    lake = lockstep.open(str(root))
    tables = {each["table"]: each for each in json.loads(manifest(root, lake.at().version))["tables"]}
    names = {words: f"py.{name_of(words)}" for words in MADE}
    assert [words for words, name in names.items() if name not in tables] == ["views"]
    server.ask("CREATE SCHEMA delta.made_by_spark")
    for words, name in names.items():
        if name in tables:
            found = read_by_trino(server, "made_by_spark", tables[name])
            assert found == (NOT_READ.get(words) or by_lockstep(lake, lake.at().version, name)), words
    [variants] = [each for name, each in tables.items() if name.endswith(".variants")]
    assert read_by_trino(server, "made_by_spark", variants, "id") == NOT_READ["variants"]
