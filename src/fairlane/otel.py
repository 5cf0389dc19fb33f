"""OpenTelemetry: spans by the conventions for messaging, and metrics by OTLP. The one module that knows it; it is
imported only where somebody asked for it."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, TypeVar

from opentelemetry import metrics, trace
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from fairlane.errors import FairlaneError, InvalidRequest
from fairlane.model.message import PushItem
from fairlane.tracing import PARENT, Handle, carried, give

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource

TYPES: Final = {
    "push": "send",
    "hook": "send",
    "poll": "send",
    "pop": "receive",
    "handle": "process",
    "command": "process",
    "ack": "settle",
    "transaction": "settle",
}
"""The kinds of messaging operations that verbs are, as the conventions name them."""
METRICS: Final = {
    "messaging.client.operation.duration": "Duration of an operation that a client began.",
    "messaging.process.duration": "Duration of a call of a handler.",
}
"""Histograms of the conventions for messaging."""
BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""Upper bounds of their buckets, as the conventions have them."""
LINKS_MAX: Final = 100
SERVER: Final = SpanKind.SERVER
CLIENT: Final = SpanKind.CLIENT
S = TypeVar("S", bound=Sized)
T = TypeVar("T")
Sample = tuple[str, dict[str, str], int | float]
Family = tuple[str, str, str, list[Sample]]
"""Name, help, kind and samples of a family of metrics."""
_W3C = TraceContextTextMapPropagator()

log = logging.getLogger(__name__)


@lru_cache(maxsize=4)
def spans_of(provider: TracerProvider) -> Spans:
    return Spans(provider)


class Spans:
    """Spans of a process. Errors are told by their code; what a handler raised, by the type of the exception: texts may
    have data in them."""

    def __init__(self, provider: TracerProvider, meters: MeterProvider | None = None) -> None:
        """Without `meters` durations go to the global meter provider, which drops them where none is set."""
        self._tracer = provider.get_tracer("fairlane", version("fairlane"))
        meter = metrics.get_meter("fairlane", version("fairlane"), meters)
        self._durations = {
            name: meter.create_histogram(name, "s", help, explicit_bucket_boundaries_advisory=BOUNDS)
            for name, help in METRICS.items()
        }

    def context(self) -> dict[str, str]:
        """Of the current span, as messages carry it."""
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
        """The current span for a while. Its parent is `parent`, or else the one context that messages came with;
        several are links. `result` may be given the `error.type` of its duration."""
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
                self.failed(error)
                result["error.type"] = _kind_of(error)
                if not isinstance(error, InvalidRequest) or kind is not SpanKind.SERVER:  # theirs, not the server's
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
        given = {name: about[name] for name in ("queue", "group") if name in about}  # few values: each is a series
        self._durations[name].record(seconds, {**_attributes(verb, kind, given), **result})

    def failed(self, error: BaseException) -> None:
        """Of the current span."""
        trace.get_current_span().set_attribute("error.type", _kind_of(error))

    def poll(self, source: str) -> AbstractContextManager[Span]:
        """A poller's pass over its source; the messages that it leads to carry on from here."""
        return self.span("poll", source, SpanKind.PRODUCER, source=source)

    def pushing(self, push: Callable[[list[Any]], Awaitable[T]]) -> Callable[[list[Any]], Awaitable[T]]:
        """`push` of a producer inside a span, whose trace context the items get that carry none."""

        async def traced(items: list[Any]) -> T:
            about = _pushed(items)
            with self.span("push", about["queue"], SpanKind.PRODUCER, **about):
                give(items, self.context())
                return await push(items)

        return traced

    def acking(
        self, queue: str, group: str, ack: Callable[[list[S]], Awaitable[T]]
    ) -> Callable[[list[S]], Awaitable[T]]:
        """`ack` of a client, which sends what several calls say, inside a span."""

        async def traced(calls: list[S]) -> T:
            with self.span("ack", queue, SpanKind.CLIENT, queue=queue, group=group, count=sum(map(len, calls))):
                return await ack(calls)

        return traced

    def received(
        self,
        messages: Sequence[Any],
        queue: str,
        group: str,
        *,
        since: int,
        kind: SpanKind = SpanKind.CLIENT,
        parent: Mapping[str, str] | None = None,
    ) -> None:
        """A pop that brought something, begun at `since` (microseconds since 1970). One that brought nothing is no
        span."""
        attributes = {"queue": queue, "group": group, "count": len(messages)}
        contexts = [found for message in messages if (found := carried(message.headers))]
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

    def handling(self, verb: str, name: str, handle: Handle) -> Handle:
        """`handle` of a consumer inside a span, which goes on where the message came from."""

        async def traced(claim: Any, messages: list[Any]) -> Any:
            first = messages[0]
            about = {"queue": first.queue, "group": first.group, "count": len(messages)}
            if len(messages) == 1:
                about |= {"partition": first.partition, "message": first.id}
            contexts = [found for message in messages if (found := carried(message.headers))]
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


def _kind_of(error: BaseException) -> str:
    return error.code if isinstance(error, FairlaneError) else type(error).__qualname__


def _attributes(verb: str, kind: SpanKind, about: Mapping[str, Any]) -> dict[str, Any]:
    """Return the span attributes of an operation.

    The batch count is left out for a single message, and the operation type for spans of the server."""
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


