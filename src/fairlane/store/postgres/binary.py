"""Decoders of binary values for which the driver is slower."""

from __future__ import annotations

import struct

from fairlane.store.postgres.connection import EPOCH_2000

_time = struct.Struct(">q").unpack
_HEADER_BYTES = 20  # header of a one-dimensional array; each element has 4 bytes of length and 4 of value
_ITEM_BYTES = 8


def sent_time(sent: bytes) -> int:
    """Decode a `timestamptz_send` to microseconds since 1970."""
    micros: int = _time(sent)[0]
    return micros + EPOCH_2000


def sent_numbers(sent: bytes) -> tuple[int, ...]:
    """Decode an `array_send` of an int[] without nulls."""
    count = max(0, len(sent) - _HEADER_BYTES) // _ITEM_BYTES
    return struct.unpack_from(f">{2 * count}i", sent, _HEADER_BYTES)[1::2] if count else ()
