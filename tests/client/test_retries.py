"""Retries of a client: which requests are repeated, when, and that repeating is safe."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from fairlane import (
    Client,
    NotFound,
    OutcomeUnknown,
    Overloaded,
    PushItem,
    StoreUnavailable,
    TransactionRefused,
    Unavailable,
)
from fairlane.client.retries import Retries
from fairlane.errors import BrokerFailed, ShuttingDown
from fairlane.runtime.backoff import seconds_of
from tests.client.rogue import Answer, Drop, Rogue

PUSH = "/api/v1/push"
BUSY = {"error": "the broker is busy", "code": "overloaded"}
FAILED = Answer(500, {"error": "a defect", "code": "internal_error"})
DOWN = Answer(503, {"error": "the database is away", "code": "store_unavailable"}, {"Retry-After": "1"})


def patient(rogue: Rogue, **options: float) -> Client:
    return Client(rogue.url, retry_delay=0.01, **options)  # type: ignore[arg-type]


async def test_a_429_is_repeated_after_the_time_the_broker_asks_for(rogue: Rogue, queue: str) -> None:
    rogue.do(Answer(429, BUSY, {"Retry-After": "0.2"}))
    async with patient(rogue) as client:
        begun = time.monotonic()
        assert (await client.push(queue, 1)).status == "queued"
    assert time.monotonic() - begun >= 0.2
    assert len(rogue.requests(PUSH)) == 2


async def test_no_wait_is_longer_than_the_client_allows(rogue: Rogue, queue: str) -> None:
    rogue.do(Answer(429, BUSY, {"Retry-After": "3600"}))
    async with patient(rogue, max_retry_delay=0.05) as client:
        async with asyncio.timeout(60):
            await client.push(queue, 1)


async def test_retry_after_can_be_ignored(rogue: Rogue, queue: str) -> None:
    rogue.do(Answer(429, BUSY, {"Retry-After": "3600"}))
    async with patient(rogue, honor_retry_after=False) as client:
        async with asyncio.timeout(60):
            await client.push(queue, 1)


async def test_a_429_is_raised_at_once_if_so_wished(rogue: Rogue, queue: str) -> None:
    rogue.do(Answer(429, BUSY, {"Retry-After": "7"}))
    async with patient(rogue, retry_on_429=False) as client:
        with pytest.raises(Overloaded, match="the broker is busy") as raised:
            await client.push(queue, 1)
    assert raised.value.retry_after == 7
    assert len(rogue.seen) == 1


@pytest.mark.parametrize("batching", [True, False])
@pytest.mark.parametrize("verb", ["push", "push_many", "pop", "ack", "queues"])
@pytest.mark.parametrize(
    "refusal", [Answer(429, BUSY, {"Retry-After": "0.01"}), FAILED, Answer(507, {"detail": "a proxy's page"})]
)
async def test_a_429_and_a_5xx_are_repeated_for_every_verb(
    rogue: Rogue, queue: str, verb: str, batching: bool, refusal: Answer
) -> None:
    async with Client(rogue.url, retry_delay=0.01, batching=batching) as client:
        await client.push(queue, 1)
        batch = await client.pop(queue)
        rogue.do(refusal, refusal)
        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "push": lambda: client.push(queue, 2),
            "push_many": lambda: client.push_many([PushItem(queue=queue, payload=b"1")] * 2),
            "pop": lambda: client.pop(queue),
            "ack": lambda: client.ack(batch),
            "queues": lambda: client.queues.delete("nobody's"),
        }
        await calls[verb]()
    assert len(rogue.seen) == 2 + 3


@pytest.mark.parametrize("verb", ["push", "push_many", "pop", "ack"])
async def test_a_500_that_stays_is_raised_as_what_it_is(rogue: Rogue, queue: str, verb: str) -> None:
    async with patient(rogue) as client:
        await client.push(queue, 1)
        batch = await client.pop(queue)
        rogue.do(*[FAILED] * 3)
        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "push": lambda: client.push(queue, 2),
            "push_many": lambda: client.push_many([PushItem(queue=queue, payload=b"1")] * 2),
            "pop": lambda: client.pop(queue),
            "ack": lambda: client.ack(batch),
        }
        with pytest.raises(BrokerFailed, match="a defect"):
            await calls[verb]()
    assert len(rogue.seen) == 2 + 3


async def test_one_line_is_logged_however_often_a_broker_says_that_it_is_busy(
    rogue: Rogue, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with patient(rogue, max_retry_delay=0.01, attempts=10) as client:
        for _ in range(3):
            rogue.do(*[Answer(429, BUSY, {"Retry-After": "7"})] * 3)
            await asyncio.gather(*[client.push(queue, 1, partition=str(n)) for n in range(3)], client.pop(queue))
    [record] = [one for one in caplog.records if one.name == "fairlane.client"]
    assert record.levelname == "WARNING"
    assert record.getMessage() == "the server is busy (429 overloaded: the broker is busy); retrying"


async def test_a_503_is_repeated_and_then_raised_as_what_it_is(rogue: Rogue, queue: str) -> None:
    rogue.do(DOWN, DOWN)
    async with patient(rogue) as client:
        assert (await client.push(queue, 1)).status == "queued"
        rogue.do(DOWN, DOWN, DOWN)
        with pytest.raises(StoreUnavailable, match="the database is away"):
            await client.push(queue, 2)
        rogue.do(*[Answer(503, {"error": "bye", "code": "shutting_down"})] * 3)
        with pytest.raises(ShuttingDown):
            await client.pop(queue)
    assert len(rogue.seen) == 3 + 3 + 3


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 422, 501, 505])
async def test_other_refusals_are_never_repeated(rogue: Rogue, queue: str, status: int) -> None:
    rogue.do(Answer(status, {"error": "no", "code": "something_else"}))
    async with patient(rogue) as client:
        with pytest.raises(Exception, match=r"^no$") as raised:
            await client.push(queue, 1)
    assert getattr(raised.value, "code", None) == "something_else"
    assert len(rogue.seen) == 1


async def test_an_answer_that_is_no_brokers_is_an_error_of_its_status(rogue: Rogue) -> None:
    rogue.do(Answer(404, {"detail": "a proxy's page"}))
    async with patient(rogue) as client:
        with pytest.raises(NotFound, match="answered 404"):
            await client.queues.show("q")


@pytest.mark.parametrize("carried_out", [False, True])
async def test_a_push_whose_connection_broke_is_repeated_and_stored_once(
    rogue: Rogue, queue: str, carried_out: bool
) -> None:
    rogue.do(Drop(carried_out), Drop(carried_out))
    async with patient(rogue) as client:
        outcome = await client.push(queue, "once")
        batch = await client.pop(queue, batch=10)
    assert outcome.status == "queued"
    assert [(message.id, message.data) for message in batch] == [(outcome.message_id, "once")]
    assert len({seen.items[0]["transactionId"] for seen in rogue.requests(PUSH)}) == 1


async def test_a_batch_whose_connection_broke_is_repeated_as_it_was(rogue: Rogue, queue: str) -> None:
    rogue.do(Drop(carried_out=True))
    async with patient(rogue) as client:
        outcomes = await asyncio.gather(*[client.push(queue, n) for n in range(10)])
        batch = await client.pop(queue, batch=20)
    assert {outcome.status for outcome in outcomes} == {"queued"}
    assert [message.data for message in batch] == list(range(10))


async def test_an_outcome_that_stays_unknown_is_raised_as_that(rogue: Rogue, queue: str) -> None:
    rogue.do(*[Drop(carried_out=True)] * 3)
    async with patient(rogue) as client:
        with pytest.raises(OutcomeUnknown, match="may have been applied"):
            await client.push(queue, 1, transaction_id="t")
        assert (await client.push(queue, 1, transaction_id="t")).status == "duplicate"


async def test_an_ack_whose_answer_was_lost_is_repeated_without_harm(rogue: Rogue, queue: str) -> None:
    async with patient(rogue) as client:
        await client.push(queue, 1)
        await client.push(queue, 2)
        batch = await client.pop(queue, batch=2)
        rogue.do(Drop(carried_out=True))
        outcomes = await client.ack(batch)
        assert all(outcome.success for outcome in outcomes)
        assert not await client.pop(queue)


async def test_a_transaction_whose_answer_was_lost_is_repeated_without_harm(rogue: Rogue, queue: str) -> None:
    async with patient(rogue) as client:
        await client.push(queue, 1)
        batch = await client.pop(queue)
        rogue.do(Drop(carried_out=True))
        async with client.transaction() as transaction:
            transaction.ack(batch)
            transaction.push(f"{queue}-out", "done")
        assert not await client.pop(queue)
        assert len(await client.pop(f"{queue}-out", batch=5)) == 1


async def test_nobody_listening_is_told_from_an_outcome_that_is_unknown() -> None:
    async with Client("http://127.0.0.1:1", attempts=2, retry_delay=0.01) as client:
        with pytest.raises(Unavailable, match=r"cannot reach http://127\.0\.0\.1:1: connection refused") as raised:
            await client.push("q", 1)
    assert type(raised.value) is Unavailable


async def test_a_server_that_does_not_answer_in_time_is_given_up_on(rogue: Rogue, queue: str) -> None:
    rogue.hold = asyncio.Event()
    async with Client(rogue.url, attempts=1, timeout=0.1) as client:
        with pytest.raises(OutcomeUnknown, match=r"did not answer within 0\.1 s"):
            await client.push(queue, 1)
    rogue.hold.set()


async def test_a_refused_transaction_names_its_step(rogue: Rogue, queue: str) -> None:
    async with patient(rogue) as client:
        await client.push(queue, 1)
        batch = await client.pop(queue)
        await client.release(batch)

        async def refused() -> None:
            async with client.transaction() as transaction:
                transaction.push(f"{queue}-out", 1)
                transaction.ack(batch)

        with pytest.raises(TransactionRefused) as raised:
            await refused()
        assert raised.value.index == 1
        assert not await client.pop(f"{queue}-out")


def test_waits_double_up_to_the_longest_and_are_spread() -> None:
    retries = Retries(attempts=100)
    waits = [[retries.after_failure(failures) or 0.0 for _ in range(200)] for failures in (1, 2, 3, 50)]
    for some, longest in zip(waits, (1.0, 2.0, 4.0, 30.0), strict=True):
        assert longest / 2 <= min(some) < longest * 0.6
        assert longest * 0.9 < max(some) <= longest


def test_three_attempts_are_made_unless_told_otherwise() -> None:
    assert Retries().after_failure(2) is not None
    assert Retries().after_failure(3) is None


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("3", 3.0), ("0.5", 0.5), ("-1", 0.0), (None, None), ("soon", None), ("Thu, 01 Jan 1970 00:00:10 GMT", 0.0)],
)
def test_retry_after_is_a_number_or_a_date(header: str | None, seconds: float | None) -> None:
    assert seconds_of(header) == seconds
