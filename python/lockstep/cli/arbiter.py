"""The command about who decides a lake's versions: `lockstep arbiter`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lockstep.cli.arguments import goes_on, json_option, root_argument, yes_option
from lockstep.cli.printing import print_json
from lockstep.errors import InvalidError, UnsupportedError

if TYPE_CHECKING:
    from lockstep.timeline.arbitration import Standing


@click.command()
@root_argument
@click.option("--reseed", is_flag=True, help="Let it go on from what the store has: nobody may write meanwhile.")
@yes_option
@json_option
@click.pass_context
def arbiter(ctx: click.Context, root: str, reseed: bool, yes: bool, as_json: bool) -> None:
    """Show how a lake's arbiter stands to its store; exit with 1 if it can decide nothing.

    Example: lockstep arbiter s3://bucket/lake
    """
    from lockstep.catalog import TransactionalCatalog
    from lockstep.timeline import arbitration

    timeline = TransactionalCatalog.open(root, application="lockstep").timeline
    if timeline.arbiter_name is None:
        raise InvalidError(f"the lake {timeline.storage.url} has no arbiter: its store decides")
    if timeline.arbitration is None:
        raise UnsupportedError(timeline.refusal)
    where = (timeline.storage, timeline.arbitration, timeline.head.version)
    found = arbitration.standing(*where)
    if not as_json:
        click.echo(_said(found))
    if reseed and found.wrong and goes_on("changed", yes=yes, dry_run=False, as_json=as_json):
        arbitration.reseed(*where)
        found = arbitration.standing(*where)
        if not as_json:
            click.echo(_said(found))
    if as_json:
        print_json(found)
    ctx.exit(1 if found.wrong else 0)


def _said(found: Standing) -> str:
    knows = "nothing of this lake" if found.decided is None else f"database version {found.decided}"
    verdict = f"WRONG: it {found.wrong}" if found.wrong else "well"
    return f"{found.arbiter}: decided {knows}, the store has {found.stored}: {verdict}"
