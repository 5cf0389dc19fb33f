"""Export by OTLP: sets up the tracer and meter providers of a process, and sends the metrics of a broker."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from opentelemetry import metrics, trace

from fairlane.errors import InvalidRequest

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource

Sample = tuple[str, dict[str, str], int | float]
Family = tuple[str, str, str, list[Sample]]
"""Name, help, kind and samples of a family of metrics."""


def start(service: str) -> Callable[[], None]:
    """Set up the export of spans and durations by the OTEL_* variables, by OTLP over HTTP by default.

    Returns a function that ends it. Does nothing if the process has a tracer provider already, such as that of
    `opentelemetry-instrument`.
    """
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
    """Send durations of operations every OTEL_METRIC_EXPORT_INTERVAL. Returns a function that ends it."""
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
    """Return the resource attributes. OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES take precedence."""
    return {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": service}


def _exporters(variable: str) -> list[str]:
    names = [name.strip() for name in os.environ.get(variable, "otlp").split(",")]
    unknown = set(names) - {"otlp", "console", "none"}
    if unknown:
        raise InvalidRequest(f"{variable} names {min(unknown)!r:.40}; known are otlp, console and none")
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    if "otlp" in names and protocol != "http/protobuf":
        raise InvalidRequest(f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol!r:.40}; only http/protobuf is supported")
    return [name for name in names if name != "none"]


def metrics_exporter(service: str) -> Callable[[Sequence[Family]], object] | None:
    """Return a function that sends families of metrics by OTLP over HTTP. None if OTEL_METRICS_EXPORTER is `none`.

    The function blocks as long as the collector does, so call it in a thread.
    """
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
    """Return the seconds between exports of metrics."""
    given = os.environ.get("OTEL_METRIC_EXPORT_INTERVAL", "60000")
    return max(1.0, int(given) / 1000) if given.isdigit() else 60.0


def _metric(family: Family, began: int, now: int) -> Any:
    """Return a family as an OTLP metric of the same name. None if it has no samples."""
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
    """Yield (labels, upper bounds, cumulative counts and total, sum) of each series of a histogram."""
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
