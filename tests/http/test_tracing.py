"""Trace context in messages, and spans: one trace from a webhook through queues to a handler."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlane import App, Broker, Client, Context, Dead, InvalidRequest, PushItem, Unavailable
from fairlane.commands.executors import Executors
from fairlane.commands.service import CommandService
from fairlane.config import named_variables
from fairlane.http.metrics.exposition import own_families
from fairlane.otel import tracing
from fairlane.outbound.client import OutboundClient
from fairlane.poller import Poller, Source
from fairlane.worker import Worker
from tests.http.test_specs import document
from tests.http.test_webhooks import SECRET, headers_of
from tests.http.wire import Wire
from tests.poller.api import Api
from tests.until import until

spans_module = pytest.importorskip("fairlane.otel.spans")
export = pytest.importorskip("fairlane.otel.export")
from opentelemetry.sdk.metrics import MeterProvider  # noqa: E402
from opentelemetry.sdk.metrics.export import InMemoryMetricReader  # noqa: E402
from opentelemetry.sdk.trace import TracerProvider  # noqa: E402
from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: E402
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # noqa: E402
from opentelemetry.semconv._incubating.attributes import messaging_attributes  # noqa: E402

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SPEC = """
queue Tickets {}
queue Incidents { map_to: command Forward { id: payload.id } }
command Forward { input { id: int }  run: queue Tickets }
webhook Alert { queue: Incidents  verify: github { secret_env: "HOOK_SECRET" } }
"""


@pytest.fixture
def meters() -> InMemoryMetricReader:
    return InMemoryMetricReader()


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch, meters: InMemoryMetricReader) -> Iterator[InMemorySpanExporter]:
    """Record the spans of everything that this test creates. Must come before `wire`."""
    exporter, provider, measures = InMemorySpanExporter(), TracerProvider(), MeterProvider([meters])
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    made = spans_module.Spans(provider, measures)
    monkeypatch.setattr(tracing, "spans", lambda: made)
    yield exporter
    provider.shutdown()
    measures.shutdown()


@pytest.fixture
async def serviced(spans: InMemorySpanExporter, wire: Wire) -> AsyncIterator[Wire]:
    """A broker with the service that runs commands."""
    executors = Executors(wire.app.broker, OutboundClient, named_variables)
    service = CommandService(wire.app.broker, executors)
    service.start()
    yield wire
    await service.stop()
    await executors.close()


@contextlib.asynccontextmanager
async def working(wire: Wire, app: App) -> AsyncIterator[None]:
    worker = Worker(app, wire.base)
    task = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        worker.stop()
        await task


def tree(exporter: InMemorySpanExporter) -> dict[str, str | None]:
    """Return the name of each span with the name of its parent."""
    found = exporter.get_finished_spans()
    names = {one.context.span_id: one.name for one in found}
    return {one.name: one.parent and names.get(one.parent.span_id) for one in found}


async def test_from_a_webhook_through_two_queues_to_a_handler_is_one_trace(
    monkeypatch: pytest.MonkeyPatch, serviced: Wire, spans: InMemorySpanExporter
) -> None:
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    (await serviced.post("/api/v1/spec/apply", body={"spec": document("A", SPEC), "consent": True})).ok()
    app, seen = App("shop"), asyncio.Queue[str]()

    @app.handler("Tickets")
    async def ticket(data: dict[str, Any], ctx: Context) -> None:
        ctx.push("Mails", {"to": data["id"]})
        seen.put_nowait((ctx.message.headers or {})["traceparent"])

    @app.handler("Mails")
    def mail(data: dict[str, Any]) -> None:
        """Handle the message in a thread, because this is a plain function."""

    body = b'{"id": 7}'
    async with working(serviced, app):
        sent = headers_of("github", body) | {"traceparent": PARENT, "tracestate": "shop=1"}
        (await serviced.ask("POST", "/hook/Alert", body=body, headers=sent)).ok(202)
        await seen.get()
        await until(lambda: "handle Mails" in tree(spans))
    found = tree(spans)
    assert found["hook Alert"] is None, "its parent is the sender's"
    assert found["command Forward"] == "hook Alert"
    assert found["handle Tickets"] == "command Forward"
    assert found["handle Mails"] == "handle Tickets"
    ours = [one for one in spans.get_finished_spans() if one.name in found and one.name.startswith(("h", "c"))]
    assert {f"{one.context.trace_id:032x}" for one in ours} == {PARENT[3:35]}
    assert "pop Tickets" in found
    assert {"ack Mails", "ack_and_pop Mails"} & found.keys()
    handled = next(one for one in ours if one.name == "handle Tickets")
    assert handled.kind.name == "CONSUMER"
    assert handled.attributes is not None
    expected = {"messaging.system": "fairlane", "messaging.operation.type": "process"}
    expected |= {"messaging.operation.name": "handle", "messaging.destination.name": "Tickets"}
    assert expected.items() <= dict(handled.attributes).items()
    known = {value for name, value in vars(messaging_attributes).items() if name.startswith("MESSAGING_")}
    named = {name for one in spans.get_finished_spans() for name in one.attributes or () if name.startswith("messag")}
    assert named <= known


async def test_a_client_injects_and_extracts(spans: InMemorySpanExporter, wire: Wire) -> None:
    queue = wire.name()
    async with Client(wire.base) as client:
        await client.push(queue, 1)
        await client.push(queue, 2, headers={"traceparent": PARENT, "other": "x"})
        first, second = await client.pop(queue, batch=2)
        assert (second.headers or {})["traceparent"] == PARENT, "one of its own stays"
        await client.ack([first, second])
    found = tree(spans)
    pushed = [one for one in spans.get_finished_spans() if one.name == f"push {queue}"]
    assert {one.kind.name for one in pushed} == {"PRODUCER", "SERVER"}
    assert found[f"ack {queue}"] is None
    producer = next(one for one in pushed if one.kind.name == "PRODUCER")
    assert (first.headers or {})["traceparent"].split("-")[2] == f"{producer.context.span_id:016x}"
    popped = next(one for one in spans.get_finished_spans() if one.name == f"pop {queue}")
    assert {f"{link.context.trace_id:032x}" for link in popped.links} >= {PARENT[3:35]}
    assert (popped.attributes or {})["messaging.batch.message_count"] == 2


async def test_spans_of_the_broker_name_the_queue_and_the_number_of_messages(
    spans: InMemorySpanExporter, wire: Wire
) -> None:
    queue = wire.name()
    async with Client(wire.base) as client:
        await client.push(queue, 0)
        await client.push_many([PushItem(queue=queue, payload=b"1"), PushItem(queue=queue, payload=b"2")])
        batch = await client.pop(queue, batch=2)
        await client.ack(batch)
    [message] = await wire.pop(queue)
    headers = {"traceparent": PARENT}
    body = {name: message[name] for name in ("transactionId", "partitionId", "leaseId")}
    (await wire.ask("POST", "/api/v1/ack", body=body, headers=headers)).ok()
    served = [one for one in spans.get_finished_spans() if one.kind.name == "SERVER"]
    told = [(one.name, dict(one.attributes or {}).get("messaging.destination.name"), _count(one)) for one in served]
    assert told == [
        (f"push {queue}", queue, None),
        (f"push {queue}", queue, 2),
        (f"pop {queue}", queue, 2),
        (f"ack {queue}", queue, 2),
        (f"pop {queue}", queue, None),
        (f"ack {queue}", queue, None),
    ]
    assert not any("messaging.operation.type" in dict(one.attributes or {}) for one in served), "they are a client's"
    assert served[2].links
    for one in spans.get_finished_spans():
        if _count(one) is not None:
            assert _count(one) != 1


def _count(span: Any) -> int | None:
    found: int | None = dict(span.attributes or {}).get("messaging.batch.message_count")
    return found


async def test_durations_of_operations_are_measured_as_their_spans(
    meters: InMemoryMetricReader, spans: InMemorySpanExporter, wire: Wire
) -> None:
    queue, app = wire.name(), App("shop")

    @app.handler(queue)
    async def fail(data: Any) -> Dead:
        return Dead("marker")

    async with Client(wire.base) as client:
        await client.push(queue, 1)
        async with working(wire, app):
            await until(lambda: f"handle {queue}" in tree(spans))
    async with Client("http://127.0.0.1:1", attempts=1) as nowhere:
        with pytest.raises(Unavailable) as refused:
            await nowhere.push(queue, 1)
    where = {"messaging.destination.name": queue}
    read = {**where, "messaging.consumer.group.name": "__QUEUE_MODE__"}
    found = measured(meters)
    acked = {operation(verb, "settle", **read) for verb in ("ack", "ack_and_pop")}
    assert found["messaging.client.operation.duration"] & acked, "the ack may go with the next pop"
    found["messaging.client.operation.duration"] -= acked
    assert found == {
        "messaging.client.operation.duration": {
            operation("pop", "receive", **read),
            operation("push", "send", **where),
            operation("push", "send", **{**where, "error.type": refused.value.code}),
        },
        "messaging.process.duration": {operation("handle", "process", **{**read, "error.type": "dlq"})},
    }


Series = frozenset[tuple[str, Any]]
"""The attributes of one series."""


def operation(name: str, type: str, **more: str) -> Series:
    named = {"messaging.operation.name": name, "messaging.operation.type": type}
    return frozenset({"messaging.system": "fairlane", **named, **more}.items())


def measured(meters: InMemoryMetricReader) -> dict[str, set[Series]]:
    """Return the series of each histogram, after checking that they are seconds in the conventional buckets."""
    data = meters.get_metrics_data()
    assert data is not None
    found: dict[str, set[Series]] = {}
    for metric in data.resource_metrics[0].scope_metrics[0].metrics:
        points: list[Any] = list(metric.data.data_points)
        assert metric.unit == "s"
        assert all(tuple(point.explicit_bounds[:2]) == (0.005, 0.01) and point.sum < 60 for point in points)
        found[metric.name] = {frozenset(point.attributes.items()) for point in points}
    return found


async def test_what_fails_is_told_without_its_text(spans: InMemorySpanExporter, wire: Wire) -> None:
    queue, app = wire.name(), App("shop")

    @app.handler(queue)
    async def fail(data: Any) -> None:
        raise ValueError("marker-8431")

    async with Client(wire.base) as client:
        await client.queues.configure(queue, retry_limit=0)
        await client.push(queue, 1)
    async with working(wire, app):
        await until(lambda: f"handle {queue}" in tree(spans))
    handled = next(one for one in spans.get_finished_spans() if one.name == f"handle {queue}")
    assert handled.status.status_code.name == "ERROR"
    assert (handled.attributes or {})["error.type"] == "ValueError"
    assert all("marker-8431" not in one.to_json() for one in spans.get_finished_spans())


async def test_records_of_a_poller_carry_its_trace(spans: InMemorySpanExporter, wire: Wire) -> None:
    queue = wire.name()
    async with Api(2) as api, Client(wire.base) as client:
        source = Source(name=queue, url=f"{api.url}/id", queue=queue, allow_private=True)
        await Poller(source, client.sources).once()
        messages = await client.pop(queue, batch=10, partitions=10)
    polled = next(one for one in spans.get_finished_spans() if one.name == f"poll {queue}")
    assert messages
    assert {(one.headers or {})["traceparent"][3:35] for one in messages} == {f"{polled.context.trace_id:032x}"}


@pytest.mark.parametrize("parent", [PARENT, PARENT.upper(), "00-" + "0" * 32 + PARENT[35:], "x" * 300])
async def test_a_push_hands_on_the_trace_context_of_its_request(wire: Wire, parent: str) -> None:
    """The context is passed on with and without spans."""
    queue = wire.name()
    items = [{"queue": queue, "payload": 1}, {"queue": queue, "payload": 2, "headers": {"traceparent": "own"}}]
    sent = {"traceparent": parent, "tracestate": "a=1"}
    (await wire.ask("POST", "/api/v1/push", body={"items": items}, headers=sent)).ok(201)
    steps = {"operations": [{"type": "push", "items": [{"queue": queue, "payload": 3}]}]}
    (await wire.ask("POST", "/api/v1/transaction", body=steps, headers=sent)).ok()
    handed = {"traceparent": PARENT, "tracestate": "a=1"} if parent == PARENT else None
    found = [message.get("headers") for message in await wire.pop(queue, batch=3)]
    assert found == [handed, {"traceparent": "own"}, handed]


async def test_a_handler_hands_the_trace_context_on_where_no_spans_are_made(wire: Wire) -> None:
    first, second, app = wire.name(), wire.name(), App("shop")

    @app.handler(first)
    async def move(data: Any, ctx: Context) -> None:
        ctx.push(second, data)

    async with Client(wire.base) as client:
        await client.push(first, 1, headers={"traceparent": PARENT})
        async with working(wire, app):
            [moved] = await client.pop(second, wait=30)
    assert moved.headers == {"traceparent": PARENT}


async def test_metrics_are_sent_by_otlp_under_their_names(
    monkeypatch: pytest.MonkeyPatch, spans: InMemorySpanExporter, wire: Wire
) -> None:
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    received: list[bytes] = []

    async def collect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.split("content-length: ")[1].split("\r\n")[0])
        received.append(await reader.readexactly(length))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(collect, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
    await wire.push(wire.name(), 1, 2)
    send = await asyncio.to_thread(export.metrics_exporter, "fairlane")
    await asyncio.to_thread(send, await own_families(wire.app))
    server.close()
    request = ExportMetricsServiceRequest.FromString(received[0])
    [resource] = request.resource_metrics
    assert [one.value.string_value for one in resource.resource.attributes if one.key == "service.name"] == ["fairlane"]
    metrics = {one.name: one for one in resource.scope_metrics[0].metrics}
    assert {"fairlane_store_up", "fairlane_queue_messages", "fairlane_requests_total"} <= metrics.keys()
    pushed = [one for one in metrics["fairlane_request_messages_total"].sum.data_points if one.as_int == 2]
    assert [(one.key, one.value.string_value) for one in pushed[0].attributes] == [("verb", "push")]
    pushes = next(
        one
        for one in metrics["fairlane_request_duration_seconds"].histogram.data_points
        if one.attributes[0].value.string_value == "push"
    )
    assert pushes.count == sum(pushes.bucket_counts) == 1
    assert len(pushes.bucket_counts) == len(pushes.explicit_bounds) + 1


def test_a_process_that_makes_spans_sends_durations(tmp_path: Path) -> None:
    code = f"""
