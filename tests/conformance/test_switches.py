"""Switches: what operators turned on, for all brokers of a store."""

from __future__ import annotations

from tests.conformance.harness import Harness


async def test_a_switch_stays_as_it_was_turned(harness: Harness) -> None:
    switches = harness.store.switches
    name = harness.name("switch")
    assert name not in await switches.on()
    await switches.turn(name, True)
    await switches.turn(name, True)
    assert name in await switches.on()
    await harness.reopen()
    assert name in await harness.store.switches.on()
    await harness.store.switches.turn(name, False)
    assert name not in await harness.store.switches.on()


async def test_every_broker_of_a_store_sees_a_switch(harness: Harness) -> None:
    second = await harness.open_second()
    name = harness.name("switch")
    await harness.store.switches.turn(name, True)
    assert name in await second.switches.on()
    await second.switches.turn(name, False)


async def test_a_store_tells_of_its_connections_and_of_itself(harness: Harness) -> None:
    total, busy = harness.store.connections()
    assert total >= 1
    assert 0 <= busy <= total
    report = await harness.store.report()
    assert report["kind"] == harness.store.kind
    assert report["bytes"] > 0
