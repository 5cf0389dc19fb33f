"""Several servers: the client prefers one per key, and uses another while that one is down."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest

from fairlane import Client, InvalidRequest, PushItem, Unavailable
from fairlane.client.servers import AILING_SECONDS, Servers
from fairlane.model.ids import uuid7
from tests.broker_process import BrokerProcess
from tests.client.rogue import Answer, Rogue

PUSH = "/api/v1/push"
NOBODY = "http://127.0.0.1:1"
THREE = ["http://a", "http://b", "http://c"]


async def test_a_server_that_cannot_be_reached_is_left_for_another_at_once(broker: BrokerProcess, queue: str) -> None:
    async with Client([NOBODY, broker.url], retry_delay=30) as client:
        async with asyncio.timeout(20):
            for n in range(4):
                await client.push(queue, n, transaction_id=f"t{n}")
            assert len(await client.pop(queue, batch=10)) == 4


async def test_a_server_that_cannot_answer_is_left_for_another_at_once(
    rogue: Rogue, broker: BrokerProcess, queue: str
) -> None:
    rogue.do(*[Answer(503, {"error": "away", "code": "store_unavailable"})] * 10)
    async with Client([rogue.url, broker.url], retry_delay=30) as client:
        async with asyncio.timeout(20):
            await asyncio.gather(*[client.pop(f"{queue}{n}") for n in range(10)])


async def test_when_all_servers_are_down_the_call_fails(queue: str) -> None:
    async with Client([NOBODY, "http://127.0.0.1:2"], attempts=2, retry_delay=0.01) as client:
        with pytest.raises(Unavailable, match="cannot reach"):
            await client.pop(queue)


async def test_a_client_finds_its_broker_again_after_a_restart(own_broker: BrokerProcess, queue: str) -> None:
    async with Client(own_broker.url, attempts=20, retry_delay=0.1, max_retry_delay=0.5) as client:
        await client.push(queue, 1)
        await asyncio.to_thread(own_broker.kill)
        second = asyncio.create_task(client.push(queue, 2))
        await asyncio.to_thread(own_broker.start)
        assert (await second).status == "queued"
        assert [message.data for message in await client.pop(queue, batch=5)] == [1, 2]


def test_a_key_keeps_its_order_and_keys_spread() -> None:
    servers = Servers(THREE)
    firsts = Counter(servers.order(f"key-{n}")[0] for n in range(300))
    assert [servers.order(f"key-{n}") for n in range(50)] == [Servers(THREE[::-1]).order(f"key-{n}") for n in range(50)]
    assert min(firsts.values()) > 60


def test_only_the_keys_of_a_server_that_leaves_move() -> None:
    three, two = Servers(THREE), Servers(THREE[:2])
    keys = [f"key-{n}" for n in range(100)]
    assert all(two.order(key)[0] == three.order(key)[0] for key in keys if three.order(key)[0] != THREE[2])


def test_a_failed_server_is_left_out_for_a_while() -> None:
    now = [0.0]
    servers = Servers(THREE, clock=lambda: now[0])
    first, *others = servers.order("key")
    servers.mark_failed(first)
    assert servers.order("key") == others
    now[0] += AILING_SECONDS
    assert servers.order("key") == [first, *others]
    servers.mark_failed(first)
    servers.mark_healthy(first)
    assert servers.order("key") == [first, *others]


def test_when_all_failed_all_are_asked() -> None:
    servers = Servers(THREE)
    for url in THREE:
        servers.mark_failed(url)
    assert sorted(servers.order("key")) == THREE


@pytest.mark.parametrize(
    "urls", ["", "localhost:6632", "ftp://host", "http://", "http://host:port", [], [1], "http://["]
)
def test_what_is_no_url_is_refused(urls: object) -> None:
    with pytest.raises(InvalidRequest):
        Client(urls)  # type: ignore[arg-type]


async def test_a_store_that_is_away_is_no_reason_to_leave_a_broker(broker: BrokerProcess, queue: str) -> None:
    """Pushes to another broker would have no order with those in the first broker's journal."""
    away = Answer(503, {"error": "away", "code": "store_unavailable"})
    async with (
        Rogue(broker.url) as one,
        Rogue(broker.url) as two,
        Client([one.url, two.url], attempts=2, retry_delay=0.01) as client,
    ):
        await client.push(queue, 0)
        first, other = (one, two) if one.requests(PUSH) else (two, one)
        for n in range(10):
            first.do(away)
            await client.pop(f"{queue}{n}")
            first.forget()
            await client.push(queue, n)
        assert not other.requests(PUSH)


