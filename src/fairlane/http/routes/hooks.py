"""POST /hook/{name}: webhooks, each verified over the bytes that came before anything of them is read.

Who is not known is told nothing: every refusal looks the same, whatever was wrong. What cannot be kept now is 503,
never 4xx, for senders give up on those.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

import msgspec

from fairlane.broker.broker import Broker
from fairlane.broker.inbox import Taken
from fairlane.errors import ExpressionFailed, FairlaneError, Forbidden, InvalidRequest, Overloaded, PayloadInvalid
from fairlane.hooks.cloudevents import is_event
from fairlane.hooks.hook import FORM, Hook, Received, content_type
from fairlane.http import scopes
from fairlane.http.problems import problem, public_text
from fairlane.http.router import Routes
from fairlane.http.server import Request, Response, error_response, message, network_of
from fairlane.model.access import Caller
from fairlane.model.limits import MESSAGE_BYTES_MAX
from fairlane.model.names import DEFAULT_TENANT
from fairlane.runtime.clock import wall_clock
from fairlane.wire.hooks import HookList, HookListQuery, HookTest

if TYPE_CHECKING:
    from fairlane.http.app import App

routes = Routes("webhooks")
_encode = msgspec.json.Encoder().encode
_UNKNOWN_BYTES_MAX = 64 * 1024
_STATUSES = (200, 202, 401, 403, 404, 413, 415, 422, 429, 503)
_TAKEN = (b"", b"application/json", b"application/octet-stream", b"text/json", FORM)


class HookAnswer(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The answer of a webhook."""

    idempotency_key: str = ""
    queued: bool = False
    message_id: str | None = None
    """Null while the message waits for its store."""
    processed: bool = False
    """Also of a redelivery, whose first was processed."""
    dead_letter: bool = False
    """It is a redelivery of a message that was given up, and was not replayed."""
    replayed: bool = False
    """Its first message was given up and replayed, by this redelivery or before it."""
    error: str | None = None
    """Why it was given up."""
    result: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    ignored: bool = False
    """It is of another type than the webhook is for."""
    challenge: str | None = None
    """Of Slack, which asks for it before it sends anything."""


@routes.post("/hook/{name}", needs="signature", audited=False, body=msgspec.Raw, answer=HookAnswer, statuses=_STATUSES)
@routes.post(
    "/hook/{tenant}/{name}",
    needs="signature",
    audited=False,
    body=msgspec.Raw,
    answer=HookAnswer,
    statuses=_STATUSES,
)
async def receive(app: App, request: Request) -> Response:
    """A webhook that a spec declares, of the tenant in its path or of the default one: verified, then kept as a
    message, once for each idempotency key."""
    broker = _broker(app, request)
    if broker is None or not broker.compiled_specs.loaded:
        await app.broker.intake.know_specs()
        broker = _broker(app, request)
    return await _receive(broker or app.broker, request, known=broker is not None)


def _broker(app: App, request: Request) -> Broker | None:
    """The broker of the webhook's tenant; None of one that has no spec, as far as that is known."""
    tenant = request.params.get("tenant")
    if tenant is None:
        return app.broker
    return app.broker.of(tenant) if app.broker.all_specs.knows(tenant) else None


async def _receive(broker: Broker, request: Request, *, known: bool = True) -> Response:
    name, compiled_specs = request.params["name"], broker.compiled_specs
    if not known or name not in compiled_specs.hooks:
        if not broker.all_specs.loaded and not compiled_specs.loaded:
            return _counted(broker, "", "unready", _unready("the broker does not know its webhooks yet"))
        return _counted(broker, "", "unknown", error_response(404, "not_found", "there is no such webhook"))
    hook = compiled_specs.hooks[name]
    if hook is None:
        return _counted(broker, name, "unready", _unready("the secret of this webhook is missing"))
    received = Received(request.headers, request.body, request.peer, wall_clock())
    refused = _refused(broker, hook, received, outside=request.outside)
    if refused is not None:
        return refused
    challenge = hook.challenge(received)
    if challenge is not None:
        return _counted(broker, name, "challenge", Response(200, b'{"challenge":%b}' % _encode(challenge)))
    try:
        taken = await broker.inbox.take(hook, received)
    except FairlaneError as error:
        return _problem(broker, hook, error)
    return _counted(broker, name, taken.status, _answer(taken))


def body_bytes_max(app: App, request: Request) -> int:
    """Of this webhook, as far as it is known: nobody sends more than what is refused anyway."""
    broker = _broker(app, request)
    hook = broker.compiled_specs.hooks.get(request.params["name"]) if broker is not None else None
    if hook is not None:
        return hook.spec.max_body_bytes
    return MESSAGE_BYTES_MAX if not (broker or app.broker).compiled_specs.loaded else _UNKNOWN_BYTES_MAX


