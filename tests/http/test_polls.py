"""Long polls over HTTP: the limit of waiting polls, and polls whose client disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import quote

import pytest

from fairlane.http.server import Limits, Request, Response
from fairlane.http.server.connection import Connection
from tests.conformance.backends import Backend
from tests.http.wire import Wire, serving
from tests.until import until


@pytest.fixture
async def narrow(backend: Backend) -> AsyncIterator[Wire]:
    """A broker on which only two polls may wait."""
    await backend.make()
    async with serving(await backend.open(None), polls_max=2) as wire:
        yield wire


async def hang_on(wire: Wire, queue: str) -> asyncio.StreamWriter:
    """Start a long poll of a client that disconnects before its answer."""
    host, _, port = wire.base.removeprefix("http://").partition(":")
    _, writer = await asyncio.open_connection(host, int(port))
    path = f"/api/v1/pop/queue/{quote(queue, safe='')}?wait=true&batch=10"
    writer.write(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
    return writer


def waiting(wire: Wire) -> int:
    return wire.app.broker._engine.waiters._polls


async def test_polls_beyond_the_limit_are_told_to_come_again(narrow: Wire) -> None:
    queue = narrow.name()
    await narrow.configure(queue)
    async with asyncio.TaskGroup() as tasks:
        polls = [tasks.create_task(narrow.pop(queue, wait="true")) for _ in range(2)]
        await until(lambda: waiting(narrow) == 2)
        answer = await narrow.get("/api/v1/pop/queue", queue, wait="true")
        answer.refused(503, "too_many_polls")
        assert answer.headers["Retry-After"] == "1"
        labelled = await narrow.get("/api/v1/pop", namespace="none", wait="true")
        labelled.refused(503, "too_many_polls")
        assert await narrow.pop(queue) == [], "who does not wait is served"
        for partition in ("a", "b"):
            await narrow.push(queue, partition, partition=partition)
    assert sorted(message["data"] for poll in polls for message in poll.result()) == ["a", "b"]
    assert await narrow.pop(queue, wait="true", timeout=50) == [], "there is room again"


async def test_a_client_that_vanishes_while_it_waits_burns_no_lease(wire: Wire) -> None:
    queue = wire.name()
    await wire.configure(queue, leaseTime=600)
    writer = await hang_on(wire, queue)
    await until(lambda: waiting(wire) == 1)
    writer.close()
    await until(lambda: waiting(wire) == 0)
    await wire.push(queue, 1, 2)
    assert [message["data"] for message in await wire.pop(queue)] == [1, 2]


async def test_what_could_not_be_sent_is_given_back_without_charge(wire: Wire) -> None:
    queue = wire.name()
    await wire.configure(queue, leaseTime=600)
    await wire.push(queue, 1, 2)
    server = wire.app.server
    assert server is not None
    handle = server.handler

    async def leave(request: Request) -> Response:
        response = await handle(request)
        for connection in server.connections:
            assert isinstance(connection, Connection)
            assert connection._transport is not None
            connection._transport.close()
        return response

    server.handler = leave
    writer = await hang_on(wire, queue)
    await until(lambda: server.connections)
    await until(lambda: not server.connections)
    writer.close()
    server.handler = handle
    # Had the lease been lost instead, the messages would come one at a time.
    assert [message["data"] for message in await wire.pop(queue, wait="true", timeout=5000)] == [1, 2]


async def test_a_pop_takes_what_fits_into_the_bytes_that_the_broker_may_hold(backend: Backend) -> None:
    await backend.make()
    limits = Limits(inflight_bytes_max=4 * 2**20)
    async with serving(await backend.open(None), limits=limits) as wire:
        queue, budget = wire.name(), wire.app.broker.process.budget
        for _ in range(6):
            await wire.push(queue, "x" * (2**20 - 100))
        taken = await wire.pop(queue)
        assert 1 <= len(taken) <= 3
        await wire.ack(taken)
        budget.used += limits.inflight_bytes_max
        answer = await wire.get("/api/v1/pop/queue", queue)
        answer.refused(429, "overloaded")
        assert answer.headers["Retry-After"] == "1"
        (await wire.get("/api/v1/resources/queues")).refused(429, "overloaded")
        assert (await wire.get("/livez")).status == 200
        budget.used -= limits.inflight_bytes_max
        while more := await wire.pop(queue):
            await wire.ack(more)
            taken += more
        assert len(taken) == 6
        assert budget.used == 0


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("subscriptionMode=bogus", "subscriptionMode"),
        ("subscriptionMode=NEW", "subscriptionMode"),
        ("batch=0", "batch"),
        ("batch=-1", "batch"),
        ("batch=10001", "batch"),
        ("partitions=0", "partitions"),
        ("partitions=-5", "partitions"),
        ("batch=1&batch=2", "'batch' is given twice"),
        ("consumerGroup=a&batch=1&consumerGroup=a", "'consumerGroup' is given twice"),
    ],
)
async def test_a_pop_whose_query_makes_no_sense_is_refused(wire: Wire, query: str, error: str) -> None:
    queue = wire.name()
    await wire.push(queue, 1)
    path = f"/api/v1/pop/queue/{quote(queue, safe='')}?{query}"
    refused = (await wire.ask("GET", path)).refused(400, "invalid_request")
    assert error in refused["error"]
    groups = (await wire.get("/api/v1/consumer-groups")).ok()
    assert [one for one in groups if one["queueName"] == queue] == [], "no group was made"


@pytest.mark.parametrize("mode", ["", "all", "new-only", "from_beginning"])
async def test_words_of_published_clients_for_all_history_are_understood(wire: Wire, mode: str) -> None:
    queue = wire.name()
    await wire.push(queue, 1)
    assert len(await wire.pop(queue, consumerGroup="g", subscriptionMode=mode)) == 1
