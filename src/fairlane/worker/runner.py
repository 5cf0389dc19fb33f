"""The handler runner: gives messages to handlers, those of a lane one after another, lanes beside each other."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from fairlane.app.app import App, Next, Subscription
from fairlane.app.binding import Binding
from fairlane.app.context import Context
from fairlane.app.results import verdict_of, verdicts_of
from fairlane.client.message import Message
from fairlane.client.verdicts import Dead, Verdict, comes_again, item_for, item_for_error
from fairlane.client.wire import Item
from fairlane.model.ids import PartitionId
from fairlane.model.outcome import AckItem
from fairlane.worker.claim import Claim, Verdicts
from fairlane.worker.stage import Stage

log = logging.getLogger("fairlane.worker")


class HandlerRunner:
    """The handler runner, on the stage's loop; it gives `report` the verdicts."""

    def __init__(
        self, app: App, subscription: Subscription, stage: Stage, concurrency: int, report: Callable[[Verdicts], None]
    ) -> None:
        self._app = app
        self._queue = subscription.queue
        self._mapping = subscription.mapping
        self._stage = stage
        self._concurrency = concurrency
        self._report = report
        self._bindings: dict[str | None, Binding] = {
            type: Binding(handler, stage.provided) for type, handler in subscription.handlers.items()
        }
        self.seconds = 0.0
        """That one message takes, about; 0.0 before the first."""

    def begin(self, claim: Claim, *, ordered: bool) -> None:
        """Start handling what was claimed."""
        binding = self._bindings.get(None)
        if binding is not None and binding.handler.kind == "batch":
            self._start(claim, self._whole(claim, binding))
            return
        lanes: dict[Any, deque[Message[Any]]] = {}
        for number, message in enumerate(claim.batch):
            lanes.setdefault(message.partition_id if ordered else number, deque()).append(message)
        for messages in lanes.values():
            self._start(claim, self._lane(claim, messages))

    def _start(self, claim: Claim, work: Any) -> None:
        task = self._stage.loop.create_task(work)
        claim.tasks.add(task)
        task.add_done_callback(claim.tasks.discard)

    async def _lane(self, claim: Claim, messages: deque[Message[Any]]) -> None:
        """One after the other, until one of them comes again: then so do those behind it."""
        try:
            while messages and claim.goes_on:
                await self._message(claim, messages)
        finally:
            if messages:
                self._report(Verdicts(claim, [], [], [], left=len(messages)))

    async def _message(self, claim: Claim, lane: deque[Message[Any]]) -> None:
        """Handle the first message of a lane, and tell."""
        message = lane[0]
        binding = self._bindings.get(message.type) or self._bindings.get(None)
        if binding is None:
            lane.popleft()
            verdicts = item_for(message, Dead(f"no handler of this queue takes messages of type {message.type!r:.80}"))
            self._report(Verdicts(claim, [message], [verdicts], []))
            return
        context = Context([message], self._stage)
        claim.contexts.add(context)
        began = time.perf_counter()
        try:
            item = item_for(message, await self._verdict(binding, context))
        except Exception as error:  # the handler's boundary: its failure is a verdict
            log.warning("%s failed on %r", binding.handler.name, message, exc_info=True)
            item = item_for_error(message, error)
        finally:
            claim.contexts.discard(context)
            self._took(time.perf_counter() - began)
        lane.popleft()
        skipped = _emptied(lane) if comes_again(item) else 0
        pushed = context.pushed if item.status == "completed" else []
        known = self._stage.loop.create_future() if pushed else None
        self._report(Verdicts(claim, [message], [item], pushed, skipped=skipped, known=known))
        # The ack of the next message would finish this one too, so that its own must be known before.
        if known is not None and not await known and lane:
            self._report(Verdicts(claim, [], [], [], skipped=_emptied(lane)))

    async def _verdict(self, binding: Binding, context: Context) -> Verdict:
        raw = context.message.raw
        if self._mapping is not None:
            raw = msgspec.Raw(self._mapping(bytes(raw)))
        try:
            data = binding.decode(raw) if binding.reads else None
        except (ValueError, RecursionError) as error:  # of which msgspec's are
            return Dead(f"the data does not fit {binding.handler.name}: {error}")
        returned = await self._called(binding, data, context)
        return verdict_of(returned, keep=binding.handler.kind == "command")

    async def _whole(self, claim: Claim, binding: Binding) -> None:
        """A batch. What does not fit is dead-lettered alone; when the handler raises, each lane's first is charged."""
        messages = list(claim.batch)
        unfit: dict[int, Verdict] = {}
        data: dict[int, Any] = {}
        for index, message in enumerate(messages):
            try:
                data[index] = binding.decode(message.raw)
            except (ValueError, RecursionError) as error:
                unfit[index] = Dead(f"the data does not fit {binding.handler.name}: {error}")
        pushed: list[Item] = []
        try:
            verdicts = dict(unfit)
            if data:
                context = Context([messages[index] for index in data], self._stage)
                verdicts |= await self._batch(claim, binding, context, data)
                pushed = context.pushed
            items = [item_for(message, verdicts[index]) for index, message in enumerate(messages)]
        except asyncio.CancelledError:
            self._report(Verdicts(claim, [], [], [], left=len(messages)))
            raise
        except Exception as error:  # the handler's boundary: its failure is a verdict
            log.warning("%s failed on %d messages", binding.handler.name, len(messages), exc_info=True)
            items = _charged(messages, unfit, error)
        if not any(item.status == "completed" for item in items):
            pushed = []
        self._report(Verdicts(claim, messages, items, pushed, left=len(messages) - len(items)))

    async def _batch(
        self, claim: Claim, binding: Binding, context: Context, data: dict[int, Any]
    ) -> dict[int, Verdict]:
        claim.contexts.add(context)
        began = time.perf_counter()
        try:
            found = verdicts_of(await self._called(binding, list(data.values()), context), len(data))
        finally:
            claim.contexts.discard(context)
            self._took((time.perf_counter() - began) / len(data))
        return dict(zip(data, found, strict=True))

    async def _called(self, binding: Binding, data: Any, context: Context) -> Any:
        """The handler inside the middlewares."""
        arguments = binding.arguments(data, context)
        if not self._app.middlewares:
            return await self._stage.call(binding, arguments, self._concurrency)

        async def innermost() -> Any:
            return await self._stage.call(binding, arguments, self._concurrency)

        call: Next = innermost
        for middleware in reversed(self._app.middlewares):
            call = _around(middleware, context, call)
        return await call()

    def _took(self, seconds: float) -> None:
        self.seconds = seconds if not self.seconds else self.seconds * 0.9 + seconds * 0.1


def _around(middleware: Any, context: Context, call: Next) -> Next:
    return lambda: middleware(context, call)


def _charged(batch: Sequence[Message[Any]], unfit: dict[int, Verdict], error: Exception) -> list[AckItem]:
    """The failure of the first message of each lane that fits, behind those that do not."""
    failed: set[PartitionId] = set()
    items = []
    for index, message in enumerate(batch):
        if message.partition_id in failed:
            continue
        if index in unfit:
            items.append(item_for(message, unfit[index]))
        else:
            failed.add(message.partition_id)
            items.append(item_for_error(message, error))
    return items


def _emptied(lane: deque[Message[Any]]) -> int:
    """How many were left in a lane; now none is."""
    left = len(lane)
    lane.clear()
    return left
