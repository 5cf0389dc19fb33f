"""Values as PostgreSQL sends them, decoded here where the driver would be slower or nobody may look at them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import overload

from fairlane.store.postgres.connection import EPOCH_2000

_time = struct.Struct(">q").unpack
_HEADER_BYTES = 20  # of an array with one dimension; then 4 bytes of length and 4 of value each
_ITEM_BYTES = 8


def sent_time(sent: bytes) -> int:
    """A `timestamptz_send` as microseconds since 1970."""
    micros: int = _time(sent)[0]
    return micros + EPOCH_2000


class SentArray(Sequence[int]):
    """The `array_send` of an int[] without nulls."""

    __slots__ = ("_sent", "_values")

    def __init__(self, sent: bytes) -> None:
        self._sent = sent
        self._values: tuple[int, ...] | None = None

    def __len__(self) -> int:
        return max(0, len(self._sent) - _HEADER_BYTES) // _ITEM_BYTES

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...
    def __getitem__(self, index: int | slice) -> int | Sequence[int]:
        if self._values is None:
            self._values = struct.unpack(f">{2 * len(self)}i", self._sent[_HEADER_BYTES:])[1::2]
        return self._values[index]
