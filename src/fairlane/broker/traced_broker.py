"""A broker in a program with OpenTelemetry: its message verbs create spans, like a client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

from fairlane.broker.broker import Broker
from fairlane.broker.transaction import item_of
from fairlane.model.batch import AckedAndPopped, Batch, Finished
from fairlane.model.lease import PopOptions
from fairlane.model.message import Message, PushItem, PushOptions
from fairlane.model.names import QUEUE_MODE
from fairlane.model.outcome import AckItem, AckOutcome, AckStatus, PushOutcome
from fairlane.otel import tracing
from fairlane.otel.spans import CLIENT, Spans
from fairlane.runtime.clock import wall_clock


class TracedBroker(Broker):
    """A broker whose messages carry the trace context of the span in which they were pushed."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        found = tracing.spans()
        assert found is not None, "asked for where spans are made"
        self._spans: Spans = found

    async def push(self, queue: str, data: Any, **options: Unpack[PushOptions]) -> PushOutcome:
        [outcome] = await self.push_many([item_of(queue, data, options)])
        if outcome.error is not None:
            raise outcome.error
        return outcome

    async def push_many(self, items: Sequence[PushItem]) -> list[PushOutcome]:
        return await self._spans.traced_push(super().push_many)(list(items))

    async def pop(self, queue: str, *, type: Any = Any, **options: Unpack[PopOptions]) -> Batch[Any]:
        since = wall_clock()
        batch = await super().pop(queue, type=type, **options)
        if batch:
            self._spans.record_pop(batch, queue, options.get("group", QUEUE_MODE), since=since)
        return batch

    async def ack_and_pop(
        self, done: Finished, queue: str, *, type: Any = Any, **options: Unpack[PopOptions]
    ) -> AckedAndPopped:
        since, group = wall_clock(), options.get("group", QUEUE_MODE)
        with self._spans.acks_with_pop(queue, group, 1 if isinstance(done, Message) else len(done)):
            answer = await super().ack_and_pop(done, queue, type=type, **options)
        if answer.batch:
            self._spans.record_pop(answer.batch, queue, group, since=since)
        return answer

    async def ack(
        self, messages: Message[Any] | Sequence[Message[Any]], status: AckStatus = "completed", **verdict: Any
    ) -> Sequence[AckOutcome]:
        some = [messages] if isinstance(messages, Message) else messages
        queue, group = (some[0].queue, some[0].group) if some else ("", QUEUE_MODE)
        with self._spans.span("ack", queue, CLIENT, queue=queue, group=group, count=len(some)):
            return await super().ack(messages, status, **verdict)

    async def ack_many(
        self, items: Sequence[AckItem], *, group: str = QUEUE_MODE, queue: str = ""
    ) -> Sequence[AckOutcome]:
        with self._spans.span("ack", queue, CLIENT, queue=queue, group=group, count=len(items)):
            return await super().ack_many(items, group=group, queue=queue)
