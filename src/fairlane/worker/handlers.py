"""Runs the handlers of an app for one queue and group."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from itertools import groupby
from typing import Any

import msgspec

from fairlane.client.client import Client
from fairlane.model.outcome import AckItem
from fairlane.model.verdict import Dead, Done, Fail, Verdict, ack_for
from fairlane.runtime.claim import Claim
from fairlane.runtime.consumer import CANCEL_SECONDS, POLLS_MAX, Consumer
from fairlane.runtime.handling import Handled, Handling, charged, log_fields, one_each
from fairlane.runtime.threads import outcome
from fairlane.wire.transactions import TransactionStep
from fairlane.worker.app import App, HandlerGroup, Next
from fairlane.worker.binding import Binding
from fairlane.worker.context import Context
from fairlane.worker.executor import HandlerExecutor

LANE_SECONDS = 0.05
"""Target time to handle the messages of one pop from an ordered queue.

The worker handles messages of a lane one after another, and messages that wait here are not available to other workers.
"""
LANES_LEAST = 16
BACKOFF_SECONDS = 1.0
"""First backoff in seconds if neither handler nor queue sets one. It doubles with each failed attempt."""


class _Unfit(Dead, frozen=True):
    """A dead letter whose payload does not match its type.

    Its error may quote the payload, so the log gets `reason` instead.
    """

    reason: str = ""


class Handlers(Handling):
    """Runs the handlers of one queue and group. Holds at most `concurrency` calls or batches at a time."""

    log = logging.getLogger("fairlane.worker")

    def __init__(
        self,
        app: App,
        group: HandlerGroup,
        client: Client,
        executor: HandlerExecutor,
        concurrency: int,
        backoff_seconds: float = BACKOFF_SECONDS,
    ) -> None:
        self.concurrency = concurrency
        self._backoff_seconds = backoff_seconds
        self.loop = executor.loop
        self.whole_batches = group.batched
        self._app = app
        self._group = group
        self._client = client
        self._executor = executor
        self._bindings: dict[str | None, Binding] = {
            type: Binding(handler, executor.provided) for type, handler in group.handlers.items()
        }

    def next_pop_size(self, consumer: Consumer) -> tuple[int, int]:
        if self.whole_batches:
            size = min(consumer.free_slots, self._group.size)
        else:
            size = min(consumer.free_slots, -(-consumer.slots // min(self.concurrency, POLLS_MAX)))
            if consumer.ordered is not False:
                size = min(size, max(1, int(LANE_SECONDS / consumer.seconds)) if consumer.seconds else 1)
        return size, breadth(size, consumer.per_lane)

    async def handle(self, claim: Claim, messages: list[Any]) -> Handled:
        if self.whole_batches:
            return await self._batch(claim, messages)
        [message] = messages
        binding = self._bindings.get(message.type) or self._bindings.get(None)
        if binding is None:
            text = f"no handler of this queue takes messages of type {message.type!r:.80}"
            return Handled([self._dead(message, Dead(text))])
        context = Context(messages, self._executor, claim)
        verdict: object
        try:
            verdict = await self._verdict(binding, context)
        except BaseException as error:  # any failure of the handler becomes a verdict
            verdict = binding.handler.after_error(error, self.on_error(claim.failure(error), messages))
        if context.completed and _is_done(verdict):
            return Handled([], completed=1)
        return Handled([self._settled(claim, binding, message, verdict)], context.pushed)

    def _settled(self, claim: Claim, binding: Binding, message: Any, verdict: object) -> AckItem:
        """Return the ack for a verdict.

        A failed attempt is retried after the backoff of the handler or the queue, or after a default one, so that an
        immediate failure does not use up all attempts at once.
        """
        if isinstance(verdict, Fail):
            otherwise = None if claim.batch.retry_delay_ms else self._backoff_seconds
            verdict = binding.handler.after_failure(verdict, message.failed_attempts + 1, otherwise)
        return self._dead(message, verdict) if isinstance(verdict, Dead) else ack_for(message, verdict)

    def _dead(self, message: Any, verdict: Dead) -> AckItem:
        fields = {**log_fields(message), "error": verdict.reason if isinstance(verdict, _Unfit) else verdict.error}
        self.log.warning("message %(message_id)s of queue %(queue)r is a dead letter: %(error)s", fields)
        return ack_for(message, verdict)

    async def _verdict(self, binding: Binding, context: Context) -> object:
        raw = context.message.raw
        if self._group.mapping is not None:
            raw = msgspec.Raw(self._group.mapping(bytes(raw)))
        try:
            data = binding.decode(raw) if binding.reads else None
        except (ValueError, RecursionError) as error:  # msgspec errors are ValueErrors
            return _unfit(binding, error)
        returned = await self._called(binding, data, context)
        if binding.handler.kind == "command" and returned is not None and not isinstance(returned, Verdict):
            return Done(returned)
        return self.accepted(returned, binding.handler.function)

    async def _batch(self, claim: Claim, messages: list[Any]) -> Handled:
        """Handle a batch. Payloads that do not fit are dead-lettered one by one.

        If the handler raises, the failed attempt counts for the first message of each lane.
        """
        binding = self._bindings[None]
        unfit: dict[int, Verdict] = {}
        data: dict[int, Any] = {}
        for index, message in enumerate(messages):
            try:
                data[index] = binding.decode(message.raw)
            except (ValueError, RecursionError) as error:
                unfit[index] = _unfit(binding, error)
        context = Context([messages[index] for index in data] or messages, self._executor, claim)
        settle = partial(self._settled, claim, binding)
        try:
            verdicts: dict[int, object] = dict(unfit)
            if data:
                returned = await self._called(binding, list(data.values()), context)
                answers = [self.accepted(one, binding.handler.function) for one in one_each(returned, len(data))]
                verdicts |= zip(data, answers, strict=True)
            over = {index for index in data if context.completed and _is_done(verdicts[index])}
            items = [settle(one, verdicts[index]) for index, one in enumerate(messages) if index not in over]
        except BaseException as error:  # any failure of the handler becomes a verdict
            verdict = binding.handler.after_error(error, self.on_error(claim.failure(error), messages))
            return charged(messages, verdict, unfit, settle)
        return Handled(items, context.pushed, completed=len(over))

    async def _called(self, binding: Binding, data: Any, context: Context) -> Any:
        """Call the handler inside the middleware, within its time limit."""
        arguments, limit = binding.arguments(data, context), binding.handler.timeout
        if limit is None and not self._app.middlewares:
            return await self._executor.call(binding, arguments, self.concurrency)

        async def innermost() -> Any:
            return await self._executor.call(binding, arguments, self.concurrency)

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
            await asyncio.wait([calling], timeout=CANCEL_SECONDS)  # after that it keeps running in the background
        except asyncio.CancelledError:
            calling.cancel()
            raise
        raise TimeoutError(f"{binding.handler.name} took longer than its time limit of {limit:g} s")

    def on_error(self, error: BaseException, messages: list[Any]) -> Verdict | None:
        verdict = super().on_error(error, messages)
        if self.exits:
            self._executor.stop_worker(error)
        return verdict

    async def commit(self, acks: list[tuple[Any, AckItem]], pushed: Sequence[Any]) -> None:
        async with self._client.transaction() as transaction:
            for message, item in acks:
                transaction.settle(message, item)
            for is_step, run in groupby(pushed, key=lambda one: isinstance(one, TransactionStep)):
                some = list(run)
                transaction.steps += some if is_step else [TransactionStep(type="push", items=some)]

    def lost(self, claim: Claim) -> None:
        """Cancel the handlers of a claim whose lease is lost."""
        self._executor.loop.call_soon_threadsafe(claim.cancel)


def _is_done(verdict: object) -> bool:
    return verdict is None or isinstance(verdict, Done) or not isinstance(verdict, Verdict)


def _unfit(binding: Binding, error: Exception) -> _Unfit:
    reason = f"the data does not fit {binding.handler.name}"
    return _Unfit(f"{reason}: {error}", reason=reason)


def _around(middleware: Any, context: Context, call: Next) -> Next:
    return lambda: middleware(context, call)


def breadth(size: int, per_lane: float) -> int:
    """Return the number of lanes from which to pop `size` messages, given the recent messages per lane.

    `per_lane` is 0.0 after a pop that returned fewer messages than requested; then all lanes are tried. A pop blocks
    the lanes it checks for a moment, so it should check no more than it needs.
    """
    return size if not per_lane else min(size, max(LANES_LEAST, int(2 * size / per_lane)))
