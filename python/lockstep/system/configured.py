"""The rows about settings: what each is, and who says so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache

from lockstep.settings import LOCATIONS, OF_RETENTION, PREFIX_OF_CATALOG, SETTINGS, STORE, Setting, at
from lockstep.storage.urls import without_password
from lockstep.system.query import Batch, Filter, Query, Row, matches, paged
from lockstep.system.scope import Configured, Scope

HIDDEN = "*********(redacted)"
"""What is shown of what a store is told, for keys are among it, and of other secrets. It is what Spark itself shows."""


def settings(scope: Scope, query: Query) -> Batch:
    """Return all settings, in the order of `lockstep.settings`; of the stores' each that is set.

    What the lake says is read once, and not at all where conditions leave none of the settings that it may say.

    Raises:
        UnavailableError, CorruptTimelineError: what the lake says cannot be read.
    """
    return paged(_rows(scope.configured, query.filters), query)


def _rows(configured: Configured, filters: Iterable[Filter]) -> Iterator[Row]:
    lake = cache(configured.lake)
    of_others = [each for each in filters if each.column not in ("value", "source")]
    for setting in SETTINGS:
        if setting in (STORE, LOCATIONS):
            yield from _of_stores(setting, configured)
            continue
        value, source = _value(setting, configured)
        row = _row(setting, _full_name(setting, configured.catalog), value, source)
        if setting in OF_RETENTION and matches(row, of_others) and (kept := lake().get(setting.name)) is not None:
            row = {**row, "value": kept, "source": "lake"}
        yield row


def _of_stores(setting: Setting, configured: Configured) -> Iterator[Row]:
    for key, value in sorted(configured.options.items()):
        if key.startswith(setting.key.removesuffix("*")):
            is_place = setting is LOCATIONS and key.endswith(".url") and key.count(".") == 2
            shown = value if is_place else HIDDEN
            yield _row(setting, f"{PREFIX_OF_CATALOG}{configured.catalog}.{key}", shown, "catalog")


def _row(setting: Setting, name: str, value: str | None, source: str) -> Row:
    return {
        "name": name,
        "value": _shown(setting, value),
        "default_value": setting.default,
        "source": source,
        "place": setting.place,
        "kind": setting.kind,
        "choices": list(setting.choices),
        "since": setting.since,
        "meaning": setting.meaning,
    }


def _shown(setting: Setting, value: str | None) -> str | None:
    """Return what is shown of a value: no secret, and of an address no password, which some refuse only when used."""
    return None if value is None else HIDDEN if setting.is_secret else without_password(value)


def _full_name(setting: Setting, catalog: str) -> str:
    if setting.place == "catalog":
        return setting.of(catalog)
    return setting.name.replace("<catalog>", catalog)


def _value(setting: Setting, configured: Configured) -> tuple[str | None, str]:
    """Return what a setting is, and where that is said: at its place, at the catalog's for a session, or nowhere."""
    name = _full_name(setting, configured.catalog)
    said = {
        "session": _said(setting, configured.session),
        "catalog": _said(setting, configured.options),
        "driver": configured.driver.get(name),
        "environment": configured.environment.get(name),
    }[setting.place]
    if said is not None:
        return said, setting.place
    if setting.place == "session" and (general := _of_catalog(setting)) is not None:
        value = _said(general, configured.options)
        return (general.default, "default") if value is None else (value, "catalog")
    return setting.default, "default"


def _said(setting: Setting, values: Mapping[str, str]) -> str | None:
    return setting.value_in(values) if setting.key in values else None


def _of_catalog(setting: Setting) -> Setting | None:
    """Return the setting of a catalog that holds for sessions which do not say this one themselves."""
    name = setting.key.replace("_", "-")
    return next((each for each in at("catalog") if each.name == name), None)


def of_driver(catalog: str) -> list[str]:
    """Return the names of the settings that Spark alone can say."""
    return [_full_name(setting, catalog) for setting in at("driver")]
