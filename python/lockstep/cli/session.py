"""The commands for those who configure Spark themselves: `lockstep conf` and `lockstep jars`."""

from __future__ import annotations

import click

from lockstep.cli.arguments import absolute, json_option, root_argument
from lockstep.cli.printing import print_json


@click.command()
@root_argument
@click.option("--catalog", default="lake", show_default=True, help="What SQL calls the lake.")
@click.option("--packages", is_flag=True, help="Have Spark fetch Hadoop's connector for an object store.")
@json_option
def conf(root: str, catalog: str, packages: bool, as_json: bool) -> None:
    """Print the settings of a Spark session for a spark-defaults.conf.

    Example: lockstep conf /data/lake --catalog lake >> $SPARK_HOME/conf/spark-defaults.conf
    """
    from lockstep.spark.configuration import conf as settings

    # Where Spark starts is not where this runs.
    properties = settings(root=absolute(root), catalog=catalog, packages=packages)
    if as_json:
        print_json(properties)
    else:
        click.echo("\n".join(f"{key} {value}" for key, value in properties.items()))


@click.command()
@json_option
def jars(as_json: bool) -> None:
    """Print the jars of a Spark session, for spark-submit --jars.

    Example: spark-submit --jars "$(lockstep jars)" job.py
    """
    from lockstep.spark.jars import session_jars

    paths = [str(path) for path in session_jars()]
    if as_json:
        print_json(paths)
    else:
        click.echo(",".join(paths))
