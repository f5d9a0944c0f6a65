"""Whether Spark's own defaults configure Lockstep, as far as can be told before Spark starts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.util import default_api_mode

from lockstep.errors import InvalidError
from lockstep.spark.bridge import EXTENSION
from lockstep.spark.jars import spark_jars_folder

_GATEWAY = "PYSPARK_GATEWAY_PORT"
_ELSEWHERE = (_GATEWAY, "SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")
"""Variables of an environment in which somebody else has started Spark, with settings that cannot be seen from here."""


_SETTINGS = ("PYSPARK_SUBMIT_ARGS", "SPARK_SUBMIT_OPTS", "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS")
"""Variables in which settings of Spark's can stand, as arguments or as properties of its JVM."""


def require_lockstep(settings: Mapping[str, str]) -> None:
    """Refuse to start a Spark whose settings say nothing of Lockstep: it would be refused only once it runs.

    Where Spark's settings cannot be known, nothing is refused.

    Args:
        settings: those that the session is to have beside Spark's defaults.

    Raises:
        InvalidError: neither they, nor `spark-defaults.conf`, nor the environment names Lockstep's extension.
    """
    if SparkSession.getActiveSession() is not None or any(os.environ.get(name) for name in _ELSEWHERE):
        return
    if any("spark.remote" in key or "api.mode" in key for key in settings):
        return
    texts = [*settings.values(), *(os.environ.get(name, "") for name in _SETTINGS)]
    if any(EXTENSION in text or "--properties-file" in text for text in texts):
        return
    file = defaults_file()
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        lines = []
    except OSError:  # it is there, and Spark may be able to read it
        return
    if not any(EXTENSION in line for line in lines if not line.lstrip().startswith("#")):
        raise InvalidError(
            "which lake? Give its path or URL with --root, or put what `lockstep conf ROOT` prints into "
            f"{file}, where nothing configures Lockstep"
        )


def is_of_connect(settings: Mapping[str, object]) -> bool:
    """Tell whether a builder makes a client of Spark Connect, which starts no JVM, or in a way of its own."""
    if "spark.remote" in settings or any(name in os.environ for name in _ELSEWHERE if name != _GATEWAY):
        return True
    # As `SparkSession.Builder.getOrCreate` decides: a server that it starts finds its password in the environment.
    mode = str(settings.get("spark.api.mode", os.environ.get("SPARK_API_MODE", ""))).lower()
    return (mode if mode in ("classic", "connect") else default_api_mode()) != "classic"


def defaults_file() -> Path:
    """Return the spark-defaults.conf that Spark would read, which may not be there."""
    folder = os.environ.get("SPARK_CONF_DIR")
    return Path(folder) / "spark-defaults.conf" if folder else spark_jars_folder().parent / "conf/spark-defaults.conf"
