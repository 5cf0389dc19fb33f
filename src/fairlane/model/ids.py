"""Identifiers: UUIDv7 for what must be unique everywhere, a 64-bit key for looking ids up."""

from __future__ import annotations

import hashlib
import re
import secrets
import threading
import time
from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from fairlane.errors import InvalidRequest

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_PARTITION = re.compile(r"(0|[1-9]\d{0,9})-([1-9]\d{0,18})", re.ASCII)


class PartitionId(NamedTuple):
    """Where a partition lives and which it is there; `str()` is its public form."""

    shard: int
    id: int

    def __str__(self) -> str:
        return f"{self.shard}-{self.id}"

    @classmethod
    def parse(cls, text: object) -> PartitionId:
        match = _PARTITION.fullmatch(text) if isinstance(text, str) else None
        if match is None or int(match[2]) >= 2**63 or int(match[1]) >= 2**31:
            raise InvalidRequest(f"{text!r:.80} is not a partition id; use the partitionId that a pop or push returned")
        return cls(int(match[1]), int(match[2]))


class Uuid7:
    """Makes UUIDv7s that rise strictly inside this process, whatever the clock does.

    The 74 random bits are drawn once a millisecond and counted up inside it; when the clock
    stands still or steps back, counting goes on from the last id.
    """

    def __init__(self, clock_ms: Callable[[], int] | None = None) -> None:
        self._clock_ms = clock_ms or (lambda: time.time_ns() // 1_000_000)
        self._last = 0  # the last id without its version and variant bits: 48 bits time, 74 bits tail
        self._lock = threading.Lock()

    def reserve(self, count: int) -> int:
        """The first of `count` consecutive values for `format_uuid7`."""
        with self._lock:
            now = self._clock_ms()
            first = (now << 74) | secrets.randbits(73) if now > self._last >> 74 else self._last + 1
            self._last = first + count - 1
            return first

    def __call__(self) -> str:
        return format_uuid7(self.reserve(1))


def format_uuid7(value: int) -> str:
    """The text of the UUIDv7 with time and tail `value` (122 bits)."""
    high, low = value >> 62, value & 0x3FFF_FFFF_FFFF_FFFF
    digits = f"{(high >> 12) << 16 | 0x7000 | high & 0xFFF:016x}{low | 0x8000_0000_0000_0000:016x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


uuid7 = Uuid7()


def uuid7_ms(text: str) -> int | None:
    """The milliseconds since 1970 inside a canonical UUIDv7, None for any other text."""
    if len(text) == 36 and text[14] == "7" and text[19] in "89ab" and _UUID.fullmatch(text):
        return int(text[:8] + text[9:13], 16)
    return None


def is_uuid(text: object) -> bool:
    return isinstance(text, str) and _UUID.fullmatch(text.lower()) is not None


def parse_uuid(text: str) -> UUID | None:
    return UUID(text) if is_uuid(text) else None


def consecutive_uuid7s(first: int, count: int) -> tuple[list[str], list[int]]:
    """Texts and keys of `count` UUIDv7s from `first` on: what `format_uuid7` and `id_key` say of each, made
    together."""
    if (first & 0x3FFF_FFFF_FFFF_FFFF) + count > 0x3FFF_FFFF_FFFF_FFFF:
        texts = [format_uuid7(value) for value in range(first, first + count)]
        return texts, [id_key(text) for text in texts]
    head = format_uuid7(first)[:19]
    low = first & 0x3FFF_FFFF_FFFF_FFFF | 0x8000_0000_0000_0000
    tails = [f"{value:x}" for value in range(low, low + count)]
    keys = list(range(low - (1 << 64), low - (1 << 64) + count))
    return [f"{head}{tail[:4]}-{tail[4:]}" for tail in tails], keys


def id_facts(text: str) -> tuple[int, int | None]:
    """(`id_key`, `uuid7_ms`) of a text, for the price of one."""
    if len(text) == 36 and _UUID.fullmatch(text):
        unsigned = int(text[19:23] + text[24:], 16)
        made_at = int(text[:8] + text[9:13], 16) if text[14] == "7" and text[19] in "89ab" else None
        return unsigned - (1 << 64) if unsigned >= 1 << 63 else unsigned, made_at
    return id_key(text), None


def id_key(text: str, *, salt: int = 0) -> int:
    """A signed 64-bit key by which `text` is found; two texts may share one, so the stored text decides.

    The tail of a UUID is random enough and needs no hashing. `salt` gives the next key to try
    when the first is another text's.
    """
    if salt == 0 and len(text) == 36 and _UUID.fullmatch(text):
        unsigned = int(text[19:23] + text[24:], 16)
    else:
        digest = hashlib.blake2b(text.encode(), digest_size=8, salt=salt.to_bytes(2, "big")).digest()
        unsigned = int.from_bytes(digest, "big")
    return unsigned - (1 << 64) if unsigned >= 1 << 63 else unsigned
