"""Webhooks: POST /hook/{name} verifies each request over its exact bytes before it is parsed.

All refusals look the same, so that senders without a valid signature learn nothing. A request that cannot be stored now
gets 503, never 4xx, because senders give up on those.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

import msgspec

from fairlane.broker.broker import Broker
from fairlane.broker.webhook_receiver import WebhookResult
from fairlane.errors import ExpressionFailed, FairlaneError, Forbidden, InvalidRequest, Overloaded, PayloadInvalid
from fairlane.http.auth import scopes
from fairlane.http.problems import problem, public_text
from fairlane.http.router import Routes
from fairlane.http.server import Request, Response, error_response, message, network_of
from fairlane.model.limits import MESSAGE_BYTES_MAX
from fairlane.model.names import DEFAULT_TENANT
from fairlane.model.principal import Principal
from fairlane.runtime.clock import wall_clock
from fairlane.webhooks.cloudevents import is_event
from fairlane.webhooks.webhook import FORM, Received, Webhook, content_type
from fairlane.wire.webhooks import WebhookList, WebhookListQuery, WebhookTest

if TYPE_CHECKING:
    from fairlane.http.app import HttpApp

routes = Routes("webhooks")
_encode = msgspec.json.Encoder().encode
_UNKNOWN_BYTES_MAX = 64 * 1024
_STATUSES = (200, 202, 401, 403, 404, 413, 415, 422, 429, 503)
_TAKEN = (b"", b"application/json", b"application/octet-stream", b"text/json", FORM)


class WebhookAnswer(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The answer of a webhook."""

    idempotency_key: str = ""
    queued: bool = False
    message_id: str | None = None
    """Id of the message. Null if it is not in the store yet."""
    processed: bool = False
    """True if the message, or the original of a redelivery, was processed."""
    dead_letter: bool = False
    """True for a redelivery of a dead-lettered message that was not replayed."""
    replayed: bool = False
    """True if the original message was dead-lettered and replayed, by this redelivery or before."""
    error: str | None = None
    """Error of the dead letter."""
    result: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    ignored: bool = False
    """True if the request has another type than the webhook accepts."""
    challenge: str | None = None
    """Challenge of Slack, which must be echoed."""


@routes.post(
    "/hook/{name}",
    "/hook/{tenant}/{name}",
    needs="signature",
    audited=False,
    body=msgspec.Raw,
    answer=WebhookAnswer,
    statuses=_STATUSES,
)
async def receive(app: HttpApp, request: Request) -> Response:
    """Receive a webhook of a spec, and store it as one message per idempotency key.

    The webhook belongs to the tenant in the path, by default the default tenant.
    """
    broker = _broker(app, request)
    if broker is None or not broker.specs.compiled.loaded:
        await app.broker.specs.load()
        broker = _broker(app, request)
    return await _receive(app, broker or app.broker, request, known=broker is not None)


def _broker(app: HttpApp, request: Request) -> Broker | None:
    """Return the broker of the webhook's tenant. None if it has no spec, or its spec is not loaded."""
    tenant = request.params.get("tenant")
    if tenant is None:
        return app.broker
    return app.broker.of(tenant) if app.broker.process.specs.knows(tenant) else None


async def _receive(app: HttpApp, broker: Broker, request: Request, *, known: bool = True) -> Response:
    name, compiled_specs = request.params["name"], broker.specs.compiled
    if not known or name not in compiled_specs.webhooks:
        if not broker.process.specs.loaded and not compiled_specs.loaded:
            return _counted(broker, "", "unready", _unready("the broker does not know its webhooks yet"))
        return _counted(broker, "", "unknown", error_response(404, "not_found", "there is no such webhook"))
    webhook = compiled_specs.webhooks[name]
    if webhook is None:
        return _counted(broker, name, "unready", _unready("the secret of this webhook is missing"))
    received = Received(request.headers, request.body, request.peer, wall_clock())
    refused = _refused(broker, webhook, received, outside=request.outside)
    if refused is not None:
        return refused
    challenge = webhook.challenge(received)
    if challenge is not None:
        return _counted(broker, name, "challenge", Response(200, b'{"challenge":%b}' % _encode(challenge)))
    try:
        result = await broker.webhooks.receive(webhook, received, app.runner)
    except FairlaneError as error:
        return _problem(broker, webhook, error)
    return _counted(broker, name, result.status, _answer(result))


def body_bytes_max(app: HttpApp, request: Request) -> int:
    """Return the largest body of this webhook, or of any webhook if it is unknown."""
    broker = _broker(app, request)
    webhook = broker.specs.compiled.webhooks.get(request.params["name"]) if broker is not None else None
    if webhook is not None:
        return webhook.spec.max_body_bytes
    return MESSAGE_BYTES_MAX if not (broker or app.broker).specs.compiled.loaded else _UNKNOWN_BYTES_MAX


def too_large(app: HttpApp, request: Request, bytes_max: int) -> Response:
    name, broker = request.params["name"], _broker(app, request)
    known = name if broker is not None and name in broker.specs.compiled.webhooks else ""
    return _counted(broker or app.broker, known, "too_large", message.too_large(bytes_max))


