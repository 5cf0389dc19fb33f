"""Messages that become commands in the broker: run in order and retried by the options of the queue."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from fairlane.broker.broker import Broker
from fairlane.broker.engine import build_engine
from fairlane.commands.handling import CommandHandling, ExecutorHandling, ForwardHandling
from fairlane.errors import CommandFailed
from fairlane.model.limits import NEVER_AT
from fairlane.model.names import COMMANDS
from fairlane.model.tenant import Quotas
from fairlane.runtime.consumer import Consumer
from fairlane.spec import ir
from fairlane.spec.check import problems
from fairlane.spec.compile import compile_spec
from fairlane.spec.compiled_queue import CompiledQueue
from fairlane.spec.text.source import SourceText
from fairlane.telemetry import CommandCounts
from fairlane.testing import FrozenClock
from tests.lost_answers import APPLIED, AWAY, fails
from tests.until import until

SPEC = """
app Shop {
  queue Orders {
    message_type { id: json  customer: string }
    delivery { max_attempts: 2  initial_backoff_ms: 1000  dead_letter_queue: Failed }
    map_to: command Bill { order: id  who: customer.upperAscii() }
  }
  queue Loose { ordering: unordered  map_to: command Bill { order: id  who: "x" } }
  queue Failed {}
  queue Bills { message_type { order: int  who: string }  key: who }
  command Bill { input { order: int  who: string }  run: queue Bills }
}
"""


@pytest.fixture(scope="module")
def spec() -> ir.Spec:
    compiled = compile_spec(SourceText("shop", SPEC), lambda name: "")
    assert not problems(compiled)
    return compiled.spec


class Recorder:
    """An executor that records its calls and answers as the test says."""

    def __init__(self, act: Callable[[dict[str, Any]], object] = lambda input: {"ok": True}) -> None:
        self.asked: list[tuple[str, dict[str, Any], str]] = []
        self.act = act
        self.running = self.most = 0

    async def run(self, command: str, input: bytes, *, idempotency_key: str) -> bytes:
        decoded = msgspec.json.decode(input)
        self.asked.append((command, decoded, idempotency_key))
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            returned = self.act(decoded)
            if asyncio.iscoroutine(returned):
                returned = await returned
            return msgspec.json.encode(returned)
        finally:
            self.running -= 1

    @property
    def orders(self) -> list[int]:
        return [input["order"] for _, input, _ in self.asked]


@pytest.fixture
async def broker(spec: ir.Spec) -> AsyncIterator[Broker]:
    clock = FrozenClock()
    async with Broker.open("sqlite:///:memory:", clock=clock) as broker:
        broker.clock = clock  # type: ignore[attr-defined]
        await broker.specs.apply(msgspec.json.encode(spec))
        yield broker


@contextlib.asynccontextmanager
async def running(broker: Broker, queue: str, handling: CommandHandling) -> AsyncIterator[Consumer]:
    consumer = handling.consumer(broker, queue)
    consumer.start()
    try:
        yield consumer
    finally:
        await consumer.end(grace_seconds=5)


def calls(broker: Broker, spec: ir.Spec, queue: str, recorder: Recorder, **options: int) -> ExecutorHandling:
    return ExecutorHandling(broker, CompiledQueue(spec, queue), recorder, CommandCounts(), **options)


async def drained(broker: Broker, queue: str) -> None:
    """Wait until the commands of a queue are idle."""
    async with asyncio.timeout(10):
        while True:
            groups = {group.name for group in await broker.groups.all(queue)}
            lanes = await broker.groups.lanes(queue, COMMANDS) if COMMANDS in groups else []
            now = await broker._engine.store.now()
            if lanes and not any(
                lane.leased_until or lane.in_flight or (lane.ready_at is not None and lane.ready_at <= now)
                for lane in lanes
            ):
                return
            await asyncio.sleep(0.002)


async def push(broker: Broker, queue: str, *ids: int, customer: str = "ann") -> None:
    for id in ids:
        await broker.push(queue, {"id": id, "customer": customer}, partition=customer, transaction_id=f"o-{id}")


async def test_each_message_is_carried_out_in_order_and_its_result_is_kept(broker: Broker, spec: ir.Spec) -> None:
    recorder = Recorder(lambda input: {"bill": input["order"]})
    await push(broker, "Orders", *range(20))
    await push(broker, "Orders", *range(100, 120), customer="bob")
    async with running(broker, "Orders", calls(broker, spec, "Orders", recorder)):
        await drained(broker, "Orders")
    assert [order for order in recorder.orders if order < 100] == list(range(20))
    assert [order for order in recorder.orders if order >= 100] == list(range(100, 120))
    assert recorder.asked[0][:2] == ("Bill", {"order": 0, "who": "ANN"})
    assert len({key for _, _, key in recorder.asked}) == 40
    group = next(one for one in await broker.groups.all("Orders") if one.name == COMMANDS)
    partition = (await broker.groups.lanes("Orders", COMMANDS))[0].partition
    kept = await broker._engine.store.groups.result(group.id, partition, 3)
    assert kept is not None
    assert msgspec.json.decode(kept)["bill"] % 100 == 3
    assert not await broker.dead_letters.page("Orders")


async def test_a_command_waits_while_the_expressions_of_its_tenant_have_done_too_much(
    broker: Broker, spec: ir.Spec
) -> None:
    recorder = Recorder(lambda input: None)
    await broker.tenants.limit(broker.tenant, Quotas(expression_work_per_second=1))
    await push(broker, "Orders", 1, 2, customer="ann" * 50)
    async with running(broker, "Orders", calls(broker, spec, "Orders", recorder)):
        await drained(broker, "Orders")
        for _ in range(3):
            assert recorder.orders == [1]
            broker.clock.advance(60.0)  # type: ignore[attr-defined]
            broker._engine.waiters.wake_all()
            await drained(broker, "Orders")
        await broker.tenants.limit(broker.tenant, Quotas())
        broker.clock.advance(60.0)  # type: ignore[attr-defined]
        broker._engine.waiters.wake_all()
        await until(lambda: recorder.orders == [1, 2])
        await drained(broker, "Orders")
    assert not await broker.dead_letters.page("Orders"), "waiting took none of its two attempts"


async def test_a_failed_command_is_tried_again_by_the_queues_backoff_and_then_given_up(
    broker: Broker, spec: ir.Spec
) -> None:
    def refuse(input: dict[str, Any]) -> object:
        if input["order"] == 1:
            raise CommandFailed("busy", retryable=True)
        return None

    recorder = Recorder(refuse)
    await push(broker, "Orders", 1, 2)
    async with running(broker, "Orders", calls(broker, spec, "Orders", recorder)):
        await drained(broker, "Orders")
        assert recorder.orders == [1]
        broker.clock.advance(1.0)  # type: ignore[attr-defined]
        broker._engine.waiters.wake_all()
        await until(lambda: 2 in recorder.orders)
        await drained(broker, "Orders")
    assert recorder.orders == [1, 1, 2]
    assert recorder.asked[0][2] == recorder.asked[1][2]
    [letter] = await broker.dead_letters.page("Orders")
    assert (letter.error, letter.group) == ("busy", COMMANDS)


async def test_retry_after_is_honoured_instead_of_the_backoff(broker: Broker, spec: ir.Spec) -> None:
    def later(input: dict[str, Any]) -> object:
        if len(recorder.asked) == 1:
            raise CommandFailed("slow down", retryable=True, retry_after=60.0)
        return None

    recorder = Recorder(later)
    await push(broker, "Orders", 1)
    async with running(broker, "Orders", calls(broker, spec, "Orders", recorder)):
        await drained(broker, "Orders")
        [lane] = await broker.groups.lanes("Orders", COMMANDS)
        assert lane.ready_at is not None
        assert lane.ready_at - await broker._engine.store.now() == 60_000_000


async def test_what_is_no_use_to_repeat_is_dead_at_once_and_the_lane_goes_on(broker: Broker, spec: ir.Spec) -> None:
    def refuse(input: dict[str, Any]) -> object:
        if input["order"] == 1:
            raise CommandFailed("the server answered 422: no")
        return None

    recorder = Recorder(refuse)
    await push(broker, "Orders", 1, 2)
    async with running(broker, "Orders", calls(broker, spec, "Orders", recorder)):
        await drained(broker, "Orders")
    assert recorder.orders == [1, 2]
    [letter] = await broker.dead_letters.page("Orders")
    assert letter.error == "the server answered 422: no"


async def test_a_message_that_cannot_be_mapped_is_a_failed_attempt_with_the_expressions_text(
    broker: Broker, spec: ir.Spec
) -> None:
    recorder = Recorder()
    await broker.push("Loose", {"nothing": 1})
    await broker.push("Loose", [1])
    await broker.push("Loose", {"id": 7})
    async with running(broker, "Loose", calls(broker, spec, "Loose", recorder)):
        await drained(broker, "Loose")
        for seconds in (1, 2, 4, 8):
            broker.clock.advance(seconds)  # type: ignore[attr-defined]
            broker._engine.waiters.wake_all()
            await asyncio.sleep(0.02)
            await drained(broker, "Loose")
    assert recorder.orders == [7]
    errors = sorted(str(letter.error) for letter in await broker.dead_letters.page("Loose"))
    assert errors[1] == "order: `id`: there is no `id`"
    assert errors[0].startswith("expressions need a JSON object")


async def test_lanes_go_beside_each_other_and_so_do_the_messages_of_an_unordered_queue(
    broker: Broker, spec: ir.Spec
) -> None:
    async def slowly(input: dict[str, Any]) -> None:
        async with asyncio.timeout(60):
            await gate.wait()

    for queue, customers in (("Orders", ["a", "b", "c"]), ("Loose", ["a", "a", "a"])):
        gate = asyncio.Event()
        recorder = Recorder(slowly)
        for id, customer in enumerate(customers):
            await push(broker, queue, id, customer=customer)
        await push(broker, "Orders", 9, customer="a")
        async with running(broker, queue, calls(broker, spec, queue, recorder)):
            await until(lambda: recorder.running >= 3)  # noqa: B023
            gate.set()
            await drained(broker, queue)
        assert recorder.most == 3


async def test_a_runner_that_stops_ends_what_runs_and_gives_back_the_rest_without_a_charge(
    broker: Broker, spec: ir.Spec
) -> None:
    gate = asyncio.Event()

    async def slowly(input: dict[str, Any]) -> None:
        await gate.wait()

    recorder = Recorder(slowly)
    await push(broker, "Orders", *range(5))
    runner = calls(broker, spec, "Orders", recorder).consumer(broker, "Orders")
    runner.start()
    await until(lambda: recorder.running)
    stopping = asyncio.create_task(runner.end(grace_seconds=5))
    await asyncio.sleep(0)
    gate.set()
    await stopping
    assert recorder.orders == [0]
    batch = await broker.pop("Orders", group=COMMANDS, batch=10)
    assert [message.data["id"] for message in batch] == [1, 2, 3, 4]
    assert batch[0].failed_attempts == 0


async def test_commands_are_leased_for_as_long_as_their_queue_says(broker: Broker, spec: ir.Spec) -> None:
    gate = asyncio.Event()
    recorder = Recorder(lambda input: gate.wait())
    queue = await broker._engine.catalogue.queue(broker.tenant, "Orders", make=False)
    assert queue is not None
    options = msgspec.structs.replace(queue.options, lease_seconds=7)
    await broker.queues.configure("Orders", **msgspec.structs.asdict(options))
    await push(broker, "Orders", 1)
    async with running(broker, "Orders", calls(broker, spec, "Orders", recorder)):
        await until(lambda: recorder.running)
        found = await broker._engine.store.statistics.leases([queue.id], group=COMMANDS, ends_before=NEVER_AT, limit=9)
        assert [lease.expires_at - lease.leased_at for lease in found] == [7_000_000]
        gate.set()


async def test_a_call_that_outlasts_the_grace_is_given_back(broker: Broker, spec: ir.Spec) -> None:
    recorder = Recorder(lambda input: asyncio.sleep(60))
    await push(broker, "Orders", 1)
    runner = calls(broker, spec, "Orders", recorder).consumer(broker, "Orders")
    runner.start()
    await until(lambda: recorder.running)
    await runner.end(grace_seconds=0.01)
    [message] = await broker.pop("Orders", group=COMMANDS)
    assert (message.transaction_id, message.failed_attempts) == ("o-1", 0)


async def test_two_brokers_carry_out_each_message_once(broker: Broker, spec: ir.Spec) -> None:
    recorder = Recorder(lambda input: asyncio.sleep(0))
    other = Broker(build_engine(broker._engine.store))
    for customer in "abcdefgh":
        await push(broker, "Orders", *range(10), customer=customer)
    async with (
        running(broker, "Orders", calls(broker, spec, "Orders", recorder, concurrency=2)),
        running(other, "Orders", calls(other, spec, "Orders", recorder, concurrency=2)),
    ):
        await drained(broker, "Orders")
    await other.stop()
    assert len(recorder.asked) == 80
    assert len({(input["who"], input["order"]) for _, input, _ in recorder.asked}) == 80


def chaining(broker: Broker, spec: ir.Spec, queue: str) -> ForwardHandling:
    return ForwardHandling(broker, CompiledQueue(spec, queue), "Bills", CommandCounts())


async def test_a_command_that_is_a_push_moves_messages_once_and_in_order(broker: Broker, spec: ir.Spec) -> None:
    for customer in ("ann", "bob"):
        await push(broker, "Orders", *range(150), customer=customer)
    async with running(broker, "Orders", chaining(broker, spec, "Orders")):
        await drained(broker, "Orders")
    bills = await broker.pop("Bills", batch=1000, partitions=10)
    assert {bill.type for bill in bills} == {"Bill"}
    for who in ("ANN", "BOB"):  # the key of the other queue
        assert [bill.data["order"] for bill in bills if bill.partition == who] == list(range(150))
    assert not await broker.dead_letters.page("Orders")


async def test_messages_that_were_moved_are_not_moved_again_when_the_answer_is_lost(
    broker: Broker, spec: ir.Spec
) -> None:
    """The store is also unavailable when the call is repeated."""
    await push(broker, "Orders", *range(3))
    orders = await broker.pop("Orders", group="others", batch=10)
    fails(broker._engine.store.messages, "transact", APPLIED, AWAY)
    async with running(broker, "Orders", chaining(broker, spec, "Orders")):
        await until(lambda: broker._engine.store.messages.transact.__name__ == "transact")
        await drained(broker, "Orders")
    bills = await broker.pop("Bills", batch=10)
    assert [bill.data["order"] for bill in bills] == [0, 1, 2]
    assert [bill.transaction_id for bill in bills] == [f"Orders/ann/{order.id}" for order in orders]


async def test_a_message_of_a_queue_with_a_long_name_is_moved_under_a_short_id(broker: Broker, spec: ir.Spec) -> None:
    await push(broker, "Orders", 1, customer="c" * 255)
    async with running(broker, "Orders", chaining(broker, spec, "Orders")):
        await drained(broker, "Orders")
    [bill] = await broker.pop("Bills", batch=10)
    assert len(bill.transaction_id) == 64


async def test_a_full_queue_behind_lets_messages_wait_without_a_charge(broker: Broker, spec: ir.Spec) -> None:
    options = msgspec.structs.asdict(spec.queues["Bills"].options) | {"max_size": 3}
    await broker.queues.configure("Bills", **options)
    await push(broker, "Orders", *range(5))
    async with running(broker, "Orders", chaining(broker, spec, "Orders")):
        await drained(broker, "Orders")
        first = await broker.pop("Bills", batch=10)
        assert [bill.data["order"] for bill in first] == [0, 1, 2]
        [lane] = await broker.groups.lanes("Orders", COMMANDS)
        assert (lane.committed, lane.attempts) == (3, 0)
        await broker.ack(first)
        broker.clock.advance(1.0)  # type: ignore[attr-defined]
        broker._engine.waiters.wake_all()
        await until(lambda: broker.process.telemetry.transaction.count >= 4)
        await drained(broker, "Orders")
        assert [bill.data["order"] for bill in await broker.pop("Bills", batch=10)] == [3, 4]


async def test_one_message_that_the_other_queue_refuses_fails_alone(broker: Broker, spec: ir.Spec) -> None:
    await push(broker, "Orders", 1)
    await broker.push("Orders", {"id": "two", "customer": "ann"}, partition="ann")
    await push(broker, "Orders", 3)
    await push(broker, "Orders", 4, customer="bob")
    async with running(broker, "Orders", chaining(broker, spec, "Orders")):
        await drained(broker, "Orders")
        broker.clock.advance(1.0)  # type: ignore[attr-defined]
        broker._engine.waiters.wake_all()
        await asyncio.sleep(0.02)
        await drained(broker, "Orders")
    bills = await broker.pop("Bills", batch=10, partitions=10)
    assert sorted(bill.data["order"] for bill in bills) == [1, 3, 4]
    [letter] = await broker.dead_letters.page("Orders")
    assert "order: expected int" in str(letter.error)