import asyncio
from fairlane.otel.export import start
end = start("shop")
from fairlane import Broker
async def main():
    async with Broker.open({str(tmp_path / "q.db")!r}) as broker:
        await broker.push("orders", 1)
asyncio.run(main())
end()
"""
    environment = {**os.environ, "OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "console"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert "messaging.client.operation.duration" in done.stdout
    assert '"service.name": "shop"' in done.stdout


def test_nothing_of_opentelemetry_is_imported_unless_it_is_asked_for(tmp_path: Path) -> None:
    code = f"""
import asyncio, sys
from fairlane import Broker, Client
from fairlane.http.app import HttpApp
async def main():
    async with Broker.open("{tmp_path}/q.db") as broker:
        app = HttpApp(broker)
        await broker.push("q", 1)
    Client()
asyncio.run(main())
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


async def test_without_spans_the_methods_themselves_are_called(tmp_path: Path) -> None:
    """Without spans no wrapper is around the methods of a request."""
    from fairlane.http.app import HttpApp

    async with Broker.open(tmp_path / "q.db") as broker:
        assert HttpApp(broker).handle.__func__ is HttpApp.handle  # type: ignore[attr-defined]
    async with Client() as client:
        assert client._transport.spans is None
        assert client._pushes._store == client._pushes._stored