def too_large(app: App, request: Request, bytes_max: int) -> Response:
    name, broker = request.params["name"], _broker(app, request)
    known = name if broker is not None and name in broker.compiled_specs.hooks else ""
    return _counted(broker or app.broker, known, "too_large", message.too_large(bytes_max))


def _refused(broker: Broker, hook: Hook, received: Received, *, outside: bool) -> Response | None:
    """The answer to what is not taken whatever it says, decided before anything of it is read."""
    if outside and hook.spec.verify is None:
        only = "this webhook has no `verify` in its spec, and here only those with a signature are taken"
        return _counted(broker, hook.name, "unverified", error_response(403, Forbidden.code, only))
    if len(received.body) > hook.spec.max_body_bytes:  # which was less when its header came
        return _counted(broker, hook.name, "too_large", message.too_large(hook.spec.max_body_bytes))
    # The signature first, and nothing limited but what fails it: others share an address, or know the URL.
    why = hook.refusal(received)
    now = time.monotonic()
    if why is not None:
        network = network_of(received.source_ip)
        hook.refusals.add(network, now)
        if hook.refusals.too_many(network, now):
            return _limited(broker, hook)
        return _counted(
            broker, hook.name, why, error_response(401, "unauthenticated", "the signature is missing or not good")
        )
    if hook.rate is not None and not hook.rate.allows(now):
        return _limited(broker, hook)
    kind = content_type(received.headers)
    if not (is_event(kind) if hook.is_event else _is_taken(kind)):
        only = "a webhook is JSON or a form, and its content-type must say so"
        if hook.is_event:
            only = "this webhook takes one event in a request, as application/cloudevents+json or in binary mode"
        other = error_response(415, "unsupported_media_type", only)
        return _counted(broker, hook.name, "malformed", other)
    return None


def _limited(broker: Broker, hook: Hook) -> Response:
    limited = error_response(
        429, "too_many_requests", "too many requests; try again soon", headers=((b"retry-after", b"1"),)
    )
    return _counted(broker, hook.name, "limited", limited)


def _is_taken(kind: bytes) -> bool:
    """What says nothing of itself is taken for JSON, and found out if it is not."""
    return kind in _TAKEN or kind.endswith(b"+json")


def _problem(broker: Broker, hook: Hook, error: FairlaneError) -> Response:
    if isinstance(error, Overloaded):
        seconds = str(max(1, math.ceil(error.retry_after))).encode()
        full = error_response(503, error.code, public_text(error), headers=((b"retry-after", seconds),))
        return _counted(broker, hook.name, "full", full)
    outcome = "unavailable"
    if isinstance(error, InvalidRequest):
        outcome = "misfit" if isinstance(error, PayloadInvalid | ExpressionFailed) else "malformed"
    return _counted(broker, hook.name, outcome, problem(error))


def _unready(why: str) -> Response:
    return error_response(503, "unavailable", why, headers=((b"retry-after", b"5"),))


def _answer(taken: Taken) -> Response:
    key, message_id = _encode(taken.key), _encode(taken.message_id)
    if taken.status == "ignored":
        return Response(200, b'{"ignored":true}')
    known = b'"idempotency_key":%b,"message_id":%b' % (key, message_id)
    if taken.replayed:
        known = b'"replayed":true,' + known
    if taken.status in ("processed", "ran"):
        return Response(200, b'{"processed":true,%b,"result":%b}' % (known, taken.result))
    if taken.status == "dead_letter":
        return Response(200, b'{"dead_letter":true,"replayed":false,"error":%b,%b}' % (_encode(taken.error), known))
    return Response(202, b'{"queued":true,%b}' % known)


def _counted(broker: Broker, hook: str, outcome: str, response: Response) -> Response:
    of = f"{broker.tenant}/{hook}" if hook and broker.tenant != DEFAULT_TENANT else hook
    broker.telemetry.hooks[of, outcome] += 1
    if hook:
        broker.hooks.note(hook, outcome, response.status)
    return response


@routes.get("/api/v1/hooks", needs="status", each=True, live=True)
async def list_hooks(broker: Broker, caller: Caller, query: HookListQuery) -> HookList:
    """Webhooks in force, and what became of requests to them, as the processes of this broker counted."""
    return await broker.hooks.page(query, lambda one: scopes.allows(caller, "status", one.queue))


@routes.post("/api/v1/hooks/{name}/test", needs="push", each=True)
async def test(broker: Broker, caller: Caller, name: str, request: Request) -> HookTest:
    """Send a webhook a signed sample, by the way of every request, and tell what its sender would be answered. What it
    makes of it is a message like any other."""
    for hook in await broker.hooks.list():
        if hook.name == name:
            scopes.check(caller, "push", hook.queue)
    headers, body = broker.hooks.sample(name)
    sent = Request("POST", request.path, headers, body, request.peer, params={"name": name})
    answer = await _receive(broker, sent)
    return HookTest(status=answer.status, body=msgspec.json.decode(answer.body))
