"""Spans of requests: one for each push, pop, ack, transaction and webhook, where the process makes spans."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from fairlane.http.server import Request, Response
from fairlane.model.names import QUEUE_MODE
from fairlane.otel import SERVER, Spans
from fairlane.runtime.clock import wall_clock
from fairlane.tracing import carried, of_request

VERBS: Final = {
    "/api/v1/push": "push",
    "/api/v1/ack": "ack",
    "/api/v1/ack/batch": "ack",
    "/api/v1/transaction": "transaction",
    "/hook/{name}": "hook",
}


class _Item(msgspec.Struct):
    queue: str = ""
    headers: dict[str, str] | None = None
    count: int | None = None
    """Messages in a row that an ack is about."""


class _Lane(msgspec.Struct):
    messages: list[_Item] = []


class _Acked(msgspec.Struct):
    queueName: str | None = None


class _Body(msgspec.Struct):
    """As much of a push, an ack or the answer to a pop as its span tells."""

    items: list[_Item] = []
    acknowledgments: list[_Item] = []
    messages: list[_Item] = []
    lanes: list[_Lane] = []
    queue: str = ""
    consumerGroup: str | None = None


_decode = msgspec.json.Decoder(_Body).decode
_decode_acked = msgspec.json.Decoder(_Acked | list[_Acked]).decode


class Traced:
    """A handler around another. The trace context of its span takes the place of the one that the request came with, so
    that what is pushed carries it on."""

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
        body = _read(request.body) if verb in ("push", "ack") else _Body()
        queues = {item.queue for item in body.items}
        name = request.params["name"] if verb == "hook" else queues.pop() if len(queues) == 1 else ""
        about: dict[str, Any] = {"queue": "" if verb == "hook" else name, "group": body.consumerGroup}
        about |= {"hook": name} if verb == "hook" else {}
        about |= {"count": sum(item.count or 1 for item in body.items or body.acknowledgments) or None}
        contexts = [found for item in body.items if (found := carried(item.headers))]
        came = of_request(request.headers)
        with self._spans.span(verb, name, SERVER, contexts, came, **about) as made:
            context = {name.encode(): value.encode() for name, value in self._spans.context().items()}
            request.headers = {**request.headers, **context}
            response = await self._handler(request)
            made.set_attribute("http.response.status_code", response.status)
            if verb == "ack" and (queue := _acked_queue(response)):  # which an ack itself does not name
                made.update_name(f"ack {queue}")
                made.set_attribute("messaging.destination.name", queue)
            return response

    async def _pop(self, request: Request) -> Response:
        since = wall_clock()
        response = await self._handler(request)
        found = _read(_whole(response)) if response.status == 200 else _Body()
        messages = [*found.messages, *(message for lane in found.lanes for message in lane.messages)]
        if messages:
            group = request.query.get("consumerGroup", QUEUE_MODE)
            came = of_request(request.headers)
            queue = request.params.get("queue") or found.queue
            self._spans.received(messages, queue, group, since=since, kind=SERVER, parent=came)
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


def _read(body: bytes) -> _Body:
    try:
        return _decode(body)
    except (msgspec.MsgspecError, RecursionError):
        return _Body()