async def test_the_verbs_of_an_embedded_broker_make_spans(spans: InMemorySpanExporter, tmp_path: Path) -> None:
    async with Broker.open(tmp_path / "queue.db") as broker:
        await broker.push("orders", 1, partition="a", headers={"mine": "x"})
        await broker.push_many([PushItem(queue="orders", payload=b"2", headers={"traceparent": PARENT})])
        taken = await broker.pop("orders", batch=2, partitions=2)
        await broker.ack(taken[0])
        await broker.ack(taken[1:])
        assert not await broker.pop("orders")
        with pytest.raises(InvalidRequest):
            await broker.push("", 1)
    *found, refused = spans.get_finished_spans()
    assert [one.name for one in found] == ["push orders", "push orders", "pop orders", "ack orders", "ack orders"]
    assert (refused.name, (refused.attributes or {})["error.type"]) == ("push", "invalid_request")
    first = next(one for one in taken if one.data == 1)
    assert first.headers is not None
    assert first.headers["mine"] == "x"
    assert int(first.headers["traceparent"][3:35], 16) == found[0].context.trace_id
    assert {format(one.context.trace_id, "032x") for one in found[2].links} == {
        first.headers["traceparent"][3:35],
        PARENT[3:35],
    }
    about = dict(found[3].attributes or {})
    assert about["messaging.operation.type"] == "settle"
    assert "messaging.batch.message_count" not in about, "it is no batch"


async def test_an_embedded_broker_without_spans_is_as_it_is(tmp_path: Path) -> None:
    async with Broker.open(tmp_path / "queue.db") as broker:
        assert type(broker) is Broker
