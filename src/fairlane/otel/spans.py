"""Spans by the OpenTelemetry conventions for messaging, and histograms of their durations."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from importlib.metadata import version
from typing import Any, Final, TypeVar

from opentelemetry import metrics, trace
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from fairlane.errors import FairlaneError, InvalidRequest
from fairlane.model.message import PushItem
from fairlane.otel.tracing import PARENT, Handle, add_context, context_in

TYPES: Final = {
    "push": "send",
    "hook": "send",
    "poll": "send",
    "pop": "receive",
    "handle": "process",
    "command": "process",
    "ack": "settle",
    "ack_and_pop": "settle",
    "transaction": "settle",
}
"""The operation types of the messaging conventions, by verb."""
METRICS: Final = {
    "messaging.client.operation.duration": "Duration of an operation that a client began.",
    "messaging.process.duration": "Duration of a call of a handler.",
}
"""Histograms of the conventions for messaging."""
BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""Upper bounds of the histogram buckets in the conventions."""
LINKS_MAX: Final = 100
SERVER: Final = SpanKind.SERVER
CLIENT: Final = SpanKind.CLIENT
S = TypeVar("S", bound=Sized)
T = TypeVar("T")
_W3C = TraceContextTextMapPropagator()


@lru_cache(maxsize=4)
def spans_of(provider: TracerProvider) -> Spans:
    return Spans(provider)


class Spans:
    """Makes the spans of a process. Errors appear by their code or exception type, never by their text."""

    def __init__(self, provider: TracerProvider, meters: MeterProvider | None = None) -> None:
        """Create the spans of a process.

        Without `meters`, durations go to the global meter provider, which drops them if none is set.
        """
        self._tracer = provider.get_tracer("fairlane", version("fairlane"))
        meter = metrics.get_meter("fairlane", version("fairlane"), meters)
        self._durations = {
            name: meter.create_histogram(name, "s", help, explicit_bucket_boundaries_advisory=BOUNDS)
            for name, help in METRICS.items()
        }

    def context(self) -> dict[str, str]:
        """Return the trace context of the current span, as headers of messages."""
        carrier: dict[str, str] = {}
        _W3C.inject(carrier)
        return carrier

    @contextmanager
    def span(
        self,
        verb: str,
        name: str,
        kind: SpanKind,
        contexts: Sequence[Mapping[str, str]] = (),
        parent: Mapping[str, str] | None = None,
        result: dict[str, str] | None = None,
        **attributes: Any,
    ) -> Iterator[Span]:
        """Make a span the current one. Its parent is `parent`, or the only context in `contexts`; several become links.

        `result` receives the `error.type` of its duration.
        """
        began = time.perf_counter()
        result = {} if result is None else result
        if not parent and len(contexts) == 1:
            parent, contexts = contexts[0], ()
        with self._tracer.start_as_current_span(
            f"{verb} {name}".rstrip(),
            _W3C.extract(parent) if parent else None,
            kind,
            _attributes(verb, kind, attributes),
            _links(contexts),
            record_exception=False,
            set_status_on_exception=False,
        ) as made:
            try:
                yield made
            except Exception as error:
                self.record_failure(error)
                result["error.type"] = _error_type(error)
                # A client's mistake, not the server's.
                if not isinstance(error, InvalidRequest) or kind is not SpanKind.SERVER:
                    made.set_status(Status(StatusCode.ERROR))
                raise
            finally:
                self._measure(verb, kind, attributes, time.perf_counter() - began, result)

    def _measure(
        self, verb: str, kind: SpanKind, about: Mapping[str, Any], seconds: float, result: Mapping[str, str]
    ) -> None:
        """Record the duration of an operation of a client or handler, also where its span is not sampled."""
        name = "messaging.process.duration" if kind is SpanKind.CONSUMER else "messaging.client.operation.duration"
        if kind is SpanKind.SERVER or verb == "poll":
            return
        # Only fields with few values, because each value is a series.
        given = {name: about[name] for name in ("queue", "group") if name in about}
        self._durations[name].record(seconds, {**_attributes(verb, kind, given), **result})

    def record_failure(self, error: BaseException) -> None:
        """Set the error type of the current span."""
        trace.get_current_span().set_attribute("error.type", _error_type(error))

    def poll(self, source: str) -> AbstractContextManager[Span]:
        """Make the span of one pass of a poller over its source."""
        return self.span("poll", source, SpanKind.PRODUCER, source=source)

    def traced_push(self, push: Callable[[list[Any]], Awaitable[T]]) -> Callable[[list[Any]], Awaitable[T]]:
        """Wrap `push` of a producer in a span. Items without a trace context get the context of the span."""

        async def traced(items: list[Any]) -> T:
            about = _push_attributes(items)
            with self.span("push", about["queue"], SpanKind.PRODUCER, **about):
                add_context(items, self.context())
                return await push(items)

        return traced

    def traced_ack(
        self, queue: str, group: str, ack: Callable[[list[S]], Awaitable[T]]
    ) -> Callable[[list[S]], Awaitable[T]]:
        """Wrap `ack` of a client, which sends several calls at once, in a span."""

        async def traced(calls: list[S]) -> T:
            with self.span("ack", queue, SpanKind.CLIENT, queue=queue, group=group, count=sum(map(len, calls))):
                return await ack(calls)

        return traced

    def acks_with_pop(self, queue: str, group: str, count: int) -> AbstractContextManager[Span]:
        """Create the span of a request that acks and pops. It ends when the pop returns."""
        return self.span("ack_and_pop", queue, SpanKind.CLIENT, queue=queue, group=group, count=count)

    def record_pop(
        self,
        messages: Sequence[Any],
        queue: str,
        group: str,
        *,
        since: int,
        kind: SpanKind = SpanKind.CLIENT,
        parent: Mapping[str, str] | None = None,
    ) -> None:
        """Record the span of a pop that began at `since` (microseconds since 1970). Empty pops have no span."""
        attributes = {"queue": queue, "group": group, "count": len(messages)}
        contexts = [found for message in messages if (found := context_in(message.headers))]
        made = self._tracer.start_span(
            f"pop {queue}".rstrip(),
            _W3C.extract(parent) if parent else None,
            kind,
            _attributes("pop", kind, attributes),
            _links(contexts),
            start_time=since * 1000,
        )
        made.end()
        self._measure("pop", kind, attributes, max(0.0, time.time() - since / 1_000_000), {})

    def traced_handler(self, verb: str, name: str, handle: Handle) -> Handle:
        """Wrap the handler of a consumer in a span that continues the trace of the message."""

        async def traced(claim: Any, messages: list[Any]) -> Any:
            first = messages[0]
            about = {"queue": first.queue, "group": first.group, "count": len(messages)}
            if len(messages) == 1:
                about |= {"partition": first.partition, "message": first.id}
            contexts = [found for message in messages if (found := context_in(message.headers))]
            result: dict[str, str] = {}
            with self.span(verb, name, SpanKind.CONSUMER, contexts, result=result, **about) as made:
                handled = await handle(claim, messages)
                wrong = [item.status for item in handled.items if item.status in ("failed", "dlq")]
                if wrong:
                    result["error.type"] = wrong[0]
                    if "error.type" not in (getattr(made, "attributes", None) or ()):
                        made.set_attribute("error.type", wrong[0])
                    made.set_status(Status(StatusCode.ERROR))
                return handled

        return traced


