"""Message handling for queues that are mapped to a command: run an executor, or push to another queue."""

from __future__ import annotations

import hashlib
import logging
from time import perf_counter
from typing import Any, Protocol

import msgspec

from fairlane.broker.broker import Broker
from fairlane.broker.expression_quota import Usage
from fairlane.broker.transact import AckStep, Step
from fairlane.errors import CommandFailed, ExpressionTooCostly, FairlaneError, InvalidRequest, OutcomeUnknown, OverQuota
from fairlane.model.idempotency import KEY_HEADER, idempotency_key
from fairlane.model.ids import PartitionId
from fairlane.model.limits import NAME_CHARS_MAX
from fairlane.model.message import Message, PushItem
from fairlane.model.names import COMMANDS
from fairlane.model.outcome import AckItem
from fairlane.model.verdict import Dead, Done, Fail, Retry, Verdict, ack_for, failure
from fairlane.otel import tracing
from fairlane.runtime.claim import Claim
from fairlane.runtime.consumer import Consumer
from fairlane.runtime.handling import Handled, Handling
from fairlane.spec.compiled_queue import CompiledQueue, decoded
from fairlane.telemetry import CommandCounts

LANE_MESSAGES = 8
"""Messages to take from a lane at once. While they wait here no other broker can take them."""
TRANSACTION_MESSAGES = 100
POSTPONED_SECONDS = 1.0
"""Delay before a message is retried whose target queue is full."""

Moved = list[tuple[Message[Any], PushItem]]


class Executor(Protocol):
    async def run(self, command: str, input: bytes, *, idempotency_key: str) -> bytes:
        """Run a command and return its result as JSON. Raises CommandFailed."""
        ...


class CommandHandling(Handling):
    """Base class for handling a queue that is mapped to a command.

    Several brokers may run it at once without a leader: leases keep them apart.
    """

    log = logging.getLogger("fairlane.commands")
    retries_all_pops = True
    verb = "command"

    def __init__(self, broker: Broker, compiled: CompiledQueue, counts: CommandCounts, *, concurrency: int) -> None:
        self.concurrency = concurrency
        self._expression_quota = broker.specs.compiled.expression_quota
        self._compiled = compiled
        self._counts = counts
        self.span_name = compiled.mapping.command if compiled.mapping else ""

    def consumer(self, broker: Broker, queue: str) -> Consumer:
        return Consumer(broker, queue, self, group=COMMANDS, slots=self.concurrency)

    def slot_each(self, *, ordered: bool) -> bool:
        return not ordered and not self.whole_batches

    def command(self, message: Message[Any], usage: Usage) -> tuple[str, Any]:
        """Return the command that a message is mapped to, and its input."""
        raw = bytes(message.raw)
        with usage.on(len(raw)):
            command = self._compiled.command(decoded(raw))
        assert command is not None  # only queues with a mapping are handled here
        return command.name, command.input

    def verdict_on(self, error: BaseException) -> Verdict:
        """Return the verdict on an error: a retry by the queue's settings, or Dead if retrying is pointless."""
        tracing.record_failure(error)
        if not isinstance(error, FairlaneError):
            self.log.error("unexpected error in a command", exc_info=error)
            return failure(error)
        if isinstance(error, OverQuota):  # not a failed attempt of the message
            return Retry(error.retry_after, str(error))
        if isinstance(error, CommandFailed) and error.retryable:
            return Fail(str(error), error.retry_after)
        if isinstance(error, CommandFailed | ExpressionTooCostly):  # every attempt would fail the same way
            return Dead(str(error))
        return Fail(str(error))


class ExecutorHandling(CommandHandling):
    """Runs each message's command with an executor: one at a time within a lane, lanes in parallel."""

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

    def next_pop_size(self, consumer: Consumer) -> tuple[int, int]:
        if consumer.ordered is None:
            return 1, 1
        return (LANE_MESSAGES, 1) if consumer.ordered else (consumer.free_slots, consumer.free_slots)

    async def handle(self, claim: Claim, messages: list[Any]) -> Handled:
        [message] = messages
        began = perf_counter()
        try:
            with self._expression_quota.request() as usage:
                name, input = self.command(message, usage)
            result = await self._executor.run(name, msgspec.json.encode(input), idempotency_key=key_of(message))
            verdict: Verdict = Done(msgspec.Raw(result))
        except Exception as error:  # any failure of the command becomes a verdict
            verdict = self.verdict_on(error)
        item = ack_for(message, verdict)
        self._counts.record(item.status, perf_counter() - began)
        return Handled([item])


