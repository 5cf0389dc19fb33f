"""Flags: settings that operators change for all brokers of a store."""

from __future__ import annotations

from tests.conformance.harness import Harness


async def test_a_flag_stays_as_it_was_turned(harness: Harness) -> None:
    flags = harness.store.flags
    name = harness.name("flag")
    assert name not in await flags.enabled()
    await flags.set(name, True)
    await flags.set(name, True)
    assert name in await flags.enabled()
    await harness.reopen()
    assert name in await harness.store.flags.enabled()
    await harness.store.flags.set(name, False)
    assert name not in await harness.store.flags.enabled()


async def test_every_broker_of_a_store_sees_a_flag(harness: Harness) -> None:
    second = await harness.open_second()
    name = harness.name("flag")
    await harness.store.flags.set(name, True)
    assert name in await second.flags.enabled()
    await second.flags.set(name, False)


async def test_a_store_tells_of_its_connections_and_of_itself(harness: Harness) -> None:
    total, busy = harness.store.connections()
    assert total >= 1
    assert 0 <= busy <= total
    report = await harness.store.report()
    assert report["kind"] == harness.store.kind
    assert report["bytes"] > 0