def _error_type(error: BaseException) -> str:
    return error.code if isinstance(error, FairlaneError) else type(error).__qualname__


def _attributes(verb: str, kind: SpanKind, about: Mapping[str, Any]) -> dict[str, Any]:
    """Return the span attributes of an operation.

    The batch count is left out for a single message, and the operation type for spans of the server.
    """
    names = {
        "queue": "messaging.destination.name",
        "partition": "messaging.destination.partition.id",
        "group": "messaging.consumer.group.name",
        "message": "messaging.message.id",
        "count": "messaging.batch.message_count",
    }
    given = {name: value for name, value in about.items() if value not in (None, "") and (name, value) != ("count", 1)}
    found = {names.get(name, f"fairlane.{name}"): value for name, value in given.items()}
    if kind is not SpanKind.SERVER:
        found["messaging.operation.type"] = TYPES[verb]
    return {"messaging.system": "fairlane", "messaging.operation.name": verb, **found}


def _links(contexts: Iterable[Mapping[str, str]]) -> list[Link]:
    distinct = {context[PARENT]: context for context in contexts}
    found = [trace.get_current_span(_W3C.extract(context)) for context in list(distinct.values())[:LINKS_MAX]]
    return [Link(one.get_span_context()) for one in found]


def _push_attributes(items: Sequence[PushItem]) -> dict[str, Any]:
    queues = {item.queue for item in items}
    queue = queues.pop() if len(queues) == 1 else ""
    if len(items) != 1:
        return {"queue": queue, "count": len(items)}
    return {"queue": queue, "partition": items[0].partition, "message": items[0].transaction_id}


# The rest sets up the SDK, in processes of Fairlane only.