def _pushed(items: Sequence[PushItem]) -> dict[str, Any]:
    queues = {item.queue for item in items}
    queue = queues.pop() if len(queues) == 1 else ""
    if len(items) != 1:
        return {"queue": queue, "count": len(items)}
    return {"queue": queue, "partition": items[0].partition, "message": items[0].transaction_id}


# What follows sets up the SDK, in the processes that are ours.


def start(service: str) -> Callable[[], None]:
    """Make spans from now on, and send them as OTEL_* in the environment says, by OTLP over HTTP unless that says
    otherwise; what is returned ends it. A provider that is there already, as by `opentelemetry-instrument`, stays."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider as Provider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter

    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return lambda: None
    provider = Provider(resource=Resource.create(_resource(service)))
    for name in _exporters("OTEL_TRACES_EXPORTER"):
        exporter: SpanExporter = ConsoleSpanExporter()
        if name == "otlp":
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

            exporter = OTLPSpanExporter()
        provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    meters = _start_meters(provider.resource)

    def end() -> None:
        provider.shutdown()
        meters()

    return end


def _start_meters(resource: Resource) -> Callable[[], None]:
    """Send durations of operations every OTEL_METRIC_EXPORT_INTERVAL; what is returned ends it."""
    from opentelemetry.sdk.metrics import MeterProvider as Provider
    from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, MetricExporter, PeriodicExportingMetricReader

    readers = []
    for name in _exporters("OTEL_METRICS_EXPORTER"):
        exporter: MetricExporter = ConsoleMetricExporter()
        if name == "otlp":
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

            exporter = OTLPMetricExporter()
        readers.append(PeriodicExportingMetricReader(exporter))
    if not readers:
        return lambda: None
    provider = Provider(readers, resource)
    metrics.set_meter_provider(provider)
    return provider.shutdown


def _resource(service: str) -> dict[str, str]:
    """OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES have the last word."""
    return {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": service}


def _exporters(variable: str) -> list[str]:
    names = [name.strip() for name in os.environ.get(variable, "otlp").split(",")]
    unknown = set(names) - {"otlp", "console", "none"}
    if unknown:
        raise InvalidRequest(f"{variable} names {min(unknown)!r:.40}; known here are otlp, console and none")
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    if "otlp" in names and protocol != "http/protobuf":
        raise InvalidRequest(f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol!r:.40}; only http/protobuf is spoken here")
    return [name for name in names if name != "none"]


def metrics_exporter(service: str) -> Callable[[Sequence[Family]], object] | None:
    """A call that sends families of metrics as they are, by OTLP over HTTP; None where OTEL_METRICS_EXPORTER asks for
    none. It takes as long as the collector does: call it in a thread."""
    if "otlp" not in _exporters("OTEL_METRICS_EXPORTER"):
        return None
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    exporter, resource = OTLPMetricExporter(), Resource.create(_resource(service))
    scope, began = InstrumentationScope("fairlane", version("fairlane")), time.time_ns()

    def export(families: Sequence[Family]) -> object:
        found = [metric for family in families if (metric := _metric(family, began, time.time_ns())) is not None]
        return exporter.export(MetricsData([ResourceMetrics(resource, [ScopeMetrics(scope, found, "")], "")]))

    return export


def metrics_seconds() -> float:
    """How often metrics are sent."""
    given = os.environ.get("OTEL_METRIC_EXPORT_INTERVAL", "60000")
    return max(1.0, int(given) / 1000) if given.isdigit() else 60.0


def _metric(family: Family, began: int, now: int) -> Any:
    """A family as OTLP has it, by the same name; None if it has no samples."""
    from opentelemetry.sdk.metrics import export as otlp

    name, help, kind, samples = family
    if not samples:
        return None
    cumulative = otlp.AggregationTemporality.CUMULATIVE
    if kind == "histogram":
        points = [
            otlp.HistogramDataPoint(labels, began, now, buckets[-1], total, _steps(buckets), bounds, 0.0, 0.0)
            for labels, bounds, buckets, total in _histograms(samples)
        ]
        return otlp.Metric(name, help, "s", otlp.Histogram(points, cumulative))
    numbers = [otlp.NumberDataPoint(labels, began, now, value) for _, labels, value in samples]
    if kind == "counter":
        return otlp.Metric(f"{name}_total", help, "", otlp.Sum(numbers, cumulative, True))
    return otlp.Metric(name, help, "", otlp.Gauge(numbers))


def _histograms(samples: Sequence[Sample]) -> Iterator[tuple[dict[str, str], list[float], list[int], float]]:
    """(labels, upper bounds, how many up to each and in all, sum), of each series of a histogram."""
    series: dict[tuple[tuple[str, str], ...], tuple[list[float], list[int], list[float]]] = {}
    for name, labels, value in samples:
        key = tuple((label, own) for label, own in labels.items() if label != "le")
        bounds, buckets, total = series.setdefault(key, ([], [], []))
        if name.endswith("_bucket"):
            buckets.append(int(value))
            bounds += [] if labels["le"] == "+Inf" else [float(labels["le"])]
        elif name.endswith("_sum"):
            total.append(value)
    for key, (bounds, buckets, total) in series.items():
        yield dict(key), bounds, buckets, total[0]


def _steps(cumulative: Sequence[int]) -> list[int]:
    return [now - before for before, now in zip([0, *cumulative], cumulative, strict=False)]
