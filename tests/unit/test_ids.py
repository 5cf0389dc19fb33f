"""Ids made and parsed in bulk equal those made and parsed one by one."""

from __future__ import annotations

import pytest

from fairlane.model.ids import Uuid7, id_facts, ids_facts, is_uuid, uuid7_ms

_PLAIN = [
    "019a8b1c-1111-7222-8333-0123456789ab",  # version 7
    "019A8B1C-1111-7222-8333-0123456789AB",  # in capitals
    "2f1c9c4e-7d0b-4a6b-9c1d-0f3a5b7c9d1e",  # version 4
    "00000000-0000-0000-0000-000000000000",
]
_ODD = [
    "019a8b1c-1111-7222-8333-0123456789a",  # one digit short
    "019a8b1c1111-7222-8333-0123456789ab-",  # dashes elsewhere
    "019a8b1c-1111-7222-8333-0123456789 b",  # a blank, which hex readers skip
    "019a8b1c-1111-7222-8333-0123456789zz",
    "019a8b1c-1111-7222-8333-0123456789\N{ARABIC-INDIC DIGIT ONE}b",
    "order 17",
    "",
]


def columns(texts: list[str]) -> list[tuple[int, int | None]]:
    return list(zip(*ids_facts(texts), strict=True))


@pytest.mark.parametrize("odd", [*_PLAIN, *_ODD])
def test_facts_of_many_are_the_facts_of_each(odd: str) -> None:
    assert columns(_PLAIN) == [id_facts(text) for text in _PLAIN]
    newest = [_PLAIN[0], "019a8b1c-1111-7fff-bfff-ffffffffffff"]
    for texts in ([odd], [*_PLAIN, odd], [odd, *_PLAIN], [*newest, odd], [odd, *newest]):
        assert columns(texts) == [id_facts(text) for text in texts]


def test_two_odd_lengths_that_make_up_for_each_other_are_not_taken_for_uuids() -> None:
    texts = [_PLAIN[0] + "-", _PLAIN[1][:-1]]
    assert columns(texts) == [id_facts(text) for text in texts]


def test_ids_made_together_rise_and_are_whole_uuids_wherever_the_count_stands() -> None:
    make = Uuid7(lambda: 1_700_000_000_000)
    ids = [make()]
    for count in (1, 4095, 4096, 4097, 10_000):
        many, keys, at = make.many(count)
        assert len(many) == count
        assert list(zip(keys, [at] * count, strict=True)) == [id_facts(text) for text in many]
        ids += many
    ids.append(make())
    assert ids == sorted(set(ids))
    assert all(is_uuid(text) and uuid7_ms(text) == 1_700_000_000_000 for text in ids)
