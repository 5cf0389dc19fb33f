"""Effects: a step that a handler ran once for a message is known to every later attempt."""

from __future__ import annotations

import asyncio

from fairlane.model.ids import PartitionId
from tests.conformance.harness import Harness

NOWHERE = PartitionId(0, 1)


async def test_the_first_effect_of_a_key_is_kept_and_given_to_all_that_come_later(harness: Harness) -> None:
    effects, tenant = harness.store.effects, harness.name("tenant")
    assert await effects.get(tenant, "k", NOWHERE) is None
    assert await effects.keep(tenant, "k", NOWHERE, b'{"a":"\\u0000"}', seconds=60) == b'{"a":"\\u0000"}'
    assert await effects.keep(tenant, "k", NOWHERE, b"2", seconds=60) == b'{"a":"\\u0000"}'
    await harness.reopen()
    effects = harness.store.effects
    assert await effects.get(tenant, "k", NOWHERE) == b'{"a":"\\u0000"}'
    assert await effects.get(harness.name("other"), "k", NOWHERE) is None


async def test_of_many_that_keep_one_key_at_once_all_get_the_same(harness: Harness) -> None:
    tenant = harness.name("tenant")
    stores = [harness.store, await harness.open_second()]
    kept = await asyncio.gather(
        *(stores[n % 2].effects.keep(tenant, "k", NOWHERE, b"%d" % n, seconds=60) for n in range(8))
    )
    assert len(set(kept)) == 1


async def test_an_effect_is_forgotten_when_its_time_is_over(harness: Harness) -> None:
    effects, tenant = harness.store.effects, harness.name("tenant")
    await effects.keep(tenant, "k", NOWHERE, b"1", seconds=60)
    await effects.keep(tenant, "other", NOWHERE, b"1", seconds=600)
    harness.clock.advance(60)
    assert await effects.get(tenant, "k", NOWHERE) is None
    assert await effects.keep(tenant, "k", NOWHERE, b"2", seconds=60) == b"2"
    assert await effects.get(tenant, "other", NOWHERE) == b"1"


async def test_an_effect_belongs_to_its_partition(harness: Harness) -> None:
    effects, tenant, elsewhere = harness.store.effects, harness.name("tenant"), PartitionId(0, 2)
    await effects.keep(tenant, "k", NOWHERE, b'"real"', seconds=60)
    assert await effects.get(tenant, "k", elsewhere) is None
    assert await effects.keep(tenant, "k", elsewhere, b'"other"', seconds=60) == b'"other"'
    assert await effects.get(tenant, "k", NOWHERE) == b'"real"'
