"""Which host a store is asked at, where the bucket's or the account's name is a part of the host's: pure functions."""

from __future__ import annotations

import re
from dataclasses import dataclass

AZURE = "core.windows.net"
"""The domain of Azure's accounts, where a URL says no other."""


@dataclass(frozen=True, slots=True)
class Style:
    """How requests of S3 name the bucket.

    Attributes:
        is_virtual: as a part of the host's name, and not in the path.
        of_store: the endpoint as S3A takes it, which puts the bucket there itself; empty for the cloud's own.
        of_bucket: the endpoint as obstore takes it, which puts nothing there; likewise.
    """

    is_virtual: bool
    of_store: str
    of_bucket: str


_NAMED = re.compile(r"(https?://)(?![\d.]+(?:[:/]|$))([^\s/@?#\[\]]+(?:/.*)?)", re.IGNORECASE)
"""An endpoint whose host has a name. One that is a number has no buckets below it, and Amazon's client knows that."""


def style_of(bucket: str, endpoint: str, *, is_virtual: bool) -> Style:
    """Return how requests name a bucket.

    Args:
        endpoint: the store's; or, as others have it who take obstore's options, the bucket's, which begins with its
            name. Empty for the cloud's own, where both sides know what to do.
        is_virtual: whether the bucket is to be a part of the host's name.
    """
    found = _NAMED.fullmatch(endpoint) if is_virtual else None
    if found is None:
        return Style(is_virtual and not endpoint, endpoint, endpoint)
    scheme, store = found[1], found[2].removeprefix(f"{bucket}.")
    return Style(is_virtual=True, of_store=f"{scheme}{store}", of_bucket=f"{scheme}{bucket}.{store}")


def host_of_blobs(host: str) -> str:
    """Return the host of an Azure account's blobs.

    Args:
        host: the account's, as a URL has it: `account.dfs.core.windows.net`, `account.z01.dfs.storage.azure.net`.
    """
    account, _, domain = host.partition(".")
    zone, is_dfs, rest = f".{domain}".partition(".dfs.")
    if is_dfs:
        return f"{account}{zone}.blob.{rest}"
    return host if ".blob." in host else f"{account}.blob.{domain or AZURE}"