class ForwardHandling(CommandHandling):
    """Pushes each message's command to another queue, many in one transaction.

    If that queue has a key, the key names the partition. Otherwise a message keeps the name of its partition, so that
    lanes stay in order.
    """

    whole_batches = True

    def __init__(
        self, broker: Broker, compiled: CompiledQueue, queue: str, counts: CommandCounts, *, concurrency: int = 4
    ) -> None:
        """Create a handling with low `concurrency`: the store runs one transaction at a time anyway."""
        super().__init__(broker, compiled, counts, concurrency=concurrency)
        self._broker = broker
        self._queue = queue

    def next_pop_size(self, consumer: Consumer) -> tuple[int, int]:
        return TRANSACTION_MESSAGES, TRANSACTION_MESSAGES

    async def handle(self, claim: Claim, messages: list[Any]) -> Handled:
        """Push the messages. If one cannot be mapped, it is delivered again, with the later messages of its lane."""
        moved: Moved = []
        refused: list[AckItem] = []
        ended: set[PartitionId] = set()
        for message in messages:
            if message.partition_id in ended:
                continue
            try:
                moved.append((message, self._item(message)))
            except Exception as error:  # any failure of the command becomes a verdict
                refused.append(ack_for(message, self.verdict_on(error)))
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
        """Return None for a failed commit: committed messages must not be pushed again, the others are redelivered."""
        if not isinstance(error, FairlaneError):
            return self.verdict_on(error)
        text = "cannot push messages to queue %(queue)r, redelivering them: %(error)s"
        self.log.warning(text, {"queue": self._queue, "error": error})
        return None

    def _item(self, message: Message[Any]) -> PushItem:
        partition = message.partition
        with self._expression_quota.request() as usage:
            name, input = self.command(message, usage)
            payload = msgspec.json.encode(input)
            target = self._broker.specs.compiled.queues.get(self._queue)
            if target is not None:
                target.check(payload)
                with usage.on(len(payload)):
                    partition = target.partition(input) or partition
        return PushItem(
            queue=self._queue,
            payload=payload,
            partition=partition,
            transaction_id=_id_of(message),
            trace_id=message.trace_id,
            type=name,
            headers={KEY_HEADER: key_of(message), **tracing.context_for_next(message.headers)},
        )

    async def _commit(self, moved: Moved) -> None:
        steps: list[Step] = []
        for message, item in moved:
            done = ack_for(message, Done({"queue": item.queue, "partition": item.partition}))
            steps += [AckStep(done, message.group), item]
        began = perf_counter()
        if steps:
            await self._broker.transact(steps)
        for _ in moved:
            self._counts.record("completed", perf_counter() - began)

    async def _one_by_one(self, moved: Moved, *, ordered: bool) -> list[AckItem]:
        """Push messages one by one after they were refused together.

        An invalid message has failed. When the target queue is full, it and all later messages are retried later.
        """
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
                refused.append(ack_for(message, self.verdict_on(error)))
            except FairlaneError as error:
                full = error
            if full is not None:  # retried soon without a failed attempt: the message is not at fault
                refused.append(ack_for(message, Retry(POSTPONED_SECONDS, str(full))))
            if ordered:
                ended.add(message.partition_id)
        return refused


def key_of(message: Message[Any]) -> str:
    return idempotency_key(message.queue, message.partition, message.transaction_id, message.headers)


def _id_of(message: Message[Any]) -> str:
    """Return the transactionId of the pushed message. It is the same at every attempt, so repeats are duplicates."""
    named = f"{message.queue}/{message.partition}/{message.id}"
    return named if len(named) <= NAME_CHARS_MAX else hashlib.sha256(named.encode()).hexdigest()
