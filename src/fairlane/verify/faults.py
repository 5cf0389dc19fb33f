"""The faults of brokers, clients and connections. Importing this module registers them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal

from fairlane.verify.nemesis import FaultTargets, fault
from fairlane.verify.proxy import LinkFaults
from fairlane.verify.rules import LEASE_SECONDS

CLOCK_STEPS_SECONDS = (-3600, -600, -60, -5, 5, 60, 600, 3600)
CALLS_MAX = 200
"""Calls before a broker is killed or its disk fails, at most."""
DIES_SECONDS_MAX = 5.0


@fault()
async def kill_broker(on: FaultTargets) -> None:
    """Kill a broker with SIGKILL, and start it again at once."""
    broker = on.broker()
    await broker.kill()
    await broker.start()


@fault()
async def stop_broker(on: FaultTargets) -> None:
    """Stop a broker with SIGTERM while it has requests, and start it again."""
    broker = on.broker()
    await broker.stop()
    await on.wait(2.0)
    await broker.start()


@fault()
async def kill_all_brokers(on: FaultTargets) -> None:
    """Kill all brokers at once, and start them again one after the other."""
    await asyncio.gather(*(broker.kill() for broker in on.brokers))
    for broker in on.brokers:
        await broker.start()


@fault()
async def freeze_broker(on: FaultTargets) -> None:
    """Freeze a broker for up to 5 s: it keeps its connections, and its caches get old."""
    broker = on.broker()
    broker.signal(signal.SIGSTOP)
    try:
        await on.wait()
    finally:
        broker.signal(signal.SIGCONT)


@fault()
async def freeze_clients(on: FaultTargets) -> None:
    """Freeze consumers past the end of their leases. Afterwards they ack with the old leases, as zombies."""
    pid = on.random.choice(on.clients.pids)
    os.kill(pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(LEASE_SECONDS * on.random.uniform(1.0, 2.0))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


@fault()
async def kill_clients(on: FaultTargets) -> None:
    """Kill a process of clients with SIGKILL. Its requests are in flight, and its leases run out."""
    await on.clients.replace(on.random.randrange(len(on.clients.pids)))


@fault()
async def drop_answers(on: FaultTargets) -> None:
    """Forward every request and drop its answer, so that clients repeat what was applied."""
    chosen = on.fronts if on.random.random() < 0.3 else [on.random.choice(on.fronts)]
    for proxy in chosen:
        proxy.inject(LinkFaults(drop_answers=on.random.choice([0.3, 1.0])))
    await on.wait()
    for proxy in chosen:
        proxy.heal()


@fault()
async def reset_connections(on: FaultTargets) -> None:
    """Reset the connections of clients in the middle of requests and answers."""
    for proxy in on.fronts:
        proxy.inject(LinkFaults(resets=0.2))
    await on.wait()
    for proxy in on.fronts:
        proxy.heal()
        proxy.cut()


@fault()
async def slow_network(on: FaultTargets) -> None:
    """Delay everything between a broker and its clients by up to 2 s, or let it drip."""
    proxy = on.random.choice(on.fronts)
    proxy.inject(LinkFaults(delay_seconds=on.random.choice([0.1, 0.5, 2.0]), drip=on.random.random() < 0.3))
    await on.wait()
    proxy.heal()


@fault()
async def black_hole(on: FaultTargets) -> None:
    """Keep the connections to a broker open and forward nothing, so that clients run into timeouts."""
    proxy = on.random.choice(on.fronts)
    proxy.inject(LinkFaults(black_hole=True))
    await on.wait(12.0)
    proxy.heal()


@fault("preload")
async def fill_disk_of_broker(on: FaultTargets) -> None:
    """Fill the disk of a broker, which holds its journal, and the store if that is a file."""
    preload = on.random.choice(on.libraries).preload
    preload.fill_disk(True)
    await on.wait()
    preload.fill_disk(False)


@fault("preload")
async def step_clock_of_broker(on: FaultTargets) -> None:
    """Step the clock of a broker by up to an hour in either direction, and back."""
    preload = on.random.choice(on.libraries).preload
    preload.step_clock(on.random.choice(CLOCK_STEPS_SECONDS))
    await on.wait()
    preload.step_clock(0)


@fault("preload")
async def kill_broker_at_call(on: FaultTargets) -> None:
    """Kill a broker exactly before its nth write, sync or answer."""
    number = on.random.randrange(len(on.brokers))
    broker, preload = on.brokers[number], on.libraries[number].preload
    preload.kill_at(on.random.randint(1, CALLS_MAX))
    for _ in range(int(DIES_SECONDS_MAX / 0.05)):
        if not broker.running:
            break
        await asyncio.sleep(0.05)
    preload.heal()
    await broker.kill()
    await broker.start()


@fault("preload")
async def fail_disk_of_broker(on: FaultTargets) -> None:
    """Fail writes and syncs of a broker with EIO, and start it again as its log asks for."""
    number = on.random.randrange(len(on.brokers))
    broker, preload = on.brokers[number], on.libraries[number].preload
    preload.fail_at(on.random.randint(1, CALLS_MAX), on.random.choice([1, 1, 3, 1000]))
    await on.wait()
    preload.heal()
    # After a failed commit a file is not written any more until the broker is started again.
    await on.random.choice([broker.kill, broker.stop])()
    await broker.start()


@fault("disk")
async def cut_power_of_broker(on: FaultTargets) -> None:
    """Cut the power of a broker: writes that it had not synced are lost, torn or kept at random."""
    number = on.random.randrange(len(on.brokers))
    libraries = on.libraries[number]
    if on.random.random() < 0.5:  # just before or after a write, a sync or an answer
        libraries.preload.kill_at(on.random.randint(1, CALLS_MAX))
        await on.wait(1.0)
        libraries.preload.heal()
    await on.brokers[number].kill()
    await asyncio.to_thread(libraries.disk.cut, on.random)
    await on.brokers[number].start()
