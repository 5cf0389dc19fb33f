"""Values from PostgreSQL's binary protocol are decoded correctly."""

from __future__ import annotations

import struct

from fairlane.store.postgres.binary import sent_numbers, sent_time


def _sent(values: list[int]) -> bytes:
    if not values:
        return struct.pack(">iii", 0, 0, 23)
    items = b"".join(struct.pack(">ii", 4, value) for value in values)
    return struct.pack(">iiiii", 1, 0, 23, len(values), 1) + items


def test_an_array_has_its_numbers() -> None:
    assert sent_numbers(_sent([7, 300, 2_000_000])) == (7, 300, 2_000_000)


def test_an_empty_array_has_no_numbers() -> None:
    assert sent_numbers(_sent([])) == ()


def test_a_time_is_in_microseconds_since_1970() -> None:
    assert sent_time(struct.pack(">q", 0)) == 946_684_800_000_000
    assert sent_time(struct.pack(">q", -1)) == 946_684_799_999_999
