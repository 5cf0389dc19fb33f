"""Spans of requests: one for each push, pop, ack, transaction and webhook."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from fairlane.http.server import Request, Response
from fairlane.model.names import QUEUE_MODE
from fairlane.otel.spans import SERVER, Spans
from fairlane.otel.tracing import context_in, context_of_request
from fairlane.runtime.clock import wall_clock

VERBS: Final = {
    "/api/v1/push": "push",
    "/api/v1/ack": "ack",
    "/api/v1/ack/batch": "ack",
    "/api/v1/transaction": "transaction",
    "/hook/{name}": "hook",
}


class _SpanItem(msgspec.Struct):
    queue: str = ""
    headers: dict[str, str] | None = None
    count: int | None = None
    """Number of consecutive messages that an ack covers."""


class _SpanLane(msgspec.Struct):
    messages: list[_SpanItem] = []


class _SpanAck(msgspec.Struct):
    queueName: str | None = None


class _SpanBody(msgspec.Struct):
    """The fields of a push, an ack or the answer to a pop that its span shows."""

    items: list[_SpanItem] = []
    acknowledgments: list[_SpanItem] = []
    messages: list[_SpanItem] = []
    lanes: list[_SpanLane] = []
    queue: str = ""
    consumerGroup: str | None = None


_decode = msgspec.json.Decoder(_SpanBody).decode
_decode_acked = msgspec.json.Decoder(_SpanAck | list[_SpanAck]).decode


class RequestSpans:
    """Middleware that wraps requests in spans. Pushed messages get the trace context of the span of their request."""

    def __init__(self, handler: Callable[[Request], Awaitable[Response]], spans: Spans) -> None:
        self._handler = handler
        self._spans = spans

    async def __call__(self, request: Request) -> Response:
        path: str = request.found.path
        if path.startswith("/api/v1/pop"):
            return await self._pop(request)
        verb = VERBS.get(path)
        if verb is None:
            return await self._handler(request)
        body = _read(request.body) if verb in ("push", "ack") else _SpanBody()
        queues = {item.queue for item in body.items}
        name = request.params["name"] if verb == "hook" else queues.pop() if len(queues) == 1 else ""
        about: dict[str, Any] = {"queue": "" if verb == "hook" else name, "group": body.consumerGroup}
        about |= {"hook": name} if verb == "hook" else {}
        about |= {"count": sum(item.count or 1 for item in body.items or body.acknowledgments) or None}
        contexts = [found for item in body.items if (found := context_in(item.headers))]
        came = context_of_request(request.headers)
        with self._spans.span(verb, name, SERVER, contexts, came, **about) as made:
            context = {name.encode(): value.encode() for name, value in self._spans.context().items()}
            request.headers = {**request.headers, **context}
            response = await self._handler(request)
            made.set_attribute("http.response.status_code", response.status)
            if verb == "ack" and (queue := _acked_queue(response)):  # an ack itself does not name the queue
                made.update_name(f"ack {queue}")
                made.set_attribute("messaging.destination.name", queue)
            return response

    async def _pop(self, request: Request) -> Response:
        since = wall_clock()
        response = await self._handler(request)
        found = _read(_whole(response)) if response.status == 200 else _SpanBody()
        messages = [*found.messages, *(message for lane in found.lanes for message in lane.messages)]
        if messages:
            group = request.query.get("consumerGroup", QUEUE_MODE)
            came = context_of_request(request.headers)
            queue = request.params.get("queue") or found.queue
            self._spans.record_pop(messages, queue, group, since=since, kind=SERVER, parent=came)
        return response


def _whole(response: Response) -> bytes:
    return b"".join([response.body, *(response.parts or ())])


def _acked_queue(response: Response) -> str | None:
    """Return the queue that all acks of an answer were about, or None."""
    try:
        found = _decode_acked(_whole(response))
    except (msgspec.MsgspecError, RecursionError):
        return None
    queues = {one.queueName for one in (found if isinstance(found, list) else [found])}
    return queues.pop() if len(queues) == 1 else None


def _read(body: bytes) -> _SpanBody:
    try:
        return _decode(body)
    except (msgspec.MsgspecError, RecursionError):
        return _SpanBody()
