"""Executors of commands, chosen by the declaration."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from fairlane import tracing
from fairlane.broker.broker import Broker
from fairlane.commands.handling import Executor
from fairlane.errors import CommandFailed, FairlaneError, NotFound
from fairlane.hooks.schemes import PRESETS, keys_of
from fairlane.model.idempotency import KEY_HEADER
from fairlane.model.message import PushItem
from fairlane.model.names import DEFAULT_PARTITION, QUEUE_MODE
from fairlane.model.outcome import PushOutcome
from fairlane.spec import ir

if TYPE_CHECKING:
    from fairlane.outbound.caller import Caller

Secrets = Callable[[Sequence[str]], list[str]]
ANSWER_SECONDS = 10.0
"""How long somebody who runs a command at once waits for the worker that carries it out."""


class Executors:
    """Of the commands of all tenants of a broker. `open_caller` is asked for when the first call is to be made: most
    brokers make none, and need not pay for the client."""

    def __init__(self, broker: Broker, open_caller: Callable[[], Caller], secrets: Secrets) -> None:
        self._broker = broker
        self._open_caller = open_caller
        self._caller: Caller | None = None
        self._secrets = secrets

    async def run(self, tenant: str, command: str, input: bytes, *, idempotency_key: str) -> bytes:
        """Carry out a command of a tenant at once, whoever does it; what it came to, as JSON. CommandFailed if it came
        to nothing."""
        broker = self._broker.of(tenant)
        executor = await self.of(broker, broker.compiled_specs.commands.get(command))
        return await executor.run(command, input, idempotency_key=idempotency_key)

    async def of(self, broker: Broker, declared: ir.CommandSpec | None) -> Executor:
        """The executor for the tenant of this broker. CommandFailed if what it is signed with is missing."""
        run = declared.run if declared is not None else None
        if isinstance(run, ir.HttpRun) and declared is not None:
            key = self._key(declared)
            if self._caller is None:
                opened = await asyncio.to_thread(self._open_caller)  # beside the loop: it is much to import
                self._caller = self._caller or opened
            from fairlane.commands.http import HttpExecutor

            return HttpExecutor(run, key, self._caller)
        if isinstance(run, ir.QueueRun):
            return QueueExecutor(broker, run.queue)
        return WorkerExecutor(broker)

    def _key(self, declared: ir.CommandSpec) -> bytes:
        try:
            return keys_of(PRESETS["standard_webhooks"], self._secrets([declared.secret_env or ""]))[0]
        except FairlaneError as error:
            raise CommandFailed(str(error), retryable=True) from None

    async def close(self) -> None:
        if self._caller is not None:
            await self._caller.close()


class QueueExecutor:
    """The input becomes a message of another queue; pushed again it is the same message."""

    def __init__(self, broker: Broker, queue: str) -> None:
        self._broker = broker
        self._queue = queue

    async def run(self, command: str, input: bytes, *, idempotency_key: str) -> bytes:
        outcome = await _pushed(self._broker, self._queue, command, input, idempotency_key)
        return msgspec.json.encode({"queue": self._queue, "message_id": outcome.message_id})


class WorkerExecutor:
    """A worker that registered the command carries it out: the input goes through the queue of the command's name,
    and the result comes from the ack."""

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
        except NotFound:  # it waits to be stored
            found = None
        if found is None or not found.over:
            message = f"no worker has carried out {command!r:.80} within {self._seconds:g} s; it waits in its queue"
            raise CommandFailed(message, retryable=True)
        if found.status == "dead_letter":
            raise CommandFailed(f"it was given up: {found.error}")
        return bytes(found.raw)


async def _pushed(broker: Broker, queue: str, command: str, input: bytes, key: str) -> PushOutcome:
    headers = {KEY_HEADER: key, **tracing.current()}
    item = PushItem(queue=queue, payload=input, transaction_id=key, type=command, headers=headers)
    try:
        [outcome] = await broker.push_many([item])
    except FairlaneError as error:
        raise CommandFailed(str(error), retryable=error.retryable) from None
    if outcome.error is not None:
        raise CommandFailed(str(outcome.error), retryable=outcome.error.retryable)
    return outcome
