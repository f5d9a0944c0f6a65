"""What a catalog's options of a store mean to the Hadoop of a Spark that runs, beside what somebody has set there.

    told_to_hadoop(place, options, environment)       # settings, in groups, and what keeps each group out
    names_told_to_hadoop(place)                       # whatever those may be of a place
    stores_of(root, options, locations, environment)  # the places: the root's, and those of registered locations

`lockstep.spark.host.same_root` has the shim put them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from lockstep.errors import ConfigurationError
from lockstep.storage import has_options
from lockstep.storage.locations import Locations
from lockstep.storage.options import Place, endpoint_of, place_of, translated


@dataclass(frozen=True, slots=True)
class Told:
    """Settings of Hadoop's that belong together.

    Attributes:
        settings: what they are to be.
        unless: where one of these is set, somebody has said what these settings are about, and none of them is put.
    """

    settings: Mapping[str, str]
    unless: tuple[str, ...]


def told_to_hadoop(
    place: Place, options: Mapping[str, str], environment: Mapping[str, str], *, is_location: bool = False
) -> list[Told]:
    """Return what `hadoop_settings` does, for who puts it beside settings that somebody else has made.

    Keys go together, for those of two users are nobody's; so do the parts of a proxy's address, and who has said an
    endpoint says all of how it is reached. Nothing is refused: of a catalog, options that Hadoop has nothing for are
    set by hand on both sides.

    Args:
        place: a folder in the store.
        options: what Lockstep reaches it with.
        environment: see `of_environment`.
        is_location: whether nothing is looked at there. Then what is set for all buckets, or accounts, keeps nothing
            out: it may have Hadoop ask another server than Lockstep does, and nobody would see that.

    Raises:
        InvalidError: options say more than one endpoint.
    """
    settings = translated(place, options, environment)
    found = [
        Told({name: settings[name] for name in group.names if name in settings}, group.unless)
        for group in _groups(place, is_location=is_location)
    ]
    return [each for each in found if each.settings]


def stores_of(
    root: str, options: Mapping[str, str], locations: Locations, environment: Mapping[str, str]
) -> dict[str, Mapping[str, str]]:
    """Return the object stores that a lake's tables may lie in, each once, by the URL of a folder there, with options.

    Args:
        root: the lake's, as `comparable` has it; first, if it is in an object store.
        options: those of its store.

    Raises:
        ConfigurationError (F0000): two places mean different settings of one bucket, or account, of which Hadoop has
            one each; the message has their names alone.
        InvalidError: options say more than one endpoint.
    """
    found: dict[tuple[str, ...], str] = {}
    said: dict[str, Mapping[str, str]] = {}
    for url, own in [(root, options), *((each.url, each.options) for each in locations.places)]:
        if not has_options(url):
            continue
        place = place_of(url)
        first = found.setdefault(_store(place), url)
        said.setdefault(first, own)
        ours, theirs = (translated(place, each, environment) for each in (own, said[first]))
        if others := sorted(name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name)):
            raise ConfigurationError(
                f"{first} and {url} say other options of one store ({', '.join(others)}), and Spark has one of each "
                "for a bucket, an account, and all of Google's buckets; nothing was read or written. Give both the "
                "same options, or leave those of the location out (docs/storage.md#locations)"
            )
    return said


def names_no_server(place: Place, options: Mapping[str, str], environment: Mapping[str, str]) -> bool:
    """Tell whether options leave it to a setting of Hadoop's for all buckets which server a bucket is asked of."""
    return place.kind in ("s3", "azure") and not endpoint_of(place, options, environment)


def other_server(place: Place, settings: Mapping[str, str]) -> str | None:
    """Return the setting that leads Hadoop to another server than the cloud's, though nobody says so of the very store.

    Args:
        settings: Hadoop's, those of `hadoop_addresses` that are set.
    """
    if place.kind == "azure":
        name = "fs.azure.abfs.endpoint"
        return name if settings.get(name) and f"{name}.{place.host}" not in settings else None
    name = "fs.s3a.endpoint"
    is_said = f"fs.s3a.bucket.{place.bucket}.endpoint" in settings
    return None if is_said or _AMAZONS.fullmatch(settings.get(name, "")) else name


