"""The way from this Python process to the shim, and the host that answers the shim from here.

A Spark driver has one host. In a PySpark driver it is an object of this process (*attached*), if Lockstep is attached
before anything asks; else a process of its own that the shim starts (*spawned*, `lockstep.spark.spawned`). Whichever
is first stays, and what a session asks here goes through the shim, so that it reaches either. A client of Spark
Connect has no way but SQL.
"""

from __future__ import annotations

import atexit
import hmac
import logging
import os
import secrets
import threading
from dataclasses import dataclass
from typing import Any

import msgspec
from py4j.java_gateway import JavaClass
from pyspark.sql import SparkSession

from lockstep.errors import InvalidError, UnsupportedError
from lockstep.settings import EXTENSIONS
from lockstep.spark.files import OverPy4J
from lockstep.spark.host.host import Host, refusal
from lockstep.spark.jars import session_jars
from lockstep.storage.hadoop import connect

EXTENSION = "lockstep.spark.Extensions"
_NOT_ALLOWED = "28000"
"""SQL's invalid authorization specification."""


@dataclass
class _Attached:
    """A driver's host in this process. Its gateway is kept too: an object that is gone leaves its id to another."""

    gateway: Any
    context: Any
    application: str
    host: Host


_hosts: dict[int, _Attached] = {}
_attaching = threading.Lock()
_log = logging.getLogger(__name__)


def attach(spark: SparkSession) -> None:
    """Make this Python process the host of a session that was configured elsewhere (spark-submit with our settings).

    It does nothing for a client of Spark Connect, whose server has a host, and nothing if there is a host already.

    Raises:
        UnsupportedError: the session's JVM has no Lockstep in it.
    """
    if is_remote(spark):
        return
    context = spark.sparkContext
    gateway: Any = context._gateway
    _require_shim(spark)
    with _attaching:
        if (attached := _hosts.get(id(gateway))) is not None:
            if attached.context is not context:
                if attached.application != context.applicationId:
                    # What the one before left open, no session of it can end any more.
                    attached.host.begin_anew(context.appName)
                attached.context, attached.application = context, context.applicationId
                connect(OverPy4J(gateway, context._jsc.hadoopConfiguration))
            return
        from pyspark.java_gateway import ensure_callback_server_started

        connect(OverPy4J(gateway, context._jsc.hadoopConfiguration))
        ensure_callback_server_started(gateway)
        host = Host(application=context.appName)
        secret = secrets.token_hex(32)
        if _shim(spark).attach(_Callback(host, secret), secret):
            _hosts[id(gateway)] = _Attached(gateway, context, context.applicationId, host)
            atexit.register(host.close)


def _leave_to_parent() -> None:
    """Have a process that was forked end no transaction when it exits: they are its parent's."""
    for attached in _hosts.values():
        atexit.unregister(attached.host.close)


os.register_at_fork(after_in_child=_leave_to_parent)


def is_remote(spark: SparkSession) -> bool:
    """Tell whether a session is a client of Spark Connect, which has no JVM to talk to."""
    return not hasattr(spark, "_jsparkSession")


def ask(spark: SparkSession, op: str, **arguments: Any) -> dict[str, Any]:
    """Ask the driver's host about a session, whichever it is; `lockstep.spark.host.protocol` says what can be asked.

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
    return current(spark) is not None


def current(spark: SparkSession) -> str | None:
    """Return the id of a session's open transaction; None if it has none."""
    transaction: str | None = _shim(spark).current(spark._jsparkSession)
    return transaction


def _shim(spark: SparkSession) -> Any:
    gateway: Any = spark.sparkContext._gateway
    return gateway.jvm.lockstep.spark.Bridge


def _require_shim(spark: SparkSession) -> None:
    extensions = spark.conf.get(EXTENSIONS.name, "") or ""
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
    """The host as Py4J calls it, for whoever has the secret.

    PySpark starts Py4J's callback server without a password (with pinned threads, its default, Py4J's Java side loses
    the one that it was given), so anybody on this machine can call any method of an object that it serves,
    `__getattribute__` and `__setattr__` too. So this one has no attribute but those that Py4J needs.
    """

    __slots__ = ("_host", "_secret")

    def __init__(self, host: Host, secret: str) -> None:
        object.__setattr__(self, "_host", host)
        object.__setattr__(self, "_secret", secret.encode())

    def __getattribute__(self, name: str) -> Any:
        if name == "__class__":  # Py4J asks what it is; a stranger shall make no other
            return object
        if name not in ("call", "Java"):
            raise AttributeError(name)
        return object.__getattribute__(self, name)

    def call(self, secret: object, request: str) -> str:
        own_secret: bytes = object.__getattribute__(self, "_secret")
        # Compared as bytes, for a stranger's text need not be ASCII; in constant time, so that it cannot be guessed.
        if not isinstance(secret, str) or not hmac.compare_digest(secret.encode(errors="replace"), own_secret):
            _log.warning("a request to Lockstep's host without its secret was refused")
            return refusal(InvalidError("this host answers its own Spark driver alone", sqlstate=_NOT_ALLOWED))
        host: Host = object.__getattribute__(self, "_host")
        return host.call(request)

    class Java:
        implements = ("lockstep.spark.AttachedHost",)
