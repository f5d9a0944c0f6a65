"""One set of options for a lake's object store, and what each side of a session makes of them: pure functions.

    place = place_of("s3://bucket/lake")
    environment = of_environment()
    obstore_settings(place, options, environment)     # for Lockstep's own requests
    hadoop_settings(place, options, environment)      # for Spark's: fs.s3a.bucket.bucket.endpoint, …

The options are obstore's, so that any of them can be given; those that Hadoop has too are translated.
docs/storage.md has the table.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias
from urllib.parse import unquote, urlsplit

from lockstep.errors import InvalidError, UnsupportedError
from lockstep.settings import (
    DEFAULT_REGION,
    ENDPOINT,
    ENDPOINT_OF_AZURE,
    ENDPOINT_OF_AZURE_STORAGE,
    ENDPOINT_OF_GS,
    ENDPOINT_OF_S3,
    OLD_ENDPOINT,
    REGION,
    VIRTUAL_HOSTS,
)
from lockstep.storage import checked
from lockstep.storage.hosts import AZURE, Style, host_of_blobs, style_of
from lockstep.storage.urls import shown

Kind: TypeAlias = Literal["s3", "gs", "azure"]

KINDS: Mapping[str, Kind] = {"s3": "s3", "s3a": "s3", "gs": "gs", "abfs": "azure", "abfss": "azure"}
"""By the scheme of a URL: what speaks to the store."""

_OVER_HTTP = (
    "over HTTP nobody can have HDFS put a file on its disks before it is named; use the name node's own hdfs://"
)
_OZONE = "of Ozone's buckets not all rename in one step, and none is tested; use Ozone's S3 gateway by s3://"
_NOT_OF_HADOOP = {
    "viewfs": "what a mount table leads to may be any file system; use the hdfs:// URL that the mount leads to",
    "webhdfs": _OVER_HTTP,
    "swebhdfs": _OVER_HTTP,
    "o3fs": _OZONE,
    "ofs": _OZONE,
}
"""Why not, and what instead, of Hadoop's other file systems that are asked for; all else has no reason of its own."""

_ADDRESS = re.compile(r"https?://[^\s/@?#]+(/[^\s@?#]*)?", re.IGNORECASE)
"""Of a store: no user, no key, no query."""

_CERTIFICATE = "ca_certificate"
_PROFILE = "profile"
_VIRTUAL = "virtual_hosted_style_request"

_TRUE = frozenset({"1", "true", "on", "yes", "y"})
_FALSE = frozenset({"0", "false", "off", "no", "n"})
"""How obstore's options say it, in capitals or not."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a lake lies in an object store.

    Attributes:
        kind: which protocol.
        bucket: the bucket, or Azure's container.
        prefix: of its keys, without slashes around it; may be empty.
        host: of Azure, the account's: 'account.dfs.core.windows.net'.
    """

    kind: Kind
    bucket: str
    prefix: str
    host: str = ""

    @property
    def account(self) -> str:
        """The name of Azure's account."""
        return self.host.partition(".")[0]


def place_of(url: str) -> Place:
    """Read the URL of a lake in an object store.

    Raises:
        InvalidError: it names no bucket, no container or no account.
        UnsupportedError: a scheme that Lockstep has no store for.
    """
    scheme, _, rest = url.partition("://")
    if scheme == "az":
        raise UnsupportedError(
            f"{shown(url)!r} does not say which account: write abfss://container@account.dfs.{AZURE}/prefix, which "
            "Spark reads too"
        )
    if scheme in _NOT_OF_HADOOP:
        raise UnsupportedError(f"no store for {shown(url)!r}: {_NOT_OF_HADOOP[scheme]}")
    if scheme not in KINDS:
        raise UnsupportedError(
            f"no store for {shown(url)!r}: use a local path, file://, s3://, s3a://, gs://, abfss:// or hdfs://"
        )
    authority, _, prefix = rest.partition("/")
    _refuse_key(scheme, authority, rest)
    prefix = prefix.strip("/")
    kind = KINDS[scheme]
    bucket, at, host = authority.partition("@") if kind == "azure" else (authority, "", "")
    if not bucket or (kind == "azure" and not (at and host.partition(".")[0])):
        shape = f"{scheme}://container@account.dfs.{AZURE}/prefix" if kind == "azure" else f"{scheme}://bucket/prefix"
        what = "container of an account" if kind == "azure" else "bucket"
        raise InvalidError(f"{url!r} names no {what}: write {shape}")
    return Place(kind, bucket, checked(prefix) if prefix else "", host)


