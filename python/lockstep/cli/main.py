"""The command line: look at a lake without Spark, print what Spark needs, run scripts on it.

    lockstep init | tables | views | verify         a lake: a path or s3:// URL, credentials from AWS_* variables
                                                    (lockstep.cli.lake)
    lockstep log | show                             its database versions (lockstep.cli.log)
    lockstep conf | jars                            settings and jars for spark-defaults.conf and spark-submit
                                                    (lockstep.cli.session)
    lockstep run | plan                             a script (lockstep.cli.scripts)

Every command has `--json`. Exit codes: 0, 1 for a refusal or a difference found (the message and its SQLSTATE are on
standard error), 2 for a wrong command line, 130 for Ctrl-C. Only `init` and `run` write.
"""

from __future__ import annotations

from typing import Any

import click

from lockstep._version import __version__
from lockstep.cli.arguments import INTERRUPTED
from lockstep.cli.lake import init, tables, verify, views
from lockstep.cli.log import log, show
from lockstep.cli.scripts import plan, run
from lockstep.cli.session import conf, jars
from lockstep.errors import LockstepError


class _Commands(click.Group):
    """Commands whose errors are Lockstep's: a message, a SQLSTATE and exit code 1, never a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except LockstepError as error:
            click.echo(f"lockstep: {error}", err=True)
            ctx.exit(1)
        except KeyboardInterrupt:
            click.echo("lockstep: interrupted", err=True)
            ctx.exit(INTERRUPTED)


@click.group(cls=_Commands)
@click.version_option(__version__, prog_name="lockstep")
def main() -> None:
    """Look at Lockstep lakes, multi-table ACID transactions over plain Delta tables, and run scripts on them."""


for _command in (init, log, show, tables, views, verify, conf, jars, run, plan):
    main.add_command(_command)
