"""dbt builds the example of `sql/dbt` as one transaction. `make test-dbt` installs dbt in an environment of its own.

Not part of `make test`: dbt brings sixty packages, and each run starts a Spark.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.catalog import TransactionalCatalog
from tests.support.dbt import DBT, Project, session, thrift
from tests.support.gate import wait_until
from tests.support.lakes import named, staged_commits

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not DBT, reason="needs dbt: make test-dbt")]

WRONG_ORDER = "4,9,5,2026-02-01"
"""Of a customer that is not there, so that one mart has its amount and the other has not."""


@pytest.fixture(scope="module", params=[session, thrift], ids=lambda method: method.__name__)
def built(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, repository: Path
) -> Iterator[Project]:
    """The example, built once by each method."""
    with request.param(tmp_path_factory.mktemp("dbt"), repository) as project:
        done = project.run("build")
        assert done.returncode == 0, done.stdout
        yield project


@pytest.fixture
def project(built: Project) -> Iterator[Project]:
    """The example, whose lake the test leaves as it found it, or not; its files are put back."""
    orders = built.folder / "seeds" / "orders.csv"
    before = orders.read_text(encoding="utf-8")
    yield built
    orders.write_text(before, encoding="utf-8")


def test_a_build_is_one_database_version(built: Project) -> None:
    catalog = TransactionalCatalog.open(str(built.lake))
    entry = next(entry for entry in catalog.timeline.entries(1) if entry.transaction.message.startswith("dbt build "))
    made = {"shop.customers", "shop.customers_then", "shop.days", "shop.orders", "shop.revenue"}
    assert {str(ddl.name) for ddl in entry.tables} == made
    assert {str(ddl.name) for ddl in entry.views} == {"shop.stg_orders"}
    first = catalog.timeline.at(entry.version - 1)
    assert not first.tables
    assert not first.views


def test_a_second_build_changes_all_at_once(project: Project) -> None:
    before = project.database()
    done = project.run("build")
    assert done.returncode == 0, done.stdout
    after = project.database()
    assert after.version == before.version + 1
    assert after.tables[named("shop.days")].version > before.tables[named("shop.days")].version, "merged, not made anew"


@pytest.mark.parametrize("options", [[], ["--fail-fast"]], ids=["to the end", "fail fast"])
def test_a_test_that_does_not_hold_leaves_nothing(project: Project, options: list[str]) -> None:
    before = project.database()
    project.add_order(WRONG_ORDER)
    done = project.run("build", *options)
    assert done.returncode == 1, done.stdout
    assert "all is rolled back" in done.stdout
    assert project.database() == before


@pytest.mark.parametrize("command", ["compile", "docs generate", "show --select revenue"])
def test_what_runs_no_model_needs_no_transaction(built: Project, command: str) -> None:
    before = built.database()
    done = built.run(*command.split())
    assert done.returncode == 0, done.stdout
    assert built.database() == before


def test_a_retry_is_refused_for_what_it_goes_on_with_was_rolled_back(project: Project) -> None:
    """Green, with half of the load missing, is what dbt would answer."""
    before = project.database()
    orders = project.folder / "seeds" / "orders.csv"
    right = orders.read_text(encoding="utf-8")
    project.add_order(WRONG_ORDER)
    assert project.run("build").returncode == 1
    orders.write_text(right, encoding="utf-8")
    done = project.run("retry")
    assert done.returncode != 0
    assert "Run `dbt build` itself again" in done.stdout
    assert project.database() == before


@pytest.mark.parametrize("built", [thrift], indirect=True, ids=["thrift"])
def test_a_run_whose_connections_share_no_transaction_is_refused(project: Project) -> None:
    before = project.database()
    profiles = project.folder / "profiles.yml"
    said = profiles.read_text(encoding="utf-8")
    profiles.write_text(said.replace("{{ invocation_id }}", "another"), encoding="utf-8")
    done = project.run("build")
    profiles.write_text(said, encoding="utf-8")
    assert done.returncode != 0
    assert "lockstep.begin(): dbt opens a connection for each node" in done.stdout
    assert project.database() == before


def test_an_interrupted_build_leaves_nothing(project: Project) -> None:
    before = project.database()
    with project.start("build") as process:
        assert process.stdout is not None
        assert any("OK loaded seed file" in line for line in process.stdout), "nothing was written yet"
        os.killpg(process.pid, signal.SIGINT)
        process.stdout.read()
    assert process.returncode != 0
    wait_until(lambda: not staged_commits(project.lake), "its staged commits are still there")
    assert project.database() == before


def test_models_lie_where_location_root_says(tmp_path: Path, repository: Path) -> None:
    """Built again they are replaced where they are, and anew; a build that fails leaves the folders as they were."""
    project, marts = Project(tmp_path, repository), tmp_path / "marts"
    said = project.folder / "dbt_project.yml"
    at = f"      +materialized: table\n      +location_root: {marts}\n"
    said.write_text(said.read_text(encoding="utf-8").replace("      +materialized: table\n", at), encoding="utf-8")
    for options in ([], [], ["--full-refresh"]):
        done = project.run("build", *options)
        assert done.returncode == 0, done.stdout
        tables = project.database().tables
        assert {tables[named(f"shop.{model}")].location for model in ("days", "revenue")} == {
            f"file://{marts}/days",
            f"file://{marts}/revenue",
        }
    before = project.database()
    project.add_order(WRONG_ORDER)
    assert project.run("build").returncode == 1
    assert project.database() == before
