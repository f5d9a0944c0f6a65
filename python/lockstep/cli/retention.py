"""The command about what a lake keeps at least, whoever looks after it: `lockstep retention`.

What is not given stays as it is. A catalog of Spark's that is set to keep more raises it when a session first uses it;
only this command, which asks first, and `CALL system.retention` lower it.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from lockstep.cli.arguments import dry_run_option, goes_on, json_option, root_argument, yes_option
from lockstep.cli.printing import print_json, print_table, say
from lockstep.errors import InvalidError
from lockstep.settings import DELETION_GRACE, ORPHAN_AGE, RETENTION_AGE, RETENTION_VERSIONS, Setting

if TYPE_CHECKING:
    from lockstep.retention.floor import Change


def _option(name: str, setting: Setting, help: str) -> Callable[[Any], Any]:
    return click.option(name, setting.name.replace("-", "_"), metavar=setting.kind.upper(), help=help)


@click.command()
@root_argument
@_option("--age", RETENTION_AGE, "Keep every version of this long, as 365d.")
@_option("--versions", RETENTION_VERSIONS, "Keep so many of the newest versions.")
@_option("--grace", DELETION_GRACE, "How long a file is marked before it goes.")
@_option("--orphan-age", ORPHAN_AGE, "Keep litter that is younger, as 7d; an hour at least.")
@dry_run_option
@yes_option
@json_option
def retention(root: str, *, dry_run: bool, yes: bool, as_json: bool, **said: str | None) -> None:
    """Say what a lake keeps at least, whoever looks after it, or set that: all that deletes keeps as much.

    Example: lockstep retention /data/lake --age 365d
    """
    from lockstep.catalog import TransactionalCatalog
    from lockstep.retention.floor import OPTIONS, look, set_floor

    settings = {name.replace("_", "-"): value for name, value in said.items() if value is not None}
    catalog = TransactionalCatalog.open(root, application="lockstep")
    found = look(catalog.lake.storage, settings)
    lowers = any(each.is_lower for each in found)
    if settings and not as_json and (dry_run or (lowers and not yes)):
        _say([each for each in found if each.is_change], is_plan=True)
    if not settings:
        pass  # nothing is asked for but a look
    elif goes_on("changed", yes=yes or not lowers, dry_run=dry_run, as_json=as_json):
        if not yes:
            _refuse_unshown(found, look(catalog.lake.storage, settings))
        words = [f"--{OPTIONS[name]} {shlex.quote(value)}" for name, value in settings.items()]
        statement = f"lockstep retention {' '.join(words)}"
        set_floor(catalog.lake, settings, author=catalog.author, statement=statement)
        found = look(catalog.lake.storage, {})
    elif not as_json:
        return
    if as_json:
        print_json([asdict(each) for each in found])
    else:
        _say(found)


def _refuse_unshown(shown: list[Change], found: list[Change]) -> None:
    """Raise InvalidError if something would become less that somebody has raised since it was looked at.

    Args:
        shown: what was looked at before anybody was asked, in the same order.
    """
    for before, now in zip(shown, found, strict=True):
        if now.is_lower and now.value != before.value:
            raise InvalidError(
                f"{now.author or 'somebody'} has just said {now.name} {now.value} ({now.statement}), which was "
                f"{before.value} when this looked: nothing was changed. Run the same again if it is to be {now.wanted}"
            )


def _say(found: list[Change], *, is_plan: bool = False) -> None:
    if is_plan:
        for each in found:
            say(f"{each.name} would become {each.wanted} instead of {each.value}")
        if not found:
            say("nothing would change")
        return
    rows = [[each.name, each.value, each.author, each.at or "", each.statement] for each in found]
    print_table(["setting", "the lake keeps", "said by", "at", "by what"], rows)
