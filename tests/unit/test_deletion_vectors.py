"""Deletion vectors: what Delta writes is read, what is written Delta reads, and what is neither is refused."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyroaring import BitMap64

from lockstep.delta.combine.deletion_vectors import (
    MAX_VECTOR_BYTES,
    Descriptor,
    decode,
    deserialize,
    file_path,
    in_a_file,
    is_readable,
    serialize,
)
from lockstep.errors import CorruptTimelineError
from tests.support.vectors import inline

ROOT = "file:///data/lake"
ROWS = (3, 4, 7, 11, 18, 29)
BODY = "0100000000000000000000003a3000000100000000000500100000000300040007000b0012001d00"
"""Those rows as a 64-bit Roaring bitmap (RoaringFormatSpec): one bucket, key 0, one array container of six values."""

DATA = bytes.fromhex("d1d33964" + BODY)
Z85 = "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"
INLINE: Descriptor = {"storageType": "i", "pathOrInlineDv": Z85, "sizeInBytes": 44, "cardinality": 6}

ID = UUID("d2c639aa-8816-431a-aaf6-d3fe2512ff61")
STORED: Descriptor = {
    "storageType": "u",
    "pathOrInlineDv": "^-aqEH.-t@S}K{vb[*k^",
    "offset": 1,
    "sizeInBytes": 44,
    "cardinality": 6,
}
FILE = bytes.fromhex("01" + "0000002c" + DATA.hex() + "acd74a79")
PATH = f"t/deletion_vector_{ID}.bin"


def rows_of(descriptor: Descriptor | None, **files: bytes) -> tuple[int, ...]:
    """Decode against a lake that has these files of the table t, by the ends of their names."""
    found = {f"t/{name}": content for name, content in files.items()} or {PATH: FILE}
    return tuple(decode(descriptor, found.get, location="t", root=ROOT))


# --- reading ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("descriptor", "rows"),
    [
        pytest.param(None, (), id="no vector"),
        pytest.param(INLINE, ROWS, id="in the log"),
        pytest.param(STORED, ROWS, id="in a file"),
        pytest.param({**STORED, "storageType": "p", "pathOrInlineDv": f"{ROOT}/{PATH}"}, ROWS, id="in a file by URL"),
    ],
)
def test_the_rows_of_a_vector(descriptor: Descriptor | None, rows: tuple[int, ...]) -> None:
    assert rows_of(descriptor) == rows


def test_the_second_vector_of_a_file_starts_at_its_offset() -> None:
    content = FILE + FILE[1:]
    assert tuple(decode({**STORED, "offset": 53}, lambda _: content, location="t", root=ROOT)) == ROWS


@pytest.mark.parametrize(
    ("kind", "path", "expected"),
    [
        pytest.param("u", "^-aqEH.-t@S}K{vb[*k^", PATH, id="relative"),
        # Protocol, "JSON Example 1": On Disk with Relative Path (with Random Prefix).
        pytest.param("u", "ab^-aqEH.-t@S}K{vb[*k^", f"t/ab/deletion_vector_{ID}.bin", id="with a prefix"),
        pytest.param("p", "file:///data/lake/t%20x/dv%25.bin", "t x/dv%.bin", id="by URL"),
        pytest.param("p", "file:/data/lake/t/dv.bin", "t/dv.bin", id="as Hadoop writes URLs"),
    ],
)
def test_where_a_vector_is(kind: str, path: str, expected: str) -> None:
    assert file_path({"storageType": kind, "pathOrInlineDv": path}, location="t", root=ROOT) == expected


@pytest.mark.parametrize(
    ("root", "url", "expected"),
    [
        pytest.param("s3://b/lake", "s3a://b/lake/t/dv.bin", True, id="s3a is s3"),
        pytest.param("s3://b/lake", "s3a://c/lake/t/dv.bin", False, id="another bucket"),
        pytest.param("s3://b/lake", "s3://b/lakes/t/dv.bin", False, id="a folder whose name begins alike"),
        pytest.param("s3://b/lake", "file:///lake/t/dv.bin", False, id="another store"),
        pytest.param("s3://b", "s3://b/t/dv.bin", True, id="a whole bucket"),
    ],
)
def test_a_vector_outside_the_lake_is_not_readable(root: str, url: str, expected: bool) -> None:
    descriptor = {**STORED, "storageType": "p", "pathOrInlineDv": url}
    assert is_readable(descriptor, root=root) is expected


@pytest.mark.parametrize(("size", "expected"), [(MAX_VECTOR_BYTES, True), (MAX_VECTOR_BYTES + 1, False)])
def test_a_huge_vector_is_not_readable(size: int, expected: bool) -> None:
    assert is_readable({**STORED, "sizeInBytes": size}, root=ROOT) is expected
    assert is_readable(None, root=ROOT)


NATIVE = bytes.fromhex("d0d33964") + DATA[4:]


@pytest.mark.parametrize(
    ("change", "content", "message"),
    [
        pytest.param({}, b"\x02" + FILE[1:], r"format version 1, found b'\\x02'", id="file version"),
        pytest.param({}, FILE[:-1] + b"\x00", "CRC-32 acd74a00, found acd74a79", id="checksum"),
        pytest.param({}, FILE[:9] + b"\xff" + FILE[10:], "CRC-32 acd74a79, found", id="data that rotted"),
        pytest.param({"sizeInBytes": 40}, FILE, "a vector of 40 bytes at 1, found one of 44", id="size"),
        pytest.param({"offset": 2}, FILE, "44 bytes at 2, found a file of 53", id="behind the end"),
        pytest.param({"offset": 0}, FILE, "44 bytes at 0, found one of 16777216", id="offset of the version byte"),
        pytest.param({"offset": None}, FILE, "number offset that is not negative, found None", id="no offset"),
        pytest.param({"offset": -9}, FILE, "number offset that is not negative, found -9", id="negative offset"),
        pytest.param({}, FILE[:-1], "44 bytes at 1, found a file of 52", id="truncated"),
        pytest.param({}, b"", "format version 1, found b''", id="empty file"),
        pytest.param({}, None, f"{PATH} is gone", id="no file"),
        pytest.param({"cardinality": 7}, FILE, "expected 7 rows, .* found 6", id="cardinality"),
        pytest.param({"sizeInBytes": MAX_VECTOR_BYTES + 1}, FILE, "expected at most", id="a size beyond all bounds"),
        pytest.param({"storageType": "x"}, FILE, "storage type u, p or i, found 'x'", id="storage type"),
        pytest.param({"pathOrInlineDv": "abc"}, FILE, "expected Z85", id="no UUID"),
        pytest.param({"pathOrInlineDv": "../" + STORED["pathOrInlineDv"]}, FILE, "prefix and 20", id="path in prefix"),
        pytest.param({"storageType": "p", "pathOrInlineDv": "s3://b/dv.bin"}, FILE, "a file below file:", id="outside"),
    ],
)  # fmt: skip
def test_a_stored_vector_that_is_not_what_it_must_be(
    change: dict[str, Any], content: bytes | None, message: str
) -> None:
    with pytest.raises(CorruptTimelineError, match=message):
        decode({**STORED, **change}, lambda _: content, location="t", root=ROOT)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param({"pathOrInlineDv": Z85[:-1]}, "expected Z85", id="not blocks of five"),
        pytest.param({"pathOrInlineDv": Z85[:-1] + "_"}, "expected Z85", id="a character of another base85"),
        pytest.param({"pathOrInlineDv": "#####" + Z85[5:]}, "expected Z85", id="a block above 32 bits"),
        pytest.param({"sizeInBytes": 40}, "expected 40 bytes and their padding, found 44", id="size"),
        pytest.param({"cardinality": 5}, "expected 5 rows", id="cardinality"),
        # Protocol, "JSON Example 3": Inline. Its magic is another one, so it is no vector that Delta reads either.
        pytest.param(
            {"pathOrInlineDv": "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", "sizeInBytes": 40},
            "expected the magic 1681511377",
            id="the protocol's example",
        ),
        pytest.param({**inline(NATIVE, 6)}, "magic 1681511377, found 1681511376", id="Delta's older format"),
    ],
)
def test_an_inline_vector_that_is_not_what_it_must_be(change: dict[str, Any], message: str) -> None:
    with pytest.raises(CorruptTimelineError, match=message):
        rows_of({**INLINE, **change})


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(DATA[:4], id="magic alone"),
        pytest.param(DATA[:-1], id="truncated"),
        pytest.param(DATA[:4] + (2**40).to_bytes(8, "little"), id="buckets by the billion"),
        pytest.param(b"", id="nothing"),
    ],
)
def test_data_that_is_no_bitmap(data: bytes) -> None:
    with pytest.raises(CorruptTimelineError, match="the vector x: expected"):
        deserialize(data, "the vector x")


# --- writing ----------------------------------------------------------------------------------------------------------


def test_what_is_written_is_byte_for_byte_what_delta_writes() -> None:
    data = serialize(BitMap64(ROWS))
    assert data == DATA
    assert in_a_file([(data, 6)], ID) == ([STORED], FILE)
    both = [STORED, {**STORED, "offset": len(FILE)}]
    assert in_a_file([(data, 6), (data, 6)], ID) == (both, FILE + FILE[1:])


def test_runs_are_written_as_runs() -> None:
    """As Delta does (RoaringBitmapArray.runOptimize): a hundred thousand rows in a row are a few bytes."""
    whole = BitMap64(range(0, 100_000, 2)) | BitMap64(range(1, 100_000, 2))
    assert len(serialize(whole)) < 60 < len(whole.serialize())


rows = st.frozensets(st.integers(0, 2**35) | st.integers(0, 200_000), max_size=60)


@given(rows)
@example(frozenset())
@example(frozenset({2**32, 2**32 - 1}))
def test_what_is_written_is_read(some: frozenset[int]) -> None:
    """Inline, whatever padding the size needs, and stored."""
    data = serialize(BitMap64(some))
    [_, descriptor], content = in_a_file([(DATA, len(ROWS)), (data, len(some))], ID)
    assert set(rows_of(inline(data, len(some)))) == some
    assert set(decode(descriptor, {PATH: content}.get, location="t", root=ROOT)) == some
