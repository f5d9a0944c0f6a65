"""The way from this Python process to the shim, and the host that answers the shim from here.

A Spark driver has one host. In a PySpark driver it is an object of this process (*attached*), if Lockstep is attached
before anything asks; else a process of its own that the shim starts (*spawned*, `lockstep.spark.spawned`). Whichever
is first stays, and what a session asks here goes through the shim, so that it reaches either. A client of Spark
Connect has no way but SQL.
"""

from __future__ import annotations

import atexit
import threading
from typing import Any

import msgspec
from py4j.java_gateway import JavaClass
from pyspark.sql import SparkSession

from lockstep.errors import UnsupportedError
from lockstep.spark.host import Host
from lockstep.spark.jars import session_jars

EXTENSION = "lockstep.spark.Extensions"

_hosts: dict[int, Host] = {}
_attaching = threading.Lock()


def attach(spark: SparkSession) -> None:
    """Let this Python process decide for a session that was configured elsewhere (spark-submit with our settings).

    Nothing is done for a client of Spark Connect, whose server has its host, nor where a host is at work already.

    Raises:
        UnsupportedError: the session's JVM has no Lockstep in it.
    """
    if is_remote(spark):
        return
    context = spark.sparkContext
    gateway: Any = context._gateway
    _require_shim(spark)
    with _attaching:
        if id(gateway) in _hosts:
            return
        from pyspark.java_gateway import ensure_callback_server_started

        ensure_callback_server_started(gateway)
        host = Host(application=context.appName)
        if _shim(spark).attach(_Callback(host)):
            _hosts[id(gateway)] = host
            atexit.register(host.close)


def is_remote(spark: SparkSession) -> bool:
    """Tell whether a session is a client of Spark Connect, which has no JVM to talk to."""
    return not hasattr(spark, "_jsparkSession")


def ask(spark: SparkSession, op: str, **arguments: Any) -> dict[str, Any]:
    """Ask the driver's host about a session, whichever host it is; `lockstep.spark.host` says what can be asked.

    Raises:
        Py4JJavaError: what it refused, as PySpark translates it.
    """
    gateway: Any = spark.sparkContext._gateway
    request = msgspec.json.encode(arguments).decode()
    answer: dict[str, Any] = msgspec.json.decode(
        gateway.jvm.lockstep.spark.Bridge.ask(spark._jsparkSession, op, request)
    )
    return answer


def is_open(spark: SparkSession) -> bool:
    """Tell whether a session has a transaction open."""
    return bool(_shim(spark).isOpen(spark._jsparkSession))


def _shim(spark: SparkSession) -> Any:
    gateway: Any = spark.sparkContext._gateway
    return gateway.jvm.lockstep.spark.Bridge


def _require_shim(spark: SparkSession) -> None:
    extensions = spark.conf.get("spark.sql.extensions", "") or ""
    if EXTENSION not in extensions.split(","):
        raise UnsupportedError(
            "this Spark session runs without Lockstep: it was made before lockstep.configure(), or submitted without "
            "its settings. Stop it first (spark.stop()), or submit with the settings of lockstep.conf(root=…)"
        )
    if not isinstance(_shim(spark), JavaClass):  # Py4J takes what it cannot find for a package
        jars = ",".join(map(str, session_jars()))
        raise UnsupportedError(
            f"Lockstep's jars are not on the class path of this driver. Submit with: spark-submit --jars {jars} …"
        )


class _Callback:
    """The host as Py4J calls it."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def call(self, request: str) -> str:
        return self._host.call(request)

    class Java:
        implements = ("lockstep.spark.Host",)
