"""What may identify a micro-batch."""

from __future__ import annotations

import msgspec

from lockstep.errors import InvalidError
from lockstep.timeline.entry import Batch


def check_batch(batch: Batch) -> None:
    """Raise InvalidError unless an entry may record such a batch: its name's length and its number are bounded."""
    try:
        msgspec.convert(msgspec.structs.asdict(batch), Batch)  # what readers of the entry will check
    except msgspec.ValidationError as error:
        raise InvalidError(f"{str(batch)[:400]}: {error}") from error
