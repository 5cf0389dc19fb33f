"""Handling of messages that become commands: calls of an executor, or pushes to another queue."""

from __future__ import annotations

import hashlib
import logging
from time import perf_counter
from typing import Any, Protocol

import msgspec

from fairlane import tracing
from fairlane.broker.broker import Broker
from fairlane.broker.transact import AckStep, Step
from fairlane.broker.work import Spent
from fairlane.errors import CommandFailed, ExpressionTooCostly, FairlaneError, InvalidRequest, OutcomeUnknown, OverQuota
from fairlane.model.idempotency import KEY_HEADER, idempotency_key
from fairlane.model.ids import PartitionId
from fairlane.model.limits import NAME_CHARS_MAX
from fairlane.model.message import Message, PushItem
from fairlane.model.names import COMMANDS
from fairlane.model.outcome import AckItem
from fairlane.model.verdict import Dead, Done, Fail, Retry, Verdict, failure, settled
from fairlane.runtime.claim import Claim
from fairlane.runtime.consumer import Consumer
from fairlane.runtime.handling import Handled, Handling
from fairlane.spec.compiled_queue import CompiledQueue, decoded
from fairlane.telemetry import CommandCounts

LANE_MESSAGES = 8
"""Taken of a lane at once: while they wait here no other broker can have them."""
TRANSACTION_MESSAGES = 100
POSTPONED_SECONDS = 1.0
"""How long a message stays where it is while the queue behind it has no room."""

Moved = list[tuple[Message[Any], PushItem]]


class Executor(Protocol):
    async def run(self, command: str, input: bytes, *, idempotency_key: str) -> bytes:
        """Carry out a command; what it came to, as JSON. CommandFailed if it came to nothing."""
        ...


class Commands(Handling):
    """Handling of the messages of a queue that is mapped to a command. Leases make it safe beside other brokers: none
    leads."""

    log = logging.getLogger("fairlane.commands")
    stubborn = True
    verb = "command"

    def __init__(self, broker: Broker, compiled: CompiledQueue, counts: CommandCounts, *, concurrency: int) -> None:
        self.concurrency = concurrency
        self._work = broker.compiled_specs.work
        self._compiled = compiled
        self._counts = counts
        self.called = compiled.mapping.command if compiled.mapping else ""

    def consumer(self, broker: Broker, queue: str) -> Consumer:
        return Consumer(broker, queue, self, group=COMMANDS, room=self.concurrency)

    def slot_each(self, *, ordered: bool) -> bool:
        return not ordered and not self.whole

    def command(self, message: Message[Any], spent: Spent) -> tuple[str, Any]:
        """The command that a message becomes, and its input."""
        raw = bytes(message.raw)
        with spent.on(len(raw)):
            command = self._compiled.command(decoded(raw))
        assert command is not None  # only queues with a mapping are carried out
        return command.name, command.input

    def verdict_on(self, error: BaseException) -> Verdict:
        """A failed attempt, which is repeated as the queue's delivery settings say; the end if trying again is no
        use."""
        tracing.failed(error)
        if not isinstance(error, FairlaneError):
            self.log.error("unexpected error in a command", exc_info=error)
            return failure(error)
        if isinstance(error, OverQuota):  # the message is not to blame
            return Retry(error.retry_after, str(error))
        if isinstance(error, CommandFailed) and error.retryable:
            return Fail(str(error), error.retry_after)
        if isinstance(error, CommandFailed | ExpressionTooCostly):  # it would be so at every attempt
            return Dead(str(error))
        return Fail(str(error))


class Calls(Commands):
    """Commands that somebody else carries out: one after another in a lane, lanes beside each other."""

    def __init__(
        self,
        broker: Broker,
        compiled: CompiledQueue,
        executor: Executor,
        counts: CommandCounts,
        *,
        concurrency: int = 32,
    ) -> None:
        super().__init__(broker, compiled, counts, concurrency=concurrency)
        self._executor = executor

    def asks(self, consumer: Consumer) -> tuple[int, int]:
        if consumer.ordered is None:
            return 1, 1
        return (LANE_MESSAGES, 1) if consumer.ordered else (consumer.free, consumer.free)

    async def handle(self, claim: Claim, messages: list[Any]) -> Handled:
        [message] = messages
        began = perf_counter()
        try:
            with self._work.request() as spent:
                name, input = self.command(message, spent)
            result = await self._executor.run(name, msgspec.json.encode(input), idempotency_key=key_of(message))
            verdict: Verdict = Done(msgspec.Raw(result))
        except Exception as error:  # the command's boundary: its failure is a verdict
            verdict = self.verdict_on(error)
        item = settled(message, verdict)
        self._counts.record(item.status, perf_counter() - began)
        return Handled([item])


