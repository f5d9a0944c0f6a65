"""The command line: look at a lake without Spark, print what Spark needs, run scripts on it.

    lockstep init | tables | views | verify         a lake: a path or s3:// URL, credentials from AWS_* variables
                                                    (lockstep.cli.lake)
    lockstep sql | manifest                         queries without Spark, and what other engines read
                                                    (lockstep.cli.reading)
    lockstep log | show                             its database versions (lockstep.cli.log)
    lockstep tag | untag | tags | dropped | undrop  names of versions, and dropped tables (lockstep.cli.recovery)
    lockstep restore | revert                       what was, brought back (lockstep.cli.recovery)
    lockstep diff | wait                            what changed; until something does (lockstep.cli.recovery)
    lockstep adopt | release | settle               tables that others made, and go on with (lockstep.cli.adoption)
    lockstep export | clone | import | exports | drop-export
                                                    lakes and files made of a version (lockstep.cli.exports)
    lockstep promote                                what was changed in a clone, back to its lake (lockstep.cli.exports)
    lockstep transactions | abort                   what is open, and how to end it (lockstep.cli.transactions)
    lockstep expire | vacuum | gc | maintain        delete what nobody needs (lockstep.cli.upkeep)
    lockstep retention                              what is kept at least, whoever looks after a lake
                                                    (lockstep.cli.retention)
    lockstep status                                 how a lake is, and what could be deleted (lockstep.cli.upkeep)
    lockstep arbiter                                who decides a lake's versions, if its store does not
                                                    (lockstep.cli.arbiter)
    lockstep doctor                                 what Lockstep needs here, each tried (lockstep.cli.doctor)
    lockstep conf | jars                            settings and jars for spark-defaults.conf and spark-submit
                                                    (lockstep.cli.session)
    lockstep run | plan                             a script (lockstep.cli.scripts)

Every command has `--json`. Exit codes: 0, 1 for a refusal or a difference found (the message and its SQLSTATE are on
standard error), 2 for a wrong command line, 3 where `wait` waited in vain, 130 for Ctrl-C. Only
`init`, `tag`, `untag`, `undrop`, `restore`, `revert`, `abort`, `adopt`, `release`, `settle`, `export`, `clone`,
`promote`, `import`, `drop-export`, `expire`, `vacuum`, `gc`, `maintain`, `run` and `retention` with an
option write; `arbiter` does with `--reseed`.
"""

from __future__ import annotations

from typing import Any

import click

from lockstep._version import __version__
from lockstep.cli.adoption import adopt, release, settle
from lockstep.cli.arbiter import arbiter
from lockstep.cli.arguments import INTERRUPTED
from lockstep.cli.doctor import doctor
from lockstep.cli.exports import clone, drop_export, export, exports, import_, promote
from lockstep.cli.lake import init, tables, verify, views
from lockstep.cli.log import log, show
from lockstep.cli.printing import say
from lockstep.cli.reading import manifest, sql
from lockstep.cli.recovery import diff, dropped, restore, revert, tag, tags, undrop, untag, wait
from lockstep.cli.retention import retention
from lockstep.cli.scripts import plan, run
from lockstep.cli.session import conf, jars
from lockstep.cli.transactions import abort, transactions
from lockstep.cli.upkeep import expire, gc, maintain, status, vacuum
from lockstep.errors import LockstepError


class _Commands(click.Group):
    """Commands whose errors are Lockstep's: a message, a SQLSTATE and exit code 1, never a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except LockstepError as error:
            say(f"lockstep: {error}", err=True)
            ctx.exit(1)
        except KeyboardInterrupt:
            click.echo("lockstep: interrupted", err=True)
            ctx.exit(INTERRUPTED)


@click.group(cls=_Commands)
@click.version_option(__version__, prog_name="lockstep")
def main() -> None:
    """Look at Lockstep lakes, multi-table ACID transactions over plain Delta tables, and run scripts on them."""


_LOOKING = (log, show, tables, views, sql, manifest, verify, tags, dropped, diff, wait, transactions, exports, status)
_CHANGING = (
    init,
    tag,
    untag,
    undrop,
    restore,
    revert,
    abort,
    adopt,
    release,
    settle,
    export,
    clone,
    promote,
    import_,
    drop_export,
    expire,
    vacuum,
    gc,
    maintain,
    retention,
    arbiter,
)
_WITH_SPARK = (conf, jars, run, plan, doctor)

for _command in (*_LOOKING, *_CHANGING, *_WITH_SPARK):
    main.add_command(_command)
