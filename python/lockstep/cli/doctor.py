"""The command that looks at the machine and the store: `lockstep doctor`."""

from __future__ import annotations

import click

from lockstep.cli.arguments import json_option
from lockstep.cli.printing import print_json, print_table


@click.command()
@click.argument("root", required=False)
@json_option
@click.pass_context
def doctor(ctx: click.Context, root: str | None, as_json: bool) -> None:
    """Try what Lockstep needs here, and of the lake at ROOT its store; exit with 1 if something is wrong.

    Example: lockstep doctor /data/lake
    """
    from lockstep.spark.doctor import examine

    findings = list(examine(root))
    if as_json:
        print_json(findings)
    else:
        rows = [[each.what, "ok" if each.is_well else "WRONG", each.detail] for each in findings]
        print_table(["check", "", "what there is, or what to do"], rows)
    ctx.exit(0 if all(each.is_well for each in findings) else 1)
