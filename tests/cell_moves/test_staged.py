"""Messages that programs enqueue in the home, and fan-ins, for queues of another cell."""

from __future__ import annotations

from contextlib import suppress

import asyncpg
import pytest

from fairlane.broker.broker import Broker
from fairlane.errors import Conflict, TransactionSpansCells, Unavailable
from fairlane.store.cells.move import QueueMover
from fairlane.store.postgres.store import PostgresStore
from tests.cells.conftest import Servers, Urls
from tests.faults.outages import crashed
from tests.until import until

ENQUEUE = "SELECT fairlane.enqueue($1, to_json(n)) FROM generate_series($2::int, $3::int) n"
"""Enqueues the numbers of a range, each with an id of its own."""


class Reader:
    """A consumer of one queue. `got` has the payloads of acked messages, in order."""

    def __init__(self, broker: Broker, queue: str) -> None:
        self._broker = broker
        self._queue = queue
        self.got: list[int] = []

    async def has(self, count: int) -> bool:
        with suppress(Unavailable):
            for one in await self._broker.pop(self._queue, batch=100):
                [outcome] = await self._broker.ack(one)
                self.got.extend([one.data] if outcome.success else [])
        return len(self.got) >= count


async def staged(home: PostgresStore) -> bool:
    return bool((await home.database.read("SELECT count(*) FROM fairlane.staged"))[0][0])


async def test_staged_messages_wait_for_a_cell_that_is_down_and_hold_up_no_others(
    cells: Urls, servers: Servers, home: PostgresStore
) -> None:
    app = await asyncpg.connect(cells.home)
    try:
        async with Broker.open(cells.home, retention_interval=0) as broker:
            for cell in (0, 1):
                await broker.queues.configure(f"orders-{cell}", cell=str(cell))
            here, there = Reader(broker, "orders-0"), Reader(broker, "orders-1")
            await app.execute(ENQUEUE, "orders-1", 1, 20)
            await until(lambda: there.has(20))
            async with crashed(servers.second):
                await app.execute(ENQUEUE, "orders-1", 21, 40)
                await app.execute(ENQUEUE, "orders-0", 1, 20)
                await until(lambda: here.has(20))
                assert await staged(home)
            await until(lambda: there.has(40))
            assert (here.got, there.got) == (list(range(1, 21)), list(range(1, 41)))
            assert not await staged(home)
    finally:
        await app.close()


async def test_staged_messages_are_stored_once_when_the_home_crashes_before_it_commits(
    cells: Urls, home: PostgresStore
) -> None:
    """The other cell has them already. Their ids let the second attempt store nothing."""
    app = await asyncpg.connect(cells.home)
    cut = 0
    try:
        async with Broker.open(cells.home, retention_interval=0) as broker:
            await broker.queues.configure("orders", cell="1")
            store = broker._engine.store.router.links[1].store  # type: ignore[attr-defined]
            push = store.messages.push

            async def cut_after(parts: object) -> object:
                nonlocal cut
                results = await push(parts)
                if cut < 3:
                    cut += 1
                    await app.execute(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
                        "AND pid <> pg_backend_pid() AND state = 'idle in transaction'"
                    )
                return results

            store.messages.push = cut_after
            await app.execute(ENQUEUE, "orders", 1, 50)
            reader = Reader(broker, "orders")
            await until(lambda: reader.has(50))
            await until(lambda: _empty(home))
            await broker.push("orders", 51)
            await until(lambda: reader.has(51))
            assert (cut, reader.got) == (3, list(range(1, 52)))
    finally:
        await app.close()


async def _empty(home: PostgresStore) -> bool:
    with suppress(Unavailable):
        return not await staged(home)
    return False


async def test_staged_messages_follow_a_queue_that_moves(cells: Urls, home: PostgresStore) -> None:
    app = await asyncpg.connect(cells.home)
    try:
        async with Broker.open(cells.home, retention_interval=0) as broker:
            await broker.queues.configure("orders", cell="0")
            reader = Reader(broker, "orders")
            for number, cell in enumerate((1, 0, 1)):
                await app.execute(ENQUEUE, "orders", number * 30 + 1, number * 30 + 30)
                await QueueMover(home).move("default", "orders", cell)
            await until(lambda: reader.has(90))
            assert reader.got == list(range(1, 91))
    finally:
        await app.close()


async def test_a_fan_in_of_another_cell_calls_back_once_also_after_a_crash(cells: Urls, servers: Servers) -> None:
    async with Broker.open(cells.home, retention_interval=0) as broker:
        await broker.queues.configure("parts", cell="1")
        await broker.queues.configure("done", cell="same-as parts")
        id = await broker.fan_in([("parts", n) for n in range(3)], ("done", {"report": 7}))
        reader = Reader(broker, "parts")
        await until(lambda: reader.has(1))
        async with crashed(servers.second):
            with pytest.raises(Unavailable):
                await broker.push("parts", "meanwhile")
        await until(lambda: reader.has(3))
        callbacks: list[str] = []

        async def called() -> bool:
            with suppress(Unavailable):
                for one in await broker.pop("done", batch=10):
                    await broker.ack(one)
                    callbacks.append(one.data["fanIn"])
            return bool(callbacks)

        await until(called)
        assert (await broker.pop("done", batch=10)).messages == []
        assert callbacks == [id]


async def test_a_fan_in_over_cells_is_refused_before_anything_is_done(cells: Urls) -> None:
    async with Broker.open(cells.home, retention_interval=0) as broker:
        for cell in (0, 1):
            await broker.queues.configure(f"parts-{cell}", cell=str(cell))
        for parts, then in (
            ([("parts-0", 1), ("parts-1", 2)], "parts-0"),
            ([("parts-0", 1)], "parts-1"),
        ):
            with pytest.raises(TransactionSpansCells, match=r"'parts-0' in cell 0, and queue 'parts-1' in cell 1"):
                await broker.fan_in(parts, (then, {}))
        for cell in (0, 1):
            assert not (await broker.pop(f"parts-{cell}")).messages
        assert not await broker.fan_ins.all()


async def test_a_queue_with_an_open_fan_in_over_two_queues_stays(cells: Urls, home: PostgresStore) -> None:
    async with Broker.open(cells.home, retention_interval=0) as broker:
        for queue in ("parts", "done"):
            await broker.queues.configure(queue, cell="0")
        await broker.fan_in([("parts", 1)], ("done", {}))
        with pytest.raises(Conflict, match="'parts' shares an open fan-in with 'done'"):
            await QueueMover(home).move("default", "parts", 1)
        await broker.ack(await broker.pop("parts"))
        await until(lambda: _called(broker))
        await QueueMover(home).move("default", "parts", 1)
        await broker.push("parts", 2)
        assert [one.data for one in (await broker.pop("parts")).messages] == [2]


async def _called(broker: Broker) -> bool:
    return bool((await broker.pop("done", auto_ack=True)).messages)
