"""The command about who decides a lake's versions: `lockstep arbiter`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lockstep.cli.arguments import goes_on, json_option, root_argument, yes_option
from lockstep.cli.printing import print_json
from lockstep.errors import InvalidError

if TYPE_CHECKING:
    from lockstep.timeline.standing import Standing


@click.command()
@root_argument
@click.option("--reseed", is_flag=True, help="Let it go on from what the store has: nobody may write meanwhile.")
@click.option(
    "--another-server",
    is_flag=True,
    help="With --reseed: this server decides from now on, though it is another one; nobody may reach the old one.",
)
@yes_option
@json_option
@click.pass_context
def arbiter(ctx: click.Context, root: str, *, reseed: bool, another_server: bool, yes: bool, as_json: bool) -> None:
    """Show how a lake's arbiter stands to its store; exit with 1 if it can decide nothing.

    Example: lockstep arbiter s3://bucket/lake
    """
    from lockstep.catalog import TransactionalCatalog
    from lockstep.timeline import standing

    if another_server and not reseed:
        raise click.UsageError("--another-server goes with --reseed")
    timeline = TransactionalCatalog.open(root, application="lockstep").timeline
    if timeline.arbiter_name is None:
        raise InvalidError(f"the lake {timeline.storage.url} has no arbiter: its store decides")
    found = standing.standing(timeline)
    if not as_json:
        click.echo(_said(found))
    if reseed and found.wrong and goes_on("changed", yes=yes, dry_run=False, as_json=as_json):
        standing.reseed(timeline, another_server=another_server)
        found = standing.standing(timeline)
        if not as_json:
            click.echo(_said(found))
    if as_json:
        print_json(found)
    ctx.exit(1 if found.wrong else 0)


def _said(found: Standing) -> str:
    knows = "nothing of this lake" if found.decided is None else f"database version {found.decided}"
    verdict = f"WRONG: it {found.wrong}" if found.wrong else "well"
    return f"{found.arbiter}: decided {knows}, the store has {found.stored}: {verdict}"
