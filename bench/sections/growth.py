"""Rates of large queues beside small ones: many partitions, a long backlog, many groups."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from bench.load import BATCH, PAYLOAD
from bench.results import Comparison, Results, quotient
from bench.sections.cells import cells, move
from bench.stores import disk_bytes
from bench.suite import STORES, Section, Suite, ours
from bench.systems import Running
from bench.workloads import FILLERS, backlog, batch_over, push, subscribed
from bench.wrk import fan_out_load, measured, pop_load, pop_path, push_bodies, push_load

FEW = 100
FEW_BATCH = 10
"""Messages per pop, and per partition of a queue with many."""
FEW_RATE_MAX = 150_000
"""More messages per second than these pops can take."""
GROUPS = (1, 5, 10)
POP_FEW = pop_path(FEW_BATCH, more="&wait=true&timeout=1000")


async def run(suite: Suite) -> Results:
    results = Results()
    many = suite.scale.partitions
    for kind in STORES:
        await partitions(suite, kind, (FEW, many), results)
        await backlogs(suite, kind, results)
        await fan_out(suite, kind, results)
        await disk_usage(suite, kind, results)
        for label, against in (
            (partitions_label(many), partitions_label(FEW)),
            *(
                (backlog_label(what, size), backlog_label(what, 0))
                for what in ("push 100", "pop 100 + ack")
                for size in suite.scale.grown
            ),
            (groups_label(GROUPS[-1]), groups_label(1)),
        ):
            value = results.ratio((label, ours(kind)), (against, ours(kind)))
            results.comparisons.append(Comparison(label, ours(kind), value, f"rate of: {against}"))
    await cells(suite, results)
    await move(suite, results)
    return results


def partitions_label(count: int) -> str:
    return f"pop {FEW_BATCH} + ack, {count:,} partitions"


def backlog_label(what: str, size: int) -> str:
    return f"{what}, backlog of {size:,}"


def groups_label(count: int) -> str:
    return f"fan-out to {count} group{'' if count == 1 else 's'}"


async def partitions(suite: Suite, kind: str, counts: tuple[int, ...], results: Results) -> None:
    """Measure the same pops on queues with this many partitions, in turns."""
    read = suite.scale.rounds * suite.scale.seconds * FEW_RATE_MAX  # the last round must find messages, too
    async with AsyncExitStack() as stack:
        brokers: dict[int, Running] = {}
        for count in counts:
            await suite.turn(f"growth, {kind}: fills {count:,} partitions")
            url = await stack.enter_async_context(suite.store(kind))
            await fill_partitions(url, count, max(read, suite.scale.partitions * FEW_BATCH))
            brokers[count] = await stack.enter_async_context(suite.broker(kind, url))
        for number in range(suite.scale.rounds):
            await suite.turn(f"growth, round {number + 1}: partitions, {kind}")
            for count, running in brokers.items():
                load = pop_load(running.url, POP_FEW, seconds=suite.scale.seconds, stay=True)
                results.add(partitions_label(count), ours(kind), await measured(suite.meter(running), load))


async def fill_partitions(url: str, count: int, messages: int) -> None:
    each = min(FEW_BATCH, count)
    calls = iter(range(messages // BATCH))

    async def filler() -> None:
        for call in calls:
            names = [f"lane-{(call * each + number) % count}" for number in range(each)]
            assert await push(broker, batch_over(names * (BATCH // each))) == BATCH

    async with subscribed(url) as broker, asyncio.TaskGroup() as fillers:
        for _ in range(FILLERS):
            fillers.create_task(filler())


async def backlogs(suite: Suite, kind: str, results: Results) -> None:
    """Measure pushes and pops of an empty queue and of queues with a backlog, in turns."""
    async with AsyncExitStack() as stack:
        brokers: dict[int, Running] = {}
        for size in (0, *suite.scale.grown):
            await suite.turn(f"growth, {kind}: fills a backlog of {size:,}")
            url = await stack.enter_async_context(suite.store(kind))
            await backlog(url, size)
            brokers[size] = await stack.enter_async_context(suite.broker(kind, url))
        for number in range(suite.scale.rounds):
            await suite.turn(f"growth, round {number + 1}: backlogs, {kind}")
            for size, running in brokers.items():
                load = push_load(running.url, push_bodies(BATCH, 1), seconds=suite.scale.seconds)
                results.add(backlog_label("push 100", size), ours(kind), await measured(suite.meter(running), load))
                load = pop_load(running.url, pop_path(BATCH), seconds=suite.scale.seconds)
                label = backlog_label("pop 100 + ack", size)
                results.add(label, ours(kind), await measured(suite.meter(running), load))


async def fan_out(suite: Suite, kind: str, results: Results) -> None:
    """Push 100 messages and pop them in each group, over and over. Each number of groups has its own queue."""
    async with suite.store(kind) as url, suite.broker(kind, url) as running:
        for number in range(suite.scale.rounds):
            await suite.turn(f"growth, round {number + 1}: groups, {kind}")
            for count in GROUPS:
                queue = f"fan-{count}"
                bodies = push_bodies(BATCH, 1, queue=queue)
                paths = [pop_path(BATCH, queue=queue, group=f"g{one}", more="&autoAck=true") for one in range(count)]
                if number == 0:
                    await fan_out_load(running.url, bodies, paths, seconds=1)
                load = fan_out_load(running.url, bodies, paths, seconds=suite.scale.seconds)
                results.add(groups_label(count), ours(kind), await measured(suite.meter(running), load))


async def disk_usage(suite: Suite, kind: str, results: Results) -> None:
    """Measure the disk space of a message when batches of 100 are pushed to one partition each."""
    messages = suite.scale.backlog
    await suite.turn(f"growth, {kind}: disk usage")
    async with suite.store(kind) as url:
        async with subscribed(url) as broker:
            before = await disk_bytes(url)
            for call in range(messages // BATCH):
                assert await push(broker, batch_over([f"lane-{call % FEW}"] * BATCH)) == BATCH
        each = quotient(await disk_bytes(url) - before, messages)
    basis = f"payload of {len(PAYLOAD)} bytes, {messages:,} messages"
    results.comparisons.append(Comparison("disk space per message", ours(kind), each, basis, " bytes"))


GROWTH = Section(
    "growth",
    "Growth",
    "A broker process, wrk with 64 connections, 98-byte payloads. Partitions: pops of up to 10 messages from one "
    "partition that wait for messages, then the ack. Backlog: 100 partitions. Fan-out: each connection pushes 100 "
    "messages to one partition, then pops 100 with auto-ack in each group, over and over. The rate counts the messages "
    "that all groups received. All cores are busy in that workload. Cells: the broker in this process, 4 queues of 100 "
    "partitions in each cell, batches of 100, a server for each cell; the CPU is that of all servers.",
    run,
)