class Chaining(Commands):
    """Commands that are pushes to `queue`: messages become messages of it, many in one transaction. If that queue has a
    key, it names the partition; otherwise that is the one a message came from, so that the order of a lane is kept."""

    whole = True

    def __init__(
        self, broker: Broker, compiled: CompiledQueue, queue: str, counts: CommandCounts, *, concurrency: int = 4
    ) -> None:
        """Few at once: the store takes one transaction after the other anyway."""
        super().__init__(broker, compiled, counts, concurrency=concurrency)
        self._broker = broker
        self._queue = queue

    def asks(self, consumer: Consumer) -> tuple[int, int]:
        return TRANSACTION_MESSAGES, TRANSACTION_MESSAGES

    async def handle(self, claim: Claim, messages: list[Any]) -> Handled:
        """What is behind a message that cannot be mapped in its lane comes again with it."""
        moved: Moved = []
        refused: list[AckItem] = []
        ended: set[PartitionId] = set()
        for message in messages:
            if message.partition_id in ended:
                continue
            try:
                moved.append((message, self._item(message)))
            except Exception as error:  # the command's boundary: its failure is a verdict
                refused.append(settled(message, self.verdict_on(error)))
                if claim.ordered:
                    ended.add(message.partition_id)
        try:
            await self._commit(moved)
        except OutcomeUnknown:
            raise
        except FairlaneError:
            refused = [*await self._one_by_one(moved, ordered=claim.ordered), *refused]
        for item in refused:
            self._counts.record(item.status, 0.0)
        return Handled(refused)

    def on_error(self, error: BaseException, messages: list[Any]) -> Verdict | None:
        """What was committed must not be pushed again; what was not comes again."""
        if not isinstance(error, FairlaneError):
            return self.verdict_on(error)
        text = "cannot move messages to queue %(queue)r, they are delivered again: %(error)s"
        self.log.warning(text, {"queue": self._queue, "error": error})
        return None

    def _item(self, message: Message[Any]) -> PushItem:
        partition = message.partition
        with self._work.request() as spent:
            name, input = self.command(message, spent)
            payload = msgspec.json.encode(input)
            target = self._broker.compiled_specs.queues.get(self._queue)
            if target is not None:
                target.check(payload)
                with spent.on(len(payload)):
                    partition = target.partition(input) or partition
        return PushItem(
            queue=self._queue,
            payload=payload,
            partition=partition,
            transaction_id=_id_of(message),
            trace_id=message.trace_id,
            type=name,
            headers={KEY_HEADER: key_of(message), **tracing.onward(message.headers)},
        )

    async def _commit(self, moved: Moved) -> None:
        steps: list[Step] = []
        for message, item in moved:
            done = settled(message, Done({"queue": item.queue, "partition": item.partition}))
            steps += [AckStep(done, message.group), item]
        began = perf_counter()
        if steps:
            await self._broker.transact(steps)
        for _ in moved:
            self._counts.record("completed", perf_counter() - began)

    async def _one_by_one(self, moved: Moved, *, ordered: bool) -> list[AckItem]:
        """Together they were refused. What can go on does so; one that never can has failed; and from where there is no
        room all wait, for a full queue has room some day."""
        refused: list[AckItem] = []
        ended: set[PartitionId] = set()
        full: FairlaneError | None = None
        for message, item in moved:
            if message.partition_id in ended:
                continue
            try:
                if full is None:
                    await self._commit([(message, item)])
                    continue
            except OutcomeUnknown:
                raise
            except InvalidRequest as error:
                refused.append(settled(message, self.verdict_on(error)))
            except FairlaneError as error:
                full = error
            if full is not None:  # comes again soon, without a charge: it is not to blame
                refused.append(settled(message, Retry(POSTPONED_SECONDS, str(full))))
            if ordered:
                ended.add(message.partition_id)
        return refused


def key_of(message: Message[Any]) -> str:
    return idempotency_key(message.queue, message.partition, message.transaction_id, message.headers)


def _id_of(message: Message[Any]) -> str:
    """The transactionId of what a message becomes: the same whenever it is moved, so that it is known when that is done
    again."""
    named = f"{message.queue}/{message.partition}/{message.id}"
    return named if len(named) <= NAME_CHARS_MAX else hashlib.sha256(named.encode()).hexdigest()
