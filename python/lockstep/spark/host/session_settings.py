"""What a session sets for itself, `lockstep.<name>`: which settings there are, and what their values say."""

from __future__ import annotations

from difflib import get_close_matches

from lockstep.errors import InvalidError, UndefinedError
from lockstep.retry import seconds
from lockstep.settings import (
    DRIVER_STATE_FILES,
    IDLE_TIMEOUT,
    ON_STATEMENT_ERROR,
    SESSION_ISOLATION,
    SESSION_RECORD_READS,
    SHARED_TRANSACTION_TIMEOUT,
    STATEMENT_TIMEOUT,
    TRANSACTION_TIMEOUT,
    Setting,
    at,
)
from lockstep.spark.host.lakehouses import flag, isolation_of
from lockstep.spark.host.protocol.base import Settings
from lockstep.spark.host.versions import is_number

PREFIX = "lockstep."
UNDEFINED_SETTING = "42704"
TIMEOUTS = (TRANSACTION_TIMEOUT, IDLE_TIMEOUT, STATEMENT_TIMEOUT)
"""How long a transaction may be open, be idle, and how long its statements may run."""


def check_known(settings: Settings) -> None:
    """Refuse a setting that is none of ours, for one that is misspelt would change nothing.

    Args:
        settings: what a session says, by `Setting.key`.

    Raises:
        UndefinedError (42704): there is no such setting; the nearest that there is stands in the message.
    """
    known = [setting.key for setting in at("session")]
    for key in settings:
        if key not in known:
            near = get_close_matches(key.lower().removeprefix(PREFIX), known, n=1)
            hint = f"did you mean {PREFIX}{near[0]}?" if near else f"there are {', '.join(PREFIX + k for k in known)}"
            name = key if key.lower().startswith(PREFIX) else PREFIX + key
            raise UndefinedError(f"{name} is no setting of Lockstep: {hint}", sqlstate=UNDEFINED_SETTING)


def check(settings: Settings) -> None:
    """Refuse a setting that is none of ours, and a value that is none of its setting.

    Raises:
        UndefinedError (42704): as `check_known`. InvalidError: what was expected stands in the message.
    """
    check_known(settings)
    isolation_of(SESSION_ISOLATION, settings)
    flag(SESSION_RECORD_READS, settings)
    goes_on(settings)
    kept_seconds(settings)
    for setting in TIMEOUTS:
        timeout(setting, settings)
    _whole_number(DRIVER_STATE_FILES, settings, "a whole number")


def goes_on(settings: Settings) -> bool:
    """Tell whether `COMMIT` goes on after a write that failed, as it stands at BEGIN.

    Raises:
        InvalidError: the setting says something else.
    """
    value = ON_STATEMENT_ERROR.value_in(settings)
    if value is not None and value.lower() not in ON_STATEMENT_ERROR.choices:
        raise InvalidError(f"{ON_STATEMENT_ERROR.name} is {value!r}: expected fail or continue")
    return value is not None and value.lower() == "continue"


def kept_seconds(settings: Settings) -> int:
    """Return how many seconds a shared transaction waits for another client, when the last one has gone.

    Raises:
        InvalidError: the setting is no number.
    """
    return _whole_number(SHARED_TRANSACTION_TIMEOUT, settings, "a number of seconds")


def timeout(setting: Setting, settings: Settings) -> float | None:
    """Return how many seconds one of the `TIMEOUTS` says, 0 for ever; None if the session says nothing.

    Raises:
        InvalidError: the setting is no duration.
    """
    return None if setting.value_in(settings) is None else seconds(setting, settings)


def _whole_number(setting: Setting, settings: Settings, expected: str) -> int:
    value = setting.value_in(settings) or ""
    if not is_number(value):
        raise InvalidError(f"{setting.name} is {value!r}: expected {expected}")
    return int(value)
