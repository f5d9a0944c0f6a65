"""toxiproxy between clients and a server, which breaks their connections: each is started by who wants it.

    with passing(endpoint, FAULTS) as broken:          # all that is sent to `broken` goes to `endpoint`, or is lost

`make test-s3-faults` and `make bench-s3` build it with Go. `wire.py` has one fault for one request, which a test
chooses; this has them by chance, and on connections that clients of all kinds keep open.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from tests.support import golang, servers
from tests.support.ports import free_port

VERSION = "v2.5.0"


@dataclass(frozen=True, slots=True)
class Toxic:
    """What happens to some of the connections.

    Attributes:
        type: what toxiproxy calls it.
        stream: `upstream` is what clients send, `downstream` what they are answered.
        share: of connections that it happens to, by chance, when each is made.
        attributes: what toxiproxy takes for it.
    """

    type: str
    stream: Literal["upstream", "downstream"]
    share: float = 1.0
    attributes: dict[str, int] = field(default_factory=dict)


FAULTS = (
    Toxic("latency", "downstream", 1.0, {"latency": 2, "jitter": 2}),
    Toxic("reset_peer", "upstream", 0.05, {"timeout": 10}),
    Toxic("reset_peer", "downstream", 0.05, {"timeout": 10}),
    Toxic("limit_data", "upstream", 0.15, {"bytes": 6_000}),
    Toxic("limit_data", "downstream", 0.15, {"bytes": 6_000}),
)
"""Requests that are lost, answers that are lost, and connections that end in the middle of either.

Of some, and not of all: clients give up a request after five or six times, and must survive less than that.
"""


def slow(milliseconds: int) -> tuple[Toxic, ...]:
    """Return what makes each answer so much later."""
    return (Toxic("latency", "downstream", 1.0, {"latency": milliseconds}),) if milliseconds else ()


@contextmanager
def passing(endpoint: str, toxics: Sequence[Toxic], *, seed: int = 1) -> Iterator[str]:
    """Pass on what is sent to an address to this endpoint, for as long as the block; the address."""
    binary, port, control = fetch(), free_port(), free_port()
    command = [str(binary), "-host", "127.0.0.1", "-port", str(control), "-seed", str(seed)]
    api = f"http://127.0.0.1:{control}"
    with servers.running(command, f"{api}/version"):
        where = {"name": "store", "listen": f"127.0.0.1:{port}", "upstream": urlsplit(endpoint).netloc}
        _post(f"{api}/proxies", where)
        for toxic in toxics:
            asked = {"name": f"{toxic.type}-{toxic.stream}", "type": toxic.type, "stream": toxic.stream}
            _post(f"{api}/proxies/store/toxics", asked | {"toxicity": toxic.share, "attributes": toxic.attributes})
        yield f"http://127.0.0.1:{port}"


def _post(url: str, what: dict[str, Any]) -> None:
    urllib.request.urlopen(urllib.request.Request(url, data=json.dumps(what).encode(), method="POST")).close()


def fetch() -> Path:
    """Return toxiproxy's server, built if need be."""
    return golang.built("github.com/Shopify/toxiproxy/v2/cmd/server", VERSION, "1.17")
