"""The handlers of an app for one queue and group, as a consumer has them handle messages."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from fairlane.client.client import Client
from fairlane.model.outcome import AckItem
from fairlane.model.verdict import Dead, Done, Fail, Verdict, settled
from fairlane.runtime.claim import Claim
from fairlane.runtime.consumer import CANCEL_SECONDS, POLLS_MAX, Consumer
from fairlane.runtime.handling import Handled, Handling, charged, log_fields, one_each
from fairlane.runtime.threads import outcome
from fairlane.wire.transactions import TransactionStep
from fairlane.worker.app import App, Next, Subscription
from fairlane.worker.binding import Binding
from fairlane.worker.context import Context
from fairlane.worker.stage import Stage

LANE_SECONDS = 0.05
"""What one pop takes of an ordered queue should be handled in about this time: messages of one lane come one after
another, and while they wait in this worker no other can have them."""
LANES_LEAST = 16
BACKOFF_SECONDS = 1.0
"""After the first failed attempt, where neither handler nor queue has a backoff; doubled after each further one."""


class _Unfit(Dead, frozen=True):
    """A dead letter whose payload does not fit. Its error may quote the payload, so the log has `reason` instead."""

    reason: str


class Handlers(Handling):
    """The handlers of a subscription, on the stage. What is in hand never exceeds the concurrency (times the size of a
    batch)."""

    log = logging.getLogger("fairlane.worker")

    def __init__(
        self,
        app: App,
        subscription: Subscription,
        client: Client,
        stage: Stage,
        concurrency: int,
        backoff_seconds: float = BACKOFF_SECONDS,
    ) -> None:
        self.concurrency = concurrency
        self._backoff_seconds = backoff_seconds
        self.loop = stage.loop
        self.whole = subscription.batched
        self._app = app
        self._subscription = subscription
        self._client = client
        self._stage = stage
        self._bindings: dict[str | None, Binding] = {
            type: Binding(handler, stage.provided) for type, handler in subscription.handlers.items()
        }

    def asks(self, consumer: Consumer) -> tuple[int, int]:
        if self.whole:
            size = min(consumer.free, self._subscription.size)
        else:
            size = min(consumer.free, -(-consumer.room // min(self.concurrency, POLLS_MAX)))
            if consumer.ordered is not False:
                size = min(size, max(1, int(LANE_SECONDS / consumer.seconds)) if consumer.seconds else 1)
        return size, breadth(size, consumer.per_lane)

    async def handle(self, claim: Claim, messages: list[Any]) -> Handled:
        if self.whole:
            return await self._batch(claim, messages)
        [message] = messages
        binding = self._bindings.get(message.type) or self._bindings.get(None)
        if binding is None:
            text = f"no handler of this queue takes messages of type {message.type!r:.80}"
            return Handled([self._dead(message, Dead(text))])
        context = Context(messages, self._stage, claim)
        verdict: object
        try:
            verdict = await self._verdict(binding, context)
        except BaseException as error:  # the handler's boundary: its failure is a verdict
            verdict = self.on_error(claim.failure(error), messages)
        return Handled([self._settled(claim, binding, message, verdict)], context.pushed)

    def _settled(self, claim: Claim, binding: Binding, message: Any, verdict: object) -> AckItem:
        """The ack of a verdict. A failed attempt is followed by another as the handler says, or the queue, or else
        after a moment: what fails at once should not fail four times in a millisecond."""
        if isinstance(verdict, Fail):
            otherwise = None if claim.batch.retry_delay_ms else self._backoff_seconds
            verdict = binding.handler.after_failure(verdict, message.failed_attempts + 1, otherwise)
        return self._dead(message, verdict) if isinstance(verdict, Dead) else settled(message, verdict)

    def _dead(self, message: Any, verdict: Dead) -> AckItem:
        fields = {**log_fields(message), "error": verdict.reason if isinstance(verdict, _Unfit) else verdict.error}
        self.log.warning("message %(message_id)s of queue %(queue)r is a dead letter: %(error)s", fields)
        return settled(message, verdict)

    async def _verdict(self, binding: Binding, context: Context) -> object:
        raw = context.message.raw
        if self._subscription.mapping is not None:
            raw = msgspec.Raw(self._subscription.mapping(bytes(raw)))
        try:
            data = binding.decode(raw) if binding.reads else None
        except (ValueError, RecursionError) as error:  # of which msgspec's are
            return _unfit(binding, error)
        returned = await self._called(binding, data, context)
        if binding.handler.kind == "command" and returned is not None and not isinstance(returned, Verdict):
            return Done(returned)
        return self.accepted(returned, binding.handler.function)

    async def _batch(self, claim: Claim, messages: list[Any]) -> Handled:
        """A batch. What does not fit is dead-lettered alone; when the handler raises, each lane's first is charged."""
        binding = self._bindings[None]
        unfit: dict[int, Verdict] = {}
        data: dict[int, Any] = {}
        for index, message in enumerate(messages):
            try:
                data[index] = binding.decode(message.raw)
            except (ValueError, RecursionError) as error:
                unfit[index] = _unfit(binding, error)
        context = Context([messages[index] for index in data] or messages, self._stage, claim)
        settle = partial(self._settled, claim, binding)
        try:
            verdicts: dict[int, object] = dict(unfit)
            if data:
                returned = await self._called(binding, list(data.values()), context)
                answers = [self.accepted(one, binding.handler.function) for one in one_each(returned, len(data))]
                verdicts |= zip(data, answers, strict=True)
            items = [settle(message, verdicts[index]) for index, message in enumerate(messages)]
        except BaseException as error:  # the handler's boundary: its failure is a verdict
            return charged(messages, self.on_error(claim.failure(error), messages), unfit, settle)
        return Handled(items, context.pushed)

    async def _called(self, binding: Binding, data: Any, context: Context) -> Any:
        """The handler inside the middlewares."""
        arguments, limit = binding.arguments(data, context), binding.handler.timeout
        if limit is None and not self._app.middlewares:
            return await self._stage.call(binding, arguments, self.concurrency)

        async def innermost() -> Any:
            return await self._stage.call(binding, arguments, self.concurrency)

        call: Next = innermost
        for middleware in reversed(self._app.middlewares):
            call = _around(middleware, context, call)
        if limit is None:
            return await call()
        calling = asyncio.ensure_future(outcome(call()))
        try:
            await asyncio.wait([calling], timeout=limit)
            if calling.done():
                returned, error = calling.result()
                if error is not None:
                    raise error
                return returned
            context.overdue = True
            calling.cancel()
            await asyncio.wait([calling], timeout=CANCEL_SECONDS)  # after that it is left to itself
        except asyncio.CancelledError:
            calling.cancel()
            raise
        raise TimeoutError(f"{binding.handler.name} took longer than its time limit of {limit:g} s")

    def on_error(self, error: BaseException, messages: list[Any]) -> Verdict | None:
        verdict = super().on_error(error, messages)
        if self.exits:
            self._stage.exit(error)
        return verdict

    async def commit(self, acks: list[tuple[Any, AckItem]], pushed: Sequence[Any]) -> None:
        async with self._client.transaction() as transaction:
            for message, item in acks:
                transaction.settle(message, item)
            transaction.steps.append(TransactionStep(type="push", items=list(pushed)))

    def lost(self, claim: Claim) -> None:
        """Its handlers are cancelled."""
        self._stage.loop.call_soon_threadsafe(claim.cancel)


def _unfit(binding: Binding, error: Exception) -> _Unfit:
    reason = f"the data does not fit {binding.handler.name}"
    return _Unfit(f"{reason}: {error}", reason)


def _around(middleware: Any, context: Context, call: Next) -> Next:
    return lambda: middleware(context, call)


def breadth(size: int, per_lane: float) -> int:
    """From how many lanes to take so many messages, when each had so many lately; 0.0 when all are worth a look, for
    the last pop came short. A pop keeps others from the lanes that it looks at for a moment, so it asks for no more
    than it may need."""
    return size if not per_lane else min(size, max(LANES_LEAST, int(2 * size / per_lane)))
