"""What becomes of the rates as queues grow: partitions, a backlog, groups."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from bench.figures import Findings, Target, quotient
from bench.load import BATCH, PAYLOAD
from bench.shots import fan_shot, measured, pop_path, pop_shot, push_bodies, push_shot
from bench.stores import disk_bytes
from bench.suite import STORES, Section, Suite, ours
from bench.systems import Running
from bench.workloads import FILLERS, backlog, batch_over, push, subscribed

FEW = 100
FEW_BATCH = 10
"""Messages of one pop, and of each of many lanes."""
GROUPS = (1, 5, 10)
DISK_MORE_MAX = 150
"""Bytes that a message may take besides its payload."""
LANES_SHARE_MIN, BACKLOG_SHARE_MIN, FAN_OUT_MIN = 0.5, 0.8, 5.0
POP_FEW = pop_path(FEW_BATCH, more="&wait=true&timeout=1000")


async def run(suite: Suite) -> Findings:
    found = Findings()
    many = suite.scale.lanes
    for kind in STORES:
        await lanes(suite, kind, (FEW, many), found)
        await grown(suite, kind, found)
        await fan_out(suite, kind, found)
        system = ours(kind)
        share = found.ratio((lanes_label(many), system), (lanes_label(FEW), system))
        fan = found.ratio((groups_label(GROUPS[-1]), system), (groups_label(1), system))
        found.targets += [
            Target(f"pop of {many:,} partitions", system, share, LANES_SHARE_MIN, "x", basis=f"of that of {FEW}"),
            Target(f"{GROUPS[-1]} groups deliver", system, fan, FAN_OUT_MIN, "x", basis="what one group gets a second"),
        ]
    return found


def lanes_label(count: int) -> str:
    return f"pop {FEW_BATCH} + ack, {count:,} partition{'' if count == 1 else 's'}"


async def lanes(suite: Suite, kind: str, counts: tuple[int, ...], found: Findings) -> None:
    """The same pops of queues with so many partitions, in turns."""
    async with AsyncExitStack() as stack:
        brokers: dict[int, Running] = {}
        for count in counts:
            suite.say(f"growth, {kind}: fills {count:,} partitions")
            url = await stack.enter_async_context(suite.store(kind))
            await fill_lanes(url, count, max(suite.scale.backlog, count * FEW_BATCH))
            brokers[count] = await stack.enter_async_context(suite.broker(kind, url))
        for number in range(suite.scale.rounds):
            suite.say(f"growth, {kind}, round {number + 1}: partitions")
            for count, running in brokers.items():
                shooting = pop_shot(running.url, POP_FEW, seconds=suite.scale.seconds, stay=True)
                found.add(lanes_label(count), ours(kind), await measured(suite.meter(running), shooting))


async def fill_lanes(url: str, count: int, messages: int) -> None:
    each = min(FEW_BATCH, count)
    turns = iter(range(messages // BATCH))

    async def filler() -> None:
        for turn in turns:
            names = [f"lane-{(turn * each + number) % count}" for number in range(each)]
            assert await push(broker, batch_over(names * (BATCH // each))) == BATCH

    async with subscribed(url) as broker, asyncio.TaskGroup() as fillers:
        for _ in range(FILLERS):
            fillers.create_task(filler())


async def grown(suite: Suite, kind: str, found: Findings) -> None:
    """Pushes and pops of a queue in which nothing waits and of ones in which a lot does, in turns."""
    system, sizes = ours(kind), (0, *suite.scale.grown)
    async with AsyncExitStack() as stack:
        brokers: dict[int, Running] = {}
        disk: dict[int, int] = {}
        for size in sizes:
            suite.say(f"growth, {kind}: fills a backlog of {size:,}")
            url = await stack.enter_async_context(suite.store(kind))
            await backlog(url, size)
            disk[size] = await disk_bytes(url)
            brokers[size] = await stack.enter_async_context(suite.broker(kind, url))
        for number in range(suite.scale.rounds):
            suite.say(f"growth, {kind}, round {number + 1}: backlogs")
            for size, running in brokers.items():
                shooting = push_shot(running.url, push_bodies(BATCH, 1), seconds=suite.scale.seconds)
                found.add(size_label("push 100", size), system, await measured(suite.meter(running), shooting))
                shooting = pop_shot(running.url, pop_path(BATCH), seconds=suite.scale.seconds)
                found.add(size_label("pop 100 + ack", size), system, await measured(suite.meter(running), shooting))
    for size in sizes[1:]:
        for what in ("push 100", "pop 100 + ack"):
            share = found.ratio((size_label(what, size), system), (size_label(what, 0), system))
            label = size_label(what, size)
            found.targets.append(
                Target(label, system, share, BACKLOG_SHARE_MIN, "x", basis="of that without a backlog")
            )
    size = sizes[1]
    spread = quotient(disk[size] - disk[0], size)
    found.notes.append(f"{system}: {spread:.0f} B of disk a message where hundreds are pushed over 100 partitions.")
    size = suite.scale.backlog
    each = quotient(await disk_of_hundreds(suite, kind, size), size)
    basis = f"{size:,} messages pushed in hundreds, each to one partition, payload of {len(PAYLOAD)} B"
    bound = len(PAYLOAD) + DISK_MORE_MAX
    found.targets.append(Target("disk per message retained", system, each, bound, " B", at_most=True, basis=basis))


async def disk_of_hundreds(suite: Suite, kind: str, messages: int) -> int:
    """Bytes that so many messages take, pushed a hundred at a time to one partition after the other."""
    async with suite.store(kind) as url:
        async with subscribed(url) as broker:
            before = await disk_bytes(url)
            for turn in range(messages // BATCH):
                assert await push(broker, batch_over([f"lane-{turn % FEW}"] * BATCH)) == BATCH
        return await disk_bytes(url) - before


def size_label(what: str, size: int) -> str:
    return f"{what}, backlog of {size:,}"


def groups_label(count: int) -> str:
    return f"fan-out to {count} group{'' if count == 1 else 's'}, delivered"


async def fan_out(suite: Suite, kind: str, found: Findings) -> None:
    """Push 100, then a pop of 100 by each group, over and over; each number of groups has a queue of its own."""
    async with suite.store(kind) as url, suite.broker(kind, url) as running:
        for number in range(suite.scale.rounds):
            for count in GROUPS:
                suite.say(f"growth, {kind}, round {number + 1}: {count} groups")
                queue = f"fan-{count}"
                bodies = push_bodies(BATCH, 1, queue=queue)
                paths = [pop_path(BATCH, queue=queue, group=f"g{one}", more="&autoAck=true") for one in range(count)]
                if number == 0:
                    await fan_shot(running.url, bodies, paths, seconds=1)
                shooting = fan_shot(running.url, bodies, paths, seconds=suite.scale.seconds)
                found.add(groups_label(count), ours(kind), await measured(suite.meter(running), shooting))


GROWTH = Section(
    "growth",
    "Growth",
    "A broker process, wrk with 64 connections, 98-byte payloads. Partitions: pops of up to 10 messages of one "
    "partition that wait for their turn, then the ack, with the same pops of queues that differ in their partitions. "
    "Backlog: 100 partitions; both queues are measured in turns. Fan-out: the connections push 100 to one partition "
    "and then pop 100 for each group, with auto-ack, over and over; what all groups together got counts. All cores are "
    "busy then: by the CPU of each, ten groups get ten times (push + pop) / (push + ten pops) of what one gets.",
    run,
)
