"""Tenants share a store and cannot see each other, whatever ids they name."""

from __future__ import annotations

from uuid import UUID

import msgspec
import pytest

from fairlane.broker.broker import Broker
from fairlane.broker.transact import AckStep
from fairlane.errors import Conflict, NotFound, QuotaReached, TransactionRefused
from fairlane.model.ids import PartitionId, uuid7
from fairlane.model.names import DEFAULT_TENANT, QUEUE_MODE
from fairlane.model.outcome import AckItem
from fairlane.model.tenant import Quotas
from fairlane.wire.schedules import ScheduleOptions
from fairlane.wire.workers import EffectBody, EffectQuery, WorkerReport
from tests.conformance.harness import Harness
from tests.until import until

VALUE = msgspec.Raw(b"1")


async def two(harness: Harness) -> tuple[Broker, Broker]:
    """Brokers of two tenants over one store."""
    names = [harness.name("tenant"), harness.name("tenant")]
    for name in names:
        assert await harness.store.tenants.make(name, Quotas())
    mine, other = (harness.broker.of(name) for name in names)
    return mine, other


async def pushed(broker: Broker) -> tuple[PartitionId, str]:
    """Push a message to queue `q`. Returns its partition and transactionId."""
    outcome = await broker.push("q", {"of": broker.tenant})
    assert outcome.partition is not None
    return outcome.partition, outcome.transaction_id


async def test_queues_of_two_tenants_share_a_name_and_nothing_else(harness: Harness) -> None:
    mine, other = await two(harness)
    assert mine.of(mine.tenant) is mine
    assert mine.of(other.tenant) is other
    await mine.push("q", "mine")
    await other.push("q", "other")
    assert [message.data for message in await mine.pop("q", batch=10, partitions=10)] == ["mine"]
    [message] = await other.pop("q", batch=10, partitions=10)
    assert message.data == "other"
    assert [outcome.success for outcome in await other.ack(message)] == [True]
    await mine.queues.delete("q")
    assert [queue.name for queue in await other.queues.all()] == ["q"]
    assert await mine.queues.all() == []


@pytest.mark.parametrize("known", [True, False], ids=["met before", "never met"])
async def test_nobody_acks_what_another_tenant_has(harness: Harness, known: bool) -> None:
    mine, other = await two(harness)
    partition, id = await pushed(mine)
    [leased] = await mine.pop("q")
    if not known:
        mine._engine.catalogue.forget_all()
    await other.push("q", 1)
    await other.pop("q")
    for lease in (None, leased.lane.lease):
        item = AckItem(transaction_id=id, partition=partition, lease=lease, status="completed")
        assert not (await other.ack_many([item]))[0].success
        with pytest.raises(TransactionRefused):
            await other.transact([AckStep(item, QUEUE_MODE)])
    assert [outcome.success for outcome in await mine.ack(leased)] == [True], "it was open until now"


async def test_the_lease_of_another_tenant_is_as_good_as_none(harness: Harness) -> None:
    mine, other = await two(harness)
    await pushed(mine)
    batch = await mine.pop("q")
    assert (await other.renew(batch.lease)).renewed == 0
    assert await other.release(batch.lease) == 0
    assert (await mine.renew(batch.lease)).renewed == 1
    assert await mine.release(batch.lease) == 1


async def test_messages_and_results_are_those_of_the_tenant(harness: Harness) -> None:
    mine, other = await two(harness)
    partition, id = await pushed(mine)
    await pushed(other)
    for call in (
        other.messages.get(str(partition), id),
        other.messages.delete(str(partition), id),
        other.messages.retry(str(partition), id),
        other.messages.dead_letter(str(partition), id),
        other.results.at(str(partition), id),
        other.results.get("q", id, partition=partition),
    ):
        with pytest.raises(NotFound):
            await call
    assert (await mine.messages.get(str(partition), id)).transaction_id == id


async def test_dead_letters_are_those_of_the_tenant(harness: Harness) -> None:
    mine, other = await two(harness)
    partition, id = await pushed(mine)
    await mine.pop("q")
    await mine.messages.dead_letter(str(partition), id)
    [letter] = await mine.dead_letters.page("q")
    await pushed(other)
    with pytest.raises(NotFound):
        await other.dead_letters.get("q", letter.id)
    assert await other.dead_letters.page("q") == []
    assert await other.dead_letters.purge("q") == 0
    assert [one.id for one in await mine.dead_letters.page("q")] == [letter.id]


async def test_an_effect_is_kept_for_the_tenant(harness: Harness) -> None:
    mine, other = await two(harness)
    partition, _ = await pushed(mine)
    await mine.effects.keep("k", EffectBody(partition_id=str(partition), value=VALUE, seconds=60))
    with pytest.raises(NotFound):
        await other.effects.get("k", EffectQuery(partition_id=str(partition)))
    theirs = EffectBody(partition_id=str(partition), value=msgspec.Raw(b"2"), seconds=60)
    assert bytes((await other.effects.keep("k", theirs)).value) == b"2", "a partition that is not there is no mistake"
    found = await mine.effects.get("k", EffectQuery(partition_id=str(partition)))
    assert bytes(found.value) == b"1"


