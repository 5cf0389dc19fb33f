"""A cell that is down affects its own queues only."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from fairlane.broker.broker import Broker
from fairlane.errors import FairlaneError, Unavailable
from fairlane.model.message import PushItem
from fairlane.model.outcome import PushOutcome
from fairlane.store.cells.cluster import status
from fairlane.store.postgres.store import PostgresStore
from fairlane.wire.schedules import ScheduleOptions
from tests.cells.conftest import Servers, Urls
from tests.faults.outages import crashed, frozen, revive
from tests.until import until


async def works(broker: Broker, queue: str, data: object) -> bool:
    """Push, pop and ack one message. Returns False while the store refuses it."""
    try:
        if (await broker.push(queue, data, transaction_id=f"{queue} {data}")).status == "buffered":
            return False
        while batch := (await broker.pop(queue, batch=100)).messages:
            await broker.ack(batch)
            if data in [one.data for one in batch]:
                return True
        return True
    except Unavailable:
        return False


@pytest.mark.parametrize("down", ["home", "second"])
async def test_queues_of_other_cells_go_on_while_a_cell_is_down(cells: Urls, servers: Servers, down: str) -> None:
    lost, left = ("orders-0", "orders-1") if down == "home" else ("orders-1", "orders-0")
    async with Broker.open(cells.home, retention_interval=0) as broker:
        for cell in (0, 1):
            await broker.queues.configure(f"orders-{cell}", cell=str(cell))
            assert await works(broker, f"orders-{cell}", "before")
        async with crashed(getattr(servers, down)):
            await until(lambda: works(broker, left, "at first"))
            for number in range(20):
                assert await works(broker, left, number), "only the first call after the crash may fail"
                with pytest.raises(Unavailable):
                    await broker.push(lost, number, transaction_id=f"lost {number}")
        await until(lambda: works(broker, lost, "again"))
        assert await works(broker, left, "after")


@pytest.mark.parametrize("down", ["home", "second"])
async def test_queues_of_other_cells_go_on_while_a_cell_is_frozen(cells: Urls, servers: Servers, down: str) -> None:
    """It holds its connections and answers nothing, so calls in flight must be ended, too."""
    lost, left = ("orders-0", "orders-1") if down == "home" else ("orders-1", "orders-0")
    async with Broker.open(cells.home, retention_interval=0) as broker:
        for cell in (0, 1):
            await broker.queues.configure(f"orders-{cell}", cell=str(cell))
            assert await works(broker, f"orders-{cell}", "before")
        with frozen(getattr(servers, down)):
            waiting = [asyncio.create_task(works(broker, lost, number)) for number in range(20)]
            for number in range(20):
                await until(lambda number=number: works(broker, left, number))  # type: ignore[misc]
            assert not any(await asyncio.gather(*waiting))
        await until(lambda: works(broker, lost, "again"))


@pytest.mark.parametrize("down", ["home", "second"])
async def test_pushes_for_a_cell_that_is_down_go_to_the_journal_and_arrive_in_order(
    cells: Urls, servers: Servers, tmp_path: Path, down: str
) -> None:
    lost, left = ("orders-0", "orders-1") if down == "home" else ("orders-1", "orders-0")
    async with Broker.open(cells.home, journal=str(tmp_path), retention_interval=0) as broker:
        for cell in (0, 1):
            await broker.queues.configure(f"orders-{cell}", cell=str(cell))
            await broker.push(f"orders-{cell}", -1)
        async with crashed(getattr(servers, down)):
            for number in range(10):
                outcome = await broker.push(lost, number)
                assert outcome.status in ("buffered", "queued"), outcome
            await until(lambda: works(broker, left, "meanwhile"))
        arrived: list[int] = []

        async def all_arrived() -> bool:
            try:
                batch = (await broker.pop(lost, batch=100)).messages
                if batch:
                    await broker.ack(batch)
            except Unavailable:
                return False
            arrived.extend(one.data for one in batch)
            return len(arrived) >= 11

        await until(all_arrived)
        assert arrived == list(range(-1, 10))


async def test_a_broker_starts_without_a_cell_and_finds_it_later(cells: Urls, servers: Servers) -> None:
    async with Broker.open(cells.home) as broker:
        for cell in (0, 1):
            await broker.queues.configure(f"orders-{cell}", cell=str(cell))
    async with crashed(servers.second):
        broker_context = Broker.open(cells.home)
        broker = await broker_context.__aenter__()
        assert await works(broker, "orders-0", 1)
        with pytest.raises(FairlaneError):
            await broker.push("orders-1", 1)
        assert (await broker.push("new", 1)).status == "queued", "new queues go to a cell that is there"
        async with await PostgresStore.open(cells.home) as home:
            first, second = await status(home)
        assert first.size is not None
        assert (second.size, bool(second.error)) == (None, True)
    try:
        await until(lambda: works(broker, "orders-1", 2))
    finally:
        await broker_context.__aexit__(None, None, None)


async def test_an_unknown_outcome_in_one_cell_stores_nothing_twice_in_another(cells: Urls, servers: Servers) -> None:
    """One flush holds messages of both cells, again and again while one of them crashes."""
    async with Broker.open(cells.home, retention_interval=0) as broker:
        for cell in (0, 1):
            await broker.queues.configure(f"orders-{cell}", cell=str(cell))
        stored: list[int] = []
        number = 0

        async def push_both() -> None:
            nonlocal number
            number += 1
            items = [item_of(f"orders-{cell}", number) for cell in (0, 1)]
            outcomes: Sequence[PushOutcome]
            try:
                outcomes = await broker.push_many(items)
            except Unavailable:
                outcomes = await retried(broker, items[0])
            if outcomes[0].status in ("queued", "duplicate"):
                stored.append(number)

        for _ in range(5):
            await push_both()
        servers.second.stop(signal.SIGQUIT)
        try:
            for _ in range(5):
                await push_both()
        finally:
            await revive(servers.second)
        got: list[int] = []
        while batch := (await broker.pop("orders-0", batch=100)).messages:
            got += [one.data for one in batch]
            await broker.ack(batch)
        assert got == stored == list(range(1, 11))


def item_of(queue: str, number: int) -> PushItem:
    return PushItem(queue=queue, payload=msgspec.json.encode(number), transaction_id=f"{queue} {number}")


async def retried(broker: Broker, item: PushItem) -> Sequence[PushOutcome]:
    """Push one message until it is stored."""
    while True:
        try:
            return await broker.push_many([item])
        except Unavailable:
            continue


@pytest.mark.parametrize("down", ["home", "second"])
async def test_fan_ins_of_other_cells_call_back_while_a_cell_is_down(cells: Urls, servers: Servers, down: str) -> None:
    left = "0" if down == "second" else "1"
    async with Broker.open(cells.home, retention_interval=0) as broker:
        await broker.queues.configure("parts", cell=left)
        await broker.queues.configure("done", cell="same-as parts")
        id = await broker.fan_in([("parts", 1)], ("done", None))
        batch = await broker.pop("parts")
        async with crashed(getattr(servers, down)):
            await until(lambda: works(broker, "parts", "at first"))
            await broker.ack(batch, check=False)

            async def called() -> bool:
                with contextlib.suppress(Unavailable):
                    return [one.data["fanIn"] for one in await broker.pop("done", auto_ack=True)] == [id]
                return False

            await until(called)


async def test_schedules_of_other_cells_tick_while_a_cell_is_down(cells: Urls, servers: Servers) -> None:
    async with Broker.open(cells.home, retention_interval=0) as broker:
        for cell in (1, 0):
            await broker.queues.configure(f"orders-{cell}", cell=str(cell))
            await broker.schedules.define(
                f"tick-{cell}", ScheduleOptions(queue=f"orders-{cell}", every_seconds=1, missed="all")
            )

        async def ticked(cell: int) -> bool:
            with contextlib.suppress(Unavailable):
                return bool(await broker.pop(f"orders-{cell}", auto_ack=True, batch=100))
            return False

        await until(lambda: ticked(0))
        async with crashed(servers.second):
            for _ in range(3):
                await until(lambda: ticked(0))
        await until(lambda: ticked(1))