async def test_pushes_of_a_partition_stay_with_the_journal_that_has_earlier_ones(
    broker: BrokerProcess, queue: str
) -> None:
    kept = {"index": 0, "status": "buffered", "transactionId": "t", "operationId": uuid7(), "durability": "journal"}
    stopping = Answer(503, {"error": "bye", "code": "shutting_down"})
    async with (
        Rogue(broker.url) as one,
        Rogue(broker.url) as two,
        Client([one.url, two.url], retry_delay=0.01) as client,
    ):
        await client.push(queue, 0, partition="b")
        first, other = (one, two) if one.requests(PUSH) else (two, one)
        first.do(Answer(202, [kept]))  # type: ignore[arg-type]
        assert (await client.push(queue, 1, partition="a")).durability == "journal"
        first.do(stopping)
        await client.push(queue, 2, partition="b")
        assert len(other.requests(PUSH)) == 1, "nothing of this partition is in the journal"
        await client.push_many([PushItem(queue=queue, payload=b"3", partition=lane) for lane in "ab"])
        assert {item["partition"] for seen in other.requests(PUSH) for item in seen.items} == {"b"}
        before = len(other.requests(PUSH))
        first.do(stopping)
        await client.push(queue, 4, partition="a")
        assert len(other.requests(PUSH)) == before + 1, "its journal has nothing more of it"


async def test_a_broker_that_is_gone_with_a_journal_is_waited_for(broker: BrokerProcess, queue: str) -> None:
    kept = {"index": 0, "status": "buffered", "transactionId": "t", "operationId": uuid7(), "durability": "journal"}
    stopping = Answer(503, {"error": "bye", "code": "shutting_down"})
    for reorder in (False, True):
        async with (
            Rogue(broker.url) as one,
            Rogue(broker.url) as two,
            Client([one.url, two.url], attempts=2, retry_delay=0.01, reorder=reorder) as client,
        ):
            await client.push(queue, 0)
            first, other = (one, two) if one.requests(PUSH) else (two, one)
            first.do(Answer(202, [kept]), stopping, stopping)  # type: ignore[arg-type]
            await client.push(queue, 1)
            if reorder:
                await client.push(queue, 2)
                assert len(other.requests(PUSH)) == 1
            else:
                with pytest.raises(Unavailable, match=r"bye; .* has earlier messages of the same partition"):
                    await client.push(queue, 2)
                assert not other.requests(PUSH)


@pytest.mark.parametrize(
    "given",
    [
        "http://a:1,http://b:2",
        " http://a:1 , http://b:2/ ",
        ["http://a:1,http://b:2"],
        ("http://a:1", "http://b:2"),
    ],
)
def test_several_servers_are_a_list_or_one_text(given: str | Sequence[str]) -> None:
    assert Servers(given).urls == ["http://a:1", "http://b:2"]


def test_a_comma_in_the_path_of_a_socket_is_part_of_it() -> None:
    assert Servers("unix:/run/a,b.sock,http://a:1").urls == ["unix:/run/a,b.sock", "http://a:1"]


@pytest.mark.parametrize("given", ["http://a:1,", "http://a:1,b:2", ",", ""])
def test_a_text_with_something_else_than_servers_is_refused(given: str) -> None:
    with pytest.raises(InvalidRequest, match="is not the URL of a server"):
        Servers(given)
