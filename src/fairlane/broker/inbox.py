"""The inbox of webhooks: each becomes one message under its idempotency key, or runs its command at once.

The key is the transactionId of the message, so that what tells a redelivery is stored in the same commit as the
message itself.
"""

from __future__ import annotations

from functools import partial
from typing import Literal

import msgspec

from fairlane import tracing
from fairlane.broker.part import Part
from fairlane.broker.push_batch import PushRequest
from fairlane.errors import NotFound, Unavailable
from fairlane.hooks.hook import Hook, Received
from fairlane.model.message import PushItem
from fairlane.model.names import COMMANDS, QUEUE_MODE
from fairlane.model.outcome import PushOutcome
from fairlane.spec.compiled_queue import Command
from fairlane.store.contract.values import DeadFilter


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a webhook."""

    status: Literal["queued", "buffered", "duplicate", "processed", "replayed", "dead_letter", "ran", "ignored"]
    key: str = ""
    message_id: str | None = None
    """Id of the stored message. After a replay, this is the id of the new message."""
    result: bytes = b"null"
    error: str | None = None
    """Why a dead letter was given up."""
    replayed: bool = False
    """True if the first message was dead-lettered and then replayed, by this delivery or an earlier one."""


class Inbox(Part):
    async def take(self, hook: Hook, received: Received) -> Taken:
        """A webhook whose signature was found good. InvalidRequest if it cannot be taken as it is, QueueFull or
        Unavailable if not now, OverQuota if the tenant's expressions have done too much; then nothing was stored."""
        message = hook.message(received)
        if not hook.is_meant(message):
            return Taken(status="ignored")
        if not hook.evaluates:
            return await self._queue(hook, received, message, hook.key(received, message))
        with self._broker.compiled_specs.work.request() as spent:
            with spent.on(len(message)):
                key = hook.key(received, message)
            if hook.spec.queue is not None:
                return await self._queue(hook, received, message, key)
            with spent.on(len(message)):
                command = hook.command(message)
            return await self._run(hook, key, command)

    async def _queue(self, hook: Hook, received: Received, message: bytes, key: str) -> Taken:
        assert hook.spec.queue is not None  # or it has a command, which is an expression
        item = PushItem(
            queue=hook.spec.queue,
            payload=message,
            transaction_id=hook.transaction_id(key),
            headers=tracing.of_request(received.headers) or None,
        )
        [outcome] = await self._broker.intake.push(PushRequest(self._tenant, [item]))
        if outcome.error is not None:
            raise outcome.error
        if outcome.status == "duplicate":
            return await self._known(hook, hook.spec.queue, key, outcome)
        status: Literal["queued", "buffered"] = "buffered" if outcome.status == "buffered" else "queued"
        return Taken(status=status, key=key, message_id=outcome.message_id)

    async def _run(self, hook: Hook, key: str, command: Command) -> Taken:
        if self._broker.all_specs.runner is None:
            raise Unavailable("this broker runs no commands")
        given, once = msgspec.json.encode(command.input), hook.transaction_id(key)
        result = await self._broker.all_specs.runner.run(self._tenant, command.name, given, idempotency_key=once)
        return Taken(status="ran", key=key, result=result)

    async def _known(self, hook: Hook, queue: str, key: str, outcome: PushOutcome) -> Taken:
        """Answer a redelivery with the state of its first message. Replays a dead letter if the webhook is signed and
        its spec allows it.

        If the queue maps to a command, the group that runs it decides. Until it has, a result that a consumer without
        a group acked the message with is the answer.
        """
        known = Taken(status="duplicate", key=key, message_id=outcome.message_id)
        if outcome.partition is None:
            return known
        compiled = self._broker.compiled_specs.queues.get(queue)
        group = COMMANDS if compiled is not None and compiled.mapping is not None else None
        ask = partial(self._broker.results.get, queue, outcome.transaction_id, partition=outcome.partition)
        try:
            found = await ask(group=group)
            if group is not None and not found.over:
                own = await ask(group=QUEUE_MODE)
                found = own if own.status == "completed" and bytes(own.raw) != b"null" else found
        except (NotFound, Unavailable):
            return known
        if found.dead_letter_id is not None and hook.replays:
            for _, new in await self._broker.dead_letters.replay(queue, DeadFilter(ids=[found.dead_letter_id])):
                return msgspec.structs.replace(known, status="replayed", message_id=new, replayed=True)
            found = await ask(group=group)  # another redelivery was faster
        if found.replayed_as is not None:
            known = msgspec.structs.replace(known, message_id=found.replayed_as, replayed=True)
        if found.status == "completed":
            return msgspec.structs.replace(known, status="processed", result=bytes(found.raw))
        if found.status == "dead_letter":
            return msgspec.structs.replace(known, status="dead_letter", error=found.error, replayed=False)
        return known
