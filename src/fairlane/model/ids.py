"""Identifiers: UUIDv7 for global uniqueness, and 64-bit keys to look ids up."""

from __future__ import annotations

import hashlib
import os
import re
import struct
import threading
import time
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple
from uuid import UUID

from fairlane.errors import InvalidRequest

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_VARIANT = frozenset("89ab")
_PARTITION = re.compile(r"(0|[1-9]\d{0,9})-([1-9]\d{0,18})", re.ASCII)


CELLS_MAX = 256
_CELL_BITS = 45
"""Bits of an id below its cell. With 256 cells an id stays below 2**53, which JavaScript represents exactly."""


def cell_of(id: int) -> int:
    """Return the cell that a queue, a group or a partition was created in, from its id in the store."""
    return id >> _CELL_BITS


def first_id(cell: int) -> int:
    """Return the first id of a queue, a group or a partition in a cell."""
    return (cell << _CELL_BITS) + 1


class PartitionId(NamedTuple):
    """The id of a partition: its cell, and its number there. `str()` is its public form."""

    cell: int
    number: int

    @classmethod
    def of(cls, id: int) -> PartitionId:
        """Return the partition with this id in the store."""
        return cls(id >> _CELL_BITS, id & (1 << _CELL_BITS) - 1)

    @property
    def id(self) -> int:
        """The id in the store. -1, which no partition has, if the cell or the number is out of range."""
        if self.cell == 0:
            return self.number
        valid = self.cell < CELLS_MAX and self.number >> _CELL_BITS == 0
        return self.cell << _CELL_BITS | self.number if valid else -1

    def __str__(self) -> str:
        return f"{self.cell}-{self.number}"

    @classmethod
    def parse(cls, text: object) -> PartitionId:
        found = known_partition(text) if isinstance(text, str) else None
        if found is None:
            raise InvalidRequest(f"{text!r:.80} is not a partition id; use the partitionId that a pop or push returned")
        return found


@lru_cache(maxsize=4096)  # programs use the same partitions again and again
def known_partition(text: str) -> PartitionId | None:
    """Return the partition with this id. None if the text is not a partition id."""
    match = _PARTITION.fullmatch(text)
    if match is None or int(match[2]) >= 2**63 or int(match[1]) >= 2**31:
        return None
    return PartitionId(int(match[1]), int(match[2]))


_ENDS = [f"{number:03x}" for number in range(0x1000)]


class Uuid7:
    """A generator of UUIDv7s that increase strictly within this process, whatever the clock does.

    It draws random bits once per millisecond and counts up from them. If the clock stands still or steps back, it
    continues from the last id.
    """

    def __init__(self, clock_ms: Callable[[], int] | None = None) -> None:
        self._clock_ms = clock_ms or (lambda: time.time_ns() // 1_000_000)
        self._head = ""  # the first 19 characters of this millisecond's ids
        self._low = 0  # the last 64 bits of the last id
        self.reset()

    def reset(self) -> None:
        """Draw new random bits for the next id."""
        self._ms = -1
        self._lock = threading.Lock()

    def __call__(self) -> str:
        with self._lock:
            if (now := self._clock_ms()) > self._ms:
                self._draw(now)
            self._low += 1
            tail = f"{self._low:x}"
            return f"{self._head}{tail[:4]}-{tail[4:]}"

    def many(self, count: int) -> tuple[list[str], list[int], int]:
        """Return `count` ids, their keys, and their common time in milliseconds."""
        with self._lock:
            if (now := self._clock_ms()) > self._ms:
                self._draw(now)
            first = self._low + 1
            self._low += count
            ids: list[str] = []
            while len(ids) < count:  # ids that differ only in their last three digits are built together
                low = first + len(ids)
                digits = f"{low >> 12:x}"
                start = f"{self._head}{digits[:4]}-{digits[4:]}"
                index = low & 0xFFF
                ids += [start + end for end in _ENDS[index : index + count - len(ids)]]
            keys = list(range(first - (1 << 64), first - (1 << 64) + count))
            return ids, keys, self._ms

    def _draw(self, now: int) -> None:
        """Draw random bits for another millisecond."""
        random = int.from_bytes(os.urandom(10), "big")
        digits = f"{now << 16 | 0x7000 | random >> 68:016x}"
        self._ms = now
        self._head = f"{digits[:8]}-{digits[8:12]}-{digits[12:]}-"
        # The variant bit and 61 random bits. Counting up never overflows the 62 bits.
        self._low = 0x8000_0000_0000_0000 | random & 0x1FFF_FFFF_FFFF_FFFF


uuid7 = Uuid7()
if hasattr(os, "register_at_fork"):
    # A forked child that continued counting would repeat the ids of its parent, and its messages would be duplicates.
    os.register_at_fork(after_in_child=uuid7.reset)


def uuid7_ms(text: str) -> int | None:
    """Return the milliseconds since 1970 in a UUIDv7. None for any other text."""
    return id_facts(text)[1]


def least_uuid7(ms: int) -> UUID:
    """Return the smallest UUIDv7 with this time."""
    return UUID(int=max(0, ms) << 80 | 0x7 << 76 | 0b10 << 62)


def is_uuid(text: object) -> bool:
    return isinstance(text, str) and _UUID.fullmatch(text.lower()) is not None


def parse_uuid(text: str) -> UUID | None:
    return UUID(text) if is_uuid(text) else None


def id_facts(text: str) -> tuple[int, int | None]:
    """Return (`id_key`, `uuid7_ms`) of a text, at the cost of one of them.

    Only UUIDs in canonical lower-case form count as UUIDs. They can be restored from 16 bytes, which is all that is
    kept of the id of a deleted message.
    """
    if _UUID.fullmatch(text) is None:
        return _hashed(text, 0), None
    high, low = _halves(bytes.fromhex(text.replace("-", "")))
    return low, high >> 16 if high & 0xF000 == 0x7000 and low < 0 else None


_halves = struct.Struct(">Qq").unpack


def ids_facts(texts: list[str]) -> tuple[list[int], list[int | None]]:
    """Return the keys and times of `id_facts` for all texts. Fast if all of them are UUIDv7s."""
    joined, count = "".join(texts), len(texts)
    # If every text has dashes in exactly these four places, and no blank or capital, each text is a UUID.
    dashes = "-" * count
    if (
        set(map(len, texts)) == {36}
        and all(joined[index::36] == dashes for index in (8, 13, 18, 23))
        and joined[14::36] == "7" * count
        and set(joined[19::36]) <= _VARIANT
        and joined == joined.lower()
    ):
        try:
            raw = bytes.fromhex(joined.replace("-", ""))
        except ValueError:
            raw = b""
        if len(raw) == 16 * count:
            keys = list(struct.unpack(f">{2 * count}q", raw)[1::2])
            return keys, [high >> 16 for high in struct.unpack(f">{2 * count}Q", raw)[::2]]
    facts = list(map(id_facts, texts))
    return [key for key, _ in facts], [at for _, at in facts]


def id_key(text: str, *, salt: int = 0) -> int:
    """Return a signed 64-bit key for looking up `text`. Two texts may share a key, so the stored text decides.

    The tail of a UUID is random enough to need no hashing. `salt` yields the next key to try if another text has this
    one.
    """
    return id_facts(text)[0] if salt == 0 else _hashed(text, salt)


def _hashed(text: str, salt: int) -> int:
    digest = hashlib.blake2b(text.encode(), digest_size=8, salt=salt.to_bytes(2, "big")).digest()
    return int.from_bytes(digest, "big", signed=True)
