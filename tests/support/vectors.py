"""Deletion vectors where the protocol has a place for them: in a file of their own, and in the log itself.

Lockstep writes none into the log, and reads what others wrote there.
"""

from __future__ import annotations

import base64
from uuid import UUID

from lockstep.delta.combine.deletion_vectors import Descriptor, in_a_file

_PYTHONS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def stored(data: bytes, cardinality: int, id: UUID) -> tuple[Descriptor, bytes]:
    """Return the descriptor of a vector alone in the file of an id, and the file."""
    [descriptor], content = in_a_file([(data, cardinality)], id)
    return descriptor, content


def inline(data: bytes, cardinality: int) -> Descriptor:
    """Return the descriptor of a vector in the log, in Z85, which wants multiples of four bytes."""
    padded = data + bytes(-len(data) % 4)
    return {
        "storageType": "i",
        "pathOrInlineDv": base64.b85encode(padded).decode().translate(str.maketrans(_PYTHONS, _Z85)),
        "sizeInBytes": len(data),
        "cardinality": cardinality,
    }