async def test_messages_to_come_count_as_stored(harness: Harness) -> None:
    mine, other = await two(harness)
    await mine.push("q", "x" * 10_000, delay_ms=60_000)
    assert 10_000 < await harness.store.tenants.stored_bytes(mine.tenant) < 11_000
    assert await harness.store.tenants.stored_bytes(other.tenant) == 0


async def test_what_a_tenant_stores_beside_messages_is_counted(harness: Harness) -> None:
    mine, other = await two(harness)
    partition, _ = await pushed(mine)
    text, seen = msgspec.Raw(b'"%b"' % (b"x" * 10_000)), 0

    async def counted() -> None:
        """Another 10,000 bytes and a little more are counted."""
        nonlocal seen
        before, seen = seen, await harness.store.tenants.other_bytes(mine.tenant)
        assert 10_000 <= seen - before < 12_000

    await mine.effects.keep("k", EffectBody(partition_id=str(partition), value=text, seconds=60))
    await counted()
    await mine.schedules.define("s", ScheduleOptions(queue="q", every_seconds=60, data=text))
    await counted()
    await mine.workers.report("w", WorkerReport(app="x" * 10_000, hostname="h", pid=1, queues=[]))
    await counted()
    await mine.specs.apply(b'{"app": "shop", "version": 1, "queues": {}}', source="x" * 10_000)
    await counted()
    [message] = await mine.pop("q")
    await mine.ack(message, result=msgspec.json.decode(text))
    await counted()
    assert await harness.store.tenants.other_bytes(other.tenant) == 0


async def test_specs_and_schedules_are_those_of_the_tenant(harness: Harness) -> None:
    mine, other = await two(harness)
    await mine.specs.apply(b'{"app":"shop","queues":{"typed":{"options":{}}}}')
    assert [one.app for one in await mine.specs.all()] == ["shop"]
    assert await other.specs.all() == []
    assert not other.specs.compiled.queues
    assert "typed" in mine.specs.compiled.queues
    with pytest.raises(NotFound):
        await other.operations.get(UUID(uuid7()))


async def test_ticks_and_types_of_a_tenant_are_those_of_its_specs_whoever_ticks(harness: Harness) -> None:
    mine, other = await two(harness)
    await harness.broker._engine.scheduler_loop.stop()
    await mine.schedules.define("tick", ScheduleOptions(queue="q", every_seconds=10))
    harness.clock.advance(10)
    assert await harness.broker._engine.ticks.push_due() >= 1
    assert [message.data["schedule"] for message in await mine.pop("q", batch=10)] == ["tick"]
    assert await other.queues.all() == []
    with pytest.raises(NotFound):
        await other.schedules.get("tick")
    await mine.schedules.delete("tick")


async def test_another_broker_learns_of_specs_and_quotas_of_every_tenant(harness: Harness) -> None:
    mine, _ = await two(harness)
    second = (await harness.second_broker()).of(mine.tenant)
    await mine.specs.apply(b'{"app":"shop","queues":{"typed":{"options":{}}}}')
    await mine.tenants.limit(mine.tenant, Quotas(queues=1))
    await until(lambda: "typed" in second.specs.compiled.queues)
    await until(lambda: second._scope.quota.quotas == Quotas(queues=1))
    with pytest.raises(QuotaReached, match="may have 1 queues and has 1"):
        await second.push("another", 1)


async def test_a_tenant_is_made_once_and_goes_when_it_is_empty(harness: Harness) -> None:
    tenants, name = harness.store.tenants, harness.name("tenant")
    assert await tenants.make(name, Quotas(queues=3))
    assert not await tenants.make(name, Quotas())
    assert (await tenants.get(name)).quotas == Quotas(queues=3)  # type: ignore[union-attr]
    assert await tenants.limit(name, Quotas(queues=4))
    assert {one.name: one.quotas for one in await tenants.all()}[name] == Quotas(queues=4)
    broker = harness.broker.of(name)
    await broker.push("q", 1)
    await broker.specs.apply(b'{"app":"shop","queues":{"typed":{"options":{}}}}')
    with pytest.raises(Conflict, match="2 queues"):
        await tenants.delete(name)
    for queue in ("q", "typed"):
        await broker.queues.delete(queue)
    assert await tenants.delete(name)
    assert not await tenants.delete(name)
    assert not await tenants.limit(name, Quotas())
    assert await tenants.get(name) is None
    with pytest.raises(NotFound, match="no tenant"):
        await broker.push("q", 1)
    assert await tenants.make(name, Quotas())
    assert await broker.specs.all() == [], "who has the name next finds nothing"


async def test_the_default_tenant_stays(harness: Harness) -> None:
    with pytest.raises(Conflict):
        await harness.store.tenants.delete(DEFAULT_TENANT)
