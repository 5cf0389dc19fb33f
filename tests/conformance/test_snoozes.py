"""Snoozes: findings that somebody wants to hear of later."""

from __future__ import annotations

from fairlane.model.moment import Moment
from fairlane.model.tenant import Quotas
from fairlane.store.families.snoozes import Snooze
from tests.conformance.harness import Harness


async def snooze(harness: Harness, key: str, seconds: float, *, tenant: str = "default", count: int = 3) -> Snooze:
    until = Moment(await harness.store.now() + int(seconds * 1_000_000))
    one = Snooze(key=key, until=until, caller="key:anna", severity="critical", count=count)
    await harness.store.snoozes.set(tenant, one)
    return one


async def test_a_snooze_is_kept_until_it_is_replaced_or_ended(harness: Harness) -> None:
    key = f"lanes_stopped/{harness.name('queue')}"
    first = await snooze(harness, key, 3600)
    assert first in await harness.store.snoozes.all("default")
    second = await snooze(harness, key, 7200, count=4)
    await harness.reopen()
    assert [one for one in await harness.store.snoozes.all("default") if one.key == key] == [second]
    assert await harness.store.snoozes.end("default", key)
    assert not await harness.store.snoozes.end("default", key)
    assert key not in {one.key for one in await harness.store.snoozes.all("default")}


async def test_a_snooze_ends_at_its_time_and_is_deleted_by_the_next_one(harness: Harness) -> None:
    over, lasting = harness.name("over"), harness.name("lasting")
    await snooze(harness, over, -1)
    assert over not in {one.key for one in await harness.store.snoozes.all("default")}
    await snooze(harness, lasting, 60)
    assert not await harness.store.snoozes.end("default", over)


async def test_each_tenant_has_its_own_snoozes_which_end_with_it(harness: Harness) -> None:
    tenant, key = harness.name("tenant"), harness.name("key")
    await harness.store.tenants.make(tenant, Quotas())
    await snooze(harness, key, 60, tenant=tenant)
    assert key not in {one.key for one in await harness.store.snoozes.all("default")}
    assert [one.key for one in await harness.store.snoozes.all(tenant)] == [key]
    await harness.store.tenants.delete(tenant)
    assert await harness.store.snoozes.all(tenant) == []