def _refused(broker: Broker, webhook: Webhook, received: Received, *, outside: bool) -> Response | None:
    """Return the response to a request that is refused before it is parsed. None if it is accepted."""
    if outside and webhook.spec.verify is None:
        only = "this webhook has no `verify` in its spec, and this listener accepts only those with a signature"
        return _counted(broker, webhook.name, "unverified", error_response(403, Forbidden.code, only))
    if len(received.body) > webhook.spec.max_body_bytes:  # the limit may have shrunk since the header arrived
        return _counted(broker, webhook.name, "too_large", message.too_large(webhook.spec.max_body_bytes))
    # The signature is checked first, and only invalid requests are limited: others may share the address or the URL.
    why = webhook.refusal(received)
    now = time.monotonic()
    if why is not None:
        network = network_of(received.source_ip)
        webhook.refusals.add(network, now)
        if webhook.refusals.too_many(network, now):
            return _limited(broker, webhook)
        return _counted(
            broker, webhook.name, why, error_response(401, "unauthenticated", "the signature is missing or not valid")
        )
    if webhook.rate is not None and not webhook.rate.allows(now):
        return _limited(broker, webhook)
    kind = content_type(received.headers)
    if not (is_event(kind) if webhook.is_event else _is_taken(kind)):
        only = "a webhook is JSON or a form, and its content-type must say so"
        if webhook.is_event:
            only = "this webhook takes one event per request, as application/cloudevents+json or in binary mode"
        other = error_response(415, "unsupported_media_type", only)
        return _counted(broker, webhook.name, "unreadable", other)
    return None


def _limited(broker: Broker, webhook: Webhook) -> Response:
    limited = error_response(
        429, "too_many_requests", "too many requests; try again soon", headers=((b"retry-after", b"1"),)
    )
    return _counted(broker, webhook.name, "limited", limited)


def _is_taken(kind: bytes) -> bool:
    """Return True for an accepted content type. A request without one is treated as JSON."""
    return kind in _TAKEN or kind.endswith(b"+json")


def _problem(broker: Broker, webhook: Webhook, error: FairlaneError) -> Response:
    if isinstance(error, Overloaded):
        seconds = str(max(1, math.ceil(error.retry_after))).encode()
        full = error_response(503, error.code, public_text(error), headers=((b"retry-after", seconds),))
        return _counted(broker, webhook.name, "full", full)
    outcome = "unavailable"
    if isinstance(error, InvalidRequest):
        outcome = "misfit" if isinstance(error, PayloadInvalid | ExpressionFailed) else "unreadable"
    return _counted(broker, webhook.name, outcome, problem(error))


def _unready(why: str) -> Response:
    return error_response(503, "unavailable", why, headers=((b"retry-after", b"5"),))


def _answer(result: WebhookResult) -> Response:
    key, message_id = _encode(result.key), _encode(result.message_id)
    if result.status == "ignored":
        return Response(200, b'{"ignored":true}')
    known = b'"idempotency_key":%b,"message_id":%b' % (key, message_id)
    if result.replayed:
        known = b'"replayed":true,' + known
    if result.status in ("processed", "ran"):
        return Response(200, b'{"processed":true,%b,"result":%b}' % (known, result.result))
    if result.status == "dead_letter":
        return Response(200, b'{"dead_letter":true,"replayed":false,"error":%b,%b}' % (_encode(result.error), known))
    if result.status == "cancelled":
        return Response(200, b'{"cancelled":true,%b}' % known)
    return Response(202, b'{"queued":true,%b}' % known)


def _counted(broker: Broker, webhook: str, outcome: str, response: Response) -> Response:
    of = f"{broker.tenant}/{webhook}" if webhook and broker.tenant != DEFAULT_TENANT else webhook
    broker.process.telemetry.webhooks[of, outcome] += 1
    if webhook:
        broker.webhooks.note(webhook, outcome, response.status)
    return response


@routes.get("/api/v1/hooks", needs="status", each=True, live=True)
async def list_webhooks(broker: Broker, caller: Principal, query: WebhookListQuery) -> WebhookList:
    """List the webhooks in force with the outcomes of their requests, counted by the processes of this broker."""
    return await broker.webhooks.page(query, lambda one: scopes.allows(caller, "status", one.queue))


@routes.post("/api/v1/hooks/{name}/test", needs="push", each=True)
async def test(app: HttpApp, broker: Broker, caller: Principal, name: str, request: Request) -> WebhookTest:
    """Send a signed sample request to a webhook and show its answer.

    The sample becomes a message like any other.
    """
    for webhook in await broker.webhooks.all():
        if webhook.name == name:
            scopes.check(caller, "push", webhook.queue)
    headers, body = broker.webhooks.sample(name)
    sent = Request("POST", request.path, headers, body, request.peer, params={"name": name})
    answer = await _receive(app, broker, sent)
    return WebhookTest(status=answer.status, body=msgspec.json.decode(answer.body))
