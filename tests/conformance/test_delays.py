"""Delayed processing and windows: stored messages that are not delivered yet, in order, without blocking others."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.conformance.harness import Harness


async def test_a_delayed_message_is_invisible_until_its_delay_has_passed_and_not_longer(harness: Harness) -> None:
    queue = await harness.queue(delay_seconds=5)
    await harness.push(queue, ["late"])
    assert not await harness.pop(queue)
    harness.clock.advance(4.999)
    assert not await harness.pop(queue)
    harness.clock.advance(0.001)
    assert (await harness.pop(queue)).data == ["late"]


async def test_a_delay_holds_back_nothing_that_came_before(harness: Harness) -> None:
    queue = await harness.queue(delay_seconds=5)
    await harness.push(queue, [0, 1])
    harness.clock.advance(3)
    await harness.push(queue, [2])
    harness.clock.advance(2)
    first = await harness.pop(queue)
    assert first.data == [0, 1], "what is old enough comes alone"
    await harness.ack(first)
    assert not await harness.pop(queue)
    harness.clock.advance(3)
    assert (await harness.pop(queue)).data == [2]


async def test_a_delayed_lane_stands_in_nobodys_way(harness: Harness) -> None:
    queue = await harness.queue(delay_seconds=5)
    partitions = await harness.neighbours(queue, 12)
    old = partitions[-1]
    await harness.push(queue, ["old"], partition=old.name)
    harness.clock.advance(5)
    for partition in partitions[:-1]:
        await harness.push(queue, ["fresh"], partition=partition.name)
    assert (await harness.pop(queue)).data == ["old"]
    assert not await harness.pop(queue, partitions=10, batch=100)


async def test_a_pop_that_finds_only_delayed_lanes_says_when_the_first_is_due(harness: Harness) -> None:
    queue = await harness.queue(delay_seconds=5)
    stored = await harness.push(queue, ["late"])
    assert (await harness.pop(queue)).next_at == stored.created_at + 5_000_000


async def test_a_window_gives_a_lane_when_its_newest_message_is_old_enough_and_then_all_of_it(harness: Harness) -> None:
    queue = await harness.queue(window_seconds=2)
    await harness.push(queue, [0])
    harness.clock.advance(1.5)
    await harness.push(queue, [1, 2])
    harness.clock.advance(1.5)
    assert not await harness.pop(queue), "the newest came 1.5 s ago"
    harness.clock.advance(0.5)
    assert (await harness.pop(queue)).data == [0, 1, 2]


async def test_a_window_holds_its_own_lane_and_no_other(harness: Harness) -> None:
    queue = await harness.queue(window_seconds=2)
    await harness.push(queue, ["quiet"], partition="quiet")
    harness.clock.advance(2)
    await harness.push(queue, ["busy"], partition="busy")
    assert await harness.drain(queue) == ["quiet"]


async def test_one_lane_asked_for_by_name_is_held_back_too(harness: Harness) -> None:
    for option in ("delay_seconds", "window_seconds"):
        queue = await harness.queue(**{option: 2})
        partition = await harness.partition(queue)
        await harness.push(queue, [0])
        assert not await harness.pop(queue, partition=partition.id), option
        harness.clock.advance(2)
        assert await harness.pop(queue, partition=partition.id), option


async def test_an_option_taken_back_frees_what_it_held(harness: Harness) -> None:
    queue = await harness.queue(delay_seconds=3600)
    await harness.push(queue, [0])
    assert not await harness.pop(queue)
    await harness.configure(queue)
    assert (await harness.pop(queue)).data == [0]


@pytest.mark.parametrize("option", ["delay_seconds", "window_seconds"])
@pytest.mark.parametrize("trouble", ["failed", "deleted"])
async def test_an_option_taken_back_frees_a_lane_that_had_trouble(harness: Harness, option: str, trouble: str) -> None:
    queue = await harness.queue()
    group = await harness.group(queue)
    partition = await harness.partition(queue)
    await harness.push(queue, [0, 1, 2])
    if trouble == "failed":
        await harness.nack(await harness.pop(queue, group))
    else:
        assert await harness.store.browse.delete(partition.id, 1)
    await harness.configure(queue, **{option: 86_400})
    assert not await harness.pop(queue, group)
    await harness.configure(queue, **{option: 90_000})
    await harness.configure(queue)
    assert await harness.drain(queue, group) == ([0, 1, 2] if trouble == "failed" else [0, 2])


@pytest.mark.parametrize("option", ["delay_seconds", "window_seconds"])
@pytest.mark.parametrize("charge", [True, False], ids=["failed", "put_off"])
async def test_an_option_taken_back_leaves_the_sleep_that_a_consumer_asked_for(
    harness: Harness, option: str, charge: bool
) -> None:
    queue = await harness.queue(**{option: 60})
    group = await harness.group(queue)
    await harness.push(queue, [0])
    harness.clock.advance(60)
    await harness.nack(await harness.pop(queue, group), charge=charge, delay_ms=10_000)
    await harness.configure(queue)
    assert not await harness.pop(queue, group)
    harness.clock.advance(10)
    assert (await harness.pop(queue, group)).data == [0]


@pytest.mark.usefixtures("only_when_told")
async def test_a_long_poll_gets_a_delayed_message_when_it_is_due(harness: Harness) -> None:
    await harness.reopen(own_clock=True)
    broker = harness.broker
    name = harness.name("delayed")
    await broker.queues.configure(name, delay_seconds=1)
    poll = asyncio.create_task(broker.pop(name, wait=20))
    began = time.monotonic()
    await broker.push(name, "late")
    batch = await poll
    assert [delivery.data for delivery in batch] == ["late"]
    assert time.monotonic() - began >= 0.9