_SIGNED = re.compile(r"[?&](sig|signature|x-(amz|goog)-(signature|security-token))=", re.IGNORECASE)
"""What a signed address has behind its path, as Azure shows one to who asks it for a SAS."""


def _refuse_key(scheme: str, authority: str, place: str) -> None:
    """Refuse a root with a key in it: roots are in entries, messages, plans and the UI.

    Raises:
        InvalidError: it has one; the message does not.
    """
    who, at, _ = authority.rpartition("@")
    # A secret may have a slash, so that what stands for a bucket ends in the middle of it.
    if ":" in (who if at else authority) or (at and KINDS[scheme] != "azure"):
        raise InvalidError(
            f"the root ({scheme}://…) has a user or a key before its bucket, and a root is shown in many places. Give "
            "keys as options of the store, or in variables of the environment"
        )
    if _SIGNED.search(place):
        raise InvalidError(
            f"the root ({scheme}://…) has a signature behind its path, and a root is shown in many places. Give a SAS "
            "as the option `sas_key` of the store"
        )


_ENDPOINT_OPTIONS = frozenset({"endpoint", "endpoint_url", "endpoint_url_s3", "base_url"})
"""Without the prefix of a cloud. obstore has an order of its own for those of S3, so it is given one of them."""

_ENDPOINT_VARIABLES: Mapping[Kind, tuple[str, ...]] = {
    "s3": (ENDPOINT_OF_S3.name, ENDPOINT.name, OLD_ENDPOINT.name),
    "gs": (ENDPOINT_OF_GS.name,),
    "azure": (ENDPOINT_OF_AZURE_STORAGE.name, ENDPOINT_OF_AZURE.name),
}
"""The first that is set is heeded, if no option says one."""

_OF_THE_URL: Mapping[Kind, Mapping[str, str]] = {
    "s3": {"bucket": "bucket", "bucket_name": "bucket"},
    "gs": {"bucket": "bucket", "bucket_name": "bucket"},
    "azure": {"container_name": "bucket", "account_name": "account"},
}
"""Options that say what the URL says, and which attribute of `Place` that is."""


def of_environment() -> dict[str, str]:
    """Return the variables of this process that the functions below heed."""
    endpoints = (ENDPOINT_OF_S3, ENDPOINT, OLD_ENDPOINT, ENDPOINT_OF_GS, ENDPOINT_OF_AZURE_STORAGE, ENDPOINT_OF_AZURE)
    settings = (*endpoints, REGION, DEFAULT_REGION, VIRTUAL_HOSTS)
    return {setting.name: value for setting in settings if (value := os.environ.get(setting.name))}


@dataclass(frozen=True, slots=True)
class Obstore:
    """What an obstore store is made with.

    Attributes:
        config: of the store, client options among it.
        certificate: the path of a file with the certificates that are trusted, beside the system's; empty for none.
        endpoint: where requests go; empty for the cloud's own.
        profile: of ~/.aws, whose credentials are used; empty for none.
    """

    config: Mapping[str, str]
    certificate: str
    endpoint: str
    profile: str = ""


def obstore_settings(place: Place, options: Mapping[str, str], environment: Mapping[str, str]) -> Obstore:
    """Return what Lockstep's own requests are made with.

    Args:
        options: as the user gave them, with obstore's names; `endpoint` and `ca_certificate` whatever the store,
            and `profile` of S3.
        environment: variables; obstore itself reads those of credentials and regions.

    Raises:
        InvalidError: the endpoint is no address, or what must be yes or no is neither; the message does not have it.
    """
    config = _without_place(place, options)
    certificate = config.pop(_CERTIFICATE, "")
    endpoint = endpoint_of(place, options, environment)
    if endpoint and not _ADDRESS.fullmatch(endpoint):  # obstore would end the call by a panic
        raise InvalidError("the store's endpoint is no address, such as https://storage.example:9000")
    profile, key = "", "endpoint"
    match place.kind:
        case "s3":
            profile = config.pop(_PROFILE, "")
            key = "aws_endpoint_url_s3"  # which goes before all others, those of the environment too
            if (style := _style_of(place.bucket, config, endpoint, environment)) is not None:
                config = {name: value for name, value in config.items() if _plain(name) != _VIRTUAL}
                config[f"aws_{_VIRTUAL}"] = str(style.is_virtual).lower()
                endpoint = style.of_bucket
        case "gs":
            key = "base_url"
        case "azure":
            endpoint = endpoint or f"https://{host_of_blobs(place.host)}"
            # The environment could send requests to an emulator on this machine, whatever the endpoint.
            config |= {"account_name": place.account, "use_emulator": "false"}
    if endpoint:
        config[key] = endpoint
    if endpoint.startswith("http://"):
        config.setdefault("allow_http", "true")  # who writes it means it; obstore would refuse at the first request
    return Obstore(config, certificate, endpoint, profile)


