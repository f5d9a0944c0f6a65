"""What docs/requests.md says of requests over the wire is what is counted there, and grows no faster than it says."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support import servers
from tests.support.wire_counts import COLUMNS, DOCUMENT, Kind, columns, commits, counts, counts_of_arbiter, kind_of

pytestmark = pytest.mark.long

AZURE = pytest.param("azure", marks=pytest.mark.skipif(not servers.ARE_WANTED, reason="`make test-stores`"))


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        ("GET /lake?list-type=2&prefix=f%2F HTTP/1.1", "LIST"),
        ("GET /account/lake?restype=container&comp=list HTTP/1.1", "LIST"),
        ("GET /lake/list-type HTTP/1.1", "GET"),
        ("PUT /lake/a HTTP/1.1\r\nIf-None-Match: *", "PUT if absent"),
        ("PUT /lake/a HTTP/1.1\r\nx-goog-if-generation-match: 0", "PUT if absent"),
        ("PUT /lake/a HTTP/1.1\r\ncontent-length: 0", "PUT"),
        ("POST /lake?delete HTTP/1.1", "POST"),
    ],
)
def test_what_a_request_is(head: str, kind: str) -> None:
    assert kind_of(head) == kind


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["s3", "gs", AZURE])
def test_a_commit_of_more_tables_asks_for_more_of_each_and_writes_one_entry(kind: Kind) -> None:
    for tables, commit in commits(kind).items():
        assert commit.before["PUT if absent"] == 1 + tables
        assert commit.before["PUT"] == commit.before["DELETE"] == commit.before["POST"] == 0
        assert commit.before.total() <= 2 + 4 * tables


@pytest.mark.slow
@pytest.mark.deep
@pytest.mark.parametrize("kind", ["s3", "gs", AZURE])
def test_the_page_says_what_is_counted(kind: Kind) -> None:
    """But of an expiry: it writes checkpoints, whose parts follow from ids, which are random."""
    said = columns(DOCUMENT.read_text(encoding="utf-8"))[COLUMNS[kind]]
    counted = {(name, tables): str(one) for tables, found in counts(kind).items() for name, one in found.items()}
    assert counted.keys() == said.keys()
    assert {key: what for key, what in counted.items() if what != said[key] and "expire" not in key[0]} == {}


@pytest.mark.slow
def test_an_arbiter_is_asked_as_often_for_ten_tables_as_for_one() -> None:
    one, ten = counts_of_arbiter().values()
    assert one == ten == Counter(eval=1, hmget=1, hset=1)
