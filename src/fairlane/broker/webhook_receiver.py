"""The webhook receiver: each request becomes one message under its idempotency key, or runs its command at once.

The key is the transactionId of the message, so the key and the message are stored in the same commit.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal

import msgspec

from fairlane.broker.push_batch import PushRequest
from fairlane.broker.resource import Resource
from fairlane.errors import NotFound, Unavailable
from fairlane.model.message import PushItem
from fairlane.model.names import COMMANDS, QUEUE_MODE
from fairlane.model.outcome import PushOutcome
from fairlane.otel import tracing
from fairlane.spec.compiled_queue import MappedCommand
from fairlane.store.contract.values import DeadFilter
from fairlane.webhooks.webhook import Received, Webhook

if TYPE_CHECKING:
    from fairlane.broker.compiled_specs import Runner
    from fairlane.broker.dead_letters import DeadLetters
    from fairlane.broker.engine import TenantScope
    from fairlane.broker.results import Results


class WebhookResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a webhook."""

    status: Literal[
        "queued", "buffered", "duplicate", "processed", "replayed", "dead_letter", "cancelled", "ran", "ignored"
    ]
    key: str = ""
    message_id: str | None = None
    """Id of the stored message. After a replay, this is the id of the new message."""
    result: bytes = b"null"
    error: str | None = None
    """Error of the dead letter."""
    replayed: bool = False
    """True if the first message was dead-lettered and then replayed, by this delivery or an earlier one."""


class WebhookReceiver(Resource):
    def __init__(self, scope: TenantScope, results: Results, dead_letters: DeadLetters) -> None:
        super().__init__(scope)
        self._results = results
        self._dead_letters = dead_letters

    async def receive(self, webhook: Webhook, received: Received, runner: Runner | None) -> WebhookResult:
        """Store a verified webhook as a message, or run its command.

        Raises InvalidRequest if it cannot be accepted, QueueFull or Unavailable if it cannot be accepted now, and
        OverQuota if the tenant's expressions exceed their quota. Nothing was stored then.
        """
        message = webhook.message(received)
        if not webhook.accepts_type(message):
            return WebhookResult(status="ignored")
        if not webhook.evaluates:
            return await self._queue(webhook, received, message, webhook.key(received, message))
        with self._scope.compiled_specs.expression_quota.request() as usage:
            with usage.on(len(message)):
                key = webhook.key(received, message)
            if webhook.spec.queue is not None:
                return await self._queue(webhook, received, message, key)
            with usage.on(len(message)):
                command = webhook.command(message)
            return await self._run(webhook, key, command, runner)

    async def _queue(self, webhook: Webhook, received: Received, message: bytes, key: str) -> WebhookResult:
        assert webhook.spec.queue is not None  # otherwise it has a command, which is an expression
        item = PushItem(
            queue=webhook.spec.queue,
            payload=message,
            transaction_id=webhook.transaction_id(key),
            headers=tracing.context_of_request(received.headers) or None,
        )
        [outcome] = await self._scope.intake.push(PushRequest(self._tenant, [item]))
        if outcome.error is not None:
            raise outcome.error
        if outcome.status == "duplicate":
            return await self._known(webhook, webhook.spec.queue, key, outcome)
        status: Literal["queued", "buffered"] = "buffered" if outcome.status == "buffered" else "queued"
        return WebhookResult(status=status, key=key, message_id=outcome.message_id)

    async def _run(self, webhook: Webhook, key: str, command: MappedCommand, runner: Runner | None) -> WebhookResult:
        if runner is None:
            raise Unavailable("this broker runs no commands")
        given, once = msgspec.json.encode(command.input), webhook.transaction_id(key)
        result = await runner.run(self._tenant, command.name, given, idempotency_key=once)
        return WebhookResult(status="ran", key=key, result=result)

    async def _known(self, webhook: Webhook, queue: str, key: str, outcome: PushOutcome) -> WebhookResult:
        """Answer a redelivery with the state of its first message.

        Replays a dead letter if the webhook is signed and its spec allows it. If the queue maps to a command, the
        group that runs it decides the state. Before that group is done, a result of the default group is returned.
        """
        known = WebhookResult(status="duplicate", key=key, message_id=outcome.message_id)
        if outcome.partition is None:
            return known
        compiled = self._scope.compiled_specs.queues.get(queue)
        group = COMMANDS if compiled is not None and compiled.mapping is not None else None
        ask = partial(self._results.get, queue, outcome.transaction_id, partition=outcome.partition)
        try:
            found = await ask(group=group)
            if group is not None and not found.over:
                own = await ask(group=QUEUE_MODE)
                found = own if own.status == "completed" and bytes(own.raw) != b"null" else found
        except (NotFound, Unavailable):
            return known
        if found.dead_letter_id is not None and webhook.replays:
            for _, new in await self._dead_letters.replay(queue, DeadFilter(ids=[found.dead_letter_id])):
                return msgspec.structs.replace(known, status="replayed", message_id=new, replayed=True)
            found = await ask(group=group)  # another redelivery was faster
        if found.replayed_as is not None:
            known = msgspec.structs.replace(known, message_id=found.replayed_as, replayed=True)
        if found.status == "completed":
            return msgspec.structs.replace(known, status="processed", result=bytes(found.raw))
        if found.status == "dead_letter":
            return msgspec.structs.replace(known, status="dead_letter", error=found.error, replayed=False)
        if found.status == "cancelled":
            return msgspec.structs.replace(known, status="cancelled")
        return known
