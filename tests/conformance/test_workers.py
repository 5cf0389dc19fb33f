"""Workers are listed while they send heartbeats."""

from __future__ import annotations

from tests.conformance.harness import Harness


async def test_a_worker_is_listed_while_it_tells_of_itself_and_not_longer(harness: Harness) -> None:
    workers = harness.store.workers
    tenant = harness.name("tenant")
    await workers.beat(tenant, "w1", '{"n":1}', keep_seconds=60)
    harness.clock.advance(20)
    await workers.beat(tenant, "w2", '{"n":2}', keep_seconds=60)
    await workers.beat(tenant, "w2", '{"n":3}', keep_seconds=60)
    assert [(one.id, one.facts) for one in await workers.all(tenant, seconds=30)] == [
        ("w1", '{"n":1}'),
        ("w2", '{"n":3}'),
    ]
    assert await workers.all(harness.name("other"), seconds=30) == []
    harness.clock.advance(11)
    [left] = await workers.all(tenant, seconds=30)
    assert (left.id, left.seen_at) == ("w2", harness.clock() - 11_000_000)
    assert await workers.deregister(tenant, "w2")
    assert not await workers.deregister(tenant, "w2")
    harness.clock.advance(60)
    await workers.beat(tenant, "w3", "{}", keep_seconds=60)
    assert [one.id for one in await workers.all(tenant, seconds=10_000)] == ["w3"], "the long gone are forgotten"