def _without_place(place: Place, options: Mapping[str, str]) -> dict[str, str]:
    """Return options without those that say where the store is, which the URL and `endpoint_of` say.

    Raises:
        InvalidError: one of them contradicts the URL, or asks for an emulator.
    """
    config = {}
    for key, value in options.items():
        plain = _plain(key)
        if plain == "use_emulator":
            raise InvalidError(f"the option {key} does not say where the emulator is: give its address as `endpoint`")
        if (said := _OF_THE_URL[place.kind].get(plain)) is not None:
            if value != getattr(place, said):
                raise InvalidError(f"the option {key} is another one than the URL says: leave it out")
        elif plain not in _ENDPOINT_OPTIONS:
            config[key.lower()] = value
    return config


def endpoint_of(place: Place, options: Mapping[str, str], environment: Mapping[str, str]) -> str:
    """Return where requests of both sides go, without a slash at the end; empty for the cloud's own address.

    Raises:
        InvalidError: options say more than one.
    """
    said = {_address(value) for key, value in options.items() if _plain(key) in _ENDPOINT_OPTIONS and value}
    if len(said) > 1:
        raise InvalidError("the store's options say more than one endpoint: leave one")
    variables = (environment.get(name, "") for name in _ENDPOINT_VARIABLES[place.kind])
    return next(iter(said), "") or _address(next(filter(None, variables), ""))


def _address(text: str) -> str:
    """Return an endpoint with its scheme in small letters, and without a slash at its end."""
    scheme, mark, rest = text.rstrip("/").partition("://")
    return f"{scheme.lower()}{mark}{rest}" if mark else scheme


def _plain(key: str) -> str:
    """Return the name of an option without the prefix of its cloud."""
    name = key.lower()
    for prefix in ("aws_", "azure_storage_", "azure_", "google_"):
        name = name.removeprefix(prefix)
    return name


