"""Moves whose process is killed, and moves while a server crashes: another process finishes or undoes them."""

from __future__ import annotations

import signal
from contextlib import suppress

import pytest

from fairlane.broker.broker import Broker
from fairlane.errors import Conflict, FairlaneError, Unavailable
from fairlane.store.cells.move import QueueMover, moves
from fairlane.store.postgres.store import PostgresStore
from tests.cell_moves.machine import LEFT, STEPS, killed_move
from tests.cells.conftest import Servers, Urls
from tests.cells.queue_rows import cells_with
from tests.cells.traffic import LANES, Traffic
from tests.faults.outages import revive
from tests.until import until


@pytest.mark.parametrize("step", STEPS)
async def test_a_killed_move_is_finished_or_undone_under_load(cells: Urls, home: PostgresStore, step: str) -> None:
    """Every message is delivered once, in order."""
    async with Broker.open(cells.home) as one, Broker.open(cells.home) as other:
        await one.queues.configure("orders", cell="0")
        traffic = Traffic([one, other], "orders")
        async with traffic:
            await traffic.some()
            await killed_move(cells.home, "orders", 1, step)
            if STEPS.index(step) < LEFT:
                await QueueMover(home).abort("default", "orders")
                assert await cells_with(home, "orders") == [0]
                await traffic.some()
                await killed_move(cells.home, "orders", 1, step)
            with pytest.raises(Conflict, match="name that cell to finish"):
                await QueueMover(home).move("default", "orders", 0)
            await QueueMover(home).move("default", "orders", 1)
            assert await cells_with(home, "orders") == [1]
            assert await moves(home) == []
            await traffic.some()
        await traffic.finish()


@pytest.mark.parametrize("down", ["home", "second"])
async def test_a_move_survives_the_crash_of_a_server(cells: Urls, servers: Servers, down: str) -> None:
    """Before the switch, after it, and between the two commits that decide."""
    for number, last in enumerate(("target taken", "delivered", "departed", "arrived")):
        queue = f"orders-{number}"
        async with Broker.open(cells.home, retention_interval=0) as broker:
            await broker.queues.configure(queue, cell="0")
            for payload in range(30):
                await broker.push(queue, payload, partition=LANES[payload % 3])

            async def crash(step: str, last: str = last) -> None:
                if step == last:
                    getattr(servers, down).stop(signal.SIGQUIT)

            async with await PostgresStore.open(cells.home) as home:
                try:
                    with pytest.raises(FairlaneError):
                        await QueueMover(home, reached=crash).move("default", queue, 1)
                finally:
                    await revive(getattr(servers, down))
            async with await PostgresStore.open(cells.home) as home:
                await QueueMover(home).move("default", queue, 1)
                assert await cells_with(home, queue) == [1]
            got: list[int] = []

            async def all_read(queue: str = queue, got: list[int] = got) -> bool:
                with suppress(Unavailable):
                    for one in await broker.pop(queue, batch=10):
                        [outcome] = await broker.ack(one)
                        got.extend([one.data] if outcome.success else [])
                return len(got) == 30

            await until(all_read)
            assert sorted(got) == list(range(30))


async def test_dead_letters_for_a_queue_on_its_way_hold_up_no_others(cells: Urls, home: PostgresStore) -> None:
    async with Broker.open(cells.home, retention_interval=0) as broker:
        for name in ("orders", "mails"):
            await broker.queues.configure(name, cell="0", dead_letter_queue=f"{name}-failed")
        await killed_move(cells.home, "orders-failed", 1, "departed")
        for name in ("orders", "mails"):
            await broker.push(name, name)
            await broker.ack(await broker.pop(name), "dlq")
        assert len(await broker.pop("mails-failed", wait=30)) == 1
        await QueueMover(home).move("default", "orders-failed", 1)
        await QueueMover(home).move("default", "orders", 1)
        assert len(await broker.pop("orders-failed", wait=30)) == 1
