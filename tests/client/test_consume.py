"""The consume loop: order, verdicts, renewal, and how it ends."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, defaultdict
from typing import Any

import msgspec
import pytest

from fairlane import Client, InvalidRequest, Message, PushItem
from fairlane.client import Batch, Batched, Dead, Done, Fail, Retry, Verdict
from tests.client.rogue import Answer, Drop, Rogue

RENEW = "/api/v1/lease/"
AWAY = Answer(503, {"error": "away", "code": "store_unavailable"})


async def fill(client: Client, queue: str, count: int, *, partitions: int = 1) -> None:
    items = [PushItem(queue=queue, payload=b"%d" % n, partition=f"p{n % partitions}") for n in range(count)]
    await client.push_many(items)


async def test_every_message_is_handled_once_and_each_lane_in_order(client: Client, queue: str) -> None:
    await fill(client, queue, 200, partitions=7)
    seen: defaultdict[str, list[int]] = defaultdict(list)

    async def handle(message: Message[int]) -> None:
        seen[message.partition].append(message.data)
        await asyncio.sleep(0)

    assert await client.consume(queue, handle, type=int, batch=10, concurrency=5, idle_seconds=0.2) == 200
    assert len(seen) == 7
    assert all(values == sorted(values) for values in seen.values())
    assert sum(map(len, seen.values())) == 200
    assert not await client.pop(queue)


async def test_lanes_are_handled_beside_each_other_up_to_the_concurrency(client: Client, queue: str) -> None:
    await fill(client, queue, 6, partitions=6)
    running, most = 0, 0
    all_here = asyncio.Event()

    async def handle(message: Message[int]) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 3:
            all_here.set()
        async with asyncio.timeout(10):
            await all_here.wait()
        running -= 1

    assert await client.consume(queue, handle, concurrency=3, limit=6) == 6
    assert most == 3


async def test_a_slow_lane_does_not_delay_another(client: Client, queue: str) -> None:
    await fill(client, queue, 20, partitions=2)
    finished = asyncio.Event()
    fast: list[int] = []

    async def handle(message: Message[int]) -> None:
        if message.partition == "p0":
            await finished.wait()
        else:
            fast.append(message.data)
            if len(fast) == 10:
                finished.set()

    async with asyncio.timeout(20):
        assert await client.consume(queue, handle, type=int, batch=5, concurrency=2, limit=20) == 20
    assert fast == list(range(1, 20, 2))


async def test_a_message_whose_handler_fails_comes_again_before_those_behind_it(client: Client, queue: str) -> None:
    await fill(client, queue, 5)
    seen: list[int] = []

    async def handle(message: Message[int]) -> None:
        seen.append(message.data)
        if message.data == 2 and seen.count(2) < 3:
            raise ValueError("not yet")

    consumer = client.consumer(queue, handle, type=int, batch=5, idle_seconds=0.2)
    assert await consumer.run() == 7
    assert consumer.failed == 2
    assert seen == [0, 1, 2, 2, 2, 3, 4]


async def test_a_message_that_always_fails_becomes_a_dead_letter_with_its_error(client: Client, queue: str) -> None:
    await client.queues.configure(queue, retry_limit=1)
    await fill(client, queue, 3)
    seen: list[int] = []

    async def handle(message: Message[int]) -> None:
        seen.append(message.data)
        if message.data == 1:
            raise RuntimeError("hopeless")

    await client.consume(queue, handle, type=int, batch=3, idle_seconds=0.2)
    assert seen == [0, 1, 1, 2]
    [letter] = await client.dead_letters.page(queue)
    assert (letter.data, letter.error) == (1, "RuntimeError: hopeless")


async def test_what_does_not_fit_the_type_is_a_failed_attempt(client: Client, queue: str) -> None:
    await client.queues.configure(queue, retry_limit=0)
    await client.push_many([PushItem(queue=queue, payload=payload) for payload in (b"1", b'"two"', b"3")])
    seen: list[int] = []
    await client.consume(queue, lambda message: seen.append(message.data), type=int, idle_seconds=0.2)
    assert seen == [1, 3]
    [letter] = await client.dead_letters.page(queue)
    assert "Expected `int`, got `str`" in (letter.error or "")


@pytest.mark.parametrize(
    ("verdict", "deliveries", "dead"),
    [
        (None, 1, None),
        (Done({"sum": 3}), 1, None),
        (Dead("never"), 1, "never"),
        (Fail("no", after=0), 2, "no"),
        (Retry(after=0), 4, "no"),
    ],
)
async def test_a_handler_says_what_becomes_of_its_message(
    client: Client, queue: str, verdict: Verdict | None, deliveries: int, dead: str | None
) -> None:
    """Retries are not counted, so only the fourth delivery, which fails, may end the message."""
    await client.queues.configure(queue, retry_limit=1)
    await fill(client, queue, 1)
    given = 0

    async def handle(message: Message[int]) -> Verdict | None:
        nonlocal given
        given += 1
        return Dead("no") if isinstance(verdict, Retry) and given == 4 else verdict

    await client.consume(queue, handle, idle_seconds=0.2)
    assert given == deliveries
    assert [letter.error for letter in await client.dead_letters.page(queue)] == ([dead] if dead else [])


async def test_a_delay_that_a_handler_asks_for_is_kept(client: Client, queue: str) -> None:
    await fill(client, queue, 1)
    times: list[float] = []

    async def handle(message: Message[int]) -> Verdict | None:
        times.append(asyncio.get_running_loop().time())
        return Retry(after=0.3) if len(times) == 1 else None

    await client.consume(queue, handle, limit=2)
    assert times[1] - times[0] >= 0.25


async def test_a_batch_is_handled_whole_and_answered_by_message(client: Client, queue: str) -> None:
    await client.queues.configure(queue, retry_limit=0)
    await fill(client, queue, 4)
    sizes: list[int] = []

    async def handle(batch: Batch[int]) -> list[Verdict | None]:
        sizes.append(len(batch))
        return [Fail("odd") if message.data == 1 else None for message in batch]

    await client.consume(queue, Batched(handle), type=int, batch=4, idle_seconds=0.2)
    assert sizes == [4, 2]
    assert [letter.data for letter in await client.dead_letters.page(queue)] == [1]


async def test_a_batch_handler_that_raises_or_miscounts_fails_the_first(client: Client, queue: str) -> None:
    await client.queues.configure(queue, retry_limit=0)
    await fill(client, queue, 4)
    calls = 0

    async def handle(batch: Batch[int]) -> list[Verdict | None] | None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ValueError("all of it")
        return [None] if calls == 2 else None

    await client.consume(queue, Batched(handle), type=int, batch=4, idle_seconds=0.2)
    errors = {letter.data: letter.error for letter in await client.dead_letters.page(queue)}
    assert errors == {0: "ValueError: all of it", 1: "InvalidRequest: the handler returned 1 verdicts for 3 messages"}


async def test_a_result_that_cannot_be_written_fails_its_message(client: Client, queue: str) -> None:
    await client.queues.configure(queue, retry_limit=0)
    await fill(client, queue, 2)
    await client.consume(queue, lambda message: Done(object()) if message.data == 0 else None, idle_seconds=0.2)
    assert [letter.data for letter in await client.dead_letters.page(queue)] == [0]


async def test_a_lane_that_failed_does_not_hold_up_the_others_of_its_batch(client: Client, queue: str) -> None:
    await fill(client, queue, 9, partitions=3)
    seen: Counter[int] = Counter()

    async def handle(message: Message[int]) -> None:
        seen[message.data] += 1
        if message.data == 1 and seen[1] == 1:
            raise ValueError("once")

    await client.consume(queue, handle, type=int, batch=9, partitions=3, idle_seconds=0.2)
    assert seen == Counter(range(9)) + Counter([1])


async def test_a_handler_that_is_no_coroutine_runs_in_a_thread(client: Client, queue: str) -> None:
    await fill(client, queue, 4, partitions=4)
    threads: set[str] = set()
    together = threading.Barrier(4, timeout=10)

    def handle(message: Message[int]) -> None:
        threads.add(threading.current_thread().name)
        together.wait()

    assert await client.consume(queue, handle, concurrency=4, limit=4) == 4
    assert all(name.startswith("fairlane-handler") for name in threads)


async def test_a_lease_is_kept_while_its_handler_runs(rogue: Rogue, queue: str) -> None:
    async with Client(rogue.url) as client:
        await fill(client, queue, 1)

        async def handle(message: Message[int]) -> None:
            await rogue.until(RENEW, 5)  # a lease of one second, renewed about every quarter of it

        assert await client.consume(queue, handle, lease_seconds=1, limit=1) == 1
        assert not await client.pop(queue)


async def test_a_lease_and_its_renewals_are_as_long_as_the_queue_says(rogue: Rogue, queue: str) -> None:
    async with Client(rogue.url) as client:
        await client.queues.configure(queue, lease_seconds=2)
        await fill(client, queue, 1)
        left: list[float] = []

        async def handle(message: Message[int]) -> None:
            left.append((await client.queues.leases(queue))[0].seconds_remaining)
            await rogue.until(RENEW, 2)
            left.append((await client.queues.leases(queue))[0].seconds_remaining)

        assert await client.consume(queue, handle, limit=1) == 1
        assert 0 < max(left) < 3  # the second reading may come before a renewal, and so see its end
        assert {seen.body["seconds"] for seen in rogue.requests(RENEW)} == {2}
        assert not await client.pop(queue)


async def test_without_renewal_the_lease_runs_out_and_the_rest_of_the_batch_is_left(client: Client, queue: str) -> None:
    await client.queues.configure(queue, retry_limit=10)
    await fill(client, queue, 3)
    seen: list[int] = []

    async def handle(message: Message[int]) -> None:
        seen.append(message.data)
        if len(seen) == 1:
            other = await client.pop(queue, wait=10, batch=3)
            await client.ack(other)
            assert other[0].data == 0

    await client.consume(queue, handle, type=int, batch=3, lease_seconds=1, auto_renew=False, idle_seconds=0.5)
    assert sorted(set(seen)) == [0, 1, 2]


async def test_a_consumer_that_learns_of_its_lost_lease_stops_working_on_it(client: Client, queue: str) -> None:
    await fill(client, queue, 3)
    seen: list[int] = []

    async def handle(message: Message[int]) -> None:
        seen.append(message.data)
        if len(seen) == 1:
            await client.release(message)
            while not all(claim.lost for claim in consumer.claims):  # noqa: ASYNC110  # the next renewal finds it out
                await asyncio.sleep(0.02)

    consumer = client.consumer(queue, handle, type=int, batch=3, lease_seconds=1, limit=4)
    await consumer.run()
    assert seen == [0, 0, 1, 2]


async def test_a_stopped_consumer_finishes_what_runs_and_gives_the_rest_back(client: Client, queue: str) -> None:
    await fill(client, queue, 5)
    seen: list[int] = []
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def handle(message: Message[int]) -> None:
        seen.append(message.data)
        begun.set()
        await go_on.wait()

    consumer = client.consumer(queue, handle, type=int, batch=5)
    running = asyncio.create_task(consumer.run())
    await begun.wait()
    consumer.stop()
    await asyncio.sleep(0.05)
    assert not running.done()
    go_on.set()
    async with asyncio.timeout(60):
        assert await running == 1
    assert seen == [0]
    assert [message.data for message in await client.pop(queue, batch=5)] == [1, 2, 3, 4]


async def test_a_consumer_that_waits_for_messages_stops_at_once(client: Client, queue: str) -> None:
    async with asyncio.timeout(60):
        async with client.consumer(queue, lambda message: None, concurrency=8):
            await asyncio.sleep(0.2)


async def test_a_handler_may_stop_its_own_consumer(client: Client, queue: str) -> None:
    await fill(client, queue, 5)
    consumer: Any = client.consumer(queue, lambda message: consumer.stop(), batch=2)
    async with asyncio.timeout(60):
        assert await consumer.run() == 1
    assert [message.data for message in await client.pop(queue, batch=5)] == [1, 2, 3, 4]


async def test_a_limit_is_exact(client: Client, queue: str) -> None:
    await fill(client, queue, 50, partitions=10)
    assert await client.consume(queue, lambda message: None, batch=4, concurrency=3, limit=17) == 17
    left = [await client.pop(queue, batch=50, partitions=50)]
    assert len(left[0]) == 33


async def test_a_cancelled_consumer_gives_back_what_it_held_without_a_charge(client: Client, queue: str) -> None:
    await client.queues.configure(queue, retry_limit=0)
    await fill(client, queue, 2)
    begun = asyncio.Event()

    async def handle(message: Message[int]) -> None:
        begun.set()
        await asyncio.Event().wait()

    running = asyncio.create_task(client.consume(queue, handle, batch=2))
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert [message.data for message in await client.pop(queue, batch=5)] == [0, 1]
    assert await client.dead_letters.page(queue) == []


async def test_a_broker_that_goes_away_is_waited_for(rogue: Rogue, queue: str) -> None:
    async with Client(rogue.url, attempts=1) as client:
        await fill(client, queue, 1)
        rogue.do(AWAY, Drop(carried_out=False))
        async with asyncio.timeout(20):
            assert await client.consume(queue, lambda message: None, limit=1) == 1


async def test_an_error_that_waiting_does_not_cure_is_raised(rogue: Rogue, queue: str) -> None:
    rogue.do(*[Answer(403, {"error": "not yours", "code": "forbidden"})] * 8)
    async with Client(rogue.url) as client:
        with pytest.raises(Exception, match="not yours"):
            await client.consume(queue, lambda message: None, concurrency=4)


async def test_an_ack_that_cannot_be_delivered_does_not_end_the_consumer(rogue: Rogue, queue: str) -> None:
    seen: list[int] = []
    async with Client(rogue.url, attempts=1) as client:
        await fill(client, queue, 1)

        async def handle(message: Message[int]) -> None:
            seen.append(message.data)
            if len(seen) == 1:
                rogue.do(AWAY, AWAY)  # for the pop with the ack, and the ack that comes next

        await client.consume(queue, handle, type=int, lease_seconds=1, limit=2)
    assert seen == [0, 0]


@pytest.mark.parametrize("options", [{"batch": 0}, {"concurrency": 0}, {"idle_seconds": -1}, {"speed": 9}])
async def test_options_that_make_no_sense_are_refused(client: Client, queue: str, options: dict[str, int]) -> None:
    with pytest.raises(InvalidRequest):
        client.consumer(queue, lambda message: None, **options)  # type: ignore[call-overload]


async def test_a_consumer_runs_once_and_needs_something_to_call(client: Client, queue: str) -> None:
    consumer = client.consumer(queue, lambda message: None, idle_seconds=0)
    await consumer.run()
    with pytest.raises(InvalidRequest, match="runs only once"):
        await consumer.run()
    with pytest.raises(InvalidRequest, match="must be callable"):
        client.consumer(queue, 3)  # type: ignore[call-overload]


async def test_a_handler_sees_the_type_it_asked_for(client: Client, queue: str) -> None:
    class Order(msgspec.Struct):
        total: int

    await client.push(queue, {"total": 42})
    totals: list[int] = []

    async def handle(message: Message[Order]) -> None:
        totals.append(message.data.total)

    await client.consume(queue, handle, type=Order, limit=1)
    assert totals == [42]
