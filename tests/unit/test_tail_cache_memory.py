"""The tail cache counts the memory that it uses."""

from __future__ import annotations

import tracemalloc
from zlib import crc32

import pytest

from fairlane.model.segment import Verified
from fairlane.store.tail_cache import TailCache


@pytest.mark.parametrize(("messages", "size"), [(1, 120), (10, 120), (500, 90), (500, 1000)])
def test_the_bytes_of_a_cache_cover_its_memory(messages: int, size: int) -> None:
    cache = TailCache(2**40)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(1000 // messages + 100):
            first, body = number * messages, bytes(messages * size)
            ends = [(index + 1) * size for index in range(messages)]
            cache.add(1, 1, Verified(first, 1_700_000_000_000_000 + number, ends, body, crc32(body)))
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert cache.bytes >= 0.97 * (used - before)