_AMAZONS = re.compile(r"|(https?://)?([a-z0-9.-]+\.)?amazonaws\.com(\.cn)?/?", re.IGNORECASE)


def _store(place: Place) -> tuple[str, ...]:
    """Return what Hadoop has one set of settings for."""
    return {"s3": ("s3", place.bucket), "gs": ("gs",), "azure": ("azure", place.host)}[place.kind]


def names_told_to_hadoop(place: Place) -> list[str]:
    """Return all that `told_to_hadoop` may say of a place."""
    return sorted(name for group in _groups(place) for name in group.names)


@dataclass(frozen=True, slots=True)
class _Group:
    names: tuple[str, ...]
    unless: tuple[str, ...]


_PROVIDERS = "hadoop.security.credential.provider.path"
"""Files with keys in them, which Hadoop looks into before it looks at its settings."""

_S3A_WHO = ("access.key", "secret.key", "session.token", "aws.credentials.provider", "auth.profile.name")
_S3A_WHO_TOO = ("security.credential.provider.path", "delegation.token.binding")
_S3A_PROXY = ("proxy.host", "proxy.port", "proxy.ssl.enabled", "proxy.username", "proxy.password")
_S3A_OF_ENDPOINT = ("endpoint", "endpoint.region", "path.style.access", "connection.ssl.enabled")

_GS_WHO = ("fs.gs.auth.type", "fs.gs.auth.service.account.json.keyfile")
_GS_WHO_TOO = (
    "fs.gs.auth.access.token.provider",
    "fs.gs.auth.access.token.provider.impl",
    "fs.gs.auth.service.account.email",
    "fs.gs.auth.service.account.enable",
    "fs.gs.auth.service.account.keyfile",
    "fs.gs.auth.service.account.private.key",
    "google.cloud.auth.service.account.enable",
    "google.cloud.auth.service.account.json.keyfile",
    "google.cloud.auth.type",
)

_ABFS_WHO = (
    "fs.azure.account.auth.type",
    "fs.azure.account.key",
    "fs.azure.sas.fixed.token",
    "fs.azure.account.oauth.provider.type",
    "fs.azure.account.oauth2.client.id",
    "fs.azure.account.oauth2.client.secret",
    "fs.azure.account.oauth2.client.endpoint",
)
_ABFS_OF_ENDPOINT = (
    "fs.azure.abfs.endpoint",
    "fs.azure.account.hns.enabled",
    "fs.azure.fns.account.service.type",
    "fs.azure.networking.library",
)
_ABFS_WHO_TOO = ("fs.azure.account.keyprovider", "fs.azure.sas.token.provider.type")


def _groups(place: Place, *, is_location: bool = False) -> list[_Group]:
    match place.kind:
        case "s3":
            own = f"fs.s3a.bucket.{place.bucket}."

            def group(names: tuple[str, ...], *unless: str) -> _Group:
                """What is said of all buckets is said of this one, too, unless it is a location's."""
                prefixes = (own,) if is_location else (own, "fs.s3a.")
                said = (f"{of}{name}" for name in dict.fromkeys((*names, *unless)) for of in prefixes)
                return _Group(tuple(f"{own}{name}" for name in names), tuple(said))

            who = group(_S3A_WHO, *_S3A_WHO_TOO)
            return [
                _Group(who.names, (*who.unless, _PROVIDERS)),
                group(_S3A_PROXY),
                *(group((name,), "endpoint") for name in _S3A_OF_ENDPOINT),
            ]
        case "gs":
            address = ("fs.gs.storage.root.url",)
            return [_Group(_GS_WHO, (*_GS_WHO, *_GS_WHO_TOO, _PROVIDERS)), _Group(address, address)]
        case "azure":

            def of_account(names: tuple[str, ...], *unless: str) -> _Group:
                said = dict.fromkeys((*names, *unless))
                own = (f"{name}.{place.host}" for name in said)
                return _Group(tuple(f"{name}.{place.host}" for name in names), (*own, *(() if is_location else said)))

            who = of_account(_ABFS_WHO, *_ABFS_WHO_TOO)
            return [
                _Group(who.names, (*who.unless, _PROVIDERS)),
                *(of_account((name,), "fs.azure.abfs.endpoint") for name in _ABFS_OF_ENDPOINT),
            ]