def hadoop_settings(place: Place, options: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of Hadoop's file system that mean the same store in the same way.

    Options that Hadoop has no counterpart for are left out, unless Spark's side would have no keys then.

    Args:
        options: as for `obstore_settings`.
        environment: variables of the process that both sides run in.

    Raises:
        InvalidError: they say who Lockstep is to the store, and do not tell that to Spark's side; or see `translated`.
    """
    settings = translated(place, options, environment)
    alone = keys_of_lockstep_alone(place, options)
    if alone and not any(_SAYS_WHO.search(name) for name in settings):
        raise InvalidError(
            f"{', '.join(alone)}: Hadoop has no such option, so Spark would ask the store with other keys than "
            "Lockstep, or with none. Give keys that both have (docs/storage.md#options); or leave options out, and set "
            "spark.sql.catalog.<catalog>.store.<option> for Lockstep and what Hadoop calls it for Spark"
        )
    return settings


def keys_of_lockstep_alone(place: Place, options: Mapping[str, str]) -> list[str]:
    """Return those options that say who asks, and that Hadoop has nothing for."""
    return sorted(key for key in options if _plain(key) in _KEYS_OF_LOCKSTEP_ALONE[place.kind])


def translated(place: Place, options: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return what `hadoop_settings` does, and refuse nothing of it.

    Raises:
        InvalidError: options say more than one endpoint, a proxy that is no address, or what is neither yes nor no.
    """
    plain = {_plain(key): value for key, value in options.items()}
    return _hadoops(place, plain, endpoint_of(place, options, environment), environment)


def _hadoops(place: Place, plain: Mapping[str, str], endpoint: str, environment: Mapping[str, str]) -> dict[str, str]:
    match place.kind:
        case "s3":
            return _s3a(place.bucket, plain, endpoint, environment)
        case "gs":
            return _gs(plain, endpoint)
        case "azure":
            return _abfs_address(place, endpoint) | _abfs_keys(place.host, plain)


_KEYS_OF_LOCKSTEP_ALONE: Mapping[Kind, frozenset[str]] = {
    "s3": frozenset({
        "container_authorization_token_file",
        "container_credentials_full_uri",
        "container_credentials_relative_uri",
        "imdsv1_fallback",
        "metadata_endpoint",
        "role_arn",
        "role_session_name",
        "web_identity_token_file",
    }),
    "gs": frozenset({"bearer_token", "service_account_key"}),
    "azure": frozenset({
        "bearer_token",
        "client_id",
        "fabric_session_token",
        "federated_token_file",
        "identity_endpoint",
        "msi_endpoint",
        "msi_resource_id",
        "object_id",
        "skip_signature",
        "token",
        "use_azure_cli",
        "use_fabric_endpoint",
    }),
}  # fmt: skip
"""Options of obstore's, without the prefix of their cloud, that say who asks, and that nothing below translates."""

_SAYS_WHO = re.compile(r"\.aws\.credentials\.provider$|^fs\.gs\.auth\.type$|^fs\.azure\.account\.auth\.type\.")
"""The names of Hadoop's settings that say who asks."""


def hadoop_addresses(place: Place) -> list[str]:
    """Return the names of the settings that say which store Hadoop's file system asks; none of them has a key."""
    match place.kind:
        case "s3":
            names = [f"{of}endpoint{part}" for of in (f"bucket.{place.bucket}.", "") for part in ("", ".region")]
            return ["fs.s3a.impl", *(f"fs.s3a.{name}" for name in names)]
        case "gs":
            return ["fs.gs.impl", "fs.gs.storage.root.url"]
        case "azure":
            return ["fs.abfs.impl", "fs.abfss.impl", f"fs.azure.abfs.endpoint.{place.host}", "fs.azure.abfs.endpoint"]


def without_keys(address: str) -> str:
    """Return what is set as an address, for a message, if there can be neither a user nor a key in it."""
    scheme = "" if "://" in address else "https://"
    return address if _ADDRESS.fullmatch(f"{scheme}{address}") else "(not shown: it is no address)"


_AUTH = "org.apache.hadoop.fs.s3a"


def _s3a(bucket: str, plain: Mapping[str, str], endpoint: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Settings of one bucket: another one in the same session keeps its own."""
    found = {
        "access.key": plain.get("access_key_id", ""),
        "secret.key": plain.get("secret_access_key", ""),
        "session.token": plain.get("session_token") or plain.get("token", ""),
        "endpoint": endpoint,
        "endpoint.region": _region(plain, environment) if endpoint or _region(plain, {}) else "",
    }
    if found["access.key"]:
        provider = "TemporaryAWSCredentialsProvider" if found["session.token"] else "SimpleAWSCredentialsProvider"
        found["aws.credentials.provider"] = f"{_AUTH}.{provider}"
    if profile := plain.get(_PROFILE):
        found["auth.profile.name"] = profile
        found["aws.credentials.provider"] = f"{_AUTH}.auth.ProfileAWSCredentialsProvider"
    if _is_true(plain, "skip_signature"):
        found["aws.credentials.provider"] = f"{_AUTH}.AnonymousAWSCredentialsProvider"
    # obstore names the bucket in the path unless it is told not to; S3A does so only if it is told to.
    style = _style_of(bucket, plain, endpoint, environment)
    if style is not None:
        found["endpoint"] = style.of_store
    if endpoint or style is not None:
        found["path.style.access"] = str(style is None or not style.is_virtual).lower()
    if endpoint.startswith("http://"):
        found["connection.ssl.enabled"] = "false"
    if proxy := plain.get("proxy_url"):
        found |= _s3a_proxy(proxy)
    return {f"fs.s3a.bucket.{bucket}.{key}": value for key, value in found.items() if value}


def _style_of(bucket: str, options: Mapping[str, str], endpoint: str, environment: Mapping[str, str]) -> Style | None:
    """Return how requests of S3 name the bucket; None if nobody says, so that each side does as it always does.

    Raises:
        InvalidError: what is said is neither yes nor no; the message does not have it, for it may be a key.
    """
    said = next((value for key, value in options.items() if _plain(key) == _VIRTUAL and value), "")
    said = (said or environment.get(VIRTUAL_HOSTS.name) or "").lower()
    if said and said not in _TRUE | _FALSE:
        raise InvalidError(f"the option {_VIRTUAL}, or {VIRTUAL_HOSTS.name}, is neither true nor false")
    return style_of(bucket, endpoint, is_virtual=said in _TRUE) if said else None


def _is_true(plain: Mapping[str, str], key: str) -> bool:
    return plain.get(key, "").lower() in _TRUE


def _s3a_proxy(url: str) -> dict[str, str]:
    """Return settings of a proxy, whose address obstore takes without a scheme, too, and as URLs have it.

    Raises:
        InvalidError: it is no address; the message does not have it, nor has any cause: there may be a password in it.
    """
    refusal = InvalidError("the store's proxy_url is no address, such as http://proxy.example:3128")
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host, port = parts.hostname, parts.port
    except ValueError:
        raise refusal from None
    if not host:
        raise refusal
    is_secure = parts.scheme == "https"
    return {
        "proxy.host": host,
        "proxy.port": str(port or (443 if is_secure else 80)),
        "proxy.ssl.enabled": str(is_secure).lower(),
        "proxy.username": unquote(parts.username or ""),
        "proxy.password": unquote(parts.password or ""),
    }


def _region(plain: Mapping[str, str], environment: Mapping[str, str]) -> str:
    said = plain.get("region") or plain.get("default_region")
    return said or environment.get(REGION.name) or environment.get(DEFAULT_REGION.name) or ""


def _gs(plain: Mapping[str, str], endpoint: str) -> dict[str, str]:
    key_file = plain.get("service_account") or plain.get("service_account_path") or plain.get("application_credentials")
    settings = {"fs.gs.storage.root.url": f"{endpoint}/"} if endpoint else {}
    if key_file:
        settings["fs.gs.auth.type"] = "SERVICE_ACCOUNT_JSON_KEYFILE"
        settings["fs.gs.auth.service.account.json.keyfile"] = key_file
    if _is_true(plain, "skip_signature"):
        settings["fs.gs.auth.type"] = "UNAUTHENTICATED"
    return settings


_WITH_ACCOUNT = re.compile(
    r"(?P<scheme>https?)://(?P<host>[^\s/@?#:\[\]]+)(:(?P<port>\d+))?/(?P<account>[^\s/@?#]+)/?", re.IGNORECASE
)
"""An endpoint of Azure's with the account in its path."""


def _abfs_address(place: Place, endpoint: str) -> dict[str, str]:
    """Settings of one account, if its endpoint is an address that ABFS can be given: one with the account in its path.

    Such a one is an emulator's, which speaks the protocol of blobs alone. For an account with a hierarchical namespace
    ABFS refuses that protocol; and without TLS it works by one of its two HTTP clients alone. That there is none is not
    said: Hadoop knows it of all accounts, and not of one.
    """
    found = _WITH_ACCOUNT.fullmatch(endpoint)
    if found is None or found["account"] != place.account or place.host != f"{place.account}.dfs.{AZURE}":
        return {}
    is_secure = found["scheme"].lower() == "https"
    settings = {
        "abfs.endpoint": f"{found['host']}:{found['port'] or (443 if is_secure else 80)}",
        "account.hns.enabled": "false",
        "fns.account.service.type": "BLOB",
    }
    if not is_secure:
        settings["networking.library"] = "JDK_HTTP_URL_CONNECTION"
    return {f"fs.azure.{key}.{place.host}": value for key, value in settings.items()}


def _abfs_keys(host: str, plain: Mapping[str, str]) -> dict[str, str]:
    """Settings of one account."""
    if key := plain.get("account_key") or plain.get("access_key") or plain.get("master_key"):
        return {f"fs.azure.account.auth.type.{host}": "SharedKey", f"fs.azure.account.key.{host}": key}
    if token := plain.get("sas_key") or plain.get("sas_token"):
        return {f"fs.azure.account.auth.type.{host}": "SAS", f"fs.azure.sas.fixed.token.{host}": token}
    if secret := plain.get("client_secret"):
        tenant, client = plain.get("tenant_id") or plain.get("authority_id", ""), plain.get("client_id", "")
        authority = plain.get("authority_host", "https://login.microsoftonline.com").rstrip("/")
        return {
            f"fs.azure.account.auth.type.{host}": "OAuth",
            f"fs.azure.account.oauth.provider.type.{host}": (
                "org.apache.hadoop.fs.azurebfs.oauth2.ClientCredsTokenProvider"
            ),
            f"fs.azure.account.oauth2.client.id.{host}": client,
            f"fs.azure.account.oauth2.client.secret.{host}": secret,
            f"fs.azure.account.oauth2.client.endpoint.{host}": f"{authority}/{tenant}/oauth2/token",
        }
    return {}
