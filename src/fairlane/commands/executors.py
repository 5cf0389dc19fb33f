"""Executors of commands, chosen by the command's declaration."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from fairlane.broker.broker import Broker
from fairlane.commands.handling import Executor
from fairlane.errors import CommandFailed, FairlaneError, NotFound
from fairlane.model.idempotency import KEY_HEADER
from fairlane.model.message import PushItem
from fairlane.model.names import DEFAULT_PARTITION, QUEUE_MODE
from fairlane.model.outcome import PushOutcome
from fairlane.otel import tracing
from fairlane.spec import ir
from fairlane.webhooks.schemes import PRESETS, keys_of

if TYPE_CHECKING:
    from fairlane.outbound.client import OutboundClient

Secrets = Callable[[Sequence[str]], list[str]]
ANSWER_SECONDS = 10.0
"""Seconds that a synchronous command waits for a worker."""


class Executors:
    """The executors of all tenants of a broker.

    `open_client` is called for the first HTTP command only: most brokers run none and need no client.
    """

    def __init__(self, broker: Broker, open_client: Callable[[], OutboundClient], secrets: Secrets) -> None:
        self._broker = broker
        self._open_client = open_client
        self._client: OutboundClient | None = None
        self._secrets = secrets

    async def run(self, tenant: str, command: str, input: bytes, *, idempotency_key: str) -> bytes:
        """Run a command of a tenant now and return its result as JSON. Raises CommandFailed."""
        broker = self._broker.of(tenant)
        executor = await self.of(broker, broker.specs.compiled.commands.get(command))
        return await executor.run(command, input, idempotency_key=idempotency_key)

    async def of(self, broker: Broker, declared: ir.CommandSpec | None) -> Executor:
        """Return the executor of a command. Raises CommandFailed if its signing secret is missing."""
        run = declared.run if declared is not None else None
        if isinstance(run, ir.HttpRun) and declared is not None:
            key = self._key(declared)
            if self._client is None:
                opened = await asyncio.to_thread(self._open_client)  # off the loop: it is slow to import
                self._client = self._client or opened
            from fairlane.commands.http import HttpExecutor

            return HttpExecutor(run, key, self._client)
        if isinstance(run, ir.QueueRun):
            return QueueExecutor(broker, run.queue)
        return WorkerExecutor(broker)

    def _key(self, declared: ir.CommandSpec) -> bytes:
        try:
            return keys_of(PRESETS["standard_webhooks"], self._secrets([declared.secret_env or ""]))[0]
        except FairlaneError as error:
            raise CommandFailed(str(error), retryable=True) from None

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()


class QueueExecutor:
    """Pushes the input to another queue. A repeated run is recognised as a duplicate."""

    def __init__(self, broker: Broker, queue: str) -> None:
        self._broker = broker
        self._queue = queue

    async def run(self, command: str, input: bytes, *, idempotency_key: str) -> bytes:
        outcome = await _pushed(self._broker, self._queue, command, input, idempotency_key)
        return msgspec.json.encode({"queue": self._queue, "message_id": outcome.message_id})


class WorkerExecutor:
    """Lets a worker run the command.

    The input goes through the queue with the command's name, and the result comes from the ack.
    """

    def __init__(self, broker: Broker, *, seconds: float = ANSWER_SECONDS) -> None:
        self._broker = broker
        self._seconds = seconds

    async def run(self, command: str, input: bytes, *, idempotency_key: str) -> bytes:
        outcome = await _pushed(self._broker, command, command, input, idempotency_key)
        partition = outcome.partition or DEFAULT_PARTITION
        try:
            found = await self._broker.results.get(
                command, outcome.transaction_id, partition=partition, group=QUEUE_MODE, wait=self._seconds
            )
        except NotFound:  # it is not stored yet
            found = None
        if found is None or not found.over:
            message = f"no worker has run {command!r:.80} within {self._seconds:g} s; it is still in its queue"
            raise CommandFailed(message, retryable=True)
        if found.status == "dead_letter":
            raise CommandFailed(f"it is a dead letter: {found.error}")
        if found.status == "cancelled":
            raise CommandFailed("its message was cancelled")
        return bytes(found.raw)


async def _pushed(broker: Broker, queue: str, command: str, input: bytes, key: str) -> PushOutcome:
    headers = {KEY_HEADER: key, **tracing.current_context()}
    item = PushItem(queue=queue, payload=input, transaction_id=key, type=command, headers=headers)
    try:
        [outcome] = await broker.push_many([item])
    except FairlaneError as error:
        raise CommandFailed(str(error), retryable=error.retryable) from None
    if outcome.error is not None:
        raise CommandFailed(str(outcome.error), retryable=outcome.error.retryable)
    return outcome
