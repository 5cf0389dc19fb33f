"""The blocking client: the same verbs for callers without an event loop."""

from __future__ import annotations

import inspect
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import fairlane
from fairlane import InvalidRequest, Message, NotFound
from fairlane.blocking import Client
from tests.broker_process import BrokerProcess


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[Client]:
    with Client(broker.url) as client:
        yield client


def test_it_has_every_verb_of_the_asynchronous_client() -> None:
    def verbs(kind: type) -> set[str]:
        return {name for name, member in inspect.getmembers(kind, callable) if not name.startswith("_")}

    assert verbs(Client) == verbs(fairlane.Client)
    assert all(getattr(Client, name).__doc__ for name in verbs(Client))


def test_push_pop_and_ack_return_when_they_are_done(client: Client, queue: str) -> None:
    assert client.push(queue, {"total": 42}).status == "queued"
    batch = client.pop(queue, type=dict[str, int])
    assert batch[0].data["total"] == 42
    assert client.renew(batch).renewed == 1
    [outcome] = client.ack(batch)
    assert outcome.success
    assert not client.pop(queue)


def test_threads_share_a_client_and_its_requests(client: Client, queue: str) -> None:
    with ThreadPoolExecutor(16) as threads:
        outcomes = list(threads.map(lambda n: client.push(queue, n, partition=f"p{n}"), range(64)))
    assert {outcome.status for outcome in outcomes} == {"queued"}
    assert len(client.pop(queue, batch=100, partitions=100)) == 64


def test_errors_are_those_of_the_asynchronous_client(client: Client) -> None:
    with pytest.raises(InvalidRequest):
        client.push("", 1)
    with pytest.raises(NotFound):
        client.queues.show("nobody's")


def test_a_transaction_is_a_block(client: Client, queue: str) -> None:
    with client.transaction() as transaction:
        transaction.push(queue, 1)
    assert len(transaction.outcomes) == 1

    def broken() -> None:
        with client.transaction() as transaction:
            transaction.push(queue, 1 / 0)

    with pytest.raises(ZeroDivisionError):
        broken()
    assert [message.data for message in client.pop(queue, batch=5)] == [1]


def test_a_buffer_is_a_block(client: Client, queue: str) -> None:
    with client.buffer() as buffer:
        buffer.push(queue, 1)
        assert len(buffer) == 1
        assert [outcome.status for outcome in buffer.flush()] == ["queued"]
        buffer.push(queue, 2)
    assert [message.data for message in client.pop(queue, batch=5)] == [1, 2]


def test_consume_calls_its_handler_in_a_thread_that_may_use_the_client(client: Client, queue: str) -> None:
    for n in range(3):
        client.push(queue, n)

    def handle(message: Message[int]) -> None:
        client.push(f"{queue}-out", message.data * 2)

    assert client.consume(queue, handle, type=int, batch=3, idle_seconds=0.1) == 3
    assert [message.data for message in client.pop(f"{queue}-out", batch=5)] == [0, 2, 4]


def test_a_consumer_runs_beside_its_block_and_ends_with_it(client: Client, queue: str) -> None:
    seen = threading.Event()
    with client.consumer(queue, lambda message: seen.set(), type=int) as consumer:
        client.push(queue, 1)
        assert seen.wait(10)
    assert (consumer.handled, consumer.failed) == (1, 0)
    assert not client.pop(queue)


def test_a_consumer_is_stopped_from_another_thread(client: Client, queue: str) -> None:
    consumer = client.consumer(queue, lambda message: None, type=int)
    timer = threading.Timer(0.2, consumer.stop)
    timer.start()
    assert consumer.run() == 0
    timer.join()


def test_waiting_for_oneself_is_refused_instead_of_a_deadlock(client: Client, queue: str) -> None:
    errors: list[Exception] = []
    client.push(queue, 1)

    async def handle(message: Message[int]) -> None:
        try:
            client.push(queue, 2)
        except InvalidRequest as error:
            errors.append(error)

    client.consume(queue, handle, limit=1)
    assert "cannot wait on its own loop" in str(errors[0])


def test_a_closed_client_says_so(broker: BrokerProcess) -> None:
    client = Client(broker.url)
    client.close()
    client.close()
    with pytest.raises(InvalidRequest, match="closed"):
        client.push("q", 1)


def test_an_interrupted_consumer_gives_back_what_it_held(broker: BrokerProcess, queue: str) -> None:
    """Interrupt with Ctrl-C, in a program of its own."""
    with Client(broker.url) as client:
        client.queues.configure(queue, retry_limit=0)
        client.push(queue, 1)
        program = subprocess.Popen([sys.executable, "-c", INTERRUPTED, broker.url, queue], stdout=subprocess.PIPE)
        assert program.stdout is not None
        with program.stdout:
            assert program.stdout.readline() == b"holding\n"
            program.send_signal(signal.SIGINT)
            assert program.wait(20) == 1
        assert len(client.pop(queue)) == 1


INTERRUPTED = """
import asyncio, sys
from fairlane.blocking import Client

async def handle(message):
    print("holding", flush=True)
    await asyncio.Event().wait()

with Client(sys.argv[1]) as client:
    try:
        client.consume(sys.argv[2], handle)
    except KeyboardInterrupt:
        sys.exit(1)
"""


def test_no_thread_is_left_behind(broker: BrokerProcess) -> None:
    before = threading.active_count()
    with Client(broker.url) as client:
        client.queues.all()
    assert threading.active_count() == before
