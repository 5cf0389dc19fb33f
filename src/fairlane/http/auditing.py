"""Audit log entries of requests: what a request is about, and its outcome."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from fairlane.broker.audit import Outcome
from fairlane.broker.broker import Broker
from fairlane.errors import Forbidden
from fairlane.http.router import Route
from fairlane.http.server import Request, Response

_UNNOTED: Final = {"queue", "name", "app", "data", "error", "source", "spec", "appliedBy"}
"""Fields that are left out: they are in the target already, may hold message data, or are long."""
_VALUE_CHARS_MAX: Final = 100


class _Deleted(msgspec.Struct):
    """The fields of an answer that report if a delete found something."""

    deleted: Any = True
    existed: Any = True


_decode_deleted = msgspec.json.Decoder(_Deleted).decode


def target_of(request: Request, route: Route) -> str:
    """Return what a request is about, for the audit log: its path, and the names and settings in its body.

    Fields that the route does not declare are left out.
    """
    path = request.path + (b"?" + request.query_string if request.query_string else b"")
    target = path[:200].decode("latin-1")
    if not request.body:
        return target
    with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError, TypeError):
        body = msgspec.json.decode(request.body)
        if isinstance(body, dict):
            spec = body.get("spec")
            app = spec.get("app") if isinstance(spec, dict) else body.get("app")
            target += "".join(
                f" {one:.80}" for one in (body.get("queue"), body.get("name"), app) if isinstance(one, str)
            )
            for field in msgspec.structs.fields(route.body) if route.body else ():
                name = field.encode_name
                if name not in _UNNOTED and body.get(name) not in (None, [], {}):
                    target += f" {name}={msgspec.json.encode(body[name]).decode():.{_VALUE_CHARS_MAX}}"
    return target


def _outcome(request: Request, response: Response) -> Outcome:
    """Return `failed` for an error, and for a delete that found nothing."""
    if response.status >= 400:
        return "failed"
    if request.method == "DELETE" and response.body:
        with contextlib.suppress(msgspec.MsgspecError, TypeError):
            answer = _decode_deleted(response.body)
            return "failed" if answer.deleted is False or answer.existed is False else "done"
    return "done"


async def audited(broker: Broker, request: Request, answer: Callable[[], Awaitable[Response]]) -> Response:
    """Return the answer to a request that changes something, and log its begin and its outcome.

    The outcome is not logged if the client disconnects first.
    """
    what = request.caller, request.found.name, target_of(request, request.found)
    began = await broker.audit.begin(*what, request.peer)
    try:
        response = await answer()
    except Exception as error:  # logged, then raised
        outcome: Outcome = "refused" if isinstance(error, Forbidden) else "failed"
        await broker.audit.add(*what, outcome, request.peer, began)
        raise
    await broker.audit.add(*what, _outcome(request, response), request.peer, began)
    return response
